"""Which positions of the data are real, for everything that averages over them or draws from them.

A position is real if its token is a symbol of the string. BOS is not: it is the same in every
string and no part of any. What fills up short strings is not either; a causal model computes
something there as well, of which no metric hears. What counts as BOS and filling says the caller
(`where`, `ignore`), else the task, else the model's vocabulary (``cfg.language``), else its
tokenizer. Where nobody says, nothing is measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, SupportsIndex

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tl_dyck.ablation.metrics import Metric, check_tokens, ignored, log_likelihood
from tl_dyck.check import WrongTypeError
from tl_dyck.language import VocabularyError

#: A token, or several, or none ``()``, that are no symbols of a string; None for what is known.
Ignored = SupportsIndex | Sequence[SupportsIndex] | None


def ignored_tokens(
    model: Any, ignore: Ignored = None, data: Any = None, *, instead: str
) -> tuple[int, ...]:
    """The tokens that are no symbols of a string: BOS, and what fills up short ones.

    Raises:
        VocabularyError: nobody says.
        TypeError: `ignore` is no token.
        ValueError: it is negative.
    """
    if ignore is not None:
        return ignored(ignore)
    for owner in (data, getattr(model, "cfg", None)):
        language = getattr(owner, "language", None)
        if language is not None:
            return (int(language.bos_token),)
    tokenizer = getattr(model, "tokenizer", None)
    told = (getattr(tokenizer, name, None) for name in ("bos_token_id", "pad_token_id"))
    named = {int(token) for token in told if token is not None}
    if not named:
        raise VocabularyError(
            "nothing says which tokens of this model are BOS or fill up short strings, so that "
            f"positions that are no symbols would count; pass {instead}"
        )
    return tuple(sorted(named))


def real_positions(
    model: Any, data: Int[Tensor, "batch pos"], where: Bool[Tensor, "batch pos"] | None = None
) -> Bool[Tensor, "batch pos"]:
    """Mark the real positions of some strings, on the CPU.

    Raises:
        TypeError: `where` is no tensor of booleans.
        ValueError: nobody says, or no position is real.
    """
    if where is None:
        known = ignored_tokens(
            model, instead="where=data != …, or torch.ones_like(data, dtype=torch.bool) for all"
        )
        where = ~torch.isin(data, torch.tensor(known, dtype=data.dtype, device=data.device))
    check_tokens(model, data, None, where)
    return where.cpu()


def default_metric(model: Any, metric: Metric | None, ignore: Ignored = None) -> Metric:
    """The metric that was given; None for `log_likelihood` of real tokens."""
    if metric is None:
        known = ignored_tokens(
            model, ignore, instead="metric=log_likelihood to count all, or one of your own"
        )
        return partial(log_likelihood, ignore=known)
    if not callable(metric):
        raise WrongTypeError(f"metric must be a function of logits and tokens, not {metric!r}")
    return metric
