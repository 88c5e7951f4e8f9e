"""The strings of some groups, or of a part of them, as a smaller graph.

A model with positions has a group for every length that strings can end at, and the paths of each
lie on few of the graph's nodes. Where many costs are to be swept, they are swept on those alone.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import BoolArray, IntArray
from tl_dyck.certify.exact.graph import NO_GROUP, StringGraph
from tl_dyck.certify.exact.paths import live


@final
@dataclass(frozen=True)
class Strings:
    """The strings of some groups of a graph that are made of allowed emissions.

    Attributes:
        graph: what they are paths of.
        groups: [n] their groups in it, in the order asked for.
        allowed: [E] the emissions that they may use; None for all.
        symbols: which symbols of the graph that they come from are its symbols.
    """

    graph: StringGraph
    groups: IntArray
    allowed: BoolArray | None
    symbols: IntArray | slice


def narrowed(graph: StringGraph, groups: IntArray, allowed: BoolArray | None) -> Strings:
    """The strings of groups, of which there is one at least, as paths of what is on any of them.

    A model with positions has groups for every length, and each is on few nodes. A graph that is
    mostly used is left as it is.
    """
    emissions, arcs = live(graph, groups, allowed)
    if 4 * emissions.sum() > 3 * len(emissions):
        return Strings(graph, groups, allowed, slice(None))
    bundles = np.logical_or.reduceat(emissions, graph.bundle_start[:-1])
    nodes = np.zeros(graph.n_nodes, dtype=bool)
    nodes[graph.root] = nodes[graph.arc_target[arcs]] = True
    node, bundle = (np.append(0, np.cumsum(kept)) for kept in (nodes, bundles))  # their new numbers
    group, which = np.unique(groups, return_inverse=True)
    of_group = graph.bundle_group[bundles]
    of_group = np.where(of_group == NO_GROUP, NO_GROUP, np.searchsorted(group, of_group))
    symbols, emits = np.unique(graph.emits[emissions], return_inverse=True)
    symbols = symbols[symbols < len(graph.symbols.tokens)]  # what pads comes last here too
    source = node[graph.arc_source[arcs]]
    of_bundle = np.repeat(bundle[:-1], np.diff(graph.bundle_start))[emissions]
    levels = ((int(node[first]), int(node[last])) for first, last in graph.level_nodes)
    narrow = StringGraph(
        lattice=graph.lattice,
        symbols=graph.symbols.take(symbols),
        groups=np.searchsorted(symbols, graph.groups[group]),
        n_nodes=int(node[-1]),
        n_sinks=int(node[graph.n_sinks]),
        root=int(node[graph.root]),
        finals=node[graph.finals[nodes[graph.finals]]],
        option=graph.option[emissions],
        emits=emits.reshape(-1, graph.emits.shape[1]),
        lengths=graph.lengths[emissions],
        bundle_start=np.searchsorted(of_bundle, np.arange(bundle[-1] + 1)),
        bundle_group=of_group,
        arc_source=source,
        arc_target=node[graph.arc_target[arcs]],
        arc_bundle=bundle[graph.arc_bundle[arcs]],
        arc_start=np.searchsorted(source, np.arange(node[-1] + 1)),
        level_nodes=tuple((first, last) for first, last in levels if first < last),
    )
    return Strings(narrow, which, None, symbols)
