"""Embeddings of a minimal first layer: constants that depend on a bracket's token and depth alone.

Wen et al. 2023 replace the first layer of a two-layer Transformer by its output e(τ(t, d)), a
function of type and depth (their Assumption 1 and Definition 2). Their `t` runs over all 2k bracket
tokens, opening and closing.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from jaxtyping import Float, Int
from torch import Tensor, nn

from tl_dyck.language import DyckLanguage

#: The kinds of embeddings that depend on depth: Eq. 19, Eq. 20, Eq. 21.
DEPTH_EMBEDDINGS = ("onehot", "split", "yao")


def depth_embedding_size(kind: str, language: DyckLanguage) -> int:
    """Return the number of coordinates that `kind` uses, the one for BOS included."""
    k, depth = language.n_types, language.max_depth
    # the last + 1 is the coordinate of BOS
    return {"onehot": 2 * k * depth, "split": 2 * k + depth + 1, "yao": 2 * k + 2}[kind] + 1


def depth_embedding_table(
    kind: str, language: DyckLanguage, d_model: int
) -> Float[Tensor, "d_vocab depth d_model"]:
    """The vectors e(token, depth), depth = 0..D, float64, zero-padded to `d_model` coordinates.

    - ``"onehot"`` (Eq. 19): one coordinate per (token, depth), 2kD of them, since opening brackets
      have depths 1..D and closing ones 0..D−1;
    - ``"split"`` (Eq. 20): one-hot token ⊕ one-hot depth;
    - ``"yao"`` (Eq. 21, Yao et al. 2021): one-hot token ⊕ (cos θ_d, sin θ_d),
      θ_d = arctan(d / (D + 2 − d)).

    BOS has a coordinate of its own, after all others. Rows (token, depth) that no string of the
    language reaches are zero.

    `d_model` is `depth_embedding_size` at least.
    """
    size = depth_embedding_size(kind, language)
    n_brackets, max_depth = 2 * language.n_types, language.max_depth
    table = torch.zeros(n_brackets + 1, max_depth + 1, d_model, dtype=torch.float64)
    for token in range(n_brackets):
        first = 1 if token % 2 == 0 else 0  # depth is counted after the bracket
        for depth in range(first, first + max_depth):
            row = table[token, depth]
            if kind == "onehot":
                # D coordinates a token, for its own D depths
                row[token * max_depth + depth - first] = 1
            elif kind == "split":
                # D + 1 coordinates of depths, behind those of tokens
                row[token] = row[n_brackets + depth] = 1
            else:
                # from 0 to below a right angle, for D + 2 − d is positive: depths differ
                angle = math.atan2(depth, max_depth + 2 - depth)
                row[token] = 1
                row[n_brackets], row[n_brackets + 1] = math.cos(angle), math.sin(angle)
    # BOS has depth 0, and the last coordinate in use to itself
    table[n_brackets, 0, size - 1] = 1
    return table


class DepthEmbed(nn.Module):
    """Embeds each token by its type and depth; takes the place of `HookedTransformer.embed`.

    Depth is counted along the whole input, so the input must begin where the string does.

    Attributes:
        table: e(token, depth), ``[d_vocab, max_depth + 1, d_model]``; a buffer, never trained.
    """

    table: Tensor

    def __init__(self, kind: str, language: DyckLanguage, d_model: int, dtype: torch.dtype) -> None:
        super().__init__()
        self.language = language
        table = depth_embedding_table(kind, language, d_model).to(dtype)
        self.register_buffer("table", table, persistent=False)

    def forward(self, tokens: Int[Tensor, "batch pos"]) -> Float[Tensor, "batch pos d_model"]:
        """Embed strings given from their beginning, with or without BOS."""
        depth = self.language.clipped_depth(tokens)
        return self.table[tokens, depth]


def _linear(n_ctx: int, d_model: int, t_max: int) -> Tensor:
    table = torch.zeros(n_ctx, d_model, dtype=torch.float64)
    table[:, -1] = torch.arange(n_ctx, dtype=torch.float64) / t_max
    return table


def _sinusoidal(n_ctx: int, d_model: int, t_max: int) -> Tensor:
    table = torch.zeros(n_ctx, d_model, dtype=torch.float64)
    even = torch.arange(0, d_model, 2, dtype=torch.float64)
    position = torch.arange(n_ctx, dtype=torch.float64)
    # 10000: wavelengths from 2π to 10000 · 2π (Vaswani et al. 2017, 3.5)
    angle = position[:, None] * torch.exp(-math.log(10000.0) * even / d_model)
    table[:, 0::2] = angle.sin()
    # of an odd width the last coordinate is a sine, without its cosine
    table[:, 1::2] = angle.cos()[:, : d_model // 2]
    return table


#: Position encodings that are not trained, by name, for every kind of model: of the context, the
#: width and T_max, ``[n_ctx, d_model]``, float64. Position i counts BOS as 0. Linear: i / T_max in
#: the last coordinate (Yao et al. 2021). Sinusoidal: sin and cos of i / 10000^(2j/d_model), as in
#: Vaswani et al. 2017.
FIXED_POSITIONS: dict[str, Callable[[int, int, int], Tensor]] = {
    "none": lambda n_ctx, d_model, t_max: torch.zeros(n_ctx, d_model, dtype=torch.float64),
    "linear": _linear,
    "sinusoidal": _sinusoidal,
}
