"""How good a method is: its scores held against the facts."""

from __future__ import annotations

import contextlib
import math
import sys
import time
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import torch

from tl_dyck.intervals import estimate
from tl_dyck.judge.answers import checked_answers
from tl_dyck.judge.cases import group_of, sealed_case
from tl_dyck.judge.isolation import LeftChangedError, SealedCase, left_alone, seeded
from tl_dyck.judge.protocol import (
    COLUMNS,
    CONVERGED,
    KINDS,
    Case,
    Fact,
    JudgeError,
    Method,
    column_of,
    methods,
)
from tl_dyck.judge.public import SuiteFile, sealed_cases
from tl_dyck.judge.rates import N_BOOTSTRAP, resample
from tl_dyck.judge.suites import DEVELOPMENT, Suite
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_several
from tl_dyck.kit.environment import one_thread
from tl_dyck.language import NoStackError
from tl_dyck.runs.store import STOPPERS


@checked
@one_thread()
def judge_method(
    method: Method | str, suite: SuiteFile | Suite | Iterable[tuple[str, int]] = DEVELOPMENT
) -> pd.DataFrame:
    """Ask a method every question of a suite, and score it.

    Examples:
        >>> from tl_dyck import judge_method
        >>> def optimist(case, questions):
        ...     return [1.0 for question in questions]
        >>> float(judge_method(optimist, [("uniform", 0)]).loc["needed", "misses"])
        0.0

    Args:
        method: a function, see `tl_dyck.judge.protocol`, or the name of a registered one.
        suite: a suite, a file of one, or kinds of case with seeds; by default small, and not that
            which methods are scored on in public: tune on it what there is to tune.

    Returns:
        One row per kind of question, see `score_table`.

    Raises:
        JudgeError: the method raises, returns something else than one number or None per question,
            answers none, or none that has converged, or leaves settings of the process changed.
        WrongTypeError: the method is no function, or the suite is neither.
        UnknownNameError: no such method, or kind of case.
    """
    function = methods.resolve(method)
    if not callable(function):
        raise WrongTypeError(f"a method is a function or a name of one, not {method!r:.80}")
    name = method if isinstance(method, str) else getattr(method, "__name__", "method")
    rows: list[dict[str, Any]] = []
    asked: list[dict[str, Any]] = []
    for sealed in _sealed(suite):
        rows += ask(name, function, sealed)
        asked += oracle_rows(sealed)
    if not rows:
        raise JudgeError(
            f"method {name!r} answers no question of these cases: it gave None for all, or numbers "
            f"further than {CONVERGED:.0%} from converged"
        )
    table = score_table(pd.DataFrame(rows).assign(method=name), asked=pd.DataFrame(asked))
    return table.loc[name]


judge = judge_method
"""The former name, which is understood for one release more."""


def _sealed(suite: Any) -> Iterator[SealedCase]:
    """The cases of a suite, or of pairs of a kind and a seed."""
    if isinstance(suite, (Suite, SuiteFile)):
        return sealed_cases(suite)
    if isinstance(suite, (str, bytes)) or not isinstance(suite, Iterable):
        raise WrongTypeError(
            f'a suite is a Suite, or pairs such as [("uniform", 0)], not {suite!r:.80}'
        )
    pairs = check_several("suite", suite)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise WrongTypeError(f"a case is named by its kind and seed, not by {pair!r:.80}")
    if not pairs:
        raise JudgeError('the suite has no cases; name some, such as [("uniform", 0)]')
    return (sealed_case(kind, seed) for kind, seed in pairs)


def ask(name: str, method: Method, sealed: SealedCase) -> list[dict[str, Any]]:
    """Ask a method all questions about a case, kind by kind.

    It gets a copy of the case, and the process is left as it was: whatever it does, others are
    scored as without it.

    Returns:
        A row for each question that it answers: case, model (its kind), question, target, answer,
        score, effect; size and said, the exact size of the effect in the method's unit (see
        `Fact.sizes`) and what it says that it is, NaN where it has another unit; error, how far
        that is from converged, NaN where nothing has to; and, of the call, shared among what it
        answers, seconds, passes and backward, see `_passes`.

    Raises:
        JudgeError: as `judge_method`.
    """
    loaded = len(sys.modules)
    try:
        return _ask(name, method, sealed)
    except LeftChangedError:
        if len(sys.modules) == loaded:
            raise
    # what a package leaves behind when it is imported is not the method's doing, and it is by now
    return _ask(name, method, sealed)


