"""Write proofs that `check_two_layers` checks: prefixes by last symbol, parted until bounds settle.

Knows: who wins on a part, where it is parted, and near which prefix its bound is taken.
"""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
from torch import nn

from tl_dyck.certify.check_layer import CONFIG
from tl_dyck.certify.check_two_layers import BOUND, FORMAT, PrefixGroup, PrefixMargins, asked, says
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array, BoolArray
from tl_dyck.certify.language.lengths import refuse_long
from tl_dyck.certify.language.questions import make_uniform, refuse_unlike
from tl_dyck.certify.language.runner import Runner
from tl_dyck.certify.path_proofs import below_worst, best_cut, float32_where_exact, refuse_others
from tl_dyck.certify.proof import NoProofError, Proof, in_preorder, pack, searching
from tl_dyck.kit.files import tensors_digest
from tl_dyck.language import DyckLanguage
from tl_dyck.reading.inputs import check_predicts
from tl_dyck.rnn import UnsupportedModelError
from tl_dyck.rnn.export import export_layers


def prove_two_layers(
    model: Any,
    language: DyckLanguage,
    property: str,
    longest: int,
    *,
    other: Any = None,
    head: Any = None,
    time_limit: float | None = None,
) -> Proof:
    """A proof of a claim about a model of two layers without positions.

    Raises:
        NoProofError: see `tl_dyck.certify.language_proofs.prove_language`.
        CertifyError: there is no such head, or the model reads other tokens or shorter strings.
    """
    facts: dict[str, Any] = {
        "format": FORMAT,
        "claim": property,
        "length": longest,
        "n_types": language.n_types,
        "max_depth": language.max_depth,
    }
    facts["model"], facts["config"], weights = _layers(model, language, longest)
    models = [model]
    if other is not None:
        digest, config, more = _layers(other, language, longest)
        refuse_unlike([model, other], language)
        facts["other"] = {"model": digest, "config": config}
        weights |= {f"other.{name}": weight for name, weight in more.items()}
        models.append(other)
    if head is not None:
        models.append(make_uniform(model, head))
        facts["head"] = [int(each) for each in head]
    with searching(time_limit):
        search = _TreesOfGroups(facts, weights, models, language, Deadline.after(time_limit))
        said = says(facts)
        trees = np.array(search.trees(), dtype="<u2")
    return Proof(pack(facts, {**weights, "trees": trees}), said)


def _layers(
    model: Any, language: DyckLanguage, longest: int
) -> tuple[str, list[Any], dict[str, Array]]:
    """The digest of a model, the configurations of its layers, and their weights."""
    check_predicts(model, language)
    refuse_long(model.cfg.n_ctx, longest)
    configs, weights = [], {}
    try:
        layers = export_layers(model)
    except UnsupportedModelError as error:
        raise NoProofError(f"it has no proof with two layers: {error}") from None
    for i, layer in enumerate(layers):
        refuse_others(layer.config, known=())
        config: dict[str, Any] = {name: layer.config.to_dict()[name] for name in CONFIG}
        if config["bos_token"] != language.bos_token:
            raise NoProofError("proofs are of models whose strings start with BOS")
        left_out = {"W_U", "b_U"}
        if i == 1:  # it reads no tokens
            left_out = {"W_E"}
            config |= {"state": "none", "n_types": None, "max_depth": None}
        configs.append(config)
        for name, weight in layer.weights.items():
            if name == "W_E":  # what an adopted model reads besides is in no string
                weight = weight[: language.d_vocab]
            if name not in left_out:
                weights[f"{i}.{name}"] = float32_where_exact(weight.numpy())
    return tensors_digest(dict(model.named_parameters())), configs, weights


