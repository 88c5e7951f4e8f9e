"""The checker of edits: walks, parts and bounds are held to every string."""

from __future__ import annotations

from collections import Counter

import mpmath
import numpy as np
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

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
from tl_dyck.certify import PerturbationSpace, check_edits
from tl_dyck.certify.check_edits import Affine, Edits, OneLayer, SameEnd, gelu, wins
from tl_dyck.certify.check_language import Enclosure
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

    def group(self, last: int) -> tuple[SameEnd, list[tuple[int, ...]]]:
        group = SameEnd(self.space, self.net, last)
        n = self.net.n_logits
        group.settled((np.eye(n)[:1], np.zeros(1)), self.space.all, set())
        return group, [path for path in self.paths if path[-1] == last]

    def outputs(self, group: SameEnd, paths: list[tuple[int, ...]]) -> np.ndarray:
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
    found = Case(rnn, space, string)
    assume(found.paths)
    assume(len(found.paths) < 200)
    return found


def holds(y: Affine, o: np.ndarray, true: np.ndarray) -> bool:
    """Numbers that are known hold what they are on each string; whether some are."""
    middle = np.einsum("kne,bne->bk", y.slope.mid, o) + y.rest.mid
    slack = y.rest.rad + 1e-9 * (1 + abs(middle) + abs(y.rest.mid))
    known = np.isfinite(middle + slack)
    assert (abs(true - middle) <= slack)[known].all()
    return bool(known.any())


@given(cases)
@settings(max_examples=20)
def test_walks_find_the_least_sum_of_every_group_and_count_all_ways(drawn):
    made = case(*drawn)
    rng = np.random.default_rng(0)
    costs = rng.normal(size=(len(made.space.symbols[0]), 3))
    assert set(made.space.ends()) >= set(made.ends())
    for last in made.ends():
        end = np.where(np.arange(len(costs)) == last, 0.0, np.inf)[:, None]
        sums = [costs[list(path)].sum(0) for path in made.paths if path[-1] == last]
        found = made.space.walk(costs, end, made.space.all)
        np.testing.assert_allclose(found, np.min(sums, axis=0), atol=1e-12)
    assert made.space.ways() == made.paths.total()


@given(cases, st.integers(0, 2**16), st.integers(0, 2**16))
@settings(max_examples=20)
def test_every_string_is_in_one_of_two_parts_and_in_no_other(drawn, step, j):
    made = case(*drawn)
    step, j = step % (2 * len(made.space.x) + 1), j % len(made.space.options)
    parts = made.space.parted(made.space.all, step, j)
    zero = np.zeros((len(made.space.symbols[0]), 1), dtype=object)
    ways = [made.space.walk(zero, zero, part, np.add, 1, 0)[0] for part in parts]
    assert sum(ways) == made.paths.total()


@given(cases)
@settings(max_examples=20)
@np.errstate(all="ignore")
def test_every_stage_holds_what_it_is_on_every_string(drawn):
    """Norms, floors and activations over the whole group, where their remainders are large."""
    made = case(*drawn)
    for last in made.ends()[:3]:
        group, paths = made.group(last)
        o = made.outputs(group, paths)
        w_o = made.net.w["W_O"]
        moved = Enclosure(np.moveaxis(w_o.mid, 2, 0))
        x = Affine(moved, made.net.w["b_O"] + group.r)
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
        for name, function in (("relu", torch.relu), ("gelu", torch.nn.functional.gelu)):
            made.net.c["act_fn"] = name
            for scale in (0.5, 3.0, 8.0):
                p = x.times(Enclosure(np.full(len(x.rest.mid), scale)))
                value = function(torch.from_numpy(scale * true)).numpy()
                assert holds(group.activated(p), o, value)
        made.net.c["act_fn"] = drawn[0].fields.get("act_fn")


@given(st.lists(st.floats(-40, 40), min_size=1, max_size=20))
def test_gelu_is_that_of_forty_digits(numbers):
    value, slope = gelu(np.array(numbers))
    with mpmath.workdps(40):
        for x, y, s in zip(map(mpmath.mpf, numbers), range(99), range(99), strict=False):
            below, density = mpmath.ncdf(x), mpmath.npdf(x)
            assert abs(x * below - value.mid[y]) <= value.rad[y]
            assert abs(below + x * density - slope.mid[s]) <= slope.rad[s]


def test_a_curve_bends_no_more_than_is_said():
    """|GELU''| = φ(x) |2 - x²|, from each |x| on, against a fine grid."""
    x = np.linspace(0, 12, 120_001)
    bend = np.exp(-(x**2) / 2) / np.sqrt(2 * np.pi) * abs(2 - x**2)
    most = np.maximum.accumulate(bend[::-1])[::-1]
    said = np.where(x < 2, np.maximum(bend, 0.108), bend) * (1 + 1e-9)
    assert (most <= said).all()


@np.errstate(all="ignore")
def test_nothing_follows_from_numbers_that_are_not_known(monkeypatch):
    """Costs beyond what floats hold, and weights that may all be 0, though the target wins."""
    made = Case(favouring(random_rnn(0), 0, 100.0), SPACE, STRING)
    group = SameEnd(made.space, made.net, made.ends()[0])
    assert group.settled(wins(0, made.net.n_logits), made.space.all, set())
    for cost in (1e245, -1e245, np.inf, np.nan):
        costs = np.full((len(made.space.symbols[0]), 1), cost)
        assert group.least(costs, 0 * costs) == [-np.inf]
    monkeypatch.setattr(group, "weights", lambda _: Enclosure(0 * group.e.mid, 1e-3))
    assert not group.settled(wins(0, made.net.n_logits), made.space.all, set())


@given(problems(), st.integers(0, 99), st.sampled_from(["none", "position"]))
def test_one_head_and_a_linear_readout_need_no_parts(problem, seed, state):
    """There the bound has the sign of the least margin, however near to a tie."""
    (space, string), rnn = problem.build(), random_rnn(seed, state=state, bos_token=6)
    least = margins(rnn, strings_of(rnn, space, string), 0).min()
    content = prove_edits(favouring(rnn, 0, 1e-7 - least), string, 0, space).content
    _, arrays = unpacked(content)
    ends = Case(rnn, space, string).space.ends()
    assert (arrays["trees"] == check_edits.BOUND).sum() == len(ends)
