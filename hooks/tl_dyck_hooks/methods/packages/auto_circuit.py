"""Edge attribution patching and ACDC by auto-circuit: what the edges out of a head add up to.

auto-circuit adds what a head puts out, changed, to what each later reader reads. Where a norm
stands between head and residual stream (Eq. 6), that sum is not what the model forms.

Knows: the two names of TransformerLens that moved in 3.9, which auto-circuit 1.0 imports.
"""

from __future__ import annotations

import sys
import types
from collections import defaultdict
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch
import transformer_lens
from torch import Tensor

from tl_dyck.judge import Case, Method, WithError, combine_methods, score_edges, score_heads
from tl_dyck.judge.convergence import integrated
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
from auto_circuit.types import AblationType  # noqa: E402
from auto_circuit.utils.ablation_activations import batch_src_ablations  # noqa: E402
from auto_circuit.utils.graph_utils import (  # noqa: E402
    patch_mode,
    patchable_model,
    set_all_masks,
)
from auto_circuit.utils.tensor_ops import batch_avg_answer_diff  # noqa: E402

_after = named("auto-circuit")
_SAMPLES, _MOST = 5, 160  # places on the way, and its beginning
_ABOVE = 0.1  # logits


def _prompts(case: Case) -> tuple[Any, float]:
    """All strings, and exchanged, with answers after each bracket; and how often one is asked for.

    Where no bracket is to be closed the right answer is the wrong one too: no difference. A single
    position will not do. After the first bracket alone all strings ask for one, and there a model
    may copy what it reads, so that its heads do nothing.
    """
    right, among = case.right, torch.tensor(case.choices)
    asked, answers = (right >= 0)[..., None], right.clamp(min=0)[..., None]
    others = among[(case.place(right)[..., None] + torch.arange(1, len(among))) % len(among)]
    wrong = torch.where(asked, others, answers)
    data = PromptDataset(list(case.tokens), list(case.partners), list(answers), list(wrong))
    prompts = PromptDataLoader(data, seq_len=None, diverge_idx=0, batch_size=len(right))
    return prompts, float(asked.double().mean())


def _edges(
    case: Case, score: Callable[[Any, Any, float], Any]
) -> tuple[dict[tuple[Any, Any], float], float | None]:
    """Scores of the edges that we have too, by source and reader; and their error, if any."""
    model = case.model
    for option in ("use_attn_result", "use_attn_in", "use_hook_mlp_in"):
        setattr(model.cfg, option, True)
    graph = patchable_model(model, factorized=True, separate_qkv=False)
    with quiet():
        scores = score(graph, *_prompts(case))
    error = None
    if isinstance(scores, WithError):
        scores, error = scores.values, float(scores.error)
    found = {
        (_part(edge.src), _part(edge.dest)): float(edge.prune_score(scores))
        for edge in graph.edges
        if not edge.src.name.startswith("MLP")
    }
    return found, error


def _part(node: Any) -> tuple[int, int | None] | None:
    """(layer, head), or (layer, None) for an MLP, or None for an end of the stream."""
    if node.name.startswith("Resid"):
        return None
    return int(node.module_name.split(".")[1]), node.head_idx


def _judged(
    above: float, unit: str, paper: str, largest: bool = False
) -> Callable[[Callable[[Any, Any, float], Any]], Method]:
    """A method of edges; of heads it says what the edges out of one add up to, or the largest."""

    def declare(score: Callable[[Any, Any, float], Any]) -> Method:
        @wraps(score)
        def heads(case: Case) -> Tensor | WithError:
            cfg = case.model.cfg
            found = torch.zeros(cfg.n_layers, cfg.n_heads, dtype=torch.float64)
            edges, error = _edges(case, score)
            for (source, _), value in edges.items():
                if source is not None:
                    before = float(found[source])
                    found[source] = max(before, value) if largest else before + value
            return found.abs() if error is None else WithError(found.abs(), error)

        @wraps(score)
        def edges(case: Case) -> dict[tuple[Any, Any], float] | WithError:
            found, error = _edges(case, score)
            return found if error is None else WithError(found, error)

        how: Any = {"above": above, "unit": unit, "paper": _after(paper)}
        return combine_methods(score_heads(**how)(heads), score_edges(**how)(edges))

    return declare


@_judged(above=_ABOVE, unit="logits", paper="Syed et al. 2023")
def edge_attribution_patching(graph: Any, prompts: Any, asked: float) -> dict[str, Tensor]:
    """auto-circuit's EAP: gradient of the logit difference along edges, or those out of a head."""
    return _slopes(graph, prompts, asked, mask_val=0.0)


@_judged(above=_ABOVE, unit="logits", paper="Hanna et al. 2024")
def edge_attribution_patching_ig(graph: Any, prompts: Any, asked: float) -> WithError:
    """auto-circuit's EAP with integrated gradients: the mean of it from clean to corrupted.

    auto-circuit adds up the gradients at both ends and nine places between, and divides by none:
    ends count half here. More places, until all edges add up to what changes from end to end, and
    none, nor what leaves a head, is far from what fewer places say.
    """
    ends = [_slopes(graph, prompts, asked, mask_val=end) for end in (0.0, 1.0)]
    change = _loss(graph, prompts, asked, 1.0) - _loss(graph, prompts, asked, 0.0)
    found: dict[str, Tensor] = {}

    def run(n: int) -> tuple[list[float], float]:
        sums = _slopes(graph, prompts, asked, integrated_grad_samples=n)
        for name, scores in sums.items():
            found[name] = (scores - (ends[0][name] + ends[1][name]) / 2) / n
        out: dict[str, float] = defaultdict(float)
        for edge in graph.edges:
            out[edge.src.name] += float(edge.prune_score(found))
        parts = torch.cat([scores.flatten() for scores in found.values()])
        return [*parts.tolist(), *out.values()], float(parts.sum()) - change

    error = integrated(run, max(abs(change), _ABOVE), _SAMPLES, _MOST).error
    return WithError(found, error)  # of the most places


@torch.no_grad()
def _loss(graph: Any, prompts: Any, asked: float, mask: float) -> float:
    """What slopes are of, where that much of every edge is exchanged."""
    sources = batch_src_ablations(
        graph, prompts, ablation_type=AblationType.RESAMPLE, clean_corrupt="corrupt"
    )
    (batch,) = prompts
    set_all_masks(graph, val=mask)
    with patch_mode(graph, sources[batch.key].clone()):
        logits = graph(batch.clean)[graph.out_slice]
    return -float(batch_avg_answer_diff(logits, batch)) / asked


def _slopes(graph: Any, prompts: Any, asked: float, **where: Any) -> dict[str, Tensor]:
    """Slopes of the mean logit difference, over positions that ask for a bracket."""
    found = mask_gradient_prune_scores(
        graph, prompts, None, grad_function="logit", answer_function="avg_diff", **where
    )
    return {name: scores / asked for name, scores in found.items()}


@_judged(above=0.01, unit="nats of KL", paper="Conmy et al. 2023", largest=True)
def acdc(graph: Any, prompts: Any, asked: float) -> dict[str, Tensor]:
    """auto-circuit's ACDC: up to which threshold an edge, or one out of the head, is kept.

    Thresholds are 0.0001 to 1; an edge that is kept at all of them counts as 10.
    """
    found = acdc_prune_scores(graph, prompts, None, tao_exps=list(range(-4, 1)), tao_bases=[1])
    return {name: scores.clamp(max=10) for name, scores in found.items()}
