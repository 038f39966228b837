"""A rank that is frozen, or killed, in the middle of an AllReduce: what the others say of it.

As a program it is one rank, which calls until that fails.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import re
import signal
import time
from pathlib import Path
from typing import Any

from gpu_launch import POLL, Failed, Ranks, leave

SIGNALS = {"frozen": signal.SIGSTOP, "killed": signal.SIGKILL}
AFTER = {"frozen": 1.0, "killed": 2.0}  # seconds in which it must be named, beside the deadline
BYTES = 64 << 20


def names(text: str, victim: int, pid: int) -> bool:
    """Tell whether an error blames a rank, which it names with its process."""
    rank = rf"rank {victim} \(pid {pid}\b[^)]*\)"
    return re.search(rf"(: |s for ){rank}|^{rank} is gone", text) is not None


def fault(
    kind: str, size: int, device: str, environment: dict[str, str], *, deadline: int, limit: float
) -> dict[str, Any]:
    """Freeze or kill the last rank while all are calling; return what the others noticed."""
    victim = size - 1  # rank 0 keeps the store
    environment = {**environment, "RINGLANE_TIMEOUT": f"{deadline}s"}
    begun = time.monotonic()
    with Ranks("gpu_faults.py", ["--device", device], environment, size) as ranks:
        ready = [ranks.path.with_suffix(f".ready-{rank}") for rank in range(size)]
        while not all(path.exists() for path in ready):
            for rank, process in enumerate(ranks.processes):
                if process.poll() is not None:
                    raise Failed(f"rank {rank} ended before the fault (look above)")
            if time.monotonic() - begun > limit:
                raise Failed(f"the ranks had not met after {limit:.0f} s")
            time.sleep(POLL)
        pid = ranks.processes[victim].pid
        os.kill(pid, SIGNALS[kind])
        struck = time.monotonic()
        why = ranks.wait(limit - (struck - begun), but={victim})
        found = ranks.found()
    within = AFTER[kind] + (deadline if kind == "frozen" else 0)
    others = [_noticed(rank, found[rank], struck, victim, pid) for rank in range(victim)]
    for one in others:
        one["well"] = bool(one["named"] and one["seconds"] <= within and one["after"])
    return {
        "ranks": size,
        "fault": kind,
        "victim": victim,
        "deadline_s": deadline,
        "within_s": within,
        "others": others,
        "ended": why,
        "well": not why and all(one["well"] for one in others),
    }


def _noticed(
    rank: int, found: dict[str, Any] | None, struck: float, victim: int, pid: int
) -> dict[str, Any]:
    if found is None:
        return {"rank": rank, "error": "", "named": False, "seconds": None, "after": False}
    return {
        "rank": rank,
        "error": found["error"],
        "named": names(found["error"], victim, pid),
        "seconds": round(found["at"] - struck, 3),
        "after": found["after"],
    }


def main() -> None:
    import torch  # noqa: PLC0415  the parent does without
    import torch.distributed as dist  # noqa: PLC0415
    from gpu_calls import Contender, Meeting, settle, take_device  # noqa: PLC0415

    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("path", type=Path, help="where what was found goes, .RANK appended")
    parser.add_argument("--device", choices=("cpu", "cuda"), required=True)
    options = parser.parse_args()
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    device = take_device(options.device, rank)
    meeting = Meeting(rank, size)
    contender = Contender("ringlane", BYTES, meeting, device)
    run = contender.call("allreduce", torch.float32, BYTES).run
    run()
    settle(device)
    options.path.with_suffix(f".ready-{rank}").touch()
    try:
        while True:
            run()
            settle(device)
    except RuntimeError as why:
        found: dict[str, Any] = {"error": str(why), "at": time.monotonic()}
    # The survivors, and their GPUs, go on.
    meeting.barrier(size - 1)
    left = dist.new_group(list(range(size - 1)), use_local_synchronization=True)
    data = torch.full((1000,), float(rank + 1), device=device)
    dist.all_reduce(data, group=left)
    found["after"] = bool((data == sum(range(1, size))).all())
    leave(options.path, rank, found)
    with contextlib.suppress(RuntimeError):
        dist.destroy_process_group()
    meeting.end(size - 1)


if __name__ == "__main__":
    main()
