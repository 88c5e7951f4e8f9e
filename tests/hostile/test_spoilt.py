"""Artefacts of every kind that someone has been at: refused in one line that names them."""

from __future__ import annotations

import hashlib
import os
import struct
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.hostile.conftest import TASK
from tests.hostile.tools import FAMILIES, JUNK, POINT, READERS, RUN, SEEDS, alter, nest, refusal
from tl_dyck.kit.files import read_json
from tl_dyck.models import load_model
from tl_dyck.report import write_report
from tl_dyck.runs import Sweep, SweepError, load_results, sweep_status
from tl_dyck.runs.store import Store
from tl_dyck.studies import load_study
from tl_dyck.training import load_result
from tl_dyck.training.checkpoint import CheckpointError, read_checkpoint
from tl_dyck_text.corpus import load_folder

Make = Callable[[str], Path]
NAN, INFINITE = float("nan"), float("inf")

# --- files with other content ---------------------------------------------------------------------

HUGE_GRID = {f"p{i}": list(range(10)) for i in range(12)}
YAML = {
    **{name: data for name, data in JUNK.items() if name not in ("no format", "many digits")},
    "nested": b"common: {x: " + b"[" * 500,
    "an object": b"common: {x: !!python/object/apply:os.system ['touch owned']}",
    "itself": b"common: &a {x: *a}",
    "twice": b"seeds: 1\nseeds: 2",
    "a list as a name": b"common: {[1, 2]: 3}",
    "a million million points": f"grid: {HUGE_GRID}".encode(),
    "seeds without end": b"seeds: 99999999999999999999",
}
CORPORA = {
    "empty": b"",
    "no tabs": b"good film 1\nbad film 0\n",
    "no numbers": b"good\tgood\nbad\tbad\n",
    "labels below zero": b"good\t-1\nbad\t-2\n",
    "labels of many digits": b"good\t" + b"9" * 5000 + b"\nbad\t" + b"8" * 5000 + b"\n",
    "a label of 10**9": b"good\t1\nbad\t0\nodd\t1000000000\n",
    "labels from 1": b"good\t1\nbad\t2\n",
    "a gap": b"good\t0\nbad\t1\nodd\t3\n",
    "one class": b"good\t0\nbad\t0\n",
    "null bytes": b"\0" * 100,
    "no words": b"\t0\n \t1\n",
}
#: By name of the file, what stands in it; every other JSON file has JUNK.
CONTENT = {
    "mine.yaml": YAML,
    "mine.json": {
        **JUNK,
        "NaN": b'{"common": {"x": NaN}}',
        "seeds without end": b'{"seeds": {"start": 0, "count": 1e400}}',
    },
    "synonyms.json": {
        **JUNK,
        "nested a million times": b"[" * 10**6,
        "lists of numbers": b'{"good": [1, 2]}',
        "a text for a list": b'{"good": "fine"}',
        "null for a list": b'{"good": null}',
        "lists of lists": b'{"good": [["fine"]]}',
    },
    **dict.fromkeys(("train.tsv", "dev.tsv", "*.tsv"), CORPORA),
}
#: What is fine all the same: every default, no synonyms, and labels that both files together have.
FINE = {
    ("mine.json", "no format"),
    ("synonyms.json", "no format"),
    ("synonyms.json", "a format that is a list"),
    ("train.tsv", "labels from 1"),
    ("dev.tsv", "labels from 1"),
    ("dev.tsv", "one class"),
}
EVERY = {
    **READERS,
    ("corpus", "*.tsv"): load_folder,
    ("study", "runs/*/*/measures.json"): load_study,
    ("study", "runs/*/*/result.json"): load_study,
}
NONE = [
    (artefact, file, name)
    for artefact, file in EVERY
    if not file.endswith((".safetensors", ".txt"))
    for name in CONTENT.get(file, JUNK)
]


