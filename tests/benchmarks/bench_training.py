"""How fast training is.

``python tests/benchmarks/bench_training.py [--device cuda] [--threads 1]``.

Per family, one step of `train` (strings drawn and packed, forward, backward, Adam) beside the same
step through the model's own forward pass, on a batch that is there already, alternating in one
process, and beside a floor: the time that the matrix products of the latter alone would take at the
speed that this machine reaches on one large float32 product. Then: seconds until six seeds of a
minimal-first-layer model close every bracket right, in worker processes of one thread each.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F

from tl_dyck.models import DyckTransformer, build_model, get_config
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, train_seeds
from tl_dyck.training.group import Group
from tl_dyck.training.run import RunState

FAMILIES = ("gpt", "eq6", "minimal-onehot", "figure2-onehot", "gpt-uniform")


def clock(device: str) -> float:
    """Seconds; of processor time on the CPU, so that what else it does does not count."""
    return time.process_time() if device == "cpu" else time.perf_counter()


def stepper(
    forward: Callable[[DyckTransformer, torch.Tensor], torch.Tensor],
    family: str,
    device: str,
    batch: int,
):
    """A function that makes one training step and returns its seconds."""
    task = load_task("dyck-2-4")
    model = build_model(get_config(family, task, device=device))
    tokens = task.sample(batch, generator=torch.Generator().manual_seed(0)).to(device)
    optimizer = torch.optim.AdamW(
        [p for p in model.parameters() if p.requires_grad], lr=1e-4, fused=True
    )

    def step() -> float:
        started = clock(device)
        logits = forward(model, tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=4)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if device != "cpu":
            torch.cuda.synchronize()
        return clock(device) - started

    return (
        step,
        sum(p.numel() for p in model.parameters() if p.ndim > 1 and p.requires_grad),
        tokens[:, 1:].numel(),
    )


def packed_stepper(family: str, device: str, batch: int):
    """A function that makes one step as `train` does and returns its seconds."""
    task = load_task("dyck-2-4")
    options = TrainConfig(steps=10**6, check_every=10**6, batch_size=batch, learning_rate=1e-4)
    group = Group([RunState(get_config(family, task, device=device), task, options, 0)])

    def step() -> float:
        started = clock(device)
        group.advance()
        return clock(device) - started  # the loss was read, so a GPU is done, too

    return step


def peak_flops(device: str) -> float:
    """Floating-point operations per second of a large float32 matrix product."""
    a = torch.randn(1024, 1024, device=device)
    times = []
    for _ in range(10):
        started = time.perf_counter()
        a @ a
        if device != "cpu":
            torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return 2 * 1024**3 / min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--batch", type=int, default=TrainConfig().batch_size)
    parser.add_argument("--steps", type=int, default=64)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    peak = peak_flops(arguments.device)
    print(
        f"{arguments.device}, {arguments.threads} thread(s), batch {arguments.batch}; peak "
        f"{peak / 1e9:.0f} GFLOP/s\n"
    )
    print(
        "| family | model's own forward, ms/step | `train`, ms/step | ratio | floor, "
        "ms | `train` / floor |"
    )
    print("|---|---|---|---|---|---|")
    for family in FAMILIES:
        own, weights, n_tokens = stepper(
            lambda model, tokens: model(tokens), family, arguments.device, arguments.batch
        )
        packed = packed_stepper(family, arguments.device, arguments.batch)
        pairs = [(own(), packed()) for _ in range(arguments.steps + 5)][5:]
        # the mean, since strings are drawn for 32 steps at once
        slow, fast = (1e3 * statistics.fmean(times) for times in zip(*pairs, strict=True))
        floor = (
            1e3 * 6 * weights * n_tokens / peak
        )  # forward 2, backward 4 operations per weight and token
        print(
            f"| {family} | {slow:.1f} | {fast:.1f} | {slow / fast:.2f} | {floor:.2f} | "
            f"{fast / floor:.1f} |",
            flush=True,
        )

    started = time.perf_counter()
    options = TrainConfig(target=1.0, check_every=25, steps=1000)
    results = train_seeds(
        get_config("minimal-onehot", "dyck-2-4", device=arguments.device),
        "dyck-2-4",
        seeds=range(6),
        options=options,
    )
    seconds = time.perf_counter() - started
    print(f"\nsix seeds of minimal-onehot: {seconds:.1f} s, worker start included;")
    for result in results:
        print(f"  {result}")


if __name__ == "__main__":
    main()
