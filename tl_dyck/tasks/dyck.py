"""Tasks of bounded Dyck languages, with the metric of Wen et al. 2023."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import Any, SupportsIndex, final

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer, check_seed
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.language.chain import depth_chain
from tl_dyck.language.checks import check_mode
from tl_dyck.reading.predict import LanguageModel
from tl_dyck.tasks.closing_accuracy import (
    ClosingAccuracy,
    ClosingChance,
    closing_accuracy,
    closing_chance,
)
from tl_dyck.tasks.draws import check_task_lengths, of_mixed_lengths, seeded


@final
@checked
@dataclass(frozen=True, kw_only=True)
class DyckTask:
    """Language, distribution and metric on which a model is trained and judged.

    Attributes:
        name: how people call it.
        n_types: number of bracket types k.
        max_depth: largest depth D.
        q: probability of an opening bracket where both are possible.
        mode: "complete" (balanced strings) or "prefix".
        train_lengths: lengths, in brackets, of the training strings; a string's length is drawn
            uniformly from these.
        long_lengths: shortest and longest length of the strings that test length generalisation.
        brackets: the 2k bracket strings, or None for the default ones.

    Raises:
        TypeError: a number is no integer where it should be.
        ValueError: a value is out of range; the message names it.
    """

    name: str
    n_types: int
    max_depth: int
    q: float = 0.5
    mode: str = "complete"
    train_lengths: Sequence[int] = tuple(range(2, 28, 2))
    long_lengths: Sequence[int] = (400, 500)
    brackets: Sequence[str] | None = None
    language: DyckLanguage = field(init=False, repr=False, compare=False)
    distribution: DyckDistribution = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        check_mode(self.mode)
        check_task_lengths(self)
        if self.mode == "complete" and any(length % 2 for length in self.train_lengths):
            raise ValueError(
                f"complete strings have even lengths, but train_lengths is {self.train_lengths}"
            )
        language = DyckLanguage(self.n_types, self.max_depth, self.brackets)
        object.__setattr__(self, "language", language)
        for name in ("n_types", "max_depth", *(("brackets",) if self.brackets is not None else ())):
            object.__setattr__(self, name, getattr(language, name))
        object.__setattr__(self, "distribution", DyckDistribution(self.language, self.q))
        for name, lengths in (("train_lengths", self.train_lengths), ("long_lengths", self._long)):
            if not self._closing(lengths):
                raise ValueError(
                    f"no prefix of {self.language} with one of {name} ends with a closing bracket"
                )

    @property
    def entropy_floor(self) -> float:
        """The least cross-entropy, nats per token, that any model can reach on training strings."""
        return self.distribution.entropy_floor(self.train_lengths, self.mode)

    def to_dict(self) -> dict[str, Any]:
        """The fields that define the task, as JSON values, for ``DyckTask(**values)``."""
        values = asdict(self)
        for name in ("language", "distribution"):
            values.pop(name)
        return {
            name: list(value) if isinstance(value, tuple) else value
            for name, value in values.items()
        }

    @checked
    def sample(
        self,
        n: SupportsIndex,
        *,
        long: bool = False,
        generator: torch.Generator | None = None,
        seed: SupportsIndex | None = None,
    ) -> Int[Tensor, "n pos"]:
        """Draw training strings: BOS, then brackets; shorter ones are filled up with BOS.

        Args:
            n: number of strings.
            long: prefixes of `long_lengths` instead.
            generator: source of randomness, on the CPU.
            seed: of a generator of its own, instead.

        Raises:
            ValueError: both a generator and a seed are given, or neither.
        """
        source = seeded(generator, seed)
        if long:
            return self._mixture(n, self._long, "prefix", source)
        return self._mixture(n, self.train_lengths, self.mode, source)

    @checked
    def counted_positions(self, tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos"]:
        """Closing brackets: `closing_accuracy` is of these."""
        return self.language.is_close(tokens)

    @checked
    def allowed(self, tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos symbol"]:
        """Which brackets may follow each token, as sets: k-hot targets; after filling, the last.

        Examples:
            >>> from tl_dyck import load_task
            >>> task = load_task("dyck-2-4")
            >>> task.allowed(task.language.parse("[(")).int().tolist()
            [[1, 1, 1, 0], [1, 0, 1, 1]]

        Raises:
            DyckStringError: a string is no prefix of the language.
        """
        language = self.language
        self.distribution.refuse_invalid(tokens)
        opens = language.depth(tokens) < self.max_depth
        # closing brackets are the odd tokens
        closes = language.right_bracket(tokens)[..., None] == torch.arange(
            1, language.n_brackets, 2, device=tokens.device
        )
        # [type, (open, close)], flattened to tokens 2 a and 2 a + 1
        both = torch.stack([opens[..., None].expand_as(closes), closes], -1)
        return both.flatten(-2)

    @checked
    def next_token_probs(
        self, tokens: Int[Tensor, "*batch pos"]
    ) -> Float64[Tensor, "*batch pos d_vocab"]:
        """The exact law of what follows each token of training strings, whose length is not known.

        Args:
            tokens: BOS first; prefixes of training strings, or these with their filling.

        Returns:
            Probabilities by `opening_law`; rows after which no training string goes on are 0.

        Raises:
            DyckStringError: a string is no prefix of the language.
        """
        language = self.language
        probs = self.distribution.next_token_probs(tokens)
        read = (tokens != language.bos_token).long().cumsum(-1)
        law = torch.from_numpy(opening_law(self))
        # clamped to be looked up; masked in the next line
        opens = law[read.clamp(max=len(law) - 1), language.depth(tokens)]
        opens = opens.masked_fill(read >= len(law), math.nan)
        opening = probs[..., 0 : language.n_brackets : 2]
        closing = probs[..., language.closing]
        there = closing.sum(-1, keepdim=True) > 0
        types = torch.where(there, closing / closing.sum(-1, keepdim=True), 0.0)
        opening[:] = opens[..., None] / self.n_types
        closing[:] = (1 - opens[..., None]) * types
        return probs.nan_to_num(nan=0.0)

    @checked
    def sample_closing(
        self, n: SupportsIndex, *, long: bool = False, generator: torch.Generator
    ) -> tuple[Int[Tensor, "n pos"], Int[Tensor, " n"]]:
        """Draw prefixes that end with a closing bracket.

        In distribution: a training string, cut after one of its closing brackets chosen uniformly;
        in mode "prefix", where a string may have none, a prefix of a training length conditioned on
        ending with one. Long, in either mode: a prefix whose length is uniform in `long_lengths`,
        from D(q,k,D) conditioned on its last bracket being a closing one, as Section 4.2 tests
        "valid prefixes with length randomly sampled". Lengths that no such prefix has are left out.

        Returns:
            tokens (BOS first, BOS as filling at the end), and the position of the last bracket of
            each.
        """
        if not long and self.mode == "complete":
            tokens = self.sample(n, generator=generator)
            last = torch.multinomial(
                self.language.is_close(tokens).double(), 1, generator=generator
            )
            here = torch.arange(tokens.shape[1])
            # `last` is [n, 1], so that it broadcasts over places
            return torch.where(here <= last, tokens, self.language.bos_token), last[:, 0]
        lengths = self.closing_lengths(long=long)
        tokens = self._mixture(n, lengths, "ending in close", generator)
        # brackets behind one BOS: their number is the last one's position
        return tokens, (tokens != self.language.bos_token).sum(-1)

    @checked
    def closing_accuracy(
        self,
        model: LanguageModel,
        *,
        n: SupportsIndex = 1000,
        long: bool = False,
        seed: SupportsIndex = 0,
        device: Any = None,
        chunk: SupportsIndex = 100,
    ) -> ClosingAccuracy:
        """The metric of the paper's Section 4.1, in both readings, and where it takes a stack.

        The paper's metric is of one bracket a prefix, as `sample_closing` draws them; here every
        closing bracket of a string is predicted, with weights that give the same expectation and a
        smaller error. Of equal logits the first counts as the largest.

        Args:
            model: causal; maps tokens to logits; run without gradients.
            n: number of strings.
            long: test on `long_lengths` instead of the training distribution.
            seed: of the test data; independent of the streams that training uses.
            device: where the model is.
            chunk: strings per forward pass, which bounds the memory.

        Raises:
            NotCausalError: predictions depend on later tokens.
            ValueError: `n` or `chunk` is below 1, or no string of so few has a closing bracket.
        """
        n, chunk = check_integer("n", n, least=1), check_integer("chunk", chunk, least=1)
        how = {"n": n, "seed": check_seed(seed), "device": device, "chunk": chunk}
        return closing_accuracy(*self.closing_distribution(long=long), model, **how)

    #: What `tl_dyck.tasks.counted_accuracy` measures.
    accuracy = closing_accuracy

    @checked
    def closing_chance(self, *, long: bool = False) -> ClosingChance:
        """The exact closing accuracy of three models that keep no stack.

        Examples:
            >>> from tl_dyck import load_task
            >>> chance = load_task("dyck-2-4").closing_chance(long=True)
            >>> round(chance.copier, 3), round(chance.counter, 3)
            (0.812, 0.938)

        Args:
            long: at `long_lengths` instead of in the training distribution.
        """
        return closing_chance(*self.closing_distribution(long=long))

    @checked
    def closing_lengths(self, *, long: bool = False) -> list[int]:
        """The lengths that prefixes ending with a closing bracket have, as often as drawn."""
        return self._closing(self._long if long else self.train_lengths)

    @checked
    def closing_distribution(
        self, *, long: bool = False
    ) -> tuple[DyckDistribution, list[int], str]:
        """The distribution and lengths of `closing_accuracy`, and "complete" or "prefix"."""
        return self.distribution, self.closing_lengths(long=long), "prefix" if long else self.mode

    @property
    def _long(self) -> list[int]:
        shortest, longest = self.long_lengths
        return list(range(shortest, longest + 1))

    def _closing(self, lengths: Sequence[int]) -> list[int]:
        """The lengths that a prefix may have that ends with a closing bracket."""
        return [
            # with D = 1 a prefix of odd length ends with an opening bracket
            length
            for length in lengths
            if length > 1 and (length % 2 == 0 or self.max_depth > 1)
        ]

    def _mixture(
        self, n: SupportsIndex, lengths: Sequence[int], mode: str, generator: torch.Generator
    ) -> Int[Tensor, "n pos"]:
        if mode == "ending in close":
            of, mode = self.distribution.sample_ending_in_close, "prefix"
        else:
            of = self.distribution.sample
        draw = partial(of, mode=mode, generator=generator)
        return of_mixed_lengths(n, lengths, draw, self.language.bos_token, generator)


def complete_strings(language: DyckLanguage) -> DyckTask:
    """Complete strings of a language: for a model that does not say what it was trained on."""
    return DyckTask(
        name="complete strings",
        n_types=language.n_types,
        max_depth=language.max_depth,
        brackets=language.alphabet,
    )


def opening_law(task: DyckTask) -> Float[np.ndarray, "pos depth"]:
    """The probability that an opening bracket follows, in the strings that a task trains on.

    Row i, column d: after i brackets, d of them open, in a training string that goes on. Its length
    N is not known, so in mode "complete" the answer is a mean over the lengths N > i, each with the
    weight that what was read gives it (`tl_dyck.language.chain.Chain.law`).

    Returns:
        NaN where no training string is: at the longest length and where none can be completed.
    """
    depth, longest = task.max_depth, max(task.train_lengths)
    found = np.full((longest + 1, depth + 1), np.nan)
    if task.mode == "prefix":
        # a prefix goes on at every depth alike, but for the longest, which ends
        found[:longest] = task.distribution.open_probability()
        return found
    law = depth_chain(task.q, depth, longest).law(task.train_lengths)
    # column 0 of the law is "opens"; where no string goes on both are 0
    found[:, : law.shape[1]] = np.where(law.sum(-1) > 0, law[..., 0], np.nan)
    return found
