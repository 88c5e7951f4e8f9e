"""Ranges of the attention's output hold it on every string, whether or not signs are enough."""

from __future__ import annotations

import itertools
from dataclasses import replace

import numpy as np
import pytest

from tests.certify.exact.test_linear import SPACE, STRING
from tests.certify.exact.test_paths import listed
from tests.certify.oracles import STATES, random_rnn
from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import extremes
from tl_dyck.certify.exact.region import Region, _apart
from tl_dyck.certify.lattice import KEEP


@pytest.mark.parametrize("parted", [False, True])
@pytest.mark.parametrize("n_heads", [1, 2])
@pytest.mark.parametrize("state", STATES)
def test_ranges_hold_every_string_and_signs_are_those_of_best_ranges(
    state: str, n_heads: int, parted: bool
) -> None:
    network = Network(random_rnn(0, state=state, n_heads=n_heads, bos_token=6))
    graph = build_graph(network, SPACE.lattice(STRING))
    attention, rng, groups = AttentionWeights(network, graph), np.random.default_rng(0), []
    kinds = np.array([*(option.kind for option in graph.lattice.options), KEEP])
    allowed = (kinds[graph.option] == KEEP) | (rng.random(len(graph.option)) < 0.7) | (not parted)
    outputs = []
    for group, paths in enumerate(listed(graph, allowed)):
        if paths:
            weight = [attention.weights[group, path][..., None] for path in paths]
            values = [graph.symbols.value.mid[path] for path in paths]
            sums = [(w * v).sum(0) / w.sum(0) for w, v in zip(weight, values, strict=True)]
            outputs.append(np.array(sums))
            groups.append(group)
    items = Items(np.array(groups), np.stack([allowed] * len(groups), 1) if parted else None)
    region = Region.of_values(attention, items, np.array([each[0] for each in outputs]))
    directions = rng.normal(size=(1, 40, *outputs[0].shape[1:]))
    offsets = rng.normal(size=(1, 40)) - region.at_centre(directions).mean(0)
    best, enough = region.ranges(directions), region.ranges(directions, offsets)
    quick = replace(region, quick=True)
    for low, high in (best, enough, quick.ranges(directions, offsets)):
        for item, each in enumerate(outputs):
            seen = np.einsum("khe,she->sk", directions[0], each)
            assert (low[item] <= seen).all()
            assert (seen <= high[item]).all()
    # of groups at once the same, but wider; of one alone what its own least and greatest sums say
    for head, (item, d) in itertools.product(range(n_heads), enumerate(directions[0, :4])):
        own, d = np.array([item % len(groups)]), d[[head]]
        alone, shared = (each._along(head, d)[:, own[0]] for each in (region, quick))
        assert (shared[0] <= alone[0] + 1e-12).all()
        assert (alone[1] <= shared[1] + 1e-12).all()
        t = d @ region.centre[own[0], head]
        costs = region._costs(own, head, graph.symbols.value.mid[:, head] @ d.T, t)
        ends = extremes(graph, costs, items.groups[own], allowed[:, None])
        if parted:
            assert np.allclose(shared, region._ends(own, head, d, t, *ends), rtol=0, atol=1e-9)
    # eight directions, their negatives, and ten that are none of these
    mirrored = np.concatenate([directions[:, :8], -directions[:, :8], directions[:, 8:18]], 1)
    few, which, sign = _apart(mirrored[0])
    assert len(few) == 18
    assert (sign[:8] * sign[8:16] == -1).all()
    every = np.arange(26)
    same = (every, every, np.ones(26)), (few, which, sign)
    alone, shared = (region._of_others(mirrored, *how) for how in same)
    assert np.allclose(region.ranges(mirrored), alone, rtol=0, atol=1e-12)
    assert np.allclose(shared, alone, rtol=0, atol=1e-12)
    # whatever is taken for another one's negative, what is said of it is true
    low, high = region._of_others(directions, np.arange(2), np.arange(40) % 2, -np.ones(40))
    for item, each in enumerate(outputs):
        seen = np.einsum("khe,she->sk", directions[0], each)
        assert (low[item] <= seen).all()
        assert (seen <= high[item]).all()
    signs = [(low + offsets >= 0) * 1 - (high + offsets <= 0) * 1 for low, high in (best, enough)]
    # a box may show a sign that the best range of one direction does not: its axes are others
    assert (signs[1] == signs[0])[signs[0] != 0].all()
    same = np.isclose(best, enough, rtol=0, atol=1e-12).all(0)
    assert same[signs[1] == 0].all()
    assert not same.all()


def test_a_box_holds_what_its_axes_leave_of_a_direction() -> None:
    """Along one axis of three, and along axes that are not quite at right angles."""
    network = Network(random_rnn(0, bos_token=6))
    graph = build_graph(network, SPACE.lattice(STRING))
    attention, rng = AttentionWeights(network, graph), np.random.default_rng(0)
    whole = attention.axes
    directions = rng.normal(size=(1, 40, *whole.shape[:2]))
    paths = [(group, path) for group, each in enumerate(listed(graph)) for path in each]
    weights = [attention.weights[group, path][..., None] for group, path in paths]
    values = [graph.symbols.value.mid[path] for _, path in paths]
    means = np.array([(w * v).sum(0) / w.sum(0) for w, v in zip(weights, values, strict=True)])
    groups = np.array([group for group, _ in paths])
    few = np.unique(groups)
    centre = np.array([means[groups == group][0] for group in few])
    seen = np.einsum("khe,she->sk", directions[0], means)
    for axes in (whole[:, :1], whole + 0.05 * rng.normal(size=whole.shape)):
        attention.__dict__["axes"] = axes
        region = Region.of_values(attention, Items(few), centre)
        low, high = region._boxed(directions[0])
        item = np.searchsorted(few, groups)
        assert (low[item] <= seen).all()
        assert (seen <= high[item]).all()
