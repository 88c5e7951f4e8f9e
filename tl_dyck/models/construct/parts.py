"""What solutions share: coordinates of the residual stream, decoder MLP, exact unembedding.

A construction is an ordinary `DyckTransformer` whose weights are zero but for those written here.
Every coordinate of its residual stream has one meaning. The *state* of a position is its token and
depth, one coordinate each.
"""

from __future__ import annotations

import math
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.language import DyckLanguage
from tl_dyck.models.config import DyckTransformerConfig
from tl_dyck.models.transformer import DyckTransformer, build_model
from tl_dyck.reading.states import StateIndex

#: The logit of a token that cannot follow: its probability is e^-40 = 4e-18.
NEVER = -40.0

#: C of LN_C (Eq. 7): far below the norm of any attention output, so that LN_C removes the scale
#: exactly, as with C = 0.
LN_C = 1e-30


@final
class Coordinates:
    """Hands out coordinates of the residual stream (or dimensions of a head), block by block."""

    def __init__(self) -> None:
        self.size = 0

    def take(self, n: int) -> list[int]:
        """The next `n` coordinates."""
        first, self.size = self.size, self.size + n
        return list(range(first, self.size))


class States(StateIndex):
    """The coordinate of every state: the first ones of the residual stream, as Eq. 19 has them."""

    def __init__(self, language: DyckLanguage, coordinates: Coordinates) -> None:
        super().__init__(language, packed=True)
        self.size = len(coordinates.take(self.bos + 1))

    @property
    def closing(self) -> list[int]:
        """Of all closing brackets below which something is still open.

        They have depth 1..D−1, in the order of (type, depth).
        """
        found: list[int] = self.pairs()[1][1:].T.ravel().tolist()
        return found

    def at_depth(self, depth: int, *, opening: bool = True) -> list[int]:
        """Of all brackets at a depth; without the opening ones if asked."""
        types, deepest = range(self.language.n_types), self.language.max_depth
        found = [self.close(t, depth) for t in types if depth < deepest]
        return found + [self.open(t, depth) for t in types if opening and depth > 0]


def empty_model(language: DyckLanguage, *, ln_c: float = LN_C, **fields: Any) -> DyckTransformer:
    """A model of Eq. 6 blocks, one head each unless told otherwise, ReLU, all weights zero."""
    # an MLP needs one hidden unit, even where D = 1 leaves nothing to decode
    fields["d_mlp"] = max(1, fields["d_mlp"])
    config = DyckTransformerConfig(
        n_types=language.n_types,
        max_depth=language.max_depth,
        brackets=language.alphabet,
        block="eq6",
        ln_c=ln_c,
        act_fn="relu",
        **{"n_heads": 1, **fields},
    )
    model = build_model(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if not name.startswith("pos_embed."):  # fixed by the configuration
                parameter.zero_()
    return model


def write_decoder(
    mlp: Any,
    unit: int,
    read: int,
    gate: list[int],
    write: int,
    margin: float,
) -> int:
    """Write hidden units that add 1 to `write` where the gate is open and `read` below the margin.

    ``relu(y) − relu(y − 1)`` with ``y = 2 (3/4 margin − x) / margin − big · (1 − gate)``: 1 where
    x ≤ margin / 4, 0 where x ≥ 3/4 margin, exactly. So x, which is 0 or at least `margin` in
    theory, may be off by a quarter of the margin.

    Args:
        mlp: changed in place.
        unit: first of the two hidden units; the one after them is returned.
        read: coordinate of x, between −1 and 1 (an output of LN_C).
        gate: coordinates of which at most one is 1 and all others are 0; the gate is open where one
            is.
        write: coordinate that receives 0 or 1.
        margin: positive.
    """
    # x from margin / 4 to 3 margin / 4 takes y from 1 down to 0: a distance of margin / 2
    slope = 2 / margin
    closed = slope + 2  # y <= 1.5 + slope for x >= -1, so y < 0 where the gate is shut
    for offset, sign in ((0, 1.0), (1, -1.0)):
        # y = 1.5 − slope · x − closed · (1 − gate): the gate's 1 is in the bias, its part in W_in.
        # The second unit is y − 1, and relu(y) − relu(y − 1) is y, cut at 0 and 1
        mlp.W_in[read, unit + offset] = -slope
        mlp.W_in[gate, unit + offset] = closed
        mlp.b_in[unit + offset] = 1.5 - closed - offset
        mlp.W_out[unit + offset, write] = sign
    return unit + 2


def write_unembed(
    model: DyckTransformer,
    states: States,
    excluded: list[int],
    q: float,
    *,
    opening_knows_type: bool,
) -> None:
    """Write the unembedding, so that logits are log-probabilities of the distribution D(q, k, D).

    States are 0 or 1 each. Of each type, `excluded` is 1 if it must not be closed next; it is valid
    after opening brackets too, unless the state there `opening_knows_type` of the top of the stack.
    """
    language = states.language
    k, deepest = language.n_types, language.max_depth
    opens, closes = list(range(0, 2 * k, 2)), list(range(1, 2 * k, 2))
    W_U = torch.zeros(model.unembed.W_U.shape, dtype=torch.float64)
    # nothing is open: an opening bracket for certain, whatever q is
    W_U[[states.bos, *states.at_depth(0)], :] = _row(language, opens, 1.0, [])
    for depth in range(1, deepest + 1):
        # at depth D no bracket may open
        chance_open = q if depth < deepest else 0.0
        for state in states.at_depth(depth):
            W_U[state, :] = _row(language, opens, chance_open, closes)
        for t in range(k):
            if opening_knows_type:
                W_U[states.open(t, depth), :] = _row(language, opens, chance_open, [closes[t]])
    for t in range(k):
        # states give every closing bracket the logit of the right one; the MLP takes k − 1 away
        W_U[excluded[t], closes[t]] = NEVER
    model.unembed.W_U.copy_(W_U)


def _row(
    language: DyckLanguage, opens: list[int], chance_open: float, closes: list[int]
) -> Float[Tensor, " d_vocab"]:
    """Logits: `chance_open` shared among openings, the rest for each of `closes`.

    Of the latter one will be left.
    """
    row = torch.full((language.d_vocab,), NEVER, dtype=torch.float64)
    if chance_open > 0:
        row[opens] = math.log(chance_open / len(opens))
    if closes:
        # not divided by their number: one of them is left in the end
        row[closes] = math.log1p(-chance_open)
    return row
