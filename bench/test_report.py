"""What the comparison says of given times."""

# ruff: noqa: S101

from __future__ import annotations

import xml.etree.ElementTree as ET

import pytest
import report


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
    cells = made(openmpi=2.0, mpich=4.0, ringlane=1.0, window=3.0)
    cells["mpich"]["p99_us"] = 5.0
    assert report.rate(cells) == {
        "best_peer": {"p50": "openmpi", "p99": "mpich"},
        "ratio": {"ringlane": {"p50": 0.5, "p99": 2.0}, "window": {"p50": 1.5, "p99": 6.0}},
    }


def test_failures_are_neither_best_nor_rated() -> None:
    cells = {**made(mpich=4.0), "openmpi": {"failed": "why"}, "ringlane": {"failed": "why"}}
    assert report.rate(cells) == {"best_peer": {"p50": "mpich", "p99": "mpich"}, "ratio": {}}
    assert report.rate({"openmpi": {"failed": "why"}, **made(ringlane=1.0)}) == {}


@pytest.mark.parametrize(
    ("us", "text"),
    [(0.256, "0.26"), (17.34, "17.3"), (261.2, "261"), (42512.0, "42500")],
)
def test_microseconds_have_three_digits(us: float, text: str) -> None:
    assert report.micros(us) == text


def test_the_axis_changes_its_unit() -> None:
    assert [report.micros_axis(p) for p in (-1, 2, 3, 6)] == ["0.1 us", "100 us", "1 ms", "1 s"]


def rows(ranks: int, dtype: str) -> list[dict[str, object]]:
    made_rows = []
    for nbytes in (8, 65536, 1 << 20):
        cells = {**made(openmpi=float(nbytes), ringlane=nbytes / 2), "mpich": {"failed": "why"}}
        cells["openmpi"]["reduced_by"] = "user-function"
        made_rows.append(
            {"ranks": ranks, "dtype": dtype, "bytes": nbytes, "oversubscribed": ranks > 2}
            | {"barrier_us": 0.1, "contenders": cells, **report.rate(cells)}
        )
    return made_rows


def test_table_has_every_size_and_says_who_failed() -> None:
    title, head, *body = report.table(rows(4, "bf16")).split("\n")
    assert title.startswith("AllReduce, sum of bf16, 4 ranks, more ranks than cores:")
    assert head.split() == ["bytes", "barrier", "openmpi", "ringlane", "mpich", "x", "ringlane"]
    assert [line.split()[:2] for line in body] == [["8", "B"], ["64", "KiB"], ["1", "MiB"]]
    assert all("bu " in line and "failed" in line for line in body)
    assert all(line.endswith("0.50 / 0.50") for line in body)


def test_plot_has_a_line_for_each_contender_that_was_measured() -> None:
    text = report.plot([rows(2, "f32"), rows(4, "f32"), rows(4, "bf16")], "A <machine>")
    lines = [e for e in ET.fromstring(text).iter() if e.tag.endswith("polyline")]  # noqa: S314
    drawn = [len(line.get("points", "").split()) for line in lines]
    assert drawn == [3, 3] * 3
