"""What the comparison calls, and verifies, on tensors of processors."""

# ruff: noqa: S101

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest
from gpu_launch import job, leave

pytest.importorskip("torch")
COLLECTIVES = ("allreduce", "reducescatter", "allgather", "alltoall")


def rank(path: Path) -> None:
    """Count the wrong elements of each collective, done and then not done by one rank."""
    import torch  # noqa: PLC0415
    from gpu_calls import DTYPES, Contender, Meeting, wrong  # noqa: PLC0415

    me, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    meeting = Meeting(me, size)
    contender = Contender("ringlane", 40_000, meeting, torch.device("cpu"))
    found: dict[str, Any] = {"right": {}, "spoilt": {}, "bytes": {}}
    for collective in COLLECTIVES:
        for dtype, nbytes in (("f32", 8), ("bf16", 24_000), ("f32", 40_000)):
            call = contender.call(collective, DTYPES[dtype], nbytes)
            name = f"{collective} {dtype} {nbytes}"
            found["right"][name] = wrong(call, call.run, meeting)
            out = call.run()
            found["bytes"][name] = max(call.data.nbytes, out.nbytes)

            def spoilt() -> torch.Tensor:
                out = call.run()  # noqa: B023
                if me == 1:
                    out[-1] += 1
                return out

            found["spoilt"][name] = wrong(call, spoilt, meeting)
    leave(path, me, found)
    meeting.end()


def test_results_are_verified() -> None:
    size = 3
    found, why = job("test_gpu_calls.py", [], {"OMP_NUM_THREADS": "1"}, size, 150)
    assert not why
    for number, one in enumerate(found):
        assert set(one["right"].values()) == {0}, json.dumps(one["right"])
        assert set(one["spoilt"].values()) == {int(number == 1)}, json.dumps(one["spoilt"])
        for name, nbytes in one["bytes"].items():
            wanted = int(name.split()[2])
            assert nbytes == pytest.approx(wanted, abs=4 * size), name


if __name__ == "__main__":
    rank(Path(sys.argv[1]))
