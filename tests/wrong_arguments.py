"""Arguments of wrong types and sizes; run without checked annotations.

Integers of every kind, and what is none, wherever something is counted; then all arguments of
importance and probes. Prints what is not refused in one line of our own.
``python -m tests.wrong_arguments``.
"""

from __future__ import annotations

import inspect
import traceback
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

import tl_dyck
from tl_dyck import AutomatonTask, DyckLanguage, DyckTask, Vocabulary, ablation, probes
from tl_dyck.ablation import FinetuneConfig
from tl_dyck.kit.check import WrongTypeError
from tl_dyck.kit.errors import DyckError
from tl_dyck.language import DyckDistribution
from tl_dyck.models import build_model, get_config
from tl_dyck.models.arena import arena_tokens
from tl_dyck.report import widgets
from tl_dyck.tasks import counted_accuracy, load_task, nats_over_law
from tl_dyck.training import TrainConfig
from tl_dyck_text.model import TextConfig, build_text_model

ROOT = Path(__file__).resolve().parent.parent
ODD = [1.5, None, "x", -1, 10**12, 10**30, float("nan"), float("inf"), [], {}, object(), True, b"x",
       np.array([1, 2]), torch.zeros(2), np.int64(60)]  # fmt: skip
#: Arguments for which some of these are answers: by name, what is accepted.
FREE = {"learning_rate", "gate_learning_rate", "log_alpha", "length", "penalties"}
LARGE = {"seed", "chunk", "steps", "log_every", "measures", "lengths"}
EMPTY = {"ignore", "modes", "hooks"}
NONE = {"metric", "labels", "where", "chunk", "options", "ignore", "finetune", "leave_one_out"}
NONE |= {"language", "measures", "distribution", "text", "data", "head"}
INTEGER = {"n", "seed", "chunk", "ignore", "steps", "batch_size", "n_eval", "log_every", "lengths"}
SKIPPED = {"progress"}


def calls() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Functions, each with arguments that are right."""
    task = load_task("dyck-2-4")
    model = build_model(get_config("gpt", task, n_layers=1, n_heads=2, d_model=8))
    minimal = build_model(get_config("minimal-onehot", task))
    tokens = task.sample(4, seed=0)
    options = FinetuneConfig(penalties=(0.1,), steps=1, batch_size=2, n_eval=4)
    both = {"model": model, "data": tokens}
    heads = ablation.measure_heads(model, tokens, modes=("zero", "gradient"), n=4)[0]
    yield ablation.frozen_importance, both | {"mode": "resample"}
    yield ablation.gradient_importance, both
    for tuned in (ablation.finetuned_importance, ablation.leave_one_out_importance):
        yield tuned, both | {"options": options, "progress": False}
    yield ablation.measure_heads, both | {"modes": ("zero",), "n": 4}
    yield FinetuneConfig, {}
    yield ablation.compare_importance, {"heads": [heads, heads]}
    yield ablation.attention_entropy, both
    yield ablation.pattern_drift, {"before": model, "after": model, "data": tokens}
    yield ablation.log_likelihood, {"logits": torch.zeros(*tokens.shape, 5), "tokens": tokens}
    yield probes.load_probe, {"name": "stack_likeness"}
    yield probes.takes_many, {"probe": tl_dyck.stack_likeness}
    yield tl_dyck.accuracy_at_length, {"model": minimal, "lengths": 30, "n": 10}
    yield tl_dyck.attention_variation, {"models": [model, model]}
    means = {"first_layer": "means", "head": 0, "n": 50}
    yield tl_dyck.balance_violation, {"model": model, "data": task, **means}
    yield tl_dyck.pair_drift, {"model": minimal}
    drift = tl_dyck.pair_drift(minimal)
    yield drift.accuracy, {"length": 3}
    yield drift.length_at, {}
    yield tl_dyck.stack_likeness, {"model": model, "data": task, "n": 5}


def is_right(name: str, value: Any) -> bool:
    """Whether this is an answer for an argument of this name."""
    if isinstance(value, np.int64):
        return name in INTEGER | FREE
    if value is None:
        return name in NONE
    if isinstance(value, (list, dict)):
        return not value and name in EMPTY
    if isinstance(value, float):
        return name in FREE
    return name in LARGE | FREE


def told(error: Exception) -> str | None:
    """What is wrong with an error; None if it is one line of ours."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    ours = isinstance(error, DyckError) or (
        isinstance(error, (TypeError, ValueError))
        and ROOT in Path(last.filename).parents
        and ".venv" not in last.filename
    )
    return None if ours and "\n" not in str(error) else f"{type(error).__name__}: {error}"


TASK = load_task("dyck-2-4")
LANGUAGE, LAW = TASK.language, TASK.distribution
#: Where None is an answer, or another argument has to be given.
NONE_INTEGERS = {"seed", "bos", "padding", "layer", "head"}


