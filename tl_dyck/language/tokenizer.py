"""A real Hugging Face tokenizer for a bounded Dyck language, made in memory: no files, no network."""

from __future__ import annotations

from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from tl_dyck.language.dyck import BOS_STRING, DyckLanguage

__all__ = ["build_tokenizer"]


def build_tokenizer(language: DyckLanguage) -> PreTrainedTokenizerFast:
    """A tokenizer."""
    vocab = {b: i for i, b in enumerate((*language.alphabet, BOS_STRING))}
    backend = Tokenizer(models.WordLevel(vocab, unk_token=BOS_STRING))
    backend.pre_tokenizer = pre_tokenizers.Split(Regex(language._pattern.pattern), "isolated")
    backend.decoder = decoders.Fuse()
    backend.add_special_tokens([AddedToken(BOS_STRING, special=True, normalized=False)])
    kwargs: dict[str, Any] = {}
    tok = PreTrainedTokenizerFast(
        tokenizer_object=backend,
        bos_token=BOS_STRING,
        eos_token=BOS_STRING,
        pad_token=BOS_STRING,
        padding_side="right",
        name_or_path="dyck",
        add_bos_token=True,
        **kwargs,
    )
    return tok
