"""What methods say of one bracket, found another way."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from tests.judge.methods.cases import network
from tests.judge.methods.heads import differences
from tl_dyck.judge import Case, Question

Array = np.ndarray
Row = tuple[int, ...]
#: From prefixes of one length, and the closing bracket that is predicted after each, to a size for
#: each position of each.
Sizes = Callable[[Case, list[Row], list[int]], Array]


def ahead(sizes: Sizes) -> Callable[[Case, Sequence[Question]], list[float]]:
    """How far a bracket is ahead of the largest other one, as a share of the largest; BOS aside."""

    def scores(case: Case, questions: Sequence[Question]) -> list[float]:
        rows = list(dict.fromkeys(question.target[0] for question in questions))
        known: dict[Row, list[float]] = {}
        for length in {len(row) for row in rows}:
            alike = [row for row in rows if len(row) == length]
            found = sizes(case, alike, [predicted(case, row) for row in alike])
            known.update({row: list(each)[1:] for row, each in zip(alike, found, strict=True)})
        told = []
        for row, place in (question.target for question in questions):
            mine = known[row][place - 1]
            others = known[row][: place - 1] + known[row][place:]
            told.append((mine - max(others)) / max(max(known[row]), 1e-12))
        return told

    return scores


def singly(size: Callable[[Case, Row, int], Array]) -> Sizes:
    """One prefix at a time."""
    return lambda case, rows, answers: np.array(
        [size(case, row, answer) for row, answer in zip(rows, answers, strict=True)]
    )


def predicted(case: Case, row: Row) -> int:
    """The closing bracket with the largest logit."""
    logits = network(case.model).run(np.array([row])).logits[0, -1]
    return max(range(1, 2 * case.task.n_types, 2), key=lambda bracket: logits[bracket])


@singly
def weight(case: Case, row: Row, answer: int) -> Array:
    """Attention of the last position in the last layer, mean over heads."""
    heads = network(case.model).run(np.array([row])).pattern[-1]
    return sum(pattern[0, -1] for pattern in heads) / len(heads)


@singly
def rolled(case: Case, row: Row, answer: int) -> Array:
    """Shares of the last position, carried down from the last layer to the first."""
    share = np.zeros(len(row))
    share[-1] = 1
    for heads in reversed(network(case.model).run(np.array([row])).pattern):
        below = share / 2
        for query, has in enumerate(share):
            for pattern in heads:
                below = below + has * pattern[0, query] / (2 * len(heads))
        share = below
    return share


@singly
def values(case: Case, row: Row, answer: int) -> Array:
    """Norm of Σ_heads weight · (v W_O), in the last layer."""
    trace, w = network(case.model).run(np.array([row])), network(case.model).w
    out = w[f"blocks.{case.model.cfg.n_layers - 1}.attn.W_O"]
    found = []
    for place in range(len(row)):
        taken = np.zeros(case.model.cfg.d_model)
        for head, pattern in enumerate(trace.pattern[-1]):
            taken += pattern[0, -1, place] * (trace.v[-1][head][0, place] @ out[head])
        found.append(np.sqrt((taken**2).sum()))
    return np.array(found)


def _difference(case: Case, row: Row, answer: int, embed: Array) -> float:
    logits = network(case.model).run(np.array([row]), embed=embed).logits[:, -1]
    return float(differences(case.task.n_types, logits, np.array([answer]))[0])


def _scaled(case: Case, row: Row, place: int, factor: float) -> Array:
    embed = network(case.model).embed(np.array([row])).copy()
    embed[0, place] *= factor
    return embed


@singly
def erased(case: Case, row: Row, answer: int) -> Array:
    """Drop of the logit difference without a bracket's embedding."""
    before = _difference(case, row, answer, _scaled(case, row, 0, 1))
    return np.array(
        [
            before - _difference(case, row, answer, _scaled(case, row, place, 0))
            for place in range(len(row))
        ]
    )


def along(shares: Sequence[float]) -> Sizes:
    """Size of the mean derivative by a factor on a bracket, at shares of the way from none."""
    step = 1e-5

    @singly
    def size(case: Case, row: Row, answer: int) -> Array:
        embed = network(case.model).embed(np.array([row])).copy()[0]
        places = np.eye(len(row))[:, :, None]
        ends = [s * embed + side * step * places * embed for s in shares for side in (1, -1)]
        moved = np.concatenate(ends)
        logits = network(case.model).run(np.array([row] * len(moved)), embed=moved).logits[:, -1]
        told = differences(case.task.n_types, logits, np.full(len(moved), answer))
        up, down = told.reshape(len(shares), 2, len(row)).sum(0)
        return abs(up - down) / (2 * step * len(shares))

    return size
