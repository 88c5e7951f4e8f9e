"""Training many seeds.

``python tests/benchmarks/bench_seeds.py [--device cuda] [--seeds 8 40 256] [--steps 16]``.

Seeds × steps per second, every way in the same run and in turns, so that what else the machine does
falls on all alike; on the CPU by processor time, of one thread, but for "workers":

- plain: one seed after the other through the model's own forward pass, hook points and all;
- lean: one after the other through `lean_logits`;
- vmap: `torch.func.vmap` over the HookedTransformer, all seeds in one forward pass, and one Adam
  for all;
- single: one after the other as `train` does, on packed strings;
- fours: in groups of four, as `train_seeds` does on the CPU;
- together: all in one group, as `train_seeds` does on a GPU;
- workers: in fours, in worker processes of one thread each, one per core, as if the cores were idle
  otherwise.

The first three have one batch each, the others draw and pack fresh strings. The floor is what the
products of a step of the plain loop with its weights would take at the speed of one large float32
product, and, beside it, what they would if no filling were computed; the distance is from there to
the best way of one thread.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from bench_training import peak_flops
from joblib import Parallel, cpu_count, delayed, parallel_config
from torch import Tensor, nn

from tl_dyck.models import DyckTransformer, build_model, get_config, lean_logits
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig
from tl_dyck.training.group import Group
from tl_dyck.training.run import RunState

FAMILIES = ("minimal-onehot", "minimal-split", "gpt")
TASK = load_task("dyck-2-4")
BOS = TASK.language.bos_token


def batches(n_seeds: int, batch: int, device: str) -> Tensor:
    """Strings for every seed, ``[seed, batch, pos]``."""
    rows = [
        TASK.sample(batch, generator=torch.Generator().manual_seed(seed)) for seed in range(n_seeds)
    ]
    return torch.stack(rows).to(device)


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), tokens[..., 1:].flatten(), ignore_index=BOS)


def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def trained(model: DyckTransformer) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def one_by_one(
    forward: Callable[[DyckTransformer, Tensor], Tensor], models: list, tokens: Tensor
) -> Callable:
    optimizers = [adam(trained(model)) for model in models]

    def step() -> None:
        for model, optimizer, rows in zip(models, optimizers, tokens, strict=True):
            loss = loss_of(forward(model, rows[:, :-1]), rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return step


class AfterTokens(nn.Module):
    """The forward pass of a HookedTransformer after its check of tokens, which vmap can't trace."""

    def __init__(self, model: DyckTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, constant: Tensor) -> Tensor:
        own = self.model.cfg.embedding == "token"
        embedded = self.model.hook_embed(self.model.embed(tokens) if own else constant)
        position = self.model.hook_pos_embed(
            self.model.pos_embed.W_pos[: tokens.shape[1]].expand_as(embedded)
        )
        return self.model(embedded + position, start_at_layer=0)


def by_vmap(models: list, tokens: Tensor) -> Callable:
    parts = [AfterTokens(model) for model in models]
    stacked, constants = torch.func.stack_module_state(parts)
    optimizer = adam([value for value in stacked.values() if value.requires_grad])
    embedded = torch.stack(
        [m.embed(rows[:, :-1]) for m, rows in zip(models, tokens, strict=True)]
    ).detach()

    def loss(state: dict, constant: dict, rows: Tensor, x: Tensor) -> Tensor:
        return loss_of(
            torch.func.functional_call(parts[0], (state, constant), (rows[:, :-1], x)), rows
        )

    def step() -> None:
        total = torch.func.vmap(loss)(stacked, constants, tokens, embedded).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()

    return step


def grouped(family: str, n_seeds: int, size: int, batch: int, device: str) -> Callable:
    """Groups of `size` seeds, in turns, with all of a step of `train_seeds` but measurements."""
    options = TrainConfig(steps=10**6, check_every=10**6, batch_size=batch, learning_rate=1e-4)
    config = get_config(family, TASK, device=device)
    runs = [RunState(config, TASK, options, seed) for seed in range(n_seeds)]
    groups = [Group(runs[i : i + size]) for i in range(0, n_seeds, size)]

    def step() -> None:
        for group in groups:
            group.advance()

    return step


