"""What is said of the measured times: quantiles, rows, ratios, tables and the plot."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

# Ours by interface and buffers, as tables head them.
OURS = {
    "ringlane-c": "C",
    "ringlane-c-window": "C window",
    "ringlane-go": "Go",
    "ringlane-go-window": "Go window",
}
# Loops that do a library's copies and nothing else: what the machine takes.
BARE = {"bare": "bare", "bare-window": "bare window"}
ENOUGH_FOR_P999 = 5000


def quantile(ordered: Sequence[float], q: float) -> float:
    """Return the smallest of the ordered values that at least the share q does not exceed."""
    return ordered[max(0, math.ceil(q * len(ordered)) - 1)]


def summary(rounds: Sequence[Sequence[float]]) -> dict[str, Any]:
    """Return p50, p99 and, of enough calls, p99.9 in microseconds of the rounds' seconds.

    p50 is the median of the rounds' own, so that one slow spell of the machine does not
    decide it; the tails are those of all calls together.
    """
    middles = [quantile(sorted(calls), 0.5) * 1e6 for calls in rounds]
    every = sorted(seconds for calls in rounds for seconds in calls)
    found = {
        "calls": len(every),
        "p50_us": round(statistics.median(middles), 3),
        "p99_us": round(quantile(every, 0.99) * 1e6, 3),
        "rounds_p50_us": [round(middle, 3) for middle in middles],
    }
    if len(every) >= ENOUGH_FOR_P999:
        found["p999_us"] = round(quantile(every, 0.999) * 1e6, 3)
    return found


def rate(contenders: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """Return the best peer of a row, and our and bare times as a share of the best peer's.

    The best p50 and the best p99 may be of different peers.
    """
    peers = {k: v for k, v in contenders.items() if k not in OURS | BARE and "p50_us" in v}
    if not peers:
        return {}
    best = {key: min(peers, key=lambda name: peers[name][key]) for key in ("p50_us", "p99_us")}
    ratios = {
        name: {
            key.removesuffix("_us"): round(contenders[name][key] / peers[best[key]][key], 3)
            for key in best
        }
        for name in OURS | BARE
        if "p50_us" in contenders.get(name, {})
    }
    return {"best_peer": {k.removesuffix("_us"): v for k, v in best.items()}, "ratio": ratios}


def micros(value: float) -> str:
    """Return microseconds with three digits that count: 0.26, 17.3, 42500."""
    if value >= 1000:
        return f"{float(f'{value:.3g}'):.0f}"
    return f"{value:.{2 if value < 10 else 1 if value < 100 else 0}f}"


def size(nbytes: int) -> str:
    """Return a number of bytes as people write it: 8 B, 64 KiB."""
    for unit, shift in (("MiB", 20), ("KiB", 10)):
        if nbytes >> shift and nbytes % (1 << shift) == 0:
            return f"{nbytes >> shift} {unit}"
    return f"{nbytes} B"


def title(row: dict[str, Any]) -> str:
    """Return what the rows with this one measure."""
    reduces = row["collective"] in ("allreduce", "reducescatter")
    what = f"sum of {row['dtype']}" if reduces else row["dtype"]
    crowd = ", more ranks than cores" if row["oversubscribed"] else ""
    return f"{row['collective']}, {what}, {row['ranks']} ranks{crowd}"


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of one number of ranks, collective and type.

    A peer's cell has p50 / p99, with b at the best p50 and u where a user's function made the
    sums. Ours have p50, and p50 and p99 as shares of the best peer's: below 1 we are faster.
    Bare loops have p50 and its share: about what copying can reach, and no bound.
    """
    names = list(rows[0]["contenders"])
    lines = [["bytes", "barrier", *((OURS | BARE).get(name, name) for name in names)]]
    for row in rows:
        barrier = micros(row["barrier_us"]) if "barrier_us" in row else "-"
        cells = [size(row["bytes"]), f"{barrier} {row.get('mode', '')}".strip()]
        for name in names:
            got = row["contenders"].get(name, {})
            if "p50_us" not in got:
                cells.append("failed")
            elif name in BARE:
                ratio = row.get("ratio", {}).get(name)
                share = f"  {ratio['p50']:.2f}" if ratio else ""
                cells.append(micros(got["p50_us"]) + share)
            elif name in OURS:
                ratio = row.get("ratio", {}).get(name)
                shares = f"  {ratio['p50']:.2f}/{ratio['p99']:.2f}" if ratio else ""
                cells.append(micros(got["p50_us"]) + shares)
            else:
                best = row.get("best_peer", {}).get("p50") == name
                marks = "b" * best + "u" * (got.get("how") == "user-function")
                cells.append(f"{marks} {micros(got['p50_us'])} / {micros(got['p99_us'])}".strip())
        lines.append(cells)
    widths = [max(map(len, column)) for column in zip(*lines)]
    return "\n".join(
        [
            f"{title(rows[0])}; in us, peers: p50 / p99, b the best; bare loops, and Ringlane from "
            "C and Go: p50, and p50/p99 over the best peer's",
            *("  ".join(c.rjust(w) for c, w in zip(cells, widths)) for cells in lines),
        ]
    )


