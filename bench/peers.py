"""AllReduce beside Open MPI, MPICH and Intel MPI, and beside gloo through torch.

    make bench-peers

The first part needs no Python in the ranks: one C program (bench/peers.c) runs the same loop
over each library: barrier, clock, call, clock; the slowest rank counts. Ringlane is measured
through its C interface by that program, and through its Go package by the same in Go
(bench/gopeer), each with ordinary buffers and with buffers in a window. All are started side by
side and take turns at each size in several rounds, so that what else the machine does meets
all alike. The ranks read their output and write their input anew between calls, outside the clock,
as a training step does; --keep-buffers leaves that out.

Before and after each turn an empty barrier is timed. It tells whether the host of a virtual
machine has just moved its CPUs nearer to each other or farther apart: only turns of one such
mode are compared, a turn in which it changed counts nowhere, and there are more rounds until
one mode has enough turns. If both have some, each has a row.

With them run bare loops over shared memory (bench/bare.h), which do the same copies and nothing
else: they check nothing, wait for ever and name nobody. What they take is about what the
machine takes, so they tell a library that is slow from a ratio that cannot be had.

--collective measures other collectives of the same libraries, without the loops; their bytes
are those of the larger of a rank's two buffers, and sendrecv is a message to a neighbour and
one back.

The second part is gloo and ringlane through torch, in one job and on the same tensors: eager
calls, and what communication costs a training step of 25 million parameters.

The tables go to standard output, everything to bench/peers-MACHINE.json, and a plot beside
it. Rows that are not in our favour stay in all of them.

Without a network: carry the directories openmpi, mpich and impi of build/peers along and name
their parent with --peers-dir; each MPI finds what belongs to it by where it lies. Needed are
of each bin, include and lib, of Open MPI share too, of Intel MPI opt/mpi/etc. The plugins of
network hardware (lib/*/libfabric, lib/*/ucx/libuct_ib*) and python* may stay behind; stripped,
the rest is 55 MB, or 17 MB as .tar.xz. gcc must be there, and Go or a build/bench/peers-ringlane-go
that was made before, and the loopback interface up. A peer that is not there is left out, and
said so.
"""

from __future__ import annotations

import argparse
import datetime
import itertools
import json
import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import contenders
import modes
import report
from contenders import Contender, Failed, Times, What

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SIZES = [8, 64, 256, *(1 << shift for shift in range(10, 29, 2))]  # to 256 MiB
TORCH_SIZES = [8 << (3 * i) for i in range(8)] + [64 << 20]
DTYPES = ("f32", "bf16")
PEERS = ("openmpi", "mpich", "impi")
WITH_WINDOWS = ("bare", "ringlane-c", "ringlane-go")  # measured with ordinary buffers too
COLLECTIVES = ("allreduce", "reducescatter", "allgather", "broadcast", "alltoall", "sendrecv")
IN_PARTS = ("reducescatter", "allgather", "alltoall")
FEW_SIZES = [4 << 10, 64 << 10, 1 << 20, 16 << 20]
PATIENCE = 3  # times the rounds, for a mode of the machine to have enough turns
FEWEST = 3  # turns of each contender for a mode to have a row


def say(text: str) -> None:
    """Show progress."""
    print(f"bench-peers: {text}", file=sys.stderr, flush=True)


class Field:
    """The contenders of one number of ranks; one that fails is started again."""

    def __init__(self, programs: dict[str, Path], peers: Path, ranks: int) -> None:
        self.programs, self.peers, self.ranks = programs, peers, ranks
        self.running: dict[str, Contender] = {}
        self.failures: dict[str, str] = {}  # the last of each
        self.versions: dict[str, str] = {}
        self.crowded = not contenders.shares(contenders.cores(), ranks)
        self.barriers: list[float] = []  # seconds of the empty ones around turns
        self.starts = dict.fromkeys(programs, 0)

    def start(self) -> None:
        """Start what is not running, each contender twice at most."""
        for name, program in self.programs.items():
            if name in self.running or self.starts[name] == 2:
                continue
            self.starts[name] += 1
            try:
                self.running[name] = Contender(name, program, self.peers, self.ranks)
            except Failed as why:
                self.fail(name, why)
                continue
            self.versions[name] = self.running[name].version

    def fail(self, name: str, why: Failed) -> None:
        """Note that a contender failed, and end it."""
        say(f"{name}, {self.ranks} ranks: {why}")
        self.failures[name] = str(why)
        if contender := self.running.pop(name, None):
            contender.stop()

    def stop(self) -> None:
        """End all."""
        while self.running:
            self.running.popitem()[1].stop()


