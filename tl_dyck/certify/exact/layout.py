"""How a `StringGraph` comes about: lattice times state machine, then closing arcs, then order.

1. `_Product`: every option of the lattice is read in every state that a string can be in there.
   That gives the nodes (level, code of the budget spent, state), and arcs that share bundles.
2. `_add_closing`, `_add_silent`: every emission after which a string may end is copied into a
   closing bundle, one per last symbol; behind it stand nodes without states, from which only
   options that emit nothing lead on.
3. `ordered`: nodes are numbered by level, arcs sorted by source, emissions by bundle.
"""

from __future__ import annotations

from typing import NamedTuple, final

import numpy as np
import torch

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import IntArray
from tl_dyck.certify.exact.graph import NO_GROUP, PREFIX, StringGraph, ranges, unique_columns
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.lattice import MOST_NODES, Lattice, SpaceTooLargeError

_MOST_NODES = 4 * MOST_NODES
"""With states; how many there are of each (level, code) is known only when they are laid out."""


class _Parts(NamedTuple):
    """The graph before closing arcs, with raw symbols; nodes are numbered level by level."""

    node_level: IntArray
    node_code: IntArray
    option: IntArray
    tokens: IntArray  # [E, longest]; -1 pads
    states: IntArray  # [E, longest]
    bundle: IntArray  # [E]
    source: IntArray
    target: IntArray
    arc_bundle: IntArray


def build_graph(
    network: Network, lattice: Lattice, deadline: Deadline | None = None
) -> StringGraph:
    """Lay out all strings of a lattice for a network.

    Raises:
        SpaceTooLargeError: the budgets are too large, see `Lattice.check_size`; before anything is
            laid out.
        OutOfTime: the deadline has passed; looked at level by level.
    """
    lattice.check_size()
    deadline = deadline or Deadline()
    parts = _Product(network, lattice, deadline).run()
    deadline.check()
    return _assemble(network, lattice, parts, deadline)


