"""Every example of the command line works: in helps, in the pages, in the demos.

They are collected, not listed. What stands in the table below is run as it stands, in a folder
where the names that examples use exist (`place`), with words added where it would take long. All
others are parsed by the command line itself, with its checks, and what they name must be there.
"""

from __future__ import annotations

import re
import shlex
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.test_cli import call, commands
from tl_dyck import construct, prove_language, save_model
from tl_dyck.cli.answers import Command
from tl_dyck.judge import SUITES
from tl_dyck.runs.saved import find_models
from tl_dyck.studies import Study, run_study
from tl_dyck.studies.reproduction import papers
from tl_dyck.training import TrainConfig, train
from tl_dyck_papers.wen_2023.scales import SCALES

ROOT = Path(__file__).parents[2]
PAGES = [*(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "AGENTS.md"))]
PAGES += sorted((ROOT / "docs").rglob("*.md"))

#: What stands for whatever a reader has, and folders that tests cannot make.
MEANT = {
    "COMMAND": "tasks",
    "FILE.yaml": "depth.yaml",
    "FOLDER": "results/depth",
    "/shared/depth": "shared/depth",
    "/shared/study": "shared/study",
}


class Run(NamedTuple):
    """How an example is run: further options, in place of the same ones; its exit statuses.

    Where an option is repeatable: other words for some of its own.
    """

    more: str = ""
    status: tuple[int, ...] = (0,)
    instead: tuple[str, str] = ("tl-dyck", "tl-dyck")


AS_IT_IS = Run()
PROVED_OR_NOT = (0, 1)  # the models are hardly trained, and other CPUs make others
SHORT = "--steps 2 --jobs 1"

RUN = {
    "tl-dyck check dyck.proof": AS_IT_IS,
    "tl-dyck check dyck.proof --model uniform": AS_IT_IS,
    "tl-dyck certify-language uniform -n 28 --proof dyck.proof": Run("-n 8"),
    "tl-dyck --help": AS_IT_IS,
    "tl-dyck COMMAND --help": AS_IT_IS,
    "tl-dyck COMMAND --json": AS_IT_IS,
    "tl-dyck tasks": AS_IT_IS,
    "tl-dyck tasks --json": AS_IT_IS,
    "tl-dyck models": AS_IT_IS,
    "tl-dyck models --task dyck-3-8": AS_IT_IS,
    "tl-dyck train gpt --seeds 8": Run(f"{SHORT} --seeds 2 --out trained"),
    "tl-dyck train gpt --set model.n_layers=3 --set training.target=none": Run(
        f"{SHORT} --out deep"
    ),
    "tl-dyck train gpt --task shuffle-dyck --seeds 4": Run(f"{SHORT} --seeds 2 --out shuffled"),
    "tl-dyck train minimal-onehot --task dyck-3-8 --seed 5": Run(SHORT),
    "tl-dyck probe results/study:gpt": AS_IT_IS,
    "tl-dyck probe results/study:gpt --json": AS_IT_IS,
    "tl-dyck probe results/study:gpt/seed-3": AS_IT_IS,
    'tl-dyck probe results/train/dyck-2-4/gpt -p stack_likeness -s "[[]]()"': AS_IT_IS,
    "tl-dyck probe results/train/shuffle-dyck/gpt": AS_IT_IS,
    "tl-dyck play results/study": AS_IT_IS,
    "tl-dyck play results/train/dyck-2-4/gpt": AS_IT_IS,
    "tl-dyck ablate results/study:gpt": Run("--steps 0 --jobs 1"),
    "tl-dyck export results/study:minimal-onehot/seed-0 my-rnn": AS_IT_IS,
    'tl-dyck certify my-rnn --text "(()" --space pairs:2': Run("", PROVED_OR_NOT),
    'tl-dyck certify my-rnn --text "(([" --space pairs:2 --proofs proofs': Run("", PROVED_OR_NOT),
    "tl-dyck certify results/study:minimal-onehot/seed-0 --file prefixes.txt --space pairs:1": Run(
        "", PROVED_OR_NOT
    ),
    'tl-dyck certify results/study:minimal-onehot/seed-0 --text "(()" --space pairs:2': Run(
        "", PROVED_OR_NOT
    ),
    "tl-dyck certify-language results/study:minimal-onehot/seed-0 --length 28": Run(
        "--length 6", PROVED_OR_NOT
    ),
    "tl-dyck certify-language results/study:minimal-onehot/seed-0 -n 28 --sample 450": Run(
        "-n 6", PROVED_OR_NOT, ("450", "12")
    ),
    "tl-dyck train gpt-learned --seeds 8 --steps 3000 --set model.n_layers=1 "
    "--set training.min_steps=3000 --out positions/gpt-learned": Run(
        f"{SHORT} --seeds 1", instead=("min_steps=3000", "min_steps=2")
    ),
    "tl-dyck certify-language positions/gpt-learned/seed-0 --length 28 --until refuted": Run(
        "--length 6", PROVED_OR_NOT, ("positions/gpt-learned", "results/train/dyck-2-4/gpt")
    ),
    "tl-dyck report results/study": AS_IT_IS,
    "tl-dyck sweep depth.yaml": Run("--jobs 1"),
    "tl-dyck sweep FILE.yaml": Run("--jobs 1"),
    "tl-dyck sweep depth.yaml --set training.steps=900 --seeds 0-15": Run("--dry-run"),
    "tl-dyck sweep depth.yaml --set model=gpt,gpt-linear --limit 4 --out results/try": Run(
        "--dry-run"
    ),
    "tl-dyck sweep depth.yaml --out /shared/depth --jobs 8 --no-wait": Run("--jobs 1"),
    "tl-dyck sweep demos/sweep.yaml --dry-run": AS_IT_IS,
    "tl-dyck sweep status results/depth": AS_IT_IS,
    "tl-dyck sweep status results/study": AS_IT_IS,
    "tl-dyck sweep resume results/depth": Run("--jobs 1"),
    "tl-dyck sweep resume results/depth --retry-failed": Run("--jobs 1"),
    "tl-dyck sweep results results/depth --by task,model "
    "--metrics accuracy,balance_violation": AS_IT_IS,
    "tl-dyck sweep results results/depth --out depth.parquet": AS_IT_IS,
    "tl-dyck sweep report results/depth": AS_IT_IS,
    "tl-dyck sweep merge results/all machine-a/depth machine-b/depth": AS_IT_IS,
    "tl-dyck sweep merge results/study other": Run(),
    "tl-dyck sweep sentences.yaml": Run("--jobs 1"),
}


