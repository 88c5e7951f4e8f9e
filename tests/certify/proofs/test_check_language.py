"""The checker of languages: its numbers, its bounds, its boxes and what it refuses."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cases import thinned
from tests.certify.proofs.common import FAMILIES, SMALL, N, rnn_of, with_bias
from tl_dyck.certify import check_language, check_layer, language_proofs
from tl_dyck.certify.check_language import (
    LEAF,
    Enclosure,
    Margin,
    Model,
    Prefixes,
    ProofError,
    check,
    dot,
    endings,
    read,
    relu,
)
from tl_dyck.certify.language.counted import NetworkSymbols
from tl_dyck.certify.language.forms import Form
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN

numbers = st.floats(-1e3, 1e3).filter(lambda x: x == 0 or abs(x) > 1e-6)


@given(st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=12))
def test_balls_hold_the_exact_result(rows):
    """Every operation against fractions, at the ends of the balls as well."""
    a, ra, b, rb = (np.array(column) for column in zip(*rows, strict=True))
    x, y = Enclosure(a, abs(ra) * 1e-8), Enclosure(b, abs(rb) * 1e-8)

    def ends(ball):
        return [
            [Fraction(m) + sign * Fraction(r) for m, r in zip(ball.mid, ball.rad, strict=True)]
            for sign in (-1, 1)
        ]

    def inside(ball, exact):
        for m, r, e in zip(ball.mid.ravel(), ball.rad.ravel(), exact, strict=True):
            assert abs(Fraction(float(m)) - e) <= Fraction(float(r))

    for u in ends(x):
        for v in ends(y):
            inside(x + y, [p + q for p, q in zip(u, v, strict=True)])
            inside(x * y, [p * q for p, q in zip(u, v, strict=True)])
            total = sum((p * q for p, q in zip(u, v, strict=True)), Fraction(0))
            inside(dot("i,i->", x, y), [total])
        mean, centre = sum(u, Fraction(0)) / len(u), check_layer.centre(len(u))
        inside(dot("i,ij->j", x, centre), [p - mean for p in u])


@pytest.mark.parametrize(
    "how",
    ["i,i->", "sd,de->se", "sd,sd->s", "kn,n->k", "sne,bkne->bskn", "bdne,bdk->bkne", "e,d->de"],
)
def test_sums_of_products_are_those_of_fractions(how):
    """Of numbers that are known exactly, so that the radius is of rounding alone."""
    rng, sizes = np.random.default_rng(0), {"i": 99, "s": 3, "d": 9, "e": 4, "n": 2, "b": 3, "k": 2}
    left, right, _ = how.replace("->", ",").split(",")
    a, b = (rng.normal(size=[sizes[x] for x in axes]) for axes in (left, right))
    found, rounded = dot(how, a, b), 0
    exact = np.frompyfunc(lambda x: Fraction(float(x)), 1, 1)
    total = np.asarray(np.einsum(how, exact(a), exact(b)))
    assert found.mid.shape == total.shape
    for mid, rad, true in zip(found.mid.ravel(), found.rad.ravel(), total.ravel(), strict=True):
        assert abs(Fraction(float(mid)) - true) <= Fraction(float(rad)) < 1e-12
        rounded += Fraction(float(mid)) != true
    assert rounded


@given(st.lists(st.tuples(st.floats(-30, 30), st.floats(0, 9e-4)), min_size=1, max_size=6))
def test_exponentials_hold_the_exact_ones(rows):
    mid, rad = (np.array(column) for column in zip(*rows, strict=True))
    found = check_language.exponential(Enclosure(mid, rad))
    with localcontext() as context:
        context.prec = 60
        for m, r, (value, size) in zip(
            mid, rad, zip(found.mid, found.rad, strict=True), strict=True
        ):
            for end in (Decimal(m) - Decimal(r), Decimal(m), Decimal(m) + Decimal(r)):
                exact = (end - Decimal(float(mid.max()))).exp()
                assert abs(Decimal(float(value)) - exact) <= Decimal(float(size))


@given(st.floats(-9, 9), st.floats(-9, 9), st.floats(0, 1))
def test_a_relu_lies_between_two_lines(one, two, share):
    low, high = sorted((one, two))
    p = low + share * (high - low)
    with np.errstate(all="ignore"):
        slope, lift = relu(np.array(low), np.array(high))
    at = slope * p
    assert at - 1e-14 <= max(p, 0.0) <= at + lift + 1e-14


def leaves(ending: Prefixes, rng: np.random.Generator) -> Iterator[tuple[Any, Any]]:
    """Boxes that an ending's is halved into, along any axes, now and then no further."""
    todo = [ending.box]
    while todo:
        low, high = todo.pop()
        axes = np.flatnonzero(low < high)
        if len(axes) and rng.random() < 0.9:
            todo += ending.halves(low, high, int(rng.choice(axes)))
        else:
            yield low, high


