"""A first layer that computes the depth by uniform attention: what a minimal one presupposes."""

from __future__ import annotations

import math
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, final

from tl_dyck.language import DyckLanguage
from tl_dyck.models.construct.parts import Coordinates, States


@final
@dataclass(frozen=True)
class CountCoordinates:
    """Coordinates of the first layer.

    Attributes:
        tokens: one per bracket token, 1 where the token is.
        depth: the first layer's attention writes depth / √(2 depth² + 2) here,
        bos: and 1 / √(2 depth² + 2) here.
        sinks: minus these two, so that the attention output has mean zero.
    """

    tokens: list[int]
    depth: int
    bos: int
    sinks: list[int]

    @staticmethod
    def take(language: DyckLanguage, coordinates: Coordinates) -> CountCoordinates:
        """Reserve them."""
        tokens, (depth, bos) = coordinates.take(language.n_brackets), coordinates.take(2)
        return CountCoordinates(tokens, depth, bos, coordinates.take(2))


def write_first_layer(model: Any, states: States, at: CountCoordinates) -> None:
    """Write the token embedding and block 0 so that the states come out, 0 or 1 each.

    The attention of block 0 must be uniform.

    The values of opening brackets, closing brackets and BOS are f, −f and g; their mean over n
    positions, (depth · f + g) / n, shrinks with n, but LN_C leaves its direction only, and that
    tells the depth (Eq. 34 and what follows; paper, App. C.3). ``depth ≥ d`` is where ``x_depth −
    (d − 1/2) x_bos = (depth − d + 1/2) / √(2 depth² + 2)`` is positive, and it is never closer to
    zero than 1 / √(8 D² + 8). So one hidden layer of step functions, each shut unless its token is
    there, finds token and depth together.
    """
    language = states.language
    block = model.blocks[0]
    attn, mlp = block.attn, block.mlp
    W_E = model.embed.W_E
    W_E[language.bos_token, states.bos] = 1
    for token, coordinate in enumerate(at.tokens):
        W_E[token, coordinate] = 1
        attn.W_V[0, coordinate, 0] = 1 if token % 2 == 0 else -1
    attn.W_V[0, states.bos, 1] = 1
    for head_dim, (coordinate, sink) in enumerate(zip((at.depth, at.bos), at.sinks, strict=True)):
        attn.W_O[0, head_dim, coordinate], attn.W_O[0, head_dim, sink] = 1, -1

    # y <= 0 or y >= 1, that is, on one side of the step
    slope = 2 * math.sqrt(2 * language.max_depth**2 + 2)
    closed = slope + 1  # y <= slope + 1/2 where the gate is open
    unit = 0
    for token, coordinate in enumerate(at.tokens):
        shallowest = token * states.depths
        mlp.W_in[coordinate, unit] = mlp.W_out[unit, shallowest] = 1
        unit += 1
        for depth, (previous, state) in enumerate(
            pairwise(range(shallowest, shallowest + states.depths)), start=2 - token % 2
        ):
            for offset, sign in ((0, 1.0), (1, -1.0)):
                mlp.W_in[at.depth, unit], mlp.W_in[at.bos, unit] = slope, -slope * (depth - 0.5)
                mlp.W_in[coordinate, unit], mlp.b_in[unit] = closed, 0.5 - closed - offset
                # deeper than `previous` says
                mlp.W_out[unit, state], mlp.W_out[unit, previous] = sign, -sign
                unit += 1
