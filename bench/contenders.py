"""The contenders of the comparison: where they lie, how they are built and run.

All of them run bench/peers.c, or bench/gopeer, which is the same in Go, side by side, and take
turns: the ranks of a contender sleep until they are told to measure. So whatever else the
machine does meets all alike, and none is measured while another computes.

Each rank has a share of the cores of its own, as many as there are for all, which is what
`ringlane run` and Intel's launcher give and the others' give when asked. The thread that calls
is kept on the first core of the share by the programs themselves, so that all contenders are
measured between the same cores, whichever the launchers prefer. What a library runs beside it
(Go's monitor and collector, progress threads) has the rest of the share, as beside a training
process, and disturbs the calls only where the share is one core.
"""

from __future__ import annotations

import contextlib
import os
import re
import select
import shutil
import signal
import subprocess
import tempfile
import time
from array import array
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
START_S = 60.0


class Failed(Exception):
    """A contender that cannot be measured, and why."""


@dataclass(frozen=True)
class Kind:
    """How one library is run. Ranks above the CPUs get what makes its waiting yield them."""

    prefix: str  # below the peers directory; "" for ringlane and bare
    launch: tuple[str, ...]
    enough: tuple[str, ...] = ()  # options where every rank has a core; {share}: how many
    crowded: tuple[str, ...] = ()  # and where not
    env: dict[str, str] = field(default_factory=dict)
    crowded_env: dict[str, str] = field(default_factory=dict)


