"""The commands that make the contents of a page again, for the shell."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

from tl_dyck.kit.configuration import parameters_of
from tl_dyck.kit.suggest import Files, command
from tl_dyck.studies import Study, StudyConfig
from tl_dyck.studies.measurement import PROOF
from tl_dyck.training import TrainConfig


def seed_text(seeds: Iterable[int]) -> str:
    """Seeds in few characters: ``0-7``, ``0,3,5-9``."""
    runs: list[list[int]] = []
    for seed in sorted(seeds):
        if runs and seed == runs[-1][-1] + 1:
            runs[-1][1:] = [seed]
        else:
            runs.append([seed])
    return ",".join("-".join(map(str, run)) for run in runs)


def with_steps(options: TrainConfig, steps: int | None) -> TrainConfig:
    """The same options with another number of steps; None changes nothing."""
    if steps is None:
        return options
    return replace(options, steps=steps, min_steps=min(options.min_steps, steps))


def study_commands(study: Study) -> dict[str, str]:
    """All that is done again with a study, by what that is."""
    commands = {
        "Train, measure and report again": study_command(study),
        "This page from saved results, without training": report_command(study),
        "Type strings of your own and see what these models do with them": play_command(
            study, study.config.families[0]
        ),
    }
    if study.proofs():
        commands["Check every proof, without trusting what found it"] = check_command(study)
    return commands


def report_command(study: Study) -> str:
    """Make the report again, without training."""
    return command("report", study.folder.as_posix())


def probe_command(study: Study, family: str, probe: str) -> str:
    """Measure the saved models of a family again."""
    return command("probe", _models(study, family), "--probe", probe)


def play_command(study: Study, family: str) -> str:
    """Write a page on which the saved models of a family read what one types."""
    return command("play", _models(study, family))


def _models(study: Study, family: str) -> str:
    """The saved models of a family, as commands take them."""
    return f"{study.folder.as_posix()}:{family}"


def check_command(study: Study) -> str:
    """Check every proof that a study kept, each against the model beside it."""
    return command("check", "--beside", Files(study.folder, f"runs/*/*/{PROOF}"))


def study_command(study: Study) -> str:
    """Do the whole study again."""
    config, seeds = study.config, seed_text(study.config.seeds)
    words = ["study", "--task", config.task, "--families", ",".join(config.families)]
    # one number would be a number of seeds
    words += ["--seeds", f"{seeds}-{seeds}" if seeds.isdigit() else seeds]
    default = _settings(StudyConfig())
    for name, value in _settings(config).items():
        if value != default[name]:
            words += ["--set", f"{name}={value}"]
    return command(*words, "--out", study.folder.as_posix())


def _settings(config: StudyConfig) -> dict[str, Any]:
    """What ``--set`` sets."""
    return {
        **parameters_of("training", config.training),
        **parameters_of("measurement", config.measurement),
        "n_bootstrap": config.n_bootstrap,
    }
