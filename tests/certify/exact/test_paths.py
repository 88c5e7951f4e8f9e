"""The graph of a space holds its strings; shortest paths over it agree with listing them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import STATES, free, random_rnn, spaces, strings_of, tokens
from tl_dyck.certify import Delete, Duplicate, PerturbationSpace, Substitute
from tl_dyck.certify.exact import paths as paths_module
from tl_dyck.certify.exact.graph import StringGraph, side_by_side
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import (
    count_paths,
    emission_costs,
    enumerate_below,
    extremes,
    sweep,
)


def symbols_of(graph: StringGraph, path: np.ndarray) -> list[int]:
    flat = graph.emits[path[path >= 0]].ravel()
    return flat[flat < len(graph.symbols.tokens)].tolist()


def listed(graph: StringGraph, allowed: Any = None) -> list[list[list[int]]]:
    """Per group, every path as symbols: the graph walked by plain recursion."""

    def walk(node: int, group: int) -> list[list[int]]:
        found = [[]] if node in graph.finals else []
        for arc in range(graph.arc_start[node], graph.arc_start[node + 1]):
            bundle = graph.arc_bundle[arc]
            if graph.bundle_group[bundle] not in (-1, group):
                continue
            tails = walk(int(graph.arc_target[arc]), group)
            for emission in range(graph.bundle_start[bundle], graph.bundle_start[bundle + 1]):
                if allowed is not None and not allowed[emission]:
                    continue
                head = graph.emits[emission][: graph.lengths[emission]].tolist()
                found += [head + tail for tail in tails]
        return found

    return [walk(graph.root, group) for group in range(len(graph.groups))]


@settings(max_examples=60)
@given(
    recipe=spaces(max_budget=1),
    string=tokens(4),
    state=st.sampled_from(STATES),
    bos=st.sampled_from([None, 6]),
    seed=st.integers(0, 99),
)
def test_the_graph_is_the_space(
    recipe: Any, string: tuple[int, ...], state: str, bos: int | None, seed: int
) -> None:
    space, rnn = recipe.build(), random_rnn(0, state=state, bos_token=bos)
    network, lattice = Network(rnn), space.lattice(string)
    graph = build_graph(network, lattice)
    groups = np.arange(len(graph.groups))
    every = listed(graph)
    assert count_paths(graph, groups).tolist() == [len(paths) for paths in every]
    empty = () in set(space.enumerate(string)) and bos is None
    assert bool(empty) or sum(map(len, every)) == lattice.n_edit_paths()

    found = set()
    for group, paths in enumerate(every):
        for path in paths:
            assert path[-1] == graph.groups[group]
            full = tuple(graph.symbols.tokens[path].tolist())
            assert (
                rnn.states(torch.tensor([full]))[0].tolist() == graph.symbols.states[path].tolist()
            )
            found.add(full[len(network.prefix) :])
    assert sorted(found) == strings_of(rnn, space, string)

    costs = np.random.default_rng(seed).normal(size=(len(graph.symbols.tokens), len(groups)))
    swept = sweep(graph, emission_costs(graph, costs, groups))
    sums = [
        np.array([costs[path, group].sum() for path in paths]) for group, paths in enumerate(every)
    ]
    for group in groups:
        if not len(sums[group]):
            assert swept.least[group] == np.inf
            continue
        assert swept.least[group] == pytest.approx(sums[group].min())
        best = symbols_of(graph, swept.paths(np.array([group]))[0])
        assert best in every[group]
        assert costs[best, group].sum() == pytest.approx(sums[group].min())
        low, high = extremes(graph, costs, int(group))
        assert low[group] == pytest.approx(sums[group].min())
        assert high[group] == pytest.approx(sums[group].max())
        threshold = float(np.median(sums[group])) + 1e-9
        below = enumerate_below(swept, int(group), threshold, 10**6)
        assert below is not None
        wanted = sorted(
            path
            for path, total in zip(every[group], sums[group], strict=True)
            if total <= threshold
        )
        assert sorted(symbols_of(graph, path) for path in below) == wanted
        if len(wanted) > 1:
            assert enumerate_below(swept, int(group), threshold, len(wanted) - 1) is None


def graph_of(space: PerturbationSpace, string: tuple[int, ...], **fields: Any) -> StringGraph:
    return build_graph(Network(random_rnn(0, **fields)), space.lattice(string))


def test_forbidden_emissions_are_on_no_path() -> None:
    graph = graph_of(
        PerturbationSpace([(Substitute({0: [1], 2: [3]}), 2), (Duplicate(), 1)]), (0, 2)
    )
    groups = np.arange(len(graph.groups))
    rng = np.random.default_rng(0)
    allowed = rng.random((len(graph.option), len(groups))) < 0.7
    costs = rng.normal(size=(len(graph.symbols.tokens), len(groups)))
    swept = sweep(graph, emission_costs(graph, costs, groups, allowed))
    counts = count_paths(graph, groups, allowed)
    for group in groups:
        paths = enumerate_below(swept, int(group), np.inf, 10**6)
        assert paths is not None
        assert len(paths) == counts[group]
        assert (counts[group] > 0) == np.isfinite(swept.least[group])
        used = paths[paths >= 0]
        assert allowed[used, group].all()
        for by in (0, 9, -9):  # what is forbidden is not 0 either
            low, high = extremes(graph, costs + by, groups, allowed)
            if len(paths):
                sums = [(costs + by)[symbols_of(graph, path), group].sum() for path in paths]
                assert (low[group], high[group]) == pytest.approx((min(sums), max(sums)))


@pytest.mark.parametrize("sizes", [[2, 2, 2], [1, 2, 2, 3], [1, 1, 9, 1, 7, 1, 2, 3]], ids=str)
def test_segments_side_by_side_hold_their_entries_and_few_others(sizes: list[int]) -> None:
    ends = np.cumsum([3, *sizes])
    found = {}
    for which, entries, most in side_by_side(ends):
        for each, row in zip(which.tolist(), entries.reshape(most, -1).T.tolist(), strict=True):
            found[each] = row
    assert {i: sorted({*row}) for i, row in found.items()} == {
        i: list(range(ends[i], ends[i + 1])) for i in range(len(sizes))
    }
    assert sum(map(len, found.values())) <= 2 * sum(sizes)


@pytest.mark.parametrize("state", ["none", "position"])
def test_many_columns_are_computed_like_few(state: str) -> None:
    """Each is computed again by itself."""
    space = PerturbationSpace(
        [(Substitute({0: [1, 3], 2: [3]}), 2), (Duplicate(), 1), (Delete([1]), 1)]
    )
    graph = graph_of(space, (0, 1, 2, 0), state=state)
    rng = np.random.default_rng(0)
    groups = rng.integers(0, len(graph.groups), 40)
    costs = rng.integers(-99, 99, (len(graph.symbols.tokens), 40)).astype(float)
    allowed = rng.random((len(graph.option), 40)) < 0.9
    many = sweep(graph, emission_costs(graph, costs, groups, allowed))
    for b in range(40):
        own = emission_costs(graph, costs[:, [b]], groups[[b]], allowed[:, [b]])
        assert many.costs.bundles[:, [b]].tolist() == own.bundles.tolist()
        assert many.to_go[:, [b]].tolist() == sweep(graph, own).to_go.tolist()
    some = np.flatnonzero(np.isfinite(many.least))
    for b, path in zip(some, many.paths(some), strict=True):
        (own_path,) = many.paths(np.array([b]))  # by itself, another way
        assert own_path.tolist() == path[: len(own_path)].tolist()
        assert (path[len(own_path) :] == -1).all()
        assert costs[symbols_of(graph, path), b].sum() == many.least[b]
        assert allowed[own_path, b].all()
    low, high = extremes(graph, costs, groups, allowed)
    ends = [extremes(graph, costs[:, [b]], groups[[b]], allowed[:, [b]]) for b in range(40)]
    assert [(x, y) for x, y in zip(low, high, strict=True)] == [(x[0], y[0]) for x, y in ends]


def test_counts_are_exact_up_to_where_they_are_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    space = PerturbationSpace([(Substitute({0: [1, 3], 2: [3]}), 2), (Duplicate(), 2)])
    graph = graph_of(space, (0, 1, 2, 0))
    groups = np.arange(len(graph.groups))
    exact = count_paths(graph, groups)
    for most in (1.0, 2.0, 7.0, 30.0):
        monkeypatch.setattr(paths_module, "MOST_COUNTED", most)
        assert count_paths(graph, groups).tolist() == np.minimum(exact, most).tolist()


def test_more_paths_than_float64_can_hold_are_counted_as_many() -> None:
    """6^500; and none where every emission is forbidden."""
    graph = build_graph(Network(random_rnn(0)), free((0,) * 501, words=6))
    groups = np.arange(len(graph.groups))
    assert (count_paths(graph, groups) == paths_module.MOST_COUNTED).all()
    none = np.zeros((len(graph.option), len(groups)), dtype=bool)
    assert not count_paths(graph, groups, none).any()
