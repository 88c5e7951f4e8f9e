"""Theorem 3: prune a large random network until it computes what a given small one does."""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.models.construct.fit import NetworkTooNarrowError, fit_product
from tl_dyck.models.construct.plan import Plan
from tl_dyck.models.construct.subset_sum import EXACT_ITEMS
from tl_dyck.models.construct.target import (
    LayerErrors,
    TargetLayer,
    propagate,
    read_target,
    spectral_norm,
)
from tl_dyck.models.transformer import DyckTransformer


@final
@dataclass(frozen=True)
class LayerBound:
    """Bound on the distance between the pruned network and its target at one point.

    Attributes:
        target_hook: hook point of the target; "" stands for its logits.
        pruned_hook: hook point of the pruned network, of which the first coordinates correspond.
        bound: of the Euclidean distance there, for every input of any length; of the largest
            difference, for logits.
    """

    target_hook: str
    pruned_hook: str
    bound: float


@final
@dataclass(frozen=True)
class Pruning:
    """A random network pruned to a target.

    Attributes:
        model: the pruned network: every weight is the random network's, bit for bit, or zero.
        masks: for each parameter, True where the random weight was kept.
        bound: no logit differs from the target's by more, for any input of any length.
        layers: the same, after the embedding, after each layer of the target, and at the logits.
        items: random products that each weight could be put together from.
    """

    model: DyckTransformer
    masks: dict[str, Tensor]
    bound: float
    layers: tuple[LayerBound, ...]
    items: int

    @property
    def kept(self) -> float:
        """Share of the random weights that were kept."""
        return sum(int(mask.sum()) for mask in self.masks.values()) / sum(
            mask.numel() for mask in self.masks.values()
        )


@checked
def prune_to(target: DyckTransformer, random_network: DyckTransformer, epsilon: float) -> Pruning:
    """Theorem 3: a pruned random network, within ε of a target's logits on inputs of any length.

    A weight w of the target becomes a sum of products of two random weights, Σ_m a_m b_m over a
    subset of hidden units (or head dimensions) m that serve one input coordinate; everything else
    is pruned. The subset is found by `nearest_subsets`. For the linear maps of attention (W_Q W_Kᵀ
    and W_V W_O) that is all; a linear map by an MLP needs one such sum from units with a > 0 and
    one from units with a < 0, since relu lets through one sign only (Pensia et al. 2020). See
    `Plan` for the layout.

    What is covered: every weight and bias of a model of Eq. 6 blocks, embedding and unembedding
    included (the paper leaves them out), without positions. The random network has the same
    vocabulary, the same C of LN_C, and twice the blocks, as in the theorem, and one or two more for
    the embedding and the logits. Since blocks of Eq. 6 have residual links around both parts,
    blocks that are not needed are pruned to the identity exactly, where the theorem has an
    approximation. What is not: other blocks, positions, activations other than ReLU, and a C so
    small that 1/C, the Lipschitz constant of LN_C, makes the bound useless (as with the
    constructions that solve Dyck at any length).

    Measured, see docs/findings/performance.md (k = 2, D = 4, targets with
    d_model = d_mlp = 8, weights N(0, 0.15²), C = 0.5; random weights uniform between −2 and 2;
    geometric mean of four):

    | items | d_head | d_mlp | ε, 1 layer | seen on samples | ε, 2 layers | seen on samples |
    |-------|--------|-------|------------|-----------------|-------------|-----------------|
    | 10    | 90     | 198   | 5          | 9e-2            | 5e+1        | 2e-1            |
    | 18    | 162    | 357   | 5e-2       | 1e-3            | 1           | 5e-3            |
    | 26    | 234    | 515   | 8e-4       | 4e-5            | 3e-3        | 1e-5            |
    | 30    | 270    | 594   | 7e-5       | 4e-5            | 2e-4        | 5e-6            |

    Widths are proportional to the items per weight, and these grow as 13 + 1.2 log2(1/ε) for one
    layer, 17 + 1.1 log2(1/ε) for two: the log(1/ε) of the theorem, with a constant near 1.

    Args:
        target: a `DyckTransformer`, block "eq6", ReLU, position "none".
        random_network: such a model with random weights and biases, float64, for example from
            `construct.random_network`; not changed.
        epsilon: largest difference of a logit to be guaranteed.

    Returns:
        The pruned network with its masks, and bounds layer by layer; ``bound <= epsilon``.

    Raises:
        ValueError: `epsilon` is not positive, the two models do not go together, a kind of model
            that is not covered, or a weight of the target that is larger than what the random
            weights can sum to.
        NetworkTooNarrowError: the random network is too small for the target, or for ε; the message
            says what it needs.
    """
    check_epsilon(epsilon)
    plan = Plan.of(target)
    pruning = prune(target, random_network, plan)
    check_bound(pruning, plan, epsilon)
    return pruning


