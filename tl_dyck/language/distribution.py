"""The distribution D(q, k, D) over a bounded Dyck language's strings, and exact facts about it.

After Wen et al. 2023 (arXiv 2312.01429). The next token is an open with probability q (each type
equally likely) and a close with probability 1 - q; at depth 0 it is an open for certain, at depth D
a close. There is never more than one valid close. Two modes:

- "prefix": that process, run for a given number of tokens;
- "complete": the same, conditional on depth 0 at the end, exactly.

All probabilities are float64, all entropies in nats. BOS is given: it is never predicted and has
probability 0.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import final

import numpy as np
import torch
from jaxtyping import Float64, Int
from numpy.typing import NDArray
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import MOST_DRAWS, check_integer, check_length, shown
from tl_dyck.language.chain import choice_nats, depth_chain, free_open_probability
from tl_dyck.language.checks import DyckStringError, check_length_of, check_mode
from tl_dyck.language.dyck import DyckLanguage
from tl_dyck.language.sampling import End, draw_tokens


@final
@checked
@dataclass(frozen=True)
class DyckDistribution:
    """D(q, k, D).

    Examples:
        >>> from tl_dyck import DyckLanguage
        >>> distribution = DyckDistribution(DyckLanguage(2, 4))
        >>> prefix = distribution.language.parse("[(")
        >>> distribution.next_token_probs(prefix)[-1].tolist()  # "[", "]", "(", ")", BOS
        [0.25, 0.0, 0.25, 0.5, 0.0]

    Attributes:
        language: gives k and D.
        q: probability of an open where both an open and a close are allowed; strictly between 0
            and 1.

    Raises:
        TypeError: `language` is no `DyckLanguage`, or `q` no number.
        ValueError: `q` is not strictly between 0 and 1.
    """

    language: DyckLanguage
    q: float = 0.5

    def __post_init__(self) -> None:
        if not isinstance(self.language, DyckLanguage):
            raise TypeError(
                f"language must be a DyckLanguage, got {self.language!r}; write DyckLanguage(2, 4)"
            )
        if isinstance(self.q, bool) or not isinstance(self.q, float | int):
            raise TypeError(f"q must be a number, got {self.q!r} ({type(self.q).__name__})")
        if not 0 < self.q < 1:
            raise ValueError(
                f"q must be strictly between 0 and 1, got {shown(self.q)}: "
                "it is the probability of an open"
            )

    # --- exact facts ------------------------------------------------------------------------------

    @checked
    def next_token_probs(
        self, tokens: Int[Tensor, "*batch pos"]
    ) -> Float64[Tensor, "*batch pos d_vocab"]:
        """Exact distribution of the next token after each position, in mode "prefix".

        (Of complete strings it depends on what is known of the length: see
        `DyckTask.next_token_probs`.)

        Args:
            tokens: prefixes of the language, with or without BOS. Without one, nothing is said
                about the first token.

        Returns:
            Probabilities, on the device of `tokens`.

        Raises:
            DyckStringError: a string is no prefix of the language.
        """
        language = self.language
        self.refuse_invalid(tokens)
        tokens, depth = tokens.long(), language.depth(tokens)
        opening = torch.tensor(self.open_probability(), device=tokens.device)[depth]
        probs = torch.zeros(
            *tokens.shape, language.d_vocab, dtype=torch.float64, device=tokens.device
        )
        # opening brackets are the even tokens; types are as likely as each other
        probs[..., 0 : language.n_brackets : 2] = (opening / language.n_types)[..., None]
        close = language.right_bracket(tokens)
        close = close.where(close >= 0, language.bos_token)  # at depth 0, where P(BOS) = 0
        return probs.scatter_(-1, close[..., None], 1 - opening[..., None])

    @checked
    def log_prob(
        self, tokens: Int[Tensor, "*batch pos"], *, mode: str = "prefix"
    ) -> Float64[Tensor, "*batch"]:
        """Exact log-probability of each string among those of its length.

        BOS and padding count for nothing.

        Args:
            tokens: any strings; their lengths may differ by padding.
            mode: "prefix" or "complete".

        Returns:
            Nats; -inf for what is no prefix, or in mode "complete" not complete. The empty string
            has 0.
        """
        check_mode(mode)
        language = self.language
        opens, closes = language.is_open(tokens), language.is_close(tokens)
        depth = language.depth(tokens)
        free = torch.tensor(self.open_probability(), device=tokens.device)
        # `depth` is that after a bracket: before an opening one it was one less
        before = (depth - opens.long() + closes.long()).clamp(0, language.max_depth)
        # log1p, for 1 − q keeps its digits where q is small
        log_open, log_close = (free[before] / language.n_types).log(), torch.log1p(-free[before])
        terms = torch.where(opens, log_open, torch.where(closes, log_close, 0.0))
        valid = language.is_prefix(tokens)
        result = terms.sum(-1)
        if mode == "complete":
            valid = valid & language.is_complete(tokens)
            lengths = torch.where(valid, (opens | closes).sum(-1), 0)
            longest = int(lengths.max()) if lengths.numel() else 0
            log_ways = depth_chain(self.q, language.max_depth, longest).log_ways[:, 0]
            # given that it is complete: over the probability that a string of its length is
            result = result - torch.tensor(log_ways, device=tokens.device)[lengths]
        return torch.where(valid, result, -math.inf)

    @checked
    def entropy_floor(self, lengths: int | Sequence[int], mode: str) -> float:
        """The least cross-entropy that any model can reach, in nats per predicted token.

        The string's length N is uniform over `lengths` and not known to the model (for one length:
        known). Every token of every string counts the same: the floor is (expected nats of a
        string) / (mean length). The best model predicts, after i tokens, with the posterior over
        those N that exceed i: in mode "complete" the fact that the string may be longer changes the
        odds of a close, in mode "prefix" it changes nothing.

        Computed by an exact recursion over (position, depth). The end of a string is not predicted.

        Args:
            lengths: one length or several, each at least 1 and, in mode "complete", even. A length
                given twice counts twice.
            mode: "complete" or "prefix".

        Raises:
            ValueError: no lengths, a length below 1, an odd length in mode "complete", or `mode`
                unknown.
        """
        check_mode(mode)
        sizes = list(lengths) if isinstance(lengths, Iterable) else [lengths]
        if not sizes:
            raise ValueError("lengths is empty; give at least one length")
        for length in sizes:
            check_length_of(length, mode, least=1)
        k, deepest = self.language.n_types, self.language.max_depth
        if mode == "complete":
            chain = depth_chain(self.q, deepest, max(sizes))
            nats = chain.nats(sizes, np.array([math.log(k), 0.0]))
        else:
            opens, longest = self.open_probability(), max(sizes)
            entropy = choice_nats(np.stack([opens, 1 - opens], -1)) + opens * math.log(k)
            # in mode "prefix" a law does not depend on the length, so only how many go on counts
            going = (np.array(sizes)[:, None] > np.arange(longest)).sum(0)  # strings that go on
            nats = float(going @ (self.depth_probability(longest - 1) @ entropy))
        return float(nats / sum(sizes))

    def open_probability(self) -> NDArray[np.float64]:
        """o(d), d = 0..D: the probability of an opening bracket at depth d in mode "prefix".

        That is q, but 1 at depth 0 and 0 at depth D.
        """
        depth = self.language.max_depth
        return free_open_probability(float(self.q), depth, depth)

    def depth_share(self) -> NDArray[np.float64]:
        """π(d), d = 0..D: the share of positions of a long prefix at which d brackets are open.

        The depth goes up from d as often as down from d + 1: π(d) o(d) = π(d + 1) (1 - o(d + 1)).
        """
        opens = self.open_probability()
        with np.errstate(over="ignore"):
            logs = np.concatenate([[0.0], np.cumsum(np.log(opens[:-1]) - np.log1p(-opens[1:]))])
        share = np.exp(logs - logs.max())
        normalised: NDArray[np.float64] = share / share.sum()
        return normalised

    @checked
    def depth_probability(self, longest: int) -> NDArray[np.float64]:
        """Probability of each depth 0..D after 0..`longest` brackets in mode "prefix".

        Returns:
            ``[longest + 1, D + 1]``; every row adds up to 1.
        """
        longest = check_length(longest, "longest")
        opens = self.open_probability()
        table = np.zeros((longest + 1, len(opens)))
        table[0, 0] = 1.0
        for before, after in pairwise(table):
            # one up: from depth D none opens (its probability is 0), so the last entry is left out
            after[1:] += (before * opens)[:-1]
            # one down: from depth 0 none closes
            after[:-1] += (before * (1 - opens))[1:]
        return table

    # --- drawing ----------------------------------------------------------------------------------

    @checked
    def sample(
        self,
        n: int,
        length: int,
        *,
        mode: str = "complete",
        generator: torch.Generator | None = None,
        device: str | torch.device = "cpu",
    ) -> Int[Tensor, "n length"]:
        """Draw n independent strings of a length from the exact distribution, without rejection.

        Args:
            n: how many.
            length: number of brackets; even in mode "complete".
            mode: "complete" or "prefix".
            generator: the same state gives the same strings, whatever the device they go to; it
                moves on by one draw. None: fresh randomness from the operating system (torch's
                global generator is neither read nor changed).
            device: where the result goes. The strings are drawn on the CPU.

        Returns:
            int64 tokens without BOS.

        Raises:
            ValueError: a negative number, an odd length in mode "complete", or `mode` unknown.
        """
        return self._draw(
            n, length, mode, "complete" if mode == "complete" else "anywhere", generator, device
        )

    @checked
    def sample_ending_in_close(
        self,
        n: int,
        length: int,
        *,
        mode: str = "complete",
        generator: torch.Generator | None = None,
        device: str | torch.device = "cpu",
    ) -> Int[Tensor, "n length"]:
        """Draw n strings of a length that end in a close, from the exact conditional distribution.

        Meant for the closing-bracket metric. In mode "complete" this is `sample`, as complete
        strings end in a close.

        Args:
            n: how many.
            length: number of brackets, at least 2.
            mode: "complete" or "prefix".
            generator: as for `sample`.
            device: as for `sample`.

        Raises:
            ValueError: no string of this length ends in a close (length below 2; odd lengths at
                max_depth 1), or as for `sample`.
        """
        check_mode(mode)
        length = check_length(length, least=0)
        if length < 2 or (self.language.max_depth == 1 and length % 2):
            raise ValueError(
                f"no string of length {length} ends in a close in {self._name}; "
                f"choose {'an even length' if length > 1 else 'a length of at least 2'}"
            )
        return self._draw(
            n, length, mode, "complete" if mode == "complete" else "close", generator, device
        )

    # --- helpers ----------------------------------------------------------------------------------

    def _draw(
        self,
        n: int,
        length: int,
        mode: str,
        end: End,
        generator: torch.Generator | None,
        device: str | torch.device,
    ) -> Tensor:
        check_mode(mode)
        n = check_integer("n", n, least=0, most=MOST_DRAWS)
        length = check_length_of(length, mode, least=0)
        if generator is None:
            seed = torch.Generator().seed()
        else:
            # one draw of the caller's generator, whatever is drawn here
            seed = int(torch.randint(2**63 - 1, (), generator=generator, device=generator.device))
        tokens = draw_tokens(
            n,
            length,
            q=float(self.q),
            n_types=self.language.n_types,
            max_depth=self.language.max_depth,
            end=end,
            seed=seed,
        )
        return torch.from_numpy(tokens).to(device)

    @property
    def _name(self) -> str:
        return f"Dyck({self.language.n_types}, {self.language.max_depth})"

    def refuse_invalid(self, tokens: Int[Tensor, "*batch pos"]) -> None:
        """Raise `DyckStringError` for what is no prefix of the language, with its place."""
        valid = self.language.valid_up_to(tokens)
        if not valid.all():
            *where, position = (~valid).nonzero()[0].tolist()
            string = f" of string {where[0] if len(where) == 1 else tuple(where)}" if where else ""
            raise DyckStringError(
                f"position {position}{string} makes it no prefix of {self._name}: "
                f"{self.language.to_string(tokens[tuple(where)])!r}; check with is_prefix(tokens)"
            )
