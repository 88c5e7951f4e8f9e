"""What an installation brings, measured: of a package made here, without a network."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path

import pytest

from tools import measure_install
from tools.measure_install import PAGES, Installed, downloads, main, said, why


def wheel(folder: Path, needs: str = "") -> str:
    """A package of one file of a megabyte."""
    path = folder / "toy_kite-1.0-py3-none-any.whl"
    facts = "toy_kite-1.0.dist-info"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("toy_kite/data.bin", bytes(1_000_000))
        requires = f"Requires-Dist: {needs}\n" if needs else ""
        archive.writestr(
            f"{facts}/METADATA", f"Metadata-Version: 2.1\nName: toy-kite\nVersion: 1.0\n{requires}"
        )
        tags = "Root-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{facts}/WHEEL", f"Wheel-Version: 1.0\nGenerator: t\n{tags}")
        archive.writestr(f"{facts}/RECORD", "")
    return str(path)


def test_without_a_network_it_says_so_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")  # nobody listens there
    monkeypatch.setenv("PIP_RETRIES", "1")  # the first is not told
    assert main(["--source", wheel(tmp_path, "toy-string"), "--index", "", "--json"]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert said.err.startswith("no network: ")
    assert said.err.count("\n") == 1


def test_other_failures_are_told_as_pip_tells_them() -> None:
    said = "WARNING: old\nERROR: first\nERROR: No matching distribution found for x\n"
    assert why(said) == "nothing was measured: ERROR: No matching distribution found for x"
    assert why("") == "nothing was measured: pip failed"


def test_what_was_fetched_is_added_up_if_pip_says_it_of_all() -> None:
    said = "Downloading a.whl (1.5 MB)\n  Downloading b.whl.metadata (500 kB)\n"
    assert downloads(said) == pytest.approx(2.0)
    assert downloads(said + "Downloading c.whl\n") is None


def test_files_of_a_local_mirror_are_fetched_too(tmp_path: Path, monkeypatch, capsys) -> None:
    """pip says "Processing" of them, without a size; and of what it was asked to install."""
    own, other = wheel(tmp_path), tmp_path / "other-1.0-py3-none-any.whl"
    other.write_bytes(bytes(3_000_000))
    said = f"Processing {own}\nDownloading b.whl (1.5 MB)\n"
    assert downloads(said, own) == 1.5
    for name in (other, other.as_uri()):
        assert downloads(f"{said}  Processing {name}\n", own) == pytest.approx(4.5)
    assert downloads(f"{said}Processing {tmp_path / 'gone.whl'}\n", own) is None
    assert downloads(f"Processing {tmp_path}\n") == 0  # a folder


def test_what_it_prints(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    assert main(["--source", wheel(tmp_path), "--index", "", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert 1.0 < found["megabytes"] < 1.1  # its file, and what pip writes beside it
    assert (found["packages"], found["downloaded"]) == (1, 0.0)
    assert found["seconds"] > 0
    said = str(Installed(**found))
    assert said.startswith("0 MB downloaded, 1 MB on disk, 1 packages, ")


def test_pages_say_one_number_and_a_command_writes_and_checks_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert len({said(page) for page in PAGES}) == 1
    for page in PAGES:
        (tmp_path / page).parent.mkdir(exist_ok=True)
        (tmp_path / page).write_bytes((measure_install.ROOT / page).read_bytes())
    monkeypatch.setattr(measure_install, "ROOT", tmp_path)

    def measured(downloaded: float | None) -> None:
        found = Installed(1e3, downloaded, 1.0, 2.0, 80)
        monkeypatch.setattr(measure_install, "measure", lambda source, index: found)

    measured(1234.4)
    assert main(["--check"]) == 1
    assert capsys.readouterr().err.count(" MB, and 1,234 MB are downloaded\n") == len(PAGES)
    assert main(["--write"]) == main(["--check"]) == 0
    assert [said(page) for page in PAGES] == [1234.0] * len(PAGES)
    measured(1234.4 * 1.05)  # a release of something
    assert main(["--check"]) == 0
    measured(None)
    assert main(["--check"]) == 2
    (tmp_path / PAGES[0]).write_text("the download is large")
    measured(5.0)
    assert main(["--write"]) == 2
    assert "says 0 times" in capsys.readouterr().err
