"""The exact denominator, against all integer sums, where greedy fails, and nearest neighbours."""

from __future__ import annotations

import itertools
import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays
from scipy.spatial import cKDTree

from tl_dyck.models import build_model, get_config
from tl_dyck.tasks import DyckTask
from tl_dyck_hooks.probes import balance_violation, shortest_sum
from tl_dyck_hooks.probes.shortest_sum import second_smallest_norm


def second_smallest_square(base, choices):
    """Eq. 17 word by word, in Python's integers: t*, then the best t with another last entry."""
    levels, k, dim = choices.shape
    square = {}
    for t in itertools.product(range(k), repeat=levels):
        total = [
            int(base[x]) + sum(int(choices[m, t[m], x]) for m in range(levels)) for x in range(dim)
        ]
        square[t] = sum(x * x for x in total)
    best = min(square, key=square.get)
    return min(value for t, value in square.items() if t[-1] != best[-1])


def alike(draw, levels, k, dim):
    """Types almost interchangeable: a type has about the same vector at all levels."""
    common = draw(arrays.arrays(np.int64, (k, dim), elements=st.integers(-1000, 1000)))
    return common + draw(arrays.arrays(np.int64, (levels, k, dim), elements=st.integers(-1, 1)))


def flat(draw, levels, k, dim):
    """Vectors on a line."""
    along = draw(arrays.arrays(np.int64, (levels, k, 1), elements=st.integers(-100, 100)))
    return along * draw(arrays.arrays(np.int64, dim, elements=st.integers(-9, 9)))


def common(draw, levels, k, dim):
    """Differences that are small beside what all choices of a level share."""
    shared = draw(arrays.arrays(np.int64, (levels, 1, dim), elements=st.integers(-(2**40), 2**40)))
    return shared + draw(arrays.arrays(np.int64, (levels, k, dim), elements=st.integers(-2, 2)))


def any_vectors(draw, levels, k, dim):
    """Small integers make ties, zeros and cancellation common."""
    largest = draw(st.sampled_from([0, 1, 3, 1000]))
    return draw(arrays.arrays(np.int64, (levels, k, dim), elements=st.integers(-largest, largest)))


@st.composite
def integer_cases(draw):
    levels, k = draw(st.sampled_from([(1, 3), (2, 2), (3, 3), (4, 3), (5, 2), (6, 2)]))
    dim = draw(st.integers(1, 4))
    choices = draw(st.sampled_from([alike, flat, common, any_vectors]))(draw, levels, k, dim)
    base = draw(arrays.arrays(np.int64, dim, elements=st.integers(-1000, 1000)))
    if draw(st.booleans()):  # planted: the base is nearly cancelled
        planted = draw(st.lists(st.integers(0, k - 1), min_size=levels, max_size=levels))
        base = base % 3 - choices[np.arange(levels), planted].sum(0)
    if draw(st.booleans()):  # one coordinate that no choice turns round
        base[-1] += 10 * np.abs(choices[..., -1]).max()
    return base, choices


def small_steps(patch, **others):
    """Many small steps, as only large cases have them otherwise."""
    values = {"_TAIL": 1, "_BLOCK": 1, "_GUESS": 1, "_CHUNK": 2, "_ENTRIES": 3} | others
    for name, value in values.items():
        patch.setattr(shortest_sum, name, value)


GROUPED = {"_TAIL": 12, "_MANY": 1, "_MEMBERS": 3, "_ENTRIES": 40}
WAYS = {
    "all": {},
    "auto": {},
    "branch": {},
    "branch, one level of tail": {"_TAIL": 1},
    "branch, grouped": GROUPED | {"_CROWDED": 1},
    "branch, crowded": GROUPED | {"_CROWDED": 0.2},
    "branch, a long tail": {"_FLAT": 0, "_BLOCK": 12},
}


