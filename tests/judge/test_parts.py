"""Questions about parts: answers found again, by stacks and in numpy, and nothing given away."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pandas as pd
import pytest
import torch

from tests.judge.methods.cases import TWO_LAYERS
from tests.judge.methods.network import Network, right_brackets, stacks, strings
from tl_dyck.judge import Fact, Question, list_kinds, make_case
from tl_dyck.judge.cheats import norms_along
from tl_dyck.judge.edges import Edge
from tl_dyck.judge.facts import Enumeration, depth_facts
from tl_dyck.judge.suites import SUITES
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck_hooks.cases.built import KNOBS
from tl_dyck_hooks.cases.parts import FEATURES, LEVELS, PARTS, is_feature
from tl_dyck_hooks.cases.pose import even_out


def elsewhere(depth: int, most: int) -> int:
    """The depth that is said in place of one."""
    return depth if depth in (0, most) else 1 if depth == most - 1 else depth + 1


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_depth_is_counted_again(seed: int) -> None:
    case, asked = make_case("levels", seed)
    network, (k, most) = Network(case.model), (case.task.n_types, case.task.max_depth)
    rows = strings(k, most, case.length)
    right = right_brackets(rows)
    depths = [[elsewhere(len(stack), most) for stack in stacks(row)] for row in rows.tolist()]
    other = network.run(rows, embed=network.table[rows, np.array(depths)]).z[0]

    def ahead(logits: np.ndarray) -> np.ndarray:
        mine = np.take_along_axis(logits, np.maximum(right, 0)[..., None], -1)[..., 0]
        np.put_along_axis(logits, np.maximum(right, 0)[..., None], -np.inf, -1)
        return np.where(right < 0, np.inf, mine - logits.max(-1))

    intact = ahead(network.run(rows).logits) > 1e-9
    world = Enumeration(case.model, case.task.language, case.length, case.task.distribution)
    facts = {fact.question.target: fact.answer for fact in depth_facts(world)}
    assert len(facts) == k
    for (layer, head), answer in facts.items():
        put = other[head]
        after = network.run(rows, z=lambda i, j, z, at=head, put=put: put if j == at else z)
        assert answer == bool((intact & (ahead(after.logits) <= 1e-9)).any()), (layer, head)
    # each head hands on its depth to one reader of two: one head of two to what closes, or of three
    assert sum(facts.values()) in {k // 2, (k + 1) // 2}
    assert all(facts[fact.question.target] == fact.answer for fact in asked)


def test_attention_does_not_tell_who_hands_on_depth() -> None:
    """Singular values of what a head writes, and of what units read of it, are those of all."""
    first = set()
    for seed in range(6):
        case, facts = make_case("levels", seed)
        (block,) = case.model.blocks
        for of in (lambda w: w, lambda w, read=block.mlp.W_in: w @ read):
            spectra = [np.linalg.svd(of(w).detach().numpy())[1] for w in block.attn.W_O]
            shapes = [(spectrum / spectrum[0])[: case.task.max_depth + 1] for spectrum in spectra]
            np.testing.assert_allclose(shapes, [shapes[0]] * len(shapes), atol=1e-9)
        head = next(fact.question.target[1] for fact in facts if fact.answer)
        moved = np.linalg.norm((block.attn.W_O[head] @ block.mlp.W_in).detach(), axis=0)
        half = len(moved) // 2
        first.add(bool(moved[:half].sum() > moved[half:].sum()))
    assert first == {True, False}  # units of what closes brackets are not always the first


def test_norms_do_not_tell_features() -> None:
    """Along features norms are as far spread as along directions that are none; answers stay."""
    found = []
    for seed in range(4):
        case, facts = make_case("features", seed)
        answers = {" ".join(map(str, fact.question.target)): fact.answer for fact in facts}
        table = norms_along(case, facts)
        found.append(table.assign(answer=table["target"].map(answers)))
        rows = strings(case.task.n_types, case.task.max_depth, case.length)
        right = right_brackets(rows)
        logits = Network(case.model).run(rows).logits
        assert (logits.argmax(-1) == right)[right >= 0].all()
    spread = pd.concat(found).groupby("answer")[[f"norm_{at}" for at in range(12)]].std()
    ratio = (spread.loc[True] / spread.loc[False]).drop("norm_3")  # b_V is zero
    assert ((ratio > 0.5) & (ratio < 2)).all(), ratio


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_features_are_found_again_by_stacks(seed: int) -> None:
    case, facts = make_case("features", seed)
    rows = strings(case.task.n_types, case.task.max_depth, case.length)
    z = Network(case.model).run(rows).z[0]
    held = [
        [{(row[at] // 2, depth) for depth, at in enumerate(stack)} for stack in stacks(row)]
        for row in rows.tolist()
    ]
    slots = set().union(*(each for row in held for each in row))
    there = {slot: np.array([[slot in each for each in row] for row in held]) for slot in slots}
    assert case.directions is not None
    for fact in facts:
        _, head, at = fact.question.target
        part = z[head] @ case.directions[at].numpy()
        found = any(
            (part[where] > 1e-9).all() and (abs(part[~where]) <= 1e-9).all()
            for where in there.values()
        )
        assert found == fact.answer
        assert np.linalg.norm(case.directions[at]) == pytest.approx(1)
    assert Counter(fact.answer for fact in facts)[True] * 2 == len(facts) > 4


def test_what_is_a_feature() -> None:
    held = torch.tensor([[[True, False, True]], [[False, True, True]]])
    for part, answer in (
        ([2.0, 0.0, 1.0], True), ([0.0, 3.0, 1e-3], True), ([2.0, 1e-3, 1.0], False),
        ([2.0, -1.0, 1.0], False), ([0.0, 0.0, 1.0], False), ([-2.0, 0.0, -1.0], False),
    ):  # fmt: skip
        assert is_feature(torch.tensor([part]), held) == answer


@torch.no_grad()
def test_weights_let_the_first_layer_through_later_heads_alone() -> None:
    """And those of a group to its own; norms of all the stream aside."""
    for kind in ("post-norm", "pre-norm"):
        case, _ = make_case(kind, 5, **TWO_LAYERS)
        first, second = case.model.blocks
        written = first.attn.W_O.flatten(0, 1)
        for reader in (second.mlp.W_in, first.mlp.W_in, case.model.unembed.W_U):
            assert not (written @ reader).any()
        let_through = [
            [bool((first.attn.W_O[i] @ second.attn.W_V[j]).any()) for j in range(2)]
            for i in range(2)
        ]
        assert let_through == [[True, False], [False, True]]
        states = case.model.cfg.d_model // 3
        assert not second.attn.W_V[:, :states].any()


def test_as_many_yes_as_no_of_each_kind() -> None:
    for kind in PARTS:
        knobs = TWO_LAYERS if kind.endswith("-norm") else {}
        case, facts = make_case(kind, 5, **knobs)
        groups = Counter(
            (Edge(*fact.question.target).kind, fact.answer)
            if fact.question.kind == "edge"
            else (fact.question.kind, fact.answer)
            for fact in facts
        )
        assert groups
        assert all(groups[group, not answer] == n for (group, answer), n in groups.items())
        assert len({fact.question for fact in facts}) == len(facts)
        assert (case.directions is None) == (kind != "features")


def test_which_are_chosen_is_drawn() -> None:
    facts = [Fact(Question("edge", (at,)), at > 1, "") for at in range(20)]
    chosen = set()
    for seed in range(200):
        generator = torch.Generator().manual_seed(seed)
        found = even_out(facts, generator, lambda fact: fact.question.kind)
        assert sorted(fact.answer for fact in found) == [False, False, True, True]
        chosen |= {fact.question.target[0] for fact in found}
    assert chosen == {*range(20)}  # no place says how likely an answer is
    assert even_out(facts[2:], torch.Generator(), lambda fact: "all") == []


def test_parts_are_asked_of_models_of_their_own() -> None:
    assert {*SUITES["edges"].sizes, *SUITES["parts"].sizes} == {*PARTS}
    assert not {*SUITES["quick"].sizes} & {*PARTS}


@pytest.mark.parametrize("kind", list_kinds())
def test_a_knob_that_a_kind_does_not_have_is_refused_before_anything_is_made(kind: str) -> None:
    wrong = "block" if kind == "twins" else "shared"
    with pytest.raises(UnknownNameError, match=f"unknown knob of {kind} '{wrong}'"):
        make_case(kind, 0, **{wrong: 2})


def test_what_makes_a_case_of_features_is_not_given() -> None:
    assert {*KNOBS} - {*FEATURES.knobs} == {"drift", "n_layers", "reader"}
    assert LEVELS.knobs == ()
