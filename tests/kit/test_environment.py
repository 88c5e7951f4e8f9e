"""What a machine says of itself, for the record."""

from __future__ import annotations

import json
import os
import platform
from pathlib import Path

import pytest

from tl_dyck.kit.environment import cpu_name, environment


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "processor\t: 0\nmodel\t\t: 85\nmodel name\t: A  CPU @ 2.00GHz\nflags : "
            "a\n\nmodel name : other\n",
            "A CPU @ 2.00GHz",
        ),
        ("processor : 0\nBogoMIPS : 108.00\nHardware\t: BCM2711\n", "BCM2711"),
        ("model name :\n", None),
        (None, None),
    ],
)
def test_the_cpu_has_a_name(text: str | None, expected: str | None, tmp_path: Path) -> None:
    if text is not None:
        (tmp_path / "cpuinfo").write_text(text)
    assert cpu_name(tmp_path / "cpuinfo") == (
        expected or platform.processor() or platform.machine()
    )


def test_the_environment_is_json_and_names_the_cpu() -> None:
    found = json.loads(json.dumps(environment()))
    assert found["cpu"] == cpu_name()
    assert found["cpu"]
    assert found["cpu_cores"] == os.cpu_count()
    assert {"tl-dyck", "torch", "numpy"} <= set(found["versions"])
