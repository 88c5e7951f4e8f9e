"""A target of pruning as a list of matrices, and how far errors in them can carry to the output.

With biases as one more row, to go with a constant coordinate of 1, a layer of Eq. 6 is, per head h,

    score(query, key) = xqᵀ M_h xk,    x = (state, 1),
    attention output = Σ_h Σ_key pattern_h(key) O_hᵀ xk,

then LN_C and residual, then ``x + relu(x W_in) W_out``. O already has mean zero (P⊥), since LN_C
takes the mean anyway.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.models.transformer import DyckTransformer


@final
@dataclass(frozen=True)
class TargetLayer:
    """One layer; the last row of a first matrix is its bias.

    Attributes:
        scores: M, ``[head, d_model + 1, d_model + 1]``, the scale of the scores included.
        values: O, ``[head, d_model + 1, d_model]``.
        w_in: ``[d_model + 1, d_mlp]``.
        w_out: ``[d_mlp + 1, d_model]``.
    """

    scores: Float[Tensor, "head d_in d_in"]
    values: Float[Tensor, "head d_in d_model"]
    w_in: Float[Tensor, "d_in d_mlp"]
    w_out: Float[Tensor, "d_mlp_in d_model"]


@final
@dataclass(frozen=True)
class TargetWeights:
    """A target, float64.

    Attributes:
        embed: ``[d_vocab, d_model]``, or None for a depth embedding, which is a constant.
        layers: first to last.
        unembed: ``[d_model + 1, d_vocab]``.
        largest_embedding: the largest norm of what the embedding can produce.
        ln_c: C of LN_C.
    """

    embed: Float[Tensor, "d_vocab d_model"] | None
    layers: list[TargetLayer]
    unembed: Float[Tensor, "d_in d_vocab"]
    largest_embedding: float
    ln_c: float


def read_target(
    model: DyckTransformer, n_layers: int, n_heads: int, d_model: int, d_mlp: int
) -> TargetWeights:
    """The weights of a model, padded with zeros to given sizes, which leaves its function."""
    cfg, blocks = model.cfg, list(model.blocks)
    layers = []
    for index in range(n_layers):
        scores = torch.zeros(n_heads, d_model + 1, d_model + 1, dtype=torch.float64)
        values = torch.zeros(n_heads, d_model + 1, d_model, dtype=torch.float64)
        w_in = torch.zeros(d_model + 1, d_mlp, dtype=torch.float64)
        w_out = torch.zeros(d_mlp + 1, d_model, dtype=torch.float64)
        if index < cfg.n_layers:
            attn: Any = blocks[index].attn
            mlp: Any = blocks[index].mlp
            # the bias is the last row of the padded matrix, wherever the padding begins
            rows = [*range(cfg.d_model), d_model]
            for head in range(cfg.n_heads):
                W_Q, W_K, W_V = (
                    torch.cat([weight[head], bias[head][None]]).detach().double().cpu()
                    for weight, bias in (
                        (attn.W_Q, attn.b_Q),
                        (attn.W_K, attn.b_K),
                        (attn.W_V, attn.b_V),
                    )
                )
                value = W_V @ attn.W_O[head].detach().double().cpu()
                # the weights of a pattern sum to one, so the output's bias may join a value's
                if head == 0:
                    value[-1] += attn.b_O.detach().double().cpu()
                scores[head][torch.tensor(rows)[:, None], torch.tensor(rows)] = (
                    W_Q @ W_K.T / float(attn.attn_scale)
                )
                # P⊥: LN_C takes the mean away, so that what is compared has none
                values[head][rows, : cfg.d_model] = value - value.mean(1, keepdim=True)
            w_in[rows, : cfg.d_mlp] = torch.cat([mlp.W_in, mlp.b_in[None]]).detach().double().cpu()
            rows_out = [*range(len(mlp.b_in)), d_mlp]
            w_out[rows_out, : cfg.d_model] = (
                torch.cat([mlp.W_out, mlp.b_out[None]]).detach().double().cpu()
            )
        layers.append(TargetLayer(scores, values, w_in, w_out))
    embed = None
    source: Any = model.embed
    table = (source.W_E if cfg.embedding == "token" else source.table).detach().double().cpu()
    if cfg.embedding == "token":
        embed = torch.zeros(cfg.d_vocab, d_model, dtype=torch.float64)
        embed[:, : cfg.d_model] = table
    unembed = torch.zeros(d_model + 1, cfg.d_vocab, dtype=torch.float64)
    unembed[[*range(cfg.d_model), d_model]] = (
        torch.cat([model.unembed.W_U, model.unembed.b_U[None]]).detach().double().cpu()
    )
    return TargetWeights(embed, layers, unembed, float(table.norm(dim=-1).max()), cfg.ln_c)


@final
@dataclass(frozen=True)
class LayerErrors:
    """Errors of the matrices of a pruned network's layer, as bounds of their spectral norms."""

    scores: list[float]
    values: list[float]
    w_in: float
    w_out: float


