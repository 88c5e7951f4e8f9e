"""Methods on several tasks: one table a question, and whether their order is the same."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from tl_dyck.judge.across import rank_correlations
from tl_dyck.judge.protocol import CONTROLS, OF_EVERY_TASK, column_of
from tl_dyck.judge.run import Judgement
from tl_dyck.judge.small_tasks import TASKS
from tl_dyck.report.markup import table
from tl_dyck.report.page import Section
from tl_dyck.studies.tables import markdown


def tasks_markdown(done: Judgement) -> str:
    """AUROC by question and task, then rank correlations; "" if there is one task at most.

    Methods stand in the order of their mean over tasks, controls first. The first table says how
    often each runs all strings of a case, and how often gradients come back, as hooks count it.
    """
    wide = done.wide()
    tables: list[str] = []
    for kind in OF_EVERY_TASK:
        tasks = [task for task in TASKS if column_of(kind, task) in wide]
        if len(tasks) < 2:
            continue
        columns = [column_of(kind, task) for task in tasks]
        known = wide[columns].dropna(how="all")
        order = sorted(
            known.index, key=lambda name: (_control(name), -float(known.loc[name].mean()))
        )
        heads = [
            f"{task} ({_asked(done, column)})" for task, column in zip(tasks, columns, strict=True)
        ]
        rows = [[str(name), *(_cell(done, name, column) for column in columns)] for name in order]
        if not tables:
            heads.append("passes, back")
            rows = [[*row, _passes(done, row[0])] for row in rows]
        tables.append(markdown([f"AUROC, {kind}", *heads], rows))
    if tables:
        tables.append(markdown(*correlations(done)))
    return "\n".join(tables)


def correlations(done: Judgement) -> tuple[list[str], list[list[str]]]:
    """A row for each pair of tasks, a column for each question; halves of one task first.

    Returns:
        Heads of columns, and the rows, of which there are none if there is one task at most.
    """
    found, rows = rank_correlations(done.answers), []
    heads = ["task", "and", *(f"{kind}: ρ, τ" for kind in OF_EVERY_TASK)]
    if found.empty:
        return heads, []
    pairs = found[["task", "other"]].drop_duplicates()
    alone = pairs["task"] == pairs["other"]
    for task, other in [
        *pairs[alone].itertuples(index=False),
        *pairs[~alone].itertuples(index=False),
    ]:
        said = "halves of its cases" if task == other else other
        row = [task, said]
        for kind in OF_EVERY_TASK:
            these = found[
                found["question"].eq(kind) & found["task"].eq(task) & found["other"].eq(other)
            ].to_dict("records")
            row += [_correlation(these[0]) if these else ""]
        rows.append(row)
    return heads, rows


def tasks_section(done: Judgement, intervals: str) -> list[Section]:
    """Whether the order of methods is the same on several tasks, where there are several.

    Args:
        done: a judgement.
        intervals: what its intervals are, see `tl_dyck.estimates.interval_words`.
    """
    heads, rows = correlations(done)
    caption = (
        "Correlations of the order of methods by AUROC, ρ of Spearman and τ of Kendall. [ ]: "
        f"{intervals}, of each task apart. Of two halves of one task's cases "
        "the mean: with half of the cases, the order is known no better than that. Left out are "
        "controls, and methods that do not answer every question of both tasks."
    )
    title = "Whether the order of methods is the same on several tasks"
    return [Section("tasks", title, table(caption, heads, rows))] if rows else []


def _correlation(row: Mapping[str, Any]) -> str:
    rho, tau = (
        f"{row[name]:.2f} [{row[f'{name}_low']:.2f}, {row[f'{name}_high']:.2f}]"
        for name in ("spearman", "kendall")
    )
    return f"{rho}, {tau}, of {row['methods']}"


def _passes(done: Judgement, method: str) -> str:
    costs = done.scores.loc[method].iloc[0]  # of a case, all questions together
    return f"{costs['passes']:.1f}, {costs['backward']:.1f}"


def _control(name: str) -> int:
    return CONTROLS.index(name) if name in CONTROLS else len(CONTROLS)


def _asked(done: Judgement, column: str) -> str:
    row = done.scores.loc[("oracle", column)]
    return f"{int(row['n'])} of {int(row['cases'])}, {row['yes']:.0%} yes"


def _cell(done: Judgement, method: Any, column: str) -> str:
    if (method, column) not in done.scores.index:
        return "not asked"
    row = done.scores.loc[(method, column)]
    if not np.isfinite(row["auroc"]):
        return ""
    share = "" if not row["answered"] < 1 else f" of {row['answered']:.0%}"
    return f"{row['auroc']:.2f} [{row['auroc_low']:.2f}, {row['auroc_high']:.2f}]{share}"
