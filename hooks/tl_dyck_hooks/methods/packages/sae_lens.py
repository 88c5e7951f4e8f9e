"""Sparse autoencoders by SAELens: does a feature of what a head puts out tell the type on top?"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import torch
from sae_lens import (
    BatchTopKTrainingSAE,
    BatchTopKTrainingSAEConfig,
    LoggingConfig,
    SAETrainer,
    StandardTrainingSAE,
    StandardTrainingSAEConfig,
    TopKTrainingSAE,
    TopKTrainingSAEConfig,
)
from sae_lens.config import SAETrainerConfig
from torch import Tensor

from tl_dyck.judge import Case, about_heads
from tl_dyck.judge.scoring import auroc
from tl_dyck_hooks.methods.packages import named, quiet
from tl_dyck_hooks.methods.shared import activations, z_names

_after = named("sae-lens")
_STEPS, _BATCH, _WIDER = 60, 256, 2  # features: so many times the head's dimensions


def _tells(case: Case, kind: Any, config: Any, **options: Any) -> list[list[float]]:
    """Of each head, how well its best feature tells a type on top, 0 to 1: |2 AUROC − 1|."""
    language = case.task.language
    right = language.right_bracket(case.tokens)
    asked = right >= 0
    found = []
    for z in activations(case.model, case.tokens, z_names(case)):
        heads = z[asked].float().unbind(1)
        found.append([_best(x, right[asked] // 2, kind, config, options) for x in heads])
    return found


def _best(x: Tensor, types: Tensor, kind: Any, config: Any, options: dict[str, Any]) -> float:
    x = x / x.pow(2).sum(-1).mean().sqrt().clamp(min=1e-12) * x.shape[1] ** 0.5
    sae = kind(config(d_in=x.shape[1], d_sae=_WIDER * x.shape[1], **options))

    def batches() -> Iterator[Tensor]:
        for _ in itertools.count():
            yield x[torch.randint(len(x), (_BATCH,))]

    how = SAETrainerConfig(
        total_training_samples=_STEPS * _BATCH,
        train_batch_size_samples=_BATCH,
        lr=1e-2,
        lr_end=1e-3,
        logger=LoggingConfig(log_to_wandb=False),
    )
    with torch.enable_grad(), quiet():
        SAETrainer(how, sae, batches()).fit()
    with torch.no_grad():
        features = sae.encode(x).double()
    return max(
        abs(2 * auroc(types.numpy() == kind, feature.numpy()) - 1)
        for kind in types.unique().tolist()
        for feature in features.T
    )


@about_heads(above=0.9, unit="of a perfect one", paper=_after("Bricken et al. 2023"))
def l1_features(case: Case) -> list[list[float]]:
    """SAELens' sparse autoencoder with an L1 penalty, of each head's output."""
    return _tells(case, StandardTrainingSAE, StandardTrainingSAEConfig, l1_coefficient=0.1)


@about_heads(above=0.9, unit="of a perfect one", paper=_after("Gao et al. 2024"))
def top_k_features(case: Case) -> list[list[float]]:
    """SAELens' TopK sparse autoencoder, of each head's output."""
    return _tells(case, TopKTrainingSAE, TopKTrainingSAEConfig, k=2)


@about_heads(above=0.9, unit="of a perfect one", paper=_after("Bussmann et al. 2024"))
def batch_top_k_features(case: Case) -> list[list[float]]:
    """SAELens' BatchTopK sparse autoencoder, of each head's output."""
    return _tells(case, BatchTopKTrainingSAE, BatchTopKTrainingSAEConfig, k=2)
