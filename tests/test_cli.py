"""The command line: quick to answer, readable at 80 columns, one clear line for each mistake."""

from __future__ import annotations

import contextlib
import json
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from typer.main import get_command

import tl_dyck
import tl_dyck.studies
from tests.patience import PATIENCE
from tl_dyck.cli import app
from tl_dyck.kit.json_values import plain
from tl_dyck.kit.registry import Registry
from tl_dyck.models import load_model, models
from tl_dyck.studies import Study, StudyConfig, findings
from tl_dyck.tasks import list_tasks
from tl_dyck.training import load_result

COMMANDS = ["study", "report", "reproduce", "tasks", "models", "train", "probe", "play", "ablate"]
COMMANDS += ["export", "certify", "certify-language", "judge", "check", "sweep", "text"]
UNDER = [f"sweep {name}" for name in ("run", "resume", "status", "results", "report", "merge")]


#: Built once: that takes longer than most commands.
COMMAND = get_command(app)


def commands(
    command: Any = COMMAND, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], Any]]:
    """Every command and group, by its words."""
    yield path, command
    for name, each in getattr(command, "commands", {}).items():
        yield from commands(each, (*path, name))


def call(first: object, *words: object) -> Result:
    """Run a command in this process, in a terminal of 80 columns; `first` may be several words."""
    return typed([*shlex.split(str(first)), *map(str, words)])


def typed(words: list[str], columns: int = 80) -> Result:
    """Run a command by its words."""
    return CliRunner(env={"COLUMNS": f"{columns}", "TERM": "dumb"}).invoke(COMMAND, words)


def flat(text: str) -> str:
    """Text without line breaks, frames and repeated spaces."""
    return " ".join(text.replace("│", " ").split())


@pytest.fixture
def runs(tiny_study: Study) -> dict[tuple[str, int], Path]:
    config = tiny_study.config
    return {(f, s): tiny_study.run_folder(f, s) for f in config.families for s in config.seeds}


# --- help and lists -------------------------------------------------------------------------------


def test_help_is_quick_and_complete():
    """As users call it: the installed command, in its own process, loading nothing heavy."""
    code = (
        "import json, sys\nfrom tl_dyck.cli import main\nsys.argv = ['tl-dyck', '--help']\n"
        "try:\n    main()\nexcept SystemExit as end:\n    print(json.dumps([end.code, "
        "sorted(sys.modules)]))"
    )
    run = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=PATIENCE, check=True
    )
    status, modules = json.loads(run.stdout.splitlines()[-1])
    assert status == 0
    assert not {"torch", "transformer_lens", "pandas", "plotly", "numpy", "scipy"} & set(modules)
    for command in COMMANDS:
        assert f"│ {command} " in run.stdout


@pytest.mark.parametrize("command", ["", *COMMANDS, *UNDER])
def test_help_fits_and_every_option_is_explained(command):
    result = call(f"{command} --help")
    assert result.exit_code == 0
    assert max(map(len, result.output.splitlines())) <= 80
    assert "[bold]" not in result.output  # markup is rendered, not shown


def test_defaults_in_the_help_are_those_of_a_study():
    config = StudyConfig()
    text = flat(call("study", "--help").output)
    assert f"[default: {config.task}]" in text
    assert f"[default: {','.join(config.families)}]" in text
    assert f"[default: {len(config.seeds)}]" in text
    assert config.seeds == tuple(range(len(config.seeds)))


def lines(command: str) -> list[list[str]]:
    """The words of each line that a command prints, in 80 columns; a command is never broken."""
    result = call(command)
    assert result.exit_code == 0, result.output
    assert max(len(line) for line in result.output.splitlines() if ": tl-dyck " not in line) <= 80
    return [line.split() for line in result.output.splitlines() if line[:1].strip()]


