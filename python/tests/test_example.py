"""The example that ``make run`` starts keeps its promises, also in a log file."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def test_digits() -> None:
    launcher = shutil.which("ringlane") or str(ROOT / "build" / "ringlane")
    done = subprocess.run(
        [
            *(launcher, "run", "-n", "2", "--"),
            *(sys.executable, ROOT / "examples" / "digits.py", "--epochs", "8", "--batch", "24"),
        ],
        env={**os.environ, "PYTHONPATH": str(ROOT / "python")},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    lines = done.stdout.splitlines()
    assert sum("ok  " in line for line in lines) == 2, done.stdout
    assert len(lines) < 80, "a log wants few lines"
    assert "Traceback" not in done.stderr, done.stderr
