"""Arguments of importance and probes of wrong types and sizes; run without checked annotations.

Prints what is not refused in one line of our own. ``python -m tests.wrong_arguments``.
"""

from __future__ import annotations

import inspect
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch

from tl_dyck import ablation, probes
from tl_dyck.ablation import FinetuneConfig
from tl_dyck.errors import DyckError
from tl_dyck.models import build_model, get_config
from tl_dyck.tasks import load_task

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
INTEGER |= {"n_bootstrap"}
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
    yield ablation.compare_importance, {"heads": [heads, heads], "n_bootstrap": 10}
    yield ablation.attention_entropy, both
    yield ablation.pattern_drift, {"before": model, "after": model, "data": tokens}
    yield ablation.log_likelihood, {"logits": torch.zeros(*tokens.shape, 5), "tokens": tokens}
    yield ablation.closing_accuracy, {"language": task.language}
    yield probes.load_probe, {"name": "stack_likeness"}
    yield probes.takes_many, {"probe": probes.stack_likeness}
    yield probes.accuracy_at_length, {"model": minimal, "lengths": 30, "n": 10}
    yield probes.attention_variation, {"models": [model, model], "n_bootstrap": 10}
    means = {"first_layer": "means", "head": 0, "n": 50}
    yield probes.balance_violation, {"model": model, "data": task, **means}
    yield probes.pair_drift, {"model": minimal}
    drift = probes.pair_drift(minimal)
    yield drift.accuracy, {"length": 3}
    yield drift.length_at, {}
    yield probes.stack_likeness, {"model": model, "data": task, "n": 5}


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


def main() -> None:
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
