"""What a sweep is asked to do: points (configurations), and how many seeds of each."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, final

import numpy as np

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import (
    WrongTypeError,
    WrongValueError,
    check_distinct,
    check_integer,
    check_seed,
    check_several,
    shown,
)
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.files import one_line
from tl_dyck.kit.registry import unknown_name
from tl_dyck.runs.yaml_files import parse_yaml, read_values

#: One configuration: parameter, dotted where it belongs to something (``training.steps``), to JSON
#: value.
Point = dict[str, Any]

_KEYS = ("experiment", "seeds", "common", "grid", "list")

_LONGEST_SETTING = 100_000  # characters
_MAX_RUNS = 1_000_000  # of one sweep, and seeds of one point


class SweepError(DyckError, ValueError):
    """A sweep that cannot be run: not a sweep's file, a parameter given twice, an empty axis."""


@final
@dataclass(frozen=True, kw_only=True)
class Sweep:
    """A sweep: every point of a grid, or of a list, or of both, with every seed.

    A point is a dictionary of parameters; what they mean is the experiment's business. With both,
    every combination of the grid is made for every item of the list. The seed is no parameter but
    an axis of its own, over which results are aggregated.

    Attributes:
        grid: parameter to the values it takes.
        list: points one by one; one that has the key ``seeds`` is done with these instead.
        common: parameters that all points share.
        seeds: of every point: a list, n for 0 to n − 1, or where they start and how many
            (``start``, ``count``).
        experiment: name of a registered experiment.

    Raises:
        SweepError: nothing to do, too much to do, something twice, or a value that JSON cannot
            hold.
    """

    grid: Mapping[str, Any] = field(default_factory=dict)
    list: Sequence[Any] = ()
    common: Mapping[str, Any] = field(default_factory=dict)
    seeds: Sequence[int] | Mapping[str, int] | int = 8
    experiment: str = "train"

    def __post_init__(self) -> None:
        if not isinstance(self.experiment, str) or not self.experiment:
            raise SweepError(f"experiment must be a name, not {shown(self.experiment)}")
        if not isinstance(self.list, (list, tuple)):
            raise SweepError(f"list must be a list of points, not {shown(self.list)}")
        object.__setattr__(self, "seeds", _seeds(self.seeds))
        grid = {name: _values(name, values) for name, values in _flat(self.grid, "grid").items()}
        common = _flat(self.common, "common")
        items = tuple(_item(item, f"list[{index}]") for index, item in enumerate(self.list))
        for index, item in enumerate(items):
            for other, where in ((common, "common"), (grid, "grid")):
                _no_overlap(item, f"list[{index}]", other, where)
        _no_overlap(common, "common", grid, "grid")
        if "seeds" in common or "seeds" in grid:
            raise SweepError(
                "seeds is no parameter: it stands beside common and grid, or in a point of the list"
            )
        object.__setattr__(self, "grid", grid)
        object.__setattr__(self, "common", common)
        object.__setattr__(self, "list", items)
        if self.n_runs > _MAX_RUNS:
            raise SweepError(
                f"{self.size} are too many for one sweep (at most {_MAX_RUNS:,}): make several"
            )

    @property
    def all_seeds(self) -> tuple[int, ...]:
        """The seeds of all points that have none of their own, whatever they were given as."""
        seeds: Any = self.seeds
        return tuple(seeds)

    @property
    def n_points(self) -> int:
        """Number of configurations."""
        # no list is one item without parameters; no grid is the empty product, 1
        return max(1, len(self.list)) * math.prod(len(values) for values in self.grid.values())

    @property
    def n_runs(self) -> int:
        """Number of configurations with their seeds."""
        in_grid = math.prod(len(values) for values in self.grid.values())
        return in_grid * sum(len(item.get("seeds", self.all_seeds)) for item in self.list or ({},))

    @property
    def size(self) -> str:
        """Points, seeds and runs, in words; a range where the numbers of seeds differ."""
        each = sorted({len(item.get("seeds", self.all_seeds)) for item in self.list or ({},)})
        seeds = f"{each[0]:,}" if len(each) == 1 else f"{each[0]:,} to {each[-1]:,}"
        return f"{self.n_points:,} points × {seeds} seeds = {self.n_runs:,} runs"

    @property
    def axes(self) -> tuple[str, ...]:
        """The parameters that differ between points, those of the grid first."""
        varied = dict.fromkeys(self.grid)
        for name in dict.fromkeys(name for item in self.list for name in item if name != "seeds"):
            if len({repr(item.get(name)) for item in self.list}) > 1:
                varied[name] = None
        return tuple(varied)

    @property
    def parameters(self) -> tuple[str, ...]:
        """Every parameter: what all points share, those of the list, those of the grid."""
        listed = (name for item in self.list for name in item if name != "seeds")
        return tuple(dict.fromkeys([*self.common, *listed, *self.grid]))

    def points(self) -> Iterator[Point]:
        """Every configuration, one after the other; the last axis of the grid varies fastest."""
        for point, _ in self.points_and_seeds():
            yield point

    def points_and_seeds(self) -> Iterator[tuple[Point, tuple[int, ...]]]:
        """Every configuration with its seeds."""
        for item in self.list or ({},):
            listed = {name: value for name, value in item.items() if name != "seeds"}
            for values in itertools.product(*self.grid.values()):
                point = {**self.common, **listed, **dict(zip(self.grid, values, strict=True))}
                yield point, item.get("seeds", self.all_seeds)

    @checked
    def with_settings(self, settings: Mapping[str, Sequence[Any]], seeds: Any = None) -> Sweep:
        """The sweep with some parameters set, wherever they stood, and with other seeds.

        Args:
            settings: parameter to its values: one is shared by all points, several are an axis of
                the grid.
            seeds: as in a sweep's file; None for those that it has.

        Raises:
            SweepError: points become the same, or anything that `Sweep` refuses.
        """
        kept = [
            {name: value for name, value in part.items() if name not in settings}
            for part in (self.grid, self.common, *self.list)
        ]
        one = {name: values[0] for name, values in settings.items() if len(values) == 1}
        several = {name: values for name, values in settings.items() if len(values) != 1}
        return Sweep(
            grid={**kept[0], **several},
            common={**kept[1], **one},
            list=kept[2:],
            seeds=self.seeds if seeds is None else seeds,
            experiment=self.experiment,
        )

    def to_dict(self) -> dict[str, Any]:
        """As JSON values, which `from_dict` reads; runs of seeds as their start and number."""
        return {
            "experiment": self.experiment,
            "seeds": _short(self.all_seeds),
            "common": dict(self.common),
            "grid": {name: list(values) for name, values in self.grid.items()},
            "list": [
                {**item, **({"seeds": _short(item["seeds"])} if "seeds" in item else {})}
                for item in self.list
            ],
        }

    @classmethod
    @checked
    def from_dict(cls, values: Any) -> Sweep:
        """Read what a YAML or JSON file holds.

        Raises:
            SweepError: an unknown key, or anything that `Sweep` refuses.
        """
        if not isinstance(values, Mapping):
            raise SweepError(
                f"a sweep is a mapping with the keys {', '.join(_KEYS)}, not {shown(values)}"
            )
        for name in values:
            if name not in _KEYS:
                raise SweepError(str(unknown_name("key of a sweep", name, _KEYS)))
        given = {name: value for name, value in values.items() if value is not None}
        return cls(**given)