def take(field: Field, what: What, options: argparse.Namespace) -> dict[str, list[Times]]:
    """Measure one size: every contender once a round, in a new order each round.

    Return the turns of those that did not fail. There are more rounds until every one has had
    enough turns in the same mode of the machine.
    """
    field.start()
    entries = []
    for name in field.programs:
        if name == "bare" and what.collective != "allreduce":
            continue
        entries.append((name, name, False))
        if name in WITH_WINDOWS:
            entries.append((f"{name}-window", name, True))
    taken: dict[str, list[Times]] = {}
    for i in range(options.rounds * (1 if field.crowded else PATIENCE)):
        if i >= options.rounds and modes.seen(taken, modes.levels(field.barriers), options.rounds):
            break
        first = i % len(entries)
        for label, name, window in entries[first:] + entries[:first]:
            if name not in field.running:
                taken.pop(label, None)
                continue
            try:
                times = field.running[name].turn(
                    what,
                    options.seconds / options.rounds,
                    options.limit,
                    used=not options.keep_buffers,
                    window=window,
                )
            except Failed as why:
                field.fail(name, why)
                taken.pop(label, None)
                continue
            field.barriers += [times.before, times.after]
            taken.setdefault(label, []).append(times)
    return {label: taken.get(label, []) for label, _, _ in entries}


def rows_of(
    field: Field, what: What, taken: dict[str, list[Times]], fewest: int
) -> list[dict[str, Any]]:
    """Return a row for each mode in which all were measured, or one of all turns."""
    done = {label: turns for label, turns in taken.items() if turns}
    found = {} if field.crowded else modes.seen(done, modes.levels(field.barriers), fewest)
    rows = []
    for mode, turns in (found or {"" if field.crowded else "mixed": done}).items():
        cells: dict[str, Any] = {}
        for label, every in taken.items():
            if label not in turns:
                name = label.removesuffix("-window")
                cells[label] = {"failed": field.failures[name]}
                continue
            if wrong := sum(times.wrong for times in every):
                say(f"{label}, {field.ranks} ranks: {wrong} wrong elements")
                cells[label] = {"failed": f"{wrong} wrong elements"}
                continue
            cells[label] = {
                **report.summary([times.seconds for times in turns[label]]),
                "how": turns[label][0].how,
            }
        row: dict[str, Any] = {"collective": what.collective, "ranks": field.ranks}
        row |= {"dtype": what.dtype, "bytes": what.nbytes, "oversubscribed": field.crowded}
        if mode:
            row["mode"] = mode
        if barriers := sorted(times.before for part in turns.values() for times in part):
            row["barrier_us"] = round(report.quantile(barriers, 0.5) * 1e6, 3)
        rows.append({**row, "contenders": cells, **report.rate(cells)})
    return rows


