"""What every test starts from: a job of real processes, and nothing left behind."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from ranks import Job


@pytest.fixture(scope="module")
def shared_job(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Job:
    """Start ranks once for all tests of a module."""
    return Job(Path(request.path).stem, tmp_path_factory.mktemp("job"))


@pytest.fixture
def job(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., Job]]:
    """Start ranks, and see that neither shared memory nor temporary files outlive them."""
    before = set(os.listdir("/dev/shm"))  # noqa: S108
    started = Job(Path(request.path).stem, tmp_path)
    yield started
    started.assert_nothing_left()
    left = {name for name in os.listdir("/dev/shm") if "ringlane" in name} - before  # noqa: S108
    assert not left, f"left in /dev/shm: {left}"


@pytest.fixture(scope="session")
def cuda_gpus() -> int:
    """Return how many GPUs torch sees; skip where it sees none."""
    count = "import torch; print(torch.cuda.device_count() if torch.cuda.is_available() else 0)"
    done = subprocess.run(
        [sys.executable, "-c", count], capture_output=True, text=True, check=False
    )
    if done.returncode or not int(done.stdout):
        pytest.skip("torch sees no CUDA GPU in this machine")
    return int(done.stdout)
