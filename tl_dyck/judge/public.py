"""A suite as a file: models, strings and answers, the same wherever they are read.

Knows: what is in such a file, by which digest it is named, and where one is kept.

A case that is trained here is not, bit by bit, the one that is trained on another CPU; one from a
file is. And nothing has to be made: the time that a judgement takes is that of the methods.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, final

from typing_extensions import Unpack

from tl_dyck.judge.case_files import LARGEST_CASE, dump_case, packed, read_case, unpacked
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.protocol import KINDS, Case, Fact, JudgeError
from tl_dyck.judge.suites import CODE, DEVELOPMENT, SUITES, Suite
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError, check_integer
from tl_dyck.kit.environment import one_thread
from tl_dyck.kit.files import CorruptFileError, parse_json, read_regular, sha256, write_output
from tl_dyck.kit.records import described
from tl_dyck.kit.registry import unknown_name
from tl_dyck.runs.execute import RunOptions, run_sweep
from tl_dyck.runs.results import load_runs
from tl_dyck.runs.spec import Point, Sweep

_FORM = "tl_dyck.suite/1"
_MAGIC = f"{_FORM}\n".encode()
_NUMBER = 8  # bytes that say how long the index is
_LARGEST_INDEX = 2**26  # bytes; of the largest suite that there may be
#: In bytes: judge-3/full would have a seventh of that.
LARGEST_SUITE = 2**29
_CASE = "case.bin"
_KEPT = 4  # files that a process has open at a time

#: Digests of the suites' files that are recorded; made on AMD EPYC with AVX-512.
RECORDED: dict[str, str] = {
    "judge-3/quick": "d876ac9b8f1a33050f61b1852b7e74c4f833d8d2dfed803a2935ed446e87d825",
}
#: Where files of suites lie that come with the package.
_SHIPPED = Path(__file__).parent / "data"


@final
@dataclass(frozen=True)
class SuiteFile:
    """A suite that is read from a file, see `open_suite`.

    Attributes:
        path: of the file.
        suite: its name, and how many cases of which kinds.
        digest: 64 hexadecimal digits, of all models, strings and answers.
    """

    path: Path
    suite: Suite
    digest: str
    _parts: Mapping[tuple[str, int], tuple[bytes, int, str]]

    @property
    def recorded(self) -> bool:
        """Whether it is the file of its suite whose digest is recorded."""
        return RECORDED.get(self.suite.name) == self.digest

    @checked
    def sealed(self, kind: str, seed: int) -> SealedCase:
        """One of its cases, in place of `tl_dyck.judge.cases.sealed_case`.

        Raises:
            CorruptFileError: what the file has of it was altered, or is no case.
            JudgeError: the suite has no such case.
        """
        if (kind, seed) not in self._parts:
            raise JudgeError(
                f"there is no case of kind {kind!r:.80} and seed {seed!r:.80} in {str(self.path)!r}"
            )
        data, size, digest = self._parts[kind, seed]
        source = f"case {kind}-{seed} in {str(self.path)!r}"
        found = unpacked(data, size, source)
        if hashlib.sha256(found).hexdigest() != digest:
            raise CorruptFileError(f"{source} was altered: its SHA-256 is not {digest[:12]}…")
        return SealedCase(kind, int(seed), *read_case(found, source))


@checked
def open_suite(path: str | Path) -> SuiteFile:
    """A suite from the file that `make_suite` wrote. Its cases are read when they are asked for.

    Raises:
        MissingFileError: there is no such file.
        CorruptFileError: it is truncated, altered, too large, of another version, or no suite.
    """
    place = Path(path).absolute()
    data = read_regular(place, LARGEST_SUITE)
    if not data.startswith(_MAGIC):
        raise CorruptFileError(
            f"{str(place)!r} is no file of a suite, or of another version: it does not begin with "
            f"{_FORM!r}"
        )
    start = len(_MAGIC) + _NUMBER
    length = int.from_bytes(data[len(_MAGIC) : start], "little")
    if length > min(_LARGEST_INDEX, len(data)):
        raise CorruptFileError(f"{str(place)!r} is truncated: its index has {length:,} bytes")
    with described(place, "a suite"):
        try:
            index = parse_json(data[start : start + length])
        except RecursionError as error:
            raise ValueError("its index is nested too deep") from error
        suite = Suite(**index["suite"])
        parts = _parts(suite, index["cases"], data, start + length)
    return SuiteFile(place, suite, _digest(index), parts)


def _parts(
    suite: Suite, listed: Sequence[Mapping[str, Any]], data: bytes, at: int
) -> dict[tuple[str, int], tuple[bytes, int, str]]:
    names = [*islice(suite.cases(), len(listed) + 1)]  # a suite may say that it has millions
    if len(names) != len(listed):
        raise ValueError(f"it has {len(listed)} cases, and its suite others")
    found = {}
    for name, each in zip(names, listed, strict=True):
        taken = check_integer("bytes of a case", each["bytes"], 0, LARGEST_SUITE)
        size = check_integer("size of a case", each["size"], 0, LARGEST_CASE)
        if not isinstance(each["sha256"], str):
            raise WrongTypeError(f"a digest is {each['sha256']!r:.40}")
        found[name] = data[at : at + taken], size, each["sha256"]
        at += taken
    if at != len(data):
        raise ValueError(f"it has {len(data):,} bytes, and its index is of {at:,}")
    return found


def _digest(index: Mapping[str, Any]) -> str:
    """Of the suite and its cases, however they are packed."""
    cases = [[each["size"], each["sha256"]] for each in index["cases"]]
    return sha256([_FORM, index["suite"], cases])


@lru_cache(maxsize=_KEPT)
def opened(path: str, digest: str) -> SuiteFile:
    """The file of that digest, read once by a process.

    Raises:
        CorruptFileError: it is not there any more, or has another digest by now.
    """
    found = open_suite(path)
    if found.digest != digest:
        raise CorruptFileError(f"{path!r} is another suite than it was: {found.digest[:16]}")
    return found


# --- how it is made -------------------------------------------------------------------------------


@final
class _MakeExperiment:
    """Make the cases of a kind, each into its run's folder."""

    name: ClassVar[str] = "cases"

    def prepare(self, point: Point) -> _MakeJob:
        return _MakeJob(point["kind"], point["code"])


