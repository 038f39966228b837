"""Exceptions of the package, one for each status of the C library.

Every message reads "what failed: why (what to do)".
"""

from __future__ import annotations

__all__ = [
    "Busy",
    "Closed",
    "DeadlineExceeded",
    "Forked",
    "InvalidArgument",
    "LibraryNotFound",
    "Mismatch",
    "OutOfMemory",
    "RankDied",
    "RinglaneError",
    "SystemFailure",
    "UnsupportedType",
]


class RinglaneError(RuntimeError):
    """Base of every error that Ringlane raises.

    Attributes:
        status: the status code of ``ringlane.h`` (``RL_E...``), 0 if the library
            was never called.
    """

    status: int = 0


class InvalidArgument(RinglaneError, ValueError):
    """An argument that no rank could use: a bad dtype, shape, root or rank."""

    status = 1


class UnsupportedType(InvalidArgument, TypeError):
    """A dtype that has no such reduction."""


class DeadlineExceeded(RinglaneError, TimeoutError):
    """A join or a collective did not finish in time; the text names who is missing."""

    status = 2


class RankDied(RinglaneError):
    """Another rank's process ended in the middle of the job; the text names it."""

    status = 3


class Mismatch(RinglaneError):
    """The ranks called different collectives, or with different sizes, dtypes, ops or roots."""

    status = 4


class Closed(RinglaneError):
    """The communicator was closed, here or by the rank named in the text."""

    status = 5


class Busy(RinglaneError):
    """Two threads used one communicator at the same time."""

    status = 6


class Forked(RinglaneError):
    """Called in a forked child. Start workers with ``spawn``, or keep Ringlane to the parent."""

    status = 7


class OutOfMemory(RinglaneError, MemoryError):
    """The machine granted less memory than asked for, to stage messages or in a window.

    ``RINGLANE_STAGING`` lowers the former.
    """

    status = 8


class SystemFailure(RinglaneError):
    """The operating system refused something; the text carries its reason."""

    status = 9


class LibraryNotFound(RinglaneError, ImportError):
    """libringlane.so is missing or does not load."""


_BY_STATUS: dict[int, type[RinglaneError]] = {
    kind.status: kind
    for kind in (
        InvalidArgument,
        DeadlineExceeded,
        RankDied,
        Mismatch,
        Closed,
        Busy,
        Forked,
        OutOfMemory,
        SystemFailure,
    )
}


def from_status(status: int, text: str) -> RinglaneError:
    """Return the exception for a status of the C library and its error text."""
    kind = _BY_STATUS.get(status, RinglaneError)
    error = kind(text)
    error.status = status
    return error