def _ask(name: str, method: Method, sealed: SealedCase) -> list[dict[str, Any]]:
    rows = []
    declared = getattr(method, "declared", None)
    above, unit = getattr(declared, "above", 0.0), getattr(declared, "unit", "")
    case = sealed.copy()
    shown = replace(case, other=None, directions=None)  # whether there are some says something
    special = {"same": replace(case, directions=None), "feature": replace(case, other=None)}
    with left_alone(f"method {name!r}, asked about {sealed.name},", sealed.classes):
        for kind in KINDS:
            asked = [fact for fact in sealed.facts if fact.question.kind == kind]
            if not asked:
                continue
            questions = [replace(fact.question) for fact in asked]  # its own, as the case
            who = f"method {name!r}, asked {kind!r} about {sealed.name},"
            with (
                seeded(sealed.name, kind),
                _passes(case) as passes,
                _blame(who),
            ):
                started = time.perf_counter()
                try:
                    told = method(special.get(kind, shown), questions)
                except NoStackError:  # it needs brackets, of which this task has none
                    told = None
                scores = checked_answers(who, told, len(asked))
                seconds = time.perf_counter() - started
            # all of the call is paid for by what is answered
            n = max(sum(score is not None for score, _ in scores), 1)
            cost = {name: x / n for name, x in {"seconds": seconds, **passes}.items()}
            rows += [
                {
                    **_row(sealed, fact),
                    "score": score,
                    "size": fact.sizes.get(unit, math.nan),
                    # its threshold was taken away from scores; as a size it counts from 0 again
                    "said": abs(score + above),
                    "error": error,
                    **cost,
                }
                for fact, (score, error) in zip(asked, scores, strict=True)
                if score is not None
            ]
    return rows


def oracle_rows(sealed: SealedCase) -> list[dict[str, Any]]:
    """What who knows all would say: as `ask`, a row for every fact."""
    return [
        {
            **_row(sealed, fact),
            # only the side of 0 says anything
            "score": 1.0 if fact.answer else -1.0,
            "size": math.nan,
            "said": math.nan,
            "error": math.nan,
            "seconds": 0.0,
            "passes": 0.0,
            "backward": 0.0,
        }
        for fact in sealed.facts
    ]


def _row(sealed: SealedCase, fact: Fact) -> dict[str, Any]:
    return {
        "case": sealed.name,
        "model": sealed.kind,
        "question": fact.question.kind,
        "target": " ".join(str(part) for part in fact.question.target),
        "answer": fact.answer,
        "effect": fact.effect,
    }


@contextlib.contextmanager
def _blame(who: str) -> Iterator[None]:
    """What a method raises has its name; a full disk is nobody's fault."""
    try:
        yield
    except JudgeError:
        raise
    except Exception as error:
        if isinstance(error, OSError) and error.errno in STOPPERS:
            raise
        line = (str(error).splitlines() or [""])[0]
        raise JudgeError(f"{who} raised {type(error).__name__}: {line}") from error


@contextlib.contextmanager
def _passes(case: Case) -> Iterator[dict[str, float]]:
    """Count how often models run, forward and backward; 1 is as many strings as the case shows.

    So it does not help to run many strings at once. Counted are strings that are embedded, and
    those whose logits get gradients: of every model whose parts are of the classes of this one.
    What a method computes from weights by itself is not seen.
    """
    found, n = {"passes": 0.0, "backward": 0.0}, len(case.tokens)
    embed, unembed = type(case.model.embed), type(case.model.unembed)

    def count(name: str, x: Any) -> None:
        found[name] += (x.shape[0] if x.ndim > 1 else 1) / n

    def before(module: Any, arguments: Any) -> None:
        if isinstance(module, embed):
            count("passes", arguments[0])

    def after(module: Any, arguments: Any, logits: Any) -> None:
        if isinstance(module, unembed) and logits.requires_grad:
            logits.register_hook(lambda gradient: count("backward", gradient))

    everywhere = torch.nn.modules.module
    handles = [
        everywhere.register_module_forward_pre_hook(before),
        everywhere.register_module_forward_hook(after),
    ]
    try:
        yield found
    finally:
        for handle in handles:
            handle.remove()


