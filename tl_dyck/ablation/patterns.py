"""What attention patterns look like, and how far they moved."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex, cast

import numpy as np
import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.ablation.metrics import check_model, check_tokens, real_positions, rows_per_pass
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_draws, check_seed
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck.reading.inputs import check_reads, language_of
from tl_dyck.tasks import Task
from tl_dyck.tasks.names import task_of
from tl_dyck.tasks.protocol import is_task

_Hooks = Sequence[tuple[str, Any]]


@checked
def attention_entropy(
    model: Any,
    data: Task | Int[Tensor, "batch pos"] | None = None,
    *,
    where: Bool[Tensor, "batch pos"] | None = None,
    n: SupportsIndex = 200,
    seed: SupportsIndex = 0,
) -> Float[np.ndarray, "layer head"]:
    """The entropy of a head's attention, nats, mean over queries: 0 where it looks at one position.

    It is a probe, too: ``tl-dyck probe -p attention_entropy``.

    Args:
        model: any HookedTransformer.
        data: token ids; or a task, from which `n` training strings are drawn; None for the task of
            the model's language.
        where: which queries count; None for the real positions, see `frozen_importance`.
        n: number of strings.
        seed: of the strings.
    """
    check_model(model)
    n, seed = check_draws(n), check_seed(seed)
    if data is None or is_task(data):
        task: Any = task_of(language_of(model, None)) if data is None else data
        check_reads(model, task.language)
        generator = torch.Generator().manual_seed(seed)
        tokens: Tensor = task.sample(n, generator=generator)
    else:
        tokens = cast("Tensor", data)
    check_tokens(model, tokens, where)
    marked = real_positions(model, tokens, where)
    total = torch.zeros(model.cfg.n_layers, model.cfg.n_heads, dtype=torch.float64)
    for batch in torch.arange(len(tokens)).split(rows_per_pass(model, tokens.shape[1])):
        for layer, pattern in enumerate(attention_patterns(model, tokens[batch])):
            entropy = torch.special.entr(pattern.double()).sum(-1)  # batch head query
            total[layer] += (entropy * marked[batch][:, None]).sum((0, 2))
    found: np.ndarray = (total / int(marked.sum())).numpy()
    return found


@checked
def pattern_drift(
    before: Any,
    after: Any,
    data: Int[Tensor, "batch pos"],
    *,
    where: Bool[Tensor, "batch pos"] | None = None,
    hooks: _Hooks = (),
) -> Float[np.ndarray, "layer head"]:
    """Return how far each head's pattern moved: ``‖A_before − A_after‖²_F``, mean over strings.

    This is the attention variation of Wen et al. 2023 with a model's two states in place of two
    seeds.

    Args:
        before: a HookedTransformer.
        after: another of the same shape.
        data: token ids.
        where: which queries count; None for the real positions, see `frozen_importance`.
        hooks: with which `after` runs, such as gates.
    """
    check_model(before)
    check_model(after)
    shapes = [(model.cfg.n_layers, model.cfg.n_heads) for model in (before, after)]
    if shapes[0] != shapes[1]:
        raise ValueError(f"the models have different shapes (layers, heads): {shapes}")
    pairs = isinstance(hooks, Sequence) and not isinstance(hooks, (str, bytes))
    if not pairs or not all(isinstance(one, tuple) and len(one) == 2 for one in hooks):
        raise WrongTypeError(f"hooks must be a list of (name, function), not {hooks!r}")
    check_tokens(before, data, where)
    marked = real_positions(before, data, where)
    total = torch.zeros(before.cfg.n_layers, before.cfg.n_heads, dtype=torch.float64)
    for batch in torch.arange(len(data)).split(rows_per_pass(before, data.shape[1])):
        old, new = (
            attention_patterns(before, data[batch]),
            attention_patterns(after, data[batch], hooks),
        )
        moved = (old - new).double().square().sum(-1)  # layer batch head query
        total += (moved * marked[batch][:, None]).sum((1, 3))
    found: np.ndarray = (total / len(data)).numpy()
    return found
