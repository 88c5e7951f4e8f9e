"""What a file says can be printed: no reader hands on what a terminal, or a page, would obey.

Every text in every kind of file that is read gets characters that a terminal acts on, and what is
said of it (by errors, by what was read, on pages) is looked at. Which modules read files is found
in the sources, so that a new reader is asked for here.
"""

from __future__ import annotations

import ast
import contextlib
import hashlib
import inspect
import io
import json
import re
import shutil
import sys
import warnings
from collections.abc import Callable, Iterator
from functools import cache
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch

from tests.certify.proofs.common import PAIR, SMALL
from tests.hostile.tools import READERS
from tests.models.test_arena import random_state
from tests.models.test_foreign import gpt2
from tests.sources import ROOT, SOURCES, nodes, shown
from tests.test_cli import typed
from tl_dyck import construct
from tl_dyck.ablation import FinetuneConfig
from tl_dyck.certify import check_model
from tl_dyck.certify.edit_proofs import prove_edits
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.judge.run import judge_methods, load_judgement
from tl_dyck.judge.suites import Suite
from tl_dyck.kit import files, records
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.visible import UNSAFE
from tl_dyck.models import build_model, get_config, save_model
from tl_dyck.models.arena import load_arena
from tl_dyck.models.foreign import as_hooked
from tl_dyck.report import write_report
from tl_dyck.studies import load_study
from tl_dyck.studies.ablation import AblateConfig, ablate_runs, load_ablation

MARK = "INJECTED"
EVIL = f"x\n{MARK}\r{MARK}\x1b[2J{MARK}\x85{MARK}\u2028{MARK}\u202e{MARK}\x00<script>{MARK}"


def texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], bool]]:
    """Places of texts in a JSON value, of keys too (True).

    Of lists the first two entries; of numbers in a dict, and of texts in one of nothing else, too.
    """
    if isinstance(value, dict):
        kinds = {key: type(inner) for key, inner in value.items()}
        alike = [*kinds] if {*kinds.values()} == {str} else []
        alike = [key for key in kinds if key in alike or kinds[key] in (int, float, bool)]
        for key, inner in value.items():
            if key in alike[2:]:
                continue
            yield (*path, key), True
            yield from texts(inner, (*path, key))
    elif isinstance(value, list):
        for i, inner in enumerate(value[:2]):
            yield from texts(inner, (*path, i))
    elif isinstance(value, str):
        yield path, False


def changed(value: Any, path: tuple[Any, ...], is_key: bool, by: Callable[[str], str]) -> Any:
    """A JSON value with one text changed."""
    if not path:
        return by(value)
    first, rest = path[0], path[1:]
    copy = dict(value) if isinstance(value, dict) else list(value)
    if is_key and not rest:
        return {by(key) if key == first else key: inner for key, inner in value.items()}
    copy[first] = changed(value[first], rest, is_key, by)
    return copy


def whole(text: str) -> str:
    return EVIL


def added(text: str) -> str:
    return text + EVIL


def versions(path: Path) -> Iterator[tuple[str, bytes]]:
    """A file with one of its texts changed, in words which."""
    data = path.read_bytes()
    if path.suffix == ".safetensors":
        size = int.from_bytes(data[:8], "little")
        header = json.loads(data[8 : 8 + size])
        for where, is_key in texts(header):
            line = json.dumps(changed(header, where, is_key, added)).encode()
            yield f"{where}", len(line).to_bytes(8, "little") + line + data[8 + size :]
    elif path.suffix == ".proof":
        facts, _, arrays = data.partition(b"\n")[2].partition(b"\n")
        for where, is_key in texts(json.loads(facts)):
            few = "arrays" not in where[:-1] or where[-1] == "W_E"  # of many alike
            for by in ((added,) if is_key else (whole, added)) if few else ():
                line = json.dumps(changed(json.loads(facts), where, is_key, by)).encode()
                rest = line + b"\n" + arrays
                yield f"{where}", hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest
    elif path.suffix == ".parquet":
        yield from table_versions(pq.read_table(path))
    elif path.suffix == ".pt":
        state = torch.load(path, weights_only=True)
        for name in state:
            content = io.BytesIO()
            torch.save({added(key) if key == name else key: state[key] for key in state}, content)
            yield name, content.getvalue()
    elif path.suffix in (".json", ".yaml") and data.lstrip()[:1] in (b"{", b"["):
        value = json.loads(data)
        for where, is_key in texts(value):
            for by in (added,) if is_key else (whole, added):
                yield f"{where}", json.dumps(changed(value, where, is_key, by)).encode()
    else:
        lines = data.decode().split("\n")
        for i in range(min(3, len(lines))):
            for cell in range(len(lines[i].split("\t"))):
                cells = lines[i].split("\t")
                cells[cell] += EVIL.replace("\n", "")
                some = [*lines[:i], "\t".join(cells), *lines[i + 1 :]]
                yield f"line {i + 1}, cell {cell + 1}", "\n".join(some).encode()


