"""What an installation brings, measured in an empty environment: megabytes, seconds, packages.

    python tools/measure_install.py                # this repository, PyTorch's build for the CPU
    python tools/measure_install.py --index ""     # without that index
    python tools/measure_install.py --source dist/tl_dyck-0.1.0-py3-none-any.whl --json
    python tools/measure_install.py --write        # the download, into the pages that say it
    python tools/measure_install.py --check        # fails if they say another by a tenth

Nothing is taken from pip's cache. It needs the network, and says so in a line where there is none.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

ROOT = Path(__file__).resolve().parents[1]
CPU = "https://download.pytorch.org/whl/cpu"
#: Pages that say how much is downloaded with that index, in these words.
PAGES = ("README.md", "docs/getting_started.md")
_SAID = re.compile(r"([Tt]he download\s+is\s+(?:then\s+)?)(\d[\d,]*)( MB)")
_NEAR = 0.1  # of what is said: a new release of something is no error of a page
#: What pip says where an index cannot be reached.
_UNREACHED = re.compile(r"NewConnection|NameResolution|ConnectTimeout|ProxyError|refused")
_DOWNLOADED = re.compile(r"^\s*Downloading \S+ \(([\d.]+) (B|kB|MB|GB)\)", re.MULTILINE)
_PROCESSED = re.compile(r"^\s*Processing (\S+\.(?:whl|tar\.gz|zip))$", re.MULTILINE)
_UNSAID = re.compile(r"^\s*Downloading \S+$", re.MULTILINE)  # an index that does not say how much
_MEGABYTES = {"B": 1e-6, "kB": 1e-3, "MB": 1.0, "GB": 1e3}


class NotInstalledError(Exception):
    """Nothing was installed; one line says why."""


@dataclass(frozen=True)
class Installed:
    """What came of it.

    Attributes:
        megabytes: what the environment takes more than before, in files.
        downloaded: what was fetched, in megabytes, as pip says, with files of a local mirror, which
            elsewhere would be fetched; None if an index does not say.
        seconds: of the processor, while it was installed.
        wall_seconds: by the clock.
        packages: how many there are now besides those of an empty environment.
    """

    megabytes: float
    downloaded: float | None
    seconds: float
    wall_seconds: float
    packages: int

    def __str__(self) -> str:
        fetched = "?" if self.downloaded is None else f"{self.downloaded:,.0f}"
        return (
            f"{fetched} MB downloaded, {self.megabytes:,.0f} MB on disk, "
            f"{self.packages} packages, {self.seconds:.0f} s of CPU time "
            f"({self.wall_seconds:.0f} s by the clock)"
        )


def measure(source: str, index: str = "", more: Sequence[str] = ()) -> Installed:
    """Install into an empty environment, which is removed again.

    Args:
        source: what pip is given: a folder, a wheel, a name.
        index: an index to look in as well; "" for none.
        more: other options of pip.

    Raises:
        NotInstalledError: pip could not; the network may be absent.
    """
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "empty")
        venv.create(home)  # without pip: the one that runs this file installs into it
        python = home / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
        size, packages = _size(home), _packages(python)
        command = [*_pip(python), "install", "--no-cache-dir", source, *more]
        command += ["--extra-index-url", index] if index else []
        began, used = time.perf_counter(), _used()
        run = subprocess.run(command, capture_output=True, text=True, env=_environment())
        wall_seconds, seconds = time.perf_counter() - began, _used() - used
        if run.returncode:
            raise NotInstalledError(why(run.stdout + run.stderr))
        return Installed(
            megabytes=(_size(home) - size) / 1e6,
            downloaded=downloads(run.stdout, source),
            seconds=seconds,
            wall_seconds=wall_seconds,
            packages=len(_packages(python) - packages),
        )


def downloads(said: str, source: str = "") -> float | None:
    """The megabytes that pip says it fetched, or took from files; None if it does not say all.

    The source itself is not fetched.
    """
    sizes = [float(number) * _MEGABYTES[unit] for number, unit in _DOWNLOADED.findall(said)]
    for name in _PROCESSED.findall(said):
        path = Path(url2pathname(urlsplit(name).path) if name.startswith("file:") else name)
        if path.absolute() == Path(source).absolute():
            continue
        if not path.is_file():
            return None
        sizes.append(path.stat().st_size / 1e6)
    return None if _UNSAID.search(said) else sum(sizes)


def _environment() -> dict[str, str]:
    """Of this process, without what would make the environment less empty."""
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV")
    found = {name: value for name, value in os.environ.items() if name not in left_out}
    return found | {"PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_PROGRESS_BAR": "off"}


def _pip(python: Path) -> list[str]:
    """This environment's pip, for another interpreter."""
    return [sys.executable, "-m", "pip", "--python", str(python)]


def _used() -> float:
    """Seconds of the processor that finished children took."""
    times = os.times()
    return times.children_user + times.children_system


def _size(folder: Path) -> int:
    files = (path for path in folder.rglob("*") if path.is_file() and not path.is_symlink())
    return sum(path.stat().st_size for path in files)


def _packages(python: Path) -> set[str]:
    command = [*_pip(python), "list", "--format", "json"]
    listed = subprocess.run(
        command, capture_output=True, text=True, check=True, env=_environment()
    ).stdout
    return {each["name"] for each in json.loads(listed)}


def why(said: str) -> str:
    """Why pip could not install, in a line, of what it said."""
    if _UNREACHED.search(said):
        return "no network: the package index cannot be reached, so nothing was measured"
    lines = [line for line in said.splitlines() if line.startswith("ERROR")] or ["pip failed"]
    return f"nothing was measured: {lines[-1]}"


def said(page: str) -> float:
    """How many megabytes a page says are downloaded.

    Raises:
        NotInstalledError: it does not say so, or twice.
    """
    found = _SAID.findall((ROOT / page).read_text(encoding="utf-8"))
    if len(found) != 1:
        raise NotInstalledError(f"{page} says {len(found)} times what is downloaded")
    return float(found[0][1].replace(",", ""))


def write(megabytes: float) -> None:
    """Have the pages say it."""
    for page in PAGES:
        said(page)
        text = (ROOT / page).read_text(encoding="utf-8")
        told = _SAID.sub(lambda match: f"{match[1]}{megabytes:,.0f}{match[3]}", text)
        (ROOT / page).write_text(told, encoding="utf-8")


def wrong(megabytes: float) -> list[str]:
    """Pages that say another number, in words."""
    return [
        f"{page} says {said(page):,.0f} MB, and {megabytes:,.0f} MB are downloaded"
        for page in PAGES
        if abs(said(page) - megabytes) > _NEAR * megabytes
    ]


def main(arguments: Sequence[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--source", default=str(ROOT), help="what pip is given")
    parser.add_argument("--index", default=CPU, help='another index; "" for none')
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--write", action="store_true", help="into the pages that say it")
    parser.add_argument("--check", action="store_true", help="fail if pages say another number")
    options = parser.parse_args(arguments)
    try:
        found = measure(options.source, options.index)
        if found.downloaded is None and (options.write or options.check):
            raise NotInstalledError("an index does not say how much is downloaded")
        if options.write:
            write(found.downloaded or 0)
        lines = wrong(found.downloaded or 0) if options.check else []
    except NotInstalledError as error:
        print(error, file=sys.stderr)
        return 2
    print(json.dumps(asdict(found)) if options.json else found)
    print(*lines, sep="\n", end="\n" if lines else "", file=sys.stderr)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
