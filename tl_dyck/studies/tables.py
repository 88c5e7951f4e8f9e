"""Tables of results as Markdown, for a README or a paper.

Knows: how a mean with its interval is written, and what a study's table shows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from tl_dyck.estimates import Estimate, again_words, ends_text, interval_words
from tl_dyck.studies.results import Study

#: Of a study, as they are shown: where it takes a stack, then all.
_ACCURACIES = ("accuracy_after_close", "long_accuracy_after_close", "accuracy", "long_accuracy")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table."""
    lines = ["| " + " | ".join(cells) + " |" for cells in (head, *rows)]
    return "\n".join([lines[0], "|" + "---|" * len(head), *lines[1:]]) + "\n"


def percents(share: Estimate, form: str = ".1f") -> str:
    """``12.0 % [10.0, 15.0]``; 100 is written without decimals, and no end is beyond 0 and 100."""
    return share_text(share.value, form, " %") + (
        ""
        # NaN: no interval of a single seed
        if share.low != share.low
        else f" [{share_text(share.low, form)}, {share_text(share.high, form)}]"
    )


def share_text(value: float, form: str = ".1f", unit: str = "") -> str:
    """A share in percent, which is none below 0 or above 1, whatever an interval says."""
    text = f"{100 * min(max(value, 0.0), 1.0):{form}}"
    # as it is rounded: "100.0" says more than is known
    return f"{'100' if float(text) == 100 else text}{unit}"


def again_text(share: Estimate, form: str = ".1f") -> str:
    """``[10.0, 15.0]``, the percentages between which the mean of as many other seeds will be."""
    if share.again_low != share.again_low:
        return "–"
    return f"[{share_text(share.again_low, form)}, {share_text(share.again_high, form)}]"


def lengths(found: Sequence[int]) -> str:
    """Least, median and greatest: ``10 to 16, median 14``."""
    low, middle, high = min(found), sorted(found)[len(found) // 2], max(found)
    return f"all {low}" if low == high else f"{low} to {high}, median {middle}"


def study_markdown(study: Study) -> str:
    """A row per family: accuracies, what is proved, how attention varies; and what guessing is."""
    asked = f"{study.task.long_lengths[0]}–{study.task.long_lengths[-1]}"
    rows = []
    for family, facts in study.summary["families"].items():
        of = [Estimate.of(facts[name]) for name in _ACCURACIES]
        proved = study.languages[study.languages["family"] == family]["proved_to"].astype(int)
        # rows are by layer: the last layer; a slice, since there may be none
        last = study.variation[study.variation["family"] == family].iloc[-1:]
        varied = [
            f"{row.variation:.2f} {ends_text(row.low, row.high, '.2f')}"
            for row in last.itertuples()
        ]
        recalled = last["recalled"].dropna()
        rows.append(
            [
                f"`{family}`",
                percents(of[0]),
                percents(of[1]),
                again_text(of[1]),
                *map(percents, of[2:]),
                lengths(proved.tolist()) if len(proved) else "–",
                *(varied or ["–"]),
                *(recalled.map("{:.2f}".format).tolist() or ["–"]),
                *(last["random_baseline"].map("{:.2f}".format).tolist() or ["–"]),
            ]
        )
    head = ["family", "closing accuracy, after a closing bracket"]
    head += [f"at lengths {asked}", "the same of as many other seeds"]
    head += ["on all closing brackets", f"at lengths {asked}", "every prefix right up to length"]
    head += ["attention variation, last layer", "reported (recalled)", "two random patterns"]
    near, far = study.task.closing_chance(), study.task.closing_chance(long=True)
    said = f"Means with {interval_words(study.means)}; and {again_words(study.means)}. "
    said += (
        f"Without a stack: after a closing bracket, guessing is right {far.constant:.0%} of the "
        f"time, and counting open brackets by type at most {near.counter_after_close:.0%} "
        f"({far.counter_after_close:.0%} at length). On all closing brackets, copying the last "
        f"token is right {near.copier:.0%} of the time ({far.copier:.0%})."
    )
    return f"{markdown(head, rows)}\n{said}\n"
