"""The tables of results in README.md and the documentation, made from the records in docs/results/.

    python docs/figures.py

writes them into the pages. `record.py` makes the records. Numbers that were typed in instead of
recorded say so in a note, which is shown below their table.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
#: What holds tables.
PAGES = (README, ROOT / "docs" / "judge.md", *sorted((ROOT / "docs" / "findings").glob("*.md")))
RESULTS = ROOT / "docs" / "results"
#: What a record says about where it comes from; None only if there is a note.
PROVENANCE = ("command", "date", "commit", "versions", "python", "cpu", "cpu_cores")
_SHOWN = ("tl-dyck", "torch", "transformer_lens")
_MARKED = re.compile(r"(<!-- table: ([\w-]+) -->\n)(.*?)(<!-- /table -->)", re.DOTALL)

#: Of a study, as they are shown: where it takes a stack, then all.
_ACCURACIES = (
    "accuracy_after_close",
    "long_accuracy_after_close",
    "accuracy",
    "long_accuracy",
)

#: What the study gave on another machine; typed in, for a record is of one.
ELSEWHERE = (
    "**On another CPU** sums are rounded in another way, and other models come out: on an Intel "
    "Xeon (typed in) `gpt` was right after a closing bracket at 400–500 in 60.1 % [54.8, 65.5], "
    "where the interval above does not reach, and varied by 4.31 [2.65, 6.35]. An interval here is "
    "a bootstrap over eight seeds on one machine; it is not the error between machines."
)

Table = list[list[str]]
Estimate = dict[str, float]


def interval(estimate: Estimate, form: str = ".2f", percent: bool = False) -> str:
    """``0.12 [0.10, 0.15]``, or ``12 % [10, 15]``."""
    values = [estimate[name] * (100 if percent else 1) for name in ("mean", "low", "high")]
    mean, low, high = (f"{value:{form}}" for value in values)
    if percent:
        mean, low, high = ("100" if float(text) == 100 else text for text in (mean, low, high))
    return f"{mean}{' %' if percent else ''} [{low}, {high}]"


def study_table(record: dict[str, Any]) -> Table:
    """A row per family."""
    head = [
        "family",
        "closing accuracy, after a closing bracket",
        f"at lengths {record['lengths']} (on another CPU: below)",
        "on all closing brackets",
        f"at lengths {record['lengths']}",
        "every prefix right up to length",
        "attention variation, last layer",
    ]
    return [
        [*head, "reported (recalled)", "two random patterns"],
        *(
            [
                f"`{row['family']}`",
                *(interval(row[name], ".1f", percent=True) for name in _ACCURACIES),
                _lengths(row["proved_lengths"]) if row["proved_lengths"] else "–",
                interval(row["variation"]),
                "–" if row["recalled"] is None else f"{row['recalled']:.2f}",
                f"{row['random']:.2f}",
            ]
            for row in record["rows"]
        ),
    ]


def contrast_table(record: dict[str, Any]) -> Table:
    """A row per weight of the regularisation."""
    head = ["weight λ", "largest change of a logit", "balance violation β", "accuracy at 400–500"]
    return [
        [*head, "answers proved to survive"],
        *(
            [
                f"{row['weight']:g}",
                interval(row["logit_change"]),
                interval(row["balance_violation"], ".3f"),
                interval(row["long_accuracy"], ".0f", percent=True),
                "all" if row["certified_share"] == 1 else f"{100 * row['certified_share']:.0f} %",
            ]
            for row in record["rows"]
        ),
    ]


def proved_table(record: dict[str, Any]) -> Table:
    """A row per training."""
    return [
        [
            "training",
            "accuracy after a closing bracket at 400–500",
            "predicted by `accuracy_at_length`",
            "by `pair_drift`",
            "nats over the floor",
            "balance violation β",
            "every prefix proved up to length",
        ],
        *(
            [
                row["training"],
                interval(row["long_accuracy_after_close"], ".1f", percent=True),
                interval(row["forecast"], ".1f", percent=True),
                interval(row["predicted"], ".1f", percent=True),
                interval(row["entropy_gap"], ".4f"),
                interval(row["balance_violation"], ".3f"),
                _lengths(row["proved_lengths"]),
            ]
            for row in record["rows"]
        ),
    ]


def _lengths(lengths: list[int]) -> str:
    """Least, median and greatest."""
    low, middle, high = min(lengths), sorted(lengths)[len(lengths) // 2], max(lengths)
    return f"all {low}" if low == high else f"{low} to {high}, median {middle}"


def text_table(record: dict[str, Any]) -> Table:
    """A row per number of synonyms and training, a column per space."""
    spaces = record["spaces"]
    counted = all(row["steps"] is not None for row in record["rows"])
    return [
        [
            "synonyms",
            "training",
            *(["steps"] if counted else []),
            "clean",
            *(_space(space) for space in spaces),
        ],
        *(
            [
                f"{row['k']}",
                row["objective"],
                *([f"{row['steps']:,.0f}"] if counted else []),
                interval(row["clean"], ".1f", percent=True),
                *(interval(row["certified"][space], ".1f", percent=True) for space in spaces),
            ]
            for row in record["rows"]
        ),
    ]


def _space(text: str) -> str:
    """``{dup 2, sub 2}``."""
    edits = sorted(
        text.replace(":", " ").split(","), key=lambda edit: ("del", "dup", "sub").index(edit[:3])
    )
    return "all three" if len(edits) == 3 else f"{{{', '.join(edits)}}}"


def judge_table(record: dict[str, Any]) -> Table:
    """A row per method, a column per kind of question; of controls also what is withdrawn."""

    def cell(row: dict[str, Any], kind: str) -> str:
        found = row["scores"].get(kind)
        if found is None or (kind in record["withdrawn"] and row["method"] not in controls):
            return ""
        return f"{found['auroc']:.2f} [{found['auroc_low']:.2f}, {found['auroc_high']:.2f}]"

    kinds, controls = record["questions"], record["controls"]
    head = [f"{kind} (withdrawn)" if kind in record["withdrawn"] else kind for kind in kinds]
    table = [["method", *head, "s a case"]]
    for row in record["rows"]:
        cells = [cell(row, kind) for kind in kinds]
        if any(cells):
            table.append([row["method"], *cells, f"{row['seconds']:.2f}"])
    return table


def judge_tally(record: dict[str, Any]) -> str:
    """What the numbers are, and which are not shown."""
    shown = {cells[0] for cells in judge_table(record)}
    hidden = [row["method"] for row in record["rows"] if row["method"] not in shown]
    reasons = "".join(f" “{kind}”: {why}." for kind, why in record["withdrawn"].items())
    text = (
        f"AUROC [95 % bootstrap interval over cases], 0.5 is chance; blank: not asked. "
        f"{record['suite']}: {record['cases']:,} cases, {record['facts']:,} questions. "
        f"Withdrawn questions are shown of controls only.{reasons}"
    )
    if hidden:
        text += f" Asked nothing else, and so not shown: {', '.join(hidden)}."
    return text


TABLES: dict[str, Callable[[dict[str, Any]], Table]] = {
    "study": study_table,
    "contrast": contrast_table,
    "proved": proved_table,
    "text": text_table,
    "judge": judge_table,
}


def performance(record: dict[str, Any]) -> str:
    """What every benchmark printed, under what it is about, and where it was printed."""
    parts = [
        f"### `{script['name']}`\n\n{script['about']}\n\n```text\n{script['output']}\n```\n\n"
        f"{provenance(script)}"
        for script in record["scripts"]
    ]
    return "\n\n".join(parts)


def claims(record: dict[str, Any]) -> str:
    """A row per claim: what was measured as it is recorded, its verdict by the rules as they are.

    How far from its limit a value would have been seen stays as it was recorded.
    """
    import pandas as pd

    from tl_dyck.report.paper import claims_markdown
    from tl_dyck.studies.claims import read_again, tally
    from tl_dyck.studies.reproduction import load_paper

    table = pd.DataFrame(record["rows"])
    again = read_again(load_paper(record["paper"]).claims, table)
    before = table.set_index("name").loc[again["name"]]
    again["detectable"] = before["detectable"].to_numpy(float)
    again["recorded"] = before["verdict"].tolist()
    said = [f"{tally(again)}.", *record.get("readings", ()), provenance(record)]
    return f"{claims_markdown(again)}\n{' '.join(said)}"


#: What is written from a record in another way.
TEXTS: dict[str, Callable[[dict[str, Any]], str]] = {
    "performance": performance,
    "claims": claims,
    "stack_use": claims,
}


def tally(name: str, record: dict[str, Any]) -> str:
    """A sentence that sums a table up, or nothing."""
    if name == "study":
        near, far = record["chance"]["training"], record["chance"]["long"]
        return (
            f"After a closing bracket a guess is right {far['constant']:.0%} of the time, and a "
            f"count of open brackets by type at most {near['counter_after_close']:.0%} "
            f"({far['counter_after_close']:.0%} at length); on all closing brackets, a copier of "
            f"the last token {near['copier']:.0%} ({far['copier']:.0%}). {ELSEWHERE}"
        )
    if name == "judge":
        return judge_tally(record)
    if name == "text":
        return (
            f"{record['enumerated']:,} verdicts were checked by enumeration, "
            f"{record['disagreements']:,} differ."
        )
    return ""


def provenance(record: dict[str, Any]) -> str:
    """One line that says where a table comes from."""
    versions = record["versions"]
    packages = ", ".join(
        f"{name} {versions[name]}" for name in _SHOWN if versions and name in versions
    )
    cores = f", {record['cpu_cores']} cores" if record["cpu_cores"] else ""
    facts = [
        f"`{record['command']}`",
        record["date"],
        record["commit"] and f"commit {record['commit']}",
        packages and f"{packages}, Python {record['python']}",
        record["cpu"] and f"{record['cpu']}{cores}",
        record.get("note"),
    ]
    how = "Recorded" if all(record[name] for name in PROVENANCE) else "Not recorded but typed in"
    text = f"{how}: {'; '.join(fact for fact in facts if fact)}."
    origins: dict[str, list[str]] = {}  # of rows that are from another run
    for row in record.get("rows", ()):
        if isinstance(row, dict) and "origin" in row:
            origins.setdefault(provenance(row["origin"]), []).append(row["method"])
    return " ".join([text, *(f"{', '.join(of)}: {origin}" for origin, of in origins.items())])


def read(name: str) -> dict[str, Any]:
    """One record."""
    record: dict[str, Any] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))
    return record


def render(name: str) -> str:
    """What stands between the markers of a table."""
    if name == "methods":
        return methods()
    if name not in {**TABLES, **TEXTS}:
        known = ", ".join([*TABLES, *TEXTS])
        raise ValueError(f"a page asks for a table {name!r}; there are {known}")
    record = read(name)
    if name in TEXTS:
        return "\n".join(["", TEXTS[name](record), "", ""])
    table = TABLES[name](record)
    head, *rows = ["| " + " | ".join(cells) + " |" for cells in table]
    rule = "|" + "---|" * len(table[0])
    said = [text for text in (tally(name, record), provenance(record)) if text]
    return "\n".join(["", head, rule, *rows, "", " ".join(said), "", ""])


def methods() -> str:
    """A row per built-in method, as it declares itself."""
    from tl_dyck.judge import table_of_methods

    rows = ["", "| method | asked about | says yes | after |", "|---|---|---|---|"]
    for name, row in table_of_methods().iterrows():
        rows.append(f"| {name} | {row['asked']} | {row['yes']} | {row['paper']} |")
    return "\n".join([*rows, "", ""])


def rendered(readme: str) -> str:
    """The README with every table as its record says."""
    return _MARKED.sub(lambda match: match[1] + render(match[2]) + match[4], readme)


def main() -> None:
    """Write the tables into the pages."""
    for page in PAGES:
        page.write_text(rendered(page.read_text(encoding="utf-8")), encoding="utf-8")
        print(f"wrote {page}")


if __name__ == "__main__":
    main()
