"""Answers, computed on every prefix of a small language, or proved.

Every prefix of at most N brackets is the beginning of one with N brackets, and models are causal:
one pass over all strings of N brackets asks about all of them. Under an intervention, is the right
bracket still first wherever one is asked for? Numbers are float64; where the answer hangs on a
margin that is neither clearly positive nor zero up to rounding, nothing is said.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property, lru_cache
from typing import Any, final

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from tl_dyck.ablation.replay import Replay
from tl_dyck.judge.asked import (
    closing_choices,
    exchange_types,
    log_probability,
    logit_difference,
)
from tl_dyck.judge.protocol import Fact, JudgeError, Question
from tl_dyck.language import DyckLanguage
from tl_dyck.models.lean import LeanTail
from tl_dyck.reading.inputs import hides_bos
from tl_dyck.reading.interventions import Hook, hide_keys, key_of_one, run

#: Logits that differ by less are equal: rounding of the sums here is below 1e-10.
TIE = 1e-9
#: A margin between both could come out on either side elsewhere: such questions are not asked.
UNCLEAR = 1e-7


def all_prefixes(language: DyckLanguage, length: int) -> Int[Tensor, "n pos"]:
    """Every prefix of that many brackets, BOS first."""
    return _all_prefixes(language, length).clone()


@lru_cache(maxsize=8)
def _all_prefixes(language: DyckLanguage, length: int) -> Int[Tensor, "n pos"]:
    strings = language.enumerate(length, "prefix")
    return torch.cat([torch.full((len(strings), 1), language.bos_token), strings], 1)


def margins(
    logits: Float[Tensor, "n pos d_vocab"], right: Int[Tensor, "n pos"]
) -> Float[Tensor, "n pos"]:
    """Logit of the right bracket minus the largest other; +∞ where none is asked for."""
    # -1 is no index; what is found at 0 instead is replaced below
    at = right.clamp(min=0)[..., None]
    mine = logits.gather(-1, at)[..., 0]
    other = logits.scatter(-1, at, -torch.inf).amax(-1)
    return torch.where(right >= 0, mine - other, torch.inf)


def lost(margin: Float[Tensor, "n pos"], among: Bool[Tensor, "n pos"]) -> Tensor | None:
    """``[n, pos]`` where an answer among some is lost; None if that hangs on rounding."""
    # a tie is an error: what is right must be *the* largest
    wrong: Tensor = among & (margin <= TIE)
    unclear = among & (margin.abs() < UNCLEAR) & (margin.abs() > TIE)
    # one clear error answers yes, whatever the unclear ones are; without one they would decide
    if bool(unclear.any()) and not bool((wrong & ~unclear).any()):
        return None
    return wrong


def difference(
    language: DyckLanguage, logits: Float[Tensor, "n pos d_vocab"], right: Int[Tensor, "n pos"]
) -> Float[Tensor, "n pos"]:
    """Logit of the right bracket minus that of the exchanged one; 0 where none is asked for."""
    mine, other = (
        logits.gather(-1, answer.clamp(min=0)[..., None])[..., 0]
        for answer in (right, exchange_types(language, right))
    )
    return torch.where(right >= 0, mine - other, 0.0)


class World:
    """A model on every string of a task, up to some length.

    Attributes:
        model: causal, float64.
        tokens: the strings, BOS first.
        partners: for each string the one by whose activations a part is exchanged.
        right: ``[n, pos]`` the logit that is asked for; negative where none is.
        asked: where anything is.
        there: which beginnings there are, and the model reads.
        intact: where the model is right, or nothing is asked for.
        choices: the logits that may be asked for.
        threshold: if given, what is asked for is which symbols may follow, those with logits above.
        accuracy: exact share of what is right, see `share`.
    """

    model: Any
    tokens: Int[Tensor, "n pos"]
    partners: Int[Tensor, "n pos"]
    right: Int[Tensor, "n pos"]
    asked: Bool[Tensor, "n pos"]
    there: Bool[Tensor, "n pos"]
    intact: Bool[Tensor, "n pos"]
    choices: list[int]
    threshold: float | None
    accuracy: float
    _weight: Float[Tensor, "n #pos"]

    @property
    def length(self) -> int:
        """Of the strings, in symbols."""
        return self.tokens.shape[1] - 1

    def draw(self, n: int, generator: torch.Generator) -> Int[Tensor, "n pos"]:
        """So many of the strings, for methods to look at."""
        raise NotImplementedError

    def look(self) -> None:
        """Run the model as it is; what it has right may break."""
        with torch.no_grad():
            self.logits: Tensor = self.model(self.tokens)
        self.intact = self.margins(self.logits) > TIE
        self.accuracy = 1 - self.share(~self.intact)

    def margins(self, logits: Float[Tensor, "n pos d_vocab"]) -> Float[Tensor, "n pos"]:
        """How clearly the model is right on `tokens`; +∞ where nothing is asked for."""
        return margins(logits, self.right)

    def share(
        self, wrong: Shaped[Tensor, "n pos"], among: Bool[Tensor, "n pos"] | None = None
    ) -> float:
        """Share of what is asked for, by its weight, that is marked.

        Args:
            wrong: marked; or a number for each, of which this is the mean.
            among: those that count; None for all. NaN if there is none.
        """
        asked = self.asked.double() * self._weight
        if among is not None:
            asked = asked * among
        return float((asked * wrong).sum() / asked.sum())

    def mean(self, found: Float[Tensor, "n pos *rest"]) -> Float[Tensor, "#pos *rest"]:
        """The mean over all beginnings, by their weight."""
        weight = self.there.double() * self._weight
        return torch.einsum("np,np...->...", weight, found)[None] / weight.sum()

    def breaks(
        self, question: Question, logits: Float[Tensor, "n pos d_vocab"], *, sizes: bool = True
    ) -> Fact | None:
        """The answer of a question that asks whether an intervention breaks the model.

        Args:
            question: what is asked.
            logits: on `tokens`, under the intervention.
            sizes: whether the fact has its sizes, or none.

        Returns:
            The fact; None if it hangs on a margin that is too small to be told from a tie.
        """
        wrong = lost(self.margins(logits), self.intact)
        if wrong is None:
            return None
        found = self.sizes(logits) if sizes else {}
        return Fact(question, bool(wrong.any()), "enumerated", self.share(wrong), found)

    def sizes(self, logits: Float[Tensor, "n pos d_vocab"]) -> dict[str, float]:
        """How far an intervention moves means over what is asked for, see `Fact.sizes`."""
        if self.threshold is not None or len(self.choices) < 2:
            return {}  # there is no other answer

        difference, nats = (
            abs(self.share(after - before))
            for before, after in zip(self._said, self._says(logits), strict=True)
        )
        # a model may not tell a string from its partner
        share = {"of the difference": difference / self._whole} if self._whole else {}
        return {"logits": difference, **share, "nats": nats}

    def _says(self, logits: Float[Tensor, "n pos d_vocab"]) -> tuple[Tensor, Tensor]:
        """``[n, pos]`` each: logit difference and log-probability of what is asked for."""
        difference = logit_difference(self.choices, logits, self.right)
        return difference, log_probability(logits, self.right)

    @cached_property
    def _said(self) -> tuple[Tensor, Tensor]:
        return self._says(self.logits)

    @cached_property
    def _whole(self) -> float:
        """How far the mean logit difference moves on the strings that are partners."""
        with torch.no_grad():
            other = self.model(self.partners)
        before, after = (self.share(each) for each in (self._said[0], self._says(other)[0]))
        return abs(before - after)


@final
class Enumeration(World):
    """A model on every prefix of at most some length, of bounded Dyck languages.

    Prefixes weigh as they are probable. The partner of a string has all types exchanged.

    Args:
        model: causal, float64.
        language: of its tokens.
        length: N, in brackets.
        distribution: for the probability of prefixes.
        threshold: if given, what is asked for is which brackets may follow: those with logits above
            it, and no others.
    """

    def __init__(
        self,
        model: Any,
        language: DyckLanguage,
        length: int,
        distribution: Any,
        threshold: float | None = None,
    ) -> None:
        self.model, self.language, self.threshold = model, language, threshold
        self.tokens = all_prefixes(language, length)
        self.right = language.right_bracket(self.tokens)
        self.choices = closing_choices(language)
        self.asked = self.right >= 0
        self.there = torch.ones_like(self.asked)
        # True is 1: column 0, the prefix of BOS alone
        self.there[:, : hides_bos(model)] = False
        if threshold is not None:
            self.asked = self.there
        # [n, 1]: all beginnings of a string count as that string is probable
        self._weight = distribution.log_prob(self.tokens, mode="prefix").exp().double()[:, None]
        self.partners = exchange_types(language, self.tokens)
        self._distribution = distribution
        self.look()

    def draw(self, n: int, generator: torch.Generator) -> Int[Tensor, "n pos"]:
        """Some of the strings, as they are probable."""
        found = self._distribution.sample(n, self.length, mode="prefix", generator=generator)
        begin = torch.full((len(found), 1), self.language.bos_token)
        return torch.cat([begin, found], 1)

    def margins(self, logits: Float[Tensor, "n pos d_vocab"]) -> Float[Tensor, "n pos"]:
        """How clearly the model is right on `tokens`; +∞ where nothing is asked for."""
        if self.threshold is None:
            return super().margins(logits)
        language = self.language
        may = torch.zeros(*self.tokens.shape, language.n_brackets + 1, dtype=torch.bool)
        may[..., 0 : language.n_brackets : 2] = (language.depth(self.tokens) < language.max_depth)[
            ..., None
        ]
        # what closes nothing is the last column, which is cut off
        # -1 becomes the last column
        may.scatter_(-1, (self.right % (language.n_brackets + 1))[..., None], True)
        above = logits[..., : language.n_brackets] - self.threshold
        # above of those that may follow, below of the others
        least = torch.where(may[..., :-1], above, -above).amin(-1)
        return torch.where(self.asked, least, torch.inf)


def head_facts(world: World, *, sizes: bool = True) -> list[Fact]:
    """Of every head, "needed", "carries" and "pattern", by enumeration; if asked, with sizes."""
    changed = changed_heads(world, ("needed", "carries", "pattern"))
    facts = (world.breaks(*each, sizes=sizes) for each in changed)
    return [fact for fact in facts if fact is not None]


def changed_heads(world: World, kinds: Sequence[str]) -> Iterator[tuple[Question, Tensor]]:
    """Of every head, logits if it puts out zero, its mean, that of the partner, or flat sums."""
    lean = LeanTail(world.model) if LeanTail.fits(world.model) else None
    replay = Replay(world.model, world.tokens, uniform=True, lean=lean)
    exchanged = Replay(world.model, world.partners)
    for layer in range(world.model.cfg.n_layers):
        instead = {
            "needed": torch.zeros_like(replay.z[layer]),
            "mean": world.mean(replay.z[layer])[None],
            "carries": exchanged.z[layer],
            "pattern": replay.uniform_z[layer],
        }
        for head, kind in itertools.product(range(world.model.cfg.n_heads), kinds):
            change = replay.change(layer, [head], instead[kind][:, :, [head]])
            yield Question(kind, (layer, head)), replay.run(layer, change)[0]


def depth_facts(world: Enumeration) -> list[Fact]:
    """Of every head, "depth", by enumeration; of models whose embedding is a table by depth."""
    replay = Replay(world.model, world.tokens)
    with world.model.hooks(fwd_hooks=embed_deeper(world.model, world.language, world.tokens)):
        other = Replay(world.model, world.tokens).z
    facts = []
    for layer, z in enumerate(other):
        for head in range(z.shape[2]):
            logits = replay.run(layer, replay.change(layer, [head], z[:, :, [head]]))[0]
            facts.append(world.breaks(Question("depth", (layer, head)), logits))
    return [fact for fact in facts if fact is not None]


def embed_deeper(model: Any, language: DyckLanguage, tokens: Int[Tensor, "n pos"]) -> list[Hook]:
    """A hook by which a model reads these strings with other depths, see `deeper`."""
    moved = model.embed.table[tokens, deeper(language, tokens)]
    return [("hook_embed", lambda found, hook: moved)]


def deeper(language: DyckLanguage, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
    """Depth after each bracket, but one more for 1 … D − 2, and 1 for D − 1; 0 and D stay.

    So a bracket that is on top of the stack stays there, at another depth.
    """
    depth, most = language.depth(tokens), language.max_depth
    # 0 has nothing to exchange with; D cannot go deeper
    inner = (depth > 0) & (depth < most)
    # 1 … D − 1 in a circle; max, for D = 1 has none of them
    return torch.where(inner, depth % max(most - 1, 1) + 1, depth)


def token_facts(world: Enumeration, rows: Sequence[int]) -> list[Fact]:
    """Of brackets of some prefixes, "token": each of their `rivals` is hidden from the last query.

    Args:
        world: the model.
        rows: indices of `world.tokens` that the model closes right.
    """
    facts = []
    at = torch.tensor(rows, dtype=torch.long)
    row, place = rivals(world.language, world.tokens[at]).nonzero().T
    tokens, length = world.tokens[at[row]], world.tokens.shape[1]
    hidden = key_of_one(torch.full_like(place, length - 1), place, length)
    hooks = hide_keys(hidden, range(world.model.cfg.n_layers))
    found = margins(run(world.model, tokens, hooks), world.right[at[row]])[:, -1]
    for string, key, margin in zip(tokens.tolist(), place.tolist(), found.tolist(), strict=True):
        if abs(margin) <= TIE or abs(margin) >= UNCLEAR:
            question = Question("token", (tuple(string), key))
            facts.append(Fact(question, margin <= TIE, "enumerated"))
    return facts


def rivals(language: DyckLanguage, tokens: Int[Tensor, "n pos"]) -> Bool[Tensor, "n pos"]:
    """Brackets at the depth of the top of the stack without which a counter would be wrong.

    Closing ones of other types, which take rivals away, and opening ones of its own type that are
    closed. Who looks at the top of the stack needs none of them. So the string does not say what
    the model does: of the top itself, and of all others, it would.
    """
    right = language.right_bracket(tokens)[:, -1:]
    closes = language.is_close(tokens)
    # the level of a pair is the depth inside it
    level = torch.where(closes, language.depth(tokens) + 1, language.depth(tokens))
    brackets = tokens < language.n_brackets
    # the top of the stack has the level of the last depth
    beside = brackets & (level == language.depth(tokens)[:, -1:]) & (right >= 0)
    found: Tensor = beside & torch.where(closes, tokens != right, tokens == right - 1)
    return found & (torch.arange(tokens.shape[1]) != language.top_of_stack(tokens)[:, -1:])


def _closing(language: DyckLanguage, logits: Float[Tensor, "*n d_vocab"]) -> Int[Tensor, "*n"]:
    """The closing bracket with the largest logit; a clear one, or it is refused."""
    closing = logits[..., language.closing]
    best = closing.topk(2, -1).values
    if bool((best[..., 0] - best[..., 1] < UNCLEAR).any()):
        raise JudgeError("two closing brackets are equally likely")
    found: Tensor = closing.argmax(-1)
    return found


def answers_alike(a: Any, b: Any, language: DyckLanguage, length: int) -> bool:
    """Whether two models close every prefix of at most `length` brackets alike, by enumeration."""
    tokens = all_prefixes(language, length)
    asked = language.right_bracket(tokens) >= 0
    with torch.no_grad():
        ours, theirs = (_closing(language, model(tokens)[asked]) for model in (a, b))
    return bool((ours == theirs).all())


def refuting_string(model: Any, language: DyckLanguage, length: int) -> tuple[int, ...] | None:
    """A prefix of at most `length` brackets that the model closes wrong, or None if none is found.

    Looked at are prefixes in which as many pairs of one type as there is room for are matched at
    one depth, and then a bracket of another type is open there: what pairs leave behind adds up.
    """
    rows = long_strings(language, length)
    with torch.no_grad():
        logits = model(rows)
    wrong = margins(logits, language.right_bracket(rows)) < -UNCLEAR
    if not bool(wrong.any()):
        return None
    places = wrong.nonzero()
    row, end = places[places[:, 1].argmin()].tolist()
    return tuple(rows[row, : end + 1].tolist())


def long_strings(language: DyckLanguage, length: int) -> Int[Tensor, "n pos"]:
    """The strings that `refuting_string` looks at, BOS first, all of `length` brackets."""
    k, deepest = language.n_types, language.max_depth
    rows = []
    for below in range(deepest - 1):  # brackets open all the time
        for opened in itertools.product(range(k), repeat=below):
            for pair, top, inner in itertools.product(range(k), repeat=3):
                start = [language.bos_token, *(2 * t for t in opened)]
                end = [2 * top, 2 * inner, 2 * inner + 1]
                # + 1: the length is in brackets, and a row begins with BOS
                room = (length + 1 - len(start) - len(end)) // 2
                row = start + [2 * pair, 2 * pair + 1] * room + end
                rows.append(row + [2 * inner] * (length + 1 - len(row)))
    return torch.tensor(rows)
