"""DistributedDataParallel's gradient buckets in a window.

DDP's reducer allocates flat buckets in C++, by at::empty: when it is made, and once more
after the first backward pass, in the order in which the gradients came. A dispatch mode
around these two calls answers with memory in a window; nothing else of DDP changes, nor
does the DDP of any other backend. (Newer reducers can ask a Backend for memory, but only
with DDP_DISABLE_COMM_MEM=0 in the environment, and our group is no Backend.) The buckets of
DDP's option lazy_bucket_allocation, made in every backward pass, stay in ordinary memory.
"""

from __future__ import annotations

import contextlib
import os
import warnings
from typing import Any

import torch
import torch.distributed as dist
from torch.utils._python_dispatch import TorchDispatchMode

from ..errors import RinglaneError
from .process_group import ProcessGroup
from .window import empty

_LEAST = 4096  # bytes: a block takes whole pages


class Reducer(dist.Reducer):
    """DDP's reducer, with its buckets in a window if the group is ours."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        group = kwargs["process_group"] if "process_group" in kwargs else args[3]
        ours = isinstance(group, ProcessGroup) and os.environ.get("RINGLANE_WINDOW") != "0"
        self._place = _InWindow() if ours else contextlib.nullcontext()
        with self._place:
            super().__init__(*args, **kwargs)

    @torch._disable_dynamo  # as of DDP's forward, which calls it
    def _rebuild_buckets(self) -> bool:
        with self._place:
            return super()._rebuild_buckets()


def install() -> None:
    """Let DDP use this reducer from now on; doing it twice is fine."""
    dist.Reducer = Reducer


class _InWindow(TorchDispatchMode):
    """Puts new tensors of a page and more in a window, as long as there is room."""

    warned = False

    def __torch_dispatch__(
        self, function: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        tensor = function(*args, **(kwargs or {}))
        if (
            function is not torch.ops.aten.empty.memory_format
            or type(tensor) is not torch.Tensor  # a fake one, for instance
            or not tensor.is_cpu
            or tensor.nbytes < _LEAST
            or not tensor.is_contiguous()
        ):
            return tensor
        try:
            return empty(tensor.shape, dtype=tensor.dtype)  # the other was never touched
        except RinglaneError as error:
            if not _InWindow.warned:
                _InWindow.warned = True
                warnings.warn(f"ringlane: DDP's buckets in ordinary memory: {error}", stacklevel=2)
            return tensor
