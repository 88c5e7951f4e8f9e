"""What methods say of heads, found another way: numbers ``[layer, head]``."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import torch

from tests.judge.methods.cases import network
from tests.judge.methods.network import Edit, Frozen, Trace, exchanged, right_brackets, stacks
from tl_dyck.judge import Case

Array = np.ndarray


def each_head(case: Case, value: Callable[[int, int], float]) -> Array:
    cfg = case.model.cfg
    return np.array([[value(i, j) for j in range(cfg.n_heads)] for i in range(cfg.n_layers)])


def only(layer: int, head: int, put: Callable[[Array], Array]) -> Edit:
    """An edit of one head."""

    def edit(i: int, j: int, value: Array) -> Array:
        return put(value) if (i, j) == (layer, head) else value

    return edit


def run(case: Case, rows: Array | None = None, **edits: Any) -> Trace:
    if rows is None and not edits:
        return as_it_is(case)
    return network(case.model).run(case.tokens.numpy() if rows is None else rows, **edits)


@lru_cache
def as_it_is(case: Case) -> Trace:
    return network(case.model).run(case.tokens.numpy())


@lru_cache
def other_rows(case: Case) -> Array:
    return exchanged(case.tokens.numpy(), case.task.n_types)


# --- metrics --------------------------------------------------------------------------------------


def log_probability(case: Case, logits: Array) -> Array:
    """Of the right closing bracket, mean over the positions that have one, by string."""
    largest = logits.max(-1)
    told = logits - (largest + np.log(np.exp(logits - largest[..., None]).sum(-1)))[..., None]
    asked = rights(case) >= 0
    return (right_of(told, rights(case)) * asked).sum(1) / asked.sum(1)


@lru_cache
def rights(case: Case) -> Array:
    return right_brackets(case.tokens.numpy())


def right_of(logits: Array, wanted: Array) -> Array:
    return np.take_along_axis(logits, np.maximum(wanted, 0)[..., None], -1)[..., 0]


def differences(k: int, logits: Array, wanted: Array) -> Array:
    """Logit of the right closing bracket less the mean of the other closing ones; 0 if none is."""
    mine = right_of(logits, wanted)
    others = (sum(logits[..., 2 * t + 1] for t in range(k)) - mine) / (k - 1)
    return np.where(wanted >= 0, mine - others, 0)


def logit_differences(case: Case, logits: Array) -> Array:
    return differences(case.task.n_types, logits, rights(case))


# --- ablation -------------------------------------------------------------------------------------


def dropped(case: Case, edit: Callable[[int, int], dict[str, Edit]]) -> Array:
    before = log_probability(case, run(case).logits)

    def drop(layer: int, head: int) -> float:
        after = log_probability(case, run(case, **edit(layer, head)).logits)
        return float((before - after).mean())

    return each_head(case, drop)


def zero(case: Case) -> Array:
    return dropped(case, lambda i, j: {"z": only(i, j, np.zeros_like)})


def mean(case: Case) -> Array:
    z = run(case).z

    def put(layer: int, head: int) -> dict[str, Edit]:
        own = z[layer][head][:, 1:]  # BOS is no part of a string
        flat = own.reshape(-1, own.shape[-1])
        return {"z": only(layer, head, lambda value: np.broadcast_to(flat.mean(0), value.shape))}

    return dropped(case, put)


def partners(n: int) -> list[int]:
    """A random cycle through all strings, drawn with seed 0."""
    order = torch.randperm(n, generator=torch.Generator().manual_seed(0)).tolist()
    return [order[(order.index(string) + 1) % n] for string in range(n)]


def resample(case: Case) -> Array:
    z, of = run(case).z, partners(len(case.tokens))
    return dropped(case, lambda i, j: {"z": only(i, j, lambda value: z[i][j][of])})


def resampled_depth(case: Case) -> Array:
    """By the next place, of all strings in a row, where that type is on top at another depth."""
    told = [
        [(row[held[-1]], len(held)) if held else None for held in stacks(row)]
        for row in case.tokens.tolist()
    ]
    places = [(string, at) for string, row in enumerate(told) for at in range(len(row))]
    of = []
    for number, (string, at) in enumerate(places):
        mine = told[string][at]
        later = places[number + 1 :] + places[:number]
        fits = [
            (i, j) for i, j in later
            if mine and (other := told[i][j]) and other[0] == mine[0] and other[1] != mine[1]
        ]  # fmt: skip
        of.append(fits[0] if fits else (string, at))
    rows, columns = np.array(of).reshape(*case.tokens.shape, 2).transpose(2, 0, 1)
    return dropped(case, lambda i, j: {"z": only(i, j, lambda value: value[rows, columns])})


def uniform(case: Case) -> Array:
    n = case.tokens.shape[1]
    flat = np.array([[1 / (q + 1) if key <= q else 0 for key in range(n)] for q in range(n)])
    put = lambda value: np.broadcast_to(flat, value.shape)  # noqa: E731
    return dropped(case, lambda i, j: {"pattern": only(i, j, put)})


def without_the_top(case: Case) -> Array:
    """The score of one key of each query is minus infinity."""
    hidden = np.zeros((*case.tokens.shape, case.tokens.shape[1]), dtype=bool)
    for string, row in enumerate(case.tokens.tolist()):
        for query, held in enumerate(stacks(row)):
            hidden[string, query, held[-1:]] = True

    def put(scores: Array) -> Array:
        return np.where(hidden, -np.inf, scores)

    return dropped(case, lambda i, j: {"scores": only(i, j, put)})


def type_erased(case: Case) -> Array:
    return erased(case, rights(case) // 2, case.task.n_types)


def depth_erased(case: Case) -> Array:
    depths = [[len(stack) for stack in stacks(row)] for row in case.tokens.tolist()]
    return erased(case, np.array(depths), case.task.max_depth + 1)


def erased(case: Case, labels: Array, n: int) -> Array:
    """LEACE as Belrose et al. write it: whiten, project out what varies with a label, go back."""
    z = run(case).z
    asked = rights(case) >= 0

    def put(layer: int, head: int) -> dict[str, Edit]:
        x = z[layer][head][asked]
        onehot = np.eye(n)[labels[asked]]
        centred = x - x.mean(0)
        values, vectors = np.linalg.eigh(centred.T @ centred / len(x))
        kept = values > 1e-9 * values.max()
        root = np.sqrt(np.where(kept, values, 1))
        white = (vectors * np.where(kept, 1 / root, 0)) @ vectors.T
        back = (vectors * np.where(kept, root, 0)) @ vectors.T
        u, sizes, _ = np.linalg.svd(white @ centred.T @ (onehot - onehot.mean(0)) / len(x))
        u = u[:, : len(sizes)][:, sizes > 1e-4 * sizes.max()] if sizes.max() > 0 else u[:, :0]
        erased = x - centred @ (back @ u @ u.T @ white).T

        def edit(value: Array) -> Array:
            value = value.copy()
            value[asked] = erased
            return value

        return {"z": only(layer, head, edit)}

    return dropped(case, put)


def aligned(case: Case) -> Array:
    """A search by differences in place of gradients."""
    k, half = case.task.n_types, len(case.tokens) // 2
    source = run(case, other_rows(case)).z
    clean, wanted = run(case).z, right_brackets(other_rows(case))

    def share(layer: int, head: int) -> float:
        def answers(part: slice, matrix: Array) -> tuple[Array, Array]:
            basis, theirs = np.linalg.qr(matrix)[0], source[layer][head][part]
            put = only(layer, head, lambda z: z + (theirs - z) @ basis @ basis.T)
            logits = run(case, case.tokens.numpy()[part], z=put).logits[..., 1 : 2 * k : 2]
            asked = wanted[part] >= 0
            return logits[asked], wanted[part][asked] // 2

        def loss(matrix: Array) -> float:
            logits, right = answers(slice(half), matrix)
            told = logits - np.log(np.exp(logits - logits.max(-1, keepdims=True)).sum(-1))[:, None]
            told -= logits.max(-1, keepdims=True)
            return -float(told[np.arange(len(right)), right].mean())

        asked = wanted[:half] >= 0
        differ = (source[layer][head] - clean[layer][head])[:half][asked]
        at = np.linalg.svd(differ, full_matrices=False)[2][: k - 1].T
        first, second = np.zeros_like(at), np.zeros_like(at)
        for step in range(1, 21):
            slope = np.zeros_like(at)
            for index in np.ndindex(*at.shape):
                move = np.zeros_like(at)
                move[index] = _STEP
                slope[index] = (loss(at + move) - loss(at - move)) / (2 * _STEP)
            first, second = 0.9 * first + 0.1 * slope, 0.999 * second + 0.001 * slope**2
            unbiased = first / (1 - 0.9**step), np.sqrt(second / (1 - 0.999**step))
            at = at - 0.1 * unbiased[0] / (unbiased[1] + 1e-8)
        said, right = answers(slice(half, None), at)
        return float((said.argmax(-1) == right).mean())

    return each_head(case, share)


# --- patching -------------------------------------------------------------------------------------


def both_ends(case: Case) -> tuple[float, float]:
    low = logit_differences(case, run(case, other_rows(case)).logits).mean()
    return float(low), float(logit_differences(case, run(case).logits).mean())


def restored(case: Case) -> Array:
    low, high = both_ends(case)
    z, rows = run(case).z, other_rows(case)

    def share(layer: int, head: int) -> float:
        logits = run(case, rows, z=only(layer, head, lambda value: z[layer][head])).logits
        return (float(logit_differences(case, logits).mean()) - low) / (high - low)

    return each_head(case, share)


def lost(case: Case) -> Array:
    low, high = both_ends(case)
    clean, other = run(case).z, run(case, other_rows(case)).z

    def share(layer: int, head: int) -> float:
        def put(i: int, j: int, value: Array) -> Array:
            return other[i][j] if (i, j) == (layer, head) else clean[i][j]

        logits = run(case, z=put).logits
        return (high - float(logit_differences(case, logits).mean())) / (high - low)

    return each_head(case, share)


def direct(case: Case) -> Array:
    """Take the head out while all else, norms included, is held: what is lost went directly."""
    clean = run(case)
    before = logit_differences(case, clean.logits)
    asked = (rights(case) >= 0).sum()

    def share(layer: int, head: int) -> float:
        frozen = Frozen(clean, layer)
        logits = run(case, z=only(layer, head, np.zeros_like), frozen=frozen).logits
        return float(abs((before - logit_differences(case, logits)).sum() / asked))

    return each_head(case, share)


# --- gradients, by differences --------------------------------------------------------------------

_STEP = 1e-5


def slope(case: Case) -> Array:
    """Derivative of each string's metric by a factor on the head's output; mean size."""

    def size(layer: int, head: int) -> float:
        up, down = (
            log_probability(case, run(case, z=only(layer, head, lambda z, f=factor: f * z)).logits)
            for factor in (1 + _STEP, 1 - _STEP)
        )
        return float(abs(up - down).mean() / (2 * _STEP))

    return each_head(case, size)


def first_order(case: Case) -> Array:
    low, high = both_ends(case)
    other = run(case, other_rows(case)).z

    def share(layer: int, head: int) -> float:
        up, down = (
            logit_differences(
                case,
                run(
                    case,
                    z=only(layer, head, lambda z, f=step: z + f * (other[layer][head] - z)),
                ).logits,
            ).mean()
            for step in (_STEP, -_STEP)
        )
        return float(abs((up - down) / (2 * _STEP * (high - low))))

    return each_head(case, share)
