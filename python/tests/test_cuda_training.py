"""Training on GPUs: DDP, FSDP2, torch.compile and graphs of a step, against one process alone.

Needs torch with a GPU.
"""

from __future__ import annotations

import shutil
import warnings
from typing import Any

from cuda_ranks import init, mine, total
from ranks import Job, rank, result, size

STEPS = 4


def _network(device: Any) -> Any:
    import torch

    torch.manual_seed(5)
    layers = [torch.nn.Linear(64, 256), torch.nn.ReLU(), torch.nn.Linear(256, 256)]
    return torch.nn.Sequential(*layers, torch.nn.ReLU(), torch.nn.Linear(256, 8)).to(device)


def _batch(step: int, device: Any) -> Any:
    """Return the inputs of all ranks in a step: 8 rows for each."""
    import torch

    torch.manual_seed(1000 + step)
    return torch.randn(8 * size(), 64).to(device)


def _share(batch: Any) -> Any:
    return batch[8 * rank() : 8 * (rank() + 1)]


def _reference(device: Any, steps: int = STEPS) -> list[Any]:
    """Return the parameters that one process reaches which sees all inputs."""
    import torch

    net = _network(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    for step in range(steps):
        optimizer.zero_grad()
        net(_batch(step, device)).square().mean().backward()
        optimizer.step()
    return [p.detach().clone() for p in net.parameters()]


def _close(parameters: Any, reference: list[Any], what: str) -> None:
    import torch

    for i, (ours, theirs) in enumerate(zip(parameters, reference)):
        torch.testing.assert_close(
            ours.detach(), theirs, rtol=1e-4, atol=1e-6, msg=lambda m, i=i: f"{what}, {i}: {m}"
        )


def _train(model: Any, device: Any) -> None:
    import torch

    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    for step in range(STEPS):
        optimizer.zero_grad()
        model(_share(_batch(step, device))).square().mean().backward()
        optimizer.step()


def replicated() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.algorithms.ddp_comm_hooks import default_hooks
    from torch.nn.parallel import DistributedDataParallel

    device = init()
    reference = _reference(device)
    for options in (
        {},
        {"gradient_as_bucket_view": True},
        {"static_graph": True},
        {"find_unused_parameters": True},
    ):
        net = _network(device)
        model = DistributedDataParallel(net, [device], bucket_cap_mb=0.1, **options)
        _train(model, device)
        _close(net.parameters(), reference, f"DDP {options}")
    net = _network(device)
    model = DistributedDataParallel(net, [device], bucket_cap_mb=0.1)
    model.register_comm_hook(None, default_hooks.fp16_compress_hook)
    _train(model, device)
    for ours, theirs in zip(net.parameters(), reference):
        torch.testing.assert_close(ours.detach(), theirs, rtol=0.05, atol=0.01)
    # Gradients are added up before they are averaged.
    model = DistributedDataParallel(torch.nn.Linear(4, 1).to(device), [device])
    with model.no_sync():
        model(torch.ones(2, 4, device=device) * rank()).sum().backward()
    model(torch.ones(2, 4, device=device)).sum().backward()
    mean = 2.0 + 2.0 * sum(range(size())) / size()
    assert model.module.weight.grad.sub(mean).abs().max() < 1e-6
    _captured_step(device)
    _captured_replica(device)
    dist.destroy_process_group()


def _captured_step(device: Any) -> None:
    """A whole step in one graph: forward, backward, averages, optimizer."""
    import torch
    import torch.distributed as dist

    net = _network(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    x = torch.empty(8, 64, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        net(x).square().mean().backward()
        works = [
            dist.all_reduce(p.grad, dist.ReduceOp.AVG, async_op=i % 2 == 1)
            for i, p in enumerate(net.parameters())
        ]
        for work in works:
            if work is not None:
                work.wait()
        optimizer.step()

    _replay(net, optimizer, x, step, "a step in a graph")


def _captured_replica(device: Any) -> None:
    """The same with DDP, as torch's notes on CUDA graphs have it."""
    import torch
    from torch.nn.parallel import DistributedDataParallel

    net = _network(device)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        model = DistributedDataParallel(net, [device], bucket_cap_mb=0.1)
    torch.cuda.current_stream().wait_stream(side)
    optimizer = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
    x = torch.empty(8, 64, device=device)

    def step() -> None:
        optimizer.zero_grad(set_to_none=False)
        model(x).square().mean().backward()
        optimizer.step()

    _replay(net, optimizer, x, step, "a step of DDP in a graph")


def _replay(net: Any, optimizer: Any, x: Any, step: Any, what: str) -> None:
    """Warm up, begin again, capture a step, and train by replays."""
    import torch

    device = x.device
    begin = [p.detach().clone() for p in net.parameters()]
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(11):  # DDP has settled then
            x.copy_(_share(_batch(0, device)))
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        step()
    with torch.no_grad():
        for p, b in zip(net.parameters(), begin):
            p.copy_(b)
            optimizer.state[p]["momentum_buffer"].zero_()
    for i in range(STEPS):
        x.copy_(_share(_batch(i, device)))
        graph.replay()
    torch.cuda.synchronize()
    _close(net.parameters(), _reference(device), what)


def sharded() -> None:
    import torch
    import torch.distributed as dist
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    device = init()
    reference = _reference(device)
    mesh = init_device_mesh("cuda", (size(),))
    for reshard in (True, False):
        net = _network(device)
        for layer in net:
            if isinstance(layer, torch.nn.Linear):
                fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        fully_shard(net, mesh=mesh, reshard_after_forward=reshard)
        _train(net, device)
        full = [p.full_tensor() for p in net.parameters()]
        _close(full, reference, f"FSDP2, reshard {reshard}")
    dist.destroy_process_group()


def compiled(backend: str) -> None:
    import torch
    import torch.distributed as dist
    import torch.distributed._functional_collectives as functional

    # Of what torch says of itself, nothing is for us.
    warnings.filterwarnings("ignore")
    device = init()
    n, me, group = size(), rank(), dist.group.WORLD
    dist.all_reduce(mine(device))

    def function(x: Any) -> Any:
        y = functional.all_reduce(x * 2, "sum", group)
        parts = functional.all_gather_tensor(x[:2], 0, group)
        mean = functional.reduce_scatter_tensor(y[: 4 * n], "avg", 0, group)
        sent = functional.all_to_all_single(y[:n] + me, None, None, group)
        return y + 1, parts * 3, mean + 0, sent + 0

    step = function if backend == "eager" else torch.compile(function, backend=backend)
    done = 0
    for _ in range(3):
        y, parts, mean, sent = step(mine(device))
        assert y.eq(2 * total() + 1).all()
        assert parts.tolist() == [3.0 * (r + 1) for r in range(n) for _ in range(2)]
        assert mean.eq(2 * total()).all()
        assert sent.tolist() == [2 * total() + r for r in range(n)]
        done += 1
    result("compiled", done)
    dist.destroy_process_group()


def test_replicas(job: Job, cuda_gpus: int) -> None:
    job.run(2, "replicated")


def test_shards(job: Job, cuda_gpus: int) -> None:
    job.run(2, "sharded")


def test_functional_collectives(job: Job, cuda_gpus: int) -> None:
    assert job.run(2, "compiled", "eager") == {0: 3, 1: 3}


def test_compiled_collectives(job: Job, cuda_gpus: int) -> None:
    backend = "inductor" if shutil.which("gcc") or shutil.which("cc") else "aot_eager"
    assert job.run(2, "compiled", backend) == {0: 3, 1: 3}