# --- scores ---------------------------------------------------------------------------------------


@checked
def score_table(
    rows: pd.DataFrame, *, n_bootstrap: int = N_BOOTSTRAP, asked: pd.DataFrame | None = None
) -> pd.DataFrame:
    """Scores of methods, from the rows of `ask` with a column "method".

    Args:
        rows: of one method or several; without what an answer takes (seconds, passes, backward),
            that is left out.
        n_bootstrap: resamples, for intervals.
        asked: rows of all questions, as `oracle_rows`; None if that is not known.

    Returns:
        Indexed by method and question, a kind, or a kind of trained models, or of those of
        a task, which are never taken together with others (`column_of`): the rates of
        `tl_dyck.judge.rates.rates` (auroc, accuracy, precision, …), each with ``_low`` and
        ``_high``, its interval over cases, which are resampled with all their questions; kind and
        level of these intervals; n (questions),
        answered (the share of all questions that these are, or NaN), yes (share), cases; error, the
        largest of answers that had to converge, else NaN; and what the method takes for a case, all
        its questions together: seconds, passes and backward, see `_passes`.
    """
    found = []
    rows, all_asked = in_columns(rows), {} if asked is None else _counts(asked)
    paid = [name for name in ("seconds", "passes", "backward") if name in rows]
    costs = rows.groupby(["method", "case"])[paid].sum().groupby("method").mean()
    order = {column: place for place, column in enumerate(COLUMNS)}
    groups = rows.groupby(["method", "question"], sort=False)
    for (method, question), group in sorted(
        groups, key=lambda item: (item[0][0], order[item[0][1]])
    ):
        row: dict[str, Any] = {"method": method, "question": question}
        rates, drawn, n = resample([group], n_bootstrap)
        for name, number in rates[0].items():
            value = estimate(number, drawn[0][name], n, widened=True)
            row |= {name: value.value, f"{name}_low": value.low, f"{name}_high": value.high}
            row |= {"interval": value.kind, "level": value.level}
        row |= {
            "n": len(group),
            "answered": len(group) / all_asked.get(question, math.nan),
            "yes": float(group["answer"].mean()),
            "cases": group["case"].nunique(),
            "error": float(group["error"].max()) if "error" in group else math.nan,
            **costs.loc[method].to_dict(),
        }
        found.append(row)
    return pd.DataFrame(found).set_index(["method", "question"])


def in_columns(rows: pd.DataFrame) -> pd.DataFrame:
    """Rows with the column for a question: that of trained models is another one."""
    if "model" not in rows:
        return rows
    return rows.assign(question=[*map(column_of, rows["question"], map(group_of, rows["model"]))])


def _counts(asked: pd.DataFrame) -> dict[str, int]:
    """How many questions there are in each column."""
    return {str(name): len(group) for name, group in in_columns(asked).groupby("question")}


def most_misleading(answers: pd.DataFrame) -> pd.DataFrame:
    """For each method the question whose score ranks furthest on the wrong side.

    Args:
        answers: as `score_table`.

    Returns:
        A row of `answers` for each method that says yes and no, with ``misled``: the share of all
        questions of that kind with the other answer that its score is beyond.
    """
    found = []
    for _, group in answers.groupby(["method", "question"], sort=False):
        yes = group["answer"].to_numpy(dtype=bool)
        scores = group["score"].to_numpy(dtype=float)
        if yes.all() or not yes.any():
            continue
        # of a yes the share of "no" that score above it, of a no that of "yes" below
        beyond = np.where(
            yes,
            (scores[:, None] < scores[None, ~yes]).mean(1),
            (scores[:, None] > scores[None, yes]).mean(1),
        )
        found.append(group.assign(misled=beyond).iloc[[int(beyond.argmax())]])
    if not found:
        return answers.iloc[:0].assign(misled=0.0)
    worst = pd.concat(found, ignore_index=True)
    worst = worst.sort_values("misled", ascending=False, kind="stable")
    return worst.drop_duplicates("method").sort_values("method", ignore_index=True)
