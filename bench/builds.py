"""Builds of bench/gopeer side by side: what a change is worth.

    go build -o /tmp/after ./bench/gopeer; git stash; go build -o /tmp/before ./bench/gopeer
    build/venv/bin/python bench/builds.py /tmp/before /tmp/after --sizes 8 4K 64K

All are started side by side and take turns at each size, in the loop of `make bench-peers`, and
then are started anew: where its memory lies makes a job up to a tenth faster or slower for as
long as it lives. Columns are the median of p50 in us, its ratio to the first build's, the range
of the starts' medians, and the median of p99. Turns are compared within one mode of the machine
(bench/modes.py).
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

import modes
from contenders import ROOT, Contender, Failed, Times, What
from peers import COLLECTIVES, DTYPES
from peers import nbytes as size

LIMIT = 60  # seconds of a turn, at most


def parse() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "builds", nargs="+", type=Path, help="programs, the one to compare with first"
    )
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--sizes", nargs="+", type=size, default=[8, 4 << 10, 64 << 10, 1 << 20])
    parser.add_argument("--dtype", choices=DTYPES, default="f32")
    parser.add_argument("--collective", choices=COLLECTIVES, default="allreduce")
    parser.add_argument("--window", action="store_true", help="buffers in a window")
    parser.add_argument("--starts", type=int, default=4, help="(%(default)s)")
    parser.add_argument("--rounds", type=int, default=2, help="of each start (%(default)s)")
    parser.add_argument("--seconds", type=float, default=0.1, help="of a turn (%(default)s)")
    options = parser.parse_args()
    if len({str(build) for build in options.builds}) < len(options.builds):
        parser.error("a build is named twice (copy it to another name)")
    return options


def take(options: argparse.Namespace) -> dict[int, dict[str, list[list[Times]]]]:
    """Return the turns: by size, build and start."""
    names = [str(build) for build in options.builds]
    taken = {n: {name: [] for name in names} for n in options.sizes}
    for start in range(options.starts):
        print(f"builds: start {start + 1} of {options.starts}", file=sys.stderr, flush=True)
        running: dict[str, Contender] = {}
        try:
            for build in options.builds:
                running[str(build)] = Contender("ringlane-go", build.resolve(), ROOT, options.ranks)
            for nbytes in options.sizes:
                what = What(options.collective, options.dtype, nbytes)
                for name in names:
                    taken[nbytes][name].append([])
                for turn in range(options.rounds):
                    for name in names if (start + turn) % 2 == 0 else reversed(names):
                        times = running[name].turn(
                            what, options.seconds, LIMIT, used=True, window=options.window
                        )
                        if times.wrong:
                            raise Failed(f"{name}: {times.wrong} elements of {what} are wrong")
                        taken[nbytes][name][-1].append(times)
        finally:
            for contender in running.values():
                contender.stop()
    return taken


def percentile(times: Times, part: float) -> float:
    """Return microseconds."""
    return sorted(times.seconds)[int(part * (len(times.seconds) - 1))] * 1e6


def show(nbytes: int, taken: dict[str, list[list[Times]]]) -> None:
    """Print a line a build, for each mode of the machine that all have seen."""
    turns = {name: [t for start in starts for t in start] for name, starts in taken.items()}
    tops = modes.levels(b for every in turns.values() for t in every for b in (t.before, t.after))
    seen = modes.seen(turns, tops, 1)
    if not seen:
        print(f"{nbytes:>10} the machine was in no mode for a turn of each (try more --starts)")
    for mode, part in seen.items():
        first = None
        for name, every in part.items():
            p50 = statistics.median(percentile(t, 0.5) for t in every)
            first = first or p50
            medians = [
                statistics.median(percentile(t, 0.5) for t in start if t in every)
                for start in taken[name]
                if any(t in every for t in start)
            ]
            p99 = statistics.median(percentile(t, 0.99) for t in every)
            print(
                f"{nbytes:>10} {mode:7} {name:30} {p50:10.3f}  {p50 / first:5.2f}  "
                f"[{min(medians):.3f} to {max(medians):.3f}]  p99 {p99:.3f}",
                flush=True,
            )


def main() -> int:
    options = parse()
    os.environ["PATH"] = f"{ROOT / 'build'}:{os.environ['PATH']}"
    try:
        taken_by_size = take(options)
        print(f"{'bytes':>10} {'':7} {'build':30} {'p50':>10}  ratio")
        for nbytes, taken in taken_by_size.items():
            show(nbytes, taken)
    except (Failed, OSError) as why:
        print(f"builds: {why}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
