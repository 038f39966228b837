"""The torch.distributed backend "ringlane".

    import torch.distributed as dist

    dist.init_process_group("ringlane")

With the package installed torch finds the backend by itself; from a source tree
``import ringlane.torch`` first. It carries CPU and CUDA tensors between the processes of
one machine: every eager collective, send and recv, sub-groups, object collectives,
DistributedDataParallel, FSDP2, functional collectives, and async work. Floating point,
int8, uint8, int32, int64, bool and complex tensors are reduced with SUM, AVG, MIN, MAX and
PRODUCT as far as gloo does; any dtype is moved. Tensors that are not contiguous are copied
through a contiguous one. With torch 2.5 and 2.6 an async collective on CPU tensors is
already over when its call returns.

A rank has one GPU, whose part of the group is made in the first collective on its tensors:
every rank takes part in that, and no CUDA graph can capture it, as all later ones can be.
Until then CUDA tensors are sent and received through host memory. Work on CUDA tensors is
ordered by streams: wait() holds up the current stream, not the host, unless it is given a
timeout, RINGLANE_BLOCKING_WAIT is 1, or the work is a barrier. Tags are for CPU tensors.

:func:`empty` makes tensors in a window, which collectives copy less than others; DDP's
gradient buckets lie in one without a word in the script, unless RINGLANE_WINDOW is 0.

The deadline is the group's ``timeout``; RINGLANE_TIMEOUT overrides it. Failures are the
exceptions of :mod:`ringlane.errors`. Work on CUDA tensors that fails is told by the next call and
by wait(), and in a warning when the group ends.
"""

from __future__ import annotations

from typing import Any

import torch.distributed as dist

from .window import empty

__all__ = ["BACKEND", "empty", "register"]

BACKEND = "ringlane"


def register() -> None:
    """Register the backend; doing it twice is fine. Importing this module does it."""
    if dist.is_available() and BACKEND not in dist.Backend.backend_list:
        dist.Backend.register_backend(BACKEND, _create, extended_api=True, devices=["cpu", "cuda"])


def _create(options: Any, backend_options: object | None) -> Any:
    # The library is loaded and the rest imported when a group is made, so that
    # ``import torch`` stays quick, and works where libringlane.so does not.
    from .backend import fit  # noqa: PLC0415
    from .rendezvous import create  # noqa: PLC0415

    return fit(create(options))


register()