def table_versions(table: pa.Table) -> Iterator[tuple[str, bytes]]:
    """A table with another name of a column, other texts in all its cells, or other metadata."""

    def written(table: pa.Table) -> bytes:
        content = io.BytesIO()
        pq.write_table(table, content)
        return content.getvalue()

    numbers = [field.name for field in table.schema if "string" not in str(field.type)]
    for i, field in enumerate(table.schema):
        if field.name in numbers[3:]:  # of many alike
            continue
        named = [added(name) if i == j else name for j, name in enumerate(table.column_names)]
        yield f"column {field.name}", written(table.rename_columns(named))
        if field.type in (pa.string(), pa.large_string()):
            cells = [None if cell is None else added(cell) for cell in table[i].to_pylist()]
            column = pa.array(cells, field.type)
            yield f"cells of {field.name}", written(table.set_column(i, field, column))
        else:
            column = pa.array([EVIL] * len(table))
            yield f"text in {field.name}", written(table.set_column(i, field.name, column))
    yield "metadata", written(table.replace_schema_metadata({EVIL: EVIL, "pandas": EVIL}))


def wrong(said: str) -> str | None:
    """What a terminal would obey in a text, if anything."""
    if UNSAFE.search(said):
        return f"raw {UNSAFE.findall(said)!r}"
    if re.search(rf"(?m)^{MARK}", said):
        return "a line of its own"
    return None


def said_of(read: Callable[[Path], Any], folder: Path) -> tuple[str, str]:
    """What an error says, or what was read shows of itself."""
    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        try:
            found = read(folder)
            kind, said = "read", f"{found!r}"
        except (DyckError, ValueError, OSError) as error:
            kind, said = "refused", str(error)
            if len(said.splitlines()) != 1:
                return kind, f"{said}\n{MARK} no single line"
    return kind, "\n".join([said, *(str(each.message) for each in warned)])


#: Files that no fixture makes.
MADE = {
    "mine.yaml": '{"experiment": "mine", "grid": {"x": ["a", "b"]}, "common": {"y": "c"}}',
    "strings.txt": "[(\t]\n[[\t]\n",
    "dyck.txt": "(a (b b) a) END\n(b\n",
}
MADE["mine.json"] = MADE["mine.yaml"]


class Printed(str):
    """What is shown as it is."""

    def __repr__(self) -> str:
        return str(self)


def checked(folder: Path) -> Printed:
    """What checkers say of the proof that was changed last; of one, beside its model."""
    path = max(folder.glob("*.proof"), key=lambda each: each.stat().st_mtime_ns)
    return Printed(check_model.verdict(path, *([folder] if path.stem == "beside" else []))[1])


def reported(load: Callable[[Path], Any], folder: Path) -> Printed:
    """What is shown of an analysis: by itself, by its page."""
    found = load(folder)
    page = write_report(found).read_text(encoding="utf-8")
    assert f"<script>{MARK}" not in page
    return Printed(f"{found!r}\n" + page.replace("\t", " "))


def judged_anew(folder: Path) -> Printed:
    """A judgement from the answers in the folders of its runs, as nothing is kept beside them."""
    for path in (folder / "made").glob("*.parquet"):
        path.unlink()
    return reported(load_judgement, folder / "made")