# --- what there is --------------------------------------------------------------------------------


COMMANDS = dict(commands())


def example(line: str) -> str:
    """A command as it is typed: without a comment, and what the shell does with it."""
    line = re.sub(r"\s#.*$", "", " ".join(line.split()))
    line = re.split(r" (?:\||&&?)(?: |$)", line)[0]
    return line[line.index("tl-dyck ") :].strip()


def collected() -> dict[str, set[str]]:
    """Every example, and where it stands. In a page's text, names of commands are none."""
    found: dict[str, set[str]] = {}
    for path, command in COMMANDS.items():
        options = (getattr(each, "help", None) for each in command.params)
        for text in (command.help, command.epilog, *options):
            for words in re.findall(r"\[bold\](tl-dyck\s.*?)\[/bold\]", text or "", re.DOTALL):
                found.setdefault(example(words), set()).add(f"help of {' '.join(path)}")
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        lines = "\n".join(re.findall(r"```sh\n(.*?)```", text, re.DOTALL)).splitlines()
        typed = [line for line in lines if re.match(r"(srun )?tl-dyck ", line)]
        said = re.findall(r"`(tl-dyck\s[^`]*)`", re.sub(r"```.*?```", "", text, flags=re.DOTALL))
        typed += [words for words in said if tuple(words.split()[1:]) not in COMMANDS]
        for line in typed:
            found.setdefault(example(line), set()).add(page.name)
    for page in (ROOT / "demos").glob("*.yaml"):
        for line in re.findall(r"^#\s+(tl-dyck .*)$", page.read_text(encoding="utf-8"), re.M):
            found.setdefault(example(line), set()).add(page.name)
    return found


EXAMPLES = collected()
#: What would take long, or needs what is not ours, is parsed and checked by the command line.
READ = sorted(line for line in EXAMPLES if line not in RUN and "completion" not in line)


def test_no_example_is_run_that_nobody_gives():
    assert len(EXAMPLES) > 50
    assert not [line for line in RUN if line not in EXAMPLES]


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("tl-dyck a b    # c", "tl-dyck a b"),
        ("srun tl-dyck a --b c &", "tl-dyck a --b c"),
        ("tl-dyck a --json | jq '.b | c'", "tl-dyck a --json"),
        ('tl-dyck a -s "(()" && echo "b"', 'tl-dyck a -s "(()"'),
    ],
)
def test_what_an_example_is(line: str, found: str):
    assert example(line) == found


# --- where they work ------------------------------------------------------------------------------

