"""Answers counted again: strings grown by hand, a forward pass in numpy, no code of facts."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.judge.conftest import FOUR_HEADS, SHIPPED
from tests.judge.methods.network import Network, exchanged, right_brackets, strings
from tl_dyck.judge import make_case

Array = np.ndarray
KINDS = ("uniform", "balanced", "stack", "backup")
#: Kinds and seeds, of which all enumerated answers are counted: a part of each kind, and more.
FEW = [
    *((kind, 1) for kind in KINDS), ("alone", 0), ("hidden", SHIPPED),
    ("trained", SHIPPED), ("trained", FOUR_HEADS),
]  # fmt: skip
MORE = [
    *((kind, seed) for kind in KINDS for seed in range(2, 10)),
    *((kind, seed) for kind in ("trained", "hidden") for seed in range(2, 6)),
]


def margins(logits: Array, right: Array) -> Array:
    """How far the right bracket is ahead of the best other; infinite where none is right."""
    is_right = np.arange(logits.shape[-1]) == right[..., None]
    mine = np.where(is_right, logits, -np.inf).max(-1)
    return np.where(right < 0, np.inf, mine - np.where(is_right, -np.inf, logits).max(-1))


class Recount:
    """A model on all strings."""

    def __init__(self, case: Any) -> None:
        self.network, self.k = Network(case.model), case.task.n_types
        self.rows = strings(self.k, case.task.max_depth, case.length)
        self.right = right_brackets(self.rows)
        self.intact = margins(self.network.run(self.rows).logits, self.right) > 1e-9
        self.other = self.network.run(exchanged(self.rows, self.k)).z

    def answer(self, kind: str, target: tuple[Any, ...]) -> bool:
        run, rows = self.network.run, self.rows
        if kind == "token":
            tokens, place = target
            row = np.flatnonzero((rows == tokens).all(1))

            def hide(layer: int, head: int, scores: Array) -> Array:
                scores[:, -1, place] = -np.inf
                return scores

            logits = run(rows[row], scores=hide).logits
            return bool(margins(logits, self.right[row])[0, -1] <= 1e-9)
        elif kind == "pattern":
            n = rows.shape[1]
            flat = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]

            def even(layer: int, head: int, old: Array) -> Array:
                return np.broadcast_to(flat, old.shape) if (layer, head) == target else old

            logits = run(rows, pattern=even).logits
        else:
            layer, head = target
            put = 0 * self.other[layer][head] if kind == "needed" else self.other[layer][head]
            logits = run(rows, z=lambda i, j, old: put if (i, j) == target else old).logits
        return bool((self.intact & (margins(logits, self.right) <= 1e-9)).any())


@pytest.mark.parametrize(
    ("cases", "least", "of_each"),
    [(FEW, 75, 15), pytest.param(MORE, 375, 30, marks=pytest.mark.slow)],
    ids=["few", "more"],
)
def test_answers_are_found_again(cases: list[tuple[str, int]], least: int, of_each: int) -> None:
    counted = dict.fromkeys(("needed", "carries", "pattern", "token"), 0)
    for kind, seed in cases:
        case, facts = make_case(kind, seed)
        recount = Recount(case)
        for fact in facts:
            question = fact.question
            if question.kind in counted:
                assert recount.answer(question.kind, question.target) == fact.answer, (kind, fact)
                counted[question.kind] += 1
    assert sum(counted.values()) >= least, counted
    assert min(counted.values()) >= of_each, counted