def propagate(
    target: TargetWeights,
    embed_error: float,
    layers: list[LayerErrors],
    unembed_errors: Float[Tensor, " d_vocab"],
    read_weights: Float[Tensor, " d_vocab"],
) -> list[float]:
    """Bound the pruned network's distance to its target: at the embedding, each layer, the logits.

    In terms of Euclidean norms over the whole residual stream of the pruned network, for every
    input of any length. With R a bound of the target's state and δ of the error so far (App. C.5
    has the same steps, with constants of its own):

    - scores: Δ = ‖E_M‖ (R̃ + δ)² + ‖M‖ (2 R̃ δ + δ²), R̃² = R² + 1;
    - pattern: scores that are off by Δ at most move a row of softmax by 2 tanh(Δ / 2) at most in
        the sum of absolute values
      (Lemma 8 has e^2Δ − 1);
    - attention output: ‖E_O‖ (R̃ + δ) + ‖O‖ δ + 2 tanh(Δ / 2) ‖O‖ R̃, summed over heads;
    - LN_C: x / max(‖x‖, C) is the projection on a ball, over C, so it has Lipschitz constant 1 / C;
        and it is at most 1;
    - MLP: its linear maps by their norms; relu has Lipschitz constant 1.

    Rounding of floating-point sums, about 1e-15 each, is not included. `unembed_errors` are norms
    of the columns of the unembedding's error, times the weight in `read_weights` with which each
    logit is read off.
    """
    norm = spectral_norm
    R, delta = target.largest_embedding, embed_error
    bounds = [delta]
    for layer, error in zip(target.layers, layers, strict=True):
        wide = math.hypot(R, 1)
        output = 0.0
        for M, O_, error_M, error_O in zip(
            layer.scores, layer.values, error.scores, error.values, strict=True
        ):
            score = error_M * (wide + delta) ** 2 + norm(M) * (2 * wide * delta + delta**2)
            output += (
                error_O * (wide + delta)
                + norm(O_) * delta
                + 2 * math.tanh(score / 2) * norm(O_) * wide
            )
        delta += min(2.0, output / target.ln_c)
        R += 1 if layer.values.any() else 0
        wide = math.hypot(R, 1)
        hidden = norm(layer.w_in[:-1]) * R + float(layer.w_in[-1].norm())
        delta += error.w_in * (wide + delta) + norm(layer.w_in[:-1]) * delta
        delta += error.w_out * (math.hypot(hidden, 1) + delta) + norm(layer.w_out[:-1]) * delta
        R += norm(layer.w_out[:-1]) * hidden + float(layer.w_out[-1].norm())
        bounds.append(delta)
    # the coordinates that the logits are read from may be off before they are written, hence the
    # second delta
    logits = (
        unembed_errors * (math.hypot(R, 1) + delta)
        + (target.unembed[:-1].norm(dim=0) + read_weights.abs()) * delta
    )
    return [*bounds, float(logits.max())]


def spectral_norm(matrix: Float[Tensor, "row column"]) -> float:
    """The largest singular value; of bounds of magnitudes, a bound of that of what they bound."""
    return float(torch.linalg.matrix_norm(matrix, 2)) if matrix.numel() else 0.0
