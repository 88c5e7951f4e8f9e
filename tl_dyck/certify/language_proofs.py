"""Write proofs that `check_language` checks: trees of boxes, found by halving what is not settled.

Knows: in which order boxes are tried. What settles a box only the checker knows.
"""

from __future__ import annotations

from typing import Any, SupportsIndex

import numpy as np

from tl_dyck.certify import check_agreement
from tl_dyck.certify.automaton_proofs import prove_brackets, prove_task
from tl_dyck.certify.check_language import (
    AXES,
    CLAIMS,
    FORMAT,
    LEAF,
    MOST,
    Margin,
    Model,
    Prefixes,
    endings,
    prefixes,
)
from tl_dyck.certify.check_model import symbols
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.automaton_certificate import read_automaton_claim
from tl_dyck.certify.language.claims import CLAIMS as ALL_CLAIMS
from tl_dyck.certify.language.claims import read_claim, read_threshold
from tl_dyck.certify.language.forms import has_form
from tl_dyck.certify.language.lengths import LONGEST_UNSAID
from tl_dyck.certify.language.questions import Head, refuse_unlike
from tl_dyck.certify.proof import NoProofError, Proof, pack, searching
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.certify.questions import Asker
from tl_dyck.certify.two_layer_proofs import prove_two_layers
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer, check_length, check_time_limit
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.files import tensors_digest
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage
from tl_dyck.language.symbols import needs_stack
from tl_dyck.reading.inputs import check_predicts
from tl_dyck.rnn import RNNConfig, TwoLayerRNN
from tl_dyck.tasks import AutomatonTask, DyckTask, load_task

_PROVABLE = {**CLAIMS, **check_agreement.CLAIMS, "allowed": ALL_CLAIMS["allowed"]}
del _PROVABLE["named"]  # is what `check_agreement` makes of its claims

_CHUNK = 2048  # boxes bounded at once


@checked
@one_thread()
def prove_language(
    model_or_rnn: Any,
    task: DyckTask | AutomatonTask | str,
    length: SupportsIndex | None = None,
    property: str = "any_token",
    *,
    other: Any = None,
    head: Head | None = None,
    by: str | None = None,
    threshold: float | None = None,
    time_limit: float | None = None,
) -> Proof:
    """Prove a claim about every prefix, so that anyone can check it without this library.

    Nothing is counted, so that this is quicker than `certify_language`; for a model that is wrong
    somewhere that says where.

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> task = load_task("dyck-2-4")
        >>> proof = prove_language(construct.uniform_attention(task.language), task, 60)
        >>> 20_000 < len(proof.content) < 40_000
        True

    A model of one head without positions, with at most one LN_C, no other norm, and a ReLU or no
    MLP has a proof of few boxes of prefixes, for `check_language`. For "any_token", other models of
    one layer (positions, up to eight heads, norms, any MLP) have one length by length, by paths,
    for `check_automaton`. So have all of one layer for "allowed", and the languages of automata.
    Models of two layers without positions have one of each other claim, by paths, for
    `check_two_layers`.

    Args:
        model_or_rnn: a `TwoLayerRNN`, or a HookedTransformer whose tokens are the language's.
        task: a task or its name.
        length: of the longest prefixes, or strings of an automaton; shorter ones count. None: 28,
            or, of a task with places, for all that are asked.
        property: "any_token", "closing_only", "valid_token", "allowed", "agree" or "head"; of
            automata "any_token" or "allowed".
        other: for "agree": the other model.
        head: for "head": index of the head whose attention is made uniform, which is 0; or, of two
            layers, (layer, head).
        by: "boxes" or "paths"; None for boxes where the model allows them.
        threshold: of "allowed", above which a logit says that its symbol may follow; by default 0.
        time_limit: seconds; None for no limit.

    Raises:
        CertifyError: a threshold of another claim; another claim of an automaton.
        NoProofError: a prefix is wrong or within rounding, the time is over, or the model is of
            another kind.
        UnknownNameError: no such property, task or way.
    """
    task = load_task(task) if isinstance(task, str) else task
    if property not in _PROVABLE:
        raise unknown_name("property that can be proved", property, _PROVABLE)
    if by not in (None, "boxes", "paths"):
        raise unknown_name("way to prove", by, ("boxes", "paths"))
    asked = task.asked if isinstance(task, AutomatonTask) else None
    if length is None:
        length = asked[-1] + 1 if asked else LONGEST_UNSAID
    longest, limit = check_length(length, most=int(MOST["length"])), check_time_limit(time_limit)
    if isinstance(task, AutomatonTask):
        above = read_automaton_claim(task, property, (other, head), threshold)
        return prove_task(model_or_rnn, task, longest, limit, above)
    language = needs_stack(task.language, "prove_language is")
    n_models = 1 + (other is not None) + (head is not None)
    read_claim(property, task.distribution, None, n_models, threshold)
    above = read_threshold(property, threshold) if property == "allowed" else None
    if above is not None and (by == "boxes" or _has_two_layers(model_or_rnn)):
        raise NoProofError(
            "the claim 'allowed' has proofs by paths, of one-layer models; certify_language "
            "decides it of others"
        )
    if by != "boxes" and _has_two_layers(model_or_rnn):
        about: dict[str, Any] = {"other": other, "head": head, "time_limit": limit}
        return prove_two_layers(model_or_rnn, language, property, longest, **about)
    deadline = Deadline.after(limit)
    asker = _asker(model_or_rnn, language)
    boxes = by == "boxes" or (by is None and _has_boxes(asker.rnn.config, language))
    if above is not None or (property == "any_token" and not boxes):
        return prove_brackets(asker, language, longest, limit, above)
    facts, arrays = _asked(asker, language, property, longest)
    layer, head = head if isinstance(head, tuple) else (0, head)
    if head is not None and (check_integer("layer", layer), check_integer("head", head)) != (0, 0):
        raise CertifyError(
            f"head must be 0, not {head}: models of one layer that have proofs have one"
        )
    if other is not None:
        another = _asker(other, language)
        facts["other"], weights = _asked(another, language, property, longest)
        refuse_unlike([asker.model_or_rnn, another.model_or_rnn], language)
        arrays |= {f"other.{name}": weight for name, weight in weights.items()}
    models, trees = _models(facts, arrays), []
    with searching(limit):
        said = f"{_PROVABLE[property]}, after {prefixes(facts)}"
        for ending in endings(facts):
            trees += _Tree(facts, models, ending).grow(deadline)
    arrays["trees"] = np.array(trees, dtype="<u2")
    return Proof(pack(facts, arrays), said)


