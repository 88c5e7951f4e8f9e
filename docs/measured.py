"""Write docs/measured.md: what is measured, by which function, and which command shows it.

Run it: ``python docs/measured.py``. Probes, readings and experiments are those that are registered,
and their lines are their docstrings'. A test compares the page with them, and with what measuring
a model gives.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import tl_dyck
from tl_dyck import ablation
from tl_dyck.ablation.measure import random_drift
from tl_dyck.certify import certify_each
from tl_dyck.judge.run import JudgeExperiment
from tl_dyck.probes import probes
from tl_dyck.studies.measurement import behaviour, cross_entropy
from tl_dyck.studies.reproduction import papers
from tl_dyck.tasks import counted_accuracy
from tl_dyck.training import train
from tl_dyck_papers.stack_use.alignment import alignment
from tl_dyck_papers.stack_use.directions import depth_effects
from tl_dyck_papers.stack_use.masks import mask_effects
from tl_dyck_papers.wen_2023.measure import share_at_depth
from tl_dyck_text.training import accuracy

PAGE = Path(__file__).parent / "measured.md"

#: By function, the columns of a table of heads.
HEADS: dict[Callable[..., Any], tuple[str, ...]] = {
    ablation.frozen_importance: ablation.MODES,
    ablation.gradient_importance: ("gradient",),
    ablation.finetuned_importance: ("gates",),
    ablation.leave_one_out_importance: ("leave-one-out",),
    tl_dyck.stack_likeness: ("stack-likeness",),
    ablation.attention_entropy: ("entropy",),
    ablation.pattern_drift: ("drift", "drift-control"),
    random_drift: ("drift-random",),
}

Row = tuple[str, str, Any]
_TRAINED: tuple[Row, ...] = (
    ("outcome", "How training ended.", train),
    ("learned", "Whether the target accuracy was reached.", train),
    ("steps", "Training steps.", train),
    ("train_seconds", "Seconds of training.", train),
)
_BEHAVES: tuple[Row, ...] = (
    ("accuracy", "At the tokens that the task counts, on strings as in training.",
     counted_accuracy),
    ("long_accuracy", "The same at the task's long lengths.", counted_accuracy),
    ("…_closing_only", "Among closing brackets only.", counted_accuracy),
    ("…_after_open", "Where the bracket before is an opening one.", counted_accuracy),
    ("…_after_close", "Where the bracket before is a closing one: it takes a stack.",
     counted_accuracy),
    ("…_error", "Standard error over strings.", counted_accuracy),
    ("loss", "Cross-entropy, nats per token.", cross_entropy),
    ("loss_error", "Its standard error over strings.", cross_entropy),
    ("entropy_floor", "The least that any model can have.", behaviour),
    ("entropy_gap", "Loss above the floor.", behaviour),
)  # fmt: skip
#: By experiment, the metrics in the record of a run; "…" stands for any word.
METRICS: dict[str, tuple[Row, ...]] = {
    "train": (
        *_TRAINED,
        *_BEHAVES,
        ("balance_violation", "β of a minimal first layer.", tl_dyck.balance_violation),
        ("stack_likeness", "Largest share of closing brackets at which a head attends most to the "
         "top of the stack.", tl_dyck.stack_likeness),
        ("proved_share", "Share of prefixes whose prediction no inserted pairs can change.",
         tl_dyck.certify_dyck),
        ("refuted_share", "Share of prefixes whose prediction some do change.",
         tl_dyck.certify_dyck),
        ("logit_change", "The largest change of a logit seen under insertions.",
         tl_dyck.certify_dyck),
        ("proved_to", "Length up to which every prefix is proved right.",
         tl_dyck.certify_language),
    ),
    "heads": (
        *_TRAINED,
        ("accuracy", "Of the model, where it was trained for this.", train),
        ("heads_of", "Size and task, in words.", ablation.measure_heads),
        ("metric", "Of the intact model.", ablation.finetuned_importance),
        ("gates", "How the fine-tuning of the gates ended.", ablation.finetuned_importance),
    ),
    "paper": (
        *_TRAINED,
        *_BEHAVES,
        ("beta", "β of a minimal first layer.", tl_dyck.balance_violation),
        ("largest_ratio", "The largest ratio S/P of the balance condition.",
         tl_dyck.balance_violation),
        ("look_depth", "How often the head looks at a bracket of the top's depth.",
         share_at_depth),
        ("forecast_drift", "Accuracy at long lengths, predicted from what a pair adds.",
         tl_dyck.pair_drift),
        ("forecast_moments", "The same from the moments of scores.", tl_dyck.accuracy_at_length),
    ),
    "stack-use": (
        *_TRAINED,
        ("accuracy", "On strings as in training.", counted_accuracy),
        ("accuracy_after_close", "Where the bracket before is a closing one.", counted_accuracy),
        ("mask_…", "Closing accuracy with the attention to one bracket cut.", mask_effects),
        ("depth_…", "Accuracy with the direction of the depth erased.", depth_effects),
        ("das_…", "Interchange accuracy of a learned subspace.", alignment),
    ),
    "sentences": (
        ("clean", "Accuracy on test sentences.", accuracy),
        *_TRAINED[2:],
        ("proved …", "Share of sentences that are proved against a space of edits.",
         certify_each),
        ("enumerated", "Sentences whose space was also run string by string.", certify_each),
        ("disagreements", "Of these, verdicts of the two that differ.", certify_each),
    ),
    "judge": (
        ("facts", "Questions that a case asks.", JudgeExperiment),
        ("answers", "Answers that methods gave.", JudgeExperiment),
    ),
}  # fmt: skip

_INTRO = """# What is measured, and where

