"""Where saved models are, and what they are called: the one place that looks models up.

A model's address is its own folder, or a folder of results and its name in there:
``results/study:gpt/seed-3``. In what a sweep (a study, say) left, a name is the model's place on
the axes and its seed; in any other folder, the path from there. ``reference`` is the folder of the
study that comes with the package: ``reference:gpt/seed-3``.
"""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

from tl_dyck.kit.addresses import address_of, split_address
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import CorruptFileError, MissingFileError
from tl_dyck.kit.registry import UnknownNameError, unknown_name
from tl_dyck.runs.results import load_results
from tl_dyck.runs.spec import SweepError
from tl_dyck.runs.store import Store

_LISTED = 12  # names in a message


@final
@dataclass(frozen=True)
class SavedModel:
    """A folder that `load_model` reads.

    Attributes:
        folder: where it is.
        name: what to call it: ``gpt/seed-3``; of a folder that was named itself, the end of its
            path.
        address: what finds it again: ``results/study:gpt/seed-3``, or its folder.
    """

    folder: Path
    name: str
    address: str


def find_model(address: str | Path) -> SavedModel:
    """The one model of an address.

    Raises:
        UnknownNameError: there is no model of that name, or several; the message lists names, the
            nearest first.
        CorruptFileError: the folder is not there, or holds no model.
    """
    found = find_models(address)
    if len(found) == 1:
        return found[0]
    place, name = split_address(address)
    exact = [saved for saved in found if saved.name == name]
    if len(exact) == 1:
        return exact[0]
    raise UnknownNameError(
        f"{str(address)!r} stands for {len(found)} models; name one, such as {found[0].address!r}. "
        f"In {address_of(place)!r} there are {_listed([saved.name for saved in found])}."
    )


def find_models(address: str | Path, only: Mapping[str, str] | None = None) -> list[SavedModel]:
    """The models of an address: one, or all of a folder, those of a sweep in its order.

    Args:
        address: a model's own folder; a folder of models, or of a sweep; or ``folder:name``, where
            the beginning of names, such as ``results/study:gpt``, stands for all of them.
        only: of a sweep, parameters and what they must be, as text:
            ``{"model": "gpt", "seed": "3"}``.

    Raises:
        CorruptFileError: there are none.
        SweepError: there is no such parameter, or the folder is not a sweep's.
        UnknownNameError: there is no such name; the message lists names, the nearest first.
    """
    place, name = split_address(address)
    if not place.exists():
        raise MissingFileError(
            f"there is no folder {str(place)!r}; models are named by their folder, or as in "
            "results/study:gpt/seed-3"
        )
    found = _in_folder(place, only or {})
    # whole parts of a name: "gpt" is not the beginning of "gpt-linear"
    chosen = [saved for saved in found if f"{saved.name}/".startswith(f"{name}/")]
    if name and not chosen:
        names = [saved.name for saved in found]
        # all of them, the nearest first
        near = difflib.get_close_matches(name, names, n=len(names), cutoff=0)
        raise UnknownNameError(
            f"unknown model {name!r} in {address_of(place)!r}. Did you mean {near[0]!r}? "
            f"There are {_listed(near)}."
        )
    return chosen if name else found


@checked
def load_pretrained(
    name: str | Path, folder: str | Path | None = None, *, device: str | None = None
) -> Any:
    """Load a trained model by its name.

    Only weights (safetensors) and JSON are read; nothing is run.

    Args:
        name: family and seed in `folder`, ``"gpt/seed-3"``; without `folder` the whole address,
            ``"results/study:gpt/seed-3"`` or a model's own folder, as the command line takes it.
            ``"reference:gpt/seed-3"`` is of the study that comes with the package: its models,
            and so what is measured of them, are the same on every machine.
        folder: of a study, of a sweep, or of any saved models.
        device: where to put the model; None for TransformerLens' default.

    Returns:
        The model, as `load_model` gives it: a `DyckTransformer`, or an adopted one.

    Raises:
        UnknownNameError: there is no such model, or several; the message names those that there
            are.
        CorruptFileError: the folder or a file of the model is missing or damaged, or weights are
            NaN or infinite.
    """
    from tl_dyck.models import load_model

    address = name if folder is None else f"{folder}:{name}"
    return load_model(find_model(address).folder, device=device)


