"""The same plain decoder of TransformerLens 3's class and of ours, and what both answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from transformer_lens import FactoredMatrix

from tests.cases import draw_normal


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
    return draw_normal(model, 0, 0.5)


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
