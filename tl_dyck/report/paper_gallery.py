"""Attention patterns in a reproduction: the two seeds of a group that differ most."""

from __future__ import annotations

import shlex

import numpy as np
import pandas as pd

from tl_dyck.intervals import distances
from tl_dyck.report.heatmap import color_bar, described_map, string_patterns
from tl_dyck.report.markup import element, percent
from tl_dyck.report.page import Figure
from tl_dyck.studies.paper.evidence import Evidence
from tl_dyck.studies.reproduction import Reproduction
from tl_dyck.tasks import load_task

#: Groups whose two most different seeds are shown, and the figures of the paper that they stand
#: beside.
_GALLERY = {
    "gpt": "Figure 1",
    "gpt-linear": "Figure 1",
    "minimal-onehot": "Section 4.1",
    "figure2-onehot-rate-0.01": "Figure 2",
    "figure2-split-rate-0.01": "Figure 2",
    "figure2-yao-rate-0.003": "Figure 2",
    "gpt-prefix": "Figures 7, 9",
    "gpt-linear-prefix": "Figures 7, 9",
}


def reproduce_command(done: Reproduction) -> str:
    """Make everything again; what is in the folder is kept."""
    return f"{done.command} --out {shlex.quote(done.folder.as_posix())}"


def gallery(done: Reproduction) -> Figure | None:
    """The two most different seeds of some groups."""
    evidence, parts, rows = done.evidence, [color_bar()], []
    accuracy = evidence.models.set_index(["group", "seed"])["accuracy"].to_dict()
    for group, where in _GALLERY.items():
        if len(evidence.of(group)) < 2:
            continue
        patterns, seeds = evidence.patterns(group)[:, -1, 0], evidence.sound(group)
        apart = distances(patterns, patterns)
        first, second = (int(index) for index in np.unravel_index(apart.argmax(), apart.shape))
        if first == second:
            continue
        language = load_task(task_of(evidence, group)).language
        drawn = string_patterns(language, language.probe_string)
        maps = []
        for index in (first, second):
            share = percent(accuracy[group, seeds[index]])
            seed = f"seed {seeds[index]}"
            maps.append(described_map(drawn, patterns[index], (seed, share), f"of {group}, {seed}"))
        distance = float(apart[first, second])
        heading = element(
            "h3", group, " ", element("small", f"{where}; these two differ by {distance:.2f}")
        )
        parts.append(element("div", heading, element("div", maps, class_="pair"), class_="group"))
        rows.append(
            {
                "group": group,
                "seed": seeds[first],
                "other_seed": seeds[second],
                "difference": distance,
            }
        )
    if not rows:
        return None
    table = pd.DataFrame(rows)
    most = f" the most in {table.loc[table['difference'].idxmax(), 'group']}"
    return Figure(
        name="patterns",
        title="The two seeds that differ most (Figures 1, 2, 7, 9)",
        reading=f"Models that differ in nothing but their seed attend differently,{most}.",
        data=table,
        command=reproduce_command(done),
        body=element("div", parts),
        note="Last layer. Rows are queries, columns keys; every row sums to 1. Rings mark the top "
        "of the stack, where a parser would look. Percentages are accuracies in distribution.",
    )


def task_of(evidence: Evidence, group: str) -> str:
    """The name of the task that a group was trained on."""
    return str(evidence.of(group)["task"].iloc[0])
