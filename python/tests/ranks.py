"""Starts functions of the test modules as the ranks of a job, each in a process of its own.

In a test: ``job.run(4, "checks")`` calls ``checks()`` of the test's module in 4 processes
whose environment names their places, waits, and fails with what the failing ranks wrote.
As a program: ``python ranks.py MODULE FUNCTION [ARGUMENT...]`` is one rank.
"""

from __future__ import annotations

import contextlib
import faulthandler
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import uuid
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent


class Job:
    """The ranks that one test starts, and the directories they use."""

    def __init__(self, module: str, directory: Path) -> None:
        self.module = module
        self.temporary = directory / "tmp"
        self.results = directory / "results"
        self.temporary.mkdir()
        self.results.mkdir()

    def run(
        self,
        size: int,
        function: str,
        *arguments: str,
        timeout: float = 90.0,
        expect: dict[int, int] | None = None,
        only: list[int] | None = None,
        env: dict[str, str] | None = None,
    ) -> dict[int, Any]:
        """Run a function on every rank and return what result() was given, by rank.

        Args:
            expect: exit statuses other than 0, by rank; -9 for a rank that is killed.
            only: the ranks that are started; the others never arrive.
        """
        started = only if only is not None else list(range(size))
        # A path short enough for a Unix socket in it, whatever the name of the test.
        with tempfile.TemporaryDirectory(prefix="rl-") as rendezvous:
            place = {
                **os.environ,
                "RINGLANE_SIZE": str(size),
                "RINGLANE_RENDEZVOUS": rendezvous,
                "RINGLANE_JOB": uuid.uuid4().hex,
                "WORLD_SIZE": str(size),
                "OMP_NUM_THREADS": "1",
                "TMPDIR": str(self.temporary),
                "TEST_STORE": str(self.results / uuid.uuid4().hex),
                "TEST_RESULTS": str(self.results),
                **(env or {}),
            }
            command = [sys.executable, str(HERE / "ranks.py"), self.module, function, *arguments]
            processes = {
                rank: subprocess.Popen(
                    command,
                    env={**place, "RINGLANE_RANK": str(rank), "RANK": str(rank)},
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    text=True,
                    start_new_session=True,
                )
                for rank in started
            }
            failures = self._collect(processes, timeout, expect or {})
        assert not failures, "\n".join(failures)
        return {
            rank: json.loads(path.read_text())
            for rank in started
            if (path := self.results / f"{function}-{rank}.json").is_file()
        }

    def _collect(
        self, processes: dict[int, subprocess.Popen[str]], timeout: float, expect: dict[int, int]
    ) -> list[str]:
        failures = []
        end = time.monotonic() + timeout
        for rank, process in processes.items():
            try:
                output, _ = process.communicate(timeout=max(0.1, end - time.monotonic()))
                wanted = expect.get(rank, 0)
                if process.returncode != wanted:
                    failures.append(
                        f"rank {rank}: exit status {process.returncode}, not {wanted}:\n{output}"
                    )
            except subprocess.TimeoutExpired:
                threads = _threads(process.pid)
                process.send_signal(_SHOW_STACKS)
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.communicate(timeout=1)
                os.killpg(process.pid, signal.SIGKILL)
                output, _ = process.communicate()
                where = f"still running after {timeout} s, in the system calls\n{threads}"
                failures.append(f"rank {rank}: {where}\n{output}")
        return failures

    def assert_nothing_left(self) -> None:
        """Check that the ranks left no temporary file and no process behind."""
        left = [path.name for path in self.temporary.iterdir() if "ringlane" in path.name]
        assert not left, f"left in the temporary directory: {left}"


# A rank that gets this signal writes down where its Python threads are.
_SHOW_STACKS = signal.SIGUSR2


def _threads(pid: int) -> str:
    """Return what each thread of a process is called and which system call it is in."""
    lines = []
    for task in sorted(Path(f"/proc/{pid}/task").iterdir(), key=lambda path: int(path.name)):
        with contextlib.suppress(OSError):  # it ended meanwhile
            name, call = ((task / file).read_text().strip() for file in ("comm", "syscall"))
            lines.append(f"    {task.name} {name}: {call}")
    return "\n".join(lines)


def rank() -> int:
    return int(os.environ["RANK"])


def size() -> int:
    return int(os.environ["WORLD_SIZE"])


def result(function: str, value: object) -> None:
    """Keep a value for the test that started this rank."""
    path = Path(os.environ["TEST_RESULTS"], f"{function}-{rank()}.json")
    path.write_text(json.dumps(value))


def flag(name: str) -> Path:
    """Return the path of a file that ranks use to wait for each other outside Ringlane."""
    return Path(os.environ["TEST_RESULTS"], name)


def wait_for(path: Path) -> None:
    """Wait until another rank has made the file; the runner's timeout bounds it."""
    while not path.exists():
        time.sleep(0.002)


def show_pid() -> None:
    """Tell the other ranks which process this is."""
    flag("pid.new").write_text(str(os.getpid()))
    flag("pid.new").rename(flag("pid"))


def shown_pid() -> int:
    """Return the process that has shown itself, once it has."""
    wait_for(flag("pid"))
    return int(flag("pid").read_text())


def meet(number: int) -> None:
    """Wait until the first ``number`` ranks are here, outside Ringlane."""
    flag(f"here-{rank()}").touch()
    for other in range(number):
        wait_for(flag(f"here-{other}"))


def windows() -> list[tuple[range, int]]:
    """Return the address range and the bytes in memory of this process's own window."""
    pieces = re.split(r"^(?=\w+-\w+ )", Path("/proc/self/smaps").read_text(), flags=re.MULTILINE)
    found = []
    for piece in pieces:
        if "memfd:ringlane arena" in piece:
            start, end = (int(edge, 16) for edge in piece.split()[0].split("-"))
            resident = re.search(r"^Rss:\s+(\d+) kB", piece, re.MULTILINE)
            found.append((range(start, end), int(resident[1]) << 10 if resident else 0))
    return found


def in_window(address: int) -> bool:
    return any(address in where for where, _ in windows())


if __name__ == "__main__":
    faulthandler.register(_SHOW_STACKS)
    getattr(importlib.import_module(sys.argv[1]), sys.argv[2])(*sys.argv[3:])
