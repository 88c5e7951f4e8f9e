"""Drift of matched pairs: how a long string moves a model's answer, and when it gets it wrong.

Notation as in `tl_dyck.reading.states`: N brackets move the output of a query by N μ + √N σ Z
along an axis that tells two types of the bracket on top of the stack apart; h is half the
distance between two answers. The answer is a where the sum is beyond the middle between the two, so
that after N brackets, when both are equally likely,

    P(right) = ½ Φ((h - N|μ|) / √N σ) + ½ Φ((h + N|μ|) / √N σ).

It falls to 3/4 where N|μ| = h: one of the two is then lost as often as not. What is summed is
exact in the limit; that the readout decides along e, in the middle, is an assumption. It holds well
of models that stop at 99 %, and less of models that are trained on, whose answers also depend on
what pairs add across e; `accuracy_at_length` takes that into account (docs/theory/length.md).

The balance violation β is the mean *norm* of what pairs add, over all types, levels and directions;
most of it cancels in a long string, or is orthogonal to e.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsFloat, final

import numpy as np
from jaxtyping import Float

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_instance, check_number
from tl_dyck.kit.environment import one_thread
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.plotting.plot_recipes import dots_figure, frame
from tl_dyck.probes.balance import state_contributions
from tl_dyck.reading.inputs import language_with_stack
from tl_dyck.reading.states import StateIndex, displacement

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

# brackets: what is not lost by then never is
_FAR = 1e12


@final
@dataclass(frozen=True, kw_only=True)
class PairDrift:
    """Drift of matched pairs along the axes that tell types apart, per query close(j, d).

    All lengths share one positive factor per query, which cancels in every ratio. Indices: d - 1
    for d = 1..D-1 open brackets, j, and pairs of types (0, 1), (0, 2), …, (k-2, k-1).

    Attributes:
        drift: μ per bracket, ``[d - 1, j, pair]``; its sign says towards which type.
        spread: σ per √bracket.
        half: h, half the distance between the two answers.
        weight: probability of d open brackets after a closing one, ``[d - 1]``.
    """

    drift: Float[np.ndarray, "depth n_types pair"]
    spread: Float[np.ndarray, "depth n_types pair"]
    half: Float[np.ndarray, "depth n_types pair"]
    weight: Float[np.ndarray, " depth"]

    def accuracy(self, length: SupportsFloat) -> float:
        """Predicted accuracy after a closing bracket of prefixes of this length, between two types.

        A mean over queries and pairs of types; with more than two types it is the chance that the
        right one beats another given one.
        """
        from scipy import special  # takes a while, and few who import probes ask this

        length = check_number("length", length, least=0)
        moved = length * np.abs(self.drift)
        # no spread: the quotient is ±∞, and its probability 0 or 1
        noise = np.maximum(np.sqrt(length) * self.spread, 1e-300)
        right = (
            # the true type is either end with probability 1/2: the drift leads away
            # from one, towards the other
            special.ndtr((self.half - moved) / noise) + special.ndtr((self.half + moved) / noise)
        ) / 2
        return float(right.mean(axis=(1, 2)) @ self.weight)

    def length_at(self, accuracy: SupportsFloat = 0.75) -> float:
        """The length at which the predicted accuracy has fallen to `accuracy`; inf if never.

        Raises:
            ValueError: `accuracy` is not between 1/2, which is chance, and 1.
        """
        from scipy import optimize

        accuracy = check_number("accuracy", accuracy)
        if not 0.5 < accuracy < 1:
            raise ValueError(f"accuracy must be between 0.5 (chance) and 1, not {accuracy}")
        if self.accuracy(_FAR) > accuracy:
            return float("inf")
        # by the logarithm, from length 1 on: lengths of interest differ by orders of magnitude
        lost = optimize.brentq(lambda log: self.accuracy(np.exp(log)) - accuracy, 0, np.log(_FAR))
        return float(np.exp(lost))

    def to_frame(self) -> pd.DataFrame:
        """One row per query close(type, depth) and pair of types: drift, spread, half, weight."""
        weight = self.weight[:, None, None]
        columns = {"drift": self.drift, "spread": self.spread, "half": self.half, "weight": weight}
        return frame([("depth", 1), ("type", 0), ("pair", 0)], columns)

    def plot(self) -> go.Figure:
        """How far a bracket moves each query, as a share of the way between two answers."""
        table = self.to_frame()
        return dots_figure(
            # the sign says towards which type, and 2 h is the whole way between both
            table.assign(share=table["drift"].abs() / (2 * table["half"])),
            {"|μ| / 2h": "share"},
            rows="type {type} at depth {depth}, pair {pair}",
            unit="share of the way between two answers, per bracket",
            title="Drift of matched pairs",
            marked={"mean": float(self)},
        )

    def __float__(self) -> float:
        """Mean of |μ| / 2h: the share of the way between two answers that a bracket goes."""
        return float((np.abs(self.drift) / (2 * self.half)).mean(axis=(1, 2)) @ self.weight)

    def __repr__(self) -> str:
        return (
            f"PairDrift({float(self):.3g} of the way between two answers per bracket; predicted "
            # 450: the middle of the long lengths, 400 to 500
            f"accuracy after a close {self.accuracy(450):.1%} at length 450, 75% at "
            f"{self.length_at():,.0f})"
        )


@checked
@one_thread()
def pair_drift(model: Any, distribution: DyckDistribution | None = None) -> PairDrift:
    """Measure the drift of matched pairs from the weights, in closed form: no string is drawn.

    Args:
        model: of a ``minimal-*`` or ``figure2-*`` family: one layer and head, a depth embedding, no
            positions.
        distribution: of the strings; None for the model's language with q = 1/2.

    Raises:
        ValueError: another kind of model, a language of one type only or depth 1, or a distribution
            of another language.
    """
    language_with_stack(model, "pair_drift is")
    u = state_contributions(model)
    language = model.cfg.language
    distribution = distribution_for(language, distribution)
    found = displacement(u, *StateIndex(language).pairs(), distribution)
    # a closing bracket leads from d + 1 to d: how often that is, for d = 1 on, so from 2 on
    weight = (distribution.depth_share() * (1 - distribution.open_probability()))[2:]
    return PairDrift(
        drift=found.drift.numpy(),
        spread=found.variance.sqrt().numpy(),
        half=found.half.numpy(),
        weight=weight / weight.sum(),
    )


def distribution_for(
    language: DyckLanguage, distribution: DyckDistribution | None
) -> DyckDistribution:
    """The distribution that was given, if of this language; None for q = 1/2."""
    if distribution is None:
        distribution = DyckDistribution(language)
    check_instance("distribution", distribution, DyckDistribution, "a DyckDistribution")
    if distribution.language != language:
        raise ValueError(f"the model reads {language}, but the strings are of {distribution}")
    return distribution
