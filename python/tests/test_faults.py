"""Bad input and bad luck: a clear error on every rank, no hang, nothing left behind."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from ranks import Job, flag, rank, size, wait_for

import ringlane


def _error(call: Callable[[], object]) -> ringlane.RinglaneError:
    with pytest.raises(ringlane.RinglaneError) as caught:
        call()
    return caught.value


def mismatches() -> None:
    world = ringlane.join()
    me = world.rank
    odd = me == world.size - 1
    calls: dict[str, Callable[[ringlane.Communicator], object]] = {
        "size": lambda c: c.all_reduce(np.zeros(5 if odd else 4)),
        "large size": lambda c: c.all_reduce(np.zeros(2_000_000 + odd)),
        "dtype": lambda c: c.all_reduce(np.zeros(4, "int32" if odd else "float32")),
        "op": lambda c: c.all_reduce(np.zeros(4), "max" if odd else "sum"),
        "collective": lambda c: c.barrier() if odd else c.all_reduce(np.zeros(4)),
        "async": lambda c: c.all_reduce(np.zeros(4 + odd), async_op=True).wait(),
    }
    for name, call in calls.items():
        # A mismatch ends its communicator: the ranks no longer agree on what comes next.
        comm = world.group(range(world.size))
        error = _error(lambda call=call, comm=comm: call(comm))
        assert isinstance(error, ringlane.Mismatch), f"{name}: {error!r}"
        assert f"rank {world.size - 1}" in str(error), f"{name}: {error}"
        assert world.all_reduce(np.ones(1))[0] == world.size, name
        comm.close()


def killed(when: str) -> None:
    comm = ringlane.join()
    data = np.ones(4_000_000 if when == "bulk" else 2, "float32")
    comm.all_reduce(data)
    comm.barrier()
    victim = comm.size - 1
    if comm.rank == victim:
        if when == "bulk":
            comm.all_reduce(data, async_op=True)
        os.kill(os.getpid(), signal.SIGKILL)
    error = _error(lambda: [comm.all_reduce(data) for _ in range(100)])
    assert isinstance(error, ringlane.RankDied), repr(error)
    assert f"rank {victim}" in str(error), error
    again = _error(comm.barrier)
    assert isinstance(again, ringlane.RankDied), repr(again)
    comm.close()


def killed_while_all_wait() -> None:
    comm = ringlane.join()
    victim = 0
    if comm.rank == victim:
        wait_for(flag("waiting"))
        os.kill(os.getpid(), signal.SIGKILL)
    request = comm.all_reduce(np.ones(8), async_op=True)
    assert not request.test()
    flag("waiting").touch()
    error = _error(request.wait)
    assert isinstance(error, ringlane.RankDied), repr(error)
    assert f"rank {victim}" in str(error), error


def never_arrives() -> None:
    error = _error(ringlane.join)
    if rank() == 0:
        assert isinstance(error, ringlane.DeadlineExceeded), repr(error)
        assert isinstance(error, TimeoutError)
        assert "rank 2" in str(error), error


def never_calls() -> None:
    comm = ringlane.join()
    if comm.rank == 1:
        wait_for(flag("late"))
        return
    error = _error(lambda: comm.all_reduce(np.ones(4)))
    assert isinstance(error, ringlane.DeadlineExceeded), repr(error)
    assert "rank 1" in str(error), error
    flag("late").touch()


def short_wait() -> None:
    comm = ringlane.join()
    if comm.rank == 1:
        wait_for(flag("waited"))
    request = comm.all_reduce(np.ones(4), async_op=True)
    if comm.rank == 0:
        error = _error(lambda: request.wait(0.05))
        assert isinstance(error, ringlane.DeadlineExceeded), repr(error)
        flag("waited").touch()
    assert request.wait()[0] == 2
    comm.close()


def aborted() -> None:
    comm = ringlane.join()
    if comm.rank == 0:
        comm.abort("the loss is not a number")
    error = _error(lambda: [comm.all_reduce(np.ones(4)) for _ in range(100)])
    assert "the loss is not a number" in str(error), error


def busy() -> None:
    comm = ringlane.join()
    errors: list[ringlane.RinglaneError] = []

    def reduce() -> None:
        try:
            assert comm.all_reduce(np.ones(4))[0] == 2
        except ringlane.RinglaneError as error:
            errors.append(error)
            flag("refused").touch()

    if comm.rank == 0:
        # Rank 1 comes when one of the two threads was refused, so the other one waits.
        threads = [threading.Thread(target=reduce) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [type(error) for error in errors] == [ringlane.Busy], errors
    else:
        wait_for(flag("refused"))
        reduce()
        assert not errors
    comm.barrier()


def forked() -> None:
    comm = ringlane.join()
    quiet = os.fork()
    if quiet == 0:
        os._exit(0)  # as a DataLoader worker that never calls us
    loud = os.fork()
    if loud == 0:
        comm.close()
        error = _error(lambda: comm.all_reduce(np.ones(1)))
        joined = _error(ringlane.join)
        fine = isinstance(error, ringlane.Forked) and isinstance(joined, ringlane.Forked)
        os._exit(7 if fine and "spawn" in str(error) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(quiet, 0)[1]) == 0
    assert os.waitstatus_to_exitcode(os.waitpid(loud, 0)[1]) == 7
    assert comm.all_reduce(np.ones(1))[0] == size()
    comm.close()


def ends_without_close() -> None:
    comm = ringlane.join()
    comm.all_reduce(np.ones(1000), async_op=True).wait()
    comm.all_reduce(np.ones(1000), async_op=True)  # nobody waits for it


def dropped_under_way() -> None:
    """What the program has dropped is kept while peers may still complete it."""
    if rank() == 1:
        comm = ringlane.join()
        wait_for(flag("dropped"))
        total = comm.all_reduce(np.full(1000, 2.0))
        assert (total == 3).all(), total
        comm.barrier()
        return

    def start() -> weakref.ref[Any]:
        comm = ringlane.join()
        out = np.zeros(1000)
        comm.all_reduce(np.ones(1000), out=out, async_op=True)
        comm.barrier(async_op=True)
        return weakref.ref(out)

    out = start()
    gc.collect()
    held = out()
    assert held is not None, "the buffer of an operation under way was freed"
    flag("dropped").touch()
    while not (held == 3).all():  # the runner's timeout bounds it
        time.sleep(0.002)


def leaves_early() -> None:
    comm = ringlane.join()
    comm.barrier()
    if comm.rank == 1:
        comm.close()
        return
    error = _error(lambda: [comm.all_reduce(np.ones(4)) for _ in range(100)])
    assert isinstance(error, (ringlane.Closed, ringlane.RankDied)), repr(error)
    assert "rank 1" in str(error), error


def test_ranks_that_disagree(job: Job) -> None:
    job.run(3, "mismatches")


@pytest.mark.parametrize("when", ["small", "bulk"])
def test_a_killed_rank_is_named(job: Job, when: str) -> None:
    job.run(3, "killed", when, expect={2: -signal.SIGKILL})


def test_a_rank_killed_while_the_others_wait(job: Job) -> None:
    job.run(3, "killed_while_all_wait", expect={0: -signal.SIGKILL})


def test_a_rank_that_never_arrives(job: Job) -> None:
    job.run(3, "never_arrives", only=[0, 1], env={"RINGLANE_TIMEOUT": "1"})


def test_a_rank_that_never_calls(job: Job) -> None:
    job.run(2, "never_calls", env={"RINGLANE_TIMEOUT": "1"})


def test_a_wait_that_is_too_short_can_be_repeated(job: Job) -> None:
    job.run(2, "short_wait")


def test_abort_reaches_every_rank(job: Job) -> None:
    job.run(3, "aborted")


def test_two_threads_on_one_communicator(job: Job) -> None:
    job.run(2, "busy")


def test_forked_children(job: Job) -> None:
    job.run(2, "forked")


def test_the_end_without_close(job: Job) -> None:
    job.run(3, "ends_without_close")


def test_what_is_dropped_under_way_is_kept(job: Job) -> None:
    job.run(2, "dropped_under_way")


def test_a_rank_that_leaves_early(job: Job) -> None:
    job.run(2, "leaves_early")


def test_the_missing_library_is_explained(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", "import ringlane; ringlane.join()"],
        env={**os.environ, "RINGLANE_LIBRARY": str(tmp_path / "none.so")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "LibraryNotFound: find libringlane.so: not in" in done.stderr
    assert "RINGLANE_LIBRARY" in done.stderr


def test_ranks_without_an_environment() -> None:
    hidden = ("RANK", "WORLD_SIZE", "RINGLANE_RANK", "RINGLANE_SIZE")
    done = subprocess.run(
        [sys.executable, "-c", "import ringlane; ringlane.join()"],
        env={key: value for key, value in os.environ.items() if key not in hidden},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert "ringlane run" in done.stderr, done.stderr
