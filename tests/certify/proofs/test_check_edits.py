"""The checker of edits: walks, parts and bounds are held to every string."""

from __future__ import annotations

from collections import Counter
from functools import partial

import mpmath
import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tests.cases import thinned
from tests.certify.oracles import (
    PROVABLE,
    Problem,
    RNNRecipe,
    brute_force,
    favouring,
    margins,
    problems,
    random_rnn,
    rnns,
    strings_of,
)
from tests.certify.proofs.changed import SPACE, STRING
from tests.certify.proofs.common import unpacked
from tl_dyck.certify import PerturbationSpace, check_bounds, check_layer, parse_space
from tl_dyck.certify.check_bounds import Affine, Part, PartBounds, SameEnd, open_strings, wins
from tl_dyck.certify.check_edits import Edits
from tl_dyck.certify.check_language import Enclosure
from tl_dyck.certify.check_layer import OneLayer, smooth
from tl_dyck.certify.check_paths import PartWalks, Step
from tl_dyck.certify.edit_proofs import _facts, prove_edits
from tl_dyck.rnn import TwoLayerRNN


class Case:
    """A group of strings, all allowed, with the heads' outputs and logits of each string."""

    def __init__(self, rnn: TwoLayerRNN, space: PerturbationSpace, string: tuple[int, ...]) -> None:
        weights = {name: weight.numpy() for name, weight in rnn.weights.items()}
        facts = _facts(rnn.config, string, space, 0)
        self.net = OneLayer(facts["config"], weights, range(rnn.config.d_vocab))
        self.space = Edits(facts, self.net)
        self.net.tabulate(*self.space.symbols)
        rows = {tuple(row): i for i, row in enumerate(self.space.symbols.T.tolist())}
        c, self.paths = rnn.config, Counter()
        for each, _ in brute_force(space, string):
            tokens = [c.bos_token, *each] if c.bos_token is not None else [*each]
            depth, path = 0, []
            for place, token in enumerate(tokens):
                bracket = c.has_depth and token < 2 * c.n_types
                depth += (1 - 2 * (token % 2)) * bracket
                least = 1 - token % 2
                seen = min(max(depth, least), c.max_depth - 1 + least) if bracket else 0
                path.append(rows[token, place * c.has_position, seen])
            if path:
                self.paths[tuple(path)] += 1

    def ends(self) -> list[int]:
        return sorted({path[-1] for path in self.paths})

    def part(self, last: int, allowed: np.ndarray | None = None) -> Part:
        """A part, of which it is asked whether logit 0 wins, near some string."""
        space, allowed = self.space, self.space.all if allowed is None else allowed
        asked = wins(0, self.net.n_logits)
        return Part(SameEnd(space, self.net, last), asked, allowed, space.finals, space.path(()))

    def outputs(self, paths: list[tuple[int, ...]]) -> np.ndarray:
        """o, [strings, heads, d_head], by a softmax of its own."""
        found = []
        for path in paths:
            scores = np.einsum("ne,sne->sn", self.net.q.mid[path[-1]], self.net.k.mid[list(path)])
            share = torch.softmax(torch.from_numpy(scores), 0).numpy()
            found.append(np.einsum("sn,sne->ne", share, self.net.v.mid[list(path)]))
        return np.array(found)


cases = st.tuples(rnns(PROVABLE, sharpness=(0.0, 1.0, 3.0)), problems())


def case(recipe: RNNRecipe, problem: Problem) -> Case:
    rnn, (space, string) = recipe.build(), problem.build()
    assume(space.size(string) < 200)
    found = Case(rnn, space, string)
    assume(found.paths)
    return found


def holds(y: Affine, o: np.ndarray, true: np.ndarray) -> bool:
    """Numbers of the first part hold what they are on each string, where known; if some are."""
    middle = np.einsum("kne,bne->bk", y.slope.mid[0], o) + y.rest.mid
    slack = y.rest.rad + 1e-9 * (1 + abs(middle) + abs(y.rest.mid))
    known = np.isfinite(middle + slack)
    assert (abs(true - middle) <= slack)[known].all()
    return bool(known.any())


