"""A suite as a file: the same cases bit by bit, and nothing from a file that is not one."""

from __future__ import annotations

import contextlib
import json
import lzma
import os
import pickle
import sys
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

import tl_dyck
from tests.judge.conftest import Facts
from tl_dyck.cli.entry import app
from tl_dyck.judge import (
    JudgeError,
    Suite,
    SuiteFile,
    judge_method,
    judge_methods,
    make_suite,
    methods,
    open_suite,
    public,
)
from tl_dyck.judge.case_files import LARGEST_CASE, dump_case, packed, read_case, unpacked
from tl_dyck.judge.cases import group_of, sealed_case
from tl_dyck.judge.isolation import SealedCase
from tl_dyck.judge.scores import ask
from tl_dyck.kit.files import CorruptFileError, MissingFileError
from tl_dyck.kit.registry import UnknownNameError

TINY = Suite(name="tiny", first_seed=0, sizes={"uniform": 2, "features": 1})
CASES = [("uniform", 0), ("alone", 0), ("levels", 0), ("features", 0)]


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> SuiteFile:
    return make_suite(TINY, tmp_path_factory.mktemp("s") / "t.suite", n_jobs=1, progress=False)


def without_times(rows: Any) -> pd.DataFrame:
    return pd.DataFrame(rows).drop(columns="seconds", errors="ignore")


@pytest.mark.parametrize("name", CASES, ids=str)
def test_a_case_comes_back_bit_by_bit(name: tuple[str, int]) -> None:
    sealed = sealed_case(*name)
    data = dump_case(sealed.copy(), sealed.facts)
    again = SealedCase(*name, *read_case(unpacked(packed(data), len(data), "it"), "it"))
    assert again.facts == sealed.facts
    old, new = sealed.copy(), again.copy()
    assert (old.name, old.task, old.length) == (new.name, new.task, new.length)
    assert torch.equal(old.tokens, new.tokens)
    assert (old.directions is None) == (new.directions is None)
    assert old.directions is None or torch.equal(old.directions, new.directions)
    for mine, theirs in ((old.model, new.model), (old.other, new.other)):
        assert (mine is None) == (theirs is None)
        if mine is None:
            continue
        weights, others = dict(mine.named_parameters()), dict(theirs.named_parameters())
        assert [*weights] == [*others]  # in this order somebody may add them up
        for key, weight in weights.items():
            other = others[key]
            assert torch.equal(weight, other), key
            assert weight.stride() == other.stride(), key
            assert weight.requires_grad == other.requires_grad, key
        assert mine.training == theirs.training
        assert vars(mine.cfg).keys() == vars(theirs.cfg).keys()
        assert mine.cfg.to_saved() == theirs.cfg.to_saved()
    for method in ("zero-ablation", "weight-distance", "forest"):
        if method in methods:
            rows = [
                without_times(ask(method, methods.get(method), each)) for each in (sealed, again)
            ]
            pd.testing.assert_frame_equal(*rows, check_exact=True)


def test_a_judgement_from_the_file_is_that_of_making(file: SuiteFile, tmp_path: Path) -> None:
    chosen = ["chance", "resample-ablation"]
    read, made = (
        judge_methods(suite, tmp_path / name, chosen, n_jobs=1, progress=False)
        for name, suite in (("read", file), ("made", TINY))
    )
    assert read.digest == made.digest
    assert read.suite == made.suite
    pd.testing.assert_frame_equal(
        without_times(read.answers), without_times(made.answers), check_exact=True
    )
    assert read.sealed("uniform-1").facts == made.sealed("uniform-1").facts
    file.path.rename(elsewhere := file.path.with_name("elsewhere.suite"))
    public.opened.cache_clear()
    try:
        with pytest.raises(MissingFileError):
            read.sealed("uniform-1")
    finally:
        elsewhere.rename(file.path)
    again = judge_methods(file, tmp_path / "read", chosen, n_jobs=1, progress=False)
    pd.testing.assert_series_equal(
        again.answers["seconds"], read.answers["seconds"]
    )  # nothing was done


