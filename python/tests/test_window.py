"""Arrays and tensors in a window: where they lie, how long, and what collectives make of them."""

from __future__ import annotations

import atexit
import gc
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Job, in_window, rank, size, windows

import ringlane

MIB = 1 << 20


def held() -> int:
    gc.collect()
    return sum(resident for _, resident in windows())


def arrays() -> None:
    a = ringlane.empty((256, 1024), np.float32)
    assert a.shape == (256, 1024)
    assert a.dtype == np.float32
    assert a.flags.c_contiguous
    assert a.flags.writeable
    assert in_window(a.ctypes.data)
    assert a.ctypes.data % 4096 == 0
    assert not a.any()
    a += 1
    row, raw = a[200:], memoryview(a)
    del a
    assert held() == MIB
    del row
    assert held() == MIB, "a memoryview uses it still"
    del raw
    assert held() == 0
    assert not ringlane.empty(1024, "int8").any(), "memory that comes again is zeroed again"

    assert ringlane.empty(3).dtype == np.float64
    assert ringlane.empty(np.int64(3)).shape == (3,)
    assert ringlane.empty((0, 3)).shape == (0, 3)
    assert ringlane.empty((), "uint16").shape == ()
    pair = ringlane.empty([2], np.dtype([("key", "i8"), ("value", "f4")]))
    assert pair["value"].tolist() == [0, 0]


def array_errors() -> None:
    bad: list[tuple[Callable[[], object], str]] = [
        (lambda: ringlane.empty(3, "float33"), "float33"),
        (lambda: ringlane.empty(3, object), "pickle"),
        (lambda: ringlane.empty((3, -1)), "negative"),
        (lambda: ringlane.empty(3.5), "float"),
        (lambda: ringlane.empty("3"), "str"),
    ]
    for call, text in bad:
        with pytest.raises(ringlane.InvalidArgument, match=text):
            call()
    with pytest.raises(ringlane.OutOfMemory, match=r"alloc: .*bytes"):
        ringlane.empty(1 << 50, np.uint8)
    assert ringlane.empty(3, np.uint8).tolist() == [0, 0, 0]


def no_window() -> None:
    with pytest.raises(ringlane.OutOfMemory, match="RINGLANE_WINDOW is 0"):
        ringlane.empty(3)


