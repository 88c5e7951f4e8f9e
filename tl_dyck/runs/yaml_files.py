"""What is read from a YAML or JSON file of a user.

Knows: which plain values YAML 1.1 and 1.2 read differently.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

from tl_dyck.files import LARGEST_JSON, LARGEST_YAML, CorruptFileError, one_line, read_regular
from tl_dyck.runs.spec import Sweep, SweepError


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
    """The values in a YAML file (JSON by its suffix)."""
    kind = "JSON" if path.suffix == ".json" else "YAML"
    try:
        data = read_regular(path, LARGEST_JSON if kind == "JSON" else LARGEST_YAML)
    except CorruptFileError as error:
        raise refusal(f"cannot read {what}: {error}") from error
    except OSError as error:
        raise refusal(f"cannot read {what} {str(path)!r}: {error.strerror}") from error
    try:
        return json.loads(data) if kind == "JSON" else yaml.load(data, Loader=_Loader)
    # what YAML's constructors raise for ``!!int x``, ``!!bool x`` is not always a YAMLError
    except (
        yaml.YAMLError, ValueError, TypeError, KeyError, AttributeError, RecursionError
    ) as error:  # fmt: skip
        raise refusal(f"{str(path)!r} is not valid {kind}: {one_line(error)}") from error


def read_setting(text: str) -> tuple[str, list[Any]]:
    """A parameter and its values from a text such as ``training.learning_rate=3e-3,6e-3``.

    Values are read as in a sweep's file; a value that is a list has brackets: ``lengths=[2,4]``.

    Raises:
        SweepError: it has no equals sign or no value, or cannot be read.
    """
    name, equals, values = (part.strip() for part in text.partition("="))
    try:
        found = yaml.load(f"[{values}]", Loader=_Loader) if name and equals else []
    except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
        raise SweepError(f"{text!r}: {one_line(error)}") from error
    if not found or any(isinstance(value, dict) for value in found):
        raise SweepError(
            f"{text!r}: give a parameter and its value, or several with commas between, such as "
            "training.learning_rate=3e-3,6e-3"
        )
    return name, found


class _Loader(yaml.SafeLoader):  # type: ignore[misc]  # yaml comes without types
    """YAML in which a value means the same in YAML 1.1, which PyYAML reads, and in YAML 1.2.

    ``1e-3`` is a number, as in 1.2. What the two versions read differently (``010``, ``1:30``,
    ``no``, ``1_000``, ``2026-01-01``) is refused, and so are keys that stand twice.
    """

    def compose_scalar_node(self, anchor: Any) -> Any:
        said = self.peek_event()
        node = super().compose_scalar_node(anchor)
        kind = node.tag.removeprefix(_TAG)
        if node.style is not None or kind == "merge" or (kind == "str" and not said.implicit[0]):
            return node  # quoted, ``<<`` or ``!!str 010``
        wanted = next((core for core, form in _CORE.items() if form.fullmatch(node.value)), "str")
        odd_integer = kind == "int" and re.fullmatch(r"[-+]?0[0-9]+", node.value)
        if kind in _KINDS and (kind != wanted or odd_integer):
            raise yaml.composer.ComposerError(
                None,
                None,
                f"{node.value!r} means one thing in YAML 1.1 and another in YAML 1.2: "
                f"write it as a plain number, as true or false, or in quotes",
                node.start_mark,
            )
        return node

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
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
_KINDS = (*_CORE, "str", "timestamp", "value")  # the last two are of YAML 1.1 alone

_Loader.add_implicit_resolver(
    f"{_TAG}float",
    re.compile(r"[-+]?(\d+\.?\d*|\.\d+)[eE][-+]?\d+$"),
    list("-+.0123456789"),
)
