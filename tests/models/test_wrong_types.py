"""Integers of every kind, and what is none, at every parameter that counts something.

In a process of its own: while other tests run, annotations are checked before our code is asked.
"""

from __future__ import annotations

import subprocess
import sys

SCRIPT = """
import traceback
import warnings

import numpy as np
import torch

from tl_dyck import (
    AutomatonTask, DyckLanguage, DyckTask, SymbolLanguage, Vocabulary, build_model, get_config,
    load_task,
)
from tl_dyck.check import WrongTypeError
from tl_dyck.models.arena import arena_tokens
from tl_dyck.models.text import TextConfig, build_text_model
from tl_dyck.report import widgets
from tl_dyck.tasks import counted_accuracy, nats_over_law
from tl_dyck.training import TrainConfig

warnings.simplefilter("ignore")
TASK = load_task("dyck-2-4")
LANGUAGE, LAW = TASK.language, TASK.distribution
MODEL = build_model(get_config("gpt", TASK, n_ctx=40, n_layers=3, n_heads=5))


def generator():
    return torch.Generator().manual_seed(0)


def letters(length=2):
    return AutomatonTask(
        name="p", symbols=("a", "b"), start=0, moves=lambda state: {"ab"[state]: 1 - state},
        counted=lambda state, symbol: True, long_lengths=(10, 20),
        train_lengths=length if hasattr(length, "__next__") else (length,),
    )


def task(**fields):
    return DyckTask(**{"name": "x", "n_types": 2, "max_depth": 4, **fields})


def zeros(tokens):
    return torch.zeros(*tokens.shape, 3)


CALLS = {
    "n_types": lambda v: DyckLanguage(v, 4),
    "max_depth": lambda v: DyckLanguage(2, v),
    "count": LANGUAGE.count,
    "enumerate": LANGUAGE.enumerate,
    "prefixes_by_depth": lambda v: list(LANGUAGE.prefixes_by_depth(v)),
    "sample n": lambda v: LAW.sample(v, 4, generator=generator()),
    "sample length": lambda v: LAW.sample(2, v, generator=generator()),
    "depth_probability": LAW.depth_probability,
    "task n_types": lambda v: task(n_types=v),
    "task max_depth": lambda v: task(max_depth=v),
    "train_lengths": lambda v: task(train_lengths=(v,)),
    "long_lengths": lambda v: task(long_lengths=(2, v)),
    "task sample": lambda v: TASK.sample(v, seed=0),
    "task seed": lambda v: TASK.sample(2, seed=v) if v is not None else wrong(),
    "sample_closing": lambda v: TASK.sample_closing(v, generator=generator()),
    "accuracy n": lambda v: TASK.closing_accuracy(MODEL, n=v),
    "accuracy seed": lambda v: TASK.closing_accuracy(MODEL, n=4, seed=v),
    "accuracy chunk": lambda v: TASK.closing_accuracy(MODEL, n=4, chunk=v),
    "counted n": lambda v: counted_accuracy(letters(), zeros, n=v),
    "counted seed": lambda v: counted_accuracy(letters(), zeros, n=4, seed=v),
    "counted chunk": lambda v: counted_accuracy(letters(), zeros, n=4, chunk=v),
    "nats n": lambda v: nats_over_law(TASK, MODEL, n=v),
    "nats seed": lambda v: nats_over_law(TASK, MODEL, n=4, seed=v),
    "nats chunk": lambda v: nats_over_law(TASK, MODEL, n=4, chunk=v),
    "letters": letters,
    "letters n": lambda v: letters().sample(v, seed=0),
    "letters seed": lambda v: letters().sample(3, seed=v) if v is not None else wrong(),
    "bos": lambda v: Vocabulary(LANGUAGE, (4, 5, 3, 6), bos=v),
    "id": lambda v: Vocabulary(LANGUAGE, (4, 5, 3, v), bos=9),
    "padding": lambda v: Vocabulary(LANGUAGE, (4, 5, 3, 6), 9, v) if v is not None else wrong(),
    "order": lambda v: Vocabulary(DyckLanguage(1, 1), (0, 1), bos=2).order(v + v + v),
    "build_model": lambda v: build_model(get_config("gpt", TASK, n_ctx=40), v),
    "n_ctx": lambda v: get_config("gpt", TASK, n_ctx=v),
    "d_model": lambda v: get_config("gpt", TASK, d_model=v),
    "text": lambda v: build_text_model(TextConfig(words=("<unk>", "<cls>"), d_model=4), v),
    "text d_model": lambda v: TextConfig(words=("<unk>", "<cls>"), d_model=v),
    "generate": lambda v: MODEL.generate("[", v, do_sample=False),
    "steps": lambda v: TrainConfig(steps=v),
    "arena": lambda v: arena_tokens("", n_ctx=v),
    "layer": lambda v: widgets.attention(MODEL, "[]", layer=v) if v is not None else wrong(),
    "head": lambda v: widgets.attention(MODEL, "[]", head=v) if v is not None else wrong(),
}


def wrong():
    raise WrongTypeError("None means something here")


for name, call in CALLS.items():
    for value in (np.int64(2), np.uint8(2)):
        call(value)
    for value in (2.5, 2.0, None, "2", True, [2]):
        if name == "order" and value in (None, "2", True, [2]):
            continue  # the sum
        try:
            call(value)
        except WrongTypeError as error:
            assert "\\n" not in str(error), name
        except Exception:
            print(name, repr(value), traceback.format_exc())
        else:
            print(name, repr(value), "is taken")

for name, call in {
    "ln_c": lambda v: get_config("eq6", TASK, ln_c=v),
    "eps": lambda v: get_config("gpt", TASK, eps=v),
    "initializer_range": lambda v: get_config("gpt", TASK, initializer_range=v),
    "load_task": load_task,
    "parse": LANGUAGE.parse,
    "brackets": lambda v: Vocabulary(LANGUAGE, v, bos=9),
    "to_ours": Vocabulary.ours(LANGUAGE).to_ours,
    "train_lengths": lambda v: task(train_lengths=v),
}.items():
    for value in (None, object(), {0.5, 1.5}, torch.tensor([4.7])):
        if name in ("ln_c", "eps", "initializer_range") and isinstance(value, torch.Tensor):
            continue  # a tensor of one number is a number
        try:
            call(value)
        except (WrongTypeError, TypeError) as error:
            if type(error) is TypeError:
                print(name, repr(value), traceback.format_exc())
        else:
            print(name, repr(value), "is taken")
"""


def test_wrong_types_are_named_and_integers_of_numpy_are_integers() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.stdout, done.returncode) == ("", 0), done.stdout + done.stderr[-2000:]