@given(integer_cases(), st.sampled_from([*WAYS]), st.sampled_from([0, 0, -1000, -500, 480, 960]))
@settings(max_examples=400)
def test_it_is_the_second_smallest_of_all(case, way, exponent):
    """Squares of norms are exact in integers.

    What may differ is what the docstring of the module says.
    """
    base, choices = case
    levels, _, dim = choices.shape
    square = second_smallest_square(base, choices)
    with pytest.MonkeyPatch.context() as patch:
        if WAYS[way]:
            small_steps(patch, **WAYS[way])
        scaled = np.ldexp(base.astype(float), exponent), np.ldexp(choices.astype(float), exponent)
        found = math.ldexp(second_smallest_norm(*scaled, method=way.split(",")[0]), -exponent)
    length = np.linalg.norm(base) + np.linalg.norm(choices, axis=-1).max(1).sum()
    # the norm that is returned is rounded, and so is every vector that is added up; then what
    # counts as zero
    rounding = (4 * (3 * levels + 3) + dim + 2) * np.finfo(float).eps * length
    assert abs(found - math.sqrt(square)) <= 1e-9 * math.sqrt(square) + rounding


def greedy(base, choices):
    """Choose depth by depth the shortest so far, last bracket free; then the best other last."""
    total = base
    for level in choices[:-1]:
        sums = total + level
        total = sums[np.linalg.norm(sums, axis=1).argmin()]
    return np.sort(np.linalg.norm(total + choices[-1], axis=1))[1]


def test_where_greedy_choices_fail():
    """At each depth one type looks best and is a trap: only the far choices cancel in the end."""
    base = np.array([0.0, 1.0])
    step = np.array(
        [[[0.1, 0.0], [5.0, 0.0]], [[0.1, 0.0], [5.0, 0.0]], [[0.1, 0.0], [-10.0, 0.0]]]
    )
    far = np.concatenate(
        [step, [[[0.0, 0.5], [0.0, -0.25]]]]
    )  # 5 + 5 − 10 = 0; then (0, 1.5) or (0, 0.75)
    for method in ("all", "branch"):
        assert second_smallest_norm(base, far, method=method) == pytest.approx(1.5, rel=1e-12)
    assert greedy(base, far) > 1.5 + 1e-3


@pytest.mark.parametrize("dim", [1, 3, 12, 40])
@pytest.mark.parametrize("spread", [0.0, 1.5, 8.0])
def test_random_vectors_of_very_different_lengths(dim, spread, monkeypatch):
    """Lengths as those of exp(score): from alike to many orders of magnitude."""
    small_steps(monkeypatch)
    generator = np.random.default_rng(dim)
    length = np.exp(spread * generator.normal(size=(5, 4, 1)))
    base, choices = generator.normal(size=dim), generator.normal(size=(5, 4, dim)) * length
    totals = base
    for level in choices:
        totals = totals[..., None, :] + level
    norms = np.linalg.norm(totals, axis=-1).reshape(-1, 4).min(0)
    assert second_smallest_norm(base, choices, method="branch") == pytest.approx(
        np.sort(norms)[1], rel=1e-9
    )


def separable(generator, levels, k):
    """Every level in coordinates of its own, turned: norms add up, minima are per level."""
    size = generator.uniform(0.5, 2, size=(levels, k))
    flat = np.zeros((levels, k, levels * k + 1))
    for m, t in itertools.product(range(levels), range(k)):
        flat[m, t, m * k + t] = size[m, t]
    base = np.zeros(levels * k + 1)
    base[-1] = 1.0
    turn = np.linalg.qr(generator.normal(size=(len(base), len(base))))[0]
    least = np.sort(size**2, axis=1)
    return base @ turn, flat @ turn, np.sqrt(1 + least[:-1, 0].sum() + least[-1, 1])


def test_eight_types_and_ten_levels():
    """10⁹ sums: more than can be tried, but the answer is known."""
    base, choices, expected = separable(np.random.default_rng(1), 10, 8)
    assert second_smallest_norm(base, choices) == pytest.approx(expected, rel=1e-9)


def test_eight_types_and_nine_levels_with_a_hidden_cancellation():
    """A planted choice cancels the base up to a given length; so does one with another end."""
    generator = np.random.default_rng(2)
    choices = generator.normal(size=(9, 8, 60))
    planted = generator.integers(8, size=9)
    total = choices[np.arange(9), planted].sum(0)
    direction = generator.normal(size=60)
    choices[8, (planted[8] + 1) % 8] = choices[8, planted[8]] + 0.03 * direction / np.linalg.norm(
        direction
    )
    base = -total
    assert second_smallest_norm(base, choices) == pytest.approx(0.03, rel=1e-6)
    assert greedy(base, choices) > 1


