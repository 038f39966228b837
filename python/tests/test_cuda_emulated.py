"""The CUDA side of the torch backend without a GPU: its streams, events and memory emulated.

Tensors lie in the emulated GPU's memory, which processors see too: to torch they are CPU
tensors, and the streams that it would give are streams of the emulated driver. What torch
computes with them runs at once, so a test synchronises before it looks.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
from collections.abc import Iterator
from ctypes import byref, c_int, c_void_p
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from driver import Gpu, emulated
from ranks import Job, flag, meet, rank, show_pid, shown_pid, size, wait_for

import ringlane


class Event:
    """torch.cuda.Event on the emulator."""

    def __init__(self) -> None:
        self.made = c_void_p()
        Cuda.gpu("cuEventCreate", byref(self.made), 2)  # CU_EVENT_DISABLE_TIMING

    def record(self, stream: Stream) -> None:
        Cuda.gpu("cuEventRecord", self.made, c_void_p(stream.cuda_stream))

    def query(self) -> bool:
        status = Cuda.gpu.status("cuEventQuery", self.made)
        assert status in (0, 600), status  # CUDA_ERROR_NOT_READY
        return status == 0


class Stream:
    """torch.cuda.Stream on the emulator."""

    def __init__(self, _device: Any = None, priority: int = 0) -> None:
        self.cuda_stream = Cuda.gpu.stream()

    def record_event(self) -> Event:
        event = Event()
        event.record(self)
        return event

    def wait_event(self, event: Event) -> None:
        Cuda.gpu("cuStreamWaitEvent", c_void_p(self.cuda_stream), event.made, 0)

    def query(self) -> bool:
        return self.record_event().query()

    def synchronize(self) -> None:
        Cuda.gpu.synchronize(self.cuda_stream)


class Future:
    """torch.futures.Future of tensors on a GPU: an event in the stream that is current."""

    def __init__(self, devices: list[Any]) -> None:
        self.devices = devices

    def set_result(self, outputs: list[Any]) -> None:
        self._outputs, self._end = outputs, Cuda.current.record_event()

    def ended(self) -> bool:
        return self._end.query()

    def wait(self) -> list[Any]:
        Cuda.current.wait_event(self._end)
        return self._outputs


class Cuda:
    """What stands in for torch.cuda."""

    gpu: Gpu
    index: int
    device: int
    current: Stream

    @staticmethod
    @contextlib.contextmanager
    def stream(stream: Stream) -> Iterator[None]:
        before, Cuda.current = Cuda.current, stream
        yield
        Cuda.current = before

    @staticmethod
    def set_stream(stream: Stream) -> None:
        Cuda.current, Cuda.device = stream, Cuda.index

    @staticmethod
    def is_current_stream_capturing() -> bool:
        status = c_int()
        Cuda.gpu("cuStreamIsCapturing", c_void_p(Cuda.current.cuda_stream), byref(status))
        return status.value != 0


def _tensor(count: int, value: float, dtype: Any = None) -> Any:
    """Return a tensor in the memory of the emulated GPU."""
    import torch

    like = torch.empty(count, dtype=dtype, device="meta")
    memory = (ctypes.c_char * max(like.nbytes, 1)).from_address(Cuda.gpu.empty(like.nbytes))
    return torch.frombuffer(memory, dtype=like.dtype, count=count).fill_(value)


def _init() -> Any:
    """Join, and let the group take the tensors of the emulated GPU for CUDA tensors."""
    import torch
    import torch.distributed as dist

    import ringlane.torch.cuda as side
    from ringlane.torch.process_group import ProcessGroup

    index = rank() % 2
    Cuda.gpu = Gpu(index)
    Cuda.index = Cuda.device = index
    Cuda.current = Stream()
    for name, value in {
        "Event": Event,
        "Stream": Stream,
        "stream": Cuda.stream,
        "set_stream": Cuda.set_stream,
        "current_stream": lambda _device: Cuda.current,
        "current_device": lambda: Cuda.device,
        "is_current_stream_capturing": Cuda.is_current_stream_capturing,
    }.items():
        setattr(torch.cuda, name, value)
    side._current_stream = lambda _index: Cuda.current.cuda_stream

    on_the_host = ProcessGroup._engine

    def engine(self: Any, tensor: Any) -> Any:
        if Cuda.gpu.status("cuPointerGetAttribute", byref(c_int()), 2, c_void_p(tensor.data_ptr())):
            return on_the_host(self, tensor)
        if self._cuda is None:
            side.refuse_capture()
            self._cuda = side.Cuda(self._communicator, index)
        return self._cuda

    ProcessGroup._engine = engine
    store = dist.FileStore(os.environ["TEST_STORE"], size())
    dist.init_process_group("ringlane", rank=rank(), world_size=size(), store=store)
    return dist


def _total() -> float:
    return float(sum(range(1, size() + 1)))


def _done(*tensors: Any) -> list[list[float]]:
    Cuda.current.synchronize()
    return [sorted(set(x.tolist())) for x in tensors]


def collectives() -> None:
    import torch

    dist = _init()
    me, n = rank(), size()
    for asynchronous in (False, True):

        def call(function: Any, *arguments: Any, now: bool = not asynchronous, **more: Any) -> None:
            work = function(*arguments, async_op=not now, **more)
            if not now:
                assert work.wait()

        for dtype in (torch.float32, torch.bfloat16, torch.int64, torch.uint8):
            x = _tensor(1000, me + 1, dtype)
            call(dist.all_reduce, x)
            assert _done(x) == [[_total()]], dtype
        flags = _tensor(9, me == 0, torch.bool)
        call(dist.all_reduce, flags)
        assert _done(flags) == [[True]]
        x = _tensor(50, me + 1)
        call(dist.reduce, x, 1, op=dist.ReduceOp.MAX)
        assert _done(x) == [[float(n if me == 1 else me + 1)]]
        x = _tensor(50, me)
        call(dist.broadcast, x, 1)
        assert _done(x) == [[1.0]]
        out = _tensor(n * 50, -1)
        call(dist.all_gather_into_tensor, out, _tensor(50, me))
        assert _done(*out.split(50)) == [[float(r)] for r in range(n)]
        out, wide = _tensor(50, -1), _tensor(n * 50, me + 1)
        call(dist.reduce_scatter_tensor, out, wide)
        assert _done(out) == [[_total()]]
        out = _tensor(n * 50, -1)
        call(dist.all_to_all_single, out, _tensor(n * 50, me))
        assert _done(*out.split(50)) == [[float(r)] for r in range(n)]
        call(dist.barrier)
    on_the_host = torch.ones(3)
    dist.all_reduce(on_the_host)
    assert on_the_host.tolist() == [n] * 3
    with pytest.raises(ringlane.UnsupportedType, match="int16"):
        dist.all_reduce(_tensor(3, 0, torch.int16))
    with pytest.raises(ringlane.InvalidArgument, match="from any rank"):
        dist.recv(_tensor(3, 0))
    dist.destroy_process_group()


def handles() -> None:
    dist = _init()
    n = size()
    x, y = _tensor(1000, rank() + 1), _tensor(1000, rank() + 1)
    dist.all_reduce(x)
    last = rank() == n - 1
    if last:
        wait_for(flag("asked"))
    work = dist.all_reduce(y, async_op=True)
    if not last:
        assert not work.is_completed()
        assert not work.is_success()
        with pytest.raises(ringlane.DeadlineExceeded, match=r"0\.05 s"):
            work.wait(timedelta(seconds=0.05))
        other = Stream()
        with Cuda.stream(other):  # whose work does not wait for the group's
            other.synchronize()
            work.wait()
            assert not other.query(), "wait() orders the stream, and only it"
        flag("asked").touch()
    assert work.wait(timedelta(seconds=30))
    assert work.is_success()
    assert work.exception() is None
    assert _done(x, y) == [[_total()]] * 2
    with dist._coalescing_manager(async_ops=True) as many:
        parts = [_tensor(10, i) for i in range(3)]
        for part in parts:
            dist.all_reduce(part)
    many.wait()
    assert _done(*parts) == [[0.0], [float(n)], [2.0 * n]]
    dist.destroy_process_group()


def memory() -> None:
    """What a started call uses is kept for the group's stream, and nothing else is."""
    import torch

    dist = _init()
    kept: list[Any] = []

    class Kept(torch.Tensor):
        is_cuda = True

        def record_stream(self, stream: Stream) -> None:
            kept.append((self.data_ptr(), stream))

    x, out = _tensor(8, 1).as_subclass(Kept), _tensor(8 * size(), 0).as_subclass(Kept)
    dist.all_reduce(x)
    assert kept == []
    stream = dist.group.WORLD._cuda._stream
    dist.all_reduce(x, async_op=True).wait()
    assert kept == [(x.data_ptr(), stream)]
    kept.clear()
    dist.all_gather_into_tensor(out, x, async_op=True).wait()
    assert kept == [(x.data_ptr(), stream), (out.data_ptr(), stream)]
    kept.clear()
    # What is to come after the operation uses the outputs in the group's stream as well.
    kept.clear()
    current: list[Stream] = []
    cuda, opts = dist.group.WORLD._cuda, SimpleNamespace(asyncOp=True)

    def finish() -> None:
        current.append(Cuda.current)

    cuda.issue(opts, [[x]], (), finish, cuda.functions.barrier).wait()
    assert current == [stream]
    assert kept == [(x.data_ptr(), stream)]
    dist.destroy_process_group()


