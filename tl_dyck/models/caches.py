"""Activations of our models: what adds up a residual stream that is no plain sum warns.

Knows: which sums hold in which block. With LN_C on what attention returns (Eq. 6) heads do not add
up to it; with LN_C on the stream (Eq. 49), or no residual link, nothing adds up to the stream.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor
from transformer_lens import ActivationCache

_WHY = {
    "eq6": "LayerNorm acts on what attention returns (Eq. 6)",
    "eq49": "LayerNorm stands around the sum (Eq. 49)",
    "bare": "there is no residual connection",
}
_ROUNDING = 1e3  # in units of the last place of the largest number: more than sums lose


class UnsummedWarning(UserWarning):
    """Parts of a residual stream were asked for that do not add up to it."""


class OwnCache(ActivationCache):
    """An `ActivationCache` that says why there are no neurons, where there is no MLP."""

    def get_neuron_results(self, *args: Any, **kwargs: Any) -> Any:
        """As `ActivationCache.get_neuron_results`."""
        self._needs_neurons("get_neuron_results")
        return super().get_neuron_results(*args, **kwargs)

    def stack_neuron_results(self, *args: Any, **kwargs: Any) -> Any:
        """As `ActivationCache.stack_neuron_results`."""
        self._needs_neurons("stack_neuron_results")
        return super().stack_neuron_results(*args, **kwargs)

    def _needs_neurons(self, what: str) -> None:
        cfg: Any = self.model.cfg
        if cfg.attn_only:
            raise ValueError(f"{what}: {cfg.model_name!r} has no MLP, so it has no neurons")


class UnsummedCache(OwnCache):
    """An `ActivationCache` that warns where what it returns does not add up."""

    _quiet = False  # while one of these methods calls another

    def decompose_resid(
        self, layer: int | None = None, mlp_input: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        """As `ActivationCache.decompose_resid`, with a warning where the sum is not the stream."""
        self._warn("decompose_resid", self._missing(layer, mlp_input, by_head=False))
        return super().decompose_resid(layer, mlp_input, *args, **kwargs)

    def logit_attrs(self, *args: Any, **kwargs: Any) -> Any:
        """As `ActivationCache.logit_attrs`, with a warning where the sum is not the stream."""
        self._warn("logit_attrs", self._missing(None, False, by_head=False))
        return super().logit_attrs(*args, **kwargs)

    def stack_head_results(self, layer: int = -1, *args: Any, **kwargs: Any) -> Any:
        """As `ActivationCache.stack_head_results`, with a warning where LN_C acts on the sum."""
        self._warn("stack_head_results", self._heads_missing(layer), "what attention adds")
        with self._silently():
            return super().stack_head_results(layer, *args, **kwargs)

    def compute_head_results(self) -> None:
        """As `ActivationCache.compute_head_results`, with a warning where LN_C acts on the sum."""
        self._warn("compute_head_results", self._heads_missing(-1), "what attention adds")
        super().compute_head_results()

    def get_full_resid_decomposition(
        self, layer: int | None = None, mlp_input: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        """As `ActivationCache` has it, with a warning where the sum is not the stream."""
        missing = self._missing(layer, mlp_input, by_head=True)
        self._warn("get_full_resid_decomposition", missing)
        with self._silently():
            return super().get_full_resid_decomposition(layer, mlp_input, *args, **kwargs)

    @contextmanager
    def _silently(self) -> Iterator[None]:
        before, self._quiet = self._quiet, True
        try:
            yield
        finally:
            self._quiet = before

    def _attention(self, layer: int, by_head: bool) -> Tensor:
        """What attention adds, or would add if it were the sum of its heads and `b_O`."""
        found: Tensor = self["attn_out", layer]
        if not by_head:
            return found
        attn: Any = self.model.blocks[layer].attn
        whole: Tensor = torch.einsum("...hd,hdm->...m", self["z", layer, "attn"], attn.W_O)
        total: Tensor = whole + attn.b_O
        return total

    @torch.no_grad()
    def _missing(self, layer: int | None, mlp_input: bool, *, by_head: bool) -> float | None:
        """How far the parts of a stream are from it, at most; None if activations are missing."""
        cfg: Any = self.model.cfg
        layer = cfg.n_layers if layer in (None, -1) else layer
        try:
            embeds = [self["hook_embed"], *([self["hook_pos_embed"]] if self.has_pos_embed else [])]
            parts = [
                *embeds,
                *(self._attention(each, by_head) for each in range(layer + mlp_input)),
                *(self["mlp_out", each] for each in range(0 if cfg.attn_only else layer)),
            ]
            name = "resid_mid" if mlp_input else "resid_pre"
            stream = self["resid_post", layer - 1] if layer == cfg.n_layers else self[name, layer]
        except KeyError:
            return None
        return _gap(torch.stack(parts).sum(0), stream)

    @torch.no_grad()
    def _heads_missing(self, layer: int | None) -> float | None:
        """How far the heads of a layer are from what it adds, at most, over the layers before."""
        cfg: Any = self.model.cfg
        layer = cfg.n_layers if layer in (None, -1) else layer
        try:
            gaps = [
                _gap(self._attention(each, True), self["attn_out", each]) for each in range(layer)
            ]
        except KeyError:
            return None if cfg.block == "eq6" else 0.0
        return max(gaps, default=0.0)

    def _warn(self, what: str, missing: float | None, whole: str = "the residual stream") -> None:
        if self._quiet or missing == 0:
            return
        cfg: Any = self.model.cfg
        size = "" if missing is None else f"; they miss it by up to {missing:.2g}"
        warnings.warn(
            f"{what} of {cfg.model_name!r}: the parts do not add up to {whole}, as "
            f"{_WHY[cfg.block]}{size}; patching and ablation hold on every family",
            UnsummedWarning,
            stacklevel=3,
        )


def _gap(found: Tensor, wanted: Tensor) -> float:
    """The largest difference; 0 for what is rounding."""
    largest = float((found - wanted).abs().max())
    rounding = _ROUNDING * torch.finfo(wanted.dtype).eps * float(wanted.abs().max())
    return largest if largest > rounding else 0.0
