"""Judge many methods by a whole suite: a sweep of cases, and what came of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, final

import pandas as pd
from typing_extensions import Unpack

from tl_dyck.estimates import interval_words
from tl_dyck.judge.cases import sealed_case, with_key
from tl_dyck.judge.cheats import bounds, norms, norms_along
from tl_dyck.judge.code import code_digest
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.papers import citation, scores_figure, scores_latex
from tl_dyck.judge.protocol import COLUMNS, CONTROLS, JudgeError, methods
from tl_dyck.judge.public import SuiteFile, named_suite, opened, shipped
from tl_dyck.judge.scores import ask, oracle_rows, score_table
from tl_dyck.judge.suites import CODE, Suite
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError
from tl_dyck.kit.environment import DISTRIBUTION, one_thread
from tl_dyck.kit.files import sha256
from tl_dyck.kit.records import TableColumns, read_table, write_tables
from tl_dyck.kit.registry import unknown_name
from tl_dyck.kit.screen import busy
from tl_dyck.runs.analysis import Analysis, of_each
from tl_dyck.runs.backends import is_here
from tl_dyck.runs.execute import RunOptions, run_sweep
from tl_dyck.runs.spec import Point, Sweep

if TYPE_CHECKING:
    import plotly.graph_objects as go

_JUDGEMENT = Analysis("scores.json", "tl_dyck.judgement/6", "a judgement")
_TABLES = {
    "answers": TableColumns(
        texts=("case", "method", "model", "question", "target"),
        numbers=(
            *("answer", "effect", "score", "size", "said", "error"),
            *("seconds", "passes", "backward"),
        ),
    ),
    "weights": TableColumns(texts=("case", "target")),
    "scores": TableColumns(
        texts=("interval", "method", "question"),
        numbers=(
            *("auroc", "auroc_low", "auroc_high", "level", "accuracy", "answered", "off", "yes"),
            *("false_alarms", "misses", "n", "cases", "error", "seconds", "passes", "backward"),
            *("precision", "precision_at_10"),
        ),
    ),
}


@final
@dataclass(frozen=True, kw_only=True)
class Judgement:
    """What came of a suite.

    Attributes:
        folder: where everything is.
        suite: name of the suite.
        answers: a row for each question that a method answered, see `tl_dyck.judge.scores.ask`,
            and ``method``.
        scores: see `score_table`.
        environment: versions and hardware, and "date", when it was judged.
        key: of a private suite, see `Suite`; 0 of a public one.
        file: path and digest of the file that cases were read from; None where they were made.
    """

    folder: Path
    suite: str
    answers: pd.DataFrame
    scores: pd.DataFrame
    environment: dict[str, Any]
    key: int = field(default=0, repr=False)
    file: tuple[str, str] | None = None

    @checked
    def sealed(self, case: str) -> SealedCase:
        """A case of that name, as methods were asked about it.

        Raises:
            UnknownNameError: no method was asked about such a case.
            CorruptFileError: it was read from a file that is not there any more, or another one.
        """
        if case not in (known := {*self.answers["case"]}):
            raise unknown_name("case", case, map(str, known))
        kind, _, seed = case.rpartition("-")
        return _sealed(kind, int(seed), self.key, self.file)

    @property
    def sizes(self) -> tuple[int, int]:
        """How many cases, and how many questions."""
        asked = self.answers[["case", "question", "target"]].drop_duplicates()
        return asked["case"].nunique(), len(asked)

    @property
    def true_answers(self) -> pd.DataFrame:
        """Every question and its answer: what the oracle says."""
        return self.answers[self.answers["method"] == "oracle"]

    @property
    def digest(self) -> str:
        """16 hexadecimal digits of all questions and answers, so that a suite can be named."""
        columns = ["case", "question", "target", "answer"]
        return sha256(
            sorted(map(str, self.true_answers[columns].itertuples(index=False, name=None)))
        )[:16]

    def undecided_note(self) -> str:
        """Of how many models nobody is asked whether they keep a stack, since it is not known.

        Nothing where that is not asked at all.
        """
        known = self.true_answers.loc[self.true_answers["question"] == "stack", "case"].nunique()
        if not known:
            return ""
        return f"“stack” is not asked of {1 - known / self.sizes[0]:.0%} of the models."

    def wide(self) -> pd.DataFrame:
        """AUROC, a row for each method and a column for each question, see `score_table`."""
        return self.scores["auroc"].unstack("question")

    def order(self) -> list[str]:
        """Methods in the order of tables, see `in_order`."""
        return in_order(self.wide())

    @checked
    def plot(self, own: str | Sequence[str] = (), questions: str | Sequence[str] = ()) -> go.Figure:
        """AUROC of every method with its interval, a row each.

        ``write_html`` of the figure needs nothing else; PNG, SVG and PDF are plotly's
        ``write_image``, which needs kaleido.

        Args:
            own: names of methods that stand out.
            questions: columns of `wide`, a plot each; none for the first that `own` answers.

        Raises:
            UnknownNameError: no such method or question.
        """
        mine = self._own(own)
        wanted = self._columns(mine, questions)
        return scores_figure(
            self.scores, self.order(), mine, wanted if len(questions) else wanted[:1]
        )

    @checked
    def to_latex(self, own: str | Sequence[str] = (), questions: str | Sequence[str] = ()) -> str:
        """A table for a paper: AUROC [interval], with the rules of the package booktabs.

        Args:
            own: names of methods that stand out, in bold.
            questions: columns of `wide`, of which two fit on a page; none for all that `own`
                answers.

        Raises:
            UnknownNameError: no such method or question.
        """
        said = interval_words(self.scores.rename(columns={"auroc_low": "low"}), over="cases")
        note = f"AUROC, {said}; {self.suite}, {self.digest}"
        mine = self._own(own)
        return scores_latex(self.scores, self.order(), mine, self._columns(mine, questions), note)

    def cite(self) -> str:
        """A sentence with suite, digest and version for a paper in LaTeX, and BibTeX entries."""
        version = str(self.environment.get("versions", {}).get(DISTRIBUTION, "of unknown version"))
        year = str(self.environment.get("date", ""))[:4]
        return citation(self.suite, self.sizes, self.digest, version, year)

    def _columns(self, mine: Sequence[str], questions: str | Sequence[str]) -> list[str]:
        """Those that are named; else all that the user's own methods answer, or any method."""
        wide = self.wide()
        wanted = [questions] if isinstance(questions, str) else [*questions]
        for column in wanted:
            if column not in wide:
                raise unknown_name("question", column, map(str, wide))
        answered = wide.loc[mine].notna().any() if mine else wide.notna().any()
        return wanted or [column for column in COLUMNS if column in wide and answered[column]]

    def _own(self, own: str | Sequence[str]) -> list[str]:
        names, known = [own] if isinstance(own, str) else [*own], self.order()
        for name in names:
            if name not in known:
                raise unknown_name("method", name, known)
        return names


