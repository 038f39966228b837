"""The comparison on GPUs keeps what it has measured, whatever comes."""

# ruff: noqa: S101

from __future__ import annotations

import json
import os
import re
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import gpu
import gpu_launch
import gpu_parts
import gpu_plan
import pytest

MACHINE = {"gpus": ["GPU", "GPU"], "driver": "1", "torch": "2"}
Job = tuple[list[dict[str, Any]], str]


def ranks(name: str, cases: list[tuple[str, str, int]]) -> list[dict[str, Any]]:
    """Return what two ranks find of cases."""
    us = 2.0 if name == "ringlane" else 4.0
    rows: list[dict[str, Any]] = [
        {"collective": c, "dtype": d, "bytes": n, "calls_at_once": 100, "us": [us], "wrong": 0}
        for c, d, n in cases
    ]
    return [{"rows": [dict(row) for row in rows]} for _ in range(2)]


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., dict[str, Any]]:
    """Run main() on a machine of two GPUs whose jobs are made up; return what was written."""

    def start(
        job: Callable[[str], Job],
        *arguments: str,
        ends: int | str = 0,
        output: Callable[[], str] = lambda: '{"rows": [], "checked": {"2": [], "3": []}}',
    ) -> dict[str, Any]:
        def named(script: str, arguments: list[str], environment: Any, *_: Any) -> Job:
            if script == "gpu_random.py":
                calls = int(arguments[arguments.index("--calls") + 1])
                return [{"calls": calls, "wrong": 0, "examples": []}] * 2, ""
            host = {"RINGLANE_P2P", "NCCL_P2P_DISABLE"} & set(environment)
            return job(arguments[arguments.index("--contender") + 1] + ("-host" if host else ""))

        monkeypatch.setattr(gpu_parts, "job", named)
        monkeypatch.setattr(gpu_parts, "output", lambda *_: output())
        monkeypatch.setattr(gpu_parts, "fault", lambda kind, *_, **__: {**LOST, "fault": kind})
        monkeypatch.setattr(gpu, "usable", lambda: None)
        monkeypatch.setattr(gpu, "machine", lambda _: MACHINE)
        monkeypatch.setattr(sys, "argv", ["gpu.py", *arguments, "--out", str(tmp_path)])
        handlers = {s: signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)}
        try:
            with pytest.raises(SystemExit) as ended:
                gpu.main()
        finally:
            for number, handler in handlers.items():
                signal.signal(number, handler)
        assert ended.value.code == ends
        return dict(json.loads((tmp_path / "gpu-2-gpu.json").read_text()))

    return start


SMALL = ("sizes", "--sizes", "8", "4K", "--dtypes", "f32", "--collectives", "allreduce")
LOST = {"ranks": 2, "victim": 1, "deadline_s": 5, "within_s": 6, "others": [], "ended": ""}
LOST["well"] = True
CASES = [("allreduce", "f32", 8), ("allreduce", "f32", 4096)]