def test_the_public_suite_comes_with_the_package(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, shipped_facts: Facts
) -> None:
    """Cases of which nothing is trained are those that are made, up to rounding; none is made."""
    kept = public.shipped(public.SUITES["quick"])
    assert kept is not None
    assert kept.recorded
    assert kept.path.stat().st_size < 15e6
    assert {*kept.suite.cases()} == {*public.SUITES["quick"].cases()} == {*shipped_facts}
    heard = Counter(
        (fact.question.kind, group_of(kind) != "")
        for (kind, _), facts in shipped_facts.items()
        for fact in facts
    )
    for kind in ("needed", "carries", "pattern", "token"):
        assert heard[kind, True] >= heard[kind, False], kind  # half are of trained models
    for name in ("uniform", kept.suite.first_seed), ("stack", kept.suite.first_seed):
        made = sealed_case(*name)
        for known, again in zip(kept.sealed(*name).facts, made.facts, strict=True):
            assert (known.question, known.answer) == (again.question, again.answer)
            assert known.sizes == pytest.approx(again.sizes, abs=1e-9)
        mine, theirs = (
            dict(each.copy().model.named_parameters()) for each in (kept.sealed(*name), made)
        )
        for key, weight in mine.items():
            torch.testing.assert_close(weight, theirs[key], rtol=1e-12, atol=1e-12)
    few = replace(public.SUITES["quick"], sizes={"uniform": 1})
    assert public.shipped(few) is None  # another suite of that name
    asked: list[Any] = []
    monkeypatch.setattr("tl_dyck.judge.run.run_sweep", lambda sweep, *_, **__: asked.append(sweep))
    monkeypatch.setattr("tl_dyck.judge.run.load_judgement", lambda path: path)
    monkeypatch.setattr(
        "tl_dyck.judge.run._JUDGEMENT", type("", (), {"write": lambda *_, **__: None})
    )
    for how in ({}, {"backend": "dask", "address": "tcp://there:1"}):
        judge_methods("quick", tmp_path, ["chance"], progress=False, **how)
    assert [each.common.get("digest") for each in asked] == [kept.digest, None]


def test_who_takes_cases_of_the_public_suite_makes_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a judgement in a script nor a test's fixture trains what is in the package."""

    def made(kind: str, seed: int) -> None:
        raise AssertionError(f"{kind}-{seed} was made")

    monkeypatch.setattr(public, "sealed_case", made)
    monkeypatch.setattr("tl_dyck.judge.scores.sealed_case", made)
    quick = public.SUITES["quick"]
    first = next(iter(tl_dyck.cases("quick", kinds="trained")))
    assert first.name == f"trained-{quick.first_seed}"
    assert next(public.sealed_cases(quick)).kind == "uniform"
    file = public.shipped(quick)
    assert file is not None
    few = replace(quick, sizes={"uniform": 2})
    monkeypatch.setattr(public, "shipped", lambda suite: file)
    assert int(judge_method("sizes", few)["cases"].max()) == 2
    assert int(judge_method("sizes", replace(file, suite=few))["cases"].max()) == 2


def test_a_case_of_which_nothing_is_asked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """As of some with one head; it is in the suite all the same."""
    silent = SealedCase("alone", 7, sealed_case("uniform", 0).copy(), [])
    monkeypatch.setattr(
        "tl_dyck.judge.run.sealed_case",
        lambda kind, seed: silent if kind == "alone" else sealed_case(kind, seed),
    )
    both = Suite(name="both", first_seed=0, sizes={"uniform": 1, "alone": 1})
    done = judge_methods(both, tmp_path / "both", ["chance"], n_jobs=1, progress=False)
    assert set(done.answers["case"]) == {"uniform-0"}
    none = Suite(name="none", first_seed=0, sizes={"alone": 1})
    with pytest.raises(JudgeError, match="nothing is asked"):
        judge_methods(none, tmp_path / "none", ["chance"], n_jobs=1, progress=False)


def test_the_digest_is_of_what_is_in_it(file: SuiteFile, tmp_path: Path) -> None:
    """However it is packed, and wherever it lies."""
    assert not file.path.with_name("t.suite.parts").exists()
    start, index, blobs = taken_apart(file)
    loose = [lzma.compress(lzma.decompress(blob), preset=0) for blob in blobs]
    for entry, blob in zip(index["cases"], loose, strict=True):
        entry["bytes"] = len(blob)
    other = tmp_path / "other.suite"
    other.write_bytes(put_together(start, index, loose))
    assert other.read_bytes() != file.path.read_bytes()
    again = open_suite(other)
    assert again.digest == file.digest
    assert again.sealed("uniform", 1).facts == file.sealed("uniform", 1).facts
    index["suite"]["name"] = "mine"
    other.write_bytes(put_together(start, index, loose))
    assert open_suite(other).digest != file.digest
    with pytest.raises(CorruptFileError, match="another suite"):
        public.opened(str(other), file.digest)


