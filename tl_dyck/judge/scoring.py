"""How good a method is: its scores held against the facts."""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import NDArray
from scipy import stats

from tl_dyck.environment import one_thread
from tl_dyck.intervals import Estimate, estimate
from tl_dyck.judge.cases import make_case
from tl_dyck.judge.protocol import KINDS, Case, Fact, JudgeError, Method, methods
from tl_dyck.judge.suites import DEVELOPMENT, Suite

__all__ = ["ask", "auroc", "judge", "most_misleading", "score_table"]

Floats = NDArray[np.float64]

_BOOTSTRAP = 1000


@one_thread()
def judge(
    method: Method | str, suite: Suite | Iterable[tuple[str, int]] = DEVELOPMENT
) -> pd.DataFrame:
    """Ask a method every question of a suite, and score it.

    >>> from tl_dyck.judge import judge
    >>> def optimist(case, questions):
    ...     return [1.0 for question in questions]
    >>> float(judge(optimist, [("uniform", 0)]).loc["needed", "misses"])
    0.0

    Args:
        method: a function, see `tl_dyck.judge.protocol`, or the name of a registered one.
        suite: a suite, or kinds of case with seeds; by default small, and not that which methods
            are scored on in public: tune on it what there is to tune.

    Returns:
        One row per kind of question, see `score_table`.

    Raises:
        JudgeError: the method returns something else than one number or None per question, or
            answers none.
        UnknownNameError: no such method.
    """
    function = methods.resolve(method)
    pairs = suite.cases() if isinstance(suite, Suite) else suite
    rows: list[dict[str, Any]] = []
    for kind, seed in pairs:
        case, facts = make_case(kind, seed)
        rows += ask(function, case, facts)
    if not rows:
        raise JudgeError("the method answers no question of these cases: it gave None for all")
    name = method if isinstance(method, str) else getattr(method, "__name__", "method")
    return score_table(pd.DataFrame(rows).assign(method=name)).loc[name]


def ask(method: Method, case: Case, facts: Sequence[Fact]) -> list[dict[str, Any]]:
    """Ask a method all questions about a case, kind by kind.

    Returns:
        A row for each question that it answers: case, model (its kind), question, target, answer,
        score, effect; and, of the call, shared among its questions, seconds and passes.

    Raises:
        JudgeError: as `judge`.
    """
    rows = []
    for kind in KINDS:
        asked = [fact for fact in facts if fact.question.kind == kind]
        if not asked:
            continue
        questions = [fact.question for fact in asked]
        started = time.perf_counter()
        with _counted(type(case.model.embed)) as passes:
            scores = method(case, questions)
        seconds = (time.perf_counter() - started) / len(asked)
        for fact, score in zip(asked, _checked(scores, len(asked)), strict=True):
            if score is not None:
                rows.append(
                    {
                        "case": case.name,
                        "model": case.kind,
                        "question": kind,
                        "target": _target_text(fact),
                        "answer": fact.answer,
                        "score": score,
                        "effect": fact.effect,
                        "seconds": seconds,
                        "passes": passes[0] / len(asked),
                    }
                )
    return rows


def _checked(scores: Any, n: int) -> list[float | None]:
    found = [None] * n if scores is None else list(scores)
    if len(found) != n:
        raise JudgeError(f"the method was asked {n} questions and gave {len(found)} scores")
    checked = [None if score is None else float(score) for score in found]
    for score in checked:
        if score is not None and math.isnan(score):
            raise JudgeError("the method gave NaN for a score; give None for what it cannot answer")
    return checked


def _target_text(fact: Fact) -> str:
    return " ".join(str(part) for part in fact.question.target)


@contextlib.contextmanager
def _counted(kind: type) -> Iterator[list[int]]:
    """Count how often a model is run, by calls of an embedding of that kind."""
    passes = [0]

    def count(module: Any, arguments: Any) -> None:
        passes[0] += isinstance(module, kind)

    handle = torch.nn.modules.module.register_module_forward_pre_hook(count)
    try:
        yield passes
    finally:
        handle.remove()


# --- scores ---------------------------------------------------------------------------------------


