"""``tl-dyck judge``: methods against models whose truth is known."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tl_dyck.cli.answers import Answer, Rows, Saved
from tl_dyck.cli.options import Out, Runs, argument, names, option
from tl_dyck.cli.settings import changed, settings_of

if TYPE_CHECKING:
    from tl_dyck.judge import Judgement

#: Asked beside a method of one's own, where no others are named: quick, and of different kinds.
_BESIDE = ("chance", "zero-ablation", "resample-ablation", "path-patching", "erasure")
_DIFFERENCES = {
    "less": "{other}",
    "question": "{question}",
    "AUROC": "{auroc:+.2f} [{auroc_low:+.2f}, {auroc_high:+.2f}]",
    "p": "{p_holm:.2g}",
}


def judge(
    runs: Runs,
    method: Annotated[
        str | None, argument("[FILE.py:METHOD]", "A method of your own, beside --methods.")
    ] = None,
    scale: Annotated[
        str,
        option(
            "NAME",
            '"quick" (minutes), "full" (five times that), "edges" or "parts" (depth, features).',
        ),
    ] = "quick",
    methods: Annotated[
        str | None, option("NAMES", "With commas between. \\[default: all that are installed]")
    ] = None,
    salt: Annotated[
        str | None,
        option("TEXT", "A private suite, from 128 random bits: openssl rand -hex 16"),
    ] = None,
    settings: settings_of("first_seed=5000000") = None,  # type: ignore[valid-type]
    out: Out = Path("results/judge"),
) -> Answer:
    """Score methods of interpretability by models whose truth is known.

    Every question about every model has an answer that is proved, or computed on every string.
    Writes [bold]judge.html[/bold], judge.md and scores.json; for your own also
    judge.tex and cite.txt. What is already in the folder is kept.
    """
    from tl_dyck.judge import SUITES
    from tl_dyck.judge.own import method_from_file
    from tl_dyck.judge.protocol import methods as known
    from tl_dyck.judge.run import judge_methods
    from tl_dyck.kit.registry import unknown_name
    from tl_dyck.report import write_report

    if scale not in SUITES:
        raise unknown_name("scale", scale, SUITES)
    # a salt makes other cases of the same suite: nobody can have tuned a method on them
    suite = SUITES[scale] if salt is None else SUITES[scale].with_salt(salt)
    if settings:
        # a salt draws the seeds and the key, and whoever reads a suite's name reads its settings
        kept = {"name", "key"} | ({"first_seed"} if salt is not None else set())
        fields = {name: value for name, value in asdict(suite).items() if name not in kept}
        name = f"{suite.name}, {', '.join(settings)}"
        suite = replace(suite, name=name, **changed(fields, settings))
    chosen = None if methods is None else list(names(methods))
    if method is not None:
        own = method_from_file(method)
        chosen = [own, *(_BESIDE if chosen is None else chosen)]
    done = judge_methods(suite, out, chosen, **runs.how)
    yield {"scores": done.scores.reset_index()}
    yield from _tables(done)
    if method is not None:
        yield from _beside(done, own)
    n_cases, n_facts = done.sizes
    yield (
        f"AUROC: 0.5 is chance. {done.suite}: {n_cases:,} cases, {n_facts:,} questions. "
        "–: not asked."
    )
    yield f"Digest of what is true: {done.digest}. {done.undecided_note()}"
    if chosen is None and (missing := known.unavailable()):
        yield (
            "Not asked, for want of their packages (pip install 'tl-dyck[judge]'): "
            f"{', '.join(missing)}."
        )
    yield Saved("Report", write_report(done))


def _tables(done: Judgement) -> Answer:
    """AUROC of what is asked about heads, and of the rest."""
    from tl_dyck.judge import ABOUT_HEADS
    from tl_dyck.judge.protocol import COLUMNS, kind_of

    wide = done.wide()
    kinds = [column for column in COLUMNS if column in wide]
    for asked in (
        [k for k in kinds if kind_of(k) in ABOUT_HEADS],
        [k for k in kinds if kind_of(k) not in ABOUT_HEADS],
    ):
        rows = wide[asked].loc[done.order()].dropna(how="all").reset_index()
        yield Rows("", rows, {"method": "{method}", **{kind: f"{{{kind}:.2f}}" for kind in asked}})


def _beside(done: Judgement, own: str) -> Answer:
    """One's own method less every other one; and what a paper takes, into the folder."""
    from tl_dyck.judge import compare_methods
    from tl_dyck.kit.files import write_bytes

    rows = done.answers[done.answers["method"] != "oracle"]
    yield Rows("differences", compare_methods(rows, own), _DIFFERENCES)
    yield f"{own} less each other method, paired by case; p is Holm's, over all of these."
    write_bytes(done.folder / "judge.tex", done.to_latex(own).encode())
    write_bytes(done.folder / "cite.txt", done.cite().encode())
