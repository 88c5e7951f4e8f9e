"""Write proofs that `check_languages` checks: trees of boxes, found by halving what is not settled.

Knows: in which order boxes are tried. What settles a box only the checker knows.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex, final

import numpy as np

from tl_dyck.certify.asker import Asker
from tl_dyck.certify.check_languages import (
    AXES,
    CLAIMS,
    FORMAT,
    LEAF,
    OPEN,
    RANGES,
    Margin,
    Model,
    Prefixes,
    endings,
    losers,
    networks,
    says,
)
from tl_dyck.certify.check_proof import symbols
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.claims import read_claim
from tl_dyck.certify.language.forms import has_form
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.check import check_integer, check_length, check_time_limit
from tl_dyck.environment import one_thread
from tl_dyck.files import tensors_digest, write_output
from tl_dyck.language import DyckLanguage
from tl_dyck.language.symbols import needs_stack
from tl_dyck.reading import check_reads
from tl_dyck.registry import unknown_name
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.tasks import DyckTask, load_task

_CHUNK = 2048  # boxes bounded at once


class NoProofError(CertifyError):
    """There is no proof, or none was found; the message says why."""


@final
@dataclass(frozen=True)
class Proof:
    """A proof that a claim holds on every prefix, for `tl_dyck.certify.check_proof` to check.

    Attributes:
        content: of the file.
        says: what is proved, in a sentence.
    """

    content: bytes
    says: str

    def __repr__(self) -> str:
        return f"Proof({self.says}; {len(self.content):,} bytes)"

    def save(self, path: str | Path) -> Path:
        """Write the file; see ``tl-dyck check``.

        Raises:
            OSError: it cannot be written.
        """
        write_output(path, self.content)
        return Path(path)


@one_thread()
def prove_language(
    model_or_rnn: Any,
    task: DyckTask | str,
    length: SupportsIndex,
    property: str = "any_token",
    *,
    other: Any = None,
    head: SupportsIndex | None = None,
    time_limit: float | None = None,
) -> Proof:
    """Prove a claim about every prefix, so that anyone can check it without this library.

    Nothing is counted, so that this is quicker than `certify_language`; for a model that is wrong
    somewhere that says where.

    >>> from tl_dyck import construct, load_task
    >>> task = load_task("dyck-2-4")
    >>> proof = prove_language(construct.uniform_attention(task.language), task, 60)
    >>> 20_000 < len(proof.content) < 40_000
    True

    Args:
        model_or_rnn: a `TwoLayerRNN`, or a HookedTransformer whose tokens are the language's: one
            layer, one head, no positions, no norm but at most one LN_C, a ReLU or no MLP.
        task: a task or its name.
        length: of the longest prefixes, in brackets.
        property: "any_token", "closing_only", "valid_token", "agree" or "head".
        other: for "agree": the other model.
        head: for "head": index of the head whose attention is made uniform, which is 0.
        time_limit: seconds; None for no limit.

    Raises:
        NoProofError: a prefix is wrong or within rounding, the time is over, or the model is of
            another kind.
        UnknownNameError: no such property or task.
    """
    task = load_task(task) if isinstance(task, str) else task
    if property not in CLAIMS:
        raise unknown_name("property that can be proved", property, CLAIMS)
    language = needs_stack(task.language, "prove_language is")
    n_models = 1 + (other is not None) + (head is not None)
    read_claim(property, task.distribution, None, n_models)
    deadline = Deadline.after(check_time_limit(time_limit))
    facts, arrays = _asked(model_or_rnn, language, property, length)
    if head is not None and check_integer("head", head) != 0:
        raise CertifyError(f"head must be 0, not {head}: models that have proofs have one")
    if other is not None:
        facts["other"], weights = _asked(other, language, property, length)
        arrays |= {f"other.{name}": weight for name, weight in weights.items()}
    models, trees = list(networks(facts, arrays)), []
    try:
        with np.errstate(all="ignore"):
            for ending in endings(facts):
                trees += _Tree(facts, models, ending).grow(deadline)
    except OutOfTime:
        raise NoProofError(f"none was found in {time_limit} s") from None
    arrays["trees"] = np.array(trees, dtype="<u2")
    return Proof(pack(facts, arrays), says(facts))


def _asked(
    model_or_rnn: Any, language: DyckLanguage, property: str, length: SupportsIndex
) -> tuple[dict[str, Any], dict[str, Array]]:
    """The same, with the digest of the model."""
    asker = Asker.of(model_or_rnn)
    check_reads(asker.asked, language)
    c = asker.rnn.config
    if not has_form(c) or c.ln1 or c.has_position or c.bos_token != language.bos_token:
        raise NoProofError(
            f"{c.model_name} is not of one layer and head without positions, with BOS, at most one "
            "LN_C and no other norm, and a ReLU or no MLP; certify_language decides others"
        )
    facts, weights = facts_and_weights(asker.rnn, language, property, length)
    model = asker.model
    facts["model"] = None if model is None else tensors_digest(dict(model.named_parameters()))
    return facts, weights


def facts_and_weights(
    rnn: TwoLayerRNN, language: DyckLanguage, property: str, length: SupportsIndex
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `Model` takes: embeddings by symbol, no axis of the head, an empty MLP for none."""
    c = rnn.config
    when = "before" if c.ln_c is None else "after"
    facts = {
        "format": FORMAT,
        "claim": property,
        "length": check_length(length, most=int(RANGES["length"][1])),
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


def pack(facts: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """A proof's file: the digest of the rest, a line of JSON, numbers."""
    facts = {**facts, "arrays": {name: [a.dtype.str, list(a.shape)] for name, a in arrays.items()}}
    rest = json.dumps(facts).encode() + b"\n" + b"".join(a.tobytes() for a in arrays.values())
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


class _Tree:
    """The tree of an ending."""

    def __init__(self, facts: dict[str, Any], models: list[Model], ending: Prefixes) -> None:
        self.facts, self.models, self.ending = facts, models, ending
        self.forms: dict[int, list[Margin]] = {}
        may = [2 * a + 1 for a in ending.stack[-1:]]
        if facts["claim"] == "valid_token" and len(ending.stack) < facts["max_depth"]:
            may += range(0, 2 * facts["n_types"], 2)
        elif facts["claim"] not in OPEN:
            may = list(range(min(each.n_logits for each in models)))
        self.may = np.array(may)
        if len(may) > 1:
            self.first = Margin(models[0], ending, may[0], may)

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
                wide = np.where(sizes > 0, np.nan_to_num(wide) + 1e-12 * sizes, -1.0)
                axes[i] = int(wide.argmax())
        return winners.tolist(), axes

    def _forms(self, winner: int) -> list[Margin]:
        if winner not in self.forms:
            self.forms[winner] = [
                Margin(each, self.ending, winner, losers(self.facts, self.ending, winner, each))
                for each in self.models
            ]
        return self.forms[winner]

    def _best(self, pairs: Array) -> Array:
        """Of the tokens that may win the one that does, at points, in one of the models."""
        if len(self.may) == 1:
            return np.repeat(self.may, len(pairs))
        x, form = np.pad(pairs, ((0, 0), (1, 1))), self.first
        x[:, 0] = 1
        size = np.sqrt(((x @ form.u.mid) ** 2).sum(1))
        rho = np.maximum(size, x @ form.floor.mid)[:, None]
        hidden = np.maximum(x @ form.beta.mid.T + form.s.mid * rho, 0)
        value = x @ form.alpha.mid.T + form.c.mid * rho + hidden @ form.v
        best: Array = self.may[value.argmin(1)]
        return best
