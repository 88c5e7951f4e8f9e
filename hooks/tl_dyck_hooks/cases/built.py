"""Cases made of two circuits of one law, of which one closes brackets: by looks nobody can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, NamedTuple, final

import torch

from tl_dyck.judge.cases import CaseKind, small_task
from tl_dyck.judge.facts import Enumeration
from tl_dyck.judge.protocol import Case, Fact, JudgeError
from tl_dyck.kit.check import check_integer_fields, check_number
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage
from tl_dyck.tasks import DyckTask
from tl_dyck_hooks.cases.heads import Head, Workshop
from tl_dyck_hooks.cases.pose import (
    TOKENS,
    AtLength,
    about_heads,
    about_same,
    about_stack,
    choose,
    every_prefix,
    generator_of,
    pose,
    right_at_length,
    uniform,
)

CONSTRUCTED = {
    "uniform": "Heads work whose attention might as well be uniform.",
    "balanced": "Random attention that satisfies Eq. 11 does the work, and needs its pattern.",
    "stack": "Heads that attend to the top of the stack do the work.",
    "backup": "A second head writes what the first does, weakly: it takes over when that is gone.",
    "alone": "One head, of which nothing is asked: only what its model does at length.",
}


@final
@dataclass(frozen=True, kw_only=True)
class Knobs:
    """What makes a case hard.

    Attributes:
        n_types: k.
        max_depth: D, at least 2.
        n_layers: layers; the MLP of the last reads what heads of all write.
        n_heads: heads of each.
        true_share: share of all heads that work; the others do the same for another reader.
        reader: "linear" or "step", see `Workshop.model`.
        drift: how much of a matched pair is left over, so that long strings fail; 0 for nothing.
    """

    n_types: int
    max_depth: int
    n_layers: int
    n_heads: int
    true_share: float
    reader: str
    drift: float

    def __post_init__(self) -> None:
        check_integer_fields(self, n_types=2, max_depth=2, n_layers=1, n_heads=1)
        check_number("true_share", self.true_share, 0, 1)
        check_number("drift", self.drift, 0, 1)
        if self.reader not in ("linear", "step"):
            raise unknown_name("reader of a case", self.reader, ("linear", "step"))

    @property
    def exact(self) -> bool:
        """Whether the model is proved to be right at any length."""
        return not self.drift and self.reader == "linear"

    @property
    def may_drift(self) -> bool:
        """Whether something may be left over, see `draw_knobs`."""
        # a step knows what is left over at once; a norm for each layer would make some of it larger
        return self.reader == "linear" and self.n_layers == 1


def construct_case(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A case of one of `CONSTRUCTED`, and its facts.

    Args:
        kind: of model.
        seed: of everything that is drawn.
        given: fields of `Knobs` that are not drawn.
    """
    case, facts = _construct(kind, seed, given)
    for attempt in range(1, _TRIES if kind == "alone" and not given else 1):
        if facts:
            break
        case, facts = _construct(kind, seed, given, attempt)  # nothing is asked about the last one
    return case, facts


def _construct(
    kind: str, seed: int, given: Mapping[str, Any], attempt: int = 0
) -> tuple[Case, list[Fact]]:
    built = build(kind, seed, given, attempt)
    kinds = []
    if kind != "alone":  # an only head is always needed
        kinds = [about_heads(every_prefix(built.mirror, built.task)), TOKENS]
    case, facts = pose(built.world, built.task, built.generator, *kinds)
    return _ask_at_length(kind, built, case, facts, drawn="drift" not in given)


class Drawn(NamedTuple):
    """A model, its knobs, and the generator as it was before the model was drawn."""

    model: Any
    knobs: Knobs
    before: torch.Generator


class Built(NamedTuple):
    """What a case is made of; the mirror is the model, but that its other circuit closes brackets.

    The other model is to compare with.
    """

    task: DyckTask
    world: Enumeration
    drawn: Drawn
    mirror: Any
    other: Drawn
    generator: torch.Generator