class _Product:
    """The product of the lattice and the state machine, one level at a time."""

    def __init__(self, network: Network, lattice: Lattice, deadline: Deadline) -> None:
        self.network, self.lattice, self.deadline = network, lattice, deadline
        deadline.check()
        self.after = _codes_after(lattice)
        source, target, kind, _, _, emits = zip(*lattice.options, strict=True)
        self.source, self.target, self.kind = map(np.array, (source, target, kind))
        self.length = np.array([len(tokens) for tokens in emits])
        self.longest = max(1, len(network.prefix), int(self.length.max()))
        self.emits = np.full((len(emits), self.longest), -1, dtype=np.int64)
        self.emits[np.arange(self.longest) < self.length[:, None]] = [
            token for tokens in emits for token in tokens
        ]

    def run(self) -> _Parts:
        stateless = self.network.below is None and self.network.config.state == "none"
        return self._stateless() if stateless else self._stateful()

    def _stateless(self) -> _Parts:
        """Without states nothing has to be followed: every level has a node for every code."""
        lattice, codes = self.lattice, self.lattice.n_codes
        kinds = self.after.shape[1]
        # options that differ in nothing but what they emit share a bundle: one number for (from,
        # to, kind)
        key = (self.source * (lattice.last_level + 1) + self.target) * kinds + self.kind + 1
        unique, bundle = np.unique(key, return_inverse=True)
        kind, levels = unique % kinds, unique // kinds
        bundle_source, bundle_target = (
            levels // (lattice.last_level + 1),
            levels % (lattice.last_level + 1),
        )
        after = self.after[:, kind]  # [codes, bundles]
        code, which = np.nonzero(
            after >= 0
        )  # an arc for each code that has budget left for the bundle
        return _Parts(
            node_level=np.repeat(np.arange(lattice.last_level + 1), codes),
            node_code=np.tile(np.arange(codes), lattice.last_level + 1),
            option=np.arange(len(lattice.options)),
            tokens=self.emits,
            states=np.zeros_like(self.emits),
            bundle=bundle,
            source=bundle_source[which] * codes + code,
            target=bundle_target[which] * codes + after[code, which],
            arc_bundle=which,
        )

    def _stateful(self) -> _Parts:
        """Level by level: the (code, state) pairs that arrive there are its nodes.

        They say what arrives further on.
        """
        lattice = self.lattice
        arriving: list[list[IntArray]] = [[] for _ in range(lattice.last_level + 1)]
        arriving[0].append(np.array([[0], [self._start_state()]]))
        nodes: list[tuple[IntArray, IntArray]] = []
        rows: list[tuple[IntArray, ...]] = []
        arcs: list[tuple[IntArray, ...]] = []
        n_bundles = n_nodes = 0
        for level in range(lattice.last_level + 1):
            self.deadline.check()
            code, state = unique_columns(np.concatenate(arriving[level], axis=1))[0]
            nodes.append((code, state))
            options = np.array(lattice.options_from[level], dtype=np.int64)
            if len(options):
                here, which = np.unique(state, return_inverse=True)
                read, (before, kind, ends, states) = self._read(options, here)
                after = self.after[code][:, kind]  # [nodes, bundles]
                # a node takes the bundles that were read in its state and that it has budget for
                node, bundle = np.nonzero((which[:, None] == before) & (after >= 0))
                new, target, reached = after[node, bundle], ends[bundle], states[bundle]
                # no budget is left for some bundles: they go, and with them states that no string
                # reaches
                kept, bundle = np.unique(bundle, return_inverse=True)
                renumbered = np.full(len(kind), -1)
                renumbered[kept] = np.arange(len(kept))
                live = renumbered[read[3]] >= 0
                rows.append(
                    (*(part[live] for part in read[:3]), renumbered[read[3][live]] + n_bundles)
                )
                arcs.append((node + n_nodes, target, new, reached, bundle + n_bundles))
                for end in np.unique(target):
                    arriving[end].append(np.stack([new, reached])[:, target == end])
                n_bundles += len(kept)
            n_nodes += len(code)
            if n_nodes > _MOST_NODES:
                raise SpaceTooLargeError(
                    f"the graph of the space has more than {_MOST_NODES:,} nodes after {level + 1} "
                    f"of {lattice.last_level + 1} places; lower the budgets or shorten the string."
                )
        level_of = np.repeat(np.arange(len(nodes)), [len(code) for code, _ in nodes])
        code, state = (np.concatenate(part) for part in zip(*nodes, strict=True))
        option, tokens, states, row_bundle = (
            np.concatenate(part) for part in zip(*rows, strict=True)
        )
        source, target, new, reached, arc_bundle = (
            np.concatenate(part) for part in zip(*arcs, strict=True)
        )
        # every arc's end is among the nodes: match the two lists
        both = np.stack(
            [np.concatenate(pair) for pair in ((level_of, target), (code, new), (state, reached))]
        )
        _, which_node = unique_columns(both)
        number = np.empty(len(level_of), dtype=np.int64)
        number[which_node[: len(level_of)]] = np.arange(len(level_of))
        found = number[which_node[len(level_of) :]]
        return _Parts(level_of, code, option, tokens, states, row_bundle, source, found, arc_bundle)

    def _start_state(self) -> int:
        state = self.network.machine.start_state
        for token in self.network.prefix:
            state = int(self.network.machine.next_state(state, token))
        return state

    def _read(
        self, options: IntArray, here: IntArray
    ) -> tuple[
        tuple[IntArray, IntArray, IntArray, IntArray], tuple[IntArray, IntArray, IntArray, IntArray]
    ]:
        """Read every option in every state.

        Returns:
            Emissions: option, tokens, states, bundle. Bundles: index of the state before, kind + 1,
            level after, state after.
        """
        # one row per (state, option), states outside
        tokens = np.tile(self.emits[options], (len(here), 1))
        before = np.repeat(here, len(options))
        states, state = np.zeros_like(tokens), before
        length = np.tile(self.length[options], len(here))
        for j in range(int(length.max(initial=0))):
            rows = np.flatnonzero(length > j)
            new = self.network.machine.next_state(
                torch.from_numpy(state[rows]), torch.from_numpy(tokens[rows, j])
            )
            state = state.copy()
            state[rows] = states[rows, j] = new.numpy()
        kind, target = (
            np.tile(self.kind[options] + 1, len(here)),
            np.tile(self.target[options], len(here)),
        )
        at = np.repeat(np.arange(len(here)), len(options))
        # emissions share a bundle if they cannot be told apart before and after: [4, rows]
        key = np.stack([at, kind, target, state])
        unique, bundle = unique_columns(key)
        return (np.tile(options, len(here)), tokens, states, bundle), tuple(unique)


