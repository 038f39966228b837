"""The picture of times on GPUs: a panel for each table and way, both axes logarithmic."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import Any

from gpu_report import LABELS, OURS, TITLES, WAYS, groups, kind, size_of
from report import micros_axis

COLOURS = {
    "ringlane": "#e6550d",
    "ringlane-host": "#e6550d",
    "nccl": "#31a354",
    "nccl-host": "#31a354",
    "one_shot": "#3182bd",
    "two_shot": "#7b4173",
    "low_contention": "#bcbd22",
}
WIDTH, HEIGHT, LEFT, TOP, GAP = 400, 280, 64, 92, 84


def plot(found: dict[str, Any]) -> str:
    """Return an SVG of all rows, or nothing where there is no time."""
    here = found["machine"]
    about = f"{len(here['gpus'])} x {here['gpus'][0]}, driver {here['driver']}, {found['date']}"
    panels = [
        (rows, way)
        for rows in groups(found["rows"])
        for way, names in WAYS.items()
        if any("p50_us" in row["contenders"].get(n, {}) for row in rows for n in names)
    ]
    if not panels:
        return ""
    columns = 2 if len(panels) > 1 else 1
    width = LEFT + columns * WIDTH + (columns - 1) * GAP + 34
    height = TOP + math.ceil(len(panels) / columns) * (HEIGHT + GAP)
    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" '
        f'height="{height}" font-family="Helvetica, Arial, sans-serif" font-size="12">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        f'<text x="{LEFT}" y="24" font-size="16" font-weight="bold">Median time of a call '
        "in a CUDA graph</text>",
        f'<text x="{LEFT}" y="42" fill="#555555">{escape(about)}</text>',
    ]
    x = float(LEFT)
    measured = {
        name.removesuffix("-host")
        for row in found["rows"]
        for name, cell in row["contenders"].items()
        if "p50_us" in cell
    }
    for name in [n for n in WAYS["peer"] if n in measured]:
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

    head = f"{kind(rows[0])}, {TITLES[way]}"
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
