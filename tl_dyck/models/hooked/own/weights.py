"""Weights of the whole model by TransformerLens' names, and their processing."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from transformer_lens import FactoredMatrix
from transformer_lens.utilities import composition_scores

from tl_dyck.kit.registry import unknown_name
from tl_dyck.models.hooked.own.layers import LayerNorm, LayerNormPre


def _stacked(part: str, name: str, shape: str) -> property:
    def get(self: Any) -> Tensor:
        return torch.stack([getattr(getattr(block, part), name) for block in self.blocks])

    get.__doc__ = f"`{name}` of all layers, ``[layer, {shape}]``."
    return property(get)


def _single(part: str, name: str, shape: str) -> property:
    def get(self: Any) -> Tensor:
        return getattr(getattr(self, part), name)  # type: ignore[no-any-return]

    get.__doc__ = f"`{part}.{name}`, ``[{shape}]``."
    return property(get)


class WeightMethods:
    """What a `HookedTransformer` does with its weights."""

    cfg: Any
    blocks: Any

    W_E = _single("embed", "W_E", "d_vocab, d_model")
    W_pos = _single("pos_embed", "W_pos", "n_ctx, d_model")
    W_U = _single("unembed", "W_U", "d_model, d_vocab_out")
    b_U = _single("unembed", "b_U", "d_vocab_out")
    W_Q = _stacked("attn", "W_Q", "head, d_model, d_head")
    W_K = _stacked("attn", "W_K", "head, d_model, d_head")
    W_V = _stacked("attn", "W_V", "head, d_model, d_head")
    W_O = _stacked("attn", "W_O", "head, d_head, d_model")
    b_Q = _stacked("attn", "b_Q", "head, d_head")
    b_K = _stacked("attn", "b_K", "head, d_head")
    b_V = _stacked("attn", "b_V", "head, d_head")
    b_O = _stacked("attn", "b_O", "d_model")
    W_in = _stacked("mlp", "W_in", "d_model, d_mlp")
    b_in = _stacked("mlp", "b_in", "d_mlp")
    W_out = _stacked("mlp", "W_out", "d_mlp, d_model")
    b_out = _stacked("mlp", "b_out", "d_model")

    @property
    def OV(self) -> FactoredMatrix:
        """``W_V W_O`` of all layers and heads."""
        return FactoredMatrix(self.W_V, self.W_O)

    @property
    def QK(self) -> FactoredMatrix:
        """``W_Q W_Kᵀ`` of all layers and heads."""
        return FactoredMatrix(self.W_Q, self.W_K.transpose(-2, -1))

    def accumulated_bias(
        self, layer: int, mlp_input: bool = False, include_mlp_biases: bool = True
    ) -> Tensor:
        """The sum of what biases have added to the residual stream before a layer, ``[d_model]``.

        Args:
            layer: 0 to n_layers.
            mlp_input: whether to count the attention of that layer too.
            include_mlp_biases: whether to count those of MLPs.
        """
        device = self.W_pos.device
        total = torch.zeros(self.cfg.d_model, dtype=self.cfg.dtype, device=device)
        for block in self.blocks[:layer]:
            total = total + block.attn.b_O
            if include_mlp_biases and not self.cfg.attn_only:
                total = total + block.mlp.b_out
        if mlp_input:
            assert layer < self.cfg.n_layers, f"there is no MLP after layer {layer - 1}"
            total = total + self.blocks[layer].attn.b_O
        return total

    def all_composition_scores(self, mode: str) -> Tensor:
        """How much each head reads of what each earlier one writes (Elhage et al. 2021).

        Args:
            mode: "Q", "K" or "V" composition.

        Returns:
            Scores, ``[layer, head, later layer, later head]``; 0 where the second is not later.
        """
        readers = {"Q": lambda: self.QK, "K": lambda: self.QK.T, "V": lambda: self.OV}
        if mode not in readers:
            raise unknown_name("mode", mode, readers)
        scores = composition_scores(self.OV, readers[mode](), broadcast_dims=True)
        layer = torch.arange(self.cfg.n_layers, device=scores.device)
        # [layer, head, later layer, later head]
        later = layer[:, None, None, None] < layer[None, None, :, None]
        return torch.where(later, scores, torch.zeros_like(scores))

    def process_weights_(
        self,
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        refactor_factored_attn_matrices: bool = False,
    ) -> None:
        """Simplify the weights in place: see `load_and_process_state_dict`."""
        self.load_and_process_state_dict(
            self.state_dict(),  # type: ignore[attr-defined]
            fold_ln=fold_ln,
            center_writing_weights=center_writing_weights,
            center_unembed=center_unembed,
            refactor_factored_attn_matrices=refactor_factored_attn_matrices,
        )

    def load_and_process_state_dict(
        self,
        state_dict: dict[str, Tensor],
        fold_ln: bool = True,
        center_writing_weights: bool = True,
        center_unembed: bool = True,
        fold_value_biases: bool = True,
        refactor_factored_attn_matrices: bool = False,
    ) -> None:
        """Load weights that TransformerLens' `ProcessWeights` has simplified.

        Args:
            state_dict: of a model of this configuration.
            fold_ln: fold scales and shifts of LayerNorms, where there are any, into the weights
                that follow; the norms become "LNPre".
            center_writing_weights: subtract the mean from what is written to the residual stream;
                only where a LayerNorm reads it.
            center_unembed: subtract the mean over tokens from W_U; shifts all logits alike.
            fold_value_biases: add ``Σ_heads b_V W_O`` to b_O, and make b_V zero.
            refactor_factored_attn_matrices: make W_Q and W_K, W_V and W_O even by their singular
                values.
        """
        fold_ln = fold_ln and self.cfg.normalization_type == "LN"
        # on TransformerLens 4 this loads every architecture that it has adapters for
        from transformer_lens.weight_processing import ProcessWeights

        processed = ProcessWeights.process_weights(
            {name: value.clone() for name, value in state_dict.items()},
            self.cfg,
            fold_ln=fold_ln,
            center_writing_weights=center_writing_weights,
            center_unembed=center_unembed,
            fold_value_biases=fold_value_biases,
            refactor_factored_attn_matrices=refactor_factored_attn_matrices,
        )
        if fold_ln:
            self.cfg.normalization_type = "LNPre"
            _without_scales(self)  # type: ignore[arg-type]
            self.setup()  # type: ignore[attr-defined]
        # not strict: folded norms have no w and b any more, and masks may be missing
        self.load_state_dict(processed, strict=False)  # type: ignore[attr-defined]


def _without_scales(model: nn.Module) -> None:
    """Put a `LayerNormPre` where a block, or the model, had a `LayerNorm`."""
    owners: list[tuple[nn.Module, tuple[str, ...]]] = [(model, ("ln_final",))]
    owners += [(block, ("ln1", "ln2")) for block in model.blocks]  # type: ignore[union-attr]
    for owner, names in owners:
        for name in names:
            if isinstance(getattr(owner, name, None), LayerNorm):
                # put in place, so that modules keep their order
                owner._modules[name] = LayerNormPre(model.cfg).train(owner.training)
