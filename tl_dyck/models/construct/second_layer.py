"""The second layer of Theorem 1's sufficiency proof.

Balanced attention in, exact next-token probabilities out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from einops import rearrange
from jaxtyping import Float
from torch import Tensor

from tl_dyck.language import DyckLanguage
from tl_dyck.models.construct.parts import Coordinates, States, write_decoder


@final
@dataclass(frozen=True)
class StackCoordinates:
    """Coordinates that the second layer writes to.

    Attributes:
        stack: ``stack[t][d − 1]`` is positive while a bracket of type t is open at depth d.
        bos: positive everywhere, so that the attention output is not zero where all are closed.
        sink: minus the sum of the others, so that the attention output has mean zero and P⊥ changes
            nothing.
        excluded: ``excluded[t]`` is 1 after a closing bracket at depth 1 or more, unless the top of
            the stack is of type t.
    """

    stack: list[list[int]]
    bos: int
    sink: int
    excluded: list[int]

    @staticmethod
    def take(language: DyckLanguage, coordinates: Coordinates) -> StackCoordinates:
        """Reserve them."""
        return StackCoordinates(
            stack=[coordinates.take(language.max_depth) for _ in range(language.n_types)],
            bos=coordinates.take(1)[0],
            sink=coordinates.take(1)[0],
            excluded=coordinates.take(language.n_types),
        )

    @property
    def values(self) -> list[int]:
        """The coordinates that the values write to: type by type, then BOS."""
        return [*(coordinate for row in self.stack for coordinate in row), self.bos]


def closing_scores(attn: Any, states: States) -> Float[Tensor, "closing d_model"]:
    """Scores of the closing brackets at depth ≥ 1, as queries, all coordinates as keys, float64."""
    W_Q, W_K = attn.W_Q[0].detach().double(), attn.W_K[0].detach().double()
    score: Tensor = W_Q[states.closing] @ W_K.T / attn.attn_scale
    return score


def write_second_layer(block: Any, states: States, to: StackCoordinates) -> float:
    """Write values, output and MLP of a block whose query and key weights satisfy Eq. 11.

    By Eq. 11 there are constants c(t, d) with
    ``score(q, open(t, d)) − score(q, close(t, d−1)) = c(t, d)`` for every closing bracket q (Eq.
    23). With ``v(open(t, d)) = e^(−c/2) f(t, d)`` and ``v(close(t, d−1)) = −e^(c/2) f(t, d)`` a
    matching pair adds nothing to the attention output, whatever else the scores are (Eq. 27-33; the
    paper puts all of e^c on one side). What remains is one f per open bracket and one for BOS. LN_C
    removes the softmax denominator; the coordinate of f(t, d) is then zero, or at least a margin
    that depends on the scores alone, not on the length. The MLP reads it at depth d.

    Returns:
        The weakest signal: the least, over closing brackets q at depth d and types t, of the
        unnormalised weight of the top of the stack relative to the largest weight of any key.
        Rounding errors must stay below it.
    """
    language = states.language
    k, deepest = language.n_types, language.max_depth
    score = closing_scores(block.attn, states)
    # [type, level - 1]; in this order in memory, which decides the last bits of means
    opening, closing = (torch.tensor(rows.T.copy()) for rows in states.pairs())
    shift = torch.zeros(opening.shape, dtype=torch.float64)
    if deepest > 1:
        # by Eq. 11 all rows are equal, up to rounding
        shift = (score[:, opening] - score[:, closing]).mean(0)  # c, [type, depth]
    W_V, W_O = block.attn.W_V[0], block.attn.W_O[0]
    for head_dim, coordinate in enumerate(to.values):
        # W_O copies a value to its coordinate, and its negative to the sink: mean 0 for P⊥
        W_O[head_dim, coordinate], W_O[head_dim, to.sink] = 1, -1
        if coordinate == to.bos:
            # BOS is never closed: its value stays, so that the sum is not 0 where all else cancels
            W_V[states.bos, head_dim] = 1
            continue
        t, d = divmod(head_dim, deepest)
        # a pair's weights are in the ratio e^c : 1, so values e^(−c/2) and −e^(c/2) cancel; of an
        # open bracket alone e^((s_open + s_close) / 2) is left, in which no side is preferred
        W_V[opening[t, d], head_dim] = torch.exp(-shift[t, d] / 2)
        W_V[closing[t, d], head_dim] = -torch.exp(shift[t, d] / 2)

    # Unnormalised weights of each query, relative to its largest: LN_C removes the factor
    keys = [*opening.flatten().tolist(), *closing.flatten().tolist(), states.bos]
    relative = (score - score[:, keys].amax(1, keepdim=True)).exp()
    of_queries = (
        "(kind depth) ... -> kind depth ..."  # a query closes a bracket of a kind, at a depth
    )
    # of f(t, d)
    # which is the geometric mean of both weights, see the values above
    weight = rearrange((relative[:, opening] * relative[:, closing]).sqrt(), of_queries, kind=k)
    bos = rearrange(relative[:, states.bos], of_queries, kind=k)
    unit, weakest = 0, 1.0
    for depth in range(1, deepest):
        at, at_bos = weight[:, depth - 1], bos[:, depth - 1]  # query's type (, type, depth − 1)
        # a stack has one bracket of each level; which type weighs most is the worst case
        below = at[:, :, :depth].amax(1)  # the heaviest stack of this depth
        # what the sink gets, with the other sign
        total = below.sum(-1) + at_bos
        # the norm that LN_C divides by: coordinates of levels, of BOS, of the sink;
        norm = (below.square().sum(-1) + at_bos.square() + total.square()).sqrt()  # an upper bound
        for t in range(k):
            top = at[:, t, depth - 1]
            weakest = min(weakest, float(top.min()))
            unit = write_decoder(
                block.mlp,
                unit,
                read=to.stack[t][depth - 1],
                gate=states.at_depth(depth, opening=False),
                write=to.excluded[t],
                # what the top of the stack has behind LN_C, at least, whatever lies below it
                margin=float((top / norm).min()),
            )
    return weakest
