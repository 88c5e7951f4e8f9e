"""Perturbation spaces: which strings an attacker may turn a string into.

A space is a list of (transformation, budget). Its strings are those that come about by rewriting
spans of the *original* string, each transformation at most budget times, all rewritten spans
disjoint (ARC's semantics, Zhang et al., arXiv 2102.07818; the budgets are upper bounds, so the
original string belongs to the space). Rewritings are never applied to the result of other
rewritings. Two points that the definition leaves open are settled so:

- An insertion rewrites the empty span at a gap. Two insertions at the same gap count as
  overlapping, whichever transformations they belong to: at most one string is inserted at a gap. A
  gap strictly inside a rewritten span (between two swapped words) is inside it, so nothing is
  inserted there.
- BOS is not part of the string and is never edited.

Two sizes: `size` is the number of *distinct strings*, `n_edit_paths` the number of ways to choose
the rewritings.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, final

import torch

from tl_dyck.certify.automaton import StringAutomaton
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.lattice import KEEP, Lattice, Option, SpaceTooLargeError
from tl_dyck.certify.transformations import SpaceError, Tokens, Transformation, as_tokens
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import MOST_DRAWS, check_instance, check_integer, check_several


@final
@dataclass(frozen=True)
class Edit:
    """One rewriting.

    Attributes:
        transformation: name of the transformation.
        start: index in the original string of the first token replaced, or of the gap.
        removed: the original tokens that are replaced.
        inserted: what is put in their place.
    """

    transformation: str
    start: int
    removed: tuple[int, ...]
    inserted: tuple[int, ...]

    def __str__(self) -> str:
        return self.to_text(lambda tokens: " ".join(map(str, tokens)))

    @checked
    def to_text(self, text: Callable[[tuple[int, ...]], str]) -> str:
        """In one line, with tokens as `text` writes them."""
        return (
            f"{self.transformation}@{self.start}: {text(self.removed) or '∅'} → "
            f"{text(self.inserted) or '∅'}"
        )


@final
@checked
@dataclass(frozen=True, init=False)
class PerturbationSpace:
    """A list of transformations with budgets; see the module's docstring for what it means.

    Args:
        transformations: pairs (transformation, most uses). A budget of 0 switches a transformation
            off.

    Raises:
        SpaceError: a budget is negative or no integer, or the same transformation is listed twice.
        TypeError: something else than pairs of a `Transformation` and a budget.
    """

    transformations: tuple[tuple[Transformation, int], ...]
    _lattices: dict[tuple[int, ...], Lattice] = field(compare=False, repr=False)
    _automata: dict[tuple[int, ...], StringAutomaton] = field(compare=False, repr=False)

    def __init__(self, transformations: Iterable[tuple[Transformation, Any]]) -> None:
        pairs = tuple(_checked_pair(pair) for pair in transformations)
        for index, (transformation, _) in enumerate(pairs):
            if any(transformation == other for other, _ in pairs[:index]):
                raise SpaceError(f"{transformation!r} is listed twice; give it one budget.")
        object.__setattr__(self, "transformations", pairs)
        # what was made for the last few strings; neither compared nor shown
        object.__setattr__(self, "_lattices", {})
        object.__setattr__(self, "_automata", {})

    def __repr__(self) -> str:
        return f"PerturbationSpace({list(self.transformations)!r})"

    def __str__(self) -> str:
        """The text form, "dup:2,sub:2"."""
        return ",".join(
            f"{transformation.name}:{budget}" for transformation, budget in self.transformations
        )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the transformations, in order."""
        return tuple(transformation.name for transformation, _ in self.transformations)

    @checked
    def lattice(self, tokens: Tokens, deadline: Deadline | None = None) -> Lattice:
        """Everything that can be done to `tokens`, for algorithms to read.

        Raises:
            SpaceError: a transformation rewrites beyond the end of the string, or into something
                else than tokens.
            OutOfTime: the deadline has passed; looked at token by token.
        """
        string = as_tokens(tokens)
        if string not in self._lattices:
            made = _lattice(self, string, deadline or Deadline())
            _make_room(self._lattices)
            self._lattices[string] = made
        return self._lattices[string]

    @checked
    def size(self, tokens: Tokens) -> int:
        """Number of distinct strings, exact."""
        return self._automaton(tokens).size()

    @checked
    def n_edit_paths(self, tokens: Tokens) -> int:
        """Number of ways to choose disjoint rewritings in the budgets, exact; at least `size`."""
        return self.lattice(tokens).n_edit_paths()

    @checked
    def enumerate(
        self, tokens: Tokens, *, limit: int | None = None, deadline: Deadline | None = None
    ) -> Iterator[tuple[int, ...]]:
        """Every distinct string once, in lexicographic order.

        Args:
            tokens: the original string.
            limit: refuse to list more strings than this.
            deadline: of the counting and of the listing.

        Raises:
            SpaceTooLargeError: there are more; raised at the call, before the first string.
            OutOfTime: the deadline has passed.
        """
        automaton = self._automaton(tokens)
        if limit is not None and automaton.has_more_than(limit, deadline):
            raise SpaceTooLargeError(
                f"the space {self} has more than {limit:,} strings around this one, which is the "
                "limit; raise the limit or lower the budgets."
            )
        return automaton.strings(deadline)

    @checked
    def sample(
        self, tokens: Tokens, n: int, *, generator: torch.Generator
    ) -> list[tuple[int, ...]]:
        """`n` strings, drawn independently and uniformly from the distinct ones."""
        automaton = self._automaton(tokens)
        # numbers of strings may have more digits than torch draws: Python's integers have no end
        rng = random.Random(int(torch.randint(2**62, (1,), generator=generator)))
        n = check_integer("n", n, least=0, most=MOST_DRAWS)
        return [automaton.draw(rng) for _ in range(n)]

    @checked
    def contains(self, tokens: Tokens, candidate: Tokens) -> bool:
        """Whether `tokens` can be turned into `candidate`."""
        return self.lattice(tokens).path_to(as_tokens(candidate)) is not None

    @checked
    def edits(self, tokens: Tokens, candidate: Tokens) -> tuple[Edit, ...] | None:
        """The fewest rewritings that turn `tokens` into `candidate`, left to right, else None."""
        lattice = self.lattice(tokens)
        path = lattice.path_to(as_tokens(candidate))
        return None if path is None else self.edits_of(lattice, path)

    @checked
    def edits_of(self, lattice: Lattice, path: Iterable[int]) -> tuple[Edit, ...]:
        """The rewritings on a path, given as indices of options."""
        indices = check_several("path", path)
        for index in indices:
            check_integer("path", index, least=0, most=len(lattice.options) - 1)
        options = (lattice.options[index] for index in indices)
        return tuple(
            Edit(self.names[o.kind], o.start, lattice.tokens[o.start : o.end], o.emits)
            for o in options
            if o.kind != KEEP
        )

    def _automaton(self, tokens: Tokens) -> StringAutomaton:
        """The automaton of a string; those of the last few strings are kept."""
        string = as_tokens(tokens)
        if string not in self._automata:
            _make_room(self._automata)
            self._automata[string] = StringAutomaton(self.lattice(string))
        return self._automata[string]


