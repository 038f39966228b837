"""Collectives on GPU memory through the C library, on the emulated driver and on real GPUs.

On a machine with GPUs both are tried; ranks that outnumber the GPUs share them.
"""

from __future__ import annotations

import os
import signal
from ctypes import c_uint64
from typing import Any

import numpy as np
import pytest
from driver import Gpu, emulated, gpus
from ranks import Job, flag, meet, rank, show_pid, shown_pid, size, wait_for

import ringlane
from ringlane._library import DTYPES, OPS
from ringlane.device import Device, Message

F32 = DTYPES["float32"]


@pytest.fixture(scope="session", params=["emulator", "gpu"])
def machine(request: pytest.FixtureRequest) -> dict[str, str]:
    """Return the environment of the ranks."""
    if request.param == "emulator":
        return {**emulated(), "TEST_GPUS": "2"}
    count = gpus()
    if count == 0:
        pytest.skip("no GPU in this machine: tried on the emulator only")
    return {"RINGLANE_CUDA_DRIVER": "libcuda.so.1", "TEST_GPUS": str(count)}


def _join() -> tuple[ringlane.Communicator, Device, Gpu]:
    ordinal = rank() % int(os.environ["TEST_GPUS"])
    comm = ringlane.join()
    return comm, comm.device(ordinal), Gpu(ordinal)


def _input(r: int, count: int, dtype: Any = np.float32) -> Any:
    """Return a rank's input: small whole numbers, whose sums are exact in every type."""
    return (np.arange(count) % 7 + r + 1).astype(dtype)


