"""Operations on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable
from ctypes import byref, c_int32
from typing import Any

import torch
import torch.distributed as dist

from .._request import Request, start
from ..communicator import Communicator
from .tensors import Finish, asynchronous, contiguous, moved, write_back
from .work import DONE, KEEPS_WORK, Completer, Work, completed


class Host:
    """How a group's operations on CPU tensors reach the C library.

    Attributes:
        functions: the collectives, by name.
    """

    def __init__(self, communicator: Communicator) -> None:
        self._communicator = communicator
        self._library = self.functions = communicator.library
        self._handle = communicator.handle
        self._pending = communicator.pending
        self._completer = Completer()
        self._coalesced: list[Request] | None = None  # what was started, if somebody collects it

    def issue(
        self,
        opts: Any,
        outputs: list[Any],
        keep: Any,
        finish: Finish | None,
        function: Callable[..., int],
        *arguments: Any,
    ) -> dist.Work:
        """Call the C function, blocking if the caller asked for that.

        Args:
            keep: what holds the buffers of the operation until it is done.
            finish: called once when it has succeeded.
        """
        if asynchronous(opts) and KEEPS_WORK:
            return self.start(outputs, keep, finish, function, *arguments)
        status = function(self._handle, *arguments, None)
        if status:
            raise self._library.failure(status)
        if finish is not None:
            finish()
        return completed(outputs) if asynchronous(opts) else DONE

    def start(
        self,
        outputs: list[Any],
        keep: Any,
        finish: Finish | None,
        function: Callable[..., int],
        *arguments: Any,
        sender: c_int32 | None = None,
    ) -> Work:
        """Start the operation."""

        def end(_keep: Any = (keep, outputs, sender)) -> None:
            if finish is not None:
                finish()

        request = start(self._library, self._pending, end, function, self._handle, *arguments)
        if self._coalesced is not None:
            self._coalesced.append(request)
        return Work(self._completer, (request,), outputs, sender)

    def together(self, opts: Any, outputs: list[Any], works: list[Any]) -> dist.Work:
        """Return one handle for several operations."""
        if not KEEPS_WORK or not asynchronous(opts):
            return completed(outputs)
        return Work(self._completer, [r for work in works for r in work.requests], outputs)

    def start_coalescing(self) -> None:
        """Collect what is started from now on."""
        self._coalesced = []

    def end_coalescing(self) -> Work:
        """Return one handle for what was collected."""
        requests, self._coalesced = self._coalesced or [], None
        return Work(self._completer, requests, [])

    def send(self, tensor: torch.Tensor, dst: int, tag: int) -> Work:
        buffer = contiguous(tensor)
        arguments = (buffer.data_ptr(), *moved(buffer), dst, tag)
        return self.start([tensor], buffer, None, self._library.send, *arguments)

    def recv(
        self,
        tensor: torch.Tensor,
        src: int,
        tag: int,
        outputs: list[torch.Tensor] | None = None,
        finish: Finish | None = None,
    ) -> Work:
        """Start to receive.

        Args:
            outputs, finish: where ``finish`` takes from ``tensor`` what has come.
        """
        buffer = contiguous(tensor)
        sender = c_int32(src)
        return self.start(
            outputs or [tensor],
            buffer,
            finish or write_back(tensor, buffer),
            self._library.recv,
            buffer.data_ptr(),
            *moved(buffer),
            src,
            tag,
            byref(sender),
            sender=sender,
        )

    def close(self) -> None:
        self._communicator.close()
        self._completer.stop()
