"""Facts against a second way of finding them: one prefix at a time, by hooks of our own."""

from __future__ import annotations

import copy
from functools import lru_cache

import pytest
import torch
from torch import Tensor

from tl_dyck import certify_language
from tl_dyck.judge import list_kinds, make_case
from tl_dyck.judge.facts import answers_alike, rivals


def right_answer(tokens: list[int]) -> int | None:
    """The bracket that closes the top of the stack, by a stack; None if nothing is open."""
    stack: list[int] = []
    for token in tokens[1:]:
        if token % 2 == 0:
            stack.append(token)
        else:
            stack.pop()
    return stack[-1] + 1 if stack else None


def all_right(logits: Tensor, answers: Tensor) -> Tensor:
    """Of each string whether the right bracket is first after it, by more than rounding."""
    last, right = logits[:, -1], answers[:, None]
    others = last.scatter(1, right, -torch.inf).max(1).values
    return last.gather(1, right)[:, 0] > others + 1e-8


@lru_cache
def prefixes_of(kind: str, seed: int) -> list[tuple[Tensor, Tensor]]:
    """Every prefix that leaves a bracket open, and that the model closes right, and with which.

    Length by length.

    Facts come from one pass over the longest strings; this is one for each length.
    """
    case, _ = make_case(kind, seed)
    language = case.task.language
    found = []
    for length in range(1, case.length + 1):
        rows = [[language.bos_token, *row] for row in language.enumerate(length, "prefix").tolist()]
        known = [(row, answer) for row in rows if (answer := right_answer(row)) is not None]
        tokens, answers = (torch.tensor(part) for part in zip(*known, strict=True))
        with torch.no_grad():
            good = all_right(case.model(tokens), answers)
        assert good.double().mean() > 0.99
        found.append((tokens[good], answers[good]))
    return found


def test_the_same_seed_gives_the_same_case() -> None:
    case, facts = make_case("balanced", 3)
    sealed = make_case.__globals__["_made"].__wrapped__(
        "balanced", 3, ()
    )  # not the one that is kept
    again, same = sealed.copy(), sealed.facts
    assert case is not again
    assert facts == same
    for name, weight in case.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name])


def test_what_is_asked_of_brackets_is_not_what_the_string_says() -> None:
    """By a stack: none is the top; without any of them a count of open brackets is wrong."""
    case, facts = make_case("balanced", 1)
    asked = [fact.question.target for fact in facts if fact.question.kind == "token"]
    assert asked
    for tokens, place in asked:
        stack: list[int] = []
        levels = [0]
        for index, token in enumerate(tokens[1:], start=1):
            levels.append(len(stack) + (token % 2 == 0))
            if token % 2 == 0:
                stack.append(index)
            else:
                stack.pop()
        top = stack[-1]
        assert place != top
        assert levels[place] == levels[top]
        count = dict.fromkeys(range(case.task.n_types), 0)
        for index, token in enumerate(tokens[1:], start=1):
            if levels[index] == levels[top] and index != place:
                count[token // 2] += 1 if token % 2 == 0 else -1
        mine = count.pop(tokens[top] // 2)
        assert mine <= max(count.values())
    rows = torch.tensor([tokens for tokens, _ in asked])
    found = {
        (tuple(rows[i].tolist()), j) for i, j in rivals(case.task.language, rows).nonzero().tolist()
    }
    assert found == set(asked)


@pytest.mark.parametrize("kind", list_kinds())
def test_what_is_said_of_long_strings(kind: str) -> None:
    """Yes: right on drawn strings and on hostile ones. No: wrong on the string that proves it."""
    for seed in (0, 1):
        case, facts = make_case(kind, seed)
        language = case.task.language
        for fact in (fact for fact in facts if fact.question.kind == "stack"):
            (longest,) = fact.question.target
            if fact.answer:
                tokens = case.task.distribution.sample(
                    10, longest, mode="prefix", generator=torch.Generator().manual_seed(seed)
                )
                tokens = torch.cat([torch.full((10, 1), language.bos_token), tokens], 1)
            else:
                text = fact.proof.removeprefix("wrong after ")
                brackets = language.tokenize(text)
                tokens = torch.tensor([[language.bos_token, *brackets.tolist()]])
                assert len(brackets) <= longest
            with torch.no_grad():
                logits = case.model(tokens)
            wrong = 0
            for row, row_logits in zip(tokens, logits, strict=True):
                places = range(1, len(row)) if fact.answer else [len(row) - 1]
                for end in places:
                    answer = right_answer(row[: end + 1].tolist())
                    if answer is not None:
                        wrong += int(row_logits[end].argmax()) != answer
            assert (wrong == 0) == fact.answer, fact


@pytest.mark.parametrize("kind", ["uniform", "balanced"])
def test_right_at_any_length_is_certified_where_it_can_be(kind: str) -> None:
    alone = {"n_heads": 1, "n_layers": 1, "n_types": 2, "reader": "linear"}
    case, facts = make_case(kind, 0, **alone, max_depth=2, drift=0.0)
    assert any(fact.question.kind == "stack" and fact.answer for fact in facts)
    assert certify_language(case.model, case.task, 30).status == "proved"
    wrong, facts = make_case(kind, 0, **alone, max_depth=3, drift=0.1)
    assert any(fact.question.kind == "stack" and not fact.answer for fact in facts)
    assert certify_language(wrong.model, wrong.task, 100, until="refuted").status == "refuted"


def test_models_that_differ_on_some_prefixes_are_not_alike() -> None:
    case, _ = make_case("uniform", 0)
    other = copy.deepcopy(case.model)
    with torch.no_grad():
        other.unembed.b_U[1] += 1000.0  # always closes with the first type, sometimes rightly
    assert not answers_alike(case.model, other, case.task.language, case.length)
    assert answers_alike(case.model, case.model, case.task.language, case.length)


def test_nothing_is_said_of_what_is_neither_proved_nor_refuted() -> None:
    _, facts = make_case("uniform", 0, n_heads=1, n_layers=1, reader="linear", drift=1e-6)
    assert not [fact for fact in facts if fact.question.kind == "stack"]


@pytest.mark.parametrize("seed", [1, 2])
def test_twins_are_alike_or_not_length_by_length(seed: int) -> None:
    case, facts = make_case("twins", seed)
    fact = next(fact for fact in facts if fact.question.kind == "same")
    alike = True
    with torch.no_grad():
        for tokens, _ in prefixes_of("twins", seed):
            a, b = (model(tokens)[:, -1, 1:4:2].argmax(-1) for model in (case.model, case.other))
            alike = alike and bool((a == b).all())
    assert alike == fact.answer
    shared = [
        name
        for name, weight in case.model.named_parameters()
        if "blocks.1.attn" in name and weight.abs().sum() > 0
    ]
    assert len(shared) == 1  # stands there, and nothing is read from it
    assert torch.equal(case.model.get_parameter(shared[0]), case.other.get_parameter(shared[0]))
