"""Training many seeds: ``python tests/benchmarks/bench_seeds.py [--device cuda] [--seeds 8 40] [--steps 20]``.

Seeds × steps per second, every way in the same run and in turns, so that what else the machine does falls on all alike:

- plain: one seed after the other through the model's own forward pass, hook points and all;
- lean: one after the other through `lean_logits`, as `train` does;
- workers: lean, in worker processes of one thread each, as `train_seeds` does (the pool is warm);
- vmap: `torch.func.vmap` over the HookedTransformer, all seeds in one forward pass, and one Adam for all;
- batched: all seeds in one forward pass with stacked weights, written by hand with `torch.baddbmm`, and one Adam.

The floor is what the matrix products of a step would take at the speed of one large float32 product.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import torch
import torch.nn.functional as F
from bench_training import peak_flops
from joblib import Parallel, cpu_count, delayed, parallel_config
from torch import Tensor, nn

from tl_dyck.models import DyckTransformer, build_model, get_config
from tl_dyck.tasks import load_task
from tl_dyck.training import lean_logits

FAMILIES = ("minimal-onehot", "gpt")
TASK = load_task("dyck-2-4")
BOS = TASK.language.bos_token


def batches(n_seeds: int, batch: int, device: str) -> Tensor:
    """Strings for every seed, ``[seed, batch, pos]``."""
    rows = [TASK.sample(batch, generator=torch.Generator().manual_seed(seed)) for seed in range(n_seeds)]
    return torch.stack(rows).to(device)


def loss_of(logits: Tensor, tokens: Tensor) -> Tensor:
    return F.cross_entropy(logits.flatten(0, -2), tokens[..., 1:].flatten(), ignore_index=BOS)


def adam(parameters: list[Tensor]) -> torch.optim.Optimizer:
    return torch.optim.AdamW(parameters, lr=1e-4, fused=True)


def trained(model: DyckTransformer) -> list[nn.Parameter]:
    return [parameter for parameter in model.parameters() if parameter.requires_grad]


def one_by_one(forward: Callable[[DyckTransformer, Tensor], Tensor], models: list, tokens: Tensor) -> Callable:
    optimizers = [adam(trained(model)) for model in models]

    def step() -> None:
        for model, optimizer, rows in zip(models, optimizers, tokens, strict=True):
            loss = loss_of(forward(model, rows[:, :-1]), rows)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()

    return step


def work(family: str, seeds: list[int], batch: int, steps: int) -> None:
    torch.set_num_threads(1)
    step = one_by_one(
        lean_logits,
        [build_model(get_config(family, TASK, device="cpu"), seed) for seed in seeds],
        batches(len(seeds), batch, "cpu"),
    )
    for _ in range(steps):
        step()


class AfterTokens(nn.Module):
    """The forward pass of a HookedTransformer after its check of the tokens, which vmap cannot trace."""

    def __init__(self, model: DyckTransformer) -> None:
        super().__init__()
        self.model = model

    def forward(self, tokens: Tensor, constant: Tensor) -> Tensor:
        own = self.model.cfg.embedding == "token"
        embedded = self.model.hook_embed(self.model.embed(tokens) if own else constant)
        position = self.model.hook_pos_embed(self.model.pos_embed.W_pos[: tokens.shape[1]].expand_as(embedded))
        return self.model(embedded + position, start_at_layer=0)


def by_vmap(models: list, tokens: Tensor) -> Callable:
    parts = [AfterTokens(model) for model in models]
    stacked, constants = torch.func.stack_module_state(parts)
    optimizer = adam([value for value in stacked.values() if value.requires_grad])
    embedded = torch.stack([m.embed(rows[:, :-1]) for m, rows in zip(models, tokens, strict=True)]).detach()

    def loss(state: dict, constant: dict, rows: Tensor, x: Tensor) -> Tensor:
        return loss_of(torch.func.functional_call(parts[0], (state, constant), (rows[:, :-1], x)), rows)

    def step() -> None:
        total = torch.func.vmap(loss)(stacked, constants, tokens, embedded).sum()
        optimizer.zero_grad()
        total.backward()
        optimizer.step()

    return step


def batched(models: list, tokens: Tensor) -> Callable:
    """Stacked weights, ``[seed, in, out]``; every product is one baddbmm over all seeds."""
    cfg, n_seeds = models[0].cfg, len(models)
    weights = {
        name: torch.stack([dict(model.named_parameters())[name].detach() for model in models]).requires_grad_()
        for name, parameter in models[0].named_parameters()
        if parameter.requires_grad
    }
    optimizer = adam(list(weights.values()))
    x0 = torch.stack([model.embed(rows[:, :-1]) for model, rows in zip(models, tokens, strict=True)]).detach()
    batch, length = tokens.shape[1], tokens.shape[2] - 1

    def norm(x: Tensor, name: str) -> Tensor:
        return (
            F.layer_norm(x, x.shape[-1:], eps=cfg.eps) * weights[f"{name}.w"][:, None] + weights[f"{name}.b"][:, None]
        )

    def forward() -> Tensor:
        if cfg.embedding == "token":
            rows = tokens[:, :, :-1].flatten(1)
            x = weights["embed.W_E"].gather(1, rows[:, :, None].expand(-1, -1, cfg.d_model))
        else:
            x = x0.flatten(1, 2)
        for layer in range(cfg.n_layers):
            part = f"blocks.{layer}."
            y = norm(x, f"{part}ln1") if cfg.block == "gpt" else x
            W = torch.cat([weights[f"{part}attn.W_{name}"][:, 0] for name in "QKV"], dim=-1)
            b = torch.cat([weights[f"{part}attn.b_{name}"][:, 0] for name in "QKV"], dim=-1)
            parts = torch.baddbmm(b[:, None], y, W).view(n_seeds * batch, 1, length, 3, cfg.d_head)
            q, k, v = parts.permute(3, 0, 1, 2, 4).unbind()
            z = F.scaled_dot_product_attention(
                q, k, v, is_causal=True, scale=1 / models[0].blocks[layer].attn.attn_scale
            )
            z = z.reshape(n_seeds, batch * length, cfg.d_head)
            out = torch.baddbmm(weights[f"{part}attn.b_O"][:, None], z, weights[f"{part}attn.W_O"][:, 0])
            if cfg.block == "eq6":
                out = out - out.mean(-1, keepdim=True)
                out = out / torch.linalg.vector_norm(out, dim=-1, keepdim=True).clamp_min(cfg.ln_c)
            x = x + out
            y = norm(x, f"{part}ln2") if cfg.block == "gpt" else x
            hidden = F.relu(torch.baddbmm(weights[f"{part}mlp.b_in"][:, None], y, weights[f"{part}mlp.W_in"]))
            x = x + torch.baddbmm(weights[f"{part}mlp.b_out"][:, None], hidden, weights[f"{part}mlp.W_out"])
        if cfg.block == "gpt":
            x = norm(x, "ln_final")
        return torch.baddbmm(weights["unembed.b_U"][:, None], x, weights["unembed.W_U"])

    def step() -> None:
        # each seed's own mean, added up: gradients of one seed do not depend on the others
        nats = F.cross_entropy(
            forward().flatten(0, 1), tokens[:, :, 1:].flatten(), ignore_index=BOS, reduction="none"
        ).view(n_seeds, -1)
        loss = (nats.sum(-1) / (tokens[:, :, 1:] != BOS).flatten(1).sum(-1)).sum()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    step.forward = forward  # type: ignore[attr-defined]
    return step


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--seeds", type=int, nargs="+", default=[8, 40])
    parser.add_argument("--steps", type=int, default=12)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--families", nargs="+", default=FAMILIES)
    arguments = parser.parse_args()
    device, batch = arguments.device, arguments.batch
    cores = cpu_count()
    peak = peak_flops(device)
    print(f"{device}, {cores} cores, batch {batch}; peak {peak / 1e9:.0f} GFLOP/s (one thread)\n")
    ways = ("plain", "lean", "workers", "vmap", "batched", "batched, all cores")
    print(f"| family | seeds | {' | '.join(ways)} | floor |\n|---|---|{'---|' * len(ways)}---|")
    for family in arguments.families:
        for n_seeds in arguments.seeds:
            tokens = batches(n_seeds, batch, device)

            def models(family: str = family, n_seeds: int = n_seeds) -> list[DyckTransformer]:
                return [build_model(get_config(family, TASK, device=device), seed) for seed in range(n_seeds)]

            together = batched(models(), tokens)
            expected = torch.stack([lean_logits(m, rows[:, :-1]) for m, rows in zip(models(), tokens, strict=True)])
            torch.testing.assert_close(together.forward().view_as(expected), expected, rtol=1e-3, atol=1e-3)
            steps = {
                "plain": one_by_one(lambda model, rows: model(rows), models(), tokens),
                "lean": one_by_one(lean_logits, models(), tokens),
                "vmap": by_vmap(models(), tokens),
                "batched": together,
                "batched, all cores": batched(models(), tokens),
            }
            found = measure(steps, n_seeds, arguments.steps, cores, device)
            if device == "cpu":
                found["workers"] = measure_workers(family, n_seeds, batch, arguments.steps, cores)
            weights = sum(p.numel() for p in trained(models()[0]) if p.ndim > 1)
            floor = peak / (6 * weights * tokens[0, :, 1:].numel())  # of one thread
            cells = [f"{found[way]:.0f} ({found[way] / found['plain']:.2f}×)" if way in found else "–" for way in ways]
            print(f"| {family} | {n_seeds} | {' | '.join(cells)} | {floor:.0f} |", flush=True)


def measure(steps: dict[str, Callable], n_seeds: int, repeats: int, cores: int, device: str) -> dict[str, float]:
    """Median seeds × steps per second of each way, in turns."""
    times: dict[str, list[float]] = {name: [] for name in steps}
    for repeat in range(repeats + 2):
        for name, step in steps.items():
            torch.set_num_threads(cores if name.endswith("cores") else 1)
            started = time.perf_counter()
            step()
            if device != "cpu":
                torch.cuda.synchronize()
            if repeat >= 2:
                times[name].append(time.perf_counter() - started)
    torch.set_num_threads(1)
    return {name: n_seeds / statistics.median(found) for name, found in times.items()}


def measure_workers(family: str, n_seeds: int, batch: int, steps: int, cores: int) -> float:
    shares = [list(range(n_seeds))[worker::cores] for worker in range(cores)]
    with parallel_config(backend="loky", inner_max_num_threads=1):
        workers = Parallel(n_jobs=cores)
        workers(delayed(work)(family, share, batch, 2) for share in shares)  # imports, first steps
        longer, seconds = 3 * steps, []
        for number in (steps, longer):  # the difference is without building models
            started = time.perf_counter()
            workers(delayed(work)(family, share, batch, number) for share in shares)
            seconds.append(time.perf_counter() - started)
    return n_seeds * (longer - steps) / (seconds[1] - seconds[0])


if __name__ == "__main__":
    main()
