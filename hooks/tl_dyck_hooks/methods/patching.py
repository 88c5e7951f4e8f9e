"""Patching: a head's output on one string, put into the run on another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tl_dyck.judge import Case, score_heads
from tl_dyck.reading.interventions import Hook, change_activation, run
from tl_dyck_hooks.methods.shared import activations, z_names


@score_heads(above=0.05, unit="of the difference", paper="Meng et al. 2022")
def activation_patching(case: Case) -> Any:
    """Share of the logit difference that a head's clean output restores where types are exchanged.

    "Locating and Editing Factual Associations"; what TransformerLens'
    ``get_act_patch_attn_head_out_all_pos`` computes. 0 is the run on exchanged types, 1 the clean
    one.
    """
    clean, corrupted = case.tokens, case.partners
    names = z_names(case)
    put = activations(case.model, clean, names)
    values = [
        [_mean(case, corrupted, _put(name, z, head)) for head in _heads(case)]
        for name, z in zip(names, put, strict=True)
    ]
    low, high = _mean(case, corrupted), _mean(case, clean)
    return (np.array(values) - low) / max(high - low, 1e-12)


@score_heads(above=0.05, unit="of the difference", paper="Wang et al. 2022")
def path_patching(case: Case) -> Any:
    """Share of it that is lost when a head's output is that with types exchanged; others stay.

    All other heads are held at what they put out on the clean string, MLPs follow.
    "Interpretability in the Wild", paths from a head to the logits.
    """
    clean, corrupted = case.tokens, case.partners
    names = z_names(case)
    kept, instead = (activations(case.model, tokens, names) for tokens in (clean, corrupted))
    held = [hook for name, z in zip(names, kept, strict=True) for hook in _put(name, z)]
    values = [
        [_mean(case, clean, [*held, *_put(name, z, head)]) for head in _heads(case)]
        for name, z in zip(names, instead, strict=True)
    ]
    low, high = _mean(case, corrupted), _mean(case, clean)
    return (high - np.array(values)) / max(high - low, 1e-12)


@score_heads(above=0.1, unit="logits", paper="Elhage et al. 2021")
def direct_logit_attribution(case: Case) -> Any:
    """What a head writes, times the unembedding's direction of the right answer.

    "A Mathematical Framework"; norms after attention are frozen at what they are, their weights
    included. Mean over positions, in logits, in size.
    """
    model, right = case.model, case.right
    values = []
    outputs = activations(model, case.tokens, z_names(case))
    for layer, (block, z) in enumerate(zip(model.blocks, outputs, strict=True)):
        written = torch.einsum("bphd,hdm->bphm", z, block.attn.W_O)
        for norm in (f"blocks.{layer}.ln1_post", "ln_final"):
            written = _normalised(case, norm, written)
        logits = (written @ model.unembed.W_U).permute(2, 0, 1, 3)
        found = case.difference(logits, right.expand(logits.shape[:-1]))
        values.append((found.sum((1, 2)) / (right >= 0).sum()).abs())
    return torch.stack(values).detach()


def _normalised(case: Case, name: str, written: Tensor) -> Tensor:
    """What a norm, held at its scale, hands on of a part of its input; all where there is none."""
    if f"{name}.hook_scale" not in case.model.hook_dict:
        return written
    (scale,) = activations(case.model, case.tokens, [f"{name}.hook_scale"])
    found = (written - written.mean(-1, keepdim=True)) / scale[:, :, None]
    weight: Tensor | None = getattr(case.model.get_submodule(name), "w", None)
    return found if weight is None else found * weight


def _heads(case: Case) -> range:
    return range(case.model.cfg.n_heads)


def _put(name: str, value: Tensor, head: int | None = None) -> list[Hook]:
    """What heads put out, or one does, is that of `value`."""
    return change_activation(name, lambda _: value if head is None else value[:, :, head], head)


def _mean(case: Case, tokens: Tensor, hooks: Sequence[Hook] = ()) -> float:
    """Logit difference of what is right on the clean strings."""
    return float(case.difference(run(case.model, tokens, hooks), case.right).mean())
