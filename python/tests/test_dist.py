"""``make dist`` leaves a folder that runs by itself: elsewhere, without Go, without a home."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
VERSION = re.findall('^version = "(.*)"$', (ROOT / "pyproject.toml").read_text(), re.M)[0]
NAME = f"ringlane-{VERSION}-linux-{os.uname().machine}"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return where the folder and the archive are."""
    if shutil.which("go") is None:
        pytest.fail("no go command: the folder cannot be made")
    out = tmp_path_factory.mktemp("dist")
    subprocess.run([ROOT / "tools/dist.sh", out], check=True, env={**os.environ, "GOFLAGS": ""})
    return out


@pytest.fixture(scope="module")
def folder(made: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Unpack the archive somewhere else."""
    there = tmp_path_factory.mktemp("another place")
    with tarfile.open(made / f"{NAME}.tar.gz") as archive:
        archive.extractall(there, filter="data")
    return there / NAME


def run(folder: Path, home: Path, *command: str | Path) -> str:
    """Run a command in an empty home, with nothing of this environment."""
    environment = {
        "PATH": f"{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(home),
        "PYTHONPATH": str(folder / "python"),
        "PYTHONDONTWRITEBYTECODE": "1",
    }
    done = subprocess.run(
        [str(word) for word in command],
        cwd=home,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_holds_what_it_should_and_no_more(made: Path, folder: Path) -> None:
    files = {str(p.relative_to(folder)) for p in folder.rglob("*") if p.is_file()}
    for file in (
        *("ringlane", "run-gpu-tests", "bench-gpu", "LICENSE", "README.md"),
        *("python/ringlane/_lib/libringlane.so", "python/ringlane/_lib/ringlane"),
        *("python/ringlane/torch/process_group.py", "python/ringlane/py.typed"),
        f"python/ringlane-{VERSION}.dist-info/entry_points.txt",
        *("tests/go/device.test.gz", "tests/go/cuda.test.gz"),
        *("tests/test_cuda.py", "tests/pytest.zip"),
        *("bench/gpu.py", "bench/gpu_job.py", "bench/gpu_report.py", "bench/report.py"),
    ):
        assert file in files, file
    assert not [f for f in files if "__pycache__" in f or f.endswith((".go", ".cu", ".h"))]
    assert files == {
        str(p.relative_to(made / NAME)) for p in (made / NAME).rglob("*") if p.is_file()
    }
    size = sum((folder / f).stat().st_size for f in files)
    assert size < 40e6, size
    for binary in ("python/ringlane/_lib/libringlane.so", "python/ringlane/_lib/ringlane"):
        assert os.fsencode(ROOT) not in (folder / binary).read_bytes(), binary


def test_runs_elsewhere_without_go_and_without_a_home(folder: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    assert "ringlane" in run(folder, home, folder / "ringlane", "version")
    table = run(
        *(folder, home, folder / "ringlane", "bench", "allreduce", "-n", "2"),
        *("--sizes", "8", "--iters", "2"),
    )
    assert table.rstrip().endswith(" 0"), table
    job = tmp_path / "job.py"
    job.write_text(
        "import ringlane, numpy as np\n"
        "with ringlane.join() as c: x = c.all_reduce(np.ones(3))\n"
        "assert x.tolist() == [2.0] * 3\n"
        "print(ringlane.__file__)\n"
    )
    said = run(folder, home, folder / "ringlane", "run", "-n", "2", "--", sys.executable, job)
    assert said.count(str(folder / "python")) == 2, said
    # An entry point of the package tells torch of the backend.
    groups = "importlib.metadata.entry_points(group='torch.backends')"
    said = run(folder, home, sys.executable, "-c", f"import importlib.metadata; print({groups})")
    assert "ringlane" in said
    assert not list(home.iterdir())


@pytest.mark.skipif(Path("/dev/nvidiactl").exists(), reason="this machine has GPUs to test")
def test_says_that_there_is_no_gpu(folder: Path, tmp_path: Path) -> None:
    assert "skipped" in run(folder, tmp_path, folder / "run-gpu-tests")
    assert "skipped" in run(folder, tmp_path, folder / "bench-gpu")
    assert not list(tmp_path.iterdir())
