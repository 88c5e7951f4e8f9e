"""What gives answers away without a run of a model: norms of weights, sizes, the kind of case.

Knows: what a referee would try first. These are no methods: they are told the answers about other
cases, or the kind, which methods are not. Where one of them scores high, so may a method that has
understood nothing.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from torch import Tensor

from tl_dyck.judge.protocol import ABOUT_HEADS, Case, Fact

# Shares of yes then come in steps of 1/60: fine enough to rank some hundred questions.
_TREES = 60  # of a forest
_FOLDS = 5  # each case is asked about by trees that were grown without it
_LEAF = 3  # questions in a leaf at least

Floats = NDArray[np.float64]
#: A share of yes, or: a feature, a threshold, and the trees of what is below and above it.
Tree = float | tuple[int, float, "Tree", "Tree"]


class Promise(NamedTuple):
    """The most that a cheat has: its AUROC, and the upper end of the AUROC's interval."""

    auroc: float
    high: float


#: What no cheat has more of, nor a learner that sees all but what models do. Of heads 0.75 is
#: proved, in the mean over suites (2/3 where fewer are asked of which nobody doubts), see
#: `tl_dyck_hooks.cases.pose.thin_by_mirror`; of all else it is an alarm, as the upper end is. The
#: best of many learners is a little above its mean, and is given no room for that.
PROMISED = Promise(0.75, 0.80)


def broken(known: Mapping[str, Any]) -> str | None:
    """Where "auroc" or "auroc_high" is above what is `PROMISED`, in words, or None.

    NaN, of what is not known, is above nothing.
    """
    if known["auroc"] > PROMISED.auroc:
        return f"{PROMISED.auroc:.2f} is promised"
    if known["auroc_high"] > PROMISED.high:
        return f"an interval that ends at {PROMISED.high:.2f} is promised"
    return None


@torch.no_grad()
def norms(model: Any) -> pd.DataFrame:
    """34 numbers for each head, none of which needs a run of the model, or looks at its readout.

    Logarithms of the norms of W_Q, W_K, W_V, W_O, b_Q, b_V, W_Q W_Kᵀ, W_V W_O and of what the last
    MLP reads of that, the same beside the model's largest, what the last two of the heads' products
    have besides their largest singular value, four sizes of the model, and places: of the layer, of
    the head, of the coordinates that it writes to, and of the units of the last MLP that read them.
    And how alike the spaces are that it and other heads write to: the mean, the largest, and how
    many are more alike than not; and which share of W_Q, W_V and W_O is zero.

    Returns:
        With ``target``, "layer head", as in `tl_dyck.judge.scores.ask`.
    """
    cfg = model.cfg
    sizes = (cfg.n_layers * cfg.n_heads, cfg.d_head, cfg.d_mlp or 0, cfg.d_model)
    rows, places, names, spaces = [], [], [], []
    for layer, block in enumerate(model.blocks):
        attn = block.attn
        for head in range(cfg.n_heads):
            q, k, v, o, b_q, b_v = (
                getattr(attn, name)[head] for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_V")
            )
            looks, moves = torch.linalg.svdvals(q @ k.T), torch.linalg.svdvals(v @ o)
            units = model.blocks[-1].mlp.W_in if cfg.d_mlp else torch.eye(cfg.d_model).to(o)
            read = v @ o @ units
            found = [each.norm() for each in (q, k, v, o, b_q, b_v, looks, moves, read)]
            # [1:]: singular values fall, so that the largest is left out; a
            # head of zeros has 0 of 1e-12
            found += [each[1:].norm() / each.norm().clamp(min=1e-12) for each in (looks, moves)]
            found += [(each == 0).double().mean() for each in (q, v, o)]
            rows.append([float(each) for each in found])
            middles = [_middle(each) for each in (o, read)]
            spaces.append(_space(v @ o))
            places.append([layer / cfg.n_layers, head / cfg.n_heads, *middles])
            names.append(f"{layer} {head}")
    raw = np.array(rows)
    # the first nine columns are norms, of which 0 must have a logarithm;
    # the rest are shares already
    size = np.log(raw[:, :9] + 1e-9)
    tiled = np.tile(sizes, (len(raw), 1))
    alike = [_overlaps(spaces, at) for at in range(len(spaces))]
    table = np.hstack([size, size - size.max(0), raw[:, 9:], tiled, np.array(places), alike])
    return pd.DataFrame(table).add_prefix("norm_").assign(target=names)


def _space(moves: Tensor) -> Tensor:
    """An orthonormal basis of what a head writes, ``[rank, d_model]``."""
    found = torch.linalg.svd(moves, full_matrices=False)
    # 1e-6: far above rounding in float64, far below what any weight here writes
    basis: Tensor = found.Vh[: max(1, int((found.S > 1e-6).sum()))]
    return basis


def _overlaps(spaces: Sequence[Tensor], at: int) -> list[float]:
    """How alike one space and each other are, 0 to 1: the mean, the largest, how many above 0.5."""
    found = [
        # Σ cos² of principal angles, at most the smaller dimension
        float((spaces[at] @ other.T).norm() ** 2) / min(len(other), len(spaces[at]))
        for index, other in enumerate(spaces)
        if index != at
    ]
    return [float(np.mean(found)), max(found), sum(x > 0.5 for x in found)] if found else [0.0] * 3


def _middle(matrix: Tensor) -> float:
    """Where the weight of the columns lies, from 0 to 1."""
    sizes = matrix.abs().sum(0)
    place = torch.linspace(0, 1, len(sizes), dtype=sizes.dtype)
    return float(sizes @ place / sizes.sum().clamp(min=1e-12))


