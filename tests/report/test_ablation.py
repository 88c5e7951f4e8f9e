"""A study whose folder has an ablation shows it in its report."""

from __future__ import annotations

from dataclasses import replace

from tests.report.pages import read_page
from tl_dyck.report import write_report
from tl_dyck.runs.saved import find_models
from tl_dyck.studies.ablation import AblateConfig, ablate_runs


def test_the_report_of_a_study_shows_its_ablation(tiny_study, tmp_path):
    for path in tiny_study.folder.iterdir():
        (tmp_path / path.name).symlink_to(path)
    runs = [found.folder for found in find_models(tmp_path, {"model": "gpt"})[:2]]
    config = AblateConfig(finetune=None, leave_one_out=None, n=10)
    out = tmp_path / "ablation"
    ablate_runs(runs, out, config=config, n_bootstrap=5, n_jobs=1, progress=False)
    moved = replace(tiny_study, folder=tmp_path)
    page = read_page(write_report(moved, tmp_path / "new.html"))
    sections = [section.attributes["id"] for section in page.find("main")[0].find("section")]
    assert sections.index("heads") < sections.index("recalled")
    assert "#heads" in [link.attributes["href"] for link in page.find("nav")[0].find("a")]
    without = read_page(write_report(tiny_study, tmp_path / "without.html"))
    assert not without.find("section", id="heads")
