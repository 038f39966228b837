"""Random collectives and faults of the comparison on GPUs, on tensors of processors."""

# ruff: noqa: S101, S311

from __future__ import annotations

import random
from itertools import permutations

import gpu_faults
import pytest
from gpu_launch import job

torch = pytest.importorskip("torch")
ENVIRONMENT = {"OMP_NUM_THREADS": "1"}


def test_random_calls_come_out_right() -> None:
    seed = random.randrange(1 << 31)
    arguments = ["--device", "cpu", "--seed", str(seed), "--calls", "200"]
    arguments += ["--largest", "65536", "--stop", "100"]
    print(f"seed {seed}")
    found, why = job("gpu_random.py", arguments, ENVIRONMENT, 3, 150)
    assert not why
    for one in found:
        assert one["calls"] >= 200
        assert (one["wrong"], one["examples"]) == (0, []), f"seed {seed}"


def test_all_kinds_of_calls_are_drawn() -> None:
    import gpu_random  # noqa: PLC0415

    dice = random.Random(1)
    cases = [gpu_random.draw(dice, 3, 1 << 20) for _ in range(2000)]
    assert {case.kind for case in cases} == set(gpu_random.KINDS)
    assert {case.dtype for case in cases} == set(gpu_random.TYPES)
    assert {case.op for case in cases} == set(gpu_random.OPS)
    assert {(case.root, case.other) for case in cases} == set(permutations(range(3), 2))
    for case in cases:
        assert 1 <= case.count * gpu_random.TYPES[case.dtype].itemsize <= 1 << 20
    assert any(case.count > 1000 for case in cases)


def test_a_result_of_one_rank_too_few_is_wrong() -> None:
    import gpu_random  # noqa: PLC0415

    player = gpu_random.Player(0, 3, torch.device("cpu"))
    fewer = gpu_random.Player(0, 2, torch.device("cpu"))
    dice = random.Random(2)
    for op in gpu_random.OPS:
        case = gpu_random.draw(dice, 3, 8)._replace(dtype="f32", op=op, count=64)
        out = fewer.reduced(case, 0, 64)
        want = player.reduced(case, 0, 64)
        assert player.wrong(case, lambda: (out.float(), want)) > 0, op  # noqa: B023


@pytest.mark.parametrize("kind", ["frozen", "killed"])
def test_a_rank_that_is_lost_is_named(kind: str) -> None:
    found = gpu_faults.fault(kind, 3, "cpu", ENVIRONMENT, deadline=5, limit=150)
    assert not found["ended"]
    assert [one["rank"] for one in found["others"]] == [0, 1]
    for one in found["others"]:
        assert one["named"], one["error"]
        assert one["after"]
        assert one["seconds"] is not None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("allreduce: no progress within 2s: rank 1 (pid 7 on vm) has not entered it", True),
        ("rank 0 (pid 5 on vm) on GPU 0 waited 2.004s for rank 1 (pid 7 on vm) on GPU 1", True),
        ("rank 1 (pid 7 on vm) on GPU 1 waited 2.004s for rank 0 (pid 5 on vm)", False),
        ("rank 1 (pid 7 on vm) is gone: its process ended", True),
        ("allreduce: rank 2 (pid 7 on vm) is gone", False),
    ],
)
def test_only_the_blamed_rank_is_named(text: str, named: bool) -> None:
    assert gpu_faults.names(text, 1, 7) is named


@pytest.mark.parametrize(
    ("text", "cpus"),
    [("0-3,8\n", {0, 1, 2, 3, 8}), ("5", {5}), ("\n", set())],
)
def test_lists_of_processors_are_read(text: str, cpus: set[int]) -> None:
    import gpu_calls  # noqa: PLC0415

    assert gpu_calls.cpus(text) == cpus