def check_epsilon(epsilon: float) -> None:
    """Refuse an ε that is no distance."""
    if not 0 < epsilon < math.inf:
        raise ValueError(f"epsilon must be positive and finite, got {epsilon}")


def check_alike(what: str, one: DyckTransformer, other: DyckTransformer, hint: str) -> None:
    """Refuse models of different languages, embeddings or C of LN_C."""
    for field in ("n_types", "max_depth", "embedding", "ln_c"):
        ours, theirs = getattr(one.cfg, field), getattr(other.cfg, field)
        if ours != theirs:
            raise ValueError(f"{what} differ in {field}: {ours!r} and {theirs!r}; {hint}")


def check_bound(pruning: Pruning, plan: Plan, epsilon: float) -> None:
    """Insist on ε, or say what it takes."""
    if pruning.bound <= epsilon:
        return
    # One more item halves the error of a weight, and the bound is proportional to it
    # two to spare: an item halves the error on average, not each time
    items = pruning.items + math.ceil(math.log2(pruning.bound / epsilon)) + 2
    message = (
        f"with {pruning.items} random products per weight, logits can be off by "
        f"{pruning.bound:.2g}; epsilon={epsilon:.2g} would take about {items}"
    )
    if items > EXACT_ITEMS:
        least = pruning.bound * 2.0 ** (pruning.items - EXACT_ITEMS + 2)
        raise NetworkTooNarrowError(
            f"{message}, but subsets are searched among {EXACT_ITEMS} only, so about {least:.1g} "
            "is the least epsilon for this target at any width; a larger C of LN_C or smaller "
            "weights in the target help"
        )
    raise NetworkTooNarrowError(
        f"{message}: d_head={plan.d_head(items)} and d_mlp={plan.hidden_units(items)} (the network "
        f"has {pruning.model.cfg.d_head} and {pruning.model.cfg.d_mlp}); "
        f"construct.random_network(…, items={items}) is one"
    )


