"""Closing accuracy, where it counts, and beside what models get that keep no stack.

After an opening bracket the right closing bracket is its partner, which a copy of the last token
gives; only after a closing bracket does the answer take a stack. About two thirds of all closing
brackets come after an opening one, so accuracy on all of them flatters: `ClosingAccuracy` tells the
two apart, and `ClosingChance` says exactly what three models without a stack would get.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar, final

import numpy as np
import torch
from jaxtyping import Float64, Int
from torch import Tensor

from tl_dyck.language import DyckDistribution
from tl_dyck.language.chain import Floats, depth_chain
from tl_dyck.reading.inputs import check_finite, check_predicts
from tl_dyck.reading.predict import Accuracy, LanguageModel, likeliest, predictions, weighted_mean
from tl_dyck.tasks.draws import of_mixed_lengths


@final
@dataclass(frozen=True, kw_only=True)
class ClosingAccuracy(Accuracy):
    """Accuracy on the last bracket of prefixes that end with a closing one, given the rest.

    Attributes:
        any_token: share of prefixes for which the right bracket has the largest logit of all
            tokens.
        n: number of strings; every closing bracket of a string is predicted.
        error: standard error of `any_token`, over strings.
        closing_only: share for which it has the largest logit of all closing brackets.
        after_open: `any_token` where the bracket before is an opening one: its partner is right.
        after_close: `any_token` where the bracket before is a closing one: it takes a stack. None
            if no prefix is so, as with depth 1.
        after_close_error: standard error of `after_close`, over strings.
        after_close_by_depth: `after_close` where 1, 2, … D - 1 brackets are open; None where no
            prefix is so.
    """

    kind: ClassVar[str] = "closing"

    closing_only: float
    after_open: float | None = None
    after_close: float | None = None
    after_close_error: float | None = None
    after_close_by_depth: Sequence[float | None] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "after_close_by_depth", tuple(self.after_close_by_depth))

    def __str__(self) -> str:
        """`any_token` and `after_close`, with their standard errors; ``repr`` has everything."""
        said = f"ClosingAccuracy({_with_error(self.any_token, self.error)} of closing brackets"
        if self.after_close is not None:
            said += f", {_with_error(self.after_close, self.after_close_error)} after a closing one"
        return f"{said}; {self.n:,} strings)"


def _with_error(share: float, error: float | None) -> str:
    return f"{share:.1%}" if error is None else f"{share:.1%} ± {error:.1%}"


@final
@dataclass(frozen=True, kw_only=True)
class ClosingChance:
    """Closing accuracy of models that keep no stack; exact, of all brackets and after a close.

    They predict a closing bracket wherever one is asked for, so both readings of the metric agree.

    Attributes:
        after_close_share: share of the prefixes whose bracket before the last is a closing one.
        depth_shares: share of those with 1, 2, … D - 1 open brackets.
        constant: always the same closing bracket: 1/k.
        copier: the partner of the bracket before if that is an opening one, else any closing one.
        counter: the same, but else the type of which most brackets are open, by their numbers.
        counter_after_close: what the counter gets after a closing bracket; constant and copier get
            1/k there.
    """

    after_close_share: float
    depth_shares: Sequence[float]
    constant: float
    copier: float
    counter: float
    counter_after_close: float


# --- measured -------------------------------------------------------------------------------------


def closing_strings(
    distribution: DyckDistribution,
    lengths: Sequence[int],
    mode: str,
    *,
    n: int,
    generator: torch.Generator,
) -> tuple[Int[Tensor, "n pos"], Float64[Tensor, "n pos"]]:
    """Draw strings of whose closing brackets every one is to be predicted, and their weights.

    Weighted so, the brackets are those of `DyckTask.sample_closing`, where a string has one: in
    expectation the sum over the brackets of all strings is that over as many such prefixes, with a
    smaller variance, as a string's brackets are averaged and not drawn (Rao and Blackwell).

    Returns:
        Tokens, BOS first and as filling; and the weight of each as an example, 0 for all but
        closing brackets.
    """
    language = distribution.language
    if mode == "complete":
        draw = partial(distribution.sample, mode=mode, generator=generator)
        tokens = of_mixed_lengths(n, lengths, draw, language.bos_token, generator)
        # one of a string's closing brackets would be drawn, each as likely: 1 over their number
        closing = language.is_close(tokens).double()
        return tokens, closing / closing.sum(-1, keepdim=True)
    longest = max(lengths)
    strings = distribution.sample(n, longest, mode="prefix", generator=generator)
    tokens = torch.cat([torch.full((n, 1), language.bos_token), strings], dim=1)
    # A prefix of such a string is distributed as a string of that length. Where one ends with a
    # close with probability p, it stands for 1/p prefixes drawn on the condition that they do.
    reach = distribution.depth_probability(longest - 1)
    closes = reach @ (1 - distribution.open_probability())
    # by place: the bracket at place n (BOS at 0) follows a prefix of n − 1 brackets
    weights = np.zeros(longest + 1)
    np.add.at(weights, lengths, 1 / closes[np.array(lengths) - 1])
    return tokens, torch.where(language.is_close(tokens), torch.from_numpy(weights), 0.0)


def closing_accuracy(
    distribution: DyckDistribution,
    lengths: Sequence[int],
    mode: str,
    model: LanguageModel,
    *,
    n: int,
    seed: int,
    device: Any,
    chunk: int,
) -> ClosingAccuracy:
    """Measure a model on every closing bracket of `n` strings; see `DyckTask.closing_accuracy`."""
    language = distribution.language
    check_predicts(model, language)
    check_finite(model)
    tokens, weights = closing_strings(
        distribution, lengths, mode, n=n, generator=torch.Generator().manual_seed(seed)
    )
    right, right_closing = [], []
    # the first place of which the first string asks; `predictions` checks there that models are
    # causal
    asked = torch.nonzero(weights[0]).tolist() or [[1]]
    for expected, logits in predictions(
        model, tokens, language.d_vocab, first=asked[0][0], device=device, chunk=chunk
    ):
        # closing brackets are 1, 3, …: number i of them is token 2 i + 1
        right.append(likeliest(logits) == expected)
        best = likeliest(logits[..., language.closing])
        right_closing.append(2 * best + 1 == expected)
        del logits
    # what is predicted at place n was read at n − 1
    correct, weights, before = torch.cat(right), weights[:, 1:], tokens[:, :-1]
    any_token, error = weighted_mean(correct, weights)
    closing_only, _ = weighted_mean(torch.cat(right_closing), weights)
    if any_token is None or closing_only is None:
        raise ValueError(f"none of {n} strings has a closing bracket to predict; raise n")
    after_open, _ = weighted_mean(correct, weights * language.is_open(before))
    after_close = weights * language.is_close(before)
    found, found_error = weighted_mean(correct, after_close)
    depth = language.depth(before)
    return ClosingAccuracy(
        any_token=any_token,
        closing_only=closing_only,
        n=n,
        error=error,
        after_open=after_open,
        after_close=found,
        after_close_error=found_error,
        after_close_by_depth=[
            weighted_mean(correct, after_close * (depth == level))[0]
            # after a close at least one level is free: 1 to D - 1
            for level in range(1, language.max_depth)
        ],
    )


# --- exact ----------------------------------------------------------------------------------------


def closing_chance(
    distribution: DyckDistribution, lengths: Sequence[int], mode: str
) -> ClosingChance:
    """Compute what models without a stack get; see `ClosingChance`.

    With s the share of prefixes whose bracket before the last is a closing one, the copier gets
    (1 - s) + s/k. The counter knows how many brackets of each type are open. Types are independent
    and uniform, so all orders of them on a stack of d are equally likely, and the likeliest top is
    the most frequent type: it is right with probability E[max of Multinomial(d; 1/k)] / d.
    """
    after_close = _closing_law(distribution, lengths, mode)[:, 1]
    share = float(after_close.sum())
    k = distribution.language.n_types
    # 0 open: nothing is asked; D open: the bracket before cannot have closed
    depths = after_close[1 : distribution.language.max_depth]
    depths = depths / share if share else depths
    levels = np.arange(1, len(depths) + 1)
    counted = float(depths @ (_expected_largest(k, len(depths)) / levels)) if share else math.nan
    return ClosingChance(
        after_close_share=share,
        depth_shares=tuple(depths.tolist()),
        constant=1 / k,
        # right where its own bracket may be closed, else by chance
        copier=1 - share + share / k,
        counter=1 - share + (share * counted if share else 0.0),
        counter_after_close=counted,
    )


def closing_weights(distribution: DyckDistribution, lengths: Sequence[int], mode: str) -> Floats:
    """How often `DyckTask.closing_accuracy` asks what follows a prefix, over its probability.

    All prefixes of a length n and depth d count alike: if one has probability P(x) under D(q, k,
    D), the task asks for the closing bracket after it with probability P(x) w[n, d]. So a model's
    error is Σ w[n, d] P(prefixes of n and d on which it is wrong).

    Returns:
        w, ``[longest + 1, D + 1]``, with Σ w[n, d] P(n, d) = 1, where P is
        `DyckDistribution.depth_probability`.
    """
    deepest = distribution.language.max_depth
    closes = 1 - distribution.open_probability()
    if mode == "complete":
        # one of the length / 2 closing brackets of a complete string, each as likely
        # each length as likely, then one of its length / 2 closing brackets
        shares = 2 / np.array(lengths) / len(lengths)
        chain = depth_chain(distribution.q, deepest, max(lengths))
        odds = np.exp([odds[:, 1] for _, odds in chain.log_odds(lengths, shares)])
        return np.pad(odds, [(0, 0), (0, deepest + 1 - odds.shape[1])])
    closing = distribution.depth_probability(max(lengths) - 1) @ closes
    weights = np.zeros((max(lengths), deepest + 1))
    for length in lengths:
        # the bracket at place n follows a prefix of n - 1
        weights[length - 1] += closes / closing[length - 1] / len(lengths)
    return weights


def _closing_law(distribution: DyckDistribution, lengths: Sequence[int], mode: str) -> Floats:
    """Probability of each (open brackets, whether the bracket before closes) at a prediction."""
    weights = closing_weights(distribution, lengths, mode)
    reach = distribution.depth_probability(len(weights) - 1)
    closed = np.zeros_like(reach)  # the last bracket closes
    # from depth d + 1 to d, one bracket later: rows and columns are shifted by one
    closed[1:, :-1] = (reach[:-1] * (1 - distribution.open_probability()))[:, 1:]
    law: Floats = np.stack([weights * (reach - closed), weights * closed], axis=-1).sum(0)
    return law


def _expected_largest(n_types: int, largest: int) -> Floats:
    """E[max of Multinomial(d; 1/k)] for d = 1 … `largest`, as Σ_m P(max > m)."""
    from scipy import stats

    expected = np.zeros(largest + 1)
    sizes = np.arange(largest + 1)
    for most in range(largest):
        within = np.ones(largest + 1)  # P(no type more than `most` times), of no types yet
        # of no types, only 0 brackets can be distributed
        within[1:] = 0.0
        for kinds in range(1, n_types + 1):
            # [d, left]: the last of `kinds` types gets d - left of d brackets, the others what is
            # left
            taken = stats.binom.pmf(sizes[:, None] - sizes, sizes[:, None], 1 / kinds)
            # P(none has more): that type may have no more either
            taken[sizes[:, None] - sizes > most] = 0.0
            within = taken @ within
        # E[max] = Σ over m ≥ 0 of P(max > m)
        expected += (1 - within) * (sizes > 0)
    found: Floats = expected[1:]
    return found
