"""Texts to tokens and back, with nothing but the alphabet that the artefact carries."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tl_dyck.errors import DyckError
from tl_dyck.rnn.config import RNNConfig


class RNNTextError(DyckError, ValueError):
    """A text that cannot be tokenised, or tokens without text; the message says which and where."""


def text_to_tokens(config: RNNConfig, text: str, *, prepend_bos: bool = True) -> list[int]:
    """Tokens of a text, with BOS in front if the model starts its strings with one.

    With separator "" the longest symbol of the alphabet that fits is read, again and again, white
    space between symbols being ignored; with " " the text is split at white space.

    Raises:
        RNNTextError: there is no alphabet, or a symbol or word is not in it and there is no unknown
            token.
    """
    if config.alphabet is None or config.separator is None:
        raise RNNTextError(
            "this RNN cannot read texts, for it has no alphabet or no separator; give it tokens, "
            "or export it with alphabet=… and separator='' (characters) or ' ' (words)."
        )
    tokens = {symbol: token for token, symbol in enumerate(config.alphabet)}
    if config.separator == "":
        symbols = sorted((symbol for symbol in tokens if symbol), key=len, reverse=True)
        words = re.findall("|".join([*map(re.escape, symbols), r"\S"]), text)
    else:
        words = text.split()
    ids = []
    for place, word in enumerate(words, start=1):
        token = tokens.get(word, config.unknown_token)
        if token is None:
            raise RNNTextError(f"{word!r}, symbol {place} of the text, is not in the alphabet.")
        ids.append(token)
    if prepend_bos and config.bos_token is not None and ids[:1] != [config.bos_token]:
        ids.insert(0, config.bos_token)
    return ids


def tokens_to_texts(config: RNNConfig, tokens: Sequence[int]) -> list[str]:
    """The text of each token.

    Raises:
        RNNTextError: there is no alphabet, or a token is not in the vocabulary.
    """
    if config.alphabet is None:
        raise RNNTextError("this RNN has no alphabet; export it with alphabet=….")
    for token in tokens:
        if not 0 <= token < config.d_vocab:
            raise RNNTextError(f"token {token} is not in the vocabulary 0..{config.d_vocab - 1}.")
    return [config.alphabet[token] for token in tokens]
