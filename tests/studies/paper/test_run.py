"""A reproduction from end to end, on few and hardly trained models."""

from __future__ import annotations

import dataclasses

import pandas as pd
import pytest

from tests.recorded import numbers as recorded
from tests.studies.jobs import TINY_PAPER
from tl_dyck.files import CorruptFileError
from tl_dyck.intervals import distances
from tl_dyck.registry import UnknownNameError
from tl_dyck.studies.paper import CLAIMS, SCALES, VERDICTS, load_reproduction, reproduce
from tl_dyck.studies.paper import evidence as evidence_module
from tl_dyck.studies.paper import run as run_module
from tl_dyck.studies.paper import scales as scales_module
from tl_dyck.studies.paper.measure import probe_strings
from tl_dyck.studies.paper.scales import groups_of
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.training import TrainConfig

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # joblib's pool of workers outlives a call


FEW = (
    "gpt",
    "minimal-onehot",
    "minimal-onehot-complete-weight-0",
    "minimal-onehot-complete-weight-1",
)


def few_groups(scale):
    for group in groups_of(scale):
        if group.name in FEW:
            weight = group.training.contrastive_weight
            training = TrainConfig(
                steps=8,
                batch_size=8,
                check_every=4,
                check_size=20,
                target=None,
                contrastive_weight=weight,
            )
            yield dataclasses.replace(group, training=training)


@pytest.fixture
def few(monkeypatch):
    claims = [
        c
        for c in CLAIMS
        if c.name in ("variation-minimal", "contrastive-beta-complete", "theorem-2-loss")
    ]
    for module in (scales_module, evidence_module):
        monkeypatch.setattr(module, "groups_of", lambda scale: list(few_groups(scale)))
    monkeypatch.setattr(run_module, "CLAIMS", claims)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


def test_everything_is_trained_measured_judged_and_kept(few, folder):
    done = reproduce(TINY_PAPER, folder, n_jobs=1, progress=False)
    assert done.claims["name"].tolist() == [
        "variation-minimal",
        "contrastive-beta-complete",
        "theorem-2-loss",
    ]
    recorded.check("reproduction", recorded.of_reproduction(done))
    assert set(done.claims["verdict"]) <= set(VERDICTS)
    assert done.claims["reported"].tolist() == ["0.24", "", ""]
    assert len(done.evidence.models) == 12
    assert done.evidence.models.groupby("group")["beta"].count().to_dict() == {
        name: 3 * (name != "gpt") for name in FEW
    }
    assert done.evidence.checkpoints.groupby("seed")["step"].agg(list).tolist() == [[4, 8]] * 3
    # the violation on the way ends with that of the finished model
    last = done.evidence.checkpoints.set_index(["seed", "step"])["beta"][:, 8]
    end = done.evidence.of("minimal-onehot-complete-weight-0").set_index("seed")["beta"]
    assert last.tolist() == end.tolist()
    assert len(done.evidence.heads) == 3 * 2 + 9

    again = reproduce(TINY_PAPER, folder, n_jobs=1, progress=False)  # nothing is trained anew
    assert again.evidence.models["seconds"].tolist() == done.evidence.models["seconds"].tolist()
    loaded = load_reproduction(folder)
    pd.testing.assert_frame_equal(loaded.claims, done.claims)
    for name in ("models", "heads", "checkpoints"):
        pd.testing.assert_frame_equal(getattr(loaded.evidence, name), getattr(done.evidence, name))
    assert loaded.scale == TINY_PAPER


def test_the_variation_is_the_probes_own(few, folder):
    from tl_dyck.models import load_model
    from tl_dyck_hooks.probes import attention_variation

    done = reproduce(TINY_PAPER, folder, n_jobs=1, progress=False)
    models = [load_model(done.evidence.run_folder("gpt", seed)) for seed in range(3)]
    found = done.evidence.variation("gpt", "mixed", layer=0)
    expected = attention_variation(
        models, probe_strings(models[0].cfg.language, TINY_PAPER.data_seed)["mixed"]
    )
    assert found.estimate.value == pytest.approx(expected.matched[0])
    assert found.baseline == pytest.approx(expected.random_baseline)
    square = distances(*[done.evidence.patterns("gpt", "mixed")[:, 0, 0]] * 2)
    assert square.sum() / 6 == pytest.approx(expected.matched[0], rel=1e-5)


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown scale 'quik'\. Did you mean 'quick'"):
        reproduce("quik", tmp_path)
    with pytest.raises(CorruptFileError):
        load_reproduction(tmp_path)
    (tmp_path / "claims.json").write_text('{"format": "other"}')
    with pytest.raises(CorruptFileError, match="not hold a reproduction of this version"):
        load_reproduction(tmp_path)


def test_lengths_of_a_task_can_be_changed():
    group = next(group for group in groups_of(SCALES["quick"]) if group.longest == 12)
    task = group.load_task()
    assert isinstance(task, DyckTask)
    assert task.train_lengths == (2, 4, 6, 8, 10, 12)
    assert (task.name, task.long_lengths) == ("dyck-2-4-to-12", load_task("dyck-2-4").long_lengths)
