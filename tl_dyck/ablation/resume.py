"""Where a run of fine-tuning stands, on disk: one JSON file, and one of tensors.

The former names the latter; each is whole or absent.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from tl_dyck.files import CorruptFileError, read_json, read_tensors, remove_leftovers
from tl_dyck.records import write_with_tensors

__all__ = ["load_state", "save_state"]

_FORMAT = "tl_dyck.ablation/2"

#: Numbers that belong to the identity of a run, by what they are of; None for what is not finite.
Numbers = Mapping[str, Sequence[float | None]]


def save_state(
    folder: Path,
    name: str,
    identity: dict[str, Any],
    facts: dict[str, Any],
    tensors: dict[str, torch.Tensor],
    *,
    numbers: Numbers,
) -> None:
    """Save a state, then drop the one before.

    Args:
        folder: exists.
        name: of the run in that folder.
        identity: what defines the run.
        facts: JSON values; "step" among them.
        tensors: the rest.
        numbers: defines the run as well, up to rounding.
    """
    file = f"{name}-{facts['step']}.safetensors"
    saved = {"format": _FORMAT, "identity": identity, "numbers": numbers, "facts": facts}
    write_with_tensors(folder / f"{name}.json", saved, tensors, file)


def load_state(
    folder: Path, name: str, identity: dict[str, Any], *, numbers: Numbers, tolerance: float
) -> tuple[dict[str, Any], dict[str, torch.Tensor]] | None:
    """Load the state that `save_state` saved; None if there is none.

    Args:
        folder: exists.
        name: of the run in that folder.
        identity: what defines the run; must be the same.
        numbers: likewise, but equal if they differ by rounding only: other machines and other
            numbers of threads compute other last digits.
        tolerance: what counts as rounding, as a share of the largest of all the numbers.

    Raises:
        CorruptFileError: altered, or of another run.
    """
    remove_leftovers(folder)
    path = folder / f"{name}.json"
    if not path.exists():
        return None
    saved = read_json(path)
    if (
        not isinstance(saved, dict)
        or saved.get("format") != _FORMAT
        or not isinstance(saved.get("identity"), dict)
    ):
        raise CorruptFileError(
            f"{str(path)!r} is not a run of this version ({_FORMAT}); delete it to start again"
        )
    differ = [key for key in identity if saved["identity"].get(key) != identity[key]]
    if not differ:  # or else they differ because that does
        there = saved.get("numbers")
        differ = _different(there if isinstance(there, dict) else {}, numbers, tolerance)[:1]
    if differ or saved["identity"] != identity:
        raise CorruptFileError(
            f"{str(path)!r} is of another run: it differs in {', '.join(differ) or 'its fields'}. "
            "Choose another folder, or delete this one."
        )
    if (
        not isinstance(saved.get("facts"), dict)
        or saved.get("tensors") != f"{name}-{saved['facts'].get('step')}.safetensors"
    ):
        raise CorruptFileError(f"{str(path)!r} does not describe a run; delete it to start again")
    return saved["facts"], read_tensors(folder / saved["tensors"], saved.get("sha256"))


def _different(found: dict[str, Any], wanted: Numbers, tolerance: float) -> list[str]:
    """The names of the numbers that differ by more than rounding."""
    lists = {name: values for name, values in found.items() if isinstance(values, list)}
    known = [
        value
        for values in (*lists.values(), *wanted.values())
        for value in values
        if isinstance(value, float)
    ]
    most = tolerance * max(map(abs, known), default=0.0)

    def same(a: object, b: float | None) -> bool:
        return a is b is None or (
            isinstance(a, float) and isinstance(b, float) and abs(a - b) <= most
        )

    return [
        name
        for name, values in wanted.items()
        if len(lists.get(name, ())) != len(values) or not all(map(same, lists[name], values))
    ]