def integers() -> Iterator[tuple[Callable[..., Any], dict[str, Any]]]:
    """Functions with arguments; each that is an integer counts something."""
    model = build_model(get_config("gpt", TASK, n_ctx=40, n_layers=3, n_heads=5))
    generator = torch.Generator().manual_seed(0)
    named = {"name": "x", "n_types": 2, "max_depth": 4}

    def letters(length: Any = 2) -> AutomatonTask:
        return AutomatonTask(
            name="p", symbols=("a", "b"), start=0, moves=lambda state: {"ab"[state]: 1 - state},
            counted=lambda state, symbol: True, long_lengths=(10, 20), train_lengths=(length,),
        )  # fmt: skip

    def zeros(tokens: torch.Tensor) -> torch.Tensor:
        return torch.zeros(*tokens.shape, 3)

    measured = {"n": 4, "seed": 0, "chunk": 2}
    words = {"words": ("<unk>", "<cls>")}
    yield DyckLanguage, {"n_types": 2, "max_depth": 4}
    yield LANGUAGE.count, {"length": 2}
    yield LANGUAGE.enumerate, {"length": 2}
    yield lambda longest: list(LANGUAGE.prefixes_by_depth(longest)), {"longest": 2}
    yield LAW.sample, {"n": 2, "length": 4, "generator": generator}
    yield LAW.depth_probability, {"longest": 2}
    yield DyckTask, named
    yield lambda length: DyckTask(**named, train_lengths=(length,)), {"length": 2}
    yield lambda length: DyckTask(**named, long_lengths=(2, length)), {"length": 2}
    for task in (TASK, letters()):
        yield task.sample, {"n": 2, "seed": 0}
    yield TASK.sample_closing, {"n": 2, "generator": generator}
    yield TASK.closing_accuracy, {"model": model, **measured}
    yield counted_accuracy, {"task": letters(), "model": zeros, **measured}
    yield nats_over_law, {"task": TASK, "model": model, **measured}
    yield letters, {"length": 2}
    yield lambda bos: Vocabulary(LANGUAGE, (4, 5, 3, 6), bos=bos), {"bos": 2}
    yield lambda own: Vocabulary(LANGUAGE, (4, 5, 3, own), bos=9), {"own": 2}
    yield lambda padding: Vocabulary(LANGUAGE, (4, 5, 3, 6), 9, padding), {"padding": 2}
    yield Vocabulary(DyckLanguage(1, 1), (0, 1), bos=2).order, {"d_vocab": 6}
    yield build_model, {"config": get_config("gpt", TASK, n_ctx=40), "seed": 2}
    for size in ("n_ctx", "d_model"):
        yield get_config, {"name": "gpt", "task": TASK, size: 2}
    yield build_text_model, {"config": TextConfig(**words, d_model=4), "seed": 2}
    yield TextConfig, {**words, "d_model": 2}
    yield lambda length: model.generate("[", length, do_sample=False), {"length": 2}
    yield TrainConfig, {"steps": 2}
    yield arena_tokens, {"texts": "", "n_ctx": 2}
    for place in ("layer", "head"):
        yield widgets.attention, {"model": model, "text": "[]", place: 2}


def others() -> Iterator[tuple[str, Callable[[Any], Any], tuple[Any, ...]]]:
    """What is no integer: name, function of one argument, values of wrong types."""
    odd = (None, object(), {0.5, 1.5})
    for family, name in (("eq6", "ln_c"), ("gpt", "eps"), ("gpt", "initializer_range")):
        yield name, lambda v, family=family, name=name: get_config(family, TASK, **{name: v}), odd
    odd = (*odd, torch.tensor([4.7]))
    yield "load_task", load_task, odd
    yield "parse", LANGUAGE.parse, odd
    yield "brackets", lambda v: Vocabulary(LANGUAGE, v, bos=9), odd
    yield "brackets", lambda v: DyckLanguage(1, 4, v), (("a", 3),)
    yield "to_ours", Vocabulary.ours(LANGUAGE).to_ours, odd
    yield (
        "train_lengths",
        lambda v: DyckTask(name="x", n_types=2, max_depth=4, train_lengths=v),
        odd,
    )
    yield "depth", LANGUAGE.depth, (torch.tensor([0.0]), torch.tensor([True]), [0, 1])
    yield "language", DyckDistribution, ("dyck-2-4",)
    yield "q", lambda v: DyckDistribution(LANGUAGE, v), ("half",)


def refused(said: str, call: Callable[[], Any], *, by: type[Exception] = WrongTypeError) -> None:
    """Print what is taken, or refused otherwise than in one line."""
    try:
        call()
    except Exception as error:
        if not isinstance(error, by) or told(error) is not None:
            print(said, "|", traceback.format_exc(), flush=True)
    else:
        if by is not Exception:
            print(said, "| taken", flush=True)


def main() -> None:
    warnings.simplefilter("ignore")
    for function, right in integers():
        for name in (name for name, value in right.items() if type(value) is int):
            for kind in (np.int64, np.uint8):
                function(**{**right, name: kind(right[name])})
            for odd in (2.5, 2.0, None, "2", True, [2]):
                means = odd is None and name in NONE_INTEGERS
                said = f"{getattr(function, '__qualname__', function)} {name}={odd!r}"
                call = lambda odd=odd: function(**{**right, name: odd})  # noqa: E731, B023
                refused(said, call, by=Exception if means else WrongTypeError)
    for name, function, values in others():
        for odd in values:
            refused(f"{name}={odd!r}", lambda odd=odd: function(odd), by=TypeError)  # noqa: B023
    for function, right in calls():
        for name, parameter in inspect.signature(function).parameters.items():
            if name in SKIPPED:
                continue
            for odd in ODD if name != "options" else [each for each in ODD if each is not None]:
                said = f"{getattr(function, '__name__', function)} {name}={odd!r}"
                try:
                    function(**{**right, name: odd})
                except Exception as error:
                    wrong = told(error)
                    if wrong is not None or (isinstance(odd, np.int64) and name in INTEGER):
                        print(said, "|", wrong or error, flush=True)
                else:
                    default = parameter.default
                    if not is_right(name, odd) and not (odd is None and default is None):
                        print(said, "| taken", flush=True)
    print("done")


if __name__ == "__main__":
    main()
