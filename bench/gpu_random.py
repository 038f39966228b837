"""One rank of a job that makes random collectives and verifies their results.

All ranks draw the same calls from the same seed: kind, element type, operator, root, lengths,
alignment, which stream, and how many are under way at once. bench/gpu.py starts it, on GPUs;
on tensors of processors it does the same.
"""

from __future__ import annotations

import argparse
import contextlib
import math
import os
import random
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from gpu_calls import Contender, Meeting, settle, take_device
from gpu_launch import leave

TYPES = {
    "f32": torch.float32,
    "f64": torch.float64,
    "f16": torch.float16,
    "bf16": torch.bfloat16,
    "i8": torch.int8,
    "u8": torch.uint8,
    "i32": torch.int32,
    "i64": torch.int64,
}
OPS = ("SUM", "MIN", "MAX", "PRODUCT", "AVG")  # the last of floats only
KINDS = (
    *("allreduce",) * 4,  # as often as in training
    *("reducescatter", "allgather", "alltoall", "alltoallv", "exchange", "sendrecv"),
    *("reduce", "broadcast", "gather", "scatter", "barrier"),
)
AT_ONCE = 3
REPORTED = 10

Check = Callable[[], tuple[torch.Tensor, torch.Tensor]]  # what came, and what should have come


class Case(NamedTuple):
    """A call as all ranks make it."""

    kind: str
    dtype: str
    op: str
    root: int
    other: int  # whom the root sends to; in an exchange, how far each rank sends
    count: int  # elements that a rank has, or gives each other
    counts: list[list[int]]  # that a rank gives another where they are not all the same
    offset: int  # of the buffers, in elements from where they are aligned
    later: bool  # is waited for after the calls that follow
    side: bool  # is made on a stream of its own


