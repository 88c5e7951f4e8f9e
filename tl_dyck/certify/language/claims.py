"""What can be claimed of a model on every prefix; see `CLAIMS`.

A claim is a number per prefix, its margin, which must be positive. It is computed from answers:
objectives of the logits, times a factor, with a bound of their errors, as `Form.values` gives them.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from typing import final

import numpy as np
import torch
from numpy.typing import NDArray

from tl_dyck.certify.exact.balls import UNIT, Array, folded
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.kit.check import check_number, shown
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckDistribution, DyckLanguage, Language

Answer = tuple[Array, Array, Array]
"""Objectives times a factor, [n, K]; a bound of their errors, [n, 1 or K]; the factor and a bound
of its error, [n, 2]."""

CLAIMS = {
    "any_token": "the bracket that closes the top of the stack has the largest logit of all tokens",
    "closing_only": "it has the largest logit of all closing brackets",
    "valid_token": "the largest logit of all tokens is that of one that may follow",
    "total_variation": "total variation to the next token's law is at most epsilon",
    "kl": "KL divergence from the next token's law, in nats, is at most epsilon",
    "allowed": "of each symbol, its logit is above the threshold exactly if it may follow",
    "agree": "two models predict the same token",
    "head": "the prediction stays the same when a head attends uniformly",
}
"""The claims by name. The first two are about prefixes that leave a bracket open."""


class PrefixClaim(ABC):
    """What is asked of every prefix; by default of all of them and of all logits."""

    @property
    def closing(self) -> bool:
        """Whether the claim is about the closing bracket that comes next."""
        return False

    def speaks_of(self, depth: int) -> bool:
        """Whether the claim says anything on prefixes of a depth."""
        return True

    def objectives(self, ending: Ending, d_vocab: int) -> Objectives | None:
        """The objectives of the logits that the claim reads; None where it says nothing."""
        tokens = np.arange(d_vocab)
        return Objectives(tokens, np.full(d_vocab, -1), np.zeros(d_vocab))

    @abstractmethod
    def margins(self, ending: Ending, answers: list[Answer]) -> tuple[Array, Array]:
        """Margin of each profile, and a bound of its error; an answer per model."""


def plain_margins(
    claim: PrefixClaim, ending: Ending, logits: Sequence[Array]
) -> tuple[Array, Array] | None:
    """The margins of prefixes whose logits are known, and bounds of their errors, ``[n]`` each.

    None where nothing is claimed.

    Args:
        claim: the claim.
        ending: how all of the prefixes end.
        logits: of each model, ``[n, d_vocab]``.
    """
    answers: list[Answer] = []
    for each in logits:
        objectives = claim.objectives(ending, each.shape[1])
        if objectives is None:
            return None
        n = len(each)
        answers.append((objectives.values(each), np.zeros((n, 1)), np.tile([1.0, 0.0], (n, 1))))
    return known(*claim.margins(ending, answers))


_SIGN = 1 - 1e-9
"""Of a margin whose sign is known, an error is at most so much: it must not hide the sign."""


def quotient_error(size: Array, error: Array, factor: Array) -> tuple[Array, Array]:
    """What quotients of values by a factor are off by, ``[n]``: for the values; for the factor.

    Args:
        size: of the quotients, ``[n]``.
        error: of the values, ``[n, 1 or K]``.
        factor: and a bound of its error, ``[n, 2]``.
    """
    divisor, lost = factor.T
    off = folded(np.maximum, error) / divisor
    # |F/ρ - g| ≤ |F - ρ' g| / ρ + |g| |ρ' - ρ| / ρ for the exact ρ', and |g| ≤ (|F/ρ| + off) ρ/ρ'
    relative = np.where(divisor > lost, lost / (divisor - lost), np.inf)
    return off, np.where(relative > 0, (size + off) * relative, 0.0)


def _signed(least: Array, error: Array, factor: Array) -> tuple[Array, Array]:
    """Margins whose sign is that of the values, however little is known of the factor."""
    margin = least / factor[:, 0]
    size = abs(margin)
    off, more = quotient_error(size, error, factor)
    # less than the margin where the sign is known, but never less than the values are off by
    held = np.maximum(np.minimum(off + more, size * _SIGN), off)
    return margin, np.where(size > off, held, off + more)


def known(margin: Array, error: Array) -> tuple[Array, Array]:
    """The same, with 0 ± inf where either is no finite number: nothing is known there."""
    fine = np.isfinite(margin) & np.isfinite(error)
    return np.where(fine, margin, 0.0), np.where(fine, error, np.inf)


def valid_tokens(language: DyckLanguage, ending: Ending) -> list[int]:
    """The tokens that may follow."""
    # token 2a opens and 2a + 1 closes type a
    opens = list(range(0, 2 * language.n_types, 2)) if ending.depth < language.max_depth else []
    return opens + ([2 * ending.stack[-1] + 1] if ending.stack else [])


@final
@dataclass(frozen=True)
class Signs(PrefixClaim):
    """Some tokens' logits beat others': "any_token", "closing_only", "valid_token".

    The margin is the least, over all tokens that must not win, of the most by which a token that
    may win beats it.

    Attributes:
        name: the claim's name.
        language: the language.
    """

    name: str
    language: DyckLanguage

    @property
    def closing(self) -> bool:
        """Of all but "valid_token"."""
        return self.name != "valid_token"

    def speaks_of(self, depth: int) -> bool:
        """Where there is something to win, and someone to lose."""
        # types do not matter: a stack of type 0 has as many winners and losers as any
        return all(self.pairs(Ending((0,) * depth, None), self.language.d_vocab))

    def pairs(self, ending: Ending, d_vocab: int) -> tuple[list[int], list[int]]:
        """The tokens that may win, and those that must not."""
        if self.name == "valid_token":
            winners = valid_tokens(self.language, ending)
        elif ending.stack:
            winners = [2 * ending.stack[-1] + 1]
        else:
            return [], []
        rivals = range(1, 2 * self.language.n_types, 2)
        everyone = range(d_vocab) if self.name != "closing_only" else rivals
        return winners, [token for token in everyone if token not in winners]

    def objectives(self, ending: Ending, d_vocab: int) -> Objectives | None:
        """logit[winner] - logit[loser], losers in groups of one loser each."""
        winners, losers = self.pairs(ending, d_vocab)
        if not winners or not losers:
            return None
        plus, minus = np.meshgrid(np.array(winners), np.array(losers))
        return Objectives(plus.ravel(), minus.ravel(), np.zeros(plus.size))

    def margins(self, ending: Ending, answers: list[Answer]) -> tuple[Array, Array]:
        """See the class."""
        ((values, error, factor),) = answers
        return _signed(self.least(ending, values), error, factor)

    def least(self, ending: Ending, values: Array) -> Array:
        """Min over losers of max over winners; of lower bounds it is a lower bound."""
        n_winners = 1 if self.closing else len(valid_tokens(self.language, ending))
        most = [values[:, first::n_winners] for first in range(n_winners)]
        least: Array = folded(np.minimum, reduce(np.maximum, most))
        return least


@final
@dataclass(frozen=True)
class Allowed(PrefixClaim):
    """Each bracket has a logit above the threshold exactly if it may follow: "allowed".

    Attributes:
        language: the language; other logits than those of its brackets say nothing.
        threshold: the threshold.
    """

    language: DyckLanguage
    threshold: float

    def objectives(self, ending: Ending, d_vocab: int) -> Objectives | None:
        """See `Objectives.allowed`."""
        may = np.zeros(2 * self.language.n_types, dtype=bool)
        may[valid_tokens(self.language, ending)] = True
        return Objectives.allowed(may, self.threshold)

    def margins(self, ending: Ending, answers: list[Answer]) -> tuple[Array, Array]:
        """The least distance of a logit from the threshold, negative on its wrong side."""
        ((values, error, factor),) = answers
        return _signed(self.least(ending, values), error, factor)

    def least(self, ending: Ending, values: Array) -> Array:
        """Min over brackets; of lower bounds it is a lower bound."""
        least: Array = folded(np.minimum, values)
        return least


@final
@dataclass(frozen=True)
class NextToken(PrefixClaim):
    """How far the prediction is from the law of the next token: "total_variation", "kl".

    The law is that of D(q, k, D) in mode "prefix", which depends on the stack alone; see
    `DyckDistribution.next_token_probs`.

    Attributes:
        name: the claim's name.
        distribution: gives the law.
        epsilon: the largest distance that is allowed.
    """

    name: str
    distribution: DyckDistribution
    epsilon: float

    def law(self, ending: Ending, d_vocab: int) -> Array:
        """Probabilities of the next token; 0 for tokens that are none of the language's."""
        language = self.distribution.language
        # the law knows the stack alone: so the shortest prefix that leaves it stands for all
        prefix = torch.tensor([language.bos_token, *(2 * t for t in ending.stack)])
        law = np.zeros(d_vocab)
        # BOS never follows, and a model need not have a logit of it
        law[: language.bos_token] = self.distribution.next_token_probs(prefix)[-1, :-1].numpy()
        return law

    def margins(self, ending: Ending, answers: list[Answer]) -> tuple[Array, Array]:
        """Epsilon minus the distance."""
        ((values, error, factor),) = answers
        with np.errstate(invalid="ignore", over="ignore"):
            logits = values / factor[:, :1]
            off, more = quotient_error(abs(logits).max(1), error, factor)
            off = off + more
            # softmax does not change, and no exponential overflows
            logits = logits - logits.max(1, keepdims=True)
            total = np.log(np.exp(logits).sum(1, keepdims=True))
            law, log_probs = self.law(ending, values.shape[1]), logits - total
            if self.name == "kl":
                held = law > 0
                terms = law[held] * (np.log(law[held]) - log_probs[:, held])
                distance, size = terms.sum(1), abs(log_probs[:, held]).max(1)
            else:
                distance = 0.5 * abs(law - np.exp(log_probs)).sum(1)
                size = np.ones(len(distance))
            # logits off by e change a log-probability by at most 2e, and a probability by a factor
            # of at most exp(2e)
            # of V terms a logarithm or an exponential each (8 u), products, and
            # their sum: fewer than 64 V
            rounding = 2 * off + 64 * UNIT * values.shape[1] * (abs(logits).max(1) + size)
            # exp overflows at 709.8; e^700 says that nothing is known as well
            return self.epsilon - distance, np.expm1(np.minimum(2 * rounding, 700.0))


