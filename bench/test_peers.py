"""Contenders that need nothing from elsewhere, run on two ranks: their sums are right."""

# ruff: noqa: S101

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from contenders import ROOT, Contender, What, build

HERE = Path(__file__).resolve().parent
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
                    times = contender.turn(what, 0.05, 60, used=True, window=window)
                    assert times.wrong == 0, (what, window, times.how)
                    assert len(times.seconds) >= 4
    finally:
        contender.stop()


def test_builds_are_compared(tmp_path: Path) -> None:
    if not (shutil.which("go") and shutil.which("ringlane")):
        pytest.skip("bench/builds.py needs go, and ringlane built")
    program = build("ringlane-go", tmp_path, LIBRARY, tmp_path)
    other = shutil.copy(program, tmp_path / "other")
    command = [sys.executable, HERE / "builds.py", program, other, "--sizes", "8", "4K"]
    command += ["--starts", "1", "--rounds", "1", "--seconds", "0.02"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    rows = [line.split() for line in done.stdout.splitlines()[1:]]
    assert {row[0] for row in rows} == {"8", "4096"}, done.stdout
    assert all(str(path) in done.stdout for path in (program, other))
    lost = subprocess.run(
        [sys.executable, HERE / "builds.py", tmp_path / "nothing"],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert lost.returncode == 1
    assert "builds: ended with status" in lost.stderr