def draw(dice: random.Random, size: int, largest: int) -> Case:
    """Return a random call whose buffers have about ``largest`` bytes at most."""
    kind, dtype = dice.choice(KINDS), dice.choice(list(TYPES))
    width = TYPES[dtype].itemsize
    share = int(2 ** dice.uniform(0, math.log2(max(largest // width, 2))))
    if kind not in ("allreduce", "reduce", "broadcast", "sendrecv", "exchange"):
        share //= size
    floats = TYPES[dtype].is_floating_point
    root = dice.randrange(size)
    count = max(share, 1)
    return Case(
        kind,
        dtype,
        dice.choice(OPS if floats else OPS[:-1]),
        root,
        (root + dice.randrange(1, size)) % size,
        count,
        [[dice.randrange(count + 1) for _ in range(size)] for _ in range(size)],
        dice.randrange(4),
        dice.random() < 0.5,
        dice.random() < 0.25,
    )


class Player:
    """A rank that makes the calls."""

    def __init__(self, rank: int, size: int, device: torch.device) -> None:
        self.rank, self.size, self.device = rank, size, device
        self._side = torch.cuda.Stream(device) if device.type == "cuda" else None

    @contextlib.contextmanager
    def stream(self, case: Case) -> Iterator[None]:
        """Make what is called inside run on the stream of a case, in order with the rest."""
        if self._side is None or not case.side:
            yield
            return
        here = torch.cuda.current_stream(self.device)
        self._side.wait_stream(here)
        with torch.cuda.stream(self._side):
            yield
        here.wait_stream(self._side)

    def values(self, case: Case, rank: int, first: int, count: int) -> torch.Tensor:
        """Return what a rank puts in: integers whose results every type holds exactly."""
        i = torch.arange(first, first + count, device=self.device)
        if case.op == "PRODUCT":
            return 1 + ((i + rank) % 8 == 0).long()
        return (i + i // 7 + 3 * rank) % 8

    def buffer(self, case: Case, count: int, first: int | None = None) -> torch.Tensor:
        """Return memory, with what this rank puts in from an element on, or with nothing."""
        memory = torch.full(
            (case.offset + count,), 99, dtype=TYPES[case.dtype], device=self.device
        )[case.offset :]
        if first is not None:
            memory.copy_(self.values(case, self.rank, first, count))
        return memory

    def reduced(self, case: Case, first: int, count: int) -> torch.Tensor:
        """Return what the inputs of all ranks come to."""
        every = torch.stack([self.values(case, r, first, count) for r in range(self.size)])
        if case.op == "AVG":
            return every.sum(0).double() / self.size
        one = {
            "SUM": every.sum,
            "MIN": every.amin,
            "MAX": every.amax,
            "PRODUCT": every.prod,
        }[case.op]
        return one(0)

    def begin(self, case: Case) -> tuple[Sequence[Any], list[Check]]:
        """Make a call; return what is to be waited for, and what is to be looked at."""
        with self.stream(case):
            made, checks = getattr(self, f"_{case.kind}")(case)
        every = made if isinstance(made, list) else [made]
        works = [work for work in every if work is not None]
        if not case.later:
            self.wait(case, works)
            works = []
        return works, checks

    def wait(self, case: Case, works: Sequence[Any]) -> None:
        with self.stream(case):
            for work in works:
                work.wait()

    def wrong(self, case: Case, check: Check) -> int:
        """Return how many elements are not what they should be."""
        out, want = check()
        if case.op == "AVG":
            near = {"rtol": torch.finfo(out.dtype).eps, "atol": 0.0}
            return int((~torch.isclose(out.double(), want.to(out.dtype).double(), **near)).sum())
        return int((out != want.to(out.dtype)).sum())

    def _allreduce(self, case: Case) -> tuple[Any, list[Check]]:
        data, op = self.buffer(case, case.count, 0), getattr(dist.ReduceOp, case.op)
        made = dist.all_reduce(data, op, async_op=case.later)
        return made, [lambda: (data, self.reduced(case, 0, case.count))]

    def _reduce(self, case: Case) -> tuple[Any, list[Check]]:
        data, op = self.buffer(case, case.count, 0), getattr(dist.ReduceOp, case.op)
        made = dist.reduce(data, case.root, op, async_op=case.later)
        checks: list[Check] = [lambda: (data, self.reduced(case, 0, case.count))]
        return made, checks if self.rank == case.root else []

    def _broadcast(self, case: Case) -> tuple[Any, list[Check]]:
        data = self.buffer(case, case.count, 0)
        made = dist.broadcast(data, case.root, async_op=case.later)
        return made, [lambda: (data, self.values(case, case.root, 0, case.count))]

    def _reducescatter(self, case: Case) -> tuple[Any, list[Check]]:
        data, out = self.buffer(case, case.count * self.size, 0), self.buffer(case, case.count)
        op = getattr(dist.ReduceOp, case.op)
        made = dist.reduce_scatter_tensor(out, data, op, async_op=case.later)
        return made, [lambda: (out, self.reduced(case, self.rank * case.count, case.count))]

    def _allgather(self, case: Case) -> tuple[Any, list[Check]]:
        data, out = self.buffer(case, case.count, 0), self.buffer(case, case.count * self.size)
        made = dist.all_gather_into_tensor(out, data, async_op=case.later)
        return made, [self._from_each(case, out, 0)]

    def _alltoall(self, case: Case) -> tuple[Any, list[Check]]:
        every = case.count * self.size
        data, out = self.buffer(case, every, 0), self.buffer(case, every)
        made = dist.all_to_all_single(out, data, async_op=case.later)
        return made, [self._from_each(case, out, self.rank * case.count)]

    def _from_each(self, case: Case, out: torch.Tensor, first: int) -> Check:
        parts = range(self.size)
        return lambda: (out, torch.cat([self.values(case, r, first, case.count) for r in parts]))

    def _alltoallv(self, case: Case) -> tuple[Any, list[Check]]:
        gives = case.counts[self.rank]
        gets = [row[self.rank] for row in case.counts]
        data, out = self.buffer(case, sum(gives), 0), self.buffer(case, sum(gets))
        made = dist.all_to_all_single(out, data, gets, gives, async_op=case.later)

        def check() -> tuple[torch.Tensor, torch.Tensor]:
            firsts = [sum(row[: self.rank]) for row in case.counts]
            parts = [
                self.values(case, rank, first, count)
                for rank, (first, count) in enumerate(zip(firsts, gets))
            ]
            return out, torch.cat(parts)

        return made, [check]

    def _exchange(self, case: Case) -> tuple[Any, list[Check]]:
        far = (case.other - case.root) % self.size
        to, source = (self.rank + far) % self.size, (self.rank - far) % self.size
        count = case.counts[source][self.rank] + 1
        data = self.buffer(case, case.counts[self.rank][to] + 1, 0)
        out = self.buffer(case, count)
        both = [dist.P2POp(dist.isend, data, to), dist.P2POp(dist.irecv, out, source)]
        made = dist.batch_isend_irecv(both)
        return made, [lambda: (out, self.values(case, source, 0, count))]

    def _sendrecv(self, case: Case) -> tuple[Any, list[Check]]:
        data = self.buffer(case, case.count, 0)
        if self.rank == case.root:
            return dist.isend(data, case.other), []
        if self.rank == case.other:
            made = dist.irecv(data, case.root)
            return made, [lambda: (data, self.values(case, case.root, 0, case.count))]
        return None, []

    def _gather(self, case: Case) -> tuple[Any, list[Check]]:
        data, outs = self.buffer(case, case.count, 0), None
        if self.rank == case.root:
            outs = [self.buffer(case, case.count) for _ in range(self.size)]
        made = dist.gather(data, outs, case.root, async_op=case.later)

        def check() -> tuple[torch.Tensor, torch.Tensor]:
            return self._from_each(case, torch.cat(outs or []), 0)()  # once all have come

        return made, [check] if outs else []

    def _scatter(self, case: Case) -> tuple[Any, list[Check]]:
        out, parts = self.buffer(case, case.count), None
        if self.rank == case.root:
            parts = [self.buffer(case, case.count, r * case.count) for r in range(self.size)]
        made = dist.scatter(out, parts, case.root, async_op=case.later)
        first = self.rank * case.count
        return made, [lambda: (out, self.values(case, case.root, first, case.count))]

    def _barrier(self, case: Case) -> tuple[Any, list[Check]]:
        return dist.barrier(async_op=case.later), []


def play(
    player: Player, seed: int, calls: int, largest: int, go_on: Callable[[], bool]
) -> dict[str, Any]:
    """Make calls until all are made, or there is no time left; return what was wrong."""
    dice = random.Random(seed)  # noqa: S311
    found: dict[str, Any] = {"seed": seed, "calls": 0, "wrong": 0, "examples": []}
    while found["calls"] < calls and go_on():
        cases = [draw(dice, player.size, largest) for _ in range(dice.randint(1, AT_ONCE))]
        begun = [player.begin(case) for case in cases]
        for case, (works, _) in zip(cases, begun):
            player.wait(case, works)
        settle(player.device)
        for case, (_, checks) in zip(cases, begun):
            found["calls"] += 1
            elements = sum(player.wrong(case, check) for check in checks)
            found["wrong"] += bool(elements)
            if elements and len(found["examples"]) < REPORTED:
                shown = case._replace(counts=[])._asdict()
                found["examples"].append({"elements": elements, "call": found["calls"], **shown})
    return found


def main() -> None:
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    add = parser.add_argument
    add("path", type=Path, help="where what was found goes, .RANK appended")
    add("--device", choices=("cpu", "cuda"), required=True)
    add("--seed", type=int, required=True)
    add("--calls", type=int, required=True)
    add("--largest", type=int, required=True, help="bytes of a buffer")
    add("--stop", type=float, required=True, help="begin nothing after so many seconds")
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = take_device(options.device, rank)
    meeting = Meeting(rank, size)
    Contender("ringlane", 8, meeting, device)

    def go_on() -> bool:
        return bool(meeting.agree(int(time.monotonic() - begun < options.stop)))

    player = Player(rank, size, device)
    leave(options.path, rank, play(player, options.seed, options.calls, options.largest, go_on))
    dist.destroy_process_group()
    meeting.end()


if __name__ == "__main__":
    main()
