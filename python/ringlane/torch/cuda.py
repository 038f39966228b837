"""Operations on CUDA tensors: what runs on which stream.

A collective whose caller does not ask for a handle goes straight into the current stream.
One that is started (async_op=True, DDP, functional collectives) goes into a stream of the
group's own, which first waits for the current one, so that what the caller computes next
runs beside it; wait() makes the stream that is current then wait for its end. Neither
stops the host, and both can be captured into CUDA graphs. The device communicator keeps
its calls in order across streams.
"""

from __future__ import annotations

import os
import threading
import time
import warnings
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from ..communicator import Communicator
from ..device import Device, Message
from ..errors import Closed, DeadlineExceeded, Forked, InvalidArgument
from .host import Host
from .tensors import (
    Finish,
    asynchronous,
    contiguous,
    copy_all,
    moved,
    refuse_sparse,
    write_back,
)
from .work import DONE, KEEPS_WORK

_BLOCKS = os.environ.get("RINGLANE_BLOCKING_WAIT", "0") not in ("", "0")
_current_stream = getattr(torch._C, "_cuda_getCurrentRawStream", None)


class Cuda:
    """How a group's operations on the tensors of one GPU reach the C library.

    Attributes:
        functions: the collectives, by name.
        index: the GPU.
    """

    def __init__(self, communicator: Communicator, index: int) -> None:
        self.index = index
        self._device = Device(communicator, index)
        self._library = communicator.library
        self.functions = communicator.library.device
        self._handle = self._device.handle
        self._stream = torch.cuda.Stream(index, priority=-1)
        self._raw: int = self._stream.cuda_stream
        self._device.beside(self._raw)
        self._places = [torch.device("cuda", index)]
        self._batch: Batch | None = None

    def issue(
        self,
        opts: Any,
        outputs: list[Any],
        keep: Any,
        finish: Finish | None,
        function: Callable[..., int],
        *arguments: Any,
    ) -> dist.Work:
        """Call the C function on the current stream, or start it if the caller wants a handle.

        Args:
            keep: the tensors that it uses.
            finish: what has to come into the stream after it.
        """
        if self._batch is not None:
            self.start_posted()
        wanted = asynchronous(opts)
        if wanted and KEEPS_WORK:
            return self._start(outputs, keep, finish, function, arguments)
        status = function(self._handle, *arguments, _current_stream(self.index))
        if status:
            raise self._library.failure(status)
        if finish is not None:
            finish()
        return self._done(outputs) if wanted else DONE

    def _done(self, outputs: list[Any]) -> dist.Work:
        """Return a handle of what is in the current stream, made in C++."""
        future = self._future()
        future.set_result(outputs)
        return _create_work_from_future(future)

    def _start(
        self,
        outputs: list[Any],
        keep: Any,
        finish: Finish | None,
        function: Callable[..., int],
        arguments: tuple[Any, ...],
    ) -> Work:
        self._fork(keep)
        self._device.raise_for(function(self._handle, *arguments, self._raw))
        return Work(self, outputs, self._end(outputs, (finish,) if finish else ()))

    def _fork(self, keep: Any) -> None:
        """Let the group's stream wait for the current one, and tensors outlive its work."""
        self._device.order(_current_stream(self.index), self._raw)
        self._keep(keep)

    def _keep(self, used: Any) -> None:
        """Let the CUDA tensors in nested tuples and lists outlive the group's stream's work."""
        if isinstance(used, torch.Tensor):
            if used.is_cuda:
                used.record_stream(self._stream)
        elif isinstance(used, (list, tuple)):
            for part in used:
                self._keep(part)

    def _end(self, outputs: Any, finishes: Sequence[Finish]) -> torch.cuda.Event:
        """Return an event after everything in the group's stream, and after ``finishes``."""
        if finishes:
            with torch.cuda.stream(self._stream):
                for finish in finishes:
                    finish()
            self._keep(outputs)
        end = torch.cuda.Event()
        end.record(self._stream)
        return end

    def together(self, opts: Any, outputs: list[Any], works: list[Any]) -> dist.Work:
        """Return one handle for several operations."""
        if not asynchronous(opts):
            return DONE
        if works and isinstance(works[-1], Work):
            return Work(self, outputs, works[-1].end)  # they are in one stream
        return self._done(outputs)

    # Point to point.

    def send(self, tensor: torch.Tensor, dst: int, tag: int) -> Posted:
        return self._post(True, tensor, contiguous(tensor), dst, None)

    def recv(self, tensor: torch.Tensor, src: int, tag: int) -> Posted:
        if src < 0:
            raise InvalidArgument(
                "recv: from any rank works on CPU tensors only (name the rank that sends)"
            )
        buffer = contiguous(tensor)
        return self._post(False, tensor, buffer, src, write_back(tensor, buffer))

    def _post(
        self,
        send: bool,
        tensor: torch.Tensor,
        buffer: torch.Tensor,
        peer: int,
        finish: Finish | None,
    ) -> Posted:
        self._fork((tensor, buffer))
        count, code = moved(buffer)
        message = Message(buffer.data_ptr(), count, code, peer, send)
        batch = self._batch
        if batch is None or not batch.add(message, (tensor, buffer), finish):
            batch = self._batch = Batch(self)
            batch.add(message, (tensor, buffer), finish)
        return Posted(self, [tensor], batch, -1 if send else peer)

    def start_posted(self) -> None:
        """Start what was posted, because something else comes."""
        batch, self._batch = self._batch, None
        if batch is not None:
            batch.start()

    def exchange(
        self, messages: list[Message], tensors: list[Any], finishes: list[Finish]
    ) -> torch.cuda.Event:
        """Put sends and receives into the group's stream, and return the event behind them."""
        self._device.exchange(messages, self._raw)
        return self._end(tensors, finishes)

    def end_coalescing(self) -> Work:
        """Return the handle of everything that was started and posted so far."""
        self.start_posted()
        return Work(self, [], self._end([], ()))

    # Waiting, and the end.

    def barrier(self, opts: Any) -> dist.Work:
        """Return a handle whose wait() stops the host, as that of NCCL's barrier does."""
        work = self.issue(opts, [], (), None, self.functions.barrier)
        if torch.cuda.is_current_stream_capturing():
            return work
        if isinstance(work, Work):
            return Work(self, [], work.end, blocks=True)
        self._device.synchronize(_current_stream(self.index))
        return work

    def error(self) -> Exception | None:
        """Return the failure of the device communicator, if there is one."""
        status = self._library.device_error(self._handle)
        return self._library.failure(status) if status else None

    def order(self, end: torch.cuda.Event) -> None:
        """Let the current stream wait for an event."""
        torch.cuda.current_stream(self.index).wait_event(end)

    def future(self, outputs: list[Any]) -> torch.futures.Future[list[Any]]:
        """Return a future whose waiters' streams wait for what is in the group's stream now."""
        future = self._future()
        if torch.cuda.current_device() != self.index:
            with torch.cuda.stream(self._stream):
                future.set_result(outputs)
            return future
        before = torch.cuda.current_stream(self.index)
        torch.cuda.set_stream(self._stream)  # what the context manager does takes far longer
        try:
            future.set_result(outputs)
        finally:
            torch.cuda.set_stream(before)
        return future

    def _future(self) -> torch.futures.Future[list[Any]]:
        """Return a future whose waiters' streams wait for the stream in which it is completed."""
        return torch.futures.Future(devices=self._places)

    def paths(self) -> list[dict[str, Any]]:
        return self._device.paths()

    def abort(self, why: str) -> None:
        self._device.abort(why)

    def close(self) -> None:
        """Leave the device communicator.

        Warns if that has failed: where no call came later, nobody has been told.
        """
        self.start_posted()
        error = self.error()
        self._device.close()
        if error is not None and not isinstance(error, (Closed, Forked)):
            warnings.warn(f"ringlane: a group on GPUs has failed: {error}", stacklevel=2)


