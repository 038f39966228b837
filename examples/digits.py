"""Train a classifier of handwritten digits, data-parallel, over ringlane and over gloo.

    ringlane run -n 4 -- python examples/digits.py

The data are scikit-learn's 1,797 scans of handwritten digits, 8 x 8 pixels each. Both
runs start from the same seed, so that they differ in nothing but the backend that sums
the gradients. The report says how well the model reads digits that it never saw, whether
the losses of both runs agree, and how long each backend took for its AllReduces.

Exit status: 0 if all checks hold, 1 if one fails.
"""

import argparse
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import ringlane.torch  # noqa: F401  registers the backend when run from the source tree

SEED = 2026
SCANS, HELD_OUT = 1797, 360
LOSS_TOLERANCE = 1e-5
ACCURACY = 0.96


@dataclass
class Run:
    """What one training run left behind on this rank."""

    backend: str
    seconds: float = 0.0
    accuracy: float = 0.0
    first_epoch: list[float] = field(default_factory=list)
    """The loss over all ranks at each step of the first epoch."""
    calls: list[float] = field(default_factory=list)
    """Seconds of each AllReduce, waiting for the slowest rank included."""
    call_bytes: int = 0


class Bar:
    """A progress bar in one line; in a pipe, at most twenty states of it."""

    def __init__(self, label: str, total: int, shown: bool) -> None:
        self.label, self.total, self.shown = label, total, shown
        self.states = 200 if sys.stdout.isatty() else 20
        self.state = -1

    def step(self, done: int, note: str) -> None:
        state = done * self.states // self.total
        if not self.shown or state == self.state:
            return
        self.state = state
        filled = 24 * done // self.total
        bar = "█" * filled + "░" * (24 - filled)
        end = "\n" if done == self.total else ""
        print(
            f"\r{self.label:<9}{bar} {100 * done // self.total:3d} %  {note}", end=end, flush=True
        )


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return images of shape (1797, 64), values 0 to 1, and their labels, in one random order.

    Rank 0 reads them and broadcasts them, so that only one process pays for the import.
    """
    images, labels = torch.empty(SCANS, 64), torch.empty(SCANS, dtype=torch.int64)
    if dist.get_rank() == 0:
        from sklearn.datasets import load_digits  # noqa: PLC0415

        data = load_digits()
        order = np.random.default_rng(SEED).permutation(SCANS)
        images.copy_(torch.from_numpy(data.data[order] / 16.0))
        labels.copy_(torch.from_numpy(data.target[order]))
    dist.broadcast(images, src=0)
    dist.broadcast(labels, src=0)
    return images, labels


def timed_all_reduce(run: Run) -> Callable[..., torch.futures.Future[torch.Tensor]]:
    """Return a DDP hook that averages each bucket of gradients and keeps how long it took."""

    def hook(_: object, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
        gradients = bucket.buffer().div_(dist.get_world_size())
        begin = time.perf_counter()
        dist.all_reduce(gradients)
        run.calls.append(time.perf_counter() - begin)
        run.call_bytes = max(run.call_bytes, gradients.nbytes)
        done: torch.futures.Future[torch.Tensor] = torch.futures.Future()
        done.set_result(gradients)
        return done

    return hook


def train(backend: str, store: dist.Store, options: argparse.Namespace) -> Run:
    """Train one model over one backend and measure it."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group(
        backend, rank=rank, world_size=size, store=dist.PrefixStore(backend, store)
    )
    try:
        run = Run(backend)
        images, labels = digits()
        held_images, images = images[:HELD_OUT], images[HELD_OUT:]
        held_labels, labels = labels[:HELD_OUT], labels[HELD_OUT:]
        torch.manual_seed(SEED)
        layers = nn.Sequential(
            nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 128), nn.ReLU(), nn.Linear(128, 10)
        )
        model = DistributedDataParallel(layers)
        model.register_comm_hook(None, timed_all_reduce(run))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=1e-4)
        loss_of = nn.CrossEntropyLoss()

        share = options.batch * size
        steps = len(images) // share
        total = steps * options.epochs
        schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, total)
        bar = Bar(backend, total, shown=rank == 0)
        shuffle = torch.Generator().manual_seed(SEED)
        begin = time.perf_counter()
        for epoch in range(options.epochs):
            order = torch.randperm(len(images), generator=shuffle)
            for step in range(steps):
                mine = order[step * share : (step + 1) * share][rank::size]
                optimizer.zero_grad()
                loss = loss_of(model(images[mine]), labels[mine])
                loss.backward()
                optimizer.step()
                schedule.step()
                if epoch == 0:
                    average = loss.detach().double() / size
                    dist.all_reduce(average)
                    run.first_epoch.append(average.item())
                done = epoch * steps + step + 1
                bar.step(done, f"epoch {epoch + 1}/{options.epochs}  loss {loss.item():.4f}")
        run.seconds = time.perf_counter() - begin

        with torch.no_grad():
            mine = slice(rank, None, size)
            right = model.module(held_images[mine]).argmax(1) == held_labels[mine]
            count = right.sum()
        dist.all_reduce(count)
        run.accuracy = count.item() / HELD_OUT
        return run
    finally:
        # torch waits for gloo's thread with the interpreter locked, and that thread may still
        # want the lock to drop the tensors of its last call: let it have it first.
        time.sleep(0.1)
        dist.destroy_process_group()