def auroc(answers: NDArray[np.bool_], scores: Floats) -> float:
    """The probability that a yes scores above a no, ties counted half (Mann and Whitney); or NaN.

    Args:
        answers: what is true.
        scores: one each.
    """
    n_yes = int(answers.sum())
    n_no = len(answers) - n_yes
    if n_yes == 0 or n_no == 0:
        return math.nan
    ranks = stats.rankdata(scores)
    return float((ranks[answers].sum() - n_yes * (n_yes + 1) / 2) / (n_yes * n_no))


def _rates(answers: NDArray[np.bool_], scores: Floats) -> dict[str, float]:
    said = scores > 0
    return {
        "auroc": auroc(answers, scores),
        "accuracy": float((said == answers).mean()),
        "false_alarms": float(said[~answers].mean()) if (~answers).any() else math.nan,
        "misses": float((~said)[answers].mean()) if answers.any() else math.nan,
    }


def score_table(rows: pd.DataFrame, *, n_bootstrap: int = _BOOTSTRAP) -> pd.DataFrame:
    """Scores of methods, from the rows of `ask` with a column "method".

    Returns:
        Indexed by method and kind of question: auroc, accuracy (at the method's own threshold),
        false_alarms (share of "no" that it calls yes), misses (share of "yes" that it calls no),
        each with ``_low`` and ``_high``, the 95 % percentile bootstrap interval over cases; n
        (questions), yes (share), cases; seconds and passes through the model that the method takes
        for a case, all its questions together.
    """
    found = []
    each_case = rows.groupby(["method", "case"])[["seconds", "passes"]].sum()
    costs = each_case.groupby("method").mean()
    order = {kind: place for place, kind in enumerate(KINDS)}
    groups = rows.groupby(["method", "question"], sort=False)
    for (method, question), group in sorted(
        groups, key=lambda item: (item[0][0], order[item[0][1]])
    ):
        row: dict[str, Any] = {"method": method, "question": question}
        for name, value in _with_intervals(group, n_bootstrap).items():
            row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
        row |= {
            "n": len(group),
            "yes": float(group["answer"].mean()),
            "cases": group["case"].nunique(),
            **costs.loc[method].to_dict(),
        }
        found.append(row)
    return pd.DataFrame(found).set_index(["method", "question"])


def _with_intervals(group: pd.DataFrame, n_bootstrap: int) -> dict[str, Estimate]:
    """Rates and their intervals; resampled are cases, with all their questions."""
    answers = group["answer"].to_numpy(dtype=bool)
    scores = group["score"].to_numpy(dtype=float)
    cases = [np.flatnonzero(group["case"].to_numpy() == name) for name in group["case"].unique()]
    generator = np.random.default_rng(0)
    drawn: dict[str, list[float]] = {}
    for _ in range(n_bootstrap if len(cases) > 1 else 0):
        chosen = generator.integers(len(cases), size=len(cases))
        index = np.concatenate([cases[place] for place in chosen])
        for name, value in _rates(answers[index], scores[index]).items():
            drawn.setdefault(name, []).append(value)
    return {
        name: estimate(value, np.array(drawn.get(name, [])), len(cases))
        for name, value in _rates(answers, scores).items()
    }


def most_misleading(answers: pd.DataFrame) -> pd.DataFrame:
    """For each method the question whose score ranks furthest on the wrong side.

    "adapted" is left out.

    Args:
        answers: as `score_table`.

    Returns:
        A row of `answers` for each method that says yes and no, with ``misled``: the share of all
        questions of that kind with the other answer that its score is beyond.
    """
    found = []
    for (_, question), group in answers.groupby(["method", "question"], sort=False):
        if question == "adapted":  # about other weights than the model's: most do not claim it
            continue
        yes = group["answer"].to_numpy(dtype=bool)
        scores = group["score"].to_numpy(dtype=float)
        if yes.all() or not yes.any():
            continue
        beyond = np.where(
            yes,
            (scores[:, None] < scores[None, ~yes]).mean(1),
            (scores[:, None] > scores[None, yes]).mean(1),
        )
        found.append(group.assign(misled=beyond).iloc[[int(beyond.argmax())]])
    worst = pd.concat(found, ignore_index=True)
    worst = worst.sort_values("misled", ascending=False, kind="stable")
    return worst.drop_duplicates("method").sort_values("method", ignore_index=True)
