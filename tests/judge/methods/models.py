"""What methods say of whole models and of matrices, found another way."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch

from tests.judge.methods.cases import network
from tests.judge.methods.heads import run
from tests.judge.methods.looks import probed
from tests.judge.methods.network import right_brackets, strings
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


def enumerated(case: Case, questions: Sequence[Question]) -> list[float | None]:
    """Of short lengths, by listing all prefixes; of long ones nothing."""
    models = [case.model] if questions[0].kind == "stack" else [case.model, case.other]
    found: list[float | None] = []
    for question in questions:
        if question.target[0] > case.length:
            found.append(None)
            continue
        rows = strings(case.task.n_types, case.task.max_depth, question.target[0])
        rights = right_brackets(rows)
        right = [bool((closed(case, m, rows) == rights)[rights >= 0].all()) for m in models]
        found.append(1.0 if all(right) else -1.0 if any(right) or len(right) == 1 else None)
    return found


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


def probed_stream(case: Case, what: str) -> float:
    stream = run(case).stream
    assert stream is not None
    return probed(case, what, stream)
