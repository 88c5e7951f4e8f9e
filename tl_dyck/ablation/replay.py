"""One forward pass kept, so that the model can be run again from any layer on with other heads.

Ablating a head of layer l changes nothing before the attention output of layer l. So the blocks
before it, and that attention itself, are not computed again: the model is run from its tokens
(which keeps padding masks, positions and whatever else reads tokens as they are), its earlier
blocks hand on what they get, `hook_resid_pre` of block l puts in the residual stream that was kept,
and the attention of block l answers with its kept output plus ``(z' − z) W_O[head]``. Several heads
are stacked along the batch. For models of the usual shape the rest is computed by `LeanTail`, if
that gives the same logits for the intact model.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.models.lean import LeanTail

#: What attention adds to the residual stream, where a TransformerBridge shows it: its attention
#: modules return more than that, and its blocks want more arguments than a residual stream.
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

    def __init__(
        self,
        model: Any,
        tokens: Int[Tensor, "batch pos"],
        *,
        uniform: bool = False,
        lean: LeanTail | None = None,
    ) -> None:
        """Run the model once, with all hooks that it has."""
        self.model, self.tokens = model, tokens
        n_layers = model.cfg.n_layers
        self.z: list[Tensor] = [torch.empty(0)] * n_layers
        self.uniform_z: list[Tensor] = [torch.empty(0)] * n_layers
        self._resid_pre: list[Tensor] = [torch.empty(0)] * n_layers
        self._attn_out: list[Tensor] = [torch.empty(0)] * n_layers
        self._again = False  # whether an attention layer runs a second time, with uniform patterns
        kept = {"hook_resid_pre": self._resid_pre, "attn.hook_z": self.z}
        self._by_hooks = _PROJECTED.format(0) in model.hook_dict
        if self._by_hooks:
            if uniform:
                raise ValueError(
                    "a TransformerBridge does not show which positions a head may attend to: use "
                    "another mode than 'uniform-pattern'"
                )
            kept["attn.o.hook_out"] = self._attn_out
        hooks = [
            (f"blocks.{layer}.{name}", self._keep(into, layer))
            for layer in range(n_layers)
            for name, into in kept.items()
        ]
        handles = [
            block.attn.register_forward_hook(self._keep_output(layer, uniform), with_kwargs=True)
            for layer, block in enumerate(() if self._by_hooks else model.blocks)
        ]
        try:
            with torch.no_grad():
                self.logits: Tensor = model.run_with_hooks(
                    tokens, return_type="logits", fwd_hooks=hooks
                )
        finally:
            for handle in handles:
                handle.remove()
        self._lean = lean if lean is not None and self._agrees(lean) else None

    def _keep(self, into: list[Tensor], layer: int) -> Callable[..., None]:
        """A hook that keeps an activation."""

        def hook(activation: Tensor, hook: Any) -> None:
            if not self._again:
                into[layer] = activation

        return hook

    def _keep_output(self, layer: int, uniform: bool) -> Callable[..., None]:
        """A module's hook that keeps its output, and what it would be with uniform patterns."""

        def hook(module: Any, arguments: Any, keywords: Any, output: Tensor) -> None:
            if self._again:
                return
            self._attn_out[layer] = output
            if uniform:
                self._again = True
                try:
                    self.uniform_z[layer] = _with_uniform_pattern(
                        self.model, layer, module, arguments, keywords
                    )
                finally:
                    self._again = False

        return hook

    def change(
        self, layer: int, heads: Sequence[int], z: Float[Tensor, "#batch #pos n d_head"]
    ) -> Float[Tensor, "n batch pos d_model"]:
        """Return the change of a layer's attention output if one head at a time is replaced."""
        chosen = list(heads)
        difference = z - self.z[layer][:, :, chosen]
        weight = self.model.blocks[layer].attn.W_O[chosen].to(difference.dtype)
        with torch.no_grad():
            found: Tensor = torch.einsum("bpnh,nhd->nbpd", difference, weight)
        return found

    def run(
        self, layer: int, change: Float[Tensor, "n batch pos d_model"]
    ) -> Float[Tensor, "n batch pos d_vocab"]:
        """The logits if the attention output of a layer is changed in n ways."""
        n = len(change)
        attn_out = (self._attn_out[layer] + change).flatten(0, 1)
        if self._lean is not None:
            with torch.no_grad():
                short: Tensor = self._lean.run(
                    layer, self._resid_pre[layer].repeat(n, 1, 1), attn_out
                )
            rows: Tensor = short.unflatten(0, (n, len(self.tokens)))
            return rows

        start: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        name, value = _PROJECTED.format(layer), attn_out
        if not self._by_hooks:
            name, value = f"blocks.{layer}.hook_resid_pre", self._resid_pre[layer].repeat(n, 1, 1)
            start = _starting_at(self.model, layer, attn_out)

        def answer(activation: Tensor, hook: Any) -> Tensor:
            return value

        with torch.no_grad(), start:
            logits = self.model.run_with_hooks(
                self.tokens.repeat(n, 1), return_type="logits", fwd_hooks=[(name, answer)]
            )
        stacked: Tensor = logits.unflatten(0, (n, len(self.tokens)))
        return stacked

    def _agrees(self, lean: LeanTail) -> bool:
        """Whether the lean pass gives the model's own logits, from the first layer on.

        All examples count: where the tokenizer pads on the left, only those with padding differ.
        """
        with torch.no_grad():
            found = lean.run(0, self._resid_pre[0], self._attn_out[0])
        tolerance = (
            1e4 * torch.finfo(found.dtype).eps
        )  # far above rounding, far below what any mistake would make
        return torch.allclose(
            found, self.logits, rtol=tolerance, atol=tolerance * float(self.logits.abs().max())
        )


def uniform_pattern(
    scores: Float[Tensor, "batch head query key"],
) -> Float[Tensor, "batch head query key"]:
    """Patterns uniform over what masked scores allow; a row that allows none is zero."""
    allowed = (scores > torch.finfo(scores.dtype).min).to(scores.dtype)
    return allowed / allowed.sum(-1, keepdim=True).clamp_min(1)


def _with_uniform_pattern(
    model: Any, layer: int, attn: Any, arguments: Any, keywords: Any
) -> Tensor:
    """Return the output that all heads of an attention layer would have with uniform patterns."""
    kept: dict[str, Tensor] = {}

    def scores(activation: Tensor, hook: Any) -> None:
        kept["pattern"] = uniform_pattern(activation)

    def pattern(activation: Tensor, hook: Any) -> Tensor:
        return kept["pattern"]

    def z(activation: Tensor, hook: Any) -> None:
        kept["z"] = activation

    prefix = f"blocks.{layer}.attn.hook_"
    with model.hooks(
        fwd_hooks=[
            (prefix + "attn_scores", scores),
            (prefix + "pattern", pattern),
            (prefix + "z", z),
        ]
    ):
        attn(*arguments, **keywords)
    return kept["z"]


@contextlib.contextmanager
def _starting_at(model: Any, layer: int, attn_out: Tensor) -> Iterator[None]:
    """Let the blocks before `layer` hand on what they get; its attention answers `attn_out`."""

    def hand_on(residual: Tensor, *arguments: Any, **keywords: Any) -> Tensor:
        return residual

    def answer(*arguments: Any, **keywords: Any) -> Tensor:
        return attn_out

    changed = [*model.blocks[:layer], model.blocks[layer].attn]
    try:
        for block in changed[:-1]:
            block.forward = hand_on
        changed[-1].forward = answer
        yield
    finally:
        for module in changed:
            module.__dict__.pop("forward", None)
