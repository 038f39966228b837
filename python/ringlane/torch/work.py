"""Handles of collectives that were started, as torch.distributed expects them."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from ctypes import c_int32
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import _create_work_from_future

from .._request import Request

KEEPS_WORK = tuple(map(int, torch.__version__.split(".")[:2])) >= (2, 7)
"""Whether C++ code may hold a Work. Before 2.7 torch lets the Python half of a handle die
while C++ still holds the other, whose wait() then never returns."""


def completed(outputs: list[Any]) -> dist.Work:
    """Return the handle of an operation that is over, made in C++."""
    future: torch.futures.Future[list[Any]] = torch.futures.Future()
    future.set_result(outputs)
    return _create_work_from_future(future)


DONE = completed([])
"""The handle of every blocking collective: it is over when the call returns."""


class Completer:
    """One thread of a group that waits for started work and completes its futures.

    Started with the first future that is asked for while its work still runs: callers
    that wait() on the work itself need no thread.
    """

    def __init__(self) -> None:
        self._queue: queue.SimpleQueue[tuple[Work, torch.futures.Future[None]] | None]
        self._queue = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def submit(self, work: Work, ended: torch.futures.Future[None]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(
                target=self._run, name="ringlane-completer", daemon=True
            )
            self._thread.start()
        self._queue.put((work, ended))

    def stop(self) -> None:
        """End the thread; the communicator was closed, so that no work waits any more."""
        if self._thread is not None and self._thread is not threading.current_thread():
            self._queue.put(None)
            self._thread.join(timeout=5.0)

    def _run(self) -> None:
        while (item := self._queue.get()) is not None:
            work, ended = item
            work.join()
            ended.set_result(None)


class Work(dist.Work):
    """One or several operations that were started, and the tensors they write."""

    def __init__(
        self,
        completer: Completer,
        requests: Sequence[Request],
        outputs: list[Any],
        sender: c_int32 | None = None,
    ) -> None:
        super().__init__()
        self._completer = completer
        self.requests = requests
        self._outputs = outputs
        self._sender = sender
        self._future: torch.futures.Future[list[Any]] | None = None

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Wait until the operations are done.

        Args:
            timeout: None or zero waits until the communicator's deadline.

        Raises:
            ringlane.RinglaneError: one of them failed, or the timeout passed.
        """
        seconds = timeout.total_seconds() if timeout else None
        for request in self.requests:
            request.wait(seconds)
        return True

    def join(self) -> None:
        """Wait until the operations have ended, well or badly."""
        for request in self.requests:
            try:
                request.wait()
            except Exception:  # noqa: S112  kept by the request: exception() has it
                continue

    def is_completed(self) -> bool:
        return all(request.test() for request in self.requests)

    def is_success(self) -> bool:
        return self.is_completed() and self.exception() is None

    def exception(self) -> Exception | None:
        return next((r.error for r in self.requests if r.error is not None), None)

    def synchronize(self) -> None:
        """Do nothing: CPU tensors have no stream to order."""

    def result(self) -> list[Any]:
        return self._outputs

    def source_rank(self) -> int:
        """Return the rank that a recv from any source received from."""
        return -1 if self._sender is None else self._sender.value

    _source_rank = source_rank

    def get_future(self) -> torch.futures.Future[list[Any]]:
        """Return a future of the output tensors, or of the failure."""
        if self._future is None:
            ended: torch.futures.Future[None] = torch.futures.Future()
            # An exception raised in a callback fails the future for C++ waiters too
            # (DDP's reducer is one); Future.set_exception only does it for Python.
            self._future = ended.then(self._outcome)
            if self.is_completed():
                ended.set_result(None)
            else:
                self._completer.submit(self, ended)
        return self._future

    def _outcome(self, _: torch.futures.Future[None]) -> list[Any]:
        error = self.exception()
        if error is not None:
            raise error
        return self._outputs
