"""How a study's models, families and correlations are called and drawn in all of its figures."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pandas as pd

from tl_dyck.plots import Series, for_plotly, jitter, series_by
from tl_dyck.report.markup import percent
from tl_dyck.studies import Study
from tl_dyck.studies.findings import FEWEST_FOR_A_TIE, against_theory, is_clear


def good_statuses(study: Study) -> set[str]:
    """Return the statuses of runs that learned; without a target, making all steps is enough."""
    return {"reached"} if study.config.training.target is not None else {"reached", "not reached"}


def model_names(models: pd.DataFrame) -> list[str]:
    """Return the names that marks show when they are pointed at."""
    return [
        f"{for_plotly(row.family)} seed {row.seed} ({row.status})" for row in models.itertuples()
    ]


def by_family(
    study: Study, table: pd.DataFrame, x: str, y: str, hover: str, *, scale: float = 1.0
) -> list[Series]:
    """A mark per model in the colour of its family; y is multiplied by `scale`."""
    scaled = table.assign(**{y: scale * table[y]})
    parts = [(family, scaled[scaled["family"] == family]) for family in study.config.families]
    return series_by(parts, x, y, model_names, hover, size=11)


def is_one_layer(table: pd.DataFrame) -> pd.Series[bool]:
    """Whether a row is of a family with one layer, in a table with a row per family and layer.

    Only such a row can be held beside a number of the paper, which names no layers.
    """
    return table.groupby("family")["layer"].transform("size") == 1


def tie(
    facts: dict[str, float], rising: str, falling: str, none: str = "no clear tie", *, sign: int = 0
) -> tuple[str, str]:
    """A rank correlation in words, and as a number with its interval.

    Args:
        facts: of the correlation, see `is_clear`.
        rising: what is said of a positive one.
        falling: of a negative one.
        none: of one that is not clear.
        sign: the sign that theory expects, 0 for none; an interval on the other side is remarked.
    """
    words = (rising if facts["spearman"] > 0 else falling) if is_clear(facts) else none
    if sign and against_theory(facts, sign=sign):
        words += ", against what theory expects"
        if not is_clear(facts):
            words += f", from fewer than {FEWEST_FOR_A_TIE} seeds"
    return (
        words,
        f"rank correlation {facts['spearman']:+.2f} [{facts['low']:+.2f}, {facts['high']:+.2f}]",
    )


def between(study: Study, measure: str, text: Callable[[float], str]) -> str:
    """The range of the family means in words."""
    facts = study.summary["families"]
    known = [family for family in study.config.families if measure in facts[family]]
    means = sorted((facts[family][measure]["mean"], family) for family in known)
    if not means:
        return "not measurably"
    (low, lowest), (high, highest) = means[0], means[-1]
    return (
        text(low)
        if text(low) == text(high)
        else f"{text(low)} ({lowest}) to {text(high)} ({highest})"
    )


def long_lengths(study: Study) -> str:
    """The lengths that test length generalisation: ``400–500``."""
    shortest, longest = study.task.long_lengths
    return f"{shortest}–{longest}"


def means(
    study: Study,
    measure: str,
    scale: float = 1.0,
    *,
    shift: float,
    unit: str,
    label: str,
    legend: bool = True,
) -> Series:
    """A mark with an interval per family, from the summary; `shift` moves it off the row."""
    found = [
        (row + shift, family, *(scale * facts[measure][key] for key in ("mean", "low", "high")))
        for row, family in enumerate(study.config.families)
        if measure in (facts := study.summary["families"][family])
    ]
    table = pd.DataFrame(found, columns=["row", "family", "mean", "low", "high"])
    return Series(
        name="mean over seeds, 95% interval",
        x=table["mean"],
        y=table["row"],
        color="@ink",
        symbol="line-ns",
        size=14,
        said=[
            f"{for_plotly(row.family)}, "
            f"{label}<br>mean {row.mean:.4g}{unit} [{row.low:.4g}, {row.high:.4g}]"
            for row in table.itertuples()
        ],
        legend=legend,
        low=table["low"],
        high=table["high"],
    )


def rows_of(models: pd.DataFrame, families: list[str]) -> np.ndarray:
    """Return the heights of marks in a plot with a row per family: a little apart, by seed."""
    rows = np.array([families.index(family) for family in models["family"]])
    shifted: np.ndarray = rows + jitter(models["seed"])
    return shifted


def curve_of(seed: int, curve: pd.DataFrame, status: str, good: set[str]) -> Series:
    """The training loss of one run."""
    learned = status in good
    return Series(
        name=f"seed {seed}",
        x=curve["step"],
        y=curve["loss"],
        color="@c0" if learned else "@c1",
        symbol="circle" if learned else "x",
        size=[0] * (len(curve) - 1) + [8],
        said=[
            f"seed {seed} ({status})<br>accuracy {percent(value)}" for value in curve["accuracy"]
        ],
        hover="step %{x}, loss %{y:.4f}",
        legend=False,
        line={},
    )
