"""Costs, denominators, ranges and linear bounds over strings, against fractions of every string.

A bound holds, and it is the best that its recipe gives: of strings' sums without any rounding the
recipe is worked out again, string by string, and what is found may be off by rounding alone.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from tests.certify.exact.rational import Exacts, Rational, centred, cut, exact, exp, root
from tests.certify.exact.test_paths import listed
from tests.certify.oracles import random_rnn
from tl_dyck.certify import Delete, Duplicate, PerturbationSpace, Substitute
from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.columns import minimise_bound
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.readout import LinearBound
from tl_dyck.certify.exact.region import Region

STRING = (0, 3, 1)
SPACE = PerturbationSpace([(Duplicate(), 1), (Delete([1]), 1), (Substitute({0: [2], 3: [4]}), 1)])
K = 4


@dataclass(frozen=True)
class Case:
    """All strings of a space around one, by group: as symbols, and what heads sum over them."""

    rational: Rational
    attention: AttentionWeights
    items: Items
    paths: list[list[list[int]]]
    x: Exacts
    """[S, H, e] values; or P (W_O v + b_O), of one head."""
    e: Exacts
    """[I, S, H] exp(score - a number of the head's)."""

    @classmethod
    def of(cls, seed: int, *, sharpness: float = 1.0, **fields: Any) -> Case:
        rnn = random_rnn(seed, bos_token=6, sharpness=sharpness, **fields)
        network, rational = Network(rnn), Rational(rnn)
        graph = build_graph(network, SPACE.lattice(STRING))
        symbols = graph.symbols
        read = rational.read(symbols.tokens.tolist(), symbols.states.tolist())
        every = listed(graph)
        groups = np.flatnonzero([len(paths) > 0 for paths in every])
        attention, e = AttentionWeights(network, graph), []
        rounded, _ = symbols.scores(graph.groups)
        for group in groups:
            tops = exact(rounded[group].max(0))
            scores = rational.scores(read, graph.groups[group])
            e.append([[exp(x) for x in row - tops] for row in scores])
        paths = [every[group] for group in groups]
        return cls(rational, attention, Items(groups), paths, read.v, np.array(e, object))

    @property
    def projected(self) -> Exacts:
        """P (W_O v + b_O) of one head, [S, 1, d]."""
        w = self.rational.w
        return centred(self.x[:, 0] @ w["W_O"][0] + w["b_O"])[:, None]

    def sums(self, item: int, costs: Exacts) -> Exacts:
        """Σ E cost of each string, for costs [S, H, …]."""
        weighted = self.e[item].reshape(*self.e[item].shape, *[1] * (costs.ndim - 2)) * costs
        return np.array([weighted[path].sum(0) for path in self.paths[item]])

    def outputs(self, item: int) -> Exacts:
        """[strings, H, e]."""
        z = self.sums(item, np.full(self.x.shape[:2], Fraction(1)))
        return np.vectorize(cut, otypes=[object])(self.sums(item, self.x) / z[..., None])

    def region(self, rng: np.random.Generator) -> Region:
        """Of the heads' outputs, about that of some string."""
        found = [self.outputs(i) for i in range(len(self.items))]
        centre = np.array([each[rng.integers(len(each))] for each in found]).astype(float)
        return Region.of_values(self.attention, self.items, centre)


def near(found: Any, wanted: Fraction, size: Any, *, below: bool = True) -> None:
    """On the side of the wanted number that is safe, and no further from it than rounding."""
    apart = (wanted - Fraction(float(found))) * (1 if below else -1)
    assert 0 <= apart <= Fraction(1, 10**9) * (abs(Fraction(size)) + Fraction(1, 10**200))


SHARP = [(0, 1.0), (1, 30.0), (2, 300.0)]


@pytest.mark.parametrize(("seed", "sharpness"), SHARP)
@pytest.mark.parametrize("fields", [{}, {"n_heads": 2, "state": "position"}], ids=str)
def test_the_least_sum_of_a_column_is_just_below_that_of_every_string(
    seed: int, sharpness: float, fields: dict[str, Any]
) -> None:
    case, rng = Case.of(seed, sharpness=sharpness, **fields), np.random.default_rng(seed)
    n, heads = len(case.items), case.x.shape[1]
    views = [(case.attention.values, case.x)]
    views += [(case.attention.projected, case.projected)] if heads == 1 else []
    for (view, x), _ in itertools.product(views, range(6)):
        d, t = rng.normal(size=(n, heads, x.shape[2])), rng.normal(size=(n, heads))
        found = case.attention.sweep(view, case.items, d, t).least
        for item in range(n):
            costs = (x * exact(d[item])).sum(-1) + exact(t[item])
            size = case.sums(item, abs(costs)).sum(1).max() + abs(case.e[item]).max()
            near(found[item], case.sums(item, costs).sum(1).min(), size)


def of_heads(
    case: Case, item: int, x: Exacts, direction: Exacts, t: Exacts, omega: Exacts
) -> tuple[Exacts, Exacts]:
    """r = Σ E (D·x - t ω) and Z = Σ E ω of each string, [strings, H]."""
    return case.sums(item, (x * direction).sum(-1) - t * omega), case.sums(item, omega)


def check_ranges(case: Case, region: Region, items: Any, x: Exacts) -> int:
    """t + r / Z, with the least r over the least or the largest Z, whichever is worse.

    A mean is no less than what it is of. With one head whose Z differ much, ends are nearly met.

    Returns:
        Of how many ranges an end is nearer than that.
    """
    nearer, rng, heads = 0, np.random.default_rng(1), region.n_heads
    directions = rng.normal(size=(len(items), K, *region.base.shape[1:]))
    low, high = region.ranges(directions)
    for i, item in enumerate(items):
        omega = (exact(region.base[i]) * x).sum(-1) + Fraction(region.unit)
        z = case.sums(item, omega)
        for head in range(heads):
            near(region.low[i, head], z[:, head].min(), z[:, head].max())
            near(region.high[i, head], z[:, head].max(), z[:, head].max(), below=False)
        for k in range(K):
            d = exact(directions[i, k])
            t = (d * exact(region.centre[i])).sum(-1)
            r, _ = of_heads(case, item, x, d, t, omega)
            bottom = top = size = Fraction(0)
            each = (d * x).sum(-1)  # [S, H]
            mean = bool(region.unit)
            for h in range(heads):
                ends = z[:, h].min(), z[:, h].max()
                least = t[h] + min(r[:, h].min() / end for end in ends)
                most = t[h] + max(r[:, h].max() / end for end in ends)
                bottom += max(least, each[:, h].min()) if mean else least
                top += min(most, each[:, h].max()) if mean else most
                size += abs(t[h]) + max(abs(r[:, h])) / ends[0] + (abs(d) * abs(x)).sum(-1).max()
            value = (r / z + t).sum(1)
            assert bottom <= value.min()
            assert value.max() <= top
            if any(4 * z[:, h].min() < z[:, h].max() for h in range(heads)):
                for found, wanted, seen, sign in (
                    (low[i, k], bottom, value.min(), 1),
                    (high[i, k], top, value.max(), -1),
                ):
                    found = Fraction(float(found))
                    assert sign * (seen - found) >= 0
                    assert sign * (wanted - found) <= Fraction(1, 10**9) * size
                    nearer += sign * (found - wanted) > abs(seen - wanted) / 2
                continue
            near(low[i, k], bottom, size)
            near(high[i, k], top, size, below=False)
    return nearer


@pytest.mark.parametrize(("seed", "sharpness"), [*SHARP[:2], (0, 3.0)])
@pytest.mark.parametrize("n_heads", [1, 2])
def test_a_range_is_that_of_the_least_sum_over_the_worst_denominator(
    seed: int, sharpness: float, n_heads: int
) -> None:
    case = Case.of(seed, sharpness=sharpness, n_heads=n_heads)
    region = case.region(np.random.default_rng(seed))
    nearer = check_ranges(case, region, range(len(case.items)), case.x)
    assert nearer > 0 or sharpness != 3.0
    largest = max(abs(o).max() for o in map(case.outputs, range(len(case.items))))
    assert largest <= region.output_size.max() <= abs(case.x).max() * (1 + Fraction(1, 10**9))


def lengths(case: Case, item: int) -> Exacts:
    """|P x| of each string, x = W_O o + b_O."""
    w = case.rational.w
    seen = centred(case.outputs(item)[:, 0] @ w["W_O"][0] + w["b_O"])
    return np.array([root((each * each).sum()) for each in seen])


@pytest.mark.parametrize("seed", range(3))
def test_a_projective_view_is_taken_where_no_string_is_below_the_floor(seed: int) -> None:
    """There only the direction of P x matters; its ranges are those of u / (u · centre)."""
    made = Case.of(seed, ln_c=1e-6, scale=1.0)
    least = [float(lengths(made, item).min()) for item in range(len(made.items))]
    floor = float(np.median(least))
    seen = {}
    for c in (1e-6, floor):
        case = Case.of(seed, ln_c=c, scale=1.0)
        seen[c] = 0
        for items, region in case.region(np.random.default_rng(seed)).views():
            if region.unit:
                check_ranges(case, region, items, case.x)
                continue
            seen[c] += len(items)
            assert (np.array(least)[items] > c).all()
            check_ranges(case, region, items, case.projected)
            for i, item in enumerate(items):
                x, base = case.projected, exact(region.base[i])
                assert (base * base).sum() <= 1
                size = case.sums(item, x) / case.sums(item, (x * base).sum(-1))[..., None]
                assert (abs(size).max(0) <= exact(region.output_size[i])).all()
    assert seen[1e-6] > seen[floor] >= 0


def recipe(case: Case, item: int, d: Exacts, t: Exacts, c: Fraction) -> tuple[Exacts, Exacts, Any]:
    """The bound of each string, what it really is, and how large the numbers are.

    Of up to four heads r / Z at the worse end of Z; of others its middle, less what is off at most.
    """
    one = np.full(case.x.shape[:2], Fraction(1))
    heads = len(t)
    r, z = of_heads(case, item, case.x, d, t, one)
    shared = r + z * (c + t.sum()) / heads  # what is left over, on each head
    low, high = z.min(0), z.max(0)
    size = abs(d * case.x).sum() + abs(c) + (abs(shared).max(0) / low).sum()
    true = (r / z).sum(1) + t.sum() + c
    if heads == 1:
        return shared[:, 0].min() / np.array([low[0], high[0]]), true, size
    every = [case.sums(i, one) for i in range(len(case.items))]
    width = [max(float(1 / z[:, h].min() - 1 / z[:, h].max()) for z in every) for h in range(heads)]
    total = 0 * true
    for h in range(heads):
        if h in np.argsort(width)[-4:]:
            total = total + np.minimum(shared[:, h] / low[h], shared[:, h] / high[h])
        else:
            middle, half = (1 / low[h] + 1 / high[h]) / 2, (1 / low[h] - 1 / high[h]) / 2
            total = total + middle * shared[:, h] - half * abs(shared[:, h]).max()
    return total, true, size


HEADS = [(1, {}), (2, {}), (3, {"state": "position"}), (5, {})]


@pytest.mark.parametrize(("n_heads", "fields"), HEADS, ids=str)
@pytest.mark.parametrize("sharpness", [1.0, 10.0])
def test_the_least_of_a_linear_bound_is_that_of_its_recipe(
    n_heads: int, fields: dict[str, Any], sharpness: float
) -> None:
    case = Case.of(n_heads, n_heads=n_heads, sharpness=sharpness, **fields)
    rng, n = np.random.default_rng(n_heads), len(case.items)
    region = case.region(rng)
    directions, constant = rng.normal(size=(n, K, *case.x.shape[1:])), rng.normal(size=(n, K))
    constant -= region.at_centre(directions) * (np.arange(K) % 2)  # near 0 at the centre
    finite = np.arange(n) > 0
    for _ in range(2):
        bound = LinearBound(directions, constant, np.ones(n), np.ones(n), finite)
        found = minimise_bound(region, bound)
        for item, k in itertools.product(range(n), range(K)):
            d, c = exact(directions[item, k]), Fraction(float(constant[item, k]))
            t = (d * exact(region.centre[item])).sum(-1)
            bounds, true, size = recipe(case, item, d, t, c)
            assert bounds.min() <= true.min()
            if not finite[item]:
                assert found.values[item, k] == -np.inf
                continue
            near(found.values[item, k], bounds.min(), size)
            mine = np.flatnonzero(found.columns.item == item).reshape(K, -1)[k]
            below = mine[found.least[mine] < found.threshold[mine]]
            assert len(below) or bounds.min() >= -size / 10**9
            assert not len(below) or bounds.min() <= size / 10**9
            assert {*found.negative(item)} & {*mine} == {*below}
        # now near what is taken for heads without a pattern of their own, of which the sign depends
        taken = found.threshold.reshape(n, K, -1)[:, :, 0]
        constant = constant - np.where(finite[:, None], found.values, 0) - taken / 2


@pytest.mark.parametrize(("n_heads", "fields"), HEADS, ids=str)
def test_of_what_overflows_nothing_is_known(n_heads: int, fields: dict[str, Any]) -> None:
    case = Case.of(n_heads, n_heads=n_heads, **fields)
    rng, n = np.random.default_rng(n_heads), len(case.items)
    region, one = case.region(rng), np.ones(n)
    directions, constant = rng.normal(size=(n, K, *case.x.shape[1:])), rng.normal(size=(n, K))
    directions[0] = 1.5e308 * np.sign(directions[0])  # finite; its products are not
    with np.errstate(over="ignore", invalid="ignore"):
        found = minimise_bound(region, LinearBound(directions, constant, one, one, one > 0))
    assert (found.values[0] == -np.inf).all()
    assert found.finite.tolist() == [False] + [True] * (n - 1)
    # so every string of it may be below, and what is run is a string of its
    assert len(found.negative(0)) == (found.columns.item == 0).sum()
    graph = case.attention.graph
    for paths, worst in zip(case.paths, found.worst_paths(np.arange(n)), strict=True):
        symbols = [s for s in graph.symbols_on(worst[None])[0] if s < len(graph.symbols.tokens)]
        assert symbols in paths