@pytest.mark.parametrize(("artefact", "file", "name"), NONE)
def test_files_that_are_none(original: Make, artefact: str, file: str, name: str):
    folder = original(artefact)
    for path in [*folder.glob(file)] or [folder / file]:
        path.write_bytes(CONTENT.get(file, JUNK)[name])
    if (file, name) in FINE:
        EVERY[artefact, file](folder)
        return
    again = ["to do this run again"] if file.startswith("runs/*") else []
    refusal(lambda: EVERY[artefact, file](folder), str(folder), *again)


WEIGHTS = {
    "empty": b"",
    "a pickle": JUNK["a pickle"],
    "a header of 2**63 bytes": struct.pack("<Q", 2**63),
    "a header that is longer than the file": struct.pack("<Q", 1000) + b"{}",
    "a tensor of 2**62 numbers": b'{"x":{"dtype":"F32","shape":[4611686018427387904],'
    b'"data_offsets":[0,4]}}',
    "no tensors": b"{}",
}
FILES = {  # where weights are, who says what they are, and one of them
    "model": ("model.safetensors", "config.json", "unembed.W_U"),
    "text": ("model.safetensors", "config.json", ""),
    "rnn": ("rnn.safetensors", "rnn.json", "W_U"),
}


def seal(folder: Path, kind: str) -> None:
    """Have the digest be that of the weights as they are."""
    weights, description, _ = FILES[kind]
    digest = hashlib.sha256((folder / weights).read_bytes()).hexdigest()
    alter(folder / description, "sha256", value=digest)


@pytest.mark.parametrize("case", WEIGHTS)
@pytest.mark.parametrize("kind", FILES)
def test_weights_that_are_none(original: Make, kind: str, case: str):
    """With the digest of before, and with one of their own."""
    folder, data = original(kind), WEIGHTS[case]
    if data.startswith(b"{"):
        data = struct.pack("<Q", len(data)) + data + b"\0" * 4
    (folder / FILES[kind][0]).write_bytes(data)
    for _ in range(2):
        refusal(lambda: EVERY[kind, FILES[kind][0]](folder), str(folder))
        seal(folder, kind)


# a model that diverged is kept, with the weights that it has; an RNN is exported only if it equals
# its model
CHANGED: dict[str, Callable[[dict[str, torch.Tensor], str], Any]] = {
    "one is gone": lambda tensors, name: tensors.pop(name),
    "one is more": lambda tensors, name: tensors.update(extra=torch.zeros(2)),
    "one is larger": lambda tensors, name: tensors.update({name: torch.zeros(7, 7)}),
    "one is a row that could be repeated": lambda tensors, name: tensors.update(
        {name: tensors[name][:1].clone()}
    ),
    "one is of whole numbers": lambda tensors, name: tensors.update({name: tensors[name].long()}),
    "one is of float64": lambda tensors, name: tensors.update({name: tensors[name].double()}),
    "one is not finite": lambda tensors, name: tensors[name].view(-1)[0].fill_(NAN),
}


@pytest.mark.parametrize("case", CHANGED)
@pytest.mark.parametrize("kind", ["model", "rnn"])
def test_tensors_that_do_not_fit(original: Make, kind: str, case: str):
    folder, (weights, _, name) = original(kind), FILES[kind]
    tensors = load_file(folder / weights)
    CHANGED[case](tensors, name)
    save_file(tensors, folder / weights)
    seal(folder, kind)
    if (kind, case) == ("model", "one is not finite"):
        assert load_model(folder, diverged=True).W_U.isnan().any()
    refusal(lambda: EVERY[kind, weights](folder), str(folder))


# --- one value is another -------------------------------------------------------------------------