SMALL = """\
experiment: train
seeds: 1
common:
  training: {steps: 2, min_steps: 1, batch_size: 4, check_every: 1, check_size: 9}
  measure: {n_accuracy: 20, n_long: 3, n_strings: 9, n_certified: 1, n_inserted: 1,
            decided_length: 4}
grid:
  task: [dyck-2-4]
  model: [minimal-onehot]
  training.learning_rate: [3e-3, 6e-3]
"""

SENTENCES = """\
experiment: sentences
seeds: 1
common:
  data: corpus
  synonyms: corpus/synonyms.json
  training: {steps: 2}
  model: {d_model: 4}
  measure: {spaces: ["sub:1"]}
grid:
  training.objective: [clean, worst]
"""


@pytest.fixture(scope="module")
def place(tiny_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder where all is that examples name; the study has a seed 3."""
    path = tmp_path_factory.mktemp("examples")
    results = path / "results"
    shutil.copytree(tiny_study.folder, results / "study")
    config = replace(tiny_study.config, seeds=(0, 1, 3))
    study = run_study(config, results / "study", n_jobs=1, progress=False)
    (path / "depth.yaml").write_text(SMALL)
    (path / "sentences.yaml").write_text(SENTENCES)
    (path / "demos").mkdir()
    shutil.copy(ROOT / "demos" / "sweep.yaml", path / "demos")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(path)
        assert call("sweep", "depth.yaml", "--jobs", 1).exit_code == 0
        assert call("export", "results/study:minimal-onehot/seed-0", "my-rnn").exit_code == 0
    for copy in ("results/sweep", "machine-a/depth", "machine-b/depth", "results/reproduce"):
        shutil.copytree(results / "depth", path / copy)
    shutil.copytree(results / "study", path / "other")
    shutil.copytree(study.run_folder("gpt", 0), results / "train" / "dyck-2-4" / "gpt" / "seed-0")
    options = TrainConfig(steps=2, batch_size=4, check_every=1, check_size=9, warmup_steps=1)
    shuffled = results / "train" / "shuffle-dyck" / "gpt" / "seed-0"
    train("gpt", "shuffle-dyck", options=options, folder=shuffled, progress=False)
    (path / "prefixes.txt").write_text("(()\n[\n")
    (path / "dev.txt").write_text("( ) END\n")
    (path / "corpus").mkdir()
    (path / "corpus" / "train.tsv").write_text("good film\t1\nbad film\t0\n" * 5)
    (path / "corpus" / "dev.tsv").write_text("good\t1\nbad\t0\n")
    (path / "sentences.txt").write_text("good film\n")
    (path / "synonyms.json").write_text('{"good": ["bad"]}')
    (path / "corpus" / "synonyms.json").write_text('{"good": ["bad"]}')
    uniform = construct.uniform_attention(study.task.language)
    save_model(uniform, path / "uniform")
    prove_language(uniform, study.task, 8).save(path / "dyck.proof")
    return path


def words_of(line: str) -> list[str]:
    return [MEANT.get(word, word) for word in shlex.split(line)[1:]]


#: Options of two names.
LONG = {"-n": "--length", "-o": "--out", "-j": "--jobs"}


def without(words: list[str], more: list[str]) -> list[str]:
    """The words but for the options that are given again, each with its value."""
    again = {LONG.get(word, word) for word in more if word.startswith("-")}
    left = iter(words)
    return [
        word
        for word in left
        if not (word.startswith("-") and LONG.get(word, word) in again and next(left))
    ]


@pytest.mark.parametrize("line", RUN)
def test_an_example_runs(place: Path, monkeypatch: pytest.MonkeyPatch, line: str):
    monkeypatch.chdir(place)
    how = RUN[line]
    more = shlex.split(how.more)
    done = call(*without(words_of(line.replace(*how.instead)), more), *more)
    assert done.exit_code in how.status, done.output
    assert "Error" not in done.stderr


@pytest.mark.parametrize("line", READ)
def test_an_example_is_understood(place: Path, monkeypatch: pytest.MonkeyPatch, line: str):
    """Parsed and checked by the command line; what is named is there."""
    monkeypatch.chdir(place)
    seen: list[dict[str, Any]] = []
    monkeypatch.setattr(Command, "invoke", lambda self, ctx: seen.append(ctx.params))
    done = call(*words_of(line))
    assert done.exit_code == 0, done.output
    (asked,) = seen
    scale = asked.get("scale") or "quick"
    assert scale in SUITES or scale in SCALES
    assert asked.get("paper", "wen-2023") in papers.names()
    for name in ("folder", "file"):
        assert asked.get(name) is None or asked[name].exists()
    for name in asked.get("models") or ():
        assert find_models(name)
