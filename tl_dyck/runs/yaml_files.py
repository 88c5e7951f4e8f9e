"""What is read from a YAML or JSON file of a user.

Knows: what plain values are in YAML 1.2, where PyYAML reads 1.1.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import yaml

from tl_dyck.arguments import checked
from tl_dyck.files import LARGEST_JSON, LARGEST_YAML, CorruptFileError, one_line, read_regular
from tl_dyck.runs.spec import Sweep, SweepError


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
    """The core schema of YAML 1.2: ``1e-3`` is a number, ``010`` is ten, and ``no`` is text.

    Keys that stand twice are refused.
    """

    yaml_implicit_resolvers: ClassVar[dict[str, Any]] = {}

    def construct_int(self, node: Any) -> int:
        return int(node.value)

    def construct_mapping(self, node: Any, deep: bool = False) -> dict[Any, Any]:
        keys = [key.value for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for key in keys:
            if keys.count(key) > 1:
                raise yaml.constructor.ConstructorError(
                    None, None, f"{key!r} stands twice", node.start_mark
                )
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