def _models(facts: dict[str, Any], arrays: dict[str, Array]) -> list[Model]:
    """Those that a winner must win in."""
    if facts["claim"] in CLAIMS:
        return [Model(facts, arrays)]
    both = check_agreement.models(facts, arrays | {"trees": np.zeros(0)})
    return [Model(*each) for each in both]


def _has_two_layers(model_or_rnn: Any) -> bool:
    rnn = isinstance(model_or_rnn, TwoLayerRNN | Asker)
    return not rnn and getattr(getattr(model_or_rnn, "cfg", None), "n_layers", 1) == 2


def _asker(model_or_rnn: Any, language: DyckLanguage) -> Asker:
    asker = Asker.of(model_or_rnn)
    check_predicts(asker.model_or_rnn, language)
    return asker


def _has_boxes(config: RNNConfig, language: DyckLanguage) -> bool:
    """Whether `check_language` knows such networks."""
    plain = has_form(config) and not (config.ln1 or config.has_position or config.beyond)
    return plain and config.bos_token == language.bos_token


def _asked(
    asker: Asker, language: DyckLanguage, property: str, length: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """Facts and weights, with the digest of the model."""
    c = asker.rnn.config
    if not _has_boxes(c, language):
        raise NoProofError(
            f"{c.model_name} is not of one layer and head without positions, with BOS, at most one "
            f"LN_C and no other norm, and a ReLU or no MLP, so that {property} has no proof; "
            "certify_language decides others"
        )
    facts, weights = facts_and_weights(asker.rnn, language, property, length)
    model = asker.model
    facts["model"] = None if model is None else tensors_digest(dict(model.named_parameters()))
    return facts, weights


def facts_and_weights(
    rnn: TwoLayerRNN, language: DyckLanguage, property: str, length: int
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `Model` takes: embeddings by symbol, no axis of the head, an empty MLP for none."""
    c = rnn.config
    when = "before" if c.ln_c is None else "after"
    facts = {
        "format": FORMAT if property in CLAIMS else check_agreement.FORMAT,
        "claim": property,
        "length": length,
        "n_types": language.n_types,
        "max_depth": language.max_depth,
        "attn_scale": c.attn_scale,
        "norm": (c.ln_c, c.ln_mid) != (None, None),
        "floor": c.ln_c or c.ln_mid or 0.0,
        "added": when if c.residual else "never",
    }
    found = {name: np.asarray(value.cpu()) for name, value in rnn.weights.items()}
    d, dtype = c.d_model, found["W_U"].dtype
    empty = {"W_in": (d, 0), "b_in": (0,), "W_out": (0, d), "b_out": (d,)}
    found = {name: np.zeros(shape, dtype) for name, shape in empty.items()} | found
    tokens, depths = np.transpose(symbols(language.n_types, language.max_depth))
    found["W_E"] = found["W_E"][(tokens, depths) if c.has_depth else tokens]
    for name, axes in AXES.items():
        if found[name].ndim != len(axes):  # one of the head
            found[name] = found[name][0]
    return facts, {name: np.ascontiguousarray(value) for name, value in found.items()}


class _Tree:
    """The tree of an ending."""

    def __init__(self, facts: dict[str, Any], models: list[Model], ending: Prefixes) -> None:
        self.facts, self.models, self.ending = facts, models, ending
        self.forms: dict[int, list[Margin]] = {}
        tokens = range(min(each.n_logits for each in models))
        may = sorted(ending.may) if facts["claim"] in CLAIMS else list(tokens)
        self.may = np.array(may)
        if len(may) > 1:
            self.first = Margin(models[0], ending, may[0], {*tokens} - {*may})

    def grow(self, deadline: Deadline) -> list[int]:
        """Its nodes, in preorder."""
        boxes: list[Any] = [self.ending.box]
        said: list[tuple[int, list[int]]] = [(0, [])]  # node, and its children by number
        front = [0]
        while front:
            deadline.check()
            now, front = front[:_CHUNK], front[_CHUNK:]
            low, high = (np.array([boxes[i][side] for i in now], dtype=float) for side in (0, 1))
            for i, winner, axis in zip(now, *self._settled(low, high), strict=True):
                if axis is None:
                    said[i] = LEAF + winner, []
                    continue
                halves = self.ending.halves(boxes[i][0], boxes[i][1], axis)
                said[i] = axis, list(range(len(boxes), len(boxes) + len(halves)))
                front += said[i][1]
                boxes += halves
                said += [(0, [])] * len(halves)
        order, todo = [], [0]
        while todo:
            node, children = said[todo.pop()]
            order.append(node)
            todo += children[::-1]
        return order

    def _settled(self, low: Array, high: Array) -> tuple[list[int], list[int | None]]:
        """Who wins on boxes; along which axis to halve each, None where that is settled."""
        winners = self._best((low + high) / 2)
        axes: list[int | None] = [None] * len(low)
        for winner in np.unique(winners).tolist():
            at = np.flatnonzero(winners == winner)
            settled, width = np.ones(len(at), dtype=bool), np.zeros(low[at].shape)
            for form in self._forms(winner):
                here, wide = form.settles(low[at], high[at])
                settled &= here
                width += np.where(here[:, None], 0.0, wide / wide.sum(1, keepdims=True))
            for i, wide in zip(at[~settled].tolist(), width[~settled], strict=True):
                sizes = high[i] - low[i]
                if not sizes.any():
                    raise NoProofError(
                        f"a prefix with the stack {self.ending.stack} and, but for the last, pairs "
                        f"{low[i].astype(int).tolist()} is wrong, or within rounding"
                    )
                # 1e-12: of axes that widen nothing the longest; -1 keeps axes of
                # one value from being halved
                wide = np.where(sizes > 0, np.nan_to_num(wide) + 1e-12 * sizes, -1.0)
                axes[i] = int(wide.argmax())
        return winners.tolist(), axes

    def _forms(self, winner: int) -> list[Margin]:
        if winner not in self.forms:
            may = self.ending.may if self.facts["claim"] in CLAIMS else [winner]
            self.forms[winner] = [Margin(each, self.ending, winner, may) for each in self.models]
        return self.forms[winner]

    def _best(self, pairs: Array) -> Array:
        """Of the tokens that may win the one that does, at points, in one of the models."""
        if len(self.may) == 1:
            return np.repeat(self.may, len(pairs))
        x, form = np.pad(pairs, ((0, 0), (1, 0)), constant_values=1), self.first
        # without radii: who wins is a guess, which `settles` then has to show
        size = np.sqrt(((x @ form.u.mid) ** 2).sum(1))
        rho = np.maximum(size, x @ form.floor.mid)[:, None]
        hidden = np.maximum(x @ form.beta.mid.T + form.s.mid * rho, 0)
        value = x @ form.alpha.mid.T + form.c.mid * rho + hidden @ form.v.mid
        # columns are the first's lead over each other: where that is least, the other is strongest
        best: Array = self.may[value.argmin(1)]
        return best
