"""Mistakes, what stops a command, and bugs: one clear line each, and what the exit code says."""

from __future__ import annotations

import errno
import shutil
from pathlib import Path

import pytest

import tl_dyck
import tl_dyck.studies
from tests.certify.oracles import random_rnn
from tests.test_cli import call
from tests.test_cli_certify import save_words
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.models import load_model
from tl_dyck.rnn import save_rnn
from tl_dyck.training import TrainConfig
from tl_dyck.training.seeds import TrainingFailedError

#: What is typed, and what the one line says; names of places are those of `places`.
MISTAKES = """\
study --task dyck-2-x | unknown task 'dyck-2-x'. Did you mean 'dyck-2-
study --families gpt,gpt-liner | unknown model 'gpt-liner'. Did you mean 'gpt-linear'?
study --families gpt,gpt | families must be different
study --families ' , ' | families must be
study --seeds 3-1 | seeds '3-1': give a number of seeds ("8"), a range
study --seeds 1,1 | seeds must be different
study --device gpu | device 'gpu' cannot be used
study --out file/x | cannot write to the folder
reproduce --scale papre | unknown scale 'papre'. Did you mean 'paper'
reproduce --paper wen | unknown paper 'wen'
play nowhere | there is no file or folder 'nowhere'
probe gpt -p stack | Did you mean 'stack_likeness'?
reproduce --set measurement.n_lon=2 | unknown setting 'measurement.n_lon'. Did you mean
study --set training.step=2 | unknown setting 'training.step'. Did you mean
study --set training.steps=x | --set training.steps must be an integer, got 'x'
study --set training.steps=0 | steps must be at least 1, got 0
study --set seeds=1,a | --set seeds must be an integer, got 'a'
study --set training=1 | must be none, or name a field in it, got '1'
study --set seeds | give a field and its value
train gpt --set training.drift_anywhere=2 | must be true or false, got '2'
train gpt --set model.n_head=2 | Did you mean 'model.n_heads'?
judge --set sizes.uniforn=2 | Did you mean 'sizes.uniform'?
ablate gpt --set finetune.steps=-1 | steps must be at least
ablate | give saved models, or --experiment
ablate . --experiment | or --experiment with none
ablate nowhere | there is no file or folder 'nowhere'
ablate --experiment --seeds x | seeds 'x'
ablate gpt --seeds 3 | --seeds are those of --experiment
ablate --experiment --task dyck-2-x | dyck-2-x
report nowhere | there is no file or folder 'nowhere'
report file | is not the folder of a finished study
train gpt --task dyk-2-4 | unknown task 'dyk-2-4'. Did you mean 'dyck-2-4'?
train gpt --seed 1 --seeds 2 | give --seed or --seeds, not both
train gpt --seeds many | seeds 'many'
train gpt --out file | cannot write to the folder
train gpt --steps 3 --seed 0 --out kept | holds another run; it differs in
certify-language gpt -n 3 --shortest 5 | --shortest 5 is above --length 3
models --task x | unknown task 'x'
probe empty | there is no saved model in
probe gpt --only model | give a parameter and its value
probe gpt --only model=gpt | is not a sweep's
probe gpt --probe attention_variation | give at least two, not 1
probe gpt --probe balance_violation | needs a minimal first layer
probe gpt --string '[[)' | cannot close '['
probe gpt --string '[[[[[' | too deep
probe gpt --string '[bold]x' | unknown bracket 'b' at character 1 of '[bold]x'
probe torn | is truncated or was altered
play gpt own -o page.html | several tasks, complete strings, dyck-2-4: say by --task
export study rnn | stands for 6 models; name one
export gpt rnn | the model has 2 layers
certify one --text [( --text [x --space pairs:1 | string 2 of 2: 'x', symbol 2 of the text
certify-language one --property any | unknown property 'any'
certify-language one --property kl | needs epsilon
certify-language one --until never | unknown until 'never'
certify-language one --length 600 | ask for lengths up to 500
certify-language one --length 99999999999 | --length must be at most
certify-language one --sample 2000 | lengths must be at most 1000
certify-language one --time-limit nan | --time-limit must be finite
certify-language one --task dyck-3-8 | 2 types of brackets, not 3
certify words --space dup:1 | no strings: give --text
certify words --text good --space dupp:1 | unknown transformation 'dupp'
certify words --text good --space dup:x | needs a budget
certify words --text good --space sub:1 | give --synonyms FILE
certify words --text good --space ins:1 | give --insert TEXTS
certify words --text good --space pairs:1 | needs the bracket language
certify words --text good --space del:1 --delete awful | outside the alphabet: awful
certify words --text good --space dup:1 --target yes | target 'yes' is neither
certify words --text good --space dup:1 --target 7 | target 7 is not one of the 2 logits
certify words --text good --space dup:1 --certifier exakt | unknown certifier 'exakt'
certify words --text good --space dup:1 --time-limit -1 | --time-limit must be above 0, got -1
certify words --text ' ' --space dup:1 | an empty string cannot be certified
certify words --text 'a a a a a a a a a a a a a a a a' --space dup:1 | holds strings of 17 tokens
certify words --text good --space sub:1 --synonyms words/rnn.json | rnn.json
certify words --file no-such-file --space dup:1 | no-such-file
certify unnamed --text good --space dup:1 | it has no alphabet
sweep none.yaml | there is no file or folder 'none.yaml'
sweep status . | holds no sweep
sweep resume . | holds no sweep
sweep results none | there is no file or folder 'none'
sweep merge all none | there is no file or folder 'none'
sweep bad.yaml | 'bad.yaml': unknown key of a sweep 'gird'. Did you mean 'grid'?
sweep bad.yaml --dry-run | Did you mean 'grid'?
sweep mine.yaml --backend slurm | unknown backend 'slurm'. Known: dask, loky
sweep other.yaml --dry-run | unknown experiment 'trian'. Did you mean 'train'?
sweep results study --by z | no column 'z'
sweep results study --metrics outcome | 'outcome' cannot be averaged
sweep results study --out x.txt | ends with .parquet or .csv
""".splitlines()


