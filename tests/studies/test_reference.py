"""The study that comes with the package: found by its address, and the same numbers everywhere."""

from __future__ import annotations

from dataclasses import replace
from math import nan
from pathlib import Path
from typing import Any

import pytest
import torch

from tl_dyck import certify_language, load_pretrained
from tl_dyck.kit.addresses import REFERENCE_FOLDER, address_of, beside, split_address
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.report.study import Material, _other_seeds
from tl_dyck.runs.saved import find_models
from tl_dyck.studies import Study, load_study
from tl_dyck.studies.measurement import attention_on, behaviour
from tl_dyck.studies.results import _reference, reference_means

# Of 67,000 closing brackets a model closes, one may be so near a tie that another CPU rounds it the
# other way; pages print tenths of a percent.
PRINTED = 2e-4


@pytest.fixture(scope="module")
def study() -> Study:
    return load_study("reference")


def repeats(study: Study, family: str, seed: int) -> dict[str, Any]:
    """What the study kept of a model, beside the same measured here and now."""
    model = load_pretrained(f"reference:{family}/seed-{seed}")
    patterns = attention_on(model, study.task.language.probe_string)  # variation is of these
    torch.testing.assert_close(patterns, study.patterns(family, seed), atol=1e-5, rtol=0)
    found, _ = behaviour(model, study.task, study.config.measurement, seed)
    rows = study.models[(study.models["family"] == family) & (study.models["seed"] == seed)]
    kept = rows.iloc[0]
    compared = {name: value for name, value in found.items() if value is not None}
    assert len(compared) > 10
    assert compared == pytest.approx({name: kept[name] for name in compared}, abs=PRINTED)
    return compared


@pytest.mark.bits
def test_a_reference_model_measures_the_same_on_every_machine(study):
    assert repeats(study, "minimal-onehot", 3)["accuracy"] == 1


@pytest.mark.slow
def test_all_of_them_measure_the_same(study):
    for row in study.models.itertuples():
        repeats(study, row.family, row.seed)


def decides(study: Study, row: Any) -> None:
    """Every prefix of a model, as the study kept it."""
    model = load_pretrained(f"reference:{row.family}/seed-{row.seed}")
    decided = certify_language(model, study.task, int(row.length))
    assert (decided.status, decided.proved_to) == (row.status, row.proved_to)
    assert decided.accuracy.low == pytest.approx(row.accuracy_low, abs=1e-9)
    assert decided.likeliest.text == row.likeliest


@pytest.mark.bits
def test_what_is_decided_of_one_is_the_same_on_every_machine(study):
    decides(study, study.languages[study.languages["family"] == "minimal-onehot"].iloc[0])


@pytest.mark.slow
def test_what_is_decided_of_all_without_positions_is_the_same(study):
    for row in study.languages[study.languages["family"] == "minimal-onehot"].itertuples():
        decides(study, row)


def test_each_has_an_address_and_a_message_names_no_path():
    found = find_models("reference")
    assert len(found) == 24
    assert [each.address for each in found[:2]] == ["reference:gpt/seed-0", "reference:gpt/seed-1"]
    assert len(find_models("reference:gpt-linear")) == 8
    with pytest.raises(
        UnknownNameError, match=r"unknown model 'gtp' in 'reference'\. Did you mean"
    ):
        load_pretrained("reference:gtp")
    with pytest.raises(ValueError, match="names models"):
        load_study("reference:gpt")


def test_a_folder_of_that_name_goes_first(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert split_address("reference:gpt") == (REFERENCE_FOLDER, "gpt")
    (tmp_path / "reference").mkdir()
    assert split_address("reference:gpt") == (Path("reference"), "gpt")
    assert split_address("reference") == (Path("reference"), "")
    assert _reference.__wrapped__().folder == REFERENCE_FOLDER  # a page's means are the package's


def test_nothing_is_written_into_the_package():
    assert beside("reference:gpt") == Path()
    assert address_of(REFERENCE_FOLDER) == "reference"


def held(study):
    """The part of its page on other seeds, which reads no patterns."""
    return str([*_other_seeds(Material(study, [], {}))])


def test_a_study_is_held_against_the_reference_models_where_it_asks_the_same(study):
    means = reference_means(study)
    assert set(means) == {"gpt", "gpt-linear", "minimal-onehot"}
    assert means["gpt"]["accuracy"] == pytest.approx(study.models["accuracy"][:8].mean())
    table = held(study)
    assert table.count(", inside") > 20
    assert ", outside" not in table
    assert "seconds" not in means["gpt"]
    other = replace(study.config, training=replace(study.config.training, steps=999))
    assert reference_means(replace(study, config=other)) == {}
    assert reference_means(replace(study, task=replace(study.task, q=0.6))) == {}
    moved = {family: dict(of) for family, of in study.summary["families"].items()}
    moved["gpt"]["accuracy"] = {**moved["gpt"]["accuracy"], "again_high": 0.9}
    moved["gpt"]["long_accuracy"] = {
        **moved["gpt"]["long_accuracy"],
        "again_low": nan,
        "again_high": nan,
    }
    outside = held(replace(study, summary={**study.summary, "families": moved}))
    assert outside.count(", outside") == 1
    assert outside.count(", inside") == table.count(", inside") - 2  # of no interval: neither
