"""Collectives on GPUs: measured beside NCCL and torch's symmetric memory, verified, broken.

    make bench-gpu

Sizes, overhead and ddp: each contender is a job of its own, Ringlane and NCCL with peer access
and without it (RINGLANE_P2P=off, NCCL_P2P_DISABLE=1), symmetric memory's kernels, which need it.
All run the same loop (bench/gpu_job.py): calls on the same kind of buffer, captured in a CUDA
graph of 20 calls, 100 of small messages or 5 of more than 10 ms, the time of each replay taken
by the GPU, on the slowest rank; results are verified before and after. Jobs take turns in
rounds; p50 is the median of the rounds'. Beside that there are the host's time of an eager call
from Python, and a training step of a transformer of 355 million parameters, with what
communication adds to it, and what sums and other work take beside each other. NVLink
multicast stays off, for all.

Topology: what `ringlane topo --measure` says. Faults: a rank is frozen, and in another job
killed, in the middle of an AllReduce of 64 MiB: what the others say of it, and when, and whether
they can go on. Random: calls of all kinds with random lengths, types, operators, roots,
alignments and streams, all results verified. Choices: what is built in beside the best fixed
choice (`ringlane bench --check`).

All that is done for each number of ranks, the most important first; with --budget what does not
fit is left out, and named. Where there are more ranks than GPUs they share them, which says how
Ringlane works and not how fast; NCCL cannot do that and is left out.

Tables go to standard output, everything to gpu-MACHINE.json and a plot beside it. Rows that are
not in our favour stay in all of them. The file is written after every step, and an interrupt
loses nothing that was measured. The exit status is 1 if a result was wrong, or a lost rank not
named. Without a GPU nothing is measured, and that is no failure.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import math
import os
import platform
import random
import re
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpu_tables as tables
from gpu_parts import CONTENDERS, Parts
from gpu_plan import perform, say
from gpu_plot import plot
from gpu_record import Record

HERE = Path(__file__).resolve().parent
SIZES = [8, 512, *(1 << shift for shift in range(12, 31, 2))]  # to 1 GiB
DTYPES = ("f32", "bf16")
COLLECTIVES = ("allreduce", "reducescatter", "allgather", "alltoall")
PARTS = ("topology", "sizes", "overhead", "ddp", "faults", "random", "choices")


def machine(torch: Any) -> dict[str, Any]:
    """Describe this machine."""
    gpus = [torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())]
    names = []
    with contextlib.suppress(OSError):
        names = re.findall(r"model name\s*:\s*(.*)", Path("/proc/cpuinfo").read_text())
    driver = "unknown"
    with contextlib.suppress(OSError):
        said = Path("/proc/driver/nvidia/version").read_text()
        driver = (re.findall(r"\s(\d+\.\d+(?:\.\d+)?)\s", said) or [driver])[0]
    return {
        "gpus": gpus,
        "driver": driver,
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "nccl": ".".join(map(str, torch.cuda.nccl.version())),
        "cpu": names[0] if names else platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "kernel": platform.release(),
    }


def nbytes(text: str) -> int:
    """Parse a size such as 8, 4K, 1M or 1G."""
    match = re.fullmatch(r"(\d+)([KMG]?)", text.upper())
    if not match or int(match[1]) == 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no size (write 8, 4K, 1M or 1G)")
    size = int(match[1]) << {"": 0, "K": 10, "M": 20, "G": 30}[match[2]]
    if size % 8:
        raise argparse.ArgumentTypeError(f"{text!r} is not a multiple of 8 bytes")
    return size


def parse(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("parts", nargs="*", choices=[*PARTS, []], help="what to measure (all)")
    add("--ranks", type=int, nargs="+", help="one for each GPU; 2 where there is one")
    add("--sizes", type=nbytes, nargs="+", help="such as 8 4K 1M (8 to 1G)")
    add("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    add("--collectives", nargs="+", choices=COLLECTIVES, default=COLLECTIVES)
    add("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    add("--calls", type=int, default=2000, help="random calls (2000)")
    add("--seed", type=int, help="of random calls (a random one)")
    add("--rounds", type=int, default=1, help="of all contenders (1)")
    add("--seconds", type=float, default=0.15, help="of calls at a size, over all rounds (0.15)")
    add("--limit", type=float, default=300, help="seconds after which a job has failed (300)")
    add("--budget", type=float, default=math.inf, help="seconds in which all of it has to end")
    add("--out", type=Path, default=HERE, metavar="DIR", help="where JSON and plot go (bench)")
    add("--name", help="for MACHINE in their names")
    add("--show", type=Path, metavar="FILE", help="print the tables of such a JSON, and end")
    add("--markdown", type=Path, metavar="FILE", help="print its times as Markdown, and end")
    options = parser.parse_args(arguments)
    options.parts = options.parts or PARTS
    if options.rounds < 1 or options.seconds <= 0 or min(options.ranks or [2]) < 2:
        parser.error("there must be 2 ranks or more, a round and some seconds")
    if options.seed is None:
        options.seed = random.randrange(1 << 31)  # noqa: S311
    options.cases = cases(options) if "sizes" in options.parts else []
    return options


def cases(options: argparse.Namespace) -> list[tuple[str, str, int]]:
    """Return collective, type and size of each row: of allreduce all sizes, else every other."""
    found = []
    for collective in options.collectives:
        sizes = options.sizes or (SIZES if collective == "allreduce" else SIZES[::2] + SIZES[-1:])
        found += itertools.product([collective], options.dtypes, sizes)
    return found


def usable() -> Any:
    """Return torch, or end: without a GPU there is nothing to measure."""
    try:
        import torch  # noqa: PLC0415
    except ImportError:
        print("bench-gpu: skipped: there is no torch here (the loop and NCCL are torch's)")
        sys.exit(0)
    if not torch.cuda.is_available() or not torch.cuda.device_count():
        print(
            "bench-gpu: skipped: torch sees no CUDA GPU here (nvidia-smi says what the driver sees)"
        )
        sys.exit(0)
    return torch


def interrupts(handler: Any) -> None:
    """Set what comes of what people and machines end programs with."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, handler)


