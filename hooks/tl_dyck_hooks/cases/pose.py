"""From a model to a case: strings to look at, and questions whose answers only the model tells.

Knows: that all answers of a kind are found first, and then thinned by chance, so that neither how
many there are nor what they are about says yes or no; and from what everything is drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch

from tl_dyck.judge.cases import LONGEST
from tl_dyck.judge.every_string import EveryString
from tl_dyck.judge.facts import (
    Enumeration,
    World,
    head_facts,
    refuting_string,
    rivals,
    token_facts,
)
from tl_dyck.judge.protocol import ABOUT_HEADS, Case, Fact, JudgeError, Question
from tl_dyck.kit.files import sha256
from tl_dyck.language import DyckLanguage
from tl_dyck.tasks import DyckTask

_N_TOKENS = 64  # strings that a method is shown
_N_ROWS = 20  # prefixes, of one bracket of which may be asked
_SHARE = 0.999  # least accuracy of a case
#: To each head of which a model and its mirror differ, so many of which both say no.
NEITHER = 0.25


#: Whether a model is right on long strings, and how that is known.
AtLength = tuple[bool, str]


class Kind(NamedTuple):
    """Questions that are thinned together: how all are found, and which are asked."""

    find: Callable[[Any, torch.Generator], Sequence[Fact]]
    thin: Callable[[Sequence[Fact], torch.Generator], list[Fact]]


def pose(
    world: World, task: Any, generator: torch.Generator, *kinds: Kind
) -> tuple[Case, list[Fact]]:
    """The case of a model, and what is asked about it.

    Args:
        world: the model on every prefix, see `every_string`.
        task: of the model.
        generator: of what is drawn: strings, then what each kind finds, then what it leaves.
        kinds: of questions.
    """
    case = Case(world.model, task, world.length, world.draw(_N_TOKENS, generator))
    found = [kind.find(world, generator) for kind in kinds]
    thinned = [kind.thin(facts, generator) for kind, facts in zip(kinds, found, strict=True)]
    return case, [fact for facts in thinned for fact in facts]


def every_string(model: Any, task: Any, name: str = "") -> Any:
    """A model on every string that its task trains on, as `every_prefix` if it is of brackets.

    Raises:
        JudgeError: the model of a case of that name is not right on all of an automaton's strings.
    """
    if isinstance(task, DyckTask):
        return every_prefix(model, task, name)
    found = EveryString(model, task, max(task.train_lengths))
    if not bool(found.intact.all()):
        raise JudgeError(f"{name}: the model is wrong somewhere")
    return found


def every_prefix(model: Any, task: DyckTask, name: str = "") -> Enumeration:
    """A model on every prefix of brackets that its task trains on.

    Raises:
        JudgeError: the model of a case of that name does not close nearly all brackets right.
    """
    world = Enumeration(model, task.language, max(task.train_lengths), task.distribution)
    if name and world.accuracy < _SHARE:
        raise JudgeError(f"{name}: the model closes {world.accuracy:.3%} of brackets right")
    return world


# --- kinds of questions ---------------------------------------------------------------------------


def about_heads(mirror: World, neither: float = NEITHER) -> Kind:
    """Of heads, see `thin_by_mirror`."""
    return Kind(
        lambda world, _: head_facts(world),
        lambda facts, generator: thin_by_mirror(
            facts, head_facts(mirror, sizes=False), generator, neither
        ),
    )


def thin_by_mirror(
    facts: Sequence[Fact],
    mirror: Sequence[Fact],
    generator: torch.Generator,
    neither: float = NEITHER,
) -> list[Fact]:
    """Facts of heads about which the structure of a model says little.

    A model and its mirror are as likely. So who knows all of a model but which circuit is heard
    cannot tell a yes from the no that it is in the mirror. A head of which both say no he can tell:
    of D of which they differ there are at most r D of these. In the mean D / 2 are yes, so that his
    AUROC is at most (D / 4 + r D) / (D / 2 + r D): 2/3 for r = 1/4, 0.75 for r = 1/2.

    Args:
        facts: of the model.
        mirror: of the model with the other circuit heard.
        generator: of what is drawn.
        neither: r, the share of heads of which both say no.
    """
    there = {fact.question: fact.answer for fact in mirror}
    found: list[Fact] = []
    for kind in ABOUT_HEADS:
        known = [fact for fact in facts if fact.question.kind == kind and fact.question in there]
        differ = [fact for fact in known if fact.answer != there[fact.question]]
        others = [fact for fact in known if not fact.answer and not there[fact.question]]
        # rounded by chance, so that a part is not always lost: so many in the mean
        most = int(len(differ) * neither + uniform(generator))
        order = torch.randperm(len(others), generator=generator).tolist()
        kept = {fact.question for fact in (*differ, *(others[at] for at in order[:most]))}
        found += [fact for fact in known if fact.question in kept]
    return found


def find_tokens(world: Enumeration, generator: torch.Generator) -> list[Fact]:
    """Of brackets of some prefixes that the model closes right, see `token_facts`."""
    language = world.language
    asked = language.is_close(world.tokens[:, -1]) & (world.right[:, -1] >= 0)
    asked &= world.intact[:, -1] & rivals(language, world.tokens).any(1)
    rows = asked.nonzero()[:, 0]
    order = torch.randperm(len(rows), generator=generator)[:_N_ROWS]
    return token_facts(world, rows[order].tolist())


def thin_tokens(facts: Sequence[Fact], generator: torch.Generator) -> list[Fact]:
    """One bracket of each prefix; of opening ones as many yes as no, and so of closing ones.

    So neither the model says what is true of its brackets, nor how many are asked about, in all or
    of a prefix, nor what stands there.
    """
    prefixes: dict[Any, list[Fact]] = {}
    for fact in facts:
        prefixes.setdefault(fact.question.target[0], []).append(fact)
    one_each = [choose(generator, each) for each in prefixes.values()]

    def closes(fact: Fact) -> bool:
        prefix, place = fact.question.target
        return bool(prefix[place] % 2)  # odd tokens are closing brackets

    return even_out(one_each, generator, closes, first=True)


TOKENS = Kind(find_tokens, thin_tokens)


def even_out(
    facts: Sequence[Fact],
    generator: torch.Generator,
    group: Callable[[Fact], Hashable] = lambda _: None,
    *,
    first: bool = False,
) -> list[Fact]:
    """As many yes as no of each group, drawn; none of a group in which all agree.

    Args:
        facts: to choose from.
        generator: of what is drawn.
        group: of a fact.
        first: the answer that is drawn first, on which recorded cases hang.
    """
    groups: dict[Hashable, dict[bool, list[Fact]]] = {}
    for fact in facts:
        sides = groups.setdefault(group(fact), {first: [], not first: []})
        sides[fact.answer].append(fact)
    found = []
    for sides in groups.values():
        fewer = min(map(len, sides.values()))
        for side in sides.values():
            order = torch.randperm(len(side), generator=generator).tolist()
            found += [side[at] for at in order[:fewer]]
    return found


# --- at length ------------------------------------------------------------------------------------


def about_stack(here: AtLength | None) -> list[Fact]:
    """The fact "stack" of a model, if it is known; see `right_at_length`."""
    return [] if here is None else [Fact(Question("stack", (LONGEST,)), *here)]


def about_same(here: AtLength | None, there: AtLength | None) -> list[Fact]:
    """The fact "same" of two models, if it is known."""
    if here is None or there is None:
        return []
    if not (here[0] or there[0]):  # two that are wrong may be wrong alike
        return []
    why = "both are right on every prefix"
    if here[0] != there[0]:
        why = "only one is " + (there[1] if here[0] else here[1])
    return [Fact(Question("same", (LONGEST,)), here[0] == there[0], why)]


def right_at_length(model: Any, language: DyckLanguage, exact: bool = False) -> AtLength | None:
    """Whether a model is right up to `LONGEST`, and how that is known; None if it is not.

    Args:
        model: of brackets.
        language: of these.
        exact: whether it is proved to be right at any length.
    """
    string = refuting_string(model, language, LONGEST)
    if string is not None:
        return False, "wrong after " + language.to_string(torch.tensor(string))
    return (True, "matched pairs cancel exactly (Theorem 1)") if exact else None


# --- what is drawn --------------------------------------------------------------------------------


def generator_of(kind: str, seed: int) -> torch.Generator:
    """The source of everything that is drawn for a case.

    A number that seeds it counts with its lower 32 bits only, which anybody tries out: good enough
    for public seeds. With the key of a private suite its whole state is drawn, from 192 bits.
    """
    # 8 digits of hexadecimal: 32 bits
    generator = torch.Generator().manual_seed(int(sha256([kind, seed])[:8], 16))
    if seed < 2**64:
        return generator
    drawn = np.random.SeedSequence(int(sha256([kind, seed]), 16)).generate_state(624)
    state = generator.get_state()  # seed, two flags, a place, then 624 words in 64 bits each
    # 24 bytes before the words: 8 of the seed, 4 of each flag, 8 of the place
    state[24 : 24 + 8 * 624].view(torch.int64).copy_(torch.from_numpy(drawn.astype(np.int64)))
    return generator.set_state(state)


def uniform(generator: torch.Generator, low: float = 0.0, high: float = 1.0) -> float:
    """A number between two."""
    return low + (high - low) * float(torch.rand(1, generator=generator, dtype=torch.float64))


def choose(generator: torch.Generator, values: Sequence[Any]) -> Any:
    """One of these."""
    return values[int(torch.randint(len(values), (1,), generator=generator))]