@final
@dataclass(frozen=True)
class _MakeJob:
    kind: str
    code: int

    def identity(self) -> Mapping[str, Any]:
        return asdict(self)

    @one_thread()
    def run(self, seed: int, folder: Path) -> dict[str, Any]:
        sealed = sealed_case(self.kind, seed)
        data = dump_case(sealed.copy(), sealed.facts)
        (folder / _CASE).write_bytes(packed(data))
        return {"size": len(data), "sha256": hashlib.sha256(data).hexdigest()}


@checked
def make_suite(suite: Suite | str, path: str | Path, **how: Unpack[RunOptions]) -> SuiteFile:
    """Make every case of a suite, and write them into one file.

    Until all are made they are kept in a folder beside it, so it may be stopped and begun again.

    Args:
        suite: a key of `SUITES`, or one of your own that is no private one.
        path: the file.
        **how: n_jobs, progress, … as for `run_sweep`.

    Raises:
        UnknownNameError: no such suite.
        WrongTypeError: `suite` is something else.
        JudgeError: the suite is private: whoever has its file knows its answers.
        FailedRunsError: a case could not be made; the others are.
        OSError: the file cannot be written.
    """
    suite = named_suite(suite)
    if suite.key:
        raise JudgeError("a private suite is kept in no file: who has it, has the answers")
    place = Path(path).absolute()
    folder = place.with_name(f"{place.name}.parts")
    kinds = [
        {"kind": kind, "seeds": {"start": suite.first_seed, "count": size}}
        for kind, size in suite.sizes.items()
    ]
    sweep = Sweep(common={"code": CODE}, list=kinds, experiment=_MakeExperiment.name)
    run_sweep(sweep, folder, experiment=_MakeExperiment(), **how)
    rows = {(row["kind"], row["seed"]): row for row in load_runs(folder).to_dict("records")}
    made = [rows[name] for name in suite.cases()]
    blobs = [read_regular(Path(row["folder"]) / _CASE, LARGEST_CASE) for row in made]
    cases = [
        {"bytes": len(blob), "size": int(row["size"]), "sha256": row["sha256"]}
        for blob, row in zip(blobs, made, strict=True)
    ]
    fields = {"name": suite.name, "first_seed": suite.first_seed, "sizes": dict(suite.sizes)}
    index = json.dumps({"suite": fields, "cases": cases}, separators=(",", ":")).encode()
    write_output(place, _MAGIC + len(index).to_bytes(_NUMBER, "little") + index + b"".join(blobs))
    found = open_suite(place)
    shutil.rmtree(folder)
    return found


