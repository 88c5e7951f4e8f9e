"""Cases that ask about parts: edges, depth along a head, and directions as features.

Knows: which models these are asked about, and that no answer is given away by its kind of edge or
by its model, since of each there are as many yes as no.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from tl_dyck.judge.cases import CaseKind, small_task
from tl_dyck.judge.edges import Edge, edge_facts
from tl_dyck.judge.facts import TIE, depth_facts
from tl_dyck.judge.protocol import Case, Fact, JudgeError, Question
from tl_dyck.language import DyckLanguage
from tl_dyck_hooks.cases.built import CONSTRUCTED, KNOBS, build
from tl_dyck_hooks.cases.heads import Workshop
from tl_dyck_hooks.cases.pose import (
    Kind,
    choose,
    even_out,
    every_prefix,
    generator_of,
    pose,
)
from tl_dyck_hooks.cases.trained import SIZES, trained_models

PARTS = {
    "built-edges": "Built models with a norm behind their heads; only edges are asked about.",
    "post-norm": "Trained, one layer or two, a norm behind the heads; only edges are asked about.",
    "pre-norm": "Trained, one layer or two, no norm behind the heads; only edges are asked about.",
    "levels": "Heads hand on the top of the stack to two readers, its depth to one; that is asked.",
    "features": "Heads hold what is open in directions of their own, which are asked about.",
}

_N_TOKENS = 64  # strings that a method is shown
_LOUD = 2.0  # what is added to weights, beside their largest
_CLOSE = 0.9  # a direction is another one if its cosine is less
# two rotations in five are far enough (cosines below 0.9), of two to four directions
_TRIES = 1000
_BLOCKS = {"post-norm": "eq6", "pre-norm": "gpt"}
_OF_FEATURES = {"n_layers": 1, "reader": "linear", "drift": 0.0}
_BUILT = [kind for kind in CONSTRUCTED if kind != "alone"]


def parts_case(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A case of one of `PARTS`, and its facts.

    Args:
        kind: of model.
        seed: of everything that is drawn.
        given: knobs of the models that are not drawn.
    """
    generator = generator_of(kind, seed)
    make = {"levels": _levels, "features": _features}.get(kind, _edges)
    return make(kind, seed, given, generator)


# --- edges ----------------------------------------------------------------------------------------


def _edges(
    kind: str, seed: int, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Case, list[Fact]]:
    if kind == "built-edges":
        built = build(_BUILT[seed % len(_BUILT)], seed, given)
        world, task = built.world, built.task
    else:
        layers = {"n_layers": 1 + seed % 2}
        model, _, task = trained_models({**layers, **given, "block": _BLOCKS[kind]}, generator)
        world = every_prefix(model, task)
    return pose(world, task, generator, Kind(lambda world, _: edge_facts(world), _thin_edges))


def _thin_edges(facts: Sequence[Fact], generator: torch.Generator) -> list[Fact]:
    return even_out(facts, generator, lambda fact: Edge(*fact.question.target).kind)


# --- depth ----------------------------------------------------------------------------------------


def _levels(
    kind: str, seed: int, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Case, list[Fact]]:
    """Two circuits, see `Workshop`. A head for each type writes to both, to one of them by depth.

    So all heads have weights of one law, hold the depth and hand it on: some to what closes
    brackets, the others to what makes opening ones less likely, where nobody asks. Which circuit
    is which is drawn, and how many heads are of which sort: to tell, look at the unembedding.
    """
    # a depth of three at least: with two there is little that a depth could say
    language = DyckLanguage(*((2, 3), (2, 4), (3, 3))[seed % 3])
    shop = Workshop(language, generator, positions=True)
    first = choose(generator, (0, 1))
    heads = []
    for place, t in enumerate(torch.randperm(language.n_types, generator=generator).tolist()):
        # e^-20 of the weight goes elsewhere at most: nothing to either reader
        gap = 20.0 + 10.0 * float(torch.rand(1, generator=generator))
        slots = [slot for slot in shop.slots() if slot[0] == t]
        # types in turn to one circuit and to the other
        heads.append(shop.head(shop.top(gap), slots, (first + place) % 2, pairs=False, flat=True))
    mixed = torch.randperm(len(heads), generator=generator).tolist()
    model = shop.model([[heads[at] for at in mixed]], closer=choose(generator, (0, 1)))
    task = small_task(language.n_types, language.max_depth)
    depth = Kind(lambda world, _: depth_facts(world), even_out)
    return pose(every_prefix(model, task), task, generator, depth)


# --- features -------------------------------------------------------------------------------------