def make_proofs(folder: Path) -> None:
    """A proof of each kind, and the model that some are of."""
    model = build_model(get_config("minimal-onehot", PAIR, d_model=8, d_mlp=2))
    layers = build_model(get_config("eq49", PAIR, n_layers=2, d_model=4, d_mlp=2))
    uniform = construct.uniform_attention(SMALL.language)
    proofs = {
        "beside": prove_language(uniform, SMALL, 1),
        "agree": prove_language(model, PAIR, 1, "agree", other=model),
        "layers": prove_language(layers, PAIR, 1, "agree", other=layers),
        "paths": prove_language(uniform, SMALL, 1, by="paths"),
        "edits": prove_edits(uniform, "[[", None, "swap:1"),
    }
    save_model(uniform, folder)
    for name, proof in proofs.items():
        proof.save(folder / f"{name}.proof")


def make_judgement(folder: Path) -> None:
    suite = Suite(name="tiny", first_seed=0, sizes={"uniform": 1})
    judge_methods(suite, folder / "made", ["chance"], n_jobs=1, progress=False)


def make_ablation(folder: Path) -> None:
    save_model(build_model(get_config("gpt", SMALL, n_heads=2, d_model=8)), folder / "model")
    tuning = FinetuneConfig(penalties=(0.1,), steps=1, batch_size=2, n_eval=4)
    config = AblateConfig(n=20, finetune=tuning, leave_one_out=None)
    how: Any = {"config": config, "n_jobs": 1, "progress": False}
    ablate_runs([folder / "model"], folder / "made", task=SMALL, **how)


def make_arena(folder: Path) -> None:
    torch.save(random_state(), folder / "arena.pt")


#: What is made here, the files in it that are spoilt, and who reads them.
MORE: dict[str, tuple[Callable[[Path], None], str, Callable[[Path], Any]]] = {
    "proofs": (make_proofs, "*.proof", checked),
    "arena": (make_arena, "arena.pt", lambda at: load_arena(at / "arena.pt")),
    "ablation": (
        *(make_ablation, "made/runs/*/*/*.parquet"),
        lambda at: reported(load_ablation, at / "made"),
    ),
    "answers": (make_judgement, "made/runs/*/*/*.parquet", judged_anew),
    "records of a judgement": (
        *(make_judgement, "made/**/*.json"),
        lambda at: load_judgement(at / "made"),
    ),
    "judgement": (
        *(make_judgement, "made/*.parquet"),
        lambda at: reported(load_judgement, at / "made"),
    ),
}


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Callable[[Callable[[Path], None]], Path]:
    """A folder that somebody makes, made once; copy it."""

    @cache
    def folder(make: Callable[[Path], None]) -> Path:
        place = tmp_path_factory.mktemp("made")
        make(place)
        return place

    return folder


