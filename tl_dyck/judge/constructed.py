"""Cases made of heads whose roles are known: workers, backups, and heads that only look so."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import torch
from torch import Tensor

from tl_dyck.check import check_integer_fields, check_number
from tl_dyck.files import sha256
from tl_dyck.judge.facts import (
    Enumeration,
    head_facts,
    refuting_string,
    token_facts,
    weight_facts,
)
from tl_dyck.judge.heads import Head, Workshop
from tl_dyck.judge.protocol import Case, Fact, JudgeError, Question
from tl_dyck.language import DyckLanguage
from tl_dyck.registry import unknown_name
from tl_dyck.tasks import DyckTask

#: Longest prefixes that "stack" and "same" ask about, in brackets.
LONGEST = 100
_MOST = 700  # prefixes that are enumerated
_N_TOKENS = 64
_N_ROWS = 3
_SHARE = 0.999  # least accuracy of a case

CONSTRUCTED = {
    "uniform": "Uniform attention does the work; other heads look at the stack and do nothing.",
    "balanced": "Random attention that satisfies Eq. 11 does the work.",
    "stack": "Heads that attend to the top of the stack do the work.",
    "decoy": "One head works, whatever its pattern; all others look at the top of the stack.",
    "backup": "A second head writes what the first does, weakly: it takes over when that is gone.",
}


@final
@dataclass(frozen=True, kw_only=True)
class Knobs:
    """What makes a case hard.

    Attributes:
        n_types: k.
        max_depth: D, at least 2.
        n_layers: layers, of which one works.
        n_heads: heads of each.
        true_share: share of the heads of the working layer that work.
        strength: how much heads that look at the stack prefer it, in logits.
        reader: "linear" or "step", see `Workshop.model`.
        drift: how much of a matched pair is left over, so that long strings fail; 0 for nothing.
    """

    n_types: int
    max_depth: int
    n_layers: int
    n_heads: int
    true_share: float
    strength: float
    reader: str
    drift: float

    def __post_init__(self) -> None:
        check_integer_fields(self, n_types=2, max_depth=2, n_layers=1, n_heads=1)
        check_number("true_share", self.true_share, 0, 1)
        check_number("strength", self.strength, 0)
        check_number("drift", self.drift, 0, 1)
        if self.reader not in ("linear", "step"):
            raise unknown_name("reader of a case", self.reader, ("linear", "step"))


def construct_case(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A case of one of `CONSTRUCTED`, and its facts.

    Args:
        kind: of model.
        seed: of everything that is drawn.
        given: fields of `Knobs` that are not drawn.
    """
    generator = generator_of(kind, seed)
    knobs = _drawn(given, generator, kind)
    model, exact = _model(kind, knobs, generator)
    task = small_task(knobs.n_types, knobs.max_depth)
    # a partner for "same": of the same kind and language, exact or not
    drift = 0.0 if kind == "stack" else _choice(generator, (0.0, 0.0, 0.06))
    partner = replace(knobs, reader="linear", drift=drift)
    other, other_exact = _model(kind, partner, generator)
    case, facts = pose(kind, seed, model, task, generator)
    return with_length_facts(case, facts, exact=exact, other=other, other_exact=other_exact)


def with_length_facts(
    case: Case, facts: list[Fact], *, exact: bool, other: Any = None, other_exact: bool = False
) -> tuple[Case, list[Fact]]:
    """A case with "stack", and "same" as another model, where their answers are known.

    Args:
        case: so far.
        facts: so far.
        exact: whether the model is proved to be right at any length.
        other: the model to compare with.
        other_exact: the same of that.
    """
    language = case.task.language
    found = _right_at_length(case.model, language, exact)
    if found is None:
        return case, facts
    facts = [*facts, Fact(Question("stack", (LONGEST,)), *found)]
    there = None if other is None else _right_at_length(other, language, other_exact)
    same = None if there is None else _alike(found, there)
    if same is None:
        return case, facts
    return replace(case, other=other), [*facts, Fact(Question("same", (LONGEST,)), *same)]


