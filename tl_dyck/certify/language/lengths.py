"""Lengths that are asked about.

Knows: which there may be, and which of them were left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, SupportsIndex

from tl_dyck.certify.protocol import CertifyError
from tl_dyck.kit.check import check_length, check_lengths

_LONGEST = 1000  # brackets, as checkers of proofs have it

LONGEST_UNSAID = 28
"""Up to so many symbols, where nobody says: a few seconds for a trained model."""


def lengths_asked(lengths: SupportsIndex | Iterable[SupportsIndex], least: int) -> tuple[int, ...]:
    """Lengths in brackets, the shortest first, each once.

    Raises:
        ValueError: one is below `least` or above 1,000, or there are none.
        TypeError: they are no integers.
    """
    return tuple(sorted(set(check_lengths(lengths, least=least, most=_LONGEST))))


def lengths_up_to(lengths: SupportsIndex | Iterable[SupportsIndex]) -> tuple[int, ...]:
    """The same, of which one integer means every length up to it."""
    if isinstance(lengths, (str, bytes)) or not isinstance(lengths, Iterable):
        return tuple(range(check_length(lengths, "lengths", most=_LONGEST) + 1))
    return lengths_asked(lengths, 0)


def lengths_unsaid(task: Any, *, ahead: bool = False) -> int | list[int]:
    """Those of the strings that a task asks about, where nobody says.

    Args:
        task: with places or without.
        ahead: of a model that looks ahead, which reads whole strings.
    """
    asked = getattr(task, "asked", None)
    if asked is None:
        return LONGEST_UNSAID
    return [len(task.places)] if ahead else [place + 1 for place in asked]


def first_gap(spoken: Sequence[int], lengths: Sequence[int], name: str, of: Any) -> int | None:
    """The shortest length that was left out though a longer one was asked about; None for none.

    Args:
        spoken: how many strings of each length the claim speaks of.
        lengths: asked about.
        name: of the claim.
        of: the language.

    Raises:
        CertifyError: it speaks of no string of any of the lengths.
    """
    if not any(spoken[length] for length in lengths):
        said = f"{lengths[0]}" + f" to {lengths[-1]}" * (len(lengths) > 1)
        raise CertifyError(
            f"{name} says nothing of strings of {of} of length {said}; ask for other lengths"
        )
    skipped = sorted({n for n in range(lengths[-1]) if spoken[n]} - {*lengths})
    return skipped[0] if skipped else None


def refuse_long(n_ctx: int, longest: int, bos: int = 1) -> None:
    """Refuse strings that a model cannot read.

    Raises:
        CertifyError: with so many tokens before them they are longer than its n_ctx.
    """
    if longest + bos > n_ctx:
        raise CertifyError(
            f"strings of {longest} symbols have {longest + bos} tokens, but the model reads "
            f"{n_ctx} (n_ctx); ask for lengths up to {n_ctx - bos}"
        )
