"""What methods say of whole models and of matrices, found another way."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
import torch

from tests.judge.methods.cases import network
from tests.judge.methods.heads import log_probability, run
from tests.judge.methods.looks import probed
from tests.judge.methods.network import right_brackets, stacks
from tl_dyck.judge import Case, Question

Array = np.ndarray

# --- behaviour ------------------------------------------------------------------------------------


def closed(case: Case, model: object, rows: Array) -> Array:
    """The likeliest of all tokens after each position."""
    return network(model).run(rows).logits.argmax(-1)


def sampled(case: Case, kind: str, length: int, n: int) -> float:
    drawn = case.task.distribution.sample(
        n, length, mode="prefix", generator=torch.Generator().manual_seed(0)
    ).tolist()
    rows = np.array([[2 * case.task.n_types, *row] for row in drawn])
    rights = right_brackets(rows)
    ours = closed(case, case.model, rows)
    wanted = rights if kind == "stack" else closed(case, case.other, rows)
    asked = wrong = 0
    for at, right in np.ndenumerate(rights):
        if right >= 0:
            asked += 1
            wrong += ours[at] != wanted[at]
    return -wrong / asked if wrong else 1e-9


def length_test(case: Case, questions: Sequence[Question]) -> list[float]:
    return [sampled(case, question.kind, question.target[0], 100) for question in questions]


def test_set(case: Case, questions: Sequence[Question]) -> list[float]:
    return [sampled(case, question.kind, case.length, 1000) for question in questions]


test_set.__test__ = False  # type: ignore[attr-defined]


def prefixes(k: int, deepest: int, length: int) -> list[list[int]]:
    """All prefixes of that many brackets, grown one bracket at a time."""
    rows = [[2 * k]]
    for _ in range(length):
        grown = []
        for row in rows:
            held = stacks(row)[-1]
            if len(held) < deepest:
                grown += [[*row, 2 * t] for t in range(k)]
            if held:
                grown.append([*row, row[held[-1]] + 1])
        rows = grown
    return rows


def enumerated(case: Case, questions: Sequence[Question]) -> list[float | None]:
    """Of short lengths, by listing all prefixes; of long ones nothing."""
    models = [case.model] if questions[0].kind == "stack" else [case.model, case.other]
    found: list[float | None] = []
    for question in questions:
        if question.target[0] > case.length:
            found.append(None)
            continue
        rows = np.array(prefixes(case.task.n_types, case.task.max_depth, question.target[0]))
        rights = right_brackets(rows)
        right = [bool((closed(case, m, rows) == rights)[rights >= 0].all()) for m in models]
        found.append(1.0 if all(right) else -1.0 if any(right) or len(right) == 1 else None)
    return found


# --- sums over states -----------------------------------------------------------------------------


@lru_cache
def contributions(case: Case) -> dict[tuple[int, int], dict[tuple[int, int], Array]]:
    """u(query, key), Eq. 12, by (token, depth), each query times a positive factor."""
    net = network(case.model)
    w = {name.rpartition(".")[2]: value for name, value in net.w.items() if ".attn." in name}
    k, deepest = case.task.n_types, case.task.max_depth
    states = [(2 * k, 0)]
    states += [(2 * t, d) for t in range(k) for d in range(1, deepest + 1)]
    states += [(2 * t + 1, d) for t in range(k) for d in range(deepest)]
    found: dict[tuple[int, int], dict[tuple[int, int], Array]] = {}
    for query in states:
        q = net.table[query] @ w["W_Q"][0] + w["b_Q"][0]
        scores = {
            key: q @ (net.table[key] @ w["W_K"][0] + w["b_K"][0]) / net.cfg.attn_scale
            for key in states
        }
        largest = max(scores.values())
        found[query] = {}
        for key in states:
            value = (net.table[key] @ w["W_V"][0] + w["b_V"][0]) @ w["W_O"][0] + w["b_O"]
            found[query][key] = math.exp(scores[key] - largest) * (value - value.mean())
    return found


def balance(case: Case) -> float:
    """β of Eqs. 15 to 17, the minimum by listing all prefixes."""
    u, k, deepest = contributions(case), case.task.n_types, case.task.max_depth
    ratios = []
    for d, j in itertools.product(range(1, deepest), range(k)):
        query = u[2 * j + 1, d]
        norms = {}
        for types in itertools.product(range(k), repeat=d):
            total = query[2 * k, 0] + query[2 * j, d + 1] + query[2 * j + 1, d]
            for level, t in enumerate(types, start=1):
                total = total + query[2 * t, level]
            norms[types] = np.sqrt((total**2).sum())
        first = min(norms, key=lambda types: norms[types])
        least = min(norm for types, norm in norms.items() if types[-1] != first[-1])
        for level, t in itertools.product(range(1, deepest + 1), range(k)):
            pair = query[2 * t, level] + query[2 * t + 1, level - 1]
            ratios.append(np.sqrt((pair**2).sum()) / least)
    return float(np.mean(ratios))


def drift(case: Case, length: int) -> float:
    """Predicted accuracy: moments of what brackets add, by following the walk of depths."""
    u, k, deepest = contributions(case), case.task.n_types, case.task.max_depth
    up = np.array([1.0, *[case.task.distribution.q] * (deepest - 1), 0.0])
    total = weight = 0.0
    share = walk_share(up)
    for d in range(1, deepest):
        there = share[d + 1] * (1 - up[d + 1])  # a bracket closes to depth d
        found = []
        for j, (a, b) in itertools.product(range(k), itertools.combinations(range(k), 2)):
            query = u[2 * j + 1, d]
            between = query[2 * a, d] - query[2 * b, d]
            half = np.sqrt((between**2).sum()) / 2
            adds = np.array(
                [
                    [
                        (query[2 * t, level] + query[2 * t + 1, level - 1]) @ between / (2 * half)
                        for t in range(k)
                    ]
                    for level in range(1, deepest + 1)
                ]
            )
            moved, variance = walked(up, share, adds)
            noise = max(math.sqrt(length * variance), 1e-300)
            found += [
                (math.erfc(-(half + side * length * moved) / noise / math.sqrt(2))) / 2
                for side in (1, -1)
            ]
        total, weight = total + there * sum(found) / len(found), weight + there
    return total / weight


def walk_share(up: Array) -> Array:
    """How long the walk is at each depth, by walking: two steps at a time, as it has a period."""
    share = np.full(len(up), 1 / len(up))
    for _ in range(4000):
        new = np.zeros(len(up))
        for depth, has in enumerate(share):
            if depth + 1 < len(up):
                new[depth + 1] += has * up[depth]
            if depth:
                new[depth - 1] += has * (1 - up[depth])
        share = (share + new) / 2
    return share


def walked(up: Array, share: Array, adds: Array) -> tuple[float, float]:
    """Mean and variance per bracket, of sums along the walk, after many brackets.

    Of the sum S after n brackets, m0, m1 and m2 are P(depth), E[S; depth], E[S²; depth].
    """
    n = len(up)
    m0, m1, m2 = share.copy(), np.zeros(n), np.zeros(n)
    variances, mean = [], 0.0
    for step in range(1200):
        new = np.zeros((3, n))
        for depth in range(n):
            if depth + 1 < n:
                new[:, depth + 1] += up[depth] * np.array([m0[depth], m1[depth], m2[depth]])
            if depth:
                x, xx = adds[depth - 1].mean(), (adds[depth - 1] ** 2).mean()
                more = np.array(
                    [
                        m0[depth],
                        m1[depth] + x * m0[depth],
                        m2[depth] + 2 * x * m1[depth] + xx * m0[depth],
                    ]
                )
                new[:, depth - 1] += (1 - up[depth]) * more
        m0, m1, m2 = new
        mean = m1.sum() / (step + 1)
        variances.append(m2.sum() - m1.sum() ** 2)
    # over two steps, for the walk has a period
    return float(mean), float(variances[-1] - variances[-3]) / 2


# --- distances, and matrices ----------------------------------------------------------------------


def attention_distance(case: Case) -> float:
    ours, theirs = (
        network(model).run(case.tokens.numpy()).pattern for model in (case.model, case.other)
    )
    found = []
    for a, b in zip(ours, theirs, strict=True):
        apart = sum(a) / len(a) - sum(b) / len(b)
        found.append(sum(float((string**2).sum()) for string in apart) / len(apart))
    # E‖a − b‖² of rows drawn from the simplex is 2 (m − 1) / (m (m + 1))
    random = sum(2 * (m - 1) / (m * (m + 1)) for m in range(1, case.tokens.shape[1] + 1))
    return sum(found) / len(found) / random


def cosine(case: Case) -> float:
    ours, theirs = network(case.model).w, network(case.other).w
    dot = sum(float((ours[name] * theirs[name]).sum()) for name in ours)
    sizes = [sum(float((w**2).sum()) for w in each.values()) for each in (ours, theirs)]
    return dot / math.sqrt(sizes[0] * sizes[1])


def magnitude(case: Case, questions: Sequence[Question]) -> list[float]:
    w, found = network(case.model).w, []
    for question in questions:
        name, head = question.target
        alike = [
            math.sqrt((matrix**2).sum())
            for layer in range(case.model.cfg.n_layers)
            for matrix in w[f"blocks.{layer}.attn.{name[-3:]}"]
        ]
        mine = math.sqrt((w[name][head] ** 2).sum())
        found.append(mine / max(sum(alike) / len(alike), 1e-12) - 0.5)
    return found


def snip(case: Case, questions: Sequence[Question]) -> list[float | None]:
    """Of one W_Q and one W_V, entry by entry, by differences."""
    w, step = network(case.model).w, 1e-5
    found: list[float | None] = []
    for question in questions:
        name, head = question.target
        if (name[-1], head) not in (("Q", 0), ("V", 1)):
            found.append(None)
            continue
        matrix, size = w[name][head], 0.0
        for at, value in np.ndenumerate(matrix.copy()):
            ends = []
            for side in (1, -1):
                matrix[at] = value + side * step
                ends.append(log_probability(case, run(case).logits).mean())
                matrix[at] = value
            size += abs(value * (ends[0] - ends[1]) / (2 * step))
        found.append(float(size) - 0.01)
    return found


def probed_stream(case: Case, what: str) -> float:
    stream = run(case).stream
    assert stream is not None
    return probed(case, what, stream)
