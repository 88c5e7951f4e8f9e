"""What hostile files have in common: how they are made, and what a decent refusal is."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tl_dyck.certify import load_synonyms
from tl_dyck.cli.certificates import read_lines
from tl_dyck.kit.files import read_json
from tl_dyck.kit.screen import visible
from tl_dyck.language import DyckLanguage, read_strings
from tl_dyck.models import load_model
from tl_dyck.report.patterns import read_patterns
from tl_dyck.rnn import load_rnn
from tl_dyck.runs import load_sweep
from tl_dyck.runs.store import Store, point_id, run_id
from tl_dyck.studies import load_study
from tl_dyck.studies.ablation import load_ablation
from tl_dyck.studies.reproduction import load_reproduction
from tl_dyck.training import load_result
from tl_dyck.training.checkpoint import read_checkpoint
from tl_dyck_text.corpus import load_folder
from tl_dyck_text.model import load_text_model

FAMILIES, SEEDS = ("gpt", "minimal-onehot"), (0, 1)
POINT = point_id("mine", {"x": 1})
RUN = run_id(POINT, 0)

#: What no JSON file of ours begins with.
JUNK = {
    "empty": b"",
    "half": b"{",
    "a list": b"[]",
    "null": b"null",
    "a number": b"5",
    "a text": b'"x"',
    "no UTF-8": b"\xff\xfe\x00{",
    "nested": b"[" * 100_000,
    "nested in objects": b'{"config":' * 50_000,
    "many digits": b"1" * 10_000,
    "no format": b"{}",
    "another format": b'{"format": "tl_dyck.other/9"}',
    "a format that is a list": b'{"format": []}',
    "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00cos\nsystem\n(S'touch owned'\ntR.",
}

LETTERS = DyckLanguage(2, 3, brackets=("(a", "a)", "(b", "b)"))
_PATTERNS, _LIKELIEST, _WORST = (  # of the study's runs that have one
    f"runs/*/*/{name}.safetensors" for name in ("patterns", "language", "certificate")
)
_RECORD = f"runs/{RUN[:2]}/{RUN}.json"


def _checkpoint(folder: Path) -> Any:
    """As `train` does it, which knows what the run should be."""
    return read_checkpoint(folder, read_json(folder / "as-it-was.json")["identity"])


#: artefact and file that is replaced -> who reads it
READERS: dict[tuple[str, str], Callable[[Path], Any]] = {
    ("model", "config.json"): load_model,
    ("model", "model.safetensors"): load_model,
    ("text", "config.json"): load_text_model,
    ("text", "model.safetensors"): load_text_model,
    ("rnn", "rnn.json"): load_rnn,
    ("rnn", "rnn.safetensors"): load_rnn,
    ("checkpoint", "checkpoint.json"): _checkpoint,
    ("checkpoint", "state-2.safetensors"): _checkpoint,
    ("run", "result.json"): load_result,
    ("run", "model.safetensors"): load_result,
    ("sweep", "sweep.json"): lambda folder: Store.at(folder).plan(),
    ("sweep", _RECORD): lambda folder: Store(folder).read(folder / _RECORD),
    ("sweep", "mine.yaml"): lambda folder: load_sweep(folder / "mine.yaml"),
    ("sweep", "mine.json"): lambda folder: load_sweep(folder / "mine.json"),
    ("study", "results.json"): load_study,
    ("study", _PATTERNS): lambda folder: read_patterns(load_study(folder)),
    ("study", _WORST): lambda at: load_study(at).certificate_patterns(FAMILIES[1], SEEDS[0]),
    ("study", _LIKELIEST): lambda at: load_study(at).language_pattern(FAMILIES[1], SEEDS[0]),
    ("study", "claims.json"): load_reproduction,
    ("study", "ablation.json"): load_ablation,
    ("corpus", "train.tsv"): load_folder,
    ("corpus", "dev.tsv"): load_folder,
    ("corpus", "synonyms.json"): lambda folder: load_synonyms(folder / "synonyms.json"),
    ("corpus", "strings.txt"): lambda folder: read_lines(folder / "strings.txt", None),
    ("corpus", "dyck.txt"): lambda folder: read_strings(folder / "dyck.txt", LETTERS),
}


def nest(depth: int) -> Any:
    """A list in a list in a list …"""
    value: Any = []
    for _ in range(depth):
        value = [value]
    return value


def alter(path: Path, *keys: Any, value: Any = ...) -> None:
    """Set (or without `value` delete) an entry deep in a JSON file."""
    saved = json.loads(path.read_text())
    where = saved
    for key in keys[:-1]:
        where = where[key]
    if value is ...:
        del where[keys[-1]]
    else:
        where[keys[-1]] = value
    path.write_text(json.dumps(saved))


def refusal(call: Callable[[], Any], *names: str) -> str:
    """Call, and check that it raises an error of the library's.

    It is one line that a terminal can show and that names.
    """
    files = sorted(os.listdir("."))
    with pytest.raises((ValueError, OSError)) as caught:
        call()
    said = str(caught.value)
    assert visible(said) == said
    assert 0 < len(said.splitlines()[0]) == len(said) < 1000
    for name in names:
        assert name in said
    assert sorted(os.listdir(".")) == files  # nothing was executed that leaves a file here
    return said
