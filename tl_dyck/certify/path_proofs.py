"""Write proofs that `check_paths` checks: strings as paths, parted until bounds settle each part.

Knows: where a part is parted, and near which string its bound is taken.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tl_dyck.certify.check_bounds import (
    BOUND,
    HEADS,
    LIST,
    LISTED,
    RAYS,
    Affine,
    Part,
    PartBounds,
    SameEnd,
    open_strings,
)
from tl_dyck.certify.check_layer import ACTIVATIONS, CONFIG, PLAIN, POSITIONS, OneLayer
from tl_dyck.certify.check_paths import PartWalks
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.proof import NoProofError, Proof, pack, searching
from tl_dyck.certify.questions import Asker
from tl_dyck.rnn import RNNConfig

_TRIED = 16  # parts are bounded a second time, before it is asked whether that settles any
_SELDOM = 8  # a second bound settles one of more than so many: then it costs more than it saves

Asked = tuple[Array, Array]
"""Rows of factors of logits, and a constant for each: what must be positive."""


def refuse_others(
    config: RNNConfig, heads: float = HEADS, known: Collection[str] = tuple(PLAIN)
) -> None:
    """Refuse networks that the checker does not know, or of more heads than it can bound."""
    for name, value in config.beyond.items():
        if name not in known or (name == "positions" and value not in POSITIONS):
            raise NoProofError(
                f"{config.model_name} has {name}={value!r}, which the checker of proofs does not "
                "know; such networks can be decided without a proof"
            )
    if config.n_heads > heads or config.act_fn not in ACTIVATIONS:
        curves = ", ".join(filter(None, ACTIVATIONS))
        raise NoProofError(
            f"{config.model_name} has {config.n_heads} heads and {config.act_fn}; proofs are of up "
            f"to {HEADS} heads, with {curves} or no MLP; others can be decided without one"
        )


def weights_of(asker: Asker, tokens: list[int]) -> dict[str, Array]:
    """The weights, of those tokens alone."""
    weights = {name: value.numpy() for name, value in asker.rnn.weights.items()}
    weights["W_E"] = weights["W_E"][tokens]
    return {name: float32_where_exact(weight) for name, weight in weights.items()}


def network_facts(config: RNNConfig, tokens: set[int]) -> dict[str, Any]:
    """What a checker knows of a network: what it is, and which tokens it reads here."""
    bos = set() if config.bos_token is None else {config.bos_token}
    options, read = config.to_dict(), sorted(tokens | bos)
    texts = config.alphabet and [config.alphabet[token] for token in read]
    known = {name: options[name] for name in CONFIG}
    known |= {name: options[name] for name in PLAIN if options[name] != PLAIN[name]}
    return {"config": known, "tokens": read, "texts": texts}


def float32_where_exact(weight: Array) -> Array:
    """A weight as a file has it, in float64 if float32 would lose something."""
    small = np.ascontiguousarray(weight, dtype="<f4")
    return small if np.array_equal(small, weight) else np.ascontiguousarray(weight, dtype="<f8")


def below_worst(bounds: PartBounds) -> None:
    """Bound what is least of each part by its bound, alone: the last walk then is of its costs."""
    y, which = bounds.wanted, np.arange(len(bounds.parts))
    worst = np.nan_to_num(bounds.below(y), nan=-np.inf).argmin(1)
    bounds.below(Affine(y.slope[which, worst][:, None], y.rest[which, worst][:, None]))


def best_cut(costs: Array) -> tuple[float, int]:
    """Where to part costs in a row, so that means differ most, as variance goes; what is gained."""
    # sums and numbers of the first part, cut behind each but the last
    before, n = np.cumsum(costs)[:-1], np.arange(1, len(costs))
    apart = before / n - (costs.sum() - before) / (len(costs) - n)
    # the variance between two groups of n and N - n: n (N - n) / N times the squared distance
    gain = np.nan_to_num(apart**2 * n * (len(costs) - n) / len(costs))
    # + 1: index 0 of `gain` is a cut before option 1
    return float(gain.max()), int(gain.argmax()) + 1


def prove_paths(
    facts: dict[str, Any],
    weights: dict[str, Array],
    asker: Asker,
    kind: Any,
    time_limit: float | None,
) -> Proof:
    """A proof of what facts ask of the strings of a kind of `Paths`.

    Raises:
        NoProofError: see `tl_dyck.certify.edit_proofs.prove_edits`.
    """
    with searching(time_limit):
        deadline = Deadline.after(time_limit)
        network, found, ways = OneLayer(facts["config"], weights, facts["tokens"]), [], 0
        for space in kind.parts(facts, network):
            network.tabulate(*space.symbols)
            ways += space.ways()
            if network.n_heads > HEADS and ways > LISTED:
                raise NoProofError(
                    f"there are {ways:,} ways of editing the string, and {network.n_heads} heads: "
                    f"beyond {HEADS} heads strings are listed, at most {LISTED:,} of them"
                )
            found += _Trees(facts, network, asker, space, deadline).trees()
        said = space.says(facts, ways)
    return Proof(pack(facts, {**weights, "trees": np.array(found, dtype="<u2")}), said)


@dataclass
class _Node:
    """A part, what is said of it in the file, and its own parts."""

    part: Part
    near: list[int]
    said: list[int] = field(default_factory=list)
    parts: list[_Node] = field(default_factory=list)

    def preorder(self) -> list[int]:
        """What is said of it and of all its parts."""
        found, todo = [], [self]
        while todo:
            node = todo.pop()
            found += node.said
            todo += node.parts[::-1]
        return found


class _Trees:
    """The trees of what is asked of a space."""

    def __init__(
        self, facts: dict[str, Any], network: OneLayer, asker: Asker, space: Any, deadline: Deadline
    ) -> None:
        self.asker, self.deadline = asker, deadline
        self.network, self.space = network, space
        self.groups: dict[int, SameEnd] = {}
        self.sets = facts.get("threshold") is not None
        rays = self.network.n_heads == 1 and facts["config"]["ln_c"]
        self.leaves = [RAYS, BOUND] if rays else [BOUND]  # what shows more comes first
        self.listed = network.n_heads > HEADS
        self.again = [0, 0]  # parts that a second bound has settled, of how many
        first = np.searchsorted(space.source, space.source)
        # first options of a level are what `Paths.path` takes if none is named: they need not be
        self.is_first = first == np.arange(len(space.source))

    def trees(self) -> list[int]:
        """For each target and last symbol a tree, in preorder."""
        space = self.space
        found: list[int] = []
        for target in space.questions():
            asked, roots = space.asks(target, self.network.n_logits), []
            for last in space.ends():
                if last not in self.groups:
                    self.groups[last] = SameEnd(space, self.network, last)
                part = Part(self.groups[last], asked, space.all, space.finals, None)
                roots.append(_Node(part, []))
            todo, n = roots[:], space.at_once()
            while self.listed and todo:
                self.deadline.check()
                self._list(todo.pop())
            while todo:
                self.deadline.check()
                # the last ones: depth first, so that few parts wait
                some, todo = todo[-n:], todo[:-n]
                self._examine(some)
                todo += itertools.chain.from_iterable(node.parts for node in some)
            found += itertools.chain.from_iterable(root.preorder() for root in roots)
        return found

    def _list(self, node: _Node) -> None:
        """Run all strings of a part, as the checker will."""
        for symbols in open_strings(node.part, self.deadline.check):
            string = self._tokens(symbols)
            self._run(string, node.part)
            raise NoProofError(f"on {string} the prediction is within rounding")
        node.said = [LIST, 0]

    def _examine(self, nodes: list[_Node]) -> None:
        """Say of parts what the checker can be shown, or part them."""
        walks = self.space.walks([node.part for node in nodes])
        least = walks.least(np.zeros((len(nodes), len(self.space.symbols[0]), 1)))[:, 0]
        for which, node in enumerate(nodes):
            if least[which] == np.inf:  # it has no strings: any will do
                node.said = [BOUND, len(node.near), *node.near]
            else:
                node.near = self._cheapest(walks, which)
        nodes = [node for node in nodes if not node.said]
        for again in (False, True):  # near some string, then near the worst one by the bound
            if again and self.again[1] > max(_TRIED, _SELDOM * self.again[0]):
                break
            loose = self._settle(nodes)
            if again:
                self.again[0] += len(nodes) - len(loose)
                self.again[1] += len(nodes)
            for bounds, which, node in loose:
                node.near = self._cheapest(bounds.walks, which)
                self._run(self._string(node.near), node.part)
            nodes = [node for *_, node in loose]
        for bounds, which, node in loose:
            cut = self._cut(bounds, which)
            if cut is None:
                string = self._string(node.near)
                raise NoProofError(f"on {string} the prediction is within rounding")
            node.said = cut
            for allowed in self.space.parted(node.part.allowed, *cut):
                node.parts.append(_Node(node.part._replace(allowed=allowed), node.near))

    def _settle(self, nodes: list[_Node]) -> list[tuple[PartBounds, int, _Node]]:
        """Nodes that no leaf settles, and bounds whose last walk is of what is least there."""
        for node in nodes:
            node.part = node.part._replace(path=self.space.path({*node.near}))
        open_, done = nodes, []
        for leaf in self.leaves:
            if not open_:
                break
            bounds, others = PartBounds([node.part for node in open_], leaf == RAYS), []
            settled = bounds.settled()
            below_worst(bounds)
            # of divisors that vary little the next bound would show less; as in `exact.region`,
            # which leaves rays where a divisor's least is a twentieth of its largest
            ends = bounds.ends.max((1, 2)) < 20 * bounds.ends.min((1, 2))
            shown = bounds.known & ends
            for which, node in enumerate(open_):
                if settled[which]:
                    node.said = [leaf, len(node.near), *node.near]
                elif shown[which] or leaf == self.leaves[-1]:
                    done.append((bounds, which, node))
                else:
                    others.append(node)
            open_ = others
        return done

    def _cheapest(self, walks: PartWalks, which: int) -> list[int]:
        """The options of a part's string that cost least in the last walk, but for first ones."""
        mine = np.flatnonzero(walks.part == which)
        at = walks.ends[mine[walks.sums[walks.ends[mine], 0].argmin()]]
        begins, found = [at for at, *_ in walks.steps], []
        while at >= len(walks.origins):
            begin, came, rows, first, _, option = walks.steps[bisect.bisect(begins, at) - 1]
            run = slice(*[*first[at - begin : at - begin + 2], len(came)][:2])
            costs = walks.sums[came[run], 0] + walks.costs[rows[:, run], 0].sum(0)
            best = run.start + costs.argmin()
            found.append(int(option[best]))
            at = came[best]
        return [each for each in found[::-1] if not self.is_first[each]]

    def _cut(self, bounds: PartBounds, which: int) -> list[int] | None:
        """Where options move attention's output most apart: over which step, from which option on.

        A symbol of weight E / Z moves a head's output by about E / Z (v - output).
        """
        space, walks = self.space, bounds.walks
        values = bounds.v.mid if bounds.v.mid.ndim == 3 else bounds.v.mid[which]
        weight = bounds.e.mid[which] * bounds.ends[which].mean(0)  # [symbol, head]
        moved = (weight[..., None] * (values - bounds.near[which])).reshape(len(weight), -1)
        moved = np.append(moved, np.zeros((1, moved.shape[1])), axis=0)
        # what is not finite orders nothing, and a decomposition of it would not end
        moved = np.nan_to_num(moved, posinf=0.0, neginf=0.0)
        vectors, times = (
            np.zeros((len(space.options), moved.shape[1])),
            np.zeros(len(space.options)),
        )
        for _, _, rows, _, part, option in walks.steps:
            mine = part == which
            np.add.at(vectors, option[mine], moved[rows[:, mine] - which * walks.rows].sum(0))
            np.add.at(times, option[mine], 1)
        live = times > 0
        vectors[live] /= times[live, None]
        # -1: less than any gain, which is a square
        found: tuple[float, list[int] | None] = (-1.0, None)
        for step in range(space.n_levels - 1):
            over = np.flatnonzero(live & (space.source <= step) & (step < space.target))
            if len(over) > 1:
                apart = vectors[over] - vectors[over].mean(0)
                along = apart @ np.linalg.svd(apart, full_matrices=False)[2][0]
                gain, first = best_cut(along)
                found = max(found, (gain, [step, int(over[first])]), key=lambda each: each[0])
        return found[1]

    def _string(self, edits: list[int]) -> tuple[int, ...]:
        return self._tokens(self.space.path({*edits}))

    def _tokens(self, path: list[int]) -> tuple[int, ...]:
        path = path[self.space.start is not None :]
        tokens, order = self.space.symbols[0][path], self.space.order
        return tuple((tokens if order is None else tokens[np.argsort(order)]).tolist())

    def _run(self, string: tuple[int, ...], part: Part) -> None:
        """Refuse to go on where a string is wrong."""
        rows, constants = part.asked
        logits = np.array(self.asker.rnn_logits(string))
        # a tie is no win, either
        if (rows @ logits + constants).min() <= 0:
            wrong = "a logit is on the wrong side of the threshold"
            raise NoProofError(f"on {string} {wrong if self.sets else 'another logit is larger'}")