@pytest.mark.parametrize("every", [3, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("made", MORE)
def test_what_other_files_say_is_shown_harmlessly(
    made: str, every: int, once: Any, tmp_path: Path
) -> None:
    """Every third text of a file, other ones of the next; and all."""
    make, files, read = MORE[made]
    shutil.copytree(once(make), tmp_path, dirs_exist_ok=True)
    if made != "arena":  # whose sizes are none of ARENA's
        assert said_of(read, tmp_path)[0] == "read"
    seen = {"read": 0, "refused": 0}
    for first, path in enumerate(sorted(tmp_path.glob(files))):
        kept = path.read_bytes()
        for where, data in islice(versions(path), first % every, None, every):
            path.write_bytes(data)
            kind, said = said_of(read, tmp_path)
            seen[kind] += 1
            assert wrong(said) is None, f"{path.name}, {where}: {wrong(said)} in {said!r:.600}"
        path.write_bytes(kept)
    assert sum(seen.values()) > 3 / every


@pytest.mark.parametrize(("artefact", "file"), READERS, ids=lambda each: str(each))
def test_what_a_file_says_is_shown_harmlessly(original: Any, artefact: str, file: str) -> None:
    folder = original(artefact)
    path = sorted(folder.glob(file))[0] if any(c in file for c in "*?") else folder / file
    if file in MADE:
        path.write_text(MADE[file])
    if not path.exists():
        pytest.skip("made by no fixture")
    kept, seen = path.read_bytes(), {"read": 0, "refused": 0}
    for where, data in versions(path):
        path.write_bytes(data)
        kind, said = said_of(READERS[artefact, file], folder)
        seen[kind] += 1
        assert wrong(said) is None, f"{where}: {wrong(said)} in {said!r:.600}"
    path.write_bytes(kept)
    assert sum(seen.values()) > 1


@pytest.mark.global_rng
def test_what_a_folder_of_transformers_says_is_shown_harmlessly(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path)
    path, refused = tmp_path / "config.json", 0
    for where, data in versions(path):
        path.write_bytes(data)
        kind, said = said_of(as_hooked, tmp_path)
        refused += kind == "refused"
        assert wrong(said) is None, f"{where}: {wrong(said)} in {said!r:.600}"
    assert refused


def test_a_page_of_what_files_say_obeys_none_of_it(original: Any) -> None:
    """All texts are changed that may be anything, one after the other and together."""
    folder = original("study")
    accepted = 0
    for path in [folder / "results.json", *sorted(folder.glob("runs/*/*.json"))[:2]]:
        for where, is_key in reversed([*texts(json.loads(path.read_bytes()))]):  # inner ones first
            kept = path.read_bytes()
            value = changed(json.loads(kept), where, is_key, added)
            path.write_text(json.dumps(value))
            try:
                load_study(folder)
                accepted += 1
            except (ValueError, OSError):
                path.write_bytes(kept)
    assert accepted > 5
    page = write_report(load_study(folder), folder / "page.html").read_text(encoding="utf-8")
    assert MARK in page
    assert f"<script>{MARK}" not in page
    assert not set(UNSAFE.findall(page)) - {"\t"}
    done = typed(["report", str(folder)])
    assert wrong(done.stdout + done.stderr) is None


def readers() -> set[str]:
    """Modules that call what opens files, by their sources."""
    names = {name for each in (files, records) for name in vars(each) if name.startswith("read_")}
    where, found = (files.__name__, records.__name__), set()
    for path in SOURCES.values():
        for node in nodes(path):
            if not isinstance(node, ast.ImportFrom) or node.module not in where:
                continue
            if names & {each.name for each in node.names}:
                found.add(shown(path))
    return found


#: Modules that read files, of which other tests spoil what is in them.
ELSEWHERE = {
    "tl_dyck/models/foreign.py": "here, a folder of transformers",
    "tl_dyck/models/state_dicts.py": "tensors alone: tests/models/test_arena.py",
    "tl_dyck/judge/run.py": "here, tables and records of a judgement",
    "tl_dyck/judge/public.py": "a suite: tests/judge/test_public.py",
    "hooks/tl_dyck_papers/adders.py": "tensors alone",
    "hooks/tl_dyck_papers/decompiled.py": "two numbers: tests/papers/test_published.py",
    "tl_dyck/studies/ablation.py": "here, tables of an ablation",
    "tl_dyck/runs/merge.py": "a sweep's records",
    "tl_dyck/report/sweep.py": "tensors alone",
    "hooks/tl_dyck_hooks/certifiers/onnx_vnnlib.py": "what a program answers",
    "hooks/tl_dyck_papers/wen_2023/evidence.py": "a sweep's records",
    "hooks/tl_dyck_text/study.py": "a sweep's records",
}


def test_every_module_that_reads_files_is_asked(
    original: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    called = set()

    def noted(function: Any) -> Any:
        def read(*given: Any, **how: Any) -> Any:
            called.add(sys._getframe(1).f_code.co_filename)
            return function(*given, **how)

        return read

    found = [(room, name) for room in (files, records) for name in vars(room) if "read_" in name]
    noting = {getattr(room, name): noted(getattr(room, name)) for room, name in found}
    for room in [each for name, each in sys.modules.items() if name.startswith("tl_dyck")]:
        for name, value in [*vars(room).items()]:
            if inspect.isfunction(value) and value in noting:
                monkeypatch.setattr(room, name, noting[value])
    for artefact in dict.fromkeys(artefact for artefact, _ in READERS):
        folder = original(artefact)
        for file, text in MADE.items():
            (folder / file).write_text(text)
        for file in (file for each, file in READERS if each == artefact):
            with contextlib.suppress(ValueError, OSError):
                READERS[artefact, file](folder)
    assert {each for each in readers() if str(ROOT / each) not in called} == ELSEWHERE.keys()
