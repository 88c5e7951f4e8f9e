"""Cells of outputs prove what is so, by every string, and more than one bound of all of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.certify.exact.test_linear import SPACE, STRING
from tests.certify.exact.test_paths import listed
from tests.certify.oracles import random_rnn
from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.balls import Ball
from tl_dyck.certify.exact.cells import Cells
from tl_dyck.certify.exact.columns import minimise_bound
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.readout import Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.objectives import Objectives

NORMS: dict[str, Any] = {"ln_final": "ln"}


@pytest.mark.parametrize(
    "fields", [{"act_fn": "gelu"}, {"act_fn": "relu", "ln2": "ln", **NORMS}, NORMS]
)
def test_what_cells_prove_is_so_on_every_string(fields: dict[str, Any]) -> None:
    """Of each part its least margin by every string; thresholds near it, on both sides."""
    seen = np.zeros(3, dtype=int)
    for seed in range(4):
        network = Network(random_rnn(seed, bos_token=6, state="position", **fields))
        graph = build_graph(network, SPACE.lattice(STRING))
        attention, objectives = AttentionWeights(network, graph), Objectives.margins(0, 3)
        among, value = network.unembedding(objectives), graph.symbols.value.mid
        least, centres, groups = [], [], []
        for group, paths in enumerate(listed(graph)):
            if paths:
                # what attention returns for each string, and the margins that the readout makes
                weights = [attention.weights[group, path][..., None] for path in paths]
                means = [
                    (weight * value[path]).sum(0) / weight.sum(0)
                    for weight, path in zip(weights, paths, strict=True)
                ]
                out = Ball.exact(np.array(means).reshape(len(means), -1))
                last = graph.symbols.r.at(graph.groups[np.full(len(means), group)])
                least.append(float(among.values(network.readout(last, out))[0].min()))
                centres.append(means[0])
                groups.append(group)
        region = Region.of_values(attention, Items(np.array(groups)), np.array(centres))
        r = graph.symbols.r.at(graph.groups[groups])
        asked = np.ones((1, 2), dtype=bool)
        for off in (-1.0, -0.3, -0.05, 1e-6, 0.05):
            for part, low in enumerate(least):
                one = region.take(np.array([part])), r.at(slice(part, part + 1)), among
                settled = Cells(network).settled(*one, asked.copy(), low + off)[0]
                bound = Readout(network, one[0], one[1]).lower(among, low + off)
                alone = (minimise_bound(one[0], bound).values >= 0).all()
                seen += [settled, settled and not alone, not settled]
                assert not (settled and off > 0)  # a string is below
    assert seen.min() > 3  # some are settled, some by cells alone, and some are not


def test_several_heads_are_left_to_splits_and_failures_make_cells_rare() -> None:
    network = Network(random_rnn(0, bos_token=6, n_heads=2, **NORMS))
    graph = build_graph(network, SPACE.lattice(STRING))
    attention = AttentionWeights(network, graph)
    items, centre = Items(np.zeros(1, dtype=np.int64)), np.zeros((1, 2, 3))
    region, asked = Region.of_values(attention, items, centre), np.ones((1, 2), dtype=bool)
    r, cells = graph.symbols.r.at(graph.groups[:1]), Cells(network)
    among = network.unembedding(Objectives.margins(0, 3))
    assert not cells.settled(region, r, among, asked, -1e9).any()
    assert cells.bounded == 0
    network = Network(random_rnn(0, bos_token=6, **NORMS))
    graph = build_graph(network, SPACE.lattice(STRING))
    region = Region.of_values(AttentionWeights(network, graph), items, centre[:, :1])
    cells, tried = Cells(network), []
    for _ in range(40):
        before = cells.bounded
        assert not cells.settled(region, r, among, asked.copy(), 1e3).any()
        tried.append(cells.bounded > before)
    assert np.flatnonzero(tried).tolist() == [0, 2, 6, 14, 30]