@given(cases)
@settings(max_examples=14)
def test_walks_find_the_least_sum_of_every_group_and_count_all_ways(drawn):
    made = case(*drawn)
    rng = np.random.default_rng(0)
    costs = rng.normal(size=(len(made.space.symbols[0]), 3))
    assert set(made.space.ends()) >= set(made.ends())
    parts = [made.part(last) for last in made.ends()]
    found = PartWalks(made.space, parts).least(np.repeat(costs[None], len(parts), axis=0))
    for last, least in zip(made.ends(), found, strict=True):
        sums = [costs[list(path)].sum(0) for path in made.paths if path[-1] == last]
        np.testing.assert_allclose(least, np.min(sums, axis=0), atol=1e-12)
    assert made.space.ways() == made.paths.total()


def made_of(space: Edits, allowed: np.ndarray) -> list[tuple[int, ...]]:
    """The symbols of each string of allowed options, one option after the other."""
    found, begun = [], [(0, space.origin, () if space.start is None else (space.start,))]
    while begun:
        level, state, symbols = begun.pop()
        if level == space.n_levels - 1:
            found += [symbols] * bool(space.finals[state] and symbols)
            continue
        for i in np.flatnonzero(allowed & (space.source == level)):
            option = space.options[i]
            for at in np.flatnonzero(option.came == state):
                more = option.index[:, at].tolist()
                begun.append((option.target, int(option.to[at]), (*symbols, *more)))
    return found


@given(cases, st.lists(st.tuples(*[st.integers(0, 2**16)] * 4), min_size=1, max_size=4))
@settings(max_examples=14)
def test_parts_side_by_side_are_walked_each_by_itself(drawn, chosen):
    """With costs of its own, an end of its own, and options of its own: some have no string."""
    made, parts, own = case(*drawn), [], []
    space, rng = made.space, np.random.default_rng(0)
    for step, j, side, end in chosen:
        i = (step % (2 * len(space.x) + 1), j % len(space.options))
        allowed = space.parted(space.all, *i)[side % 2]
        parts.append(made.part(made.ends()[end % len(made.ends())], allowed))
        own.append(made_of(space, allowed))
    costs = rng.normal(size=(len(parts), len(space.symbols[0]), 3))
    found = PartWalks(space, parts).least(costs)
    for part, strings, mine, least in zip(parts, own, costs, found, strict=True):
        sums = [mine[list(path)].sum(0) for path in strings if path[-1] == part.group.last]
        np.testing.assert_allclose(least, np.min([*sums, np.full(3, np.inf)], axis=0), atol=1e-12)


def test_states_of_an_option_come_in_the_order_by_which_files_number_symbols():
    """By the state that they lead to, as the page about the file says; then as they come."""
    step = Step(0, 1, (5,), [0, 1, 2, 3], [2, 0, 2, 1])
    assert (step.came.tolist(), step.to.tolist()) == ([1, 3, 0, 2], [0, 1, 2, 2])


@given(cases, st.integers(0, 2**16), st.integers(0, 2**16))
@settings(max_examples=14)
def test_every_string_is_in_one_of_two_parts_and_in_no_other(drawn, step, j):
    made = case(*drawn)
    step, j = step % (2 * len(made.space.x) + 1), j % len(made.space.options)
    parts = made.space.parted(made.space.all, step, j)
    ways = [made.space.counts(part)[-1][made.space.finals].sum() for part in parts]
    assert sum(ways) == made.paths.total()
    assert ways == [len(made_of(made.space, part)) for part in parts]


