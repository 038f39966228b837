"""What the comparison on GPUs says of given times."""

# ruff: noqa: S101

from __future__ import annotations

import xml.etree.ElementTree as ET
from typing import Any

import gpu
import gpu_report as report
import gpu_tables as tables
import pytest
from gpu_plot import plot


def rank(us: list[float], **more: Any) -> dict[str, Any]:
    return {"us": us, "wrong": 0, "calls_at_once": 20, **more}


def row(nbytes: int, **p50: float) -> dict[str, Any]:
    cells: dict[str, Any] = {k.replace("__", "-"): {"p50_us": us} for k, us in p50.items()}
    made = {
        "collective": "allreduce",
        "ranks": 2,
        "shared": False,
        "dtype": "f32",
        "bytes": nbytes,
        "contenders": cells,
    }
    return {**made, "ways": report.rate(made)}


def record(rows: list[dict[str, Any]]) -> dict[str, Any]:
    here: dict[str, Any] = {"gpus": ["GPU & more"] * 2, "driver": "1", "nccl": "2", "torch": "2"}
    here |= {"cpu": "CPU", "cores": 16}
    return {"machine": here, "date": "2026-11-30", "rows": rows}


def test_a_replay_counts_as_on_its_slowest_rank() -> None:
    found = report.cell([rank([1.0, 2.0, 9.0]), rank([4.0, 1.0, 1.0])])
    assert found == {"p50_us": 4.0, "p99_us": 9.0, "replays": 3, "calls_at_once": 20}


def test_wrong_sums_are_failures() -> None:
    assert report.cell([rank([1.0]), rank([1.0], wrong=3)]) == {"failed": "3 wrong elements"}
    assert report.cell([rank([1.0]), {"failed": "why"}]) == {"failed": "why"}


def test_ours_is_rated_by_the_best_peer_of_the_same_way() -> None:
    ways = row(8, ringlane=2.0, nccl=8.0, one_shot=4.0, ringlane__host=6.0, nccl__host=12.0)["ways"]
    assert ways == {
        "peer": {"best_peer": "one_shot", "ratio": 0.5},
        "host": {"best_peer": "nccl-host", "ratio": 0.5},
    }
    assert row(8, ringlane=2.0)["ways"] == {}


def test_bus_bandwidth_is_that_of_nccl_tests() -> None:
    one = {"collective": "allreduce", "ranks": 2, "bytes": 1 << 30}
    assert report.busbw(one, 3000.0) == pytest.approx(357.9, abs=0.1)
    one = {"collective": "allreduce", "ranks": 8, "bytes": 8_000_000}
    assert report.busbw(one, 1000.0) == pytest.approx(14.0)
    assert report.busbw({**one, "collective": "alltoall"}, 1000.0) == pytest.approx(7.0)


def test_tables_and_plot_hold_what_was_measured() -> None:
    rows = [row(8, ringlane=2.125, nccl=8.0), row(1 << 30, ringlane=3050.0, ringlane__host=26000.0)]
    rows[0]["contenders"]["ringlane"]["blocks"] = 16
    rows[1]["contenders"]["nccl"] = {"failed": "out of memory"}
    text = report.table(rows)
    lines = [line.split() for line in text.splitlines()]
    assert ["8", "B", "2.12", "0.0", "0.27", "16", "8.00"] in lines
    assert ["1", "GiB", "3050", "352.0", "-", "-", "failed"] in lines
    assert report.failures(rows) == ["allreduce of f32, 2 ranks: nccl: 1 GiB: out of memory"]
    picture = ET.fromstring(plot(record(rows)))  # noqa: S314
    lines_drawn = [e for e in picture.iter() if e.tag.endswith("polyline")]
    assert len(lines_drawn) == 3


def test_markdown_has_a_table_for_each_way() -> None:
    rows = [row(8, ringlane=2.0, nccl=8.0, ringlane__host=4.0), row(4096, ringlane=2.0)]
    rows[0]["contenders"]["ringlane"]["blocks"] = 1
    lines = tables.markdown(record(rows)).splitlines()
    assert lines[0].startswith("2 x GPU & more, CPU (16 cores), driver 1,")
    assert (
        "| allreduce of f32, 2 ranks, peer access | Ringlane | GB/s | share | SMs | NCCL |" in lines
    )
    assert "| 8 B | 2.00 | 0.0 | 0.25 | 1 | 8.00 |" in lines
    assert "| 4 KiB | 2.00 | 2.0 | - | - | - |" in lines
    assert "| allreduce of f32, 2 ranks, no peer access | Ringlane | GB/s | share | SMs |" in lines
    assert "| 8 B | 4.00 | 0.0 | - | - |" in lines


