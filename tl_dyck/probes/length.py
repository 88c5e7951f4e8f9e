"""Accuracy at any length from two moments of the pairs: no long string is drawn or read.

With a minimal first layer what a closing bracket's query sees is a function of how often the prefix
holds each state (`tl_dyck.reading.states`): head h puts out

    z_h = Σ_s n_s exp(score_h(s)) v_h(s) / Σ_s n_s exp(score_h(s)),

n_s being 1 for BOS, for every open bracket and for both brackets of the last pair, and else the
number of matched pairs that hold s. These numbers are drawn from the normal law with their exact
means and covariances (`tl_dyck.language.pairs`; given how many pairs a level has, their types are
uniform and independent), z is put in place of the head's own output, and the model does the rest.

So unlike `pair_drift` this takes the directions across the axis between two answers into account,
and the norm and layers behind the attention; and the length's parity. All that it assumes is that
numbers of pairs are normal. What is drawn below 0 is taken for 0, so a level of which only a few
pairs are expected (short strings, or q near 0 or 1) gets too many. Time grows with the length
through the recursion alone.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, SupportsIndex, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_draws, check_lengths, check_seed
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.language.pairs import PairCounts, pair_counts
from tl_dyck.plotting.plot_recipes import dots_figure, frame
from tl_dyck.probes.balance import check_minimal
from tl_dyck.probes.drift import distribution_for
from tl_dyck.reading.hook_points import record
from tl_dyck.reading.inputs import language_with_stack, measured
from tl_dyck.reading.predict import likeliest
from tl_dyck.reading.states import StateIndex, visit_all

if TYPE_CHECKING:
    import pandas as pd
    import plotly.graph_objects as go

_LONGEST = 1_000_000  # brackets: the recursion takes half a minute


@final
@dataclass(frozen=True, kw_only=True)
class AccuracyAtLength:
    """Predicted accuracy on a closing bracket that follows a closing bracket.

    Indices: d - 1 for the d = 1..D-1 brackets that are open, and the type j of the bracket before.

    Attributes:
        accuracy: share of draws for which the right bracket has the largest logit of all tokens,
            ``[d - 1, j]``; NaN where no prefix of these lengths is so.
        among_closing: share for which it has the largest logit of all closing brackets, likewise.
        weight: share of such prefixes that have d brackets open, ``[d - 1]``.
        n: draws for each.
    """

    accuracy: Float[np.ndarray, "depth n_types"]
    among_closing: Float[np.ndarray, "depth n_types"]
    weight: Float[np.ndarray, " depth"]
    n: int

    @property
    def after_close(self) -> float:
        """The accuracy; what `DyckTask.closing_accuracy` measures under this name."""
        return float(np.nansum(self.accuracy.mean(1) * self.weight))

    @property
    def closing_only(self) -> float:
        """The accuracy among closing brackets."""
        return float(np.nansum(self.among_closing.mean(1) * self.weight))

    @property
    def after_close_by_depth(self) -> tuple[float | None, ...]:
        """The same where 1, 2, … D - 1 brackets are open; None where no prefix is so."""
        return tuple(None if share != share else share for share in self.accuracy.mean(1).tolist())

    @property
    def error(self) -> float:
        """Standard error of `after_close` that comes of drawing."""
        k = self.accuracy.shape[1]
        # the variance of a mean of k shares of n draws each
        spread = (self.accuracy * (1 - self.accuracy)).sum(1) / k**2 / self.n
        return float(np.sqrt(np.nansum(spread * self.weight**2)))

    def to_frame(self) -> pd.DataFrame:
        """One row per query close(type, depth): accuracy, among_closing, weight."""
        shares = {"accuracy": self.accuracy, "among_closing": self.among_closing}
        return frame([("depth", 1), ("type", 0)], {**shares, "weight": self.weight[:, None]})

    def plot(self) -> go.Figure:
        """The accuracy after each closing bracket; the line is their mean."""
        return dots_figure(
            self.to_frame(),
            {"accuracy": "accuracy"},
            rows="type {type} at depth {depth}",
            unit="predicted share of right answers",
            title="Accuracy at length",
            marked={"mean": self.after_close},
        )

    def __float__(self) -> float:
        return self.after_close

    def __repr__(self) -> str:
        return (
            f"AccuracyAtLength({self.after_close:.1%} ± {self.error:.1%} after a closing bracket)"
        )


@checked
@one_thread()
def accuracy_at_length(
    model: Any,
    lengths: SupportsIndex | Iterable[SupportsIndex] = range(400, 501),
    distribution: DyckDistribution | None = None,
    *,
    weights: str = "lengths",
    n: SupportsIndex = 4000,
    seed: SupportsIndex = 0,
) -> AccuracyAtLength:
    """Predict accuracy after a closing bracket at length, where each *length* counts alike.

    No long string is read. `DyckTask.closing_accuracy` counts so too, as it asks for one bracket of
    each prefix. Who reads long strings and pools all answers gives more weight to lengths at which
    more is asked (after an even number of brackets an even number is open): that is
    ``weights="answers"``, and may differ by points.

    Args:
        model: of a ``minimal-*`` or ``figure2-*`` family: one layer, a depth embedding, no
            positions; any number of heads.
        lengths: of the prefixes, the bracket to be predicted included; those that no such prefix
            has are left out. Below some dozens numbers of pairs are far from normal.
        distribution: of the strings; None for the model's language with q = 1/2.
        weights: "lengths": prefixes of a length are those that end with a closing bracket, and
            each length counts the same, as the task's `long_lengths` do; or "answers": each counts
            as often as a string asks after a closing bracket there.
        n: draws for each depth and type of the bracket before.
        seed: of the draws.

    Raises:
        TypeError: not one HookedTransformer, or an argument of a wrong type.
        UnknownNameError: other weights.
        ValueError: another kind of model, a language of depth 1, a distribution of another
            language, a length below 2, or no length that such a prefix has.
    """
    measured(model, "accuracy_at_length")
    language_with_stack(model, "accuracy_at_length is")
    language = check_minimal(model)
    distribution = distribution_for(language, distribution)
    if not isinstance(weights, str) or weights not in ("lengths", "answers"):
        raise unknown_name("weights", weights, ("lengths", "answers"))
    sizes = check_lengths(lengths, least=2, most=_LONGEST)
    n, seed = check_draws(n), check_seed(seed)
    # a length counts the bracket that is predicted; the prefix before it is one shorter
    law = pair_counts(distribution, [size - 1 for size in sizes])
    # column 0: nothing is open, and nothing is asked
    share = law.probability[:, 1:]  # times 1 - q: how often a string asks, for all d
    if weights == "lengths":
        share = _share(law, distribution, sizes)
    if not share.any():
        raise ValueError(
            f"no prefix of {distribution} of these lengths ends with two closing brackets, the "
            f"first of which leaves one open: {', '.join(map(str, sizes))}"
        )
    generator, states = np.random.default_rng(seed), _states(model, language)
    # 0: of all tokens, 1: of closing brackets; NaN where no prefix is so
    right = np.full((2, language.max_depth - 1, language.n_types), np.nan)
    # column 0 of what is left is d = 1
    for d in (1 + np.flatnonzero(share.any(0))).tolist():
        chosen = generator.choice(len(sizes), size=n, p=share[:, d - 1] / share[:, d - 1].sum())
        for j in range(language.n_types):
            held, top = _draw(language, law, chosen, d, j, generator)
            right[:, d - 1, j] = _right(model, language, states, held, top, d, j)
    weight = share.sum(0)
    return AccuracyAtLength(
        accuracy=right[0], among_closing=right[1], weight=weight / weight.sum(), n=n
    )


def _share(
    law: PairCounts, distribution: DyckDistribution, sizes: Sequence[int]
) -> Float[np.ndarray, "length depth"]:
    """How many of the prefixes that end with a closing bracket are asked after one, by depth.

    ``[length, d - 1]``, but for a common factor; see `DyckTask.sample_closing`.
    """
    # before the bracket that is predicted stand size - 1
    ends = distribution.depth_probability(max(sizes) - 1)[np.array(sizes) - 1]
    closing = ends @ (1 - distribution.open_probability())
    asked = law.probability[:, 1:]  # times 1 - q for all d
    share = np.zeros_like(asked)
    np.divide(asked, closing[:, None], out=share, where=closing[:, None] > 0)
    return share


def _states(model: Any, language: DyckLanguage) -> list[Float[Tensor, "head reached d_head"]]:
    """Queries, keys and values of the states that strings reach."""
    index, tokens = StateIndex(language), visit_all(language)
    names = [f"blocks.0.attn.hook_{name}" for name in "qkv"]
    found = record(model, tokens.to(model.cfg.device), names)
    states = index.of(tokens, language.depth(tokens)).flatten().tolist()
    first = [states.index(row) for row in index.reachable()]
    return [found[name].flatten(0, 1)[first].transpose(0, 1).double().cpu() for name in names]


def _draw(
    language: DyckLanguage,
    law: PairCounts,
    chosen: Int[np.ndarray, " n"],
    d: int,
    j: int,
    generator: np.random.Generator,
) -> tuple[Float[np.ndarray, "n state"], Int[np.ndarray, " n"]]:
    """How often prefixes that end in close(j, d) hold each state, and the type that is on top.

    The prefixes are of the chosen lengths.
    """
    n, k, index = len(chosen), language.n_types, StateIndex(language)
    opens, closes = index.pairs()
    drawn, place = np.unique(chosen, return_inverse=True)
    values, vectors = np.linalg.eigh(law.covariance[drawn, d])
    # the symmetric root: which sign a vector has depends on the machine
    root = np.einsum("nae,ne,nbe->nab", vectors, np.sqrt(np.maximum(values, 0)), vectors)
    normal = generator.standard_normal((n, language.max_depth))
    pairs = law.mean[chosen, d] + np.einsum("nab,nb->na", root[place], normal)
    # level d + 1, which is row d
    pairs[:, d] -= 1  # the last one, whose type is known
    pairs = np.maximum(pairs, 0)[:, :, None]
    normal = generator.standard_normal((n, language.max_depth, k))
    # types share a level's pairs: what one has more the others have less, so the sum is 0
    normal -= normal.mean(-1, keepdims=True)
    # multinomial counts: variance (1 − 1/k) pairs / k, and (1 − 1/k) is what is left of a normal
    # number's variance once the mean is taken away
    by_type = np.maximum(pairs / k + np.sqrt(pairs / k) * normal, 0)
    held = np.zeros((n, language.d_vocab * index.depths))
    held[:, opens] = held[:, closes] = by_type
    # once each, in every such prefix: BOS, and the pair that ends it
    held[:, [index.bos, index.open(j, d + 1), index.close(j, d)]] += 1
    stack = generator.integers(k, size=(n, d))
    np.add.at(held, (np.arange(n)[:, None], opens[np.arange(d), stack]), 1)
    return held, stack[:, -1]


@torch.no_grad()
def _right(
    model: Any,
    language: DyckLanguage,
    states: Sequence[Float[Tensor, "head reached d_head"]],
    held: Float[np.ndarray, "n state"],
    top: Int[np.ndarray, " n"],
    d: int,
    j: int,
) -> tuple[float, float]:
    """Share of prefixes that end in close(j, d) after which the model answers what is on top.

    Of all tokens, and of closing brackets.
    """
    index, (q, k, v) = StateIndex(language), states
    rows = index.reachable()
    query = q[:, rows.index(index.close(j, d))]
    score = torch.einsum("hd,hsd->hs", query, k) / model.blocks[0].attn.attn_scale
    number = torch.from_numpy(held[:, rows])[:, None]
    weight = number * (score - score.max(-1, keepdim=True).values).exp()
    z = torch.einsum("nhs,hsd->nhd", weight / weight.sum(-1, keepdim=True), v)

    def put(hook_z: Tensor, hook: Any) -> Tensor:
        hook_z[:, -1] = z.to(hook_z)
        return hook_z

    # a short string whose last bracket is the same query
    # d brackets of any type, then a pair of type j: the same last symbol as the long prefix
    short = [language.bos_token] + [0] * d + [2 * j, 2 * j + 1]
    tokens = torch.tensor([short], device=model.cfg.device).expand(len(held), -1)
    logits = model.run_with_hooks(tokens, fwd_hooks=[("blocks.0.attn.hook_z", put)])[:, -1]
    # closing brackets are 1, 3, …: number i of them is token 2 i + 1
    answers = likeliest(logits), 2 * likeliest(logits[:, language.closing]) + 1
    first, second = ((each.cpu().numpy() == 2 * top + 1).mean() for each in answers)
    return float(first), float(second)
