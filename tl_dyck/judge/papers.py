"""A judgement for a paper: a figure, a table in LaTeX, and how to cite it.

Knows: that trained and built models are apart, and that a method of one's own stands out.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from tl_dyck.judge.protocol import CONTROLS
from tl_dyck.plotting.plot_recipes import as_figure, dots
from tl_dyck.plotting.plots import Line, Plot

if TYPE_CHECKING:
    import plotly.graph_objects as go

_SPECIAL = {letter: f"\\{letter}" for letter in "&%$#_{}"}
_SPECIAL |= {"~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "\\": r"\textbackslash{}"}


def scores_figure(
    scores: pd.DataFrame, order: Sequence[str], own: Collection[str], columns: Iterable[str]
) -> go.Figure:
    """AUROC with its interval, a row per method and a plot per column; one's own in a colour."""
    return as_figure(score_plots(scores, order, own, columns), "AUROC of methods")


def score_plots(
    scores: pd.DataFrame, order: Sequence[str], own: Collection[str], columns: Iterable[str]
) -> list[Plot]:
    """The plots of `scores_figure`."""
    kinds = {"own": "own method", "other": "other methods", "control": "controls"}
    found = []
    for column in columns:
        rows = scores.reset_index()
        rows = rows[(rows["question"] == column) & rows["auroc"].notna()]
        rows = rows.assign(place=rows["method"].map(order.index)).sort_values("place")
        whose = [
            "own" if name in own else "control" if name in CONTROLS else "other"
            for name in rows["method"]
        ]
        made = dots(
            rows.assign(whose=whose),
            {"AUROC": "auroc"},
            rows="{method}",
            unit=f"AUROC, {column}",
            bars=("auroc_low", "auroc_high"),
            by="whose",
            kinds={kind: name for kind, name in kinds.items() if kind in whose},
            marked=[Line(0.5, "chance")],
        )
        made.layout["title"] = {"text": column}
        found.append(made)
    return found


def scores_latex(
    scores: pd.DataFrame,
    order: Sequence[str],
    own: Collection[str],
    columns: Sequence[str],
    note: str,
) -> str:
    """A booktabs table of AUROC [interval]; trained and built models in columns of their own."""
    known = scores[scores["auroc"].notna()]
    lines = []
    for method in order:
        cells = [_cell(known, method, column) for column in columns]
        if any(cells):
            name = _escaped(method)
            filled = [cell or "--" for cell in cells]
            lines.append([rf"\textbf{{{name}}}" if method in own else name, *filled])
    body = [" & ".join(row) + r" \\" for row in (["method", *map(_escaped, columns)], *lines)]
    return "\n".join(
        [
            f"% {note}",
            r"\begin{tabular}{l" + "c" * len(columns) + "}",
            r"\toprule",
            body[0],
            r"\midrule",
            *body[1:],
            r"\bottomrule",
            r"\end{tabular}",
            "",
        ]
    )


def _cell(known: pd.DataFrame, method: str, column: str) -> str:
    if (method, column) not in known.index:
        return ""
    row = known.loc[(method, column)]
    value, *ends = (f"{row[name]:.2f}" for name in ("auroc", "auroc_low", "auroc_high"))
    return f"{value} [{', '.join(ends)}]" if np.isfinite(row["auroc_low"]) else value


def _escaped(text: str) -> str:
    return "".join(_SPECIAL.get(letter, letter) for letter in text)


#: The paper whose claims are tested, as in CITATION.cff.
_TESTED = """@inproceedings{wen2023,
  author = {Wen, Kaiyue and Li, Yuchen and Liu, Bingbin and Risteski, Andrej},
  title = {Transformers are uninterpretable with myopic methods: a case study with bounded Dyck grammars},
  year = {2023},
  url = {https://arxiv.org/abs/2312.01429},
}
"""  # noqa: E501


def citation(suite: str, sizes: tuple[int, int], digest: str, version: str, year: str) -> str:
    """A sentence, and entries for BibTeX, of the software and of the paper that it tests.

    The software has no address yet; its year is that of the judgement.
    """
    cases, questions = sizes
    what = f"suite {suite}, {cases:,} models, {questions:,} questions, digest {digest}"
    return (
        f"Methods were judged by tl\\_dyck {version} ({_escaped(what)}) \\cite{{tl_dyck}}.\n\n"
        "@software{tl_dyck,\n"
        "  author = {{The tl\\_dyck authors}},\n"
        "  title = {tl\\_dyck: interpretability claims about attention, tested where the right "
        "answer is known},\n"
        f"  version = {{{version}}},\n"
        + (f"  year = {{{year}}},\n" if year else "")
        + f"  note = {{{_escaped(what)}}},\n"
        "}\n\n" + _TESTED
    )
