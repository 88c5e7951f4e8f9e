"""What a model answers to every string of an automaton: the least margin, the wrong.

Of an automaton's strings of one length, those whose state asks for the same answer are the paths of
a graph (`tl_dyck.certify.exact.walks`), positions included, or the profiles that a first layer
without positions reads (`tl_dyck.certify.exact.lower_layer`). The exact certifier finds the least
margin on them, by shortest paths.

Knows: which answer a state asks for, and what margins that makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, final

import numpy as np

from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact.attention import AttentionWeights
from tl_dyck.certify.exact.balls import Ball, BoolArray, IntArray
from tl_dyck.certify.exact.graph import StringGraph
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.loss_counts import Losing
from tl_dyck.certify.exact.mass import count_wrong
from tl_dyck.certify.exact.minimise import lower_bound
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import emission_costs, sweep
from tl_dyck.certify.exact.search import Search
from tl_dyck.certify.exact.unembedding import LeastValues
from tl_dyck.certify.exact.walks import Walks
from tl_dyck.certify.lattice import SpaceTooLargeError
from tl_dyck.certify.objectives import Objectives
from tl_dyck.language import DyckLanguage
from tl_dyck.language.chain import Chain
from tl_dyck.tasks import AutomatonTask
from tl_dyck.tasks.places import PlacePrefixes
from tl_dyck.tasks.tables import Table, answer_of

TOLERANCE = 1e-10  # nats: a least margin is exact enough, well above the rounding of a run

_MOST_PARTS = 1_000
"""Into so many parts the strings of an answer are split; what is not decided then stays open."""

_PARTS_OF_GROUP = 100
"""Or into so many on average for each last symbol, of which there are many with profiles."""

_MOST_ROOM = 1_000_000_000
"""Where only time is to end it: parts and emissions, a byte each (1 GB)."""

_MOST_WEIGHTS = 200_000_000
"""Of symbols for last symbols, and heads (1.6 GB); of longer strings nothing is known."""

NOTHING = -1
"""The answer of a state that asks for none."""


@final
@dataclass(frozen=True)
class Answers:
    """An automaton, and what a model should say in each of its states.

    Attributes:
        after: [states, tokens] the state after each token; -1 where there is none.
        answer: [states] the logit that should be the largest; `NOTHING` where nothing is asked.
        states: what they are called.
        chain: draws strings of the task, and of each length alike if it has no weights.
        may: [states, tokens] which may follow, where `after` does not tell.
    """

    after: IntArray
    answer: IntArray
    states: tuple[str, ...] = ()
    chain: Chain | None = None
    may: BoolArray | None = None

    @classmethod
    def of_prefixes(cls, prefixes: PlacePrefixes) -> Answers:
        """Of the prefixes of a task with places that end at one."""
        return cls(prefixes.after, prefixes.answer, may=prefixes.may)

    @classmethod
    def of(cls, task: AutomatonTask, longest: int, *, follows: bool = False) -> Answers:
        """Of a task: what its `answer` says, else the one symbol that `counted` asks for.

        Raises:
            WrongTypeError, WrongValueError: an answer is no logit.
        """
        # without an answer, or for the claim "allowed", what follows the longest counts, too
        table = Table.explore(task, longest + (follows or task.answer is None))
        after = np.where(table.chain.after < len(table.states), table.chain.after, NOTHING)
        names = tuple(map(str, table.states))
        if task.answer is None:
            alone = table.counted.sum(1) == 1
            return cls(after, np.where(alone, table.counted.argmax(1), NOTHING), names, table.chain)
        said = [answer_of(task, state) for state in table.states]
        numbers = np.array([NOTHING if each is None else each for each in said])
        return cls(after, numbers, names, table.chain)

    @classmethod
    def of_brackets(cls, language: DyckLanguage, longest: int, *, alike: bool = False) -> Answers:
        """Of Dyck(k, D): its stacks, each of which asks for the bracket that closes its top.

        Args:
            language: the language.
            longest: length of the longest strings.
            alike: tell stacks apart by how often the string stood at depth 0 and at depth D, so
                that all strings of a state and a length are as probable.
        """
        deepest = language.max_depth

        def moves(state: tuple[tuple[int, ...], int, int]) -> dict[str, Any]:
            stack, *visits = state
            opens = range(language.n_types if len(stack) < deepest else 0)
            after = {language.alphabet[2 * kind]: (*stack, kind) for kind in opens}
            if stack:
                after[language.alphabet[2 * stack[-1] + 1]] = stack[:-1]
            if alike:
                visits = [visits[0] + (not stack), visits[1] + (len(stack) == deepest)]
            return {token: (each, *visits) for token, each in after.items()}

        task = AutomatonTask(
            name=str(language),
            symbols=language.alphabet,
            start=((), 0, 0),
            moves=moves,
            answer=lambda state: 2 * state[0][-1] + 1 if state[0] else None,
            train_lengths=(1,),
            long_lengths=(1, 1),
        )
        return cls.of(task, longest, follows=True)

    def allowed(self) -> tuple[Answers, BoolArray]:
        """The same automaton, asked which symbols may follow, where any may.

        Returns:
            It, an answer being the number of a set; and the sets, [sets, tokens].
        """
        sets, which = np.unique(self._may, axis=0, return_inverse=True)
        some: BoolArray = np.asarray(sets.any(1))
        answer = np.where(some[which.ravel()], which.ravel(), NOTHING)
        return replace(self, answer=answer), sets

    def follows(self, answer: int) -> BoolArray:
        """[tokens] what may follow in the states that ask for an answer, which `allowed` made."""
        found: BoolArray = self._may[int((self.answer == answer).argmax())]
        return found

    @property
    def _may(self) -> BoolArray:
        return self.after != NOTHING if self.may is None else self.may

    def examples(self, length: int) -> tuple[IntArray, IntArray]:
        """The states that strings of a length end in, [n], and a string for each, [n, length]."""
        states, strings = np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
        for _ in range(length):
            here, token = np.nonzero(self.after[states] != NOTHING)
            states, first = np.unique(self.after[states[here], token], return_index=True)
            strings = np.concatenate([strings[here[first]], token[first, None]], axis=1)
        return states, strings

    def numbers(self, length: int) -> np.ndarray[Any, np.dtype[np.object_]]:
        """[states] how many strings of a length end in each, exactly."""
        *_, found = self._numbers(length)
        return found

    def asking(self, longest: int, *, bare: bool) -> list[int]:
        """How many strings of each length up to `longest` are asked for an answer.

        Not the empty one, of a model that starts `bare`: it has nothing to read.
        """
        asks = self.answer != NOTHING
        found = [int(each[asks].sum()) for each in self._numbers(longest)]
        return [0, *found[1:]] if bare else found

    def _numbers(self, longest: int) -> Iterator[np.ndarray[Any, np.dtype[np.object_]]]:
        here = np.zeros(len(self.after), dtype=object)
        here[0] = 1
        state, token = np.nonzero(self.after != NOTHING)
        for length in range(longest + 1):
            yield here
            if length < longest:
                reached = np.zeros_like(here)
                np.add.at(reached, self.after[state, token], here[state])
                here = reached


@final
@dataclass
class Least:
    """The least margin on some strings: between which numbers, and where it was seen.

    Attributes:
        low: a proved lower bound; inf if nothing is asked.
        high: what was seen, its rounding included.
        string: where, without BOS.
        answer: what should be said there.
        ended: whether the search came to an end; else it ran out of time, and may be gone on with.
        search: what is then gone on with; None begins anew.
        lost: of several answers, those with a negative margin.
    """

    low: float = math.inf
    high: float = math.inf
    string: tuple[int, ...] | None = None
    answer: int = NOTHING
    ended: bool = True
    search: Search | None = field(default=None, repr=False)
    lost: list[Least] = field(default_factory=list)

    def see(self, high: float, string: tuple[int, ...] | None, answer: int) -> None:
        """Note a string, if its margin is less than what was seen."""
        if string is not None and high < self.high:
            self.high, self.string, self.answer = high, string, answer


@final
@dataclass
class Margins:
    """The margins that a network gives to an automaton's strings.

    Attributes:
        network: of one layer, or of one above a layer without positions.
        answers: the automaton.
        objectives: what must be positive, of an answer.
        order: the places of a string in the order in which the automaton and the network read it;
            None for as it stands.
    """

    network: Network
    answers: Answers
    objectives: Callable[[int], Objectives]
    order: IntArray | None = None

    @classmethod
    def allowed(
        cls, network: Network, answers: Answers, threshold: float, order: IntArray | None = None
    ) -> Margins:
        """How far each symbol's logit is on its side of a threshold, see `Objectives.allowed`."""
        asked, sets = answers.allowed()
        return cls(network, asked, lambda each: Objectives.allowed(sets[each], threshold), order)

    def __post_init__(self) -> None:
        self._walks = Walks.begin(self.network, self.answers.after)
        self._reads: dict[int, Ball | None] = {}

    def of(self, strings: Sequence[tuple[int, ...]], answer: int) -> LeastValues:
        """The least margin on each of some strings that ask for an answer."""
        return self.network.least_of([*map(self._read, strings)], self.objectives(answer))

    def _read(self, string: tuple[int, ...]) -> tuple[int, ...]:
        """A string in the order in which it is read."""
        return string if self.order is None else tuple(string[at] for at in self.order)

    def _written(self, string: tuple[int, ...]) -> tuple[int, ...]:
        """The other way round."""
        if self.order is None:
            return string
        return tuple(symbol for _, symbol in sorted(zip(self.order, string, strict=True)))

    def least(self, length: int, deadline: Deadline, *, decide: bool) -> Least:
        """The least margin on the strings of a length, one answer after the other.

        Args:
            length: in symbols.
            deadline: when to stop.
            decide: find its sign only.
        """
        found = Least()
        for answer in np.unique(self.answers.answer[self.answers.answer != NOTHING]).tolist():
            below = max(found.high, 0.0)  # only what is less is looked for
            each = self.least_of(answer, length, deadline, decide=decide, below=below)
            found.see(each.high, each.string, answer)
            found.low = min(found.low, each.low)
            found.lost += [each] if each.high < 0 else []
            if deadline.passed or (decide and found.high < 0):
                found.low = -math.inf  # of other answers nothing is known
                break
        return found

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def least_of(
        self,
        answer: int,
        length: int,
        deadline: Deadline,
        *,
        decide: bool,
        below: float = math.inf,
        string: tuple[int, ...] | None = None,
        in_time: bool = False,
        search: Search | None = None,
    ) -> Least:
        """The least margin on the strings of a length that ask for an answer.

        Args:
            answer: the answer.
            length: in symbols.
            deadline: when to stop.
            decide: find its sign only.
            below: only what is less is looked for, so that the lower bound is of no use beyond.
            string: one of them, with which to begin; None for any.
            in_time: only the deadline ends it, and not a number of parts.
            search: of the same question, to go on with.
        """
        if search is not None:
            search.attention.deadline = deadline
            search.incumbent.bound_by(below)
            search.run()
            return self._found(search, search.lower, answer)
        nothing = Least(-math.inf, answer=answer)
        try:
            graph = self._walks.graph(self.answers.answer == answer, length)
        except SpaceTooLargeError:
            return nothing
        if graph is None:
            return Least(answer=answer)
        heads = self.network.config.n_heads
        if len(graph.groups) * len(graph.symbols.tokens) * heads > _MOST_WEIGHTS:
            return nothing
        attention, incumbent = self._asked(graph, answer, deadline)
        output = incumbent.run_string(self._read(string) if string else _some_string(graph))
        if incumbent.string is None:  # numbers overflow
            return nothing
        incumbent.bound_by(below)
        parts = max(_MOST_PARTS, _PARTS_OF_GROUP * len(graph.groups))
        if in_time:
            parts = max(parts, _MOST_ROOM // len(graph.option))
        asked = attention, incumbent
        search = Search(*asked, decide=decide, tolerance=TOLERANCE, most_parts=parts)
        return self._found(search, lower_bound(search, output), answer)

    def _found(self, search: Search, low: float, answer: int) -> Least:
        """What a search came to, and itself if it is to be gone on with."""
        incumbent, ended = search.incumbent, not search.attention.deadline.passed
        again = None if ended else search
        if incumbent.string is None:
            return Least(low, math.inf, None, answer, ended, again)
        seen = self._written(incumbent.string)
        return Least(low, incumbent.upper, seen, answer, ended, again)

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def floor(self, answer: int, longest: int) -> float:
        """What no margin of an answer is below, at any length: from the sizes of all that occurs.

        -inf where that is not known: of two layers without a norm at the end.
        """
        if longest not in self._reads:
            self._reads[longest] = self._largest_read(longest)
        read = self._reads[longest]
        if read is None:
            return -math.inf
        low = self.network.unembedding(self.objectives(answer)).least(read).lower[0]
        return float(np.nan_to_num(low, nan=-math.inf))

    def _largest_read(self, longest: int) -> Ball | None:
        network, machine = self.network, self.network.machine
        # behind a norm any symbol will do: the first of some string
        token = int(network.prefix[0] if network.prefix else (self.answers.after[0] >= 0).argmax())
        tokens = np.array([token], dtype=np.int64)
        states = np.array([int(machine.next_state(machine.start_state, token))], dtype=np.int64)
        if network.config.ln_final is None:
            if network.below is not None:
                return None
            try:
                self._walks.extend(longest)
            except SpaceTooLargeError:
                return None
            # what comes before a string, and every symbol in every state of the machine
            met = np.unique(np.concatenate([level[1] for level in self._walks.levels]))
            n_tokens = self.answers.after.shape[1]
            tokens = np.concatenate([network.prefix, np.tile(np.arange(n_tokens), len(met))])
            states = np.concatenate([network.start[0], np.repeat(met, n_tokens)])
        table = network.symbols(tokens.astype(np.int64), states)
        return network.largest_read(table, np.arange(len(tokens)))

    @np.errstate(over="ignore", invalid="ignore", divide="ignore")
    def wrong(self, length: int, state: int, deadline: Deadline, *, on: bool = True) -> Losing:
        """On how many strings of a length, of those that end in a state, it is negative.

        The fewer strings are looked at together, the tighter are their bounds. See `count_wrong`.
        """
        graph = self._walks.graph(np.arange(len(self.answers.answer)) == state, length)
        if graph is None:
            return Losing(0, 0)
        asked = self._asked(graph, int(self.answers.answer[state]), deadline)
        return count_wrong(*asked, on=on)

    def _asked(
        self, graph: StringGraph, answer: int, deadline: Deadline
    ) -> tuple[AttentionWeights, Incumbent]:
        attention = AttentionWeights(self.network, graph, deadline)
        return attention, Incumbent(self.network, graph, self.objectives(answer))


def _some_string(graph: StringGraph) -> tuple[int, ...]:
    nothing = np.zeros((len(graph.symbols.tokens), 1))
    swept = sweep(graph, emission_costs(graph, nothing, np.zeros(1, dtype=np.int64)))
    return graph.string_of(swept.paths(np.zeros(1, dtype=np.int64))[0])
