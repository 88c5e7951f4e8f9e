"""What is shipped: wheel and source archive, metadata, entry points, pins, Makefile's opening."""

from __future__ import annotations

import configparser
import importlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

import tl_dyck
from tests.patience import PATIENCE

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

ROOT = Path(__file__).resolve().parent.parent
PYPROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
PACKAGES = {"tl_dyck": ROOT / "tl_dyck"} | {
    path.name: path for path in (ROOT / "hooks").glob("tl_dyck_*")
}


# An interpreter that takes itself for Python 3.9.
OLD = f"""[ "$1" = -V ] && echo Python 3.9.25 && exit
exec '{sys.executable}' -c 'import sys; sys.version_info = (3, 9, 25); exec(sys.argv[1])' "$2"
"""


def build(kind: str, source: Path, target: Path) -> Path:
    """Build a "wheel" or "sdist" of `source` into `target`, with no network or isolation."""
    command = [sys.executable, "-m", "hatchling", "build", "-t", kind, "-d", str(target)]
    run = subprocess.run(command, cwd=source, capture_output=True, text=True, timeout=PATIENCE)
    assert run.returncode == 0, run.stderr
    (archive,) = target.iterdir()
    return archive


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def modules(wheel: dict[str, bytes]) -> set[str]:
    return {name for name in wheel if ".dist-info/" not in name}


def info(wheel: dict[str, bytes], name: str) -> str:
    (path,) = [path for path in wheel if path.endswith(f".dist-info/{name}")]
    return wheel[path].decode()


def declared_entry_points() -> dict[str, dict[str, str]]:
    project = PYPROJECT["project"]
    return {"console_scripts": project["scripts"], **project["entry-points"]}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    return contents(build("wheel", ROOT, tmp_path_factory.mktemp("wheel")))


@pytest.mark.once
def test_wheel_holds_all_packages_and_nothing_else(wheel: dict[str, bytes]) -> None:
    shipped = modules(wheel)
    expected = {
        f"{package}/{path.relative_to(folder).as_posix()}"
        for package, folder in PACKAGES.items()
        for path in folder.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert shipped == expected
    assert {f"{package}/py.typed" for package in PACKAGES} <= shipped
    kept = [data for name, data in wheel.items() if name.startswith("tl_dyck/reference/")]
    assert len(kept) > 24
    assert sum(map(len, kept)) < 10e6  # bytes, of weights and records of 24 models
    suites = [len(data) for name, data in wheel.items() if name.endswith(".suite")]
    assert len(suites) == 1
    assert sum(suites) < 15e6


@pytest.mark.once
def test_wheel_announces_what_pyproject_declares(wheel: dict[str, bytes]) -> None:
    parser = configparser.ConfigParser(delimiters=("=",))
    parser.optionxform = str  # type: ignore[assignment]  # keys are case-sensitive
    parser.read_string(info(wheel, "entry_points.txt"))
    assert {group: dict(parser[group]) for group in parser.sections()} == declared_entry_points()


@pytest.mark.once
def test_wheel_metadata(wheel: dict[str, bytes]) -> None:
    fields = Parser().parsestr(info(wheel, "METADATA"))
    assert fields["Name"] == "tl-dyck"
    assert fields["Version"] == tl_dyck.__version__
    assert fields["License-Expression"] == "MIT"
    assert fields["Requires-Python"] == ">=3.10"
    assert "transformer-lens<5,>=3" in fields.get_all("Requires-Dist", [])


@pytest.mark.once
def test_source_archive_builds_the_same_wheel(wheel: dict[str, bytes], tmp_path: Path) -> None:
    archive = build("sdist", ROOT, tmp_path / "sdist")
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path / "unpacked", filter="data")
    (source,) = (tmp_path / "unpacked").iterdir()
    for path in (
        "Makefile",
        "constraints.txt",
        "requirements/dev.txt",
        "LICENSE",
        "CHANGELOG.md",
        "tests/conftest.py",
        "tools/fuzz_proofs.py",
        ".ci/run",
    ):
        assert (source / path).is_file(), path
    again = contents(build("wheel", source, tmp_path / "again"))
    assert {name for name in again if ".dist-info/" not in name} == {
        name for name in wheel if ".dist-info/" not in name
    }
    assert info(again, "entry_points.txt") == info(wheel, "entry_points.txt")