def test_tasks_and_models():
    rows = {words[0]: words[1:] for words in lines("tasks")[1:]}
    assert list(rows)[: len(list_tasks())] == list_tasks()
    assert rows["shuffle-dyck"][:5] == ["–", "–", "2–27", "80–100", "1.091"]
    assert rows["dyck-3-8-prefix"][:5] == ["3", "8", "1–27", "400–500", "1.200"]
    rows = {words[0]: words[1:4] for words in lines("models --task dyck-3-8")}
    assert set(models.names()) <= set(rows)
    assert rows["gpt"] == ["2", "1", "50"]
    assert rows["minimal-onehot"][:2] == ["1", "1"]
    assert int(rows["minimal-onehot"][2]) >= 2 * 3 * 8  # Eq. 19: one for each type and depth


# --- study, report --------------------------------------------------------------------------------


def test_a_plug_in_that_cannot_be_loaded_spoils_no_list(monkeypatch):
    whole = Registry.summaries
    monkeypatch.setattr(
        Registry, "summaries", lambda registry: {**whole(registry), "broken": "(unusable: [why])"}
    )
    for command in ("tasks", "models"):
        result = call(command)
        assert result.exit_code == 0
        assert "broken" in result.output
        assert "(unusable: [why])" in flat(result.output)


def test_study_asks_for_what_was_typed_and_says_what_was_found(tiny_study, tmp_path, monkeypatch):
    asked = {}

    def run_study(config, folder, **options):
        asked.update(config=config, folder=folder, **options)
        return replace(tiny_study, folder=shutil.copytree(tiny_study.folder, folder))

    monkeypatch.setattr(tl_dyck.studies, "run_study", run_study)
    out = tmp_path / "a rather long name of a folder, for paths are not broken into lines" / "x"
    words = "study --task dyck-2-8 --families 'eq6, gpt' --seeds 1-3 --steps 40 --jobs 3"
    words += " --device cpu --set training.learning_rate=2e-3 --set measurement.n_long=7"
    result = call(words, "--out", out)
    assert result.exit_code == 0, result.output
    config = asked["config"]
    assert (config.task, config.families, config.seeds) == ("dyck-2-8", ("eq6", "gpt"), (1, 2, 3))
    usual = StudyConfig().training
    assert config.training == replace(
        usual, steps=40, min_steps=min(40, usual.min_steps), learning_rate=2e-3
    )
    assert config.measurement.n_long == 7
    assert (asked["folder"], asked["n_jobs"], asked["device"]) == (out, 3, "cpu")
    assert (out / "report.html").stat().st_size > 1_000_000
    assert result.output.splitlines()[-1] == f"Report: {out / 'report.html'}"
    assert max(len(line) for line in result.output.splitlines()[:-1]) <= 80
    text = flat(result.output)
    for number, finding in enumerate(findings(tiny_study)[:3], start=1):
        assert f"{number}. {finding.title} {finding.text}" in text
    for family, facts in tiny_study.summary["families"].items():
        assert (
            f"{family} {facts['reached']} of 3 {facts['accuracy_after_close']['mean']:.1%}" in text
        )


def test_report_of_saved_results(tiny_study, tmp_path):
    folder = shutil.copytree(tiny_study.folder, tmp_path / "study")
    for where in (folder, folder / "results.json"):
        result = call("report", where)
        assert result.exit_code == 0, result.output
        assert result.output.splitlines()[-1] == f"Report: {folder / 'report.html'}"
    assert call("report", folder, "--out", tmp_path / "other.html").exit_code == 0
    assert (tmp_path / "other.html").read_bytes() == (folder / "report.html").read_bytes()