@pytest.fixture(scope="module")
def places(tiny_study, tmp_path_factory) -> Path:
    """What mistakes are made about: models, and what is none."""
    path = tmp_path_factory.mktemp("places")
    (path / "file").write_text("")
    (path / "empty").mkdir()
    (path / "study").symlink_to(tiny_study.folder)
    (path / "gpt").symlink_to(tiny_study.run_folder("gpt", 0))
    (path / "one").symlink_to(tiny_study.run_folder("minimal-onehot", 0))
    shutil.copytree(tiny_study.run_folder("gpt", 0), path / "kept" / "seed-0")
    torn = shutil.copytree(tiny_study.run_folder("gpt", 0), path / "torn") / "model.safetensors"
    torn.write_bytes(torn.read_bytes()[:-7])
    tl_dyck.save_model(load_model(tiny_study.run_folder("gpt", 0)), path / "own")
    save_words(path / "words")
    save_rnn(random_rnn(0), path / "unnamed")
    (path / "mine.yaml").write_text("seeds: 1\ncommon: {task: dyck-2-4, model: gpt}")
    (path / "bad.yaml").write_text("gird: {x: [1]}")
    (path / "other.yaml").write_text("experiment: trian")
    return path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_one_line_and_exit_code_2(mistake, places, monkeypatch):
    monkeypatch.chdir(places)
    before = sorted(places.iterdir())
    words, _, said = mistake.partition(" | ")
    result = call(words)
    assert result.exit_code == 2
    assert result.stderr.startswith("Error: ")
    assert len(result.stderr.splitlines()) == 1
    assert said in result.stderr
    assert "Traceback" not in result.output
    assert sorted(places.iterdir()) == before  # nothing is written


@pytest.mark.parametrize(
    "words", ["nonsense", "study --jobs x", "train", "probe", "tasks extra", "--no"]
)
def test_wrong_usage_is_exit_code_2(words):
    result = call(words)
    assert result.exit_code == 2
    assert "Usage: tl-dyck" in result.stderr
    assert max(map(len, result.stderr.splitlines())) <= 80


def raising(monkeypatch, error):
    def run_study(*arguments, **options):
        raise error

    monkeypatch.setattr(tl_dyck.studies, "run_study", run_study)


FAILED = "1 of 2 runs failed:\ngpt seed 0\nTraceback …\n  File …\nOSError: disk full\n"


@pytest.mark.parametrize(
    ("error", "status", "said"),
    [
        (KeyboardInterrupt(), 130, "stopped; run again to go on from the checkpoint"),
        (
            OSError(errno.ENOSPC, "No space left on device", "results/study/runs/x"),
            2,
            "Error: No space left on device: 'results/study/runs/x'",
        ),
        (
            TrainingFailedError(FAILED),
            2,
            "Error: 1 of 2 runs failed: OSError: disk full (tl-dyck --debug shows all)",
        ),
    ],
)
def test_what_stops_a_command_is_said_in_a_line(error, status, said, monkeypatch):
    raising(monkeypatch, error)
    result = call("study")
    assert (result.exit_code, result.stderr) == (status, f"{said}\n")


def test_debug_shows_the_traceback(monkeypatch):
    error = CorruptFileError("a mistake")
    raising(monkeypatch, error)
    assert call("study").exception.code == 2
    result = call("--debug", "study")
    assert (result.exception, result.stderr) == (error, "")


@pytest.mark.parametrize(
    "bug", [RuntimeError("shapes"), TypeError("none"), KeyError("x"), ValueError("not ours")]
)
def test_a_bug_is_not_hidden(monkeypatch, bug):
    raising(monkeypatch, bug)
    for words in (("study",), ("--debug", "study")):
        result = call(*words)
        assert result.exception is bug
        assert result.stderr.splitlines() == [
            "tl-dyck did not expect this error: please report it, with the traceback that follows."
        ]


def test_a_bug_in_a_probe_is_no_probe_that_does_not_apply(tiny_study, monkeypatch):
    def pair_drift(model):
        raise bug

    bug = ValueError("not ours")
    pair_drift.__module__ = "tl_dyck.probes.drift.pair_drift"
    monkeypatch.setattr(tl_dyck.probes, "load_probe", lambda name: pair_drift)
    assert (
        call("probe", tiny_study.run_folder("minimal-onehot", 0), "-p", "pair_drift").exception
        is bug
    )


def test_the_defaults_of_training_are_the_librarys(monkeypatch, tmp_path):
    import tl_dyck.training

    asked = {}

    def train(config, task, **options):
        asked.update(options, family=config.model_name, task=task)
        raise ValueError("enough")

    monkeypatch.setattr(tl_dyck.training, "train", train)
    call("train", "eq6", "--out", tmp_path)
    assert asked["options"] == TrainConfig()
    assert (asked["family"], asked["task"], asked["seed"], asked["folder"]) == (
        "eq6",
        "dyck-2-4",
        0,
        tmp_path / "seed-0",
    )
