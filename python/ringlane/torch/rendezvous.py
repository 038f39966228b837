"""How the ranks of a torch process group meet: through the group's store."""

from __future__ import annotations

import json
import os
import re
import secrets
import shutil
import tempfile
from datetime import timedelta
from pathlib import Path
from typing import Any

from ..communicator import Communicator, join
from ..errors import InvalidArgument
from . import buckets
from .process_group import ProcessGroup

_KEY = "ringlane"
_UNITS = {"h": 3600.0, "m": 60.0, "s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9}


def create(options: Any) -> ProcessGroup:
    """Return this rank's end of a new group.

    Rank 0 chooses the meeting place and passes it through the store: the launcher's
    RINGLANE_RENDEZVOUS, or a temporary directory of mode 0700 that is gone again as
    soon as the join is over, however it ends.
    """
    store, rank, size = options.store, options.group_rank, options.group_size
    if rank == 0:
        launcher = os.environ.get("RINGLANE_RENDEZVOUS", "")
        place: dict[str, Any] = {
            "directory": launcher or tempfile.mkdtemp(prefix="ringlane-"),
            "temporary": not launcher,
            "job": secrets.token_hex(16),
            "boot": _boot_id(),
        }
        store.set(_KEY, json.dumps(place))
    else:
        place = json.loads(store.get(_KEY))
        if place["boot"] != _boot_id():
            raise InvalidArgument(
                f"join: rank {rank} of the group runs on another machine than rank 0 "
                '(ringlane carries the ranks of one machine; use "gloo" or "nccl" across machines)'
            )
    joined = False
    try:
        communicator = _join(place, rank, size, options.timeout)
        joined = True
    finally:
        # After a failed join whoever is left tidies up: rank 0 may have been killed.
        if place["temporary"] and (rank == 0 or not joined):
            shutil.rmtree(place["directory"], ignore_errors=True)
    buckets.install()
    return ProcessGroup(communicator)


def _join(place: dict[str, Any], rank: int, size: int, timeout: timedelta) -> Communicator:
    return join(
        rank=rank,
        size=size,
        rendezvous=place["directory"],
        job=place["job"],
        timeout=_deadline(timeout),
    )


def _deadline(timeout: timedelta) -> float:
    """Return the deadline in seconds: RINGLANE_TIMEOUT, or the group's timeout."""
    text = os.environ.get("RINGLANE_TIMEOUT", "")
    if not text:
        return timeout.total_seconds()
    try:
        return float(text)
    except ValueError:
        parts = re.findall(r"(\d+(?:\.\d*)?|\.\d+)(ns|us|ms|s|m|h)", text)
        if "".join(number + unit for number, unit in parts) != text:
            raise InvalidArgument(
                f"RINGLANE_TIMEOUT: {text!r} is no duration (write 60, 60s or 2m30s)"
            ) from None
        return sum(float(number) * _UNITS[unit] for number, unit in parts)


def _boot_id() -> str:
    """Return what tells this running kernel from every other."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
