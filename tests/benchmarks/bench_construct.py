"""Measurements behind the docstrings of `tl_dyck.models.construct`: at which length does rounding break a construction?

    python tests/benchmarks/bench_construct.py [longest]      # 131072 by default

For each construction, dtype and length: the largest error of a next-token probability at the last 64 positions, over
random prefixes and prefixes made to let errors of one kind add up (a full stack, then one pair over and over).
"""

from __future__ import annotations

import sys
from collections.abc import Callable

import torch
from torch import Tensor

from tl_dyck import DyckDistribution, DyckLanguage, DyckTransformer, construct

QUERIES = 64
LANGUAGES = (DyckLanguage(2, 4), DyckLanguage(4, 6))
CONSTRUCTIONS: dict[str, Callable[..., DyckTransformer]] = {
    "uniform": construct.uniform_attention,
    "uniform, attention first": lambda *args, **kw: construct.uniform_attention(*args, first_layer="attention", **kw),
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
        [0] * (deepest - 1) + [last, last + 1] * length,  # the same pair on a full stack of another type
        [last] + ([0] * (deepest - 1) + [1] * (deepest - 1)) * length,  # nests on one bracket
    ]
    rows = torch.cat([random, torch.tensor([row[:length] for row in patterns])])
    return torch.cat([torch.full((len(rows), 1), language.bos_token), rows], 1)


@torch.no_grad()
def run(model: DyckTransformer, tokens: Tensor) -> Tensor:
    """Probabilities at the last positions, as the model computes them, but holding a slice of a pattern at a time."""
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


def main(longest: int) -> None:
    """Print the table."""
    for language in LANGUAGES:
        for name, build in CONSTRUCTIONS.items():
            for dtype in (torch.float32, torch.float64):
                # a first layer by attention is needed at every position, so it costs length² and not length
                reach = longest // 16 if "first" in name else longest
                lengths = [2048 * 4**i for i in range(12) if 2048 * 4**i <= reach]
                cells = [f"{length}: {cell(language, build, length, dtype)}" for length in lengths]
                where = f"Dyck({language.n_types},{language.max_depth}) {name}, {str(dtype).removeprefix('torch.')}"
                print(f"{where:50} {'   '.join(cells)}", flush=True)


def cell(language: DyckLanguage, build: Callable[..., DyckTransformer], length: int, dtype: torch.dtype) -> str:
    """The largest error at one length."""
    tokens = strings(language, length - 1)
    truth = DyckDistribution(language).next_token_probs(tokens)[:, -QUERIES:]
    try:
        model = build(language, n_ctx=length, dtype=dtype)
    except ValueError:
        return "refused"
    error = max(float((run(model, row[None]) - true).abs().max()) for row, true in zip(tokens, truth, strict=True))
    return f"{error:.1e}"


if __name__ == "__main__":
    torch.set_num_threads(1)
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 131072)
