"""Models of one configuration as one: stacked parameters, one forward pass, one optimizer.

A training step of one small model is spent on launching some hundred operations, each of which
takes longer to launch than to compute. Here operations work on all models at once: a weight
``[in, out]`` of n models is one leaf ``[n, in, out]``; only products of matrices are made model by
model (`tl_dyck.training.operations` says why). The models themselves stay what they are, for their
parameters become views of the leaves: whoever reads or saves a model in between sees what the stack
has made of it.

No operation mixes two models, so one whose numbers are no longer finite leaves the others as they
are.

Tried instead: `torch.func.vmap` with `stack_module_state`, in twelve lines, and with the same bits
for a seed alone and in company of seven. Speed is the reason for this: with optimizer and data it
took 0.76 of the time that vmap took for passes forwards and backwards alone (eight models).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.nn.functional as F
from jaxtyping import Float
from torch import Tensor, nn
from torch.optim.adamw import adamw

from tl_dyck.models import DyckTransformer
from tl_dyck.training.drift import DriftRegularizer
from tl_dyck.training.operations import (
    attend,
    attend_uniformly,
    filled_up,
    flattened,
    linear,
    look_up,
    unit_norm,
)
from tl_dyck.training.packing import IGNORED, Batch

#: What Adam remembers of each parameter, by name: its means of gradients and of their squares.
Moments = dict[str, tuple[Tensor, Tensor]]

_FUSED = ("Q", "K", "V")


class Stack:
    """Several models of one configuration, trained by one AdamW.

    Attributes:
        models: their trained parameters are views of the leaves until `release`.
        leaves: stacked parameters, by name, ``[model, ...]``; query, key and value weights are one
            leaf.
    """

    def __init__(
        self,
        models: Sequence[DyckTransformer],
        moments: Sequence[Moments],
        *,
        step: int,
        weight_decay: float,
        drift: DriftRegularizer | None = None,
    ) -> None:
        """Stack models that have been trained for `step` steps, and what Adam remembers of them."""
        self._drift = drift
        self.models = list(models)
        self.cfg = models[0].cfg
        blocks: Any = models[0].blocks
        # one configuration: what the first is, all are
        self._uniform = self.cfg.attention == "uniform"
        self._scale = 1 / float(blocks[0].attn.attn_scale)
        self._tables: dict[int, Tensor] = {}
        self._active: dict[str, Tensor] = {}  # leaves of the models that a forward pass is about
        parameters = [_trained(model) for model in models]
        first, second = (
            [{k: v[i] for k, v in saved.items()} for saved in moments] for i in range(2)
        )
        buffers, leaves = flattened(self._joined([dict(own) for own in parameters]))
        means, self._means = flattened(self._joined(first))
        squares, self._squares = flattened(self._joined(second))
        self._slopes, self._gradients = flattened(
            {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
        )
        self.leaves = {name: leaf.requires_grad_() for name, leaf in leaves.items()}
        made = {
            # a resumed run: Adam corrects its bias by the number of steps
            dtype: torch.tensor(float(step), device=buffer.device)
            for dtype, buffer in buffers.items()
        }
        self._weight_decay = weight_decay
        self._adam = [
            (buffers[key], self._slopes[key], means[key], squares[key], made[key])
            for key in buffers
        ]
        for index, own in enumerate(parameters):
            for name, value in self._views(
                {k: leaf.detach() for k, leaf in self.leaves.items()}, index
            ).items():
                own[name].data = value

    def moments(self, index: int) -> Moments:
        """Return Adam's moments of the parameters of model `index`: views the next step changes."""
        means, squares = self._views(self._means, index), self._views(self._squares, index)
        return {name: (means[name], squares[name]) for name in means}

    def release(self, index: int) -> None:
        """Give model `index` parameters of its own again."""
        for parameter in _trained(self.models[index]).values():
            parameter.data = parameter.data.clone(memory_format=torch.contiguous_format)

    @torch.enable_grad()
    def step(
        self,
        batches: Sequence[Batch],
        rate: float,
        contrastive_weight: float = 0.0,
        drift_weight: float = 0.0,
    ) -> tuple[list[float], list[float]]:
        """One step of AdamW for every model.

        Args:
            batches: every model is in one of them.
            rate: the learning rate.
            contrastive_weight: of the contrastive regularisation.
            drift_weight: of that of the drift.

        Returns:
            For each model, what was descended, and the cross-entropy in it, both before the step.
        """
        totals, losses = [0.0] * len(self.models), [0.0] * len(self.models)
        for slope in self._slopes.values():
            slope.zero_()
        for batch in batches:
            nats, contrast = self.losses(batch)
            total = nats if contrast is None else nats + contrastive_weight * contrast
            if self._drift is not None:
                total = total + drift_weight * self._drifts(self._drift)
            # the sum has each model's own gradient: no leaf of one model is in the loss of another
            gradients = torch.autograd.grad(
                total.sum(), list(self.leaves.values()), allow_unused=True
            )
            for name, gradient in zip(self.leaves, gradients, strict=True):
                if gradient is None:
                    raise RuntimeError(
                        f"{name} would stay as it is: the forward pass of training, "
                        "tl_dyck.training.stack, does not read it; add it there, or freeze it"
                    )
                self._gradients[name] += gradient
            totals[batch.members], losses[batch.members] = total.tolist(), nats.tolist()
        parameters, slopes, means, squares, steps = map(list, zip(*self._adam, strict=True))
        with torch.no_grad():
            adamw(
                *(parameters, slopes, means, squares, [], steps),
                lr=rate,
                beta1=0.9,
                beta2=0.999,
                # torch's defaults of AdamW, as for a model alone
                eps=1e-8,
                weight_decay=self._weight_decay,
                amsgrad=False,
                maximize=False,
                fused=True,
            )
        return totals, losses

    def losses(
        self, batch: Batch
    ) -> tuple[Float[Tensor, " model"], Float[Tensor, " model"] | None]:
        """Mean cross-entropy over targets, nats, and R of `ContrastiveRegularizer`, by model."""
        logits, targets = self.logits(batch), batch.targets.flatten(1)
        nats = F.cross_entropy(logits, targets, ignore_index=IGNORED, reduction="none")
        # by model, not over all: how many targets the neighbours have must not matter
        nats = nats.sum(1) / (targets != IGNORED).sum(1)
        if batch.pairs is None:
            return nats, None
        before, after = (
            logits.gather(2, slots[:, None].expand(-1, logits.shape[1], -1))
            # [model, d_vocab, pair]: the logits at the slots of each pair
            for slots in batch.pairs
        )
        # pairs of two zeros differ by nothing, and are not counted
        return nats, (after - before).square().sum((1, 2)) / (
            batch.pairs.any(0).sum(1) * logits.shape[1]
        )

    def _drifts(self, regularizer: DriftRegularizer) -> Float[Tensor, " model"]:
        """R of `DriftRegularizer` of the models that the last forward pass was about."""
        table: Any = self.models[0].embed.table
        states = regularizer.states
        vectors = filled_up(table.flatten(0, 1)[states])
        W_O, b_O = (self._active[f"blocks.0.attn.{name}"] for name in ("W_O", "b_O"))
        projected = self._linear(
            vectors.expand(len(W_O), -1, -1),
            "blocks.0.attn.W_QKV",
            "blocks.0.attn.b_QKV",
            "blocks.0.ln1",
        )
        found = []
        for own, own_W, own_b in zip(projected, W_O, b_O, strict=True):
            # rows behind the states are filling, see `filled_up`
            q, k, v = own[: len(states)].double().chunk(3, dim=-1)
            # [0]: a drift is measured of one head
            value = v @ own_W[0].double() + own_b.double()
            # in float64: a drift is a small difference of large numbers
            # `_scale` is what scores are multiplied with: 1 / attn_scale
            found.append(regularizer(q, k, value, 1 / self._scale))
        return torch.stack(found).to(projected)

    def logits(self, batch: Batch) -> Float[Tensor, "model d_vocab slots"]:
        """Those at every slot, row after row.

        The vocabulary is not last, since a softmax over few numbers is slow.
        """
        cfg, width = self.cfg, batch.tokens.shape[2]
        self._active = self.leaves
        if len(batch.tokens) < len(self.models):
            self._active = {name: leaf[batch.members] for name, leaf in self.leaves.items()}
        # row of `_table`: where the string begins, and which slot asks
        seen = batch.first * width + torch.arange(width, device=batch.first.device)
        mask = self._table(width).index_select(0, seen.flatten()).view(*seen.shape, width)
        x, projected = self._embedded(batch)
        for layer in range(cfg.n_layers):
            block = f"blocks.{layer}."
            if projected is None:
                projected = self._linear(
                    x, f"{block}attn.W_QKV", f"{block}attn.b_QKV", f"{block}ln1"
                )
            out = self._attention(projected, mask, block)
            projected = None
            if cfg.block == "bare":
                x = out
                continue
            x = x + (unit_norm(out, cfg.ln_c) if cfg.block == "eq6" else out)
            if cfg.block == "eq49":
                x = unit_norm(x, cfg.ln_c)
            if not cfg.attn_only:
                x = x + self._mlp(x, layer)
        return (
            self._linear(x, "unembed.W_U", "unembed.b_U", "ln_final").transpose(1, 2).contiguous()
        )

    # --- parts of the forward pass ----------------------------------------------------------------

    def _embedded(self, batch: Batch) -> tuple[Tensor, Tensor | None]:
        """Return the input of the first block, ``[model, slots, d_model]``.

        Also what its attention makes of it, if that is cheap.

        Without positions there are few different vectors, fewer than slots, so they are projected
        and then looked up.
        """
        model, (n_models, _, width) = self.models[0], batch.tokens.shape
        vectors, index = self._vectors(batch)
        if self.cfg.position == "none":
            projected = self._linear(
                vectors, "blocks.0.attn.W_QKV", "blocks.0.attn.b_QKV", "blocks.0.ln1"
            )
            return look_up(vectors, index), look_up(projected, index)
        x = look_up(vectors, index)
        position = (torch.arange(width, device=index.device) - batch.first).flatten(1)
        fixed = model.pos_embed.W_pos.expand(n_models, -1, -1)
        table: Any = self._active.get("pos_embed.W_pos", fixed)
        return x + look_up(filled_up(table[:, :width]), position), None

    def _vectors(self, batch: Batch) -> tuple[Tensor, Tensor]:
        """All vectors that tokens are embedded as, ``[model, number, d_model]``.

        Also which one each slot has.

        There are zeros for filling, so that each model's begin on a boundary.
        """
        if self.cfg.embedding == "token":
            return filled_up(self._active["embed.W_E"]), batch.tokens.flatten(1)
        table: Any = self.models[0].embed.table
        vectors = filled_up(table.flatten(0, 1)).expand(len(batch.tokens), -1, -1)
        # the table is [token, depth], flattened
        return vectors, (batch.tokens * table.shape[1] + batch.depth).flatten(1)

    def _table(self, width: int) -> Tensor:
        """Row ``first * width + slot``: how a slot sees its row, if its string begins at `first`.

        Softmax attention: 0 for those that it sees, -inf for the others, added to the scores;
        uniform attention: the weights themselves.
        """
        if width not in self._tables:
            some = next(iter(self.leaves.values()))
            like = torch.empty(0, dtype=self.cfg.dtype, device=some.device)
            here = torch.arange(width, device=like.device)
            first, slot, seen = here[:, None, None], here[:, None], here
            # causal within a string: from its first slot up to the one that asks
            visible = ((first <= seen) & (seen <= slot)).flatten(0, 1)
            if self._uniform:
                self._tables[width] = visible.to(like.dtype) / visible.sum(
                    -1, keepdim=True
                ).clamp_min(1)
            else:
                self._tables[width] = like.new_zeros(visible.shape).masked_fill_(
                    ~visible, -torch.inf
                )
        return self._tables[width]

    def _linear(self, x: Tensor, weight: str, bias: str, norm: str) -> Tensor:
        """The linear map of x, or of its LayerNorm."""
        W, b = self._active[weight].flatten(2), self._active[bias].flatten(1)
        scale = shift = None
        if f"{norm}.w" in self._active:
            x = F.layer_norm(x, x.shape[-1:], eps=self.cfg.eps)
            scale, shift = self._active[f"{norm}.w"], self._active[f"{norm}.b"]
        return linear(x, W, b, scale, shift)

    def _attention(self, projected: Tensor, mask: Tensor, block: str) -> Tensor:
        cfg, packed = self.cfg, mask.shape[:3]
        if self._uniform:
            z = attend_uniformly(projected.reshape(*packed, -1), mask)
        else:
            z = attend(projected.reshape(*packed, 3, cfg.n_heads, cfg.d_head), mask, self._scale)
        W_O = self._active[f"{block}attn.W_O"].flatten(1, 2)
        return linear(
            z.reshape(len(projected), -1, W_O.shape[1]), W_O, self._active[f"{block}attn.b_O"]
        )

    def _mlp(self, x: Tensor, layer: int) -> Tensor:
        name = f"blocks.{layer}.mlp"
        mlp: Any = self.models[0].blocks[layer].mlp
        hidden = self._linear(x, f"{name}.W_in", f"{name}.b_in", f"blocks.{layer}.ln2")
        if isinstance(mlp.act_fn, nn.Module):  # may have parameters
            names = [key for key, _ in mlp.act_fn.named_parameters()]
            values = [
                torch.func.functional_call(
                    mlp.act_fn,
                    {key: self._active[f"{name}.act_fn.{key}"][i] for key in names},
                    (h,),
                )
                for i, h in enumerate(hidden)
            ]
            hidden = torch.stack(values)
        else:
            hidden = mlp.act_fn(hidden)
        if self.cfg.is_layer_norm_activation() and f"{name}.ln.w" not in self._active:
            hidden = F.layer_norm(hidden, hidden.shape[-1:], eps=self.cfg.eps)
        return self._linear(hidden, f"{name}.W_out", f"{name}.b_out", f"{name}.ln")

    # --- from the parameters of models to leaves and back -----------------------------------------

    def _joined(self, values: list[dict[str, Tensor]]) -> dict[str, Tensor]:
        """Leaves, from a value for each trained parameter of each model."""
        leaves = {}
        for name in values[0]:
            base, kind = name[:-1], name[-1]
            if base.endswith(("attn.W_", "attn.b_")) and kind in _FUSED:
                if kind == "V":
                    # [model, (d_model,) part, head, d_head]
                    parts = [
                        torch.stack([own[base + part] for own in values]) for part in self._parts()
                    ]
                    joined = torch.stack(parts, dim=1)
                    leaves[f"{base}QKV"] = (
                        joined.permute(0, 3, 1, 2, 4) if joined.ndim == 5 else joined
                    )
            else:
                leaves[name] = torch.stack([own[name] for own in values])
        return {name: leaf.detach().contiguous() for name, leaf in leaves.items()}

    def _views(self, leaves: dict[str, Tensor], index: int) -> dict[str, Tensor]:
        """The inverse: what belongs to each trained parameter of one model."""
        views = {}
        for name, leaf in leaves.items():
            if name.endswith("_QKV"):
                for i, part in enumerate(self._parts()):
                    # the axis of parts, counted from the end: biases lack d_model
                    own = leaf[index].select(-3, i)  # [(d_model,) head, d_head]
                    views[name[:-3] + part] = own.transpose(0, 1) if own.ndim == 3 else own
            else:
                views[name] = leaf[index]
        return views

    def _parts(self) -> tuple[str, ...]:
        return _FUSED[2:] if self._uniform else _FUSED


def _trained(model: DyckTransformer) -> dict[str, nn.Parameter]:
    return {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
