"""How a `StringGraph` comes about: lattice times state machine, then closing arcs, then order.

1. `_product`: every option of the lattice is read in every state that a string can be in there.
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
    parts = _product(network, lattice, deadline)
    deadline.check()
    return _assemble(network, lattice, parts, deadline)


def _product(network: Network, lattice: Lattice, deadline: Deadline) -> _Parts:
    """The product of the lattice and the state machine: what arrives at a level are its nodes."""
    deadline.check()
    # the 4th and 5th, where it starts and ends in the original string, are for certificates
    source, target, kind, _, _, length = lattice.table
    emits, changes = _read(network, lattice)
    # after its last token; what emits nothing changes nothing
    moved = np.where(length > 0, changes[np.arange(len(length)), length - 1], 0)
    # options that differ in nothing but what they emit are one step
    steps, step_of = unique_columns(np.stack([source, target, kind, moved]))
    # a node of a level is one number, of code and state, to which a step adds the same anywhere
    start = network.start[1]
    # as if every step were taken: no state on any path is further from 0
    most = abs(start) + int(abs(steps[3]).sum())
    # states are -most … most, so that code · width + state + most is one number for each pair
    width = 2 * most + 1
    # kind KEEP is -1: entry 0, which spends nothing
    added = np.array([0, *lattice.strides])[steps[2] + 1] * width + steps[3]
    node_level, place, begin, step, end = (
        _reach(lattice, steps, added, start + most, width, deadline)
        if most
        else _reach_all(lattice, steps, added)
    )
    # a bundle is a step in a state
    (of_step, before), arc_bundle = unique_columns(np.stack([step, place[begin] % width - most]))
    order, count = np.argsort(step_of, kind="stable"), np.bincount(step_of)
    option = order[ranges((np.cumsum(count) - count)[of_step], count[of_step])]
    bundle = np.repeat(np.arange(len(of_step)), count[of_step])
    tokens = emits[option]
    states = np.where(tokens >= 0, before[bundle][:, None] + changes[option], 0)
    code = place // width
    return _Parts(node_level, code, option, tokens, states, bundle, begin, end, arc_bundle)


def _reach_all(lattice: Lattice, steps: IntArray, added: IntArray) -> tuple[IntArray, ...]:
    """As `_reach` where there is one state: every level has a node for every code, at once."""
    codes = lattice.n_codes
    # + 1 as above: column 0 is KEEP
    code, step = np.nonzero(_codes_after(lattice)[:, steps[2] + 1] >= 0)
    level = np.repeat(np.arange(lattice.last_level + 1), codes)
    begin, end = steps[0, step] * codes + code, steps[1, step] * codes + code + added[step]
    return level, np.tile(np.arange(codes), lattice.last_level + 1), begin, step, end


def _reach(
    lattice: Lattice, steps: IntArray, added: IntArray, start: int, width: int, deadline: Deadline
) -> tuple[IntArray, ...]:
    """Level by level: what arrives there are its nodes.

    Args:
        lattice: the strings.
        steps: [4, n] source, target, kind, change of the state; sorted.
        added: [n] what each adds to a node.
        start: the first node.
        width: a node is its code times this and its state.
        deadline: looked at at each level.

    Returns:
        Of nodes: the level, and which it is. Of arcs: the node before, the step, the node after.
    """
    after = _codes_after(lattice)
    first = np.searchsorted(steps[0], np.arange(lattice.last_level + 2)).tolist()
    arriving: list[list[IntArray]] = [[] for _ in range(lattice.last_level + 1)]
    arriving[0].append(np.array([start]))
    nodes: list[IntArray] = []
    arcs: list[tuple[IntArray, IntArray, IntArray]] = []
    n_nodes = 0
    for level in range(lattice.last_level + 1):
        deadline.check()
        # sorted, which `searchsorted` below relies on
        here = np.unique(np.concatenate(arriving[level]))
        nodes.append(here)
        # rows 1 and 2: the target and the kind
        leaving = steps[1:3, first[level] : first[level + 1]]
        node, step = np.nonzero(after[here // width][:, leaving[1] + 1] >= 0)  # budget is left
        reached = here[node] + added[first[level] + step]
        arcs.append((node + n_nodes, step + first[level], reached))
        for end in set(leaving[0].tolist()):
            arriving[end].append(reached[leaving[0, step] == end])
        n_nodes += len(here)
        if n_nodes > _MOST_NODES:
            raise SpaceTooLargeError(
                f"the graph of the space has more than {_MOST_NODES:,} nodes after {level + 1} "
                f"of {lattice.last_level + 1} places; lower the budgets or shorten the string."
            )
    node_level = np.repeat(np.arange(len(nodes)), [len(here) for here in nodes])
    place, all_codes = np.concatenate(nodes), lattice.n_codes * width
    begin, step, reached = (np.concatenate(part) for part in zip(*arcs, strict=True))
    # nodes are sorted by level, then by place: so level · all codes + place grows with their number
    end = np.searchsorted(node_level * all_codes + place, steps[1, step] * all_codes + reached)
    return node_level, place, begin, step, end


def _read(network: Network, lattice: Lattice) -> tuple[IntArray, IntArray]:
    """The tokens of each option, padded with -1, and what each changes the state by so far.

    Tokens add to the state of an RNN, the same in any state. (A layer below has other states.)
    """
    assert network.below is None
    # row 5 is the number of tokens; the prefix is an emission, too, and as wide as all
    length, longest = lattice.table[5], max(1, len(network.prefix))
    emits = np.full((len(length), max(longest, int(length.max()))), -1, dtype=np.int64)
    emits[np.arange(emits.shape[1]) < length[:, None]] = [
        token for option in lattice.options for token in option.emits
    ]
    if network.config.state == "none":
        return emits, np.zeros_like(emits)
    # padding is read as token 0, behind the option's own tokens, and never looked at
    states = network.rnn.states(torch.from_numpy(np.maximum(emits, 0))).numpy()
    return emits, states - network.rnn.start_state


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
    # stands before every string
    prefix_tokens, prefix_states = np.array(network.prefix, dtype=np.int64), network.start[0]
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
        # a bundle of its own, number 0 of this addition
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
    return ordered(network, lattice, symbols, draft, level, int(root[0]), finals, deadline)


@final
class _ClosedNodes:
    """The nodes after a closing arc: one per code, at each level where nothing must follow."""

    def __init__(self, lattice: Lattice, first: int) -> None:
        self.first, self.codes = first, lattice.n_codes
        self.open = np.zeros(lattice.last_level + 1, dtype=bool)
        self.open[-1] = True
        # From the last option backwards: a target is settled before its sources are asked.
        for source, target in lattice.table[:2, lattice.table[5] == 0].T[::-1].tolist():
            self.open[source] |= self.open[target]
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
    # draft.emits[0]: what was added first, the product's; the prefix closes by an arc of its own
    lengths = (emits < draft.padding).sum(1)
    target = lattice.table[1, parts.option]
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
    silent = np.flatnonzero((lattice.table[5] == 0) & closed.open[lattice.table[1]])
    if len(silent):
        source, target, kind = lattice.table[:3, silent]
        after = _codes_after(lattice)[:, kind + 1].T  # [silent, codes]
        bundle, code = np.nonzero(after >= 0)
        source, target, new = source[bundle], target[bundle], after[bundle, code]
        emits = np.full((len(silent), draft.longest), draft.padding)
        ends = (closed.node(source, code), closed.node(target, new), bundle)
        draft.add(silent, emits, np.arange(len(silent)), ends)


def _codes_after(lattice: Lattice) -> IntArray:
    """`Lattice.after` of every code and kind, [n_codes, kinds + 1], KEEP first.

    It is -1 where the budget is spent.
    """
    codes = np.arange(lattice.n_codes)
    columns = [codes]
    for stride, budget in zip(lattice.strides, lattice.budgets, strict=True):
        # a digit of the mixed radix that has reached its budget takes no more
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
    deadline: Deadline | None = None,
) -> StringGraph:
    """Number nodes by level, arcless ones first; sort arcs by source, emissions by bundle."""
    source, target, arc_bundle = (np.concatenate(part) for part in zip(*draft.arcs, strict=True))
    n = len(level)
    # nodes without arcs come first, so that a node's number tells whether it is one
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
    # groups as closing bundles have them are symbols; from here on they count up from 0
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
        deadline=deadline or Deadline(),
    )
