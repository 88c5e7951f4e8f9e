"""What small runs gave before the engine was rebuilt, as JSON; no times, versions or paths.

They were recorded at commit 963ac03 on an Intel Xeon at 2.5 GHz (AVX-512). What is measured on test
strings (accuracies, losses, heads, and what is averaged from them) was recorded again when every
closing bracket of a string began to count, and every seed got test strings of its own; trained
weights, attention variation and balance are the same as then. So are the verdicts of certificates;
their margins were recorded again when small spaces began to be run as a whole, which makes both
bounds exact.
"""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas as pd

from tl_dyck.estimates import ENDS

FILE = Path(__file__).with_name("numbers.json")

#: Not the same from run to run, or from one layout of folders to the next.
_LEFT_OUT = (
    "seconds",
    "median_ms",
    "p95_ms",
    "interval_ms",
    "train_seconds",
    "folder",
    "model",
    "id",
    # texts that another processor's rounding may change
    "worst_string",
    "worst_edits",
    "most_changed_string",
    "measured",
    "reading",
    "looks_like",
    "verdict",
    "proved_to",  # added since
    "stack_likeness",
    "look_depth",
    "forecast_drift",
    "forecast_moments",
)

#: Of claims.
_CLAIMED = ("name", "about", "where", "says", "quantity", "reported", "ours", "assumed")
_CLAIMED += ("value", "low", "high", "n_seeds", "p", "p_holm", "detectable")
_OF_INTERVALS = {*ENDS, "p", "p_holm", "detectable"}

#: A sweep of classifiers of sentences, but for its data.
SENTENCES = {
    "experiment": "sentences",
    "seeds": 2,
    "common": {
        "k": 1,
        "training": {"steps": 40, "learning_rate": 2e-2},
        "model": {"d_model": 8},
        "measure": {"spaces": ["dup:1,sub:1", "del:1,dup:1"], "limit": 6},
    },
    "grid": {"training.objective": ["clean", "worst"]},
}


#: Verdicts had other words then.
_WORDS = {"certified": "proved", "falsified": "refuted", "undecided": "open"}


def recorded() -> dict[str, Any]:
    """What was recorded, in today's words."""
    text = FILE.read_text()
    for then, now in _WORDS.items():
        text = text.replace(f'"{then}"', f'"{now}"').replace(f'"{then}_share"', f'"{now}_share"')
    found: dict[str, Any] = json.loads(text)
    return found


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """A table as JSON values, in the order of its rows."""
    kept = table.drop(columns=[name for name in _LEFT_OUT if name in table])
    rows: list[dict[str, Any]] = json.loads(kept.to_json(orient="records", double_precision=15))
    return rows


def of_study(study: Any) -> dict[str, Any]:
    """Every table of a study, and what its summary says."""
    names = ("models", "heads", "variation", "certificates", "history")
    facts = (
        "stack_chance",
        "families",
        "balance_and_length",
        "balance_and_change",
        "change_and_length",
    )
    summary = copy.deepcopy({name: study.summary[name] for name in facts})
    summary["stack_chance"].pop("ceiling_at_closing")  # added since
    for family in summary["families"].values():
        for later in ("seconds", "proved_to"):  # times, and what was added since
            family.pop(later, None)
        for facts in family.values():
            if isinstance(facts, dict):
                facts.pop("n")  # added since
    return {**{name: rows_of(getattr(study, name)) for name in names}, "summary": summary}


def of_reproduction(done: Any) -> dict[str, Any]:
    """What was measured, and the verdicts."""
    tables = {
        name: rows_of(getattr(done.evidence, name)) for name in ("models", "heads", "checkpoints")
    }
    known = recorded()["reproduction"]["models"][0]  # others were added since
    tables["models"] = [{name: row[name] for name in known} for row in tables["models"]]
    return {**tables, "claims": rows_of(done.claims[list(_CLAIMED)])}


def of_ablation(found: Any) -> dict[str, Any]:
    """Head importance of several models.

    (No ranks: rounding may change those of heads that hardly differ.)
    """
    tables = {"models": found.models, "heads": found.comparison.heads}
    tables |= {"trajectories": found.trajectories, "paths": found.paths}
    return {name: rows_of(table) for name, table in tables.items()}


def of_table(rows: pd.DataFrame) -> dict[str, Any]:
    """Objectives against spaces."""
    return {
        "rows": sorted(
            rows_of(rows), key=lambda row: (row["objective"], row["k"], row["seed"], row["space"])
        )
    }


def differences(now: Any, before: Any, where: str = "", *, within: float = 2e-3) -> Iterator[str]:
    """Where these two differ by more than rounding grows to in some steps of training.

    The rounding is that of another processor.
    """
    if isinstance(before, dict) and isinstance(now, dict):
        for name in before.keys() | now.keys():
            if name not in before or name not in now:
                yield f"{where}.{name} is only {'now' if name in now else 'before'}"
            else:
                yield from differences(now[name], before[name], f"{where}.{name}", within=within)
    elif isinstance(before, list) and isinstance(now, list):
        if len(before) != len(now):
            yield f"{where}: {len(now)} entries, not {len(before)}"
        for index, (one, other) in enumerate(zip(now, before, strict=False)):
            yield from differences(one, other, f"{where}[{index}]", within=within)
    elif isinstance(before, float) and isinstance(now, (int, float)):
        if not math.isclose(now, before, rel_tol=within, abs_tol=within):
            yield f"{where} is {now}, not {before}"
    elif now != before:
        yield f"{where} is {now!r}, not {before!r}"


def _without_intervals(value: Any) -> Any:
    """Without what follows from an interval: they were bootstraps, which did not cover."""
    if isinstance(value, dict):
        return {k: _without_intervals(v) for k, v in value.items() if k not in _OF_INTERVALS}
    return [*map(_without_intervals, value)] if isinstance(value, list) else value


def check(name: str, now: dict[str, Any]) -> None:
    """Fail if what was found is not what was found then."""
    before = recorded()[name]
    found = list(differences(*map(_without_intervals, (json.loads(json.dumps(now)), before)), name))
    assert not found, "\n".join(found)
