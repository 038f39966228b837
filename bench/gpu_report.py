"""What is said of times on GPUs: the slowest rank, ratios, tables and the plot."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from html import escape
from typing import Any

from report import micros, micros_axis, quantile, size

# The two ways, and who is compared on each, ours first. A contender is a program, and what
# is said to it about peer access.
WAYS = {
    "peer": ("ringlane", "nccl", "one_shot", "two_shot"),
    "host": ("ringlane-host", "nccl-host"),
}
OURS = ("ringlane", "ringlane-host")
LABELS = {
    "ringlane": "Ringlane",
    "ringlane-host": "Ringlane",
    "nccl": "NCCL",
    "nccl-host": "NCCL",
    "one_shot": "symm. one-shot",
    "two_shot": "symm. two-shot",
}
TITLES = {"peer": "peer access", "host": "no peer access"}


def cell(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what one row of every rank comes to: each replay counts as on its slowest rank."""
    for row in ranks:
        if "failed" in row:
            return {"failed": row["failed"]}
    if errors := sum(row["wrong"] for row in ranks):
        return {"failed": f"{errors} wrong elements"}
    slowest = sorted(max(times) for times in zip(*(row["us"] for row in ranks)))
    return {
        "p50_us": round(quantile(slowest, 0.5), 3),
        "p99_us": round(quantile(slowest, 0.99), 3),
        "replays": len(slowest),
        "calls_at_once": ranks[0]["calls_at_once"],
    }


def busbw(nbytes: int, us: float, ranks: int) -> float:
    """Return gigabytes a second as nccl-tests counts the bus bandwidth of an allreduce."""
    return nbytes / us / 1e3 * 2 * (ranks - 1) / ranks


def rate(row: dict[str, Any]) -> dict[str, Any]:
    """Return, for each way, the best peer and our time as a share of its."""
    found: dict[str, Any] = {}
    for way, names in WAYS.items():
        cells = {k: row["contenders"][k] for k in names if "p50_us" in row["contenders"].get(k, {})}
        ours = cells.pop(names[0], None)
        if ours and cells:
            best = min(cells, key=lambda name: cells[name]["p50_us"])
            ratio = round(ours["p50_us"] / cells[best]["p50_us"], 3)
            found[way] = {"best_peer": best, "ratio": ratio}
    return found


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of one element type: p50; of ours also GB/s of the bus, the ratio and SMs."""
    ranks = rows[0]["ranks"]
    lines = [
        f"allreduce, sum of {rows[0]['dtype']}, {ranks} ranks: p50 in us; of Ringlane also GB/s of "
        "the bus, the share of the best peer's time, and how many SMs it takes"
    ]
    for way, every in WAYS.items():
        names = [n for n in every if any(n in row["contenders"] for row in rows)]
        if not names:
            continue
        head = [f"{'':>9}"] + [f"{LABELS[n]:>16}" for n in names[1:]]
        if names[0] in OURS:
            head.insert(1, f"{LABELS[names[0]]:>10}{'GB/s':>8}{'share':>8}{'SMs':>5}")
        else:
            head.insert(1, f"{LABELS[names[0]]:>14}")
        lines += [TITLES[way], "".join(head)]
        lines += [f"{size_of(row['bytes']):>9}{_cells(row, way, names)}" for row in rows]
    return "\n".join(lines)


def _cells(row: dict[str, Any], way: str, names: Sequence[str]) -> str:
    text = ""
    for name in names:
        got = row["contenders"].get(name, {})
        us = micros(got["p50_us"]) if "p50_us" in got else "failed" if got else "-"
        if name not in OURS:
            text += f"{us:>16}"
            continue
        speed = (
            f"{busbw(row['bytes'], got['p50_us'], row['ranks']):.1f}" if "p50_us" in got else "-"
        )
        ratio = row["ways"].get(way, {}).get("ratio")
        text += (
            f"{us:>10}{speed:>8}{f'{ratio:.2f}' if ratio else '-':>8}{got.get('blocks', '-'):>5}"
        )
    return text


def size_of(nbytes: int) -> str:
    """Return a number of bytes as people write it, up to GiB."""
    return f"{nbytes >> 30} GiB" if nbytes and nbytes % (1 << 30) == 0 else size(nbytes)


def failures(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return why contenders have no time, each reason once."""
    said: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        for name, got in row["contenders"].items():
            if "failed" in got:
                said.setdefault((name, got["failed"]), []).append(size_of(row["bytes"]))
    return [f"{name}: {', '.join(dict.fromkeys(at))}: {why}" for (name, why), at in said.items()]


def middle(ranks: Sequence[Sequence[float]]) -> float:
    """Return the median of the slowest rank's."""
    return statistics.median(max(times) for times in zip(*ranks))


def steps(jobs: dict[str, list[dict[str, Any]]]) -> dict[str, Any]:
    """Return what training steps of each contender took, all ranks together."""
    found = {}
    for name, ranks in jobs.items():
        one = {
            key: middle([r[key] for r in ranks]) for key in ("step_ms", "alone_ms", "buckets_ms")
        }
        one["added_ms"] = one["step_ms"] - one["alone_ms"]
        one["parameters"] = ranks[0]["parameters"]
        one["same_parameters"] = all(r["same_parameters"] for r in ranks)
        found[name] = {k: round(v, 3) if isinstance(v, float) else v for k, v in one.items()}
    return found