class Work(dist.Work):
    """An operation in a stream, which ends with an event."""

    def __init__(
        self,
        cuda: Cuda,
        outputs: list[Any],
        end: torch.cuda.Event | None = None,
        blocks: bool = _BLOCKS,
    ) -> None:
        super().__init__()
        self._cuda = cuda
        self._outputs = outputs
        self._end = end
        self._blocks = blocks
        self._well = False  # it was seen to have ended before any failure

    @property
    def end(self) -> Any:
        """The event after it."""
        return self._end

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Let the current stream wait for the operation.

        Stops the host too where a timeout is given, RINGLANE_BLOCKING_WAIT is 1, or the
        operation is a barrier.

        Raises:
            ringlane.RinglaneError: the communicator failed, or the timeout passed.
        """
        end, seconds = self.end, timeout.total_seconds() if timeout else None
        self._raise()
        self._cuda.order(end)
        if (seconds or self._blocks) and not torch.cuda.is_current_stream_capturing():
            self._stop(seconds or None)
        return True

    def synchronize(self) -> None:
        """Let the current stream wait for the operation."""
        self._cuda.order(self.end)

    def _stop(self, seconds: float | None) -> None:
        limit = time.monotonic() + seconds if seconds else None
        pause = 20e-6
        while not self.is_completed():
            if limit is not None and time.monotonic() > limit:
                raise DeadlineExceeded(f"wait: not complete after {seconds} s (wait longer)")
            time.sleep(pause)
            pause = min(2 * pause, 1e-3)
        self._raise()

    def _raise(self) -> None:
        error = self.exception()
        if error is not None:
            raise error

    def is_completed(self) -> bool:
        if not self._well:
            ended, error = self.end.query(), self._cuda.error()
            self._well = ended and error is None
            return ended or error is not None
        return True

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        """Return the communicator's failure, unless the operation was seen to end before it."""
        return None if self._well else self._cuda.error()

    def result(self) -> list[Any]:
        return self._outputs

    def get_future(self) -> torch.futures.Future[list[Any]]:
        """Return a future of the output tensors, as torch makes them for CUDA."""
        return self._cuda.future(self._outputs)


