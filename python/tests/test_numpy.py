"""The NumPy side: every collective against what NumPy computes."""

from __future__ import annotations

import gc
import itertools

import numpy as np
import pytest
from ranks import Job, rank, size

import ringlane

DTYPES = ["float32", "float64", "float16", "int8", "uint8", "int32", "int64"]
SHAPES = [(), (0,), (1,), (5,), (3, 4), (1000,), (70_001,)]
REDUCE = {"sum": np.sum, "min": np.min, "max": np.max, "prod": np.prod, "avg": np.mean}


def _terms(shape: tuple[int, ...], dtype: str) -> list[np.ndarray]:
    """Return every rank's input: small integers, so that every reduction is exact."""
    count = np.prod(shape, dtype=int)
    return [
        np.array((np.arange(count) % 2 + (r == 0)).reshape(shape), dtype) for r in range(size())
    ]


def collectives() -> None:
    with ringlane.join() as comm:
        me, n = comm.rank, comm.size
        assert (me, n) == (rank(), size())
        for shape, dtype in itertools.product(SHAPES, DTYPES):
            terms = _terms(shape, dtype)
            mine, stacked = terms[me], np.stack(terms)
            for op, reduction in REDUCE.items():
                if op == "avg" and not dtype.startswith("float"):
                    continue
                wanted = reduction(stacked.astype("float64"), axis=0).astype(dtype)
                np.testing.assert_array_equal(comm.all_reduce(mine, op), wanted)
                reduced = comm.reduce(mine, op, root=n - 1)
                if me == n - 1:
                    np.testing.assert_array_equal(reduced, wanted)
                else:
                    assert reduced is None
            total = stacked.astype("float64").sum(axis=0).astype(dtype)
            in_place = mine.copy()
            assert comm.all_reduce(in_place, out=in_place) is in_place
            np.testing.assert_array_equal(in_place, total)
            np.testing.assert_array_equal(comm.all_gather(mine), stacked)
            gathered = comm.gather(mine, root=1 % n)
            assert (gathered is None) == (me != 1 % n)
            if gathered is not None:
                np.testing.assert_array_equal(gathered, stacked)
            np.testing.assert_array_equal(comm.broadcast(mine.copy(), root=n - 1), terms[-1])
            out = np.empty(shape, dtype)
            assert comm.scatter(stacked if me == 0 else None, root=0, out=out) is out
            np.testing.assert_array_equal(out, terms[me])
            rows = np.concatenate([stacked] * 2)
            np.testing.assert_array_equal(
                comm.reduce_scatter(rows),
                (rows.astype("float64") * n).astype(dtype)[2 * me : 2 * me + 2],
            )
        assert {entry["collective"] for entry in comm.stats()} >= {"allreduce", "allgather"}


