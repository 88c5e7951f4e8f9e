"""Write proofs that `check_proof` checks: trees of boxes, found by halving what is not settled.

Knows: in which order boxes are tried. What settles a box only the checker knows.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex, final

import numpy as np

from tl_dyck.certify.asking import Asker
from tl_dyck.certify.check_proof import AXES, BOUND, CLAIMS, FORMAT, RANGES, Model, Prefixes
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.forms import has_form
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.check import check_length, check_time_limit
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
        property: "any_token", "closing_only" or "valid_token".
        time_limit: seconds; None for no limit.

    Raises:
        NoProofError: a prefix is wrong or within rounding, the time is over, or the model is of
            another kind.
        UnknownNameError: no such property or task.
    """
    task = load_task(task) if isinstance(task, str) else task
    if property not in CLAIMS:
        raise unknown_name("property that can be proved", property, CLAIMS)
    deadline, asker = Deadline.after(check_time_limit(time_limit)), Asker.of(model_or_rnn)
    rnn, language = asker.rnn, needs_stack(task.language, "prove_language is")
    check_reads(asker.asked, language)
    c = rnn.config
    if not has_form(c) or c.ln1 or c.has_position or c.bos_token != language.bos_token:
        raise NoProofError(
            f"{c.model_name} is not of one layer and head without positions, with BOS, at most one "
            "LN_C and no other norm, and a ReLU or no MLP; certify_language decides others"
        )
    digest = None if asker.model is None else tensors_digest(dict(asker.model.named_parameters()))
    facts, weights = facts_and_weights(rnn, language, property, length)
    facts["model"] = digest
    model, trees = Model(facts, weights), []
    try:
        with np.errstate(all="ignore"):
            for ending in model.endings():
                trees += _tree(ending.compute(), deadline)
    except OutOfTime:
        raise NoProofError(f"none was found in {time_limit} s") from None
    arrays = {**weights, "trees": np.array(trees, dtype=np.uint8)}
    return Proof(pack(facts, arrays), model.says())


def facts_and_weights(
    rnn: TwoLayerRNN, language: DyckLanguage, property: str, length: SupportsIndex
) -> tuple[dict[str, Any], dict[str, Array]]:
    """What `check_proof.Model` takes: no axis of the head, an empty MLP for none."""
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
    for name, axes in AXES.items():
        if found[name].ndim != len(axes):  # no axis of depths; one of the head
            found[name] = found[name][:, None] if name == "W_E" else found[name][0]
    return facts, {name: np.ascontiguousarray(value) for name, value in found.items()}


def pack(facts: dict[str, Any], arrays: dict[str, Any]) -> bytes:
    """A proof's file: the digest of the rest, a line of JSON, numbers."""
    facts = {**facts, "arrays": {name: [a.dtype.str, list(a.shape)] for name, a in arrays.items()}}
    rest = json.dumps(facts).encode() + b"\n" + b"".join(a.tobytes() for a in arrays.values())
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def _tree(ending: Prefixes, deadline: Deadline) -> list[int]:
    """The tree of an ending, in preorder."""
    boxes: list[Any] = [ending.box]
    said: list[tuple[int, list[int]]] = [(BOUND, [])]  # node, and its children by number
    front = [0]
    while front:
        deadline.check()
        now, front = front[:_CHUNK], front[_CHUNK:]
        low, high = (np.array([boxes[i][side] for i in now], dtype=float) for side in (0, 1))
        settled, width = ending.bounds(low, high)
        for i, wide in zip(np.array(now)[~settled].tolist(), width[~settled], strict=True):
            sizes = boxes[i][1] - boxes[i][0]
            if not sizes.any():
                raise NoProofError(
                    f"a prefix that ends with the stack {ending.stack} and has pairs "
                    f"{boxes[i][0].tolist()} is wrong, or within rounding"
                )
            axis = int(np.where(sizes > 0, np.nan_to_num(wide) + 1e-12 * sizes, -1.0).argmax())
            halves = ending.halves(boxes[i][0], boxes[i][1], axis)
            said[i] = axis, list(range(len(boxes), len(boxes) + len(halves)))
            front += said[i][1]
            boxes += halves
            said += [(BOUND, [])] * len(halves)
    order, todo = [], [0]
    while todo:
        node, children = said[todo.pop()]
        order.append(node)
        todo += children[::-1]
    return order