@checked
def load_models(folder: str | Path, parameters: Mapping[str, Any] | None = None) -> list[Any]:
    """Load the models that the runs of a sweep kept, in the order of the table of results.

    Args:
        folder: of the sweep.
        parameters: columns of the table of results and what they must be
            (``{"model": "gpt", "seed": 3}``); None for all models.

    Raises:
        SweepError: there is no such column.
        CorruptFileError: the folder holds no sweep, or no such run kept a model.
    """
    from tl_dyck.models import load_model

    only = {name: str(value) for name, value in (parameters or {}).items()}
    return [load_model(saved.folder) for saved in _of_sweep(Path(folder), only)]


def _in_folder(path: Path, only: Mapping[str, str]) -> list[SavedModel]:
    if (path / "sweep.json").exists():
        return _of_sweep(path, only)
    if only:
        raise SweepError(
            f"{str(path)!r} is not a sweep's: there are no {', '.join(only)} to choose by"
        )
    if (path / "config.json").exists():
        return [SavedModel(path, _own_name(path), str(path))]
    found = sorted({config.parent for config in path.rglob("config.json")}, key=_natural)
    if not found:
        raise CorruptFileError(
            f"there is no saved model in {str(path)!r}: no config.json, there or below"
        )
    names = [place.relative_to(path).as_posix() for place in found]
    return [
        SavedModel(place, name, f"{path}:{name}") for place, name in zip(found, names, strict=True)
    ]


def _own_name(path: Path) -> str:
    """Of a model whose folder was named: what its sweep calls it, or the end of the path."""
    run = path.resolve()
    sweep = run.parent.parent.parent  # of the root, itself
    if run.with_suffix(".json").is_file() and (sweep / "sweep.json").exists():
        for saved in _of_sweep(sweep, {}):
            if saved.folder.name == run.name:
                return saved.name
    return "/".join(run.parts[-2:]).strip("/")


def _of_sweep(path: Path, only: Mapping[str, str]) -> list[SavedModel]:
    store = Store.at(path)
    sweep, _ = store.plan()
    results = load_results(path, failures=False)
    for name in only:
        if name not in results:
            raise SweepError(str(unknown_name("parameter", name, list(map(str, results)))))
    shown = (
        ["group"]
        if "group" in results
        else [name for name in sweep.axes if name in results] or ["model"]
    )
    found = []
    met: Counter[str] = Counter()
    for row in results.to_dict("records"):
        place = path / store.path(row["id"]).relative_to(store.folder)
        given = [row[name] for name in shown if name in row]
        # NaN where a point does not have the parameter
        words = [str(value) for value in given if value is not None and value == value]
        name = "/".join([*words, f"seed-{row['seed']}"])
        met[name] += 1
        if met[name] > 1:  # of an earlier sweep in this folder: it comes later in the table
            name = f"{name}~{row['id'][:6]}"
        if any(str(row[parameter]) != value for parameter, value in only.items()):
            continue
        if (place / "config.json").exists():
            found.append(SavedModel(place, name, f"{address_of(path)}:{name}"))
    if not found:
        asked = "".join(f", {name} {value}" for name, value in only.items())
        raise CorruptFileError(f"the runs in {address_of(path)!r} kept no models{asked}")
    return found


def _listed(names: list[str]) -> str:
    more = len(names) - _LISTED
    return ", ".join(names[:_LISTED]) + (f", … ({more:,} more)" if more > 0 else "")


def _natural(path: Path) -> list[tuple[int, str]]:
    """Numbers in their order."""
    return [
        # a tuple of either kind compares with the other: seed-9 before seed-10
        (int(part), "") if part.isdigit() else (-1, part)
        for part in re.split(r"(\d+)", path.as_posix())
    ]