def everything_else() -> None:
    with ringlane.join() as comm:
        me, n = comm.rank, comm.size
        # All to all, even and uneven: row j of rank i goes to rank j.
        rows = np.arange(n) + 10 * me
        np.testing.assert_array_equal(comm.all_to_all(rows), me + 10 * np.arange(n))
        send_rows = [(me + r) % 3 for r in range(n)]
        table = np.repeat(np.arange(n) + 100 * me, send_rows).reshape(-1, 1) * np.ones((1, 2))
        got = comm.all_to_all(
            table, send_rows=send_rows, recv_rows=[(me + r) % 3 for r in range(n)]
        )
        wanted = np.concatenate([[me + 100 * r] * ((me + r) % 3) for r in range(n)])
        np.testing.assert_array_equal(got, np.stack([wanted, wanted], axis=1))

        # Transfers: two tags out of order, then from anyone.
        if me == 0:
            first, second = np.zeros(3), np.zeros(3)
            assert comm.recv(second, 1, tag=2) == 1
            assert comm.recv(first, 1, tag=1) == 1
            assert (first[0], second[0]) == (1, 2)
            got = np.zeros(1, "int64")
            senders = set()
            for _ in range(n - 1):
                sender = comm.recv(got, tag=9)
                assert got[0] == sender
                senders.add(sender)
            assert senders == set(range(1, n))
        else:
            if me == 1:
                requests = [comm.send(np.full(3, float(t)), 0, t, async_op=True) for t in (1, 2)]
                for request in requests:
                    request.wait()
            comm.send(np.array([me]), 0, tag=9)

        # Async: several in flight, results as from the blocking form, buffers kept alive.
        requests = [comm.all_reduce(np.full(1000, float(i)), async_op=True) for i in range(8)]
        gc.collect()
        for i, request in reversed(list(enumerate(requests))):
            assert request.wait(30.0)[0] == i * n
            assert request.test()
        for i in range(8):  # dropped before they are done
            comm.all_reduce(np.full(1000, float(i)), async_op=True)
        gc.collect()
        assert comm.all_reduce(np.ones(3))[0] == n
        assert not comm.pending or all(request.test() for request in list(comm.pending))

        # Sub-groups, also of one, in the order given.
        half = comm.group([r for r in range(n) if r % 2 == me % 2][::-1])
        assert (
            half.all_gather(np.array([me])).ravel().tolist()
            == [r for r in range(n) if r % 2 == me % 2][::-1]
        )
        alone = comm.group([me])
        assert alone.all_reduce(np.ones(2)).tolist() == [1, 1]

        # IEEE: NaN wins every reduction, infinities pass.
        special = np.array([1.0, np.nan if me == n - 1 else 2.0, np.inf, -np.inf, -0.0], "float32")
        for op in ("sum", "min", "max", "prod", "avg"):
            got = comm.all_reduce(special, op)
            assert np.isnan(got[1]), op
            assert got[2] == np.inf, op
            assert np.isinf(got[3]), op
        assert comm.all_reduce(np.array([np.inf if me else -np.inf]))[0] != 0

        # bfloat16 as bits: 1.0 is 0x3f80, n times it is n.
        ones = np.full(4, 0x3F80, np.uint16)
        total = comm.all_reduce(ones, dtype="bfloat16").astype(np.uint32) << 16
        assert total.view("float32").tolist() == [float(n)] * 4

        # Strided input is copied; other dtypes are moved but not reduced.
        columns = np.arange(12.0).reshape(3, 4)[:, ::2]
        np.testing.assert_array_equal(comm.all_reduce(columns), columns * n)
        assert comm.all_gather(np.array([me + 1j])).ravel().tolist() == [r + 1j for r in range(n)]


def bad_arguments() -> None:
    comm = ringlane.join()
    strided = np.zeros((4, 4))[:, ::2]
    frozen = np.zeros(3)
    frozen.flags.writeable = False
    refused = [
        lambda: comm.all_reduce(np.zeros(3), "median"),
        lambda: comm.all_reduce(np.zeros(3, "uint16")),
        lambda: comm.all_reduce(np.zeros(3, "complex64")),
        lambda: comm.all_reduce(np.zeros(3, "float32"), dtype="bfloat16"),
        lambda: comm.all_reduce(np.zeros(3), out=np.zeros(4)),
        lambda: comm.all_reduce(np.zeros((4, 2)), out=strided),
        lambda: comm.broadcast(strided),
        lambda: comm.broadcast(frozen),
        lambda: comm.reduce_scatter(np.zeros(())),
        lambda: comm.all_to_all(np.zeros(3), send_rows=[1, 2]),
        lambda: comm.all_gather(np.array([object()])),
        lambda: comm.scatter(None, root=0),
        lambda: comm.broadcast(np.zeros(3), root=7),
        lambda: comm.send(np.zeros(3), 7),
        lambda: comm.group([0, 0]),
        lambda: ringlane.join(rank=0),
        lambda: ringlane.join(rank=3, size=2),
    ]
    for call in refused:
        with pytest.raises(ringlane.InvalidArgument):
            call()
    assert comm.all_reduce(np.ones(1))[0] == 1
    comm.close()
    comm.close()
    with pytest.raises(ringlane.Closed):
        comm.barrier()


@pytest.mark.parametrize("ranks", [1, 3, 8])
def test_collectives(job: Job, ranks: int) -> None:
    job.run(ranks, "collectives")


def test_everything_else(job: Job) -> None:
    job.run(4, "everything_else")


def test_bad_arguments_are_named_and_harmless(job: Job) -> None:
    job.run(1, "bad_arguments")
