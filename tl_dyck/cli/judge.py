"""``tl-dyck judge``: methods against models whose truth is known."""

from __future__ import annotations

from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from tl_dyck.cli.answers import Answer, Rows, Saved, say_note
from tl_dyck.cli.completion import SUITES, named, one_of
from tl_dyck.cli.options import Out, Runs, argument, existing, names, option, out_file
from tl_dyck.cli.settings import changed, settings_of
from tl_dyck.kit.check import WrongValueError
from tl_dyck.kit.screen import busy

if TYPE_CHECKING:
    from tl_dyck.judge import Judgement, Suite
    from tl_dyck.judge.public import SuiteFile

#: Asked beside a method of one's own, where no others are named: quick, and of different kinds.
_BESIDE = ("chance", "zero-ablation", "resample-ablation", "path-patching", "erasure")
_DIFFERENCES = {
    "less": "{other}",
    "question": "{question}",
    "AUROC": "{auroc:+.2f} [{auroc_low:+.2f}, {auroc_high:+.2f}]",
    "p": "{p_holm:.2g}",
}


_CORRELATIONS = {
    "question": "{question}",
    "task": "{task}",
    "and": "{other}",
    "methods": "{methods}",
    "Spearman": "{spearman:+.2f} [{spearman_low:+.2f}, {spearman_high:+.2f}]",
    "Kendall": "{kendall:+.2f} [{kendall_low:+.2f}, {kendall_high:+.2f}]",
}


_Scale = Annotated[
    str | None,
    option(
        "NAME",
        '"quick", "full" (five times that), "edges", "parts" (depth, features) or "tasks" '
        "(not only brackets). \\[default: quick]",
        autocompletion=one_of(SUITES),
    ),
]
_Methods = Annotated[
    str | None,
    option(
        "NAMES",
        "With commas between. \\[default: all that are installed]",
        autocompletion=named("methods"),
    ),
]


def judge(
    runs: Runs,
    method: Annotated[
        str | None, argument("[FILE.py:METHOD]", "A method of your own, beside --methods.")
    ] = None,
    scale: _Scale = None,
    methods: _Methods = None,
    salt: Annotated[
        str | None,
        option("TEXT", "A private suite, from 128 random bits: openssl rand -hex 16"),
    ] = None,
    suite: Annotated[
        Path | None, option("FILE", "Cases are read from a file that --make-suite wrote.")
    ] = None,
    make_suite: Annotated[
        Path | None, out_file("Write the cases into this file, and ask nobody.", "--make-suite")
    ] = None,
    settings: settings_of("first_seed=5000000") = None,  # type: ignore[valid-type]
    out: Out = Path("results/judge"),
) -> Answer:
    """Score methods of interpretability by models whose truth is known.

    Every question about every model has an answer that is proved, or computed on every string.
    Writes [bold]judge.html[/bold], judge.md and scores.json; for your own also
    judge.tex and cite.txt. What is already in the folder is kept. The cases of "quick" come with
    the package; those of other suites without a salt are made once, and kept.
    """
    existing(suite)
    with busy("loading"):
        from tl_dyck.judge.own import method_from_file
        from tl_dyck.judge.protocol import methods as known
        from tl_dyck.judge.public import SuiteFile
        from tl_dyck.judge.run import judge_methods, methods_asked

        own = "" if method is None else method_from_file(method)
        missing = () if methods is not None or own else known.unavailable()
    if suite is not None and (scale, salt, settings, make_suite) != (None, None, None, None):
        raise WrongValueError("--suite FILE says which cases: leave out --scale, --salt and --set")
    asked = _asked(scale or "quick", salt, settings) if suite is None else None
    if make_suite is not None:
        yield from _made(asked, make_suite, runs)
        return
    chosen = None if methods is None else list(names(methods))
    if own:
        chosen = [own, *(_BESIDE if chosen is None else chosen)]
    chosen = methods_asked(chosen)  # before cases are made, which takes minutes
    source = _source(asked, suite, runs, salt is None and not settings)
    done = judge_methods(source, out, chosen, **runs.how)
    yield from _shown(done, own)
    if isinstance(source, SuiteFile):
        yield _about(source)
    if missing:
        yield (
            "Not asked, for want of their packages (pip install 'tl-dyck[judge]'): "
            f"{', '.join(missing)}."
        )
    yield _page(done)


