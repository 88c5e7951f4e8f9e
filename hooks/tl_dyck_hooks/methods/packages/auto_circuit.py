"""Edge attribution patching and ACDC by auto-circuit: what the edges out of a head add up to.

auto-circuit adds what a head puts out, changed, to what each later reader reads. Where a norm
stands between head and residual stream (Eq. 6), that sum is not what the model forms.

Knows: the two names of TransformerLens that moved in 3.9, which auto-circuit 1.0 imports.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import transformer_lens
from torch import Tensor

from tl_dyck.judge import Case, Method, combine_methods, score_edges, score_heads
from tl_dyck.judge.facts import exchange_types
from tl_dyck_hooks.methods.packages import named, quiet

_CACHE = "HookedTransformerKeyValueCache"
_PLACE = "transformer_lens.past_key_value_caching"
if not hasattr(transformer_lens, _CACHE):
    from transformer_lens.cache.key_value_cache import TransformerLensKeyValueCache

    sys.modules[_PLACE] = types.ModuleType(_PLACE)
    for _where in (sys.modules[_PLACE], transformer_lens):
        setattr(_where, _CACHE, TransformerLensKeyValueCache)

from auto_circuit.data import PromptDataLoader, PromptDataset  # noqa: E402
from auto_circuit.prune_algos.ACDC import acdc_prune_scores  # noqa: E402
from auto_circuit.prune_algos.mask_gradient import mask_gradient_prune_scores  # noqa: E402
from auto_circuit.utils.graph_utils import patchable_model  # noqa: E402

_after = named("auto-circuit")
_STRINGS = 32


def _prompts(case: Case) -> Any:
    """Strings up to the position where most have a closing bracket to predict, and exchanged."""
    language = case.task.language
    right = language.right_bracket(case.tokens)
    last = int((right >= 0).sum(0).argmax())
    rows = (right[:, last] >= 0).nonzero()[:_STRINGS, 0]
    clean, answers = case.tokens[rows, : last + 1], right[rows, last]
    closing = torch.arange(1, language.n_brackets, 2)
    wrong = [closing[closing != answer] for answer in answers]
    data = PromptDataset(
        list(clean), list(exchange_types(language, clean)), list(answers[:, None]), wrong
    )
    return PromptDataLoader(data, seq_len=last + 1, diverge_idx=0, batch_size=len(rows))


def _edges(
    case: Case, score: Callable[[Any, Any], dict[str, Tensor]]
) -> dict[tuple[Any, Any], float]:
    """Scores of the edges that we have too, by source and reader."""
    model = case.model
    for option in ("use_attn_result", "use_attn_in", "use_hook_mlp_in"):
        setattr(model.cfg, option, True)
    graph = patchable_model(model, factorized=True, slice_output="last_seq", separate_qkv=False)
    with quiet():
        scores = score(graph, _prompts(case))
    return {
        (_part(edge.src), _part(edge.dest)): float(edge.prune_score(scores))
        for edge in graph.edges
        if not edge.src.name.startswith("MLP")
    }


def _part(node: Any) -> tuple[int, int | None] | None:
    """(layer, head), or (layer, None) for an MLP, or None for an end of the stream."""
    if node.name.startswith("Resid"):
        return None
    return int(node.module_name.split(".")[1]), node.head_idx


def _judged(
    above: float, unit: str, paper: str, largest: bool = False
) -> Callable[[Callable[[Any, Any], dict[str, Tensor]]], Method]:
    """A method of edges; of heads it says what the edges out of one add up to, or the largest."""

    def declare(score: Callable[[Any, Any], dict[str, Tensor]]) -> Method:
        @wraps(score)
        def heads(case: Case) -> Tensor:
            cfg = case.model.cfg
            found = torch.zeros(cfg.n_layers, cfg.n_heads, dtype=torch.float64)
            for (source, _), value in _edges(case, score).items():
                if source is not None:
                    before = float(found[source])
                    found[source] = max(before, value) if largest else before + value
            return found.abs()

        @wraps(score)
        def edges(case: Case) -> dict[tuple[Any, Any], float]:
            return _edges(case, score)

        how: Any = {"above": above, "unit": unit, "paper": _after(paper)}
        return combine_methods(score_heads(**how)(heads), score_edges(**how)(edges))

    return declare


@_judged(above=0.1, unit="logits", paper="Syed et al. 2023")
def edge_attribution_patching(graph: Any, prompts: Any) -> dict[str, Tensor]:
    """auto-circuit's EAP: gradient of the logit difference along edges, or those out of a head."""
    found: dict[str, Tensor] = mask_gradient_prune_scores(
        graph, prompts, None, grad_function="logit", answer_function="avg_diff", mask_val=0.0
    )
    return found


@_judged(above=0.1, unit="logits", paper="Hanna et al. 2024")
def edge_attribution_patching_ig(graph: Any, prompts: Any) -> dict[str, Tensor]:
    """auto-circuit's EAP with integrated gradients: the mean of it from clean to corrupted."""
    found: dict[str, Tensor] = mask_gradient_prune_scores(
        graph,
        prompts,
        None,
        grad_function="logit",
        answer_function="avg_diff",
        integrated_grad_samples=10,
    )
    return found


@_judged(above=0.01, unit="nats", paper="Conmy et al. 2023", largest=True)
def acdc(graph: Any, prompts: Any) -> dict[str, Tensor]:
    """auto-circuit's ACDC: up to which threshold an edge, or one out of the head, is kept.

    Thresholds are 0.0001 to 1; an edge that is kept at all of them counts as 10.
    """
    found = acdc_prune_scores(graph, prompts, None, tao_exps=list(range(-4, 1)), tao_bases=[1])
    return {name: scores.clamp(max=10) for name, scores in found.items()}