@given(cases)
@settings(max_examples=12)
@np.errstate(all="ignore")
def test_every_stage_holds_what_it_is_on_every_string(drawn):
    """Norms, floors and activations over the whole group, where their remainders are large."""
    made = case(*drawn)
    for last in made.ends()[:3]:
        group, paths = PartBounds([made.part(last)]), [x for x in made.paths if x[-1] == last]
        if not np.isfinite(group.e.size).all():  # scores so far apart that nothing need be known
            continue
        o = made.outputs(paths)
        w_o = made.net.w["W_O"]
        moved = Enclosure(np.moveaxis(w_o.mid, 2, 0))
        x = Affine(moved[None], made.net.w["b_O"] + group.r)
        true = np.einsum("dne,bne->bd", moved.mid, o) + x.rest.mid
        low, high, _ = group.range(x)
        assert (low <= true.min(0)).all()
        assert (true.max(0) <= high).all()
        centred = true - true.mean(1, keepdims=True)
        for more in (0.0, 0.3):
            size = np.sqrt((centred**2).sum(1, keepdims=True) + more)
            *_, root = group.norm(x, more)
            assert holds(root, o, size)
            for floor in (0.0, float(np.median(size)), 3.0):
                found = group.divided(x, more, floor)
                assert holds(found, o, centred / np.maximum(size, floor)) or floor == 0
        gelu, silu = torch.nn.functional.gelu, torch.nn.functional.silu
        curves = {"gelu": gelu, "gelu_new": partial(gelu, approximate="tanh"), "silu": silu}
        for name, function in ({"relu": torch.relu} | curves).items():
            made.net.c["act_fn"], made.net.curve = name, {}
            for scale in (0.5, 3.0, 8.0):
                p = x.times(Enclosure(np.full(x.rest.mid.shape, scale)))
                value = function(torch.from_numpy(scale * true)).numpy()
                assert holds(group.activated(p), o, value)
        made.net.c["act_fn"] = drawn[0].fields.get("act_fn")
        back = Affine(x.slope[:, ::-1], x.rest[:, ::-1])
        assert holds(group.product(x, back), o, true * true[:, ::-1])


#: The curves, for mpmath.
CURVES = {
    "gelu": lambda x: x * mpmath.ncdf(x),
    "silu": lambda x: x / (1 + mpmath.exp(-x)),
    "gelu_new": lambda x: (
        x * (1 + mpmath.tanh(mpmath.sqrt(2 / mpmath.pi) * (x + mpmath.mpf("0.044715") * x**3))) / 2
    ),
}


@pytest.mark.parametrize("act_fn", CURVES)
@given(st.lists(st.floats(-40, 40) | st.floats(-1e4, 1e4), min_size=1, max_size=20))
def test_curves_are_those_of_forty_digits(act_fn, numbers):
    known: dict[float, tuple[float, float]] = {}
    value, slope = smooth(np.array(numbers), known, act_fn)
    assert known.keys() == {*numbers}
    for again, first in zip(smooth(np.array(numbers), known, act_fn), (value, slope), strict=True):
        assert np.array_equal(again.mid, first.mid)
    with mpmath.workdps(60):
        for at, x in enumerate(map(mpmath.mpf, numbers)):
            assert abs(CURVES[act_fn](x) - value.mid[at]) <= value.rad[at]
            if abs(x) < 40:
                true = mpmath.diff(CURVES[act_fn], x, h=mpmath.mpf(10) ** -20)
                assert abs(true - slope.mid[at]) <= slope.rad[at] + mpmath.mpf(10) ** -30


@pytest.mark.parametrize("act_fn", CURVES)
def test_a_curve_bends_no_more_than_is_said(act_fn):
    """Its second derivative from each |x| on, on both sides, is held to a fine grid."""
    x = np.linspace(0, 12, 301)
    ends = [abs(mpmath.diff(CURVES[act_fn], side * each, 2)) for each in x for side in (1, -1)]
    bend = np.array([float(max(ends[i : i + 2])) for i in range(0, len(ends), 2)])
    most = np.maximum.accumulate(bend[::-1])[::-1]
    said = check_layer.CURVES[act_fn][1](x)
    assert (most <= said * (1 + 1e-9) + 1e-13).all()
    # little is given away: less than a tenth in all
    assert said.sum() <= 1.1 * most.sum()


def test_no_other_curve_is_taken_for_one_of_them(monkeypatch):
    """A name that is let through has no bounds, rather than those of SiLU."""
    assert check_layer.CURVES.keys() == CURVES.keys()
    assert {None, "relu", *CURVES} == {*check_layer.ACTIVATIONS}
    monkeypatch.delitem(check_layer.CURVES, "gelu_new")
    rnn = random_rnn(0, act_fn="gelu_new")
    with pytest.raises(KeyError, match="gelu_new"):
        prove_edits(rnn, (0, 1), None, parse_space("dup:1"))


