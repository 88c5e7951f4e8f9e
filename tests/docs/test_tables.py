"""The pages' tables are what commands wrote, or what is recorded, and say where they come from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

import tl_dyck.studies.reproduction
from tests.docs.test_docs import DOCS, ROOT, load
from tl_dyck.intervals import Estimate
from tl_dyck.kit.environment import environment
from tl_dyck.studies import Measurement, StudyConfig, run_study
from tl_dyck.studies.claims import claims_table, tally
from tl_dyck.studies.reproduction import Reproduction
from tl_dyck.studies.rules import Measured
from tl_dyck.training import TrainConfig
from tl_dyck_papers.wen_2023 import CLAIMS, WEN_2023, Scale

PAGES = "".join(page.read_text(encoding="utf-8") for page in load(DOCS / "tables.py").PAGES)
RECORDS = sorted((DOCS / "results").glob("*.json"))


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load(DOCS / "tables.py")
    monkeypatch.setattr(module, "_commit", lambda: "abc1234")
    return module


def test_the_pages_show_every_record_as_it_is(tables: ModuleType) -> None:
    """With verdicts by the rules as they are."""
    assert [path.stem for path in RECORDS] == sorted(tables.RECORDS)
    for name, (_, show) in tables.RECORDS.items():
        assert PAGES.count(f"<!-- table: {name} -->") == 1
        assert tables.placed(PAGES, name, show(tables.read(name))) == PAGES, "make readme-figures"
    assert tables.placed(PAGES, "methods", tables.methods()) == PAGES, "make readme-figures"
    shown = dict(re.findall(r"<!-- table: (.*?) -->(.*?)<!-- /table -->", PAGES, re.DOTALL))
    assert len(shown) == PAGES.count("<!-- /table -->") == 23
    del shown["methods"]  # declared, not recorded
    for name, text in shown.items():
        assert "ecorded" in text.strip().splitlines()[-1], name


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_record_says_where_it_comes_from(path: Path, tables: ModuleType) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["command"].startswith(("tl-dyck ", "python -m "))
    assert all(record[name] for name in tables.PROVENANCE)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
    assert re.fullmatch(r"[0-9a-f]{7,}", record["commit"]), "there were changes not committed"
    assert {"tl-dyck", "torch", "transformer_lens"} <= set(record["versions"])
    assert record["cpu"] in PAGES


def test_a_study_leaves_its_table_and_a_page_gets_it(tables: ModuleType, tmp_path: Path) -> None:
    config = StudyConfig(
        families=("minimal-onehot",), seeds=(0, 1, 2),
        training=TrainConfig(steps=3, check_every=3, check_size=9),
        measurement=Measurement(n_accuracy=9, n_long=2, n_strings=9, n_certified=1, n_inserted=1,
                                decided_length=4),
        n_bootstrap=9,
    )  # fmt: skip
    study = run_study(config, tmp_path, n_jobs=1, progress=False)
    text = tables.copied(tmp_path, "tl-dyck study --steps 3")
    mean = 100 * study.models["accuracy_after_close"].mean()
    assert f"| `minimal-onehot` | {mean:.1f} % [" in text
    assert f"| {study.variation['variation'].item():.2f} [" in text
    chance = study.task.closing_chance(long=True)
    assert f"copying the last token is right 85% of the time ({chance.copier:.0%})" in text
    assert "Recorded: `tl-dyck study --steps 3`; " in text
    assert f"commit abc1234; tl-dyck {environment()['versions']['tl-dyck']}" in text
    page = tables.placed(PAGES, "study", text)
    assert text in page
    assert page.count("\n|") < PAGES.count("\n|")
    (tmp_path / "results.json").unlink()
    with pytest.raises(ValueError, match="does not say where its table was made"):
        tables.copied(tmp_path, "")


def reproduced(folder: Path, **environment_of: Any) -> Any:
    """A reproduction whose every claim was found to be 0.9 [0.8, 1.0]."""
    estimate = Estimate(value=0.9, low=0.8, high=1.0, n=4)

    def read(evidence: Any, **of: Any) -> Measured:
        return Measured(estimate=estimate, unit=0.5, beside="0.8 of all", reading="so")

    claims = claims_table(CLAIMS, {claim.read: read for claim in CLAIMS}, None)
    return Reproduction(
        paper=WEN_2023, folder=folder, claims=claims, evidence=SimpleNamespace(scale=Scale()),
        environment={**environment(), **environment_of},
    )  # fmt: skip


def test_claims_are_recorded_as_they_are(
    tmp_path: Path, tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "claims.json").write_text("{}")
    done = reproduced(tmp_path)
    monkeypatch.setattr(tl_dyck.studies.reproduction, "load_reproduction", lambda folder: done)
    record = tables.record_claims(tmp_path)
    assert record["command"] == "tl-dyck reproduce --scale quick"
    again = json.loads(tables.written(record))
    assert again == record
    row = again["rows"][0]
    assert (row["name"], row["value"], row["unit"]) == ("variation-no-positions", 0.9, 0.5)
    assert tables.written(record).count("\n  {") == len(CLAIMS)
    shown = tables.claims(again)
    assert shown.count("| 0.90 [0.80, 1.00]; 0.8 of all |") > 20
    assert "was “" not in shown  # by the same rules
    assert f"\n{tally(done.claims)}. Recorded: `tl-dyck reproduce --scale quick`" in shown
    for row in again["rows"]:
        row["verdict"] = "undecided"
    changed = sum(done.claims["verdict"] != "undecided")
    assert tables.claims(again).count("; was “undecided” |") == changed > 40
    assert "| post hoc (not reproduced); was “undecided” |" in tables.claims(again)


def test_results_that_do_not_name_the_cpu_are_not_recorded(
    tmp_path: Path, tables: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "claims.json").write_text("{}")
    done = reproduced(tmp_path, cpu=None)
    monkeypatch.setattr(tl_dyck.studies.reproduction, "load_reproduction", lambda folder: done)
    with pytest.raises(ValueError, match="does not name the CPU: an older version wrote it"):
        tables.record_claims(tmp_path)


def test_benchmarks_are_recorded_one_by_one(tmp_path: Path, tables: ModuleType) -> None:
    page = (DOCS / "findings" / "performance.md").read_text(encoding="utf-8")
    same = tables.benchmarks(tmp_path)
    assert tables.placed(page, "performance", same) == page
    (tmp_path / "bench_balance.txt").write_text("\x1b[1m2.50×\x1b[0m as fast\n")
    new, old = (text.split("### ") for text in (tables.benchmarks(tmp_path), same))
    (changed,) = [now for now, before in zip(new, old, strict=True) if now != before]
    assert changed.startswith("`bench_balance.py`")
    assert "\n2.50× as fast\n" in changed
    assert "commit abc1234" in changed


def test_the_readme_and_the_findings_quote_the_judgement_as_it_is(tables: ModuleType) -> None:
    """Every number of the short table is one of the long one's, and so is README's."""
    findings = (DOCS / "findings" / "study.md").read_text(encoding="utf-8")
    short = findings.partition("## Which methods tell the truth?")[2].partition("\n##")[0]
    record = tables.read("judge")
    known = {
        f"{s['auroc']:.2f} [{s['auroc_low']:.2f}, {s['auroc_high']:.2f}]"
        for row in record["rows"]
        for s in row["scores"].values()
    }
    quoted = re.findall(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", short)
    assert len(quoted) >= 10
    (first,) = re.findall(r"AUROC\s+(\S+ \[\S+ [0-9.]+\])", (ROOT / "README.md").read_text("utf-8"))
    assert {first, *quoted} <= known
    assert f"{record['facts']:,} questions about {record['cases']} models" in short


def test_passes_stand_beside_the_scores_of_methods_of_which_they_are_known(
    tables: ModuleType,
) -> None:
    record = tables.read("judge")
    for row in record["rows"]:
        row.pop("passes", None)
    assert "passes, back" not in tables.judge(record)
    (row,) = (each for each in record["rows"] if each["method"] == "zero-ablation")
    row |= {"passes": 3.46, "backward": 0.04}
    lines = tables.judge(record).splitlines()
    assert lines[0].endswith("| s a case | passes, back |")
    (found,) = (line for line in lines if line.startswith("| zero-ablation | 1.00"))
    assert found.endswith(" | 3.5, 0.0 |")
    assert sum(line.endswith(" | 3.5, 0.0 |") for line in lines) == 1


@pytest.mark.parametrize(
    ("left", "words"),
    [
        (None, r"was not attacked: python -m tests.judge.attack "),
        ({"digest": "other"}, "is of other answers, other"),
        ({"auroc": 0.76}, r"boosting has 0.76 \[0.60, 0.90\] of 'needed', and 0.75 is promised"),
        ({"question": "stack", "auroc": 0.99}, "of 'stack', and 0.75 is promised"),
        ({"auroc": 0.74}, r"0.74 \[0.60, 0.90\] of 'needed', and an interval that ends at 0.80 is"),
        ({"auroc": 0.74, "auroc_high": 0.8}, ""),
    ],
)
def test_no_suite_is_recorded_that_was_not_attacked_or_gives_its_answers_away(
    left: dict[str, Any] | None, words: str, tmp_path: Path, tables: ModuleType
) -> None:
    row = {"question": "needed", "auroc": 0.7, "auroc_low": 0.6, "auroc_high": 0.9,
           "by": "boosting", "tried": 24}  # fmt: skip
    if left is not None:
        found = {"digest": left.get("digest", "this"), "rows": [{**row, **left}]}
        (tmp_path / "attack.json").write_text(json.dumps(found))
    if words:
        with pytest.raises(ValueError, match=words):
            tables._attack(tmp_path, "this")
        if "promised" in words:  # of suites with several columns, those that hold can stay
            withdrawn: dict[str, str] = {}
            tables._attack(tmp_path, "this", withdrawn)
            assert [*withdrawn] == [{**row, **(left or {})}["question"]]
    else:
        scores, said = tables._attack(tmp_path, "this")
        assert [*scores] == [{**row, **(left or {})}["question"]]
        assert said.startswith("“attack”: the best of 24 learners and views (")
