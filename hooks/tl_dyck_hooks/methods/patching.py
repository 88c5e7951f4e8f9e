"""Patching: a head's output on one string, put into the run on another."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from tl_dyck.judge import Case, Question
from tl_dyck.judge.facts import exchange_types
from tl_dyck_hooks.methods.shared import (
    HEADS,
    Scores,
    activations,
    by_head,
    logit_difference,
)


def activation_patching(case: Case, questions: Sequence[Question]) -> Scores:
    """Share of the logit difference that a head's clean output restores where types are exchanged.

    Meng et al. 2022, "Locating and Editing Factual Associations"; what TransformerLens'
    ``get_act_patch_attn_head_out_all_pos`` computes. 0 is the run on exchanged types, 1 the clean
    one. Yes above 0.05.
    """
    if questions[0].kind not in HEADS:
        return None
    return by_head(questions, _restored(case), 0.05)


@lru_cache(maxsize=1)
def _restored(case: Case) -> np.ndarray:
    clean, corrupted = case.tokens, exchange_types(case.task.language, case.tokens)
    names = _z(case)
    put = activations(case.model, clean, names)
    values = [
        [_mean(case, corrupted, [(name, _replace(head, z))]) for head in _heads(case)]
        for name, z in zip(names, put, strict=True)
    ]
    low, high = _mean(case, corrupted, []), _mean(case, clean, [])
    return (np.array(values) - low) / max(high - low, 1e-12)


def path_patching(case: Case, questions: Sequence[Question]) -> Scores:
    """Share of it that is lost when a head's output is that with types exchanged; others stay.

    All other heads are held at what they put out on the clean string, MLPs follow.

    Wang et al. 2022, "Interpretability in the Wild", paths from a head to the logits. Yes above
    0.05.
    """
    if questions[0].kind not in HEADS:
        return None
    return by_head(questions, _lost(case), 0.05)


@lru_cache(maxsize=1)
def _lost(case: Case) -> np.ndarray:
    clean, corrupted = case.tokens, exchange_types(case.task.language, case.tokens)
    names = _z(case)
    kept, instead = (activations(case.model, tokens, names) for tokens in (clean, corrupted))
    values = []
    for layer, z in enumerate(instead):
        row = []
        for head in _heads(case):
            held = [value.clone() for value in kept]
            held[layer][:, :, head] = z[:, :, head]
            hooks = [(name, _whole(value)) for name, value in zip(names, held, strict=True)]
            row.append(_mean(case, clean, hooks))
        values.append(row)
    low, high = _mean(case, corrupted, []), _mean(case, clean, [])
    return (high - np.array(values)) / max(high - low, 1e-12)


def direct_logit_attribution(case: Case, questions: Sequence[Question]) -> Scores:
    """What a head writes, times the unembedding's direction of the right bracket.

    Elhage et al. 2021, "A Mathematical Framework"; norms after attention are frozen at what they
    are, their weights included. Mean over positions, in logits, in size. Yes above 0.1.
    """
    if questions[0].kind not in HEADS:
        return None
    return by_head(questions, _direct(case), 0.1)


@lru_cache(maxsize=1)
def _direct(case: Case) -> np.ndarray:
    model, language = case.model, case.task.language
    right = language.right_bracket(case.tokens)
    values = []
    for layer, block in enumerate(model.blocks):
        (z,) = activations(model, case.tokens, [f"blocks.{layer}.attn.hook_z"])
        written = torch.einsum("bphd,hdm->bphm", z, block.attn.W_O)
        for norm in (f"blocks.{layer}.ln1_post", "ln_final"):
            written = _normalised(case, norm, written)
        logits = (written @ model.unembed.W_U).permute(2, 0, 1, 3)
        found = logit_difference(language, logits, right.expand(logits.shape[:-1]))
        values.append((found.sum((1, 2)) / (right >= 0).sum()).abs())
    attributed: np.ndarray = torch.stack(values).detach().numpy()
    return attributed


def _normalised(case: Case, name: str, written: Tensor) -> Tensor:
    """What a norm, held at its scale, hands on of a part of its input; all where there is none."""
    if f"{name}.hook_scale" not in case.model.hook_dict:
        return written
    (scale,) = activations(case.model, case.tokens, [f"{name}.hook_scale"])
    found = (written - written.mean(-1, keepdim=True)) / scale[:, :, None]
    weight: Tensor | None = getattr(case.model.get_submodule(name), "w", None)
    return found if weight is None else found * weight


def _z(case: Case) -> list[str]:
    return [f"blocks.{layer}.attn.hook_z" for layer in range(case.model.cfg.n_layers)]


def _heads(case: Case) -> range:
    return range(case.model.cfg.n_heads)


def _replace(head: int, value: Tensor) -> Any:
    def hook(z: Tensor, hook: Any) -> Tensor:
        z = z.clone()
        z[:, :, head] = value[:, :, head]
        return z

    return hook


def _whole(value: Tensor) -> Any:
    def hook(z: Tensor, hook: Any) -> Tensor:
        return value

    return hook


def _mean(case: Case, tokens: Tensor, hooks: list[tuple[str, Any]]) -> float:
    """Logit difference of the brackets that are right on the clean strings."""
    right = case.task.language.right_bracket(case.tokens)
    with torch.no_grad():
        logits = case.model.run_with_hooks(tokens, fwd_hooks=hooks)
    return float(logit_difference(case.task.language, logits, right).mean())
