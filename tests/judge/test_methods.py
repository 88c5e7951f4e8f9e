"""What methods answer at all, and certificates against the facts; numbers: see `methods/`."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.judge.methods.table import OWN
from tl_dyck.judge import Question, make_case, methods


@pytest.mark.parametrize("name", sorted(OWN - {"gates", "leave-one-out"}))
def test_methods_answer_with_a_number_for_each_question_or_not_at_all(name: str) -> None:
    for kind in ("backup", "trained"):
        case, facts = make_case(kind, 1)
        before = {key: value.clone() for key, value in case.model.state_dict().items()}
        answered = 0
        for asked in {fact.question.kind for fact in facts}:
            questions = [fact.question for fact in facts if fact.question.kind == asked]
            scores = methods.get(name)(case, questions)
            assert scores is None or len(scores) == len(questions)
            answered += sum(score is not None for score in scores or ())
            assert all(np.isfinite(score) for score in scores or () if score is not None)
        for key, value in case.model.state_dict().items():
            assert torch.equal(value, before[key]), "a method changed the model"


def test_certificates_do_not_err() -> None:
    answered = 0
    for kind in ("uniform", "alone", "trained"):
        for seed in range(2):
            case, facts = make_case(kind, seed)
            for fact in facts:
                if fact.question.kind in ("stack", "same"):
                    (score,) = methods.get("certificate")(case, [fact.question]) or [None]
                    if score is not None:
                        answered += 1
                        assert (score > 0) == fact.answer, (kind, seed)
    assert answered


def test_slow_methods_answer_every_tenth_case() -> None:
    case, _ = make_case("uniform", 0, n_heads=2, n_layers=1)
    questions = [Question("needed", (0, 0))]
    for name, answers in (("a", True), ("b", False)):  # ten, and eleven
        found = methods.get("leave-one-out")(replace(case, name=name), questions)
        assert (found is not None) == answers
