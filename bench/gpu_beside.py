"""What sums and other work on the same GPU take beside each other."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from gpu_calls import Meeting

BYTES = 38 << 20  # of a sum, as DDP's buckets of such a model are
BEFORE = 60  # sums, after which Ringlane's ranks have settled on how they go
TURNS = 5
SIDE, PRODUCTS = 4096, 40  # matrices of bf16, multiplied so many times
ELEMENTS, ADDITIONS = 64 << 20, 60  # vectors of bf16, added


def milliseconds(begin: torch.cuda.Event, end: torch.cuda.Event) -> float:
    torch.cuda.synchronize()
    return begin.elapsed_time(end)


def marked() -> torch.cuda.Event:
    event = torch.cuda.Event(enable_timing=True)
    event.record()
    return event


def beside(
    device: torch.device,
    meeting: Meeting,
    graph_of: Callable[[Callable[[], torch.Tensor], int], torch.cuda.CUDAGraph],
) -> dict[str, Any]:
    """Time sums alone, and how many times as long other work takes beside a row of them."""
    data = torch.zeros(BYTES // 4, device=device)
    a, b = (torch.randn(SIDE, SIDE, dtype=torch.bfloat16, device=device) for _ in range(2))
    product = torch.empty_like(a)
    x, y = (torch.zeros(ELEMENTS, dtype=torch.bfloat16, device=device) for _ in range(2))
    torch.mm(a, b, out=product)  # what it takes once is not captured
    torch.cuda.synchronize()
    graphs = {
        "matmul": graph_of(lambda: torch.mm(a, b, out=product), PRODUCTS),
        "add": graph_of(lambda: x.add_(y), ADDITIONS),
    }

    def sums(times: int) -> dist.Work:
        for _ in range(times):
            work = dist.all_reduce(data, async_op=True)
        return work

    def alone(graph: torch.cuda.CUDAGraph) -> float:
        took = []
        for _ in range(TURNS):
            begin = marked()
            graph.replay()
            took.append(milliseconds(begin, marked()))
        return statistics.median(took)

    def both(graph: torch.cuda.CUDAGraph, times: int) -> float:
        meeting.barrier()
        work = sums(times)
        begin = marked()
        graph.replay()
        end = marked()
        work.wait()
        return milliseconds(begin, end)

    sums(BEFORE).wait()
    torch.cuda.synchronize()
    meeting.barrier()
    begin = marked()
    sums(TURNS).wait()
    found: dict[str, Any] = {"bytes": BYTES, "sum_ms": milliseconds(begin, marked()) / TURNS}
    for name, graph in graphs.items():
        by_itself = alone(graph)
        times = meeting.agree(math.ceil(3 * by_itself / found["sum_ms"]))
        took = [both(graph, times) / by_itself for _ in range(TURNS)]
        found[name] = statistics.median(took)
    return found
