"""The figures on the use of a stack: what each intervention leaves."""

from __future__ import annotations

from collections.abc import Sequence

import pandas as pd

from tl_dyck.estimates import ENDS, interval_words
from tl_dyck.intervals import mean
from tl_dyck.plotting.plot_recipes import dots
from tl_dyck.plotting.plots import Line
from tl_dyck.report.page import Figure
from tl_dyck.studies.reproduction import Reproduction
from tl_dyck_papers.stack_use.measure import GROUPS

_MASKS = {
    "no mask": "mask_far",
    **{
        f"{words}, {where}": f"mask_{kind}_{place}"
        for where, place in (("both layers", "all"), ("first", "first"), ("last", "last"))
        for kind, words in (("top", "top of the stack"), ("other", "another of its type"))
    },
}
_DEPTH = {
    "no ablation": "depth_sequence",
    **{
        f"{words}, {place}": f"depth_{kind}_{site}_sequence"
        for site, place in (("middle", "before the last layer"), ("end", "at the end"))
        for kind, words in (
            ("direction", "probe's direction"),
            ("covariance", "covariance direction"),
            ("random", "random direction"),
            ("all", "all that tells the depth"),
            ("rest", "all but the probe's direction"),
            ("random_all", "as many random directions"),
        )
    },
}
_ALIGN = {
    "nothing interchanged": "das_none",
    "random subspace": "das_random",
    "whole stream": "das_whole",
    "mean differences, no search": "das_means",
    "search": "das_search",
    "search from mean differences": "das_search_means",
    "search, relabelled": "das_search_relabelled",
    "search, untrained model": "das_search_untrained",
}


def stack_use_figures(done: Reproduction) -> list[Figure | None]:
    """Three figures: masks, directions, interchanges."""
    return [
        _figure(
            done,
            "masks",
            "Masked brackets",
            _MASKS,
            [label for label in _MASKS if "first" not in label],
            "accuracy on far answers (%)",
            "Answers more than eight places from their opening bracket that have another opening "
            "bracket of its type; one key is hidden from the query that answers.",
        ),
        _figure(
            done,
            "depth",
            "Ablated directions",
            _DEPTH,
            [label for label in _DEPTH if "end" not in label],
            "accuracy on whole sequences (%)",
            "A string counts if at every position the likeliest next token can follow. Replaced by "
            "the mean at all positions. Random directions are drawn as the stream varies.",
        ),
        _figure(
            done,
            "alignment",
            "Distributed alignment search",
            _ALIGN,
            [label for label in _ALIGN if label.startswith("search")],
            "interchange accuracy on held-out pairs (%)",
            "Two dimensions, before the last layer; half is what anything gets that ignores the "
            "source.",
            Line(50, "chance"),
        ),
    ]


def _figure(
    done: Reproduction,
    name: str,
    title: str,
    measures: dict[str, str],
    told: Sequence[str],
    unit: str,
    note: str,
    *marked: Line,
) -> Figure:
    """Means over seeds with intervals: a row per measure, a colour per group.

    The reading tells some of them, of the first group.
    """
    table = _means(done, measures)
    first = next(iter(GROUPS))
    of_first = table[table["group"] == first].set_index("intervention")["mean"]
    said = "; ".join(f"{label}: {of_first[label]:.0%}" for label in told)
    plot = dots(
        table,
        {"mean": "mean"},
        rows="{intervention}",
        said="{group}, {intervention}",
        hover="%{x:.1f}%",
        unit=unit,
        bars=("low", "high"),
        by="group",
        kinds=GROUPS,
        scale=100,
        marked=marked,
        include=(0, 100),
    )
    return Figure(
        name=name,
        title=title,
        reading=f"With {GROUPS[first]}: {said}.",
        data=table,
        plots=[plot],
        note=f"{note} Intervals: {interval_words(table)}.",
    )


def _means(done: Reproduction, measures: dict[str, str]) -> pd.DataFrame:
    rows = []
    for group in GROUPS:
        models = done.evidence.of(group)
        for label, column in measures.items():
            if column in models:
                values = models[column].dropna().to_numpy(float)
                found = mean(values)
                named = {"group": group, "intervention": label, "mean": found.value}
                rows.append({**named, **found.ends(), "n_seeds": found.n})
    columns = ["group", "intervention", "mean", *ENDS, "n_seeds"]
    return pd.DataFrame(rows, columns=columns)