# Settings are the defaults of each but for what makes it faster on one machine: Open MPI
# spends less in its progress loop when it looks for no network.
KINDS = {
    "openmpi": Kind(
        "openmpi",
        ("bin/mpiexec", "--mca", "pml", "ob1", "--mca", "btl", "self,sm"),
        ("--map-by", "slot:PE={share}", "--bind-to", "core"),
        ("--map-by", ":OVERSUBSCRIBE", "--bind-to", "none", "--mca", "mpi_yield_when_idle", "1"),
        {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"},
    ),
    "mpich": Kind(
        "mpich",
        ("bin/mpiexec",),
        ("-bind-to", "core:{share}"),
        crowded_env={"MPIR_CVAR_CH4_PROGRESS_THROTTLE": "1"},
    ),
    "impi": Kind("impi", ("bin/mpiexec",), crowded_env={"I_MPI_PIN": "0", "I_MPI_WAIT_MODE": "1"}),
    "bare": Kind("", ("ringlane", "run")),
    "ringlane-c": Kind("", ("ringlane", "run")),
    "ringlane-go": Kind("", ("ringlane", "run")),
}


def cores() -> list[list[int]]:
    """Return the CPUs that this process may use, by core."""
    allowed = os.sched_getaffinity(0)
    found: list[list[int]] = []
    for cpu in sorted(allowed):
        siblings = Path(f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list")
        threads = {cpu}
        with contextlib.suppress(OSError, ValueError):
            for text in siblings.read_text().split(","):
                first, _, last = text.partition("-")
                threads |= set(range(int(first), int(last or first) + 1))
        if min(threads & allowed) == cpu:
            found.append(sorted(threads & allowed))
    return found


def shares(of: list[list[int]], ranks: int) -> list[list[int]]:
    """Return the CPUs of each rank, of whole cores, or nothing if there are too few."""
    each = len(of) // ranks
    parts = [of[i * each : (i + 1) * each] for i in range(ranks)] if each else []
    return [sorted(cpu for core in part for cpu in core) for part in parts]


def build(name: str, peers: Path, library: Path, to: Path) -> Path:
    """Compile a contender's program and return it."""
    program = to / f"peers-{name}"
    to.mkdir(parents=True, exist_ok=True)
    env = dict(os.environ)
    if name == "ringlane-go":
        if shutil.which("go") is None and program.exists():
            return program  # carried along to a machine without Go
        command = ["go", "build", "-o", str(program), "./bench/gopeer"]
        env["CGO_ENABLED"] = "0"
    else:
        if name == "ringlane-c":
            include, lib, link = ROOT / "include", library.parent, ["-lringlane", "-DRINGLANE"]
        elif name == "bare":
            include, lib, link = HERE, HERE, ["-DBARE"]
        else:
            prefix = (peers / KINDS[name].prefix).resolve()
            include, lib, link = prefix / "include", prefix / "lib", ["-lmpi"]
            if not (include / "mpi.h").exists():
                raise Failed(f"there is no {include / 'mpi.h'}")
        command = ["gcc", "-std=gnu11", "-O3", "-march=native", "-Wall", "-Wextra"]
        command += ["-o", str(program), "bench/peers.c", f"-I{include}", f"-L{lib}", *link]
        command += [f"-Wl,-rpath,{lib}", "-Wl,--allow-shlib-undefined"]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=env, capture_output=True, text=True, check=False
        )
    except OSError as why:
        raise Failed(f"its program cannot be compiled: {why}") from why
    if done.returncode:
        raise Failed(f"its program does not compile: {done.stderr.strip()}")
    return program


@dataclass(frozen=True)
class What:
    """What is measured."""

    collective: str
    dtype: str
    nbytes: int


@dataclass(frozen=True)
class Times:
    """What one turn of a contender took: the seconds of each call, in order."""

    seconds: array[float]
    wrong: int
    how: str  # the sums are made, or bare loops go
    before: float  # seconds of an empty barrier of the same ranks, just before the calls
    after: float  # and just after


class Contender:
    """One library's ranks, started and waiting for commands."""

    def __init__(self, name: str, program: Path, peers: Path, ranks: int) -> None:
        self.name = name
        kind = KINDS[name]
        memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # noqa: S108
        self.directory = Path(tempfile.mkdtemp(prefix=f"peers-{name}-", dir=memory))
        self.log = tempfile.TemporaryFile()  # noqa: SIM115  open until stop
        parts = shares(cores(), ranks)
        each = len(cores()) // ranks
        options = [text.format(share=each) for text in (kind.enough if parts else kind.crowded)]
        first, *rest = kind.launch
        launcher = str((peers / kind.prefix / first).resolve()) if kind.prefix else first
        self.command = [
            *(launcher, *rest, *options, "-n", str(ranks), *(() if kind.prefix else ("--",))),
            *(str(program), str(self.directory), str(ranks)),
            ":".join(",".join(map(str, part)) for part in parts) or "none",
        ]
        self.env = {**kind.env, **({} if parts else kind.crowded_env)}
        self.process: subprocess.Popen[bytes] | None = None
        self.pipes: list[int] = []
        try:
            # Open for both directions, a pipe neither waits for the ranks nor ends before us.
            for pipe in ("reply", *map(str, range(ranks))):
                os.mkfifo(self.directory / pipe)
                self.pipes.append(os.open(self.directory / pipe, os.O_RDWR))
            self.process = subprocess.Popen(
                self.command,
                env={**os.environ, **self.env},
                stdin=subprocess.DEVNULL,
                stdout=self.log,
                stderr=self.log,
                start_new_session=True,  # an interrupt of the terminal is ours to pass on
            )
            self.unread = b""
            self.version = " ".join(self._line(START_S).replace("Version:", "").split())
            shutil.rmtree(self.directory)  # all have it open
        except BaseException:
            self.stop()
            raise

    def turn(self, what: What, seconds: float, limit: float, *, used: bool, window: bool) -> Times:
        """Let the ranks measure for a while and return the times."""
        command = f"{what.collective} {what.nbytes} {what.dtype} {seconds} {used:d} {window:d}\n"
        for pipe in self.pipes[1:]:
            os.write(pipe, command.encode())
        deadline = time.monotonic() + limit
        calls, wrong, how, before, after = self._line(limit).split()
        times: array[float] = array("d")
        times.frombytes(self._bytes(int(calls) * times.itemsize, deadline))
        return Times(times, int(wrong), how, float(before), float(after))

    def stop(self) -> None:
        """End the ranks and remove what they used; those that do not end are killed."""
        for pipe in self.pipes:
            os.close(pipe)
        self.pipes = []
        if self.process:
            try:
                self.process.wait(5)
            except subprocess.TimeoutExpired:
                self._kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.directory, ignore_errors=True)

    def _kill(self) -> None:
        """Kill every process that has our directory in its arguments: launcher and ranks.

        The shared memory that an MPI would have removed at its end goes with them.
        """
        mark = os.fsencode(self.directory)
        segments: set[str] = set()
        for proc in Path("/proc").iterdir():
            try:
                if proc.name.isdigit() and mark in (proc / "cmdline").read_bytes():
                    segments |= set(
                        re.findall(r" (/dev/shm/\S+)$", (proc / "maps").read_text(), re.M)
                    )
                    os.kill(int(proc.name), signal.SIGKILL)
            except OSError:
                continue  # it has ended
        for segment in segments:
            Path(segment).unlink(missing_ok=True)

    def _line(self, limit: float) -> str:
        deadline = time.monotonic() + limit
        while b"\n" not in self.unread:
            self._read(deadline)
        line, _, self.unread = self.unread.partition(b"\n")
        return line.decode()

    def _bytes(self, size: int, deadline: float) -> bytes:
        while len(self.unread) < size:
            self._read(deadline)
        data, self.unread = self.unread[:size], self.unread[size:]
        return data

    def _read(self, deadline: float) -> None:
        assert self.process  # noqa: S101
        while not select.select([self.pipes[0]], [], [], 0.2)[0]:
            if self.process.poll() is not None:
                self.log.seek(0)
                lines = self.log.read().decode(errors="replace").split("\n")
                last = next((line for line in reversed(lines) if line.strip(" -")), "")
                raise Failed(f"ended with status {self.process.returncode}: {last.strip()}")
            if time.monotonic() > deadline:
                raise Failed("did not answer in time and was killed")
        self.unread += os.read(self.pipes[0], 1 << 16)
