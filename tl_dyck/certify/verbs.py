"""Four verbs over the functions that do the work: decide, prove, sample, check.

Each looks at what `strings` is, and calls the function for that; none computes anything.

Knows: which function answers which strings, and what all verdicts have in common.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Protocol, SupportsIndex, final

from tl_dyck.certify.certificate import Certificate
from tl_dyck.certify.edits import certify_edits
from tl_dyck.certify.language import (
    LanguageCertificate,
    SampledError,
    certify_language,
    sample_error,
)
from tl_dyck.certify.language.lengths import lengths_up_to
from tl_dyck.certify.proof import Proof
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.certify.spaces import PerturbationSpace
from tl_dyck.certify.transformations import Tokens
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_number, check_several, shown
from tl_dyck.kit.files import MissingFileError
from tl_dyck.kit.verdicts import Verdict
from tl_dyck.tasks import AutomatonTask, DyckTask, load_task


class Decided(Protocol):
    """What every verdict has: of edits, of a language, of a file."""

    @property
    def status(self) -> Verdict:
        """One of "proved", "refuted" and "open"."""

    @property
    def low(self) -> float:
        """No string has a smaller margin; -inf if nothing was proved."""

    @property
    def high(self) -> float:
        """Some string has no larger one; inf if none was seen."""

    @property
    def worst(self) -> Any:
        """The string with the least margin seen, with `tokens` and `margin`; or None."""

    @property
    def reason(self) -> str:
        """Why it is open, or a remark."""

    @property
    def seconds(self) -> float:
        """Wall-clock time."""


@final
@dataclass(frozen=True, kw_only=True)
class CheckedProof:
    """What a file proves, or that it proves nothing; `reason` is the checker's line."""

    status: Verdict
    reason: str
    seconds: float
    high: float = float("inf")
    worst: None = None

    @property
    def low(self) -> float:
        """A proof says that every margin is above 0, not how far."""
        return 0.0 if self.status == "proved" else float("-inf")


class EditedStrings(NamedTuple):
    """All edits of a string, made by `edits`."""

    string: Tokens | str
    space: PerturbationSpace | str


class TaskStrings(NamedTuple):
    """Strings of a task, made by `prefixes`; a plain pair of task and lengths will do as well."""

    task: DyckTask | AutomatonTask | str
    lengths: SupportsIndex | Iterable[SupportsIndex]


@checked
def edits(string: Tokens | str, space: PerturbationSpace | str) -> EditedStrings:
    """Every edit of a string: ``edits("[()[]", "pairs:2")``. See `certify_edits` for both."""
    given = string if isinstance(string, str) else check_several("string", string)
    return EditedStrings(given, space)


@checked
def prefixes(
    task: DyckTask | AutomatonTask | str, lengths: SupportsIndex | Iterable[SupportsIndex]
) -> TaskStrings:
    """Every prefix up to a length, or of several lengths: ``prefixes("dyck-2-4", 28)``."""
    several = isinstance(lengths, Iterable)
    known = lengths_up_to(lengths)
    return TaskStrings(
        load_task(task) if isinstance(task, str) else task, known if several else known[-1]
    )


@checked
def decide(
    model: Any, strings: Any, claim: str | int | None = None, **how: Any
) -> Certificate | LanguageCertificate:
    """Does a claim hold on every string? Proved, refuted with a string, or open with a reason.

    Examples:
        >>> from tl_dyck import construct, load_task
        >>> model = construct.uniform_attention(load_task("dyck-2-4").language)
        >>> decide(model, edits("[()[]", "pairs:1"), "]").status
        'proved'
        >>> decide(model, prefixes("dyck-2-4", 12)).status
        'proved'

    Args:
        model: see `certify_edits` and `certify_language`.
        strings: `edits` of a string, or `prefixes` of a task, or a pair of task and lengths.
        claim: of edits, the logit that must stay the largest, by index or text; None for the one
            that is. Of prefixes the name of a claim; None for "any_token".
        how: what `certify_edits` or `certify_language` takes besides, such as `time_limit`.

    Raises:
        CertifyError: as those; or the claim is none of such strings.
    """
    if isinstance(strings, EditedStrings):
        return certify_edits(model, strings.string, claim, strings.space, **how)
    return certify_language(model, *_pair(strings), _property(claim), **how)


@checked
def prove(model: Any, strings: Any, claim: str | int | None = None, **how: Any) -> Proof:
    """Write a proof that a claim holds on every string, for `check` and for anyone without us.

    Arguments are those of `decide`; `how` are those of `prove_edits` or `prove_language`. The
    lengths of prefixes are one number, up to which all count.

    Raises:
        NoProofError: a string is wrong or within rounding, the time is over, or the model is of
            another kind.
    """
    from tl_dyck.certify.edit_proofs import prove_edits
    from tl_dyck.certify.language_proofs import prove_language

    if isinstance(strings, EditedStrings):
        return prove_edits(model, strings.string, claim, strings.space, **how)
    return prove_language(model, *_pair(strings), _property(claim), **how)


@checked
def sample(
    model: Any, strings: Any, claim: str | int | None = None, **how: Any
) -> tuple[SampledError, ...]:
    """Estimate how probable it is that a claim fails, length by length: strings too long to decide.

    Arguments are those of `decide`; `how` are those of `sample_error`. ``prefixes(task, 450)`` are
    all lengths from 1 to 450, as for the other verbs; ``prefixes(task, [450])`` is that one.

    Raises:
        CertifyError: edits of a string, which have no probability; or as `sample_error`.
    """
    if isinstance(strings, EditedStrings):
        raise CertifyError(
            "edits of a string have no probability to estimate; decide(…, time_limit=…) says what "
            "is known of them in time"
        )
    task, lengths = _pair(strings)
    if not isinstance(lengths, Iterable):
        lengths = range(1, lengths.__index__() + 1)
    return sample_error(model, task, lengths, _property(claim), **how)


@checked
def check(
    file: str | Path,
    model: str | Path | None = None,
    other: str | Path | None = None,
    *,
    work: float | None = None,
) -> CheckedProof:
    """Check a proof's file: nothing is searched, nothing believed.

    Args:
        file: what `Proof.save` wrote.
        model: folder of a saved model whose options and weights must be those of the proof.
        other: of a proof about two models, the folder of the other one.
        work: how much a proof may ask for; 1e9 is about a second, None is about a minute.

    Raises:
        MissingFileError: there is no such file.
    """
    from tl_dyck.certify.check_language import MOST_WORK
    from tl_dyck.certify.check_model import verdict

    folders = [folder for folder in (model, other) if folder is not None]
    for each in (file, *folders):
        if not Path(each).exists():
            raise MissingFileError(f"there is no file {str(each)!r}")
    most = MOST_WORK if work is None else check_number("work", work, least=0)
    started = time.perf_counter()
    proved, said = verdict(file, *folders, work=most)
    seconds = time.perf_counter() - started
    return CheckedProof(status="proved" if proved else "open", reason=said, seconds=seconds)


def _pair(strings: Any) -> tuple[Any, Any]:
    if not isinstance(strings, tuple) or len(strings) != 2:
        raise WrongTypeError(
            "strings must be edits(string, space), prefixes(task, lengths) or a pair of task and "
            f"lengths, got {shown(strings)}"
        )
    return strings


def _property(claim: str | int | None) -> str:
    if isinstance(claim, int):
        raise CertifyError(f"a claim about prefixes is a name, such as 'any_token', not {claim}")
    return "any_token" if claim is None else claim