def build(kind: str, seed: int, given: Mapping[str, Any], attempt: int = 0) -> Built:
    """Models of one of `CONSTRUCTED`, on a task that they solve; as `construct_case`."""
    generator = generator_of(f"{kind} {attempt}" if attempt else kind, seed)
    knobs = draw_knobs(given, generator, kind)
    drawn = _draw(kind, knobs, generator)
    mirror = draw_model(kind, knobs, drawn.before.clone_state(), closer=1)
    task = small_task(knobs.n_types, knobs.max_depth)
    # a partner for "same": of the same kind and language, exact or not
    drift = 0.0 if kind == "stack" else choose(generator, _DRIFTS)
    other = _draw(kind, replace(knobs, reader="linear", drift=drift), generator)
    try:
        world = every_prefix(drawn.model, task, f"{kind}-{seed}")
    except JudgeError:
        if "drift" in given or not knobs.drift:
            raise
        given = {**given, "drift": 0.0}  # what was left over was too much
        return build(kind, seed, given, attempt)
    return Built(task, world, drawn, mirror, other, generator)


def _draw(kind: str, knobs: Knobs, generator: torch.Generator) -> Drawn:
    before = generator.clone_state()
    return Drawn(draw_model(kind, knobs, generator), knobs, before)


# --- at length ------------------------------------------------------------------------------------


def _ask_at_length(
    kind: str, built: Built, case: Case, facts: list[Fact], *, drawn: bool
) -> tuple[Case, list[Fact]]:
    """A case with "stack" or "same"; with both, if what is left over was not drawn.

    Where it was, nothing but how much is left over says what is true: it is asked of models alone
    that are right if nothing is left over, and wrong at length if something is. One of both is
    asked, for that the other is would say something, and thinned until a yes is as likely as a no.
    """
    asked = choose(built.generator, ("stack", "same")) if drawn else "both"
    here = _at_length(kind, built.drawn, built.task, drawn)
    there = None
    if here is not None and asked != "stack":
        there = _at_length(kind, built.other, built.task, drawn)
    found = [*about_stack(here), *about_same(here, there)]
    if drawn:
        found = [fact for fact in found if fact.question.kind == asked]
        mine, exact = exact_share(kind), _DRIFTS.count(0.0) / len(_DRIFTS)
        yes = {"stack": mine, "same": mine * exact}[asked]
        no = {"stack": 1 - mine, "same": mine * (1 - exact) + (1 - mine) * exact}[asked]
        keep = uniform(built.generator)
        found = [each for each in found if keep * (yes if each.answer else no) < min(yes, no)]
    if any(fact.question.kind == "same" for fact in found):
        case = replace(case, other=built.other.model)
    return case, [*facts, *found]


def exact_share(kind: str) -> float:
    """Of models that may drift, as `draw_knobs` draws them, the share of those that do not."""
    exact = _DRIFTS.count(0.0) / len(_DRIFTS)
    if kind in _ONE_LAYER:
        return exact
    one_layer = exact * _LAYERS.count(1) / len(_LAYERS)  # those that drift have one in any case
    return one_layer / (one_layer + 1 - exact)


def _at_length(kind: str, made: Drawn, task: DyckTask, drawn: bool) -> AtLength | None:
    """Whether a model is right at length; None if it is not known, or known before it was drawn."""
    model, knobs, before = made
    if drawn:
        if not knobs.may_drift or kind == "stack":
            return None
        drifts = model
        if not knobs.drift:
            drifts = draw_model(kind, replace(knobs, drift=_DRIFT), before.clone_state())
        try:
            every_prefix(drifts, task, kind)
        except JudgeError:  # such a case is not made
            return None
        known = right_at_length(drifts, task.language)
        if known is None or knobs.drift:  # too little is left over, or it is the model itself
            return known
    return right_at_length(model, task.language, knobs.exact)


# --- drawing --------------------------------------------------------------------------------------


_DRIFT = 0.03  # at 100 brackets most models are wrong by it, at 11 few
_DRIFTS = (0.0, 0.0, _DRIFT)  # as likely
_LAYERS = (1, 1, 2)  # as likely
_ONE_LAYER = ("backup", "alone")
_TRIES = 20  # of which one in two is asked about
_ANY = ("uniform", "balanced", "balanced", "top")
#: Where heads of the circuit that closes brackets look, by kind: the first head at the first,
#: others at any; "*" is one of `_ANY`. Those of the other circuit likewise, but that "uniform" and
#: "balanced" have one of both, as often as suites have these kinds (1 : 2): so the two look by the
#: same law.
_LOOKS: dict[str, tuple[str, ...]] = {
    "uniform": ("uniform",),
    "balanced": ("balanced",),
    "stack": ("top", "balanced"),
    "backup": ("*",),
    "alone": ("*",),
}