# --- files that are none --------------------------------------------------------------------------


def taken_apart(file: SuiteFile) -> tuple[bytes, dict[str, Any], list[bytes]]:
    data = file.path.read_bytes()
    start, rest = data[:16], data[16:]
    assert start == b"tl_dyck.suite/1\n"
    length = int.from_bytes(rest[:8], "little")
    index, at, blobs = json.loads(rest[8 : 8 + length]), 8 + length, []
    for each in index["cases"]:
        blobs.append(rest[at : at + each["bytes"]])
        at += each["bytes"]
    return start, index, blobs


def put_together(start: bytes, index: Any, blobs: list[bytes]) -> bytes:
    words = index if isinstance(index, bytes) else json.dumps(index).encode()
    return start + len(words).to_bytes(8, "little") + words + b"".join(blobs)


def read_all(place: Path) -> SuiteFile:
    """Every case, up to where it would be made of its words: that is looked at below."""
    found = open_suite(place)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(public, "read_case", lambda data, source: (data, source))
        patch.setattr(public, "SealedCase", lambda *parts: parts)
        for name in found.suite.cases():
            found.sealed(*name)
    return found


def refused(place: Path, words: str = "x.suite") -> None:
    """In one line that names the file."""
    with pytest.raises(CorruptFileError, match=words) as info:
        read_all(place)
    assert str(place) in str(info.value)
    assert "\n" not in str(info.value)


def change(name: str, value: Any, index: int = 0) -> Callable[[dict[str, Any]], None]:
    return lambda found: found["cases"][index].update({name: value})


INDEXES: dict[str, Callable[[dict[str, Any]], Any]] = {
    "more cases": lambda found: found["suite"]["sizes"].update(uniform=100_000),
    "fewer cases": lambda found: found["cases"].pop(),
    "no such kind": lambda found: found["suite"]["sizes"].update(nobody=1),
    "negative bytes": change("bytes", -1),
    "more bytes": change("bytes", 2**40),
    "a bomb": change("size", 2**62),
    "another size": change("size", 2**10),
    "no size": lambda found: found["cases"][0].pop("size"),
    "another digest": change("sha256", "0" * 64),
    "no digest": change("sha256", 5),
    "no suite": lambda found: found.pop("suite"),
    "a suite of another kind": lambda found: found.update(suite=[1]),
    "cases of another kind": lambda found: found.update(cases=5),
    "an unknown field": lambda found: found["suite"].update(answers=[]),
}


@pytest.mark.parametrize("case", INDEXES)
def test_an_index_of_another_file(file: SuiteFile, tmp_path: Path, case: str) -> None:
    start, index, blobs = taken_apart(file)
    INDEXES[case](index)
    place = tmp_path / "x.suite"
    place.write_bytes(put_together(start, index, blobs))
    refused(place)


def test_bytes_that_are_no_suite(file: SuiteFile, tmp_path: Path) -> None:
    start, index, blobs = taken_apart(file)
    data, place = file.path.read_bytes(), tmp_path / "x.suite"
    bomb = lzma.compress(bytes(2**24))
    index["cases"][0].update(bytes=len(bomb), size=2**10)
    for content, words in (
        (b"", "no file of a suite"),
        (pickle.dumps(TINY), "no file of a suite"),
        (data.replace(b"suite/1", b"suite/2", 1), "another version"),
        (start, "cannot be unpacked|does not describe|truncated"),
        (start + (2**63).to_bytes(8, "little"), "truncated"),
        (put_together(start, b"[" * 10**5, []), "does not describe"),
        (data[:-1], "does not describe"),
        (data + b"\0", "does not describe"),
        (put_together(start, index, [bomb, *blobs[1:]]), "does not unpack to"),
    ):
        place.write_bytes(content)
        refused(place, words)
    with pytest.raises(MissingFileError):
        open_suite(tmp_path / "none.suite")


@given(st.data())
def test_one_byte_is_another(file: SuiteFile, data: st.DataObject) -> None:
    """Whatever is changed is seen, or changes nothing."""
    whole = bytearray(file.path.read_bytes())
    at = data.draw(st.integers(0, len(whole) - 1))
    whole[at] ^= data.draw(st.integers(1, 255))
    place = file.path.with_name("changed.suite")
    place.write_bytes(whole)
    with contextlib.suppress(CorruptFileError):
        assert read_all(place).digest != file.digest  # a letter of its name, say