class _TreesOfGroups:
    """The trees of a claim."""

    def __init__(
        self,
        facts: dict[str, Any],
        weights: dict[str, Array],
        models: list[Any],
        language: DyckLanguage,
        deadline: Deadline,
    ) -> None:
        self.deadline = deadline
        exact = [nn.Module.double(copy.deepcopy(each)) for each in models]
        self.runners = [Runner(each, language.bos_token) for each in exact]
        self.models, self.graph = asked(facts, weights)

    def trees(self) -> list[int]:
        """For each group a tree, in preorder."""
        found: list[int] = []
        for may, group in self.graph.groups():
            margins = [PrefixMargins(group, each) for each in self.models]
            node = partial(self._node, may, group, margins)
            found += in_preorder(group.all, node, self.deadline)
        return found

    def _node(
        self, may: Any, group: PrefixGroup, margins: list[Any], allowed: BoolArray
    ) -> tuple[list[int], list[BoolArray]]:
        """What is said of a part, and its own parts."""
        nothing = np.zeros((len(allowed), 1))
        if group.walk(nothing, allowed)[0] == np.inf:
            return [BOUND, may[0] if may else 0, 0], []
        winner = may[0] if may and len(may) == 1 else self._winner(may, group, _cheapest(group))
        wanted = [self.graph.losers(winner, may, each.model.n_logits) for each in margins]
        near: list[int] = []
        for _ in range(2):  # near the mean, then near the worst prefix by the bound
            loose = None
            for each, losers in zip(margins, wanted, strict=True):
                if not each.wins(winner, losers, allowed, near):
                    loose = each
                    break
            if loose is None:
                return [BOUND, winner, len(near), *near], []
            below_worst(loose.bounds)
            near, costs = _cheapest(group), group.costs.mean(1)
            self._winner(may, group, near)
        cut = _cut(group, costs, allowed)
        if cut is None:
            raise NoProofError(f"after {self._string(group, near)} the claim is within rounding")
        return [cut], group.parted(allowed, cut)

    def _string(self, group: PrefixGroup, symbols: list[int]) -> list[int]:
        """The tokens of a path, without BOS."""
        return [self.graph.kinds[self.graph.last[i]][0] for i in group.symbols[0, symbols[1:]]]

    def _winner(self, may: Any, group: PrefixGroup, symbols: list[int]) -> int:
        """Who wins after a prefix.

        Raises:
            NoProofError: one that must not.
        """
        string = self._string(group, symbols)
        logits = [each.logits(tuple(string)) for each in self.runners]
        order = range(len(logits[0])) if may is None else may
        winner = max(order, key=logits[0].__getitem__)
        for each in logits:
            losers = self.graph.losers(winner, may, len(each))
            if losers and each[winner] <= max(each[token] for token in losers):
                raise NoProofError(f"after {string} the claim is wrong, or within rounding")
        return winner


def _cheapest(group: PrefixGroup) -> list[int]:
    """The symbols of the path that cost least in the last walk, BOS first."""
    levels, costs = group.levels, group.costs
    at, column = map(int, np.unravel_index(levels[-1].argmin(), levels[-1].shape))
    found = []
    for level, (source, symbol, first) in reversed(list(enumerate(group.steps))):
        over = slice(first[at], first[at + 1] if at + 1 < len(first) else None)
        before, symbols = source[over], symbol[over]
        best = (levels[level][before, column] + costs[symbols, column]).argmin()
        at = int(before[best])
        found.append(int(symbols[best]))
    return [0, *found[::-1]]


def _live(group: PrefixGroup, allowed: BoolArray) -> BoolArray:
    """Which of some symbols are on a path of them."""
    reached = [np.isfinite(each[:, 0]) for each in group.levels]
    found = np.zeros_like(allowed)
    live = np.ones(len(reached[-1]), dtype=bool)
    for level, (source, symbol, first) in reversed(list(enumerate(group.steps))):
        target = np.repeat(np.arange(len(first)), np.diff([*first, len(source)]))
        on = live[target] & reached[level][source] & allowed[symbol]
        found[symbol[on]] = True
        live = np.zeros(len(reached[level]), dtype=bool)
        live[source[on]] = True
    return found


def _cut(group: PrefixGroup, costs: Array, allowed: BoolArray) -> int | None:
    """Where to part what is allowed: so that costs differ most; None if there is one path."""
    live, best, found = _live(group, allowed), -1.0, None
    for level in range(1, group.n_levels):
        (at,) = np.nonzero(live & (group.level == level))
        if len(at) > 1:
            gain, first = best_cut(costs[at])
            if gain > best:
                best, found = gain, int(at[first])
    return found