def futures() -> None:
    import torch

    import ringlane.torch.cuda as side

    dist = _init()
    torch.futures.Future = Future  # type: ignore[assignment,misc]
    dist.all_reduce(_tensor(1, 0))
    caller, others = Cuda.current, 1 - Cuda.index
    for device in (Cuda.index, others):
        Cuda.device = device
        _future_of_a_call(dist, f"looked-{device == others}", caller)
        assert Cuda.current is caller
        assert Cuda.device == device
    Cuda.device = Cuda.index
    _future_of_a_transfer(dist)
    _future_that_fails(dist)
    assert Cuda.current is caller
    # Older torch gets futures of what is in the caller's stream.
    side.KEEPS_WORK = False
    side._create_work_from_future = lambda future: SimpleNamespace(get_future=lambda: future)
    with Cuda.stream(Stream()):
        _future_of_a_call(dist, "looked-older", dist.group.WORLD._cuda._stream)
    dist.destroy_process_group()


def _future_of_a_call(dist: Any, name: str, free: Stream) -> None:
    """The future ends with the operation, for which the free stream does not wait."""
    x, last = _tensor(1000, rank() + 1), rank() == size() - 1
    if last:
        wait_for(flag(name))
    future = dist.all_reduce(x, async_op=True).get_future()
    assert [(d.type, d.index) for d in future.devices] == [("cuda", Cuda.index)]
    if not last:
        free.synchronize()
        assert not future.ended(), "the future ends before the operation"
        flag(name).touch()
    assert future.wait() == [x]
    assert _done(x) == [[_total()]]


