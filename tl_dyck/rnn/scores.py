"""Scores of one layer: each is of a query's (token, state) and a key's, whatever the positions.

This is the one place where position schemes, norms of queries and keys, and caps of scores stand.
The formula is written once, for numbers of any kind: tensors here, balls in
`tl_dyck.certify.exact.network`. A new position scheme is a record in `tl_dyck.reading.positions`.

    x = what the norm of the block makes of the token's residual stream  (+ W_pos of its position)
    q = x W_Q + b_Q, k = x W_K + b_K;  each q / √(mean q² + eps) * w, if they have norms;
    each turned by its own position (rotary): q cos + swap(q) sin
    score = q · k / attn_scale;  cap tanh(score / cap);  + W_near[distance]

Turning a query by its position and a key by its own makes their product depend on the distance
alone (Su et al., arXiv 2104.09864); ALiBi (Press et al., arXiv 2108.12409) adds what grows with it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor

from tl_dyck.reading.norms import NORMS
from tl_dyck.reading.positions import POSITIONS
from tl_dyck.rnn.config import RNNConfig

N = TypeVar("N")


class Numbers(Protocol[N]):
    """Arrays of a kind, and a network's weights as such; S symbols, H heads, e of a head."""

    def rows(self, name: str, index: Any | None = None) -> N:
        """A weight, or rows of it."""
        ...

    def heads(self, x: N, name: str) -> N:
        """X W + b of "Q" or "K", [S, H, e]."""
        ...

    def plus(self, x: N, y: N) -> N:
        """The sum."""
        ...

    def times(self, x: N, y: N) -> N:
        """The product, elementwise."""
        ...

    def rms(self, x: N) -> N:
        """X / √(mean x² + eps), over the last axis."""
        ...

    def swapped(self, x: N) -> N:
        """Each pair of neighbours of the last axis exchanged; the last of an odd number stays."""
        ...

    def each_head(self, x: N) -> N:
        """[S, e] as [S, 1, e]: the same for every head."""
        ...


def projected(on: Numbers[N], config: RNNConfig, name: str, attended: N, positions: Any) -> N:
    """Queries ("Q") or keys ("K") of symbols, [S, H, e]; not divided by attn_scale.

    Args:
        on: what computes.
        config: of the network.
        name: which.
        attended: ln1 of the residual stream of each, or that itself.
        positions: of each; None if the network has none.
    """
    scheme = POSITIONS[config.positions]
    if scheme.in_attended and config.has_position:
        attended = on.plus(attended, on.rows("W_pos", positions))
    x = on.heads(attended, name)
    if config.qk_norm:
        x = on.times(on.rms(x), on.rows(f"{name.lower()}_norm_w"))
    if scheme.turns:
        cos, sin = (on.each_head(on.rows(f"rotary_{x}", positions)) for x in ("cos", "sin"))
        # signs of the rotation are in the table of sines, see `parts._rotary`
        x = on.plus(on.times(x, cos), on.times(on.swapped(x), sin))
    return x


def is_adjusted(config: RNNConfig) -> bool:
    """Whether `adjusted` changes scores."""
    return config.score_cap is not None or POSITIONS[config.positions].by_distance


def adjusted(
    config: RNNConfig, scores: Any, tanh: Callable[[Any], Any], near: Callable[[], Any]
) -> Any:
    """Scores, given q · k / attn_scale: capped, and with what is added by distance.

    Args:
        config: of the network.
        scores: tensors or arrays.
        tanh: of such.
        near: rows of ``W_near`` by distance, of the shape of the scores.
    """
    if config.score_cap is not None:
        # before what is added by distance, as in TransformerLens
        scores = config.score_cap * tanh(scores / config.score_cap)
    return scores + near() if POSITIONS[config.positions].by_distance else scores


class OfTensors:
    """`Numbers` that are tensors, with any axes before those of heads."""

    def __init__(self, machine: Any) -> None:
        self.machine = machine

    def rows(self, name: str, index: Tensor | None = None) -> Tensor:
        """See `Numbers`."""
        weight: Tensor = getattr(self.machine, name)
        return weight if index is None else weight[index]

    def heads(self, x: Tensor, name: str) -> Tensor:
        """See `Numbers`."""
        weight, bias = (getattr(self.machine, f"{part}_{name}") for part in "Wb")
        found: Tensor = torch.einsum("...d,hde->...he", x, weight) + bias
        return found

    def plus(self, x: Tensor, y: Tensor) -> Tensor:
        """See `Numbers`."""
        return x + y

    def times(self, x: Tensor, y: Tensor) -> Tensor:
        """See `Numbers`."""
        return x * y

    def rms(self, x: Tensor) -> Tensor:
        """See `Numbers`."""
        return NORMS["RMSPre"](x, float(self.machine.config.eps))

    def swapped(self, x: Tensor) -> Tensor:
        """See `Numbers`."""
        return x[..., swap(x.shape[-1])]

    def each_head(self, x: Tensor) -> Tensor:
        """See `Numbers`."""
        return x[..., None, :]


def swap(width: int) -> list[int]:
    """Indices that exchange neighbours: 1, 0, 3, 2, …; the last of an odd number stays."""
    # i ^ 1 changes the last bit: 0 with 1, 2 with 3
    return [min(i ^ 1, width - 1) if i < width - width % 2 else i for i in range(width)]