def _sealed(kind: str, seed: int, key: int, file: tuple[str, str] | None) -> SealedCase:
    if file is not None:
        return opened(*file).sealed(kind, seed)
    return sealed_case(kind, with_key(seed, key))


def in_order(wide: pd.DataFrame) -> list[str]:
    """Methods, controls first, then by the first kind of question that they answer, best first.

    Those of one kind stand together.

    Args:
        wide: as `Judgement.wide`.
    """
    kinds = [column for column in COLUMNS if column in wide]

    def place(name: str) -> tuple[Any, ...]:
        first = next((kind for kind in kinds if wide.notna().loc[name, kind]), "")
        score = float(wide.loc[name, first]) if first else 0.0
        control = CONTROLS.index(name) if name in CONTROLS else len(CONTROLS)
        return control, kinds.index(first) if first else len(kinds), -score

    return sorted((str(name) for name in wide.index), key=place)


@final
class JudgeExperiment:
    """Make a case, and ask methods about it.

    Parameters of a point: ``kind`` (of model), ``methods`` (names), and ``key``, in hexadecimal, of
    a private suite, or ``file`` and ``digest`` of one that is read. Metrics: facts (their
    number) and answers (that methods gave). The run's folder holds the answers, with those of the
    oracle, which is told them, and norms of weights for `bounds`.
    """

    name: ClassVar[str] = "judge"
    code: ClassVar[int] = CODE

    def prepare(self, point: Point) -> JudgeJob:
        """Kind, methods and key, or file."""
        file = (point["file"], point["digest"]) if "file" in point else None
        return JudgeJob(self.code, point["kind"], point["methods"], point.get("key"), file)


@final
@dataclass(frozen=True)
class JudgeJob:
    """A point of `JudgeExperiment`, read."""

    code: int
    kind: str
    methods: Sequence[str]
    key: str | None = None
    file: tuple[str, str] | None = None

    def identity(self) -> Mapping[str, Any]:
        """Kind and methods, with their code, and what is between them and the answers."""
        chosen = [[name, code_digest(methods.get(name))] for name in self.methods]
        found = {"code": self.code, "kind": self.kind, "methods": chosen}
        if self.file is not None:  # wherever it lies
            found["digest"] = self.file[1]
        return found | ({} if self.key is None else {"key": self.key})

    @one_thread()
    def run(self, seed: int, folder: Path) -> dict[str, Any]:
        """Ask them."""
        key = int("0" if self.key is None else self.key, 16)
        sealed = _sealed(self.kind, seed, key, self.file)
        rows = [{"method": "oracle", **row} for row in oracle_rows(sealed)]
        for name in self.methods:
            rows += [{"method": name, **row} for row in ask(name, methods.get(name), sealed)]
        case = sealed.copy()
        weights = pd.concat([norms(case.model), norms_along(case, sealed.facts)])
        weights = weights.assign(case=sealed.name)
        write_tables(folder, {"answers": pd.DataFrame(rows), "weights": weights})
        return {"facts": len(sealed.facts), "answers": len(rows)}


