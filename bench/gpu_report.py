"""What is said of times on GPUs: the slowest rank, ratios and tables."""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterator, Sequence
from typing import Any

from report import micros, quantile, size

# The two ways, and who is compared on each, ours first. A contender is a program, and what
# is said to it about peer access.
WAYS = {
    "peer": ("ringlane", "nccl", "one_shot", "two_shot", "low_contention"),
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
    "low_contention": "symm. low-cont.",
}
TITLES = {"peer": "peer access", "host": "no peer access"}
# What contenders have that do not have everything.
ONLY = {
    "one_shot": ("allreduce",),
    "two_shot": ("allreduce",),
    "low_contention": ("reducescatter", "allgather"),
}


def has(contender: str, what: str) -> bool:
    """Tell whether a contender has a collective, or can do another part."""
    return what in ONLY.get(contender, (what,))


WRONG = " wrong elements"


def cell(ranks: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return what one row of every rank comes to: each replay counts as on its slowest rank."""
    for row in ranks:
        if "failed" in row:
            return {"failed": row["failed"]}
    if errors := sum(row["wrong"] for row in ranks):
        return {"failed": f"{errors}{WRONG}"}
    slowest = sorted(max(times) for times in zip(*(row["us"] for row in ranks)))
    return {
        "p50_us": round(quantile(slowest, 0.5), 3),
        "p99_us": round(quantile(slowest, 0.99), 3),
        "replays": len(slowest),
        "calls_at_once": ranks[0]["calls_at_once"],
    }


def busbw(row: dict[str, Any], us: float) -> float:
    """Return gigabytes a second of the bus as nccl-tests counts them."""
    ranks = row["ranks"]
    crossings = (2 if row["collective"] == "allreduce" else 1) * (ranks - 1) / ranks
    return row["bytes"] / us / 1e3 * crossings


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


def present(rows: Sequence[dict[str, Any]], way: str) -> list[str]:
    """Return who took part on a way."""
    return [n for n in WAYS[way] if any(n in row["contenders"] for row in rows)]


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Return rows of one kind: p50; of ours also GB/s of the bus, the ratio and SMs."""
    lines = [
        f"{kind(rows[0])}: p50 in us; of Ringlane also GB/s of the bus, the share of the best "
        "peer's time, and how many SMs it takes"
    ]
    for way in WAYS:
        names = present(rows, way)
        if not names:
            continue
        head = " " * 9
        for name in names:
            head += f"{LABELS[name]:>10}{'GB/s':>8}{'share':>8}{'SMs':>5}" * (name in OURS)
            head += f"{LABELS[name]:>16}" * (name not in OURS)
        lines += [TITLES[way], head]
        for row in rows:
            every = [cells(row, way, name) for name in names]
            widths = [(10, 8, 8, 5) if len(texts) > 1 else (16,) for texts in every]
            line = f"{size_of(row['bytes']):>9}"
            for texts, columns in zip(every, widths):
                line += "".join(f"{text:>{width}}" for text, width in zip(texts, columns))
            lines.append(line)
    return "\n".join(lines)


def cells(row: dict[str, Any], way: str, name: str) -> list[str]:
    """Return a contender's p50, and of ours also GB/s of the bus, the ratio and SMs."""
    got = row["contenders"].get(name, {})
    us = micros(got["p50_us"]) if "p50_us" in got else "failed" if "failed" in got else "-"
    if name not in OURS:
        return [us]
    speed = f"{busbw(row, got['p50_us']):.1f}" if "p50_us" in got else "-"
    ratio = row["ways"].get(way, {}).get("ratio")
    return [us, speed, f"{ratio:.2f}" if ratio else "-", str(got.get("blocks", "-"))]


def kind(row: dict[str, Any]) -> str:
    """Return what the rows of a table have in common."""
    shared = " that share GPUs" if row["shared"] else ""
    return f"{row['collective']} of {row['dtype']}, {row['ranks']} ranks{shared}"


def groups(rows: Sequence[dict[str, Any]]) -> Iterator[list[dict[str, Any]]]:
    """Return the rows of each table."""
    for _, group in itertools.groupby(rows, key=kind):
        yield list(group)


def size_of(nbytes: int) -> str:
    """Return a number of bytes as people write it, up to GiB."""
    return f"{nbytes >> 30} GiB" if nbytes and nbytes % (1 << 30) == 0 else size(nbytes)


def failures(rows: Sequence[dict[str, Any]]) -> list[str]:
    """Return why contenders have no time, each reason once."""
    said: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        for name, got in row["contenders"].items():
            if "failed" in got:
                at = said.setdefault((kind(row), name, got["failed"]), [])
                at.append(size_of(row["bytes"]))
    return [f"{of}: {name}: {', '.join(at)}: {why}" for (of, name, why), at in said.items()]


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
        if all("beside" in r for r in ranks):
            one["beside"] = {
                key: round(max(r["beside"][key] for r in ranks), 3) for key in ranks[0]["beside"]
            }
        one["parameters"] = ranks[0]["parameters"]
        one["same_parameters"] = all(r["same_parameters"] for r in ranks)
        found[name] = {k: round(v, 3) if isinstance(v, float) else v for k, v in one.items()}
    return found


def steps_table(ranks: int, found: dict[str, Any]) -> str:
    """Return the training steps, and ours as a share of NCCL's on the same way."""
    millions = next(iter(found.values()))["parameters"] / 1e6
    lines = [
        f"DistributedDataParallel, {millions:.0f} million parameters, {ranks} ranks; in ms",
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
    return "\n".join(lines + besides_table(found))


def besides_table(found: dict[str, Any]) -> list[str]:
    """Return lines that say how much sums hold up what runs beside them."""
    measured = {name: one["beside"] for name, one in found.items() if "beside" in one}
    if not measured:
        return []
    size = size_of(next(iter(measured.values()))["bytes"])
    lines = [
        "",
        f"Sums of {size} of f32, each in ms; how many times as long other work takes beside them",
        f"{'':>16}{'sum':>9}{'matmul':>9}{'add':>9}",
    ]
    for name, one in measured.items():
        text = LABELS[name] + (", no P2P" if name.endswith("-host") else "")
        lines.append(f"{text:>16}{one['sum_ms']:>9.2f}{one['matmul']:>9.2f}{one['add']:>9.2f}")
    return lines