def compare(
    programs: dict[str, Path], options: argparse.Namespace, versions: dict[str, str]
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each number of ranks, collective and type."""
    for ranks in options.ranks:
        field = Field(programs, options.peers_dir, ranks)
        try:
            for collective, dtype in itertools.product(options.collective, options.dtypes):
                taken = {}
                for nbytes in options.sizes:
                    say(f"{collective}, {ranks} ranks, {dtype}, {report.size(nbytes)}")
                    what = What(collective, dtype, nbytes)
                    taken[what] = take(field, what, options)
                versions |= field.versions
                fewest = min(FEWEST, options.rounds)
                # After the last size: only now is it known which modes there are.
                yield [
                    row
                    for what, turns in taken.items()
                    for row in rows_of(field, what, turns, fewest)
                ]
        finally:
            field.stop()


def through_torch(ranks: int, options: argparse.Namespace) -> dict[str, Any]:
    """Return gloo and ringlane through torch, by a job of their own."""
    say(f"{ranks} ranks, gloo and ringlane through torch")
    with tempfile.TemporaryDirectory(prefix="peers-") as directory:
        path = Path(directory) / "torch.json"
        job = [sys.executable, str(HERE / "torch_job.py"), str(path), "--seconds", "1"]
        job += ["--sizes", *map(str, TORCH_SIZES), *(["--ddp"] if ranks == 2 else [])]
        command = ["ringlane", "run", "-n", str(ranks), "--", *job]
        with subprocess.Popen(command, stdout=sys.stderr, start_new_session=True) as run:
            try:
                status = run.wait(600)
            finally:
                run.terminate()  # the launcher ends its ranks
        if status:
            sys.exit(f"bench-peers: through torch: the job ended with status {status} (look above)")
        return json.loads(path.read_text())


def machine() -> dict[str, Any]:
    """Describe this machine."""
    try:
        names = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    except OSError:
        names = []
    cpu = re.sub(r"\(R\)|\(TM\)| CPU| Processor|@.*", "", names[0] if names else platform.machine())
    pages = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return {
        "cpu": " ".join(cpu.split()),
        "cores": len(contenders.cores()),
        "memory_gib": round(pages / (1 << 30), 1),
        "kernel": platform.release(),
        "arch": platform.machine(),
    }


def nbytes(text: str) -> int:
    """Parse a size such as 8, 4K or 1M."""
    match = re.fullmatch(r"(\d+)([KM]?)", text.upper())
    if not match:
        raise argparse.ArgumentTypeError(f"{text!r} is no size (write 8, 4K or 1M)")
    return int(match[1]) << {"": 0, "K": 10, "M": 20}[match[2]]


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cores = len(contenders.cores())
    fitting = [n for n in (2, 4, 8) if n <= cores] or [2]
    add = parser.add_argument
    add("--ranks", type=int, nargs="+", default=fitting, help="2, 4 and 8 where there are cores")
    add("--sizes", type=nbytes, nargs="+", help="in bytes, such as 8 4K 1M (8 to 256M)")
    add("--dtypes", nargs="+", choices=DTYPES, help="both for allreduce, else f32")
    add("--collective", nargs="+", choices=COLLECTIVES, help="instead of allreduce")
    add("--all-collectives", action="store_true", help="each of them at four sizes")
    add("--peers", nargs="*", choices=PEERS, default=PEERS)
    add(
        "--rounds",
        type=int,
        default=7,
        help="turns of each contender at a size, in one mode of the machine (7)",
    )
    add("--seconds", type=float, default=1.0, help="of calls at a size, over all rounds (1)")
    add("--limit", type=float, default=60, help="seconds after which a turn has failed (60)")
    add("--keep-buffers", action="store_true", help="do not touch them between calls")
    add("--only", choices=("mpi", "torch"), help="one of the two parts")
    add("--peers-dir", type=Path, default=ROOT / "build" / "peers", metavar="DIR")
    add("--library", type=Path, default=ROOT / "build" / "libringlane.so", metavar="FILE")
    add("--out", type=Path, default=HERE, metavar="DIR", help="where JSON and plot go (bench)")
    options = parser.parse_args()
    if any(n < 2 for n in options.ranks) or options.rounds < 1 or options.seconds <= 0:
        parser.error("there must be 2 ranks or more, a round and some seconds")
    few = options.all_collectives or options.collective
    options.sizes = options.sizes or (FEW_SIZES if options.all_collectives else SIZES)
    options.dtypes = options.dtypes or (("f32",) if few else DTYPES)
    if options.all_collectives:
        options.collective = COLLECTIVES
    options.collective = options.collective or ("allreduce",)
    for collective, ranks in itertools.product(options.collective, options.ranks):
        part = 4 * (ranks if collective in IN_PARTS else 1)
        if any(size % part or not size for size in options.sizes):
            parser.error(f"sizes of {collective}, {ranks} ranks, must be multiples of {part} bytes")
    if few:
        options.only = "mpi"
    return options


def main() -> None:
    options = parse()
    # As an interrupt does: what is running is ended on the way out.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    if shutil.which("ringlane") is None:
        sys.exit("bench-peers: no ringlane in PATH (run it as: make bench-peers)")
    here = machine()
    record: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": here,
        "buffers": "kept" if options.keep_buffers else "read and written between calls",
        "rounds": options.rounds,
        "versions": {},
        "rows": [],
        "torch": [],
    }
    name = re.sub(r"[^a-z0-9]+", "-", f"{here['cpu']} {here['cores']} cores".lower()).strip("-")
    groups = []
    if options.only != "torch":
        programs: dict[str, Path] = {}
        library, to = options.library.resolve(), ROOT / "build" / "bench"
        for contender in (*options.peers, *WITH_WINDOWS):
            try:
                programs[contender] = contenders.build(contender, options.peers_dir, library, to)
            except Failed as why:
                say(f"{contender} is left out: {why}")
        for rows in compare(programs, options, record["versions"]):
            groups.append(rows)
            record["rows"] += rows
            print(report.table(rows), end="\n\n", flush=True)
    if options.only != "mpi":
        for ranks in options.ranks:
            record["torch"].append(through_torch(ranks, options))
            print(report.torch_table(record["torch"][-1]), end="\n\n", flush=True)

    options.out.mkdir(parents=True, exist_ok=True)
    what = "peers" if options.collective == ("allreduce",) else "collectives"
    path = options.out / f"{what}-{name}.json"
    path.write_text(json.dumps(record, indent=1) + "\n")
    written = [path.name]
    if groups:
        text = f"{here['cpu']}, {here['cores']} cores, Linux {here['kernel']}, {record['date']}"
        path.with_suffix(".svg").write_text(report.plot(groups, text))
        written.append(path.with_suffix(".svg").name)
    print(f"written to {options.out}: {', '.join(written)}")


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
