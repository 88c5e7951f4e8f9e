"""How many strings lose, against counting them: exactly, or within bounds that say something."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from tests.certify.exact.rational import Rational
from tests.certify.exact.test_paths import listed
from tests.certify.oracles import free, random_rnn
from tl_dyck.certify import Duplicate, PerturbationSpace, Substitute
from tl_dyck.certify.exact import loss_counts, mass
from tl_dyck.certify.exact.attention import AttentionWeights
from tl_dyck.certify.exact.graph import NO_GROUP, StringGraph
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.loss_counts import count_losing, paths_to_go
from tl_dyck.certify.exact.mass import Mass
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives

SPACE = PerturbationSpace([(Substitute({0: [1, 2], 3: [4]}), 2), (Duplicate(), 1)])
STRING = (0, 3, 0, 1)


def graph_of(lattice: str, **fields: object) -> StringGraph:
    lattices = {"free": free((0, 0, 0, 5), words=3), "edits": SPACE.lattice(STRING)}
    return build_graph(Network(random_rnn(0, bos_token=6, **fields)), lattices[lattice])


def emissions(graph: StringGraph, group: int) -> list[list[int]]:
    """Every path of a group, as emissions, by plain recursion."""

    def walk(node: int) -> list[list[int]]:
        found: list[list[int]] = [[]] if node in graph.finals else []
        for arc in range(graph.arc_start[node], graph.arc_start[node + 1]):
            bundle = graph.arc_bundle[arc]
            if graph.bundle_group[bundle] in (NO_GROUP, group):
                tails = walk(int(graph.arc_target[arc]))
                size = range(graph.bundle_start[bundle], graph.bundle_start[bundle + 1])
                found += [[each, *tail] for each in size for tail in tails]
        return found

    return walk(graph.root)


@pytest.mark.parametrize("lattice", ["free", "edits"])
@np.errstate(
    invalid="ignore"
)  # as where it is called: no path of the group may lead on from a node
def test_paths_are_counted_and_summed_as_when_listed(
    lattice: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With costs that are integers, so that many paths cost exactly what is asked."""
    graph, rng = graph_of(lattice), np.random.default_rng(0)
    for group in range(len(graph.groups)):
        paths, ways = emissions(graph, group), paths_to_go(graph, group)
        assert ways[graph.root] == len(paths)
        if not paths:
            continue
        mine = (graph.bundle_group == NO_GROUP) | (graph.bundle_group == group)
        for most in (1 << 13, 3):
            monkeypatch.setattr(loss_counts, "_MERGED", most)
            costs = rng.integers(-9, 10, size=len(graph.option)).astype(float)
            sums = np.array([costs[path].sum() for path in paths])
            for sign in (1.0, -1.0):
                ends = loss_counts._extreme_to_go(graph, mine, costs, sign)
                assert ends[graph.root] == sign * (sign * sums).min()
            for reach in (*np.quantile(sums, [0, 0.2, 0.5, 1]), sums.max() + 1, sums.min() - 1):
                for moved in (reach, reach + 0.5):
                    found = [
                        loss_counts._number_below(graph, mine, ways, costs, moved, up=up)
                        for up in (True, False)
                    ]
                    true, touching = (sums < moved).sum(), (sums <= moved).sum()
                    assert found[0] <= true <= touching <= found[1]
                    if most > 3:
                        assert found == [true, touching]


@np.errstate(invalid="ignore")
def test_more_strings_than_a_float_can_count_are_left_open(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 700 places, too many to be gone through, of which some lose."""
    monkeypatch.setattr(loss_counts, "_MOST", 1000)
    network, rng = Network(random_rnn(0, bos_token=6)), np.random.default_rng(0)
    graph = build_graph(network, free((0,) * 700, words=3))
    drawn = [(*row, 0) for row in rng.integers(0, 3, size=(9, 699)).tolist()]
    gap = Objectives(np.array([0]), np.array([1]), np.zeros(1))
    middle = np.median(network.values_of(drawn, gap).mid)
    asked = Objectives(gap.plus, gap.minus, -middle[None])
    found = count_losing(AttentionWeights(network, graph), Incumbent(network, graph, asked))
    every = sum(paths_to_go(graph, group)[graph.root] for group in range(len(graph.groups)))
    assert 0 <= found.low <= found.high == every > 2**1024


@pytest.mark.parametrize(
    ("lattice", "act_fn", "n_heads"),
    [("free", None, 1), ("free", "relu", 2), ("edits", None, 2), ("edits", "relu", 1)],
)
@np.errstate(invalid="ignore")
def test_what_loses_is_counted_by_any_way_of_counting(
    lattice: str, act_fn: str | None, n_heads: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Paths of which some objective is negative: two objectives, of which each loses on some."""
    fields = {"act_fn": act_fn, "n_heads": n_heads, "bos_token": 6}
    rnn = random_rnn(1, **fields)
    network, rational = Network(rnn), Rational(rnn)
    graph = build_graph(network, graph_of(lattice).lattice)
    tokens, logits, values, group = graph.symbols.tokens, {}, [], []
    for number, paths in enumerate(listed(graph)):
        for path in paths:
            string = tuple(tokens[path].tolist())
            if string not in logits:
                logits[string] = rational.logits(string)
            values.append(logits[string])
            group.append(number)
    gaps = np.array([[row[0] - row[1], row[0] - row[2]] for row in values])
    attention = AttentionWeights(network, graph)
    wide = 0
    for share in (0.0, 0.2, 1.0):
        at = [Fraction(np.quantile(gaps[:, k].astype(float), share)) for k in (0, 1)]
        at = [x + Fraction(1, 10**7) * (1 if share else -1) for x in at]
        lose = int((gaps < np.array(at)).any(1).sum())
        objectives = Objectives(np.zeros(2, int), np.array([1, 2]), -np.array(at, float))
        for few in (0, 256):  # by bounds alone, and by running parts
            monkeypatch.setattr(mass, "_FEW_STRINGS", few)
            by_parts, last = Mass(attention, Incumbent(network, graph, objectives)), None
            while last is None or last.low < last.high:
                before, last = last, by_parts.run(1)
                assert last.low <= lose <= last.high
                assert before is None or before.low <= last.low <= last.high <= before.high
            assert last == (lose, lose)
            assert Mass(attention, Incumbent(network, graph, objectives)).go_on() == last
        # of bounds that say nothing it ends, with all that is open
        with monkeypatch.context() as useless:
            useless.setattr(mass, "_FEW_STRINGS", 0)
            useless.setattr(mass, "_MOST_PARTS", 1)
            useless.setattr(Mass, "_least", lambda self, region, *_: np.array([[-np.inf]]))
            by_parts = Mass(attention, Incumbent(network, graph, objectives))
            assert by_parts.go_on() == (0, len(group))
            assert by_parts.open
        for most, listed_most in ((1 << 20, 50_000_000), (6, 50_000_000), (6, -1)):
            monkeypatch.setattr(loss_counts, "_MOST", most)
            monkeypatch.setattr(loss_counts, "_LISTED", listed_most)
            found = count_losing(attention, Incumbent(network, graph, objectives))
            assert found.low <= lose <= found.high
            if listed_most > 0:
                assert found == (lose, lose)
            elif act_fn is None and n_heads == 1 and lose:
                # of each group: of each objective alone, added up; one less, one more for rounding
                lost = gaps < np.array(at)
                each = np.array([lost[np.array(group) == g].sum(0) for g in set(group)])
                assert found.low >= (each.max(1) - 1).sum()
                assert found.high <= (each.sum(1) + 1).sum()
                wide += found.high > found.low
    assert wide or act_fn or n_heads > 1