@checked
def load_sweep(source: Sweep | Mapping[str, Any] | str | Path) -> Sweep:
    """A sweep from a file (YAML, or JSON by its suffix), a mapping, or itself.

    Raises:
        SweepError: the file is not there, cannot be read, or does not hold a sweep; the message
            names it.
    """
    if isinstance(source, Sweep):
        return source
    if isinstance(source, Mapping):
        return Sweep.from_dict(source)
    path = Path(source)
    values = read_values(path, "the sweep", SweepError)
    try:
        return Sweep.from_dict(values)
    except (SweepError, RecursionError) as error:
        raise SweepError(f"{str(path)!r}: {error}") from error


def read_setting(text: str) -> tuple[str, list[Any]]:
    """A parameter and its values from a text such as ``training.learning_rate=3e-3,6e-3``.

    Values are read as in a sweep's file; a value that is a list has brackets: ``lengths=[2,4]``.

    Raises:
        SweepError: it has no equals sign or no value, or cannot be read.
    """
    if len(text) > _LONGEST_SETTING:
        raise SweepError(f"{text!r:.40}… has {len(text):,} characters; put long lists into a file")
    name, equals, values = (part.strip() for part in text.partition("="))
    try:
        found = parse_yaml(f"[{values}]") if name and equals else []
    except (ValueError, RecursionError) as error:
        raise SweepError(f"{text!r:.80}: {one_line(error)}") from error
    if not found or any(isinstance(value, dict) for value in found):
        raise SweepError(
            f"{text!r}: give a parameter and its value, or several with commas between, such as "
            "training.learning_rate=3e-3,6e-3"
        )
    return name, found


