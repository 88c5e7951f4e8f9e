"""Claims about what models themselves predict: which bracket should win is found by running them.

"valid_token" lets any bracket win that may follow, and "agree" and "head" any that wins in both
models. So the prefixes of a length are sorted by the automaton's state, by the profile or position
that a model's layer carries (`Walks`), and by the last bracket. One of each kind is run. What the
first model predicts there is claimed of all of the kind: that this token beats all others in every
model, or those that may not follow. That is sufficient, and decided as any answer is (`Margins`). A
prefix on which it fails is run: if it is no counterexample, its length stays open.

Knows: which answer to claim where none is known beforehand.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.deadline import RUN_A_LOOK, Deadline
from tl_dyck.certify.exact.balls import Array, BoolArray, IntArray
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.walks import Walks
from tl_dyck.certify.language.automata import NOTHING, Answers, Least, Margins
from tl_dyck.certify.lattice import SpaceTooLargeError
from tl_dyck.certify.objectives import Objectives

_AT_ONCE = 1024
"""Prefixes run at once."""


@final
@dataclass
class Predictions:
    """What one model or two predict of the strings of an automaton.

    Attributes:
        networks: the models.
        logits: of each, maps strings ``[n, length]``, without BOS, to logits ``[n, d_vocab]``.
        answers: the automaton.
        valid: whether only what may follow may win, and beats only what may not; else anything may,
            and must beat all others.
    """

    networks: Sequence[Network]
    logits: Sequence[Callable[[IntArray], Array]]
    answers: Answers
    valid: bool

    def __post_init__(self) -> None:
        finest = max(self.networks, key=lambda each: each.below is not None)
        self._walks = Walks.begin(finest, self.answers.after)

    def least(self, length: int, deadline: Deadline, *, decide: bool) -> Least:
        """The least margin of what is claimed on the strings of a length.

        Args:
            length: in symbols, at least 1.
            deadline: when to stop.
            decide: find its sign only.

        Returns:
            Its lower bound; and a string with a negative margin if the claim fails there.
        """
        try:
            after, stacks = self._kinds(length)
        except SpaceTooLargeError:
            return Least(low=-math.inf)
        kinds = Answers(after, np.full(len(after), NOTHING))
        ends, strings = kinds.examples(length)
        may = self._may_win(stacks[ends])
        logits = self._run(strings, deadline)
        wrong = _fails(logits, may)
        if wrong.any():
            return Least(
                low=-math.inf, high=-math.inf, string=tuple(strings[wrong.argmax()].tolist())
            )
        winner = np.where(may, logits[0], -np.inf).argmax(1)
        lose = ~may if self.valid else np.arange(may.shape[1]) != winner[:, None]
        claims, which = np.unique(np.column_stack([winner, lose]), axis=0, return_inverse=True)
        kinds.answer[ends] = np.where(lose.any(1), which.ravel(), NOTHING)

        def objectives(claim: int) -> Objectives:
            losers = np.flatnonzero(claims[claim, 1:])
            return Objectives(np.full_like(losers, claims[claim, 0]), losers, np.zeros(len(losers)))

        found = Least()
        for network in self.networks:
            least = Margins(network, kinds, objectives).least(length, deadline, decide=decide)
            found.low = min(found.low, least.low)
            for lost in least.lost:
                string, state = np.array([lost.string]), 0
                for token in string[0].tolist():
                    state = self.answers.after[state, token]
                if _fails(self._run(string, deadline), self._may_win(np.array([state]))).any():
                    return Least(low=-math.inf, high=lost.high, string=lost.string)
            if not found.low > 0:
                break
        return found

    def _kinds(self, length: int) -> tuple[IntArray, IntArray]:
        """An automaton that tells kinds apart: its moves, and the state of ours in each."""
        self._walks.extend(length)
        levels, then = self._walks.levels[: length + 1], list(self._walks.then[:length])
        here, token = np.nonzero(then[-1] != NOTHING)
        reached = np.stack([then[-1][here, token], token])
        ends, which = np.unique(reached, axis=1, return_inverse=True)
        then[-1] = np.full_like(then[-1], NOTHING)
        then[-1][here, token] = which.ravel()
        states = [*(level[0] for level in levels[:-1]), levels[-1][0][ends[0]]]
        start = np.cumsum([len(each) for each in states[:-1]]).tolist()
        numbered = zip(then, start, strict=True)
        after = [np.where(each != NOTHING, each + first, NOTHING) for each, first in numbered]
        nothing = np.full((len(states[-1]), then[-1].shape[1]), NOTHING)
        return np.concatenate([*after, nothing]), np.concatenate(states)

    def _may_win(self, states: IntArray) -> BoolArray:
        """[n, d_vocab] what may be the largest logit."""
        may = np.full((len(states), self.networks[0].config.d_vocab_out), not self.valid)
        if self.valid:
            follows = self.answers.after[states] != NOTHING
            may[:, : follows.shape[1]] = follows
        return may

    def _run(self, strings: IntArray, deadline: Deadline) -> list[Array]:
        """What each model makes of strings, [n, d_vocab]."""
        pieces: list[list[Array]] = []
        for start in range(0, len(strings), _AT_ONCE):
            piece = strings[start : start + _AT_ONCE]
            deadline.check(len(piece) / RUN_A_LOOK)
            pieces.append([each(piece) for each in self.logits])
        return [np.concatenate(each) for each in zip(*pieces, strict=True)]


def _fails(logits: Sequence[Array], may: BoolArray) -> BoolArray:
    """[n] whether a token wins that must not, or not the same in all models."""
    tops = [each.argmax(1) for each in logits]
    wrong = ~np.take_along_axis(may, tops[0][:, None], 1)[:, 0]
    for top in tops[1:]:
        wrong |= top != tops[0]
    return wrong
