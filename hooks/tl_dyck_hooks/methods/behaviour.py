"""Methods that look at what models do on samples, and certificates, which look at all strings."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tl_dyck.certify.deadline import by_work
from tl_dyck.certify.language import certify_language
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.judge import Case, Question, Scores, declare_method
from tl_dyck.probes.balance import balance_violation
from tl_dyck.probes.drift import pair_drift
from tl_dyck.rnn import UnsupportedModelError

_SECONDS = 2.0


@declare_method("stack", "same", yes="if there is no error")
def test_set(case: Case, questions: Sequence[Question]) -> Scores:
    """Accuracy, or agreement of two models, on 1,000 strings of the lengths of training.

    The usual report.
    """
    share = _wrong(case, questions[0].kind, case.length, 1000)
    return [_score(share)] * len(questions)


@declare_method("stack", "same", yes="if there is no error", paper="Wen et al. 2023, Section 4.2")
def length_test(case: Case, questions: Sequence[Question]) -> Scores:
    """The same on 100 strings as long as is asked about."""
    lengths = [question.target[0] for question in questions]
    shares = {n: _wrong(case, questions[0].kind, n, 100) for n in dict.fromkeys(lengths)}
    return [_score(shares[n]) for n in lengths]


@declare_method("stack", yes="below 0.01", paper="Wen et al. 2023, Eq. 15, Theorem 2")
def balance(case: Case, questions: Sequence[Question]) -> Scores:
    """Balance violation β of the weights: a model that keeps a stack has none.

    Asked of models with one layer and one head without positions.
    """
    try:
        value = float(balance_violation(case.model))
    except (ValueError, TypeError):
        return None
    return [0.01 - value] * len(questions)


@declare_method("stack", yes="above 0.99")
def drift(case: Case, questions: Sequence[Question]) -> Scores:
    """Accuracy at the length asked about, as the drift of matched pairs predicts it.

    `tl_dyck.pair_drift`. Asked where β is.
    """
    try:
        found = pair_drift(case.model, case.task.distribution)
    except (ValueError, TypeError):
        return None
    return [float(found.accuracy(question.target[0])) - 0.99 for question in questions]


@declare_method("stack", "same", yes="if proved")
def certificate(case: Case, questions: Sequence[Question]) -> Scores:
    """Proof or refutation, on every prefix up to the length asked about; 2 s of work a model.

    `tl_dyck.certify_language`, the claim "any_token", of models of one layer without positions. Two
    models are the same if both are right, and not if one is wrong. Where neither is reached in time
    it says nothing.
    """
    models = [case.model] if questions[0].kind == "stack" else [case.model, case.other]
    if any(model.cfg.n_layers > 1 or model.cfg.position != "none" for model in models):
        return None
    scores: list[float | None] = []
    for question in questions:
        right = [_is_right(model, case, question.target[0]) for model in models]
        if None in right or not any(right):
            scores.append(-1.0 if right == [False] else None)
        else:
            scores.append(1.0 if all(right) else -1.0)
    return scores


@by_work()
def _is_right(model: Any, case: Case, length: int) -> bool | None:
    try:
        found = certify_language(model, case.task, length, until="refuted", time_limit=_SECONDS)
    except (CertifyError, UnsupportedModelError):
        return None
    return {"proved": True, "refuted": False}.get(found.status)


def _wrong(case: Case, kind: str, length: int, n: int) -> float:
    """Share of closing brackets that are wrong, or that the two models predict differently."""
    language, generator = case.task.language, torch.Generator().manual_seed(0)
    tokens = case.task.distribution.sample(n, length, mode="prefix", generator=generator)
    tokens = torch.cat([torch.full((n, 1), language.bos_token), tokens], 1)
    right = language.right_bracket(tokens)
    expected = right if kind == "stack" else _answers(case.other, tokens)
    wrong = (_answers(case.model, tokens) != expected) & (right >= 0)
    return float(wrong.sum() / (right >= 0).sum())


def _score(share: float) -> float:
    return -share if share > 0 else 1e-9


def _answers(model: Any, tokens: Tensor) -> Tensor:
    with torch.no_grad():
        found: Tensor = torch.cat([model(rows).argmax(-1) for rows in tokens.split(100)])
    return found
