"""One rank of the comparison through torch: gloo and ringlane in the same processes.

bench/peers.py starts it under `ringlane run`. The backends take turns on the same tensors, so
that what else the machine does meets both alike.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import time
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from report import summary
from torch.nn.parallel import DistributedDataParallel

import ringlane.torch

CALLS = (8, 3000)
TURNS = 4
LAYERS, WIDTH, BATCH = 6, 2041, 8  # 25.0 million parameters
STEPS = 20


def eager(groups: dict[str, dist.ProcessGroup], sizes: list[int], seconds: float) -> list[Any]:
    """Time all_reduce in place: barrier, clock, call, clock; the slowest rank counts."""
    ours = groups["ringlane"]

    def timed(group: dist.ProcessGroup, data: torch.Tensor, calls: int) -> list[float]:
        times = torch.empty(calls, dtype=torch.float64)
        for i in range(calls):
            data.fill_(1.0)
            dist.barrier(group=ours)
            begin = time.perf_counter()
            dist.all_reduce(data, group=group)
            times[i] = time.perf_counter() - begin
        size = dist.get_world_size()
        assert data[0] == size and data[-1] == size, "the sum is wrong"  # noqa: S101
        dist.all_reduce(times, dist.ReduceOp.MAX, group=ours)
        return times.tolist()

    rows = []
    for nbytes in sizes:
        data = torch.ones(nbytes // 4)
        calls, took = {}, {}
        for name, group in groups.items():
            pilot = statistics.median(timed(group, data, 5))
            calls[name] = int(min(max(seconds / pilot, CALLS[0]), CALLS[1]))
            took[name] = []
        for _ in range(TURNS):
            for name, group in groups.items():
                took[name].append(timed(group, data, calls[name] // TURNS))
        rows.append({"bytes": nbytes, **{name: summary(parts) for name, parts in took.items()}})
    return rows


def ddp(groups: dict[str, dist.ProcessGroup]) -> dict[str, Any]:
    """Time training steps of a model of 25 million parameters over both backends.

    Two figures say what communication costs. `added_ms` is the step less that of a third
    DistributedDataParallel whose hook returns every bucket as it is: what is left after
    backward and communication have overlapped, in which both want the same cores.
    `buckets_ms` is the time of all-reducing the same buckets after the backward pass, with
    nothing beside them; the gradients are views of the buckets, so they can be found. Over
    ringlane the buckets lie in a window by themselves, unless RINGLANE_WINDOW is 0.
    """
    ours = groups["ringlane"]
    inputs = torch.randn(BATCH, WIDTH)
    models: dict[str, DistributedDataParallel] = {}
    for name, group in {**groups, "alone": groups["gloo"]}.items():
        torch.manual_seed(1)
        layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
        models[name] = DistributedDataParallel(
            torch.nn.Sequential(*layers), process_group=group, gradient_as_bucket_view=True
        )

    def nothing(_, bucket):  # not annotated: DDP refuses annotations that are strings
        done = torch.futures.Future()
        done.set_result(bucket.buffer())
        return done

    models["alone"].register_comm_hook(None, nothing)

    def slowest(seconds: float) -> float:
        took = torch.tensor([seconds], dtype=torch.float64)
        dist.all_reduce(took, dist.ReduceOp.MAX, group=ours)
        return took.item() * 1e3

    def step(model: DistributedDataParallel) -> float:
        model.zero_grad()
        dist.barrier(group=ours)
        begin = time.perf_counter()
        model(inputs).square().mean().backward()
        return slowest(time.perf_counter() - begin)

    took: dict[str, list[float]] = {name: [] for name in models}
    for i in range(STEPS + 3):  # the first steps order the buckets anew
        for name, model in models.items():
            milliseconds = step(model)
            if i >= 3:
                took[name].append(milliseconds)

    def buckets_of(model: DistributedDataParallel) -> list[torch.Tensor]:
        storages = {p.grad.untyped_storage().data_ptr(): p.grad for p in model.parameters()}
        return [torch.empty(0).set_(grad.untyped_storage()) for grad in storages.values()]

    def buckets(group: dist.ProcessGroup, held: list[torch.Tensor]) -> float:
        dist.barrier(group=ours)
        begin = time.perf_counter()
        for work in [dist.all_reduce(b, group=group, async_op=True) for b in held]:
            work.wait()
        return slowest(time.perf_counter() - begin)

    bucket_times: dict[str, list[float]] = {name: [] for name in groups}
    held = []
    for _ in range(STEPS):
        for name, group in groups.items():
            step(models[name])
            held = buckets_of(models[name])
            bucket_times[name].append(buckets(group, held))

    middle = statistics.median
    without = middle(took["alone"])
    return {
        "parameters": sum(p.numel() for p in models["gloo"].parameters()),
        "batch": BATCH,
        "buckets_bytes": [b.numel() * b.element_size() for b in held],
        "alone_ms": without,
        **{
            name: {
                "step_ms": middle(took[name]),
                "added_ms": middle(took[name]) - without,
                "buckets_ms": middle(bucket_times[name]),
            }
            for name in groups
        },
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="where rank 0 writes the result")
    parser.add_argument("--sizes", type=int, nargs="+", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--ddp", action="store_true")
    options = parser.parse_args()

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, is_master=rank == 0
    )
    dist.init_process_group("gloo", rank=rank, world_size=size, store=store)
    ours = dist.new_group(backend=ringlane.torch.BACKEND)
    groups = {"gloo": dist.group.WORLD, "ringlane": ours}
    found: dict[str, Any] = {"ranks": size, "torch": torch.__version__}
    found["rows"] = eager(groups, options.sizes, options.seconds)
    if options.ddp:
        found["ddp"] = ddp(groups)
    if rank == 0:
        options.path.write_text(json.dumps(found))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