def steps_table(found: dict[str, Any]) -> str:
    """Return the training steps, and ours as a share of NCCL's on the same way."""
    millions = next(iter(found.values()))["parameters"] / 1e6
    lines = [
        f"DistributedDataParallel, {millions:.0f} million parameters; in ms",
        f"{'':>16}{'step':>9}{'alone':>9}{'added':>9}{'buckets':>9}{'added/NCCL':>12}{'buckets/NCCL':>14}",
    ]
    for name, one in found.items():
        peer = found.get(name.replace("ringlane", "nccl"), {}) if name in OURS else {}
        shares = [
            f"{one[key] / peer[key]:.2f}" if peer.get(key, 0) > 0 else "-"
            for key in ("added_ms", "buckets_ms")
        ]
        text = LABELS[name] + (", no P2P" if name.endswith("-host") else "")
        times = "".join(
            f"{one[k]:>9.1f}" for k in ("step_ms", "alone_ms", "added_ms", "buckets_ms")
        )
        mark = "" if one["same_parameters"] else "  PARAMETERS DIFFER"
        lines.append(f"{text:>16}{times}{shares[0]:>12}{shares[1]:>14}{mark}")
    return "\n".join(lines)


# The plot: a panel for each element type and way, time over size, both logarithmic.

COLOURS = {
    "ringlane": "#e6550d",
    "ringlane-host": "#e6550d",
    "nccl": "#31a354",
    "nccl-host": "#31a354",
    "one_shot": "#3182bd",
    "two_shot": "#7b4173",
}
WIDTH, HEIGHT, LEFT, TOP, GAP = 400, 280, 64, 92, 84


def plot(groups: Sequence[Sequence[dict[str, Any]]], machine: str) -> str:
    """Return an SVG of the rows of each element type."""
    panels = [
        (rows, way)
        for rows in groups
        for way, names in WAYS.items()
        if any("p50_us" in row["contenders"].get(n, {}) for row in rows for n in names)
    ]
    columns = 2 if len(panels) > 1 else 1
    width = LEFT + columns * WIDTH + (columns - 1) * GAP + 34
    height = TOP + math.ceil(len(panels) / columns) * (HEIGHT + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">Median time of an AllReduce '
        "in a CUDA graph</text>",
        f'<text x="{LEFT}" y="42" fill="#555555">{escape(machine)}</text>',
    ]
    x = float(LEFT)
    for name in WAYS["peer"]:
        out.append(
            f'<line x1="{x:.0f}" y1="62" x2="{x + 26:.0f}" y2="62" {_stroke(name)}/>'
            f'<text x="{x + 32:.0f}" y="66">{LABELS[name]}</text>'
        )
        x += 50 + 6.8 * len(LABELS[name])
    for i, (rows, way) in enumerate(panels):
        left, top = LEFT + i % columns * (WIDTH + GAP), TOP + 14 + i // columns * (HEIGHT + GAP)
        out += _panel(rows, way, left, top)
    return "\n".join([*out, "</svg>", ""])


def _stroke(name: str) -> str:
    return f'stroke="{COLOURS[name]}" stroke-width="{2.6 if name in OURS else 1.8}"'


def _panel(rows: Sequence[dict[str, Any]], way: str, left: int, top: int) -> list[str]:
    points = {
        name: [
            (row["bytes"], row["contenders"][name]["p50_us"])
            for row in rows
            if "p50_us" in row["contenders"].get(name, {})
        ]
        for name in WAYS[way]
    }
    times = [us for line in points.values() for _, us in line]
    sizes = [row["bytes"] for row in rows]
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    span, scale = math.log2(sizes[-1] / sizes[0]) or 1, (high - low) or 1

    def across(nbytes: int) -> float:
        return left + math.log2(nbytes / sizes[0]) / span * WIDTH

    def up(us: float) -> float:
        return top + HEIGHT - (math.log10(us) - low) / scale * HEIGHT

    head = f"sum of {rows[0]['dtype']}, {rows[0]['ranks']} ranks, {TITLES[way]}"
    out = [f'<text x="{left}" y="{top - 8}" font-weight="bold">{head}</text>']
    for power in range(low, high + 1):
        y = up(10.0**power)
        out.append(
            f'<line x1="{left}" y1="{y:.1f}" x2="{left + WIDTH}" y2="{y:.1f}" stroke="#dddddd"/>'
            f'<text x="{left - 8}" y="{y + 4:.1f}" text-anchor="end" fill="#555555">'
            f"{micros_axis(power)}</text>"
        )
    for i, nbytes in enumerate(sizes):
        if i % 3 == 0:
            out.append(
                f'<text x="{across(nbytes):.1f}" y="{top + HEIGHT + 18}" text-anchor="middle" '
                f'fill="#555555">{size_of(nbytes)}</text>'
            )
    for name, line in points.items():
        path = " ".join(f"{across(nbytes):.1f},{up(us):.1f}" for nbytes, us in line)
        if path:
            out.append(f'<polyline points="{path}" fill="none" {_stroke(name)}/>')
    return out
