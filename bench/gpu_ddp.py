"""A training step on GPUs: a transformer of 355 million parameters, DistributedDataParallel.

The batch is so large that the GPU is the slower half: with an eighth of it a step takes as long as
the host needs to launch 2,000 kernels, and says nothing of communication. Steps with and without
it take turns.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn
from torch.nn.parallel import DistributedDataParallel

LAYERS, WIDTH, HEADS, VOCABULARY = 24, 1024, 16, 50304  # 355 million parameters
BATCH, TOKENS = 64, 512
TURNS, STEPS, STEPS_BEFORE = 3, 4, 2


class Layer(nn.Module):
    """One layer of a transformer decoder."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.attend, self.project = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH)
        self.widen, self.narrow = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        heads = [
            part.unflatten(-1, (HEADS, -1)).transpose(1, 2)
            for part in self.attend(self.before(x)).chunk(3, -1)
        ]
        seen = F.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.project(seen.transpose(1, 2).flatten(2))
        return x + self.narrow(F.gelu(self.widen(self.between(x))))


class Model(nn.Module):
    """A language model whose output weights are its embedding; the loss of random tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList(Layer() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed(tokens)
        for layer in self.layers:
            x = layer(x)
        guess = F.linear(self.norm(x), self.embed.weight)
        return F.cross_entropy(guess[:, :-1].flatten(0, 1), tokens[:, 1:].flatten())


def ddp(
    rank: int,
    device: torch.device,
    timed: Callable[[Callable[[], Any], int], list[float]],
) -> dict[str, Any]:
    """Time training steps: with communication, without it, and of communication by itself."""
    torch.manual_seed(1)
    model = DistributedDataParallel(Model().to(device), gradient_as_bucket_view=True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    torch.manual_seed(2 + rank)
    tokens = torch.randint(VOCABULARY, (BATCH, TOKENS), device=device)

    def step() -> None:
        with torch.autocast("cuda", torch.bfloat16):
            loss = model(tokens)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=False)

    def alone() -> None:
        with model.no_sync():
            step()

    def of(run: Callable[[], Any]) -> list[float]:
        return [s * 1e3 for s in timed(run, STEPS_BEFORE + STEPS)[STEPS_BEFORE:]]

    found: dict[str, Any] = {
        "parameters": sum(p.numel() for p in model.parameters()),
        "batch": [BATCH, TOKENS],
        "step_ms": of(step),
    }
    sums = torch.stack([p.detach().double().sum() for p in model.parameters()])
    largest, smallest = sums.clone(), sums.clone()
    dist.all_reduce(largest, dist.ReduceOp.MAX)
    dist.all_reduce(smallest, dist.ReduceOp.MIN)
    found["same_parameters"] = bool((largest == smallest).all())
    found["alone_ms"] = of(alone)  # from here on every rank has its own parameters
    for _ in range(TURNS - 1):
        found["step_ms"] += of(step)
        found["alone_ms"] += of(alone)
    # The gradients are views of the buckets.
    storages = {p.grad.untyped_storage().data_ptr(): p.grad for p in model.parameters()}
    held = [
        torch.empty(0, device=device).set_(grad.untyped_storage()) for grad in storages.values()
    ]
    found["buckets_bytes"] = [b.numel() * b.element_size() for b in held]

    def buckets() -> None:
        for work in [dist.all_reduce(b, async_op=True) for b in held]:
            work.wait()

    found["buckets_ms"] = of(buckets)
    return found
