"""Every model that is handed out is in eval mode, as a whole and in every part.

Nothing of ours behaves otherwise in training, but TransformerLens 4's analyses refuse a model that
is in training, for they cannot know.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import tl_dyck
from tests.cases import CASES, DEEP_CASES
from tests.foreign import VOCABULARY, foreign
from tests.models.construct import test_pruning as pruned
from tests.models.hooked.twins import plain
from tests.models.test_arena import random_state
from tl_dyck import construct, export_rnn, load_task
from tl_dyck.ablation import (
    FinetuneConfig,
    finetuned_importance,
    leave_one_out_importance,
    measure_heads,
)
from tl_dyck.judge.cases import make_case, sealed_case
from tl_dyck.models import adopt, build_model, get_config, list_models, load_model, save_model
from tl_dyck.models.arena import load_arena
from tl_dyck.models.bridge import as_bridge
from tl_dyck.models.hooked import installed, own
from tl_dyck.rnn import load_rnn, save_rnn
from tl_dyck.rnn.export import export_layers
from tl_dyck.runs import run_sweep
from tl_dyck.runs.saved import load_models, load_pretrained
from tl_dyck.training import TrainConfig, load_result, train, train_seeds
from tl_dyck_text.corpus import Sentence
from tl_dyck_text.model import TextConfig, build_text_model, load_text_model, save_text_model
from tl_dyck_text.training import TextTraining, train_text

TASK = load_task("dyck-2-4")
OPTIONS = TrainConfig(steps=2, batch_size=4, check_every=1, check_size=4, min_steps=1)
WORDS = ("<unk>", "<cls>", "good", "bad")
#: Kinds of cases that take no time.
QUICK = ("uniform", "alone", "built-edges", "levels", "features")
SENTENCES = [Sentence(text="good", label=1), Sentence(text="bad", label=0)]


def small(family: str = "gpt", **fields: Any) -> Any:
    """A model of ours, as someone left it who trains."""
    values = {"n_layers": 1, "n_heads": 2, "d_model": 8, "n_ctx": 60, **fields}
    return build_model(get_config(family, TASK, **values)).train()


def brought() -> Any:
    return foreign("no-norm").train()


def network() -> Any:
    return construct.random_network(pruned.small(), items=24, scale=2.0).train()


def saved(model: Any, folder: Path) -> Path:
    save_model(model, folder)
    return folder


def trained(folder: Path | None = None) -> Any:
    return train(small().cfg, TASK, options=OPTIONS, folder=folder, progress=False)


def text_model() -> Any:
    return build_text_model(TextConfig(words=WORDS, d_model=4, n_ctx=8))


def of_rnn(folder: Path) -> Any:
    save_rnn(export_rnn(small()).train(), folder)
    return load_rnn(folder)


def of_checkpoint(folder: Path) -> Any:
    trained(folder)
    return load_result(folder)


def of_text(folder: Path) -> Any:
    return load_text_model(save_text_model(text_model().train(), folder))


def of_arena(folder: Path) -> Any:
    torch.save(random_state(n_layers=1), folder / "state.pt")
    return load_arena(folder / "state.pt", device="cpu")


def of_sweep(folder: Path) -> Any:
    common = {"task": "dyck-2-4", "model": "gpt", "training.steps": 2, "model.d_model": 8}
    common["measure"] = {"n_accuracy": 20, "n_long": 2, "n_strings": 20, "decided_length": 4}
    run_sweep({"common": common, "seeds": 2}, folder, n_jobs=1, progress=False)
    return load_models(folder)


def finetuned(measure: Any, model: Any, name: str = "options") -> Any:
    options = FinetuneConfig(penalties=(0.1,), steps=2, batch_size=2, n_eval=4)
    return measure(model, TASK.sample(4, seed=0), **{name: options}, progress=False)


def twins(folder: Path) -> Any:
    pair = [pruned.small(seed) for seed in (0, 1)]
    return construct.twins(*pair, shared="blocks.0.mlp.W_in", epsilon=10.0, items=24)


#: What public functions hand out, by their names.
HANDED_OUT: dict[str, Callable[[Path], Any]] = {
    "adopt": lambda folder: adopt(brought(), VOCABULARY),
    "as_bridge": lambda folder: as_bridge(small()),
    "balanced": lambda folder: construct.balanced(TASK.language, seed=0),
    "build_model": lambda folder: [build_model(get_config(n, TASK)) for n in list_models()],
    "build_text_model": lambda folder: text_model(),
    "counter": lambda folder: construct.counter(4, "once"),
    "decoy_head": lambda folder: [
        construct.decoy_head(model, "previous") for model in (small(), brought())
    ],
    "export_layers": lambda folder: export_layers(small("attn-only", n_layers=2)),
    "export_rnn": lambda folder: export_rnn(small()),
    "finetuned_importance": lambda folder: finetuned(finetuned_importance, small()),
    "load_arena": of_arena,
    "load_model": lambda folder: [
        load_model(saved(small(), folder / "ours")),
        load_model(saved(adopt(brought(), VOCABULARY).train(), folder / "theirs")),
    ],
    "load_models": of_sweep,
    "load_pretrained": lambda folder: load_pretrained(saved(small(), folder)),
    "load_result": of_checkpoint,
    "load_rnn": of_rnn,
    "load_text_model": of_text,
    "make_case": lambda folder: [make_case(kind, 0)[0] for kind in QUICK],
    "measure_heads": lambda folder: finetuned(measure_heads, small(), "finetune"),
    "prune_to": lambda folder: construct.prune_to(pruned.small(), network(), 1e3),
    "random_network": lambda folder: construct.random_network(pruned.small(), items=4),
    "sealed_case": lambda folder: sealed_case("uniform", 0).copy(),
    "stack": lambda folder: construct.stack(TASK.language),
    "train": lambda folder: trained(),
    "train_seeds": lambda folder: train_seeds(
        small().cfg, TASK, seeds=2, options=OPTIONS, n_jobs=1, progress=False
    ),
    "train_text": lambda folder: train_text(
        text_model().text, SENTENCES, TextTraining(steps=2, batch_size=2), progress=False
    ),
    "twins": twins,
    "uniform_attention": lambda folder: construct.uniform_attention(TASK.language),
}
#: The same of what returns no model by its annotation.
NO_MODEL = {"call_probe", "config_for", "find_model", "find_models", "get_config", "load_task"}
NO_MODEL |= {"needs_stack", "language_of", "unwrapped", "busy", "announced"}


def models_in(found: Any) -> Iterator[nn.Module]:
    """Every model in what a function returned."""
    if isinstance(found, nn.Module):
        yield found
    elif isinstance(found, list | tuple):
        for each in found:
            yield from models_in(each)
    elif dataclasses.is_dataclass(found):
        for field in dataclasses.fields(found):
            yield from models_in(getattr(found, field.name))


def in_training(model: nn.Module) -> list[str]:
    return [name or "the model" for name, part in model.named_modules() if part.training]


@pytest.mark.parametrize("name", HANDED_OUT)
def test_what_is_handed_out_is_in_eval_mode(name: str, tmp_path: Path) -> None:
    if name == "as_bridge" and installed.MAJOR < 4:
        pytest.skip("TransformerLens 3 has no such TransformerBridge")
    models = list(models_in(HANDED_OUT[name](tmp_path)))
    assert models
    assert [parts for model in models if (parts := in_training(model))] == []


def public() -> Iterator[tuple[str, Any]]:
    """The functions that a package of ours names in its ``__all__``, and `tl_dyck` itself."""
    for info in pkgutil.walk_packages(tl_dyck.__path__, "tl_dyck."):
        if info.name.endswith("__main__") or ".playground" in info.name:
            continue
        module = importlib.import_module(info.name)
        for name in getattr(module, "__all__", ()):
            yield name, getattr(module, name)
    for name in tl_dyck.__all__:
        yield name, getattr(tl_dyck, name)


def test_no_function_that_returns_a_model_is_left_out() -> None:
    model = re.compile(
        r"\b(Any|Model|DyckTransformer|HookedTransformer|TextTransformer|TwoLayerRNN|TrainResult"
        r"|FinetunedImportance|Pruning|Twins|Case|SealedCase)\b(?!\]*, Any)"
    )
    functions = {
        name: str(inspect.signature(function).return_annotation)
        for name, function in public()
        if inspect.isfunction(function) and function.__module__.startswith("tl_dyck.")
    }
    returning = {
        name
        for name, said in functions.items()
        if model.search(said) and not re.search(r"dict\[|Callable|Config\b|Iterator", said)
    }
    assert returning <= set(HANDED_OUT) | NO_MODEL


def test_our_class_begins_so_whatever_it_is_made_of() -> None:
    for each in (*CASES, *DEEP_CASES):
        model: Any = each.build(n_ctx=32)
        assert each.is_ours <= (in_training(model) == []), each.name
    for norm in ("LN", "LNPre", None):
        assert in_training(plain(own, normalization_type=norm, act_fn="solu_ln")) == []


@pytest.mark.parametrize("mode", [True, False])
def test_norms_that_are_replaced_are_in_the_mode_of_their_model(mode: bool) -> None:
    model = plain(own).train(mode)
    model.process_weights_()
    assert {part.training for part in model.modules()} == {mode}


@pytest.mark.parametrize("mode", [True, False])
@pytest.mark.parametrize("importance", [finetuned_importance, leave_one_out_importance])
def test_a_model_that_is_tuned_stays_in_the_mode_it_was(importance: Any, mode: bool) -> None:
    """A copy is tuned, in training; a part that looks sees that."""
    model, seen = small().train(mode), []
    model.unembed.register_forward_hook(lambda part, args, out: seen.append(part.training))
    finetuned(importance, model)
    assert {part.training for part in model.modules()} == {mode}
    assert {True, False} <= set(seen)


def test_a_text_classifier_learns_in_training(monkeypatch: pytest.MonkeyPatch) -> None:
    from tl_dyck_text import training

    seen, usual = [], training.text_logits
    monkeypatch.setattr(
        training,
        "text_logits",
        lambda model, rows: seen.append(model.training) or usual(model, rows),
    )
    options = TextTraining(steps=2, batch_size=2)
    model, _ = train_text(text_model().text, SENTENCES, options, progress=False)
    assert (seen, model.training) == ([True, True], False)
