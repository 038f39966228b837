"""AllReduce on GPUs beside NCCL and torch's symmetric memory, one process a GPU.

    make bench-gpu

Each contender is a job of its own: Ringlane and NCCL with peer access and without it
(RINGLANE_P2P=off, NCCL_P2P_DISABLE=1), symmetric memory's one-shot and two-shot kernels, which
need it. All run the same loop (bench/gpu_job.py): calls on the same kind of buffer, captured in
a CUDA graph of 20 calls or 100, the time of each replay taken by the GPU, on the slowest rank;
sums are verified before and after. Jobs take turns in rounds; p50 is the median of the rounds'.

Beside sizes there are the host's time of an eager call from Python, and a training step of a
transformer of 355 million parameters, with what communication adds to it.

NVLink multicast stays off, for all. Where a GPU is alone NCCL cannot run: Ringlane is measured
by itself, with several ranks that share the GPU, which says how it works and not how fast.

Tables go to standard output, everything to gpu-MACHINE.json and a plot beside it. Rows that are
not in our favour stay in all of them. Without a GPU nothing is measured, and that is no failure.
"""

from __future__ import annotations

import argparse
import contextlib
import datetime
import itertools
import json
import os
import platform
import re
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import gpu_report as report

HERE = Path(__file__).resolve().parent
SIZES = [8, 512, *(1 << shift for shift in range(12, 31, 2))]  # to 1 GiB
DTYPES = ("f32", "bf16")
# What each contender is told, beside its name.
CONTENDERS: dict[str, dict[str, str]] = {
    "ringlane": {},
    "nccl": {},
    "one_shot": {},
    "two_shot": {},
    "ringlane-host": {"RINGLANE_P2P": "off"},
    "nccl-host": {"NCCL_P2P_DISABLE": "1"},
}
ALL = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NCCL_DEBUG": "WARN",
    "OMP_NUM_THREADS": "4",
}
PARTS = ("sizes", "overhead", "ddp")


def say(text: str) -> None:
    """Show progress."""
    print(f"bench-gpu: {text}", file=sys.stderr, flush=True)


INTERRUPTED = "interrupted"


class Failed(Exception):
    """Why a job has no result."""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def stop(ranks: list[subprocess.Popen[bytes]]) -> None:
    """End all that still run."""
    for rank in ranks:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(rank.pid, signal.SIGKILL)
    for rank in ranks:
        rank.wait()


def job(
    name: str, arguments: list[str], options: argparse.Namespace
) -> tuple[list[dict[str, Any]], str]:
    """Run a contender's ranks; return what each found, and why that is not all."""
    with tempfile.TemporaryDirectory(prefix="gpu-") as directory:
        path = Path(directory) / "found"
        command = [sys.executable, str(HERE / "gpu_job.py"), str(path), *arguments]
        command += ["--contender", name.removesuffix("-host")]
        environment = {**os.environ, **ALL, **CONTENDERS[name]}
        environment |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        environment |= {"WORLD_SIZE": str(options.ranks), "LOCAL_WORLD_SIZE": str(options.ranks)}
        ranks = []
        try:
            for rank in range(options.ranks):
                numbers = {"RANK": str(rank), "LOCAL_RANK": str(rank)}
                ranks.append(
                    subprocess.Popen(
                        command,
                        env={**environment, **numbers},
                        stdin=subprocess.DEVNULL,
                        stdout=sys.stderr,
                        start_new_session=True,
                    )
                )
            why = finish(ranks, options.limit)
        except KeyboardInterrupt:
            why = INTERRUPTED
        finally:
            stop(ranks)
        paths = [path.with_suffix(f".{rank}") for rank in range(options.ranks)]
        if not all(p.exists() for p in paths):
            raise Failed(why or "no result (look above)")
        return [json.loads(p.read_text()) for p in paths], why


def finish(ranks: list[subprocess.Popen[bytes]], limit: float) -> str:
    """Wait until all have ended, or one has failed; return how."""
    end = time.monotonic() + limit
    while True:
        states = [rank.poll() for rank in ranks]
        for number, state in enumerate(states):
            if state:
                return f"rank {number} ended with status {state} (look above)"
        if None not in states:
            return ""
        if time.monotonic() > end:
            return f"not done after {limit:.0f} s (--limit)"
        time.sleep(0.1)