def test_a_result_far_below_what_squares_can_tell_from_zero():
    """Sums of some units that cancel to 1e-9: the vectors' norm, not that of rounded squares."""
    generator = np.random.default_rng(3)
    choices = generator.normal(size=(8, 3, 10))
    base = -choices[:, 0].sum(0)
    choices[7, 1] = choices[7, 0]
    choices[7, 1, 0] += 1e-9
    assert second_smallest_norm(base, choices, method="branch") == pytest.approx(1e-9, rel=1e-5)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    "way", ["branch, one level of tail", "branch, grouped", "branch, a long tail"]
)
def test_differences_that_single_precision_does_not_see(way, seed, monkeypatch):
    """Norms that differ by parts in 10⁸: more than may be lost, less than a rough product tells."""
    small_steps(monkeypatch, **WAYS[way])
    generator = np.random.default_rng(seed)
    choices = 1e-8 * generator.normal(size=(5, 3, 3))
    base = np.array([0.6, 0.0, 0.8])
    expected = second_smallest_norm(base, choices, method="all")
    assert second_smallest_norm(base, choices, method="branch") == pytest.approx(
        expected, rel=1.1e-9
    )


def test_ties_without_end(monkeypatch):
    """Types that are alike: all 8⁹ sums are equally long, or zero.

    None but the first guess is looked at.
    """
    looked = []
    monkeypatch.setattr(shortest_sum._Search, "_finish", lambda *args: looked.append(1))
    same = np.repeat(np.random.default_rng(4).normal(size=(9, 1, 30)), 8, axis=1)
    base = np.ones(30)
    expected = np.linalg.norm(base + same[:, 0].sum(0))
    assert second_smallest_norm(base, same) == pytest.approx(expected, rel=1e-9)
    assert second_smallest_norm(np.zeros(5), np.zeros((9, 8, 5))) == 0
    orthogonal = np.zeros((9, 8, 72))
    orthogonal.reshape(72, 72)[np.arange(72), np.arange(72)] = 2.0
    assert second_smallest_norm(np.zeros(72), orthogonal) == pytest.approx(6.0, rel=1e-9)
    assert not looked


def by_neighbours(base, choices):
    """Meet in the middle: per last choice, all sums of four levels, and the nearest others."""
    first, second = (every(part) for part in (choices[:-1:2], choices[1:-1:2]))
    tree = cKDTree(first)
    return np.sort([tree.query(-(base + last) - second)[0].min() for last in choices[-1]])[1]


def every(choices):
    total = choices[0]
    for level in choices[1:]:
        total = (total[:, None] + level).reshape(-1, choices.shape[-1])
    return total


def plane(generator):
    return generator.normal(size=2), generator.normal(size=(9, 8, 2)) @ np.eye(2)


def slab(generator):
    """As after training with few dimensions a head: a common offset that nothing turns round."""
    base, choices = generator.normal(size=3), generator.normal(size=(9, 8, 3)) * [0.2, 0.1, 0.002]
    base[2] = 1.8
    return base, choices


def interchangeable(generator):
    """As of new models with split embeddings: near ties by the million."""
    weight = 1 + 0.01 * generator.normal(size=(9, 1, 1))
    choices = weight * (generator.normal(size=(1, 8, 12)) + generator.normal(size=(9, 1, 12)))
    return generator.normal(size=12), choices


