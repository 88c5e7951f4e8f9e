"""The same models twice on TransformerLens 3: of its classes, and of ours for TransformerLens 4."""

from __future__ import annotations

import importlib.util
import itertools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor
from transformer_lens import FactoredMatrix

import tl_dyck
from tl_dyck import processes
from tl_dyck.models.hooked import installed

CASES = Path(__file__).parents[2] / "cases.py"


def _swapped(name: str) -> bool:
    """Whether a module is made of the classes that `hooked` hands out."""
    apart = "tl_dyck.models.hooked.own", installed.__name__
    return name.split(".")[:2] == ["tl_dyck", "models"] and not name.startswith(apart)


@contextmanager
def as_on_4() -> Iterator[None]:
    """Import models anew, as if TransformerLens 4 were installed; afterwards all is as before."""
    before = {name: module for name, module in sys.modules.items() if _swapped(name)}
    package, major = tl_dyck.models, installed.MAJOR
    for name in before:
        del sys.modules[name]
    installed.MAJOR = 4
    try:
        yield
    finally:
        installed.MAJOR = major
        if "tl_dyck.models.families" in sys.modules:  # workers are told of ours alone
            processes.told_to.discard(sys.modules["tl_dyck.models.families"].models)
        for name in [name for name in sys.modules if _swapped(name)]:
            del sys.modules[name]
        sys.modules.update(before)
        tl_dyck.models = package


def own_cases() -> ModuleType:
    """`tests.cases`, whose models are of our own class, and the `save_model` that knows it."""
    spec = importlib.util.spec_from_file_location("own_cases", CASES)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with as_on_4():
        sys.modules[spec.name] = module  # where dataclasses look for it
        spec.loader.exec_module(module)
        module.save_model = importlib.import_module("tl_dyck.models").save_model  # type: ignore[attr-defined]
    return module


def plain(hooked: Any, tokenizer: Any = None, **fields: Any) -> Any:
    """A plain decoder of two layers of `hooked`'s class, random in every weight."""
    values = {
        "n_layers": 2,
        "d_model": 12,
        "d_head": 4,
        "n_heads": 3,
        "d_vocab": 7,
        "n_ctx": 9,
        "act_fn": "gelu",
        "dtype": torch.float64,
        "init_weights": False,
        "device": "cpu",
        **fields,
    }
    model = hooked.HookedTransformer(hooked.HookedTransformerConfig(**values), tokenizer)
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for parameter in model.parameters():
            draw = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            parameter.copy_(draw / 2)
    return model


def same(a: Any, b: Any) -> bool:
    """Equal to the last bit, whatever it is; NaN equals NaN."""
    if isinstance(a, Tensor) and isinstance(b, Tensor):
        alike = (a.dtype, a.shape) == (b.dtype, b.shape)
        return alike and torch.equal(torch.nan_to_num(a), torch.nan_to_num(b))
    if isinstance(a, FactoredMatrix):
        return same(a.A, b.A) and same(a.B, b.B)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(itertools.starmap(same, zip(a, b, strict=True)))
    return bool(a == b)


def answer(ask: Callable[[Any], Any], model: Any) -> Any:
    """What a model answers; "refused" if it does not."""
    try:
        return ask(model)
    except (AssertionError, ValueError, TypeError, AttributeError, KeyError):
        return "refused"
