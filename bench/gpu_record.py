"""The record of what was measured on GPUs: on disk after every step, so that nothing is lost."""

from __future__ import annotations

import itertools
import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gpu_report as report

Ranks = list[dict[str, Any]]  # what each rank of a job found


class Record:
    """What is known of a machine.

    Args:
        path: where it is kept, as JSON.
        about: the machine, the date and what else holds for all of it.
        cases: collective, element type and bytes of each row.
        contenders: by whom, in the order of the columns.
    """

    def __init__(
        self,
        path: Path,
        about: dict[str, Any],
        cases: Sequence[tuple[str, str, int]],
        contenders: Sequence[str],
    ) -> None:
        self.path = path
        self._about, self._cases, self._contenders = about, cases, contenders
        self._ended: dict[str, str] = {}
        self._turns: dict[int, dict[str, list[Ranks]]] = {}
        self._failed: dict[tuple[int, str], str] = {}
        self._taken: dict[tuple[int, str, tuple[str, str, int]], dict[str, Any]] = {}
        self._parts: dict[str, Any] = {}

    def ended(self, name: str, why: str) -> None:
        """Note why a step did not do all that it should."""
        self._ended.setdefault(name, why)

    def turn(self, size: int, contender: str, ranks: Ranks) -> None:
        """Keep what the ranks of a contender found in a turn."""
        self._turns.setdefault(size, {}).setdefault(contender, []).append(ranks)

    def failed(self, size: int, contender: str, why: str) -> None:
        """Keep why a contender found nothing in a turn."""
        self._turns.setdefault(size, {}).setdefault(contender, [])
        self._failed.setdefault((size, contender), why)

    def takes(
        self, size: int, contender: str, case: tuple[str, str, int], choice: dict[str, Any]
    ) -> None:
        """Keep what a call takes of a GPU."""
        self._taken[size, contender, case] = choice

    def set(self, name: str, found: Any) -> None:
        """Keep what another part found."""
        self._parts[name] = found

    def part(self, name: str, found: Any) -> None:
        """Keep one of several things that another part found."""
        self._parts.setdefault(name, []).append(found)

    def found(self) -> dict[str, Any]:
        """Return all of it, as it is written."""
        return {
            **self._about,
            "ended": self._ended,
            "rows": [
                self._row(size, case)
                for size, case in itertools.product(self._turns, self._cases)
                if self._of(size, case)
            ],
            "overhead": self._each("overhead_us", self._overhead),
            "ddp": self._each("ddp", report.steps),
            **self._parts,
        }

    def save(self) -> None:
        """Replace the file by what is known now."""
        self.path.parent.mkdir(parents=True, exist_ok=True)
        new = self.path.with_suffix(".json-new")
        new.write_text(json.dumps(self.found(), indent=1) + "\n")
        new.replace(self.path)

    def _of(self, size: int, case: tuple[str, str, int]) -> list[str]:
        """Return the contenders that had a turn and have the collective."""
        return [
            name
            for name in self._contenders
            if name in self._turns[size] and report.has(name, case[0])
        ]

    def _row(self, size: int, case: tuple[str, str, int]) -> dict[str, Any]:
        collective, dtype, nbytes = case
        cells = {
            name: {**self._cell(size, name, case), **self._taken.get((size, name, case), {})}
            for name in self._of(size, case)
        }
        row = {
            "collective": collective,
            "ranks": size,
            "shared": size > len(self._about["machine"]["gpus"]),
            "dtype": dtype,
            "bytes": nbytes,
            "contenders": cells,
        }
        return {**row, "ways": report.rate(row)}

    def _cell(self, size: int, name: str, case: tuple[str, str, int]) -> dict[str, Any]:
        found = []
        for ranks in self._turns[size][name]:
            rows = [[r for r in rank["rows"] if case == _case(r)][:1] for rank in ranks]
            if all(rows):
                found.append(report.cell([row[0] for row in rows]))
        if not found:
            return {"failed": self._failed.get((size, name), "not measured")}
        for cell in found:
            if "failed" in cell:
                return cell
        return {
            **found[0],
            "p50_us": round(statistics.median(c["p50_us"] for c in found), 3),
            "p99_us": max(c["p99_us"] for c in found),
        }

    def _each(self, key: str, join: Any) -> list[dict[str, Any]]:
        """Return, for each number of ranks, what the contenders measured once."""
        every = []
        for size, turns in self._turns.items():
            jobs = {}
            for name, rounds in turns.items():
                for ranks in rounds:
                    if all(key in rank for rank in ranks):
                        jobs.setdefault(name, [rank[key] for rank in ranks])
            if jobs:
                every.append({"ranks": size, "contenders": join(jobs)})
        return every

    @staticmethod
    def _overhead(jobs: dict[str, Any]) -> dict[str, float]:
        return {name: round(report.middle(ranks), 3) for name, ranks in jobs.items()}


def _case(row: dict[str, Any]) -> tuple[str, str, int]:
    return row["collective"], row["dtype"], row["bytes"]
