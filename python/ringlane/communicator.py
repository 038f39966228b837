"""Collectives on NumPy arrays."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
from collections.abc import Callable, Sequence
from ctypes import byref, c_int32, c_uint64, create_string_buffer
from types import TracebackType
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from . import _library
from ._request import Request, start
from .device import Device
from .errors import InvalidArgument, RinglaneError

Array = NDArray[Any]


def join(
    *,
    rank: int | None = None,
    size: int | None = None,
    rendezvous: str | os.PathLike[str] = "",
    job: str = "",
    timeout: float = 0.0,
    staging_bytes: int = 0,
) -> Communicator:
    """Meet the other ranks of the job and return the communicator of all of them.

    Without ``rank`` and ``size`` everything comes from the environment that
    ``ringlane run`` or ``torchrun`` set (``RINGLANE_RANK``, ``RINGLANE_SIZE``,
    ``RINGLANE_RENDEZVOUS``, ``RINGLANE_JOB``, ``RINGLANE_TIMEOUT``,
    ``RINGLANE_STAGING``, or ``RANK``, ``WORLD_SIZE`` and ``MASTER_*``).

    Args:
        rank: this process, 0 to ``size`` - 1.
        size: the number of processes.
        rendezvous: an absolute path of a private directory (mode 0700) that all
            ranks see; empty: one derived from ``job`` in the temporary directory.
        job: a string that all ranks of this communicator pass and no other job does.
        timeout: seconds for this join and for every collective later; 0: 60.
        staging_bytes: shared memory this rank may use, in bytes; 0: 16 MiB.

    Raises:
        DeadlineExceeded: ranks are missing; the text names them.
        InvalidArgument: the environment or the arguments name no place in a job.
        OutOfMemory: the machine granted less staging memory.
        LibraryNotFound: libringlane.so is not there.
    """
    library = _library.load()
    handle = c_uint64()
    if rank is None and size is None:
        if rendezvous or job or timeout or staging_bytes:
            raise InvalidArgument(
                "join: rendezvous, job, timeout and staging_bytes need rank and size "
                "(pass both, or set the RINGLANE_* variables)"
            )
        status = library.join_env(byref(handle))
    elif rank is None or size is None:
        raise InvalidArgument("join: rank and size go together (pass both or neither)")
    else:
        status = library.join(
            os.fsencode(rendezvous),
            job.encode(),
            rank,
            size,
            timeout,
            staging_bytes,
            byref(handle),
        )
    if status:
        raise library.failure(status)
    return Communicator(library, handle.value)


class Communicator:
    """A set of ranks that call the same collectives in the same order.

    Made by :func:`join` and :meth:`group`. Use it from one thread at a time; a
    second thread gets :class:`~ringlane.errors.Busy`. It stays until :meth:`close` or
    the end of the process, also when the program drops it. Arrays are float32, float64,
    float16, int8, uint8, int32 or int64; ``ml_dtypes.bfloat16``, or uint16 holding
    bfloat16 bits with ``dtype="bfloat16"``. Inputs that are not contiguous are copied;
    an ``out`` that is not contiguous or not writable is refused.

    Every collective takes ``async_op=True`` and then returns a :class:`Request`, whose
    ``wait()`` returns what the blocking call returns. Every one may raise
    :class:`~ringlane.errors.Mismatch`, :class:`~ringlane.errors.RankDied`,
    :class:`~ringlane.errors.DeadlineExceeded`, :class:`~ringlane.errors.Closed`,
    :class:`~ringlane.errors.Busy`, :class:`~ringlane.errors.Forked` and
    :class:`~ringlane.errors.InvalidArgument`.
    """

    # Until closed, also where the program has dropped it: operations may be under way
    # on the buffers that it keeps, and its peers count on this rank.
    _open: ClassVar[set[Communicator]] = set()

    def __init__(self, library: _library.Library, handle: int) -> None:
        self._library = library
        self._handle = handle
        self.pending: set[Request] = set()
        self._owner = os.getpid()
        self._closed = False
        value = c_int32()
        self._check(library.rank(handle, byref(value)))
        self.rank: int = value.value
        self._check(library.size(handle, byref(value)))
        self.size: int = value.value
        self._open.add(self)

    @property
    def handle(self) -> int:
        """The ``rl_comm`` of ringlane.h, for callers that bring their own buffers."""
        return self._handle

    @property
    def library(self) -> _library.Library:
        """The loaded C library."""
        return self._library

    def all_reduce(
        self,
        x: Array,
        op: str = "sum",
        out: Array | None = None,
        *,
        dtype: str | None = None,
        async_op: bool = False,
    ) -> Any:
        """Reduce ``x`` over all ranks and return the result on every rank.

        Args:
            x: any shape, the same on every rank.
            op: "sum", "avg", "min", "max" or "prod".
            out: where to put the result, of x's shape and dtype; may be ``x`` itself.
            dtype: "bfloat16" if uint16 arrays hold bfloat16 bits.

        Returns:
            ``out``, or a new array of x's shape; the same bits on every rank.
        """
        x = _input(x)
        out = self._out(out, x.shape, x.dtype)
        code = _code(x.dtype, dtype)
        return self._run(
            (x, out),
            lambda: out,
            async_op,
            self._library.all_reduce,
            x.ctypes.data,
            out.ctypes.data,
            x.size,
            code,
            _op(op),
        )

    def reduce(
        self,
        x: Array,
        op: str = "sum",
        root: int = 0,
        out: Array | None = None,
        *,
        dtype: str | None = None,
        async_op: bool = False,
    ) -> Any:
        """Reduce ``x`` over all ranks to rank ``root``.

        Returns:
            On ``root`` the reduced array of x's shape; None elsewhere.
        """
        x = _input(x)
        result = self._out(out, x.shape, x.dtype) if self.rank == root else None
        return self._run(
            (x, result),
            lambda: result,
            async_op,
            self._library.reduce,
            x.ctypes.data,
            None if result is None else result.ctypes.data,
            x.size,
            _code(x.dtype, dtype),
            _op(op),
            root,
        )

    def reduce_scatter(
        self,
        x: Array,
        op: str = "sum",
        out: Array | None = None,
        *,
        dtype: str | None = None,
        async_op: bool = False,
    ) -> Any:
        """Reduce ``x`` over all ranks and return this rank's share of the rows.

        Args:
            x: shape (size * rows, ...), the same on every rank.

        Returns:
            Shape (rows, ...): rows ``rank * rows`` to ``(rank + 1) * rows`` of the sum.
        """
        x = _input(x)
        rows = self._share(x, "reduce_scatter")
        out = self._out(out, (rows, *x.shape[1:]), x.dtype)
        return self._run(
            (x, out),
            lambda: out,
            async_op,
            self._library.reduce_scatter,
            x.ctypes.data,
            out.ctypes.data,
            out.size,
            _code(x.dtype, dtype),
            _op(op),
        )

    def all_gather(self, x: Array, out: Array | None = None, *, async_op: bool = False) -> Any:
        """Collect every rank's ``x`` on every rank.

        Returns:
            Shape (size, *x.shape), in rank order.
        """
        x = _input(x)
        out = self._out(out, (self.size, *x.shape), x.dtype)
        return self._run(
            (x, out),
            lambda: out,
            async_op,
            self._library.all_gather,
            x.ctypes.data,
            out.ctypes.data,
            *_bytes(x),
        )

    def broadcast(self, x: Array, root: int = 0, *, async_op: bool = False) -> Any:
        """Copy rank ``root``'s ``x`` into every other rank's ``x`` (in place) and return it."""
        self._out(x, x.shape, x.dtype)
        return self._run(
            (x,),
            lambda: x,
            async_op,
            self._library.broadcast,
            x.ctypes.data,
            *_bytes(x),
            root,
        )

    def gather(
        self, x: Array, root: int = 0, out: Array | None = None, *, async_op: bool = False
    ) -> Any:
        """Collect every rank's ``x`` on rank ``root``.

        Returns:
            On ``root`` shape (size, *x.shape), in rank order; None elsewhere.
        """
        x = _input(x)
        result = self._out(out, (self.size, *x.shape), x.dtype) if self.rank == root else None
        return self._run(
            (x, result),
            lambda: result,
            async_op,
            self._library.gather,
            x.ctypes.data,
            None if result is None else result.ctypes.data,
            *_bytes(x),
            root,
        )

    def scatter(
        self,
        x: Array | None = None,
        root: int = 0,
        out: Array | None = None,
        *,
        async_op: bool = False,
    ) -> Any:
        """Give row r of rank ``root``'s ``x`` to rank r.

        Args:
            x: on ``root`` shape (size, ...); not used elsewhere.
            out: the row's place; needed on every rank but ``root``.

        Returns:
            ``out``, or on ``root`` a new array of shape x.shape[1:].
        """
        if self.rank == root:
            if x is None:
                raise InvalidArgument("scatter: x is missing on the root")
            x = _input(x)
            if x.ndim == 0 or x.shape[0] != self.size:
                raise InvalidArgument(
                    f"scatter: x has shape {x.shape}, its first axis must be {self.size} long"
                )
            out = self._out(out, x.shape[1:], x.dtype)
        elif out is None:
            raise InvalidArgument(f"scatter: out is missing on rank {self.rank}")
        else:
            x, out = None, self._out(out, out.shape, out.dtype)
        return self._run(
            (x, out),
            lambda: out,
            async_op,
            self._library.scatter,
            None if x is None else x.ctypes.data,
            out.ctypes.data,
            *_bytes(out),
            root,
        )

    def all_to_all(
        self,
        x: Array,
        out: Array | None = None,
        *,
        send_rows: Sequence[int] | None = None,
        recv_rows: Sequence[int] | None = None,
        async_op: bool = False,
    ) -> Any:
        """Send a share of ``x``'s rows to every rank and collect theirs, in rank order.

        Args:
            x: shape (rows, ...); without ``send_rows`` rows is a multiple of size.
            send_rows: rows for each rank; they add up to x.shape[0].
            recv_rows: rows from each rank; needed with ``send_rows``.

        Returns:
            Shape (sum of recv_rows, ...), or x.shape when the shares are even.
        """
        x = _input(x)
        if (send_rows is None) != (recv_rows is None):
            raise InvalidArgument("all_to_all: send_rows and recv_rows go together")
        if send_rows is None or recv_rows is None:
            self._share(x, "all_to_all")
            out = self._out(out, x.shape, x.dtype)
            count, code = _bytes(x)
            arguments: tuple[Any, ...] = (
                self._library.all_to_all,
                x.ctypes.data,
                out.ctypes.data,
                count // self.size,
                code,
            )
        else:
            if len(send_rows) != self.size or len(recv_rows) != self.size:
                raise InvalidArgument(
                    f"all_to_all: one number of rows for each of {self.size} ranks"
                )
            if x.ndim == 0 or sum(send_rows) != x.shape[0] or min(*send_rows, *recv_rows) < 0:
                raise InvalidArgument(
                    f"all_to_all: send_rows {list(send_rows)} do not divide x of shape {x.shape}"
                )
            out = self._out(out, (sum(recv_rows), *x.shape[1:]), x.dtype)
            width, code = _bytes(np.empty((1, *x.shape[1:]), x.dtype))
            counts = c_uint64 * self.size
            arguments = (
                self._library.all_to_allv,
                x.ctypes.data,
                counts(*(rows * width for rows in send_rows)),
                out.ctypes.data,
                counts(*(rows * width for rows in recv_rows)),
                code,
            )
        return self._run((x, out, arguments), lambda: out, async_op, *arguments)

    def send(self, x: Array, dst: int, tag: int = 0, *, async_op: bool = False) -> Any:
        """Send ``x`` to rank ``dst``, which receives it with the same tag, size and dtype."""
        x = _input(x)
        return self._run(
            (x,),
            lambda: None,
            async_op,
            self._library.send,
            x.ctypes.data,
            *_bytes(x),
            dst,
            tag,
        )

    def recv(
        self, out: Array, src: int | None = None, tag: int = 0, *, async_op: bool = False
    ) -> Any:
        """Receive into ``out`` from rank ``src`` (None: from any rank) and return the sender."""
        self._out(out, out.shape, out.dtype)
        sender = c_int32(-1)
        return self._run(
            (out, sender),
            lambda: sender.value,
            async_op,
            self._library.recv,
            out.ctypes.data,
            *_bytes(out),
            -1 if src is None else src,
            tag,
            byref(sender),
        )

    def barrier(self, *, async_op: bool = False) -> Any:
        """Wait until every rank has called barrier."""
        return self._run((), lambda: None, async_op, self._library.barrier)

    def group(self, ranks: Sequence[int]) -> Communicator:
        """Return a communicator of some ranks of this one, in the order given.

        Called by every rank in ``ranks`` and by nobody else.
        """
        listed = (c_int32 * len(ranks))(*ranks)
        handle = c_uint64()
        self._check(self._library.group(self._handle, listed, len(ranks), byref(handle)))
        return Communicator(self._library, handle.value)

    def device(self, ordinal: int) -> Device:
        """Return the communicator of these ranks on their GPUs, one GPU a rank.

        Called by every rank, with the ordinal of its own GPU. Every pair of ranks is tried
        out first, which takes a moment.

        Raises:
            SystemFailure: there is no GPU, or no driver.
        """
        return Device(self, ordinal)

    def stats(self) -> list[dict[str, Any]]:
        """Return the latencies recorded so far, one entry a collective.

        Each has "collective", "count", "bytes", "seconds" (total), and "p50_us",
        "p99_us", "p999_us", "max_us" (microseconds).
        """
        needed = c_uint64()
        self._check(self._library.stats(self._handle, None, 0, byref(needed)))
        while True:
            text = create_string_buffer(needed.value)
            self._check(self._library.stats(self._handle, text, len(text), byref(needed)))
            if needed.value <= len(text):
                return list(json.loads(text.value))

    def abort(self, why: str) -> None:
        """Make every pending and later call on every rank fail with the text ``why``."""
        self._check(self._library.abort(self._handle, why.encode()))

    def close(self) -> None:
        """Leave the communicator; later calls raise Closed. Closing twice is fine.

        Local: it does not wait for the other ranks. In a forked child it does nothing.
        """
        if self._closed or os.getpid() != self._owner:
            return
        self._closed = True
        status = self._library.close(self._handle)
        self.pending.clear()
        self._open.discard(self)
        self._check(status)

    def __enter__(self) -> Communicator:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        state = " closed" if self._closed else ""
        return f"<ringlane.Communicator rank {self.rank} of {self.size}{state}>"

    def _check(self, status: int) -> None:
        if status:
            raise self._library.failure(status)

    def _share(self, x: Array, what: str) -> int:
        if x.ndim == 0 or x.shape[0] % self.size:
            raise InvalidArgument(
                f"{what}: x has shape {x.shape}, its first axis must be a multiple of {self.size}"
            )
        return int(x.shape[0]) // self.size

    def _out(self, out: Array | None, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
        if out is None:
            return np.empty(shape, dtype)
        if out.shape != shape or out.dtype != dtype:
            raise InvalidArgument(
                f"out: is {out.dtype} of shape {out.shape}, must be {dtype} of shape {shape}"
            )
        if not out.flags.c_contiguous or not out.flags.writeable:
            raise InvalidArgument(
                "out: must be C-contiguous and writable (pass np.ascontiguousarray of it)"
            )
        return out

    def _run(
        self,
        keep: tuple[Any, ...],
        finish: Callable[[], Any],
        async_op: bool,
        function: Callable[..., int],
        *arguments: Any,
    ) -> Any:
        """Call the C function; ``keep`` holds the buffers until the operation is done."""
        if not async_op:
            self._check(function(self._handle, *arguments, None))
            return finish()

        def end(_keep: tuple[Any, ...] = keep) -> Any:
            return finish()

        return start(self._library, self.pending, end, function, self._handle, *arguments)


def _input(x: Array) -> Array:
    return np.asarray(x, order="C")


def _op(name: str) -> int:
    try:
        return _library.OPS[name]
    except KeyError:
        known = ", ".join(_library.OPS)
        raise InvalidArgument(f"op: {name!r} is not one of {known}") from None


def _code(kind: np.dtype[Any], named: str | None) -> int:
    """Return the code of a dtype that can be reduced."""
    name = kind.name
    if named is not None:
        if named != "bfloat16" or name not in ("uint16", "bfloat16"):
            raise InvalidArgument(
                f"dtype: {named!r} with an array of {name} (only uint16 arrays may hold bfloat16)"
            )
        name = named
    code = _library.DTYPES.get(name)
    if code is None:
        known = ", ".join(_library.DTYPES)
        hint = (
            " (uint16 that holds bfloat16 bits needs dtype='bfloat16')" if name == "uint16" else ""
        )
        raise InvalidArgument(f"dtype: {name} cannot be reduced, only {known}{hint}")
    return code


def _bytes(x: Array) -> tuple[int, int]:
    """Return (count, code) for an operation that only moves x: any dtype without objects."""
    code = _library.DTYPES.get(x.dtype.name)
    if code is not None:
        return x.size, code
    if x.dtype.hasobject:
        raise InvalidArgument("dtype: object arrays cannot be sent (pickle them into bytes)")
    return x.nbytes, _library.DTYPES["uint8"]


@atexit.register
def _close_all() -> None:
    """Leave what the program left open, so that no peer waits for this rank and none hangs."""
    for communicator in list(Communicator._open):
        with contextlib.suppress(RinglaneError):  # nobody is left to hear of it
            communicator.close()
