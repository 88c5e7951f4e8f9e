"""Parameters of methods, chosen on development cases: as many trials for each, and one budget.

Knows: that no judged case is looked at, that a trial is a setting drawn from a method's values, and
that one which costs more than the budget is made and counted, and not chosen.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, final

import numpy as np
import pandas as pd

from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.protocol import JudgeError, Method
from tl_dyck.judge.scores import ask, in_columns, oracle_rows, score_table
from tl_dyck.judge.suites import HELD_OUT
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import (
    WrongTypeError,
    WrongValueError,
    check_integer,
    check_number,
    check_seed,
)
from tl_dyck.kit.environment import one_thread

Maker = Callable[..., Method]


@final
@dataclass(frozen=True)
class Tuned:
    """What came of `tune_methods`.

    Attributes:
        methods: each with the parameters that were chosen, to be judged.
        parameters: those, by method.
        trials: a row for each trial: method, parameters, auroc (see `tune_methods`), answered (so
            many questions), passes, backward and seconds (of a case, in the mean), allowed (within
            the budget), chosen.
        cases: kind and seed of all that was looked at.
        budget: passes of a case, forward and back; None for any.
    """

    methods: Mapping[str, Method] = field(repr=False)
    parameters: Mapping[str, Mapping[str, Any]]
    trials: pd.DataFrame = field(repr=False)
    cases: tuple[tuple[str, int], ...]
    budget: float | None = None


@checked
@one_thread()
def tune_methods(
    makers: Mapping[str, tuple[Maker, Mapping[str, Sequence[Any]]]],
    cases: Sequence[tuple[str, int]],
    *,
    trials: int = 8,
    budget: float | None = None,
    seed: int = 0,
) -> Tuned:
    """Choose parameters of several methods on development cases, with as many trials for each.

    A trial is a setting of all parameters. The first has the first value of each, which should be
    the package's default; the others are drawn, none twice. Chosen is the best within the budget,
    the earliest of equals. Judge what is chosen on other cases, see `judge_method`.

    Examples:
        >>> from tl_dyck.judge import score_heads, tune_methods
        >>> def largest(power):
        ...     @score_heads(above=0.5)
        ...     def method(case):
        ...         norms = [block.attn.W_O.norm(dim=(1, 2)) for block in case.model.blocks]
        ...         return [norm**power for norm in norms]
        ...     return method
        >>> cases = [("uniform", 0), ("uniform", 1)]
        >>> tuned = tune_methods({"largest": (largest, {"power": [1, -1]})}, cases, trials=2)
        >>> len(tuned.trials)
        2

    Args:
        makers: by name a function of parameters that makes a method, and the values of each
            parameter. Without parameters there is one trial, and nothing to choose.
        cases: kinds and seeds below `tl_dyck.judge.suites.HELD_OUT`: no suite has them.
        trials: of each method.
        budget: of a case, in the mean: passes forward and back together, as `score_table` counts
            them; None for any. What is computed from weights costs nothing.
        seed: of what is drawn.

    Returns:
        What was chosen, and every trial with its score: the mean over kinds of question of the
        AUROC, where a question without an answer counts as guessed, 0.5.

    Raises:
        JudgeError: a case is held out, so that it may be judged; no trial of a method is within the
            budget, or answers anything; or there are no methods, or no cases.
        WrongValueError: parameters have fewer settings than there are trials, so that methods would
            have other numbers of them.
        WrongTypeError: `makers` or `cases` is something else.
    """
    trials, seed = check_integer("trials", trials, 1), check_seed(seed)
    if not makers:
        raise JudgeError("there are no methods: makers is empty")
    most = math.inf if budget is None else check_number("budget", budget, 0)
    names = _development(cases)
    plans = {
        str(name): _settings(name, space, trials, np.random.default_rng([seed, place]))
        for place, (name, (_, space)) in enumerate(makers.items())
    }
    sealed = [sealed_case(*each) for each in names]
    known = pd.DataFrame([row for each in sealed for row in oracle_rows(each)])
    tables, best = [], {}
    for name, plan in plans.items():
        table = _tried(name, makers[name][0], plan, sealed, known)
        # sums of shares of a call: up to their rounding
        table["allowed"] = table["passes"] + table["backward"] <= most + 1e-9
        able = table[table["allowed"] & table["auroc"].notna()]
        if able.empty:
            raise JudgeError(
                f"method {name!r}: no trial answers within {most:g} passes of a case; the cheapest "
                f"takes {(table['passes'] + table['backward']).min():.1f}"
            )
        chosen = int(able["auroc"].idxmax())  # the first of equals
        best[name] = plan[chosen]
        tables.append(table.assign(method=name, parameters=plan, chosen=table.index == chosen))
    made = {name: makers[name][0](**setting) for name, setting in best.items()}
    return Tuned(made, best, pd.concat(tables, ignore_index=True), tuple(names), budget)


def _development(cases: Any) -> list[tuple[str, int]]:
    """Kinds and seeds, none of which is judged."""
    names = []
    for pair in cases:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise WrongTypeError(f"a case is named by its kind and seed, not by {pair!r:.80}")
        kind, seed = pair
        seed = check_integer("seed of a case", seed, 0)
        if seed >= HELD_OUT:
            raise JudgeError(
                f"case {kind}-{seed} is held out: seeds from {HELD_OUT:,} on are judged; tune on "
                "others"
            )
        names.append((kind, seed))
    if not names:
        raise JudgeError('there are no cases; name some, such as [("uniform", 0)]')
    return list(dict.fromkeys(names))


def _settings(
    name: str, space: Mapping[str, Sequence[Any]], trials: int, random: np.random.Generator
) -> list[dict[str, Any]]:
    """The first values, then as many others as make up the trials."""
    every = [dict(zip(space, values, strict=True)) for values in itertools.product(*space.values())]
    if not space:
        return every
    if len(every) < trials:
        raise WrongValueError(
            f"method {name!r} has {len(every)} settings, and each is to have {trials} trials: give "
            "it more values, or all fewer trials"
        )
    others = 1 + random.permutation(len(every) - 1)[: trials - 1]
    return [every[0], *(every[at] for at in others)]


def _tried(
    name: str,
    make: Maker,
    plan: Sequence[Mapping[str, Any]],
    sealed: Sequence[SealedCase],
    known: pd.DataFrame,
) -> pd.DataFrame:
    """How good each setting is, and what it costs; NaN where a method answers nothing.

    Kinds of question count that any setting answers: none is better for what it leaves out.
    """
    asked = in_columns(known).groupby("question")["answer"]
    open_ones = {str(name) for name, two in (asked.nunique() > 1).items() if two}
    aurocs, rows = [], []
    for setting in plan:
        method = make(**setting)
        told = pd.DataFrame([row for case in sealed for row in ask(name, method, case)])
        of_columns, cost = {}, dict.fromkeys(("passes", "backward", "seconds"), 0.0)
        if len(told):
            table = score_table(told.assign(method=name), n_bootstrap=1, asked=known).loc[name]
            # who answers a share of the questions has guessed the others; all answers alike: 0.5
            worth = (table["auroc"].fillna(0.5) - 0.5) * table["answered"] + 0.5
            of_columns = {str(at): x for at, x in worth.items() if at in open_ones}
            cost = {at: float(told[at].sum()) / told["case"].nunique() for at in cost}
        aurocs.append(of_columns)
        rows.append({"answered": len(told), **cost})
    by_column = pd.DataFrame(aurocs, index=range(len(plan))).dropna(axis=1, how="all")
    found = pd.DataFrame(rows)
    worth = by_column.fillna(0.5).mean(axis=1)
    return found.assign(auroc=worth.where(found["answered"] > 0))
