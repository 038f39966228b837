"""Ranks on GPUs that stop or end early, other backends beside, and what a call costs.

Needs torch with a GPU.
"""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import pytest
from cuda_ranks import init, mine
from ranks import Job, meet, rank, result, show_pid, shown_pid, size

import ringlane


def beside_nccl() -> None:
    import torch
    import torch.distributed as dist

    device = init("nccl")
    nccl, ours = dist.group.WORLD, dist.new_group(backend="ringlane")
    x, y = mine(device), mine(device)
    for _ in range(5):
        works = [dist.all_reduce(t, group=g, async_op=True) for t, g in ((x, nccl), (y, ours))]
        for work in works:
            work.wait()
    assert torch.equal(x, y)
    result("beside_nccl", {"nccl": _cost(device, nccl), "ringlane": _cost(device, ours)})
    dist.destroy_process_group()


def cost() -> None:
    import torch.distributed as dist

    device = init()
    result("cost", {"ringlane": _cost(device, dist.group.WORLD)})
    dist.destroy_process_group()


def _cost(device: Any, group: Any) -> dict[str, float]:
    """Return how many microseconds the host spends on a call, the GPU having nothing to do."""
    import torch
    import torch.distributed as dist

    x = torch.zeros(2, device=device)
    found = {}
    for name, call in {
        "all_reduce": lambda: dist.all_reduce(x, group=group),
        "async + wait": lambda: dist.all_reduce(x, group=group, async_op=True).wait(),
    }.items():
        best = float("inf")
        for _ in range(10):
            torch.cuda.synchronize()
            dist.barrier(group)
            start = time.perf_counter()
            for _ in range(50):
                call()
            best = min(best, (time.perf_counter() - start) / 50)
        found[name] = round(best * 1e6, 2)
    torch.cuda.synchronize()
    return found


def frozen() -> None:
    """A rank that is stopped is named; the others, and the GPU, go on without it."""
    import torch
    import torch.distributed as dist

    device, victim = init(), size() - 1
    seconds = float(os.environ["RINGLANE_TIMEOUT"])
    dist.all_reduce(mine(device))
    torch.cuda.synchronize()
    if rank() == victim:
        show_pid()
        os.kill(os.getpid(), signal.SIGSTOP)
    pid = shown_pid()
    wait_for_stop(pid)
    x, y = mine(device), mine(device)
    start = time.monotonic()
    work = dist.all_reduce(y, async_op=True)
    dist.all_reduce(x)
    torch.cuda.synchronize()  # the kernels give up
    took = time.monotonic() - start
    assert took < seconds + 5, took
    with pytest.raises(RuntimeError, match=f"rank {victim}"):
        dist.all_reduce(x)
    assert work.is_completed()
    assert not work.is_success()
    assert f"rank {victim}" in str(work.exception())
    with pytest.raises(ringlane.DeadlineExceeded, match=f"rank {victim}"):
        work.wait()
    assert torch.ones(4, device=device).sum().item() == 4
    meet(victim)
    left = dist.new_group(list(range(victim)), use_local_synchronization=True)
    z = mine(device)
    dist.all_reduce(z, group=left)
    assert z.eq(sum(range(1, size()))).all()
    if rank() == 0:
        os.kill(pid, signal.SIGKILL)
    dist.destroy_process_group()


def wait_for_stop(pid: int) -> None:
    """Wait until the kernel says that a process is stopped."""
    while True:
        with open(f"/proc/{pid}/stat") as stat:
            if stat.read().rsplit(")", 1)[1].split()[0] == "T":
                return
        time.sleep(0.002)


def ends_without_destroy() -> None:
    import torch.distributed as dist

    device = init()
    dist.new_group()
    dist.all_reduce(mine(device), async_op=True)
    dist.isend(mine(device), (rank() + 1) % size())


def test_beside_nccl(job: Job, cuda_gpus: int, capsys: pytest.CaptureFixture[str]) -> None:
    if cuda_gpus < 2:
        pytest.skip("NCCL wants a GPU for each of 2 ranks")
    found = job.run(2, "beside_nccl")
    with capsys.disabled():
        print(f"\nmicroseconds of the host for a call of 8 bytes: {found[0]}")


def test_cost_of_a_call(job: Job, cuda_gpus: int, capsys: pytest.CaptureFixture[str]) -> None:
    found = job.run(2, "cost")
    with capsys.disabled():
        print(f"\nmicroseconds of the host for a call of 8 bytes: {found[0]}")


def test_a_frozen_rank_is_named(job: Job, cuda_gpus: int) -> None:
    job.run(3, "frozen", env={"RINGLANE_TIMEOUT": "5"}, expect={2: -signal.SIGKILL})


def test_the_end_without_destroy(job: Job, cuda_gpus: int) -> None:
    job.run(2, "ends_without_destroy")
