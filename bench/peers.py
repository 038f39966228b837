"""AllReduce beside gloo of the installed torch, in one run, size by size.

    make bench-peers

Every row is measured in one job: the same processes, the same tensors, the backends taking
turns at every size, so that what else the machine does hits both alike. A call is timed as
the engine's own bench does it: barrier, clock, call, clock, and the slowest rank counts.
The column "engine" is `ringlane bench allreduce`, without Python and torch.

The table goes to standard output, and everything to bench/peers-MACHINE.json; rows that are
not in our favour stay in both.
"""

from __future__ import annotations

import argparse
import datetime
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

HERE = Path(__file__).resolve().parent
SIZES = [8 << (3 * i) for i in range(8)] + [64 << 20]  # 8 B to 16 MiB by factors of 8, 64 MiB
SECONDS = 1.0  # of timed calls a size and backend
CALLS = (8, 3000)


def measure(path: Path) -> None:
    """Time both backends on this rank; rank 0 writes the p50 of each size to path.

    All ranks of the job call it.
    """
    import torch  # noqa: PLC0415  the launching process needs none of these
    import torch.distributed as dist  # noqa: PLC0415

    import ringlane.torch  # noqa: PLC0415

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = dist.TCPStore(host, port, size, is_master=rank == 0)
    dist.init_process_group("gloo", rank=rank, world_size=size, store=store)
    ours = dist.new_group(backend=ringlane.torch.BACKEND)
    groups = {"gloo": dist.group.WORLD, "ringlane": ours}

    def timed(group: dist.ProcessGroup, data: torch.Tensor, calls: int) -> torch.Tensor:
        times = torch.empty(calls, dtype=torch.float64)
        for i in range(calls):
            data.fill_(1.0)
            dist.barrier(group=ours)
            begin = time.perf_counter()
            dist.all_reduce(data, group=group)
            times[i] = time.perf_counter() - begin
        assert data[0] == size and data[-1] == size, "the sum is wrong"  # noqa: S101
        dist.all_reduce(times, dist.ReduceOp.MAX, group=ours)
        return times

    rows = []
    for nbytes in SIZES:
        data = torch.ones(nbytes // 4)
        row: dict[str, Any] = {"bytes": nbytes}
        took: dict[str, list[torch.Tensor]] = {name: [] for name in groups}
        calls = dict.fromkeys(groups, 0)
        for name, group in groups.items():
            pilot = timed(group, data, 5).median().item()
            calls[name] = int(min(max(SECONDS / pilot, CALLS[0]), CALLS[1]))
        for _ in range(4):
            for name, group in groups.items():
                took[name].append(timed(group, data, calls[name] // 4))
        for name, parts in took.items():
            times = torch.cat(parts)
            row[name] = {
                "calls": len(times),
                **{
                    key: times.quantile(q).item() * 1e6
                    for key, q in (("p50_us", 0.5), ("p99_us", 0.99))
                },
            }
        rows.append(row)
        if rank == 0:
            print(f"\r{size} ranks: {nbytes:>10,} bytes done", end="", file=sys.stderr, flush=True)
    if rank == 0:
        print(file=sys.stderr)
        path.write_text(json.dumps({"torch": torch.__version__, "rows": rows}))
    dist.destroy_process_group()


def side_by_side(binary: str, ranks: int) -> dict[str, Any]:
    """Return the rows for a number of ranks, with the engine's own p50 in each."""
    path = HERE / f".peers-{os.getpid()}.json"
    try:
        job = [sys.executable, __file__, "--measure", str(path)]
        subprocess.run([binary, "run", "-n", str(ranks), "--", *job], check=True)
        measured = json.loads(path.read_text())
    finally:
        path.unlink(missing_ok=True)
    sizes = ",".join(map(str, SIZES))
    engine = json.loads(
        subprocess.run(
            [
                binary,
                "bench",
                "allreduce",
                "-n",
                str(ranks),
                "--in-place",
                "--sizes",
                sizes,
                "--json",
            ],
            check=True,
            stdout=subprocess.PIPE,
        ).stdout
    )
    by_size = {row["bytes"]: row for row in engine["rows"]}
    for row in measured["rows"]:
        row["engine"] = by_size[row["bytes"]]
    return {"ranks": ranks, "machine": engine["machine"], **measured}


def table(result: dict[str, Any]) -> str:
    """Return the rows as text: p50 in microseconds, and how many times faster than gloo."""
    lines = [
        f"AllReduce of float32, {result['ranks']} ranks, p50 in us; torch {result['torch']}",
        f"{'bytes':>11}{'gloo':>12}{'ringlane':>12}{'engine':>12}{'x':>9}{'x engine':>10}",
    ]
    for row in result["rows"]:
        gloo, ours, engine = (row[name]["p50_us"] for name in ("gloo", "ringlane", "engine"))
        lines.append(
            f"{row['bytes']:>11}{gloo:>12.1f}{ours:>12.1f}{engine:>12.1f}"
            f"{gloo / ours:>9.1f}{gloo / engine:>10.1f}"
        )
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("-n", "--ranks", type=int, nargs="+", default=[2, 4])
    parser.add_argument("--measure", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.measure:
        measure(options.measure)
        return
    binary = shutil.which("ringlane")
    if binary is None:
        sys.exit("bench: no ringlane in PATH (run it as: make bench-peers)")
    results = []
    for ranks in options.ranks:
        results.append(side_by_side(binary, ranks))
        print(table(results[-1]), end="\n\n", flush=True)
    machine = results[0]["machine"]
    kind = re.sub(r"[^a-z0-9]+", "-", f"{machine['cpu']} {machine['cores']} cores".lower()).strip(
        "-"
    )
    path = HERE / f"peers-{kind}.json"
    record = {
        "date": datetime.datetime.now(datetime.timezone.utc).date().isoformat(),
        "python": platform.python_version(),
        "results": results,
    }
    path.write_text(json.dumps(record, indent=1) + "\n")
    print(f"written to {path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path}")


if __name__ == "__main__":
    main()
