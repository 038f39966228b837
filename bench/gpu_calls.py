"""What the contenders on GPUs call, and whether the results are right."""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import torch
import torch.distributed as dist

DTYPES = {"f32": torch.float32, "bf16": torch.bfloat16}
CHUNK = 1 << 24  # elements that are verified at once

Run = Callable[[], torch.Tensor]  # performs a call, and returns where its result lies


class Meeting:
    """What ranks agree on beside the contender: a barrier, and numbers of rank 0."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size, self.turn = rank, size, 0
        host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        patience = datetime.timedelta(seconds=120)
        self.store = dist.TCPStore(host, port, size, is_master=rank == 0, timeout=patience)

    def barrier(self, size: int | None = None) -> None:
        """Wait until all ranks, or as many, have come."""
        self.turn += 1
        if self.store.add(f"come-{self.turn}", 1) == (size or self.size):
            self.store.set(f"go-{self.turn}", "")
        self.store.wait([f"go-{self.turn}"])

    def end(self, size: int | None = None) -> None:
        """Part, as all or as many ranks do. Rank 0, which keeps the store, goes last."""
        if self.store.add("ended", 1) == (size or self.size):
            self.store.set("end", "")
        if self.rank == 0:
            self.store.wait(["end"])

    def agree(self, value: int) -> int:
        self.turn += 1
        if self.rank == 0:
            self.store.set(f"value-{self.turn}", str(value))
        return int(self.store.get(f"value-{self.turn}"))


def take_device(kind: str, rank: int) -> torch.device:
    """Return the device of a rank. If it is a GPU, make it current, and stay near it.

    Every contender's ranks do so, as `ringlane run` has it: host memory is then near, too.
    """
    if kind == "cpu":
        return torch.device("cpu")
    device = torch.device("cuda", rank % torch.cuda.device_count())
    torch.cuda.set_device(device)
    about = torch.cuda.get_device_properties(device)
    with contextlib.suppress(AttributeError, OSError):  # an older torch; no such file
        address = f"{about.pci_domain_id:04x}:{about.pci_bus_id:02x}:{about.pci_device_id:02x}.0"
        near = cpus(Path("/sys/bus/pci/devices", address, "local_cpulist").read_text())
        if near := near & os.sched_getaffinity(0):
            os.sched_setaffinity(0, near)
    return device


def cpus(text: str) -> set[int]:
    """Parse a list of processors as the kernel writes it: 0-3,8."""
    found: set[int] = set()
    for part in text.strip().split(","):
        first, _, last = part.partition("-")
        if first:
            found |= set(range(int(first), int(last or first) + 1))
    return found


class Call(NamedTuple):
    """A collective on given memory."""

    collective: str
    data: torch.Tensor  # the input, which may be the output too
    run: Run


class Contender:
    """Collectives as one library offers them, on its own buffers."""

    def __init__(self, name: str, largest: int, meeting: Meeting, device: torch.device) -> None:
        self.name, self.meeting, self.device = name, meeting, device
        backend = name if name in ("ringlane", "gloo") else "nccl"
        if backend == "ringlane":
            import ringlane.torch  # noqa: F401, PLC0415
        dist.init_process_group(
            backend,
            rank=meeting.rank,
            world_size=meeting.size,
            store=dist.PrefixStore(f"group-{name}", meeting.store),
            **({"device_id": device} if backend == "nccl" else {}),
        )
        self.group = dist.group.WORLD.group_name
        # A rank has an element at least.
        self._largest = largest = max(largest, 8 * meeting.size)
        self._out: torch.Tensor | None = None
        if backend == name:
            self._memory = torch.zeros(largest, dtype=torch.uint8, device=device)
            return
        import torch.distributed._symmetric_memory as symmetric  # noqa: PLC0415

        self._memory = symmetric.empty(largest, dtype=torch.uint8, device=device)
        symmetric.rendezvous(self._memory, self.group)
        self._memory.zero_()

    def call(self, collective: str, dtype: torch.dtype, nbytes: int) -> Call:
        """Return a call of as many bytes as nccl-tests counts: the larger buffer's."""
        size, memory = self.meeting.size, self._memory
        share = max(1, nbytes // dtype.itemsize // size)
        count = nbytes // dtype.itemsize if collective == "allreduce" else share * size
        data = memory[: count * dtype.itemsize].view(dtype)
        if collective == "allgather":
            data = data[:share]
        calls = {
            "one_shot": self._one_shot,
            "two_shot": self._two_shot,
            "low_contention": self._low_contention,
        }
        if self.name in calls:
            return Call(collective, data, calls[self.name](collective, data))
        if collective == "allreduce":
            return Call(collective, data, lambda: done(dist.all_reduce(data), data))
        if self._out is None:
            self._out = torch.zeros(self._largest, dtype=torch.uint8, device=self.device)
        out = self._out[: count * dtype.itemsize].view(dtype)
        if collective == "reducescatter":
            out = out[:share]
        perform = {
            "reducescatter": dist.reduce_scatter_tensor,
            "allgather": dist.all_gather_into_tensor,
            "alltoall": dist.all_to_all_single,
        }[collective]
        return Call(collective, data, lambda: done(perform(out, data), out))

    def _one_shot(self, _: str, data: torch.Tensor) -> Run:
        out = torch.empty_like(data)
        op = torch.ops.symm_mem.one_shot_all_reduce_out
        return lambda: done(op(data, "sum", self.group, out), out)

    def _two_shot(self, _: str, data: torch.Tensor) -> Run:
        op = torch.ops.symm_mem.two_shot_all_reduce_
        return lambda: done(op(data, "sum", self.group), data)

    def _low_contention(self, collective: str, data: torch.Tensor) -> Run:
        wait = torch.ops._c10d_functional.wait_tensor
        if collective == "allgather":
            gather = torch.ops.symm_mem._low_contention_all_gather
            return lambda: wait(gather(data, self.group))
        scatter = torch.ops.symm_mem._low_contention_reduce_scatter
        return lambda: wait(scatter(data, "sum", self.group))


def done(_: object, out: torch.Tensor) -> torch.Tensor:
    """Return where the result of a call lies that has been made."""
    return out


def pattern(rank: int, first: int, count: int, device: torch.device) -> torch.Tensor:
    """Return small integers, of which every type holds the sums of 32 ranks exactly."""
    i = torch.arange(first, first + count, device=device)
    return (i + i // 7 + 3 * rank) % 8


class Piece(NamedTuple):
    """A part of a result: elements of the inputs of some ranks, added up."""

    offset: int  # in the result
    count: int
    ranks: range
    first: int  # in the inputs


def pieces(collective: str, rank: int, size: int, count: int) -> list[Piece]:
    """Return what the result of ``count`` elements of a rank is made of."""
    every, share = range(size), count // size
    if collective == "allreduce":
        return [Piece(0, count, every, 0)]
    if collective == "reducescatter":
        return [Piece(0, count, every, rank * count)]
    first = rank * share if collective == "alltoall" else 0
    return [Piece(j * share, share, range(j, j + 1), first) for j in every]


def chunks(count: int) -> Iterator[tuple[int, int]]:
    for first in range(0, count, CHUNK):
        yield first, min(CHUNK, count - first)


def settle(device: torch.device) -> None:
    """Wait for the GPU, if it is one."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def wrong(call: Call, run: Run, meeting: Meeting) -> int:
    """Run once on known data; return how many elements are not what they should be."""
    data, device = call.data, call.data.device
    for first, count in chunks(data.numel()):
        data[first : first + count] = pattern(meeting.rank, first, count, device)
    settle(device)
    meeting.barrier()
    out = run()
    settle(device)
    found = torch.zeros((), dtype=torch.int64, device=device)
    for piece in pieces(call.collective, meeting.rank, meeting.size, out.numel()):
        for first, count in chunks(piece.count):
            at = piece.offset + first
            want = sum(pattern(r, piece.first + first, count, device) for r in piece.ranks)
            found += (out[at : at + count] != want.to(out.dtype)).sum()
    data.zero_()  # so that sums of sums stay finite
    return int(found)
