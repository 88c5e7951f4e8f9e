"""Training one seed, and many.

``python benchmarks/bench_seeds.py [--device cuda] [--seeds 1 8 40] [--families gpt eq6]``.

Seeds × steps per second, every way in the same run and in turns; on the CPU by processor time, of
one thread, but for "workers":

- plain: one seed after the other through the model's own forward pass, hook points and all, each
  on one batch that is there already; the others draw and pack fresh strings;
- single: one after the other as `train` does, on packed strings;
- fours: in groups of four, as `train_seeds` does on the CPU;
- together: all in one group, as `train_seeds` does on a GPU;
- workers: in fours, in worker processes of one thread each, one per core, as if the cores were idle
  otherwise.

The floor is what the products of a step of the plain loop with its weights would take at the speed
of one large float32 product if no filling were computed; the distance is from there to the best way
of one thread.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from harness import clock, heading, in_turns, options, peak_flops, row
from joblib import Parallel, cpu_count, delayed, parallel_config

from tl_dyck.models import build_model, get_config
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig
from tl_dyck.training.group import SeedGroup
from tl_dyck.training.run import RunState

TASK = load_task("dyck-2-4")
BOS = TASK.language.bos_token


def plain(family: str, n_seeds: int, batch: int, device: str) -> tuple[Callable[[], None], float]:
    """A step of every seed; and the operations of one seed's products with its weights."""
    models = [build_model(get_config(family, TASK, device=device), n) for n in range(n_seeds)]
    trained = [[p for p in model.parameters() if p.requires_grad] for model in models]
    optimizers = [torch.optim.AdamW(each, lr=1e-4, fused=True) for each in trained]
    generators = [torch.Generator().manual_seed(seed) for seed in range(n_seeds)]
    batches = [TASK.sample(batch, generator=generator).to(device) for generator in generators]

    def step() -> None:
        for model, optimizer, tokens in zip(models, optimizers, batches, strict=True):
            logits, after = model(tokens[:, :-1]), tokens[:, 1:]
            loss = F.cross_entropy(logits.flatten(0, 1), after.flatten(), ignore_index=BOS)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    weights = sum(p.numel() for p in trained[0] if p.ndim > 1)
    used = sum(int((tokens != BOS).sum()) for tokens in batches) / n_seeds
    return step, 6 * weights * used  # forward 2, backward 4 a weight and token


def grouped(family: str, n_seeds: int, size: int, batch: int, device: str) -> Callable[[], None]:
    """Groups of `size` seeds, in turns, with all of a step of `train_seeds` but measurements."""
    training = TrainConfig(steps=10**6, check_every=10**6, batch_size=batch, learning_rate=1e-4)
    config = get_config(family, TASK, device=device)
    runs = [RunState(config, TASK, training, seed) for seed in range(n_seeds)]
    groups = [SeedGroup(runs[i : i + size]) for i in range(0, n_seeds, size)]

    def step() -> None:
        for group in groups:
            group.advance()

    return step


def work(family: str, n_seeds: int, batch: int, steps: int) -> float:
    """Processor time of `steps` steps in a worker."""
    torch.set_num_threads(1)
    return sum(in_turns({"": grouped(family, n_seeds, 4, batch, "cpu")}, steps)[""])


def in_workers(family: str, n_seeds: int, batch: int, steps: int) -> float:
    """Seeds × steps per second, all cores."""
    cores = cpu_count()
    shares = [len(range(n_seeds)[worker::cores]) for worker in range(cores)]
    with parallel_config(backend="loky", inner_max_num_threads=1):
        seconds = Parallel(n_jobs=cores)(
            delayed(work)(family, share, batch, steps) for share in shares if share
        )
    return n_seeds * steps / max(seconds)


def main() -> None:
    """Print a row for each family and number of seeds."""
    said = options(
        __doc__, device="cpu", seeds=[1, 8, 40], steps=64, batch=32,
        families=["minimal-onehot", "minimal-split", "gpt"],
    )  # fmt: skip
    device, batch, peak = said.device, said.batch, peak_flops(said.device)
    print(f"{device}, {cpu_count()} cores, batch {batch}; peak {peak / 1e9:.0f} GFLOP/s\n")
    names = ("plain", "single", "fours", "together", "workers")
    heading("family", "seeds", *names, "floor", "distance")
    for family in said.families:
        for n_seeds in said.seeds:
            step, operations = plain(family, n_seeds, batch, device)
            sizes = {"single": 1, "fours": 4, "together": n_seeds}
            ways = {name: grouped(family, n_seeds, n, batch, device) for name, n in sizes.items()}
            times = in_turns({"plain": step, **ways}, said.steps, lambda: clock(device))
            found = {name: n_seeds * said.steps / sum(each) for name, each in times.items()}
            best = max(found[name] for name in sizes)
            if device == "cpu":
                found["workers"] = in_workers(family, n_seeds, batch, 2 * said.steps)
            cells = [
                f"{found[name]:.0f} ({found[name] / found['plain']:.2f}×)" if name in found else "–"
                for name in names
            ]
            floor = peak / operations
            row(family, n_seeds, *cells, f"{floor:.0f}", f"{floor / best:.1f}×")


if __name__ == "__main__":
    main()
