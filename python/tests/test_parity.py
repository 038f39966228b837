"""Every collective x dtype x layout beside gloo, in one pair of processes.

gloo gets contiguous copies of the tensors, because it reads and writes the wrong elements
of some that are not; the backend under test gets the tensors as they are. Each case must
give equal results on both, or fail on both, except where ACCEPTED says that we take more.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import pytest
from ranks import Job, rank, result, size

OPS = ["SUM", "AVG", "MIN", "MAX", "PRODUCT"]
MOVES = [
    "broadcast",
    "all_gather",
    "all_gather_into_tensor",
    "gather",
    "scatter",
    "all_to_all_single",
    "send_recv",
]
CASES = [f"all_reduce {op}" for op in OPS] + [
    "reduce SUM",
    "reduce_scatter SUM",
    "reduce_scatter AVG",
    "reduce_scatter_tensor SUM",
    "reduce_scatter_tensor MAX",
    *MOVES,
]
DTYPES = [
    *("float32", "float64", "float16", "bfloat16"),
    *("int8", "uint8", "int16", "int32", "int64", "bool", "complex64", "complex128"),
]
LAYOUTS = ["contiguous", "transposed", "strided", "scalar", "empty"]


def breaks_gloo(case: str, layout: str) -> bool:
    """Tell whether gloo runs past the end of a tensor: it crashes, or invents a value."""
    return layout == "scalar" and case.startswith(("reduce_scatter_tensor", "all_to_all_single"))


def accepted(case: str, dtype: str, layout: str) -> bool:
    """Tell whether this is a case that gloo refuses and that works here."""
    if case in MOVES and dtype == "int16":
        return True  # it is only moved
    if case == "gather" and dtype.startswith("complex"):
        return True  # the one collective that torch does not view as real
    # As with NCCL, a scalar of each rank gathers into a vector.
    return case == "all_gather_into_tensor" and layout == "scalar"


def _layouts(base: Any) -> dict[str, Any]:
    return {
        "contiguous": base,
        "transposed": base.t(),
        "strided": base[::2, 1::2],
        "scalar": base[0, 1],
        "empty": base[:0],
    }


def _case(name: str, group: Any, x: Any) -> Any:
    """Run one collective on the tensor x and return what it left, as nested lists."""
    import torch
    import torch.distributed as dist

    collective, _, op = name.partition(" ")
    me, n = rank(), size()
    kind = {"op": getattr(dist.ReduceOp, op)} if op else {}
    if collective in ("all_reduce", "broadcast", "reduce"):
        root = (
            {} if collective == "all_reduce" else {"src" if collective == "broadcast" else "dst": 1}
        )
        getattr(dist, collective)(x, group=group, **kind, **root)
        return x.tolist() if collective != "reduce" or me == 1 else None
    if collective == "all_gather":
        outputs = [torch.zeros_like(x) for _ in range(n)]
        dist.all_gather(outputs, x, group=group)
        return [out.tolist() for out in outputs]
    if collective == "all_gather_into_tensor":
        output = x.new_zeros((n * x.shape[0], *x.shape[1:]) if x.dim() else n)
        dist.all_gather_into_tensor(output, x, group=group)
        return output.tolist()
    if collective == "gather":
        outputs = [torch.zeros_like(x) for _ in range(n)] if me == 1 else None
        dist.gather(x, outputs, dst=1, group=group)
        return outputs and [out.tolist() for out in outputs]
    if collective == "scatter":
        inputs = [x.clone() + r for r in range(n)] if me == 1 and x.dtype != torch.bool else None
        if me == 1 and inputs is None:
            inputs = [x.clone(), ~x]
        dist.scatter(x, inputs, src=1, group=group)
        return x.tolist()
    if collective == "reduce_scatter":
        dist.reduce_scatter(x, [x.clone() for _ in range(n)], group=group, **kind)
        return x.tolist()
    if collective == "reduce_scatter_tensor":
        whole = (
            torch.stack([x, x]).reshape(n * x.shape[0], *x.shape[1:]) if x.dim() else x.repeat(n)
        )
        dist.reduce_scatter_tensor(x, whole, group=group, **kind)
        return x.tolist()
    if collective == "all_to_all_single":
        output = torch.zeros_like(x)
        dist.all_to_all_single(output, x, group=group)
        return output.tolist()
    if me == 1:
        dist.send(x, 0, group=group)
        return None
    dist.recv(x, 1, group=group)
    return x.tolist()


def _attempt(run: Callable[[], Any]) -> tuple[str, Any]:
    try:
        return "value", run()
    except (RuntimeError, ValueError, TypeError, IndexError) as error:
        return "error", f"{type(error).__name__}: {str(error).splitlines()[0]}"


def parity() -> None:
    import torch
    import torch.distributed as dist

    import ringlane.torch

    dist.init_process_group(
        "gloo",
        rank=rank(),
        world_size=size(),
        store=dist.FileStore(os.environ["TEST_STORE"], size()),
    )
    ours, theirs = dist.new_group(backend=ringlane.torch.BACKEND), dist.group.WORLD
    verdicts: dict[str, str] = {}
    for case in CASES:
        for dtype in DTYPES:
            for layout in LAYOUTS:
                if breaks_gloo(case, layout):
                    continue
                base = torch.arange(24).reshape(4, 6) % 3 + rank()
                base = base.to(getattr(torch, dtype))
                x = _layouts(base)[layout]
                copy = x.clone(memory_format=torch.contiguous_format)
                there = _attempt(lambda: _case(case, theirs, copy))  # noqa: B023
                here = _attempt(lambda: _case(case, ours, x))  # noqa: B023
                if here == there or here[0] == there[0] == "error":
                    verdict = "alike"
                elif there[0] == "error":
                    verdict = "accepted"
                else:
                    verdict = f"ours {here}, gloo {there}"
                verdicts[f"{case} {dtype} {layout}"] = verdict
    result("parity", verdicts)
    dist.destroy_process_group()


@pytest.fixture(scope="module")
def verdicts(shared_job: Job) -> dict[int, dict[str, str]]:
    return shared_job.run(2, "parity")


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", CASES)
def test_as_with_gloo(verdicts: dict[int, dict[str, str]], case: str, dtype: str) -> None:
    for layout in (known for known in LAYOUTS if not breaks_gloo(case, known)):
        key = f"{case} {dtype} {layout}"
        wanted = {"alike", "accepted"} if accepted(case, dtype, layout) else {"alike"}
        for verdict in (verdicts[0][key], verdicts[1][key]):
            assert verdict in wanted, f"{key}: {verdict}"