def _future_of_a_transfer(dist: Any) -> None:
    """To ask for the future of what is posted starts it."""
    me, n = rank(), size()
    got = _tensor(10, -1)
    works = [dist.isend(_tensor(10, me), (me + 1) % n), dist.irecv(got, (me - 1) % n)]
    assert works[1].get_future().wait() == [got]
    assert _done(got) == [[float((me - 1) % n)]]


def _future_that_fails(dist: Any) -> None:
    work = dist.all_reduce(_tensor(10, 1), async_op=True)

    def spoilt(_self: Any, _outputs: Any) -> None:
        raise RuntimeError("not tensors")

    complete, Future.set_result = Future.set_result, spoilt
    with pytest.raises(RuntimeError, match="not tensors"):
        work.get_future()
    Future.set_result = complete


def transfers() -> None:
    dist = _init()
    me, n = rank(), size()
    left, right = (me - 1) % n, (me + 1) % n
    _sparse_before_any_collective(dist)
    dist.all_reduce(_tensor(1, 0))
    # More than a window holds: all ranks send before they receive.
    x, got = _tensor(300_000, me), _tensor(300_000, -1)
    works = [dist.isend(x, right), dist.irecv(got, left)]
    assert dist.group.WORLD._cuda._batch is not None, "what is posted waits for more"
    assert works[1].wait()
    assert works[1].source_rank() == left
    assert _done(got) == [[float(left)]]
    assert works[0].wait()
    seven = _tensor(300_000, 7)
    operations = [dist.P2POp(dist.irecv, got, left), dist.P2POp(dist.isend, seven, right)]
    for work in dist.batch_isend_irecv(operations):
        work.wait()
    assert _done(got) == [[7.0]]
    # Whatever else the group does, or a handle that nobody keeps, starts what was posted.
    if me == 0:
        kept = dist.isend(_tensor(10, 3), 1)
        dist.barrier()
        assert dist.group.WORLD._cuda._batch is None
        assert kept.wait()
        dist.isend(_tensor(10, 4), 1)
        wait_for(flag("received"))
        dist.send(_tensor(10, 5), 1)
    else:
        posted = dist.irecv(got[:10], 0) if me == 1 else None
        dist.barrier()
        if me == 1:
            assert dist.group.WORLD._cuda._batch is None
            assert posted.wait()
            assert _done(got[:10]) == [[3.0]]
            for value in (4.0, 5.0):
                dist.recv(got[:10], 0)
                assert _done(got[:10]) == [[value]]
                flag("received").touch()
    _host_calls_between(dist, left, right)
    _posted_once(dist, left, right)
    with pytest.raises(ringlane.InvalidArgument, match="itself"):
        dist.irecv(got, me).wait()
    dist.destroy_process_group()