@pytest.mark.parametrize(
    ("group", "name"),
    [(group, name) for group, names in declared_entry_points().items() for name in names],
)
def test_every_declared_entry_point_loads(group: str, name: str) -> None:
    module, _, attribute = declared_entry_points()[group][name].partition(":")
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if not (".packages." in module or group == "inspect_ai") or str(error.name).startswith(
            "tl_dyck"
        ):
            raise
        pytest.skip(f"{error.name} is not installed: make test-packages, Python 3.11")
    assert getattr(found, attribute, None) is not None


def test_installed_package_is_this_one() -> None:
    """Entry points come from installed metadata: after editing pyproject.toml, install again."""
    installed = metadata.distribution("tl-dyck")
    found = {(point.group, point.name, point.value) for point in installed.entry_points}
    declared = {
        (group, name, value)
        for group, names in declared_entry_points().items()
        for name, value in names.items()
    }
    assert found == declared, (
        "pyproject.toml has changed since the package was installed: run `make setup`"
    )
    assert installed.version == tl_dyck.__version__


def test_changelog_begins_with_this_version() -> None:
    headings = re.findall(
        r"^## \[?([^\]\s]+)\]?.*$",
        (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"),
        re.MULTILINE,
    )
    versions = [heading for heading in headings if heading != "Unreleased"]
    assert versions[0] == tl_dyck.__version__


PYTHONS = ["3.10", "3.11", "3.12", "3.13", "3.14"]

# What only the CUDA build of torch needs, and torch itself: of which build it is depends on the
# machine.
UNHASHED = re.compile(r"(torch|triton|(cuda|nvidia)-.*)")


def pins(name: str, python: str | None = None) -> dict[str, str]:
    """The versions that a file pins, all or on one Python (and this test's platform)."""
    environment = {"python_version": python or "", "python_full_version": f"{python}.9"}
    found: dict[str, str] = {}
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        if line and not line.startswith(("#", " ")):
            pin = Requirement(line.removesuffix("\\"))
            (specifier,) = pin.specifier
            assert specifier.operator == "==", line
            if pin.marker is None or python is None or pin.marker.evaluate(environment):
                key = canonicalize_name(pin.name) if python else line.removesuffix("\\").strip()
                assert key not in found, f"{name} pins {key} twice for Python {python}"
                found[key] = specifier.version
    return found


def declared(*extras: str) -> list[Requirement]:
    """The direct dependencies of the package and of those extras."""
    project = PYPROJECT["project"]
    texts = [
        *project["dependencies"],
        *(text for extra in extras for text in project["optional-dependencies"][extra]),
    ]
    return [wanted for text in texts if (wanted := Requirement(text)).name != "tl-dyck"]


@pytest.mark.parametrize("python", PYTHONS)
def test_direct_dependencies_are_pinned_within_their_range(python: str) -> None:
    plain = pins("constraints.txt", python)
    hashed = pins("requirements/dev.txt", python) | pins("requirements/docs.txt", python)
    for wanted in declared("dev", "docs", "onnx", "dask"):
        name = canonicalize_name(wanted.name)
        assert plain[name] in wanted.specifier, wanted
        assert name in hashed or name == "torch", wanted


def test_files_with_hashes_pin_what_constraints_pin() -> None:
    hashed = {
        line.split()[0] for name in ("dev", "docs") for line in pins(f"requirements/{name}.txt")
    }
    plain = {line.split()[0] for line in pins("constraints.txt")}
    assert hashed == {pin for pin in plain if not UNHASHED.fullmatch(pin.split("==")[0])}


@pytest.mark.parametrize("name", ["dev", "docs", "oldest", "transformer-lens", "uv"])
def test_every_pin_has_a_hash_and_no_address(name: str) -> None:
    text = (ROOT / "requirements" / f"{name}.txt").read_text(encoding="utf-8")
    blocks = re.split(r"\n(?=[^\s#])", text)[1:]
    assert blocks
    for block in blocks:
        assert re.fullmatch(r"[^\s\\][^\\]*(\\\n    --hash=sha256:[0-9a-f]{64}\s*)+", block), block
    assert not re.search(r"://|--(extra-)?index|--find", text)


def test_hashes_cover_all_that_the_tests_need() -> None:
    """Step by step through the metadata of what is installed, from tl-dyck[dev]."""
    hashed = {*pins("requirements/dev.txt", f"{sys.version_info.major}.{sys.version_info.minor}")}
    # and what only those releases of TransformerLens need that are not the pinned one
    others = (ROOT / "requirements/transformer-lens.txt").read_text(encoding="utf-8")
    hashed |= {canonicalize_name(name) for name in re.findall(r"^(\S+)==", others, re.M)}
    todo, done = [("tl-dyck", "dev")], set()
    while todo:
        name, extra = todo.pop()
        if (name, extra) in done or UNHASHED.fullmatch(name):
            continue
        done.add((name, extra))
        assert name in hashed or name == "tl-dyck", name
        for text in metadata.requires(name) or []:
            wanted = Requirement(text)
            if wanted.marker is None or any(
                wanted.marker.evaluate({"extra": which}) for which in {extra, ""}
            ):
                todo += [(canonicalize_name(wanted.name), which) for which in (*wanted.extras, "")]
    assert len({name for name, _ in done}) > 100


def test_releases_of_transformer_lens_that_tests_run_with() -> None:
    """From the lower bound to the newest that is accepted, the pinned one among them."""
    text = (ROOT / "requirements/transformer-lens.txt").read_text(encoding="utf-8")
    releases = [Version(found) for found in re.findall(r"^transformer-lens==(\S+)", text, re.M)]
    (wanted,) = (entry for entry in declared() if entry.name == "transformer_lens")
    assert releases == sorted(releases)
    assert all(release in wanted.specifier for release in releases)
    assert {release.major for release in releases} == {3, 4}
    assert f"transformer-lens=={releases[0]} " in (ROOT / "requirements/oldest.txt").read_text()
    assert Version(pins("constraints.txt", "3.11")["transformer-lens"]) == releases[-1]
    last_of_3 = max(release for release in releases if release.major == 3)
    assert f"make test-types TL={last_of_3}\n" in (ROOT / ".ci/run").read_text(encoding="utf-8")


def test_lower_bounds_are_the_versions_that_are_tested() -> None:
    """`make test-oldest` installs requirements/oldest.txt and torch at its lower bound.

    What the judge adapts is tested at the versions of requirements/packages.txt alone, and what
    needs a newer Python at those that are pinned.
    """
    oldest = pins("requirements/oldest.txt", "3.10")
    for wanted in declared(*(PYPROJECT["project"]["optional-dependencies"].keys() - {"judge"})):
        if wanted.marker is not None and not wanted.marker.evaluate({"python_version": "3.10"}):
            continue
        (bound,) = (part.version for part in wanted.specifier if part.operator == ">=")
        if wanted.name != "torch":
            assert Version(bound) == Version(oldest[canonicalize_name(wanted.name)]), wanted
    assert re.findall(
        r'^  "torch>=([0-9.]+)"',
        (ROOT / "pyproject.toml").read_text(encoding="utf-8"),
        re.MULTILINE,
    )


#: Below these a stranger's file, or page, does more than it should: CVE-2026-24747, CVE-2023-47248,
#: CVE-2026-27489, CVE-2026-23528, CVE-2026-42557; what installs a browser ran what came over a line
#: that nobody had checked (CVE-2025-59288); a link to built pages ran a script (CVE-2026-73295, and
#: another before 9.5.32); a name of a folder was a command (CVE-2023-24816).
SAFE = {"torch": "2.10", "pyarrow": "14.0.1", "onnx": "1.21", "distributed": "2026.1.1"}
SAFE |= {"jupyterlab": "4.5.7", "playwright": "1.55.1", "mkdocs-material": "9.7.7"}
SAFE |= {"ipython": "8.10"}


@pytest.mark.parametrize("name", SAFE)
def test_no_lower_bound_is_known_to_run_what_a_stranger_wrote(name: str) -> None:
    wanted = [entry for entry in declared(*PYPROJECT["project"]["optional-dependencies"])
              if entry.name == name]  # fmt: skip
    assert wanted
    for entry in wanted:
        (bound,) = (part.version for part in entry.specifier if part.operator == ">=")
        assert Version(bound) >= Version(SAFE[name])


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/bash\n{text}\n")
    path.chmod(0o755)
    return path


def ran(*command: str | Path, environment: dict[str, str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=PATIENCE
    )


@pytest.mark.once
@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
class TestScripts:
    def run(self, *words: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        return ran("bash", *words, environment={"PATH": os.environ["PATH"], **more})

    SHOW = 'echo "$ATEN_CPU_CAPABILITY,$MKL_CBWR,$TL_DYCK_TEST_THREADS,$OMP_NUM_THREADS"'

    def test_four_cpu_settings(self, tmp_path: Path) -> None:
        run = self.run(".ci/test-cpus", script(tmp_path / "python", self.SHOW), OMP_NUM_THREADS="1")
        assert run.returncode == 0, run.stderr
        shown = {line for line in run.stdout.splitlines() if not line.startswith("--")}
        assert shown == {"default,,,1", "avx2,,,1", ",COMPATIBLE,,1", ",,default,"}

    def test_what_the_machine_does_by_itself_is_left_to_make_test(self, tmp_path: Path) -> None:
        python = script(tmp_path / "python", f'[ "$1" = -c ] && echo AVX2 || {self.SHOW}')
        run = self.run(".ci/test-cpus", python, OMP_NUM_THREADS="1")
        assert run.returncode == 0, run.stderr
        shown = {line for line in run.stdout.splitlines() if not line.startswith("--")}
        assert shown == {"default,,,1", ",COMPATIBLE,,1", ",,default,"}
        assert "ATEN_CPU_CAPABILITY=avx2 is what this machine" in run.stdout

    @pytest.mark.parametrize(
        "setting", ["ATEN_CPU_CAPABILITY:-}", "MKL_CBWR:-}", "TL_DYCK_TEST_THREADS:-}"]
    )
    def test_one_failure_is_enough(self, tmp_path: Path, setting: str) -> None:
        python = script(tmp_path / "python", f'[ -z "${{{setting}" ]')
        assert self.run(".ci/test-cpus", python).returncode == 1

    def test_one_release_of_transformer_lens_with_its_hashes(self) -> None:
        run = self.run(".ci/pick-transformer-lens", "newest")
        assert re.fullmatch(
            r"better-abc==\S+( \\\n    --hash=\S+)+\n"  # which 3 needs besides
            r"transformer-lens==4\S+( \\\n    --hash=sha256:[0-9a-f]{64})+\n",
            run.stdout,
        )
        unknown = self.run(".ci/pick-transformer-lens", "4.3")
        assert (unknown.returncode, unknown.stdout) == (2, "")
        assert (
            "'4.3' is not in requirements/transformer-lens.txt, which has 3.0.0" in unknown.stderr
        )

    @pytest.mark.parametrize("which", ["oldest", "newest"])
    def test_without_that_python_nothing_passes_silently(self, tmp_path: Path, which: str) -> None:
        for version in range(10, 20):
            script(tmp_path / f"python3.{version}", "exit 1")
        uv = script(tmp_path / "uv", "exit 2")
        path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
        run = self.run(".ci/test-versions", which, uv, PATH=path, PYENV_ROOT=str(tmp_path))
        assert run.returncode == 69
        assert re.search(
            f"!! NOT RUN: the tests with the {which} versions: no Python 3", run.stderr
        )


@pytest.mark.once
@pytest.mark.skipif(shutil.which("make") is None, reason="needs make")
class TestMakefile:
    def make(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        # Not as a child of the make that may be running these tests.
        alone = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
        return ran("make", *arguments, environment=alone)

    def test_help_lists_every_target(self) -> None:
        text = (ROOT / "Makefile").read_text(encoding="utf-8")
        (phony,) = re.findall(r"^\.PHONY: (help .*)$", text, re.MULTILINE)
        shown = re.findall(r"^  ([\w-]+) {2,}\S", self.make().stdout, re.MULTILINE)
        assert shown == phony.split()

    @pytest.mark.parametrize(
        ("script", "message"),
        [
            (None, "not found: install Python 3.10 or later"),
            (OLD, "needs Python 3.10 or later, and .* is Python 3.9.25"),
            (
                'case "$2" in *version*) exit 0;; *) exit 1;; esac',
                "cannot make virtual environments: install its venv",
            ),
        ],
        ids=["missing", "old", "no venv"],
    )
    def test_unusable_python(self, tmp_path: Path, script: str | None, message: str) -> None:
        python = tmp_path / "python"
        if script is not None:
            python.write_text(f"#!/bin/sh\n{script}\n")
            python.chmod(0o755)
        run = self.make("setup", f"PYTHON={python}", f"VENV={tmp_path / 'venv'}")
        assert run.returncode != 0
        assert re.search(message, run.stderr), run.stderr
        assert not (tmp_path / "venv").exists()
