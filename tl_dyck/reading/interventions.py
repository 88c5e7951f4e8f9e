"""Interventions: hide keys from attention, erase what tells a label, interchange a subspace.

Attention knockout (Geva et al. 2023, arXiv 2304.14767), LEACE (Belrose et al. 2023, arXiv
2306.03819) and distributed alignment search (Geiger et al. 2023, arXiv 2303.02536), for any
HookedTransformer. A change of activations becomes a list of hooks by `change_activation`,
for `run_with_hooks`.

Knows: what each of these does to scores and activations; nothing of tasks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import (
    WrongTypeError,
    WrongValueError,
    check_integer,
    check_length,
    check_number,
    shown,
)
from tl_dyck.reading.inputs import measured

__all__ = [
    "Change",
    "Eraser",
    "Hook",
    "align",
    "change_activation",
    "hide_keys",
    "interchange",
    "key_of_each",
    "key_of_one",
    "run",
]

Hook = tuple[str, Callable[[Tensor, Any], Tensor]]
#: A change of activations, ``[..., d]`` to the same.
Change = Callable[[Tensor], Tensor]

_LONGEST = 100_000  # positions of a mask of keys
_MOST_LABELS, _MOST_STEPS = 100_000, 1_000_000
_TOLERANCE = 1e-9  # of the largest variance: directions with less have none
_DEPENDENT = 1e-6  # of the largest: directions of the label with less are none


@checked
def run(model: Any, tokens: Int[Tensor, "batch pos"], hooks: Sequence[Hook] = ()) -> Tensor:
    """Logits under hooks, ``[batch, pos, d_vocab]``, on the CPU and without gradients."""
    measured(model, "run")
    with torch.no_grad():
        logits: Tensor = model.run_with_hooks(
            tokens.to(model.cfg.device), fwd_hooks=list(hooks), return_type="logits"
        )
    return logits.cpu()


@checked
def change_activation(name: str, change: Change, head: int | None = None) -> list[Hook]:
    """Change an activation at all positions.

    Args:
        name: of the hook point.
        change: of ``[batch, pos, d]`` to the same.
        head: changed alone, where activations are ``[batch, pos, head, d]``, as of "hook_z".
    """
    if head is not None:
        head = check_integer("head", head, least=0)

    def hook(found: Tensor, hook: Any) -> Tensor:
        if head is None:
            return change(found)
        found = found.clone()
        found[:, :, head] = change(found[:, :, head])
        return found

    return [(name, hook)]


# --- attention ------------------------------------------------------------------------------------


@checked
def hide_keys(
    hidden: Bool[Tensor, "batch query key"],
    layers: Sequence[int],
    heads: Sequence[int] | None = None,
) -> list[Hook]:
    """Attention knockout: scores of hidden keys become minus infinity, so other weights grow.

    Args:
        hidden: which key is hidden from which query; no query may lose all of its keys.
        layers: in which this is done.
        heads: in which this is done; None for all.
    """

    def hide(scores: Tensor, hook: Any) -> Tensor:
        # [batch, head, query, key]
        some = slice(None) if heads is None else list(heads)
        scores = scores.clone()
        scores[:, some] = scores[:, some].masked_fill(
            hidden[:, None].to(scores.device), float("-inf")
        )
        return scores

    return [(f"blocks.{layer}.attn.hook_attn_scores", hide) for layer in layers]


@checked
def key_of_each(key: Int[Tensor, "batch query"]) -> Bool[Tensor, "batch query key"]:
    """What to hide, if each query loses one key; -1 where it loses none."""
    if bool(((key < -1) | (key >= key.shape[1])).any()):
        raise WrongValueError(
            f"key must be a position below {key.shape[1]}, or -1, got {int(key.abs().max())}"
        )
    return torch.arange(key.shape[1]) == key[..., None]


@checked
def key_of_one(
    query: Int[Tensor, " batch"], key: Int[Tensor, " batch"], length: int
) -> Bool[Tensor, "batch query key"]:
    """What to hide, if one query of each string loses one key; -1 where it loses none."""
    length = check_length(length, least=1, most=_LONGEST)
    if len(query) != len(key) or bool(((query < 0) | (query >= length)).any()):
        raise WrongValueError(
            f"query must be a position below length={length} for each key, got {query.tolist()} "
            f"for {len(key)} keys"
        )
    keys = torch.full((len(query), length), -1)
    return key_of_each(keys.scatter(1, query[:, None], key[:, None]))


# --- what tells a label ---------------------------------------------------------------------------


@final
@dataclass(frozen=True)
class Eraser:
    """Erases all that tells a label linearly: ``x − E (x − mean)``, LEACE.

    No linear classifier of the label does better on what is left than a constant one, and of all
    affine maps with that property this one changes x least.

    Attributes:
        mean: of the activations.
        covariance: Σ, of the activations.
        cross_covariance: C, covariance of activations and one-hot label.
        matrix: ``E = C (Cᵀ Σ⁺ C)⁺ Cᵀ Σ⁺``, a projection.
    """

    mean: Float[Tensor, " d"]
    covariance: Float[Tensor, "d d"]
    cross_covariance: Float[Tensor, "d n_labels"]
    matrix: Float[Tensor, "d d"]

    @classmethod
    @checked
    def fit(cls, x: Float[Tensor, "n d"], label: Int[Tensor, " n"], n_labels: int) -> Eraser:
        """Fit it in float64.

        Args:
            x: activations.
            label: of each, from 0 on.
            n_labels: how many labels there are.
        """
        n_labels = check_integer("n_labels", n_labels, least=1, most=_MOST_LABELS)
        if len(x) != len(label) or not len(x) or not bool(x.isfinite().all()):
            raise WrongValueError(
                f"x must be finite, a row for each label, got {shown(x)} for {len(label)} labels"
            )
        if not 0 <= int(label.min()) <= int(label.max()) < n_labels:
            raise WrongValueError(f"label must be below n_labels={n_labels}, got {shown(label)}")
        wide = x.double()
        mean = wide.mean(0)
        wide = wide - mean
        # over n, as LEACE's are: E does not change with a common factor
        covariance = wide.T @ wide / len(wide)
        onehot = torch.nn.functional.one_hot(label, n_labels).double()
        crossed = wide.T @ (onehot - onehot.mean(0)) / len(wide)
        inverse = torch.linalg.pinv(covariance, rtol=_TOLERANCE, hermitian=True)
        within = torch.linalg.pinv(crossed.T @ inverse @ crossed, rtol=_DEPENDENT, hermitian=True)
        return cls(mean, covariance, crossed, crossed @ within @ crossed.T @ inverse)

    @property
    def rank(self) -> int:
        """How many dimensions are erased, at most one less than there are labels."""
        return int(torch.linalg.matrix_rank(self.matrix, rtol=_DEPENDENT))

    def __call__(self, x: Float[Tensor, "*any d"]) -> Float[Tensor, "*any d"]:
        """Erase; the type stays as it is."""
        return self.project_out(x, self.matrix)

    @checked
    def project_out(self, x: Float[Tensor, "*any d"], matrix: Tensor) -> Float[Tensor, "*any d"]:
        """The same with another projection, as on a direction: its part becomes the mean's."""
        d = len(self.mean)
        if x.shape[-1] != d or matrix.shape != (d, d) or matrix.is_meta:
            raise WrongValueError(
                f"x and matrix must be [..., {d}] and [{d}, {d}], got {shown(x)} and "
                f"{shown(matrix)}"
            )
        wide = x.to(matrix)
        return (wide - (wide - self.mean) @ matrix.T).to(x)