@torch.no_grad()
def prune(
    target: DyckTransformer, network: DyckTransformer, plan: Plan, keep: str | None = None
) -> Pruning:
    """Prune as planned, as well as the width allows, but keep all of parameter `keep`."""
    items = _check(target, network, plan)
    weights = read_target(target, plan.n_layers, plan.n_heads, plan.d_model, plan.d_mlp)
    masks = {
        name: torch.zeros(value.shape, dtype=torch.bool)
        for name, value in network.named_parameters()
    }
    embed_error, hooks = 0.0, [("hook_embed", "hook_embed")]
    if weights.embed is not None:
        embed_error = _fit_embedding(network, masks, plan, weights.embed, items)
        hooks = [("hook_embed", f"blocks.{plan.embedding_block}.hook_resid_post")]
    fit = partial(_fit_mlp, network, masks, items=items)
    here, errors = list(range(plan.d_model)), []
    for index, layer in enumerate(weights.layers):
        first, second = plan.layer_blocks(index)
        hidden = list(range(*plan.hidden(index).indices(plan.width)))
        scores, values = _fit_attention(network, masks, first, layer, items, index)
        w_in = fit(first, here, hidden, layer.w_in, "both", what=f"W_in of layer {index}")
        w_out = fit(second, hidden, here, layer.w_out, "positive", what=f"W_out of layer {index}")
        errors.append(LayerErrors(scores, values, spectral_norm(w_in), spectral_norm(w_out)))
        hooks.append((f"blocks.{index}.hook_resid_post", f"blocks.{second}.hook_resid_post"))
    # A linear map, then one random weight per logit
    # pruning cannot change a logit's own weight: what comes before is divided by it
    W_U = network.unembed.W_U.detach().double().cpu()[plan.logits]
    logits, tokens = _one_each(W_U.T), torch.arange(plan.d_vocab)
    rows, read = plan.logits.start + logits, W_U[logits, tokens]
    masks["unembed.W_U"][rows, tokens] = True
    unembed = fit(plan.logit_block, here, rows.tolist(), weights.unembed / read, "both", what="W_U")
    if keep is not None:
        masks[keep][:] = True
    bounds = propagate(weights, embed_error, errors, (unembed * read).norm(dim=0), read)
    model = copy.deepcopy(network).eval()
    for name, parameter in model.named_parameters():
        parameter.mul_(masks[name].to(parameter.device))
    layers = tuple(
        LayerBound(*pair, bound) for pair, bound in zip([*hooks, ("", "")], bounds, strict=True)
    )
    return Pruning(model, masks, bounds[-1], layers, items)


def _fit_embedding(
    network: DyckTransformer,
    masks: dict[str, Tensor],
    plan: Plan,
    embed: Float[Tensor, "token d_model"],
    items: int,
) -> float:
    """One random weight per token, then a linear map; returns the largest error of a token."""
    W_E = network.embed.W_E.detach().double().cpu()[:, plan.tokens]
    chosen, tokens = _one_each(W_E), torch.arange(plan.d_vocab)
    columns, state, block = plan.tokens.start + chosen, slice(0, plan.d_model), plan.embedding_block
    masks["embed.W_E"][tokens, columns] = True
    first = W_E[tokens, chosen][:, None] * _weight(network, block, "mlp.W_in")[columns]
    second = _weight(network, block, "mlp.W_out")[:, state]
    fit = fit_product(first, second, embed, "positive", items, "W_E")
    masks[f"blocks.{block}.mlp.W_in"][columns] = fit.first
    masks[f"blocks.{block}.mlp.W_out"][:, state] = fit.second
    return float(fit.error.norm(dim=1).max())


def _one_each(weights: Float[Tensor, "token choice"]) -> Int[Tensor, " token"]:
    """A column for each row, no column twice, by the largest weight that is left."""
    left = weights.abs().clone()
    chosen = torch.zeros(len(left), dtype=torch.int64)
    for token in range(len(left)):
        chosen[token] = left[token].argmax()
        # below all sizes, so that no other row takes the column
        left[:, chosen[token]] = -1
    return chosen