def tensors() -> None:
    import torch

    import ringlane.torch

    for dtype in (torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool):
        t = ringlane.torch.empty(64, 1024, dtype=dtype)
        assert in_window(t.data_ptr())
        assert (t.shape, t.dtype, t.is_contiguous()) == ((64, 1024), dtype, True)
        assert not t._is_view()
        assert t.count_nonzero() == 0
    del t
    assert ringlane.torch.empty((2, 3)).dtype == torch.get_default_dtype()
    assert ringlane.torch.empty(torch.Size([2, 0])).shape == (2, 0)
    with pytest.raises(RuntimeError, match="negative"):
        ringlane.torch.empty(2, -1)
    with pytest.raises(ringlane.OutOfMemory):
        ringlane.torch.empty(1 << 50)

    assert held() == 0
    makers: dict[str, Callable[[torch.Tensor], object]] = {
        "view": lambda t: t[3:].view(-1),
        "detach": lambda t: t.detach(),
        "storage": lambda t: t.untyped_storage(),
        "numpy": lambda t: t.numpy(),
        "dlpack": np.from_dlpack,
        "parameter": torch.nn.Parameter,
        "graph": lambda t: (t.requires_grad_() * t).sum(),
        "set_": lambda t: torch.empty(0).set_(t),
    }
    for name, make in makers.items():
        user = make(ringlane.torch.empty(MIB // 4))
        assert held() == MIB, name
        del user
        assert held() == 0, name

    t = ringlane.torch.empty(1000)
    t.requires_grad_()
    (t + 1).square().sum().backward()
    assert t.grad.tolist() == [2] * 1000
    copy = pickle.loads(pickle.dumps(t.detach()))  # noqa: S301
    assert not in_window(copy.data_ptr())
    shared = t.detach().share_memory_()
    assert shared.tolist() == [0] * 1000
    assert not in_window(shared.data_ptr())
    del t, shared
    assert held() == 0


def forks() -> None:
    import torch

    import ringlane.torch

    comm = ringlane.join()
    array, tensor = ringlane.empty(MIB, np.uint8), ringlane.torch.empty(MIB // 4)
    array += 1
    tensor += 1
    child = os.fork()
    if child == 0:
        sys.unraisablehook = lambda _: os._exit(2)  # a finalizer that fails
        try:
            assert array.sum() == MIB
            assert tensor.sum() == MIB // 4
            with pytest.raises(ringlane.Forked):
                ringlane.empty(3)
            array[0] = 5
            del array, tensor
            gc.collect()
        except BaseException:
            os._exit(1)
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    assert held() == 2 * MIB, "the child's last view is not the last"
    assert array[0] == 5, "the memory is shared with a child"
    assert array.sum() == MIB + 4

    data = torch.utils.data.TensorDataset(tensor.view(64, -1))
    loader = torch.utils.data.DataLoader(
        data, batch_size=8, num_workers=2, multiprocessing_context="fork"
    )
    total = ringlane.torch.empty(MIB // 4 // 64)
    for _ in range(2):
        for (batch,) in loader:
            total.copy_(batch.sum(0))
            comm.all_reduce(total.numpy(), out=total.numpy())
            assert total.eq(8 * comm.size).all()
    assert tensor.eq(1).all()
    comm.close()


def after_exit() -> None:
    """Leave arrays, tensors and buckets to the interpreter's end, and use them on the way."""
    kept: list[Any] = []
    atexit.register(lambda: print(float(sum(x.sum() for x in kept))))  # after all others'
    import torch
    import torch.distributed as dist

    import ringlane.torch

    kept += [ringlane.empty(1000), ringlane.torch.empty(1000), ringlane.torch.empty(1000)]
    for x in kept:
        x[:] = 1
    torch.kept = [kept[2], kept]  # one of them for longer, and a cycle
    torch.kept.append(torch.kept)
    dist.init_process_group("ringlane", rank=0, world_size=1, store=dist.HashStore())
    model = torch.nn.parallel.DistributedDataParallel(
        torch.nn.Linear(100, 100), gradient_as_bucket_view=True
    )
    model(torch.ones(2, 100)).sum().backward()
    assert in_window(model.module.weight.grad.data_ptr())
    torch.kept.append(model)


def _collectives(group: Any, new: Callable[..., Any], count: int, dtype: Any) -> dict[str, Any]:
    """Return what each collective leaves on this rank in tensors that new has made."""
    import torch
    import torch.distributed as dist

    me, n = rank(), size()

    def fill(rows: int = 1) -> Any:
        # One element in, so that most begin at an odd address.
        tensor = new(rows * count + 1, dtype=dtype)[1:]
        return tensor.copy_((torch.arange(rows * count) * 7 + me) % 5)

    done: dict[str, Any] = {}
    for op in ("SUM", "MAX"):
        done[f"all_reduce {op}"] = fill()
        dist.all_reduce(done[f"all_reduce {op}"], getattr(dist.ReduceOp, op), group=group)
    done["broadcast"] = fill()
    dist.broadcast(done["broadcast"], 1, group=group)
    reduced = fill()
    dist.reduce(reduced, 1, group=group)
    done["reduce"] = reduced if me == 1 else None
    done["all_gather"] = [fill() for _ in range(n)]
    dist.all_gather(done["all_gather"], fill(), group=group)
    done["all_gather_into_tensor"] = fill(n)
    dist.all_gather_into_tensor(done["all_gather_into_tensor"], fill(), group=group)
    done["reduce_scatter_tensor"] = fill()
    dist.reduce_scatter_tensor(done["reduce_scatter_tensor"], fill(n), group=group)
    done["reduce_scatter"] = fill()
    dist.reduce_scatter(done["reduce_scatter"], [fill() for _ in range(n)], group=group)
    done["all_to_all_single"] = fill(n)
    dist.all_to_all_single(done["all_to_all_single"], fill(n), group=group)
    done["gather"] = [fill() for _ in range(n)] if me == 1 else None
    dist.gather(fill(), done["gather"], dst=1, group=group)
    done["scatter"] = fill()
    parts = [fill() + r for r in range(n)] if me == 1 else None
    dist.scatter(done["scatter"], parts, src=1, group=group)
    done["recv"] = fill()
    if me == 0:
        dist.recv(done["recv"], 1, group=group)
    else:
        dist.send(done["recv"], 0, group=group)
    # One buffer, part by part, all at once.
    whole = fill(4)
    works = [dist.all_reduce(part, group=group, async_op=True) for part in whole.chunk(4)]
    for work in works:
        work.wait()
    done["async"] = whole
    return done


def parity(who: str) -> None:
    import torch
    import torch.distributed as dist

    import ringlane.torch

    dist.init_process_group(
        "gloo",
        rank=rank(),
        world_size=size(),
        store=dist.FileStore(os.environ["TEST_STORE"], size()),
    )
    gloo, ours = dist.group.WORLD, dist.new_group(backend="ringlane")
    new = ringlane.torch.empty if who == "all" or rank() == 0 else torch.empty
    for dtype in (torch.float32, torch.bfloat16, torch.uint8, torch.int64):
        for count in (300, 5001, 300_001):
            wanted = _collectives(gloo, torch.empty, count, dtype)
            got = _collectives(ours, new, count, dtype)
            for name, tensor in got.items():
                here = tensor if isinstance(tensor, list) else [tensor]
                there = wanted[name] if isinstance(tensor, list) else [wanted[name]]
                assert (tensor is None) == (wanted[name] is None)
                for a, b in zip(here, there):
                    assert a is None or torch.equal(a, b), (name, dtype, count)
    dist.destroy_process_group()


def test_arrays(job: Job) -> None:
    job.run(1, "arrays")


def test_array_errors(job: Job) -> None:
    job.run(1, "array_errors")


def test_no_window(job: Job) -> None:
    job.run(1, "no_window", env={"RINGLANE_WINDOW": "0"})


def test_tensors(job: Job) -> None:
    job.run(1, "tensors")


def test_forks(job: Job) -> None:
    job.run(2, "forks")


def test_exit_with_memory_in_use() -> None:
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("ranks.py"), "test_window", "after_exit"],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "3000.0\n", "")


@pytest.mark.parametrize("who", ["all", "one"])
def test_as_with_gloo(job: Job, who: str) -> None:
    job.run(2, "parity", who)