MODELS = {  # ... is: it is not there
    "config": [..., [], nest(200)],
    "sha256": [..., 5, "0" * 64],
    "config.d_model": [..., 2**31, 10**30, -1, "10", NAN, [10]],
    "config.n_ctx": [2**40],
    "config.n_heads": [2**40],
    "config.__class__": ["os.system"],
    "format": ["tl_dyck.model/99"],
    "extra": ["x"],
}
#: artefact and file -> names of a value -> what it is now
VALUES: dict[tuple[str, str], dict[str, list[Any]]] = {
    ("model", "config.json"): {
        **MODELS,
        "config.n_layers": [2**31, 0, "2", 10**9],
        "config.n_types": [2**31],
        "config.max_depth": [2**31, 100],
        "config.d_mlp": [10**9],
        "config.ln_c": [-1.0, ...],
        "config.embedding": ["token"],
        "config.brackets": [["(", ")"], ["(", "(", "(", "("], [1, 2, 3, 4]],
        "config.block": ["eval", "bare"],
        "config.dtype": ["int64", "hub.load", "float64"],
        "config.eps": [NAN],
        "config.act_fn": ["__import__"],
    },
    ("text", "config.json"): {
        **MODELS,
        "config.words": ["good", ["<unk>", "<cls>"], ["<unk>", "<cls>", "a", "a"], [*"abcd"]],
        "config.n_classes": [2**31, 1],
        "config.position": ["eval"],
        "config.n_heads": [2**40, 3],
    },
    ("rnn", "rnn.json"): {
        **MODELS,
        "config.attn_scale": [NAN, 0.0],
        "config.state": ["eval"],
        "config.alphabet": [["a"], [1, 2, 3, 4, 5], 3],
        "config.bos_token": [99],
        "config.max_depth": [2**60],
        "config.d_vocab": [2**31 - 1],
    },
    ("checkpoint", "checkpoint.json"): {
        "tensors": [
            *("../../secret.safetensors", "/etc/passwd", ".", "state-4\0.safetensors", 5, "", ...),
            *("state-5.safetensors", "checkpoint.json"),
        ],
        "step": [10**12, -1, 4.0, ..., True, "4"],
        "seconds": [NAN, INFINITE, -5.0, "1", ...],
        "status": ["owned", [], ...],
        "identity": [..., "x"],
        "identity.task": [{}],
        "format": ["tl_dyck.run/0"],
        "history": ["abc", [1, 2], ..., [5], [[]], [{"step": 1}]],
        "history.0.accuracy": [INFINITE],
        "history.0.loss": [..., INFINITE],
        "history.0.step": [NAN],
        "sha256": ["0" * 64, None],
    },
    ("run", "result.json"): {
        "identity.task.n_types": [3],
        "identity": [...],
        "identity.task": ["dyck", ...],
        "identity.task.owned": [1],
        "identity.task.q": [2.0],
        "identity.model.d_model": [11],
        "identity.options": [[], {"step": 1}],
        "identity.options.steps": [0, "10"],
        "identity.seed": [..., "1"],
        "accuracy": [..., [], {"n": 1}],
        "seconds": [NAN, -1, "1"],
        "status": [None],
        "step": [-1],
        "format": ["tl_dyck.run/0"],
        "history": ["abc", [1, 2]],
        "history.0.accuracy": [INFINITE, NAN],
        "history.0.loss": ["0.5", INFINITE],
    },
    ("sweep", "sweep.json"): {
        "sweep": [..., []],
        "points": [..., 5, [POINT, "x" * 20]],
        "sweep.seeds": [{"start": 0, "count": 10_000_000}, [NAN]],
        "sweep.grid": [HUGE_GRID],
    },
    ("study", "results.json"): {
        "environment": [...],
        "runs.0": [..., "0" * 20],
        "config": [...],
        "config.owned": [1],
        "config.training": [[]],
        "config.families": [[1, 2], nest(300)],
        "config.measurement.n_long": ["many"],
        "task": [5],
    },
}


