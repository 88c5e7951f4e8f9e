"""Silent pipes, devices without end, files of a terabyte: refused at once, wherever a file is read.

All cases run in one child process, which may take a gigabyte more and a minute; before anything
asked what a file is, they hung or ate all memory.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.hostile.conftest import FAMILIES, RUN, SEEDS
from tl_dyck.certify import load_synonyms
from tl_dyck.cli.certificates import read_lines
from tl_dyck.files import read_json
from tl_dyck.models import load_model
from tl_dyck.models.text import load_text_model
from tl_dyck.report.patterns import read_patterns
from tl_dyck.rnn import load_rnn
from tl_dyck.runs import load_sweep
from tl_dyck.runs.store import Store
from tl_dyck.screen import visible
from tl_dyck.studies import load_study
from tl_dyck.studies.ablation import load_ablation
from tl_dyck.studies.reproduction import load_reproduction
from tl_dyck.text import load_folder
from tl_dyck.training import load_result
from tl_dyck.training.checkpoint import read_checkpoint

pytestmark = pytest.mark.skipif(
    not hasattr(os, "mkfifo"), reason="no pipes with names, no fork on this system"
)

_STATE = "state-2.safetensors"
_PATTERNS, _LIKELIEST, _WORST = (  # of the study's runs that have one
    f"runs/*/*/{name}.safetensors" for name in ("patterns", "language", "certificate")
)
_RECORD = f"runs/{RUN[:2]}/{RUN}.json"


def _checkpoint(folder: Path) -> Any:
    """As `train` does it, which knows what the run should be."""
    identity = read_json(folder.parent / "checkpoint-as-it-was.json")["identity"]
    return read_checkpoint(folder, identity)


#: artefact and file that is replaced -> who reads it
READERS: dict[tuple[str, str], Callable[[Path], Any]] = {
    ("model", "config.json"): load_model,
    ("model", "model.safetensors"): load_model,
    ("text", "config.json"): load_text_model,
    ("text", "model.safetensors"): load_text_model,
    ("rnn", "rnn.json"): load_rnn,
    ("rnn", "rnn.safetensors"): load_rnn,
    ("checkpoint", "checkpoint.json"): _checkpoint,
    ("checkpoint", _STATE): _checkpoint,
    ("run", "result.json"): load_result,
    ("run", "model.safetensors"): load_result,
    ("sweep", "sweep.json"): Store.open,
    ("sweep", _RECORD): lambda folder: Store(folder).read(folder / _RECORD),
    ("sweep", "mine.yaml"): lambda folder: load_sweep(folder / "mine.yaml"),
    ("sweep", "mine.json"): lambda folder: load_sweep(folder / "mine.json"),
    ("study", "results.json"): load_study,
    ("study", _PATTERNS): lambda folder: read_patterns(load_study(folder)),
    ("study", _WORST): lambda folder: load_study(folder).certificate_patterns(
        FAMILIES[1], SEEDS[0]
    ),
    ("study", _LIKELIEST): lambda folder: load_study(folder).language_pattern(
        FAMILIES[1], SEEDS[0]
    ),
    ("study", "claims.json"): load_reproduction,
    ("study", "ablation.json"): load_ablation,
    ("corpus", "train.tsv"): load_folder,
    ("corpus", "dev.tsv"): load_folder,
    ("corpus", "synonyms.json"): lambda folder: load_synonyms(folder / "synonyms.json"),
    ("corpus", "strings.txt"): lambda folder: read_lines(folder / "strings.txt", None),
}


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
    (folder.parent / "checkpoint-as-it-was.json").write_bytes(
        (original / "checkpoint/checkpoint.json").read_bytes()
    )
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
    signal.alarm(120)  # which kills
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
    for _ in range(1300):
        if os.waitpid(pid, os.WNOHANG)[0]:
            break
        time.sleep(0.1)
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
