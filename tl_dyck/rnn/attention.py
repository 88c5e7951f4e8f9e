"""Layer 2 of the RNN: softmax attention as a sum that is carried from token to token.

For one query q, attention over the tokens read so far is N / Z with

    Z = Σ_i exp(a_i),   N = Σ_i exp(a_i) v_i,   a_i = q · k_i.

Both are sums over tokens, so both are carried by a recurrence. The sums themselves overflow (a
score of 100 is already beyond float32), so what is carried is (m, e^{-m} Z, e^{-m} N) with m the
largest score so far: the *online softmax* (Milakov & Gimelshein, arXiv 1805.02867). Every exponent
is then at most 0, and the largest term is 1.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import torch
from jaxtyping import Float, Int
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention


class Accumulator(NamedTuple):
    """State of layer 2 for one query or many.

    Attributes:
        running_max: m, the largest score so far (-inf before the first token).
        total: e^{-m} Z.
        weighted: e^{-m} N.
    """

    running_max: Float[Tensor, "*query head"]
    total: Float[Tensor, "*query head"]
    weighted: Float[Tensor, "*query head d_head"]

    def output(self) -> Float[Tensor, "*query head d_head"]:
        """N / Z, the attention's output z; undefined (nan) before the first token."""
        return self.weighted / self.total[..., None]


def empty_accumulator(
    shape: tuple[int, ...], d_head: int, *, dtype: torch.dtype, device: torch.device
) -> Accumulator:
    """The state before the first token; `shape` is [*query head]."""
    zeros = torch.zeros(shape, dtype=dtype, device=device)
    return Accumulator(
        # below any score
        torch.full_like(zeros, -torch.inf),
        zeros,
        torch.zeros((*shape, d_head), dtype=dtype, device=device),
    )


def absorb(
    acc: Accumulator,
    scores: Float[Tensor, "*query head"],
    values: Float[Tensor, "*values head d_head"],
) -> Accumulator:
    """One step of layer 2's recurrence: add a token of score a and value v; `values` broadcasts."""
    running_max = torch.maximum(acc.running_max, scores)
    # before the first token e^(−∞ − a) = 0: what was there is empty
    keep = torch.exp(acc.running_max - running_max)
    weight = torch.exp(scores - running_max)
    return Accumulator(
        running_max,
        acc.total * keep + weight,
        acc.weighted * keep[..., None] + weight[..., None] * values,
    )


def attend_causal(
    query: Float[Tensor, "batch pos head d_head"],
    key: Float[Tensor, "batch pos head d_head"],
    value: Float[Tensor, "batch pos head d_head"],
) -> Float[Tensor, "batch pos head d_head"]:
    """The attention's output at every position; torch's kernels absorb a block at a time."""
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    # scale 1: queries are divided already (`TwoLayerRNN.query`)
    return scaled_dot_product_attention(q, k, v, is_causal=True, scale=1.0).transpose(1, 2)


def attend_scored(
    scores: Float[Tensor, "batch head query key"],
    value: Float[Tensor, "batch key head d_head"],
) -> Float[Tensor, "batch query head d_head"]:
    """The attention's output, given scores: -inf of what is not seen."""
    # the largest is e^0: sums lie between 1 and the length
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    z = torch.einsum("bhqk,bkhe->bqhe", weights, value)
    # Z is [batch, head, query]; z [batch, query, head, d_head]
    return z / weights.sum(-1).transpose(1, 2)[..., None]


def attend_last(
    scores: Float[Tensor, "batch head pos"],
    value: Float[Tensor, "batch pos head d_head"],
    lengths: Int[Tensor, " batch"] | None,
) -> Float[Tensor, "batch head d_head"]:
    """The attention's output for a query per string, over its first `lengths` tokens, or all."""
    if lengths is not None:
        beyond = torch.arange(value.shape[1], device=value.device) >= lengths[:, None]
        # [batch, 1, pos]: for every head
        scores = scores.masked_fill(beyond[:, None], -torch.inf)
    # one query: [batch, head, 1, pos]
    return attend_scored(scores[:, :, None], value)[:, 0]


@final
@dataclass(frozen=True)
class QueryCarry:
    """State carried between tokens: layer 2's sums for every possible query.

    Attributes:
        state: layer 1's state.
        queries: every query there is; constant.
        sums: layer 2, one accumulator per string and query.
    """

    state: Int[Tensor, " batch"]
    queries: Float[Tensor, "query head d_head"]
    sums: Accumulator