@np.errstate(all="ignore")
def test_nothing_follows_from_numbers_that_are_not_known(monkeypatch):
    """Costs beyond what floats hold, and weights that may all be 0, though the target wins."""
    made = Case(favouring(random_rnn(0), 0, 100.0), SPACE, STRING)
    part = made.part(made.ends()[0])
    bounds = PartBounds([part])
    assert bounds.settled() == [True]
    for cost in (1e245, -1e245, np.inf, np.nan):
        costs = np.full((1, len(made.space.symbols[0]), 1), cost)
        assert bounds.least(costs, 0 * costs) == [[-np.inf]]
    monkeypatch.setattr(part.group, "weights", lambda _: Enclosure(0 * bounds.e.mid[0], 1e-3))
    assert PartBounds([part]).settled() == [False]


@pytest.mark.parametrize("fields", [{"n_heads": 2, "act_fn": "gelu"}, {"ln_c": 0.3}])
@np.errstate(all="ignore")
def test_what_is_beside_a_part_changes_nothing(fields):
    """PartBounds of parts of several ends, near several strings, are those of each alone."""
    rnn, rng, seen = random_rnn(1, bos_token=6, **fields), np.random.default_rng(0), set()
    for favour in (0.0, 4.0, 8.0):
        made, parts = Case(favouring(rnn, 0, favour), SPACE, STRING), []
        space = made.space
        for last in made.ends():
            for allowed in (space.all, *space.parted(space.all, 1, 3)):
                near = space.path({*rng.integers(0, len(space.options), size=2).tolist()})
                parts.append(made.part(last, allowed)._replace(path=near))
        for rays in (False, True)[: 1 + ("ln_c" in fields)]:
            together, alone = PartBounds(parts, rays), [PartBounds([part], rays) for part in parts]
            shown = together.settled().tolist()
            assert [bool(each.settled()[0]) for each in alone] == shown
            below = np.concatenate([each.below(each.wanted) for each in alone])
            np.testing.assert_allclose(together.below(together.wanted), below, atol=1e-9)
            seen |= {(each, rays) for each in shown}
    assert len(seen) == 2 + 2 * ("ln_c" in fields)


@settings(max_examples=10)
@given(problems(), st.integers(0, 99), st.sampled_from(["none", "position"]))
def test_one_head_and_a_linear_readout_need_no_parts(problem, seed, state):
    """There the bound has the sign of the least margin, however near to a tie."""
    (space, string), rnn = problem.build(), random_rnn(seed, state=state, bos_token=6)
    least = margins(rnn, strings_of(rnn, space, string), 0).min()
    content = prove_edits(favouring(rnn, 0, 1e-7 - least), string, 0, space).content
    _, arrays = unpacked(content)
    ends = Case(rnn, space, string).space.ends()
    assert (arrays["trees"] == check_bounds.BOUND).sum() == len(ends)


@pytest.mark.parametrize(
    ("fields", "state"),  # a symbol occurs twice, or once
    thinned((each, ("none", "position+depth")[i // 2 % 2]) for i, each in enumerate(PROVABLE)),
)
def test_strings_of_a_list_are_run_as_the_network_says(fields, state, monkeypatch):
    """Of each string it is shown whether the target wins, by a billionth on both sides of a tie."""
    options = {"attn_scale": 1.7, "eps": 0.1, "state": state, "bos_token": 6, **fields}
    rnn = random_rnn(1, n_heads=9, **options)
    every = strings_of(rnn, SPACE, STRING)
    gaps = margins(rnn, every, 0)
    gap = np.sort(gaps)[len(gaps) // 2]
    for off in (1e-9, -1e-9):
        made = Case(favouring(rnn, 0, off - gap), SPACE, STRING)
        with monkeypatch.context() as patch:
            if state == "none":
                patch.setattr(check_bounds, "MOST", 1)  # one string at a time
            left = [open_strings(made.part(last)) for last in made.ends()]
        assert sum(map(len, left)) == (gaps - gap + off <= 0).sum()