class Batch:
    """Sends and receives that go together, as they must where two ranks each do both.

    Older versions of torch tell a group like this one nothing of batch_isend_irecv: they
    call isend and irecv one by one, and so may a program. So each is only posted, and all
    that were posted start when one of them is waited for or its handle is dropped, when
    the group is used for something else, and when it ends.
    """

    def __init__(self, cuda: Cuda) -> None:
        self._cuda = cuda
        self._lock = threading.RLock()
        self._begun = False
        self._messages: list[Message] = []
        self._tensors: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._finishes: list[Finish] = []
        self.error: Exception | None = None
        self.end: torch.cuda.Event | None = None

    def add(
        self, message: Message, tensors: tuple[torch.Tensor, torch.Tensor], finish: Finish | None
    ) -> bool:
        """Take one more, unless they have started; tell whether it did."""
        with self._lock:
            if not self._begun:
                self._messages.append(message)
                self._tensors.append(tensors)
                if finish is not None:
                    self._finishes.append(finish)
            return not self._begun

    def start(self) -> None:
        """Start what was posted, unless that was done.

        Other threads wait for that to be over. The garbage collector may drop a handle,
        and so call this again, at any line of it.
        """
        with self._lock:
            if self._begun:
                return
            self._begun = True
            try:
                self.end = self._cuda.exchange(self._messages, self._tensors, self._finishes)
            except Exception as error:  # for whoever waits
                self.error = error
            self._messages, self._tensors, self._finishes = [], [], []


class Posted(Work):
    """A send or a receive in a batch."""

    def __init__(self, cuda: Cuda, outputs: list[Any], batch: Batch, sender: int) -> None:
        super().__init__(cuda, outputs)
        self._batch = batch
        self._sender = sender

    @property
    def end(self) -> Any:
        self._batch.start()
        if self._batch.error is not None:
            raise self._batch.error
        return self._batch.end

    def exception(self) -> Exception | None:
        self._batch.start()
        return self._batch.error or super().exception()

    def is_completed(self) -> bool:
        self._batch.start()
        return self._batch.error is not None or super().is_completed()

    def get_future(self) -> torch.futures.Future[list[Any]]:
        _ = self.end  # started, or failed
        return super().get_future()

    def source_rank(self) -> int:
        """Return the rank that a receive received from."""
        return self._sender

    _source_rank = source_rank

    def __del__(self) -> None:
        self._batch.start()


def send_through_host(host: Host, tensor: torch.Tensor, dst: int, tag: int) -> dist.Work:
    """Send a tensor of a group that is on no GPU yet; waits for the current stream."""
    refuse_capture()
    return host.send(_in_host_memory(tensor).copy_(tensor.detach()), dst, tag)


def recv_through_host(host: Host, tensor: torch.Tensor, src: int, tag: int) -> dist.Work:
    """Receive into a tensor of a group that is on no GPU yet."""
    refuse_capture()
    arrived = _in_host_memory(tensor)
    ready = torch.cuda.current_stream(tensor.device).record_event()

    def finish() -> None:
        torch.cuda.current_stream(tensor.device).wait_event(ready)
        copy_all([tensor], [arrived])

    return host.recv(arrived, src, tag, [tensor], finish)


def _in_host_memory(tensor: torch.Tensor) -> torch.Tensor:
    """Return a tensor of the same shape that a GPU can copy to and from."""
    refuse_sparse(tensor)
    return torch.empty(tensor.shape, dtype=tensor.dtype, pin_memory=True)


def refuse_capture() -> None:
    """Refuse what stops the host while a CUDA graph is captured, which it would spoil.

    Raises:
        InvalidArgument: one is.
    """
    if torch.cuda.is_current_stream_capturing():
        raise InvalidArgument(
            "collective: the first of a group on a GPU cannot be captured into a CUDA graph "
            "(call one, such as all_reduce, before the capture)"
        )