# --- train, probe ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "seeds"), [("--seed 3", [3]), ("--seeds 0,2 --jobs 1", [0, 2])])
def test_train_keeps_every_seed_in_a_folder(which, seeds, tmp_path):
    words = f"train minimal-onehot --steps 2 --task dyck-2-5 {which}"
    words += " --set training.batch_size=5 --set model.d_mlp=3"
    result = call(words, "--out", tmp_path / "runs")
    assert result.exit_code == 0, result.output
    assert sorted(path.name for path in (tmp_path / "runs").iterdir()) == [
        f"seed-{seed}" for seed in seeds
    ]
    for seed in seeds:
        run = load_result(tmp_path / "runs" / f"seed-{seed}")
        assert (run.seed, run.steps, run.task.name) == (seed, 2, "dyck-2-5")
        assert (run.options.batch_size, run.model.cfg.d_mlp) == (5, 3)
        assert f"{seed} {run.status} 2 {run.seconds:.1f} {run.accuracy.any_token:.1%}" in flat(
            result.output
        )
    assert f"Models: {tmp_path / 'runs'}" in result.output


def test_probe_all_that_apply(tiny_study):
    """What is printed is what results print; as JSON they have their fields."""
    names = [f"minimal-onehot/seed-{seed}" for seed in (0, 4)]
    words = ("probe", *(f"{tiny_study.folder}:{name}" for name in names))
    result, coded = call(*words), call(*words, "--json")
    assert result.exit_code == coded.exit_code == 0, result.output
    assert max(map(len, result.output.splitlines())) <= 80
    text, found = flat(result.output), json.loads(coded.stdout)
    saved = [load_model(tiny_study.run_folder("minimal-onehot", seed)) for seed in (0, 4)]
    variation = tl_dyck.attention_variation(saved)
    assert f"2 models {variation!r}" in text
    assert found["attention_variation"] == [{"model": "2 models", "result": plain(variation)}]
    task = tl_dyck.load_task(tiny_study.config.task)
    lengths = task.closing_lengths(long=True)
    for place, (name, model) in enumerate(zip(names, saved, strict=True)):
        expected = {
            "stack_likeness": tl_dyck.stack_likeness(model, task),
            "balance_violation": tl_dyck.balance_violation(model),
            "pair_drift": tl_dyck.pair_drift(model),
            "accuracy_at_length": tl_dyck.accuracy_at_length(model, lengths, task.distribution),
        }
        for probe, one in expected.items():
            assert f"{name} {flat(repr(one))}" in text
            value = {} if probe == "stack_likeness" else {"value": float(one)}
            assert found[probe][place] == {"model": name, "result": plain(one), **value}


def test_play(runs, tiny_study, tmp_path, monkeypatch):
    done, page = [], tmp_path / "page.html"
    bar = contextlib.contextmanager(lambda what, **how: iter([done.append]))
    monkeypatch.setattr("tl_dyck.kit.screen.share_bar", bar)
    result = call("play", tiny_study.folder, "--only", "model=gpt", "-o", page, "-s", "[(")
    assert result.exit_code == 0, result.output
    assert f"Playground: {page}" in result.output
    assert done == pytest.approx([1 / 3, 2 / 3, 1])
    text = page.read_text(encoding="utf-8")
    assert all(f'"name":"gpt/seed-{seed}"' in text for seed in tiny_study.config.seeds)
    assert '"string":"[("' in text
    assert "<h1>Playground: gpt, dyck-2-4</h1>" in text


def test_probe_one_string(runs):
    folders = [runs["gpt", 0], runs["gpt", 4]]
    result = call("probe", *folders, "--string", "[[]]()")
    assert result.exit_code == 0, result.output
    loaded = [load_model(folder) for folder in folders]
    text = flat(result.output)
    assert f"2 models {tl_dyck.attention_variation(loaded, '[[]]()')!r}" in text
    stack = tl_dyck.stack_likeness(loaded[0], loaded[0].to_tokens("[[]]()").cpu())
    assert f"gpt/seed-0 {stack!r}" in text
    why = "the contribution of a state needs a minimal first layer"
    assert f"Not measured: balance_violation: {why}" in text


TEXT = "[[]]()"


