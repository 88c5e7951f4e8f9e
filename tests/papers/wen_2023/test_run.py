"""A reproduction from end to end, on few and hardly trained models."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from tests.recorded import numbers as recorded
from tests.studies.jobs import TINY_PAPER, few_groups
from tl_dyck.intervals import distances
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.report import write_report
from tl_dyck.studies.claims import load_claims
from tl_dyck.studies.reproduction import Reproduction, load_reproduction, reproduce
from tl_dyck.studies.rules import VERDICTS
from tl_dyck_papers.stack_use import STACK_USE_2026
from tl_dyck_papers.wen_2023 import CLAIMS, SCALES, WEN_2023
from tl_dyck_papers.wen_2023.measure import probe_strings

pytestmark = pytest.mark.filterwarnings(
    "ignore::ResourceWarning"
)  # joblib's pool of workers outlives a call


FEW = (
    "gpt",
    "minimal-onehot",
    "minimal-onehot-complete-weight-0",
    "minimal-onehot-complete-weight-1",
)


THREE = ("variation-minimal", "contrastive-beta-complete", "theorem-2-loss")
PAPER = dataclasses.replace(WEN_2023, claims=[claim for claim in CLAIMS if claim.name in THREE])


@pytest.fixture
def few():
    with few_groups(FEW, steps=8, batch_size=8, check_every=4, check_size=20):
        yield


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("reproduce")


def test_everything_is_trained_measured_judged_and_kept(few, folder):
    done = reproduce(PAPER, TINY_PAPER, folder, n_jobs=1, progress=False)
    assert done.claims["name"].tolist() == list(THREE)
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

    again = reproduce(
        PAPER, TINY_PAPER, folder, n_jobs=1, progress=False
    )  # nothing is trained anew
    assert again.evidence.models["seconds"].tolist() == done.evidence.models["seconds"].tolist()
    loaded = load_reproduction(folder)
    pd.testing.assert_frame_equal(loaded.claims, done.claims)
    for name in ("models", "heads", "checkpoints"):
        pd.testing.assert_frame_equal(getattr(loaded.evidence, name), getattr(done.evidence, name))
    assert loaded.scale == TINY_PAPER


def test_the_variation_is_the_probes_own(few, folder):
    from tl_dyck.models import load_model
    from tl_dyck.probes.variation import attention_variation

    done = reproduce(PAPER, TINY_PAPER, folder, n_jobs=1, progress=False)
    models = [load_model(done.evidence.run_folder("gpt", seed)) for seed in range(3)]
    found = done.evidence.variation("gpt", "mixed", layer=0)
    expected = attention_variation(
        models, probe_strings(models[0].cfg.language, TINY_PAPER.measurement.data_seed)["mixed"]
    )
    assert found.estimate.value == pytest.approx(expected.matched[0])
    assert found.baseline == pytest.approx(expected.random_baseline)
    square = distances(*[done.evidence.patterns("gpt", "mixed")[:, 0, 0]] * 2)
    assert square.sum() / 6 == pytest.approx(expected.matched[0], rel=1e-5)


def test_claims_of_ones_own_are_a_file(few, folder, tmp_path):
    """Another paper: rows of a file, read from the same runs; its page has no figures."""
    rows = tmp_path / "claims.yaml"
    rows.write_text(
        "- {about: Mine, where: page 1, quantity: share of models, read: all_learn, form: .0%,\n"
        "   claims: [{name: mine, says: All learn., of: {groups: [gpt]}, rule: {above: 0.5}}]}\n"
    )
    paper = dataclasses.replace(PAPER, name="mine", title="My paper", claims=load_claims(rows))
    done = reproduce(paper, TINY_PAPER, folder, n_jobs=1, progress=False)
    assert done.claims["name"].tolist() == ["mine"]
    assert done.claims["measured"].tolist() == ["0% [0%, 71%]"]
    assert done.claims["rule"].tolist() == ["the mean is above 50%"]
    assert done.command == "tl-dyck reproduce --paper mine --scale tiny --seeds 3"
    page = write_report(load_reproduction(folder, paper), tmp_path / "page.html")
    assert "My paper" in page.read_text(encoding="utf-8")
    with pytest.raises(CorruptFileError, match=r"a reproduction as a whole.*unknown paper 'mine'"):
        load_reproduction(folder)


@pytest.mark.parametrize("seeds", [None, 5])
def test_the_command_says_what_is_not_usual(seeds):
    scale = SCALES["full"] if seeds is None else SCALES["full"].with_seeds(seeds)
    evidence = SimpleNamespace(scale=scale)
    done = Reproduction(
        paper=WEN_2023, folder=Path(), claims=pd.DataFrame(), evidence=evidence, environment={}
    )
    assert done.command == "tl-dyck reproduce --scale full" + " --seeds 5" * (seeds == 5)
    other = dataclasses.replace(done, paper=STACK_USE_2026)
    other.evidence.scale = STACK_USE_2026.scales["paper"]
    assert other.command == "tl-dyck reproduce --paper stack-use-2026 --scale paper"
    scale = dataclasses.replace(
        done.paper.scales["quick"], name="quick, n_bootstrap=9, to_the_end=8"
    )
    done.evidence.scale = scale
    said = "tl-dyck reproduce --scale quick --set n_bootstrap=9 --set to_the_end=8"
    assert done.command == said


def test_what_is_wrong_is_said(tmp_path):
    with pytest.raises(UnknownNameError, match=r"unknown paper 'quick'"):
        reproduce("quick")
    with pytest.raises(ValueError, match="seeds must be at least 2, to compare models, not 1"):
        reproduce("wen-2023", "quick", tmp_path, seeds=1)
    with pytest.raises(UnknownNameError, match=r"unknown scale 'quik'\. Did you mean 'quick'"):
        reproduce("wen-2023", "quik", tmp_path)
    with pytest.raises(CorruptFileError):
        load_reproduction(tmp_path)
    (tmp_path / "claims.json").write_text('{"format": "other"}')
    with pytest.raises(CorruptFileError, match="not hold a reproduction of this version"):
        load_reproduction(tmp_path)