@pytest.mark.parametrize("kind", [plane, slab, interchangeable])
@pytest.mark.parametrize("grouping", ["fine", "coarse"])
def test_no_group_with_a_sum_that_is_short_enough_is_passed_over(kind, grouping):
    """Whatever the limit, even just above a sum; and groups hold every sum of the tail once."""
    base, choices = kind(np.random.default_rng(8))
    search = shortest_sum._Search(base, choices[:, :4])
    types = np.random.default_rng(9).integers(4, size=(30, search.head))
    places = search._places(
        shortest_sum.Nodes(types, np.zeros(30), np.zeros((30, 0, 4)), np.zeros(30))
    )
    norms = np.linalg.norm(places[:, None] + search.ends, axis=-1)
    for share in (0.0, 1e-4, 1e-3, 0.01, 0.1, 0.5):
        search.least[:] = np.quantile(norms, share, method="nearest") * (1 + 1e-8)
        groups = getattr(search, grouping)
        assert sorted(groups.order) == list(range(len(search.ends)))
        group_of = np.empty(len(search.ends), int)
        group_of[groups.order] = np.repeat(np.arange(len(groups.radius)), np.diff(groups.first))
        node, end = np.nonzero(norms < search.best * (1 - 5e-9))
        assert len(node)
        kept = set(zip(*map(np.ndarray.tolist, search._near(places, groups)), strict=True))
        assert set(zip(node.tolist(), group_of[end].tolist(), strict=True)) <= kept


@pytest.mark.parametrize("kind", [plane, slab, interchangeable])
def test_eight_types_and_nine_levels_in_few_dimensions(kind, monkeypatch):
    """Bounds of the head keep nearly everything.

    Groups leave less than a hundredth of the 8⁹ sums to be computed.
    """
    looked = []
    compute = shortest_sum._Search._try
    monkeypatch.setattr(
        shortest_sum._Search, "_try", lambda *args: looked.append(len(args[-1])) or compute(*args)
    )
    base, choices = kind(np.random.default_rng(5))
    turn = np.linalg.qr(np.random.default_rng(6).normal(size=(20, len(base))))[0].T
    tracemalloc.start()
    found = second_smallest_norm(base @ turn, choices @ turn)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found == pytest.approx(by_neighbours(base, choices), rel=1e-9)
    assert sum(looked) < 8**9 / 100
    assert peak < 3 * 8 * 4 * shortest_sum._ENTRIES  # three tables; all sums are sixty


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"_MANY": 10**9}, {"fine"}),
        ({"_MANY": 1, "_CROWDED": 1}, {"coarse"}),
        ({"_MANY": 1, "_CROWDED": 0}, {"coarse", "fine"}),
    ],
)
def test_which_groups_are_looked_at(settings, expected, monkeypatch):
    """What the ways of the test against all sums are named after happens; each finds the same."""
    looked = set()
    near = shortest_sum._Search._near

    def spy(self, places, groups):
        looked.add("fine" if groups is self.fine else "coarse")
        return near(self, places, groups)

    monkeypatch.setattr(shortest_sum._Search, "_near", spy)
    small_steps(monkeypatch, _TAIL=64, _MEMBERS=4, _ENTRIES=64, **settings)
    generator = np.random.default_rng(7)
    base, choices = generator.normal(size=2), generator.normal(size=(5, 4, 2))
    expected_norm = second_smallest_norm(base, choices, method="all")
    assert second_smallest_norm(base, choices, method="branch") == pytest.approx(
        expected_norm, rel=1e-9
    )
    assert looked == expected


@pytest.mark.parametrize("family", ["minimal-onehot", "figure2-yao"])
def test_models_of_many_depths(family, monkeypatch):
    """Both ways on the values of models: k = 3, D = 7."""
    task = DyckTask(name="deep", n_types=3, max_depth=7)
    model = build_model(get_config(family, task, initializer_range=0.4), seed=2)
    whole = balance_violation(model)
    monkeypatch.setattr("tl_dyck_hooks.probes.shortest_sum._FEW", 0)
    assert pytest.approx(whole.P, rel=1e-9) == balance_violation(model).P


def test_what_makes_no_sense_is_refused():
    for base, choices in ((np.zeros(2), np.zeros((3, 1, 2))), (np.zeros(2), np.zeros((0, 3, 2)))):
        with pytest.raises(ValueError, match="needs a level and two choices"):
            second_smallest_norm(base, choices)
    with pytest.raises(ValueError, match="not finite"):
        second_smallest_norm(np.zeros(2), np.full((3, 2, 2), np.nan))
    with pytest.raises(ValueError, match=r"unknown method 'greedy'.*(all|branch)"):
        second_smallest_norm(np.zeros(2), np.zeros((3, 2, 2)), method="greedy")