WORDS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "many layers": lambda said: said["models"]["model"]["config"].update(n_layers=10**9),
    "many heads": lambda said: said["models"]["model"]["config"].update(n_heads=2**40),
    "a long context": lambda said: said["models"]["model"]["config"].update(n_ctx=2**40),
    "great depth": lambda said: said["models"]["model"]["config"].update(max_depth=2**31),
    "an evil class": lambda said: said["models"]["model"]["config"].update(act_fn="__import__"),
    "no model": lambda said: said["models"].pop("model"),
    "another order": lambda said: said["models"]["model"]["order"].pop(),
    "no such kind": lambda said: said["facts"][0].__setitem__(0, "truth"),
    "no such head": lambda said: said["facts"][0].__setitem__(1, [0, 99]),
    "a text for a head": lambda said: said["facts"][0].__setitem__(1, "x"),
    "a deep target": lambda said: said["facts"][-1].__setitem__(1, [[[[[1]]]]]),
    "an answer that is a number": lambda said: said["facts"][0].__setitem__(2, 1),
    "an infinite effect": lambda said: said["facts"][0].__setitem__(4, float("inf")),
    "a question twice": lambda said: said["facts"].append(said["facts"][0]),
    "facts that are none": lambda said: said.update(facts=[[]]),
}


@pytest.mark.parametrize("case", WORDS)
def test_a_case_of_other_words(case: str) -> None:
    """With whatever digest; sizes are compared before anything is built."""
    sealed = sealed_case("uniform", 0)
    data = dump_case(sealed.copy(), sealed.facts)
    end = 8 + int.from_bytes(data[:8], "little")
    said = json.loads(data[8:end])
    WORDS[case](said)
    words = json.dumps(said).encode()
    with pytest.raises((CorruptFileError, JudgeError)) as info:
        SealedCase(
            "uniform", 0, *read_case(len(words).to_bytes(8, "little") + words + data[end:], "x")
        )
    assert "\n" not in str(info.value)


def test_what_is_kept_in_no_file(tmp_path: Path) -> None:
    with pytest.raises(JudgeError, match="private"):
        make_suite(replace(TINY, key=5), tmp_path / "x.suite")
    with pytest.raises(UnknownNameError, match="quick"):
        make_suite("quikc", tmp_path / "x.suite")
    case = sealed_case("uniform", 0).copy()
    with pytest.raises(JudgeError, match="its task is another"):
        dump_case(replace(case, length=case.length - 1), [])
    assert len(dump_case(case, [])) < LARGEST_CASE / 5


# --- the command ----------------------------------------------------------------------------------


def told(*words: Any) -> Any:
    return CliRunner().invoke(app, ["judge", *map(str, words)])


