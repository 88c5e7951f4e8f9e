"""Regularisation of what matched pairs add in a long string.

After N brackets the output of a query, before it is normalised, has moved by a vector S_N of mean
N μ and variance N σ² (summed over all directions), and two answers are 2h apart (see
`tl_dyck.reading.states`). With weights w_d, the share of queries that leave d brackets open,

    R = Σ_d w_d mean_{j, pair} log(1 + E‖S_N‖² / h²),    E‖S_N‖² = N² ‖μ‖² + N σ².

By Chebyshev's inequality the fraction bounds the probability that S_N is longer than h. The
logarithm keeps a fresh model, which is far off, from heeding nothing else. R takes no strings: it
is a function of the weights, and 0 for a balanced model.

Along the axis between the two answers alone (``anywhere=False``) it is the *predicted* error of
`pair_drift` that is bounded: then the prediction becomes perfect and the model does not, because
pairs move the output in other directions instead, which the norm and the layers after it see.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_length
from tl_dyck.language import DyckDistribution
from tl_dyck.models import DyckTransformerConfig
from tl_dyck.reading.states import StateIndex, contributions, displacement


@final
@checked
@dataclass(frozen=True)
class DriftRegularizer:
    """R for one model.

    Attributes:
        distribution: of the strings; its language has two types and depth 2 at least.
        length: N, in brackets.
        anywhere: S_N in all directions, not only along the axis between two answers.
    """

    distribution: DyckDistribution
    length: int
    anywhere: bool = True

    def __post_init__(self) -> None:
        check_length(self.length)

    @property
    def states(self) -> list[int]:
        """Rows of the table of embeddings that queries, keys and values are needed of, in order."""
        return StateIndex(self.distribution.language).reachable()

    def __call__(
        self,
        q: Float[Tensor, "state d_head"],
        k: Float[Tensor, "state d_head"],
        value: Float[Tensor, "state d_model"],
        attn_scale: float,
    ) -> Float[Tensor, ""]:
        """R, given queries, keys and ``W_O v + b_O`` of `states`; on the CPU, in float64."""
        language = self.distribution.language
        shape, n = (language.max_depth, language.n_types), language.n_types * language.max_depth
        # rows as `StateIndex.reachable` has them: BOS is 0, then openings, then closings
        opens, closes = (torch.arange(first, first + n).view(shape).numpy() for first in (1, 1 + n))
        u = contributions(q.double(), k.double(), value.double(), attn_scale).cpu()
        moved = displacement(u, opens, closes, self.distribution)
        weight = (self.distribution.depth_share() * (1 - self.distribution.open_probability()))[2:]
        second = moved.second_moment(self.length, anywhere=self.anywhere)
        by_depth = torch.log1p(second).mean((1, 2))
        return by_depth @ torch.tensor(weight / weight.sum())

    @staticmethod
    @checked
    def check(config: DyckTransformerConfig) -> None:
        """Refuse a model whose queries, keys and values are no functions of the state.

        Raises:
            ValueError: says why.
        """
        minimal = config.embedding != "token" and config.position == "none"
        one = config.n_layers == 1 and config.n_heads == 1 and config.attention == "softmax"
        language = config.language
        if not (minimal and one and language.n_types > 1 and language.max_depth > 1):
            raise ValueError(
                f"drift_weight is for models with a minimal first layer, one layer and head, "
                f"softmax attention and no positions, of two types and depth 2 at least; not for "
                f"{config.model_name!r} on Dyck({language.n_types}, {language.max_depth})"
            )
