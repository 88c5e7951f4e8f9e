"""Distributed alignment search: a subspace that carries a variable, and what it finds by itself.

The variable is the depth at a closing bracket, as the last layer reads it. In a *base*, three
brackets are open; in a *source*, one or two. With the base's depth replaced by the source's, a
model that looks brackets up by depth answers with the bracket open *at that depth* in the base. The
brackets at depths 1 and 2 are of different types, and pairs are balanced over types and depths:
whatever does not depend on the source's depth (keeping the answer, flipping it, always the bracket
at depth 2) is right half of the time with two types.

The control is the same search for a relabelled variable: the answer is to be the bracket open at
depth 2 if the source's depth is 1, and at depth 1 if it is 2. No model looks that up.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.models import DyckTransformer
from tl_dyck.reading.interventions import align, change_activation, interchange
from tl_dyck.tasks import DyckTask
from tl_dyck_papers.stack_use.directions import site_name, streams

#: Dimensions of the subspace: the differences of three depths span two.
RANK = 2
_OPEN = 3  # brackets in a base


@final
@dataclass(frozen=True, kw_only=True)
class Pairs:
    """Bases and sources.

    Attributes:
        base: tokens, BOS first, and as filling.
        position: of the closing bracket in each base, three open after it.
        source: tokens of the sources.
        source_position: of the closing bracket in each source, one or two open after it.
        answer: the closing bracket of the base's bracket at the source's depth.
        relabelled: that of the base's bracket at the other of the two depths.
    """

    base: Int[Tensor, "n pos"]
    position: Int[Tensor, " n"]
    source: Int[Tensor, "n pos"]
    source_position: Int[Tensor, " n"]
    answer: Int[Tensor, " n"]
    relabelled: Int[Tensor, " n"]


def pairs_of(task: DyckTask, n: int, generator: torch.Generator) -> Pairs:
    """Draw pairs from training strings, with replacement from a pool of some thousand strings.

    Raises:
        ValueError: the pool holds no such base, as where the depth is at most 3.
    """
    language = task.language
    tokens = task.sample(max(3000, 8 * n), generator=generator)
    depth, closes = language.depth(tokens), language.is_close(tokens)
    row, place = (closes & (depth == _OPEN)).nonzero(as_tuple=True)
    stack = _stack(tokens, depth, row, place)
    kinds = []
    for types in itertools.product(range(language.n_types), repeat=_OPEN):
        if types[0] == types[1]:
            continue
        of_kind = (stack == torch.tensor(types)).all(-1).nonzero()[:, 0]
        if not len(of_kind):
            raise ValueError(
                f"no string of {task.name!r} has brackets of types {types} open after a closing "
                f"bracket; distributed alignment needs a depth above {_OPEN}"
            )
        kinds.append(of_kind)
    if not kinds:
        raise ValueError(f"{task.name!r} has one type of brackets; distributed alignment needs two")
    index = torch.arange(n)
    chosen = _drawn(kinds, index, generator)
    rows, places = (closes & (depth > 0) & (depth < _OPEN)).nonzero(as_tuple=True)
    levels = depth[rows, places]
    sources = [(levels == level).nonzero()[:, 0] for level in range(1, _OPEN)]
    drawn = _drawn(sources, index // len(kinds), generator)
    level = levels[drawn]
    bases = stack[chosen]

    def closing(at: Tensor) -> Tensor:
        return 2 * bases.gather(1, (at - 1)[:, None])[:, 0] + 1

    return Pairs(
        base=tokens[row[chosen]],
        position=place[chosen],
        source=tokens[rows[drawn]],
        source_position=places[drawn],
        answer=closing(level),
        relabelled=closing(_OPEN - level),
    )


def _drawn(
    kinds: list[Tensor], index: Int[Tensor, " n"], generator: torch.Generator
) -> Int[Tensor, " n"]:
    """One of each kind, in turn."""
    share = torch.rand(len(index), generator=generator)
    found = torch.zeros_like(index)
    for place, kind in enumerate(kinds):
        mine = index % len(kinds) == place
        found[mine] = kind[(share[mine] * len(kind)).long()]
    return found


def _stack(tokens: Tensor, depth: Tensor, row: Tensor, place: Tensor) -> Int[Tensor, "n level"]:
    """The types of the brackets open at depths 1 to 3: each the last opened there."""
    here = torch.arange(tokens.shape[1])
    found = []
    for level in range(1, _OPEN + 1):
        opened = (tokens[row] % 2 == 0) & (depth[row] == level) & (here <= place[:, None])
        last = torch.where(opened, here, -1).amax(-1)
        found.append(tokens[row, last] // 2)
    return torch.stack(found, 1)


def _at(model: DyckTransformer, tokens: Tensor, position: Tensor) -> Float[Tensor, "n d_model"]:
    return streams(model, tokens, "middle")[torch.arange(len(position)), position]


def _interchanged(
    model: DyckTransformer, pairs: Pairs
) -> Callable[[Tensor], Float[Tensor, "n type"]]:
    """From a basis to the logits of the closing brackets, after the interchange.

    They are computed from the last layer on.
    """
    stream = streams(model, pairs.base, "middle")
    source = _at(model, pairs.source, pairs.source_position)

    def answers(basis: Tensor) -> Tensor:
        change = interchange(basis.to(stream), source, pairs.position)
        logits: Tensor = model.run_with_hooks(
            stream,
            start_at_layer=model.cfg.n_layers - 1,
            fwd_hooks=list(change_activation(site_name(model, "middle"), change)),
            return_type="logits",
        )
        there = logits[torch.arange(len(pairs.position)), pairs.position]
        return there[:, 1 : 2 * model.cfg.n_types : 2]

    return answers


def interchange_accuracy(
    model: DyckTransformer, pairs: Pairs, basis: Float[Tensor, "d_model rank"], *, target: str
) -> float:
    """Share of pairs with the answer that the interchange ought to give."""
    with torch.no_grad():
        logits = _interchanged(model, pairs)(basis)
    return float((2 * logits.argmax(-1) + 1 == getattr(pairs, target)).double().mean())


def mean_subspace(model: DyckTransformer, pairs: Pairs) -> Float[Tensor, "d_model rank"]:
    """The span of the differences between the mean streams of the three depths; no search."""
    base = _at(model, pairs.base, pairs.position)
    source = _at(model, pairs.source, pairs.source_position)
    level = model.language.depth(pairs.source)
    level = level[torch.arange(len(level)), pairs.source_position]
    means = torch.stack([source[level == depth].mean(0) for depth in (1, 2)])
    basis: Tensor = torch.linalg.qr((means - base.mean(0)).T).Q
    return basis


def search(
    model: DyckTransformer,
    pairs: Pairs,
    start: Float[Tensor, "d_model rank"],
    *,
    target: str,
) -> Float[Tensor, "d_model rank"]:
    """Learn a subspace from pairs by `align`.

    The answers are the closing brackets, at the base's closing bracket.
    """
    wanted = getattr(pairs, target) // 2
    return align(_interchanged(model, pairs), wanted, start.to(model.cfg.dtype))


def alignment(
    model: DyckTransformer,
    task: DyckTask,
    n: int,
    generator: torch.Generator,
    untrained: DyckTransformer | None = None,
) -> dict[str, float]:
    """Interchange accuracies on held-out pairs.

    Returns:
        ``none`` (nothing interchanged), ``whole`` (the whole stream), ``random`` (a subspace as the
        search starts from), ``means`` (`mean_subspace`), ``search`` (from the random one),
        ``search_means`` (from the means), ``search_relabelled`` and ``search_untrained`` (both from
        the random one).
    """
    train, test = (pairs_of(task, n, generator) for _ in range(2))
    d_model = model.cfg.d_model
    start = torch.linalg.qr(torch.randn(d_model, RANK, generator=generator)).Q
    means = mean_subspace(model, train)

    def held_out(basis: Tensor, target: str = "answer", of: DyckTransformer = model) -> float:
        return interchange_accuracy(of, test, basis, target=target)

    found = {
        "none": held_out(torch.zeros(d_model, 1)),
        "whole": held_out(torch.eye(d_model)),
        "random": held_out(start),
        "means": held_out(means),
    }
    for name, begin, target in (
        ("search", start, "answer"),
        ("search_means", means, "answer"),
        ("search_relabelled", start, "relabelled"),
    ):
        found[name] = held_out(search(model, train, begin, target=target), target)
    if untrained is not None:
        basis = search(untrained, train, start, target="answer")
        found["search_untrained"] = held_out(basis, of=untrained)
    return found
