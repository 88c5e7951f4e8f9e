"""The worst string of each sentence, for a whole batch: what robust training learns from.

For a readout that is linear in the attention's output of one head, this is Dinkelbach's method of
`tl_dyck.certify.exact`, on all sentences at once, and the strings are exactly the worst. For other
readouts each round minimises the margin's linearisation at the string of the round before (a
first-order attack, and the string with the least margin seen is kept): strings of the space that
are bad for the model, with no claim to be the worst.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer
from tl_dyck.kit.errors import DyckError
from tl_dyck_text.edits import BatchEdits, pad
from tl_dyck_text.model import TextTransformer


class UnsupportedTextModelError(DyckError, ValueError):
    """An objective needs keys and values of the word alone, but the model has positions."""


def readout(
    model: TextTransformer, z: Float[Tensor, "batch head d_head"]
) -> Float[Tensor, "batch class"]:
    """Logits at "<cls>" from the attention's outputs there, through the model's own modules."""
    block: Any = model.blocks[0]
    x = (
        model.W_E[model.text.cls_token]
        + torch.einsum("bhe,hem->bm", z, block.attn.W_O)
        + block.attn.b_O
    )
    if not model.cfg.attn_only:
        x = x + block.mlp(block.ln2(x[:, None]))[:, 0]
    x = x[:, None] if model.cfg.normalization_type is None else model.ln_final(x[:, None])
    logits: Tensor = model.unembed(x)[:, 0]
    return logits


def word_terms(model: TextTransformer, known: Tensor) -> tuple[Tensor, Tensor]:
    """For each word its attention weight [words, head] and value [words, head, d_head].

    The weight is exp(score - largest).
    """
    block: Any = model.blocks[0]
    attn, x = block.attn, block.ln1(model.W_E[known][:, None])[:, 0]
    cls = block.ln1(model.W_E[model.text.cls_token][None, None])[0, 0]
    query = torch.einsum("m,hme->he", cls, attn.W_Q) + attn.b_Q
    key = torch.einsum("wm,hme->whe", x, attn.W_K) + attn.b_K
    score = torch.einsum("whe,he->wh", key, query) / attn.attn_scale
    weight = (score - score.max(0).values.detach()).exp()
    return weight, torch.einsum("wm,hme->whe", x, attn.W_V) + attn.b_V


@final
@checked
@dataclass(frozen=True)
class Attack:
    """Options of the search for bad strings.

    Attributes:
        model: attacked as it is when called.
        edits: the space.
        rounds: most shortest paths a sentence; with a linear readout it converges in three or four.
    """

    model: TextTransformer
    edits: BatchEdits
    rounds: int = 4

    def __post_init__(self) -> None:
        check_integer("rounds", self.rounds, least=1)
        if self.model.text.position != "none":
            raise UnsupportedTextModelError(
                "worst strings in training need a model without positions, not "
                f"position={self.model.text.position!r}; "
                "train it clean or with random augmentation."
            )

    @torch.no_grad()
    def __call__(
        self,
        tokens: Int[Tensor, "batch pos"],
        lengths: Int[Tensor, " batch"],
        labels: Int[Tensor, " batch"],
    ) -> tuple[list[list[int]], Float[Tensor, " batch"]]:
        """The worst strings found, "<cls>" included, and their margins.

        A margin is the logit of the label less the largest other one.
        """
        known, index = self._vocabulary(tokens)
        weight, value = word_terms(self.model, known)
        current = [row[:n] for row, n in zip(tokens.tolist(), lengths.tolist(), strict=True)]
        worst, least = current, torch.full((len(labels),), torch.inf, dtype=weight.dtype)
        for turn in range(self.rounds + 1):
            z, total = self._attend(current, index, weight, value)
            margin, gradient = self._margin(z, labels)
            better = margin < least - 1e-6 * margin.abs().clamp(min=1)
            worst = [
                new if good else old
                for new, old, good in zip(current, worst, better.tolist(), strict=True)
            ]
            least = torch.where(better, margin, least)
            if turn == self.rounds or not bool(better.any()):
                break
            shift = (gradient * z).sum(-1)  # [batch, head]
            along = torch.einsum("bhe,whe->bhw", gradient, value) - shift[..., None]
            cost = (along * (weight.T / total[..., None])).sum(1)  # [batch, words]
            current, _ = self.edits.cheapest(tokens, lengths, cost.double().numpy(), index)
        return worst, least

    def _vocabulary(self, tokens: Tensor) -> tuple[Tensor, np.ndarray]:
        """The tokens that can occur in a batch's strings, and their places (else 0)."""
        here = np.unique(tokens.numpy())
        found = np.unique(np.concatenate([here, self.edits.synonyms[here].ravel()]))
        found = found[found >= 0]
        index = np.zeros(len(self.model.text.words), dtype=np.int64)
        index[found] = np.arange(len(found))
        return torch.from_numpy(found), index

    def _attend(
        self, strings: list[list[int]], index: np.ndarray, weight: Tensor, value: Tensor
    ) -> tuple[Tensor, Tensor]:
        """Attention's outputs at "<cls>", [batch, head, d_head]; sums of weights, [batch, head]."""
        tokens, lengths = pad(strings)
        there = torch.from_numpy(index)[tokens]
        real = torch.arange(tokens.shape[1]) < lengths[:, None]
        weights = weight[there] * real[..., None]
        total = weights.sum(1)
        return torch.einsum("blh,blhe->bhe", weights, value[there]) / total[..., None], total

    def _margin(self, z: Tensor, labels: Tensor) -> tuple[Tensor, Tensor]:
        """Margins, and their gradients with respect to z."""
        with torch.enable_grad():
            z = z.detach().requires_grad_()
            margin = margins(readout(self.model, z), labels)
            (gradient,) = torch.autograd.grad(margin.sum(), z)
        return margin.detach(), gradient


def margins(logits: Any, labels: Tensor) -> Tensor:
    """Logit of the label - largest other logit, [batch]."""
    own = logits.gather(1, labels[:, None])[:, 0]
    others = logits.scatter(1, labels[:, None], -torch.inf)
    result: Tensor = own - others.max(1).values
    return result
