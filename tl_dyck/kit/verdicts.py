"""What may be said of a claim: proved, refuted or open. One vocabulary for edits and languages.

Knows: the words, and those that stood for them before, which are understood for one release
more: in comparisons (``certificate.status == "certified"``), as arguments, and in saved files. A
column of a table holds plain text, which is equal to today's word alone.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any, Literal, cast, get_args

Verdict = Literal["proved", "refuted", "open"]

VERDICTS: tuple[Verdict, ...] = get_args(Verdict)

#: How verdicts on edits were called.
_FORMER: Mapping[str, Verdict] = {
    "certified": "proved",
    "falsified": "refuted",
    "unknown": "open",
    "undecided": "open",  # of tables of sentences
}
#: What the numbers of trained models, and of classifiers of sentences, were called in records.
_FORMER_SHARES = {"certified_share": "proved_share", "falsified_share": "refuted_share"}


class _Status(str):
    """A verdict that is also equal to the word that stood for it."""

    __slots__ = ()

    def __eq__(self, other: object) -> bool:
        if isinstance(other, str) and other in _FORMER:
            _warn(str(other))
            return str(self) == _FORMER[other]
        return str.__eq__(self, other) is True

    def __ne__(self, other: object) -> bool:
        return not self == other

    __hash__ = str.__hash__

    def __str__(self) -> str:
        return str.__str__(self)

    def __reduce__(self) -> tuple[Any, ...]:
        return _Status, (str.__str__(self),)


def as_verdict(word: Any) -> Verdict:
    """A verdict, from the word for it or from the one that stood for it.

    Raises:
        ValueError: another word.
    """
    if isinstance(word, str) and word in _FORMER:
        _warn(word)
        word = _FORMER[word]
    if not isinstance(word, str) or word not in VERDICTS:
        raise ValueError(f"a verdict is one of {', '.join(VERDICTS)}, not {word!r}.")
    return cast("Verdict", _Status(word))


def read_verdict(word: str) -> str:
    """A verdict as a saved file has it, in today's words; no file is blamed for its age."""
    return _FORMER.get(word, word)


def read_metrics(metrics: Mapping[str, Any], experiment: str) -> dict[str, Any]:
    """The metrics of a record by today's names; those of other people's experiments as they are."""
    if experiment == "sentences" or metrics.keys() >= _FORMER_SHARES.keys():
        return {_metric(name): value for name, value in metrics.items()}
    return dict(metrics)


def _metric(name: str) -> str:
    word, space, rest = name.partition(" ")  # of sentences: "certified dup:2,sub:2"
    if word == "certified" and space:
        return f"proved {rest}"
    return _FORMER_SHARES.get(name, name)


def former(name: str) -> str:
    """Today's name of a metric that is asked for by its former one; another name as it is."""
    found = _metric(name)
    if found != name:
        _warn(name, found)
    return found


def _warn(word: str, now: str | None = None) -> None:
    """Say what a word is called now."""
    warnings.warn(
        f"{word!r} is called {now or _FORMER[word]!r} now; the former word goes with the next "
        "release",
        DeprecationWarning,
        stacklevel=3,
    )
