"""What is read from a YAML or JSON file of a user, with a message for all that can be wrong."""

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
    values = read_values(path, "the sweep", SweepError)
    try:
        return Sweep.from_dict(values)
    except (SweepError, RecursionError) as error:
        raise SweepError(f"{str(path)!r}: {error}") from error


def read_values(path: Path, what: str, refusal: type[ValueError]) -> Any:
    """The values in a YAML file (JSON by its suffix).

    Args:
        path: of the file.
        what: it holds, with its article, for messages.
        refusal: is raised, with a message that names the file, if it is not there or cannot be
            read.
    """
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        data = read_regular(path, LARGEST_JSON if kind == "JSON" else LARGEST_YAML)
    except CorruptFileError as error:
        raise refusal(f"cannot read {what}: {error}") from error
    except OSError as error:
        raise refusal(f"cannot read {what} {str(path)!r}: {error.strerror}") from error
    try:
        return (
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
        raise refusal(f"{str(path)!r} is not valid {kind}: {one_line(error)}") from error


def _unique(pairs: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object, in which no key may stand twice."""
    for name, number in Counter(name for name, _ in pairs).items():
        if number > 1:
            raise ValueError(f"{name!r} stands twice")
    return dict(pairs)


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml comes without types
    """YAML in which a value means the same in YAML 1.1, which PyYAML reads, and in YAML 1.2.

    ``1e-3`` is a number, as in 1.2. What the two versions read differently (``010``, ``1:30``,
    ``no``, ``1_000``, ``2026-01-01``) is refused, and so are keys that stand twice and alias bombs.
    """

    def get_single_node(self) -> Any:
        node = super().get_single_node()
        sizes: dict[int, int] = {}
        if node is not None and _expanded(node, sizes) > max(_MAX_EXPANDED, 10 * len(sizes)):
            raise yaml.composer.ComposerError(
                None, None, "its aliases stand for too many values", node.start_mark
            )
        return node

    def compose_scalar_node(self, anchor: Any) -> Any:
        said = self.peek_event()
        node = super().compose_scalar_node(anchor)
        if node.style is None and node.tag != _TAG + "merge":
            kind = node.tag.removeprefix(_TAG)
            wanted = _core(node.value)
            quoted = kind == "str" and not said.implicit[0]  # !!str 010
            odd_integer = kind == "int" and re.fullmatch(r"[-+]?0[0-9]+", node.value)
            if kind in (*_CORE, "str", *_OLD) and (kind != wanted or odd_integer) and not quoted:
                raise yaml.composer.ComposerError(
                    None,
                    None,
                    f"{node.value!r} means one thing in YAML 1.1 and another in YAML 1.2: "
                    f"write it as a plain number, as true or false, or in quotes",
                    node.start_mark,
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


_TAG = "tag:yaml.org,2002:"
#: What a plain value is in YAML 1.2 (its core schema); everything else is text.
_CORE = {
    "null": re.compile(r"|~|null|Null|NULL"),
    "bool": re.compile(r"true|True|TRUE|false|False|FALSE"),
    "int": re.compile(r"[-+]?[0-9]+|0o[0-7]+|0x[0-9a-fA-F]+"),
    "float": re.compile(
        r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?"
        r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
    ),
}
_OLD = ("timestamp", "value")  # kinds that only YAML 1.1 has


def _core(text: str) -> str:
    return next((kind for kind, form in _CORE.items() if form.fullmatch(text)), "str")


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
