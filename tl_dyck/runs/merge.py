"""Folders of several machines as one."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import CorruptFileError, copy_file, read_regular, write_bytes
from tl_dyck.runs.spec import SweepError
from tl_dyck.runs.store import ENDINGS, Store


@final
@dataclass(frozen=True, kw_only=True)
class MergeReport:
    """The outcome of a merge.

    Attributes:
        copied: runs that were copied.
        unchanged: runs that were there already, with the same metrics, or that a process is doing
            there now.
        conflicts: ids of runs that were there already, with other metrics; what was there stays.
        corrupt: records that could not be read, and were left where they are.
        skipped: links, pipes and the like in the runs' folders, which were not followed and not
            copied.
    """

    copied: int
    unchanged: int
    conflicts: tuple[str, ...]
    corrupt: int = 0
    skipped: tuple[Path, ...] = ()


@checked
def merge_sweeps(into: str | Path, folders: Sequence[str | Path]) -> MergeReport:
    """Copy the runs of several folders into one; may be repeated, also after an interruption.

    A record beats a failure. A run that is in two folders should be the same in both; where its
    metrics differ, by more than another processor's rounding, something that defines it was not
    written down. Only ordinary files in ordinary folders are copied: a link could lead anywhere.

    Args:
        into: a folder with a sweep, or a new one, which becomes that of the first folder.
        folders: with sweeps of this version.

    Raises:
        CorruptFileError: a folder holds no sweep, or one of another version. Nothing is copied
            then.
        OSError: `into` cannot be written.
    """
    sources = [Store.at(folder) for folder in folders]
    if not sources:
        raise SweepError("there is nothing to merge: name at least one folder")
    (sweep, points), *_ = [source.plan() for source in sources]
    target = Store.at(into)
    if (target.folder / "sweep.json").exists():
        target.plan()  # which refuses another version
    else:
        target = Store.create(into, sweep.to_dict(), points)
    copied, unchanged, corrupt, conflicts = 0, 0, 0, []
    skipped: list[Path] = []
    for source in sources:
        if source.folder == target.folder:
            continue
        for path in sorted((source.folder / "points").glob("*.json")):
            if path.is_symlink() or not path.is_file():
                skipped.append(path)
            elif not (target.folder / "points" / path.name).exists():
                write_bytes(target.folder / "points" / path.name, read_regular(path))
        for run, status in source.names():
            if status == "started":
                continue
            ending = ENDINGS[status]
            try:
                record = source.read(source.path(run, ending))
            except CorruptFileError:
                corrupt += 1
                continue
            with target.claim(run) as mine:
                # looked at under the lock: it cannot change any more
                known = target.ended(run, aside=mine)
                if status == known == "done" and not _same(
                    record, target.read(target.path(run, ".json"))
                ):
                    conflicts.append(run)
                # a process is at it there, or nothing better has come: a record beats a failure
                elif not mine or known == "done" or known == status:
                    unchanged += 1
                else:
                    if status == "done":
                        skipped += _copy_folder(source.path(run), target.path(run))
                    target.path(run).parent.mkdir(exist_ok=True)
                    write_bytes(target.path(run, ending), read_regular(source.path(run, ending)))
                    if status == "done":
                        target.forget_failure(run)
                    copied += 1
    return MergeReport(
        copied=copied,
        unchanged=unchanged,
        conflicts=tuple(conflicts),
        corrupt=corrupt,
        skipped=tuple(skipped),
    )


def _copy_folder(source: Path, target: Path) -> list[Path]:
    """Copy ordinary files; the record, which comes last, says that all are there.

    Returns what was skipped.
    """
    if not os.path.lexists(source):
        return []  # the run kept its record only
    if source.is_symlink() or not source.is_dir():
        return [source]
    skipped = []
    with os.scandir(source) as entries:
        here = sorted(entries, key=lambda entry: entry.name)
    for entry in here:
        path = Path(entry.path)
        if entry.is_dir(follow_symlinks=False):
            skipped += _copy_folder(path, target / entry.name)
        elif not entry.is_file(follow_symlinks=False):
            skipped.append(path)
        # what a process was writing when it died
        elif not entry.name.startswith((".tl_dyck-", ".lock")):
            target.mkdir(parents=True, exist_ok=True)
            copy_file(path, target / entry.name)
    return skipped


def _same(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether the metrics agree, but for rounding and for times."""
    mine, theirs = one.get("metrics", {}), other.get("metrics", {})
    if mine.keys() != theirs.keys():
        return False
    for name, value in mine.items():
        if "seconds" in name:
            continue
        known = theirs[name]
        numbers = all(isinstance(number, float) for number in (value, known))
        # processors sum in other orders, and training makes that larger; integers and texts must
        # agree
        if value != known and not (numbers and np.isclose(value, known, rtol=1e-3, atol=1e-6)):
            return False
    return True
