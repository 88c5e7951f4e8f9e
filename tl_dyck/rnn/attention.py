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

__all__ = [
    "Accumulator",
    "HistoryCarry",
    "QueryCarry",
    "absorb",
    "attend_causal",
    "attend_last",
    "empty_accumulator",
]


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
    *,
    block: int = 256,
) -> Float[Tensor, "batch pos head d_head"]:
    """The attention's output at every position.

    `absorb` a block of tokens at a time, for a block of queries.

    Memory for scores is batch * head * block², whatever the length; blocks above the diagonal are
    never computed.
    """
    length = query.shape[1]
    q, k, v = (x.transpose(1, 2) for x in (query, key, value))
    outputs = []
    for start in range(0, length, block):
        rows = q[:, :, start : start + block]
        acc = empty_accumulator(rows.shape[:-1], rows.shape[-1], dtype=q.dtype, device=q.device)
        for past in range(0, start + 1, block):
            scores = rows @ k[:, :, past : past + block].transpose(-1, -2)
            if past == start:  # the only block that reaches into the future
                future = torch.ones(scores.shape[-2:], dtype=torch.bool, device=q.device).triu(1)
                scores = scores.masked_fill(future, -torch.inf)
            acc = _absorb_block(acc, scores, v[:, :, past : past + block])
        outputs.append(acc.output())
    return torch.cat(outputs, dim=2).transpose(1, 2)


def _absorb_block(
    acc: Accumulator,
    scores: Float[Tensor, "batch head row pos"],
    values: Float[Tensor, "batch head pos d_head"],
) -> Accumulator:
    """`absorb` for many tokens at once; here `running_max` and `total` are [batch head row]."""
    # Every row sees at least one token of each block it is given, so the maximum is finite.
    running_max = torch.maximum(acc.running_max, scores.amax(-1))
    keep = torch.exp(acc.running_max - running_max)
    weights = torch.exp(scores - running_max[..., None])
    return Accumulator(
        running_max,
        acc.total * keep + weights.sum(-1),
        acc.weighted * keep[..., None] + weights @ values,
    )


def attend_last(
    query: Float[Tensor, "batch head d_head"],
    key: Float[Tensor, "batch pos head d_head"],
    value: Float[Tensor, "batch pos head d_head"],
    lengths: Int[Tensor, " batch"],
) -> Float[Tensor, "batch head d_head"]:
    """The attention's output for a query per string, over its first `lengths` tokens."""
    scores = torch.einsum("bhe,bphe->bhp", query, key)
    beyond = torch.arange(key.shape[1], device=key.device) >= lengths[:, None]
    scores = scores.masked_fill(beyond[:, None], -torch.inf)
    weights = torch.exp(scores - scores.amax(-1, keepdim=True))
    return torch.einsum("bhp,bphe->bhe", weights, value) / weights.sum(-1)[..., None]


@final
@dataclass(frozen=True)
class QueryCarry:
    """State carried between tokens without positions: layer 2's sums for every possible query.

    Attributes:
        state: layer 1's state.
        queries: every query there is; constant.
        sums: layer 2, one accumulator per string and query.
    """

    state: Int[Tensor, " batch"]
    queries: Float[Tensor, "query head d_head"]
    sums: Accumulator


@final
@dataclass(frozen=True)
class HistoryCarry:
    """State carried between tokens if queries are not known before: keys and values so far."""

    state: Int[Tensor, " batch"]
    keys: Float[Tensor, "batch pos head d_head"]
    values: Float[Tensor, "batch pos head d_head"]
