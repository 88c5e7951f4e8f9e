"""Activations of models whose residual stream is no plain sum: what adds it up warns."""

from __future__ import annotations

import warnings
from typing import Any

from transformer_lens import ActivationCache


class UnsummedWarning(UserWarning):
    """Parts of a residual stream were asked for that do not add up to it."""


class UnsummedCache(ActivationCache):
    """An `ActivationCache` that warns where what it returns does not add up."""

    def decompose_resid(self, *args: Any, **kwargs: Any) -> Any:
        """As `ActivationCache.decompose_resid`, with a warning."""
        self._warn("decompose_resid")
        return super().decompose_resid(*args, **kwargs)

    def logit_attrs(self, *args: Any, **kwargs: Any) -> Any:
        """As `ActivationCache.logit_attrs`, with a warning."""
        self._warn("logit_attrs")
        return super().logit_attrs(*args, **kwargs)

    def _warn(self, what: str) -> None:
        cfg: Any = self.model.cfg
        why = {
            "eq49": "LayerNorm stands around the sum (Eq. 49)",
            "bare": "there is no residual connection",
        }[cfg.block]
        warnings.warn(
            f"{what} of {cfg.model_name!r}: the parts do not add up to the residual stream, as "
            f"{why}; patching and ablation hold on every family",
            UnsummedWarning,
            stacklevel=3,
        )
