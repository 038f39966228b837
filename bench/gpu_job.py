"""One rank of the comparison on GPUs: one contender, all sizes. bench/gpu.py starts it.

Every contender is measured by the same loop on tensors of the same kind: calls are captured in
a CUDA graph, and the GPU takes the time of each replay, one right behind the other. What each
rank saw goes to a file of its own; the parent takes the slowest rank of each replay.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
SMALL = 256 << 10
CALLS = {True: 100, False: 20}  # in a graph, of small messages and of others
REPLAYS = (10, 500)
SETTLE = 2  # the first replays, which wait for the host or for the other ranks
CHUNK = 1 << 24  # elements that are verified at once
EAGER_CALLS, EAGER_TURNS = 20, 100
LAYERS, WIDTH, HEADS, VOCABULARY = 24, 1024, 16, 50304  # 355 million parameters
BATCH, TOKENS, STEPS, STEPS_BEFORE = 8, 512, 20, 5

Call = Callable[[], Any]


class Meeting:
    """What ranks agree on beside the contender: a barrier, and numbers of rank 0."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.turn = rank, size, 0
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        patience = datetime.timedelta(seconds=120)
        self.store = dist.TCPStore(host, port, size, is_master=rank == 0, timeout=patience)

    def barrier(self) -> None:
        self.turn += 1
        if self.store.add(f"come-{self.turn}", 1) == self.size:
            self.store.set(f"go-{self.turn}", "")
        self.store.wait([f"go-{self.turn}"])

    def agree(self, value: int) -> int:
        self.turn += 1
        if self.rank == 0:
            self.store.set(f"value-{self.turn}", str(value))
        return int(self.store.get(f"value-{self.turn}"))


class Contender:
    """AllReduce as one library offers it, on its own buffer."""

    def __init__(self, name: str, largest: int, meeting: Meeting) -> None:
        self.name, self.meeting = name, meeting
        self.device = torch.device("cuda", torch.cuda.current_device())
        backend = "nccl" if name in ("nccl", "one_shot", "two_shot") else name
        if backend == "ringlane":
            import ringlane.torch  # noqa: F401, PLC0415
        store = dist.PrefixStore(f"group-{name}", meeting.store)
        dist.init_process_group(
            backend,
            rank=meeting.rank,
            world_size=meeting.size,
            store=store,
            **({"device_id": self.device} if backend == "nccl" else {}),
        )
        if backend == name:
            self.memory = torch.zeros(largest, dtype=torch.uint8, device=self.device)
            return
        import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415

        self.memory = symmetric.empty(largest, dtype=torch.uint8, device=self.device)
        symmetric.rendezvous(self.memory, dist.group.WORLD.group_name)
        self.memory.zero_()

    def call(self, dtype: torch.dtype, nbytes: int) -> tuple[torch.Tensor, torch.Tensor, Call]:
        """Return input, output, which may be the same, and what reduces one into the other."""
        data = self.memory[:nbytes].view(dtype)
        if self.name == "one_shot":
            out = torch.empty_like(data)
            group = dist.group.WORLD.group_name
            op = torch.ops.symm_mem.one_shot_all_reduce_out
            return data, out, lambda: op(data, "sum", group, out)
        if self.name == "two_shot":
            group = dist.group.WORLD.group_name
            op = torch.ops.symm_mem.two_shot_all_reduce_
            return data, data, lambda: op(data, "sum", group)
        return data, data, lambda: dist.all_reduce(data)


def graph_of(call: Call, calls: int) -> torch.cuda.CUDAGraph:
    """Capture calls."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            call()
    return graph


def pattern(rank: int, first: int, count: int, device: torch.device) -> torch.Tensor:
    """Return small integers, whose sums every type holds exactly."""
    i = torch.arange(first, first + count, device=device)
    return (i + i // 7 + 3 * rank) % 4


def chunks(data: torch.Tensor) -> Iterator[tuple[int, torch.Tensor]]:
    for first in range(0, data.numel(), CHUNK):
        yield first, data[first : first + CHUNK]


def wrong(data: torch.Tensor, out: torch.Tensor, run: Call, meeting: Meeting) -> int:
    """Run once on known data; return how many elements are not their exact sum."""
    for first, part in chunks(data):
        part.copy_(pattern(meeting.rank, first, part.numel(), data.device))
    torch.cuda.synchronize()
    meeting.barrier()
    run()
    torch.cuda.synchronize()
    found = 0
    for first, part in chunks(out):
        ranks = range(meeting.size)
        want = sum(pattern(rank, first, part.numel(), data.device) for rank in ranks)
        found += int((part != want.to(part.dtype)).sum())
    data.zero_()  # so that sums of sums stay finite
    return found


def timed(run: Call, times: int, meeting: Meeting) -> list[float]:
    """Return the seconds that each of several runs took on this GPU."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    torch.cuda.synchronize()
    meeting.barrier()
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(events)]


