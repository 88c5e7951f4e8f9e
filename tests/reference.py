"""Logits by the papers' formulas, in plain numpy: what every account of a model is held to.

Nothing of the library is called; only weights and options are read.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from scipy.special import erf

__all__ = ["architecture", "layer_norm", "reference_logits", "unit_norm"]


def architecture(cfg: Any) -> tuple[str, str, str, str, int]:
    """(block, embedding, position, attention, layers) as a configuration says it."""
    block = getattr(cfg, "block", "gpt")
    if block == "gpt" and cfg.attn_only:
        block = "attn-only"
    ours = {"embedding": "token", "position": "table", "attention": "softmax"}
    return (block, *(getattr(cfg, key, value) for key, value in ours.items()), cfg.n_layers)


def minimal_embedding(kind: str, tokens: list[int], k: int, deepest: int, width: int) -> np.ndarray:
    """Eq. 19, 20, 21 by counting brackets one after the other; tokens 2k are BOS."""
    rows, depth = [], 0
    for token in tokens:
        row = np.zeros(width)
        if token == 2 * k:
            size = {"onehot": 2 * k * deepest, "split": 2 * k + deepest + 1, "yao": 2 * k + 2}[kind]
            row[size] = 1  # BOS has a coordinate of its own
        else:
            opening = token % 2 == 0
            depth += 1 if opening else -1
            low, high = (1, deepest) if opening else (0, deepest - 1)
            d = min(max(depth, low), high)
            if kind == "onehot":
                row[token * deepest + (d - 1 if opening else d)] = 1
            else:
                row[token] = 1
                if kind == "split":
                    row[2 * k + d] = 1
                else:
                    theta = math.atan(d / (deepest + 2 - d))
                    row[2 * k], row[2 * k + 1] = math.cos(theta), math.sin(theta)
        rows.append(row)
    return np.array(rows)


def positions(kind: str, length: int, width: int, t_max: int, table: np.ndarray) -> np.ndarray:
    if kind in ("learned", "table"):
        return table[:length]
    assert kind in ("none", "linear", "sinusoidal"), f"add {kind!r} in tests/reference.py"
    made = np.zeros((length, width))
    for i in range(length):
        if kind == "linear":
            made[i, width - 1] = i / t_max
        if kind == "sinusoidal":
            for c in range(width):
                angle = i / 10000 ** (2 * (c // 2) / width)
                made[i, c] = math.sin(angle) if c % 2 == 0 else math.cos(angle)
    return made


def layer_norm(x: np.ndarray, eps: float, w: Any = 1.0, b: Any = 0.0) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + eps) * w + b


def unit_norm(x: np.ndarray, c: float) -> np.ndarray:
    """Eq. 7."""
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.maximum(np.sqrt((centred**2).sum(-1, keepdims=True)), c)


def activation(name: str, x: np.ndarray) -> np.ndarray:
    if name == "relu":
        return np.maximum(x, 0)
    if name == "gelu":
        return x * 0.5 * (1 + erf(x / math.sqrt(2)))
    if name in ("gelu_new", "gelu_pytorch_tanh"):
        return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))
    assert name == "silu", name
    return x / (1 + np.exp(-x))


def attention(
    x: np.ndarray, w: dict[str, np.ndarray], uniform: bool, scale: float, causal: bool
) -> np.ndarray:
    length, out = len(x), 0
    for head in range(len(w["W_Q"])):
        q = x @ w["W_Q"][head] + w["b_Q"][head]
        k = x @ w["W_K"][head] + w["b_K"][head]
        v = x @ w["W_V"][head] + w["b_V"][head]
        mixed = np.zeros_like(v)
        for i in range(length):
            seen = i + 1 if causal else length
            scores = np.zeros(seen) if uniform else (k[:seen] @ q[i]) / scale
            p = np.exp(scores - scores.max())
            mixed[i] = (p / p.sum()) @ v[:seen]
        out = out + mixed @ w["W_O"][head]
    return out + w["b_O"]


def reference_logits(
    cfg: Any,
    weights: dict[str, np.ndarray],
    tokens: list[int],
    like: tuple[str, str, str, str, int] | None = None,
) -> np.ndarray:
    """Logits of one string, ``[pos, d_vocab_out]``.

    Args:
        cfg: sizes, norms, activation.
        weights: by TransformerLens' names, in float64.
        tokens: BOS first, if the model has one.
        like: what `architecture` returns, where a test knows better than the configuration.
    """
    block, embedding, position, how, layers = like or architecture(cfg)
    scale = (
        1.0 if not cfg.use_attn_scale else cfg.attn_scale if cfg.attn_scale > 0 else cfg.d_head**0.5
    )

    def part(start: str) -> dict[str, np.ndarray]:
        return {
            key[len(start) + 1 :]: value
            for key, value in weights.items()
            if key.startswith(f"{start}.")
        }

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        if cfg.normalization_type is None:
            return x
        assert cfg.normalization_type in ("LN", "LNPre")
        return layer_norm(x, cfg.eps, **part(name))

    if embedding == "token":
        x = weights["embed.W_E"][tokens]
    else:
        x = minimal_embedding(embedding, tokens, cfg.n_types, cfg.max_depth, cfg.d_model)
    if getattr(cfg, "post_embedding_ln", False):
        x = layer_norm(x, cfg.eps, **part("embed.ln"))
    t_max = getattr(cfg, "t_max", 0)
    x = x + positions(position, len(tokens), cfg.d_model, t_max, weights["pos_embed.W_pos"])
    shape = (how == "uniform", scale, getattr(cfg, "attention_dir", "causal") == "causal")
    for index in range(layers):
        at = f"blocks.{index}"
        own = part(f"{at}.attn")
        if block in ("gpt", "attn-only"):
            x = x + attention(norm(f"{at}.ln1", x), own, *shape)
            into_mlp = norm(f"{at}.ln2", x)
        elif block == "eq6":
            x = x + unit_norm(attention(x, own, *shape), cfg.ln_c)
            into_mlp = x
        elif block == "eq49":
            into_mlp = x = unit_norm(x + attention(x, own, *shape), cfg.ln_c)
        else:
            assert block == "bare", block
            x = attention(x, own, *shape)
        if block in ("bare", "attn-only"):
            continue
        mlp = part(f"{at}.mlp")
        hidden = activation(cfg.act_fn, into_mlp @ mlp["W_in"] + mlp["b_in"])
        x = x + hidden @ mlp["W_out"] + mlp["b_out"]
    if block in ("gpt", "attn-only"):
        x = norm("ln_final", x)
    return x @ weights["unembed.W_U"] + weights["unembed.b_U"]
