"""Studies at the edge: one seed, so no pairs; runs that diverged, so no finite numbers."""

from __future__ import annotations

from dataclasses import replace

import pandas as pd

from tl_dyck.studies import Measurement, Study, StudyConfig, findings, load_study, run_study
from tl_dyck.training import TrainConfig

SMALL = StudyConfig(
    families=("gpt",),
    seeds=(0,),
    training=TrainConfig(steps=3, check_every=2, check_size=20),
    measurement=Measurement(n_accuracy=20, n_long=2, n_strings=20, decided_length=4),
    n_bootstrap=20,
)


def same(a: Study, b: Study) -> None:
    for name in ("models", "heads", "variation"):
        pd.testing.assert_frame_equal(getattr(a, name), getattr(b, name), check_dtype=False)
    assert a.summary == b.summary
    assert findings(a) == findings(b)


def test_one_seed_has_no_variation(tmp_path):
    study = run_study(SMALL, tmp_path, n_jobs=1, progress=False)
    assert study.variation.empty
    assert "variation" in study.variation
    same(study, load_study(tmp_path))


def test_runs_that_diverge_are_results_like_any_other(tmp_path):
    wild = TrainConfig(steps=12, learning_rate=1e30, warmup_steps=0, check_size=20)
    config = replace(SMALL, families=("minimal-onehot", "gpt"), seeds=(0, 1), training=wild)
    study = run_study(config, tmp_path, n_jobs=1, progress=False)
    assert list(study.models["status"]) == ["diverged"] * 4
    assert study.models["loss"].isna().all()
    assert study.variation.empty  # no two patterns that could be compared
    (failure,) = [finding for finding in findings(study) if "did not reach" in finding.title]
    assert failure.text.count("2 diverged") == 2
    same(study, load_study(tmp_path))
