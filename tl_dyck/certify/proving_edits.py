"""Write proofs that `check_edits` checks: a space of edits, parted until bounds settle each part.

Knows: where a part is parted, and near which string its bound is taken.
"""

from __future__ import annotations

from itertools import chain
from typing import Any

import numpy as np

from tl_dyck.certify.asker import Asker
from tl_dyck.certify.check_edits import (
    ACTIVATIONS,
    BOUND,
    CONFIG,
    FORMAT,
    HEADS,
    Affine,
    OneLayer,
    SameEnd,
    Space,
    says,
)
from tl_dyck.certify.check_languages import ProofError
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.lattice import KEEP
from tl_dyck.certify.proving import NoProofError, Proof, pack
from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.certify.transformations import Tokens
from tl_dyck.environment import one_thread
from tl_dyck.rnn import RNNConfig


@one_thread()
def prove_edits(
    model_or_rnn: Any,
    tokens: Tokens | str,
    target: int | str | None,
    space: PerturbationSpace | str,
    *,
    time_limit: float | None = None,
) -> Proof:
    """Prove that a prediction survives every edit of a string, so that anyone can check it.

    `certify` is quicker and decides more; of what is wrong it shows the worst string.

    >>> from tl_dyck import construct, load_task
    >>> model = construct.uniform_attention(load_task("dyck-2-4").language)
    >>> prove_edits(model, "([", None, "pairs:1").says[:29]
    "logit 1 (']') is the largest "

    Args:
        model_or_rnn: what `certify` takes: one layer, up to four heads, an MLP with ReLU or GELU or
            none.
        tokens: the string, with BOS or without, or its text.
        target: the logit that must stay largest, or its text; None for what is predicted.
        space: the edits, or their text, such as "pairs:2".
        time_limit: seconds; None for no limit.

    Raises:
        NoProofError: a string is wrong or within rounding, the time is over, or the model is of
            another kind.
        SpaceTooLargeError: the budgets cannot be laid out.
    """
    asker = Asker.of(model_or_rnn)
    question = asker.question(space, time_limit=time_limit)
    deadline = Deadline.after(question.time_limit)
    c, string = asker.rnn.config, asker.without_bos(tokens)
    if c.n_heads > HEADS or c.act_fn not in ACTIVATIONS:
        raise NoProofError(
            f"{c.model_name} has {c.n_heads} heads and {c.act_fn}; proofs are of up to "
            f"{HEADS} heads, with relu, gelu or no MLP; certify decides others"
        )
    facts = _facts(c, string, question.space, asker.target(string, target))
    weights = _weights(asker, facts["tokens"])
    try:
        search = _Trees(facts, weights, asker, deadline)
        with np.errstate(all="ignore"):
            trees = [node for last in search.space.ends() for node in search.tree(last)]
            said = says(facts, search.space)
    except OutOfTime:
        raise NoProofError(f"none was found in {time_limit} s") from None
    except ProofError as error:
        raise NoProofError(str(error)) from None
    arrays = {**weights, "trees": np.array(trees, dtype="<u2")}
    return Proof(pack(facts, arrays), said)


def _facts(
    config: RNNConfig, string: tuple[int, ...], space: PerturbationSpace, target: int
) -> dict[str, Any]:
    """What `check_edits` knows of a question."""
    lattice, options = space.lattice(string), config.to_dict()
    edits = [option for option in lattice.options if option.kind != KEEP]
    named = config.d_vocab == config.d_vocab_out
    tokens = {*string, *chain.from_iterable(option.emits for option in edits)}
    tokens |= {target} if named else set()
    tokens |= set() if config.bos_token is None else {config.bos_token}
    texts = config.alphabet and [config.alphabet[token] for token in sorted(tokens)]
    return {
        "format": FORMAT,
        "config": {name: options[name] for name in CONFIG},
        "tokens": sorted(tokens),
        "texts": texts,
        "names_logits": named,
        "string": list(string),
        "target": target,
        "names": list(space.names),
        "budgets": list(lattice.budgets),
        "rewrites": [[o.kind, o.start, o.end - o.start, list(o.emits)] for o in edits],
    }


def _weights(asker: Asker, tokens: list[int]) -> dict[str, Array]:
    """The weights, of those tokens alone, in float32 where that loses nothing."""
    found = {}
    for name, value in asker.rnn.weights.items():
        array: Array = np.ascontiguousarray(value.numpy()[tokens if name == "W_E" else slice(None)])
        small = array.astype("<f4")
        found[name] = small if np.array_equal(small, array) else array.astype("<f8")
    return found