def _features(
    kind: str, seed: int, given: Mapping[str, Any], generator: torch.Generator
) -> tuple[Case, list[Fact]]:
    """Of each head that adds up what is open: the directions that it does so in, and others.

    The others are the same, turned at random within what they span.
    """
    given = {**_OF_FEATURES, **given}
    # not "stack": its heads see the top alone, and add up nothing
    built = build(("uniform", "balanced", "backup")[seed % 3], seed, given)
    case, _ = pose(built.world, built.task, built.generator)
    add_noise(case.model, generator)
    world = every_prefix(case.model, case.task)
    with torch.no_grad():
        _, cache = case.model.run_with_cache(world.tokens)
    held = open_brackets(world.language, world.tokens)
    facts: list[Fact] = []
    directions: list[Tensor] = []
    for head in range(case.model.cfg.n_heads):
        true, z = value_directions(case, head), cache["blocks.0.attn.hook_z"][:, :, head]
        if len(true) < 2 or not all(is_feature(z @ direction, held) for direction in true):
            continue  # as where only the top is seen
        for direction in (*true, *rotate(true, generator)):
            answer = is_feature(z @ direction, held)
            question = Question("feature", (0, head, len(directions)))
            facts.append(Fact(question, answer, "enumerated"))
            directions.append(direction)
    if not facts:
        raise JudgeError("no head of this model holds two features")
    chosen = even_out(facts, generator, lambda fact: fact.question.target[:2])
    # at places that are drawn, since the true ones were found first; and no others are shown
    places = torch.randperm(len(chosen), generator=generator).tolist()
    shown = [directions[fact.question.target[2]] for fact in (chosen[at] for at in places)]
    asked = [
        replace(chosen[at], question=Question("feature", (*chosen[at].question.target[:2], place)))
        for place, at in enumerate(places)
    ]
    return replace(case, directions=torch.stack(shown), other=None), asked


@torch.no_grad()
def add_noise(model: Any, generator: torch.Generator) -> None:
    """Add to W_V and W_O what no closing bracket hangs on, so that no norm tells a direction.

    To W_V on coordinates that are zero before the only layer; to W_O where neither a unit reads
    nor the unembedding. LN_C divides by more then, which turns no sign.
    """
    (block,) = model.blocks
    unused = (model.embed.table.flatten(0, 1) == 0).all(0)
    if model.cfg.position != "none":
        unused &= (model.pos_embed.W_pos == 0).all(0)
    closing = block.mlp.W_in[:, block.mlp.W_in.any(0)]  # all units that a linear reader has
    written = torch.where(unused, 1.0, 0.0).to(closing)
    kept = torch.cat([closing, model.unembed.W_U, written[:, None], torch.diag(1 - written)], 1)
    u, sizes, _ = torch.linalg.svd(kept)
    # columns beyond the rank: orthogonal to all that is read or written
    free = u[:, int((sizes > 1e-9 * sizes[0]).sum()) :]

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=closing.dtype)

    for head in range(model.cfg.n_heads):
        v, o = block.attn.W_V[head], block.attn.W_O[head]
        v += _LOUD * v.abs().max() * unused[:, None] * noise(*v.shape)
        o += _LOUD * o.abs().max() * noise(len(o), free.shape[1]) @ free.T


def open_brackets(
    language: DyckLanguage, tokens: Int[Tensor, "n pos"]
) -> Bool[Tensor, "slots n pos"]:
    """Where a bracket of each type and depth is open, by (type, depth)."""
    depth, pos = language.depth(tokens), torch.arange(tokens.shape[1])
    found = []
    for level in range(1, language.max_depth + 1):
        opens = language.is_open(tokens) & (depth == level)
        last = torch.where(opens, pos, -1).cummax(1).values
        kind = tokens.gather(1, last.clamp(min=0)) // 2
        there = (last >= 0) & (torch.where(depth < level, pos, -1).cummax(1).values < last)
        found.append([there & (kind == t) for t in range(language.n_types)])
    return torch.stack([by_type[t] for t in range(language.n_types) for by_type in found])


def is_feature(part: Float[Tensor, "n pos"], held: Bool[Tensor, "slots n pos"]) -> bool:
    """Whether a number is positive exactly where one of these holds, and zero elsewhere."""
    positive = part > TIE
    return bool((part >= -TIE).all()) and any(bool((positive == slot).all()) for slot in held)


def value_directions(case: Case, head: int) -> Tensor:
    """Directions in which a head's values of opening brackets lie, one for each, unit vectors."""
    table, language = case.model.embed.table, case.task.language
    values = table @ case.model.blocks[0].attn.W_V[head].detach()  # token, depth, d_head
    # even tokens open; at depth 0 nothing stands open
    opening = values[0 : language.n_brackets : 2, 1:].flatten(0, 1)
    told: Tensor = opening[opening.norm(dim=-1) > TIE]
    told = told / told.norm(dim=-1, keepdim=True)
    return told


def rotate(true: Float[Tensor, "n d"], generator: torch.Generator) -> Tensor:
    """As many orthonormal directions of the same span, none of them close to one of these."""
    for _ in range(_TRIES):
        drawn = torch.randn(len(true), len(true), generator=generator, dtype=true.dtype)
        turned: Tensor = torch.linalg.qr(drawn)[0] @ true
        # either sign: a direction and its opposite hold the same
        if float((turned @ true.T).abs().max()) < _CLOSE:
            return turned
    raise JudgeError("no rotation is far enough from the features")


BUILT_EDGES = CaseKind(make=parts_case, knobs=KNOBS)
TRAINED_EDGES = CaseKind(
    make=parts_case,
    knobs=tuple(name for name in SIZES if name != "block"),
    group=lambda kind: "trained",
)
LEVELS = CaseKind(make=parts_case)
FEATURES = CaseKind(
    make=parts_case, knobs=tuple(name for name in KNOBS if name not in _OF_FEATURES)
)
