"""Linear probes: what can be read off an activation."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.judge import Case, score_heads
from tl_dyck_hooks.methods.shared import activations, z_names

_RIDGE = 1e-3


@score_heads(
    above=0.9,
    unit="of what is probed",
    paper="Alain and Bengio 2017; Hewitt and Manning 2019",
    stack=lambda case: _of_stream(case, "type"),
)
def type_probe(case: Case) -> Any:
    """Accuracy of a linear probe for the type on top of the stack, after closing brackets.

    Of a head's output z: what it holds, it is there for. Of the last residual stream: a model whose
    stack can be read keeps one. Least squares of one-hot labels on standardised coordinates, ridge
    0.001 for each example; trained on half of the strings, tested on the others.
    """
    return _of_heads(case, "type")


@score_heads(
    above=0.9,
    unit="of what is probed",
    paper="Alain and Bengio 2017; Hewitt and Manning 2019",
    stack=lambda case: _of_stream(case, "depth"),
)
def depth_probe(case: Case) -> Any:
    """The same for the depth, at all positions."""
    return _of_heads(case, "depth")


def _asked(case: Case, what: str) -> tuple[Tensor, Tensor]:
    """Labels ``[batch, pos]``, and where they are asked for."""
    language = case.task.language
    right = language.right_bracket(case.tokens)
    if what == "type":
        return right.clamp(min=0) // 2, (right >= 0) & language.is_close(case.tokens)
    return language.depth(case.tokens), torch.ones_like(right, dtype=torch.bool)


def _of_stream(case: Case, what: str) -> float:
    name = f"blocks.{case.model.cfg.n_layers - 1}.hook_resid_post"
    (stream,) = activations(case.model, case.tokens, [name])
    return _accuracy(stream, *_asked(case, what))


def _of_heads(case: Case, what: str) -> list[list[float]]:
    z = activations(case.model, case.tokens, z_names(case))
    asked = _asked(case, what)
    return [[_accuracy(x, *asked) for x in layer.unbind(2)] for layer in z]


def _accuracy(
    x: Float[Tensor, "batch pos d"], labels: Int[Tensor, "batch pos"], asked: Tensor
) -> float:
    """Accuracy, on the second half of the strings, of a ridge classifier of the first half."""
    half = len(x) // 2
    parts = [
        (x[rows][asked[rows]].double(), labels[rows][asked[rows]])
        for rows in (slice(None, half), slice(half, None))
    ]
    (train, told), (test, wanted) = parts
    mean, scale = train.mean(0), train.std(0).clamp(min=1e-9)
    train, test = (
        torch.cat([(each - mean) / scale, torch.ones(len(each), 1)], 1) for each in (train, test)
    )
    targets = torch.nn.functional.one_hot(told, int(labels.max()) + 1).double()
    gram = train.T @ train + _RIDGE * len(train) * torch.eye(train.shape[1], dtype=torch.float64)
    weights = torch.linalg.solve(gram, train.T @ targets)
    return float(((test @ weights).argmax(-1) == wanted).double().mean())