@checked
def apply_edits(tokens: Tokens, edits: Iterable[Edit]) -> tuple[int, ...]:
    """Apply edits to the original string.

    Raises:
        SpaceError: two edits overlap, or one does not fit the string.
    """
    string = as_tokens(tokens)
    result: list[int] = []
    done, gap = 0, -1
    for edit, _ in placed(edits):
        end = edit.start + len(edit.removed)
        if edit.start < done or end == gap or string[edit.start : end] != edit.removed:
            raise SpaceError(
                f"edit {edit} does not fit: another covers its place, or the string differs there."
            )
        result += [*string[done : edit.start], *edit.inserted]
        done, gap = end, end if not edit.removed else -1
    return (*result, *string[done:])


def placed(edits: Iterable[Edit]) -> list[tuple[Edit, int]]:
    """Edits from left to right, each with where its insertion begins *in the edited string*."""
    places, shift = [], 0
    # a gap comes before what follows it
    given = check_several("edits", edits)
    for edit in given:
        check_instance("edits", edit, Edit, "of the class Edit")
    for edit in sorted(given, key=lambda edit: (edit.start, len(edit.removed))):
        places.append((edit, edit.start + shift))
        shift += len(edit.inserted) - len(edit.removed)
    return places


def _checked_pair(pair: tuple[Transformation, int]) -> tuple[Transformation, int]:
    if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], Transformation):
        raise TypeError(f"a space is a list of pairs (transformation, budget); {pair!r} is none.")
    transformation, budget = pair
    try:
        return transformation, check_integer("budget", budget, least=0)
    except (TypeError, ValueError):
        raise SpaceError(
            f"the budget of {transformation!r} must be an integer of at least 0, not {budget!r}."
        ) from None


