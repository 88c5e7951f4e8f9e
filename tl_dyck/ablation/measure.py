"""All that is measured on the heads of one model, in one table."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, SupportsIndex

import numpy as np
import pandas as pd
import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.ablation.finetuned import FinetunedImportance, finetuned_importance
from tl_dyck.ablation.frozen import HEADS, frozen_importance, gradient_importance
from tl_dyck.ablation.leave_one_out import leave_one_out_importance
from tl_dyck.ablation.metrics import Ignored, Metric, default_metric
from tl_dyck.ablation.patterns import attention_entropy
from tl_dyck.ablation.tuning import Data, FinetuneConfig, Source, check_options
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_draws
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage
from tl_dyck.plotting.plot_recipes import frame
from tl_dyck.probes.likeness import stack_likeness
from tl_dyck.reading.attention import random_row_variation

#: Columns of the table: importance of heads of a frozen model, …
FROZEN = ("zero", "mean", "resample", "uniform-pattern", "gradient")
#: … importance after the model adapted, …
FINETUNED = ("gates", "leave-one-out")
#: … and what one would call interpretable: attention on the top of the stack, and how sharp a
#: pattern is.
INTERPRETABILITY = ("stack-likeness", "entropy")


@checked
def measure_heads(
    model: Any,
    data: Data,
    metric: Metric | None = None,
    *,
    modes: Sequence[str] = FROZEN,
    finetune: FinetuneConfig | None = None,
    leave_one_out: FinetuneConfig | None = None,
    ignore: Ignored = None,
    n: SupportsIndex = 200,
    seed: SupportsIndex = 0,
    progress: bool = True,
) -> tuple[pd.DataFrame, FinetunedImportance | None]:
    """Measure every head of a model: how important it is, and how interpretable it looks.

    Args:
        model: any HookedTransformer.
        data: tokens, a task or a function, see `finetuned_importance`.
        metric: see `frozen_importance`; differentiable where something is fine-tuned. None for
            `log_likelihood`.
        modes: of `frozen_importance`, and "gradient"; none to leave these out.
        finetune: for the gates; None for no gates.
        leave_one_out: for leave-one-out; None for none.
        ignore: see `finetuned_importance`.
        n: strings on which the frozen model is measured, at most.
        seed: of everything that is drawn.
        progress: whether to show progress bars.

    Returns:
        One row per head: layer, head, then `FROZEN`, `FINETUNED`, `INTERPRETABILITY` as far as
        asked for, drift (of the head's pattern until it was removed, see
        `FinetunedImportance.drift`), drift-control (without any removal), drift-random (of patterns
        drawn at random); and what became of the gates, if there were any.

    Raises:
        TypeError: not a HookedTransformer, or an argument of a wrong type.
        UnknownNameError: no such mode.
        VocabularyError: nobody says which positions are real, see `frozen_importance`.
        ValueError: as for `frozen_importance` and `finetuned_importance`.
    """
    for mode in (modes := tuple(modes)):
        if not isinstance(mode, str) or mode not in FROZEN:
            raise unknown_name("mode", mode, FROZEN)
    check_options("finetune", finetune)
    check_options("leave_one_out", leave_one_out)
    n = check_draws(n)
    source = Source(model, data, ignore, FinetuneConfig(n_eval=n), seed)
    metric = default_metric(model, metric, source.ignore)
    tokens, where = source.tokens, source.where
    table: dict[str, np.ndarray] = {}
    for mode in modes:
        table[mode] = (
            gradient_importance(model, tokens, metric)
            if mode == "gradient"
            else frozen_importance(model, tokens, metric, mode, where=where, seed=seed)
        ).values
    language = getattr(model.cfg, "language", None)
    if isinstance(language, DyckLanguage):
        table["stack-likeness"] = stack_likeness(model, tokens, language=language).mass_at_closing
    table["entropy"] = attention_entropy(model, tokens, where=where)
    rest: Any = {"ignore": ignore, "seed": seed, "progress": progress}
    swept = None
    if finetune is not None:
        swept = finetuned_importance(model, data, metric, options=finetune, **rest)
        table["gates"], table["drift"] = swept.values, swept.drift
    if leave_one_out is not None:
        left = leave_one_out_importance(model, data, metric, options=leave_one_out, **rest)
        table["leave-one-out"], table["drift-control"] = left.values, left.control_drift
    table["drift-random"] = np.array(random_drift(tokens, where))
    columns = {name: np.asarray(values, dtype=float) for name, values in table.items()}
    return frame(HEADS, columns), swept


def random_drift(tokens: Int[Tensor, "batch pos"], where: Tensor | None) -> float:
    """The drift of two causal patterns whose rows are uniform on the simplex, on these strings."""
    marked = torch.ones(tokens.shape, dtype=torch.bool) if where is None else where.cpu()
    return float((marked * random_row_variation(tokens.shape[1])).sum(-1).mean())