def test_the_command_makes_keeps_and_reads_it(
    file: SuiteFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TL_DYCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setitem(public.SUITES, "quick", TINY)
    common = ["--methods", "ov-norm", "--jobs", 1, "--out", tmp_path / "out"]
    kept = public.kept_path(TINY)
    assert not kept.exists()
    first = told(*common)
    assert first.exit_code == 0, first.output
    assert file.digest[:16] in first.output
    assert kept.read_bytes() == file.path.read_bytes()
    monkeypatch.setattr(public, "make_suite", None)  # is not made again
    assert told(*common).exit_code == 0
    named = told(*common, "--suite", file.path)
    assert named.exit_code == 0
    assert "not a recorded one" in named.output
    monkeypatch.setitem(public.RECORDED, TINY.name, file.digest)
    assert ", the recorded one" in told(*common, "--suite", file.path).output
    kept.write_bytes(kept.read_bytes()[:-1])
    spoilt = told(*common)
    assert (spoilt.exit_code, "remove it" in spoilt.output) == (2, True)
    for more in (["--salt", "9f3c61d07be8a4523c0d95e7f18b6a24"], ["--scale", "full"]):
        both = told(*common, "--suite", file.path, *more)
        assert (both.exit_code, "leave out" in both.output) == (2, True)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--methods", ""], "no method is named"),
        (["--methods", "zero-ablatoin"], "zero-ablation"),
        (["--methods", "chance", "--jobs", "x"], "--jobs"),
        (["--methods", "chance", "--out", "/dev/null/x"], "/dev/null"),
        (["nowhere.py:method"], "nowhere.py"),
    ],
)
def test_what_is_wrong_is_said_before_cases_are_made(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, words: list[str], said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TL_DYCK_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(public, "sealed_case", None)
    done = told(*words)
    assert (done.exit_code, said in done.output) == (2, True), done.output
    assert "The cases are made" not in done.output


def test_the_command_writes_a_file(tmp_path: Path) -> None:
    place = tmp_path / "mine.suite"
    sizes, kinds = ["--set", "first_seed=0"], public.SUITES["quick"].sizes
    for kind in kinds:
        sizes += ["--set", f"sizes.{kind}=1"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(public, "sealed_case", lambda kind, seed: sealed_case("uniform", 0))
        done = told("--make-suite", place, "--jobs", 1, *sizes)
    assert done.exit_code == 0, done.output
    assert open_suite(place).digest[:16] in done.output
    assert sum(open_suite(place).suite.sizes.values()) == len(kinds)


def test_a_method_in_a_file_is_judged_by_a_private_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Seeds of a salt are as long as its key; two salts ask about other models."""
    monkeypatch.setitem(public.SUITES, "quick", replace(TINY, sizes={"uniform": 1}))
    (tmp_path / "salted_method.py").write_text(
        "def salted(case, questions):\n    return [0.1] * len(questions)\n"
    )
    digests = set()
    try:
        for salt in ("9f3c61d07be8a4523c0d95e7f18b6a24", "0123456789abcdeffedcba9876543210"):
            out = tmp_path / salt[:4]
            done = told(
                *(f"{tmp_path}/salted_method.py:salted", "--salt", salt, "--jobs", 1),
                *("--methods", "chance", "--out", out),
            )
            assert done.exit_code == 0, done.output
            assert salt not in done.output
            assert "salted" in (out / "judge.tex").read_text()
            found = tl_dyck.judge.load_judgement(out)
            assert f"digest {found.digest}" in (out / "cite.txt").read_text()
            assert (found.answers.set_index("method").loc["salted", "score"] == 0.1).all()
            digests.add(found.digest)
    finally:
        sys.path[:] = [each for each in sys.path if each != str(tmp_path)]
        sys.modules.pop("salted_method", None)
        if "salted" in methods:
            methods.unregister("salted")
    assert len(digests) == 2


# --- cases for tests ------------------------------------------------------------------------------


def test_cases_are_chosen(file: SuiteFile) -> None:
    names = [repr(each) for each in tl_dyck.cases(file)]
    assert names == ["uniform-0", "features-0", "uniform-1"]
    (only,) = tl_dyck.cases(file, kinds="uniform", questions="carries", limit=1)
    assert {fact.question.kind for fact in only.facts} == {"carries"}
    known = [f for f in sealed_case("uniform", 0).facts if f.question.kind == "carries"]
    assert [*only.facts] == known
    assert not [*tl_dyck.cases(file, questions="edge")]
    first, second = (next(iter(tl_dyck.cases(file))).case for _ in range(2))
    assert first.model is not second.model
    for wrong, words in (
        ({"kinds": "stack"}, "uniform"),
        ({"questions": "need"}, "needed"),
        ({"suite": "quikc"}, "quick"),
    ):
        with pytest.raises(UnknownNameError, match=words):
            tl_dyck.cases(**{"suite": file, **wrong})  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit"):
        tl_dyck.cases(file, limit=0)


class Reports:
    """What passed in a run of pytest."""

    def __init__(self) -> None:
        self.passed: list[str] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.append(report.nodeid)


def test_cases_are_a_fixture_of_somebody_else(file: SuiteFile, tmp_path: Path) -> None:
    (tmp_path / "test_mine.py").write_text(
        textwrap.dedent(f"""
        import pytest
        import tl_dyck

        @pytest.fixture(params=tl_dyck.cases(tl_dyck.judge.open_suite({str(file.path)!r}),
                                             questions="needed"), ids=repr)
        def judged(request):
            return request.param

        def test_zero(judged):
            for fact in judged.facts:
                layer, head = fact.question.target
                judged.case.model.blocks[layer].attn.W_O.data[head] = 0.0
            assert judged.case.model(judged.case.tokens).isfinite().all()
        """)
    )
    seen = Reports()  # in this process, whose imports are dear, with no settings of this run
    words = ["-p", "no:cacheprovider", "-p", "no:faulthandler", "--import-mode=importlib"]
    options = [*words, f"--rootdir={tmp_path}", "-c", os.devnull, str(tmp_path / "test_mine.py")]
    assert pytest.main(options, plugins=[seen]) == 0
    assert seen.passed == [
        "test_mine.py::test_zero[uniform-0]",
        "test_mine.py::test_zero[uniform-1]",
    ]