Written by `docs/measured.py` from what is registered; a test keeps it up to date. Verdicts about
strings are certificates ([one string](theory/certificates.md), [every
string](certify_language.md)), and what interpretability methods say is [judged](judge.md).
"""
_PROBES = """## Probes

`tl-dyck probe results/study:gpt -p stack_likeness`; without `-p`, all that apply.
"""
_HEADS = """## Heads

`tl-dyck ablate results/study:gpt`: columns of the table that `tl_dyck.measure_heads` makes.
"""
_METRICS = """## Metrics of a run

Columns of a table of runs, by the experiment that a sweep names:
`tl-dyck sweep results results/depth --metrics loss`.
"""
_FINDINGS = """## Findings of a study

`tl-dyck study`, and `tl-dyck report results/study` again; `tl_dyck.studies.findings` in Python.
"""
_READINGS = """## Readings of a paper

What claims are judged by: `tl-dyck reproduce --paper wen-2023`.
"""


def code(text: str) -> str:
    """As a page shows what one types."""
    return f"`{text}`"


def place(function: Any) -> str:
    """Where to import a function from."""
    bare = inspect.unwrap(function)
    name = bare.__qualname__
    for package in (tl_dyck, ablation):
        if inspect.unwrap(getattr(package, name, None) or len) is bare:
            return f"{package.__name__}.{name}"
    return f"{bare.__module__}.{name}"


def line(function: Any) -> str:
    """First sentence of a docstring, without the bars that would end a cell."""
    text = " ".join((inspect.getdoc(function) or "").replace("``", "`").split())
    return re.split(r"(?<=[.?])(?<!al\.)(?<!Eq\.)(?<!Eqs\.) ", text)[0].replace("|", "∣")


def findings() -> Mapping[str, Callable[..., Any]]:
    """What can be said about a study, by what it is about."""
    module = importlib.import_module("tl_dyck.studies.findings")
    return {
        name.strip("_").replace("_", " "): function
        for name, function in vars(module).items()
        if inspect.isfunction(function)
        and name.startswith("_")
        and function.__annotations__.get("return") == "Iterator[Finding]"
    }


def table(head: str, rows: Iterable[Iterable[str]]) -> list[str]:
    """Rows of a table, below its head."""
    names = head.split(" | ")
    lines = ["| " + " | ".join(row) + " |" for row in rows]
    return [f"| {head} |", "|" + "---|" * len(names), *lines, ""]


def page() -> str:
    """The whole page."""
    by_row: dict[Row, list[str]] = {}
    for experiment, rows in METRICS.items():
        for row in rows:
            by_row.setdefault(row, []).append(experiment)
    lines = [_INTRO, _PROBES]
    lines += table(
        "probe | what | function",
        ([code(n), probes.summary(n), code(place(probes.get(n)))] for n in probes.names()),
    )
    lines += [_HEADS]
    lines += table(
        "columns | what | function",
        ([", ".join(map(code, names)), line(f), code(place(f))] for f, names in HEADS.items()),
    )
    lines += [_METRICS]
    lines += table(
        "metric | what | function | experiments",
        ([code(n), what, code(place(f)), ", ".join(of)] for (n, what, f), of in by_row.items()),
    )
    lines += [_FINDINGS]
    lines += table("about | what", ([name, line(each)] for name, each in findings().items()))
    lines += [_READINGS]
    for name in papers.names():
        readings = papers.get(name).readings.values()
        lines += [f"### {name}", ""]
        lines += table("reading | what", ([code(place(f)), line(f)] for f in readings))
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
    print(f"wrote {PAGE}")
