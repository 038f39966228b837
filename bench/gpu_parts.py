"""The parts of the comparison on GPUs, as steps."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import subprocess
from collections.abc import Sequence

import gpu_report as report
from gpu_faults import SIGNALS, fault
from gpu_launch import INTERRUPTED, Failed, job
from gpu_plan import Step
from gpu_record import Record

# What each contender is told, beside its name; in the order of importance.
CONTENDERS: dict[str, dict[str, str]] = {
    "ringlane": {},
    "nccl": {},
    "ringlane-host": {"RINGLANE_P2P": "off"},
    "nccl-host": {"NCCL_P2P_DISABLE": "1"},
    "one_shot": {},
    "two_shot": {},
    "low_contention": {},
}
ALL = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NCCL_DEBUG": "WARN",
    "OMP_NUM_THREADS": "4",
}
# Seconds that things take, about.
START, ROW, DDP, TAKES, TOPOLOGY, CHOICES = 12.0, 0.25, 17.0, 15.0, 15.0, 30.0
FAULT, RANDOM = START + 8, START + 12
DEADLINE = 5  # seconds that a rank has, where one is frozen
CONTESTED = [8, 4 << 10, 64 << 10, 1 << 20, 16 << 20, 256 << 20]
LARGEST = 32 << 20  # bytes of a buffer in random calls

Case = tuple[str, str, int]  # collective, element type, bytes


class Parts:
    """What there is to measure, and how."""

    def __init__(self, options: argparse.Namespace, record: Record) -> None:
        self.options, self.record = options, record

    def steps(self) -> list[Step]:
        """Return all of it, the most important first."""
        parts, sizes = self.options.parts, self.options.ranks
        names = self.options.contenders
        libraries = [n for n in names if n not in report.ONLY]
        steps = []
        if "topology" in parts:
            steps.append(Step("topology", TOPOLOGY, self.topology))
        for size in sizes:
            steps += self._turns(size, libraries)
        for size in sizes:
            steps += self._faults(size, "ringlane") if "faults" in parts else []
            steps += self._randoms(size) if "random" in parts else []
        for size in sizes:
            steps += self._takings(size)
            steps += self._turns(size, [n for n in names if n in report.ONLY])
        for size in sizes:
            steps += self._faults(size, "ringlane-host") if "faults" in parts else []
            steps += self._contests(size) if "choices" in parts else []
        return steps

    def shares(self, size: int) -> bool:
        """Tell whether so many ranks share GPUs, which NCCL's cannot."""
        return size > self.options.gpus

    def _ours(self) -> list[str]:
        return [name for name in report.OURS if name in self.options.contenders]

    def _turns(self, size: int, names: Sequence[str]) -> list[Step]:
        options, steps = self.options, []
        if not {"sizes", "overhead", "ddp"} & set(options.parts):
            return []
        names = [n for n in names if n in report.OURS] if self.shares(size) else names
        for i, name in itertools.product(range(options.rounds), names):
            label = f"{size} ranks: {name}" + (f", round {i + 1}" if i else "")
            cases = self._cases(name)
            once = [part for part in ("overhead", "ddp") if i == 0 and part in options.parts]
            once = [part for part in once if report.has(name, part)]
            seconds = START + len(cases) * (ROW + options.seconds / options.rounds)
            seconds += DDP * ("ddp" in once)
            if cases or once:
                run = functools.partial(self.turn, name, size, once)
                steps.append(Step(label, seconds, run))
        return steps

    def _cases(self, name: str) -> list[Case]:
        return [case for case in self.options.cases if report.has(name, case[0])]

    def turn(self, name: str, size: int, once: list[str], limit: float) -> str:
        """Run a contender: all sizes, and what is measured once."""
        cases, limit = self._cases(name), min(limit, self.options.limit)
        arguments = ["--contender", name.removesuffix("-host")]
        arguments += ["--seconds", str(self.options.seconds / self.options.rounds)]
        arguments += ["--cases", *(":".join(map(str, case)) for case in cases)]
        arguments += ["--stop", str(limit - (DDP if "ddp" in once else 2.0))]
        arguments += [f"--{part}" for part in once]
        try:
            found, why = job("gpu_job.py", arguments, {**ALL, **CONTENDERS[name]}, size, limit)
        except Failed as failure:
            self.record.failed(size, name, str(failure))
            raise
        self.record.turn(size, name, found)
        if why == INTERRUPTED:
            raise KeyboardInterrupt
        done = len(found[0]["rows"])
        return why or (f"{done} of {len(cases)} rows in {limit:.0f} s" if done < len(cases) else "")

    def _takings(self, size: int) -> list[Step]:
        steps = []
        kinds = dict.fromkeys(case[:2] for case in self.options.cases if case[0] == "allreduce")
        for name, kind in itertools.product(self._ours(), kinds):
            label = f"{size} ranks: what {kind[0]} of {kind[1]} takes of a GPU, {name}"
            steps.append(Step(label, TAKES, functools.partial(self.takes, name, size, *kind)))
        return steps

    def takes(self, name: str, size: int, collective: str, dtype: str, limit: float) -> str:
        """Find what calls of Ringlane's take of a GPU."""
        cases = [case for case in self.options.cases if case[:2] == (collective, dtype)]
        sizes = ",".join(str(nbytes) for _, _, nbytes in cases)
        command = ["ringlane", "bench", collective, "--device", "cuda", "-n", str(size)]
        command += ["--sizes", sizes, "--dtype", dtype, "--iters", "1", "--json"]
        said = output(command, CONTENDERS[name], min(limit, self.options.limit))
        for case, row in zip(cases, json.loads(said)["rows"]):
            choice = {key: row[key] for key in ("algo", "protocol", "blocks", "threads")}
            self.record.takes(size, name, case, choice)
        return ""

    def topology(self, limit: float) -> str:
        """Measure every pair of GPUs."""
        command = ["ringlane", "topo", "--measure"]
        text = output(command, {}, limit)
        self.record.set("topology", {"text": text})
        found = json.loads(output([*command, "--json"], {}, limit))
        self.record.set("topology", {"text": text, "json": found})
        return ""

    def _faults(self, size: int, name: str) -> list[Step]:
        return [
            Step(
                f"{size} ranks: one {kind}, {name}",
                FAULT,
                functools.partial(self.fault, kind, size, name),
            )
            for kind in SIGNALS
            if name in self.options.contenders
        ]

    def fault(self, kind: str, size: int, name: str, limit: float) -> str:
        """Freeze or kill a rank in the middle of an AllReduce."""
        limit = min(limit, self.options.limit)
        environment = {**ALL, **CONTENDERS[name]}
        found = fault(kind, size, "cuda", environment, deadline=DEADLINE, limit=limit)
        self.record.part("faults", {"contender": name, **found})
        return found["ended"]

    def _randoms(self, size: int) -> list[Step]:
        return [
            Step(
                f"{size} ranks: random calls, {name}, --seed {self.options.seed}",
                RANDOM,
                functools.partial(self.random, name, size),
            )
            for name in self._ours()
        ]

    def random(self, name: str, size: int, limit: float) -> str:
        """Make random calls, and verify them."""
        limit = min(limit, self.options.limit)
        arguments = ["--device", "cuda", "--seed", str(self.options.seed)]
        arguments += ["--calls", str(self.options.calls), "--largest", str(LARGEST)]
        arguments += ["--stop", str(limit - 5)]
        ranks, why = job("gpu_random.py", arguments, {**ALL, **CONTENDERS[name]}, size, limit)
        found = {
            "ranks": size,
            "contender": name,
            "seed": self.options.seed,
            "calls": min(rank["calls"] for rank in ranks),
            "wrong": max(rank["wrong"] for rank in ranks),
            "examples": [example for rank in ranks for example in rank["examples"]],
        }
        self.record.part("random", found)
        if why == INTERRUPTED:
            raise KeyboardInterrupt
        short = found["calls"] < self.options.calls
        return why or (f"{found['calls']} of {self.options.calls} calls" if short else "")

    def _contests(self, size: int) -> list[Step]:
        dtype = self.options.dtypes[-1]
        each = itertools.product(self.options.collectives, self._ours())
        return [
            Step(
                f"{size} ranks: choices for {collective} of {dtype}, {name}",
                CHOICES,
                functools.partial(self.contest, name, size, collective, dtype),
            )
            for collective, name in each
        ]

    def contest(self, name: str, size: int, collective: str, dtype: str, limit: float) -> str:
        """Compare what is built in with the fixed choices."""
        limit = min(limit, self.options.limit)
        sizes = ",".join(map(str, self.options.sizes or CONTESTED))
        command = ["ringlane", "bench", collective, "--check", "--device", "cuda", "--json"]
        command += ["-n", str(size), "--dtype", dtype, "--sizes", sizes]
        command += ["--within", f"{min(limit, CHOICES) * 2 / 3:.0f}s"]
        checked = json.loads(output(command, CONTENDERS[name], limit))["checked"][str(size)]
        rows = [
            {
                "bytes": one["bytes"],
                "auto": one["auto"],
                "best": one["fixed"][0],
                "ratio": round(one["ratio"], 3),
            }
            for one in checked
        ]
        about = {"ranks": size, "contender": name, "collective": collective, "dtype": dtype}
        self.record.part("choices", {**about, "rows": rows})
        return ""


def output(command: list[str], environment: dict[str, str], limit: float) -> str:
    """Return what a command says."""
    try:
        return subprocess.run(
            command,
            env={**os.environ, **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            text=True,
            timeout=None if math.isinf(limit) else limit,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError) as why:
        raise Failed(str(why)) from why