def lost(**more: Any) -> dict[str, Any]:
    one = {"rank": 0, "error": "no progress", "named": True, "seconds": 5.2, "after": True}
    return {
        **{
            "contender": "ringlane",
            "ranks": 2,
            "fault": "frozen",
            "victim": 1,
            "deadline_s": 5,
            "within_s": 6.0,
        },
        **{"others": [{**one, **more}], "ended": "", "well": not more},
    }


def test_what_is_wrong_is_told_as_such() -> None:
    found = {**record([row(8, ringlane=2.0)]), "overhead": [], "ddp": [], "ended": {}}
    fine = {"ranks": 2, "contender": "ringlane-host", "seed": 3, "calls": 2000, "wrong": 0}
    example = {"elements": 4, "call": 7, "kind": "alltoall", "dtype": "i8", "counts": []}
    found["random"] = [{**fine, "examples": []}]
    found["faults"] = [lost()]
    assert tables.faults(found) == []
    text = tables.text(found)
    assert "2 ranks, no peer access, seed 3: 2000 calls, 0 wrong" in text
    assert "rank 0: after 5.20 s, names it, a new group of the others works: no progress" in text
    assert "WRONG" not in text
    found["random"] = [{**fine, "wrong": 1, "examples": [example]}]
    found["faults"] = [lost(named=False), lost(seconds=None)]
    assert len(tables.faults(found)) == 3
    text = tables.text(found)
    assert "elements 4, call 7, kind alltoall, dtype i8" in text
    assert "DOES NOT NAME IT" in text and "did not notice" in text
    assert text.index("WRONG") > text.index("did not notice")


def test_choices_are_shown_beside_the_best() -> None:
    choice = {"choice": "oneshot:line16:1x64", "us": 2.0}
    rows = [{"bytes": 4096, "auto": {**choice, "us": 3.0}, "best": choice, "ratio": 1.5}]
    about = {"ranks": 2, "contender": "ringlane", "collective": "allreduce", "dtype": "bf16"}
    found = {**record([]), "overhead": [], "ddp": [], "ended": {}}
    text = tables.text({**found, "choices": [{**about, "rows": rows}]})
    assert "allreduce of bf16, 2 ranks, peer access" in text
    line = ["4", "KiB", "oneshot:line16:1x64", "3.00", "oneshot:line16:1x64", "2.00", "1.50"]
    assert line in [line.split() for line in text.splitlines()]


def test_a_plot_of_one_point_is_drawn() -> None:
    ET.fromstring(plot(record([row(8, ringlane=10.0)])))  # noqa: S314


def test_training_steps_are_those_of_the_slowest_rank() -> None:
    one = {"alone_ms": [10.0], "buckets_ms": [4.0], "parameters": 355_000_000}
    jobs = {
        name: [
            {**one, "step_ms": [step], "same_parameters": True},
            {**one, "step_ms": [step + 1], "same_parameters": same},
        ]
        for name, step, same in (("ringlane", 11.0, True), ("nccl", 13.0, False))
    }
    found = report.steps(jobs)
    assert found["ringlane"]["added_ms"] == 2.0
    assert found["ringlane"]["same_parameters"] and not found["nccl"]["same_parameters"]
    text = report.steps_table(2, found)
    assert "355 million" in text and "0.50" in text and "PARAMETERS DIFFER" in text
    assert "beside" not in text
    for ranks in jobs.values():
        for rank, step in enumerate(ranks):
            step["beside"] = {"bytes": 38 << 20, "sum_ms": 1.0 + rank, "matmul": 1.5, "add": 1.25}
    *_, head, ours, nccl = report.steps_table(2, report.steps(jobs)).splitlines()
    assert head.split()[-3:] == ["sum", "matmul", "add"]
    assert ours.split() == ["Ringlane", "2.00", "1.50", "1.25"]
    assert len(ours) == len(nccl) == len(head)


@pytest.mark.parametrize(("text", "size"), [("8", 8), ("4K", 4096), ("1g", 1 << 30)])
def test_sizes_are_read(text: str, size: int) -> None:
    assert gpu.nbytes(text) == size


@pytest.mark.parametrize("text", ["", "0", "12", "1T"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(gpu.argparse.ArgumentTypeError):
        gpu.nbytes(text)
