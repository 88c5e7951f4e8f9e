"""Controls: one that knows nothing, and five cheats that run no model.

A cheat answers from what the question or the weights give away by how the cases are made. Where one
scores high, so may a method that has understood nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from tl_dyck.judge import (
    ABOUT_HEADS,
    KINDS,
    Case,
    Question,
    Scores,
    declare_method,
    score_edges,
    score_heads,
)
from tl_dyck.judge.edges import Edges, reading
from tl_dyck.kit.files import sha256


@declare_method(*KINDS, yes="at random")
def chance(case: Case, questions: Sequence[Question]) -> list[float]:
    """A control: random numbers, which must score 0.5."""
    seed = int(sha256([case.name, questions[0].kind])[:8], 16)
    drawn = torch.randn(len(questions), generator=torch.Generator().manual_seed(seed))
    return [float(value) for value in drawn]


@declare_method(*KINDS, yes="in the first half")
def order(case: Case, questions: Sequence[Question]) -> list[float]:
    """A cheat: the place of the question in the list, earlier ones first."""
    return [0.5 * (len(questions) - 1) - place for place in range(len(questions))]


@declare_method("token", yes="for the open bracket")
def parser(case: Case, questions: Sequence[Question]) -> Scores:
    """A cheat: the language's answer to "token", of the string alone.

    The open bracket is the one that a right closing bracket would match.
    """
    language = case.task.language
    scores: list[float | None] = []
    for tokens, place in (question.target for question in questions):
        string = torch.tensor([tokens])
        closed = torch.cat([string, language.right_bracket(string)[:, -1:]], 1)
        scores.append(1.0 if int(language.matching(closed)[0, -1]) == place else -1.0)
    return scores


@declare_method(*ABOUT_HEADS, yes="of an only head")
def sizes(case: Case, questions: Sequence[Question]) -> Scores:
    """A cheat: the fewer heads a model has, the likelier each matters."""
    n_heads = case.model.cfg.n_layers * case.model.cfg.n_heads
    return [1.5 - n_heads] * len(questions)


@score_heads(above=0.5, unit="of the largest")
@torch.no_grad()
def ov_norm(case: Case) -> Tensor:
    """A cheat: ‖W_V W_O‖ of a head, beside the model's largest."""
    norms: Tensor = torch.stack(
        [(block.attn.W_V @ block.attn.W_O).flatten(1).norm(dim=1) for block in case.model.blocks]
    )
    return norms / norms.max()


@score_edges(above=0.5, unit="of the largest")
@torch.no_grad()
def edge_norm(case: Case) -> dict[tuple[Any, Any], float]:
    """A cheat: ‖W_V W_O W‖ of a head and its reader's weights, beside the model's largest."""
    model = case.model
    edges = Edges(model, case.tokens[:1], case.tokens[:1]).edges
    found = {}
    for edge in edges:
        moved = reading(model, edge)
        if edge.source is not None:
            attn = model.blocks[edge.source[0]].attn
            moved = attn.W_V[edge.source[1]] @ attn.W_O[edge.source[1]] @ moved
        found[edge.source, edge.reader] = float(moved.norm())
    largest = max(found.values())
    return {target: norm / largest for target, norm in found.items()}
