"""Write proofs that `check_proof` checks: trees of boxes, found by halving what is not settled.

Knows: in which order boxes are tried. What settles a box only the checker knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any, SupportsIndex, final

import numpy as np

from tl_dyck.certify.asking import Asker
from tl_dyck.certify.check_proof import BOUND, CLAIMS, FORMAT, POINTS, Form, Model, listed, pack
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.language.forms import has_form
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.check import check_length, check_time_limit
from tl_dyck.environment import one_thread
from tl_dyck.files import tensors_digest, write_output
from tl_dyck.language.symbols import needs_stack
from tl_dyck.reading import check_reads
from tl_dyck.registry import unknown_name
from tl_dyck.tasks import DyckTask, load_task

_FEW = 64  # points of a box that are rather looked at than bounded
_CHUNK = 2048  # boxes bounded at once


class NoProofError(CertifyError):
    """There is no proof, or none was found; the message says why."""


@final
@dataclass(frozen=True)
class LanguageProof:
    """A proof that a claim holds on every prefix, for `tl_dyck.certify.check_proof` to check.

    Attributes:
        content: of the file.
        says: what is proved, in a sentence.
    """

    content: bytes
    says: str

    def __repr__(self) -> str:
        return f"LanguageProof({self.says}; {len(self.content):,} bytes)"

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
) -> LanguageProof:
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
            layer, one head, no positions, at most one LN_C, a ReLU or no MLP.
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
    if not has_form(c) or c.has_position or c.bos_token != language.bos_token:
        raise NoProofError(
            f"{c.model_name} is not of one layer and head without positions, with BOS, at most one "
            "LN_C, and a ReLU or no MLP; certify_language decides others"
        )
    digest = None if asker.model is None else tensors_digest(dict(asker.model.named_parameters()))
    facts = {"format": FORMAT, "claim": property, "model": digest, "length": check_length(length)}
    facts |= {"n_types": language.n_types, "max_depth": language.max_depth}
    names = ("ln1", "ln_c", "ln_mid", "residual", "act_fn", "attn_scale", "eps")
    facts |= {name: getattr(c, name) for name in names}
    weights = {name: np.ascontiguousarray(value.cpu()) for name, value in rnn.weights.items()}
    for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
        weights[name] = weights[name][0]
    model, trees = Model(facts, weights), []
    try:
        with np.errstate(all="ignore"):
            for form in model.endings():
                trees += _tree(form.compute(), deadline)
    except OutOfTime:
        raise NoProofError(f"none was found in {time_limit} s") from None
    arrays = {**weights, "trees": np.array(trees, dtype=np.uint8)}
    return LanguageProof(pack(facts, arrays), model.says())


def _tree(form: Form, deadline: Deadline) -> list[int]:
    """The tree of an ending, in preorder."""
    boxes: list[Any] = [form.root()]
    said: list[tuple[int, list[int]]] = [(BOUND, [])]  # node, and its children by number
    front = [0]
    while front:
        deadline.check()
        now, front = front[:_CHUNK], front[_CHUNK:]
        low, high = (np.array([boxes[i][side] for i in now], dtype=float) for side in (0, 1))
        settled, width = form.bounds(low, high)
        for i, fine, wide in zip(now, settled, width, strict=True):
            if fine:
                continue
            box_low, box_high = boxes[i]
            sizes = box_high - box_low
            if np.prod(sizes + 1.0) <= _FEW:
                points = listed(box_low, box_high)
                right = form.points(points)
                if not right.all():
                    raise NoProofError(
                        f"a prefix that ends with the stack {form.stack} and has pairs "
                        f"{points[~right][0].tolist()} is wrong, or within rounding"
                    )
                said[i] = POINTS, []
                continue
            axis = int(np.where(sizes > 0, np.nan_to_num(wide) + 1e-12 * sizes, -1.0).argmax())
            children = []
            for part in form.halves(box_low, box_high, axis):
                children.append(len(boxes))
                boxes.append(part)
                said.append((BOUND, []))
            said[i] = axis, children
            front += children
    order, todo = [], [0]
    while todo:
        node, children = said[todo.pop()]
        order.append(node)
        todo += children[::-1]
    return order
