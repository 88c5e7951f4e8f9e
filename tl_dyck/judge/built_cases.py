"""Cases made of two circuits of one law, of which one closes brackets: by looks nobody can tell."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, final

import numpy as np
import torch

from tl_dyck.judge.facts import (
    Enumeration,
    head_facts,
    refuting_string,
    rivals,
    token_facts,
)
from tl_dyck.judge.heads import Head, Workshop
from tl_dyck.judge.protocol import ABOUT_HEADS, Case, Fact, JudgeError, Question
from tl_dyck.kit.check import check_integer_fields, check_number
from tl_dyck.kit.files import sha256
from tl_dyck.kit.registry import unknown_name
from tl_dyck.language import DyckLanguage
from tl_dyck.tasks import DyckTask

#: Longest prefixes that "stack" and "same" ask about, in brackets.
LONGEST = 100
_MOST = 700  # prefixes that are enumerated
_N_TOKENS = 64
_N_ROWS = 16  # prefixes, of one bracket of which may be asked
_SHARE = 0.999  # least accuracy of a case

CONSTRUCTED = {
    "uniform": "Heads work whose attention might as well be uniform.",
    "balanced": "Random attention that satisfies Eq. 11 does the work, and needs its pattern.",
    "stack": "Heads that attend to the top of the stack do the work.",
    "backup": "A second head writes what the first does, weakly: it takes over when that is gone.",
    "alone": "One head, which is asked nothing about: the model is.",
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


def construct_case(kind: str, seed: int, given: Mapping[str, Any]) -> tuple[Case, list[Fact]]:
    """A case of one of `CONSTRUCTED`, and its facts.

    Args:
        kind: of model.
        seed: of everything that is drawn.
        given: fields of `Knobs` that are not drawn.
    """
    generator = generator_of(kind, seed)
    knobs = _drawn(given, generator, kind)
    again = generator.clone_state()
    model, exact = _model(kind, knobs, generator)
    mirror = None if kind == "alone" else _model(kind, knobs, again, heard=1)[0]
    task = small_task(knobs.n_types, knobs.max_depth)
    # a partner for "same": of the same kind and language, exact or not
    drift = 0.0 if kind == "stack" else _choice(generator, (0.0, 0.0, 0.03))
    partner = replace(knobs, reader="linear", drift=drift)
    other, other_exact = _model(kind, partner, generator)
    try:
        case, facts = pose(f"{kind}-{seed}", model, task, generator, mirror)
    except JudgeError:
        if "drift" in given or not knobs.drift:
            raise
        return construct_case(
            kind, seed, {**given, "drift": 0.0}
        )  # what was left over was too much
    if kind == "alone":  # an only head is always needed
        facts = [fact for fact in facts if fact.question.kind not in ABOUT_HEADS]
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
    name: str, model: Any, task: DyckTask, generator: torch.Generator, mirror: Any = None
) -> tuple[Case, list[Fact]]:
    """The case of a model, with the facts that are enumerated.

    Args:
        name: of the case.
        model: it is about.
        task: of the model.
        generator: of what is drawn.
        mirror: the same model, but that the other circuit is heard; of heads is then asked what
            `_mirrored` leaves.
    """
    length = max(task.train_lengths)
    world = Enumeration(model, task.language, length, task.distribution)
    if world.accuracy < _SHARE:
        raise JudgeError(f"{name}: the model closes {world.accuracy:.3%} of brackets right")
    tokens = task.distribution.sample(_N_TOKENS, length, mode="prefix", generator=generator)
    tokens = torch.cat([torch.full((len(tokens), 1), task.language.bos_token), tokens], 1)
    asked = task.language.is_close(world.tokens[:, -1]) & (world.right[:, -1] >= 0)
    asked &= world.intact[:, -1] & rivals(task.language, world.tokens).any(1)
    rows = asked.nonzero()[:, 0]
    chosen = rows[torch.randperm(len(rows), generator=generator)[:_N_ROWS]].tolist()
    heads = head_facts(world)
    if mirror is not None:
        other = head_facts(Enumeration(mirror, task.language, length, task.distribution))
        heads = _mirrored(heads, other, generator)
    facts = [*heads, *_one_of_each(token_facts(world, chosen), generator)]
    return Case(model, task, length, tokens), facts


def _mirrored(
    facts: Sequence[Fact], mirror: Sequence[Fact], generator: torch.Generator
) -> list[Fact]:
    """Facts of heads about which the structure of a model says little.

    A model and its mirror are as likely. So who knows all of a model but which circuit is heard
    cannot tell a yes from the no that it is in the mirror. A head of which both say no he can tell:
    these are a third at most, so that his AUROC is at most 0.75 = (1/6 + 1/3) / (1/3 + 1/3).
    """
    there = {fact.question: fact.answer for fact in mirror}
    found: list[Fact] = []
    for kind in ABOUT_HEADS:
        known = [fact for fact in facts if fact.question.kind == kind and fact.question in there]
        differ = [fact for fact in known if fact.answer != there[fact.question]]
        neither = [fact for fact in known if not fact.answer and not there[fact.question]]
        most = int(len(differ) / 2 + _uniform(generator))  # half as many in the mean
        order = torch.randperm(len(neither), generator=generator).tolist()
        kept = {fact.question for fact in (*differ, *(neither[at] for at in order[:most]))}
        found += [fact for fact in known if fact.question in kept]
    return found


def _one_of_each(facts: Sequence[Fact], generator: torch.Generator) -> list[Fact]:
    """One bracket of each prefix, drawn, and of these as many yes as no; none if all agree.

    So neither the model says what is true of its brackets, nor how many are asked about, in all or
    of a prefix: of those with one answer, which are more, some are left out.
    """
    prefixes: dict[Any, list[Fact]] = {}
    for fact in facts:
        prefixes.setdefault(fact.question.target[0], []).append(fact)
    drawn = [_choice(generator, each) for each in prefixes.values()]
    sides = [[fact for fact in drawn if fact.answer == answer] for answer in (True, False)]
    found: list[Fact] = []
    for side in sides:
        order = torch.randperm(len(side), generator=generator).tolist()
        found += [side[at] for at in order[: min(map(len, sides))]]
    return found


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
    """The source of everything that is drawn for a case.

    A number that seeds it counts with its lower 32 bits only, which anybody tries out: good enough
    for public seeds. With the key of a private suite its whole state is drawn, from 192 bits.
    """
    generator = torch.Generator().manual_seed(int(sha256([kind, seed])[:8], 16))
    if seed < 2**64:
        return generator
    drawn = np.random.SeedSequence(int(sha256([kind, seed]), 16)).generate_state(624)
    state = generator.get_state()  # seed, two flags, a place, then 624 words in 64 bits each
    state[24 : 24 + 8 * 624].view(torch.int64).copy_(torch.from_numpy(drawn.astype(np.int64)))
    return generator.set_state(state)


def _uniform(generator: torch.Generator, low: float = 0.0, high: float = 1.0) -> float:
    return low + (high - low) * float(torch.rand(1, generator=generator, dtype=torch.float64))


_ANY = ("uniform", "balanced", "balanced", "top")
#: Where heads of the circuit that is heard look, by kind: the first head at the first, others at
#: any; "*" is one of `_ANY`. Those of the other circuit likewise, but that "uniform" and "balanced"
#: have one of both, as often as suites have these kinds (1 : 2): so the two look by the same law.
_LOOKS: dict[str, tuple[str, ...]] = {
    "uniform": ("uniform",),
    "balanced": ("balanced",),
    "stack": ("top", "balanced"),
    "backup": ("*",),
    "alone": ("*",),
}


def _choice(generator: torch.Generator, values: Sequence[Any]) -> Any:
    return values[int(torch.randint(len(values), (1,), generator=generator))]


def _drawn(given: Mapping[str, Any], generator: torch.Generator, kind: str) -> Knobs:
    """The knobs, drawn where they are not given; what is given changes no other."""
    k, deepest = _choice(generator, ((2, 2), (2, 3), (2, 4), (3, 2)))
    drawn: dict[str, Any] = {
        "n_types": k,
        "max_depth": deepest,
        "n_layers": _choice(generator, (1, 1, 2)),
        "n_heads": _choice(generator, (2, 3, 4, 6)),
        "true_share": _uniform(generator),
        "reader": _choice(generator, ("linear", "linear", "step")),
        "drift": _choice(generator, (0.0, 0.0, 0.03)),
    }
    if kind == "alone":
        drawn |= {"n_layers": 1, "n_heads": 1}
    if kind == "backup":
        drawn |= {"n_layers": 1, "n_heads": max(drawn["n_heads"], 4)}
    if kind == "stack" or drawn["reader"] == "step":  # a step knows what is left over at once
        drawn["drift"] = 0.0
    if drawn["drift"]:  # a norm for each layer would make some of it larger
        drawn["n_layers"] = 1
    for name in given:
        if name not in drawn:
            raise unknown_name("knob of a case", name, drawn)
    return Knobs(**{**drawn, **given})


def _model(kind: str, knobs: Knobs, generator: torch.Generator, heard: int = 0) -> tuple[Any, bool]:
    """A model, and whether it is proved to be right at any length; 1 hears its second circuit."""
    language = DyckLanguage(knobs.n_types, knobs.max_depth)
    looks = [_LOOKS[kind], _LOOKS[kind]]
    if kind in ("uniform", "balanced"):
        looks[1] = (_choice(generator, ("uniform", "balanced", "balanced")),)
    looks = [(_choice(generator, _ANY),) if each == ("*",) else each for each in looks]
    n = knobs.n_layers * knobs.n_heads
    works = min(1 + int(knobs.true_share * (n - 1)), max(1, n - 1))  # any number is as likely
    if works == n:  # the second circuit has no heads
        looks[1] = looks[0]
    shop = Workshop(language, generator, positions=any("top" in each for each in looks))
    heads: list[Head] = []
    for circuit, size in enumerate((works, n - works)):
        heads += _circuit(kind, shop, knobs, generator, looks[circuit], circuit, size)
    order = torch.randperm(n, generator=generator).view(knobs.n_layers, -1).tolist()
    rows = [[heads[index] for index in layer] for layer in order]
    model = shop.model(rows, knobs.reader, heard=heard)
    return model, not knobs.drift and knobs.reader == "linear"


def _circuit(
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
            seen = shop.top(_uniform(generator, 20.0, 30.0))
        else:
            seen = shop.balanced(_uniform(generator, 0.3, 1.0), 0.7 if at == "balanced" else 0.0)
        return shop.head(seen, slots, circuit, pairs=at != "top", size=size, left=knobs.drift)

    slots = shop.slots()
    order = torch.randperm(len(slots), generator=generator).tolist()
    backups = kind == "backup" and n > 1
    writers = max(n - backups, 1)
    shares = [order[part::writers] or [order[part % len(order)]] for part in range(n - backups)]
    heads = [
        head([slots[index] for index in share], _choice(generator, looks) if part else looks[0])
        for part, share in enumerate(shares)
    ]
    if backups:
        heads.append(head(slots, looks[0], math.exp(_uniform(generator, math.log(0.02), 0.0))))
    return heads


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
