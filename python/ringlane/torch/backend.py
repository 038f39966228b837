"""This group as one of several backends, as in ``init_process_group("cpu:gloo,cuda:ringlane")``.

Versions of torch that let Python subclass their Backend take one for some devices of a group
and another for the rest. Older ones take a whole group or none, so that there this backend
carries the tensors of all devices.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch._C import _distributed_c10d as c10d

from .process_group import ProcessGroup

_FORWARDED = (
    "allreduce",
    "allreduce_coalesced",
    "reduce",
    "broadcast",
    "allgather",
    "_allgather_base",
    "all_gather_single",
    "allgather_coalesced",
    "allgather_into_tensor_coalesced",
    "all_gather_single_coalesced",
    "reduce_scatter",
    "_reduce_scatter_base",
    "reduce_scatter_single",
    "reduce_scatter_tensor_coalesced",
    "reduce_scatter_single_coalesced",
    "gather",
    "gather_single",
    "gather_into_tensor",
    "scatter",
    "alltoall",
    "alltoall_base",
    "all_to_all_single",
    "send",
    "recv",
    "recv_anysource",
    "recvAnysource",
    "barrier",
    "shutdown",
    "abort",
    "set_timeout",
)


def _forward(name: str) -> Callable[..., Any]:
    def call(self: Any, *arguments: Any) -> Any:
        return getattr(self.group, name)(*arguments)

    call.__name__ = name
    return call


class _Part(c10d.Backend):
    """The backend of some devices of a torch process group.

    Attributes:
        group: what it forwards to.
    """

    supports_splitting = False
    supports_coalescing = False

    def __init__(self, group: ProcessGroup) -> None:
        super().__init__(group.rank(), group.size())
        self.group = group

    def getBackendName(self) -> str:
        return "ringlane"

    name = getBackendName

    def start_coalescing(self) -> None:
        self.group._start_coalescing()

    def end_coalescing(self) -> dist.Work:
        return self.group._end_coalescing()

    def supports_tensor_alloc(self, device: torch.device) -> bool:
        return False


for _name in _FORWARDED:
    setattr(_Part, _name, _forward(_name))


def composed() -> bool:
    """Tell whether torch is making a group of several backends, of which it tells none of them."""
    frame = sys._getframe(1)
    while frame is not None and frame.f_code.co_name != "_new_process_group_helper":
        frame = frame.f_back
    config = frame.f_locals.get("backend_config") if frame is not None else None
    return config is not None and len(set(config.get_device_backend_map().values())) > 1


def fit(group: ProcessGroup) -> dist.ProcessGroup | c10d.Backend:
    """Return a group as torch wants it: itself, or a part of a group of several backends."""
    if not composed():
        return group
    try:
        return _Part(group)
    except TypeError:  # no constructor for Python
        warnings.warn(
            f"ringlane: torch {torch.__version__} has a group in Python carry the tensors of all "
            "devices, so no other backend takes part in this one",
            stacklevel=2,
        )
        return group
