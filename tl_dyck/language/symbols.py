"""Languages as models read them: symbols, their tokens, and text; and what takes a stack besides.

Symbol i is token i; the start token BOS comes after the last symbol and doubles as padding.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NoReturn, final

import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, WrongValueError
from tl_dyck.kit.errors import DyckError
from tl_dyck.language.alphabet import Symbols
from tl_dyck.language.checks import check_symbols, cut, in_order, separator_of

MOST_SYMBOLS = 20_000  # each has an embedding and a logit of its own


class NoStackError(DyckError, ValueError, AttributeError):
    """Something that takes brackets and a stack was asked of a language that has none."""


class Language(ABC):
    """What a model reads: symbols and their tokens. `DyckLanguage` knows more."""

    #: What a symbol is called in messages.
    symbol_kind = "symbol"
    #: Whether it is a bounded Dyck language: one with brackets, depth and a stack.
    has_stack = False

    @property
    @abstractmethod
    def alphabet(self) -> tuple[str, ...]:
        """The symbols in token order, without BOS."""

    @property
    @abstractmethod
    def probe_string(self) -> str:
        """A text on which attention patterns are compared where nobody gives one."""

    @cached_property
    def separator(self) -> str:
        """What stands between two symbols of a text: a space, if one begins another."""
        return separator_of(self.alphabet)

    @property
    def bos_token(self) -> int:
        """The id of the start token, one more than the last symbol's; it is also padding."""
        return len(self.alphabet)

    @property
    def d_vocab(self) -> int:
        """The number of tokens: the symbols and BOS."""
        return self.bos_token + 1

    @checked
    def tokenize(self, text: str) -> Int[Tensor, " pos"]:
        """Map a text to tokens, without BOS and without asking whether it is of the language.

        Raises:
            DyckStringError: some part of `text` is no symbol.
        """
        if not isinstance(text, str):
            raise WrongTypeError(f"give a text, not {text!r:.80} ({type(text).__name__})")
        ids = {symbol: token for token, symbol in enumerate(self.alphabet)}
        return torch.tensor(
            [ids[symbol] for symbol in cut(text, self.alphabet, self.symbol_kind)],
            dtype=torch.int64,
        )

    @checked
    def parse(self, text: str, *, prefix: bool = True) -> Int[Tensor, " pos"]:
        """Map a text to tokens; a language of which only the symbols are known asks no more."""
        return self.tokenize(text)

    def to_string(self, tokens: Int[Tensor, " pos"]) -> str:
        """The text of one token string; BOS is dropped.

        Raises:
            TypeError: `tokens` are no integers.
            ValueError: a token is outside ``0..bos_token``.
        """
        symbols = Symbols(self.alphabet, self.separator, self.bos_token)
        return symbols.text(self.check_tokens(tokens).tolist())

    def check_tokens(self, tokens: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The tokens as int64, after a check that they are tokens of the language.

        Raises:
            TypeError: they are no integers.
            ValueError: a token is outside ``0..bos_token``.
        """
        if (
            not isinstance(tokens, Tensor)
            or tokens.dtype.is_floating_point
            or tokens.dtype == torch.bool
            or tokens.dtype.is_complex
            or tokens.is_meta
        ):
            kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
            place = " on meta" if getattr(tokens, "is_meta", False) else ""
            raise TypeError(
                f"tokens must be a tensor of integers, got {kind}{place}; use parse(text) for "
                "text, or tokens.long()"
            )
        tokens = tokens.long()
        ends = token_ends(tokens)
        if ends is not None and (ends[0] < 0 or ends[1] > self.bos_token):
            wrong = tokens[(tokens < 0) | (tokens > self.bos_token)][0]
            raise ValueError(
                f"token {int(wrong)} is outside 0..{self.bos_token}; {self._symbols_in_words} have "
                f"tokens 0..{self.bos_token - 1}, and {self.bos_token} is BOS"
            )
        return tokens

    @property
    def _symbols_in_words(self) -> str:
        return f"the symbols {' '.join(self.alphabet)}"


@final
@checked
@dataclass(frozen=True)
class SymbolLanguage(Language):
    """A language of which only the symbols are known: it has no brackets, depth or stack.

    What else is known of it, its task says (`tl_dyck.tasks.Task`). Asked for what only bounded Dyck
    languages have, it says so by its name.

    Examples:
        >>> language = SymbolLanguage("letters", ("a", "b"))
        >>> language.tokenize("abba").tolist(), language.bos_token
        ([0, 1, 1, 0], 2)
        >>> language.max_depth
        Traceback (most recent call last):
        tl_dyck.language.symbols.NoStackError: letters has no stack: nothing is known of ...

    Args:
        name: what it is called in messages.
        symbols: distinct strings; if one is the beginning of another, as of numbers, texts have
            spaces between them.
        probe_string: see `Language.probe_string`; None for every symbol once.

    Raises:
        TypeError: a symbol is no string.
        ValueError: there are no symbols, more than 20,000, or they cannot be told apart.
    """

    name: str
    symbols: Sequence[str]
    probe_string: str | None = None  # type: ignore[assignment]

    def __post_init__(self) -> None:
        symbols = in_order("symbols", self.symbols, MOST_SYMBOLS)
        if len(symbols) > MOST_SYMBOLS:
            raise WrongValueError(f"a language has at most {MOST_SYMBOLS:,} symbols")
        check_symbols(symbols, self.symbol_kind)
        if not symbols:
            raise ValueError(f"the language {self.name!r} has no symbols; give at least one")
        object.__setattr__(self, "symbols", symbols)
        text = self.separator.join(symbols) if self.probe_string is None else self.probe_string
        object.__setattr__(self, "probe_string", text)
        self.tokenize(text)

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The symbols in token order, without BOS."""
        return tuple(self.symbols)

    def __str__(self) -> str:
        return self.name

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what is not found otherwise, which may be what a `DyckLanguage` has."""
        if name.startswith("_"):
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        raise NoStackError(f"{self} has no stack: nothing is known of its {name}")


def needs_stack(language: Any, what: str) -> Any:
    """The language, where it is a bounded Dyck language, a `DyckLanguage`.

    If not, it is a NoStackError, with the language's name, that `what` takes a stack: a phrase with
    its verb, "stack_likeness is".
    """
    if getattr(language, "has_stack", False):
        return language
    raise NoStackError(f"{language} has no stack: {what} of Dyck languages only")


def token_ends(tokens: Tensor) -> tuple[int, int] | None:
    """The least and the largest; None of no tokens, and where torch traces and none has a value."""
    is_traced: bool = torch.jit.is_tracing()  # type: ignore[attr-defined]
    if is_traced or torch.compiler.is_compiling() or not tokens.numel():
        return None
    try:
        return int(tokens.min()), int(tokens.max())
    except RuntimeError:  # of vmap, of make_fx and of the meta device
        return None
