"""Errors that are found by running strings, before anything is proved.

Uniform draws of long strings hardly ever have a run of equal symbols, and that is what breaks many
models. So what is run are all short strings, walks that change rarely, and strings as the task
draws them. One forward pass of a causal model gives its answers after every prefix. A wrong string
is then cut, to find a shorter one, and stretched, to find others at the lengths that follow.

Knows: which strings are run first.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import final

import numpy as np

from tl_dyck.certify.deadline import RUN_A_LOOK, Deadline, OutOfTime
from tl_dyck.certify.exact.balls import BoolArray, IntArray
from tl_dyck.certify.language.asking import Asking
from tl_dyck.certify.language.automata import NOTHING
from tl_dyck.certify.language.runner import Runner, Tokens
from tl_dyck.certify.language.running import reaching
from tl_dyck.tasks.tables import as_written

_SECONDS = 1.0
"""For all that is drawn; and as much again for cutting and stretching what is wrong."""

_SHORT = 2048
"""Every string is run of the lengths that have at most so many in all."""

STAYS = (0.0, 0.5, 0.7, 0.8, 0.9, 0.95, 0.98)
"""How probably a walk repeats its last symbol where that may follow. Of a published model 122 of
400 walks from 0.5 to 0.98 were wrong somewhere, and of 900 with 0 none."""

_WALKS = 64
"""Of each probability, half of them as long as possible."""

_MOST_NUMBERS = 4_000_000
"""Of logits and of scores at once, 32 MB."""


@final
class Attempts:
    """Strings that were run, and the worst of each length and answer.

    Args:
        asking: what must be positive.
        runner: the model.
        lengths: of which something is to be known.
        deadline: when to stop.

    Attributes:
        worst: of each length and answer, the least margin as the model computes it, and its string.
        strings_run: how many.
    """

    def __init__(
        self, asking: Asking, runner: Runner, lengths: Sequence[int], deadline: Deadline
    ) -> None:
        self.asking, self.runner, self.deadline = asking, runner, deadline
        self.worst: dict[tuple[int, int], tuple[float, tuple[int, ...]]] = {}
        self.strings_run = 0
        self._asked = np.zeros(asking.longest + 1, dtype=bool)
        # index n: whether something is asked after n symbols
        self._asked[[length for length in lengths if asking.numbers[length]]] = True
        self._longest = int(np.flatnonzero(self._asked).max(initial=0))
        self._whole = asking.task.places is not None  # strings are drawn whole, and not cut

    @property
    def wrong(self) -> tuple[int, ...] | None:
        """The shortest wrong string; of these the one with the least margin."""
        lost = [(len(string), margin, string) for margin, string in self.worst.values()]
        # tuples compare by length, then by margin
        return min((each for each in lost if each[1] < 0), default=(0, 0.0, None))[2]

    def draw(self) -> None:
        """Run short strings, walks that change rarely, and strings of the task; cut the wrong."""
        with contextlib.suppress(OutOfTime):
            limit = self._limit()
            for strings in self._drawn():
                self._run(strings, limit)
        self.shorten()

    def shorten(self) -> None:
        """Cut the shortest wrong string as long as that gives a shorter one, then stretch it."""
        if self._whole:
            return
        with contextlib.suppress(OutOfTime):
            limit, known = self._limit(), None
            while self.wrong not in (None, known):
                known = self.wrong
                assert known is not None
                self._run(cut(known), limit)
            if known is not None:
                self._run(_stretched(known, self._longest), limit)

    def _limit(self) -> Deadline:
        return Deadline.after(min(_SECONDS, self.deadline.left))

    def _drawn(self) -> Iterator[Tokens]:
        after, chain = self.asking.strings.after, self.asking.strings.chain
        # the same strings for the same question
        generator = np.random.default_rng(0)
        most = self.asking.task.train_lengths[0] if self._whole else self._longest
        short = _every(after, most)
        if short.shape[1] == most or not self._whole:
            yield short
        if short.shape[1] == most:
            return
        alive = reaching(after, np.ones(len(after), dtype=bool), most)
        longest = int(np.flatnonzero(alive[:, 0]).max())
        targets = np.array([most]) if self._whole else np.flatnonzero(alive[:, 0] & self._asked)
        # 0 last: uniform walks find least
        for stays in STAYS[1:] + STAYS[:1]:
            ends = generator.choice(targets, _WALKS) if len(targets) else np.array([longest])
            # half as long as possible, half of any length
            ends[: len(ends) // 2] = longest
            yield walks(after, alive, ends, stays, generator)
        if chain is not None:
            lengths = np.flatnonzero(np.isfinite(chain.log_ways[: most + 1, 0]))
            for length in lengths[lengths > 0][-1:].tolist():  # prefixes are judged, too
                yield chain.draw(generator.random((_WALKS, length)), length)

    def _run(self, strings: Tokens, deadline: Deadline) -> None:
        """Run strings of one length, which are given as far as they go (-1 fills them up)."""
        places = self.asking.task.places
        strings = strings if places is None else as_written(places, strings)[:, : self._longest]
        length = strings.shape[1]
        config = self.asking.margins(self._longest).network.config
        # of each position: logits, scores of each head, and the stream
        width = config.d_vocab_out + config.n_heads * length + config.d_model
        # 512: no batch takes so long that a time limit is missed by much
        step = max(1, min(512, _MOST_NUMBERS // ((length + 1) * width)))
        for start in range(0, len(strings), step):
            some = strings[start : start + step]
            deadline.check(len(some) * (length + 1) / 11 / RUN_A_LOOK)  # which is of 11 tokens
            self._judge(some)
            self.strings_run += len(some)

    def _judge(self, strings: Tokens) -> None:
        """Note the least margin of each length and answer."""
        # the shortest string that the model answers: empty only with BOS
        length, first = strings.shape[1], int(self.runner.bos is None)
        if first > length:
            return
        wanted = self.asking.wanted(strings)[:, first:]
        wanted[:, ~self._asked[first : length + 1]] = NOTHING
        asked = np.flatnonzero(self._asked).tolist()
        logits = self.runner.everywhere(np.maximum(strings, 0), asked)
        for lengths in self.asking.alike(range(first, length + 1)):
            columns = slice(lengths[0] - first, lengths[-1] + 1 - first)
            here = wanted[:, columns]
            for answer in np.unique(here[here != NOTHING]).tolist():
                margin, where = np.full(here.shape, np.inf), here == answer
                objectives = self.asking.margins(lengths[0]).objectives(answer)
                values = objectives.values(logits[:, columns][where])
                margin[where] = np.nan_to_num(values.min(-1, initial=np.inf), nan=np.inf)
                lowest = margin.argmin(0)
                for at in np.flatnonzero(where.any(0)).tolist():
                    row = int(lowest[at])
                    string = tuple(strings[row, : lengths[0] + at].tolist())
                    self.see(answer, float(margin[row, at]), string)

    def see(self, answer: int, margin: float, string: tuple[int, ...]) -> None:
        """Note a string, if its margin is the least of its length and answer."""
        where = len(string), answer
        if where not in self.worst or margin < self.worst[where][0]:
            self.worst[where] = margin, string


def _every(after: IntArray, longest: int) -> Tokens:
    """Every string, as long as there are few; filled up with -1 where a string goes no further."""
    state, strings = np.zeros(1, dtype=np.int64), np.zeros((1, 0), dtype=np.int64)
    ended: list[Tokens] = []
    for length in range(longest):
        moves = after[state] != NOTHING
        if moves.sum() + sum(map(len, ended)) > _SHORT:
            break
        here, token = np.nonzero(moves)
        ended.append(strings[~moves.any(1)])
        state = after[state[here], token]
        strings = np.concatenate([strings[here], token[:, None]], axis=1)
        if not len(strings):
            strings = np.empty((0, length + 1), dtype=np.int64)
            break
    return np.concatenate([_filled(each, strings.shape[1]) for each in [*ended, strings]])


def walks(
    after: IntArray, alive: BoolArray, ends: IntArray, stays: float, generator: np.random.Generator
) -> Tokens:
    """Strings of some lengths that repeat their last symbol with a probability, where it may be."""
    strings = np.full((len(ends), int(ends.max())), -1)
    state, last = np.zeros(len(ends), dtype=np.int64), np.full(len(ends), -1)
    each = np.arange(len(ends))
    for at in range(strings.shape[1]):
        # how many symbols are still to follow the one that is chosen now
        left = np.maximum(ends - at - 1, 0)
        may = alive[left[:, None], after[state]] & (at < ends)[:, None]
        weight = generator.random(may.shape) * may
        stay = (last >= 0) & may[each, last] & (generator.random(len(ends)) < stays)
        symbol = np.where(stay, last, weight.argmax(1))
        symbol = np.where(at < ends, symbol, -1)
        strings[:, at] = symbol
        state = np.where(symbol < 0, state, after[state, symbol])
        last = symbol
    return strings


def _sizes(length: int) -> list[int]:
    """1, 2, 4, … below a length: what is cut out at once, or put in."""
    return [2**power for power in range(max(1, length.bit_length()))]


def cut(string: tuple[int, ...]) -> Tokens:
    """A string without some symbols that stand together, filled up with -1."""
    length = len(string)
    sizes = [(size, length - size + 1) for size in _sizes(length)]
    rows = {(*string[:at], *string[at + size :]) for size, n in sizes for at in range(n)}
    return _stacked(rows, length)


def _stretched(string: tuple[int, ...], longest: int) -> Tokens:
    """A string one of whose symbols stands there several times more."""
    sizes = [size for size in _sizes(longest - len(string)) if len(string) + size <= longest]
    rows = {
        (*string[:at], *string[at : at + 1] * size, *string[at:])
        for size in sizes
        for at in range(len(string))
    }
    return _stacked(rows, longest)


def _stacked(rows: set[tuple[int, ...]], length: int) -> Tokens:
    each = [_filled(np.array([row], dtype=np.int64), length) for row in sorted(rows)]
    return np.concatenate([np.empty((0, length), dtype=np.int64), *each])


def _filled(strings: Tokens, length: int) -> Tokens:
    """With -1 behind them, [n, length]."""
    more = length - strings.shape[1]
    return np.pad(strings, ((0, 0), (0, more)), constant_values=-1)
