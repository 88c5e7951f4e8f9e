"""Attention variation: how much the attention patterns of models that solve the same task differ.

Wen et al. 2023, Section 4.1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from typing import TYPE_CHECKING, Any, SupportsFloat, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.intervals import mean_over_pairs
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_level
from tl_dyck.kit.environment import one_thread
from tl_dyck.language import VocabularyError
from tl_dyck.plotting.plot_recipes import dots_figure, frame
from tl_dyck.reading.attention import random_row_variation
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck.reading.inputs import as_tokens, language_of, looks_ahead, measured, token_texts

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go


@final
@dataclass(frozen=True, kw_only=True)
class AttentionVariation:
    """Mean of ‖A₁ − A₂‖²_F over all pairs of models, for one input.

    Attributes:
        mean: per layer and head, heads paired by index, ``[layer, head]``.
        interval: of `mean`, a t interval over models (seeds), see `tl_dyck.intervals`,
            ``[layer, head, 2]``; NaN for two models, whose one distance says nothing about how much
            it varies.
        matched: per layer, mean over heads after pairing the heads of two models so that they
            differ least, ``[layer]``; equals `mean` for one head.
        matched_interval: of `matched`, ``[layer, 2]``.
        random_baseline: expectation for two patterns whose rows are uniform on the simplex of
            allowed positions: those before, or all if the models look ahead.
        level: of the intervals.
        n_models: number of models.
        input: the tokens of the input, BOS included, as strings.
    """

    mean: Float[np.ndarray, "layer head"]
    interval: Float[np.ndarray, "layer head 2"]
    matched: Float[np.ndarray, " layer"]
    matched_interval: Float[np.ndarray, "layer 2"]
    random_baseline: float
    level: float
    n_models: int
    input: list[str]

    def to_frame(self) -> pd.DataFrame:
        """One row per layer and head: mean, low, high; matched heads of the layer, and random."""
        matched = np.column_stack([self.matched, self.matched_interval])[:, None]
        return frame(
            [("layer", 0), ("head", 0)],
            {
                "variation": self.mean,
                "low": self.interval[..., 0],
                "high": self.interval[..., 1],
                "matched": matched[..., 0],
                "matched_low": matched[..., 1],
                "matched_high": matched[..., 2],
                "random": self.random_baseline,
            },
        )

    def plot(self) -> go.Figure:
        """The variation of each head, with its interval and what random patterns differ by."""
        return dots_figure(
            self.to_frame(),
            {"variation": "variation"},
            rows="layer {layer}, head {head}",
            unit="squared Frobenius norm of the difference of two patterns",
            title=f"Attention variation of {self.n_models} models",
            marked={"random": self.random_baseline},
            bars=("low", "high"),
        )

    def __repr__(self) -> str:
        layers = ", ".join(
            f"layer {layer}: {value:.2f}" + (f" [{low:.2f}, {high:.2f}]" if low == low else "")
            for layer, (value, (low, high)) in enumerate(
                zip(self.matched, self.matched_interval, strict=True)
            )
        )
        return (
            f"AttentionVariation({layers}; random {self.random_baseline:.2f}; "
            f"{self.n_models} models)"
        )


@checked
@one_thread()  # these are many small products, which threads slow down
def attention_variation(
    models: Sequence[Any],
    text: str | Int[Tensor, "*batch pos"] | None = None,
    *,
    level: SupportsFloat = 0.95,
) -> AttentionVariation:
    """Compare the attention patterns of several models on one input.

    The variation of two models is the *squared* Frobenius norm of the difference of their patterns,
    over all rows, that of BOS (always zero) included. The paper writes the norm without saying so;
    its random baseline fits the square (see `random_attention_variation`). Pairs of models are not
    independent, so the interval is over models, not pairs: the jackknife says what each one adds.

    Args:
        models: at least two HookedTransformers of the same shape, usually one per seed.
        text: the input: a string, or tokens ``[pos]`` or ``[1, pos]`` with BOS, which need no
            tokenizer; None for the paper's ``[[[[]]]](((())))``, which has brackets of all types
            and depths, and its like for other languages.
        level: of the intervals.

    Raises:
        TypeError: not a list of HookedTransformers.
        VocabularyError: a text, and a model that cannot read it: see `tl_dyck.adopt`.
        ValueError: fewer than two models, models of different shapes, a level outside (0, 1), or
            weights or attention scores that are no numbers.
    """
    _check(models)
    level = check_level(level)
    strings = _strings(models, text)
    patterns = torch.stack(
        [
            attention_patterns(model, tokens)[:, 0]
            for model, tokens in zip(models, strings, strict=True)
        ]
    )
    if patterns.isnan().any():
        number = int(patterns.isnan().flatten(1).any(1).nonzero()[0])
        raise ValueError(
            f"model {number} has attention scores that are NaN on this input: its queries or keys "
            "are too large for its numbers; leave it out"
        )
    first = models[0]
    return variation_of_patterns(
        patterns,
        level=level,
        causal=not looks_ahead(first),
        text=token_texts(first, strings[0][0], getattr(first.cfg, "language", None)),
    )


@checked
@one_thread()
def variation_of_patterns(
    patterns: Float[Tensor, "model layer head query key"],
    *,
    level: float = 0.95,
    causal: bool = True,
    text: Sequence[str] = (),
) -> AttentionVariation:
    """Compare patterns of several models on one input: `attention_variation` without the models.

    Args:
        patterns: of at least two models.
        level: of the intervals.
        causal: whether queries see no later keys.
        text: the input, a text for each position.
    """
    check_level(level)
    same, matched = _distances(patterns.double())
    mean, interval = mean_over_pairs(same, level=level)
    mean_matched, interval_matched = mean_over_pairs(matched, level=level)
    interval, interval_matched = (each.clip(min=0) for each in (interval, interval_matched))
    return AttentionVariation(
        mean=mean,
        interval=interval,
        matched=mean_matched,
        matched_interval=interval_matched,
        random_baseline=random_attention_variation(patterns.shape[-1], causal=causal),
        level=level,
        n_models=len(patterns),
        input=list(text),
    )


def _check(models: Any) -> None:
    """Refuse what cannot be compared."""
    if not isinstance(models, Sequence):
        raise TypeError(
            f"attention variation compares models: give a list of them, not a "
            f"{type(models).__name__}"
        )
    if len(models) < 2:
        raise ValueError(
            f"attention variation compares models: give at least two, not {len(models)}"
        )
    for model in models:
        measured(model, "attention variation, of each of its models,")
    shapes = {(model.cfg.n_layers, model.cfg.n_heads) for model in models}
    if len(shapes) > 1:
        raise ValueError(
            f"the models have different shapes (layers, heads): {sorted(shapes)}; "
            "compare like with like"
        )


def _distances(
    patterns: Float[Tensor, "model layer head query key"],
) -> tuple[Float[np.ndarray, "model model layer head"], Float[np.ndarray, "model model layer"]]:
    """Squared distances of each two models: head by head, and over the best pairing of heads."""
    from scipy.optimize import linear_sum_assignment  # takes a while to import

    n_models, n_layers, n_heads = patterns.shape[:3]
    same = np.zeros((n_models, n_models, n_layers, n_heads))
    matched = np.zeros((n_models, n_models, n_layers))
    for a, b in combinations(range(n_models), 2):
        # layer, head a, head b
        cost = (patterns[a][:, :, None] - patterns[b][:, None]).square().sum((-1, -2)).numpy()
        same[a, b] = same[b, a] = np.diagonal(cost, axis1=1, axis2=2)
        for layer in range(n_layers):
            # heads have no order: the pairing of least total distance (Hungarian method)
            pairing = linear_sum_assignment(cost[layer])
            # the mean over pairs of heads, to be compared with that of one head
            matched[a, b, layer] = matched[b, a, layer] = cost[layer][pairing].mean()
    return same, matched


def _strings(models: Sequence[Any], text: str | Tensor | None) -> list[Int[Tensor, "1 pos"]]:
    """The input as each of the models reads it."""
    languages = [getattr(model.cfg, "language", None) for model in models]
    if any(language is None for language in languages) and any(languages):
        raise VocabularyError(
            "some of the models say which token id is which bracket, and some do not; pass "
            "tl_dyck.adopt(model, Vocabulary(…)) for each of the latter"
        )
    text = language_of(models[0]).probe_string if text is None else text
    strings = [as_tokens(model, text) for model in models]
    if len(strings[0]) != 1:
        raise ValueError(
            f"attention variation is measured on one input at a time, not on {len(strings[0])}"
        )
    lengths = {tokens.shape[1] for tokens in strings}
    if len(lengths) > 1:
        raise ValueError(
            f"the models read the input as different numbers of tokens: {sorted(lengths)}"
        )
    return strings


def random_attention_variation(n_positions: int, *, causal: bool = True) -> float:
    """E‖A₁ − A₂‖²_F for independent patterns whose rows are uniform on the simplex.

    It is ``Σ_m 2(m − 1) / (m(m + 1))``, m = 1..n_positions, see
    `tl_dyck.reading.attention.random_row_variation`; if rows look ahead, each has n_positions
    entries.
    """
    rows = random_row_variation(n_positions).tolist()
    return float(sum(rows) if causal else n_positions * rows[-1])
