"""Sparse autoencoders by SAELens: does a feature tell the type on top? Is a direction one?"""

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

from tl_dyck.judge import Case, Method, combine_methods, find_directions, score_heads
from tl_dyck.judge.scores import auroc
from tl_dyck_hooks.methods.packages import named, quiet
from tl_dyck_hooks.methods.shared import activations, z_names

_after = named("sae-lens")
_STEPS, _LONG, _BATCH = 60, 300, 256  # the longer to find features, the shorter to tell types
_WIDER = 2  # features: so many times the head's dimensions, where types are told
#: Of those that find directions: the best of some, by AUROC on development cases.
_L1 = {"wider": 4, "l1_coefficient": 0.03}
_K = {"wider": 2, "k": 2}
_SEEDS = 3  # autoencoders of each head, where directions are found: the mean of what they say


def _judged(
    kind: Any, config: Any, paper: str, said: str, options: dict[str, Any], **chosen: Any
) -> Method:
    """A method of heads, and of directions, by one kind of autoencoder.

    Args:
        kind: of autoencoder.
        config: its configuration.
        paper: where it is from.
        said: what it is.
        options: of those that tell types.
        **chosen: options of `_dictionary`, for directions.
    """

    def heads(case: Case) -> list[list[float]]:
        right = case.task.language.right_bracket(case.tokens)
        asked = right >= 0
        return [
            [_best(x, right[asked] // 2, kind, config, options) for x in z[asked].unbind(1)]
            for z in activations(case.model, case.tokens, z_names(case))
        ]

    def features(case: Case, layer: int, head: int) -> Tensor:
        (z,) = activations(case.model, case.tokens, [z_names(case)[layer]])
        x = z[:, 1:, head].flatten(0, 1)
        return torch.stack([_dictionary(x, kind, config, **chosen) for _ in range(_SEEDS)])

    of_heads = score_heads(above=0.9, unit="of a perfect one", paper=_after(paper))(heads)
    judged: Method = combine_methods(of_heads, find_directions(paper=_after(paper))(features))
    judged.__doc__ = f"SAELens' {said}, of each head's output."
    return judged


def _dictionary(x: Tensor, kind: Any, config: Any, wider: float, **options: Any) -> Tensor:
    """Directions that an autoencoder of ``[n, d]`` finds, ``[wider · d, d]``."""
    sae, _ = _trained(x, kind, config, options, _LONG, wider)
    found: Tensor = sae.W_dec
    return found


def _trained(
    x: Tensor, kind: Any, config: Any, options: dict[str, Any], steps: int, wider: float = _WIDER
) -> tuple[Any, Tensor]:
    """An autoencoder of activations ``[n, d]``, and what it was shown: these, scaled."""
    x = x.float()
    x = x / x.pow(2).sum(-1).mean().sqrt().clamp(min=1e-12) * x.shape[1] ** 0.5
    sae = kind(config(d_in=x.shape[1], d_sae=int(wider * x.shape[1]), **options))

    def batches() -> Iterator[Tensor]:
        for _ in itertools.count():
            yield x[torch.randint(len(x), (_BATCH,))]

    how = SAETrainerConfig(
        total_training_samples=steps * _BATCH,
        train_batch_size_samples=_BATCH,
        lr=1e-2,
        lr_end=1e-3,
        logger=LoggingConfig(log_to_wandb=False),
    )
    with torch.enable_grad(), quiet():
        SAETrainer(how, sae, batches()).fit()
    return sae, x


def _best(x: Tensor, types: Tensor, kind: Any, config: Any, options: dict[str, Any]) -> float:
    """How well the best feature tells a type on top, 0 to 1: |2 AUROC − 1|."""
    sae, shown = _trained(x, kind, config, options, _STEPS)
    with torch.no_grad():
        features = sae.encode(shown).double()
    return max(
        abs(2 * auroc(types.numpy() == kind, feature.numpy()) - 1)
        for kind in types.unique().tolist()
        for feature in features.T
    )


l1_features = _judged(
    StandardTrainingSAE,
    StandardTrainingSAEConfig,
    "Bricken et al. 2023",
    "sparse autoencoder with an L1 penalty",
    {"l1_coefficient": 0.1},
    **_L1,
)
top_k_features = _judged(
    TopKTrainingSAE,
    TopKTrainingSAEConfig,
    "Gao et al. 2024",
    "TopK sparse autoencoder",
    {"k": 2},
    **_K,
)
batch_top_k_features = _judged(
    BatchTopKTrainingSAE,
    BatchTopKTrainingSAEConfig,
    "Bussmann et al. 2024",
    "BatchTopK sparse autoencoder",
    {"k": 2},
    **_K,
)


@find_directions(paper="after Heap et al. 2025")
def rotated_features(case: Case, layer: int, head: int) -> Tensor:
    """A control: an L1 autoencoder of the head's output, turned at random before it is trained."""
    (z,) = activations(case.model, case.tokens, [z_names(case)[layer]])
    x = z[:, 1:, head].flatten(0, 1)
    span = torch.linalg.svd(x, full_matrices=False)
    within = span.Vh[1e-6 * span.S[0] < span.S]
    turn = torch.linalg.qr(torch.randn(len(within), len(within), dtype=x.dtype))[0]
    turned = x @ within.T @ turn @ within
    kind = StandardTrainingSAE, StandardTrainingSAEConfig
    return torch.stack([_dictionary(turned, *kind, **_L1) for _ in range(_SEEDS)])
