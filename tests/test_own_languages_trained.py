"""Tasks that are no Dyck tasks, trained and measured; what takes a stack says so."""

from __future__ import annotations

import json
import math
import pickle
from dataclasses import dataclass, replace

import numpy as np
import pytest
import torch

from tests.test_cli import call, flat
from tests.test_own_languages import NAMES, QUICK
from tl_dyck import (
    AutomatonTask,
    NoStackError,
    RegistryError,
    StudyConfig,
    SymbolLanguage,
    Vocabulary,
    accuracy_at_length,
    adopt,
    attention_variation,
    balance_violation,
    build_model,
    certify_dyck,
    counted_accuracy,
    frozen_importance,
    get_config,
    load_model,
    load_task,
    measure_heads,
    nats_over_law,
    pair_drift,
    parse_space,
    register_task,
    run_study,
    run_sweep,
    save_model,
    stack_likeness,
    train,
    train_seeds,
    widgets,
    write_playground,
)
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.runs import load_results
from tl_dyck.tasks import tasks
from tl_dyck.training import load_result
from tl_dyck.training.checkpoint import CheckpointError


def _law_as_model(task: AutomatonTask):
    """The best of all predictors, as a function of tokens."""

    def model(tokens: torch.Tensor) -> torch.Tensor:
        return task.next_token_probs(tokens).clamp_min(1e-30).log()

    return model


@pytest.mark.parametrize("name", NAMES)
def test_the_law_itself_loses_nothing_and_counts_right(name: str) -> None:
    task = load_task(name)
    best = _law_as_model(task)
    assert nats_over_law(task, best, n=50)[0] == pytest.approx(0, abs=1e-12)
    assert counted_accuracy(task, best, n=100).any_token == 1.0
    uniform = lambda tokens: torch.zeros(*tokens.shape, task.language.d_vocab)  # noqa: E731
    tokens = task.sample(400, seed=0)
    lengths = (tokens[:, 1:] != task.language.bos_token).sum(-1)
    found, error = nats_over_law(task, uniform, n=400)
    # cross-entropy less entropy, of a predictor whose cross-entropy is known
    law = task.next_token_probs(tokens)[:, :-1]
    here = tokens[:, 1:] != task.language.bos_token
    entropy = float(-(torch.xlogy(law, law).sum(-1) * here).sum() / lengths.sum())
    assert found == pytest.approx(math.log(task.language.d_vocab) - entropy, rel=1e-9)
    assert entropy == pytest.approx(task.entropy_floor, abs=5 * error)


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory):
    folder, name = tmp_path_factory.mktemp("shuffled"), "shuffle-dyck"
    config = get_config("gpt-linear", name, n_heads=2, d_model=16)
    return train(config, name, options=QUICK, folder=folder, progress=False), folder


@pytest.mark.global_rng
def test_trains_and_comes_back_from_disk(trained) -> None:
    result, folder = trained
    task = result.task
    assert result.steps == QUICK.steps
    assert np.isfinite(result.history["loss"]).all()
    assert (result.history["floor"] == task.entropy_floor).all()
    again = load_result(folder)
    assert again.task == task
    assert again.accuracy == result.accuracy
    assert again.model.cfg.language == task.language
    tokens = task.sample(5, seed=0)
    assert again.model(tokens).equal(result.model(tokens))
    assert pickle.loads(pickle.dumps(task)).to_dict() == task.to_dict()
    assert result.model.to_str_tokens(task.language.probe_string)[0] == "<bos>"
    assert set(result.model.generate("", max_new_tokens=4, verbose=False)) <= set(
        "".join(task.symbols)
    )


def test_accuracy_is_the_share_of_counted_tokens_predicted_right(trained) -> None:
    result, _ = trained
    task, model = result.task, result.model
    tokens = task.sample(60, generator=torch.Generator().manual_seed(3))
    right = total = 0
    for row in tokens:  # one forward pass for each prefix
        marks = task.counted_positions(row[None])[0]
        for at in marks.nonzero()[:, 0].tolist():
            right += int(model(row[None, :at])[0, -1].argmax() == row[at])
            total += 1
    found = counted_accuracy(task, model, n=60, seed=3)
    assert found.any_token == pytest.approx(right / total)
    assert counted_accuracy(task, model, n=10, long=True).n == 10


