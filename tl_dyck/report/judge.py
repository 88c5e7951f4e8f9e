"""The page of a judgement: methods against questions, and the case that misleads each most."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
import torch

from tl_dyck.estimates import interval_words
from tl_dyck.judge import ABOUT_HEADS, CHEATS, CONTROLS, KINDS, SUITES, methods
from tl_dyck.judge.facts import all_prefixes
from tl_dyck.judge.papers import score_plots
from tl_dyck.judge.protocol import COLUMNS, CONVERGED, SAID_OF_CONTROLS, Case, Question, kind_of
from tl_dyck.judge.run import Judgement
from tl_dyck.judge.scores import most_misleading
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.suggest import command
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck.report.heatmap import color_bar, heat_map, text_of
from tl_dyck.report.judge_tasks import tasks_section
from tl_dyck.report.markup import Child, Html, csv_link, element, percent, table
from tl_dyck.report.page import Figure, Page, Section, again, made_with
from tl_dyck.studies.tables import markdown

_ROW = 22  # pixels of a method in the figure: seventy of them are two screens
_OPEN = 20  # rows of a table; with more it unfolds
_CARDS = 8  # methods whose most misleading case is shown; the rest unfolds
_NEARLY_ALL = 0.95  # of the questions: below, the share that was answered stands beside the number


def judge_page(done: Judgement) -> Html:
    """The page of a judgement; the cases that are shown are read, or made, again."""
    n_cases, n_facts = done.sizes
    n_methods = len({*done.wide().index} - {*CONTROLS})
    few = done.answers[~done.answers["method"].isin(CONTROLS)]
    return Page(
        title="Methods of interpretability, judged",
        lead=f"{n_cases:,} models that solve their task, {n_facts:,} questions about them whose "
        "answers are proved by how the model is built, or computed on every string up to a length, "
        f"and {n_methods} methods, with their published readings. Suite {done.suite}.",
        parts=[
            Section("lessons", "What to take from it", _lessons(done)),
            _figure(done),
            Section("auroc", "Methods against questions", _auroc(done)),
            *tasks_section(done, interval_words(_ends_of(done), "cases")),
            Section("sizes", "How far from the true effect", _sizes(done)),
            Section("thresholds", "At each method's own threshold", _thresholds(done)),
            Section("misleading", "The most misleading case of each method", _gallery(done)),
            Section("questions", "The questions, and the controls, exactly", _questions()),
        ],
        about=[
            _again(done),
            element(
                "p",
                f"{len(few):,} answers are in ",
                element("code", "answers.parquet"),
                " beside this page. A case is made from its seed: ",
                element("code", "tl_dyck.judge.make_case(kind, seed)"),
                f". Digest of what is true: {done.digest}. {done.undecided_note()}",
            ),
        ],
        made=made_with(done.environment),
    ).html


def judge_command(done: Judgement) -> str | None:
    """Judge again, in the same folder; None if no command does it.

    A salt is nobody's but whose words it is of, and a suite or a method of one's own is Python's.
    """
    for scale, suite in SUITES.items():
        if done.suite != suite.name and not done.suite.startswith(f"{suite.name}, "):
            continue
        settings = done.suite.removeprefix(suite.name).split(", ")[1:]
        here = {*methods.names()} - {name for _, name in methods.in_code()}
        asked = {*done.answers["method"]} - ({"oracle", *CHEATS} - here)
        if not all("=" in each for each in settings) or not asked <= here:
            return None
        words = ["--scale", scale] if done.file is None else ["--suite", done.file[0]]
        for setting in settings if done.file is None else ():
            words += ["--set", setting]
        if asked != here - {*methods.unavailable()}:
            words += ["--methods", ",".join(sorted(asked))]
        return command("judge", *words, "--out", done.folder.as_posix())
    return None


def _again(done: Judgement) -> Html:
    line = judge_command(done)
    if line is not None:
        return again("Judge again", line)
    return element(
        "p",
        "This suite, or a method that was asked, is somebody's own: who has the words of its salt, "
        "or its code, can judge again.",
    )


def judge_markdown(done: Judgement) -> str:
    """The AUROC of every method for every kind of question, as Markdown."""
    kinds = [column for column in COLUMNS if column in done.wide()]
    return markdown(("method", *kinds), _aurocs(done, kinds))


def _aurocs(done: Judgement, kinds: list[str]) -> list[list[str]]:
    """A row for every method that answers some of these questions."""
    rows = [[method, *(_cell(done, method, kind) for kind in kinds)] for method in done.order()]
    return [row for row in rows if any(row[1:])]


def lessons(done: Judgement) -> list[str]:
    """A sentence for each kind of question: what answers it best, and what does not answer it.

    Beside them stands the best of the cheats, which run no model. The best is of those that answer
    at least half of the questions; what is right wherever it answers, but seldom does, is named as
    well.
    """
    found = []
    every = done.scores.reset_index().dropna(subset=["auroc", "auroc_low"])
    for kind in [column for column in COLUMNS if column in {*every["question"]}]:
        scores = every[(every["question"] == kind) & ~every["method"].isin(CONTROLS)]
        if scores.empty:
            continue
        most = scores["n"].max()
        often = scores[scores["n"] >= most / 2]
        best = often.loc[often["auroc"].idxmax()]
        text = (
            f"“{kind}”: {best['method']} answers it best (AUROC {best['auroc']:.2f}, "
            f"{percent(best['false_alarms'], 0)} false alarms, {percent(best['misses'], 0)} misses)"
        )
        seldom = scores[(scores["n"] < most / 2) & (scores["accuracy"] == 1)]
        for row in seldom.itertuples():
            text += f"; {row.method} is never wrong, and answers {percent(row.n / most, 0)}"
        groups = {
            "below chance": scores[scores["auroc_high"] < 0.5],
            "not told from chance": scores[
                (scores["auroc_low"] <= 0.5) & (scores["auroc_high"] >= 0.5)
            ],
        }
        for words, rows in groups.items():
            if len(rows):
                text += f"; {words}: {', '.join(sorted(rows['method']))}"
        cheats = every[(every["question"] == kind) & every["method"].isin(CHEATS)]
        for row in cheats.nlargest(1, "auroc").itertuples():
            text += f"; {row.method}, which runs no model, scores {row.auroc:.2f}"
        found.append(text + ".")
    return found


def _lessons(done: Judgement) -> list[Html]:
    advice = (
        "Choose the intervention that is the question. Whether a head is needed, carries the "
        "answer, or needs to look where it looks are different questions with different answers, "
        "and a method that is right on one can be near chance on another."
    )
    return [
        element("p", advice, class_="reading"),
        element("ul", [element("li", _lesson(*text.split("; ", 1))) for text in lessons(done)]),
    ]


def _lesson(best: str, rest: str = "") -> list[Child]:
    """What answers a question best; what does not answer it unfolds."""
    if not rest:
        return [best]
    details = element("details", element("summary", "Other methods"), rest)
    return [f"{best}.", details]


def _ends_of(done: Judgement) -> pd.DataFrame:
    """The intervals of the AUROC, as `interval_words` wants them."""
    return done.scores.rename(columns={"auroc_low": "low", "auroc_high": "high"})


def _cell(done: Judgement, method: str, kind: str) -> str:
    if (method, kind) not in done.scores.index:
        return ""
    row = done.scores.loc[(method, kind)]
    if not np.isfinite(row["auroc"]):
        return f"one answer only ({percent(row['accuracy'], 0)} right)"
    return f"{row['auroc']:.2f}{_ends(row, 'auroc', '.2f')}{share_said(row)}"


def _ends(row: Mapping[str, Any], name: str, form: str) -> str:
    """The interval of a number; of a single case there is none."""
    low, high = row[f"{name}_low"], row[f"{name}_high"]
    return f" [{low:{form}}, {high:{form}}]" if np.isfinite(low) and np.isfinite(high) else ""


def share_said(row: Mapping[str, Any]) -> str:
    """Of which share of questions a number is, where that is not nearly all."""
    share = row.get("answered", np.nan)
    return f" of {share:.0%}" if share < _NEARLY_ALL else ""


def _figure(done: Judgement) -> Figure:
    """How well each method answers the kind of question that most methods answer."""
    wide = done.wide()
    columns = [column for column in COLUMNS if column in wide]
    # of several with as many the first
    kind = max(columns, key=lambda column: int(wide[column].notna().sum()))
    plots = score_plots(done.scores, done.order(), (), [kind])
    rows = done.scores.reset_index()
    rows = rows[(rows["question"] == kind) & rows["auroc"].notna()]
    for plot in plots:
        # 120: the axis, and the legend above
        plot.layout["height"] = 120 + _ROW * len(rows)
        del plot.layout["title"]  # that of the section says it
    own = rows[~rows["method"].isin(CONTROLS)]
    best = own.loc[own["auroc"].idxmax(), "method"] if len(own) else "none"
    return Figure(
        name="figure",
        title=f"How well methods answer “{kind}”",
        reading=f"Best is {best}, of {len(own)} method{'s' * (len(own) != 1)} and "
        f"{len(rows) - len(own)} controls.",
        data=rows[["method", "auroc", "auroc_low", "auroc_high", "n", "cases"]],
        command=judge_command(done) or "",
        plots=plots,
        note="A row per method, controls first, with "
        f"{interval_words(_ends_of(done), 'cases')}; 0.5 is chance.",
    )


def _auroc(done: Judgement) -> list[Html | None]:
    """A table of what is asked of heads, and one of the rest; each with the methods that answer."""
    wide = done.wide()
    columns = [column for column in COLUMNS if column in wide]
    heads = [column for column in columns if kind_of(column) in ABOUT_HEADS]
    rest = [column for column in columns if kind_of(column) not in ABOUT_HEADS]
    caption = (
        "AUROC of {}: the probability that a “yes” scores above a “no”; 0.5 is chance. With "
        f"{interval_words(_ends_of(done), 'cases')}. “of 40%”: to so many of the questions there "
        f"is an answer; numbers further than {CONVERGED:.0%} from converged are none. –: the "
        "method says nothing about this."
    )
    tables = []
    for what, kinds in (("questions about heads", heads), ("all other questions", rest)):
        rows = [[cell or "–" for cell in row] for row in _aurocs(done, kinds)]
        if rows:
            heading = ("method", *kinds)
            shown = table(caption.format(what), heading, rows, numeric=range(1, 1 + len(kinds)))
            if len(rows) > _OPEN:  # more than a screen of a telephone
                said = f"{len(rows)} methods and {what}"
                shown = element("details", element("summary", said), shown)
            tables.append(shown)
    return [*tables, element("div", csv_link(done.scores.reset_index(), "scores"), class_="tools")]


def _sizes(done: Judgement) -> list[Html | None]:
    """A row for each method that says how large effects are."""
    known = done.scores["off"].unstack("question").dropna(how="all").dropna(how="all", axis=1)
    kinds = [column for column in COLUMNS if column in known]
    names = [method for method in done.order() if method in known.index]
    rows = [[name, *(_off(done, name, kind) for kind in kinds)] for name in names]
    if not rows:
        return [element("p", "No method here says how large an effect is.")]
    caption = (
        "Σ |said − true| / Σ true effect, where a method says in nats, in logits or as a share of "
        "the difference how large an effect is. The effect is that of what is asked, on every "
        "prefix, so that a method which does something else is far off. With "
        f"{interval_words(_ends_of(done), 'cases')}."
    )
    shown = table(caption, ("method", *kinds), rows, numeric=range(1, 1 + len(kinds)))
    return [element("details", element("summary", "By method"), shown)]


def _off(done: Judgement, method: str, kind: str) -> str:
    row = done.scores.loc[(method, kind)] if (method, kind) in done.scores.index else {}
    if not np.isfinite(row.get("off", np.nan)):
        return "–"
    return f"{row['off']:.0%}{_ends(row, 'off', '.0%')}"


def _thresholds(done: Judgement) -> list[Html | None]:
    rows = [
        {
            "method": row.method,
            "question": row.question,
            "accuracy": percent(row.accuracy, 0),
            "precision": percent(row.precision, 0) if np.isfinite(row.precision) else "–",
            "at 10% false alarms": (
                percent(row.precision_at_10, 0) if np.isfinite(row.precision_at_10) else "–"
            ),
            "false alarms": percent(row.false_alarms, 0) if np.isfinite(row.false_alarms) else "–",
            "misses": percent(row.misses, 0) if np.isfinite(row.misses) else "–",
            "n": f"{row.n:,}",
            "yes": percent(row.yes, 0),
            "error": percent(row.error, 1) if np.isfinite(row.error) else "–",
            "s a case": f"{row.seconds:.2f}",
            "passes": f"{row.passes:.1f}",
            "back": f"{row.backward:.1f}",
        }
        for method in done.order()
        for row in done.scores.loc[[method]].reset_index().itertuples()
    ]
    caption = (
        "Precision: share of yes where it says so; and where it calls 10 % of “no” yes. False "
        "alarms: share of “no” that it calls yes. Misses: share of “yes” that it calls no. "
        "Error: how far an answer is from converged at most, where it takes steps or samples. "
        "Passes, and back: how often all strings of a case are run, and gradients come back; hooks "
        "count it, and do not see what is computed from weights without the model. Cost is of all "
        "questions about a case."
    )
    shown = table(caption, rows[0], map(dict.values, rows), numeric=range(2, 13))
    return [element("details", element("summary", "False alarms, misses and cost"), shown)]


def _gallery(done: Judgement) -> list[Html]:
    worst = most_misleading(done.answers)
    worst = worst[~worst["method"].isin(CONTROLS)]
    try:
        misled = worst[worst["misled"] > 0].sort_values("misled", ascending=False, kind="stable")
        cards = [_card(row, done) for row in misled.itertuples()]
    except CorruptFileError as error:  # of the suite: what was found stands without pictures
        return [element("p", f"Which questions mislead a method is not shown: {error}.")]
    columns = "repeat(auto-fill,minmax(clamp(9rem,22vw,15rem),1fr))"  # two on a telephone
    grid = f"display:grid;grid-template-columns:{columns};gap:1.5rem 1rem"
    parts = [
        element(
            "p",
            "For each method the question whose score ranks furthest on the wrong side, with the "
            "pattern of the head in question, or the mean of the last layer.",
        ),
        color_bar(),
        element("div", cards[:_CARDS], style=grid),
    ]
    if cards[_CARDS:]:
        more = element("div", cards[_CARDS:], style=grid)
        said = f"{len(cards) - _CARDS} more methods"
        parts.append(element("details", element("summary", said), more))
    fine = ", ".join(worst.loc[worst["misled"] == 0, "method"])
    return [*parts, *([element("p", f"Never on the wrong side: {fine}.")] if fine else [])]


def _card(row: Any, done: Judgement) -> Html:
    """One method, misled."""
    sealed = done.sealed(row.case)
    case = sealed.copy()
    fact = next(
        fact
        for fact in sealed.facts
        if fact.question.kind == row.question
        and " ".join(str(part) for part in fact.question.target) == row.target
    )
    about = _ABOUT.get(row.question, "layer {}, head {}").format(*fact.question.target)
    said, truth = ("no", "yes") if row.answer else ("yes", "no")
    text = (
        f"{row.case}, “{row.question}”, {about}: its score of {row.score:.3g} is beyond "
        f"{percent(row.misled, 0)} of those where the answer is {said}; here it is {truth} "
        f"({fact.proof})."
    )
    picture = _picture(case, fact.question)
    return element("div", element("h3", row.method), picture, element("p", text, class_="note"))


#: What a question is about, from its target; of all others a head.
_ABOUT = {
    "edge": "from source to reader {} {}",
    "feature": "direction {2} of layer {0}, head {1}",
    "token": "bracket {1} of the string shown",
    "stack": "lengths up to {}",
    "same": "lengths up to {}",
}


def _picture(case: Case, question: Question) -> Html:
    """The pattern of the head in question, or of the last layer, on a string of the case."""
    language, chosen = case.task.language, case.tokens[0]
    if language.has_stack:
        tokens = all_prefixes(language, case.length)
        depth = language.depth(tokens)
        good = language.is_close(tokens[:, -1]) & (depth[:, -1] > 0)
        chosen = tokens[good.nonzero()[len(good.nonzero()) // 2, 0]]
    layer, heads, target = case.model.cfg.n_layers - 1, slice(None), question.target
    if question.kind in ABOUT_HEADS:
        layer, heads = target[0], slice(target[1], target[1] + 1)
    elif question.kind == "token":
        chosen = torch.tensor(target[0])
    weights = attention_patterns(case.model, chosen[None])[layer, 0, heads].mean(0).float().numpy()
    return heat_map(text_of(chosen.tolist(), None, language), weights)


def _questions() -> list[Html]:
    """What each asks; and what stands in rows that are no methods."""
    pairs = [[element("dt", kind), element("dd", meaning)] for kind, meaning in KINDS.items()]
    rows = [[element("dt", name), element("dd", said)] for name, said in SAID_OF_CONTROLS.items()]
    return [
        element("dl", pairs),
        element("p", "What methods are held against:"),
        element("dl", rows),
    ]
