"""The exact certifier can be read in the order that its docstring gives."""

from __future__ import annotations

import ast
import re
from pathlib import Path

from tl_dyck.certify import exact

FOLDER = Path(exact.__file__).parent
assert exact.__doc__ is not None
ORDER = re.findall(r"^- `(\w+)`: ", exact.__doc__, flags=re.MULTILINE)


def test_every_file_is_in_the_reading_order() -> None:
    assert sorted(ORDER) == sorted(
        path.stem for path in FOLDER.glob("*.py") if path.stem != "__init__"
    )


def test_each_file_imports_only_those_above_it() -> None:
    for place, name in enumerate(ORDER):
        tree = ast.parse((FOLDER / f"{name}.py").read_text(encoding="utf-8"))
        imported = [
            node.module
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom) and node.module
        ]
        inside = {
            module.rpartition(".")[2]
            for module in imported
            if module.startswith(f"{exact.__name__}.")
        }
        assert inside <= set(ORDER[:place])