def turn(name: str, options: argparse.Namespace, first: bool) -> tuple[list[dict[str, Any]], str]:
    """Run a contender once: all sizes, and in the first round what is measured once."""
    arguments = ["--dtypes", *options.dtypes, "--seconds", str(options.seconds / options.rounds)]
    sizes = options.sizes if "sizes" in options.parts else []
    arguments += ["--sizes", *map(str, sizes)]
    shot = name in ("one_shot", "two_shot")
    if first and "overhead" in options.parts and not shot:
        arguments.append("--overhead")
    if first and "ddp" in options.parts and not shot:
        arguments.append("--ddp")
    return job(name, arguments, options)


def choices(name: str, options: argparse.Namespace) -> dict[tuple[str, int], dict[str, Any]]:
    """Return what each size of Ringlane's takes of a GPU, and its time without Python."""
    found = {}
    sizes = options.sizes if "sizes" in options.parts else []
    for dtype in options.dtypes if sizes else []:
        command = ["ringlane", "bench", "allreduce", "--device", "cuda", "-n", str(options.ranks)]
        command += ["--sizes", ",".join(map(str, sizes)), "--dtype", dtype, "--json", "--in-place"]
        try:
            done = subprocess.run(
                command,
                env={**os.environ, **CONTENDERS[name]},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                timeout=options.limit,
                check=True,
            )
            rows = json.loads(done.stdout)["rows"]
        except (OSError, subprocess.SubprocessError, ValueError) as why:
            say(f"{name}: what {dtype} takes of a GPU is not known: {why}")
            continue
        for row in rows:
            choice = {
                key: row[key] for key in ("algo", "protocol", "blocks", "threads") if key in row
            }
            found[dtype, row["bytes"]] = {**choice, "command_p50_us": row["p50_us"]}
    return found


def rows_of(
    rounds: dict[str, list[list[dict[str, Any]]]],
    failed: dict[str, str],
    options: argparse.Namespace,
) -> list[dict[str, Any]]:
    """Return a row for each type and size, of what the ranks found in all rounds."""
    rows = []
    sizes = options.sizes if "sizes" in options.parts else []
    cases = [(dtype, nbytes) for dtype in options.dtypes for nbytes in sizes]
    for i, (dtype, nbytes) in enumerate(cases):
        cells: dict[str, Any] = {}
        for name in options.contenders:
            if name in failed:
                cells[name] = {"failed": failed[name]}
                continue
            every = [[rank["rows"][i : i + 1] for rank in ranks] for ranks in rounds[name]]
            if not every or not all(row for ranks in every for row in ranks):
                cells[name] = {"failed": "not measured"}
                continue
            found = [report.cell([row[0] for row in ranks]) for ranks in every]
            bad = [cell for cell in found if "failed" in cell]
            cells[name] = bad[0] if bad else found[0]
            if not bad:
                cells[name]["p50_us"] = round(statistics.median(c["p50_us"] for c in found), 3)
                cells[name]["p99_us"] = max(c["p99_us"] for c in found)
        row = {"ranks": options.ranks, "dtype": dtype, "bytes": nbytes, "contenders": cells}
        rows.append({**row, "ways": report.rate(row)})
    return rows


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


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("parts", nargs="*", choices=[*PARTS, []], help="what to measure (all)")
    add("--ranks", type=int, help="one for each GPU; 2 where there is one")
    add("--sizes", type=nbytes, nargs="+", default=SIZES, help="such as 8 4K 1M (8 to 1G)")
    add("--dtypes", nargs="+", choices=DTYPES, default=DTYPES)
    add("--contenders", nargs="+", choices=CONTENDERS, default=list(CONTENDERS))
    add("--rounds", type=int, default=1, help="of all contenders (1)")
    add("--seconds", type=float, default=0.3, help="of calls at a size, over all rounds (0.3)")
    add("--limit", type=float, default=300, help="seconds after which a job has failed (300)")
    add("--out", type=Path, default=HERE, metavar="DIR", help="where JSON and plot go (bench)")
    options = parser.parse_args()
    options.parts = options.parts or PARTS
    if options.rounds < 1 or options.seconds <= 0 or (options.ranks or 2) < 2:
        parser.error("there must be 2 ranks or more, a round and some seconds")
    return options


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


