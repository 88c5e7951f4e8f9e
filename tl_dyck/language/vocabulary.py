"""Which token id of a model is which bracket, BOS or padding."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, SupportsIndex, final

import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import MOST_IDS, WrongTypeError, WrongValueError, check_integer, shown
from tl_dyck.kit.errors import DyckError
from tl_dyck.language.checks import in_order
from tl_dyck.language.dyck import DyckLanguage
from tl_dyck.language.symbols import Language

_LARGEST_ID = 2**63 - 1  # of a tensor


class VocabularyError(DyckError, ValueError):
    """Nobody has said which token id is which bracket, or what was said cannot be right."""


class VocabularyWarning(UserWarning):
    """What was said of token ids does not go with what the model predicts."""


@final
@checked
@dataclass(frozen=True)
class Vocabulary:
    """The token ids of a model of your own, for the brackets of a language.

    Examples:
        >>> from tl_dyck.language import DyckLanguage
        >>> vocabulary = Vocabulary(DyckLanguage(2, 4), {"(": 2, ")": 3, "[": 4, "]": 5}, bos=1)
        >>> vocabulary
        Vocabulary([ 4, ] 5, ( 2, ) 3, BOS 1)

    Args:
        language: what the model reads.
        brackets: the id of each of the 2k brackets: a mapping from their texts, or a sequence in
            the order of ``language.alphabet`` (open 0, close 0, open 1, …); of a language without
            brackets, of each symbol.
        bos: the id that every string starts with; None if strings start with their first symbol.
        padding: the id that fills up short strings; None if that is BOS, or if there is none.

    Raises:
        TypeError: an id is no integer.
        VocabularyError: ids that are not distinct, negative or too few, or brackets that the
            language does not have.
    """

    language: Language
    brackets: Mapping[str, int] | Sequence[int]
    bos: int | None
    padding: int | None = None

    def __post_init__(self) -> None:
        alphabet, given = self.language.alphabet, self.brackets
        if isinstance(given, Mapping):
            if set(given) != set(alphabet):
                raise VocabularyError(
                    f"the brackets of {self.language} are {' '.join(alphabet)}, "
                    f"but ids are given for {' '.join(map(str, given)) or 'none'}"
                )
            given = [given[bracket] for bracket in alphabet]
        given = in_order(f"the ids of {' '.join(alphabet)}", given, len(alphabet))
        ids = tuple(_token("a bracket", token) for token in given)
        if len(ids) != len(alphabet):
            found = "more" if len(ids) > len(alphabet) else len(ids)
            raise VocabularyError(
                f"{self.language} has {len(alphabet)} brackets, {' '.join(alphabet)}, "
                f"but {found} ids are given"
            )
        object.__setattr__(self, "brackets", ids)
        if self.bos is not None:
            object.__setattr__(self, "bos", _token("bos", self.bos))
        if self.padding is not None:
            object.__setattr__(self, "padding", _token("padding", self.padding))
        named = [*zip(alphabet, ids, strict=True)]
        if self.bos is not None:
            named.append(("BOS", self.bos))
        if self.padding not in (None, self.bos):
            named.append(("padding", self.padding))
        seen: dict[int, str] = {}
        for name, token in named:
            if token in seen:
                raise VocabularyError(
                    f"id {token} is given to both {seen[token]} and {name}; ids must be distinct"
                )
            seen[token] = name

    @classmethod
    @checked
    def ours(cls, language: Language) -> Vocabulary:
        """The ids of `DyckLanguage` themselves: brackets 0..2k-1, then BOS, which also pads."""
        return cls(language, range(language.bos_token), bos=language.bos_token)

    @classmethod
    @checked
    def of_tokenizer(cls, language: Language, tokenizer: Any) -> Vocabulary:
        """Read the ids from a tokenizer of Hugging Face's `transformers`.

        Raises:
            VocabularyError: it has no BOS, or a bracket is not one token of its own.
        """
        if not hasattr(tokenizer, "get_vocab") or isinstance(tokenizer, type):
            raise WrongTypeError(
                f"tokenizer must be one of transformers, got {shown(tokenizer)}; give "
                "Vocabulary(language, brackets=…, bos=…)"
            )
        known = tokenizer.get_vocab()
        missing = [bracket for bracket in language.alphabet if bracket not in known]
        if missing:
            raise VocabularyError(
                f"the tokenizer has no token {missing[0]!r}; give Vocabulary(language, brackets=…, "
                "bos=…) yourself, or a DyckLanguage with other brackets="
            )
        if tokenizer.bos_token_id is None:
            raise VocabularyError(
                "the tokenizer names no BOS token; give Vocabulary(language, brackets=…, bos=…)"
            )
        brackets = [known[bracket] for bracket in language.alphabet]
        bos, padding = tokenizer.bos_token_id, tokenizer.pad_token_id
        return cls(language, brackets, bos=bos, padding=None if padding in brackets else padding)

    def __repr__(self) -> str:
        pairs = zip(self.language.alphabet, self.brackets, strict=True)
        padding = "" if self.padding is None else f", padding {self.padding}"
        brackets = ", ".join(f"{text} {token}" for text, token in pairs)
        bos = "no BOS" if self.bos is None else f"BOS {self.bos}"
        return f"Vocabulary({brackets}, {bos}{padding})"

    @property
    def ids(self) -> tuple[int, ...]:
        """The model's ids in the order of ours: 2k brackets, then BOS, if it has one."""
        return (*self.brackets, *(() if self.bos is None else (self.bos,)))

    @property
    def largest(self) -> int:
        """The largest id that is named; the model's `d_vocab` must be above it."""
        return max(*self.ids, self.ids[0] if self.padding is None else self.padding)

    @checked
    def order(self, d_vocab: SupportsIndex) -> Int[Tensor, " d_vocab"]:
        """All ids of the model, those that are named first: entry i is its id for our token i.

        Raises:
            VocabularyError: the model has not so many ids.
        """
        d_vocab = check_integer("d_vocab", d_vocab, least=1, most=MOST_IDS)
        if self.largest >= d_vocab:
            raise VocabularyError(
                f"id {self.largest} is not in a vocabulary of d_vocab={d_vocab}: {self!r}"
            )
        named = set(self.ids)
        rest = [token for token in range(d_vocab) if token not in named]
        return torch.tensor([*self.ids, *rest])

    @checked
    def orders(
        self,
        d_vocab: SupportsIndex,
        d_vocab_out: SupportsIndex,
        outputs: Sequence[SupportsIndex | None] | None = None,
    ) -> tuple[Int[Tensor, " d_vocab"], Int[Tensor, " d_vocab_out"], int]:
        """Rows of an embedding and columns of an unembedding in the language's order.

        Args:
            d_vocab: how many ids the model has.
            d_vocab_out: how many logits.
            outputs: which id each logit is of, see `tl_dyck.adopt`.

        Returns:
            The model's ids, those of `ids` first; its logits, those of the same ids first; and of
            how many of the first logits it is known that logit i is of token i. Without a logit of
            BOS, or without BOS, that is true of the symbols alone.

        Raises:
            VocabularyError: `outputs` are needed and not said, or cannot be.
        """
        ids = self.order(d_vocab).tolist()
        d_vocab, d_vocab_out = len(ids), check_integer("d_vocab_out", d_vocab_out, 1, MOST_IDS)
        n_symbols, first_free = self.language.bos_token, len(self.ids)
        if outputs is None:
            if d_vocab_out < n_symbols:
                outputs = ()
            elif d_vocab_out == d_vocab:
                outputs = range(d_vocab)
            else:
                raise VocabularyError(
                    f"this model has {d_vocab_out} logits for {d_vocab} ids, and nothing says "
                    "which is of which; pass outputs=[the id that each logit is of, None if of "
                    "none], or outputs=() if they are classes"
                )
        said = in_order("outputs", outputs, d_vocab_out)
        if not said:
            return torch.tensor(ids), torch.arange(d_vocab_out), 0
        place = self._places(said, d_vocab, d_vocab_out)
        ids[first_free:] = sorted(ids[first_free:], key=lambda token: token not in place)
        named = [token for token in ids if token in place]
        if self.bos not in place:
            named = named[:n_symbols]
        first = [place[token] for token in named]
        rest = [logit for logit in range(d_vocab_out) if logit not in {*first}]
        return torch.tensor(ids), torch.tensor([*first, *rest]), len(named)

    def _places(self, said: Sequence[Any], d_vocab: int, d_vocab_out: int) -> dict[int, int]:
        """The logit of each id that has one."""
        if len(said) != d_vocab_out:
            found = "more" if len(said) > d_vocab_out else len(said)
            raise VocabularyError(
                f"outputs must say of each of the {d_vocab_out} logits which id it is of, None if "
                f"of none, but {found} are given"
            )
        place: dict[int, int] = {}
        for logit, token in enumerate(said):
            if token is None:
                continue
            token = check_integer("an id of outputs", token, 0, d_vocab - 1)
            if token in place:
                raise VocabularyError(
                    f"outputs gives id {token} to logits {place[token]} and {logit}"
                )
            place[token] = logit
        for name, token in zip(self.language.alphabet, self.brackets, strict=True):
            if token not in place:
                raise VocabularyError(f"outputs has no logit of {name!r}, id {token}")
        return place

    @checked
    def to_model(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch theirs"]:
        """From our ids to the model's; BOS is padding wherever only BOS follows, but at the start.

        Of a model without BOS it is left out there: what comes back is one position shorter.

        Raises:
            ValueError: a token is none of the language; or, without BOS, strings do not start with
                it, or there is something to fill up and no padding.
        """
        bos = self.language.bos_token
        self.language.check_tokens(tokens)  # raises for what is no token
        if self.bos is None:
            return self._bare(tokens)
        found = torch.tensor(self.ids, device=tokens.device)[tokens.long()]
        if self.padding is None:
            return found
        filling = (tokens == bos).flip(-1).cummin(-1).values.flip(-1)
        filling[..., :1] = False
        return found.masked_fill(filling, self.padding)

    def _bare(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch rest"]:
        bos = self.language.bos_token
        if (tokens[..., :1] != bos).any() or not tokens.shape[-1]:
            raise VocabularyError(
                "strings start with BOS here, which is left out for a model without one; these do "
                "not"
            )
        rest = tokens[..., 1:].long()
        if self.padding is None and (rest == bos).any():
            raise VocabularyError(
                f"short strings are filled up, and {self!r} names no padding; give strings of one "
                "length, or padding="
            )
        ids = (*self.brackets, 0 if self.padding is None else self.padding)
        return torch.tensor(ids, device=tokens.device)[rest]

    @checked
    def to_ours(self, tokens: Int[Tensor, "*batch pos"]) -> Int[Tensor, "*batch ours"]:
        """From the model's ids to ours; padding becomes BOS, which is put before what has none.

        Raises:
            TypeError: `tokens` are no integers.
            VocabularyError: an id that is not named, or padding before a bracket.
        """
        kind = tokens.dtype if isinstance(tokens, Tensor) else type(tokens).__name__
        if not isinstance(tokens, Tensor) or not _counts(tokens.dtype):
            raise WrongTypeError(f"tokens must be a tensor of integers, got {kind}")
        named = {token: ours for ours, token in enumerate(self.ids)}
        if self.padding is not None:
            named[self.padding] = self.language.bos_token
        ids, values = torch.tensor(sorted(named.items()), device=tokens.device).T.contiguous()
        place = torch.searchsorted(ids, tokens.long()).clamp_max(len(ids) - 1)
        ours = torch.where(ids[place] == tokens, values[place], -1)
        if (ours < 0).any():
            raise VocabularyError(f"id {int(tokens[ours < 0][0])} is not named by {self!r}")
        if self.padding not in (None, self.bos):
            padded = (tokens == self.padding).long().cummax(-1).values.bool()
            if (padded & (tokens != self.padding)).any():
                raise VocabularyError(
                    "a string goes on after padding; strings are filled up on the right"
                )
        if self.bos is None:
            first = torch.full_like(ours[..., :1], self.language.bos_token)
            ours = torch.cat([first, ours], -1)
        return ours


def _counts(dtype: torch.dtype) -> bool:
    return not (dtype.is_floating_point or dtype.is_complex or dtype == torch.bool)


def _token(name: str, value: Any) -> int:
    try:
        return check_integer(f"the id of {name}", value, 0, _LARGEST_ID)
    except WrongValueError as error:
        raise VocabularyError(str(error)) from None


def agreed(vocabulary: Vocabulary | Language, tokenizer: Any) -> Vocabulary:
    """The vocabulary, in agreement with the model's tokenizer if it has one, or that alone.

    Args:
        vocabulary: which id is which symbol; or the language, if the tokenizer knows.
        tokenizer: of the model; None if it has none.

    Raises:
        TypeError: neither a vocabulary nor a language of brackets.
        VocabularyError: there is no tokenizer to ask, or the two say different things.
    """
    if isinstance(vocabulary, DyckLanguage):
        if tokenizer is None:
            raise VocabularyError(
                "the model has no tokenizer to ask; give Vocabulary(language, brackets=…, bos=…)"
            )
        return Vocabulary.of_tokenizer(vocabulary, tokenizer)
    if not isinstance(vocabulary, Vocabulary):
        raise TypeError(f"give a Vocabulary or a DyckLanguage, not {type(vocabulary).__name__}")
    said = {} if tokenizer is None else tokenizer.get_vocab()
    for bracket, token in zip(vocabulary.language.alphabet, vocabulary.brackets, strict=True):
        if said.get(bracket, token) != token:
            raise VocabularyError(
                f"the model's tokenizer says that {bracket!r} is id {said[bracket]}, "
                f"the vocabulary that it is {token}; the language in its place asks the tokenizer"
            )
    return vocabulary