def collectives() -> None:
    comm, device, gpu = _join()
    me, n, stream = comm.rank, comm.size, gpu.stream()
    everyone = [_input(r, 24 * n) for r in range(n)]
    x, out = gpu.put(everyone[me]), gpu.empty(4 * 24 * n * n)

    def run(name: str, *arguments: Any) -> None:
        gpu.fill(out, 0xFF, 4 * 24 * n * n, stream)
        device.collective(name, *arguments, stream)
        device.synchronize(stream)

    for op, twin in (("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod)):
        run("all_reduce", x, out, 24, F32, OPS[op])
        want = twin([e[:24] for e in everyone], axis=0)
        assert np.array_equal(gpu.get(out, 24), want), op
    run("reduce", x, out, 24, F32, OPS["sum"], n - 1)
    total = np.sum(everyone, axis=0)
    if me == n - 1:
        assert np.array_equal(gpu.get(out, 24), total[:24])
    run("reduce_scatter", x, out, 24, F32, OPS["sum"])
    assert np.array_equal(gpu.get(out, 24), total[24 * me : 24 * (me + 1)])
    run("all_gather", x, out, 24, F32)
    assert np.array_equal(gpu.get(out, 24 * n), np.concatenate([e[:24] for e in everyone]))
    run("gather", x, out if me == 0 else None, 24, F32, 0)
    if me == 0:
        assert np.array_equal(gpu.get(out, 24 * n), np.concatenate([e[:24] for e in everyone]))
    run("scatter", x if me == 1 else None, out, 24, F32, 1)
    assert np.array_equal(gpu.get(out, 24), everyone[1][24 * me : 24 * (me + 1)])
    run("all_to_all", x, out, 24, F32)
    want = np.concatenate([e[24 * me : 24 * (me + 1)] for e in everyone])
    assert np.array_equal(gpu.get(out, 24 * n), want)
    _uneven(device, gpu, everyone, stream)
    own = gpu.put(everyone[me])
    run("broadcast", own, 24 * n, F32, 1)
    assert np.array_equal(gpu.get(own, 24 * n), everyone[1])
    run("barrier")
    kinds = {(p["from"], p["to"]): p["kind"] for p in device.paths()}
    assert set(kinds) >= {(a, b) for a in range(n) for b in range(n) if a != b}
    child = os.fork()
    if child == 0:
        device.close()
        os._exit(7)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
    device.check()
    device.close()
    device.close()
    assert comm.all_reduce(np.ones(1))[0] == n, "the host's communicator stays"
    comm.close()


def _uneven(device: Device, gpu: Gpu, everyone: list[Any], stream: int) -> None:
    me, n = rank(), size()
    send = [(me + r) % 3 for r in range(n)]
    counts = (c_uint64 * n)(*send)
    x, out = gpu.put(everyone[me]), gpu.empty(4 * 3 * n)
    device.collective("all_to_allv", x, counts, out, counts, F32, stream)
    device.synchronize(stream)
    parts = []
    for r in range(n):
        start = sum((r + s) % 3 for s in range(me))
        parts.append(everyone[r][start : start + (r + me) % 3])
    want = np.concatenate(parts)
    assert np.array_equal(gpu.get(out, want.size), want)


def types() -> None:
    comm, device, gpu = _join()
    stream = gpu.stream()
    for name, code in DTYPES.items():
        kind = np.dtype("uint16" if name == "bfloat16" else name)
        for count in (1, 3, 1000, 40_001):
            values = [_input(r, count, np.float32) for r in range(comm.size)]
            total = np.sum(values, axis=0)
            mine = values[comm.rank]
            if name == "bfloat16":  # small whole numbers: the upper half of a float32
                mine, total = ((a.view(np.uint32) >> 16) for a in (mine, total))
            x = gpu.put(mine.astype(kind))
            device.collective("all_reduce", x, x, count, code, OPS["sum"], stream)
            device.synchronize(stream)
            assert np.array_equal(gpu.get(x, count, kind), total.astype(kind)), (name, count)
    comm.close()  # ends the device too


def streams() -> None:
    """Calls keep their order across streams, and each the order of its own."""
    comm, device, gpu = _join()
    n, first, second = comm.size, gpu.stream(), gpu.stream()
    count = 5000
    a = gpu.put(_input(comm.rank, count))
    total = np.sum([_input(r, count) for r in range(n)], axis=0)
    b = gpu.empty(4 * count)
    if comm.rank == 0:  # a rank's own affair
        device.beside(second)
    for i in range(6):
        where = (first, second)[i % 2]
        # The second call of each round reads what the first one wrote, on another stream.
        device.collective("all_reduce", a, b, count, F32, OPS["sum"], where)
        device.collective("all_reduce", b, b, count, F32, OPS["avg"], (second, first)[i % 2])
    gpu.synchronize(first)
    gpu.synchronize(second)
    assert np.array_equal(gpu.get(b, count), total)
    device.collective("all_reduce", a, b, count, F32, OPS["sum"], 0)  # the default stream
    device.collective("all_reduce", b, b, count, F32, OPS["avg"], 2)  # that of this thread
    gpu.synchronize(2)
    assert np.array_equal(gpu.get(b, count), total)
    comm.close()


def order() -> None:
    """A stream goes on after what is in another one, and not after what comes there later."""
    comm, device, gpu = _join()
    first, then, beside = gpu.stream(), gpu.stream(), gpu.stream()
    x, out = gpu.put(_input(comm.rank, 100)), gpu.empty(400)
    if comm.rank > 0:
        wait_for(flag("looked"))
    device.collective("all_reduce", x, x, 100, F32, OPS["sum"], first)
    device.order(first, then)
    gpu.copy(out, x, 400, then)
    if comm.rank == 0:
        gpu.fill(gpu.empty(400), 1, 400, beside)
        gpu.synchronize(beside)
        assert not gpu.idle(then), "the second stream does not wait"
        flag("looked").touch()
    device.order(then, then)
    device.synchronize(then)
    total = np.sum([_input(r, 100) for r in range(comm.size)], axis=0)
    assert np.array_equal(gpu.get(out, 100), total)
    comm.close()
    with pytest.raises(ringlane.Closed):
        device.order(first, then)


def graphs() -> None:
    comm, device, gpu = _join()
    n, stream = comm.size, gpu.stream()
    x, y = gpu.put(np.ones(1000, np.float32)), gpu.put(np.ones(10, np.float32))
    device.collective("all_reduce", y, y, 10, F32, OPS["sum"], stream)
    gpu.capture(stream)
    device.collective("all_reduce", x, x, 1000, F32, OPS["sum"], stream)
    device.collective("all_reduce", x, x, 1000, F32, OPS["avg"], stream)
    device.collective("all_reduce", x, x, 1000, F32, OPS["sum"], stream)
    graph = gpu.graph(stream)
    for times in range(1, 6):
        gpu.launch(graph, stream)
        # Other calls come between two launches.
        device.collective("all_reduce", y, y, 10, F32, OPS["avg"], stream)
        device.synchronize(stream)
        assert gpu.get(x, 1000).tolist() == [float(n ** (2 * times))] * 1000, times
    assert gpu.get(y, 10).tolist() == [float(n)] * 10
    comm.close()


def messages() -> None:
    comm, device, gpu = _join()
    me, n, stream = comm.rank, comm.size, gpu.stream()
    left, right = (me - 1) % n, (me + 1) % n
    for count in (1, 300, 200_000):  # the last is larger than the window
        out, back = gpu.put(_input(me, count)), gpu.empty(4 * count)
        ring = [Message(back, count, F32, left, 0), Message(out, count, F32, right, 1)]
        device.exchange(ring if me % 2 else ring[::-1], stream)
        device.synchronize(stream)
        assert np.array_equal(gpu.get(back, count), _input(left, count)), count
    # Two ranks alone, one after the other and not grouped.
    if me < 2:
        one = gpu.put(_input(7, 50)) if me == 0 else gpu.empty(200)
        device.exchange([Message(one, 50, F32, 1 - me, me == 0)], stream)
        device.exchange([Message(one, 50, F32, 1 - me, me == 1)], stream)
        device.synchronize(stream)
        assert np.array_equal(gpu.get(one, 50), _input(7, 50))
    device.collective("barrier", stream)
    device.synchronize(stream)
    comm.close()


def refusals() -> None:
    comm, device, gpu = _join()
    x, stream = gpu.put(np.ones(4, np.float32)), gpu.stream()
    host = np.ones(4, np.float32)
    for word, call in {
        "element type": lambda: device.collective("all_reduce", x, x, 4, 99, 0, stream),
        "operator": lambda: device.collective("all_reduce", x, x, 4, F32, 99, stream),
        "root": lambda: device.collective("broadcast", x, 4, F32, 9, stream),
        "does not see": lambda: device.collective(
            "all_reduce", host.ctypes.data, host.ctypes.data, 4, F32, 0, stream
        ),
        "itself": lambda: device.exchange([Message(x, 4, F32, comm.rank, 1)], stream),
        "NULL": lambda: device.collective("all_to_allv", x, None, x, None, F32, stream),
        "messages is NULL": lambda: device.raise_for(
            comm.library.device.exchange(device.handle, None, 1, stream)
        ),
        "needed is NULL": lambda: device.raise_for(
            comm.library.device.paths(device.handle, None, 0, None)
        ),
    }.items():
        with pytest.raises(ringlane.InvalidArgument, match=word):
            call()
    with pytest.raises(ringlane.Closed, match="does not exist"):
        raise comm.library.failure(comm.library.device_error(12345))
    device.collective("all_reduce", x, x, 4, F32, 0, stream)
    for source, target in ((x, None), (None, x), (None, None)):  # like a call that was well
        with pytest.raises(ringlane.InvalidArgument, match=r"allreduce of 4 .*NULL"):
            device.collective("all_reduce", source, target, 4, F32, 0, stream)
    device.collective("all_reduce", None, None, 0, F32, 0, stream)
    device.synchronize(stream)
    assert gpu.get(x, 4).tolist() == [comm.size] * 4
    comm.close()
    for call in (device.check, lambda: device.synchronize(stream)):
        with pytest.raises(ringlane.Closed):
            call()
    device.close()
    with pytest.raises(ringlane.Closed, match="does not exist"):
        device.check()


def several() -> None:
    """Joins that fail, and communicators side by side, do not disturb the others."""
    comm = ringlane.join()
    me, gpus = comm.rank, int(os.environ["TEST_GPUS"])
    with pytest.raises(ringlane.InvalidArgument, match=r"rank 0.* there is no GPU 99"):
        comm.device(99 if me == 0 else me % gpus)
    first, second = comm.device(me % gpus), comm.device(me % gpus)
    pair = comm.group([1, 0])
    third = pair.device(me % gpus)
    gpu = Gpu(me % gpus)
    stream, x = gpu.stream(), gpu.put(np.ones(1000, np.float32))

    def doubled(devices: list[Device], want: float) -> None:
        for device in devices:
            device.collective("all_reduce", x, x, 1000, F32, OPS["sum"], stream)
        for device in devices:
            device.synchronize(stream)
        assert gpu.get(x, 1000).tolist() == [want] * 1000

    doubled([first, second, third, first, third, second], 64)
    first.close()
    doubled([second, third], 256)
    pair.close()
    with pytest.raises(ringlane.Closed):
        third.check()
    doubled([second], 512)
    comm.close()


def frozen() -> None:
    """A rank that stops is named by the others within the deadline, and all go on."""
    comm, device, gpu = _join()
    stream = gpu.stream()
    x = gpu.put(np.ones(1000, np.float32))
    device.collective("all_reduce", x, x, 1000, F32, OPS["sum"], stream)
    device.synchronize(stream)
    victim = comm.size - 1
    if comm.rank == victim:
        show_pid()
        signal.pause()
    pid = shown_pid()
    device.collective("all_reduce", x, x, 1000, F32, OPS["sum"], stream)
    with pytest.raises(ringlane.DeadlineExceeded, match=f"rank {victim}"):
        device.synchronize(stream)
    with pytest.raises(ringlane.DeadlineExceeded, match=f"rank {victim}"):
        device.collective("all_reduce", x, x, 1000, F32, OPS["sum"], stream)
    with pytest.raises(ringlane.DeadlineExceeded, match=f"rank {victim}"):
        device.check()
    gpu.synchronize(stream)  # the context is usable
    assert gpu.get(gpu.put(np.ones(4, np.float32)), 4).tolist() == [1] * 4
    meet(victim)
    os.kill(pid, signal.SIGKILL)
    comm.close()


def aborted() -> None:
    comm, device, gpu = _join()
    stream, x = gpu.stream(), gpu.put(np.ones(4, np.float32))
    if comm.rank == 0:
        device.abort("the loss is not a number")
    with pytest.raises(ringlane.RinglaneError, match="the loss is not a number"):
        for _ in range(100_000):
            device.collective("all_reduce", x, x, 4, F32, OPS["sum"], stream)
            device.synchronize(stream)
    comm.close()


def no_gpu() -> None:
    comm = ringlane.join()
    with pytest.raises(ringlane.RinglaneError, match="GPU"):
        comm.device(0)
    assert comm.all_reduce(np.ones(1))[0] == comm.size
    comm.close()


@pytest.mark.parametrize("ranks", [2, 3])
@pytest.mark.parametrize("p2p", ["auto", "off"])
def test_collectives(job: Job, machine: dict[str, str], ranks: int, p2p: str) -> None:
    job.run(ranks, "collectives", env={**machine, "RINGLANE_P2P": p2p})


def test_every_type_is_added(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "types", env=machine)


def test_order_across_streams(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "streams", env=machine)


def test_order_of_two_streams(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "order", env=machine)


def test_graphs_are_replayed_among_other_calls(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "graphs", env=machine)


def test_messages(job: Job, machine: dict[str, str]) -> None:
    job.run(3, "messages", env=machine)


def test_what_is_refused_is_named_and_harmless(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "refusals", env=machine)


def test_several_at_once(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "several", env=machine)


def test_a_rank_that_stops_is_named(job: Job, machine: dict[str, str]) -> None:
    job.run(3, "frozen", env={**machine, "RINGLANE_TIMEOUT": "4"}, expect={2: -signal.SIGKILL})


def test_abort_reaches_every_rank(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "aborted", env=machine)


def test_a_machine_without_a_gpu(job: Job) -> None:
    job.run(2, "no_gpu", env={"RINGLANE_CUDA_DRIVER": "off"})