def _flat(values: Any, where: str) -> dict[str, Any]:
    """Nested mappings as one with dotted names."""
    if not isinstance(values, Mapping):
        raise SweepError(f"{where} must map parameters to values, not {shown(values)}")
    flat: dict[str, Any] = {}
    for name, value in values.items():
        if not isinstance(name, str) or not name:
            raise SweepError(f"{where}: the name of a parameter is a string, not {name!r}")
        if isinstance(value, Mapping) and value:
            deeper = _flat(value, f"{where}: {name}")
            inner = {f"{name}.{key}": entry for key, entry in deeper.items()}
        else:
            inner = {name: _plain(value, f"{where}: {name}")}
        _no_overlap(inner, where, flat, where)
        flat |= inner
    return flat


def _plain(value: Any, where: str) -> Any:
    """A JSON value that equals `value`; tuples become lists, and numpy's numbers Python's."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, (tuple, list, range)):
        return [_plain(entry, where) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        raise SweepError(f"{where}: {value} cannot be kept in JSON")
    if value is None or isinstance(value, (bool, int, float, str)) or value == {}:
        return value
    raise SweepError(
        f"{where}: {shown(value)} is {type(value).__name__}; a value is a number, a string, "
        "or a list of them"
    )


def _values(name: str, values: Any) -> tuple[Any, ...]:
    if not isinstance(values, (list, tuple)):
        raise SweepError(
            f"grid: {name} must be a list of values, not {shown(values)}; "
            "a parameter with one value goes to common"
        )
    if not values:
        raise SweepError(f"grid: {name} has no values")
    seen: set[str] = set()
    for value in values:
        if repr(value) in seen:
            raise SweepError(f"grid: {name} has the value {shown(value)} twice")
        # `repr`: 1, 1.0 and True are equal, and mean different things
        seen.add(repr(value))
    return tuple(values)


def _no_overlap(one: Mapping[str, Any], where: str, other: Mapping[str, Any], there: str) -> None:
    for name in one:
        if name in other:
            raise SweepError(f"{name} is given twice: in {where} and in {there}")


def _item(given: Any, where: str) -> Point:
    """A point of a list, flat; its seeds, if it has its own, as a tuple."""
    if not isinstance(given, Mapping) or "seeds" not in given:
        return _flat(given, where)
    point = {name: value for name, value in given.items() if name != "seeds"}
    return {**_flat(point, where), "seeds": _seeds(given["seeds"])}


def _short(seeds: Sequence[int]) -> Any:
    """Consecutive seeds as where they start and how many."""
    # two seeds are as short as a list
    if len(seeds) > 2 and list(seeds) == list(range(seeds[0], seeds[0] + len(seeds))):
        return {"start": seeds[0], "count": len(seeds)}
    return list(seeds)


def _seeds(seeds: Any) -> tuple[int, ...]:
    start = 0
    if isinstance(seeds, Mapping):
        if set(seeds) != {"start", "count"}:
            raise SweepError(
                f"seeds as a mapping has the keys start and count, not {', '.join(map(str, seeds))}"
            )
        start, seeds = seeds["start"], seeds["count"]
    try:
        if isinstance(seeds, (str, bytes)) or not isinstance(seeds, Sequence):
            count = check_integer("the number of seeds", seeds, most=_MAX_RUNS)
            start = check_seed(start, "the first seed")
            seeds = range(start, start + count)
        given = check_several("seeds", seeds, most=_MAX_RUNS)
        return check_distinct("seeds", [check_seed(seed, "a seed") for seed in given])
    except (WrongTypeError, WrongValueError) as error:
        raise SweepError(f"seeds: {error}") from None
