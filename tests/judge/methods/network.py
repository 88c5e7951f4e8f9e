"""A judged model's forward pass in numpy, from its weights: no hook of TransformerLens takes part.

Strings are read one bracket at a time, with a stack; heads and layers are loops.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

Array = np.ndarray
#: ``edit(layer, head, value) -> value``, of an output z or a pattern.
Edit = Callable[[int, int, Array], Array]


@dataclass
class Trace:
    """What a forward pass computes: logits, and by layer and head what comes before them."""

    logits: Array
    pattern: list[list[Array]] = field(default_factory=list)
    v: list[list[Array]] = field(default_factory=list)
    z: list[list[Array]] = field(default_factory=list)
    attn_out: list[Array] = field(default_factory=list)  # as it is added to the stream
    mlp_out: list[Array] = field(default_factory=list)
    after_scale: list[Array | None] = field(default_factory=list)  # of a norm after attention
    final_scale: Array | None = None
    stream: Array | None = None  # the last one


@dataclass
class Frozen:
    """Parts of another pass to hold a pass at."""

    of: Trace
    layer: int  # the attention of this layer is computed; all others, MLPs and norms are held


def unchanged(layer: int, head: int, value: Array) -> Array:
    return value


def stacks(row: list[int]) -> list[list[int]]:
    """After each position the indices of the open brackets, the outermost first; BOS is at 0."""
    stack: list[int] = []
    found: list[list[int]] = [[]]
    for index, token in enumerate(row[1:], start=1):
        stack = [*stack, index] if token % 2 == 0 else stack[:-1]
        found.append(stack)
    return found


def strings(k: int, deepest: int, length: int) -> Array:
    """All prefixes of that many brackets, BOS first: token 2t opens type t, 2t + 1 closes it."""
    rows: list[tuple[list[int], list[int]]] = [([2 * k], [])]
    for _ in range(length):
        longer = []
        for row, held in rows:
            if held:
                longer.append(([*row, 2 * held[-1] + 1], held[:-1]))
            if len(held) < deepest:
                longer += [([*row, 2 * t], [*held, t]) for t in range(k)]
        rows = longer
    return np.array([row for row, _ in rows])


def right_brackets(rows: Array) -> Array:
    """After each position the bracket that closes what is open; -1 where nothing is."""
    return np.array(
        [[row[stack[-1]] + 1 if stack else -1 for stack in stacks(row)] for row in rows.tolist()]
    )


def exchanged(rows: Array, k: int) -> Array:
    """Every type made the next one."""
    new = rows.copy()
    for index, token in np.ndenumerate(rows):
        if token < 2 * k:
            new[index] = 2 * ((token // 2 + 1) % k) + token % 2
    return new


class Network:
    """The weights of a model, as numbers."""

    def __init__(self, model: Any) -> None:
        self.cfg = model.cfg
        assert self.cfg.block in ("eq6", "gpt"), "no other block is judged"
        assert self.cfg.act_fn == "relu"
        self.w = {name: value.detach().numpy() for name, value in model.named_parameters()}
        self.table = model.embed.table.numpy() if hasattr(model.embed, "table") else None
        self._embedded: dict[bytes, Array] = {}  # by rows: the same ones are read again and again

    def embed(self, rows: Array) -> Array:
        if self.table is None:
            return self.w["embed.W_E"][rows]
        key = repr(rows.shape).encode() + rows.tobytes()
        if key not in self._embedded:
            found = self._embedded[key] = np.zeros((*rows.shape, self.cfg.d_model))
            for string, row in enumerate(rows.tolist()):
                for index, (token, stack) in enumerate(zip(row, stacks(row), strict=True)):
                    found[string, index] = self.table[token, len(stack)]
            found.flags.writeable = False
        return self._embedded[key]

    def run(
        self,
        rows: Array,
        *,
        z: Edit = unchanged,
        scores: Edit = unchanged,
        pattern: Edit = unchanged,
        embed: Array | None = None,
        frozen: Frozen | None = None,
    ) -> Trace:
        x = self.embed(rows) if embed is None else embed
        if "pos_embed.W_pos" in self.w:
            x = x + self.w["pos_embed.W_pos"][: rows.shape[1]]
        trace = Trace(x)
        for layer in range(self.cfg.n_layers):
            held = frozen is not None and frozen.layer != layer
            x = x + self._attend(trace, layer, x, (z, scores, pattern), frozen, held)
            out = self._mlp(layer, x) if frozen is None else frozen.of.mlp_out[layer]
            trace.mlp_out.append(out)
            x = x + out
        trace.stream = x
        if "ln_final.w" in self.w:
            scale = None if frozen is None else frozen.of.final_scale
            x, trace.final_scale = self._layer_norm("ln_final", x, scale)
        trace.logits = x @ self.w["unembed.W_U"] + self.w["unembed.b_U"]
        return trace

    def _attend(
        self,
        trace: Trace,
        layer: int,
        x: Array,
        edits: tuple[Edit, Edit, Edit],
        frozen: Frozen | None,
        held: bool,
    ) -> Array:
        name = f"blocks.{layer}."
        read = self._layer_norm(name + "ln1", x)[0] if name + "ln1.w" in self.w else x
        edit_z, edit_scores, edit_pattern = edits
        patterns, vs, zs, out = [], [], [], self.w[name + "attn.b_O"]
        later = np.triu(np.ones((x.shape[1], x.shape[1]), dtype=bool), 1)
        for head in range(self.cfg.n_heads):
            q, k, v = (
                read @ self.w[f"{name}attn.W_{each}"][head] + self.w[f"{name}attn.b_{each}"][head]
                for each in "QKV"
            )
            scores = q @ k.transpose(0, 2, 1) / self.cfg.attn_scale
            scores = edit_scores(layer, head, np.where(later, -np.inf, scores))
            weight = np.exp(scores - scores.max(-1, keepdims=True))
            weight = edit_pattern(layer, head, weight / weight.sum(-1, keepdims=True))
            put = edit_z(layer, head, weight @ v)
            out = out + put @ self.w[name + "attn.W_O"][head]
            patterns.append(weight), vs.append(v), zs.append(put)
        scale = None
        if self.cfg.block == "eq6":  # LN_C acts on what attention puts out
            out = out - out.mean(-1, keepdims=True)
            scale = np.maximum(np.sqrt((out**2).sum(-1, keepdims=True)), self.cfg.ln_c)
            scale = scale if frozen is None else frozen.of.after_scale[layer]
            out = out / scale
        if held and frozen is not None:
            out = frozen.of.attn_out[layer]
        trace.pattern.append(patterns), trace.v.append(vs), trace.z.append(zs)
        trace.after_scale.append(scale), trace.attn_out.append(out)
        return out

    def _mlp(self, layer: int, x: Array) -> Array:
        name = f"blocks.{layer}."
        read = self._layer_norm(name + "ln2", x)[0] if name + "ln2.w" in self.w else x
        post = np.maximum(read @ self.w[name + "mlp.W_in"] + self.w[name + "mlp.b_in"], 0)
        return post @ self.w[name + "mlp.W_out"] + self.w[name + "mlp.b_out"]

    def _layer_norm(self, name: str, x: Array, scale: Array | None = None) -> tuple[Array, Array]:
        x = x - x.mean(-1, keepdims=True)
        if scale is None:
            scale = np.sqrt((x**2).mean(-1, keepdims=True) + self.cfg.eps)
        return x / scale * self.w[name + ".w"] + self.w[name + ".b"], scale
