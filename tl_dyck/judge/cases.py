"""Cases from a seed, made once and handed out in copies."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from tl_dyck.judge.built_cases import CONSTRUCTED, KNOBS, construct_case
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.parts import KNOBS_OF_PARTS, parts_case
from tl_dyck.judge.protocol import Case, Fact
from tl_dyck.judge.pruned import PRUNED, prune_case
from tl_dyck.judge.trained_cases import (
    LARGER,
    OF_TASKS,
    SIZES,
    SIZES_OF_TASKS,
    TRAINED,
    task_case,
    task_name,
    train_case,
)
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_seed
from tl_dyck.kit.registry import unknown_name

Maker = Callable[[str, int, Mapping[str, Any]], tuple[Case, list[Fact]]]

_SEEDS = 2**64  # a seed with a key is key times this, and the seed
KEYS = 2**128

#: By kind of model, what makes a case, and the knobs that it has.
_MAKERS: dict[str, tuple[Maker, tuple[str, ...]]] = {
    **dict.fromkeys(CONSTRUCTED, (construct_case, KNOBS)),
    **dict.fromkeys(TRAINED, (train_case, SIZES)),
    **dict.fromkeys(LARGER, (task_case, SIZES_OF_TASKS)),
    **dict.fromkeys(PRUNED, (prune_case, ("shared",))),
    **{kind: (parts_case, knobs) for kind, knobs in KNOBS_OF_PARTS.items()},
    **dict.fromkeys(OF_TASKS, (task_case, SIZES_OF_TASKS)),
}


#: Kinds of model that are trained; all others are built.
TRAINED_KINDS = frozenset({*TRAINED, *LARGER, "post-norm", "pre-norm", *OF_TASKS})


def group_of(kind: str) -> str:
    """Which models have columns of their own, see `column_of`: by task, or trained ones; or ""."""
    if kind in OF_TASKS:
        return task_name(kind)
    if kind in LARGER:
        return kind
    return "trained" if kind in TRAINED_KINDS else ""


def list_kinds() -> list[str]:
    """The kinds of model that there are."""
    return list(_MAKERS)


def with_key(seed: int, key: int) -> int:
    """A seed of a private suite: nobody has another one of that key without it."""
    return key * _SEEDS + seed


@lru_cache(maxsize=64)
def _make_once(kind: str, seed: int, knobs: tuple[tuple[str, Any], ...]) -> SealedCase:
    return SealedCase(kind, seed, *_MAKERS[kind][0](kind, seed, dict(knobs)))


def sealed_case(kind: str, seed: int, **knobs: Any) -> SealedCase:
    """What `make_case` gives copies of."""
    if kind not in list_kinds():
        raise unknown_name("kind of case", kind, _MAKERS)
    known = _MAKERS[kind][1]
    for name, value in knobs.items():
        if name not in known:
            raise unknown_name(f"knob of {kind}", name, known)
        if not isinstance(value, (str, int, float, np.number)):
            raise WrongTypeError(f"knob {name} must be a number or a name, got {value!r:.80}")
    key = 0
    if isinstance(seed, int) and not isinstance(seed, bool) and _SEEDS <= seed < KEYS * _SEEDS:
        key, seed = divmod(seed, _SEEDS)
    return _make_once(kind, with_key(check_seed(seed), key), tuple(sorted(knobs.items())))


@checked
def make_case(kind: str, seed: int, **knobs: Any) -> tuple[Case, tuple[Fact, ...]]:
    """A case and all that is known of it. The case is yours: nobody else sees what you change.

    Args:
        kind: one of `list_kinds`.
        seed: the same seed gives the same case.
        **knobs: fields of `tl_dyck.judge.built_cases.Knobs`; what is not given is drawn.

    Raises:
        UnknownNameError: no such kind, or knob.
        WrongTypeError: the seed is no integer, or a knob not of its type.
        WrongValueError: the seed is negative or too large, or a knob out of its range.
        JudgeError: the model does not solve its task, or an answer hangs on rounding.
    """
    sealed = sealed_case(kind, seed, **knobs)
    return sealed.copy(), sealed.facts