@pytest.mark.parametrize("claim", sorted(check_language.CLAIMS))
def test_every_prefix_is_in_the_box_of_its_ending(claim):
    """And what may win after it, and what must not, is as the claim says; by a walk of brackets.

    However the box is halved, each prefix is in one of its leaves.
    """
    language, d_vocab = SMALL.language, SMALL.language.d_vocab
    facts, weights = language_proofs.facts_and_weights(rnn_of("eq6", 0), language, claim, N)
    network = Model(facts, weights)
    found = {(each.stack, each.closes): each for each in endings(facts)}
    asked = {}
    for n in range(N + 1):
        for row in language.enumerate(n, "prefix").tolist():
            stack, pairs, closes = [], np.zeros(4, dtype=int), None
            for token in row:
                closes = token // 2 if token % 2 else None
                if token % 2:
                    pairs[2 * (len(stack) - 1) + stack.pop()] += 1
                else:
                    stack.append(token // 2)
            may = {2 * stack[-1] + 1} if stack else set()
            if claim == "valid_token":
                may |= {0, 2} if len(stack) < 2 else set()
            elif not stack and claim != "named":
                continue
            ending = tuple(stack), () if closes is None else (closes,)
            if claim != "named":
                assert set(found[ending].may) == may
            if closes is not None:
                pairs[2 * len(stack) + closes] -= 1  # the last one is known
            asked.setdefault(ending, set()).add(tuple(pairs.tolist()))
    assert asked.keys() == found.keys()
    rng = np.random.default_rng(0)
    for name, ending in found.items():
        for _ in range(20):
            points = np.array(sorted(asked[name]))
            within = [
                ((low <= points) & (points <= high)).all(1) for low, high in leaves(ending, rng)
            ]
            assert (np.sum(within, axis=0) == 1).all()
    rivals = {1, 3} if claim == "closing_only" else set(range(d_vocab))
    assert set(network.rivals) == rivals


@pytest.mark.parametrize(
    ("family", "seed", "crossed"),
    thinned(
        [
            *((family, seed, False) for seed, family in enumerate(FAMILIES)),
            *((("eq6", "minimal-onehot")[seed // 2], seed, True) for seed in range(4)),
        ]
    ),
)
def test_a_box_with_a_wrong_point_is_never_settled(family, seed, crossed):
    """Biases are moved until the worst of 200 points, by another account of them, is just wrong.

    LN_C's C is small, or such that C Z is |u| at a corner of the box.
    """
    language, rng = SMALL.language, np.random.default_rng(seed)
    rnn = rnn_of(family, seed, ln_c=1e-5)
    facts, _ = language_proofs.facts_and_weights(rnn, language, "any_token", 40)
    for ending in list(endings(facts))[::3]:
        closes, winner = (*ending.closes, None)[0], 2 * ending.stack[-1] + 1
        named = Ending(ending.stack, closes)
        objectives = Objectives.margins(winner, language.d_vocab)
        plain = Form(NetworkSymbols(rnn, language), named, objectives)
        last = np.zeros(5)  # the pair that is closed last is no coordinate of the checker's
        if ending.closes:
            last[1 + 2 * len(ending.stack) + ending.closes[0]] = 1

        def form(rnn, ending=ending, winner=winner):
            facts, weights = language_proofs.facts_and_weights(rnn, language, "any_token", 40)
            network = Model(facts, weights)
            return Margin(network, ending, winner, ending.may)

        for _ in range(4):
            low = rng.integers(0, 3, (1, 4)).astype(float)
            high = low + rng.integers(0, 3, (1, 4))
            points = rng.integers(low, high + 1, (200, 4))
            rows = np.concatenate([np.ones((200, 1)), np.vstack([low, high, points])[:200]], axis=1)
            floor = 1e-5
            if crossed:
                floor = float((plain.values(rows + last)[2][:, 0] / ((rows + last) @ plain.z))[0])
            shifted = with_bias(rnn, 0.0, language)
            if rnn.config.ln_c is not None:
                shifted = TwoLayerRNN(replace(rnn.config, ln_c=floor), shifted.weights)
            there = Form(NetworkSymbols(shifted, language), named, objectives)
            values, _, factor = there.values(rows + last)
            rho = factor[:, :1]
            margins = (values / rho).min(1)
            shifted.b_U[winner] -= margins.min() + 1e-6
            moved = form(shifted)
            assert not moved.settles(low, high)[0][0]
            x = np.pad((low + high) / 2, ((0, 0), (1, 0)), constant_values=1)
            box = Enclosure(x, np.pad((high - low) / 2, ((0, 0), (1, 0))))
            with np.errstate(all="ignore"):
                divisor = moved.divisor(box)
            line, off = rows @ divisor.mid[0], divisor.rad[0, 0]
            assert ((line - off) * (1 - 1e-9) <= rho[:, 0]).all()
            assert (rho[:, 0] <= (line + off) * (1 + 1e-9)).all()
            shifted.b_U[winner] += 3 * np.ptp(margins) + 1e-5
            points = np.unique(rows[:, 1:], axis=0)
            assert form(shifted).settles(points, points)[0].all()


@pytest.mark.parametrize("unknown", [np.nan, np.inf])
@np.errstate(all="ignore")
def test_nothing_follows_from_a_divisor_that_is_not_known(monkeypatch, unknown):
    """Though the winner's bias is beyond doubt."""
    rnn, language = rnn_of("eq6", 0), SMALL.language
    facts, weights = language_proofs.facts_and_weights(rnn, language, "closing_only", N)
    network = Model(facts, {**weights, "b_U": np.array([0.0, 100, 0, 0, 0])})
    ending = next(each for each in endings(facts) if each.stack == (0,))
    form = Margin(network, ending, 1, ending.may)
    low = high = np.ones((1, 4))
    assert form.settles(low, high)[0].all()
    rho = form.divisor(Enclosure(np.ones((1, 5))))
    monkeypatch.setattr(form, "divisor", lambda box: Enclosure(rho.mid, rho.rad + unknown))
    assert not form.settles(low, high)[0].any()


def test_a_token_that_may_not_win_does_not(little):
    """Though it has the largest logit, of one logit, or of no logit at all."""
    facts, arrays = read(little[0])
    check(facts, arrays)
    for token in (0, 2, 3, 60):
        leaves = arrays["trees"] >= LEAF
        with pytest.raises(ProofError, match=f"token {token} cannot win"):
            check(facts, arrays | {"trees": np.where(leaves, LEAF + token, arrays["trees"])})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("floor", -1.0), ("attn_scale", -1), ("length", -1), ("n_types", 64), ("length", 10**6)),
        *(("length", "8"), ("n_types", True), ("max_depth", None), ("floor", float("nan"))),
        *(("floor", []), ("n_types", 10**6)),
    ],
)
def test_a_fact_beyond_its_range_is_named(little, name, value):
    facts, arrays = read(little[0])
    with pytest.raises(ProofError, match=f"absurd {name}"):
        check({**facts, name: value}, arrays)


def test_a_weight_that_is_not_finite_is_refused_as_such(little):
    facts, arrays = read(little[0])
    with pytest.raises(ProofError, match="a weight is not finite"):
        check(facts, {**arrays, "b_U": arrays["b_U"] * np.nan})


def test_a_small_file_of_a_wide_network_takes_little_memory(little):
    """Boxes are bounded a few at a time: 2,048 units and logits take 32 MB a box."""
    facts, arrays = read(little[0])
    facts, wide, nodes = {**facts, "length": 60}, 2048, []
    for ending in endings(facts):
        todo = [ending.box]
        while todo:
            low, high = todo.pop()
            axes = np.flatnonzero(low < high)
            nodes.append(axes[0] if len(axes) else LEAF + ending.may[0])
            todo += ending.halves(low, high, axes[0])[::-1] if len(axes) else []
    width = arrays["W_O"].shape[1]
    shapes = {"W_in": (width, wide), "b_in": wide, "W_out": (wide, width)}
    shapes |= {"W_U": (width, wide), "b_U": wide}
    wider = arrays | {name: np.zeros(shape) for name, shape in shapes.items()}
    tracemalloc.start()
    with pytest.raises(ProofError, match="not settled"):
        check(facts, wider | {"trees": np.array(nodes, "<u2")})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(nodes) > 256
    assert peak < 2**30
