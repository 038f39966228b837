"""Starts the ranks of a job, one process each, and ends them whatever happens."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
INTERRUPTED = "interrupted"
POLL, GONE = 0.1, 10  # seconds


class Failed(Exception):
    """Why a job has no result."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class Ranks:
    """The processes of a job, which end with the block that they are made in.

    Each is given a path as its first argument, to which it appends its number, and leaves
    there, as JSON, what it found.
    """

    def __init__(
        self, script: str, arguments: list[str], environment: dict[str, str], size: int
    ) -> None:
        self.size = size
        self.processes: list[subprocess.Popen[bytes]] = []
        self._directory = tempfile.TemporaryDirectory(prefix="gpu-")
        self.path = Path(self._directory.name) / "found"
        self._command = [sys.executable, str(HERE / script), str(self.path), *arguments]
        self._environment = {
            **os.environ,
            **environment,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": str(free_port()),
            "WORLD_SIZE": str(size),
            "LOCAL_WORLD_SIZE": str(size),
        }

    def __enter__(self) -> Ranks:
        try:
            for rank in range(self.size):
                numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                self.processes.append(
                    subprocess.Popen(
                        self._command,
                        env={**self._environment, **numbers},
                        stdin=subprocess.DEVNULL,
                        stdout=sys.stderr,
                        start_new_session=True,
                    )
                )
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
        for process in self.processes:
            with contextlib.suppress(subprocess.TimeoutExpired):  # held by a driver
                process.wait(timeout=GONE)
        self._directory.cleanup()

    def wait(self, limit: float, but: Collection[int] = ()) -> str:
        """Wait until all but some have ended, or one of them has failed; return how."""
        end = time.monotonic() + limit
        while True:
            states = {
                rank: process.poll()
                for rank, process in enumerate(self.processes)
                if rank not in but
            }
            for rank, state in states.items():
                if state:
                    return f"rank {rank} ended with status {state} (look above)"
            if None not in states.values():
                return ""
            if time.monotonic() > end:
                return f"not done after {limit:.0f} s"
            time.sleep(POLL)

    def found(self) -> list[dict[str, Any] | None]:
        """Return what each rank has left until now."""
        paths = [self.path.with_suffix(f".{rank}") for rank in range(self.size)]
        return [json.loads(p.read_text()) if p.exists() else None for p in paths]


def job(
    script: str, arguments: list[str], environment: dict[str, str], size: int, limit: float
) -> tuple[list[dict[str, Any]], str]:
    """Run a job; return what each rank found, and why that is not all.

    An interrupt ends it, and what was found until then is returned like any other.
    """
    with Ranks(script, arguments, environment, size) as ranks:
        try:
            why = ranks.wait(limit)
        except KeyboardInterrupt:
            why = INTERRUPTED
        found = [one for one in ranks.found() if one is not None]
    if len(found) < size:
        if why == INTERRUPTED:
            raise KeyboardInterrupt
        raise Failed(why or "no result (look above)")
    return found, why


def leave(path: Path, rank: int, found: dict[str, Any]) -> None:
    """Leave what a rank has found, whatever becomes of the rest."""
    target = path.with_suffix(f".{rank}")
    new = target.with_suffix(f"{target.suffix}-new")
    new.write_text(json.dumps(found))
    new.replace(target)