@final
class Draft:
    """Emissions, bundles and arcs as they are collected; bundles count within each addition."""

    def __init__(self, longest: int, padding: int) -> None:
        self.longest, self.padding = longest, padding
        self.option: list[IntArray] = []
        self.emits: list[IntArray] = []
        self.bundle: list[IntArray] = []
        self.group: list[IntArray] = []
        self.arcs: list[tuple[IntArray, IntArray, IntArray]] = []
        self.n_bundles = 0

    def add(
        self,
        option: IntArray,
        emits: IntArray,
        bundle: IntArray,
        arcs: tuple[IntArray, IntArray, IntArray],
        group: IntArray | None = None,
    ) -> None:
        """Add emissions, each with option, symbols, bundle, and arcs as (source, target, bundle).

        `group` holds the last symbol of each bundle if these are closing.
        """
        n = int(bundle.max(initial=-1)) + 1
        self.option.append(option)
        self.emits.append(emits)
        self.bundle.append(bundle + self.n_bundles)
        self.group.append(np.full(n, NO_GROUP) if group is None else group)
        self.arcs.append((arcs[0], arcs[1], arcs[2] + self.n_bundles))
        self.n_bundles += n


def _assemble(network: Network, lattice: Lattice, parts: _Parts, deadline: Deadline) -> StringGraph:
    """Tabulate the symbols, add the prefix and the closing arcs, and put everything in order."""
    before = torch.tensor(network.prefix, dtype=torch.int64)  # stands before every string
    prefix_tokens, prefix_states = before.numpy(), network.machine.states(before[None])[0].numpy()
    # symbols are the distinct (token, state) pairs; emissions become rows of their indices, padded
    used = parts.tokens >= 0
    tokens = np.concatenate([parts.tokens[used], prefix_tokens])
    states = np.concatenate([parts.states[used], prefix_states])
    symbols, index = unique_columns(np.stack([tokens, states]))
    padding = symbols.shape[1]
    emits = np.full(parts.tokens.shape, padding)
    emits[used] = index[: len(index) - len(prefix_tokens)]
    prefix = np.full((1, parts.tokens.shape[1]), padding)
    prefix[0, : len(prefix_tokens)] = index[len(index) - len(prefix_tokens) :]

    # Nodes: those of the product, a root before the prefix, and (level, code) after the closing
    # arc.
    draft = Draft(parts.tokens.shape[1], padding)
    draft.add(parts.option, emits, parts.bundle, (parts.source, parts.target, parts.arc_bundle))
    start = np.flatnonzero((parts.node_level == 0) & (parts.node_code == 0))
    root = start if not len(prefix_tokens) else np.array([len(parts.node_level)])
    closed = _ClosedNodes(lattice, first=len(parts.node_level) + bool(len(prefix_tokens)))
    zero = np.zeros(1, dtype=np.int64)
    if len(prefix_tokens):
        draft.add(zero + PREFIX, prefix, zero, (root, start, zero))
    _add_closing(draft, lattice, parts, closed)
    deadline.check()
    _add_silent(draft, lattice, closed)
    deadline.check()
    if len(prefix_tokens) and closed.open[0]:  # everything can be deleted
        last = prefix[:, len(prefix_tokens) - 1]
        draft.add(zero + PREFIX, prefix, zero, (root, closed.node(zero, zero), zero), last)
    level = np.concatenate([parts.node_level, np.full(len(prefix_tokens[:1]), -1), closed.levels()])
    finals = closed.node(np.full(lattice.n_codes, lattice.last_level), np.arange(lattice.n_codes))
    return ordered(network, lattice, symbols, draft, level, int(root[0]), finals)


@final
class _ClosedNodes:
    """The nodes after a closing arc: one per code, at each level where nothing must follow."""

    def __init__(self, lattice: Lattice, first: int) -> None:
        self.first, self.codes = first, lattice.n_codes
        self.open = np.zeros(lattice.last_level + 1, dtype=bool)
        self.open[-1] = True
        for option in reversed(lattice.options):
            if not option.emits and self.open[option.target]:
                self.open[option.source] = True
        self.index = np.cumsum(self.open) - 1

    def node(self, level: IntArray, code: IntArray) -> IntArray:
        return self.first + self.index[level] * self.codes + code

    def levels(self) -> IntArray:
        return np.repeat(np.flatnonzero(self.open), self.codes)


