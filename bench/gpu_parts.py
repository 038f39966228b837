"""The parts of the comparison on GPUs, as steps."""

from __future__ import annotations

import argparse
import functools
import itertools
import json
import math
import os
import subprocess

import gpu_report as report
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
}
ALL = {
    "NCCL_NVLS_ENABLE": "0",
    "TORCH_SYMM_MEM_DISABLE_MULTICAST": "1",
    "NCCL_DEBUG": "WARN",
    "OMP_NUM_THREADS": "4",
}
# Seconds that things take, about.
START, ROW, DDP, TAKES = 12.0, 0.4, 15.0, 8.0

Case = tuple[str, str, int]  # collective, element type, bytes


class Parts:
    """What there is to measure, and how."""

    def __init__(self, options: argparse.Namespace, record: Record) -> None:
        self.options, self.record = options, record

    def steps(self) -> list[Step]:
        """Return all of it, the most important first."""
        return [*self._turns(), *self._takings()]

    def _turns(self) -> list[Step]:
        options, steps = self.options, []
        if not {"sizes", "overhead", "ddp"} & set(options.parts):
            return []
        each = itertools.product(range(options.rounds), options.ranks, options.contenders)
        for i, size, name in each:
            label = f"{size} ranks: {name}" + (f", round {i + 1}" if i else "")
            cases = self._cases(name)
            once = [part for part in ("overhead", "ddp") if i == 0 and part in options.parts]
            once = [part for part in once if report.has(name, part)]
            seconds = START + len(cases) * (ROW + options.seconds / options.rounds)
            seconds += DDP * ("ddp" in once)
            steps.append(Step(label, seconds, functools.partial(self.turn, name, size, once)))
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

    def _takings(self) -> list[Step]:
        steps = []
        kinds = dict.fromkeys((collective, dtype) for collective, dtype, _ in self.options.cases)
        for size, name, kind in itertools.product(self.options.ranks, report.OURS, kinds):
            if name in self.options.contenders:
                label = f"{size} ranks: what {kind[0]} of {kind[1]} takes of a GPU, {name}"
                run = functools.partial(self.takes, name, size, *kind)
                steps.append(Step(label, TAKES, run))
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
