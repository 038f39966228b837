"""torch.distributed on CUDA tensors: collectives and transfers. Needs torch with a GPU."""

from __future__ import annotations

import os
import random
from typing import Any

import pytest
from cuda_ranks import init, mine, total
from ranks import Job, rank, size
from test_parity import CASES, DTYPES, LAYOUTS, _attempt, _case, _layouts

WIDE_ENOUGH = ("float32", "bfloat16", "float16", "float64", "int32", "int64", "uint8")


def eager() -> None:
    import torch.distributed as dist

    device = init()
    _before_any_collective(device)
    _as_on_the_cpu(device)
    _lists(device)
    _transfers(device)
    _refused(device)
    gathered: list[Any] = [None] * size()
    dist.all_gather_object(gathered, {"rank": rank()})
    assert [g["rank"] for g in gathered] == list(range(size()))
    dist.destroy_process_group()


def _before_any_collective(device: Any) -> None:
    """Send and receive while the group is on no GPU: through host memory."""
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    x, got = mine(device), torch.zeros(50, 20, device=device).t()  # not contiguous
    works = [dist.isend(x, (me + 1) % n), dist.irecv(got, (me - 1) % n)]
    for work in works:
        assert work.wait()
    assert got.eq((me - 1) % n + 1).all()
    assert dist.group.WORLD._cuda is None


def _as_on_the_cpu(device: Any) -> None:
    """Compare every collective x dtype x layout with CPU tensors of the same group."""
    import torch
    import torch.distributed as dist

    dist.all_reduce(mine(device))
    differ = []
    for case in CASES:
        for dtype in DTYPES:
            for layout in LAYOUTS:
                base = (torch.arange(24).reshape(4, 6) % 3 + rank()).to(getattr(torch, dtype))
                there = _layouts(base.to(device))[layout]
                here = _layouts(base.clone())[layout]
                want = _attempt(lambda: _case(case, dist.group.WORLD, here))  # noqa: B023
                have = _attempt(lambda: _case(case, dist.group.WORLD, there))  # noqa: B023
                if have != want and not have[0] == want[0] == "error":
                    differ.append(f"{case} {dtype} {layout}: CUDA {have}, CPU {want}")
    assert not differ, "\n".join(differ[:20])


def _lists(device: Any) -> None:
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    pair = [torch.ones(2, device=device), torch.ones(3, device=device) * me]
    dist.all_reduce_coalesced(pair)
    assert (pair[0][0].item(), pair[1][0].item()) == (n, sum(range(n)))
    with dist._coalescing_manager() as many:
        parts = [torch.ones(4, device=device) * i for i in range(3)]
        for part in parts:
            dist.all_reduce(part)
    assert not many.works
    assert [part[0].item() for part in parts] == [0, n, 2 * n]
    with dist._coalescing_manager(async_ops=True) as many:
        outputs = [torch.empty(n * 4, device=device) for _ in range(3)]
        for i, output in enumerate(outputs):
            dist.all_gather_into_tensor(output, torch.full((4,), 10.0 * me + i, device=device))
    many.wait()
    for i, output in enumerate(outputs):
        assert output[::4].tolist() == [10.0 * r + i for r in range(n)]
    with dist._coalescing_manager(device=device, async_ops=True) as many:
        x = mine(device)
        dist.all_reduce(x, async_op=True)
    many.wait()
    assert x.eq(total()).all()
    send = [(me + r) % 3 for r in range(n)]
    output = torch.empty(sum(send), 2, device=device)
    rows = torch.cat([torch.full((k, 2), 10.0 * me + r) for r, k in enumerate(send)]).to(device)
    dist.all_to_all_single(output, rows, send, send)
    assert output[:, 1].tolist() == [10.0 * r + me for r in range(n) for _ in range(send[r])]
    lists = [torch.empty(k, device=device) for k in send]
    dist.all_to_all(
        lists, [torch.full((k,), 10.0 * me + r, device=device) for r, k in enumerate(send)]
    )
    assert [x.tolist() for x in lists] == [[10.0 * r + me] * k for r, k in enumerate(send)]


