"""Text in and out: the methods of a model that need its tokenizer."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor
from transformer_lens.utilities import (
    USE_DEFAULT_VALUE,
    LocallyOverridenDefaults,
    get_input_with_manually_prepended_bos,
    get_tokenizer_with_bos,
    get_tokens_with_bos_removed,
)
from transformers import PreTrainedTokenizerBase


class TextMethods:
    """What a `HookedTransformer` does with strings. All of it needs a tokenizer."""

    cfg: Any
    tokenizer: Any
    W_U: Tensor

    def set_tokenizer(self, tokenizer: Any, default_padding_side: str | None = None) -> None:
        """Use a tokenizer from Hugging Face's `transformers`, which pads on its own side or this.

        Raises:
            TypeError: it is no such tokenizer.
        """
        if not isinstance(tokenizer, PreTrainedTokenizerBase):
            raise TypeError(
                f"a tokenizer is a PreTrainedTokenizerBase, not {type(tokenizer).__name__}"
            )
        self.tokenizer = get_tokenizer_with_bos(tokenizer)
        if default_padding_side is not None:
            self.tokenizer.padding_side = default_padding_side
        # of the empty text, which is BOS alone if the tokenizer puts one there
        self.cfg.tokenizer_prepends_bos = len(self.tokenizer.encode("")) > 0
        if self.tokenizer.eos_token is None:
            # GPT-2's, as TransformerLens fills it in
            self.tokenizer.eos_token = "<|endoftext|>"
        for name in ("pad_token", "bos_token"):
            if getattr(self.tokenizer, name) is None:
                setattr(self.tokenizer, name, self.tokenizer.eos_token)
        # TransformerLens' word for "as the tokenizer has it"
        if self.cfg.d_vocab == -1:
            # not the number of words: ids may have gaps
            self.cfg.d_vocab = max(self.tokenizer.vocab.values()) + 1
        if self.cfg.d_vocab_out == -1:
            self.cfg.d_vocab_out = self.cfg.d_vocab

    def _needs_tokenizer(self, what: str) -> None:
        assert self.tokenizer is not None, (
            f"Cannot use {what} without a tokenizer: give the model one, or give it tokens"
        )

    def to_tokens(
        self,
        input: str | list[str],
        prepend_bos: bool | None = USE_DEFAULT_VALUE,
        padding_side: Any = USE_DEFAULT_VALUE,
        move_to_device: bool = True,
        truncate: bool = True,
    ) -> Tensor:
        """The tokens of a string or of several, padded, ``[batch, pos]``.

        Args:
            input: one or several strings.
            prepend_bos: whether BOS comes first; the default is the configuration's.
            padding_side: "left" or "right"; the default is the tokenizer's.
            move_to_device: whether to put them on the model's device.
            truncate: whether to cut what is longer than `n_ctx`.
        """
        self._needs_tokenizer("to_tokens")
        with LocallyOverridenDefaults(self, prepend_bos=prepend_bos, padding_side=padding_side):
            wanted, there = self.cfg.default_prepend_bos, self.cfg.tokenizer_prepends_bos
            if wanted and not there:
                input = get_input_with_manually_prepended_bos(self.tokenizer.bos_token, input)
            tokens: Tensor = self.tokenizer(
                input,
                return_tensors="pt",
                padding=True,
                truncation=truncate,
                max_length=self.cfg.n_ctx if truncate else None,
            )["input_ids"]
            if there and not wanted:
                tokens = get_tokens_with_bos_removed(self.tokenizer, tokens)
        return tokens.to(self.cfg.device) if move_to_device else tokens

    def to_string(self, tokens: Any) -> str | list[str]:
        """The text of tokens: one string, or for ``[batch, pos]`` a list of them."""
        self._needs_tokenizer("to_string")
        if not isinstance(tokens, Tensor):
            tokens = torch.tensor(tokens)
        if tokens.ndim == 2:
            return self.tokenizer.batch_decode(tokens, clean_up_tokenization_spaces=False)  # type: ignore[no-any-return]
        if tokens.ndim > 2:
            raise ValueError(f"tokens are [pos] or [batch, pos], not {list(tokens.shape)}")
        return self.tokenizer.decode(tokens, clean_up_tokenization_spaces=False)  # type: ignore[no-any-return]

    def to_str_tokens(
        self,
        input: Any,
        prepend_bos: bool | None = USE_DEFAULT_VALUE,
        padding_side: Any = USE_DEFAULT_VALUE,
    ) -> Any:
        """The text of each token.

        Args:
            input: a string; tokens ``[pos]`` or ``[1, pos]``; or a list of either, for a list.
            prepend_bos: for strings; the default is the configuration's.
            padding_side: for strings; the default is the tokenizer's.
        """
        self._needs_tokenizer("to_str_tokens")
        if isinstance(input, list):
            return [self.to_str_tokens(one, prepend_bos, padding_side) for one in input]
        if isinstance(input, str):
            tokens = self.to_tokens(input, prepend_bos, padding_side)[0]
        elif isinstance(input, Tensor | np.ndarray):
            tokens = torch.as_tensor(input)
            tokens = tokens[0] if tokens.ndim == 2 and len(tokens) == 1 else tokens
            tokens = tokens[None] if tokens.ndim == 0 else tokens
            assert tokens.ndim == 1, (
                f"Invalid tokens input to to_str_tokens, has shape: {tokens.shape}; "
                "give one row at a time, or a list of rows"
            )
        else:
            raise ValueError(
                f"to_str_tokens takes a string, tokens or a list of them, not {type(input)}"
            )
        return self.tokenizer.batch_decode(
            [[token] for token in tokens.tolist()], clean_up_tokenization_spaces=False
        )

    def to_single_token(self, string: str) -> int:
        """The token of a string that is one."""
        tokens = self.to_tokens(string, prepend_bos=False).flatten().tolist()
        assert len(tokens) == 1, f"Input string: {string} is not a single token!"
        return tokens[0]  # type: ignore[no-any-return]

    def tokens_to_residual_directions(self, tokens: Any) -> Tensor:
        """The columns of W_U for tokens: `d_model` last, ``[d_model]`` for a single one.

        Args:
            tokens: the text of one token, a number, or a tensor of tokens.
        """
        if isinstance(tokens, str):
            tokens = self.to_single_token(tokens)
        tokens = torch.as_tensor(tokens)
        if tokens.numel() == 1:
            # one token gives one direction, without an axis
            tokens = tokens.reshape(())
        return self.W_U.T[tokens.to(self.W_U.device)]
