"""One table: by whom each method's answers are found a second time, and on which cases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from importlib import metadata
from typing import Any

from tests.judge.methods import adapted, brackets, edges, heads, looks, models
from tests.judge.methods.cases import HEADS
from tl_dyck.judge import Case, Question, methods
from tl_dyck.probes.balance import balance_violation
from tl_dyck.probes.drift import pair_drift

Scores = Sequence[float | None]

#: Methods that are computed here; the others are packages', see `test_packages`.
OWN = {
    point.name
    for point in metadata.entry_points(group=methods.group)
    if ".packages." not in point.value
}
CONSTRUCTED = ("deep", "backup", "stack", "balanced")
ALL = (*CONSTRUCTED, "trained", "disturbed")


@dataclass(frozen=True)
class Oracle:
    """Another computation of a method's scores.

    Attributes:
        by: who or what computes.
        scores: of questions of one kind; None for a question that this oracle leaves open.
        kinds: of question that the method answers; it must not answer others.
        cases: names in `cases.judged`.
        atol: how far a score may be off: rounding, the step of a difference.
    """

    by: str
    scores: Callable[[Case, Sequence[Question]], Scores]
    kinds: tuple[str, ...]
    cases: tuple[str, ...] = ALL
    atol: float = 1e-8


def of_heads(
    by: str,
    values: Callable[[Case], Any],
    threshold: float | Callable[[Case], float],
    **more: Any,
) -> Oracle:
    """Of numbers ``[layer, head]``; yes above a threshold."""

    values = lru_cache(values)  # of a case it is asked once for each kind of question

    def scores(case: Case, questions: Sequence[Question]) -> Scores:
        found = values(case)
        above = threshold(case) if callable(threshold) else threshold
        return [float(found[question.target]) - above for question in questions]

    return Oracle(by, scores, **{"kinds": HEADS, **more})


def of_brackets(by: str, sizes: brackets.Sizes, **more: Any) -> Oracle:
    return Oracle(by, brackets.ahead(sizes), ("token",), **more)


def of_models(by: str, value: Callable[[Case], float], kind: str, **more: Any) -> Oracle:
    return Oracle(by, lambda case, asked: [value(case) for _ in asked], (kind,), **more)


def probe(what: str) -> Oracle:
    def scores(case: Case, questions: Sequence[Question]) -> Scores:
        if questions[0].kind == "stack":
            return [models.probed_stream(case, what) - 0.9 for _ in questions]
        found = looks.probed_heads(case, what)
        return [found[question.target] - 0.9 for question in questions]

    return Oracle("least squares in numpy", scores, (*HEADS, "stack"))


def on_top(case: Case, questions: Sequence[Question]) -> Scores:
    found = looks.on_top(case)
    if questions[0].kind == "stack":
        return [found.max() - 0.5 for _ in questions]
    return [found[question.target] - 0.5 for question in questions]


NUMPY = "a forward pass in numpy"
NATS, SHARE = 0.01, 0.05
# differences have a slope only where no ReLU stands exactly at zero: not in constructions
SMOOTH: Any = {"cases": ("trained", "disturbed"), "atol": 1e-6}
ALONE = ("exact", "drifting", "drifting, 3 types")
DRAWN = ("balanced", "drifting", "disturbed")
DEEP = ("disturbed", "disturbed again", "deep", "twins")
EDGES = ("post-norm", "pre-norm")
FEATURES = ("features",)
PAIRS = ("disturbed", "deep", "balanced", "twins", "stack")


#: Of the least number of steps that an integral takes.
MIDPOINTS = [(step + 0.5) / 20 for step in range(20)]

ORACLES: dict[str, tuple[Oracle, ...]] = {
    "zero-ablation": (of_heads(NUMPY, heads.zero, NATS),),
    "mean-ablation": (of_heads(NUMPY, heads.mean, NATS),),
    "resample-ablation": (of_heads(NUMPY, heads.resample, NATS),),
    "uniform-pattern": (of_heads(NUMPY, heads.uniform, NATS),),
    "attention-knockout": (of_heads(NUMPY, heads.without_the_top, NATS),),
    "concept-erasure": (of_heads("whitening in numpy", heads.type_erased, NATS, atol=1e-6),),
    "depth-erasure": (of_heads("whitening in numpy", heads.depth_erased, NATS, atol=1e-6),),
    "depth-resampling": (
        of_heads("loops over places", heads.resampled_depth, NATS, kinds=("depth",)),
    ),
    "edge-path-patching": (Oracle(NUMPY, edges.patched(True), ("edge",), EDGES),),
    "edge-sum-patching": (Oracle(NUMPY, edges.patched(False), ("edge",), EDGES),),
    "edge-attribution": (Oracle("differences", edges.along([0.0]), ("edge",), EDGES, 1e-5),),
    "edge-integrated-gradients": (
        Oracle("differences", edges.along(MIDPOINTS), ("edge",), EDGES, 1e-5),
    ),
    "edge-change": (Oracle(NUMPY, edges.size, ("edge",), EDGES),),
    "principal-components": (
        Oracle("the covariance", edges.nearest(edges.components), ("feature",), FEATURES, 1e-6),
    ),
    "token-values": (Oracle(NUMPY, edges.nearest(edges.values), ("feature",), FEATURES),),
    "zeros-along": (Oracle(NUMPY, edges.zeros, ("feature",), FEATURES),),
    "distributed-alignment": (
        of_heads("a search by differences", heads.aligned, SHARE, cases=("trained",)),
    ),
    "gradient": (of_heads("differences", heads.slope, NATS, **SMOOTH),),
    "attribution-patching": (of_heads("differences", heads.first_order, SHARE, **SMOOTH),),
    "activation-patching": (of_heads(NUMPY, heads.restored, SHARE),),
    "path-patching": (of_heads(NUMPY, heads.lost, SHARE),),
    "direct-logit-attribution": (of_heads("numpy, all else held", heads.direct, 0.1),),
    "stack-attention": (Oracle(NUMPY, on_top, (*HEADS, "stack")),),
    "sharpness": (of_heads(NUMPY, looks.sharp, 0.5),),
    "copying": (of_heads("eigenvalues of a smaller matrix", looks.copied, 0.5, atol=1e-6),),
    "path-norm": (of_heads("numpy, path by path", looks.along_paths, 0.5),),
    "composition": (
        of_heads(
            "norms in numpy", looks.composed, lambda case: case.model.cfg.d_model**-0.5,
            cases=DEEP,
        ),
    ),
    "type-probe": (probe("type"),),
    "depth-probe": (probe("depth"),),
    "gates": (of_heads("a plain loop", adapted.closing_prices, 0.08, cases=("trained",)),),
    "leave-one-out": (of_heads("a plain loop", adapted.left_out, 0.05, cases=("two heads",)),),
    "attention-weight": (of_brackets(NUMPY, brackets.weight),),
    "rollout": (of_brackets(NUMPY, brackets.rolled),),
    "weighted-values": (of_brackets(NUMPY, brackets.values),),
    "erasure": (of_brackets(NUMPY, brackets.erased),),
    "gradient-times-input": (of_brackets("differences", brackets.along([1.0]), **SMOOTH),),
    "integrated-gradients": (
        of_brackets(
            "differences", brackets.along(MIDPOINTS), **SMOOTH | {"atol": 2e-5}  # of more steps
        ),
    ),
    "weight-distance": (
        of_models(NUMPY, lambda case: models.cosine(case) - 0.9, "same", cases=PAIRS),
    ),
    "attention-distance": (
        of_models(NUMPY, lambda case: 0.5 - models.attention_distance(case), "same", cases=PAIRS),
    ),
    "test-set": (Oracle(NUMPY, models.test_set, ("stack", "same"), DRAWN),),
    "length-test": (Oracle(NUMPY, models.length_test, ("stack", "same"), DRAWN),),
    # probes, each of which has an account of its own in `tests/probes`
    "balance": (
        of_models(
            "the probe", lambda case: 0.01 - balance_violation(case.model).beta, "stack",
            cases=ALONE,
        ),
    ),
    "drift": (
        Oracle(
            "the probe",
            lambda case, asked: [
                pair_drift(case.model, case.task.distribution).accuracy(each.target[0]) - 0.99
                for each in asked
            ],
            ("stack",), ALONE,
        ),
    ),
    "certificate": (
        Oracle(
            "all prefixes listed", models.enumerated, ("stack", "same"),
            ("exact", "broken", "balanced"),
        ),
    ),
}  # fmt: skip
