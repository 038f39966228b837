"""Goes through steps in order of their importance, in the time there is."""

from __future__ import annotations

import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import NamedTuple, Protocol

from gpu_launch import Failed


class Step(NamedTuple):
    """Something to measure."""

    name: str
    seconds: float  # that it takes, about
    run: Callable[[float], str]  # given the seconds it may take, says why it did not do all


class Keeper(Protocol):
    """What is told of steps."""

    def ended(self, name: str, why: str) -> None: ...
    def save(self) -> None: ...


def say(text: str) -> None:
    """Show progress."""
    print(f"bench-gpu: {text}", file=sys.stderr, flush=True)


def reserved(later: Sequence[Step], left: float) -> float:
    """Return what the later steps take that fit into the time left, the earlier ones first."""
    kept = 0.0
    for step in later:
        if kept + step.seconds <= left:
            kept += step.seconds
    return kept


def perform(
    steps: Sequence[Step],
    budget: float,
    keeper: Keeper,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Run the steps that fit. What they found is kept after each of them, whatever its end.

    A step may take longer than it should where that leaves room for the later ones. An
    interrupt ends all of it.
    """
    begun = clock()
    for i, step in enumerate(steps):
        left = begun + budget - clock()
        if step.seconds > left:
            keeper.ended(
                step.name,
                f"did not fit: takes about {step.seconds:.0f} s, "
                f"{max(left, 0):.0f} of {budget:.0f} s were left (--budget)",
            )
            continue
        say(f"{clock() - begun:4.0f} s: {step.name}")
        why = "interrupted"
        try:
            why = step.run(left - reserved(steps[i + 1 :], left - step.seconds))
        except Failed as failure:
            why = str(failure)
        except Exception as failure:  # the other steps' results are worth more than this one's
            traceback.print_exc()
            why = f"{type(failure).__name__}: {failure}"
        except KeyboardInterrupt:
            for other in steps[i + 1 :]:
                keeper.ended(other.name, "not begun: interrupted")
            raise
        finally:
            if why:
                say(f"{step.name}: {why}")
                keeper.ended(step.name, why)
            keeper.save()
