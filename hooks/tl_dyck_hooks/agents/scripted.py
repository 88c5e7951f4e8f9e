"""Agents that are scripts: what a judged method, chance or who knows all would answer.

They read the folder and nothing else, but for the one that knows all. So the way from a case to a
score gives them the numbers that the judge gives them.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import torch

from tl_dyck.judge import methods
from tl_dyck.judge.answers import checked_answers
from tl_dyck.judge.facts import refuting_string
from tl_dyck.judge.protocol import KINDS, Question
from tl_dyck_hooks.agents.folder import AgentCase, case_of_files


def by_method(name: str, files: Mapping[str, bytes]) -> dict[str, Any]:
    """The answers of a registered method about heads; it has none to the other questions.

    Args:
        name: of the method.
        files: of the folder.
    """
    method = methods.get(name)
    case, questions = case_of_files(files)
    told: dict[Question, float] = {}
    for kind in KINDS:  # a method is asked kind by kind
        asked = [each for each in questions if each.kind == kind]
        if asked:
            said = checked_answers(name, method(case, asked), len(asked))
            told |= {
                each: score
                for each, (score, _) in zip(asked, said, strict=True)
                if score is not None
            }
    # the arc tangent keeps the order of large scores, where a logistic function is 1 of many
    sure = {each: 0.5 + math.atan(score) / math.pi for each, score in told.items()}
    return {"heads": [sure.get(each) for each in questions]}


def knows_all(case: AgentCase) -> dict[str, Any]:
    """The right answers: to all but what is not known, a shortest prefix that is closed wrong."""
    found: dict[str, Any] = {"heads": [float(fact.answer) for fact in case.heads]}
    model, task = case.case.model, case.case.task
    if case.long is not None:
        found["long"] = {"yes": float(case.long.answer)}
        longest = case.long.question.target[0]
        wrong = refuting_string(model, task.language, longest)
        if wrong is not None:
            found["long"]["prefix"] = task.language.to_string(torch.tensor(wrong))
    if case.circuits is not None:
        found["circuit"] = [list(head) for head in case.smallest]
    return found


def answers_of(name: str, case: AgentCase) -> bytes:
    """The `answers.json` of a script: "oracle", or the name of a registered method."""
    found = knows_all(case) if name == "oracle" else by_method(name, case.files())
    return json.dumps(found).encode()
