"""Depth, token by token, for whoever has tokens and no language: `DyckLanguage`, an RNN's state."""

from __future__ import annotations

import torch
from jaxtyping import Int
from torch import Tensor


def depth_steps(tokens: Int[Tensor, "*shape"], n_types: int) -> Int[Tensor, "*shape"]:
    """+1 for an opening bracket, -1 for a closing one, 0 for anything else (BOS)."""
    return torch.where(tokens < 2 * n_types, 1 - 2 * (tokens % 2), 0)


def clip_depth(
    tokens: Int[Tensor, "*shape"], depths: Int[Tensor, "*shape"], n_types: int, max_depth: int
) -> Int[Tensor, "*shape"]:
    """Clip each depth to what its token can have; a no-op inside the language.

    Opening brackets have 1..D, closing ones 0..D−1, anything else 0.
    """
    # 1 for an opening bracket, whose depth is counted after it: from 1 to D, others from 0 to D − 1
    opens = 1 - tokens % 2
    clipped = torch.minimum(torch.maximum(depths, opens), max_depth - 1 + opens)
    return torch.where(tokens < 2 * n_types, clipped, 0)