def show(record: dict[str, Any], options: argparse.Namespace) -> list[list[dict[str, Any]]]:
    """Print the tables; return the rows by type."""
    groups = [[r for r in record["rows"] if r["dtype"] == dtype] for dtype in options.dtypes]
    groups = [rows for rows in groups if rows]
    for rows in groups:
        print(report.table(rows), end="\n\n")
    said = report.failures(record["rows"])
    said += [f"{k}: {why}" for k, why in record["ended"].items() if f"{k}: " not in "".join(said)]
    for text in said:
        print(f"  {text}")
    if record["overhead_us"]:
        print("The host's time of an eager all_reduce from Python, p50:")
        for name, us in record["overhead_us"].items():
            print(f"  {name:<16}{us:8.2f} us")
    if record["ddp"]:
        print(report.steps_table(record["ddp"]))
    return groups


def main() -> None:
    options = parse()
    # An interrupt ends what is running; what was measured until then is kept.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    here = machine(usable())
    count = len(here["gpus"])
    options.ranks = options.ranks or max(count, 2)
    if options.ranks > count:
        say(f"{options.ranks} ranks share {count} GPU(s): Ringlane alone, which NCCL cannot do")
        options.contenders = [n for n in options.contenders if n in report.OURS]
    rounds: dict[str, list[list[dict[str, Any]]]] = {name: [] for name in options.contenders}
    failed: dict[str, str] = {}  # without a result
    ended: dict[str, str] = {}  # before all was measured
    begun, why = time.monotonic(), ""
    for i, name in itertools.product(range(options.rounds), options.contenders):
        if name in failed or why == INTERRUPTED:
            continue
        say(f"{time.monotonic() - begun:4.0f} s: round {i + 1} of {options.rounds}: {name}")
        try:
            found, why = turn(name, options, first=i == 0)
            rounds[name].append(found)
        except Failed as failure:
            failed[name] = why = str(failure)
        if why:
            say(f"{name}: {why}")
            ended.setdefault(name, why)
    interrupted = why == INTERRUPTED
    done = {name: every[0] for name, every in rounds.items() if every}
    rows = rows_of(rounds, failed, options)
    for name in report.OURS:
        taken = choices(name, options) if name in options.contenders and not interrupted else {}
        for row in rows:
            row["contenders"].get(name, {}).update(taken.get((row["dtype"], row["bytes"]), {}))
    record: dict[str, Any] = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "machine": here,
        "ranks": options.ranks,
        "shared": options.ranks > count,
        "rounds": options.rounds,
        "ended": ended,
        "rows": rows,
        "overhead_us": {
            name: round(report.middle([rank["overhead_us"] for rank in ranks]), 3)
            for name, ranks in done.items()
            if "overhead_us" in ranks[0]
        },
        "ddp": report.steps(
            {
                name: [rank["ddp"] for rank in ranks]
                for name, ranks in done.items()
                if "ddp" in ranks[0]
            }
        ),
    }
    groups = show(record, options)
    name = re.sub(r"[^a-z0-9]+", "-", f"{count} {here['gpus'][0]}".lower()).strip("-")
    options.out.mkdir(parents=True, exist_ok=True)
    out = options.out / f"gpu-{name}.json"
    out.write_text(json.dumps(record, indent=1) + "\n")
    if groups:
        text = f"{count} x {here['gpus'][0]}, driver {here['driver']}, {record['date']}"
        out.with_suffix(".svg").write_text(report.plot(groups, text))
    say(f"written: {out}")
    if any("wrong elements" in why for why in report.failures(record["rows"])):
        sys.exit("bench-gpu: sums are wrong (look above)")
    if interrupted:
        sys.exit(128 + signal.SIGINT)


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
