"""``pip install .`` carries the library, the binary and the backend's entry points."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

PROGRAM = """
import torch, torch.distributed as dist
dist.init_process_group("ringlane")
x = torch.ones(3) * (dist.get_rank() + 1)
dist.all_reduce(x)
assert x.tolist() == [3.0] * 3
dist.destroy_process_group()
print("summed")
"""


def test_pip_install_and_no_import(tmp_path: Path) -> None:
    if shutil.which("go") is None:
        pytest.fail("no go command: the wheel cannot be built")
    home = tmp_path / "venv"
    venv.create(home, with_pip=False)
    python = home / "bin" / "python"
    purelib = Path(
        subprocess.run(
            [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
            check=True,
            capture_output=True,
            text=True,
        ).stdout.strip()
    )
    # The new environment sees this one's torch and setuptools.
    (purelib / "outer.pth").write_text(
        "\n".join({sysconfig.get_path("purelib"), *(p for p in sys.path if "site-packages" in p)})
    )
    clone = tmp_path / "source"
    shutil.copytree(
        ROOT,
        clone,
        ignore=shutil.ignore_patterns(".git", "build", "_lib", "__pycache__", "*.egg-info"),
    )
    env = {k: v for k, v in os.environ.items() if k not in ("PYTHONPATH", "RINGLANE_LIBRARY")}
    subprocess.run(
        [
            *(sys.executable, "-m", "pip", "--python", python, "install"),
            *("--quiet", "--no-deps", "--no-build-isolation", "--no-index", clone),
        ],
        check=True,
        env={**env, "GOFLAGS": "-buildvcs=false"},
    )
    # torch then calls the entry point while ringlane.torch is still being imported.
    subprocess.run([python, "-c", "import ringlane.torch"], check=True, env=env, cwd=tmp_path)
    program = tmp_path / "train.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [home / "bin" / "ringlane", "run", "-n", "2", "--", python, program],
        env=env,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert sorted(done.stdout.split("\n")) == ["", "[0] summed", "[1] summed"], done.stdout