def _sparse_before_any_collective(dist: Any) -> None:
    """Refuse to go through host memory with a tensor that is not dense."""
    import torch

    import ringlane.torch.cuda as side

    sparse, host = torch.eye(3).to_sparse(), dist.group.WORLD._host
    for through in (side.send_through_host, side.recv_through_host):
        with pytest.raises(ringlane.InvalidArgument, match="to_dense"):
            through(host, sparse, 0, 0)


def _host_calls_between(dist: Any, left: int, right: int) -> None:
    """A call on CPU tensors starts what was posted: another rank may wait for that first."""
    import torch

    got = _tensor(10, -1)
    posted = dist.isend(_tensor(10, rank()), right)
    dist.recv(got, left)
    later = dist.isend(_tensor(10, rank()), right)
    dist.all_reduce(torch.ones(1))
    assert dist.group.WORLD._cuda._batch is None
    assert posted.wait()
    dist.recv(got, left)
    assert _done(got) == [[float(left)]]
    assert later.wait()


def _posted_once(dist: Any, left: int, right: int) -> None:
    """What was posted starts once, whoever drops a handle meanwhile, and whatever fails."""
    cuda = dist.group.WORLD._cuda
    device = cuda._device
    exchange, started = device.exchange, []
    got = _tensor(10, -1)
    works = [dist.isend(_tensor(10, rank()), right), dist.irecv(got, left)]

    def interrupted(messages: Any, stream: int) -> None:
        started.append(len(messages))
        exchange(messages, stream)
        if len(works) > 1:
            del works[1]  # as the garbage collector may

    device.exchange = interrupted
    assert works[0].wait()
    assert _done(got) == [[float(left)]]

    def spoilt(_tensors: Any, _finishes: Any) -> None:
        raise RuntimeError("more than one element refers to a single memory location")

    cuda._end = spoilt
    works = [dist.isend(_tensor(10, rank()), right), dist.irecv(got, left)]
    for work in works:
        with pytest.raises(RuntimeError, match="single memory location"):
            work.wait()
        assert work.is_completed()
        assert not work.is_success()
    works.clear()
    assert started == [2, 2]
    del device.exchange, cuda._end


