"""What is read from a YAML or JSON file of a user.

Knows: what plain values are in YAML 1.2, where PyYAML reads 1.1.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tl_dyck.kit.files import (
    LARGEST_JSON,
    LARGEST_YAML,
    CorruptFileError,
    one_line,
    parse_json,
    read_regular,
)

_MERGE = "tag:yaml.org,2002:merge"  # of the key <<
_MOST_VALUES = 10_000  # that aliases, also of merge keys, may add to those that a file has


def read_values(path: Path, what: str, refusal: type[ValueError]) -> Any:
    """The values in a YAML file (JSON by its suffix)."""
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        data = read_regular(path, LARGEST_JSON if kind == "JSON" else LARGEST_YAML)
    except CorruptFileError as error:
        raise refusal(f"cannot read {what}: {error}") from error
    except OSError as error:
        raise refusal(f"cannot read {what} {str(path)!r}: {error.strerror}") from error
    try:
        return parse_json(data) if kind == "JSON" else parse_yaml(data)
    except (ValueError, RecursionError) as error:
        raise refusal(f"{str(path)!r} is not valid {kind}: {one_line(error)}") from error


def parse_yaml(data: bytes | str) -> Any:
    """What a text of YAML says.

    Raises:
        ValueError: it is none, or says what cannot be.
    """
    try:
        loader = _Loader(data)
        node = loader.get_single_node()
        if node is None:
            return None
        if _size(node, {}) > _MOST_VALUES + len(data):
            raise ValueError("its aliases and merge keys (<<) make too many values; write them out")
        return loader.construct_document(node)
    # what constructors raise for ``!!int x``, ``!!bool x`` is not always a YAMLError
    except (KeyError, AttributeError, IndexError) as error:
        which = str(error) if isinstance(error, KeyError) else "what follows a tag (!!)"
        raise ValueError(f"{which} is no value of its kind") from error
    except (yaml.YAMLError, TypeError) as error:
        raise ValueError(str(error)) from error


def _size(node: Any, known: dict[int, int]) -> int:
    """How many values a node stands for, each alias counted as what it is of."""
    if known.get(id(node)) == 0:
        raise ValueError("an alias is of what it stands in")
    if id(node) not in known:
        known[id(node)] = 0
        parts = node.value if isinstance(node, yaml.CollectionNode) else ()
        if isinstance(node, yaml.MappingNode):
            parts = [part for pair in parts for part in pair]
        known[id(node)] = 1 + sum(_size(part, known) for part in parts)
    return known[id(node)]


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml comes without types
    """The core schema of YAML 1.2: ``1e-3`` is a number, ``010`` is ten, and ``no`` is text.

    Keys that stand twice are refused.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_int(self, node: Any) -> int:
        return int(node.value)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        seen = set[Any]()
        for key, _ in node.value if isinstance(node, yaml.MappingNode) else ():
            if isinstance(key, yaml.ScalarNode):
                # by what it says: 1 and 01 are one key
                said = key.value if key.tag == _MERGE else self.construct_object(key)
                if said in seen:
                    raise yaml.constructor.ConstructorError(
                        None, None, f"{key.value!r:.80} stands twice", node.start_mark
                    )
                seen.add(said)
        found: dict[Any, Any] = super().construct_mapping(node, deep)
        return found


for _kind, _form, _first in (
    ("null", r"~|null|Null|NULL|", ["~", "n", "N", ""]),
    ("bool", r"true|True|TRUE|false|False|FALSE", list("tTfF")),
    ("int", r"[-+]?[0-9]+", list("-+0123456789")),
    ("float", r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?", list("-+.0123456789")),
    ("float", r"[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)", list("-+.")),
    ("merge", "<<", ["<"]),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_kind}", re.compile(f"({_form})$"), _first)
_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_int)
