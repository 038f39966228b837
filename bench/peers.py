"""AllReduce beside Open MPI, MPICH and Intel MPI, and beside gloo through torch.

    make bench-peers

The first part needs no Python in the ranks: one C program (bench/peers.c) runs the same loop
over each library: barrier, clock, call, clock; the slowest rank counts. All libraries are
started side by side and take turns at each size in several rounds, so that what else the
machine does meets all alike. Ringlane is measured with ordinary buffers and, where its C
interface allocates them, with buffers in a window. The ranks write their input anew before
each call, outside the clock, as a training step does; --keep-input leaves that out.

The second part is gloo and ringlane through torch, in one job and on the same tensors: eager
calls, and what communication costs a training step of 25 million parameters.

The tables go to standard output, everything to bench/peers-MACHINE.json, and a plot beside
it. Rows that are not in our favour stay in all of them.

Without a network: carry the directories openmpi, mpich and impi of build/peers along and name
their parent with --peers-dir; each MPI finds what belongs to it by where it lies. Needed are
of each bin, include and lib, of Open MPI share too, of Intel MPI opt/mpi/etc. The plugins of
network hardware (lib/*/libfabric, lib/*/ucx/libuct_ib*) and python* may stay behind; stripped,
the rest is 55 MB, or 17 MB as .tar.xz. gcc must be there, and the loopback interface up. A
peer that is not there is left out, and said so.
"""

from __future__ import annotations

import argparse
import datetime
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
import report
from contenders import Contender, Failed, Times

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent
SIZES = [8, 64, 256, *(1 << shift for shift in range(10, 29, 2))]  # to 256 MiB
TORCH_SIZES = [8 << (3 * i) for i in range(8)] + [64 << 20]
DTYPES = ("f32", "bf16")
PEERS = ("openmpi", "mpich", "impi")


def say(text: str) -> None:
    """Show progress."""
    print(f"bench-peers: {text}", file=sys.stderr, flush=True)


class Field:
    """The contenders of one number of ranks; one that fails is started again."""

    def __init__(self, programs: dict[str, Path], peers: Path, ranks: int) -> None:
        self.programs, self.peers, self.ranks = programs, peers, ranks
        self.running: dict[str, Contender] = {}
        self.failures: dict[str, str] = {}
        self.versions: dict[str, str] = {}
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
            self.failures.pop(name, None)

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


def row(field: Field, nbytes: int, dtype: str, options: argparse.Namespace) -> dict[str, Any]:
    """Measure one size: every contender once a round, in a new order each round."""
    field.start()
    entries = [(name, False) for name in field.programs]
    if "ringlane" in field.programs and contenders.has_windows():
        entries.append(("ringlane", True))
    taken: dict[str, list[Times]] = {}
    for i in range(options.rounds):
        first = i % len(entries)
        for name, window in entries[first:] + entries[:first]:
            if name not in field.running:
                continue
            try:
                times = field.running[name].turn(
                    nbytes,
                    dtype,
                    options.seconds / options.rounds,
                    options.limit,
                    fresh=not options.keep_input,
                    window=window,
                )
                taken.setdefault("window" if window else name, []).append(times)
            except Failed as why:
                field.fail(name, why)
    cells: dict[str, Any] = {}
    for name, window in entries:
        label = "window" if window else name
        if name in field.failures:
            cells[label] = {"failed": field.failures[name]}
            continue
        turns = taken[label]
        cells[label] = {
            **report.summary([times.seconds for times in turns]),
            "wrong": sum(times.wrong for times in turns),
            "reduced_by": turns[0].reduced_by,
        }
        if wrong := cells[label]["wrong"]:
            say(f"{label}, {field.ranks} ranks: {wrong} wrong elements")
            cells[label] = {"failed": f"{wrong} wrong elements"}
    barriers = sorted(times.barrier for turns in taken.values() for times in turns)
    found = {"ranks": field.ranks, "dtype": dtype, "bytes": nbytes}
    found["oversubscribed"] = field.ranks > len(contenders.cpus())
    if barriers:
        found["barrier_us"] = round(report.quantile(barriers, 0.5) * 1e6, 3)
    return {**found, "contenders": cells, **report.rate(cells)}


def compare(
    programs: dict[str, Path], options: argparse.Namespace, versions: dict[str, str]
) -> Iterator[list[dict[str, Any]]]:
    """Yield the rows of each number of ranks and type."""
    for ranks in options.ranks:
        field = Field(programs, options.peers_dir, ranks)
        try:
            for dtype in options.dtypes:
                rows = []
                for nbytes in options.sizes:
                    say(f"{ranks} ranks, {dtype}, {report.size(nbytes)}")
                    rows.append(row(field, nbytes, dtype, options))
                versions |= field.versions
                yield rows
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
        "cores": len(contenders.cpus()),
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
    cores = len(contenders.cpus())
    fitting = [n for n in (2, 4, 8) if n <= cores] or [2]
    add = parser.add_argument
    add("--ranks", type=int, nargs="+", default=fitting, help="2, 4 and 8 where there are cores")
    add("--sizes", type=nbytes, nargs="+", default=SIZES, help="in bytes, such as 8 4K 1M")
    add("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    add("--peers", nargs="*", choices=PEERS, default=PEERS)
    add("--rounds", type=int, default=7, help="turns of each contender at a size (7)")
    add("--seconds", type=float, default=1.0, help="of calls at a size, over all rounds (1)")
    add("--limit", type=float, default=60, help="seconds after which a turn has failed (60)")
    add("--keep-input", action="store_true", help="do not write the input before each call")
    add("--only", choices=("mpi", "torch"), help="one of the two parts")
    add("--peers-dir", type=Path, default=ROOT / "build" / "peers", metavar="DIR")
    add("--library", type=Path, default=ROOT / "build" / "libringlane.so", metavar="FILE")
    add("--out", type=Path, default=HERE, metavar="DIR", help="where JSON and plot go (bench)")
    options = parser.parse_args()
    if any(n < 2 for n in options.ranks) or options.rounds < 1 or options.seconds <= 0:
        parser.error("there must be 2 ranks or more, a round and some seconds")
    if any(size % 4 or not size for size in options.sizes):
        parser.error("sizes must be multiples of 4 bytes")
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
        "input": "kept" if options.keep_input else "written before each call",
        "rounds": options.rounds,
        "versions": {},
        "allreduce": [],
        "torch": [],
    }
    name = re.sub(r"[^a-z0-9]+", "-", f"{here['cpu']} {here['cores']} cores".lower()).strip("-")
    groups = []
    if options.only != "torch":
        programs: dict[str, Path] = {}
        library, to = options.library.resolve(), ROOT / "build" / "bench"
        for contender in (*options.peers, "ringlane"):
            try:
                programs[contender] = contenders.build(contender, options.peers_dir, library, to)
            except Failed as why:
                say(f"{contender} is left out: {why}")
        for rows in compare(programs, options, record["versions"]):
            groups.append(rows)
            record["allreduce"] += rows
            print(report.table(rows), end="\n\n", flush=True)
    if options.only != "mpi":
        for ranks in options.ranks:
            record["torch"].append(through_torch(ranks, options))
            print(report.torch_table(record["torch"][-1]), end="\n\n", flush=True)

    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"peers-{name}.json"
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