@final
@dataclass(frozen=True)
class Agreement(PrefixClaim):
    """Two models have the same largest logit: "agree", "head".

    The margin's size is the least gap, in either model, of the largest logit to the second.

    Attributes:
        name: the claim's name.
    """

    name: str

    def margins(self, ending: Ending, answers: list[Answer]) -> tuple[Array, Array]:
        """See the class."""
        tops: list[NDArray[np.int64]] = []
        gaps, errors = [], []
        for values, error, factor in answers:
            # ascending: the last two columns
            second, first = np.sort(values, axis=1)[:, -2:].T
            tops.append(values.argmax(1))
            gaps.append((first - second) / factor[:, 0])
            # twice: a gap is a difference of two logits, both of which may be off
            errors.append(2 * error.max(1) / factor[:, 0])
        gap, same = np.minimum(*gaps), tops[0] == tops[1]
        certain = (gaps[0] > errors[0]) & (gaps[1] > errors[1])
        # what is claimed is which token is largest: that is certain or not, whatever the gap
        error = np.where(certain, 0.0, np.inf)
        return np.where(same, gap, -gap), error


def said_to_follow(language: Language, logits: Array, threshold: float) -> str:
    """The symbols whose logits are above the threshold, as text."""
    symbols = zip(language.alphabet, logits, strict=False)
    return " ".join(symbol for symbol, logit in symbols if logit > threshold) or "nothing"