def _make_room(cache: dict[tuple[int, ...], Any]) -> None:
    """Drop the oldest entry of a cache of 8."""
    if len(cache) >= 8:
        cache.pop(next(iter(cache)))


def _lattice(space: PerturbationSpace, tokens: tuple[int, ...], deadline: Deadline) -> Lattice:
    """Ask every transformation what it can do at every position, and number the levels."""
    n = len(tokens)
    found: list[tuple[_Found, _Found]] = []
    for position in range(n + 1):
        deadline.check()
        found.append(_rewrites(space, tokens, position))
    options: list[Option] = []
    entering, leaving, level = [], [], 0
    for gap, _ in found:
        entering.append(level)
        # a gap at which nothing can be inserted needs no level of its own
        level += bool(gap)
        leaving.append(level)
        level += 1
    uses = [0] * len(space.transformations)
    for i, (gap, spans) in enumerate(found):
        deadline.check()
        before, at = entering[i], leaving[i]
        if gap:
            options.append(Option(before, at, KEEP, i, i, ()))
            options += [Option(before, at, kind, i, i, emits) for kind, _, emits in gap]
        if i < n:
            options.append(Option(at, entering[i + 1], KEEP, i, i + 1, (tokens[i],)))
            options += [
                Option(at, entering[i + span], kind, i, i + span, emits)
                for kind, span, emits in spans
            ]
        # at one place one rewriting is chosen: a set, so that each kind counts once
        for kind in {kind for kind, _, _ in (*gap, *spans)}:
            uses[kind] += 1
    budgets = tuple(
        min(budget, used) for (_, budget), used in zip(space.transformations, uses, strict=True)
    )
    return Lattice(tokens, budgets, leaving[n], tuple(options))


_Found = dict[tuple[int, int, tuple[int, ...]], None]


def _rewrites(
    space: PerturbationSpace, tokens: tuple[int, ...], position: int
) -> tuple[_Found, _Found]:
    """The distinct rewritings (kind, span, emits) at a position that change something.

    They are of the gap, and of spans.
    """
    room = len(tokens) - position
    gap: _Found = {}
    spans: _Found = {}
    for kind, (transformation, budget) in enumerate(space.transformations):
        yielded = transformation.rewrites(tokens, position) if budget else ()
        for each in [None] if yielded is None else yielded:
            pair: Any = each  # somebody's own code may yield anything
            pair = pair if type(pair) is tuple and len(pair) == 2 else (None, None)
            span, emits = pair
            numbers = (span, *emits) if type(emits) is tuple else (span, None)
            # `type`: True and NumPy's integers are numbers, but no tokens of a vocabulary
            plain = all(type(number) is int and number >= 0 for number in numbers)
            if not plain or span > room:
                raise SpaceError(
                    f"{transformation!r} yields {each!r} at position {position} of "
                    f"{len(tokens)} tokens; "
                    f"expected a span of 0 to {room} tokens and a tuple of tokens, each "
                    "an int."
                )
            if tokens[position : position + span] != emits:
                (spans if span else gap)[kind, span, emits] = None
    return gap, spans