def measure(contender: Contender, dtype: str, nbytes: int, seconds: float) -> dict[str, Any]:
    """Return a row: the microseconds of a call, for each replay."""
    meeting = contender.meeting
    row: dict[str, Any] = {"contender": contender.name, "dtype": dtype, "bytes": nbytes}
    try:
        data, out, call = contender.call(DTYPES[dtype], nbytes)
        errors = wrong(data, out, call, meeting)
        single = graph_of(call, 1)
        errors += wrong(data, out, single.replay, meeting)
        calls = CALLS[nbytes <= SMALL]
        graph = graph_of(call, calls)
        pilot = timed(graph.replay, 3, meeting)
        times = meeting.agree(int(min(max(seconds / pilot[-1], REPLAYS[0]), REPLAYS[1])))
        took = timed(graph.replay, times + SETTLE, meeting)[SETTLE:]
        errors += wrong(data, out, single.replay, meeting)
    except RuntimeError as why:  # as all ranks will find
        return {**row, "failed": str(why).splitlines()[0][:300]}
    micros = [round(s / calls * 1e6, 4) for s in took]
    return {**row, "calls_at_once": calls, "us": micros, "wrong": errors}


def overhead(contender: Contender) -> list[float]:
    """Return the microseconds of host time that an eager call of 1 KiB takes, turn by turn."""
    _, _, call = contender.call(torch.float32, 1024)
    took = []
    for _ in range(EAGER_TURNS):
        torch.cuda.synchronize()
        contender.meeting.barrier()
        begin = time.perf_counter()
        for _ in range(EAGER_CALLS):
            call()
        took.append((time.perf_counter() - begin) / EAGER_CALLS * 1e6)
    torch.cuda.synchronize()
    return took


class Layer(nn.Module):
    """One layer of a transformer decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.attend(self.before(x)).chunk(3, -1)
        ]
        seen = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.between(x))))


class Model(nn.Module):
    """A language model whose output weights are its embedding; the loss of random tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        guess = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(guess[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def ddp(contender: Contender) -> dict[str, Any]:
    """Time training steps: with communication, without it, and of communication by itself."""
    meeting, device = contender.meeting, contender.device
    torch.manual_seed(1)
    model = DistributedDataParallel(Model().to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(2 + meeting.rank)
    tokens = torch.randint(VOCABULARY, (BATCH, TOKENS), device=device)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    def alone() -> None:
        with model.no_sync():
            step()

    def of(run: Call) -> list[float]:
        return [s * 1e3 for s in timed(run, STEPS_BEFORE + STEPS, meeting)[STEPS_BEFORE:]]

    found = {"parameters": sum(p.numel() for p in model.parameters()), "step_ms": of(step)}
    sums = torch.stack([p.detach().double().sum() for p in model.parameters()])
    largest, smallest = sums.clone(), sums.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    dist.all_reduce(smallest, dist.ReduceOp.MIN)
    found["same_parameters"] = bool((largest == smallest).all())
    found["alone_ms"] = of(alone)  # from here on every rank has its own
    # The gradients are views of the buckets.
    storages = {p.grad.untyped_storage().data_ptr(): p.grad for p in model.parameters()}
    held = [
        torch.empty(0, device=device).set_(grad.untyped_storage()) for grad in storages.values()
    ]
    found["buckets_bytes"] = [b.numel() * b.element_size() for b in held]

    def buckets() -> None:
        for work in [dist.all_reduce(b, async_op=True) for b in held]:
            work.wait()

    found["buckets_ms"] = of(buckets)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="where what was measured goes, .RANK appended")
    parser.add_argument("--contender", required=True)
    parser.add_argument("--sizes", type=int, nargs="*", required=True)
    parser.add_argument("--dtypes", nargs="+", choices=DTYPES, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--ddp", action="store_true")
    options = parser.parse_args()

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.cuda.set_device(rank % torch.cuda.device_count())
    meeting = Meeting(rank, size)
    contender = Contender(options.contender, max([*options.sizes, 1024]), meeting)
    found: dict[str, Any] = {"rows": []}

    def keep() -> None:
        """Leave what there is, whatever becomes of the rest."""
        path = options.path.with_suffix(f".{rank}")
        path.with_suffix(path.suffix + "-new").write_text(json.dumps(found))
        path.with_suffix(path.suffix + "-new").replace(path)

    for dtype, nbytes in itertools.product(options.dtypes, options.sizes):
        found["rows"].append(measure(contender, dtype, nbytes, options.seconds))
        keep()
    if options.overhead:
        found["overhead_us"] = overhead(contender)
        keep()
    if options.ddp:
        found["ddp"] = ddp(contender)
        keep()
    meeting.barrier()
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