# --- interchange ----------------------------------------------------------------------------------


@checked
def interchange(
    basis: Float[Tensor, "d rank"],
    source: Float[Tensor, "*where d"],
    position: Int[Tensor, " batch"] | None = None,
) -> Change:
    """Let a subspace hold what a source has there: ``x + R Rᵀ (source − x)``.

    Args:
        basis: R, with orthonormal columns.
        source: activations of the sources: one for each string with a position, else one for each
            position of each.
        position: of each string, the only one that is changed; None for all.
    """

    def change(x: Tensor) -> Tensor:
        if position is None:
            return x + (source - x) @ basis @ basis.T
        rows = torch.arange(len(position), device=x.device)
        here = x[rows, position]
        new = here + (source - here) @ basis @ basis.T
        return x.index_put((rows, position.to(x.device)), new)

    return change


@checked
@torch.enable_grad()
def align(
    answers: Callable[[Tensor], Tensor],
    wanted: Int[Tensor, " n"],
    start: Float[Tensor, "d rank"],
    *,
    steps: int = 60,
    learning_rate: float = 0.1,
) -> Float[Tensor, "d rank"]:
    """Distributed alignment search: learn the subspace whose interchange gives wanted answers.

    Adam on a matrix, whose QR factor is the basis.

    Args:
        answers: from a basis to the logits ``[n, answer]`` after the interchange.
        wanted: the right answers; the loss is their cross-entropy.
        start: where the search begins.
        steps: of Adam.
        learning_rate: of Adam.

    Returns:
        The basis, with orthonormal columns.
    """
    steps = check_integer("steps", steps, least=0, most=_MOST_STEPS)
    learning_rate = check_number("learning_rate", learning_rate, 0, above=True)
    if not bool(start.isfinite().all()):
        raise WrongValueError("start must be finite, but holds nan or infinite numbers")
    matrix = start.clone().requires_grad_(True)
    optimizer = torch.optim.Adam([matrix], lr=learning_rate)
    for _ in range(steps):
        logits = answers(torch.linalg.qr(matrix).Q)
        if not isinstance(logits, Tensor) or logits.ndim != 2 or len(logits) != len(wanted):
            raise WrongTypeError(
                f"answers must return logits [n, answer] of {len(wanted)} strings, got "
                f"{shown(logits)}"
            )
        loss = torch.nn.functional.cross_entropy(logits, wanted)
        (matrix.grad,) = torch.autograd.grad(loss, [matrix])
        optimizer.step()
    basis: Tensor = torch.linalg.qr(matrix.detach()).Q
    return basis
