"""Distributed alignment search by pyvene: a learnt subspace of what a head puts out."""

from __future__ import annotations

from typing import Any

import pyvene
import torch
from torch import Tensor

from tl_dyck.judge import Case, score_heads
from tl_dyck.judge.facts import exchange_types
from tl_dyck_hooks.methods.packages import named

_after = named("pyvene")
_STEPS = 40


class _OneHead(pyvene.LowRankRotatedSpaceIntervention):  # type: ignore[misc]
    """The intervention on ``[batch, pos, head, d_head]``, of one head."""

    def __init__(self, head: int, **options: Any) -> None:
        super().__init__(**options)
        self.head = head

    def forward(self, base: Tensor, source: Tensor, subspaces: Any = None, **more: Any) -> Tensor:
        changed = base.clone()
        changed[:, :, self.head] = super().forward(base[:, :, self.head], source[:, :, self.head])
        return changed


@score_heads(above=0.05, unit="of the answers", paper=_after("Wu et al. 2024"))
def distributed_alignment_search(case: Case) -> list[list[float]]:
    """DAS by pyvene: interchange accuracy of the subspace of a head that carries the type best.

    A rotated space of as many dimensions as there are types, less one, learnt on half of the
    strings, interchanged with the same strings with all types exchanged; the share of closing
    brackets of the other half that follow.
    """
    cfg = case.model.cfg
    case.model.config = cfg  # where pyvene looks for it
    return [[_accuracy(case, i, j) for j in range(cfg.n_heads)] for i in range(cfg.n_layers)]


def _accuracy(case: Case, layer: int, head: int) -> float:
    language = case.task.language
    intervention = _OneHead(
        head,
        embed_dim=case.model.cfg.d_head,
        low_rank_dimension=language.n_types - 1,
        keep_last_dim=True,
    ).to(case.tokens.device, case.model.cfg.dtype)
    where = {"component": f"blocks[{layer}].attn.hook_z.output", "intervention": intervention}
    model = pyvene.IntervenableModel(pyvene.IntervenableConfig([where]), model=case.model)
    other = exchange_types(language, case.tokens)
    wanted, half = language.right_bracket(other), len(case.tokens) // 2

    def answers(part: slice) -> tuple[Tensor, Tensor]:
        """Logits of closing brackets where one is asked for, and which the other string has."""
        asked = wanted[part] >= 0
        _, logits = model({"input": case.tokens[part]}, [{"input": other[part]}])
        return logits[asked][:, 1 : language.n_brackets : 2], wanted[part][asked] // 2

    optimiser = torch.optim.Adam(model.get_trainable_parameters(), lr=0.05)
    with torch.enable_grad():
        for _ in range(_STEPS):
            optimiser.zero_grad()
            torch.nn.functional.cross_entropy(*answers(slice(None, half))).backward()
            optimiser.step()
    with torch.no_grad():
        said, asked_for = answers(slice(half, None))
    return float((said.argmax(-1) == asked_for).double().mean())
