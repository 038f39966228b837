"""The communicator of a job on its GPUs, for callers that bring addresses and streams.

:mod:`ringlane.torch` stands on it, but nothing here needs torch.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from ctypes import byref, c_uint64, create_string_buffer
from typing import TYPE_CHECKING, Any

from ._library import Message

if TYPE_CHECKING:
    from .communicator import Communicator

__all__ = ["Device", "Message"]


class Device:
    """A communicator's ranks on their GPUs, one GPU a rank.

    Every call puts its work into a CUDA stream and returns; all of one Device run in the
    order in which they are made, whatever their streams. What goes wrong on a GPU is
    raised by the next call, and by :meth:`check`.

    Attributes:
        ordinal: the GPU, counted as CUDA_VISIBLE_DEVICES leaves them.
        handle: the ``rl_device`` of ringlane.h.
    """

    def __init__(self, communicator: Communicator, ordinal: int) -> None:
        self.ordinal = ordinal
        self._library = communicator.library
        self._owner = os.getpid()
        self._closed = False
        handle = c_uint64()
        self.raise_for(self._library.device.join(communicator.handle, ordinal, byref(handle)))
        self.handle: int = handle.value

    def raise_for(self, status: int) -> None:
        """Raise what the status of a call of the C library stands for, unless it is well."""
        if status:
            raise self._library.failure(status)

    def check(self) -> None:
        """Raise the failure of this communicator, if there is one. Does not wait.

        Raises:
            DeadlineExceeded, RankDied and the other kinds: the text names the culprit.
        """
        self.raise_for(self._library.device.error(self.handle))

    def collective(self, name: str, *arguments: Any) -> None:
        """Call the ``rl_device_`` function of that name with its arguments but the first."""
        self.raise_for(getattr(self._library.device, name)(self.handle, *arguments))

    def synchronize(self, stream: int) -> None:
        """Wait until the work in a stream is done.

        Raises:
            RinglaneError: the communicator failed.
        """
        self.raise_for(self._library.device.synchronize(self.handle, stream))

    def beside(self, stream: int) -> None:
        """Say that what runs in a stream shares the GPU with other work.

        Calls there take fewer multiprocessors where that is possible.
        """
        self.raise_for(self._library.device.beside(self.handle, stream))

    def order(self, first: int, then: int) -> None:
        """Let what comes into the stream ``then`` from now on run after what is in ``first``."""
        self.raise_for(self._library.device.order(self.handle, first, then))

    def exchange(self, messages: Sequence[Message], stream: int) -> None:
        """Perform sends and receives together, in any order."""
        array = (Message * len(messages))(*messages)
        self.raise_for(self._library.device.exchange(self.handle, array, len(messages), stream))

    def paths(self) -> list[dict[str, Any]]:
        """Return how each ordered pair of ranks is joined, and what it measured."""
        needed = c_uint64()
        paths = self._library.device.paths
        self.raise_for(paths(self.handle, None, 0, byref(needed)))
        text = create_string_buffer(needed.value)
        self.raise_for(paths(self.handle, text, len(text), byref(needed)))
        return list(json.loads(text.value))

    def abort(self, why: str) -> None:
        """Make kernels that wait give up, and later calls fail, on every rank."""
        self.raise_for(self._library.device.abort(self.handle, why.encode()))

    def close(self) -> None:
        """Leave the communicator; closing twice is fine.

        Waits until its work on the GPU is over. In a forked child it does nothing.
        """
        if not self._closed and os.getpid() == self._owner:
            self._closed = True
            self.raise_for(self._library.device.close(self.handle))

    def __repr__(self) -> str:
        return f"<ringlane.Device on GPU {self.ordinal}{' closed' if self._closed else ''}>"