def test_every_measure_that_takes_no_stack_works(trained) -> None:
    result, _ = trained
    task, model = result.task, result.model
    other = build_model(model.cfg, 1)
    found = attention_variation([model, other])
    assert "".join(found.input[1:]) == task.language.probe_string
    heads, _ = measure_heads(model, task, n=20, progress=False)
    assert len(heads) == 4
    assert "stack-likeness" not in heads
    assert np.isfinite(heads.to_numpy(dtype=float)).all()
    tokens = task.sample(20, seed=0)
    from tl_dyck.ablation.metrics import log_likelihood

    metric = lambda logits, tokens: log_likelihood(  # noqa: E731
        logits, tokens, ignore=task.language.bos_token
    )
    assert frozen_importance(model, tokens, metric, "zero").values.shape == (2, 2)
    text = task.language.probe_string
    for page in (
        widgets.attention(model, text),
        widgets.attention_seeds([model, other], text, layer=0, head=0),
    ):
        assert text[0] in page.html


STACK = {
    "stack_likeness": lambda m, t: stack_likeness(m, t),
    "balance_violation": lambda m, t: balance_violation(m, t, first_layer="means", head=0),
    "pair_drift": lambda m, t: pair_drift(m),
    "accuracy_at_length": lambda m, t: accuracy_at_length(m),
    "certify_dyck": lambda m, t: certify_dyck(m, t),
    "the space 'pairs' ": lambda m, t: parse_space("pairs:1", language=t.language),
    "the playground": lambda m, t: write_playground([m], "page.html"),
    "a study": lambda m, t: run_study(StudyConfig(task=t.name), "folder"),
    "the family 'minimal-yao'": lambda m, t: get_config("minimal-yao", t),
    "contrastive_weight": lambda m, t: train(
        m.cfg, t, options=replace(QUICK, contrastive_weight=1.0), progress=False
    ),
    "drift_weight": lambda m, t: train(
        m.cfg, t, options=replace(QUICK, drift_weight=1.0), progress=False
    ),
    "max_depth": lambda m, t: m.cfg.language.max_depth,
    "top_of_stack": lambda m, t: t.language.top_of_stack(t.sample(1, seed=0)),
}


