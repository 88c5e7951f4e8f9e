"""What packages announce: as Python reads it, again where a package is installed, and cheaply."""

from __future__ import annotations

from importlib import metadata
from pathlib import Path

import pytest

from tl_dyck.kit.announced import announced


def test_it_is_what_python_reads() -> None:
    for group in ("tl_dyck.tasks", "tl_dyck.probes", "console_scripts"):
        assert [*announced(group=group)] == [*metadata.entry_points(group=group)] != []
    assert announced().groups == metadata.entry_points().groups


def test_a_package_installed_meanwhile_is_seen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.syspath_prepend(str(tmp_path / "missing"))
    assert not announced(group="tl_dyck.tests")
    made = tmp_path / "late-1.0.dist-info"
    made.mkdir()
    (made / "METADATA").write_text("Metadata-Version: 2.1\nName: late\nVersion: 1.0\n")
    (made / "entry_points.txt").write_text("[tl_dyck.tests]\nmine = late:it\n")
    assert [point.value for point in announced(group="tl_dyck.tests", name="mine")] == ["late:it"]


def test_files_are_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    announced()
    monkeypatch.setattr(metadata, "entry_points", lambda: pytest.fail("read again"))
    assert announced(group="tl_dyck.tasks")
