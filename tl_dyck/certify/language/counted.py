"""A one-layer network without positions as a function of profiles, in balls.

For the query q of a last symbol, head h gives symbol s the weight E_s > 0, and returns

    o^h = N^h / Z^h,   N^h = Σ_s n_s E^h_s v^h_s,   Z^h = Σ_s n_s E^h_s,

where n_s is how often s occurs: n = (1, m) J for pairs m, row 0 of J counting BOS and the stack,
row i the two brackets of a pair of kind i. `Counted` evaluates any readout of that; its results are
balls that hold the value for the weights as real numbers.
"""

from __future__ import annotations

from typing import Any, final

import numpy as np
import torch

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, gamma
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.symbols import SymbolTable
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import TwoLayerRNN


@final
class NetworkSymbols:
    """The symbols of a language, and what a network makes of them.

    Args:
        rnn: of a model without positions.
        language: whose brackets are its tokens.

    Raises:
        CertifyError: the network has other tokens.
    """

    def __init__(self, rnn: TwoLayerRNN, language: DyckLanguage) -> None:
        config = rnn.config
        if config.d_vocab < language.d_vocab or config.bos_token not in (None, language.bos_token):
            raise CertifyError(
                f"{config.model_name} reads {config.d_vocab} tokens and starts with "
                f"{config.bos_token}; the tokens of {language} are 0..{language.bos_token}, BOS "
                "last"
            )
        self.network, self.language = Network(rnn), language
        self.has_bos = config.bos_token is not None
        k, deepest = language.n_types, language.max_depth
        # BOS, then D openings and D closings of each type: every symbol once
        tokens = [language.bos_token] * self.has_bos
        for a in range(k):
            tokens += [2 * a] * deepest + [2 * a + 1] * deepest
        string = torch.tensor(tokens)
        states = rnn.states(string)
        self.table: SymbolTable = self.network.symbols(string.numpy(), states.numpy())
        self._scores, self._score_error = self.table.scores(np.arange(len(tokens)))
        self._largest_score = float(abs(self._scores).max())

    def __reduce__(self) -> tuple[Any, ...]:  # tables take less time to make than to send
        return NetworkSymbols, (self.network.rnn, self.language)

    @property
    def size(self) -> int:
        """Number of symbols."""
        return len(self.table.tokens)

    def opening(self, a: int, level: int) -> int:
        """Index of the opening bracket of a type at a level 1..D."""
        # BOS, then type by type D openings and D closings, as `tokens` is made above
        return self.has_bos + 2 * a * self.language.max_depth + level - 1

    def closing(self, a: int, level: int) -> int:
        """Index of the closing bracket that ends a pair of a level 1..D."""
        deepest = self.language.max_depth
        # closings in the order of the string that goes up and down: the deepest level first
        return self.has_bos + (2 * a + 1) * deepest + deepest - level

    def last(self, ending: Ending) -> int:
        """Index of the last symbol; that of BOS for the empty prefix."""
        if ending.closes is not None:
            return self.closing(ending.closes, ending.depth + 1)
        return self.opening(ending.stack[-1], ending.depth) if ending.stack else 0

    def of_ending(self, ending: Ending) -> Array:
        """J: how often each symbol occurs in BOS and stack, and in a pair of each kind."""
        k, deepest = self.language.n_types, self.language.max_depth
        counts = np.zeros((1 + k * deepest, self.size))
        if self.has_bos:
            counts[0, 0] = 1
        for level, a in enumerate(ending.stack, start=1):
            counts[0, self.opening(a, level)] += 1
        for level in range(1, deepest + 1):
            for a in range(k):
                # row 0 is BOS and stack
                row = counts[1 + (level - 1) * k + a]
                row[self.opening(a, level)] += 1
                row[self.closing(a, level)] += 1
        return counts

    def weights(self, query: int) -> Ball:
        """E_s up to a common factor, at most 1, ``[S, H]``, for the query of a symbol."""
        scores = self._scores[query]
        mid = np.exp(scores - scores.max(0))
        # exp(a) for a known up to an error, with 4 ulp, and the rounding of a - max
        # Of a - max only a is off, by `_score_error`, for the maximum cancels; the difference is
        # rounded once, to 2 u of the largest: both generously. The last 8 u are the 4 ulp.
        error = np.expm1(2 * self._score_error[query] + 8 * UNIT * self._largest_score) + 8 * UNIT
        return Ball(mid, mid * error)


@final
class Counted:
    """Objectives of the logits after the prefixes of an ending, for any one-layer readout.

    Args:
        symbols: of the network.
        ending: of the prefixes.
        objectives: K functions of the logits.
    """

    def __init__(self, symbols: NetworkSymbols, ending: Ending, objectives: Objectives) -> None:
        self._network, table = symbols.network, symbols.table
        query = symbols.last(ending)
        self._weights = symbols.weights(query)
        self._counts = symbols.of_ending(ending)
        self._value, self._r = table.value, table.r.at(slice(query, query + 1))
        self._largest, self._value_error = table.largest_value, table.value_error
        self._unembedding = self._network.unembedding(objectives)

    def values(self, rows: Array) -> tuple[Array, Array, Array]:
        """Evaluate profiles.

        Args:
            rows: (1, m), ``[n, 1 + kinds]``.

        Returns:
            The objectives, ``[n, K]``, a bound of their errors, ``[n, K]``; what both were
            multiplied with, 1, and its error, 0: ``[n, 2]``.
        """
        n, weight = rows @ self._counts, self._weights
        total = n @ weight.mid
        # [profile, head, d_head]
        z = np.einsum("bs,sh,she->bhe", n, weight.mid, self._value.mid, optimize=True)
        # where all that occurs has underflowed nothing is known, whatever it is divided by
        z /= np.where(total > 0, total, 1.0)[..., None]
        # weights that are off by a relative ε move a weighted mean by at most 2ε/(1-ε) max |v|;
        # what underflows is less than S 10⁻³⁰⁰ of the largest weight, which need not occur
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # S symbols of 1e-300 each: 1e-290 has room for 10¹⁰
            epsilon = (n @ weight.rad + 1e-290) / total
            # as in `network.weights_error`
            relative = np.where(epsilon < 0.5, 2 * epsilon / (1 - epsilon), np.inf)
            # N and Z are sums over S symbols, and a quotient follows
            relative += 4 * gamma(weight.mid.shape[0] + 8)
            rad = relative[..., None] * self._largest + self._value_error
            out = Ball(z, rad * (1 + 1e-9) + 1e-300).reshape(len(n), -1)
            shape = (len(n), self._r.mid.shape[1])
            r = Ball(*(np.broadcast_to(part, shape) for part in self._r))
            mid, rad = self._unembedding.values(self._network.readout(r, out))
        return mid, rad, np.tile([1.0, 0.0], (len(n), 1))
