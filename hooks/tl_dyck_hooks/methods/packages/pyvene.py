"""Distributed alignment search by pyvene: a learnt subspace of what a head puts out."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pyvene
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from tl_dyck.judge import Case, WithError, score_heads
from tl_dyck.judge.asked import right_answers
from tl_dyck.judge.convergence import doubled
from tl_dyck.judge.facts import embed_deeper
from tl_dyck.judge.isolation import seeded
from tl_dyck_hooks.methods.packages import named
from tl_dyck_hooks.methods.shared import activations, z_names

_after = named("pyvene")
_STEPS, _MOST = 40, 160


class _OneHead(pyvene.LowRankRotatedSpaceIntervention):  # type: ignore[misc]
    """The intervention on ``[batch, pos, head, d_head]``, of one head."""

    def __init__(self, head: int, **options: Any) -> None:
        super().__init__(**options)
        self.head = head

    def forward(self, base: Tensor, source: Tensor, subspaces: Any = None, **more: Any) -> Tensor:
        changed = base.clone()
        changed[:, :, self.head] = super().forward(base[:, :, self.head], source[:, :, self.head])
        return changed


@score_heads(above=0.05, unit="of the answers", paper=_after("Wu et al. 2024"))
def distributed_alignment_search(case: Case) -> WithError:
    """DAS by pyvene: interchange accuracy of the subspace of a head that carries the type best.

    A rotated space of as many dimensions as there are types, less one, learnt on half of the
    strings, interchanged with the same strings with all types exchanged; the share of closing
    brackets of the other half that follow. 40 steps or more, until half of them say the same.
    """
    other = case.partners
    wanted, tested = right_answers(case.task, other), slice(len(other) // 2, None)
    places = case.place(wanted)

    def accuracy(layer: int, head: int, steps: int) -> float:
        said = _searched(
            case, (layer, head), len(case.choices) - 1, places,
            lambda part: {"sources": [{"input": other[part]}]}, steps,
        )  # fmt: skip
        return float((said.argmax(-1) == places[tested][wanted[tested] >= 0]).double().mean())

    return _of_heads(case.model.cfg, accuracy)


def _of_heads(cfg: Any, number: Callable[[int, int, int], float]) -> WithError:
    """A number of each layer, head and number of steps, of as many steps as it takes."""

    def run(steps: int) -> list[list[float]]:
        with seeded("pyvene"):  # the same start each time
            return [[number(i, j, steps) for j in range(cfg.n_heads)] for i in range(cfg.n_layers)]

    return doubled(run, 1.0, _STEPS // 4, _MOST)


@score_heads(
    above=0.05, unit="of the probability", paper=_after("Wu et al. 2024"), kinds=("depth",)
)
def depth_alignment_search(case: Case) -> WithError:
    """The same of the depth: what the right closing bracket loses of its probability among them.

    Interchanged is what the head puts out at other depths (`tl_dyck.judge.facts.deeper`), in as
    many dimensions as tell those apart. The aim is that no bracket is likelier than another, as
    where a head says that its bracket is open elsewhere.
    """
    language, cfg = case.task.language, case.model.cfg
    names, right = z_names(case), language.right_bracket(case.tokens)
    with case.model.hooks(fwd_hooks=embed_deeper(case.model, language, case.tokens)):
        moved = activations(case.model, case.tokens, names)
    evenly = torch.full((*right.shape, language.n_types), 1 / language.n_types, dtype=cfg.dtype)
    tested = slice(len(right) // 2, None)
    with torch.no_grad():
        before = _of_closing(case, case.model(case.tokens[tested]), right[tested])

    def lost(layer: int, head: int, steps: int) -> float:
        after = _searched(
            case, (layer, head), max(language.max_depth - 2, 1), evenly,
            lambda part: {"source_representations": [moved[layer][part]]}, steps,
        )  # fmt: skip
        drop = before.softmax(-1) - after.softmax(-1)
        types = right[tested][right[tested] >= 0] // 2
        return float(drop.gather(1, types[:, None]).mean())

    return _of_heads(cfg, lost)


def _of_closing(case: Case, logits: Tensor, right: Tensor) -> Tensor:
    """Logits of closing brackets, where one is asked for."""
    return logits[right >= 0][:, case.choices]


def _searched(
    case: Case,
    place: tuple[int, int],
    rank: int,
    aim: Tensor,
    source: Callable[[slice], dict[str, Any]],
    steps: int,
) -> Tensor:
    """Logits of closing brackets on the second half, after a search on the first.

    Args:
        case: whose strings are bases.
        place: layer and head.
        rank: of the subspace.
        aim: the type, or the probability of each, ``[n, pos]`` or ``[n, pos, type]``.
        source: of some strings, what pyvene is to interchange with.
        steps: of Adam.
    """
    layer, head = place
    case.model.config = case.model.cfg  # where pyvene looks for it
    intervention = _OneHead(
        head,
        embed_dim=case.model.cfg.d_head,
        low_rank_dimension=rank,
        keep_last_dim=True,
    ).to(case.tokens.device, case.model.cfg.dtype)
    where = {"component": f"blocks[{layer}].attn.hook_z.output", "intervention": intervention}
    model = pyvene.IntervenableModel(pyvene.IntervenableConfig([where]), model=case.model)
    right, half = case.right, len(case.tokens) // 2

    def answers(part: slice) -> Tensor:
        _, logits = model({"input": case.tokens[part]}, **source(part))
        return _of_closing(case, logits, right[part])

    learnt, tested = slice(None, half), slice(half, None)
    optimiser = torch.optim.Adam(model.get_trainable_parameters(), lr=0.05)
    with torch.enable_grad():
        for _ in range(steps):
            optimiser.zero_grad()
            cross_entropy(answers(learnt), aim[learnt][right[learnt] >= 0]).backward()
            optimiser.step()
    with torch.no_grad():
        return answers(tested)
