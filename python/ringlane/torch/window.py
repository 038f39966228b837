"""Tensors in a window."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from ..window import block


def empty(*size: int | Sequence[int], dtype: torch.dtype | None = None) -> torch.Tensor:
    """Return a new CPU tensor of zeros in a window, for collectives to copy less.

    It is to tensors what :func:`ringlane.empty` is to arrays. Its memory goes back when no
    tensor uses its storage any more. The storage cannot be resized; ``share_memory_()`` and
    pickling copy it into ordinary memory.

    Args:
        size: as for :func:`torch.empty`: lengths, or one sequence of them.
        dtype: the default is torch's.

    Raises:
        TypeError, RuntimeError: what torch.empty raises for such a size or dtype.
        ringlane.OutOfMemory: the machine grants no more, or RINGLANE_WINDOW is too small.
        ringlane.Forked: called in a forked child.
    """
    like = torch.empty(*size, dtype=dtype, device="meta")
    empty = torch.empty(0, dtype=like.dtype, device="cpu")
    if like.numel() == 0:
        return empty.view(like.shape)
    storage = torch.frombuffer(block(like.nbytes), dtype=like.dtype).untyped_storage()
    return empty.set_(storage, 0, like.shape)  # no view, as the result of torch.empty is none