def torch_table(result: dict[str, Any]) -> str:
    """Return the rows of eager calls through torch, and the training steps below them."""
    lines = [
        f"Through torch {result['torch']}, eager all_reduce of float32 in place, "
        f"{result['ranks']} ranks: p50 / p99 in us",
        f"{'bytes':>10}{'gloo':>20}{'ringlane':>20}{'x':>8}",
    ]
    for row in result["rows"]:
        cells = [
            f"{micros(row[name]['p50_us'])} / {micros(row[name]['p99_us'])}"
            for name in ("gloo", "ringlane")
        ]
        ratio = row["ringlane"]["p50_us"] / row["gloo"]["p50_us"]
        lines.append(f"{size(row['bytes']):>10}{cells[0]:>20}{cells[1]:>20}{ratio:>8.3f}")
    if ddp := result.get("ddp"):
        gloo, ours = ddp["gloo"], ddp["ringlane"]
        lines += [
            f"DistributedDataParallel, {ddp['parameters'] / 1e6:.1f} million parameters, a step "
            f"without communication {ddp['alone_ms']:.1f} ms; in ms, and ringlane to gloo:",
            *(
                f"  {text:<44}{gloo[key]:>10.1f}{ours[key]:>10.1f}{ours[key] / gloo[key]:>8.3f}"
                for key, text in (
                    ("step_ms", "step"),
                    ("added_ms", "what communication adds to the step"),
                    ("buckets_ms", "all buckets, none of them overlapped"),
                )
            ),
        ]
    return "\n".join(lines)


# The plot: a panel for each number of ranks, collective and type, time over size, both
# logarithmic. A size that was measured in several modes of the machine is shown in the nearest
# one. Ours are thick, from C dashed.

COLOURS = {
    "openmpi": "#8c6d31",
    "mpich": "#7b4173",
    "impi": "#3182bd",
    "bare": "#999999",
    "bare-window": "#999999",
    "ringlane-go": "#e6550d",
    "ringlane-c": "#e6550d",
    "ringlane-go-window": "#31a354",
    "ringlane-c-window": "#31a354",
}
LABELS = {
    "openmpi": "Open MPI",
    "mpich": "MPICH",
    "impi": "Intel MPI",
    "bare": "Bare loops",
    "bare-window": "in a window",
    "ringlane-go": "Ringlane, ordinary buffers",
    "ringlane-c": "from C",
    "ringlane-go-window": "Ringlane, buffers in a window",
    "ringlane-c-window": "from C",
}
DASHED = ("ringlane-c", "ringlane-c-window", "bare-window")
PANEL_W, PANEL_H, LEFT, TOP, GAP_X, GAP_Y = 400, 280, 64, 132, 84, 66


def stroke(name: str) -> str:
    """Return how a contender's line is drawn."""
    dashes = ' stroke-dasharray="6 4"' if name in DASHED else ""
    return f'stroke="{COLOURS[name]}" stroke-width="{2.6 if name in OURS else 1.8}"{dashes}'


