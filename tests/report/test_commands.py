"""The commands that a report prints: what they say is what was done."""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import tl_dyck.studies
from tests.test_cli import typed
from tl_dyck.cli.options import parse_seeds
from tl_dyck.report.commands import (
    probe_command,
    seed_text,
    study_command,
    with_steps,
)
from tl_dyck.report.figures import figures
from tl_dyck.report.page import again
from tl_dyck.studies import Measurement, Study, StudyConfig


@pytest.mark.parametrize(
    ("text", "seeds"),
    [
        ("8", tuple(range(8))),
        ("1", (0,)),
        ("0-7", tuple(range(8))),
        ("3-3", (3,)),
        ("0,3,5", (0, 3, 5)),
        ("5,0", (5, 0)),
        (" 1 - 3 , 9 ", (1, 2, 3, 9)),
    ],
)
def test_seeds(text, seeds):
    assert parse_seeds(text) == seeds


def test_a_long_command_unfolds():
    short, long = (again("Again", "x" * n) for n in (200, 201))
    assert short == f"<p>Again: <code>{'x' * 200}</code></p>"
    assert long == f"<details><summary>Again</summary><code>{'x' * 201}</code></details>"


@pytest.mark.parametrize(
    "text", ["", "0", "x", "3-1", "1,,2", "-1", "1-", "1.5", "0-99999", "99999999999", "1;2", "٣"]
)
def test_malformed_seeds(text):
    with pytest.raises(ValueError, match="seeds "):
        parse_seeds(text)


@given(st.lists(st.integers(0, 300), min_size=1, unique=True))
def test_seeds_survive_being_written(seeds):
    text = seed_text(seeds)
    if text.isdigit():  # one seed; alone it would be a number of seeds
        text = f"{text}-{text}"
    assert list(parse_seeds(text)) == sorted(seeds)


@pytest.mark.parametrize(
    "config",
    [
        StudyConfig(),
        StudyConfig(task="dyck-3-8-prefix", families=("eq6",), seeds=(3,)),
        StudyConfig(seeds=(0, 1, 2, 9), training=with_steps(StudyConfig().training, 7)),
        StudyConfig(measurement=Measurement(n_long=5), n_bootstrap=20),
        StudyConfig(training=replace(StudyConfig().training, batch_size=2, target=None)),
    ],
)
@pytest.mark.parametrize("folder", ["results/study", "a folder/it's"])
def test_the_command_for_a_study_runs_that_study(config, folder, tiny_study, monkeypatch):
    done = replace(tiny_study, config=config, folder=Path(folder))
    asked = []

    def run_study(config, folder, **options):
        asked.append((config, folder, options))
        raise ValueError("enough")

    monkeypatch.setattr(tl_dyck.studies, "run_study", run_study)
    command, *words = shlex.split(study_command(done))
    assert command == "tl-dyck"
    typed(words)
    how = {"n_jobs": None, "backend": "loky", "address": None, "retry_failed": False}
    assert asked == [(config, Path(folder), {**how, "device": None})]


def test_the_command_for_a_probe_probes_the_models_of_a_family(tiny_study: Study):
    command, *words = shlex.split(probe_command(tiny_study, "minimal-onehot", "balance_violation"))
    assert command == "tl-dyck"
    result = typed(words)
    assert result.exit_code == 0, result.output
    found = [line.split()[0] for line in result.output.splitlines() if "seed-" in line]
    assert found == [f"minimal-onehot/seed-{seed}" for seed in tiny_study.config.seeds]


def test_a_figure_names_the_probe_that_measures_it_again(tiny_study):
    commands = {each.name: each.command.split() for each in figures(tiny_study, ()) if each.command}
    assert {name: words[-1] for name, words in commands.items()} == {
        "variation": "attention_variation",
        "stack": "stack_likeness",
        "balance": "balance_violation",
    }
    assert commands["balance"][2] == f"{tiny_study.folder.as_posix()}:minimal-onehot"
