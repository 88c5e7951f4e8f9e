"""The page of a reproduction: each claim's verdict, nothing external, plots plotly accepts."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import numpy as np
import pytest

import tl_dyck.studies.reproduction
from tests.report.pages import Node, check_plots, csv, data_block, read_page, whole_page
from tests.studies.jobs import TINY_PAPER, few_groups
from tests.test_cli import call
from tl_dyck.intervals import Estimate, regression
from tl_dyck.report import write_report
from tl_dyck.studies.claims import claims_table
from tl_dyck.studies.reproduction import Reproduction, load_reproduction, reproduce
from tl_dyck.studies.rules import VERDICTS, Measured
from tl_dyck_papers.wen_2023 import CLAIMS, WEN_2023
from tl_dyck_papers.wen_2023.readings import LONG

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

GROUPS = ("gpt", "minimal-onehot-complete-weight-0", "minimal-onehot-complete-weight-1")
NAMES = (
    "variation-no-positions",
    "contrastive-beta-complete",
    "correlation-complete",
)
NAMES += ("theorem-2-loss", "theorem-2-length", "misleading-heads-2-layers")
SCALE = dataclasses.replace(
    TINY_PAPER, measurement=dataclasses.replace(TINY_PAPER.measurement, n_long=4)
)


@pytest.fixture(scope="module")
def done(tmp_path_factory: pytest.TempPathFactory):
    with few_groups(GROUPS, steps=9, batch_size=8, check_every=3, check_size=20):
        claims = [claim for claim in CLAIMS if claim.name in NAMES]
        paper, folder = (
            dataclasses.replace(WEN_2023, claims=claims),
            tmp_path_factory.mktemp("reproduction"),
        )
        yield reproduce(paper, SCALE, folder, n_jobs=1, progress=False)


@pytest.fixture(scope="module")
def report(done: Reproduction) -> Path:
    return write_report(done)


@pytest.fixture(scope="module")
def page(report: Path) -> Node:
    return read_page(report)


def test_one_file_that_is_the_same_each_time(done, report, page, tmp_path):
    assert report == done.folder / "reproduce.html"
    again = write_report(load_reproduction(done.folder), tmp_path / "new" / "again.html")
    assert again.read_bytes() == report.read_bytes()
    whole_page(report, n_scripts=2)
    with pytest.raises(IsADirectoryError, match="name a file"):
        write_report(done, done.folder)


def test_a_row_for_every_claim(done, page):
    table = page.find("section", id="claims")[0].find("table")[0]
    rows = table.find("tbody")[0].find("tr")
    assert len(rows) == len(done.claims) == len(NAMES)
    for row, claim in zip(rows, done.claims.itertuples(), strict=True):
        cells = [cell.text for cell in row.children]
        assert cells[0] == f"{claim.says}{' (our check)' * claim.ours} ({claim.where})"
        assert cells[1] == (claim.reported or "–")
        assert cells[2] == claim.measured
        assert cells[5] == claim.verdict
        assert cells[5] in VERDICTS
        for part in (claim.reading, claim.rule, claim.assumed, claim.why):
            assert part in cells[6]
    heads = [cell.text for cell in table.find("thead")[0].find("th")]
    assert "reported (recalled)" in heads
    text = page.find("section", id="claims")[0].text
    for verdict, meaning in VERDICTS.items():
        assert f"{verdict}{meaning}" in text


def test_a_row_says_both_numbers_and_why_it_counts_as_neither(done, tmp_path):
    """What stands beside the number, which way a rule goes that came late, and when it came."""
    (claim,) = (each for each in CLAIMS if each.name == "at-length")
    estimate = Estimate(value=0.7, low=0.68, high=0.72, n=9)
    found = Measured(estimate=estimate, reading="So it is.", beside="of all 85.0%")
    table = claims_table([claim], {"at_length": lambda evidence, groups: found}, None)
    path = write_report(dataclasses.replace(done, claims=table), tmp_path / "page.html")
    (row,) = read_page(path).find("section", id="claims")[0].find("tbody")[0].find("tr")
    cells = [cell.text for cell in row.children]
    assert cells[2] == "70.0% [68.0%, 72.0%]of all 85.0%"
    assert cells[5] == "post hoc (reproduced)"
    assert "Rule: the mean is between 62.5% and 75%." in cells[6]
    assert f"Post hoc: {claim.rule.post_hoc}." in cells[6]
    (line,) = path.with_name("claims.md").read_text(encoding="utf-8").splitlines()[2:]
    assert "| 70.0% [68.0%, 72.0%]; of all 85.0% |" in line
    assert line.endswith("| 9 | post hoc (reproduced) |")


def test_the_claims_can_be_saved(done, page):
    saved = csv(page, "claims", keep_default_na=False)
    assert saved["verdict"].tolist() == done.claims["verdict"].tolist()


def test_every_plot_is_one_that_plotly_draws(page):
    assert {name.rpartition("-")[0] for name in check_plots(page)} == {
        *("variation", "balance-complete", "theorem-2-loss", "theorem-2-length", "misleading")
    }


def test_the_regression_is_that_of_the_marks(done, page):
    plot = data_block(page, "data-plots")["balance-complete-0"]["data"]
    line = next(trace for trace in plot if trace.get("name") == "regression")
    models = done.evidence.of(*GROUPS[1:])
    marks = [trace for trace in plot if trace.get("name", "").startswith("λ")]
    assert sorted(x for trace in marks for x in trace["x"]) == pytest.approx(sorted(models["beta"]))
    slope, height = np.polyfit(models["beta"], 100 * models[LONG], 1)
    assert line["y"] == pytest.approx([slope * x + height for x in line["x"]], abs=1e-6)
    _, low, high = regression(
        models["beta"].to_numpy(),
        100 * models[LONG].to_numpy(),
        np.array(line["x"]),
        30,
        SCALE.measurement.data_seed,
    )
    assert plot[0]["y"] == pytest.approx(low.tolist())
    assert plot[1]["y"] == pytest.approx(high.tolist())


def test_the_most_different_seeds_are_shown(done, page):
    (gallery,) = page.find("section", id="patterns")
    assert gallery.find("h3")[0].text.startswith("gpt Figure 1; these two differ by")
    assert len(gallery.find("svg")) == 2
    assert all(
        "top of the stack" in node.attributes["aria-label"]
        for node in gallery.find("div", role="img")
    )


def test_the_command(done, monkeypatch):
    asked = []
    run = lambda *of, **how: asked.append((of, how)) or done  # noqa: E731
    monkeypatch.setattr(tl_dyck.studies.reproduction, "reproduce", run)
    (done.folder / "reproduce.html").unlink(missing_ok=True)
    result = call("reproduce --scale full --out there --jobs 3 --device cpu")
    assert result.exit_code == 0, result.output
    how = {"n_jobs": 3, "backend": "loky", "address": None, "retry_failed": False, "seeds": None}
    assert asked == [(("wen-2023", "full", Path("there")), {**how, "device": "cpu"})]
    assert result.output.splitlines()[-1] == f"Report: {done.folder / 'reproduce.html'}"
    assert (done.folder / "reproduce.html").exists()
    for claim in done.claims.itertuples():
        (line,) = [line for line in result.output.splitlines() if line.startswith(f"{claim.name} ")]
        assert claim.verdict in line
        assert claim.measured in line
        assert len(line) <= 80
    ours = int(done.claims["ours"].sum())
    assert f"{len(NAMES) - ours} claims: " in result.output
    assert f"; {ours} checks of ours: " in " ".join(result.output.split())


def test_the_table_as_markdown(done: Reproduction, report: Path):
    lines = report.with_name("claims.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 + len(done.claims)
    for line, claim in zip(lines[2:], done.claims.itertuples(), strict=True):
        cells = [cell.strip() for cell in line.replace("\\|", "").strip("|").split("|")]
        assert len(cells) == 7
        assert (cells[3], cells[6]) == (claim.rule, claim.verdict)
        assert cells[0] == claim.says.rstrip(".") + " (our check)" * claim.ours
