"""What methods answer at all, and certificates against the facts; numbers: see `methods/`."""

from __future__ import annotations

from dataclasses import replace

from tl_dyck.judge import Question, make_case, methods


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