@pytest.mark.parametrize(
    ("artefact", "file", "keys", "value"),
    [
        (*place, keys, value)
        for place, changes in VALUES.items()
        for keys, values in changes.items()
        for value in values
    ],
)
def test_values_that_cannot_be(original: Make, artefact: str, file: str, keys: str, value: Any):
    folder = original(artefact)
    names = [int(name) if name.isdigit() else name for name in keys.split(".")]
    alter(folder / file, *names, value=value)
    others = (sweep_status, load_results) if artefact == "sweep" else ()
    for read in (READERS[artefact, file], *others):
        refusal(lambda read=read: read(folder), str(folder))


# --- models ---------------------------------------------------------------------------------------


def test_a_state_that_is_gone_or_cut_or_of_another_run(original: Make):
    folder = original("checkpoint")
    identity = read_json(folder / "checkpoint.json")["identity"]
    with pytest.raises(CheckpointError, match="holds another run; it differs in seed"):
        read_checkpoint(folder, {**identity, "seed": 7})
    assert load_result(original("run")).task == TASK
    (state,) = folder.glob("state-*.safetensors")
    state.write_bytes(state.read_bytes()[:-1])
    refusal(lambda: read_checkpoint(folder, identity), state.name, "truncated")
    state.unlink()
    refusal(lambda: read_checkpoint(folder, identity), state.name, "Delete")


# --- sweeps and studies ---------------------------------------------------------------------------


def test_the_largest_sweeps_are_counted_not_enumerated():
    assert Sweep(seeds=100_000, grid={"x": list(range(10))}).n_points == 10
    with pytest.raises(SweepError, match=r"11 points × 100,000 seeds = 1,100,000 runs are too"):
        Sweep(seeds=100_000, grid={"x": list(range(11))})


def test_odd_names_in_the_folder_are_left_alone(original: Make):
    folder = original("sweep")
    shelf = folder / "runs" / RUN[:2]
    for name in ("x", "x" * 20 + ".json.corrupt", f"{RUN}.other", ".tl_dyck-x.tmp", "\udcff"):
        (shelf / name).write_bytes(b"x")
    assert sweep_status(folder).counts["done"] == 1
    assert len(load_results(folder)) == 1


def test_what_killed_processes_left_is_removed_and_nothing_else(original: Make):
    folder = original("sweep")
    places = (folder, folder / "points", shelf := folder / "runs" / RUN[:2])
    old = [place / ".tl_dyck-a.tmp" for place in places]
    kept = [shelf / ".tl_dyck-f.txt", shelf / "mine.tmp"]
    for path in (*old, *kept):
        path.touch()
        os.utime(path, (time.time() - 2 * 24 * 3600,) * 2)
    (young := shelf / ".tl_dyck-g.tmp").touch()
    Store.at(folder).tidy()
    assert [path.name for path in old if path.exists()] == []
    assert all(path.exists() for path in (*kept, young))


def test_measures_that_someone_changed(original: Make):
    folder = original("study")
    path = load_study(folder).run_folder(FAMILIES[0], SEEDS[0])
    alter(path / "measures.json", "closings", 0, "accuracy", value=1.0)
    refusal(lambda: load_study(folder), "digest", "to do this run again")


@pytest.mark.parametrize("file", ["patterns", "certificate", "language"])
def test_tensors_that_are_gone(original: Make, file: str):
    folder = original("study")
    for path in folder.glob(f"runs/*/*/{file}.safetensors"):  # the page shows the worst of them
        save_file({"other": torch.zeros(3)}, path)
    refusal(lambda: write_report(load_study(folder), folder / "report.html"), str(folder))


def test_a_study_is_reported_with_markup_in_its_environment(original: Make):
    """And what others wrote stays text in the page; more in tests/report."""
    folder = original("study")
    evil = "</script><script>alert(1)</script>\x1b[2J"
    alter(folder / "results.json", "environment", "platform", value=evil)
    alter(folder / "results.json", "environment", "versions", evil, value=evil)
    page = write_report(load_study(folder), folder / "report.html").read_text()
    assert "<script>alert" not in page
    assert "alert(1)" in page
