"""libringlane.so over ctypes: where it is found, its prototypes, its errors.

The prototypes follow ``include/ringlane.h``. ctypes releases the GIL for the
length of every call, so a rank that waits does not stop the other threads of its
process.
"""

from __future__ import annotations

import ctypes
import functools
import os
from collections.abc import Callable
from ctypes import POINTER, Structure, c_char_p, c_double, c_int32, c_uint64, c_void_p
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from .errors import LibraryNotFound, RinglaneError, from_status

ETIMEOUT = 2

# Element types and reductions, as ringlane.h numbers them.
DTYPES = {
    "float32": 0,
    "float64": 1,
    "float16": 2,
    "bfloat16": 3,
    "int8": 4,
    "uint8": 5,
    "int32": 6,
    "int64": 7,
}
OPS = {"sum": 0, "avg": 1, "min": 2, "max": 3, "prod": 4}

_COUNT, _CODE, _REQUEST, _STREAM = c_uint64, c_int32, POINTER(c_uint64), c_void_p


class Message(Structure):
    """``rl_message``: one send or receive of ``rl_device_exchange``."""

    _fields_ = (
        ("buffer", c_void_p),
        ("count", c_uint64),
        ("dtype", c_int32),
        ("peer", c_int32),
        ("send", c_int32),
    )


_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "join_env": (POINTER(c_uint64),),
    "join": (c_char_p, c_char_p, c_int32, c_int32, c_double, c_uint64, POINTER(c_uint64)),
    "group": (c_uint64, POINTER(c_int32), c_int32, POINTER(c_uint64)),
    "rank": (c_uint64, POINTER(c_int32)),
    "size": (c_uint64, POINTER(c_int32)),
    "close": (c_uint64,),
    "abort": (c_uint64, c_char_p),
    "alloc": (c_uint64, POINTER(c_void_p)),
    "free": (c_void_p,),
    "all_reduce": (c_uint64, c_void_p, c_void_p, _COUNT, _CODE, _CODE, _REQUEST),
    "reduce": (c_uint64, c_void_p, c_void_p, _COUNT, _CODE, _CODE, c_int32, _REQUEST),
    "reduce_scatter": (c_uint64, c_void_p, c_void_p, _COUNT, _CODE, _CODE, _REQUEST),
    "all_gather": (c_uint64, c_void_p, c_void_p, _COUNT, _CODE, _REQUEST),
    "broadcast": (c_uint64, c_void_p, _COUNT, _CODE, c_int32, _REQUEST),
    "gather": (c_uint64, c_void_p, c_void_p, _COUNT, _CODE, c_int32, _REQUEST),
    "scatter": (c_uint64, c_void_p, c_void_p, _COUNT, _CODE, c_int32, _REQUEST),
    "all_to_all": (c_uint64, c_void_p, c_void_p, _COUNT, _CODE, _REQUEST),
    "all_to_allv": (
        c_uint64,
        c_void_p,
        POINTER(c_uint64),
        c_void_p,
        POINTER(c_uint64),
        _CODE,
        _REQUEST,
    ),
    "send": (c_uint64, c_void_p, _COUNT, _CODE, c_int32, c_int32, _REQUEST),
    "recv": (c_uint64, c_void_p, _COUNT, _CODE, c_int32, c_int32, POINTER(c_int32), _REQUEST),
    "barrier": (c_uint64, _REQUEST),
    "wait": (c_uint64, c_double),
    "test": (c_uint64, POINTER(c_int32)),
    "stats": (c_uint64, c_void_p, c_uint64, POINTER(c_uint64)),
    "device_join": (c_uint64, c_int32, POINTER(c_uint64)),
    "device_close": (c_uint64,),
    "device_abort": (c_uint64, c_char_p),
    "device_error": (c_uint64,),
    "device_synchronize": (c_uint64, _STREAM),
    "device_beside": (c_uint64, _STREAM),
    "device_order": (c_uint64, _STREAM, _STREAM),
    "device_exchange": (c_uint64, POINTER(Message), c_uint64, _STREAM),
    "device_paths": (c_uint64, c_void_p, c_uint64, POINTER(c_uint64)),
}
# On a GPU a collective takes a stream in the place of a request.
_PROTOTYPES |= {
    f"device_{name}": (*_PROTOTYPES[name][:-1], _STREAM)
    for name in (
        "all_reduce",
        "reduce",
        "reduce_scatter",
        "all_gather",
        "broadcast",
        "gather",
        "scatter",
        "all_to_all",
        "all_to_allv",
        "barrier",
    )
}


class Library:
    """The functions of ringlane.h as attributes without their ``rl_`` prefix.

    Attributes:
        device: those of GPUs, without ``rl_device_``.
    """

    def __init__(self, path: Path) -> None:
        self.device = SimpleNamespace()
        try:
            shared = ctypes.CDLL(str(path))
            for name, arguments in _PROTOTYPES.items():
                function = getattr(shared, f"rl_{name}")
                function.argtypes, function.restype = arguments, c_int32
                setattr(self, name, function)
                if name.startswith("device_"):
                    setattr(self.device, name.removeprefix("device_"), function)
        except (OSError, AttributeError) as error:  # not there, not loadable, or too old
            raise LibraryNotFound(
                f"load {path}: {error} (build it again with make build, or pip install .)"
            ) from None
        shared.rl_version.restype = c_char_p
        shared.rl_last_error.restype = c_char_p
        self.last_error = shared.rl_last_error
        self.version: str = shared.rl_version().decode()

    if TYPE_CHECKING:

        def __getattr__(self, name: str) -> Callable[..., int]: ...

    def failure(self, status: int) -> RinglaneError:
        """Return the exception for the calling thread's last failure."""
        text = self.last_error()
        return from_status(status, text.decode(errors="replace") if text else f"status {status}")


def candidates() -> list[Path]:
    """Return where the library is looked for, best first."""
    named = os.environ.get("RINGLANE_LIBRARY")
    if named:
        return [Path(named)]
    package = Path(__file__).resolve().parent
    return [
        package / "_lib" / "libringlane.so",
        package.parent.parent / "build" / "libringlane.so",
    ]


@functools.cache
def load() -> Library:
    """Load libringlane.so once a process and return it.

    Raises:
        LibraryNotFound: it is in none of the places that are looked at, or it
            does not load.
    """
    places = candidates()
    path = next((place for place in places if place.is_file()), None)
    if path is None:
        looked = ", ".join(map(str, places))
        raise LibraryNotFound(
            f"find libringlane.so: not in {looked} (run make build in the source tree, "
            "pip install ., or name it in RINGLANE_LIBRARY)"
        )
    return Library(path)