def _add_closing(draft: Draft, lattice: Lattice, parts: _Parts, closed: _ClosedNodes) -> None:
    """Copy every emission after which the string may end.

    There is one bundle per original bundle and last symbol.
    """
    emits, bundle = draft.emits[0], draft.bundle[0]
    lengths = (emits < draft.padding).sum(1)
    target = np.array([o.target for o in lattice.options], dtype=np.int64)[parts.option]
    rows = np.flatnonzero((lengths > 0) & closed.open[target])
    if not len(rows):
        return
    (kept, last), which = unique_columns(np.stack([bundle[rows], emits[rows, lengths[rows] - 1]]))
    # each new bundle has the arcs of the one it copies, but they end behind the closing arc
    order = np.argsort(parts.arc_bundle, kind="stable")
    counts = np.bincount(parts.arc_bundle, minlength=draft.n_bundles)
    begin = np.cumsum(counts) - counts
    arc = order[ranges(begin[kept], counts[kept])]
    reached = parts.target[arc]
    ends = closed.node(parts.node_level[reached], parts.node_code[reached])
    of_bundle = np.repeat(np.arange(len(kept)), counts[kept])
    draft.add(parts.option[rows], emits[rows], which, (parts.source[arc], ends, of_bundle), last)


def _add_silent(draft: Draft, lattice: Lattice, closed: _ClosedNodes) -> None:
    """Options that emit nothing, after the closing arc."""
    silent = [i for i, o in enumerate(lattice.options) if not o.emits and closed.open[o.target]]
    if silent:
        source, target, kind = np.array([lattice.options[i][:3] for i in silent]).T
        after = _codes_after(lattice)[:, kind + 1].T  # [silent, codes]
        bundle, code = np.nonzero(after >= 0)
        source, target, new = source[bundle], target[bundle], after[bundle, code]
        emits = np.full((len(silent), draft.longest), draft.padding)
        ends = (closed.node(source, code), closed.node(target, new), bundle)
        draft.add(np.array(silent), emits, np.arange(len(silent)), ends)


def _codes_after(lattice: Lattice) -> IntArray:
    """`Lattice.after` of every code and kind, [n_codes, kinds + 1], KEEP first.

    It is -1 where the budget is spent.
    """
    codes = np.arange(lattice.n_codes)
    columns = [codes]
    for stride, budget in zip(lattice.strides, lattice.budgets, strict=True):
        columns.append(np.where(codes // stride % (budget + 1) == budget, -1, codes + stride))
    return np.stack(columns, axis=1)


def ordered(
    network: Network,
    lattice: Lattice,
    symbols: IntArray,
    draft: Draft,
    level: IntArray,
    root: int,
    finals: IntArray,
) -> StringGraph:
    """Number nodes by level, arcless ones first; sort arcs by source, emissions by bundle."""
    source, target, arc_bundle = (np.concatenate(part) for part in zip(*draft.arcs, strict=True))
    n = len(level)
    has_arcs = np.zeros(n, dtype=bool)
    has_arcs[source] = True
    order = np.lexsort((level, has_arcs))  # new number -> old: nodes without arcs, then by level
    number = np.empty(n, dtype=np.int64)
    number[order] = np.arange(n)
    source, target = number[source], number[target]
    by_source = np.argsort(source, kind="stable")
    source, target, arc_bundle = source[by_source], target[by_source], arc_bundle[by_source]
    n_sinks = int(n - has_arcs.sum())
    level = level[order]
    # where a level begins among the nodes with arcs
    cuts = np.flatnonzero(np.diff(level[n_sinks:], prepend=level[n_sinks] - 1)) + n_sinks
    bundle, group = np.concatenate(draft.bundle), np.concatenate(draft.group)
    by_bundle = np.argsort(bundle, kind="stable")
    emits = np.concatenate(draft.emits)[by_bundle]
    groups, which = np.unique(group[group != NO_GROUP], return_inverse=True)
    group[group != NO_GROUP] = which
    return StringGraph(
        lattice=lattice,
        symbols=network.symbols(symbols[0], symbols[1]),
        groups=groups,
        n_nodes=n,
        n_sinks=n_sinks,
        root=int(number[root]),
        finals=number[finals],
        option=np.concatenate(draft.option)[by_bundle],
        emits=emits,
        lengths=(emits < symbols.shape[1]).sum(1),
        bundle_start=np.searchsorted(bundle[by_bundle], np.arange(draft.n_bundles + 1)),
        bundle_group=group,
        arc_source=source,
        arc_target=target,
        arc_bundle=arc_bundle,
        arc_start=np.searchsorted(source, np.arange(n + 1)),
        level_nodes=tuple(zip(cuts.tolist(), [*cuts[1:].tolist(), n], strict=True)),
    )