def interrupted(*_: object) -> None:
    """End what is running, and hear no further signal: what is left to do is short."""
    interrupts(signal.SIG_IGN)
    raise KeyboardInterrupt


def main() -> None:
    options = parse()
    for path, show in ((options.show, tables.text), (options.markdown, tables.markdown)):
        if path:
            print(show(json.loads(path.read_text())))
            return
    here = machine(usable())
    gpus = here["gpus"]
    options.ranks = options.ranks or [max(len(gpus), 2)]
    options.gpus = len(gpus)
    if max(options.ranks) > len(gpus):
        say(
            f"{max(options.ranks)} ranks share {len(gpus)} GPU(s): Ringlane alone, which NCCL "
            "cannot do; the times say how it works and not how fast"
        )
    about = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": here,
        "options": {k: v for k, v in vars(options).items() if not isinstance(v, Path)},
        "rounds": options.rounds,
    }
    name = re.sub(r"[^a-z0-9]+", "-", f"{len(gpus)} {gpus[0]}".lower()).strip("-")
    path = options.out / f"gpu-{options.name or name}.json"
    record = Record(path, about, options.cases, options.contenders)
    interrupts(interrupted)
    status: int | str = 0
    try:
        perform(Parts(options, record).steps(), options.budget, record)
    except KeyboardInterrupt:
        status = 128 + signal.SIGINT
    finally:
        interrupts(signal.SIG_IGN)
        record.save()
        found = record.found()
        print(tables.text(found), flush=True)
        if picture := plot(found):
            path.with_suffix(".svg").write_text(picture)
        say(f"written: {path}")
    if tables.faults(found):
        status = "bench-gpu: something is wrong (look above)"
    sys.exit(status)


if __name__ == "__main__":
    main()
