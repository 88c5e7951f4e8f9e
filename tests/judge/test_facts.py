"""Facts against a second way of finding them: one prefix at a time, by hooks of our own."""

from __future__ import annotations

import copy
from functools import lru_cache
from typing import Any

import pytest
import torch
from torch import Tensor

from tl_dyck import certify_language, construct
from tl_dyck.judge import kinds, make_case
from tl_dyck.judge.constructed import CONSTRUCTED
from tl_dyck.judge.facts import Enumeration, answers_alike
from tl_dyck.judge.protocol import Case, Fact


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


def own_z(case: Case, layer: int, tokens: Tensor) -> Tensor:
    kept: list[Tensor] = []
    case.model.run_with_hooks(
        tokens, fwd_hooks=[(f"blocks.{layer}.attn.hook_z", lambda z, hook: kept.append(z))]
    )
    return kept[0]


def hook_for(case: Case, fact: Fact, tokens: Tensor) -> list[tuple[str, Any]]:
    layer, head = fact.question.target
    name = f"blocks.{layer}.attn.hook_"
    if fact.question.kind == "pattern":

        def flat(pattern: Tensor, hook: Any) -> Tensor:
            n = pattern.shape[-1]
            for query in range(n):
                pattern[:, head, query] = torch.tensor(
                    [1 / (query + 1)] * (query + 1) + [0.0] * (n - query - 1)
                )
            return pattern

        return [(name + "pattern", flat)]
    k = case.task.n_types
    other = torch.tensor(
        [[row[0], *((t // 2 + 1) % k * 2 + t % 2 for t in row[1:])] for row in tokens.tolist()]
    )
    instead = own_z(case, layer, other)[:, :, head] if fact.question.kind == "carries" else 0.0

    def put(z: Tensor, hook: Any) -> Tensor:
        z[:, :, head] = instead
        return z

    return [(name + "z", put)]


@lru_cache
def prefixes_of(case: Case) -> list[tuple[Tensor, Tensor]]:
    """Every prefix that leaves a bracket open, and that the model closes right, and with which.

    Length by length.

    Facts come from one pass over the longest strings; this is one for each length.
    """
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


@pytest.mark.parametrize("kind", kinds())
def test_heads_length_by_length(kind: str) -> None:
    case, facts = make_case(kind, 1)
    asked = [fact for fact in facts if fact.question.kind in ("needed", "carries", "pattern")]
    with torch.no_grad():
        prefixes = prefixes_of(case)
        for fact in asked[:: max(1, len(asked) // 4)]:
            broken = False
            for tokens, answers in prefixes:
                logits = case.model.run_with_hooks(tokens, fwd_hooks=hook_for(case, fact, tokens))
                broken = broken or not bool(all_right(logits, answers).all())
            assert broken == fact.answer, fact


def test_the_same_seed_gives_the_same_case() -> None:
    case, facts = make_case("balanced", 3)
    make_case.__globals__["_made"].cache_clear()
    again, same = make_case("balanced", 3)
    assert case is not again
    assert facts == same
    for name, weight in case.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name])


@pytest.mark.parametrize("kind", kinds())
def test_weights_length_by_length(kind: str) -> None:
    case, facts = make_case(kind, 1)
    asked = [fact for fact in facts if fact.question.kind == "weight"]
    with torch.no_grad():
        prefixes = prefixes_of(case)
        for fact in asked[:: max(1, len(asked) // 3)]:
            name, head = fact.question.target
            zeroed = copy.deepcopy(case.model)
            zeroed.get_parameter(name)[head] = 0
            broken = any(not all_right(zeroed(each), right).all() for each, right in prefixes)
            assert broken == fact.answer, fact


@pytest.mark.parametrize("kind", kinds())
def test_a_prediction_depends_on_the_top_of_the_stack_and_on_nothing_else(kind: str) -> None:
    # every model here is right on every prefix, so that the string alone gives the answer
    _, facts = make_case(kind, 1)
    asked = [fact for fact in facts if fact.question.kind == "token"]
    assert asked
    for fact in asked:
        tokens, place = fact.question.target
        stack: list[int] = []
        for index, token in enumerate(tokens[1:], start=1):
            if token % 2 == 0:
                stack.append(index)
            else:
                stack.pop()
        assert fact.answer == (place == stack[-1]), fact


@pytest.mark.parametrize("kind", [*CONSTRUCTED, "trained-uniform"])
def test_another_head_can_do_all(kind: str) -> None:
    """Where "adapted" is no: another head gets weights with which every prefix is right."""
    for seed in range(8):
        case, facts = make_case(kind, seed)
        asked = [fact for fact in facts if fact.question.kind == "adapted"]
        if len(asked) > 1:  # one of them can do what any other did
            assert not any(fact.answer for fact in asked)
        asked = [fact for fact in asked if not fact.answer]
        if asked:
            break
    layer, head = asked[0].question.target
    cfg = case.model.cfg
    other = next(
        (i, j) for i in range(cfg.n_layers) for j in range(cfg.n_heads) if (i, j) != (layer, head)
    )
    model = copy.deepcopy(case.model)
    small = construct.uniform_attention(case.task.language, n_ctx=cfg.n_ctx)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name != "pos_embed.W_pos":
                weight.zero_()
        mine, theirs = model.blocks[other[0]], small.blocks[0]
        for name in ("W_Q", "W_K", "W_V"):
            mine_, theirs_ = getattr(mine.attn, name)[other[1]], getattr(theirs.attn, name)[0]
            mine_[: theirs_.shape[0], : theirs_.shape[1]] = theirs_
        w = theirs.attn.W_O[0]
        mine.attn.W_O[other[1]][: w.shape[0], : w.shape[1]] = w
        for name in ("W_in", "W_out"):
            mine_, theirs_ = getattr(mine.mlp, name), getattr(theirs.mlp, name)
            mine_[: theirs_.shape[0], : theirs_.shape[1]] = theirs_
        mine.mlp.b_in[: len(theirs.mlp.b_in)] = theirs.mlp.b_in
        model.unembed.W_U[: small.cfg.d_model] = small.unembed.W_U
    assert Enumeration(model, case.task.language, case.length, case.task.distribution).accuracy == 1


def test_without_its_only_head_a_model_cannot_tell_two_prefixes_apart() -> None:
    alone = [
        (case, fact)
        for case, facts in (make_case("uniform", seed, n_heads=1) for seed in range(3))
        for fact in facts
        if fact.question.kind == "adapted"
    ]
    assert len(alone) == 3
    for case, fact in alone:
        assert fact.answer
        bos = case.task.language.bos_token
        # same last bracket and depth, another answer
        twins = [torch.tensor([[bos, t, 0, 1]]) for t in (0, 2)]
        weights = torch.Generator().manual_seed(0)
        with torch.no_grad():
            model = copy.deepcopy(case.model)
            for name, weight in model.named_parameters():
                weight.copy_(torch.randn(weight.shape, generator=weights, dtype=torch.float64))
                if name.endswith("W_O"):
                    weight.zero_()
            a, b = (model(tokens)[0, -1] for tokens in twins)
        assert torch.equal(a, b)
        assert right_answer(twins[0][0].tolist()) != right_answer(twins[1][0].tolist())


@pytest.mark.parametrize("kind", kinds())
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
    case, facts = make_case(kind, 0, n_heads=1, n_types=2, max_depth=2, reader="linear", drift=0.0)
    assert any(fact.question.kind == "stack" and fact.answer for fact in facts)
    assert certify_language(case.model, case.task, 30).status == "proved"
    wrong, facts = make_case(kind, 0, n_heads=1, n_types=2, max_depth=3, reader="linear", drift=0.1)
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
    _, facts = make_case("uniform", 0, n_heads=1, reader="linear", drift=1e-6)
    assert not [fact for fact in facts if fact.question.kind == "stack"]


@pytest.mark.parametrize("seed", [1, 2])
def test_twins_are_alike_or_not_length_by_length(seed: int) -> None:
    case, facts = make_case("twins", seed)
    fact = next(fact for fact in facts if fact.question.kind == "same")
    alike = True
    with torch.no_grad():
        for tokens, _ in prefixes_of(case):
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