def pose(
    kind: str, seed: int, model: Any, task: DyckTask, generator: torch.Generator
) -> tuple[Case, list[Fact]]:
    """The case of a model, with all facts that are enumerated, and "adapted" where it is proved."""
    length = max(task.train_lengths)
    world = Enumeration(model, task.language, length, task.distribution)
    if world.accuracy < _SHARE:
        raise JudgeError(f"{kind}-{seed}: the model closes {world.accuracy:.3%} of brackets right")
    tokens = task.distribution.sample(_N_TOKENS, length, mode="prefix", generator=generator)
    tokens = torch.cat([torch.full((len(tokens), 1), task.language.bos_token), tokens], 1)
    asked = task.language.is_close(world.tokens[:, -1]) & (world.right[:, -1] >= 0)
    asked &= world.intact[:, -1]
    rows = asked.nonzero()[:, 0]
    chosen = rows[torch.randperm(len(rows), generator=generator)[:_N_ROWS]].tolist()
    facts = [*head_facts(world), *weight_facts(world), *token_facts(world, chosen)]
    return Case(kind, seed, model, task, length, tokens), facts + adapted_facts(model)


def adapted_facts(model: Any) -> list[Fact]:
    """Of every head, "adapted", by Corollary 1: one head is enough; without any, all is forgotten.

    Asked of models with a minimal first layer whose heads and MLPs are as large as the construction
    of the corollary takes.
    """
    cfg = model.cfg
    k, deepest = cfg.n_types, cfg.max_depth
    needs = {
        "d_head": k * deepest + 1,
        "d_mlp": k * (deepest - 1),
        "d_model": 2 * k * deepest + 1 + k * deepest + 2 + k,
    }
    if cfg.embedding == "token" or cfg.block != "eq6":
        return []
    if any(getattr(cfg, name) < size for name, size in needs.items()):
        return []
    alone = cfg.n_layers * cfg.n_heads == 1
    proof = (
        "without its only head a model sees the last bracket and the depth only"
        if alone
        else "uniform attention in any other head closes every prefix right (Corollary 1)"
    )
    heads = [(layer, head) for layer in range(cfg.n_layers) for head in range(cfg.n_heads)]
    return [Fact(Question("adapted", head), alone, proof) for head in heads]


