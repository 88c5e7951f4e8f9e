"""One forward pass kept, so that the model can be run again with other heads.

Disabling a head of layer l changes what that layer's attention adds to the residual stream by
``(z' − z) W_O[head]``, and nothing before it. Several heads are stacked along the batch. Models of
the usual shape are run from there on by `LeanTail`, if that gives the same logits for the intact
model; ours, with one head replaced, from that layer on, bit by bit as if from their tokens; others
once more from their tokens, which keeps padding masks, positions and whatever else reads tokens as
they are.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.models.lean import LeanTail
from tl_dyck.models.transformer import DyckTransformer
from tl_dyck.reading.decoder import hooked_at

#: What attention adds to the residual stream, where a TransformerBridge shows it: its attention
#: modules return more than that.
_PROJECTED = "blocks.{}.attn.o.hook_out"


@final
class Replay:
    """Activations of a model on one batch, kept so that disabled heads can be replayed.

    Attributes:
        logits: ``[batch, pos, d_vocab]``.
        z: per layer ``[batch, pos, head, d_head]``, what heads put out.
        uniform_z: likewise, had each head attended to all allowed positions alike; only if asked
            for.
    """

    @torch.no_grad()
    def __init__(
        self,
        model: Any,
        tokens: Int[Tensor, "batch pos"],
        *,
        uniform: bool = False,
        lean: LeanTail | None = None,
    ) -> None:
        """Run the model once, with all hooks that it has; if `uniform`, once more for each layer.

        Raises:
            ValueError: uniform patterns of a TransformerBridge.
        """
        self.model, self.tokens = model, tokens
        # what comes into a layer comes again if no hook changes it, and no padding is to be masked
        self._again = (
            lean is None
            and type(model) is DyckTransformer
            and model.tokenizer.padding_side == "right"
            and hooked_at(model) is None
        )
        more = ["hook_resid_pre", *(["hook_attn_out"] if lean else [])]
        names = ["attn.hook_z", *(more if lean or self._again else [])]
        kept: dict[str, Tensor] = {}
        hooks = [
            _keep(kept, f"blocks.{layer}.{name}")
            for layer in range(model.cfg.n_layers)
            for name in names
        ]
        handles = [
            block.attn.register_forward_hook(lambda module, given, out: self._attended.append(out))
            for block in (model.blocks if self._again else ())
        ]
        self._attended: list[Tensor] = []  # before a norm behind it
        try:
            self.logits: Tensor = model.run_with_hooks(
                tokens, return_type="logits", fwd_hooks=hooks
            )
        finally:
            for handle in handles:
                handle.remove()
        self.z, self._resid_pre, self._attn_out = (
            [kept[f"blocks.{layer}.{name}"] for layer in range(model.cfg.n_layers)]
            if name in names
            else []
            for name in ("attn.hook_z", "hook_resid_pre", "hook_attn_out")
        )
        self._lean = lean if lean is not None and self._agrees(lean) else None
        self._by_hooks = _PROJECTED.format(0) in model.hook_dict
        if uniform and self._by_hooks:
            raise ValueError(
                "a TransformerBridge does not show which positions a head may attend to: use "
                "another mode than 'uniform-pattern'"
            )
        layers = range(model.cfg.n_layers) if uniform else ()
        self.uniform_z: list[Tensor] = [self._with_uniform_pattern(layer) for layer in layers]

    def _with_uniform_pattern(self, layer: int) -> Tensor:
        """What all heads of a layer would put out with patterns uniform over allowed positions."""
        kept: dict[str, Tensor] = {}
        name = f"blocks.{layer}.attn.hook_"

        def flat(pattern: Tensor, hook: Any) -> Tensor:
            scores = kept[f"{name}attn_scores"]
            # masked scores are −∞, or the least number of the dtype
            allowed = (scores > torch.finfo(scores.dtype).min).to(pattern.dtype)
            return allowed / allowed.sum(-1, keepdim=True).clamp_min(1)

        hooks = [_keep(kept, f"{name}attn_scores"), (f"{name}pattern", flat)]
        self.model.run_with_hooks(
            self.tokens, stop_at_layer=layer + 1, fwd_hooks=[*hooks, _keep(kept, f"{name}z")]
        )
        return kept[f"{name}z"]

    @torch.no_grad()
    def change(
        self, layer: int, heads: Sequence[int], z: Float[Tensor, "#batch #pos n d_head"]
    ) -> Float[Tensor, "n batch pos d_model"]:
        """Return the change of a layer's attention output if one head at a time is replaced."""
        chosen = list(heads)
        difference = z - self.z[layer][:, :, chosen]
        weight = self.model.blocks[layer].attn.W_O[chosen].to(difference.dtype)
        found: Tensor = torch.einsum("bpnh,nhd->nbpd", difference, weight)
        return found

    @torch.no_grad()
    def run(
        self, layer: int, change: Float[Tensor, "n batch pos d_model"]
    ) -> Float[Tensor, "n batch pos d_vocab"]:
        """The logits if the attention output of a layer is changed in n ways."""
        n, more = len(change), change.flatten(0, 1)
        if self._lean is not None:
            attn_out = (self._attn_out[layer] + change).flatten(0, 1)
            before = self._resid_pre[layer].repeat(n, 1, 1)
            logits: Tensor = self._lean.run(layer, before, attn_out)
            short: Tensor = logits.unflatten(0, (n, len(self.tokens)))
            return short
        if self._again and n == 1:
            attn = self.model.blocks[layer].attn
            attn.forward = lambda **given: self._attended[layer] + more
            try:
                return self.model(self._resid_pre[layer], start_at_layer=layer)[None]  # type: ignore[no-any-return]
            finally:
                del attn.forward
        hooks, handles = [], []
        if self._by_hooks:
            hooks.append((_PROJECTED.format(layer), lambda out, hook: out + more))
        else:
            attn = self.model.blocks[layer].attn
            handles.append(attn.register_forward_hook(lambda module, given, out: out + more))
        try:
            logits = self.model.run_with_hooks(
                self.tokens.repeat(n, 1), return_type="logits", fwd_hooks=hooks
            )
        finally:
            for handle in handles:
                handle.remove()
        whole: Tensor = logits.unflatten(0, (n, len(self.tokens)))
        return whole

    def _agrees(self, lean: LeanTail) -> bool:
        """Whether the lean pass gives the model's own logits, from the first layer on.

        All examples count: where the tokenizer pads on the left, only those with padding differ.
        """
        found = lean.run(0, self._resid_pre[0], self._attn_out[0])
        # far above rounding, far below what any mistake would make
        tolerance = 1e4 * torch.finfo(found.dtype).eps
        largest = tolerance * float(self.logits.abs().nan_to_num().max())
        return torch.allclose(found, self.logits, rtol=tolerance, atol=largest)


def _keep(into: dict[str, Tensor], name: str) -> tuple[str, Callable[..., None]]:
    """A hook that keeps an activation under its name."""

    def hook(activation: Tensor, hook: Any) -> None:
        into[name] = activation

    return name, hook