class _Paths(Space):
    """Strings of which the one of the last walk that costs least can be read off."""

    def walk(self, costs: Array, last: Array, allowed: Array, *how: Any) -> Array:
        self.walked = costs, last, allowed
        found: Array = super().walk(costs, last, allowed, *how)
        return found

    def cheapest(self) -> list[int]:
        """The options of that string, but for those that keep."""
        costs, last, allowed = self.walked
        ends = self.levels[-1][..., 1, :]
        *at, column = map(int, np.unravel_index(ends.argmin(), ends.shape))
        costs, last = costs[:, column % costs.shape[1]], last[:, column % last.shape[1]]
        found, level, state = [], len(self.levels) - 1, (*at, 1)
        while level:
            value = self.levels[level][state][column]
            into = np.flatnonzero(allowed & (self.target == level))
            before = {int(i): self._before(int(i), state, costs, last, column) for i in into}
            i = min(before, key=lambda i: abs(before[i][0] - value))
            state = before[i][1]
            found.append(i)
            level = self.source[i]
        return [i for i in found[::-1] if self.options[i][2] != KEEP]

    def _before(
        self, i: int, state: tuple[int, ...], costs: Array, last: Array, column: int
    ) -> tuple[float, tuple[int, ...]]:
        """The cost of coming to a state by an option, and from which state that is."""
        start, end = self.slices[i]
        place = tuple(at - e.start + s.start for at, s, e in zip(state, start, end, strict=False))
        if any(not s.start <= at < s.stop for at, s in zip(place, start, strict=True)):
            return np.inf, state
        emits, ended = self.options[i][3], state[-1]
        came = (*place, 0 if emits else ended)
        cost = self.levels[self.source[i]][came][column]
        if emits:
            symbols = self.index[i][:, place[-2], place[-1]]
            cost = cost + costs[symbols].sum()
            cost = cost + last[symbols[-1]] if ended else cost
        return cost, came


class _Trees:
    """The trees of one question."""

    def __init__(
        self, facts: dict[str, Any], weights: dict[str, Array], asker: Asker, deadline: Deadline
    ) -> None:
        self.asker, self.target, self.deadline = asker, facts["target"], deadline
        self.network = OneLayer(facts["config"], weights, facts["tokens"])
        self.space = _Paths(facts, self.network)
        self.network.tabulate(*self.space.symbols)

    def tree(self, last: int) -> list[int]:
        """The tree of the strings that end with a symbol, in preorder."""
        group, found, todo = SameEnd(self.space, self.network, last), [], [self.space.all]
        while todo:
            self.deadline.check()
            node, parts = self._node(group, todo.pop())
            found += node
            todo += parts[::-1]
        return found

    def _node(self, group: Any, allowed: Array) -> tuple[list[int], list[Array]]:
        """What is said of a part, and its own parts."""
        nothing = np.zeros((len(self.space.symbols[0]), 1))
        if self.space.walk(nothing, group.last, allowed)[0] == np.inf:
            return [BOUND, 0], []
        near: list[int] = self.space.cheapest()
        for _ in range(2):  # near some string, then near the worst one by the bound
            if group.settled(self.target, allowed, near):
                return [BOUND, len(near), *near], []
            margins = group.wanted
            worst = np.nan_to_num(group.below(margins), nan=-np.inf).argmin()
            group.below(Affine(margins.slope[[worst]], margins.rest[[worst]]))
            costs, near = self.space.walked[0], self.space.cheapest()
            self._run(near)
        cut = self._cut(allowed, costs.mean(1))
        if cut is None:
            raise NoProofError(f"on {self._string(near)} the prediction is within rounding")
        return cut, self.space.parted(allowed, *cut)

    def _cut(self, allowed: Array, costs: Array) -> list[int] | None:
        """Where options differ most in cost: over which step, from which option on."""
        space = self.space
        found: tuple[float, list[int] | None] = (-1.0, None)
        for step in range(2 * len(space.x) + 1):
            over = np.flatnonzero(allowed & (space.source <= step) & (step < space.target))
            if len(over) > 1:
                here = [costs[space.index[i][:, space.zero[0], space.zero[1]]].sum() for i in over]
                kept = space.options[over[0]][2] == KEEP
                cut = [step, int(over[1 if kept else len(over) // 2])]
                found = max(found, (float(np.ptp(here)), cut), key=lambda each: each[0])
        return found[1]

    def _string(self, edits: list[int]) -> tuple[int, ...]:
        path = self.space.path(edits)[self.space.start is not None :]
        return tuple(self.space.symbols[0][path].tolist())

    def _run(self, edits: list[int]) -> None:
        """Refuse to go on where a string is wrong."""
        logits = np.array(self.asker.rnn_logits(self._string(edits)))
        if logits[self.target] <= np.delete(logits, self.target).max(initial=-np.inf):
            raise NoProofError(f"on {self._string(edits)} another logit is larger")
