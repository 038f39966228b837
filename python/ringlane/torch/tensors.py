"""What a tensor is to the C library: element type, count, address."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
import torch.distributed as dist

from .._library import DTYPES, OPS
from ..errors import InvalidArgument, UnsupportedType

Finish = Callable[[], Any]

_STRIDED = torch.strided

# dtype -> (code, C elements in one torch element), for operations that only move.
_MOVED: dict[torch.dtype, tuple[int, int]] = {
    **{getattr(torch, name): (code, 1) for name, code in DTYPES.items()},
    torch.bool: (DTYPES["uint8"], 1),
    torch.complex64: (DTYPES["float32"], 2),
    torch.complex128: (DTYPES["float64"], 2),
}

_SUM, _AVG, _PRODUCT, _MIN, _MAX = (
    dist.ReduceOp(kind)
    for kind in (
        dist.ReduceOp.SUM,
        dist.ReduceOp.AVG,
        dist.ReduceOp.PRODUCT,
        dist.ReduceOp.MIN,
        dist.ReduceOp.MAX,
    )
)
_INTEGER = {_SUM: OPS["sum"], _PRODUCT: OPS["prod"], _MIN: OPS["min"], _MAX: OPS["max"]}
_FLOAT = {**_INTEGER, _AVG: OPS["avg"]}
_COMPLEX = {_SUM: OPS["sum"], _AVG: OPS["avg"]}
# On bytes that are 0 or 1, or is max and and is min; a sum could leave a 2 in a bool.
_BOOL = {_SUM: OPS["max"], _PRODUCT: OPS["min"], _MIN: OPS["min"], _MAX: OPS["max"]}


def _operations(dtype: torch.dtype) -> dict[dist.ReduceOp, int]:
    if dtype is torch.bool:
        return _BOOL
    if dtype.is_complex:
        return _COMPLEX
    return _FLOAT if dtype.is_floating_point else _INTEGER


# dtype -> (code, C elements in one torch element, operations, the one that is SUM).
_REDUCED: dict[torch.dtype, tuple[int, int, dict[dist.ReduceOp, int], int]] = {
    dtype: (*size, _operations(dtype), _operations(dtype)[_SUM]) for dtype, size in _MOVED.items()
}


def moved(tensor: torch.Tensor) -> tuple[int, int]:
    """Return (count, code) of a tensor that is only moved; an unknown dtype goes as bytes."""
    code, scale = _MOVED.get(tensor.dtype) or (DTYPES["uint8"], tensor.element_size())
    return tensor.numel() * scale, code


def reduced(tensor: torch.Tensor, op: Any) -> tuple[int, int, int]:
    """Return (count, code, op) of a tensor that is reduced.

    Raises:
        UnsupportedType: this dtype has no such reduction.
    """
    try:
        code, scale, operations, ours = _REDUCED[tensor.dtype]
        if op != dist.ReduceOp.SUM:  # a look-up costs more than the rest of this function
            ours = operations[op]
    except KeyError:
        raise UnsupportedType(
            f"reduce: {tensor.dtype} has no {op.op.name} (SUM, MIN, MAX and PRODUCT work on "
            "float16, bfloat16, float32, float64, int8, uint8, int32, int64 and bool; AVG on "
            "floats; SUM and AVG on complex)"
        ) from None
    return tensor.numel() * scale, code, ours


def one(tensors: list[torch.Tensor]) -> torch.Tensor:
    """Return the only tensor of a list: a rank has one device."""
    if len(tensors) != 1:
        raise InvalidArgument(f"collective: takes one tensor, got {len(tensors)}")
    return tensors[0]


def refuse_sparse(tensor: torch.Tensor) -> None:
    """Check that a tensor is dense.

    Raises:
        InvalidArgument: it is not.
    """
    if tensor.layout is not _STRIDED:
        raise InvalidArgument(
            f"collective: the tensor is {tensor.layout} (call .to_dense(), or build the "
            "embedding with sparse=False)"
        )


def contiguous(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor, or a contiguous copy, after checking that it is dense."""
    refuse_sparse(tensor)
    if tensor.is_conj() or tensor.is_neg():
        tensor = tensor.resolve_conj().resolve_neg()
    return tensor.contiguous()


def write_back(tensor: torch.Tensor, buffer: torch.Tensor) -> Finish | None:
    """Return what copies the result to where the caller wants it, None if it is there."""
    if buffer is tensor:
        return None
    return lambda: copy_all([tensor], [buffer])


@torch.no_grad()
def copy_all(targets: Iterable[torch.Tensor], sources: Iterable[torch.Tensor]) -> None:
    """Copy each source into its target; a target may be a leaf that requires grad."""
    for target, source in zip(targets, sources):
        target.copy_(source)


def same_device(tensor: torch.Tensor, other: torch.Tensor, what: str) -> None:
    """Check that a call's tensors lie together.

    Raises:
        InvalidArgument: they do not.
    """
    if tensor.device != other.device:
        raise InvalidArgument(
            f"{what}: one tensor is on {tensor.device}, another on {other.device}"
        )


def same_shape(tensors: list[torch.Tensor], like: torch.Tensor, number: int, what: str) -> None:
    """Check a list of one tensor for each rank, all of one shape and dtype, on one device.

    Raises:
        InvalidArgument: naming the first that differs.
    """
    if len(tensors) != number:
        raise InvalidArgument(
            f"{what}: needs one tensor for each of {number} ranks, got {len(tensors)}"
        )
    for index, tensor in enumerate(tensors):
        same_device(tensor, like, what)
        if tensor.shape != like.shape or tensor.dtype is not like.dtype:
            raise InvalidArgument(
                f"{what}: tensor {index} is {tensor.dtype} of shape {tuple(tensor.shape)}, "
                f"expected {like.dtype} of shape {tuple(like.shape)}"
            )


def asynchronous(opts: Any) -> bool:
    """Tell whether the caller wants a handle; older torch does not say so in some options."""
    return getattr(opts, "asyncOp", True)