def named_suite(suite: Suite | str) -> Suite:
    """A suite, or that of a name.

    Raises:
        UnknownNameError: no such suite.
        WrongTypeError: it is something else.
    """
    if isinstance(suite, str):
        if suite not in SUITES:
            raise unknown_name("scale", suite, SUITES)
        return SUITES[suite]
    if not isinstance(suite, Suite):
        raise WrongTypeError(f"a suite is a Suite or one of {', '.join(SUITES)}, not {suite!r:.80}")
    return suite


def kept_path(suite: Suite) -> Path:
    """Where the file of a public suite is kept, if it is.

    That is the folder that ``TL_DYCK_CACHE`` names, or the user's own for such things.
    """
    shared = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tl_dyck"
    return Path(os.environ.get("TL_DYCK_CACHE") or shared) / _file_name(suite)


def shipped(suite: Suite) -> SuiteFile | None:
    """The file of a suite that comes with the package, where one does."""
    place = _SHIPPED / _file_name(suite)
    if suite.name not in RECORDED or not place.exists():
        return None
    found = opened(str(place), RECORDED[suite.name])  # read once, for those who take cases too
    return found if found.suite == suite else None


def _file_name(suite: Suite) -> str:
    return f"{suite.name.replace('/', '-')}-{CODE}.suite"


# --- cases, one by one ----------------------------------------------------------------------------


def sealed_cases(suite: SuiteFile | Suite) -> Iterator[SealedCase]:
    """The cases of a suite, one after the other: read from its file, or made."""
    listed = suite.suite if isinstance(suite, SuiteFile) else suite
    one = _one_of(suite)
    return (one(*name) for name in listed.cases())


def _one_of(suite: SuiteFile | Suite) -> Callable[[str, int], SealedCase]:
    """What gives a case by kind and seed: the file of its suite, where one is there."""
    file = suite if isinstance(suite, SuiteFile) else shipped(suite)
    return sealed_case if file is None else file.sealed


@final
@dataclass(frozen=True)
class JudgedCase:
    """A case with its answers, to test a method by.

    Attributes:
        name: kind of model, and seed.
        case: what a method is given; it is yours, and a copy.
        facts: questions with their answers.
    """

    name: str
    case: Case
    facts: tuple[Fact, ...]

    def __repr__(self) -> str:
        return self.name


@checked
def cases(
    suite: SuiteFile | Suite | str = DEVELOPMENT,
    *,
    kinds: str | Sequence[str] | None = None,
    questions: str | Sequence[str] | None = None,
    limit: int | None = None,
) -> Iterator[JudgedCase]:
    """Cases with their answers, for the tests of a package that ships a method.

    By default these are for development, and every change of a method that looks at them tunes it
    on them. What is published comes from `judge_methods`, whose cases are others.

    Examples:
        >>> [each] = cases(kinds="uniform", questions="carries", limit=1)
        >>> each, {fact.question.kind for fact in each.facts}
        (uniform-0, {'carries'})

    Args:
        suite: whose cases; a `SuiteFile` is read and not made.
        kinds: of model, see `list_kinds`; None for all that the suite has.
        questions: kinds of question, see `KINDS`; None for all. Cases without one are left out.
        limit: how many cases at most, of each kind as many as of another; None for all.

    Raises:
        UnknownNameError: no such suite, kind of model or kind of question.
        WrongValueError: the limit is below 1, or no kind or question is named.
    """
    suite = suite if isinstance(suite, SuiteFile) else named_suite(suite)
    listed = suite.suite if isinstance(suite, SuiteFile) else suite
    wanted = _names("kind", kinds, [*listed.sizes])
    asked = _names("question", questions, [*KINDS])
    most = None if limit is None else check_integer("limit", limit, 1)
    # the first of each kind, then the second of each, …
    names = sorted(
        (seed, wanted.index(kind), kind) for kind, seed in listed.cases() if kind in wanted
    )
    one = _one_of(suite)
    return islice(_judged((one(kind, seed) for seed, _, kind in names), asked), most)


def _judged(sealed: Iterator[SealedCase], asked: Sequence[str]) -> Iterator[JudgedCase]:
    for each in sealed:
        facts = tuple(fact for fact in each.facts if fact.question.kind in asked)
        if facts:
            yield JudgedCase(each.name, each.copy(), facts)


def _names(what: str, given: str | Sequence[str] | None, known: Sequence[str]) -> list[str]:
    chosen = known if given is None else [given] if isinstance(given, str) else [*given]
    if not chosen:
        raise WrongValueError(f"{what}s must name at least one; None means all")
    for name in chosen:
        if name not in known:
            raise unknown_name(what, name, known)
    return list(chosen)
