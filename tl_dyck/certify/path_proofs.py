"""Write proofs that `check_edits` checks: strings as paths, parted until bounds settle each part.

Knows: where a part is parted, and near which string its bound is taken.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from tl_dyck.certify.check_edits import (
    ACTIVATIONS,
    BOUND,
    CONFIG,
    HEADS,
    RAYS,
    Affine,
    OneLayer,
    SameEnd,
)
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array, IntArray
from tl_dyck.certify.lattice import KEEP
from tl_dyck.certify.proof import NoProofError, Proof, in_preorder, pack, searching
from tl_dyck.certify.questions import Asker
from tl_dyck.rnn import RNNConfig

Asked = tuple[Array, Array]
"""Rows of factors of logits, and a constant for each: what must be positive."""


def refuse_others(config: RNNConfig) -> None:
    """Refuse networks that the checker does not know."""
    for name, value in config.beyond.items():
        raise NoProofError(
            f"{config.model_name} has {name}={value!r}, which the checker of proofs does not know; "
            "such networks can be decided without a proof"
        )
    if config.n_heads > HEADS or config.act_fn not in ACTIVATIONS:
        raise NoProofError(
            f"{config.model_name} has {config.n_heads} heads and {config.act_fn}; proofs are of up "
            f"to {HEADS} heads, with relu, gelu or no MLP; others can be decided without a proof"
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
    return {"config": {name: options[name] for name in CONFIG}, "tokens": read, "texts": texts}


def float32_where_exact(weight: Array) -> Array:
    """A weight as a file has it, in float64 if float32 would lose something."""
    small = np.ascontiguousarray(weight, dtype="<f4")
    return small if np.array_equal(small, weight) else np.ascontiguousarray(weight, dtype="<f8")


def shown(group: Any) -> bool:
    """Whether bounds were taken of a part, of divisors that vary little: the next would show less.

    As in `exact.region`, which leaves rays where a divisor's least is a twentieth of its largest.
    """
    return group.wanted is not None and bool(group.ends.max() < 20 * group.ends.min())


class Recorded:
    """Added to `Paths`: the string of the last walk that costs least can be read off."""

    def as_written(self, tokens: IntArray) -> IntArray:
        """The tokens of a path in the order in which they stand in the string."""
        return tokens

    def walk(self: Any, costs: Array, last: Array, allowed: Array, *how: Any) -> Array:
        """As in `Paths`."""
        self.walked = costs, last, allowed
        found: Array = super().walk(costs, last, allowed, *how)  # type: ignore[misc]
        return found

    def cheapest(self: Any) -> list[int]:
        """The options of that string, but for those that are first of their level."""
        costs, last, allowed = self.walked
        ends = np.where(self.finals[:, None], self.levels[-1][:, 1], np.inf)
        state, column = map(int, np.unravel_index(ends.argmin(), ends.shape))
        costs, last = costs[:, column % costs.shape[1]], last[:, column % last.shape[1]]
        found, level, ended = [], len(self.levels) - 1, 1
        while level:
            value = self.levels[level][state, ended, column]
            steps = []
            for i in np.flatnonzero(allowed & (self.target == level)).tolist():
                option = self.options[i]
                for at in np.flatnonzero(option.to == state).tolist():
                    came, was = int(option.came[at]), 0 if option.emits else ended
                    symbols = option.index[:, at]
                    cost = self.levels[option.source][came, was, column] + costs[symbols].sum()
                    cost += last[symbols[-1]] if option.emits and ended else 0.0
                    if np.isfinite(cost):
                        steps.append((abs(cost - value), i, came, was))
            _, i, state, ended = min(steps)
            level = int(self.source[i])
            if i != np.flatnonzero(self.source == level)[0]:
                found.append(i)
        return found[::-1]


def prove_paths(
    facts: dict[str, Any],
    weights: dict[str, Array],
    asker: Asker,
    kind: Any,
    time_limit: float | None,
) -> Proof:
    """A proof of what facts ask of the strings of a kind of `Paths`, made `Recorded`.

    Raises:
        NoProofError: see `tl_dyck.certify.edit_proofs.prove_edits`.
    """
    with searching(time_limit):
        deadline = Deadline.after(time_limit)
        network, found, ways = OneLayer(facts["config"], weights, facts["tokens"]), [], 0
        for space in kind.parts(facts, network):
            network.tabulate(*space.symbols)
            found += _Trees(facts, network, asker, space, deadline).trees()
            ways += space.ways()
        said = space.says(facts, ways)
    return Proof(pack(facts, {**weights, "trees": np.array(found, dtype="<u2")}), said)


class _Trees:
    """The trees of what is asked of a space."""

    def __init__(
        self,
        facts: dict[str, Any],
        network: OneLayer,
        asker: Asker,
        space: Any,
        deadline: Deadline,
    ) -> None:
        self.asker, self.deadline = asker, deadline
        self.network, self.space = network, space
        self.groups: dict[int, Any] = {}
        self.sets = facts.get("threshold") is not None
        rays = self.network.n_heads == 1 and facts["config"]["ln_c"]
        self.leaves = [RAYS, BOUND] if rays else [BOUND]  # what shows more comes first

    def trees(self) -> list[int]:
        """For each target and last symbol a tree, in preorder."""
        found = []
        for target in self.space.questions():
            asked = self.space.asks(target, self.network.n_logits)
            for last in self.space.ends():
                if last not in self.groups:
                    self.groups[last] = SameEnd(self.space, self.network, last)
                node = partial(self._node, asked, self.groups[last])
                found += in_preorder(self.space.all, node, self.deadline)
        return found

    def _node(self, asked: Asked, group: Any, allowed: Array) -> tuple[list[int], list[Array]]:
        """What is said of a part, and its own parts."""
        nothing = np.zeros((len(self.space.symbols[0]), 1))
        empty = self.space.walk(nothing, group.last, allowed)[0] == np.inf
        if empty and self.space.walk(nothing, group.last, self.space.all)[0] == np.inf:
            return [BOUND, 0], []
        near: list[int] = self.space.cheapest()
        if empty:
            return [BOUND, len(near), *near], []
        for _ in range(2):  # near some string, then near the worst one by the bound
            for leaf in self.leaves:
                if group.settled(asked, allowed, {*near}, leaf == RAYS):
                    return [leaf, len(near), *near], []
                if shown(group):
                    break
            margins = group.wanted
            worst = np.nan_to_num(group.below(margins), nan=-np.inf).argmin()
            group.below(Affine(margins.slope[[worst]], margins.rest[[worst]]))
            costs, near = self.space.walked[0], self.space.cheapest()
            self._run(asked, near)
        cut = self._cut(allowed, costs.mean(1))
        if cut is None:
            raise NoProofError(f"on {self._string(near)} the prediction is within rounding")
        return cut, self.space.parted(allowed, *cut)

    def _cut(self, allowed: Array, costs: Array) -> list[int] | None:
        """Where options differ most in cost: over which step, from which option on."""
        space = self.space
        found: tuple[float, list[int] | None] = (-1.0, None)
        for step in range(space.n_levels - 1):
            over = np.flatnonzero(allowed & (space.source <= step) & (step < space.target))
            if len(over) > 1:
                options = [space.options[i] for i in over]
                here = [costs[each.index].sum(0).mean() for each in options]
                kept = options[0].kind == KEEP != options[-1].kind
                cut = [step, int(over[1 if kept else len(over) // 2])]
                found = max(found, (float(np.ptp(here)), cut), key=lambda each: each[0])
        return found[1]

    def _string(self, edits: list[int]) -> tuple[int, ...]:
        path = self.space.path({*edits})[self.space.start is not None :]
        return tuple(self.space.as_written(self.space.symbols[0][path]).tolist())

    def _run(self, asked: Asked, edits: list[int]) -> None:
        """Refuse to go on where a string is wrong."""
        rows, constants = asked
        logits = np.array(self.asker.rnn_logits(self._string(edits)))
        if (rows @ logits + constants).min() <= 0:
            wrong = "a logit is on the wrong side of the threshold"
            raise NoProofError(
                f"on {self._string(edits)} {wrong if self.sets else 'another logit is larger'}"
            )
