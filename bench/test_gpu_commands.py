"""The parts of the comparison on GPUs that ask our own command, on emulated GPUs."""

# ruff: noqa: S101

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import gpu
import gpu_tables
import pytest
from gpu_parts import Parts
from gpu_record import Record

EMULATOR = Path(__file__).resolve().parents[1] / "tools" / "emulator.sh"
MACHINE = {"gpus": ["GPU", "GPU"], "driver": "1"}
ARGUMENTS = ["sizes", "--sizes", "8", "64K", "--dtypes", "bf16", "--collectives", "alltoall"]


@pytest.fixture
def parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Parts:
    built = subprocess.run([str(EMULATOR)], stdout=subprocess.PIPE, text=True, check=False)
    if built.returncode == 3:
        pytest.skip("the CUDA emulator needs a C++ compiler (install g++)")
    monkeypatch.setenv("RINGLANE_CUDA_DRIVER", built.stdout.strip())
    monkeypatch.setenv("RINGLANE_EMULATOR", "gpus=2,sms=16,threads=256,memory=512M")
    monkeypatch.setenv("RINGLANE_DEVICE_WINDOW", "1M")
    options = gpu.parse(ARGUMENTS)
    options.gpus, options.ranks = 2, [2]
    about = {"machine": MACHINE, "date": "2026-11-30"}
    return Parts(options, Record(tmp_path / "gpu.json", about, options.cases, options.contenders))


def test_topology_is_kept_and_shown(parts: Parts) -> None:
    assert not parts.topology(60.0)
    parts.record.save()
    kept = json.loads(parts.record.path.read_text())
    (pair,) = kept["topology"]["json"]["pairs"]
    assert pair["measured"]["path"] == "peer"
    assert gpu_tables.text(kept).startswith("Measured: GB/s")


def test_what_calls_take_is_kept_with_their_rows(parts: Parts) -> None:
    rows = [
        {"collective": c, "dtype": d, "bytes": n, "calls_at_once": 20, "us": [4.0], "wrong": 0}
        for c, d, n in parts.options.cases
    ]
    parts.record.turn(2, "ringlane-host", [{"rows": rows}, {"rows": rows}])
    assert not parts.takes("ringlane-host", 2, "alltoall", "bf16", 60.0)
    small, large = [row["contenders"]["ringlane-host"] for row in parts.record.found()["rows"]]
    assert small["protocol"].startswith("line") and small["p50_us"] == 4.0
    assert 1 <= small["blocks"] <= large["blocks"]
