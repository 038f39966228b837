"""A started operation, and what keeps its buffers alive until it is done."""

from __future__ import annotations

import threading
from collections.abc import Callable
from ctypes import byref, c_int32, c_uint64
from typing import Any

from ._library import ETIMEOUT, Library
from .errors import Busy, Closed, DeadlineExceeded, Forked, InvalidArgument


class Request:
    """A collective or transfer that was started and may still be running.

    The buffers of the operation stay referenced until it is complete, also when the
    caller drops the request. Safe to use from several threads.
    """

    __slots__ = (
        "_done",
        "_error",
        "_finish",
        "_handle",
        "_library",
        "_lock",
        "_pending",
        "_result",
    )

    def __init__(
        self,
        library: Library,
        handle: int,
        pending: set[Request],
        finish: Callable[[], Any],
        error: Exception | None = None,
    ) -> None:
        self._library = library
        self._handle = handle
        self._pending = pending
        self._finish: Callable[[], Any] | None = finish
        self._lock = threading.Lock()
        self._error: Exception | None = None
        self._result: Any = None
        self._done = False
        if handle:
            pending.add(self)
        else:
            self._settle(error)

    def wait(self, timeout: float | None = None) -> Any:
        """Wait for the operation and return what its blocking form returns.

        Args:
            timeout: seconds to wait; None waits until the communicator's deadline.

        Raises:
            DeadlineExceeded: not complete after ``timeout`` seconds (it goes on and
                can be waited for again), or the communicator's deadline passed.
            RinglaneError: the operation failed; raised by every later call too.
        """
        if not self._done:
            self._complete(timeout)
        if self._error is not None:
            raise self._error
        return self._result

    def test(self) -> bool:
        """Return whether the operation has ended, without waiting.

        A failure counts as ended and is raised by :meth:`wait`.
        """
        if not self._done and self._lock.acquire(blocking=False):
            try:
                if not self._done:
                    ended = c_int32()
                    status = self._library.test(self._handle, byref(ended))
                    if status:
                        self._settle(self._library.failure(status))
                    elif ended.value:
                        self._settle(None)
            finally:
                self._lock.release()
        return self._done

    @property
    def error(self) -> Exception | None:
        """The failure of an operation that has ended, or None."""
        return self._error

    def _complete(self, timeout: float | None) -> None:
        if not self._lock.acquire(timeout=-1 if timeout is None else timeout):
            raise DeadlineExceeded(
                f"wait: not complete after {timeout} s (another thread is waiting for it too)"
            )
        try:
            if not self._done:
                status = self._library.wait(self._handle, -1.0 if timeout is None else timeout)
                if status == ETIMEOUT and timeout is not None:
                    raise self._library.failure(status)
                self._settle(self._library.failure(status) if status else None)
        finally:
            self._lock.release()

    def _settle(self, error: Exception | None) -> None:
        finish, self._finish = self._finish, None
        if error is None and finish is not None:
            try:
                self._result = finish()
            except Exception as failed:
                error = failed
        self._error = error
        self._done = True
        self._pending.discard(self)


# What the caller did wrong is raised by the call that did it; all else by wait().
_AT_ONCE = {kind.status for kind in (InvalidArgument, Closed, Busy, Forked)}


def start(
    library: Library,
    pending: set[Request],
    finish: Callable[[], Any],
    function: Callable[..., int],
    *arguments: Any,
) -> Request:
    """Start an operation of the C library.

    Args:
        pending: where the request is kept until it is done.
        finish: called once when the operation has succeeded; its result is wait()'s. It
            also holds the references that keep the operation's buffers alive.
        function: the C function; a place for the handle is added to the arguments.

    Raises:
        InvalidArgument, Closed, Busy, Forked: at once. Other failures are wait()'s.
    """
    handle = c_uint64()
    status = function(*arguments, byref(handle))
    error = library.failure(status) if status else None
    if status in _AT_ONCE and error is not None:
        raise error
    return Request(library, handle.value, pending, finish, error)