@pytest.mark.parametrize("what", STACK)
def test_what_takes_a_stack_says_so_by_name(what: str, trained, tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    result, _ = trained
    with pytest.raises(NoStackError) as caught:
        STACK[what](result.model, result.task)
    message = str(caught.value)
    assert message.startswith(f"{result.task.name} has no stack: ")
    assert what.strip() in message
    assert "\n" not in message
    assert not [*tmp_path.iterdir()]


@pytest.mark.global_rng
def test_a_foreign_model_of_another_language() -> None:
    task = load_task("shuffle-dyck")
    cfg = HookedTransformerConfig(
        n_layers=1, d_model=16, n_ctx=40, d_head=8, n_heads=2, d_vocab=7, attn_only=True,
        device="cpu",
    )  # fmt: skip
    theirs = HookedTransformer(cfg)
    ids = Vocabulary(task.language, {"(": 2, ")": 3, "[": 4, "]": 5}, bos=1, padding=0)
    with pytest.raises(ValueError, match="nothing says which token id"):
        counted_accuracy(task, theirs, n=10)
    model = adopt(theirs, ids)
    tokens = task.sample(30, generator=torch.Generator().manual_seed(0))
    logits = theirs(ids.to_model(tokens)[:, :-1])
    marks = task.counted_positions(tokens)[:, 1:]
    right = logits.argmax(-1) == torch.tensor([2, 3, 4, 5, 1])[tokens[:, 1:]]
    found = counted_accuracy(task, model, n=30)
    assert found.any_token == pytest.approx(float(right[marks].float().mean()), abs=1e-6)
    with pytest.raises(ValueError, match="whose tokens are not those of dyck-1"):
        counted_accuracy(load_task("dyck-1"), model, n=10)
    with pytest.raises(ValueError, match="whose tokens are not those of"):
        load_task("dyck-2-4").closing_accuracy(model, n=10)


# --- the registry, sweeps, the command line -------------------------------------------------------


@dataclass(frozen=True)
class Coin:
    """The least that a task can be: no automaton, and nobody knows its law."""

    name: str = "coin"
    train_lengths: tuple[int, ...] = (4, 6)
    long_lengths: tuple[int, int] = (8, 10)
    entropy_floor: float = math.nan

    @property
    def language(self) -> SymbolLanguage:
        return SymbolLanguage("coin", ("h", "t"))

    def sample(self, n, *, long=False, generator=None, seed=None):
        generator = generator or torch.Generator().manual_seed(seed)
        length = self.long_lengths[0] if long else self.train_lengths[0]
        drawn = torch.randint(2, (n, length), generator=generator)
        return torch.cat([torch.full((n, 1), 2), drawn], dim=1)

    def counted_positions(self, tokens):
        return tokens != 2

    def next_token_probs(self, tokens):
        return None

    def to_dict(self) -> dict[str, object]:
        return {"name": self.name, "train_lengths": list(self.train_lengths),
                "long_lengths": list(self.long_lengths)}  # fmt: skip


@pytest.fixture
def coin():
    register_task("coin", "A coin.")(lambda: Coin())
    yield load_task("coin")
    tasks.unregister("coin")


def test_a_task_without_a_law_trains_and_is_saved(coin, tmp_path) -> None:
    result = train(
        get_config("gpt", "coin"), "coin", options=QUICK, folder=tmp_path, progress=False
    )
    assert result.history["floor"].isna().all()
    assert load_result(tmp_path).accuracy == result.accuracy
    with pytest.raises(ValueError, match="'coin' does not say what its exact law is"):
        nats_over_law(coin, result.model, n=5)
    tasks.unregister("coin")
    with pytest.raises(CheckpointError, match="import the module that registers it first"):
        load_result(tmp_path)
    register_task("coin")(lambda: Coin(entropy_floor=0.0, long_lengths=(8, 9)))
    assert load_result(tmp_path).task.long_lengths == (8, 10)  # lengths are the run's own
    tasks.unregister("coin")
    register_task("coin")(load_task("dyck-1"))
    with pytest.raises(CheckpointError, match="is not the one that was saved under that name"):
        load_result(tmp_path)


@pytest.mark.usefixtures("forked_workers")
def test_a_task_that_nobody_registered_trains_in_workers_and_resumes(tmp_path) -> None:
    task = AutomatonTask(
        name="local",
        symbols=("a", "b"),
        start=0,
        moves=lambda n: {"a": 1 - n, "b": n},  # cannot be pickled by name
        counted=lambda n, symbol: True,
        train_lengths=(2, 5),
        long_lengths=(6, 8),
    )
    how = {"seeds": 2, "options": QUICK, "progress": False, "folder": tmp_path}
    first = train_seeds("gpt", task, n_jobs=2, **how)
    again = train_seeds("gpt", task, n_jobs=1, **how)
    assert [result.accuracy for result in again] == [result.accuracy for result in first]
    assert again[0].task is task
    with pytest.raises(CheckpointError, match="'local' is not registered here; import the module"):
        load_result(tmp_path / "seed-0")


def test_what_is_no_task_is_refused_when_it_is_registered() -> None:
    with pytest.raises(RegistryError, match="must be of type Task, not"):
        register_task("mine")(lambda length: Coin())
    half = type("Half", (), {"name": "half", "sample": len})()
    with pytest.raises(RegistryError, match="lacks counted_positions, entropy_floor, language"):
        register_task("half")(half)
    assert "half" not in tasks


def test_seeds_and_sweeps(tmp_path) -> None:
    results = train_seeds("gpt", "dyck-1", seeds=2, options=QUICK, progress=False, n_jobs=1)
    alone = train("gpt", "dyck-1", seed=1, options=QUICK, progress=False)
    assert [result.steps for result in results] == [6, 6]
    torch.testing.assert_close(results[1].model.unembed.W_U, alone.model.unembed.W_U)
    point = {"task": "anbncn", "task.train_lengths": [3, 6], "model": "gpt",
             "training": {"steps": 4},
             "measure": {"n_accuracy": 40, "n_long": 8, "n_strings": 40}}  # fmt: skip
    run_sweep({"list": [point], "seeds": 1}, tmp_path, n_jobs=1, progress=False)
    (row,) = load_results(tmp_path).to_dict("records")
    assert row["status"] == "done", row.get("error")
    shorter = replace(load_task("anbncn"), train_lengths=(3, 6))
    assert row["entropy_floor"] == pytest.approx(shorter.entropy_floor)
    assert 0 <= row["accuracy"] <= 1
    assert row["entropy_gap"] > 0
    (model,) = tmp_path.rglob("result.json")
    assert load_result(model.parent).task == shorter


def test_the_command_line(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    listed = json.loads(call("tasks", "--json").output)["tasks"]
    assert {"anbncn", "dyck-1", "shuffle-dyck"} <= {row["name"] for row in listed}
    out = call("train", "gpt", "-t", "shuffle-dyck", "--steps", "3", "-o", "runs")
    assert out.exit_code == 0, out.output
    out = call("probe", "runs/seed-0")
    assert "shuffle-dyck has no stack: stack_likeness is of Dyck languages only" in flat(out.output)
    assert call("probe", "runs/seed-0", "-p", "stack_likeness").exit_code == 2


def test_a_saved_model_alone_finds_its_task(tmp_path) -> None:
    from tl_dyck.tasks.names import task_of

    model = build_model(get_config("attn-only", "dyck-1", n_heads=2))
    assert load_model(save_model(model, tmp_path)).cfg.language == load_task("dyck-1").language
    assert task_of(model.cfg.language) == load_task("dyck-1")
    with pytest.raises(RegistryError, match="'elsewhere' is not registered here"):
        task_of(SymbolLanguage("elsewhere", ("a",)))
