"""README's tables say what is recorded, and every record says where it comes from."""

from __future__ import annotations

import json
import re
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pandas as pd
import pytest

import tl_dyck.studies.reproduction
from tests.docs.test_docs import DOCS, load
from tl_dyck.environment import environment
from tl_dyck.intervals import Estimate
from tl_dyck.studies import Measurement, StudyConfig, run_study
from tl_dyck.studies.claims import claims_table, tally
from tl_dyck.studies.paper import CLAIMS, WEN_2023, Scale
from tl_dyck.studies.reproduction import Reproduction
from tl_dyck.studies.rules import Measured
from tl_dyck.training import TrainConfig

PAGES = "".join(page.read_text(encoding="utf-8") for page in load(DOCS / "figures.py").PAGES)
RECORDS = sorted((DOCS / "results").glob("*.json"))


@pytest.fixture
def figures() -> ModuleType:
    return load(DOCS / "figures.py")


@pytest.fixture
def recording(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    module = load(DOCS / "record.py")
    monkeypatch.setattr(module, "_commit", lambda: "abc1234")
    return module


def test_the_pages_show_every_record_as_it_is(figures: ModuleType) -> None:
    shown = re.findall(r"<!-- table: (.*?) -->", PAGES)
    written = sorted({**figures.TABLES, **figures.TEXTS})
    shown.remove("methods")  # declared, not recorded
    assert sorted(shown) == [path.stem for path in RECORDS] == written
    assert PAGES.count("<!-- /table -->") == len(shown) + 1
    assert figures.rendered(PAGES) == PAGES, "run: make readme-figures"


@pytest.mark.parametrize("path", RECORDS, ids=lambda path: path.stem)
def test_every_record_says_where_it_comes_from(path: Path, figures: ModuleType) -> None:
    record = json.loads(path.read_text(encoding="utf-8"))
    assert record["command"].startswith(("tl-dyck ", "python demos/", "make bench"))
    missing = [name for name in figures.PROVENANCE if not record[name]]
    if missing:  # typed in: said below the table
        assert "not recorded" in record["note"]
        assert record["note"] in PAGES
    else:
        assert re.fullmatch(r"\d{4}-\d\d-\d\d", record["date"])
        assert re.fullmatch(r"[0-9a-f]{7,}", record["commit"]), (
            "recorded with changes that are not committed"
        )
        assert {"tl-dyck", "torch", "transformer_lens"} <= set(record["versions"])
        assert record["cpu"] in PAGES


@pytest.mark.parametrize("name", ["study", "contrast", "text", "claims", "judge"])
def test_a_number_that_changes_changes_the_readme(
    name: str, figures: ModuleType, monkeypatch: Any
) -> None:
    text = (DOCS / "results" / f"{name}.json").read_text(encoding="utf-8")
    changed = json.loads(re.sub(r"(?<!-)0\.\d\d", "0.77", text))  # not in names: rate-0.003
    monkeypatch.setattr(figures, "read", lambda name: changed)
    assert figures.render(name) not in PAGES
    assert "0.77" in figures.render(name) or "77" in figures.render(name)


def test_a_table_that_nobody_knows(figures: ModuleType) -> None:
    with pytest.raises(ValueError, match="asks for a table 'other'; there are study"):
        figures.rendered("<!-- table: other -->\n<!-- /table -->\n")


@pytest.mark.parametrize(
    ("estimate", "options", "text"),
    [
        ((1.234, 1.0, 2.0), {}, "1.23 [1.00, 2.00]"),
        ((0.9921, 0.9899, 0.99996), {"form": ".1f", "percent": True}, "99.2 % [99.0, 100]"),
        ((0.801, 0.79, 0.816), {"form": ".0f", "percent": True}, "80 % [79, 82]"),
    ],
)
def test_numbers_with_their_intervals(
    estimate: tuple[float, ...], options: dict[str, Any], text: str, figures: ModuleType
) -> None:
    assert (
        figures.interval(dict(zip(("mean", "low", "high"), estimate, strict=True)), **options)
        == text
    )


# --- recording ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def study(tmp_path_factory: pytest.TempPathFactory) -> Any:
    config = StudyConfig(
        families=("minimal-onehot",), seeds=(0, 1, 2),
        training=TrainConfig(steps=3, check_every=3, check_size=9),
        measurement=Measurement(n_accuracy=9, n_long=2, n_strings=9, n_certified=1, n_inserted=1,
                                decided_length=4),
        n_bootstrap=9,
    )  # fmt: skip
    return run_study(
        config, tmp_path_factory.mktemp("found") / "weight-0.5", n_jobs=1, progress=False
    )


def test_a_study_is_recorded_as_it_is(
    study: Any, figures: ModuleType, recording: ModuleType, monkeypatch: Any
) -> None:
    found = recording.record_study(study.folder)
    assert {
        name: found[name] for name in ("versions", "python", "cpu", "cpu_cores")
    }.items() <= environment().items()
    (row,) = found["rows"]
    for name in ("accuracy", "long_accuracy_after_close"):
        assert row[name]["mean"] == pytest.approx(study.models[name].mean())
    assert row["variation"]["mean"] == pytest.approx(study.variation["variation"].item())
    monkeypatch.setattr(
        figures, "read", lambda name: json.loads(json.dumps(found, allow_nan=False))
    )
    shown = figures.render("study")
    mean = 100 * study.models["accuracy_after_close"].mean()
    assert f"| `minimal-onehot` | {mean:.1f} % [" in shown
    assert (
        f"a copier of the last token 85% ({study.task.closing_chance(long=True).copier:.0%})"
        in shown
    )
    assert f"commit abc1234; tl-dyck {environment()['versions']['tl-dyck']}" in shown
    assert environment()["cpu"] in shown


def test_contrast_is_recorded_as_it_is(study: Any, recording: ModuleType) -> None:
    record = recording.record_contrast(study.folder.parent)
    assert record["command"].endswith("--weights 0.5")
    (row,) = record["rows"]
    assert row["balance_violation"]["mean"] == pytest.approx(
        study.models["balance_violation"].mean()
    )
    assert row["certified_share"] == pytest.approx(study.models["certified_share"].mean())


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
    tmp_path: Path, figures: ModuleType, recording: ModuleType, monkeypatch: Any
) -> None:
    (tmp_path / "claims.json").write_text("{}")
    done = reproduced(tmp_path)
    monkeypatch.setattr(tl_dyck.studies.reproduction, "load_reproduction", lambda folder: done)
    record = recording.record_claims(tmp_path)
    assert record["command"] == "tl-dyck reproduce --scale quick"
    again = json.loads(recording.written(record))
    assert again == record
    row = again["rows"][0]
    assert (row["name"], row["value"], row["unit"]) == ("variation-no-positions", 0.9, 0.5)
    assert recording.written(record).count("\n  {") == len(CLAIMS)
    shown = figures.claims(again)
    assert shown.count("| 0.90 [0.80, 1.00]; 0.8 of all |") > 20
    assert "was “" not in shown  # by the same rules
    assert f"\n{tally(done.claims)}. Recorded: `tl-dyck reproduce --scale quick`" in shown
    for row in again["rows"]:
        row["verdict"] = "undecided"
    changed = sum(done.claims["verdict"] != "undecided")
    assert figures.claims(again).count("; was “undecided” |") == changed > 40
    assert "| post hoc (not reproduced); was “undecided” |" in figures.claims(again)