def read_threshold(name: str, threshold: float | None) -> float:
    """The threshold of "allowed", 0 if none is given.

    Raises:
        CertifyError: it is given for another claim.
        ValueError: it is not finite.
    """
    if threshold is not None and name != "allowed":
        raise CertifyError(
            f"property {name!r} has no threshold, which is {shown(threshold)}; leave it out"
        )
    return check_number("threshold", 0.0 if threshold is None else threshold)


def read_claim(
    name: str,
    distribution: DyckDistribution,
    epsilon: float | None,
    n_models: int,
    threshold: float | None = None,
) -> PrefixClaim:
    """The claim of a name.

    Raises:
        UnknownNameError: no such claim.
        CertifyError: epsilon or a second model is missing, or given in vain, or a threshold is.
        ValueError: epsilon is negative or not finite, or the threshold not finite.
    """
    if name not in CLAIMS:
        raise unknown_name("property", name, list(CLAIMS))
    threshold = read_threshold(name, threshold)
    wants = name in ("total_variation", "kl")
    if wants != (epsilon is not None):
        raise CertifyError(
            f"property {name!r} {'needs' if wants else 'has no'} epsilon, "
            f"which is {None if epsilon is None else shown(epsilon)}; "
            f"{'give the largest distance allowed' if wants else 'leave it out'}"
        )
    largest = check_number("epsilon", epsilon, least=0) if wants else 0.0
    if (n_models == 2) != (name in ("agree", "head")):
        raise CertifyError(
            f"property {name!r} is about {2 if name in ('agree', 'head') else 1} model(s): "
            "give other= for 'agree', head= for 'head', and neither else"
        )
    if name in ("agree", "head"):
        return Agreement(name)
    if name == "allowed":
        return Allowed(distribution.language, threshold)
    if wants:
        return NextToken(name, distribution, largest)
    return Signs(name, distribution.language)
