"""What methods say of edges and directions, in numpy: one reader alone reads a changed sum."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from tests.judge.methods.cases import network
from tests.judge.methods.heads import differences, other_rows, rights, run
from tl_dyck.judge import Case, Question

Array = np.ndarray
_STEP = 1e-5


def read_by_one(case: Case, embed: Array, delta: Array, reader: Any) -> Array:
    """Logits if one reader reads the stream and `delta`; all others the stream as it then is."""
    net, cfg, x = network(case.model), case.model.cfg, embed
    later = np.triu(np.ones((x.shape[1], x.shape[1]), dtype=bool), 1)

    def normed(name: str, x: Array) -> Array:
        return net._layer_norm(name, x)[0] if name + ".w" in net.w else x

    for layer in range(cfg.n_layers):
        name = f"blocks.{layer}."
        out = net.w[name + "attn.b_O"]
        for head in range(cfg.n_heads):
            read = normed(name + "ln1", x + delta if reader == (layer, head) else x)
            q, k, v = (
                read @ net.w[f"{name}attn.W_{each}"][head] + net.w[f"{name}attn.b_{each}"][head]
                for each in "QKV"
            )
            scores = np.where(later, -np.inf, q @ k.transpose(0, 2, 1) / cfg.attn_scale)
            weight = np.exp(scores - scores.max(-1, keepdims=True))
            z = weight / weight.sum(-1, keepdims=True) @ v
            out = out + z @ net.w[name + "attn.W_O"][head]
        x = x + (behind(case, out) if cfg.block == "eq6" else out)
        read = normed(name + "ln2", x + delta if reader == (layer, None) else x)
        post = np.maximum(read @ net.w[name + "mlp.W_in"] + net.w[name + "mlp.b_in"], 0)
        x = x + post @ net.w[name + "mlp.W_out"] + net.w[name + "mlp.b_out"]
    x = normed("ln_final", x + delta if reader is None else x)
    return x @ net.w["unembed.W_U"] + net.w["unembed.b_U"]


def behind(case: Case, out: Array) -> Array:
    """LN_C of what attention puts out."""
    out = out - out.mean(-1, keepdims=True)
    return out / np.maximum(np.sqrt((out**2).sum(-1, keepdims=True)), case.model.cfg.ln_c)


def change(case: Case, source: Any, through: bool) -> Array:
    """Of what a source writes, or what of it is handed on by the norm behind it."""
    net, rows, far = network(case.model), case.tokens.numpy(), other_rows(case)
    if source is None:
        return net.embed(far) - net.embed(rows)
    layer, head = source
    clean, other = (run(case, each).z[layer] for each in (rows, far))
    weight = net.w[f"blocks.{layer}.attn.W_O"]
    written = (other[head] - clean[head]) @ weight[head]
    if not through or case.model.cfg.block != "eq6":
        return written
    out = sum(z @ weight[at] for at, z in enumerate(clean)) + net.w[f"blocks.{layer}.attn.b_O"]
    return behind(case, out + written) - behind(case, out)


def told(case: Case, logits: Array) -> float:
    right = rights(case)
    return float(differences(case.task.n_types, logits, right).sum() / (right >= 0).sum())


def patched(through: bool) -> Callable[[Case, Sequence[Question]], list[float]]:
    def scores(case: Case, asked: Sequence[Question]) -> list[float]:
        embed = network(case.model).embed(case.tokens.numpy())
        base = told(case, run(case).logits)
        targets = [question.target for question in asked]
        changes = {source: change(case, source, through) for source, _ in targets}
        return [
            abs(told(case, read_by_one(case, embed, changes[source], reader)) - base) - 0.1
            for source, reader in targets
        ]

    return scores


def along(shares: Sequence[float]) -> Callable[[Case, Sequence[Question]], list[float]]:
    """Differences in place of gradients, at these shares of the way to the other embedding."""

    def scores(case: Case, asked: Sequence[Question]) -> list[float]:
        net, found = network(case.model), []
        near, far = (net.embed(rows) for rows in (case.tokens.numpy(), other_rows(case)))
        targets = [question.target for question in asked]
        changes = {source: change(case, source, through=False) for source, _ in targets}
        for source, reader in targets:
            step, slopes = _STEP * changes[source], []
            for share in shares:
                embed = near + share * (far - near)
                up, down = (
                    told(case, read_by_one(case, embed, sign * step, reader)) for sign in (1, -1)
                )
                slopes.append((up - down) / (2 * _STEP))
            found.append(abs(float(np.mean(slopes))) - 0.1)
        return found

    return scores


def size(case: Case, asked: Sequence[Question]) -> list[float]:
    return [
        float(np.linalg.norm(change(case, question.target[0], False), axis=-1).mean()) - 1
        for question in asked
    ]


# --- directions -----------------------------------------------------------------------------------


def components(case: Case, head: int) -> Array:
    """Eigenvectors of the covariance."""
    z = run(case).z[0][head].reshape(-1, case.model.cfg.d_head)
    return np.linalg.eigh(np.cov(z.T))[1].T


def values(case: Case, head: int) -> Array:
    """What each token at each depth puts into a head, one after the other."""
    net = network(case.model)
    rows = [net.table[token, depth] for token, depth in np.ndindex(*net.table.shape[:2])]
    return np.array([row @ net.w["blocks.0.attn.W_V"][head] for row in rows])


def nearest(
    found: Callable[[Case, int], Array],
) -> Callable[[Case, Sequence[Question]], list[float]]:
    def scores(case: Case, asked: Sequence[Question]) -> list[float]:
        assert case.directions is not None
        best = []
        for _, head, at in (question.target for question in asked):
            wanted, cosines = case.directions[at].numpy(), [0.0]
            for row in found(case, head):
                if np.linalg.norm(row) > 1e-12:
                    cosines.append(abs(row @ wanted) / np.linalg.norm(row) / np.linalg.norm(wanted))
            best.append(max(cosines) - 0.9)
        return best

    return scores


def zeros(case: Case, asked: Sequence[Question]) -> list[float]:
    assert case.directions is not None
    found = []
    for _, head, at in (question.target for question in asked):
        part = [abs(row @ case.directions[at].numpy()) for row in np.concatenate(
            list(run(case).z[0][head][:, 1:])
        )]  # fmt: skip
        found.append(sum(each < 0.01 * max(part) for each in part) / len(part) - 0.2)
    return found
