"""Ringlane: AllReduce and its family between the processes of one PCIe machine.

    import numpy as np, ringlane

    with ringlane.join() as comm:               # under `ringlane run -n 4 -- python ...`
        total = comm.all_reduce(np.ones(8, np.float32))

Arrays from :func:`empty` lie where other ranks read them, so that collectives copy less.
`ringlane.torch` is the backend for ``torch.distributed.init_process_group("ringlane")``.
"""

from __future__ import annotations

from ._library import load
from ._request import Request
from .communicator import Communicator, join
from .errors import (
    Busy,
    Closed,
    DeadlineExceeded,
    Forked,
    InvalidArgument,
    LibraryNotFound,
    Mismatch,
    OutOfMemory,
    RankDied,
    RinglaneError,
    SystemFailure,
    UnsupportedType,
)
from .window import empty

__all__ = [
    "Busy",
    "Closed",
    "Communicator",
    "DeadlineExceeded",
    "Forked",
    "InvalidArgument",
    "LibraryNotFound",
    "Mismatch",
    "OutOfMemory",
    "RankDied",
    "Request",
    "RinglaneError",
    "SystemFailure",
    "UnsupportedType",
    "empty",
    "join",
    "library_version",
]


def library_version() -> str:
    """Return the version of the loaded libringlane.so."""
    return load().version
