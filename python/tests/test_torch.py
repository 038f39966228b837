"""torch.distributed over ringlane: handles, transfers, groups, objects, failures, forks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import warnings
from datetime import timedelta
from typing import Any

import pytest
from ranks import Job, flag, rank, size, wait_for

import ringlane


def _init(backend: str = "ringlane", **options: Any) -> None:
    import torch.distributed as dist

    import ringlane.torch  # noqa: F401

    # As torch tells a warning's reader to do.
    warnings.filterwarnings("ignore", message=".*[dD]eprecat.*")
    store = dist.FileStore(os.environ["TEST_STORE"], size())
    dist.init_process_group(backend, rank=rank(), world_size=size(), store=store, **options)


def semantics() -> None:
    import torch.distributed as dist

    _init()
    assert dist.get_backend() == "ringlane"
    _handles()
    _forms_that_parity_leaves_out()
    if ringlane.torch.work.KEEPS_WORK:
        _coalesced()
    _transfers()
    _objects_and_groups()
    _through_cpp()
    _views()
    entries = {e["collective"]: e for e in dist.group.WORLD.communicator.stats()}
    assert entries["allreduce"]["count"] >= 6
    dist.destroy_process_group()


def _handles() -> None:
    import torch
    import torch.distributed as dist

    n = size()
    tensors = [torch.full((5,), float(i)) for i in range(6)]
    works = [dist.all_reduce(x, async_op=True) for x in tensors]
    assert [x.tolist() for x in works[3].get_future().wait()] == [[3.0 * n] * 5]
    for work in works:
        while not work.is_completed():
            pass
        assert work.wait()
        assert work.is_success()
    assert [x[0].item() for x in tensors] == [i * float(n) for i in range(6)]
    chained = dist.all_reduce(torch.ones(2), async_op=True).get_future()
    assert chained.then(lambda done: done.value()[0] * 2).wait().tolist() == [2.0 * n] * 2
    done = dist.barrier(async_op=True)
    assert done.wait(timedelta(seconds=30)) if ringlane.torch.work.KEEPS_WORK else done.wait()


def _forms_that_parity_leaves_out() -> None:
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    pair = [torch.ones(2), torch.ones(3) * me]
    dist.all_reduce_coalesced(pair)
    assert (pair[0][0].item(), pair[1][0].item()) == (n, sum(range(n)))
    with pytest.raises(ringlane.InvalidArgument, match="one tensor is on meta"):
        dist.all_reduce_coalesced([torch.ones(2), torch.ones(2, device="meta")])
    with dist._coalescing_manager():
        parts = [torch.ones(4) * i for i in range(3)]
        for part in parts:
            dist.all_reduce(part)
    assert [part[0].item() for part in parts] == [0, n, 2 * n]
    stacked = torch.empty(n, 2)
    dist.all_gather_into_tensor(stacked, torch.full((2,), float(me)))
    assert stacked[:, 0].tolist() == list(range(n))
    send = [(me + r) % 3 for r in range(n)]
    output = torch.empty(sum(send), 2)
    rows = torch.cat([torch.full((k, 2), 10.0 * me + r) for r, k in enumerate(send)])
    dist.all_to_all_single(output, rows, send, send)
    assert output[:, 1].tolist() == [10.0 * r + me for r in range(n) for _ in range(send[r])]
    lists = [torch.empty(k) for k in send]
    dist.all_to_all(lists, [torch.full((k,), 10.0 * me + r) for r, k in enumerate(send)])
    assert [x.tolist() for x in lists] == [[10.0 * r + me] * k for r, k in enumerate(send)]


def _coalesced(whole: bool = True) -> None:
    """The handle of a block of calls ends no sooner than they do."""
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    x = torch.ones(4)
    if me == n - 1:
        wait_for(flag("coalesced"))
    with dist._coalescing_manager(device=x.device, async_ops=True) as block:
        dist.all_reduce(x)
    if me == 0:
        assert not whole or not block.works[0].is_completed()
        flag("coalesced").touch()
    block.wait()
    assert x.tolist() == [n] * 4


def _transfers() -> None:
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    if me == 0:
        got, senders = torch.empty(1), []
        for _ in range(n - 1):
            senders.append(dist.recv(got, tag=4))
            assert got.item() == senders[-1]
        assert sorted(senders) == list(range(1, n))
    else:
        dist.send(torch.tensor([float(me)]), 0, tag=4)
    left, right = torch.empty(3), torch.empty(3)
    requests = dist.batch_isend_irecv(
        [
            dist.P2POp(dist.irecv, left, (me - 1) % n, tag=1),
            dist.P2POp(dist.irecv, right, (me + 1) % n, tag=2),
            dist.P2POp(dist.isend, torch.full((3,), float(me)), (me + 1) % n, tag=1),
            dist.P2POp(dist.isend, torch.full((3,), float(me)), (me - 1) % n, tag=2),
        ]
    )
    for request in requests:
        request.wait()
    assert (left[0].item(), right[0].item()) == ((me - 1) % n, (me + 1) % n)


def _objects_and_groups() -> None:
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, {"rank": me, "pad": "x" * me * 100})
    assert [entry["rank"] for entry in objects] == list(range(n))
    told = ["from 1"] if me == 1 else [None]
    dist.broadcast_object_list(told, src=1)
    assert told == ["from 1"]
    box: list[Any] = [None]
    dist.scatter_object_list(box, [f"for {r}" for r in range(n)] if me == 0 else None, src=0)
    assert box == [f"for {me}"]
    even = dist.new_group(range(0, n, 2))
    odd = dist.new_group(range(1, n, 2), timeout=timedelta(seconds=20))
    mine = even if me % 2 == 0 else odd
    x = torch.tensor([float(me)])
    dist.all_reduce(x, group=mine)
    assert x.item() == sum(range(me % 2, n, 2))
    dist.destroy_process_group(mine)
    dist.barrier()


def _through_cpp() -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    summed = functional.all_reduce(torch.ones(3) * rank(), "sum", dist.group.WORLD)
    assert (summed + 0).tolist() == [float(sum(range(size())))] * 3


def _views() -> None:
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    weight = torch.nn.Parameter(torch.full((3, 2), float(me)))
    dist.broadcast(weight.data.t(), src=n - 1)
    assert weight.tolist() == [[n - 1.0] * 2] * 3
    weight.data.fill_(me)
    dist.broadcast(weight, src=0)
    assert weight.tolist() == [[0.0] * 2] * 3
    x = torch.tensor([1 + 1j]).conj()
    gathered = [torch.empty(1, dtype=x.dtype) for _ in range(n)]
    dist.all_gather(gathered, x.resolve_conj())
    assert gathered[n - 1].item() == 1 - 1j
    imaginary = x.imag  # negated lazily
    dist.all_reduce(imaginary)
    assert x[0].item() == 1 - n * 1j


def refusals() -> None:
    import torch
    import torch.distributed as dist

    _init()
    calls = {
        "AVG": lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.AVG),
        "BAND": lambda: dist.all_reduce(torch.ones(2, dtype=torch.int32), dist.ReduceOp.BAND),
        "BXOR": lambda: dist.all_reduce(torch.ones(2, dtype=torch.bool), dist.ReduceOp.BXOR),
        "int16": lambda: dist.all_reduce(torch.ones(2, dtype=torch.int16)),
        "to_dense": lambda: dist.all_reduce(torch.ones(2).to_sparse()),
        "meta": lambda: dist.all_reduce(torch.ones(2, device="meta")),
        "tensor 1": lambda: dist.all_gather([torch.ones(2), torch.ones(3)], torch.ones(2)),
        "splits": lambda: dist.all_to_all_single(torch.ones(4), torch.ones(4), [1, 2], [2, 2]),
    }
    for word, call in calls.items():
        with pytest.raises(ringlane.InvalidArgument, match=word):
            call()
    x = torch.ones(2)
    dist.all_reduce(x)
    assert x.tolist() == [2, 2]
    with pytest.warns(UserWarning, match="set_timeout"):
        dist.group.WORLD.set_timeout(timedelta(seconds=5))
    dist.destroy_process_group()
    with pytest.raises(ValueError, match="process group"):
        dist.all_reduce(x)


def failures() -> None:
    import torch
    import torch.distributed as dist

    _init(timeout=timedelta(seconds=60))
    me, n = rank(), size()
    keeps = ringlane.torch.work.KEEPS_WORK  # older torch: an async call fails at once
    group = dist.new_group()
    with pytest.raises(ringlane.Mismatch, match="rank 1"):
        dist.all_reduce(torch.ones(2 + (me == 1)), group=group)
    group = dist.new_group()
    with pytest.raises(ringlane.Mismatch, match="rank 1"):
        work = dist.all_reduce(torch.ones(2 + (me == 1)), group=group, async_op=True)
        if keeps:
            with pytest.raises(RuntimeError, match="Mismatch"):
                work.get_future().wait()
            assert isinstance(work.exception(), ringlane.Mismatch)
            assert not work.is_success()
        work.wait()
    if me == n - 1:
        wait_for(flag("waiting"))
        os.kill(os.getpid(), signal.SIGKILL)
    if me == 0 and keeps:
        future = dist.all_reduce(torch.ones(4), async_op=True).get_future()
        flag("waiting").touch()
        with pytest.raises(RuntimeError, match=f"rank {n - 1}"):
            future.wait()
    flag("waiting").touch()
    with pytest.raises(ringlane.RankDied, match=f"rank {n - 1}"):
        dist.all_reduce(torch.ones(4))
    dist.destroy_process_group()


def composed(spec: str) -> None:
    import torch
    import torch.distributed as dist

    from ringlane.torch.process_group import ProcessGroup

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        _init(spec)
    me, n = rank(), size()
    # A group in Python is whole where torch has no backends in Python.
    whole = isinstance(dist.group.WORLD, ProcessGroup)
    assert whole == any("no other backend takes part" in str(w.message) for w in caught)
    x = torch.ones(3)
    dist.all_reduce(x)
    dist.all_reduce(x, async_op=True).wait()
    assert x.tolist() == [n * n] * 3
    gathered = torch.zeros(n)
    dist.all_gather_into_tensor(gathered, torch.tensor([float(me)]))
    assert gathered.tolist() == list(range(n))
    got = torch.zeros(n)
    dist.all_to_all_single(got, torch.arange(float(n)) + 10 * me)
    assert got.tolist() == [10.0 * r + me for r in range(n)]
    if me == 0:
        dist.send(x, 1)
    elif me == 1:
        dist.recv(x, 0)
    dist.reduce(x, 0)
    objects: list[Any] = [None] * n
    dist.all_gather_object(objects, me)
    assert objects == list(range(n))
    if not whole and spec.startswith("cpu:ringlane"):
        _coalesced(whole)
    dist.barrier()
    dist.destroy_process_group()


def workers(method: str) -> None:
    import torch
    import torch.distributed as dist

    _init()
    data = torch.utils.data.TensorDataset(torch.arange(64.0))
    loader = torch.utils.data.DataLoader(
        data, batch_size=8, num_workers=2, multiprocessing_context=method
    )
    for epoch in range(2 if method == "fork" else 1):
        for (batch,) in loader:
            total = batch.sum()
            dist.all_reduce(total)
            assert total == batch.sum() * size(), epoch
    if method == "fork":
        child = os.fork()
        if child == 0:
            try:
                dist.all_reduce(torch.ones(1))
            except ringlane.Forked:
                os._exit(7)
            os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    dist.barrier()
    dist.destroy_process_group()


def ends_without_destroy(pending: str) -> None:
    import torch
    import torch.distributed as dist

    _init()
    dist.new_group()
    dist.all_reduce(torch.ones(1000), async_op=True).get_future()
    if pending == "pending" and rank() == 0:
        dist.all_reduce(torch.ones(3), async_op=True).get_future()


def private_rendezvous() -> None:
    import torch
    import torch.distributed as dist

    del os.environ["RINGLANE_RENDEZVOUS"]
    os.environ["RINGLANE_TIMEOUT"] = "1m30s"
    _init()
    x = torch.ones(1)
    dist.all_reduce(x)
    assert x.item() == size()
    dist.destroy_process_group()


def test_semantics(job: Job) -> None:
    job.run(4, "semantics")


def test_what_is_refused_is_named_and_harmless(job: Job) -> None:
    job.run(2, "refusals")


def test_failures(job: Job) -> None:
    job.run(3, "failures", expect={2: -signal.SIGKILL})


@pytest.mark.parametrize("spec", ["cpu:ringlane,cuda:gloo", "cpu:gloo,cuda:ringlane"])
def test_one_of_several_backends(job: Job, spec: str) -> None:
    job.run(2, "composed", spec)


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_loader_workers(job: Job, method: str) -> None:
    job.run(2, "workers", method)


@pytest.mark.parametrize("pending", ["done", "pending"])
def test_the_end_without_destroy(job: Job, pending: str) -> None:
    job.run(2, "ends_without_destroy", pending)


def test_the_meeting_place_is_private_and_gone(job: Job) -> None:
    job.run(2, "private_rendezvous")


def test_import_orders() -> None:
    """The backend is there whichever is imported first, and twice does no harm."""
    for program in (
        "import ringlane.torch, torch",
        "import torch, ringlane.torch, ringlane._autoload as a; a.register(); a.register()",
        "import ringlane._autoload as a; a.register(); import torch.distributed as d; "
        "assert 'ringlane' in d.Backend.backend_list",
    ):
        subprocess.run([sys.executable, "-c", program], check=True)
