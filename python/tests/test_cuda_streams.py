"""CUDA streams and graphs: what waits for what, and what does not. Needs torch with a GPU."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from typing import Any

import pytest
from cuda_ranks import LONG, init, mine, total
from ranks import Job, flag, rank, size, wait_for

import ringlane


def streams() -> None:
    import torch.distributed as dist

    device = init()
    # Twice: what a GPU does first it loads, and may stop everything for it.
    for first in (True, False):
        _the_host_goes_on(device, first)
    _side_streams(device)
    _memory_is_kept(device)
    _futures(device)
    _short_waits(device)
    _several_groups(device)
    dist.destroy_process_group()


def _the_host_goes_on(device: Any, first: bool) -> None:
    import torch
    import torch.distributed as dist

    stream = torch.cuda.current_stream()
    x, y = mine(device), mine(device)
    torch.cuda.synchronize()
    torch.cuda._sleep(1 if first else LONG)
    x.mul_(3)
    dist.all_reduce(x)
    assert first or not stream.query(), "a collective stopped the host"
    work = dist.all_reduce(y, async_op=True)
    assert first or not work.is_completed()
    work.wait()
    assert first or not stream.query(), "wait() stopped the host"
    both = x + y  # in the order of the stream
    assert both.eq(4 * total()).all()
    assert work.is_completed()
    assert work.is_success()
    assert work.exception() is None
    # What comes after the call in the caller's stream does not wait for it.
    torch.cuda.synchronize()
    computed = flag(f"computed-{first}")
    if first or rank() == 0:
        work = dist.all_reduce(y, async_op=True)
        assert (x + 1).cpu().eq(3 * total() + 1).all()
        computed.touch()
    else:
        wait_for(computed)
        work = dist.all_reduce(y, async_op=True)
    work.wait()
    assert y.eq(total() * size()).all()


def _side_streams(device: Any) -> None:
    import torch
    import torch.distributed as dist

    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    x, y = mine(device), torch.zeros(1000, device=device)
    first.wait_stream(torch.cuda.current_stream())
    for i in range(20):
        with torch.cuda.stream(first):
            if i % 3 == rank():
                torch.cuda._sleep(LONG // 50)
            y.copy_(x)
            dist.all_reduce(y)
        second.wait_stream(first)
        with torch.cuda.stream(second):
            dist.all_reduce(y, dist.ReduceOp.AVG, async_op=i % 2 == 1)
        first.wait_stream(second)
        with torch.cuda.stream(first):
            handle = dist.broadcast(y, src=i % size(), async_op=True)
            handle.wait()
    # On two streams at once: the calls are kept in order, the tensors are their own.
    pairs = [(mine(device), s) for s in (first, second) * 10]
    torch.cuda.synchronize()
    for z, s in pairs:
        with torch.cuda.stream(s):
            dist.all_reduce(z)
    torch.cuda.synchronize()
    assert y.eq(total()).all()
    assert all(z.eq(total()).all() for z, _ in pairs)


def _memory_is_kept(device: Any) -> None:
    """Memory that the caller lets go while a collective uses it goes to nobody else."""
    import torch
    import torch.distributed as dist

    count, n = 1 << 20, size()
    torch.cuda.synchronize()
    for i in range(5):
        output = torch.empty(n * count, device=device)
        if rank() == n - 1:
            torch.cuda._sleep(LONG // 3)
        source = mine(device, count)
        work = dist.all_gather_into_tensor(output, source, async_op=True)
        del source
        others = [torch.full((count,), -1.0, device=device) for _ in range(3)]
        work.wait()
        assert output[::count].tolist() == [r + 1.0 for r in range(n)], i
        assert output[count - 1 :: count].tolist() == [r + 1.0 for r in range(n)], i
        del others


def _futures(device: Any) -> None:
    import torch
    import torch.distributed as dist

    torch.cuda._sleep(LONG // 3)
    x = mine(device)
    future = dist.all_reduce(x, async_op=True).get_future()
    assert future.done()
    twice = future.then(lambda done: done.value()[0] * 2)
    assert twice.wait().eq(2 * total()).all()
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert future.wait()[0].eq(total()).all()


def _short_waits(device: Any) -> None:
    import torch.distributed as dist

    x = mine(device)
    if rank() == size() - 1:
        wait_for(flag("waited"))
    work = dist.all_reduce(x, async_op=True)
    if rank() == 0:
        with pytest.raises(ringlane.DeadlineExceeded, match=r"0\.05 s"):
            work.wait(timedelta(seconds=0.05))
        flag("waited").touch()
    assert work.wait(timedelta(seconds=30))
    assert work.is_completed()
    assert x.eq(total()).all()


def _several_groups(device: Any) -> None:
    import torch
    import torch.distributed as dist

    groups = [dist.new_group() for _ in range(3)]
    tensors = [mine(device) for _ in groups]
    for _ in range(10):
        works = [dist.all_reduce(x, group=g, async_op=True) for x, g in zip(tensors, groups)]
        dist.all_reduce(mine(device))
        for work in works:
            work.wait()
        for x in tensors:
            x.div_(size())
    assert all(x.sub(total() / size()).abs().max() < 1e-4 for x in tensors)
    errors = []

    def use(group: Any) -> None:
        try:
            # Each group in a stream of its own: in one, the ranks would have to agree.
            with torch.cuda.stream(torch.cuda.Stream(device)):
                x = mine(device)
                for _ in range(20):
                    dist.all_reduce(x, dist.ReduceOp.MAX, group=group)
                assert x.eq(size()).all()
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=use, args=(g,)) for g in groups]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors, errors
    for group in groups:
        dist.destroy_process_group(group)


# Graphs.


def graphs() -> None:
    import torch
    import torch.distributed as dist

    device, n = init(), size()
    unused = dist.new_group()
    ones = torch.ones(3, device=device)
    refused = pytest.raises(ringlane.InvalidArgument, match="before the capture")
    with refused, _captured(torch.cuda.CUDAGraph()):
        dist.all_reduce(ones, group=unused)
    graph = torch.cuda.CUDAGraph()
    other = mine(device)
    dist.all_reduce(other)
    x, wide = torch.ones(1000, device=device), torch.zeros(4, 50, device=device)
    parts = [torch.zeros(10, device=device) for _ in range(n)]
    y = torch.zeros(10, device=device)
    with _captured(graph):
        dist.all_reduce(x)
        x.div_(n)
        work = dist.all_reduce(x, async_op=True)
        doubled = other[:10] * 2
        work.wait()
        dist.all_reduce(x, dist.ReduceOp.MAX)
        wide.fill_(float(rank()))
        dist.all_reduce(wide.t()[::2])
        y.add_(rank() + 1)
        dist.all_gather(parts, y)
        future = dist.all_reduce(y.clone(), async_op=True).get_future()
        summed = future.wait()[0]
        dist.barrier()
    assert x.eq(1).all(), "a capture runs nothing"
    for i in range(1, 51):
        graph.replay()
        dist.all_reduce(other, dist.ReduceOp.MAX)  # between two replays
        if i % 10 == 0:
            handle = dist.all_reduce(other, dist.ReduceOp.MIN, async_op=True)
            handle.wait()
    torch.cuda.synchronize()
    # A third of three times as much may differ in its last bit.
    assert x.div(float(n) ** 50).sub(1).abs().max() < (1e-6 if n == 2 else 1e-4)
    assert wide[:, ::2].eq(sum(range(n))).all()
    assert wide[:, 1::2].eq(float(rank())).all()
    assert [p[0].item() for p in parts] == [50.0 * (r + 1) for r in range(n)]
    assert summed.eq(50 * total()).all()
    assert doubled.eq(2 * total()).all()
    _exchange_in_a_graph(device)
    dist.destroy_process_group()


def _exchange_in_a_graph(device: Any) -> None:
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    graph = torch.cuda.CUDAGraph()
    x, got = torch.zeros(10, device=device), torch.zeros(10, device=device)
    with _captured(graph):
        x.add_(me + 1)
        operations = [
            dist.P2POp(dist.isend, x, (me + 1) % n),
            dist.P2POp(dist.irecv, got, (me - 1) % n),
        ]
        for work in dist.batch_isend_irecv(operations):
            work.wait()
    for i in range(1, 6):
        graph.replay()
        assert got.eq(i * ((me - 1) % n + 1)).all(), i


@contextmanager
def _captured(graph: Any) -> Iterator[None]:
    import torch

    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        yield


def test_streams(job: Job, cuda_gpus: int) -> None:
    job.run(2, "streams")


def test_graphs(job: Job, cuda_gpus: int) -> None:
    job.run(2, "graphs")


def test_graphs_of_three_ranks(job: Job, cuda_gpus: int) -> None:
    job.run(3, "graphs")