def plot(groups: Sequence[Sequence[dict[str, Any]]], machine: str, columns: int = 2) -> str:
    """Return an SVG with a panel for each group of rows (one number of ranks, one type)."""
    groups = [list({row["bytes"]: row for row in reversed(rows)}.values())[::-1] for rows in groups]
    names = [name for name in LABELS if any(name in row["contenders"] for row in groups[0])]
    columns = min(columns, len(groups))
    width = LEFT + columns * PANEL_W + (columns - 1) * GAP_X + 34
    height = TOP + math.ceil(len(groups) / columns) * (PANEL_H + GAP_Y)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">Median time of a call</text>',
        f'<text x="{LEFT}" y="42" fill="#555555">{escape(machine)}</text>',
    ]
    for y, legend in zip(
        (62, 82, 102), ([n for n in names if n not in OURS], list(OURS)[::2], list(OURS)[1::2])
    ):
        x = float(LEFT)
        for name in (name for name in LABELS if name in names and name in legend):
            out.append(
                f'<line x1="{x:.0f}" y1="{y}" x2="{x + 26:.0f}" y2="{y}" {stroke(name)}/>'
                f'<text x="{x + 32:.0f}" y="{y + 4}">{LABELS[name]}</text>'
            )
            x += 50 + 6.4 * len(LABELS[name])
    for i, rows in enumerate(groups):
        left = LEFT + i % columns * (PANEL_W + GAP_X)
        top = TOP + 14 + i // columns * (PANEL_H + GAP_Y)
        out += _panel(rows, names, left, top)
    return "\n".join([*out, "</svg>", ""])


def micros_axis(power: int) -> str:
    """Return 10 to a power of microseconds in the unit of its size: 0.1 us, 10 ms, 1 s."""
    scale, unit = (0, "us") if power < 3 else (3, "ms") if power < 6 else (6, "s")
    return f"{10.0 ** (power - scale):g} {unit}"


def _panel(rows: Sequence[dict[str, Any]], names: Sequence[str], left: int, top: int) -> list[str]:
    sizes = [row["bytes"] for row in rows]
    times = [
        row["contenders"][name]["p50_us"]
        for row in rows
        for name in names
        if "p50_us" in row["contenders"].get(name, {})
    ]
    low, high = (
        (math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))) if times else (0, 1)
    )
    span = math.log2(sizes[-1] / sizes[0]) or 1

    def across(nbytes: int) -> float:
        return left + math.log2(nbytes / sizes[0]) / span * PANEL_W

    def up(us: float) -> float:
        return top + PANEL_H - (math.log10(us) - low) / (high - low) * PANEL_H

    out = [f'<text x="{left}" y="{top - 8}" font-weight="bold">{title(rows[0])}</text>']
    for power in range(low, high + 1):
        y = up(10.0**power)
        unit = micros_axis(power)
        out.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + PANEL_W}" y2="{y:.1f}" stroke="#dddddd"/>'
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555555">{unit}</text>'
        )
    for i, nbytes in enumerate(sizes):
        x = across(nbytes)
        out.append(
            f'<line x1="{x:.1f}" y1="{top}" x2="{x:.1f}" y2="{top + PANEL_H}" stroke="#eeeeee"/>'
        )
        if i % 2 == 0:
            out.append(
                f'<text x="{x:.1f}" y="{top + PANEL_H + 18}" text-anchor="middle" '
                f'fill="#555555">{size(nbytes)}</text>'
            )
    for name in names:
        points = [
            (across(row["bytes"]), up(row["contenders"][name]["p50_us"]))
            for row in rows
            if "p50_us" in row["contenders"].get(name, {})
        ]
        if not points:
            continue
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        out.append(
            f'<polyline points="{line}" fill="none" {stroke(name)} stroke-linejoin="round"/>'
        )
        out += [
            f'<circle cx="{x:.1f}" cy="{y:.1f}" r="{2.8 if name in OURS else 2.2}" '
            f'fill="{COLOURS[name]}"/>'
            for x, y in points
        ]
    return out
