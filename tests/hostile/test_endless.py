"""Silent pipes, devices without end, files of a terabyte: refused at once, wherever a file is read.

All cases run in one child process, which may take a gigabyte more and minutes; before anything
asked what a file is, they hung or ate all memory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import warnings
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.hostile.tools import READERS
from tl_dyck.kit.screen import visible

pytestmark = pytest.mark.skipif(
    not hasattr(os, "mkfifo"), reason="no pipes with names, no fork on this system"
)


def _terabyte(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(2**40)


KINDS: dict[str, Callable[[Path], None]] = {
    "a pipe": os.mkfifo,  # type: ignore[dict-item]
    "zeros without end": lambda path: path.symlink_to("/dev/zero"),
    "a terabyte of nothing": _terabyte,
    "a link to itself": lambda path: path.symlink_to(path.name),
    "a folder": lambda path: path.mkdir(),
}
CASES = [(artefact, file, kind) for artefact, file in READERS for kind in KINDS]
CASES.remove(
    ("checkpoint", "checkpoint.json", "a link to itself")
)  # leads nowhere: there is no checkpoint yet


def _try(original: Path, folder: Path, artefact: str, file: str, kind: str) -> str:
    """What is said of one case."""
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(original / artefact, folder)
    for place in sorted(folder.glob(file)) or [folder / file]:
        place.unlink(missing_ok=True)
        KINDS[kind](place)
    try:
        READERS[artefact, file](folder)
    except (ValueError, OSError) as error:
        return str(error)
    except BaseException as error:
        return f"raised {type(error).__name__}:\n{error}"
    return "accepted\n"


def _all(original: Path, folder: Path, out: Path) -> None:
    import resource

    used = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGESIZE")
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CPU, (300, 300))  # which kills what reads for ever
    signal.alarm(600)  # and what waits, on a machine however busy
    with out.open("w") as file:
        for case in CASES:
            print(json.dumps([*case, _try(original, folder, *case)]), file=file, flush=True)


@pytest.fixture(scope="module")
def said(
    _originals: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[tuple[str, str, str], str]:
    """What was said of each case that came to an end."""
    path = tmp_path_factory.mktemp("endless")
    with (
        warnings.catch_warnings()
    ):  # this process may have threads; the child uses none of what they hold
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if not pid:
        try:
            _all(_originals, path / "copy", path / "said")
        finally:
            os._exit(0)
    os.waitpid(pid, 0)
    lines = (json.loads(line) for line in (path / "said").read_text().splitlines())
    return {(artefact, file, kind): text for artefact, file, kind, text in lines}


@pytest.mark.skipif(
    not Path("/proc/self/statm").exists(), reason="memory is limited by what /proc says"
)
@pytest.mark.parametrize(("artefact", "file", "kind"), CASES)
def test_what_has_no_end_is_refused(said, artefact: str, file: str, kind: str):
    assert (artefact, file, kind) in said, "it hung, or took all memory"
    line = said[artefact, file, kind]
    assert visible(line) == line
    assert "\n" not in line
    assert Path(file).name in line