def test_sentences_are_recorded_as_they_are(
    tmp_path: Path, figures: ModuleType, recording: ModuleType
) -> None:
    ends = {f"{name}{end}": 0.5 for name in ("clean", "certified") for end in ("", "_low", "_high")}
    rows = [
        {
            "k": 8,
            "space": space,
            "objective": "worst",
            "steps": 1091.0,
            "enumerated": 3,
            "disagreements": 0,
            **ends,
        }
        for space in ("dup:2,sub:2", "del:2,dup:2")
    ]
    pd.DataFrame(rows).to_csv(tmp_path / "summary.csv", index=False)
    question = {
        "spaces": ["dup:2,sub:2", "del:2,dup:2"],
        "training": {"seconds": 30.0, "steps": 1000},
    }
    (tmp_path / "question.json").write_text(json.dumps(question))
    (tmp_path / "environment.json").write_text(json.dumps(environment()))
    text = recording.record_text(tmp_path)
    assert text["command"].endswith("--seconds 30")
    assert text["enumerated"] == 6
    half = "50.0 % [50.0, 50.0]"
    assert figures.text_table(json.loads(json.dumps(text)))[1] == [
        "8",
        "worst",
        "1,091",
        half,
        half,
        half,
    ]


def test_benchmarks_are_recorded_one_by_one(
    tmp_path: Path, figures: ModuleType, recording: ModuleType, monkeypatch: Any
) -> None:
    before = figures.read("performance")["scripts"]
    with pytest.raises(ValueError, match="run make bench first"):
        recording.record_performance(tmp_path)
    (tmp_path / "bench_balance.txt").write_text("\x1b[1m2.50×\x1b[0m as fast\n")
    after = recording.record_performance(tmp_path)["scripts"]
    assert [script["name"] for script in after] == [script["name"] for script in before]
    changed = [new for new, old in zip(after, before, strict=True) if new != old]
    assert [(script["name"], script["output"]) for script in changed] == [
        ("bench_balance.py", "2.50× as fast")
    ]
    assert "commit abc1234" in figures.performance({"scripts": changed})


def test_results_that_do_not_name_the_cpu_are_not_recorded(
    tmp_path: Path, recording: ModuleType, monkeypatch: Any
) -> None:
    (tmp_path / "claims.json").write_text("{}")
    done = reproduced(tmp_path, cpu=None)
    monkeypatch.setattr(tl_dyck.studies.reproduction, "load_reproduction", lambda folder: done)
    with pytest.raises(
        ValueError, match="does not name the CPU: an older version wrote it; run it again"
    ):
        recording.record_claims(tmp_path)


def test_the_readme_quotes_the_judgement_as_it_is(figures: ModuleType) -> None:
    """Every number of its short table is one of the long one's."""
    readme = figures.README.read_text(encoding="utf-8")
    short = readme.partition("### Which methods tell the truth?")[2].partition("###")[0]
    record = figures.read("judge")
    known = {
        f"{s['auroc']:.2f} [{s['auroc_low']:.2f}, {s['auroc_high']:.2f}]"
        for row in record["rows"]
        for s in row["scores"].values()
    }
    quoted = re.findall(r"\d\.\d\d \[\d\.\d\d, \d\.\d\d\]", short)
    assert len(quoted) >= 10
    assert set(quoted) <= known
    assert f"{record['facts']:,} questions about {record['cases']} models" in short
