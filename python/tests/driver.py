"""A small binding of the CUDA driver for tests without torch: memory, streams, graphs.

The driver is the one in RINGLANE_CUDA_DRIVER: the emulator, or libcuda.so.1 of a GPU.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
from ctypes import byref, c_int, c_uint64, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
import pytest

_SCRIPT = Path(__file__).resolve().parents[2] / "tools" / "emulator.sh"


def emulator() -> str:
    """Return the path of the emulator, which is built first, or skip the test."""
    if not _SCRIPT.is_file():
        pytest.skip("the CUDA emulator is built in the source tree only")
    built = subprocess.run([str(_SCRIPT)], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode == 3:
        pytest.skip("the CUDA emulator needs a C++ compiler (install g++)")
    assert built.returncode == 0, "the emulator does not build"
    return built.stdout.strip()


def emulated() -> dict[str, str]:
    """Return the environment of ranks on two emulated GPUs."""
    return {
        "RINGLANE_CUDA_DRIVER": emulator(),
        "RINGLANE_EMULATOR": "gpus=2,sms=16,threads=256,memory=512M",
        "RINGLANE_DEVICE_WINDOW": "1M",
    }


def gpus() -> int:
    """Return how many GPUs the machine has, for a process that has not used them yet."""
    try:
        library = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return 0
    count = c_int()
    if library.cuInit(0) or library.cuDeviceGetCount(byref(count)):
        return 0
    return count.value


class Gpu:
    """One GPU with its primary context, current on this thread."""

    def __init__(self, ordinal: int) -> None:
        self._library = ctypes.CDLL(os.environ["RINGLANE_CUDA_DRIVER"])
        self("cuInit", 0)
        device, context = c_int(), c_void_p()
        self("cuDeviceGet", byref(device), ordinal)
        self("cuDevicePrimaryCtxRetain", byref(context), device)
        self("cuCtxSetCurrent", context)

    def status(self, name: str, *arguments: Any) -> int:
        return int(getattr(self._library, name)(*arguments))

    def __call__(self, name: str, *arguments: Any) -> None:
        status = self.status(name, *arguments)
        assert status == 0, f"{name}: CUresult {status}"

    def empty(self, size: int) -> int:
        """Return the address of new memory of ``size`` bytes."""
        memory = c_uint64()
        self("cuMemAlloc_v2", byref(memory), ctypes.c_size_t(max(size, 1)))
        return memory.value

    def put(self, array: Any) -> int:
        """Return the address of a copy of an array in new memory."""
        array = np.ascontiguousarray(array)
        memory = self.empty(array.nbytes)
        if array.nbytes:
            self(
                "cuMemcpyHtoD_v2",
                c_uint64(memory),
                c_void_p(array.ctypes.data),
                ctypes.c_size_t(array.nbytes),
            )
        return memory

    def get(self, memory: int, count: int, dtype: Any = np.float32) -> Any:
        """Return what lies at an address, after all that comes before in the default stream."""
        array = np.empty(count, dtype)
        if array.nbytes:
            self(
                "cuMemcpyDtoH_v2",
                c_void_p(array.ctypes.data),
                c_uint64(memory),
                ctypes.c_size_t(array.nbytes),
            )
        return array

    def fill(self, memory: int, byte: int, size: int, stream: int) -> None:
        """Fill memory in the order of a stream."""
        self(
            "cuMemsetD8Async",
            c_uint64(memory),
            ctypes.c_ubyte(byte),
            ctypes.c_size_t(size),
            c_void_p(stream),
        )

    def copy(self, target: int, source: int, size: int, stream: int) -> None:
        """Copy memory in the order of a stream."""
        self(
            "cuMemcpyAsync",
            c_uint64(target),
            c_uint64(source),
            ctypes.c_size_t(size),
            c_void_p(stream),
        )

    def stream(self) -> int:
        made = c_void_p()
        self("cuStreamCreate", byref(made), 1)  # CU_STREAM_NON_BLOCKING
        assert made.value is not None
        return made.value

    def synchronize(self, stream: int) -> None:
        self("cuStreamSynchronize", c_void_p(stream))

    def idle(self, stream: int) -> bool:
        status = self.status("cuStreamQuery", c_void_p(stream))
        assert status in (0, 600), status  # CUDA_ERROR_NOT_READY
        return status == 0

    def capture(self, stream: int) -> None:
        """Put what comes into a stream into a graph, until the graph is taken."""
        self("cuStreamBeginCapture_v2", c_void_p(stream), 1)  # thread-local

    def graph(self, stream: int) -> c_void_p:
        """Take the graph of what came into a stream, ready to be launched."""
        graph, ready = c_void_p(), c_void_p()
        self("cuStreamEndCapture", c_void_p(stream), byref(graph))
        self("cuGraphInstantiateWithFlags", byref(ready), graph, c_uint64(0))
        return ready

    def launch(self, graph: c_void_p, stream: int) -> None:
        self("cuGraphLaunch", graph, c_void_p(stream))
