"""All strings of a length that an automaton accepts, as a `StringGraph`.

A node is a set of strings of one length after which the same may follow, for the automaton and for
the state machine of the RNN's first layer: of what leads to the same acceptances there is one node,
so that the graph is the least that has these strings as its paths (a minimal automaton, level by
level). An option of the lattice is a token at a position: a part of the strings is split by which
tokens may stand at one.

Knows: how a graph is made of an automaton; `layout` makes those of perturbation spaces.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, final

import numpy as np
import torch

from tl_dyck.certify.exact.balls import BoolArray, IntArray
from tl_dyck.certify.exact.graph import PREFIX, StringGraph, unique_columns
from tl_dyck.certify.exact.layout import Draft, ordered
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.lattice import KEEP, MOST_NODES, Lattice, Option, SpaceTooLargeError

_NONE = -1  # no state: also the last entry of an array, by which what leads nowhere is looked up

_MOST_PAIRS = 2 * MOST_NODES
"""Of states, of all levels: profiles with depths soon have more than memory can hold."""


@final
@dataclass(frozen=True)
class Walks:
    """What strings of an automaton reach, position by position, together with the RNN's states.

    Attributes:
        network: whose states these are.
        after: [states, tokens] the state of the automaton after each token; -1 where there is none.
        levels: [2, n] after each number of tokens: the distinct pairs (state, state of the RNN).
        then: [n, tokens] for each but the last level: which pair of the next level comes after each
            token; -1 where there is none.
    """

    network: Network
    after: IntArray
    levels: list[IntArray]
    then: list[IntArray]

    @classmethod
    def begin(cls, network: Network, after: IntArray) -> Walks:
        """The empty string, in state 0."""
        machine, state = network.machine, network.machine.start_state
        for token in network.prefix:
            state = int(machine.next_state(state, token))
        # one pair: the automaton begins in state 0
        return cls(network, after, [np.array([[0], [state]])], [])

    def extend(self, length: int) -> None:
        """Follow the automaton until strings have this length.

        Raises:
            SpaceTooLargeError: there are too many pairs of states.
        """
        while len(self.then) < length:
            # row 0 is the automaton's, row 1 the network's
            state, carried = self.levels[-1]
            if sum(level.shape[1] for level in self.levels) > _MOST_PAIRS:
                raise SpaceTooLargeError(
                    f"after {len(self.then)} tokens there are more than {_MOST_PAIRS:,} states; "
                    "ask for shorter strings"
                )
            target = self.after[state]
            here, token = np.nonzero(target != _NONE)
            before, read = torch.from_numpy(carried[here]), torch.from_numpy(token)
            moved = self.network.machine.next_state(before, read).numpy()
            reached, which = unique_columns(np.stack([target[here, token], moved]))
            then = np.full(target.shape, _NONE)
            then[here, token] = which
            self.then.append(then)
            self.levels.append(reached)

    def graph(self, accepts: BoolArray, length: int) -> StringGraph | None:
        """The strings of this length after which the automaton is in a state that is accepted.

        Args:
            accepts: [states].
            length: in tokens, without BOS; at least 1 if strings have no BOS.

        Returns:
            The graph; None if there is no such string.

        Raises:
            SpaceTooLargeError: see `extend`.
        """
        self.extend(length)
        # [0]: the automaton's state alone decides
        final = accepts[self.levels[length][0]]
        # one class of ends: after them nothing follows
        classes, below = np.where(final, 0, _NONE), []
        for level in reversed(range(length)):
            after = np.append(classes, _NONE)[self.then[level]]  # -1 is the last
            # [1]: the network's state; 0 where nothing leads on, so that equal rows look equal
            moved = np.where(after >= 0, self.levels[level + 1][1][self.then[level]], 0)
            alive: BoolArray = np.asarray((after >= 0).any(1))
            # states of equal rows may be followed by the same, and give it
            # the same symbols: one class
            both = np.concatenate([after, moved], axis=1)[alive]
            rows, which = _unique_rows(both)
            classes = np.full(len(alive), _NONE)
            classes[alive] = which
            below.append(tuple(np.split(rows, 2, axis=1)))
        if not (classes >= 0).any():
            return None
        return _laid_out(self.network, below[::-1])


class _Level(NamedTuple):
    """The arcs of a level: tokens that lead from one class to another are one.

    Attributes:
        symbol: [2, symbols] token and state of the RNN.
        source: [arcs] a class of this level.
        target: [arcs] a class of the next; of the last level, the symbol.
        bundle: [arcs] which set of symbols.
        members: [sets, symbols] what is in it.
    """

    symbol: IntArray
    source: IntArray
    target: IntArray
    bundle: IntArray
    members: BoolArray

    @classmethod
    def of(cls, after: IntArray, moved: IntArray, *, last: bool) -> _Level:
        here, token = np.nonzero(after >= 0)
        symbol, which = unique_columns(np.stack([token, moved[here, token]]))
        (source, target), arc = unique_columns(
            np.stack([here, which if last else after[here, token]])
        )
        members = np.zeros((len(source), symbol.shape[1]), dtype=bool)
        members[arc, which] = True
        # arcs with the same symbols share a bundle; packed, rows are an eighth as long to compare
        sets, bundle = np.unique(np.packbits(members, axis=1), axis=0, return_inverse=True)
        unpacked = np.unpackbits(sets, axis=1, count=symbol.shape[1]).astype(bool)
        return cls(symbol, source, target, bundle.ravel(), unpacked)


def _laid_out(network: Network, classes: list[tuple[IntArray, ...]]) -> StringGraph:
    """The graph of levels, [classes, tokens] twice: the class after each token, the RNN's state."""
    prefix, length = torch.tensor(network.prefix, dtype=torch.int64), len(classes)
    levels = [_Level.of(*each, last=at == length - 1) for at, each in enumerate(classes)]
    before = np.stack([prefix.numpy(), network.machine.states(prefix[None])[0].numpy()])
    symbols, index = unique_columns(np.concatenate([before, *(each.symbol for each in levels)], 1))
    # symbols of BOS, then of each level
    ends = np.cumsum([before.shape[1], *(each.symbol.shape[1] for each in levels)])
    emits = np.split(index, ends[:-1])
    # nodes: the classes of each level, the end, and what comes before BOS
    first = np.cumsum([0, *(len(after) for after, _ in classes)])
    end, zero = int(first[-1]), np.zeros(1, dtype=np.int64)
    # 1: every emission is one symbol
    draft = Draft(1, symbols.shape[1])
    if len(prefix):
        row = emits[0][:, None], zero, (zero + end + 1, zero, zero)
        draft.add(zero + PREFIX, *row, None if length else emits[0])
    for at, (level, emit, end_before) in enumerate(zip(levels, emits[1:], ends, strict=False)):
        last = at == length - 1
        bundle, symbol = np.nonzero(level.members)
        # after the last token a class is the symbol, by which strings are
        # grouped: all end in one node
        target = np.full(len(level.source), end) if last else level.target + first[at + 1]
        arcs = level.source + first[at], target, level.bundle
        # options are the symbols behind BOS, counted through all levels
        option = end_before - ends[0] + symbol
        draft.add(option, emit[symbol][:, None], bundle, arcs, emit[symbol] if last else None)
    rank = [np.full(len(after), at) for at, (after, _) in enumerate(classes)]
    # levels: of the classes, of the end, and −1 before BOS
    nodes = np.concatenate([*rank, [length], np.full(len(prefix), -1)]).astype(np.int64)
    # BOS stands on an arc of its own before the first node of level 0
    root = end + 1 if len(prefix) else 0
    lattice = _lattice([level.symbol[0] for level in levels])
    return ordered(network, lattice, symbols, draft, nodes, root, zero + end)


def _unique_rows(rows: IntArray) -> tuple[IntArray, IntArray]:
    """The distinct rows, sorted, and which of them each row is; of numbers from -1 on.

    As strings of bytes they are quicker to compare than number by number.
    """
    key = np.ascontiguousarray(rows + 1, dtype=">u4").view(np.dtype((np.void, 4 * rows.shape[1])))
    _, first, which = np.unique(key.ravel(), return_index=True, return_inverse=True)
    return rows[first], which


def _lattice(tokens: list[IntArray]) -> Lattice:
    """Every symbol that may stand at a position."""
    options = tuple(
        Option(level, level + 1, KEEP, level, level + 1, (token,))
        for level, symbols in enumerate(tokens)
        for token in symbols.tolist()
    )
    return Lattice((), (), len(tokens), options)
