"""What the comparison says of given times."""

# ruff: noqa: S101

from __future__ import annotations

import xml.etree.ElementTree as ET
from array import array
from typing import Any

import modes
import pytest
import report
from contenders import Times, shares


def made(**p50: float) -> dict[str, dict[str, float]]:
    return {name: {"p50_us": us, "p99_us": 10 * us} for name, us in p50.items()}


def test_quantile_is_one_of_the_values() -> None:
    values = list(range(1, 101))
    assert [report.quantile(values, q) for q in (0.0, 0.5, 0.99, 1.0)] == [1, 50, 99, 100]
    assert report.quantile([7.0], 0.99) == 7.0


def test_one_slow_round_moves_the_tail_and_not_the_middle() -> None:
    rounds = [[1e-6] * 50, [1e-6] * 50, [9e-6] * 50]
    found = report.summary(rounds)
    assert found == {
        "calls": 150,
        "p50_us": 1.0,
        "p99_us": 9.0,
        "rounds_p50_us": [1.0, 1.0, 9.0],
    }
    assert "p999_us" in report.summary([[1e-6] * report.ENOUGH_FOR_P999])


def test_ratios_are_to_the_best_peer_of_each_figure() -> None:
    cells = made(openmpi=2.0, mpich=4.0)
    cells |= {"ringlane-c": {"p50_us": 1.0, "p99_us": 10.0}}
    cells |= {"ringlane-go-window": {"p50_us": 3.0, "p99_us": 30.0}, **made(bare=0.5)}
    cells["mpich"]["p99_us"] = 5.0
    assert report.rate(cells) == {
        "best_peer": {"p50": "openmpi", "p99": "mpich"},
        "ratio": {
            "ringlane-c": {"p50": 0.5, "p99": 2.0},
            "ringlane-go-window": {"p50": 1.5, "p99": 6.0},
            "bare": {"p50": 0.25, "p99": 1.0},
        },
    }


def test_failures_are_neither_best_nor_rated() -> None:
    cells = {**made(mpich=4.0), "openmpi": {"failed": "why"}, "ringlane-c": {"failed": "why"}}
    assert report.rate(cells) == {"best_peer": {"p50": "mpich", "p99": "mpich"}, "ratio": {}}
    assert report.rate({"openmpi": {"failed": "why"}, "ringlane-c": {"p50_us": 1.0}}) == {}


@pytest.mark.parametrize(
    ("us", "text"),
    [(0.256, "0.26"), (17.34, "17.3"), (261.2, "261"), (42512.0, "42500")],
)
def test_microseconds_have_three_digits(us: float, text: str) -> None:
    assert report.micros(us) == text


def test_the_axis_changes_its_unit() -> None:
    assert [report.micros_axis(p) for p in (-1, 2, 3, 6)] == ["0.1 us", "100 us", "1 ms", "1 s"]


def rows(ranks: int, dtype: str, peer: float = 1.0) -> list[dict[str, Any]]:
    made_rows = []
    for nbytes in (8, 65536, 1 << 20):
        cells: dict[str, Any] = {**made(openmpi=nbytes * peer), "mpich": {"failed": "why"}}
        cells |= made(bare=nbytes / 4)
        cells |= {name: {"p50_us": nbytes / 2, "p99_us": 5 * nbytes} for name in report.OURS}
        cells["openmpi"]["how"] = "user-function"
        made_rows.append(
            {"collective": "allreduce", "ranks": ranks, "dtype": dtype, "bytes": nbytes}
            | {"oversubscribed": ranks > 2, "mode": "near", "barrier_us": 0.1}
            | {"contenders": cells, **report.rate(cells)}
        )
    return made_rows


def test_table_has_every_size_and_says_who_failed() -> None:
    title, head, *body = report.table(rows(4, "bf16")).split("\n")
    assert title.startswith("allreduce, sum of bf16, 4 ranks, more ranks than cores;")
    heads = "bytes barrier openmpi mpich bare C C window Go Go window"
    assert " ".join(head.split()) == heads
    assert [line.split()[:4] for line in body] == [
        [number, unit, "0.10", "near"] for number, unit in (("8", "B"), ("64", "KiB"), ("1", "MiB"))
    ]
    assert all("bu " in line and "failed" in line for line in body)
    assert all(line.count("0.50/0.50") == 4 and line.count("  0.25") == 1 for line in body)


def test_table_fits_a_wide_terminal() -> None:
    given = rows(4, "bf16", peer=0.7)
    for row in given:
        slow = {"p50_us": 123456.0, "p99_us": 456789.0, "how": "user-function"}
        row["contenders"] = dict.fromkeys(
            ("openmpi", "mpich", "impi", *report.BARE, *report.OURS), slow
        )
        row.update(report.rate(row["contenders"]))
    assert max(map(len, report.table(given).split("\n"))) <= 185


def test_plot_has_a_line_for_each_contender_that_was_measured() -> None:
    far = [{**row, "mode": "far"} for row in rows(2, "f32")]
    text = report.plot([rows(2, "f32") + far, rows(4, "f32"), rows(4, "bf16")], "A <machine>")
    lines = [e for e in ET.fromstring(text).iter() if e.tag.endswith("polyline")]  # noqa: S314
    drawn = [len(line.get("points", "").split()) for line in lines]
    assert drawn == [3] * 6 * 3


def turn(before: float, after: float) -> Times:
    return Times(array("d"), 0, "native", before, after)


def test_modes_are_told_apart_by_the_barriers_around_turns() -> None:
    tops = modes.levels([0.08, 0.1, 0.09, 0.36, 0.28, 0.38, 4.0])
    assert tops == [0.1, 0.38], "one odd barrier is no mode"
    assert modes.levels([0.03] * 3 + [0.1] * 400) == [0.1], "nor are three of hundreds"
    near, far, turned = turn(0.08, 0.1), turn(0.38, 0.3), turn(0.08, 0.28)
    odd = turn(0.08, 4.0)
    assert [modes.mode(t, tops) for t in (near, far, turned, odd)] == [0, 1, None, None]
    taken = {"mpich": [near, far, near, turned], "ringlane-c": [far, near, turned]}
    assert modes.seen(taken, tops, 1) == {
        "near": {"mpich": [near, near], "ringlane-c": [near]},
        "far": {"mpich": [far], "ringlane-c": [far]},
    }
    assert modes.seen(taken, tops, 2) == {}
    assert modes.seen({}, tops, 1) == {}


def test_a_machine_of_one_mode_does_not_name_it() -> None:
    turns = {"mpich": [turn(0.4, 0.5)]}
    assert modes.levels([0.4, 0.5, 0.6]) == [0.6]
    assert modes.seen(turns, [0.6], 1) == {"": turns}


def test_every_rank_has_as_many_cores_as_there_are_for_all() -> None:
    cores = [[0, 8], [1, 9], [2, 10], [3, 11], [4, 12]]
    assert shares(cores, 2) == [[0, 1, 8, 9], [2, 3, 10, 11]]
    assert shares(cores, 5) == cores
    assert shares(cores, 6) == []
