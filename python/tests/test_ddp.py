"""DistributedDataParallel over ringlane: gradients are the average over the ranks."""

from __future__ import annotations

import os
from typing import Any

from ranks import Job, rank, size


def ddp() -> None:
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    import ringlane.torch  # noqa: F401

    store = dist.FileStore(os.environ["TEST_STORE"], size())
    dist.init_process_group("ringlane", rank=rank(), world_size=size(), store=store)

    class Branches(torch.nn.Module):
        """Two branches of which a forward pass uses one, then layers that all use."""

        def __init__(self, dtype: torch.dtype) -> None:
            super().__init__()
            self.branches = torch.nn.ModuleList(
                torch.nn.Linear(8, 16, dtype=dtype) for _ in range(2)
            )
            self.norm = torch.nn.BatchNorm1d(16, dtype=dtype)
            self.last = torch.nn.Linear(16, 300, dtype=dtype)

        def forward(self, x: torch.Tensor, branch: int) -> torch.Tensor:
            return self.last(self.norm(self.branches[branch](x)))

    def gradients(model: torch.nn.Module) -> list[torch.Tensor | None]:
        return [None if p.grad is None else p.grad.clone() for p in model.parameters()]

    def check(dtype: torch.dtype, branch: int, steps: int, **options: Any) -> None:
        torch.manual_seed(rank())  # DDP broadcasts rank 0's weights
        bare = Branches(dtype)
        model = DistributedDataParallel(bare, bucket_cap_mb=0.01, **options)
        twin = Branches(dtype)
        twin.load_state_dict(bare.state_dict())
        for step in range(steps):
            x = torch.randn(4, 8, dtype=dtype)
            for network in (model, twin):
                network.zero_grad()
                network(x, branch).square().mean().backward()
            for ours, local in zip(gradients(bare), gradients(twin)):
                everyone = torch.zeros_like(ours if ours is not None else torch.zeros(()))
                if ours is None:
                    assert local is None
                    continue
                everyone.add_(local if local is not None else 0)
                dist.all_reduce(everyone, dist.ReduceOp.AVG)
                assert torch.allclose(ours, everyone, rtol=1e-4, atol=1e-6), (step, options)

    for dtype in (torch.float32, torch.float64):
        check(dtype, branch=0, steps=3, find_unused_parameters=True)
    # Each rank uses the branch that the other leaves out.
    check(torch.float32, branch=rank() % 2, steps=3, find_unused_parameters=True)
    check(torch.float32, branch=0, steps=3, find_unused_parameters=True, static_graph=True)
    check(
        torch.float32,
        branch=0,
        steps=3,
        find_unused_parameters=True,
        gradient_as_bucket_view=True,
    )

    # Accumulation without synchronising, then a step that does.
    model = DistributedDataParallel(torch.nn.Linear(4, 1))
    with model.no_sync():
        model(torch.ones(2, 4) * rank()).sum().backward()
    model(torch.ones(2, 4)).sum().backward()
    mean = 2.0 + 2.0 * sum(range(size())) / size()
    assert torch.allclose(model.module.weight.grad, torch.full((1, 4), mean))
    dist.barrier()
    dist.destroy_process_group()


def test_gradients_are_averaged(job: Job) -> None:
    job.run(2, "ddp")
