"""Where saved models are: one folder, a folder of them, or everything that a sweep trained."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import final

from tl_dyck.files import CorruptFileError
from tl_dyck.registry import unknown_name
from tl_dyck.runs.results import load_results
from tl_dyck.runs.spec import SweepError
from tl_dyck.runs.store import Store

__all__ = ["SavedModel", "find_models"]


@final
@dataclass(frozen=True)
class SavedModel:
    """A folder that `load_model` reads.

    Attributes:
        folder: where it is.
        name: what to call it: of a sweep's run, its place on the axes and its seed; else the end of
            the path.
    """

    folder: Path
    name: str


def find_models(folder: str | Path, only: Mapping[str, str] | None = None) -> list[SavedModel]:
    """The saved models of a folder: itself, a sweep's (a study's, say) in order, or those below it.

    Args:
        folder: of a model, of a sweep, or of whatever holds models.
        only: of a sweep, parameters and what they must be, as text:
            ``{"model": "gpt", "seed": "3"}``.

    Raises:
        CorruptFileError: there are none.
        SweepError: there is no such parameter, or the folder is not a sweep's.
    """
    path = Path(folder)
    if (path / "sweep.json").exists():
        return _of_sweep(path, only or {})
    if only:
        raise SweepError(
            f"{str(path)!r} is not a sweep's: there are no {', '.join(only)} to choose by"
        )
    if (path / "config.json").exists():
        found = [path]
    else:
        found = sorted({config.parent for config in path.rglob("config.json")}, key=_natural)
    if not found:
        raise CorruptFileError(
            f"there is no saved model in {str(path)!r}: no config.json, there or below"
        )
    parts = [place.resolve().parts for place in found]
    common = min(len(part) for part in parts) - 1
    while any(part[:common] != parts[0][:common] for part in parts):
        common -= 1
    if len(found) == 1:
        run = path.resolve()
        sweep = run.parent.parent.parent  # of the root, itself
        if run.with_suffix(".json").is_file() and (sweep / "sweep.json").exists():
            named = {model.folder.name: model.name for model in _of_sweep(sweep, {})}
            return [SavedModel(path, named[run.name])] if run.name in named else []
        common = max(0, len(parts[0]) - 2)
    return [
        SavedModel(place, "-".join(part[common:])) for place, part in zip(found, parts, strict=True)
    ]


def _of_sweep(path: Path, only: Mapping[str, str]) -> list[SavedModel]:
    store = Store.open(path)
    sweep, _ = store.plan()
    results = load_results(path, failures=False)
    for name, value in only.items():
        if name not in results:
            raise SweepError(str(unknown_name("parameter", name, list(map(str, results)))))
        results = results[results[name].astype(str) == value]
    shown = (
        ["group"]
        if "group" in results
        else [name for name in sweep.axes if name in results] or ["model"]
    )
    found = []
    for row in results.to_dict("records"):
        place = path / store.path(row["id"]).relative_to(store.folder)
        if (place / "config.json").exists():
            words = [str(row[name]) for name in shown if row.get(name) is not None]
            found.append(SavedModel(place, "-".join([*words, f"seed-{row['seed']}"])))
    if not found:
        asked = "".join(f", {name} {value}" for name, value in only.items())
        raise CorruptFileError(f"the runs in {str(path)!r} kept no models{asked}")
    return found


def _natural(path: Path) -> list[tuple[int, str]]:
    """Numbers in their order."""
    return [
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.split(r"(\d+)", path.as_posix())
    ]
