"""Bounded Dyck languages Dyck(k, D): tokens, strings, depth, matching, counting, enumeration.

Tokens (spec §1, after Wen et al. 2023, arXiv 2312.01429): type ``t`` in ``0..k-1`` opens as ``2t``
and closes as ``2t + 1``; the start token BOS is ``2k`` and doubles as padding. The *depth* of a
position is the number of opens minus the number of closes up to and including it, so that a close
is one shallower than its open: opens have depth ``1..D``, closes ``0..D-1``. BOS changes no depth,
wherever it stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import final

import torch
from jaxtyping import Bool, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import LONGEST, check_integer, check_length
from tl_dyck.language.checks import (
    DyckStringError,
    check_brackets,
    check_mode,
    default_brackets,
    in_order,
    shorten,
)
from tl_dyck.language.depth import clip_depth, depth_steps
from tl_dyck.language.symbols import Language

MAX_ENUMERATED_TOKENS = 10_000_000  # 80 MB as int64; to list them takes some seconds
MOST_TYPES = 10_000  # of brackets; each has texts, an embedding and a logit of its own


@final
@checked
@dataclass(frozen=True)
class DyckLanguage(Language):
    """The language Dyck(k, D): well-nested strings over k bracket types, of depth D at most.

    Examples:
        >>> language = DyckLanguage(2, 4)
        >>> tokens = language.parse("[()]")
        >>> tokens.tolist(), language.depth(tokens).tolist(), language.matching(tokens).tolist()
        ([0, 2, 3, 1], [1, 2, 1, 0], [3, 2, 1, 0])
        >>> language.top_of_stack(tokens).tolist()  # the last bracket that is still open
        [0, 1, 0, -1]
        >>> language.count(8)
        224

    Attributes:
        n_types: k, the number of bracket types, 1 to 10,000.
        max_depth: D, the greatest depth, 1 to 10 million.
        brackets: the 2k bracket strings in token order (open 0, close 0, open 1, …). They must be
            distinct, none may be the beginning of another, and no concatenation may contain
            ``"<bos>"``. None chooses ``[] () {} <>`` and then further Unicode pairs; it is replaced
            by that choice, so that equal languages compare equal.

    Raises:
        TypeError: `n_types` or `max_depth` is no integer, or a bracket no string.
        ValueError: `n_types` or `max_depth` is out of range, or `brackets` cannot be told apart.
    """

    n_types: int
    max_depth: int
    brackets: Sequence[str] | None = None

    symbol_kind = "bracket"
    has_stack = True

    def __post_init__(self) -> None:
        for name, most in (("n_types", MOST_TYPES), ("max_depth", LONGEST)):
            object.__setattr__(self, name, check_integer(name, getattr(self, name), 1, most))
        brackets = default_brackets(self.n_types)
        if self.brackets is not None:
            brackets = in_order("brackets", self.brackets, 2 * self.n_types)
        check_brackets(brackets, self.n_types)
        object.__setattr__(self, "brackets", brackets)

    @property
    def closing(self) -> slice:
        """The closing brackets among the tokens, or among logits."""
        # 2a opens type a, 2a + 1 closes it
        return slice(1, self.n_brackets, 2)

    @property
    def n_brackets(self) -> int:
        """2k, the number of bracket tokens."""
        return 2 * self.n_types

    @property
    def alphabet(self) -> tuple[str, ...]:
        """The bracket strings in token order, without BOS."""
        return tuple(self.brackets or ())

    # --- text -------------------------------------------------------------------------------------

    @checked
    def parse(self, text: str, *, prefix: bool = True) -> Int[Tensor, " pos"]:
        """Map a text to tokens, without BOS, and insist that it is of the language.

        Args:
            text: brackets only, no spaces and no BOS.
            prefix: accept what some string of the language begins with; otherwise only complete
                strings.

        Raises:
            DyckStringError: an unknown bracket, a close that matches no open, a depth above
                `max_depth`, or (with ``prefix=False``) a bracket that is left open. Positions count
                brackets from 0.
        """
        tokens = self.tokenize(text)
        stack: list[int] = []
        for position, token in enumerate(tokens.tolist()):
            where = f"bracket {position} of {shorten(text)!r}"
            if token % 2 == 0:
                stack.append(position)
                if len(stack) > self.max_depth:
                    raise DyckStringError(
                        f"too deep: {self.alphabet[token]!r}, {where}, reaches depth {len(stack)}, "
                        f"but max_depth is {self.max_depth}; shorten the nesting or use "
                        f"DyckLanguage({self.n_types}, {len(stack)})"
                    )
            elif not stack:
                raise DyckStringError(
                    f"unbalanced: {self.alphabet[token]!r}, {where}, closes nothing"
                )
            else:
                opened = stack.pop()
                wanted = self.alphabet[int(tokens[opened]) + 1]
                if wanted != self.alphabet[token]:
                    raise DyckStringError(
                        f"unbalanced: {self.alphabet[token]!r}, {where}, cannot close "
                        f"{self.alphabet[int(tokens[opened])]!r}, bracket {opened}; "
                        f"expected {wanted!r}"
                    )
        if stack and not prefix:
            opened = stack[-1]
            raise DyckStringError(
                f"unfinished: {self.alphabet[int(tokens[opened])]!r}, bracket {opened} of "
                f"{shorten(text)!r}, is never closed; {len(stack)} bracket(s) are left open"
            )
        return tokens

    @property
    def probe_string(self) -> str:
        """A text with brackets of all types and depths: for each type, D openings, then D closings.

        For two types and depth 4 it is the ``[[[[]]]](((())))`` on which Wen et al. 2023 compare
        attention patterns.
        """
        pairs = zip(self.alphabet[::2], self.alphabet[1::2], strict=True)
        return "".join(
            opening * self.max_depth + closing * self.max_depth for opening, closing in pairs
        )

    # --- single tokens ----------------------------------------------------------------------------

    def is_open(self, tokens: Int[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
        """Whether each token is an opening bracket."""
        tokens = self.check_tokens(tokens)
        return (tokens % 2 == 0) & (tokens < self.bos_token)

    def is_close(self, tokens: Int[Tensor, "*shape"]) -> Bool[Tensor, "*shape"]:
        """Whether each token is a closing bracket."""
        return self.check_tokens(tokens) % 2 == 1

    def bracket_type(self, tokens: Int[Tensor, "*shape"]) -> Int[Tensor, "*shape"]:
        """The type ``0..k-1`` of each token, -1 for BOS."""
        tokens = self.check_tokens(tokens)
        return torch.where(tokens < self.bos_token, tokens // 2, -1)

    # --- structure --------------------------------------------------------------------------------

    def depth(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
        """Depth after each token, #open - #close up to and including it.

        It is not clamped: on strings outside the language it may be negative or exceed `max_depth`.
        """
        return self._steps(tokens).cumsum(-1)

    def clipped_depth(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
        """The depth, clipped to what each token can have: it indexes embeddings of any string."""
        return clip_depth(tokens, self.depth(tokens), self.n_types, self.max_depth)

    def matching(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
        """Index of each bracket's partner, -1 for BOS and for brackets without one.

        The partner is found by depth alone, whatever the types: a close belongs to the last open
        that is not yet closed. A close that closes nothing has no partner, and what follows it is
        matched as if it were not there.
        """
        step = self._steps(tokens)
        # The level of a bracket is the depth on its inner side. Crossings of one level alternate
        # between up and down, so after a stable sort by level partners are neighbours. BOS (step 0)
        # gets a level of its own.
        level = step.cumsum(-1) + (step < 0)
        # no level is as large as the length and one
        level = torch.where(step == 0, tokens.shape[-1] + 1, level)
        level, order = level.sort(dim=-1, stable=True)
        step = step.gather(-1, order)
        paired = (step[..., :-1] > 0) & (step[..., 1:] < 0) & (level[..., :-1] == level[..., 1:])
        sorted_partner = torch.full_like(order, -1)
        sorted_partner[..., :-1] = torch.where(paired, order[..., 1:], -1)
        sorted_partner[..., 1:] = torch.where(paired, order[..., :-1], sorted_partner[..., 1:])
        return torch.empty_like(order).scatter_(-1, order, sorted_partner)

    def top_of_stack(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
        """Index of the last unmatched open after each token (maybe itself), -1 if there is none.

        As in `matching`, types are ignored and a close that closes nothing leaves the stack empty.
        """
        step = self._steps(tokens)
        # The top is the last open whose depth is the present one: had it been closed, another open
        # would have come back to that depth.
        depth, order = step.cumsum(-1).sort(dim=-1, stable=True)
        if order.shape[-1] == 0:
            return order
        here = torch.arange(order.shape[-1], device=order.device).expand_as(order)
        opened = torch.where(step.gather(-1, order) > 0, here, -1).cummax(-1).values
        found = (opened >= 0) & (depth.gather(-1, opened.clamp(min=0)) == depth)
        sorted_top = torch.where(found, order.gather(-1, opened.clamp(min=0)), -1)
        return torch.empty_like(order).scatter_(-1, order, sorted_top)

    def others_of_type(self, tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos key"]:
        """Of each position the opening brackets up to it of its top's type, but not the top."""
        top = self.top_of_stack(tokens)
        here = torch.arange(tokens.shape[-1], device=tokens.device)
        same = tokens[..., None, :] == tokens.gather(-1, top.clamp_min(0))[..., None]
        others = self.is_open(tokens)[..., None, :] & same & (here <= here[:, None])
        found: Tensor = others & (here != top[..., None]) & (top >= 0)[..., None]
        return found

    def right_bracket(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch pos"]:
        """The bracket that closes the top of the stack after each token; -1 if nothing is open.

        Examples:
            >>> DyckLanguage(2, 4).right_bracket(torch.tensor([0, 2, 3, 1])).tolist()
            [1, 3, 1, -1]
        """
        top = self.top_of_stack(tokens)
        if tokens.shape[-1] == 0:
            return top
        return torch.where(top >= 0, tokens.long().gather(-1, top.clamp(min=0)) + 1, -1)

    def is_prefix(self, tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch"]:
        """Whether some string of the language begins with each token string (BOS ignored)."""
        return self.valid_up_to(tokens).all(-1)

    def is_complete(self, tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch"]:
        """Whether each token string (BOS ignored) is of the language; the empty one is."""
        return self.is_prefix(tokens) & (self._steps(tokens).sum(-1) == 0)

    def valid_up_to(self, tokens: Int[Tensor, "*batch pos"]) -> Bool[Tensor, "*batch pos"]:
        """Whether the string up to and including each position is a prefix of the language."""
        depth, partner = self.depth(tokens), self.matching(tokens)
        if tokens.shape[-1] == 0:
            return torch.ones_like(depth, dtype=torch.bool)
        types = self.bracket_type(tokens)
        agrees = (partner < 0) | (types.gather(-1, partner.clamp(min=0)) == types)
        # A wrong type is the fault of the close, not of the open before it.
        fine = (depth >= 0) & (depth <= self.max_depth) & (agrees | self.is_open(tokens))
        return (~fine).cumsum(-1) == 0

    # --- counting ---------------------------------------------------------------------------------

    @checked
    def count(self, length: int, mode: str = "complete") -> int:
        """The exact number of strings with `length` brackets.

        Args:
            length: number of brackets; 0 gives the empty string alone.
            mode: "complete" strings, or "prefix": everything some string of the language begins
                with.

        Raises:
            ValueError: `length` is negative, or `mode` unknown. Odd lengths simply have no complete
                strings.
        """
        length = check_length(length, least=0)
        check_mode(mode)
        *_, ways = self.prefixes_by_depth(length)
        return ways[0] if mode == "complete" else sum(ways)

    @checked
    def prefixes_by_depth(self, longest: int) -> Iterator[list[int]]:
        """Yield, for each length 0..`longest`, the exact numbers of prefixes by their depth.

        The depths are those that a prefix of the length can have, from 0 on.
        """
        longest = check_length(longest, "longest")
        ways = [1]
        for length in range(longest + 1):
            yield ways
            # into depth d from d + 1: closed by the one bracket that may
            shallower = [*ways[1:], 0, 0]
            # into depth d from d − 1: opened by any type
            deeper = [0, *(self.n_types * number for number in ways)]
            deepest = min(length + 1, self.max_depth)
            ways = [up + down for up, down in zip(deeper, shallower, strict=False)][: deepest + 1]

    @checked
    def enumerate(self, length: int, mode: str = "complete") -> Int[Tensor, "n length"]:
        """All strings with `length` brackets, without BOS, in lexicographic order of their tokens.

        Args:
            length: number of brackets.
            mode: "complete" or "prefix".

        Raises:
            ValueError: there would be more than ten million tokens, or as for `count`.
        """
        number = self.count(length, mode)
        if number * max(length, 1) > MAX_ENUMERATED_TOKENS:
            raise ValueError(
                f"{self} has {number} {mode} strings of length {length}: too many to enumerate "
                f"(limit: {MAX_ENUMERATED_TOKENS} tokens); use a shorter length, "
                "or draw from DyckDistribution.sample"
            )
        vocab = torch.arange(self.n_brackets)
        tokens = torch.zeros(1 if number else 0, 0, dtype=torch.int64)
        # entry d: type open at depth d
        stack = torch.full((tokens.shape[0], min(self.max_depth, length) + 1), -1)
        depth = torch.zeros(tokens.shape[0], dtype=torch.int64)
        for position in range(length):
            deepest = self.max_depth
            if mode == "complete":
                # what is open must be closed by what is left after this bracket
                deepest = min(deepest, length - position - 1)
            top = stack.gather(1, depth[:, None])
            allowed = torch.where(
                vocab % 2 == 0, depth[:, None] < deepest, (vocab // 2 == top) & (depth[:, None] > 0)
            )
            row, token = allowed.nonzero(as_tuple=True)
            opens = token % 2 == 0
            depth = depth[row] + torch.where(opens, 1, -1)
            # opening brackets write at their depth, closing ones a level deeper: nobody reads that
            stack = stack[row].scatter_(1, (depth + ~opens)[:, None], (token // 2)[:, None])
            tokens = torch.cat([tokens[row], token[:, None]], dim=1)
        return tokens

    # --- helpers ----------------------------------------------------------------------------------

    @property
    def _symbols_in_words(self) -> str:
        return f"{self.n_types} bracket type(s)"

    def _steps(self, tokens: Tensor) -> Tensor:
        """+1 for an open, -1 for a close, 0 for BOS."""
        return depth_steps(self.check_tokens(tokens), self.n_types)
