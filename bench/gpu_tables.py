"""All that was found on a machine's GPUs, for people: as text, and as Markdown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import gpu_report as report
from report import micros


def faults(found: dict[str, Any]) -> list[str]:
    """Return what was wrong, and not only slow or missing."""
    wrong = [why for why in report.failures(found["rows"]) if why.endswith(report.WRONG)]
    for one in found["ddp"]:
        wrong += [
            f"{one['ranks']} ranks: {name}: parameters differ"
            for name, step in one["contenders"].items()
            if not step["same_parameters"]
        ]
    wrong += [_random(one) for one in found.get("random", []) if one["wrong"]]
    wrong += [
        f"{one['ranks']} ranks, {way(one)}: one {one['fault']}: the others did not do well"
        for one in found.get("faults", [])
        if not one["well"]
    ]
    return wrong


def text(found: dict[str, Any]) -> str:
    """Return all of it."""
    parts = []
    if topology := found.get("topology"):
        said = topology["text"].rstrip()
        at = said.find("Measured")
        parts.append(said[max(at, 0) :])
    parts += [report.table(rows) for rows in report.groups(found["rows"])]
    if said := report.failures(found["rows"]):
        parts.append("\n".join(f"  {why}" for why in said))
    for one in found["overhead"]:
        lines = [
            f"The host's time of an eager all_reduce from Python, {one['ranks']} ranks, p50 in us"
        ]
        lines += [f"  {name:<16}{us:8.2f}" for name, us in one["contenders"].items()]
        parts.append("\n".join(lines))
    parts += [report.steps_table(one["ranks"], one["contenders"]) for one in found["ddp"]]
    parts += [_lost(one) for one in found.get("faults", [])]
    if randoms := found.get("random"):
        lines = [line for one in randoms for line in [_random(one), *_examples(one)]]
        parts.append("\n".join(["Random calls, all results verified", *lines]))
    parts += [_choices(one) for one in found.get("choices", [])]
    if found["ended"]:
        lines = [f"  {name}: {why}" for name, why in found["ended"].items()]
        parts.append("\n".join(["Not all was measured:", *lines]))
    if wrong := faults(found):
        parts.append("\n".join(["WRONG:", *(f"  {why}" for why in wrong)]))
    return "\n\n".join(parts)


def way(one: dict[str, Any]) -> str:
    """Return on which way something of Ringlane's was tried."""
    return report.TITLES["host" if one["contender"].endswith("-host") else "peer"]


def _random(one: dict[str, Any]) -> str:
    return (
        f"  {one['ranks']} ranks, {way(one)}, seed {one['seed']}: {one['calls']} calls, "
        f"{one['wrong']} wrong"
    )


def _examples(one: dict[str, Any]) -> list[str]:
    return [
        "    " + ", ".join(f"{key} {value}" for key, value in example.items() if key != "counts")
        for example in one["examples"]
    ]


def _lost(one: dict[str, Any]) -> str:
    lines = [
        f"Rank {one['victim']} of {one['ranks']} {one['fault']} in the middle of an allreduce of "
        f"64 MiB, {way(one)} (deadline {one['deadline_s']} s; others should name it within "
        f"{one['within_s']:.0f} s, and go on without it)"
    ]
    for other in one["others"]:
        if other["seconds"] is None:
            lines.append(f"  rank {other['rank']}: did not notice ({one['ended']})")
            continue
        lines.append(
            f"  rank {other['rank']}: after {other['seconds']:.2f} s, "
            f"{'names it' if other['named'] else 'DOES NOT NAME IT'}, a new group of the others "
            f"{'works' if other['after'] else 'DOES NOT WORK'}: {other['error']}"
        )
    return "\n".join(lines)


def _choices(one: dict[str, Any]) -> str:
    lines = [
        f"What is built in beside the best fixed choice: {one['collective']} of {one['dtype']}, "
        f"{one['ranks']} ranks, {way(one)}; p50 in us"
    ]
    for row in one["rows"]:
        auto, best = row["auto"], row["best"]
        lines.append(
            f"{report.size_of(row['bytes']):>9}  {auto['choice']:<26}{micros(auto['us']):>9}  "
            f"{best['choice']:<26}{micros(best['us']):>9}{row['ratio']:>7.2f}"
        )
    return "\n".join(lines)


def markdown(found: dict[str, Any]) -> str:
    """Return the machine and the times as Markdown tables."""
    here = found["machine"]
    parts = [
        f"{len(here['gpus'])} x {here['gpus'][0]}, {here['cpu']} ({here['cores']} cores), driver "
        f"{here['driver']}, NCCL {here['nccl']}, torch {here['torch']}; {found['date']}. "
        "p50 in us; GB/s of the bus; share: of the best peer's time."
    ]
    for rows in report.groups(found["rows"]):
        for one in report.WAYS:
            if names := report.present(rows, one):
                parts.append(_markdown(rows, one, names))
    return "\n\n".join(parts)


def _markdown(rows: Sequence[dict[str, Any]], one: str, names: Sequence[str]) -> str:
    head = [f"{report.kind(rows[0])}, {report.TITLES[one]}"]
    for name in names:
        head += [report.LABELS[name]] + (["GB/s", "share", "SMs"] if name in report.OURS else [])
    lines = [head, ["---"] + ["---:"] * (len(head) - 1)]
    for row in rows:
        cells = [report.size_of(row["bytes"])]
        for name in names:
            cells += report.cells(row, one, name)
        lines.append(cells)
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