def report(ours: Run, theirs: Run, size: int) -> bool:
    """Print what both runs measured on this rank and return whether all checks hold."""
    first, second = np.array(ours.first_epoch), np.array(theirs.first_epoch)
    apart = float(np.max(np.abs(first - second) / np.abs(second)))
    accurate = ours.accuracy >= ACCURACY
    agree = apart <= LOSS_TOLERANCE
    print()
    print(f"{size} ranks, {ours.call_bytes:,} bytes of gradients a step, measured on rank 0")
    print(f"{'':22}{'ringlane':>12}{'gloo':>12}")
    print(f"{'accuracy, held out':22}{ours.accuracy:>12.1%}{theirs.accuracy:>12.1%}")
    print(f"{'training':22}{ours.seconds:>10.2f} s{theirs.seconds:>10.2f} s")
    print(f"{'AllReduces':22}{len(ours.calls):>12}{len(theirs.calls):>12}")
    for name, quantile in (("p50", 0.5), ("p99", 0.99), ("p99.9", 0.999)):
        values = [np.quantile(run.calls, quantile) * 1e6 for run in (ours, theirs)]
        print(f"{'  ' + name:22}{values[0]:>9.0f} us{values[1]:>9.0f} us")
    print(f"{'time in AllReduce':22}{sum(ours.calls):>10.2f} s{sum(theirs.calls):>10.2f} s")
    print()
    print(
        f"{_mark(accurate)}  {round(ours.accuracy * HELD_OUT)} of {HELD_OUT} digits that "
        f"the model never saw are read right (at least {ACCURACY:.0%} are wanted)"
    )
    print(
        f"{_mark(agree)}  losses agree with gloo's to {apart:.1e} at each of {len(first)} steps "
        f"of the first epoch (at most {LOSS_TOLERANCE:.0e} is wanted)"
    )
    return accurate and agree


def where_to_go_next() -> None:
    """Print the commands that this ringlane has for the next half hour."""
    binary = shutil.which("ringlane")
    if binary is None:
        return
    known = subprocess.run([binary, "help"], capture_output=True, text=True, check=False).stdout
    commands = {
        line.split()[0] for line in known.splitlines() if line.startswith("  ") and line.strip()
    }
    print("\nWhere to go next:")
    for command, example, says in (
        ("run", "run -n 4 -- python train.py", "your own training script, on 4 ranks"),
        ("bench", "bench allreduce -n 4", "latency and bandwidth, size by size"),
        ("topo", "topo", "the PCIe tree of this machine and its ring"),
        ("doctor", "doctor", "what holds this machine back"),
    ):
        if command in commands:
            print(f"  ringlane {example:<30}{says}")


def _mark(holds: bool) -> str:
    return "ok  " if holds else "FAIL"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--batch", type=int, default=12, help="images a rank and step")
    options = parser.parse_args()
    if "RANK" not in os.environ:
        parser.error("start it with: ringlane run -n 4 -- python examples/digits.py")
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    torch.set_num_threads(1)
    store = dist.TCPStore(
        os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]), size, is_master=rank == 0
    )
    ours = train("ringlane", store, options)
    theirs = train("gloo", store, options)
    held = True
    if rank == 0:
        held = report(ours, theirs, size)
        where_to_go_next()
    return 0 if held else 1


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit(130)
