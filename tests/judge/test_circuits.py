"""Circuits, held to a recount of all strings in numpy, to every order and to every subset."""

from __future__ import annotations

import itertools
from collections.abc import Collection
from dataclasses import replace

import numpy as np
import pytest
import torch

from tests.judge.conftest import FOUR_HEADS
from tests.judge.test_recount import Recount, margins
from tl_dyck.judge import make_case
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.circuits import Circuits
from tl_dyck.judge.facts import Enumeration, head_facts

SMALL = {"n_types": 3, "max_depth": 2}


def by_hand(
    recount: Recount, weight: np.ndarray, circuit: Collection[tuple[int, int]], zeros: bool = False
) -> tuple[np.ndarray, float, bool]:
    """Of each string the sum of logit differences, the share that is right, whether none is lost.

    Heads outside the circuit put out nothing, or what they do on strings of the next type.
    """

    def put(layer: int, head: int, z: np.ndarray) -> np.ndarray:
        outside = 0 * z if zeros else recount.other[layer][head]
        return z if (layer, head) in circuit else outside

    logits, asked = recount.network.run(recount.rows, z=put).logits, recount.right >= 0
    mine, other = (
        np.take_along_axis(logits, np.maximum(each, 0)[..., None], -1)[..., 0]
        for each in (recount.right, (recount.right + 2) % (2 * recount.k))
    )
    right = margins(logits, recount.right) > 1e-9
    kept = (weight * (right & asked).sum(1)).sum() / (weight * asked.sum(1)).sum()
    return ((mine - other) * asked).sum(1), kept, not (recount.intact & ~right).any()


@pytest.mark.parametrize(("layers", "zeros"), [(1, False), (2, False), (2, True)])
def test_what_a_circuit_does_is_as_counted_by_hand(layers: int, zeros: bool) -> None:
    made, _ = make_case("balanced", 3, n_layers=layers, n_heads=2, true_share=0.99, **SMALL)
    case = replace(made, length=5, tokens=made.tokens[:20, :6])
    circuits, recount = Circuits(case, zeros=zeros), Recount(case)
    assert len(circuits.heads) == 2 * layers
    closings = (recount.right >= 0).sum(1)
    weight = case.task.distribution.log_prob(torch.tensor(recount.rows), mode="prefix").exp()
    weight = weight.numpy()
    places = {tuple(row): place for place, row in enumerate(recount.rows.tolist())}
    seen = [places[tuple(row)] for row in case.tokens.tolist()]

    def m(sums: np.ndarray) -> tuple[float, float]:
        every = (weight * sums).sum() / (weight * closings).sum()
        return sums[seen].sum() / closings[seen].sum(), every

    low, high = (m(by_hand(recount, weight, each, zeros)[0]) for each in ((), circuits.heads))
    some = [circuits.heads[-1:], circuits.heads[:1], circuits.heads[1:]]
    differ = set()
    for circuit in some:
        sums, kept, sound = by_hand(recount, weight, circuit, zeros)
        found = circuits.outcome(circuit)
        expected = [(a - b) / (c - b) for a, b, c in zip(m(sums), low, high, strict=True)]
        assert found.faithfulness == pytest.approx(expected[0], abs=1e-9)
        assert found.exact_faithfulness == pytest.approx(expected[1], abs=1e-9)
        assert found.kept == pytest.approx(kept, abs=1e-9)
        assert found.sound == sound
        differ.add(round(expected[0], 6))
    assert len(differ) > 1, "nothing to tell apart"


@pytest.mark.parametrize(
    ("kind", "seed"), [("balanced", 3), ("trained", FOUR_HEADS), ("backup", 0)]
)
def test_the_heads_that_carry_are_those_that_were_enumerated(kind: str, seed: int) -> None:
    case = sealed_case(kind, seed).copy()
    world = Enumeration(case.model, case.task.language, case.length, case.task.distribution)
    every = head_facts(world)
    for asked, zeros in (("carries", False), ("needed", True)):
        facts = [fact for fact in every if fact.question.kind == asked]
        found = Circuits(case, zeros=zeros).carry()
        assert len(found) == len(facts) > 1
        for fact in facts:
            assert (found[fact.question.target] != 0) == fact.answer
            assert found[fact.question.target] == pytest.approx(fact.effect, abs=1e-12)


def test_areas_over_every_order_and_every_subset() -> None:
    case, _ = make_case("trained", FOUR_HEADS)
    before = case.model(case.tokens)
    circuits = Circuits(case)
    heads, carries = circuits.heads, circuits.carry()
    assert 0 < sum(map(bool, carries.values())) < len(heads) == 4
    areas = {}
    for order in itertools.permutations(heads):
        nested = circuits.nested(order)
        assert [len(circuit) for circuit in nested] == [0, 1, 2, 3, 4]
        found = areas[order] = circuits.areas(nested)
        f = [circuits.outcome(circuit).faithfulness for circuit in nested]
        assert found.cpr == pytest.approx(sum(f[1:4]) / 4 + 1 / 8)  # f of none is 0, of all 1
        assert found.cmd == pytest.approx(sum(abs(1 - x) for x in f[1:4]) / 4 + 1 / 8)
        pairs = [
            (order.index(a) < order.index(b))
            for a, b in itertools.product(heads, heads)
            if carries[a] and not carries[b]
        ]
        assert found.found == pytest.approx(np.mean(pairs))
        whole = [circuits.outcome(circuit).sound for circuit in nested]
        assert found.sound == pytest.approx(np.mean(whole))
    # over all orders each subset of a size is as likely
    means = [
        np.mean([circuits.outcome(some).kept for some in itertools.combinations(heads, size)])
        for size in range(5)
    ]
    expected = sum(means[1:4]) / 4 + (means[0] + means[4]) / 8
    assert np.mean([found.kept for found in areas.values()]) == pytest.approx(expected)
    assert len({round(found.exact_cmd, 9) for found in areas.values()}) > 4
    assert torch.equal(case.model(case.tokens), before), "the model was changed"


def test_circuits_that_are_none() -> None:
    """All heads at every size are as faithful as can be, and say nothing."""
    case, _ = make_case("balanced", 0)
    circuits = Circuits(case)
    n = len(circuits.heads)
    whole, none = (circuits.areas([heads] * (n + 1)) for heads in (circuits.heads, ()))
    assert (whole.cpr, whole.cmd, whole.sound, whole.found) == pytest.approx((1, 0, 1, 0.5))
    assert (none.cpr, none.cmd, none.sound, none.found) == pytest.approx((0, 1, 0, 0.5))
    assert whole.kept > none.kept + 0.1


def test_greedy_takes_the_best_head_each_time() -> None:
    case, _ = make_case("trained", FOUR_HEADS)
    circuits = Circuits(case)
    path = circuits.greedy(lambda found: -found.kept)
    assert [len(circuit) for circuit in path] == list(range(len(circuits.heads) + 1))
    for smaller, larger in itertools.pairwise(path):
        assert smaller < larger
        ways = [circuits.outcome({*smaller, head}).kept for head in {*circuits.heads} - smaller]
        assert circuits.outcome(larger).kept == min(ways)
