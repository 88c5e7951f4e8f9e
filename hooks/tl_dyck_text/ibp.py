"""Interval bounds of the worst margin, differentiable: the published way to train for certificates.

ARC (Zhang et al., arXiv 2102.07818) and ARC-Tran (arXiv 2405.17361) propagate boxes through the
recurrent network, one for each (word, budgets spent), and join them where edits meet; training
minimises the loss at the bound. Here the boxes are those of `tl_dyck_hooks.certifiers.interval`, Z
and N of layer 2, for a whole batch and with gradients. As there, each end of a box is a path of its
own; so the bound is sound, and looser the more edits there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck_text.attack import UnsupportedTextModelError, word_terms
from tl_dyck_text.edits import BatchEdits
from tl_dyck_text.model import TextTransformer


@final
@checked
@dataclass(frozen=True)
class IntervalBound:
    """Lower bounds of margins over all strings of a space, up to rounding, with gradients.

    Attributes:
        model: without positions and LayerNorms.
        edits: the space.
    """

    model: TextTransformer
    edits: BatchEdits

    def __post_init__(self) -> None:
        if self.model.text.position != "none" or self.model.text.normalization != "none":
            raise UnsupportedTextModelError(
                "interval bounds in training need a model without positions and LayerNorms, not "
                f"position={self.model.text.position!r}, "
                f"normalization={self.model.text.normalization!r}."
            )

    def __call__(
        self,
        tokens: Int[Tensor, "batch pos"],
        lengths: Int[Tensor, " batch"],
        labels: Int[Tensor, " batch"],
    ) -> Float[Tensor, "batch class"]:
        """For each class c: lower bounds of logit[label] - logit[c], 0 for the label itself."""
        low, high = self._boxes(tokens, lengths)
        heads, width = self.model.text.n_heads, self.model.text.d_model // self.model.text.n_heads
        # the ends of N / Z, Z > 0: divided by whichever end of Z is worse
        (z_low, n_low), (z_high, n_high) = ((box[..., 0], box[..., 1:]) for box in (low, high))
        lower = torch.minimum(n_low / z_low[..., None], n_low / z_high[..., None])
        upper = torch.maximum(n_high / z_low[..., None], n_high / z_high[..., None])
        middle, radius = ((lower + upper) / 2).flatten(1), ((upper - lower) / 2).flatten(1)
        block: Any = self.model.blocks[0]
        attn = block.attn
        w_o = attn.W_O.reshape(heads * width, -1)
        middle = middle @ w_o + attn.b_O + self.model.W_E[self.model.text.cls_token]
        # directions of the residual stream in which logit differences point, after the MLP if there
        # is one
        unembed = self.model.unembed
        weight = unembed.W_U[:, labels].T[:, :, None] - unembed.W_U  # [batch, m, class]
        bias = unembed.b_U[labels][:, None] - unembed.b_U
        spread = torch.einsum("bz,bzc->bc", radius, torch.einsum("zm,bmc->bzc", w_o, weight).abs())
        if self.model.text.d_mlp == 0:
            return torch.einsum("bm,bmc->bc", middle, weight) + bias - spread
        mlp = block.mlp
        pre, pre_radius = middle @ mlp.W_in + mlp.b_in, radius @ (w_o @ mlp.W_in).abs()
        ends = torch.relu(pre - pre_radius), torch.relu(pre + pre_radius)
        hidden, hidden_radius = (ends[0] + ends[1]) / 2, (ends[1] - ends[0]) / 2
        middle = middle + hidden @ mlp.W_out + mlp.b_out
        spread = spread + torch.einsum(
            "bj,bjc->bc", hidden_radius, torch.einsum("jm,bmc->bjc", mlp.W_out, weight).abs()
        )
        return torch.einsum("bm,bmc->bc", middle, weight) + bias - spread

    def _boxes(self, tokens: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
        """Ends of (Z, N) at "<cls>", [batch, head, 1 + d_head] each, over all strings."""
        edits, count = self.edits, lengths - 1
        steps = int(count.max())
        here, place = torch.unique(tokens[:, :steps], return_inverse=True)
        cls, kept, least, most = self._terms(here)
        some = torch.from_numpy(edits.synonyms)[here, 0] >= 0
        may = [torch.from_numpy(edits.may[kind])[here] for kind in range(2)] + [some]
        # all words at once, so that gradients are gathered once: [batch, pos, 1, 1, 1, head,
        # 1 + d_head]
        kept, least, most = (term[place][:, :, None, None, None] for term in (kept, least, most))
        real = torch.arange(steps) < count[:, None]
        allowed = [(real & can[place])[(...,) + (None,) * 5] for can in may]
        kept = kept * real[(...,) + (None,) * 5]
        ends = ((2 * kept, 2 * kept), (torch.zeros_like(kept),) * 2, (least, most))
        offers = [  # what is not allowed is never the better end
            (below.masked_fill(~can, torch.inf), above.masked_fill(~can, -torch.inf))
            for (below, above), can in zip(ends, allowed, strict=True)
        ]
        start = cls.expand(len(tokens), *edits.shape, *cls.shape)
        # states count what has been used; those that no path has reached are empty: [inf, -inf]
        used = torch.zeros(edits.shape, dtype=torch.bool)
        used[0, 0, 0] = True
        unreached = ~used[None, ..., None, None]
        low, high = (
            start.masked_fill(unreached, torch.inf),
            start.masked_fill(unreached, -torch.inf),
        )
        for i in range(steps):
            new_low, new_high = low + kept[:, i], high + kept[:, i]
            for kind, (below, above) in enumerate(offers):
                if edits.budgets[kind]:
                    new_low = torch.minimum(new_low, _shifted(low, below[:, i], kind, torch.inf))
                    new_high = torch.maximum(
                        new_high, _shifted(high, above[:, i], kind, -torch.inf)
                    )
            low, high = new_low, new_high
        return low.flatten(1, 3).amin(1), high.flatten(1, 3).amax(1)

    def _terms(self, here: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """exp(score - largest) · (1, v) of "<cls>", of some tokens, and its ends over synonyms.

        [head, 1 + d_head] for "<cls>", [tokens, head, 1 + d_head] each for the others.
        """
        synonyms = torch.from_numpy(self.edits.synonyms)[here]
        known, place = torch.unique(
            torch.cat([here, synonyms.flatten().clamp(min=0)]), return_inverse=True
        )
        cls = torch.tensor([self.model.text.cls_token])
        weight, value = word_terms(self.model, torch.cat([cls, known]))
        terms = torch.cat([weight[..., None], weight[..., None] * value], dim=-1)
        own, replaced = terms[1:][place].split([len(here), synonyms.numel()])
        replaced = replaced.view(*synonyms.shape, *own.shape[1:])
        missing = (synonyms < 0)[..., None, None]
        least, most = (
            replaced.masked_fill(missing, torch.inf).amin(1),
            replaced.masked_fill(missing, -torch.inf).amax(1),
        )
        return terms[0], own, least, most


def _shifted(box: Tensor, term: Tensor, kind: int, empty: float) -> Tensor:
    """The boxes after one more edit of a kind, at the states it leads to.

    They are `empty` where it leads from nowhere.
    """
    moved = box.narrow(kind + 1, 0, box.shape[kind + 1] - 1) + term
    return torch.cat([torch.full_like(box.narrow(kind + 1, 0, 1), empty), moved], dim=kind + 1)
