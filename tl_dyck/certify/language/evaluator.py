"""A claim about models that are counted, profile by profile.

Knows: which function of profiles serves a model and an ending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any, final

import numpy as np
from numpy.typing import NDArray

from tl_dyck.certify.exact.balls import Array, IntArray, folded
from tl_dyck.certify.language.claims import PrefixClaim, known
from tl_dyck.certify.language.counted import Counted, NetworkSymbols
from tl_dyck.certify.language.forms import Form, has_form
from tl_dyck.certify.language.profiles import Counts, Ending, Profiles
from tl_dyck.certify.language.tally import JudgedPrefixes

_KEPT = 4096
"""Endings whose functions are kept: languages of many types have more than memory can hold."""


@final
class Evaluator:
    """A claim about one model or two, profile by profile.

    Args:
        symbols: what each model makes of the symbols.
        claim: what is asked.
        profiles: of the language.
    """

    def __init__(
        self, symbols: Sequence[NetworkSymbols], claim: PrefixClaim, profiles: Profiles
    ) -> None:
        self.symbols, self.claim, self.profiles = list(symbols), claim, profiles
        self.functions = lru_cache(_KEPT)(self._functions)

    def __reduce__(self) -> tuple[Any, ...]:  # what is kept takes less time to make than to send
        return Evaluator, (self.symbols, self.claim, self.profiles)

    @property
    def has_bos(self) -> bool:
        """Whether the first model reads a BOS; without one it says nothing of the empty prefix."""
        return self.symbols[0].has_bos

    @property
    def has_form(self) -> bool:
        """Whether all models have a form that boxes can bound."""
        return all(has_form(each.network.config) for each in self.symbols)

    def _functions(self, ending: Ending) -> list[Counted | Form] | None:
        """What evaluates profiles, one per model; None where the claim says nothing."""
        made: list[Counted | Form] = []
        for symbols in self.symbols:
            config = symbols.network.config
            asked = self.claim.objectives(ending, config.d_vocab_out)
            if asked is None or (not symbols.has_bos and ending == Ending((), None)):
                return None
            # a form takes three products of matrices for a block; `Counted` carries balls along
            make = Form if has_form(config) else Counted
            made.append(make(symbols, ending, asked))
        return made

    def margins(self, ending: Ending, pairs: Counts) -> tuple[Array, Array]:
        """The claim's margins of profiles, and bounds of their errors, ``[n]`` each."""
        # (1, m): the 1 takes BOS and stack
        rows = np.concatenate([np.ones((len(pairs), 1)), pairs], axis=1)
        answers = [function.values(rows) for function in self.functions(ending) or ()]
        with np.errstate(divide="ignore", invalid="ignore"):
            return known(*self.claim.margins(ending, answers))

    def judged(self, ending: Ending, pairs: Counts) -> JudgedPrefixes:
        """What becomes of the claim on profiles that occur, ``[n, kinds]``."""
        profiles = self.profiles

        def weigh(at: IntArray) -> tuple[IntArray, Array, Array]:
            mine = pairs[at]
            # int64, since pairs are int16
            lengths = 2 * folded(np.add, mine).astype(np.int64) + ending.depth
            return lengths, profiles.log_string(ending, mine), profiles.log_count(ending, mine)

        return JudgedPrefixes(ending, *self.margins(ending, pairs), pairs, "pairs", weigh)

    def judged_strings(self, strings: NDArray[np.int64]) -> Iterator[JudgedPrefixes]:
        """The same of the profiles of prefixes of one length, without BOS, in groups."""
        endings, pairs = self.profiles.of_strings(strings)
        places: dict[Ending, list[int]] = defaultdict(list)
        for index, ending in enumerate(endings):
            places[ending].append(index)
        for ending, at in places.items():
            if self.functions(ending) is not None:
                yield self.judged(ending, pairs[at])