def draw_knobs(given: Mapping[str, Any], generator: torch.Generator, kind: str) -> Knobs:
    """The knobs, drawn where they are not given; what is given changes no other."""
    # all prefixes of each can be listed, of five brackets or more (`small_task`)
    k, deepest = choose(generator, ((2, 2), (2, 3), (2, 4), (3, 2)))
    drawn: dict[str, Any] = {
        "n_types": k,
        "max_depth": deepest,
        # a value that stands twice is drawn twice as often, also in `_LAYERS` and `_DRIFTS`
        "n_layers": choose(generator, _LAYERS),
        "n_heads": choose(generator, (2, 3, 4, 6)),
        "true_share": uniform(generator),
        "reader": choose(generator, ("linear", "linear", "step")),
        "drift": choose(generator, _DRIFTS),
    }
    if kind == "alone":
        drawn |= {"n_layers": 1, "n_heads": 1, "reader": "linear"}
    if kind == "backup":
        # four heads, so that a backup and what it backs up fit into each circuit
        drawn |= {"n_layers": 1, "n_heads": max(drawn["n_heads"], 4)}
    if kind == "stack" or drawn["reader"] == "step":  # a step knows what is left over at once
        drawn["drift"] = 0.0
    if drawn["drift"]:  # a norm for each layer would make some of it larger
        drawn["n_layers"] = 1
    return Knobs(**{**drawn, **given})


def draw_model(kind: str, knobs: Knobs, generator: torch.Generator, closer: int = 0) -> Any:
    """A model of two circuits, of which the first closes brackets, or the one that is given."""
    language = DyckLanguage(knobs.n_types, knobs.max_depth)
    looks = [_LOOKS[kind], _LOOKS[kind]]
    if kind in ("uniform", "balanced"):
        looks[1] = (choose(generator, ("uniform", "balanced", "balanced")),)
    looks = [(choose(generator, _ANY),) if each == ("*",) else each for each in looks]
    n = knobs.n_layers * knobs.n_heads
    # at least one works, and at least one does not, unless there is but one
    works = min(1 + int(knobs.true_share * (n - 1)), max(1, n - 1))  # any number is as likely
    if works == n:  # the second circuit has no heads
        looks[1] = looks[0]
    shop = Workshop(language, generator, positions=any("top" in each for each in looks))
    heads: list[Head] = []
    for circuit, size in enumerate((works, n - works)):
        heads += draw_circuit(kind, shop, knobs, generator, looks[circuit], circuit, size)
    order = torch.randperm(n, generator=generator).view(knobs.n_layers, -1).tolist()
    rows = [[heads[index] for index in layer] for layer in order]
    return shop.model(rows, knobs.reader, closer=closer)


def draw_circuit(
    kind: str,
    shop: Workshop,
    knobs: Knobs,
    generator: torch.Generator,
    looks: Sequence[str],
    circuit: int,
    n: int,
) -> list[Head]:
    """Heads that share a stack; of both circuits by the same law."""

    def head(slots: Sequence[tuple[int, int]], at: str, size: float = 1.0) -> Head:
        if at == "top":  # e^-20 is nothing to either reader, also where LN_C makes it larger
            seen = shop.top(uniform(generator, 20.0, 30.0))
        else:
            seen = shop.balanced(uniform(generator, 0.3, 1.0), 0.7 if at == "balanced" else 0.0)
        return shop.head(seen, slots, circuit, pairs=at != "top", size=size, left=knobs.drift)

    slots = shop.slots()
    order = torch.randperm(len(slots), generator=generator).tolist()
    backups = kind == "backup" and n > 1
    writers = max(n - backups, 1)
    # slots dealt out in turn; with more heads than slots the rest write some of them again
    shares = [order[part::writers] or [order[part % len(order)]] for part in range(n - backups)]
    heads = [
        head([slots[index] for index in share], choose(generator, looks) if part else looks[0])
        for part, share in enumerate(shares)
    ]
    if backups:
        # from 2 % to 100 % of what it backs up, each factor as likely
        heads.append(head(slots, looks[0], math.exp(uniform(generator, math.log(0.02), 0.0))))
    return heads


#: What may be given.
KNOBS = tuple(field.name for field in fields(Knobs))
BUILT = CaseKind(make=construct_case, knobs=KNOBS)
