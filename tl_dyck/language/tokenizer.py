"""A real Hugging Face tokenizer for a bounded Dyck language, in memory: no files, no network."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from tokenizers import Regex, Tokenizer, decoders, models, pre_tokenizers, processors
from transformers import PreTrainedTokenizerFast

from tl_dyck.kit.arguments import checked
from tl_dyck.language.checks import BOS_STRING, cut
from tl_dyck.language.dyck import DyckLanguage
from tl_dyck.language.symbols import Language


class DyckTokenizer(PreTrainedTokenizerFast):  # type: ignore[misc]
    """One token a bracket; a text with anything else (but ``<bos>``) raises `DyckStringError`.

    Make one with `build_tokenizer`.
    """

    symbol_kind = "bracket"

    # Every way in (call, encode, tokenize, batches) ends in one of these two, in transformers 4
    # and 5. Should that ever change: the tokenizer has no "unknown" token to fall back on, so it
    # still raises, if less clearly.

    def _encode_plus(self, text: Any, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unknown(text)
        return super()._encode_plus(text, *args, **kwargs)

    def _batch_encode_plus(self, batch_text_or_text_pairs: Any, *args: Any, **kwargs: Any) -> Any:
        self._refuse_unknown(batch_text_or_text_pairs)
        return super()._batch_encode_plus(batch_text_or_text_pairs, *args, **kwargs)

    def _refuse_unknown(self, texts: Any) -> None:
        symbols = self.convert_ids_to_tokens(range(len(self)))
        for text in _strings(texts):
            for _ in cut(text, symbols, self.symbol_kind):
                pass


@checked
def build_tokenizer(language: Language) -> PreTrainedTokenizerFast:
    """A tokenizer whose ids are the tokens of `language`.

    ``<bos>``, id 2k, is the start, the end and the padding token; as a TransformerLens user
    expects, it is put in front of every text (TransformerLens takes it off again where
    ``prepend_bos=False``). Padding is on the right. It can be copied and pickled.

    Args:
        language: gives the brackets, which may have several characters each.

    Returns:
        The tokenizer; encoding an unknown bracket raises `DyckStringError`, which says where it
        stands.
    """
    vocab = {bracket: token for token, bracket in enumerate((*language.alphabet, BOS_STRING))}
    backend = Tokenizer(models.WordLevel(vocab))
    if language.separator:
        backend.pre_tokenizer = pre_tokenizers.WhitespaceSplit()  # and what is decoded has spaces
    else:
        symbols = Regex("|".join(map(re.escape, language.alphabet)))
        backend.pre_tokenizer = pre_tokenizers.Split(symbols, "isolated")
        backend.decoder = decoders.Fuse()
    # transformers 4 needs this; transformers 5 writes the same one itself because of add_bos_token.
    backend.post_processor = processors.TemplateProcessing(
        single=f"{BOS_STRING}:0 $A:0",
        pair=f"{BOS_STRING}:0 $A:0 {BOS_STRING}:1 $B:1",
        special_tokens=[(BOS_STRING, language.bos_token)],
    )
    tokenizer = DyckTokenizer(
        tokenizer_object=backend,
        bos_token=BOS_STRING,
        eos_token=BOS_STRING,
        pad_token=BOS_STRING,
        padding_side="right",
        clean_up_tokenization_spaces=False,
        # TransformerLens would otherwise ask the network for a tokenizer of this name that adds
        # BOS.
        add_bos_token=True,
        name_or_path=str(language).replace("/", "-")
        if not isinstance(language, DyckLanguage)
        else f"dyck-{language.n_types}-{language.max_depth}",
    )
    tokenizer.symbol_kind = language.symbol_kind
    return tokenizer


def _strings(texts: Any) -> Iterator[str]:
    """Every string in nested lists and tuples of strings (batches, pairs, texts split before)."""
    if isinstance(texts, str):
        yield texts
    elif isinstance(texts, list | tuple):
        for item in texts:
            yield from _strings(item)