def test_probes_are_told_what_their_parameters_are_named_for(runs):
    """Whoever wrote them; what one does not take is refused by its name."""
    folder, told = runs["gpt", 0], {}

    def keep(name):
        def kept(**given):
            told[name] = given
            return len(given)

        return kept

    probes = {
        "a-text": lambda model, text="none": keep("a-text")(text=text),
        "some-data": lambda model, data=None: keep("some-data")(data=data),
        "a-task": lambda model, task=None, head=None: keep("a-task")(task=task, head=head),
        "nothing": lambda model: 1,
    }
    for name, probe in probes.items():
        tl_dyck.register_probe(name)(probe)
    try:
        said = flat(call("probe", folder, "-s", TEXT).output)
        assert told["a-text"] == {"text": TEXT}
        model = load_model(folder)
        assert told["some-data"]["data"].tolist() == model.to_tokens(TEXT).tolist()
        assert "a-task" not in told
        for name in ("nothing", "a-task", "pair_drift", "accuracy_at_length"):
            assert f"Not measured: {name}: {name} takes no string (--string)" in said
        for name in ("nothing", "a-task"):
            result = call("probe", folder, "-p", name, "-s", TEXT)
            assert result.exit_code == 2
            assert f"Error: {name} takes no string (--string)" in flat(result.stderr)
        told.clear()
        call("probe", folder, "-p", "a-task", "--head", 1)
        assert told["a-task"]["head"] == 1
        assert told["a-task"]["task"] == tl_dyck.load_task("dyck-2-4")
        result = call("probe", folder, "-p", "stack_likeness", "--head", 1)
        assert "Error: stack_likeness takes no --head" in flat(result.stderr)
        told.clear()
        call("probe", folder, "-p", "a-text")
        call("probe", folder, "-p", "some-data")
        assert told == {"a-text": {"text": "none"}, "some-data": {"data": None}}
    finally:
        for name in probes:
            tl_dyck.probes.probes.unregister(name)


def test_a_string_is_not_ignored_where_a_measure_reads_none(runs):
    result = call("probe", runs["minimal-onehot", 1], "-p", "balance_violation", "-s", TEXT)
    assert result.exit_code == 2
    assert "reads no strings: leave them out" in flat(result.stderr)


def test_probe_one_probe_and_a_third_partys(runs):
    result = call("probe", runs["gpt", 0], "--probe", "stack_likeness")
    assert "gpt/seed-0  StackLikeness(" in result.output
    assert "attention_variation" not in result.output
    assert "Not measured" not in result.output
    tl_dyck.register_probe("width [red]")(lambda model: [model.cfg.d_model])
    try:
        result = call("probe", runs["gpt", 0], runs["minimal-onehot", 1], "-p", "width [red]")
        assert flat(result.output) == "width [red] gpt/seed-0 [50] minimal-onehot/seed-1 [50]"
    finally:
        tl_dyck.probes.probes.unregister("width [red]")


def test_a_third_partys_probe_that_fails_does_not_end_the_others(runs):
    def broken(models):
        raise KeyError("layer\n9")

    tl_dyck.register_probe("a-broken")(broken)
    tl_dyck.register_probe("narrow")(lambda model: 1 / (model.cfg.d_model - 50))
    tl_dyck.register_probe("seeds")(lambda models: f"{len(models)} of them")
    folders = (runs["gpt", 0], runs["gpt", 4])
    try:
        said = flat(call("probe", *folders).output)
        assert "Not measured: a-broken: probe 'a-broken' raised KeyError" in said
        assert "raised ZeroDivisionError: " in said
        assert "'2 of them'" in said
        assert "StackLikeness" in said
        result = call("probe", folders[0], "-p", "narrow")
        assert result.exit_code == 2
        assert "Error: probe 'narrow' raised ZeroDivisionError" in result.stderr
    finally:
        for name in ("a-broken", "narrow", "seeds"):
            tl_dyck.probes.probes.unregister(name)
