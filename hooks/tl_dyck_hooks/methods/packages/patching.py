"""Activation patching by `transformer_lens.patching`.

Clean is the string, corrupted the one with all types exchanged; the score is the share of the
logit difference that comes back when a head gets back what it had on the clean string.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import transformer_lens.patching as patching
from torch import Tensor

from tl_dyck.judge import Case, score_heads
from tl_dyck_hooks.methods.packages import named, quiet

_after = named("transformer_lens")


def _restored(case: Case, patch: Callable[..., Any]) -> Tensor:
    """What `patch` says, as a share of the difference, ``[layer, head]``."""
    clean, corrupted = case.tokens, case.partners
    right = case.right

    def metric(logits: Tensor) -> Tensor:
        return case.difference(logits, right).mean()

    whole, cache = case.model.run_with_cache(clean)
    low, high = metric(case.model(corrupted)), metric(whole)
    with quiet():
        found: Tensor = patch(case.model, corrupted, cache, metric).double()
    return (found - low) / (high - low).clamp(min=1e-12)


@score_heads(above=0.05, unit="of the difference", paper=_after("Meng et al. 2022"))
def head_output(case: Case) -> Tensor:
    """TransformerLens' patching of a head's output, at all positions."""
    return _restored(case, patching.get_act_patch_attn_head_out_all_pos)


@score_heads(above=0.05, unit="of the difference", paper=_after("Meng et al. 2022"))
def head_pattern(case: Case) -> Tensor:
    """TransformerLens' patching of a head's attention pattern."""
    return _restored(case, patching.get_act_patch_attn_head_pattern_all_pos)


@score_heads(above=0.05, unit="of the difference", paper=_after("Meng et al. 2022"))
def head_value(case: Case) -> Tensor:
    """TransformerLens' patching of a head's values, at all positions."""
    return _restored(case, patching.get_act_patch_attn_head_v_all_pos)
