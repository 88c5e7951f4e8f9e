"""Counters that read their depth from a known place: for methods that ask what is read.

The residual stream at the end holds the depth itself in one coordinate, whether it is positive in
another, and nothing else. Which of them the unembedding reads is known.
"""

from __future__ import annotations

from typing import Any

import torch

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage
from tl_dyck.models.construct.parts import NEVER, Coordinates, States, empty_model
from tl_dyck.models.transformer import DyckTransformer

#: What the unembedding reads: weights of the depth, and of whether it is positive.
COUNTERS = {"once": (2.0, 0.0), "spare": (0.0, 2.0), "twice": (0.6, 0.7)}


@checked
@torch.no_grad()
def counter(
    max_depth: int,
    reads: str,
    *,
    n_ctx: int = 64,
    dtype: torch.dtype = torch.float64,
    device: str | None = None,
) -> DyckTransformer:
    """A model of Dyck(1, D) that closes where ``w₁ depth + w₂ [depth > 0] > 1``, and else opens.

    So its likeliest token can always follow: it opens at depth 0 and closes elsewhere. It has no
    use for attention, whose weights are zero. At `blocks.0.hook_resid_post`, the last coordinate
    but one is the depth, the last whether it is positive, and all others are 0.

    Let the depth be replaced by its mean m over positions, its sign by its mean p. Whatever is said
    not to be enough makes it close always, which is wrong after BOS already:

    - "once" reads the depth alone; without it, 2 m > 1. The sign is not read.
    - "spare" reads the sign alone; without it, 2 p > 1. The depth can be decoded and is not read.
    - "twice" reads both, and either is enough if 0.5 < m < 1.66 and p > 4/7; without both, 0.6 m +
      0.7 p > 1. For strings of the tasks, m is about 1.3 and p about 0.7.

    Args:
        max_depth: D.
        reads: a key of `COUNTERS`.
        n_ctx: longest input, BOS included.
        dtype: of weights and activations.
        device: None for TransformerLens' default.

    Raises:
        UnknownNameError: no such way to read.
    """
    if reads not in COUNTERS:
        raise unknown_name("way to read", reads, COUNTERS)
    language = DyckLanguage(1, max_depth)
    coordinates = Coordinates()
    states = States(language, coordinates)
    depth, sign = coordinates.take(2)
    depths = {states.bos: 0} | {states.open(0, d): d for d in range(1, max_depth + 1)}
    depths |= {states.close(0, d): d for d in range(max_depth)}
    model = empty_model(
        language,
        model_name=f"counter-{reads}",
        embedding="onehot",
        n_layers=1,
        d_model=coordinates.size,
        d_head=1,
        d_mlp=len(depths),
        n_ctx=n_ctx,
        dtype=dtype,
        device=device,
    )
    mlp: Any = model.blocks[0].mlp
    for unit, (state, level) in enumerate(depths.items()):
        mlp.W_in[state, unit], mlp.W_out[unit, state] = 1, -1
        mlp.W_out[unit, depth], mlp.W_out[unit, sign] = level, float(level > 0)
    model.unembed.W_U[[depth, sign], 1] = torch.tensor(COUNTERS[reads]).to(model.unembed.W_U)
    model.unembed.b_U[1], model.unembed.b_U[language.bos_token] = -1, NEVER
    return model
