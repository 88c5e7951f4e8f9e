"""Controls: one that knows nothing, one that knows all, and three cheats that run no model.

A cheat answers from what the question or the weights give away by how the cases are made. Where one
scores high, so may a method that has understood nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from tl_dyck.files import sha256
from tl_dyck.judge import Case, Question, make_case
from tl_dyck_hooks.methods.shared import HEADS, Scores, by_head


def chance(case: Case, questions: Sequence[Question]) -> list[float]:
    """A control: random numbers, which must score 0.5."""
    seed = int(sha256([case.name, questions[0].kind])[:8], 16)
    drawn = torch.randn(len(questions), generator=torch.Generator().manual_seed(seed))
    return [float(value) for value in drawn]


def oracle(case: Case, questions: Sequence[Question]) -> list[float]:
    """A control: the facts, made again from the case's seed, which must score 1."""
    _, facts = make_case(case.kind, case.seed)
    answers = {(fact.question.kind, fact.question.target): fact.answer for fact in facts}
    return [1.0 if answers[question.kind, question.target] else -1.0 for question in questions]


def parser(case: Case, questions: Sequence[Question]) -> Scores:
    """A cheat: the language's answer to "token", of the string alone. Yes for the open bracket.

    That is the one that a right closing bracket would match.
    """
    if questions[0].kind != "token":
        return None
    language = case.task.language
    scores: list[float | None] = []
    for tokens, place in (question.target for question in questions):
        string = torch.tensor([tokens])
        closed = torch.cat([string, language.right_bracket(string)[:, -1:]], 1)
        scores.append(1.0 if int(language.matching(closed)[0, -1]) == place else -1.0)
    return scores


def sizes(case: Case, questions: Sequence[Question]) -> Scores:
    """A cheat: the fewer heads a model has, the likelier each matters. Yes of an only head."""
    if questions[0].kind not in HEADS:
        return None
    n_heads = case.model.cfg.n_layers * case.model.cfg.n_heads
    return [1.5 - n_heads for _ in questions]


@torch.no_grad()
def ov_norm(case: Case, questions: Sequence[Question]) -> Scores:
    """A cheat: ‖W_V W_O‖ of a head, beside the model's largest. Yes above half."""
    if questions[0].kind not in HEADS:
        return None
    norms: Tensor = torch.stack(
        [(block.attn.W_V @ block.attn.W_O).flatten(1).norm(dim=1) for block in case.model.blocks]
    )
    return by_head(questions, norms / norms.max(), 0.5)