def work(family: str, n_seeds: int, batch: int, steps: int) -> float:
    """Processor time of `steps` steps in a worker."""
    torch.set_num_threads(1)
    step = grouped(family, n_seeds, 4, batch, "cpu")
    step()
    started = time.process_time()
    for _ in range(steps):
        step()
    return time.process_time() - started


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[8, 40])
    parser.add_argument("--steps", type=int, default=16, help="a quarter of the number of steps")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    arguments = parser.parse_args()
    device, batch = arguments.device, arguments.batch
    cores = cpu_count()
    torch.set_num_threads(1)
    peak = peak_flops(device)
    print(f"{device}, {cores} cores, batch {batch}; peak {peak / 1e9:.0f} GFLOP/s (one thread)\n")
    ways = ("plain", "lean", "vmap", "single", "fours", "together", "workers")
    print(f"| family | seeds | {' | '.join(ways)} | floor | without filling | distance |")
    print(f"|---|---|{'---|' * len(ways)}---|---|---|")
    for family in arguments.families:
        for n_seeds in arguments.seeds:
            tokens = batches(n_seeds, batch, device)

            def models(family: str = family, n_seeds: int = n_seeds) -> list[DyckTransformer]:
                return [
                    build_model(get_config(family, TASK, device=device), seed)
                    for seed in range(n_seeds)
                ]

            steps = {
                "plain": one_by_one(lambda model, rows: model(rows), models(), tokens),
                "lean": one_by_one(lean_logits, models(), tokens),
                "vmap": by_vmap(models(), tokens),
                "single": grouped(family, n_seeds, 1, batch, device),
                "fours": grouped(family, n_seeds, 4, batch, device),
                "together": grouped(family, n_seeds, n_seeds, batch, device),
            }
            found = measure(steps, n_seeds, arguments.steps, device)
            if device == "cpu":
                found["workers"] = measure_workers(
                    family, n_seeds, batch, 8 * arguments.steps, cores
                )
            weights = sum(p.numel() for p in trained(models()[0]) if p.ndim > 1)
            slots, used = tokens[0, :, 1:].numel(), (tokens != BOS).sum().item() / n_seeds
            floors = [
                peak / (6 * weights * rows) for rows in (slots, used)
            ]  # forward 2, backward 4 a weight and row
            best = max(found[way] for way in ("single", "fours", "together"))
            cells = [
                f"{found[way]:.0f} ({found[way] / found['plain']:.2f}×)" if way in found else "–"
                for way in ways
            ]
            cells += [f"{floor:.0f}" for floor in floors] + [f"{floors[1] / best:.1f}×"]
            print(f"| {family} | {n_seeds} | {' | '.join(cells)} |", flush=True)


def measure(steps: dict[str, Callable], n_seeds: int, rounds: int, device: str) -> dict[str, float]:
    """Seeds × steps per second of each way, in turns."""
    clock = time.process_time if device == "cpu" else time.perf_counter
    times = dict.fromkeys(steps, 0.0)
    for step in steps.values():
        step()  # the first draws strings, and allocates
    for _ in range(4 * rounds):
        for name, step in steps.items():
            started = clock()
            step()
            if device != "cpu":
                torch.cuda.synchronize()
            times[name] += clock() - started
    return {name: n_seeds * 4 * rounds / seconds for name, seconds in times.items()}


def measure_workers(family: str, n_seeds: int, batch: int, steps: int, cores: int) -> float:
    shares = [len(range(n_seeds)[worker::cores]) for worker in range(cores)]
    with parallel_config(backend="loky", inner_max_num_threads=1):
        seconds = Parallel(n_jobs=cores)(
            delayed(work)(family, share, batch, steps) for share in shares if share
        )
    return n_seeds * steps / max(seconds)


if __name__ == "__main__":
    main()
