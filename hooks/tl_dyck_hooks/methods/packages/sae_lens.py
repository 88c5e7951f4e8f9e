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

from tl_dyck.judge import (
    Case,
    Method,
    WithError,
    combine_methods,
    find_directions,
    score_heads,
)
from tl_dyck.judge.convergence import doubled
from tl_dyck.judge.isolation import seeded
from tl_dyck.judge.rates import auroc
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

    def heads(case: Case) -> WithError:
        right = case.right
        asked, z = right >= 0, activations(case.model, case.tokens, z_names(case))

        def run(steps: int) -> list[list[float]]:
            with seeded("sae-lens"):  # the same start each time
                return [
                    [
                        _best(x, case.place(right[asked]), kind, config, options, steps)
                        for x in layer[asked].unbind(1)
                    ]
                    for layer in z
                ]

        return doubled(run, 1.0, _STEPS // 4, 2 * _STEPS)

    def features(case: Case, layer: int, head: int) -> WithError:
        (z,) = activations(case.model, case.tokens, [z_names(case)[layer]])
        return _directions(case, z[:, 1:, head].flatten(0, 1), kind, config, **chosen)

    of_heads = score_heads(above=0.9, unit="of a perfect one", paper=_after(paper))(heads)
    judged: Method = combine_methods(of_heads, find_directions(paper=_after(paper))(features))
    judged.__doc__ = f"SAELens' {said}, of each head's output."
    return judged


def _directions(
    case: Case, x: Tensor, kind: Any, config: Any, wider: float, **options: Any
) -> WithError:
    """Directions that autoencoders of ``[n, d]`` find, ``[seed, wider · d, d]``.

    How far cosines with the directions of the case are from those of half of the steps is the
    error.
    """
    assert case.directions is not None
    towards = torch.nn.functional.normalize(case.directions, dim=-1)
    found = torch.empty(0)

    def run(steps: int) -> Tensor:
        nonlocal found
        with seeded("sae-lens"):  # the same start each time
            each = [_trained(x, kind, config, options, steps, wider)[0] for _ in range(_SEEDS)]
        found = torch.stack([sae.W_dec.detach().double() for sae in each])
        cosines = torch.nn.functional.normalize(found, dim=-1) @ towards.T
        return cosines.abs().amax(1).mean(0)

    error = doubled(run, 1.0, _LONG // 4, 2 * _LONG).error
    return WithError(found, error.max())


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


def _best(
    x: Tensor,
    types: Tensor,
    kind: Any,
    config: Any,
    options: dict[str, Any],
    steps: int = _STEPS,
) -> float:
    """How well the best feature tells a type on top, 0 to 1: |2 AUROC − 1|."""
    sae, shown = _trained(x, kind, config, options, steps)
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
def rotated_features(case: Case, layer: int, head: int) -> WithError:
    """A control: an L1 autoencoder of the head's output, turned at random before it is trained."""
    (z,) = activations(case.model, case.tokens, [z_names(case)[layer]])
    x = z[:, 1:, head].flatten(0, 1)
    span = torch.linalg.svd(x, full_matrices=False)
    within = span.Vh[1e-6 * span.S[0] < span.S]
    turn = torch.linalg.qr(torch.randn(len(within), len(within), dtype=x.dtype))[0]
    turned = x @ within.T @ turn @ within
    return _directions(case, turned, StandardTrainingSAE, StandardTrainingSAEConfig, **_L1)
