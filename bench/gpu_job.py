"""One rank of the comparison on GPUs: one contender, all sizes. bench/gpu.py starts it.

Every contender is measured by the same loop on tensors of the same kind: calls are captured in
a CUDA graph, and the GPU takes the time of each replay, one right behind the other. What each
rank saw goes to a file of its own; the parent takes the slowest rank of each replay.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from gpu_calls import DTYPES, Contender, Meeting, Run, take_device, wrong
from gpu_launch import leave

SMALL = 256 << 10
CALLS = {True: 100, False: 20}  # in a graph, of small messages and of others
LONG, LONG_CALLS = 0.01, 5  # seconds of a call of which fewer do
REPLAYS = (10, 500)
SETTLE = 2  # the first replays, which wait for the host or for the other ranks
EAGER_CALLS, EAGER_TURNS = 20, 100


def graph_of(run: Run, calls: int) -> tuple[torch.cuda.CUDAGraph, torch.Tensor]:
    """Capture calls; return where the result of the last lies, too."""
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for _ in range(calls):
            out = run()
    return graph, out


def timed(run: Callable[[], Any], times: int, meeting: Meeting) -> list[float]:
    """Return the seconds that each of several runs took on this GPU."""
    events = [torch.cuda.Event(enable_timing=True) for _ in range(times + 1)]
    torch.cuda.synchronize()
    meeting.barrier()
    events[0].record()
    for event in events[1:]:
        run()
        event.record()
    torch.cuda.synchronize()
    return [a.elapsed_time(b) / 1e3 for a, b in itertools.pairwise(events)]


def measure(
    contender: Contender, collective: str, dtype: str, nbytes: int, seconds: float
) -> dict[str, Any]:
    """Return a row: the microseconds of a call, for each replay."""
    meeting = contender.meeting
    row: dict[str, Any] = {"collective": collective, "dtype": dtype, "bytes": nbytes}
    try:
        call = contender.call(collective, DTYPES[dtype], nbytes)
        errors = wrong(call, call.run, meeting)
        single, out = graph_of(call.run, 1)

        def replay() -> torch.Tensor:
            single.replay()
            return out

        errors += wrong(call, replay, meeting)
        once = timed(replay, 2, meeting)[-1]
        calls = meeting.agree(LONG_CALLS if once > LONG else CALLS[nbytes <= SMALL])
        graph, _ = graph_of(call.run, calls)
        pilot = timed(graph.replay, 2, meeting)
        times = meeting.agree(int(min(max(seconds / pilot[-1], REPLAYS[0]), REPLAYS[1])))
        took = timed(graph.replay, times + SETTLE, meeting)[SETTLE:]
        errors += wrong(call, replay, meeting)
    except (RuntimeError, AttributeError) as why:  # as all ranks will find
        said = str(why).splitlines() or [type(why).__name__]
        return {**row, "failed": said[0][:300]}
    micros = [round(s / calls * 1e6, 4) for s in took]
    return {**row, "calls_at_once": calls, "us": micros, "wrong": errors}


def overhead(contender: Contender) -> list[float]:
    """Return the microseconds of host time that an eager call of 1 KiB takes, turn by turn."""
    run = contender.call("allreduce", torch.float32, 1024).run
    took = []
    for _ in range(EAGER_TURNS):
        torch.cuda.synchronize()
        contender.meeting.barrier()
        begin = time.perf_counter()
        for _ in range(EAGER_CALLS):
            run()
        took.append((time.perf_counter() - begin) / EAGER_CALLS * 1e6)
    torch.cuda.synchronize()
    return took


def case(text: str) -> tuple[str, str, int]:
    """Parse COLLECTIVE:TYPE:BYTES."""
    collective, dtype, nbytes = text.split(":")
    return collective, dtype, int(nbytes)


def main() -> None:
    begun = time.monotonic()
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="where what was measured goes, .RANK appended")
    parser.add_argument("--contender", required=True)
    parser.add_argument("--cases", type=case, nargs="*", required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--stop", type=float, help="begin no further case after so many seconds")
    parser.add_argument("--overhead", action="store_true")
    parser.add_argument("--ddp", action="store_true")
    options = parser.parse_args()

    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = take_device("cuda", rank)
    meeting = Meeting(rank, size)
    largest = max([nbytes for _, _, nbytes in options.cases], default=0)
    contender = Contender(options.contender, max(largest, 1024), meeting, device)
    found: dict[str, Any] = {"rows": []}
    if options.overhead:
        found["overhead_us"] = overhead(contender)
        leave(options.path, rank, found)
    for one in options.cases:
        left = options.stop is None or time.monotonic() - begun < options.stop
        if not meeting.agree(int(left)):
            break
        found["rows"].append(measure(contender, *one, options.seconds))
        leave(options.path, rank, found)
    if options.ddp:
        from gpu_beside import beside  # noqa: PLC0415  only where they are wanted
        from gpu_ddp import ddp  # noqa: PLC0415

        found["ddp"] = ddp(rank, device, lambda run, times: timed(run, times, meeting))
        leave(options.path, rank, found)
        found["ddp"]["beside"] = beside(device, meeting, lambda *work: graph_of(*work)[0])
    leave(options.path, rank, found)
    meeting.barrier()
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    meeting.end()


if __name__ == "__main__":
    main()