def _fit_attention(
    network: DyckTransformer,
    masks: dict[str, Tensor],
    block: int,
    layer: TargetLayer,
    items: int,
    index: int,
) -> tuple[list[float], list[float]]:
    """Prune an attention layer; returns the errors of M and of O, head by head."""
    d_model = layer.values.shape[-1]
    scale = float(network.blocks[block].attn.attn_scale)
    scores, values = [], []
    for head, (M, O_) in enumerate(zip(layer.scores, layer.values, strict=True)):
        W_Q, W_K, W_V = (
            torch.cat(
                [
                    _weight(network, block, f"attn.W_{name}")[head, :d_model],
                    _weight(network, block, f"attn.b_{name}")[head][None],
                ]
            )
            for name in "QKV"
        )
        W_O = _weight(network, block, "attn.W_O")[head, :, :d_model]
        fit_scores = fit_product(
            W_Q, W_K.T, M * scale, "linear", items, f"W_Q W_K of layer {index}"
        )
        fit_values = fit_product(W_V, W_O, O_, "linear", items, f"W_V W_O of layer {index}")
        for name, mask in (
            ("Q", fit_scores.first),
            ("K", fit_scores.second.T),
            ("V", fit_values.first),
        ):
            masks[f"blocks.{block}.attn.W_{name}"][head, :d_model] = mask[:-1]
            masks[f"blocks.{block}.attn.b_{name}"][head] = mask[-1]
        masks[f"blocks.{block}.attn.W_O"][head, :, :d_model] = fit_values.second
        # M was fitted times the scale, which attention divides by
        scores.append(spectral_norm(fit_scores.error) / scale)
        values.append(spectral_norm(fit_values.error))
    return scores, values


def _fit_mlp(
    network: DyckTransformer,
    masks: dict[str, Tensor],
    block: int,
    read: list[int],
    write: list[int],
    wanted: Float[Tensor, "d_in d_out"],
    mode: str,
    items: int,
    what: str,
) -> Float[Tensor, "d_in d_out"]:
    """Make a block's MLP a linear map with bias, between given coordinates; returns errors."""
    first = torch.cat(
        [_weight(network, block, "mlp.W_in")[read], _weight(network, block, "mlp.b_in")[None]]
    )
    fit = fit_product(
        first, _weight(network, block, "mlp.W_out")[:, write], wanted, mode, items, what
    )
    masks[f"blocks.{block}.mlp.W_in"][read] = fit.first[:-1]
    masks[f"blocks.{block}.mlp.b_in"][:] = fit.first[-1]
    masks[f"blocks.{block}.mlp.W_out"][:, write] = fit.second
    return fit.error


def _weight(network: DyckTransformer, block: int, name: str) -> Tensor:
    weight: Tensor = network.blocks[block].get_parameter(name)
    return weight.detach().double().cpu()


def _check(target: DyckTransformer, network: DyckTransformer, plan: Plan) -> int:
    """Refuse models that do not go together or do not fit.

    Returns the items per weight that there is room for.
    """
    for name, model in (("target", target), ("random network", network)):
        if not isinstance(model, DyckTransformer):
            raise TypeError(f"the {name} must be a DyckTransformer, not {type(model).__name__}")
        for field, wanted in (("block", "eq6"), ("position", "none"), ("act_fn", "relu")):
            if getattr(model.cfg, field) != wanted:
                raise ValueError(
                    f"pruning covers models with {field}={wanted!r}; the {name} has "
                    f"{getattr(model.cfg, field)!r}"
                )
    if network.cfg.dtype != torch.float64:
        raise ValueError(
            f"the random network must be float64, not {network.cfg.dtype}: "
            "the bounds leave rounding out"
        )
    if network.cfg.attention == "uniform":
        raise ValueError(
            "the random network must have attention='softmax': "
            "uniform attention has no random queries and keys"
        )
    check_alike("target and random network", target, network, "take the target's")
    cfg = network.cfg
    needed: dict[str, Any] = {
        "n_layers": plan.depth,
        "n_heads": plan.n_heads,
        "d_model": plan.width,
        "d_head": plan.d_head(1),
        "d_mlp": plan.hidden_units(1),
    }
    short = [
        f"{name} >= {least} (it has {getattr(cfg, name)})"
        for name, least in needed.items()
        if getattr(cfg, name) < least
    ]
    if short:
        raise NetworkTooNarrowError(
            "the random network is too small for this target whatever epsilon is: it needs "
            f"{', '.join(short)}; construct.random_network(target) makes one that fits"
        )
    return plan.items(cfg.d_head, cfg.d_mlp or 0)