def methods_asked(names: Sequence[str] | None) -> list[str]:
    """The names, each once; None: of all methods that can be imported here.

    Raises:
        UnknownNameError: no such method.
        JudgeError: no method is named.
        WrongTypeError: it is a text.
    """
    if isinstance(names, str):
        raise WrongTypeError(f"names must be a list of methods, such as [{names!r}]")
    if names is None:
        missing = methods.unavailable()
        names = [name for name in methods.names() if name not in missing]
    chosen = list(dict.fromkeys(names))
    if not chosen:
        raise JudgeError("no method is named; leave names (--methods) out to ask all")
    for name in chosen:
        methods.get(name)
    return chosen


@checked
def judge_methods(
    suite: SuiteFile | Suite | str = "quick",
    folder: str | Path = "results/judge",
    names: Sequence[str] | None = None,
    **how: Unpack[RunOptions],
) -> Judgement:
    """Ask methods every question of a suite, and score them.

    It is a sweep (`run_sweep`): what is done is kept, several processes may work on one folder, and
    a larger scale finds the cases of a smaller one. ``scores.json`` says what was asked;
    ``answers.parquet`` and ``scores.parquet`` are kept beside it.

    Args:
        suite: a key of `SUITES`, or one of your own, or one whose cases are read, see `open_suite`.
            Those of "quick" come with the package, and are read.
        folder: where to put everything.
        names: of methods; None for all that can be imported here, see `Registry.unavailable`.
        **how: n_jobs, backend, address, retry_failed, progress, … as for `run_sweep`.

    Raises:
        UnknownNameError: no such suite or method.
        JudgeError: no method is named. (What they do wrong when asked makes failed runs.)
        WrongTypeError: `suite` or `names` is something else.
        FailedRunsError: a method raised, or a case could not be made; the others are done.
    """
    chosen = methods_asked(names)
    source: dict[str, str] = {}
    if not isinstance(suite, SuiteFile):
        suite = named_suite(suite)
        if is_here(how.get("backend", "loky")):  # elsewhere the package may lie elsewhere
            suite = shipped(suite) or suite
    if isinstance(suite, SuiteFile):
        source, suite = {"file": str(suite.path), "digest": suite.digest}, suite.suite
    path = Path(folder).absolute()  # a method may go elsewhere
    sweep = Sweep(
        common={"methods": chosen, **source} | ({"key": f"{suite.key:x}"} if suite.key else {}),
        list=[
            {"kind": kind, "seeds": {"start": suite.first_seed, "count": size}}
            for kind, size in suite.sizes.items()
        ],
        experiment=JudgeExperiment.name,
    )
    run_sweep(sweep, path, experiment=JudgeExperiment(), **how)
    _JUDGEMENT.write(path, suite=suite.name)
    with busy("scores", how.get("progress", True)):
        return load_judgement(path)


@checked
def load_judgement(folder: str | Path) -> Judgement:
    """What `judge_methods` left in a folder.

    Raises:
        CorruptFileError: it holds none, or a damaged one.
        JudgeError: its suite asks nothing.
    """
    path = Path(folder).absolute()
    with _JUDGEMENT.read(path) as (saved, runs):
        suite, where = str(saved["suite"]), dict(saved["environment"])
        # 0: a public suite has no key
        key = int(str(runs["key"].iloc[0]), 16) if "key" in runs else 0
        first = runs.iloc[0]
        file = (str(first["file"]), str(first["digest"])) if "file" in runs else None
        where["date"] = str(runs["started"].max())[:10]
        runs = runs[runs["facts"] > 0]  # of some cases nothing is asked
    if runs.empty:
        raise JudgeError(f"nothing is asked of the cases of suite {suite!r}")

    def all_of(name: str) -> pd.DataFrame:
        parts = of_each(
            runs, lambda row, place: read_table(place / f"{name}.parquet", _TABLES[name])
        )
        return pd.concat(parts, ignore_index=True)

    def answered() -> pd.DataFrame:
        answers = all_of("answers")
        known = answers[answers["method"] == "oracle"]
        return pd.concat([answers, bounds(known, all_of("weights"))], ignore_index=True)

    answers = _JUDGEMENT.kept(path, "answers", answered, _TABLES["answers"])
    known = answers[answers["method"] == "oracle"]
    scores = _JUDGEMENT.kept(
        path, "scores", lambda: score_table(answers, asked=known).reset_index(), _TABLES["scores"]
    )
    return Judgement(
        folder=path,
        suite=suite,
        answers=answers,
        scores=scores.set_index(["method", "question"]),
        environment=where,
        key=key,
        file=file,
    )