@torch.no_grad()
def norms_along(case: Case, facts: Sequence[Fact]) -> pd.DataFrame:
    """12 numbers for each direction that is asked about, none of which needs a run of the model.

    How large W_V, W_O, W_V W_O and b_V are along it, logarithms of the first three, as they are and
    beside the largest and the mean of the head's directions; and the cosines with the closest
    singular vectors of W_V and W_O.

    Returns:
        As `norms`.
    """
    rows, names = [], []
    for fact in facts:
        if fact.question.kind != "feature" or case.directions is None:
            continue
        layer, head, index = fact.question.target
        attn, along = case.model.blocks[layer].attn, case.directions[index]
        v, o = attn.W_V[head], attn.W_O[head]
        left, right = torch.linalg.svd(v).Vh, torch.linalg.svd(o).U.T
        sizes = [v @ along, along @ o, v @ along[:, None] * (along @ o)]
        numbers = [each.norm().log() for each in sizes] + [(attn.b_V[head] @ along).abs()]
        numbers += [(left @ along).abs().max(), (right @ along).abs().max()]
        rows.append([head, *(float(each) for each in numbers)])
        names.append(" ".join(map(str, fact.question.target)))
    table = pd.DataFrame(rows, columns=["head", *range(6)])
    by = table.groupby("head")[[0, 1, 2]]
    beside = [table[[0, 1, 2]] - by.transform(how) for how in ("max", "mean")]
    found = pd.concat([table.drop(columns="head"), *beside], axis=1)
    return found.set_axis([f"norm_{at}" for at in range(12)], axis=1).assign(target=names)


def bounds(told: pd.DataFrame, weights: pd.DataFrame) -> pd.DataFrame:
    """What can be had without looking at how a model computes.

    Args:
        told: all facts, as `tl_dyck.judge.scores.oracle_rows`.
        weights: as `norms` and `norms_along`, with ``case``.

    Returns:
        Rows as those of `told`, of three methods. "kind-constant" says how often the answer is yes
        about that kind, these cases included; "forest" is a forest of random trees on `norms`,
        learnt on four fifths of the cases and asked about the rest; "forest-other-kinds" is learnt
        on all kinds but the one that it is asked about. Both are asked about heads, and about edges
        by the head that is the source, and about directions by `norms_along`.
    """
    of_kind = told.assign(answer=told["answer"].astype(float)).groupby(["model", "question"])
    constant = of_kind["answer"].transform("mean") - 0.5
    found = [told.assign(method="kind-constant", score=constant)]
    edges = told[told["question"] == "edge"]
    named = edges["target"].str.extract(r"^\((\d+), (\d+)\)")  # NaN of the embedding
    source = named[0] + " " + named[1]
    for kind in (*ABOUT_HEADS, "edge", "feature"):
        of = edges.assign(head=source) if kind == "edge" else told.assign(head=told["target"])
        known = weights.rename(columns={"target": "head"})
        asked = of[of["question"] == kind].merge(known, on=["case", "head"])
        fold = pd.factorize(asked["case"])[0] % _FOLDS
        for name, folds in (
            ("forest", fold),
            ("forest-other-kinds", pd.factorize(asked["model"])[0]),
        ):
            if len(set(folds)) > 1:
                numbers = asked.filter(like="norm_").dropna(axis=1)  # of features there are fewer
                score = _by_others(numbers, asked["answer"], folds) - 0.5
                found.append(asked[told.columns].assign(method=name, score=score))
    return pd.concat(found, ignore_index=True).assign(seconds=0.0, passes=0.0, backward=0.0)


def _by_others(features: pd.DataFrame, answers: pd.Series, folds: NDArray[np.int_]) -> Floats:
    """What a forest says of each fold that has learnt from the others."""
    x, y = features.to_numpy(float), answers.to_numpy(float)
    said = np.empty(len(y))
    random = np.random.default_rng(0)
    for fold in np.unique(folds):
        test = folds == fold
        trees = [grow_tree(x[~test], y[~test], random) for _ in range(_TREES)]
        said[test] = np.mean([asked(tree, x[test]) for tree in trees], axis=0)
    return said


def grow_tree(x: Floats, y: Floats, random: np.random.Generator) -> Tree:
    """An extremely randomised tree (Geurts et al. 2006): at each node the best of random cuts.

    Args:
        x: ``[n, feature]``.
        y: 0 or 1 each.
        random: source of the cuts, one for each feature.
    """
    # too few for two leaves, or nothing left to tell apart
    if len(y) < 2 * _LEAF or y.min() == y.max():
        return float(y.mean())
    cuts = random.uniform(x.min(0), x.max(0))
    below = x <= cuts
    n, yes = below.sum(0), y @ below
    m, more = len(y) - n, y.sum() - yes
    # n p (1 - p) of both sides: what Gini's impurity weighs; `clip` for a side without questions
    spread = yes * (1 - yes / n.clip(1)) + more * (1 - more / m.clip(1))
    spread[(n < _LEAF) | (m < _LEAF)] = np.inf
    best = int(spread.argmin())
    if not np.isfinite(spread[best]):
        return float(y.mean())
    left = below[:, best]
    return (
        best,
        float(cuts[best]),
        grow_tree(x[left], y[left], random),
        grow_tree(x[~left], y[~left], random),
    )


def asked(tree: Tree, x: Floats) -> Floats:
    """The share of yes where each row of `x` ends up."""
    if isinstance(tree, float):
        return np.full(len(x), tree)
    feature, cut, left, right = tree
    found, below = np.empty(len(x)), x[:, feature] <= cut
    found[below], found[~below] = asked(left, x[below]), asked(right, x[~below])
    return found
