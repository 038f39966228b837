"""What ranks on GPUs begin with. Ranks that outnumber the GPUs share them, and take turns."""

from __future__ import annotations

import os
from typing import Any

from ranks import rank, size

LONG = 300_000_000  # clock cycles: more than 100 ms


def init(backend: str = "ringlane", **options: Any) -> Any:
    """Join the job on this rank's GPU, and return that."""
    import torch
    import torch.distributed as dist

    import ringlane.torch  # noqa: F401

    device = torch.device("cuda", rank() % torch.cuda.device_count())
    torch.cuda.set_device(device)
    store = dist.FileStore(os.environ["TEST_STORE"], size())
    dist.init_process_group(backend, rank=rank(), world_size=size(), store=store, **options)
    return device


def mine(device: Any, count: int = 1000) -> Any:
    """Return a tensor of this rank's number plus one."""
    import torch

    return torch.full((count,), float(rank() + 1), device=device)


def total() -> float:
    """Return what the elements of all ranks' add up to."""
    return float(sum(range(1, size() + 1)))
