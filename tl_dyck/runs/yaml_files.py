"""A sweep from a YAML or JSON file, with a message for everything that can be wrong with one."""

from __future__ import annotations

import itertools
import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from tl_dyck.files import LARGEST_JSON, LARGEST_YAML, CorruptFileError, one_line, read_regular
from tl_dyck.runs.spec import Sweep, SweepError

__all__ = ["load_sweep"]

_MAX_EXPANDED = 1_000_000  # values that aliases in YAML may stand for


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
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        data = read_regular(path, LARGEST_JSON if kind == "JSON" else LARGEST_YAML)
    except CorruptFileError as error:
        raise SweepError(f"cannot read the sweep: {error}") from error
    except OSError as error:
        raise SweepError(f"cannot read the sweep {str(path)!r}: {error.strerror}") from error
    try:
        values = (
            json.loads(data, object_pairs_hook=_unique)
            if kind == "JSON"
            else yaml.load(data, Loader=_Loader)
        )
    # what YAML's constructors raise for ``!!int x``, ``2026-99-99``, ``!!bool x`` is not always a
    # YAMLError
    except (
        yaml.YAMLError,
        ValueError,
        TypeError,
        KeyError,
        AttributeError,
        RecursionError,
    ) as error:
        raise SweepError(f"{str(path)!r} is not valid {kind}: {one_line(error)}") from error
    try:
        return Sweep.from_dict(values)
    except (SweepError, RecursionError) as error:
        raise SweepError(f"{str(path)!r}: {error}") from error


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, in which no key may stand twice."""
    for name, number in Counter(name for name, _ in pairs).items():
        if number > 1:
            raise ValueError(f"{name!r} stands twice")
    return dict(pairs)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml comes without types
    """YAML that reads ``1e-3`` as a number, as YAML 1.2 does.

    It refuses keys that stand twice and alias bombs.
    """

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        sizes: dict[int, int] = {}
        if node is not None and _expanded(node, sizes) > max(_MAX_EXPANDED, 10 * len(sizes)):
            raise yaml.composer.ComposerError(
                None, None, "its aliases stand for too many values", node.start_mark
            )
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        if isinstance(node, yaml.MappingNode):
            keys = Counter(key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode))
            for key, number in keys.items():
                if number > 1:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key!r} stands twice", node.start_mark
                    )
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


def _expanded(node: Any, sizes: dict[int, int]) -> int:
    """Count the values that a node stands for when its aliases are written out."""
    known = sizes.get(id(node))
    if known == 0:
        raise yaml.composer.ComposerError(
            None, None, "an alias stands inside of what it stands for", node.start_mark
        )
    if known is None:
        sizes[id(node)] = 0
        inner = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            inner = itertools.chain.from_iterable(inner)
        known = sizes[id(node)] = 1 + sum(_expanded(child, sizes) for child in inner)
    return known


_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)
