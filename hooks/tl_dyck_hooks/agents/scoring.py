"""An agent's answers, held against what is known: squares, stakes, and runs of the model.

Knows: that answers may be anything, and that nothing of them is run.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from typing import Any, final

import pandas as pd
import torch

from tl_dyck.judge.facts import UNCLEAR, margins
from tl_dyck.judge.scores import oracle_rows
from tl_dyck.kit.errors import DyckError
from tl_dyck_hooks.agents.folder import AgentCase

CONFIDENT = 0.9
"""From there on an answer is staked: who is right nine times of ten neither gains nor loses."""
_MOST_BYTES = 1_000_000  # of answers: those of the largest case have some kB


@final
@dataclass(frozen=True, kw_only=True)
class AgentScore:
    """What an agent's answers about a case are worth.

    Attributes:
        rows: a row for each question with yes or no, as those of `tl_dyck.judge.score_table`.
        brier: mean of (p − truth)² of these: 0 is perfect, 0.25 is who always says 0.5.
        stake: mean of what confidence brings: 1 of a true answer of 0.9 or more, −9 of a false one.
        prefix: whether a prefix was shown that the model closes wrong; None if there is none known.
        circuit: least size / size of a faithful circuit, 0 of another; None if not asked for.
        problems: what of the answers could not be read, in words.
    """

    rows: pd.DataFrame
    brier: float
    stake: float
    prefix: bool | None
    circuit: float | None
    problems: tuple[str, ...]


def score_answers(case: AgentCase, data: bytes | str | None) -> AgentScore:
    """Score the content of `answers.json`; what is missing or no probability counts as 0.5.

    Args:
        case: what was asked.
        data: the content; None if there is no such file.
    """
    problems: list[str] = []
    said = _read(data, problems)
    rows = _rows(case, said, problems)
    p, truth = rows["score"].to_numpy() + 0.5, rows["answer"].to_numpy(float)
    away = abs(p - truth)
    staked = (abs(p - 0.5) >= CONFIDENT - 0.5 - 1e-12) * (1 - 10 * (away > 0.5))
    return AgentScore(
        rows=rows,
        brier=float((away**2).mean()) if len(rows) else math.nan,
        stake=float(staked.mean()) if len(rows) else math.nan,
        prefix=_refuted(case, said),
        circuit=_circuit(case, said, problems),
        problems=tuple(problems),
    )


def _read(data: bytes | str | None, problems: list[str]) -> dict[str, Any]:
    if data is None:
        problems.append("there is no answers.json")
        return {}
    try:
        if len(data) > _MOST_BYTES:
            raise ValueError(f"it has {len(data):,} bytes")
        found = json.loads(data)
        if not isinstance(found, dict):
            raise TypeError("it is no object")
    except (ValueError, TypeError, RecursionError) as error:
        problems.append(f"answers.json cannot be read: {str(error)[:200]}")
        return {}
    return found


def _probability(value: Any) -> float | None:
    """A number from 0 to 1, else None."""
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return None
    return float(value) if 0 <= value <= 1 else None


def _rows(case: AgentCase, said: dict[str, Any], problems: list[str]) -> pd.DataFrame:
    """Rows of the judge: `score` is the probability less a half, `told` whether there is one."""
    heads, long = said.get("heads"), said.get("long")
    if not isinstance(heads, list) or len(heads) != len(case.heads):
        problems.append(f"heads is no list of {len(case.heads)} probabilities")
        heads = [None] * len(case.heads)
    told = dict(zip((fact.question for fact in case.heads), heads, strict=True))
    if case.long is not None:
        told[case.long.question] = long.get("yes") if isinstance(long, dict) else None
    found = []
    for row, fact in zip(oracle_rows(case.sealed), case.sealed.facts, strict=True):
        if fact.question in told:
            p = _probability(told[fact.question])
            found.append({**row, "score": (0.5 if p is None else p) - 0.5, "told": p is not None})
    if missing := sum(not row["told"] for row in found):
        problems.append(f"{missing} of {len(found)} answers with yes or no are no probability")
    return pd.DataFrame(found)


def _refuted(case: AgentCase, said: dict[str, Any]) -> bool | None:
    """Whether the prefix that was shown is closed wrong, by a run in float64."""
    if case.long is None or case.long.answer:
        return None
    long = said.get("long")
    prefix = long.get("prefix") if isinstance(long, dict) else None
    language = case.case.task.language
    if not isinstance(prefix, str) or not 0 < len(prefix) <= case.long.question.target[0]:
        return False
    try:
        language.parse(prefix)
    except DyckError:
        return False
    tokens = case.case.model.to_tokens(prefix)
    right = language.right_bracket(tokens)
    with torch.no_grad():
        margin = margins(case.case.model(tokens), right)
    # only the last symbol is asked about, and only where something is open
    return bool(right[0, -1] >= 0) and bool(margin[0, -1] < -UNCLEAR)


def _circuit(case: AgentCase, said: dict[str, Any], problems: list[str]) -> float | None:
    if case.circuits is None:
        return None
    given = said.get("circuit")
    every = case.circuits.heads
    heads = [head for head in every if [*head] in given] if isinstance(given, list) else []
    if not isinstance(given, list) or len(heads) != len(given):
        problems.append("circuit is no list of different heads, as [layer, head]")
        return 0.0
    if not case.circuits.is_faithful(heads):
        return 0.0
    return len(case.smallest) / len(heads) if heads else 1.0
