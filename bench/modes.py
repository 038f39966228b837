"""The modes of a machine, told apart by what an empty barrier takes.

The CPUs of a virtual machine may lie near each other or far apart, and its host moves them
within seconds: a cache line then takes several times as long from one to the other. A ratio
of times that were measured in different modes says nothing of the libraries, so turns are
compared with those of the same mode, and a turn in which the mode changed with none.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from contenders import Times

NAMES = ("near", "far", "farther")
APART = 1.5  # the ratio of barriers that lie in different modes: more than their noise
FEWEST = 3  # barriers that make a mode, and one of a hundred: a mode comes again

Turns = Mapping[str, Sequence[Times]]  # of each contender


def levels(barriers: Iterable[float]) -> list[float]:
    """Return the longest barrier of each mode, the nearest mode first."""
    ordered = sorted(barriers)
    starts = [0, *(i for i in range(1, len(ordered)) if ordered[i] > APART * ordered[i - 1])]
    ends = [*starts[1:], len(ordered)]
    fewest = max(FEWEST, len(ordered) // 100)
    return [ordered[end - 1] for start, end in zip(starts, ends) if end - start >= fewest]


def mode(times: Times, tops: Sequence[float]) -> int | None:
    """Return the number of a turn's mode, or None if it changed within the turn."""
    first, last = (
        next((i for i, top in enumerate(tops) if barrier <= top), None)
        for barrier in (times.before, times.after)
    )
    return first if first == last else None


def seen(taken: Turns, tops: Sequence[float], turns: int) -> dict[str, Turns]:
    """Return by mode its turns, of modes in which every contender had that many or more.

    Where the machine has one mode, that has no name.
    """
    found: dict[str, Turns] = {}
    for number in range(len(tops)):
        part = {
            name: [times for times in every if mode(times, tops) == number]
            for name, every in taken.items()
        }
        if part and min(map(len, part.values())) >= turns:
            found[NAMES[min(number, len(NAMES) - 1)] if len(tops) > 1 else ""] = part
    return found
