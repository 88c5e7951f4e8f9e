"""Facts against a second way of finding them; those that are enumerated are in `test_recount`."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest
import torch
from scipy.stats import binomtest

from tests.judge.conftest import SHIPPED, Facts
from tests.judge.methods.cases import judged, network
from tests.judge.methods.network import right_brackets
from tests.judge.test_recount import Recount
from tl_dyck import certify_language
from tl_dyck.ablation.replay import Replay
from tl_dyck.judge import cases, make_case
from tl_dyck.judge.facts import answers_alike, rivals
from tl_dyck_hooks.cases import built, pose

#: Of which nothing is asked but of whole models.
AT_LENGTH = ("stack", "same")


def test_the_same_seed_gives_the_same_case() -> None:
    case, facts = make_case("balanced", 3)
    sealed = cases._make_once.__wrapped__(
        built.BUILT, "balanced", 3, ()
    )  # not the one that is kept
    again, same = sealed.copy(), sealed.facts
    assert case is not again
    assert facts == same
    for name, weight in case.model.state_dict().items():
        assert torch.equal(weight, again.model.state_dict()[name])


@pytest.mark.bits
@pytest.mark.parametrize("name", ["deep", "twins"])
def test_a_head_that_is_replaced_where_it_stands_gives_the_bits_of_a_whole_pass(name: str) -> None:
    """Behind its layer's norm and in front of later layers; and nothing of it is left behind."""
    case, _ = judged(name)
    replay, other = Replay(case.model, case.tokens), Replay(case.model, case.partners)
    assert case.model.cfg.n_layers > 1
    for layer in range(case.model.cfg.n_layers):
        change = replay.change(layer, [0], other.z[layer][:, :, [0]])
        attn = case.model.blocks[layer].attn
        handle = attn.register_forward_hook(lambda module, given, out, by=change[0]: out + by)
        with torch.no_grad():
            whole = case.model(case.tokens)
        handle.remove()
        assert torch.equal(replay.run(layer, change)[0], whole)
    assert torch.equal(case.model(case.tokens), replay.logits)


def test_what_is_asked_of_brackets_is_not_what_the_string_says() -> None:
    """By a stack: none is the top; without any of them a count of open brackets is wrong."""
    case, facts = make_case("balanced", 1)
    asked = [fact.question.target for fact in facts if fact.question.kind == "token"]
    assert asked
    rows = torch.tensor([tokens for tokens, _ in asked])
    assert len(rows.unique(dim=0)) == len(rows)  # one of each prefix
    found = {
        (tuple(rows[i].tolist()), j) for i, j in rivals(case.task.language, rows).nonzero().tolist()
    }
    assert found > {*asked}
    for tokens, place in found:
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


@pytest.mark.parametrize(
    ("kind", "seed", "given"),
    [
        *[("uniform", 3, {}), ("balanced", 8, {}), ("backup", 9, {}), ("alone", 0, {})],
        *[("alone", 5, {}), ("alone", 6, {}), ("stack", 0, {"drift": 0.0, "reader": "linear"})],
        ("trained", SHIPPED, {}),
        pytest.param("trained", 1, {}, marks=pytest.mark.slow),
    ],
)
def test_what_is_said_of_long_strings(kind: str, seed: int, given: dict[str, Any]) -> None:
    """Yes: right on drawn strings and on hostile ones. No: wrong on the string that proves it."""
    case, facts = make_case(kind, seed, **given)
    language = case.task.language
    said_of_long = [fact for fact in facts if fact.question.kind == "stack"]
    assert said_of_long
    for fact in said_of_long:
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
            said = case.model(tokens).argmax(-1).numpy()
        right = right_brackets(tokens.numpy())
        if not fact.answer:
            right[:, :-1] = -1
        wrong = (said != right)[right >= 0].sum()
        assert (wrong == 0) == fact.answer, fact


def test_at_length_nothing_tells_but_what_is_left_over(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who is asked about has a twin that differs in that alone, of which the other is true."""
    nothing = pose.Kind(lambda world, _: [], lambda facts, _: [])  # of heads and brackets
    monkeypatch.setattr(built, "about_heads", lambda mirror: nothing)
    monkeypatch.setattr(built, "TOKENS", nothing)
    asked: set[str | bool] = set()
    for kind, seed in itertools.product(("uniform", "balanced", "backup"), range(10)):
        _, facts = built.construct_case(kind, seed, {})
        assert len(facts) <= 1  # of both, either would say something of the other
        for fact in facts:
            if fact.question.kind == "stack":
                drift = 0.03 if fact.answer else 0.0
                _, twins = built.construct_case(kind, seed, {"drift": drift})
                (twin,) = (each for each in twins if each.question.kind == "stack")
                assert twin.answer != fact.answer
            asked |= {kind, fact.question.kind, fact.answer}
    assert asked == {"uniform", "balanced", "backup", *AT_LENGTH, False, True}


def test_at_length_a_yes_of_the_public_suite_is_as_likely_as_a_no(shipped_facts: Facts) -> None:
    for question in AT_LENGTH:
        answers = [
            fact.answer
            for (kind, _), facts in shipped_facts.items()
            if kind in built.CONSTRUCTED
            for fact in facts
            if fact.question.kind == question
        ]
        assert len(answers) > 60
        assert binomtest(sum(answers), len(answers)).pvalue > 0.05


@pytest.mark.parametrize("kind", ["uniform", "alone"])
def test_how_many_of_those_that_may_drift_do_not(kind: str) -> None:
    """By which "stack" and "same" are thinned until a yes is as likely as a no."""
    generator = torch.Generator().manual_seed(0)
    knobs = [built.draw_knobs({}, generator, kind) for _ in range(4000)]
    drifts = [each.drift > 0 for each in knobs if each.may_drift]
    # a standard error of 0.01
    assert built.exact_share(kind) == pytest.approx(1 - sum(drifts) / len(drifts), abs=0.03)


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
def test_twins_are_alike_or_not(seed: int) -> None:
    case, facts = make_case("twins", seed)
    fact = next(fact for fact in facts if fact.question.kind == "same")
    recount = Recount(case)
    asked = recount.intact & (recount.right >= 0)
    assert recount.intact.mean() > 0.99
    a, b = (
        network(model).run(recount.rows).logits[..., 1:4:2].argmax(-1)
        for model in (case.model, case.other)
    )
    assert bool((a == b)[asked].all()) == fact.answer
    shared = [
        name
        for name, weight in case.model.named_parameters()
        if "blocks.1.attn" in name and weight.abs().sum() > 0
    ]
    assert len(shared) == 1  # stands there, and nothing is read from it
    assert torch.equal(case.model.get_parameter(shared[0]), case.other.get_parameter(shared[0]))