def test_an_interrupt_keeps_what_a_job_had_measured(
    started: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    def job(name: str) -> Job:
        assert name == "ringlane", "nothing is started after an interrupt"
        return ranks(name, CASES[:1]), gpu_launch.INTERRUPTED

    kept = started(job, *SMALL, ends=130)
    assert kept["ended"]["2 ranks: ringlane"] == "interrupted"
    assert kept["ended"]["2 ranks: nccl"] == "not begun: interrupted"
    first, second = [r["contenders"]["ringlane"] for r in kept["rows"]]
    assert first["p50_us"] == 2.0
    assert second == {"failed": "not measured"}
    assert "2.00" in capsys.readouterr().out


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_while_a_command_runs_loses_nothing(
    started: Callable[..., dict[str, Any]],
    capsys: pytest.CaptureFixture[str],
    number: signal.Signals,
) -> None:
    def output() -> str:
        try:
            os.kill(os.getpid(), number)
        finally:
            os.kill(os.getpid(), number)  # as from somebody without patience
        raise AssertionError("the signal was ignored")

    kept = started(lambda name: (ranks(name, CASES), ""), *SMALL, ends=130, output=output)
    for row in kept["rows"]:
        assert row["contenders"]["ringlane"]["p50_us"] == 2.0
        assert row["contenders"]["nccl"]["p50_us"] == 4.0
    assert "interrupted" in kept["ended"].values()
    out = capsys.readouterr().out
    assert "0.50" in out and "interrupted" in out


def test_a_step_that_breaks_does_not_end_the_others(
    started: Callable[..., dict[str, Any]],
) -> None:
    def job(name: str) -> Job:
        if name == "nccl":
            raise KeyError("what a bug raises")
        if name == "nccl-host":
            raise gpu_launch.Failed("rank 0 ended with status 1 (look above)")
        return ranks(name, CASES), ""

    def output() -> str:
        return "no JSON"

    kept = started(job, *SMALL, output=output)
    assert kept["ended"]["2 ranks: nccl"] == "KeyError: 'what a bug raises'"
    cells = kept["rows"][0]["contenders"]
    assert cells["nccl-host"] == {"failed": "rank 0 ended with status 1 (look above)"}
    assert cells["two_shot"]["p50_us"] == 4.0


def test_the_record_is_on_disk_after_every_turn(
    started: Callable[..., dict[str, Any]], tmp_path: Path
) -> None:
    seen = []

    def job(name: str) -> Job:
        path = tmp_path / "gpu-2-gpu.json"
        rows = json.loads(path.read_text())["rows"] if path.exists() else []
        seen.append(sorted(rows[0]["contenders"]) if rows else [])
        return ranks(name, CASES), ""

    started(job, *SMALL, "--contenders", "ringlane", "nccl", "nccl-host")
    assert seen == [[], ["ringlane"], ["nccl", "ringlane"]]


def test_wrong_sums_make_the_run_fail(started: Callable[..., dict[str, Any]]) -> None:
    def job(name: str) -> Job:
        found = ranks(name, CASES)
        found[0]["rows"][0]["wrong"] = 3
        return found, ""

    kept = started(job, *SMALL, ends="bench-gpu: something is wrong (look above)")
    assert kept["rows"][0]["contenders"]["ringlane"] == {"failed": "3 wrong elements"}


def test_everything_is_done_for_each_number_of_ranks(
    started: Callable[..., dict[str, Any]], capsys: pytest.CaptureFixture[str]
) -> None:
    def job(name: str) -> Job:
        return ranks(name, CASES), ""

    kept = started(job, *SMALL[1:], "--ranks", "2", "3", "--calls", "70", "--seed", "9")
    said = capsys.readouterr().err
    steps = re.findall(r"^bench-gpu: +\d+ s: (.*)$", said, re.M)
    takes = "what allreduce of f32 takes of a GPU"
    assert steps == [
        "topology",
        *(f"2 ranks: {n}" for n in ("ringlane", "nccl", "ringlane-host", "nccl-host")),
        *("3 ranks: ringlane", "3 ranks: ringlane-host"),  # of 2 GPUs
        *("2 ranks: one frozen, ringlane", "2 ranks: one killed, ringlane"),
        "2 ranks: random calls, ringlane, --seed 9",
        "2 ranks: random calls, ringlane-host, --seed 9",
        *("3 ranks: one frozen, ringlane", "3 ranks: one killed, ringlane"),
        "3 ranks: random calls, ringlane, --seed 9",
        "3 ranks: random calls, ringlane-host, --seed 9",
        *(f"2 ranks: {takes}, ringlane", f"2 ranks: {takes}, ringlane-host"),
        *("2 ranks: one_shot", "2 ranks: two_shot"),
        *(f"3 ranks: {takes}, ringlane", f"3 ranks: {takes}, ringlane-host"),
        *("2 ranks: one frozen, ringlane-host", "2 ranks: one killed, ringlane-host"),
        "2 ranks: choices for allreduce of f32, ringlane",
        "2 ranks: choices for allreduce of f32, ringlane-host",
        *("3 ranks: one frozen, ringlane-host", "3 ranks: one killed, ringlane-host"),
        "3 ranks: choices for allreduce of f32, ringlane",
        "3 ranks: choices for allreduce of f32, ringlane-host",
    ]
    assert "3 ranks share 2 GPU(s)" in said
    assert {(one["ranks"], one["calls"]) for one in kept["random"]} == {(2, 70), (3, 70)}
    assert [one["fault"] for one in kept["faults"]] == ["frozen", "killed"] * 4
    assert [row["shared"] for row in kept["rows"]] == [False, False, True, True]


def test_with_no_time_only_what_fits_is_done(started: Callable[..., dict[str, Any]]) -> None:
    kept = started(lambda name: (ranks(name, CASES), ""), *SMALL, "--budget", "1")
    assert not kept["rows"]
    assert "did not fit" in kept["ended"]["2 ranks: ringlane"]


class Clock:
    """Time that passes as steps say."""

    def __init__(self) -> None:
        self.now = 0.0
        self.ends: dict[str, str] = {}
        self.limits: dict[str, float] = {}

    def __call__(self) -> float:
        return self.now

    def step(self, name: str, about: float, takes: float | None = None) -> gpu_plan.Step:
        def run(limit: float) -> str:
            self.limits[name] = limit
            self.now += about if takes is None else min(takes, limit)
            return ""

        return gpu_plan.Step(name, about, run)

    def ended(self, name: str, why: str) -> None:
        self.ends[name] = why

    def save(self) -> None:
        pass


def test_a_step_gets_the_time_that_later_ones_leave() -> None:
    clock = Clock()
    steps = [clock.step("first", 30, takes=1000), clock.step("second", 20), clock.step("third", 10)]
    gpu_plan.perform(steps, 100, clock, clock)
    assert clock.limits == {"first": 70, "second": 20, "third": 10}
    assert not clock.ends


def test_what_does_not_fit_is_left_out_and_named() -> None:
    clock = Clock()
    steps = [clock.step("first", 30), clock.step("long", 80), clock.step("last", 10)]
    gpu_plan.perform(steps, 60, clock, clock)
    assert clock.limits == {"first": 50, "last": 30}
    assert list(clock.ends) == ["long"]
    assert "30 of 60 s were left" in clock.ends["long"]


def test_time_that_a_step_did_not_take_goes_to_the_next() -> None:
    clock = Clock()
    steps = [clock.step("first", 50, takes=5), clock.step("second", 80)]
    gpu_plan.perform(steps, 100, clock, clock)
    assert clock.limits == {"first": 100, "second": 95}
