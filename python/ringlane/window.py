"""Arrays in a window: memory of this process that the other ranks read where it lies."""

from __future__ import annotations

import math
import operator
import os
import weakref
from collections.abc import Sequence
from ctypes import byref, c_void_p
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import DTypeLike, NDArray

from . import _library
from .errors import InvalidArgument


def empty(shape: SupportsIndex | Sequence[SupportsIndex], dtype: DTypeLike = float) -> NDArray[Any]:
    """Return a new array of zeros in a window, for collectives to copy less.

    Other ranks read such an array where it lies, instead of a copy that this rank makes for
    them; that pays from about 1 KiB on. Use it like any array: as input or output, whole or in
    part, with every communicator, also one that is joined later. It starts on a page of its
    own, and takes whole pages. Its memory goes back when neither the array nor a view of it is
    left. A forked child sees the memory itself, not a copy.

    Args:
        shape: one length, or one for each axis.
        dtype: any without objects; ``ml_dtypes.bfloat16``, or uint16, for bfloat16.

    Raises:
        InvalidArgument: there is no such shape or dtype.
        OutOfMemory: the machine grants no more, or RINGLANE_WINDOW is too small.
        Forked: called in a forked child.
        LibraryNotFound: libringlane.so is not there.
    """
    try:
        kind = np.dtype(dtype)
        axes = shape if isinstance(shape, Sequence) else (shape,)
        lengths = tuple(operator.index(length) for length in axes)
    except TypeError as error:
        raise InvalidArgument(f"empty: {error}") from None
    if kind.hasobject:
        raise InvalidArgument("empty: objects cannot lie in a window (pickle them into bytes)")
    if min(lengths, default=0) < 0:
        raise InvalidArgument(f"empty: shape {lengths} has a negative length")
    size = math.prod(lengths) * kind.itemsize
    if size == 0:
        return np.zeros(lengths, kind)
    return np.ndarray(lengths, kind, block(size))


def block(size: int) -> NDArray[np.uint8]:
    """Return ``size`` zeroed bytes, at least one; they are freed with the last view of them.

    Raises:
        OutOfMemory: the machine grants no more, or RINGLANE_WINDOW is too small.
    """
    library = _library.load()
    memory = c_void_p()
    status = library.alloc(size, byref(memory))
    if status:
        raise library.failure(status)
    owner = _Owner(memory.value, size)
    # At exit the memory goes with the process: what is left may still be in use then.
    weakref.finalize(owner, _free, library, memory.value, os.getpid()).atexit = False
    return np.asarray(owner)


class _Owner:
    """What every view of a block keeps alive, directly or not."""

    __slots__ = ("__array_interface__", "__weakref__")

    def __init__(self, address: int | None, size: int) -> None:
        self.__array_interface__ = {
            "data": (address, False),
            "shape": (size,),
            "typestr": "|u1",
            "version": 3,
        }


def _free(library: _library.Library, address: int, owner: int) -> None:
    if os.getpid() != owner:
        return  # a forked child: the memory is its parent's
    status = library.free(address)
    if status:
        raise library.failure(status)
