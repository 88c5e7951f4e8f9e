"""Attention knockout, concept erasure and distributed alignment, of one head at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from tl_dyck.judge import Case, WithError, score_heads
from tl_dyck.judge.asked import right_answers
from tl_dyck.judge.convergence import doubled
from tl_dyck.reading.interventions import (
    Eraser,
    Hook,
    align,
    change_activation,
    hide_keys,
    interchange,
    key_of_each,
    run,
)
from tl_dyck_hooks.methods.shared import activations, answer_metric, z_names

_STEPS, _MOST = 20, 80


@score_heads(above=0.01, unit="nats", paper="Geva et al. 2023")
def attention_knockout(case: Case) -> Any:
    """Drop of the log-probability of the right bracket when a head cannot see the top of the stack.

    "Dissecting Recall of Factual Associations": the score of that key is minus infinity, at every
    position. Read as: does it matter that the head looks there?
    """
    hidden = key_of_each(case.task.language.top_of_stack(case.tokens))
    return _drops(case, lambda i, j: hide_keys(hidden, [i], [j]))


@score_heads(above=0.01, unit="nats", paper="Belrose et al. 2023")
def concept_erasure(case: Case) -> Any:
    """The same when all that tells the right answer linearly is erased from what the head puts out.

    "LEACE": fitted on the same strings, where an answer is asked for, and erased there. Of brackets
    that is the type on top. Read as: does the head hand it on?
    """
    return _erased(case, case.place(case.right), len(case.choices))


@score_heads(above=0.01, unit="nats", paper="Belrose et al. 2023")
def depth_erasure(case: Case) -> Any:
    """The same when all that tells the depth linearly is erased, where a bracket is open."""
    depth = case.task.language.depth(case.tokens)
    return _erased(case, depth, case.task.max_depth + 1)


@score_heads(above=0.01, unit="nats", paper="after Chan et al. 2022", kinds=("depth",))
def depth_resampling(case: Case) -> Any:
    """The same when a head puts out what it does where the same type is on top at another depth.

    The next such place, of all strings one after the other; what there is if there is none.
    """
    language, names = case.task.language, z_names(case)
    right, depth = (
        language.right_bracket(case.tokens).flatten(),
        language.depth(case.tokens).flatten(),
    )
    here = torch.arange(len(right))
    ahead = (here - here[:, None]) % len(here)  # 0 for the place itself
    fits = (right == right[:, None]) & (right >= 0) & (depth != depth[:, None]) | (ahead == 0)
    place = torch.where(fits, (ahead - 1) % len(here), len(here)).argmin(1)
    z = activations(case.model, case.tokens, names)
    other = [layer.flatten(0, 1)[place].view_as(layer) for layer in z]
    return _drops(
        case, lambda i, j: change_activation(names[i], lambda found: other[i][:, :, j], j)
    )


def _erased(case: Case, labels: Tensor, n_labels: int) -> list[list[float]]:
    """What it costs to erase labels, where a bracket is open, from what each head puts out."""
    asked = case.right >= 0
    names = z_names(case)
    z = activations(case.model, case.tokens, names)

    def hooks(layer: int, head: int) -> list[Hook]:
        erase = Eraser.fit(z[layer][:, :, head][asked], labels[asked], n_labels)
        return change_activation(
            names[layer], lambda found: torch.where(asked[..., None], erase(found), found), head
        )

    return _drops(case, hooks)


@score_heads(above=0.05, unit="of the answers", paper="Geiger et al. 2023")
def distributed_alignment(case: Case) -> WithError:
    """Interchange accuracy of the subspace of a head's output that carries the answer best.

    "Finding Alignments": as many dimensions as there are answers, less one, learnt on half of the
    strings, interchanged with the same strings with all types exchanged; the share of
    answers of the other half that follow. The search begins where the two runs differ most, and
    takes 20 steps or more, until half of them say the same.
    """
    names = z_names(case)
    other = case.partners
    clean, exchanged = (activations(case.model, each, names) for each in (case.tokens, other))
    wanted = right_answers(case.task, other)

    def run(steps: int) -> list[list[float]]:
        return [
            [
                _alignment(case, name, head, base[:, :, head], source[:, :, head], wanted, steps)
                for head in range(case.model.cfg.n_heads)
            ]
            for name, base, source in zip(names, clean, exchanged, strict=True)
        ]

    return doubled(run, 1.0, _STEPS // 4, _MOST)


def _alignment(
    case: Case, name: str, head: int, base: Tensor, source: Tensor, wanted: Tensor, steps: int
) -> float:
    half, asked, places = len(case.tokens) // 2, wanted >= 0, case.place(wanted)

    def answers(part: slice, basis: Tensor) -> Tensor:
        hooks: list[Any] = change_activation(name, interchange(basis, source[part]), head)
        logits: Tensor = case.model.run_with_hooks(case.tokens[part], fwd_hooks=hooks)
        return logits[asked[part]][:, case.choices]

    learnt, tested = slice(None, half), slice(half, None)
    differ = (source - base)[learnt][asked[learnt]]
    start = torch.linalg.svd(differ, full_matrices=False).Vh[: len(case.choices) - 1].T
    basis = align(
        lambda basis: answers(learnt, basis),
        places[learnt][asked[learnt]],
        start,
        steps=steps,
    )
    with torch.no_grad():
        said = answers(tested, basis).argmax(-1)
    return float((said == places[tested][asked[tested]]).double().mean())


def _drops(case: Case, hooks: Callable[[int, int], list[Hook]]) -> list[list[float]]:
    """What hooks on each head cost, ``[layer, head]``, in nats."""
    cfg, metric = case.model.cfg, answer_metric(case.task)

    def mean(hooks: Sequence[Hook]) -> float:
        return float(metric(run(case.model, case.tokens, hooks), case.tokens).mean())

    whole = mean(())
    return [[whole - mean(hooks(i, j)) for j in range(cfg.n_heads)] for i in range(cfg.n_layers)]