def end_that_fails() -> None:
    """A group whose GPU cannot be left has left its other ranks all the same."""
    dist = _init()
    dist.all_reduce(_tensor(1, 0))
    group = dist.group.WORLD
    leave = group._cuda._device.close

    def busy() -> None:
        leave()
        raise ringlane.DeadlineExceeded("close: GPU 0 is still busy")

    group._cuda._device.close = busy
    with pytest.raises(ringlane.DeadlineExceeded, match="still busy"):
        dist.destroy_process_group()
    with pytest.raises(ringlane.Closed):
        group.communicator.barrier()


def captured() -> None:
    dist = _init()
    me, n = rank(), size()
    x, y, got = _tensor(1000, 1), _tensor(1000, 1), _tensor(10, 0)
    stream = Cuda.current
    Cuda.gpu.capture(stream.cuda_stream)
    with pytest.raises(ringlane.InvalidArgument, match="before the capture"):
        dist.all_reduce(x)
    Cuda.gpu.graph(stream.cuda_stream)
    dist.all_reduce(_tensor(1, 0))
    Cuda.gpu.capture(stream.cuda_stream)
    dist.all_reduce(x)
    works = [dist.all_reduce(t, async_op=True) for t in (x, y)]
    for work in works:
        work.wait()
    dist.all_reduce(x, dist.ReduceOp.AVG)
    requests = [dist.isend(y[:10], (me + 1) % n), dist.irecv(got, (me - 1) % n)]
    for request in requests:
        request.wait()
    dist.barrier()
    graph = Cuda.gpu.graph(stream.cuda_stream)
    assert _done(x, y) == [[1.0], [1.0]]
    for i in range(1, 4):
        Cuda.gpu.launch(graph, stream.cuda_stream)
        dist.all_reduce(_tensor(100, 1))
        assert _done(x, y, got) == [[float(n ** (2 * i))], [float(n**i)], [float(n**i)]]
    dist.destroy_process_group()


def frozen() -> None:
    dist = _init()
    victim = size() - 1
    dist.all_reduce(_tensor(1, 0))
    Cuda.current.synchronize()
    if rank() == victim:
        show_pid()
        signal.pause()
    pid = shown_pid()
    x = _tensor(1000, 1)
    work = dist.all_reduce(x, async_op=True)
    dist.all_reduce(_tensor(1000, 1))
    Cuda.current.synchronize()  # kernels give up
    for attempt in (lambda: dist.all_reduce(x), dist.barrier, work.wait):
        with pytest.raises(ringlane.DeadlineExceeded, match=f"rank {victim}"):
            attempt()
    assert work.is_completed()
    assert not work.is_success()
    assert f"rank {victim}" in str(work.exception())
    meet(victim)
    os.kill(pid, signal.SIGKILL)
    with pytest.warns(UserWarning, match=f"has failed: .*rank {victim}"):
        dist.destroy_process_group()


@pytest.fixture(scope="module")
def machine() -> dict[str, str]:
    """Return the environment of the ranks."""
    return {**emulated(), "RINGLANE_TIMEOUT": "60"}


def test_collectives(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "collectives", env=machine)


def test_handles(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "handles", env=machine)


def test_memory_is_kept(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "memory", env=machine)


def test_futures(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "futures", env=machine)


def test_transfers(job: Job, machine: dict[str, str]) -> None:
    job.run(3, "transfers", env=machine)


def test_an_end_that_fails(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "end_that_fails", env=machine)


def test_graphs(job: Job, machine: dict[str, str]) -> None:
    job.run(2, "captured", env=machine)


def test_a_rank_that_stops_is_named(job: Job, machine: dict[str, str]) -> None:
    job.run(3, "frozen", env={**machine, "RINGLANE_TIMEOUT": "5"}, expect={2: -signal.SIGKILL})