def _transfers(device: Any) -> None:
    import torch
    import torch.distributed as dist

    me, n = rank(), size()
    left, right = (me - 1) % n, (me + 1) % n
    for count in (1, 1000, 4_000_000):
        x = mine(device, count)
        from_left, from_right = torch.zeros_like(x), torch.zeros(2 * count, device=device)[::2]
        operations = [
            dist.P2POp(dist.isend, x, right),
            dist.P2POp(dist.irecv, from_left, left),
            dist.P2POp(dist.isend, x * 10, left),
            dist.P2POp(dist.irecv, from_right, right),
        ]
        for work in dist.batch_isend_irecv(operations if me % 2 else operations[::-1]):
            work.wait()
        if n > 2:  # of two ranks, each is both neighbours of the other
            assert from_left.eq(left + 1).all()
            assert from_right.eq(10 * (right + 1)).all()
        else:
            assert {from_left[0].item(), from_right[0].item()} == {left + 1.0, 10 * (left + 1.0)}
    # One by one, large, and in no order that would do without gathering.
    x, got = mine(device, 4_000_000), torch.zeros(4_000_000, device=device)
    works = [dist.isend(x, right), dist.irecv(got, left)]
    assert works[1].wait()
    assert got.eq(left + 1).all()
    assert works[1].source_rank() == left
    assert works[0].wait()
    # Nobody keeps the handle; and blocking ones.
    if me == 0:
        dist.isend(x[:10], 1)
        dist.send(x[:20] + 1, 1)
        dist.recv(got[:30], 1)
        assert got[:30].eq(5).all()
    elif me == 1:
        dist.recv(got[:10], 0)
        assert got[:10].eq(1).all()
        dist.recv(got[:20], 0)
        assert got[:20].eq(2).all()
        dist.send(torch.full((30,), 5.0, device=device), 0)


def _refused(device: Any) -> None:
    import torch
    import torch.distributed as dist

    x = mine(device)
    for word, kind, call in (
        ("AVG", TypeError, lambda: dist.all_reduce(x.int(), dist.ReduceOp.AVG)),
        ("int16", TypeError, lambda: dist.all_reduce(x.short())),
        (
            "another on",
            ValueError,
            lambda: dist.all_gather_into_tensor(torch.ones(3 * size()), x[:3]),
        ),
        ("to_dense", ValueError, lambda: dist.all_reduce(x.to_sparse())),
        ("from any rank", ValueError, lambda: dist.recv(x)),
        ("meta", ValueError, lambda: dist.all_reduce(torch.ones(2, device="meta"))),
    ):
        try:
            with pytest.raises(kind, match=word) as caught:
                call()
        except AssertionError:
            raise AssertionError(f"{word}: not refused so") from None
        assert isinstance(caught.value, RuntimeError)
    dist.all_reduce(x)
    assert x.eq(total()).all()
    dist.barrier()
    dist.barrier(async_op=True).wait()
    assert dist.group.WORLD._cuda.paths()


def many() -> None:
    """Ten thousand sums of random lengths and types on three streams, every one verified."""
    import torch
    import torch.distributed as dist

    device, n, me = init(), size(), rank()
    seed = int(os.environ["TEST_SEED"])
    dice = random.Random(seed)  # noqa: S311  the same on all ranks
    streams = [torch.cuda.Stream() for _ in range(3)]
    wrong = torch.zeros(3, dtype=torch.int64, device=device)
    longest = 1 << 20
    steps = torch.arange(longest, device=device)
    torch.cuda.synchronize()
    for call in range(10_000):
        count = 1 + dice.randrange(1 << dice.choice((3, 6, 10, 13, 16) if call % 50 else (18, 20)))
        dtype = getattr(torch, dice.choice(WIDE_ENOUGH))
        salt, lane = dice.randrange(100), dice.randrange(3)
        with torch.cuda.stream(streams[lane]):
            # Small integers, whose sums every type holds exactly.
            terms = (steps[:count] + salt) % 5
            x = (terms + me).to(dtype)
            dist.all_reduce(x)
            want = terms * n + n * (n - 1) // 2
            wrong[lane] += x.ne(want.to(dtype)).sum()
        if call % 500 == 499:
            torch.cuda.synchronize()
            assert not wrong.any(), f"wrong elements by call {call} (seed {seed})"
    dist.destroy_process_group()


def test_eager(job: Job, cuda_gpus: int) -> None:
    job.run(2, "eager")


def test_eager_through_host_memory(job: Job, cuda_gpus: int) -> None:
    job.run(2, "eager", env={"RINGLANE_P2P": "off"})


def test_ten_thousand_sums(job: Job, cuda_gpus: int) -> None:
    seed = random.randrange(1 << 32)  # noqa: S311
    job.run(2, "many", env={"TEST_SEED": str(seed)})
