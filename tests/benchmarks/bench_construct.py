"""Measurements behind the docstrings of `tl_dyck.models.construct`.

    python tests/benchmarks/bench_construct.py precision [longest]  # at which length they break
    python tests/benchmarks/bench_construct.py width                # how wide for a given ε
    python tests/benchmarks/bench_construct.py                      # both, up to 32768 tokens

Precision: for each construction, dtype and length, the largest error of a next-token probability at
the last 64 positions, over random prefixes and prefixes made to let errors of one kind add up (a
full stack, then one pair over and over). Width: random networks of growing width, pruned to the
same targets; ε is the bound that comes with the pruning.
"""

from __future__ import annotations

import math
import statistics
import sys
from collections.abc import Callable

import torch
from torch import Tensor

from tl_dyck import (
    DyckDistribution,
    DyckLanguage,
    DyckTransformer,
    build_model,
    construct,
    get_config,
    load_task,
)

QUERIES = 64
LANGUAGES = (DyckLanguage(2, 4), DyckLanguage(4, 6))
CONSTRUCTIONS: dict[str, Callable[..., DyckTransformer]] = {
    "uniform": construct.uniform_attention,
    "uniform, attention first": lambda *args, **kw: construct.uniform_attention(
        *args, first_layer="attention", **kw
    ),
    "balanced": construct.balanced,
    "stack": construct.stack,
}


def strings(language: DyckLanguage, length: int) -> Tensor:
    """Prefixes of one length, BOS first."""
    k, deepest = language.n_types, language.max_depth
    generator = torch.Generator().manual_seed(length)
    random = DyckDistribution(language).sample(2, length, mode="prefix", generator=generator)
    last = 2 * (k - 1)
    patterns = [
        [0] * (deepest - 1)
        + [last, last + 1] * length,  # the same pair on a full stack of another type
        [last] + ([0] * (deepest - 1) + [1] * (deepest - 1)) * length,  # nests on one bracket
    ]
    rows = torch.cat([random, torch.tensor([row[:length] for row in patterns])])
    return torch.cat([torch.full((len(rows), 1), language.bos_token), rows], 1)


@torch.no_grad()
def run(model: DyckTransformer, tokens: Tensor) -> Tensor:
    """Probabilities at the last positions, as the model computes them, by slices of a pattern."""
    stream = model.embed(tokens) + model.pos_embed(tokens)
    length = tokens.shape[1]
    for index, block in enumerate(model.blocks):
        last = index == len(model.blocks) - 1
        attn = block.attn
        out = []
        for first in range(length - QUERIES if last else 0, length, QUERIES):
            rows = torch.arange(first, min(first + QUERIES, length))
            query = stream[:, rows] @ attn.W_Q[0] + attn.b_Q[0]
            key = stream[:, : rows[-1] + 1] @ attn.W_K[0] + attn.b_K[0]
            value = stream[:, : rows[-1] + 1] @ attn.W_V[0] + attn.b_V[0]
            score = query @ key.mT / attn.attn_scale
            score.masked_fill_(torch.arange(len(key[0])) > rows[:, None], -torch.inf)
            out.append(score.softmax(-1) @ value @ attn.W_O[0] + attn.b_O)
        if last:
            stream = stream[:, -QUERIES:]
        stream = stream + block.ln1_post(torch.cat(out, 1))
        stream = stream + block.mlp(stream)
    return model.unembed(stream).double().softmax(-1)


def precision(longest: int) -> None:
    """Print a row for each construction and dtype."""
    for language in LANGUAGES:
        for name, build in CONSTRUCTIONS.items():
            for dtype in (torch.float32, torch.float64):
                # a first layer by attention is needed at every position, so it costs length² and
                # not length
                reach = longest // 16 if "first" in name else longest
                lengths = [2048 * 4**i for i in range(12) if 2048 * 4**i <= reach]
                cells = [f"{length}: {cell(language, build, length, dtype)}" for length in lengths]
                where = (
                    f"Dyck({language.n_types},{language.max_depth}) {name}, "
                    f"{str(dtype).removeprefix('torch.')}"
                )
                print(f"{where:50} {'   '.join(cells)}", flush=True)


def cell(
    language: DyckLanguage, build: Callable[..., DyckTransformer], length: int, dtype: torch.dtype
) -> str:
    """The largest error at one length."""
    tokens = strings(language, length - 1)
    truth = DyckDistribution(language).next_token_probs(tokens)[:, -QUERIES:]
    try:
        model = build(language, n_ctx=length, dtype=dtype)
    except ValueError:
        return "refused"
    error = max(
        float((run(model, row[None]) - true).abs().max())
        for row, true in zip(tokens, truth, strict=True)
    )
    return f"{error:.1e}"


def small_target(seed: int, n_layers: int) -> DyckTransformer:
    """A model of Eq. 6 blocks with small random weights and biases."""
    config = get_config(
        "eq6",
        "dyck-2-4",
        n_layers=n_layers,
        d_model=8,
        d_mlp=8,
        d_head=4,
        ln_c=0.5,
        n_ctx=65,
        dtype=torch.float64,
    )
    model = build_model(config)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.requires_grad:
                parameter.copy_(
                    0.15 * torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
                )
    return model


def width(n_targets: int = 4) -> None:
    """Print ε against width, and the slope of the width over log2(1/ε)."""
    task = load_task("dyck-2-4")
    tokens = task.sample(64, generator=torch.Generator().manual_seed(0))
    for n_layers in (1, 2):
        targets = [small_target(seed, n_layers) for seed in range(n_targets)]
        bits, rows = [], (10, 14, 18, 22, 26, 30)
        for items in rows:
            bounds, errors = [], []
            for seed, target in enumerate(targets):
                network = construct.random_network(target, items=items, scale=2.0, seed=100 + seed)
                pruning = construct.prune_to(target, network, 1e6)
                with torch.no_grad():
                    errors.append(float((target(tokens) - pruning.model(tokens)).abs().max()))
                bounds.append(pruning.bound)
            cfg = network.cfg
            mean = statistics.geometric_mean(bounds)
            bits.append(-math.log2(mean))
            print(
                f"{n_layers} layer(s): items {items:2}  d_model {cfg.d_model}  d_head "
                f"{cfg.d_head}  d_mlp {cfg.d_mlp}  weights kept {pruning.kept:.1%}  bound "
                f"{mean:.1e}  largest error seen {max(errors):.1e}",
                flush=True,
            )
        slope = statistics.linear_regression(bits, rows)
        print(f"{n_layers} layer(s): items = {slope.intercept:.1f} + {slope.slope:.2f} log2(1/ε)")


def main(arguments: list[str]) -> None:
    """Run what was asked for."""
    what, *rest = arguments or ["both"]
    if what in ("precision", "both"):
        precision(int(rest[0]) if rest else 32768)
    if what in ("width", "both"):
        width()


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(sys.argv[1:])
