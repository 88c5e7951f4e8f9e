"""Tasks of languages that an automaton writes, such as counters: sampling and law come with it."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, SupportsIndex, final

import numpy as np
import torch
from jaxtyping import Bool, Float64, Int
from numpy.typing import NDArray
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongValueError
from tl_dyck.kit.files import sha256
from tl_dyck.language import DyckStringError, SymbolLanguage
from tl_dyck.tasks.draws import check_task_lengths, of_mixed_lengths, seeded
from tl_dyck.tasks.places import NONE, PlacePrefixes, check_places, prefixes_at
from tl_dyck.tasks.tables import Table, as_written, moves_of

_LONGEST = 100_000  # symbols: tables have a row for each length, made one after the other


@final
@checked
@dataclass(frozen=True, kw_only=True)
class AutomatonTask:
    """A task whose strings are written by an automaton: say what may follow, and the rest is known.

    A string has as its weight the product of the weights of its symbols. Of the strings of a length
    that end where they may, each is drawn with a probability proportional to its weight; the length
    is drawn uniformly, and is not known to a model. Strings are drawn without rejection, and the
    law of the next symbol and the entropy floor are exact, from tables over states and lengths.

    Examples:
        >>> task = AutomatonTask(
        ...     name="pairs",  # (ab)*
        ...     symbols=("a", "b"),
        ...     start="even",
        ...     moves=lambda state: {"a": "odd"} if state == "even" else {"b": "even"},
        ...     ends=lambda state: state == "even",
        ...     train_lengths=(2, 4),
        ...     long_lengths=(10, 20),
        ... )
        >>> task.language.to_string(task.sample(1, long=True, seed=0)[0])
        'ababababababab'

    Attributes:
        name: how people call it.
        symbols: in token order.
        start: the state before the first symbol; states are anything that can be hashed.
        moves: from a state to the symbols that may follow, and the state after each.
        weight: of a symbol in a state, positive; None for 1.
        ends: whether a string may end in a state; None for everywhere.
        counted: whether a model must predict this symbol, written in this state; None where it is
            the only one that may follow.
        answer: what is to be said after a string that leaves this state, as the index of a logit,
            where that is no symbol that follows but, say, a class; None in a state that asks for
            nothing. Logit i of a model that predicts tokens is of symbol i, see `tl_dyck.adopt`.
            `certify_language` reads it; None where `counted` says what must be known.
        places: the place in a string, from 0, of each symbol that `moves` reads: strings then have
            as many symbols as places, and may be read in whatever order keeps states few, a sum
            digit by digit; None for from left to right, of any length.
        asked: with `places`: after which places something must be said, which is the task's
            `answer` to the state that the whole string leaves, else the symbol at the next place;
            where the symbols up to there tell what it is. None for all, or of `answer` the last. A
            model that looks ahead is asked at one place, for the `answer` to the whole string.
        train_lengths: lengths, in symbols, of training strings, each as often; of `places` there is
            one.
        long_lengths: shortest and longest length of the strings that test length generalisation;
            the tables reach so far. Likewise.
        probe_string: see `SymbolLanguage`.

    Raises:
        TypeError: a length is no integer.
        ValueError: symbols that cannot be told apart, a length beyond 100,000 or of which there is
            no string, or more states and lengths than tables hold.
    """

    name: str
    symbols: Sequence[str]
    start: Hashable
    moves: Callable[[Any], Mapping[str, Any]]
    weight: Callable[[Any, str], float] | None = None
    ends: Callable[[Any], bool] | None = None
    counted: Callable[[Any, str], bool] | None = None
    answer: Callable[[Any], int | None] | None = None
    places: Sequence[int] | None = None
    asked: Sequence[int] | None = None
    train_lengths: Sequence[int] = ()
    long_lengths: Sequence[int] = ()
    probe_string: str | None = None

    def __post_init__(self) -> None:
        check_places(self)
        check_task_lengths(self, _LONGEST)
        # symbols that cannot be told apart are refused here
        object.__setattr__(self, "symbols", self.language.symbols)
        absent = sorted(set(self.train_lengths) - set(self._short.lengths(self.train_lengths)))
        if absent:
            told = "leave it out" if self.places is None else "its places need one"
            raise ValueError(f"{self.name} has no string of length {absent[0]}; {told}")

    @cached_property
    def language(self) -> SymbolLanguage:
        """The symbols, under the name of the task."""
        return SymbolLanguage(self.name, self.symbols, self.probe_string)

    @property
    def entropy_floor(self) -> float:
        """The least cross-entropy, nats per token, that any model can reach on training strings.

        Every token counts the same; the end of a string is not predicted. Exact.
        """
        return self._short.chain.nats(self.train_lengths) / sum(self.train_lengths)

    @checked
    def sample(
        self,
        n: SupportsIndex,
        *,
        long: bool = False,
        generator: torch.Generator | None = None,
        seed: SupportsIndex | None = None,
    ) -> Int[Tensor, "n pos"]:
        """As `Task.sample`; of `long_lengths`, as far as there are strings of a length.

        Raises:
            ValueError: both a generator and a seed are given, or neither; or there is no long
                string.
        """
        source = seeded(generator, seed)
        table, lengths = self._short, self.train_lengths
        if long:
            shortest, longest = self.long_lengths
            table, lengths = self._long, self._long.lengths(range(shortest, longest + 1))
            if not lengths:
                raise ValueError(f"{self.name} has no string of {shortest} to {longest} symbols")

        def draw(n: int, length: int) -> Tensor:
            numbers = torch.rand(n, length, generator=source, dtype=torch.float64)
            strings = table.chain.draw(numbers.numpy(), length)
            written = strings if self.places is None else as_written(self.places, strings)
            return torch.from_numpy(written)

        return of_mixed_lengths(n, lengths, draw, self.language.bos_token, source)

    @checked
    def counted_positions(self, tokens: Int[Tensor, "n pos"]) -> Bool[Tensor, "n pos"]:
        """Which tokens a model must predict right, by `counted`; with `places`, by `asked`.

        Raises:
            DyckStringError: a string is no prefix of the language.
        """
        if self.asked is not None:
            found = torch.zeros(tokens.shape, dtype=torch.bool)
            for place in self.asked if self.answer is None else ():
                column, prefixes, states = self._prefixes(tokens, place)
                if column + 1 < tokens.shape[-1]:
                    found[:, column + 1] = torch.from_numpy(prefixes.answer[states] != NONE)
            return (found & (tokens.cpu() < self.language.bos_token)).to(tokens.device)
        table, states = self.states_of(tokens)
        # the state that a symbol was written in; what rolls round to place 0 stands at BOS, not
        # counted
        before = np.roll(states, 1, axis=-1)
        # BOS has no column: any will do, as it is masked below
        symbol = np.minimum(tokens.cpu().numpy(), self.language.bos_token - 1)
        found = table.counted[before, symbol] & (tokens.cpu().numpy() < self.language.bos_token)
        return torch.from_numpy(found).to(tokens.device)

    @checked
    def allowed(self, tokens: Int[Tensor, "n pos"]) -> Bool[Tensor, "n pos symbol"]:
        """Which symbols may follow each token, as sets: k-hot targets; after filling, the last.

        Examples:
            >>> from tl_dyck import load_task
            >>> task = load_task("dyck-1")
            >>> task.allowed(task.language.parse("(())")[None])[0].int().tolist()
            [[1, 1], [1, 1], [1, 1], [1, 0]]

        Raises:
            DyckStringError: a string is no prefix of the language.
        """
        if self.places is not None:
            sets = torch.zeros((*tokens.shape, len(self.symbols)), dtype=torch.bool)
            for place in range(-1, len(self.places)):
                column, prefixes, after = self._prefixes(tokens, place)
                if 0 <= column < tokens.shape[-1]:
                    sets[:, column] = torch.from_numpy(prefixes.may[after])
            return sets.to(tokens.device)
        table, states = self.states_of(tokens)
        found, which = np.unique(states, return_inverse=True)
        moves = [moves_of(self, table.states[state]) for state in found.tolist()]
        may = np.array([[symbol in each for symbol in self.symbols] for each in moves])
        rows = may.reshape(-1, len(self.symbols))[which.reshape(states.shape)]
        return torch.from_numpy(rows).to(tokens.device)

    @checked
    def next_token_probs(
        self, tokens: Int[Tensor, "n pos"]
    ) -> Float64[Tensor, "n pos d_vocab"] | None:
        """As `Task.next_token_probs`, of strings whose length is not known.

        With `places` nobody knows it.

        Raises:
            DyckStringError: a string is no prefix of the language.
        """
        if self.places is not None:
            self.language.check_tokens(tokens)
            return None
        _, states = self.states_of(tokens)
        read = (tokens != self.language.bos_token).long().cumsum(-1).cpu().numpy()
        law = self._short.chain.law(self.train_lengths)
        probs = np.zeros((*tokens.shape, self.language.d_vocab))
        # beyond training lengths, and in states that they do not reach, there is no law
        inside = (read < len(law)) & (states < len(self._short.states))
        # the last is BOS, which never follows
        probs[inside, :-1] = law[read[inside], states[inside]]
        return torch.from_numpy(probs).to(tokens.device)

    def to_dict(self) -> dict[str, Any]:
        """Name, symbols, lengths, and a digest of all that training strings reach."""
        return {
            "name": self.name,
            "symbols": list(self.symbols),
            "probe_string": self.language.probe_string,
            "train_lengths": list(self.train_lengths),
            "long_lengths": list(self.long_lengths),
            "automaton": sha256(self._short.to_list()),
            **(
                {}
                if self.places is None
                else {"places": [*self.places], "asked": [*(self.asked or ())]}
            ),
        }

    @cached_property
    def _short(self) -> Table:
        return Table.explore(self, max(self.train_lengths))

    @cached_property
    def _long(self) -> Table:
        return Table.explore(self, max(*self.train_lengths, *self.long_lengths))

    @cached_property
    def explored(self) -> dict[tuple[int, bool], PlacePrefixes]:
        """What `tl_dyck.tasks.places.prefixes_at` has found of a task with `places`."""
        return {}

    def _prefixes(self, tokens: Tensor, place: int) -> tuple[int, PlacePrefixes, NDArray[np.int64]]:
        """The column in which a place is, the prefixes up to it, and the state after each string's.

        A string that has no such place, as it is filled up with BOS before, has state 0.
        """
        ids, bos = self.language.check_tokens(tokens).cpu().numpy(), self.language.bos_token
        first = int(bool(ids.size) and bool((ids[:, 0] == bos).all()))
        strings, prefixes = ids[:, first:], prefixes_at(self, place)
        if (strings[:, self.train_lengths[0] :] < bos).any():
            raise DyckStringError(f"strings of {self.name} have {self.train_lengths[0]} symbols")
        states = np.zeros(len(ids), dtype=np.int64)
        if place >= strings.shape[1]:
            return place + first, prefixes, states
        there = (strings[:, : place + 1] < bos).all(1)
        states[there] = prefixes.states(strings[there])
        if (states < 0).any():
            text = self.language.to_string(tokens[int(states.argmin())])
            raise DyckStringError(f"place {place} makes it no prefix of {self.name}: {text!r}")
        return place + first, prefixes, states

    def states_of(self, tokens: Int[Tensor, "n pos"]) -> tuple[Table, np.ndarray]:
        """The table, and the number in it of the state after each token; BOS changes none.

        Raises:
            DyckStringError: a string is no prefix of the language.
            ValueError: one is longer than any of the task, or it has `places`, which no state
                follows.
        """
        if self.places is not None:
            raise WrongValueError(f"{self.name} reads its places in another order than they stand")
        ids = self.language.check_tokens(tokens).cpu().numpy()
        read = int((ids < self.language.bos_token).sum(-1).max(initial=0))
        # the large table is made only where it is needed
        table = self._short if read <= self._short.chain.longest else self._long
        longest = table.chain.longest
        if read > longest:
            raise ValueError(
                f"a string of {read} symbols is longer than any of {self.name}: {longest}"
            )
        states = table.chain.walk(ids)
        if (states < 0).any():
            *where, at = np.argwhere(states < 0)[0].tolist()
            text = self.language.to_string(tokens[tuple(where)])
            raise DyckStringError(f"position {at} makes it no prefix of {self.name}: {text!r}")
        return table, states

    def __getstate__(self) -> dict[str, Any]:
        """Without the tables, which are made again where they are needed."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}