def _page(done: Judgement) -> Saved:
    with busy("report"):
        from tl_dyck.report import write_report

        return Saved("Report", write_report(done))


def _shown(done: Judgement, own: str) -> Answer:
    """What methods were found to say, with a word on one's own."""
    yield {"scores": done.scores.reset_index()}
    yield from _tables(done)
    if own:
        yield from _beside(done, own)
    yield from _across(done)
    n_cases, n_facts = done.sizes
    yield (
        f"AUROC: 0.5 is chance. {done.suite}: {n_cases:,} cases, {n_facts:,} questions. "
        "–: not asked."
    )
    yield f"Digest of what is true: {done.digest}. {done.undecided_note()}"


def _asked(scale: str, salt: str | None, settings: list[str] | None) -> Suite:
    """The suite that options name."""
    from tl_dyck.judge.public import named_suite

    # a salt makes other cases of the same suite: nobody can have tuned a method on them
    suite = named_suite(scale) if salt is None else named_suite(scale).with_salt(salt)
    if not settings:
        return suite
    # a salt draws the seeds and the key, and whoever reads a suite's name reads its settings
    kept = {"name", "key"} | ({"first_seed"} if salt is not None else set())
    fields = {name: value for name, value in asdict(suite).items() if name not in kept}
    name = f"{suite.name}, {', '.join(settings)}"
    return replace(suite, name=name, **changed(fields, settings))


def _source(asked: Suite | None, path: Path | None, runs: Runs, public: bool) -> SuiteFile | Suite:
    """Where cases come from: the file that is named; or that of a public suite.

    It comes with the package, or is made, and kept on this machine, where those of a cluster would
    look for it in vain.
    """
    from tl_dyck.judge import public as files
    from tl_dyck.kit.files import CorruptFileError, ensure_folder
    from tl_dyck.runs.backends import is_here

    if path is not None:
        return files.open_suite(path)
    assert asked is not None  # one of the two is
    if not public or not is_here(runs.backend):
        return asked
    if (found := files.shipped(asked)) is not None:
        return found
    place = files.kept_path(asked)
    if place.exists():
        try:
            return files.open_suite(place)
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}; remove it, and it is made again") from error
    try:
        ensure_folder(place.parent)
    except OSError:  # made, and not kept
        return asked
    say_note(f"The cases are made, once: {place}")
    return files.make_suite(asked, place, **runs.how)


def _made(asked: Suite | None, path: Path, runs: Runs) -> Answer:
    from tl_dyck.judge.public import make_suite

    assert asked is not None
    file = make_suite(asked, path, **runs.how)
    yield {"digest": file.digest}
    yield _about(file)
    yield Saved("Suite", file.path)


def _about(file: SuiteFile) -> str:
    which = "the recorded one" if file.recorded else "not a recorded one"
    return f"Cases are of the file with digest {file.digest[:16]}, {which}."


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


def _across(done: Judgement) -> Answer:
    """Whether the order of methods is the same on several tasks, where there are several."""
    from tl_dyck.judge import rank_correlations

    with busy("correlations"):
        found = rank_correlations(done.answers)
    if found.empty:
        return
    yield Rows("across", found, _CORRELATIONS)
    yield (
        "Rank correlations of the methods' AUROC between tasks; of a task with itself those of two "
        "halves of its cases."
    )


def _beside(done: Judgement, own: str) -> Answer:
    """One's own method less every other one; and what a paper takes, into the folder."""
    from tl_dyck.judge import compare_methods
    from tl_dyck.kit.files import write_bytes

    rows = done.answers[done.answers["method"] != "oracle"]
    with busy("differences"):
        found = compare_methods(rows, own)
    yield Rows("differences", found, _DIFFERENCES)
    yield f"{own} less each other method, paired by case; p is Holm's, over all of these."
    write_bytes(done.folder / "judge.tex", done.to_latex(own).encode())
    write_bytes(done.folder / "cite.txt", done.cite().encode())