def small_task(n_types: int, max_depth: int, length: int | None = None) -> DyckTask:
    """A task whose prefixes can all be listed: of `length` brackets at most."""
    language = DyckLanguage(n_types, max_depth)
    if length is None:
        length = max((n for n in range(5, 12) if language.count(n, "prefix") <= _MOST), default=0)
        if not length:
            raise JudgeError(
                f"Dyck({n_types}, {max_depth}) has more than {_MOST} prefixes of 5 brackets, "
                "too many to list: choose fewer types, or less depth"
            )
    return DyckTask(
        name=f"small-{language.n_types}-{language.max_depth}",
        n_types=language.n_types,
        max_depth=language.max_depth,
        mode="prefix",
        train_lengths=tuple(range(1, length + 1)),
        long_lengths=(LONGEST // 2, LONGEST),
    )


# --- drawing --------------------------------------------------------------------------------------


def generator_of(kind: str, seed: int) -> torch.Generator:
    """The source of everything that is drawn for a case."""
    return torch.Generator().manual_seed(int(sha256([kind, seed])[:8], 16))  # 32 bits count


def _uniform(generator: torch.Generator, low: float = 0.0, high: float = 1.0) -> float:
    return low + (high - low) * float(torch.rand(1, generator=generator, dtype=torch.float64))


def _choice(generator: torch.Generator, values: Sequence[Any]) -> Any:
    return values[int(torch.randint(len(values), (1,), generator=generator))]


def _drawn(given: Mapping[str, Any], generator: torch.Generator, kind: str) -> Knobs:
    """The knobs, drawn where they are not given; what is given changes no other."""
    k, deepest = _choice(generator, ((2, 2), (2, 3), (2, 4), (3, 2)))
    drawn = {
        "n_types": k,
        "max_depth": deepest,
        "n_layers": _choice(generator, (1, 1, 2)),
        "n_heads": _choice(generator, (1, 1, 2, 3, 4, 6)),
        "true_share": _uniform(generator, 0.2, 0.8),
        "strength": _uniform(generator, 1.0, 8.0),
        "reader": _choice(generator, ("linear", "linear", "step")),
        "drift": _choice(generator, (0.0, 0.0, 0.06)),
    }
    if kind in ("decoy", "backup"):
        drawn["n_heads"] = max(2, drawn["n_heads"])
    if drawn["n_heads"] == 1:
        drawn["n_layers"] = 1
    if kind == "stack" or drawn["reader"] == "step":  # a step knows what is left over at once
        drawn["drift"] = 0.0
    for name in given:
        if name not in drawn:
            raise unknown_name("knob of a case", name, drawn)
    return Knobs(**{**drawn, **given})


def _model(kind: str, knobs: Knobs, generator: torch.Generator) -> tuple[Any, bool]:
    """A model, and whether it is proved to be right at any length."""
    language = DyckLanguage(knobs.n_types, knobs.max_depth)
    shop = Workshop(language, generator, positions=kind in ("stack", "decoy"))
    workers = _workers(kind, shop, knobs, generator)
    if knobs.drift and kind != "stack":
        workers[0] = _drifting(shop, workers[0], knobs.drift)
    works = int(_choice(generator, range(knobs.n_layers)))
    layers = []
    for layer in range(knobs.n_layers):
        heads = list(workers) if layer == works else []
        while len(heads) < knobs.n_heads:
            heads.append(_idle(kind, shop, knobs, generator))
        order = torch.randperm(len(heads), generator=generator).tolist()
        layers.append([heads[index] for index in order])
    model = shop.model(layers, works, reader=knobs.reader)
    return model, not knobs.drift and knobs.reader == "linear"


def _workers(kind: str, shop: Workshop, knobs: Knobs, generator: torch.Generator) -> list[Head]:
    n = min(max(1, round(knobs.true_share * knobs.n_heads)), knobs.n_heads)
    if kind in ("decoy", "backup"):
        n = 1
    slots = shop.slots()
    order = torch.randperm(len(slots), generator=generator).tolist()
    shares = [[slots[index] for index in order[part::n]] for part in range(n)]
    shift = _choice(generator, (0.0, 0.7))

    def looks() -> tuple[Tensor, Tensor]:
        if kind == "stack":
            return shop.top(_uniform(generator, 12.0, 25.0))  # e^-12 is nothing to either reader
        if kind == "balanced" or (kind in ("decoy", "backup") and shift > 0):
            return shop.balanced(_uniform(generator, 0.3, 1.0), shift)
        return shop.uniform()

    pairs = kind != "stack"
    direct = kind == "stack" and knobs.reader == "linear" and _uniform(generator) < 0.5
    workers = [
        shop.direct_worker(looks(), share) if direct else shop.worker(looks(), share, pairs=pairs)
        for share in shares
    ]
    if kind == "backup":
        size = math.exp(_uniform(generator, math.log(0.02), 0.0))
        workers.append(shop.worker(looks(), slots, size=size, role="backup"))
    return workers


def _idle(kind: str, shop: Workshop, knobs: Knobs, generator: torch.Generator) -> Head:
    """A head that the model does not use, with a pattern that says otherwise."""
    strength = knobs.strength
    if kind in ("stack", "decoy"):
        looks = shop.top(strength)
        if kind == "stack" and _uniform(generator) < 0.5:
            looks = shop.uniform()
    elif _uniform(generator) < 0.7:
        looks = shop.levels(strength)
    else:
        looks = shop.random(strength / 3)
    role = _choice(generator, ("silent", "constant", "unread"))
    if role == "silent":
        return shop.silent(looks)
    size = _uniform(generator, 0.1, 1.0)
    return shop.constant(looks, size) if role == "constant" else shop.unread_worker(looks, size)


def _drifting(shop: Workshop, head: Head, drift: float) -> Head:
    """The head, but closing brackets take away less than their partners brought."""
    value = head.value.clone()
    closing = [
        shop.states.close(t, depth - 1)
        for t in range(shop.language.n_types)
        for depth in range(1, shop.language.max_depth + 1)
    ]
    value[closing] *= 1 - drift
    return replace(head, value=value)


# --- at length ------------------------------------------------------------------------------------


def _right_at_length(model: Any, language: DyckLanguage, exact: bool) -> tuple[bool, str] | None:
    """Whether a model is right up to `LONGEST`, and how that is known; None if it is not."""
    string = refuting_string(model, language, LONGEST)
    if string is not None:
        return False, "wrong after " + language.to_string(torch.tensor(string))
    return (True, "matched pairs cancel exactly (Theorem 1)") if exact else None


def _alike(a: tuple[bool, str], b: tuple[bool, str]) -> tuple[bool, str] | None:
    """Whether two models agree: two right ones do, a right and a wrong one do not."""
    if a[0] and b[0]:
        return True, "both are right on every prefix"
    if a[0] != b[0]:
        return False, "only one is " + (b[1] if a[0] else a[1])
    return None
