"""Contenders that need nothing from elsewhere, run on two ranks: their sums are right."""

# ruff: noqa: S101

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from contenders import ROOT, Contender, What, build

LIBRARY = ROOT / "build" / "libringlane.so"


@pytest.mark.parametrize("name", ["bare", "ringlane-c"])
def test_a_contender_sums_rightly(name: str, tmp_path: Path) -> None:
    if not (shutil.which("gcc") and shutil.which("ringlane") and LIBRARY.exists()):
        pytest.skip("bench-peers needs gcc, and ringlane and its library built")
    contender = Contender(name, build(name, tmp_path, LIBRARY, tmp_path), tmp_path, 2)
    try:
        for dtype in ("f32", "bf16"):
            for nbytes in (8, 40_000, 3 << 20):
                for window in (False, True):
                    what = What("allreduce", dtype, nbytes)
                    times = contender.turn(what, 0.05, 60, fresh=True, window=window)
                    assert times.wrong == 0, (what, window, times.how)
                    assert len(times.seconds) >= 4
    finally:
        contender.stop()
