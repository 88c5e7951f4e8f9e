"""Cases from a seed, made once and handed out in copies, by kinds of model that others bring.

Knows: what a kind of case is, and that the same seed gives the same case.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, final

import numpy as np

from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.protocol import COLUMNS, Case, Fact, JudgeError, column_of
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_seed, shown
from tl_dyck.kit.registry import Registry, RegistryError, described, unknown_name
from tl_dyck.language import DyckLanguage
from tl_dyck.tasks import DyckTask

_SEEDS = 2**64  # a seed with a key is key times this, and the seed
KEYS = 2**128

#: Longest prefixes that "stack" and "same" ask about, in brackets.
LONGEST = 100
_MOST = 700  # prefixes that are enumerated


def _built(kind: str) -> str:
    return ""


@final
@checked
@dataclass(frozen=True, kw_only=True)
class CaseKind:
    """How cases of a kind of model are made.

    Attributes:
        make: called with the name of the kind, a seed and the knobs that are given; returns the
            case, and what is asked about it. The same arguments give the same case.
        knobs: names of what may be given.
        group: of the name of the kind, which models have columns of their own: "trained" ones,
            "hidden" ones, of a task of `small_tasks.TASKS`; "" for others.
    """

    make: Callable[[str, int, Mapping[str, Any]], tuple[Case, list[Fact]]]
    knobs: Sequence[str] = ()
    group: Callable[[str], str] = _built

    def __post_init__(self) -> None:
        object.__setattr__(self, "knobs", tuple(self.knobs))


def _check(name: str, kind: Any) -> None:
    if not isinstance(kind, CaseKind):
        raise RegistryError(f"kind of case {name!r} is no CaseKind, but {described(kind)}")


case_kinds: Registry[CaseKind] = Registry("kind of case", "tl_dyck.cases", _check)
register_kind = case_kinds.register
"""Registers a `CaseKind` of your own: ``register_kind("mine")(CaseKind(make=…))``."""


def group_of(kind: str) -> str:
    """Which models have columns of their own, see `column_of`: by task, or trained ones; or ""."""
    return case_kinds.get(kind).group(kind) if kind in case_kinds else ""


def list_kinds() -> list[str]:
    """The kinds of model that there are."""
    return case_kinds.names()


def with_key(seed: int, key: int) -> int:
    """A seed of a private suite: nobody has another one of that key without it."""
    return key * _SEEDS + seed


@lru_cache(maxsize=64)  # by the object, too: a name may be taken over
def _make_once(
    made_by: CaseKind, kind: str, seed: int, knobs: tuple[tuple[str, Any], ...]
) -> SealedCase:
    made: Any = made_by.make(kind, seed, dict(knobs))
    types = [*map(type, made)] if isinstance(made, tuple) else []
    if types != [Case, list] or {*map(type, made[1])} - {Fact}:
        raise JudgeError(f"kind {kind!r} makes {shown(made)}, not a Case and a list of Facts")
    for column in {column_of(fact.question.kind, made_by.group(kind)) for fact in made[1]}:
        if column not in COLUMNS:  # tables and pages would leave it out
            raise unknown_name(f"column of kind {kind}", column, COLUMNS)
    return SealedCase(kind, seed, *made)


def sealed_case(kind: str, seed: int, **knobs: Any) -> SealedCase:
    """What `make_case` gives copies of."""
    made_by = case_kinds.get(kind)
    for name, value in knobs.items():
        if name not in made_by.knobs:
            raise unknown_name(f"knob of {kind}", name, made_by.knobs)
        if not isinstance(value, (str, int, float, np.number)):
            raise WrongTypeError(f"knob {name} must be a number or a name, got {value!r:.80}")
    key = 0
    if isinstance(seed, int) and not isinstance(seed, bool) and _SEEDS <= seed < KEYS * _SEEDS:
        key, seed = divmod(seed, _SEEDS)
    seed = with_key(check_seed(seed), key)
    return _make_once(made_by, kind, seed, tuple(sorted(knobs.items())))


@checked
def make_case(kind: str, seed: int, **knobs: Any) -> tuple[Case, tuple[Fact, ...]]:
    """A case and all that is known of it. The case is yours: nobody else sees what you change.

    Args:
        kind: one of `list_kinds`.
        seed: the same seed gives the same case.
        **knobs: of `CaseKind.knobs`; what is not given is drawn.

    Raises:
        UnknownNameError: no such kind, or knob.
        WrongTypeError: the seed is no integer, or a knob not of its type.
        WrongValueError: the seed is negative or too large, or a knob out of its range.
        JudgeError: the model does not solve its task, or an answer hangs on rounding.
    """
    sealed = sealed_case(kind, seed, **knobs)
    return sealed.copy(), sealed.facts


def small_task(n_types: int, max_depth: int, length: int | None = None) -> DyckTask:
    """A task whose prefixes can all be listed: of `length` brackets at most."""
    language = DyckLanguage(n_types, max_depth)
    if length is None:
        # 5 brackets: less asks about no stack worth the name; 11: longer
        # ones are too many in any case
        length = max((n for n in range(5, 12) if language.count(n, "prefix") <= _MOST), default=0)
        if not length:
            raise JudgeError(
                f"Dyck({n_types}, {max_depth}) has more than {_MOST} prefixes of 5 brackets, "
                "too many to list: choose fewer types, or less depth"
            )
    return DyckTask(
        name=f"small-{language.n_types}-{language.max_depth}",
        n_types=language.n_types,
        max_depth=language.max_depth,
        mode="prefix",
        train_lengths=tuple(range(1, length + 1)),
        long_lengths=(LONGEST // 2, LONGEST),
    )
