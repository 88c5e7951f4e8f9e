"""Spaces of words: the strings are what a tokenizer makes of the edited texts."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast

from tl_dyck.certify import Asker, SpaceError, certify, word_space
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig

TEXT = "The king is dead.\n\nDon't weep: the old king's gone, and the new king is here."
WORDS = {"king": ["queen", "old king", "beggar"], "the": ["a"], "weep": ["cry"], "is": ["was"]}


def byte_level(size: int = 300) -> PreTrainedTokenizerFast:
    """BPE as GPT-2's, learned of the text, so that other words are several tokens."""
    bpe = Tokenizer(models.BPE())
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    bpe.train_from_iterator(
        [TEXT],
        trainers.BpeTrainer(
            vocab_size=size,
            special_tokens=["<bos>"],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    return PreTrainedTokenizerFast(tokenizer_object=bpe, bos_token="<bos>")


TOKENIZER = byte_level()


def encode(text: str) -> tuple[int, ...]:
    return tuple(TOKENIZER.encode(text, add_special_tokens=False))


def texts_of(of: Any) -> set[str]:
    return {of.symbols.text(string) for string in of.space.enumerate(of.tokens)}


@pytest.mark.parametrize("before", [(), (0,)], ids=["bare", "BOS"])
def test_words_are_replaced_as_units(before: tuple[int, ...]) -> None:
    of = word_space(TOKENIZER, TEXT, words=WORDS, k=2, sub=2, before=before)
    assert of.tokens == (*before, *encode(TEXT))
    assert of.symbols.text(of.tokens) == TEXT
    choices = {"The": ["A"], "king": ["queen", "old king"], "the": ["a"], "weep": ["cry"]}
    choices |= {"is": ["was"]}
    parts = ["The", " ", "king", " ", "is", " dead.\n\nDon't ", "weep", ": ", "the"]
    parts += [" old king's gone, and ", "the", " new ", "king", " ", "is", " here."]
    assert "".join(parts) == TEXT
    places = [i for i, part in enumerate(parts) if part in choices]
    expected = {TEXT}
    for chosen in itertools.chain(
        itertools.combinations(places, 1), itertools.combinations(places, 2)
    ):
        for others in itertools.product(*(choices[parts[i]] for i in chosen)):
            edited = list(parts)
            for i, other in zip(chosen, others, strict=True):
                edited[i] = other
            expected.add("".join(edited))
    assert texts_of(of) == expected
    strings = list(of.space.enumerate(of.tokens))
    assert all(string == (*before, *encode(of.symbols.text(string))) for string in strings)
    assert len({len(string) for string in strings}) > 3  # a word may be longer than another


def test_words_are_doubled_dropped_and_mistyped() -> None:
    text = "Don't go, my lord"
    assert texts_of(word_space(TOKENIZER, text, dup=1)) == {
        text, "Don't Don't go, my lord", "Don't go go, my lord", "Don't go, my my lord",
        "Don't go, my lord lord",
    }  # fmt: skip
    assert texts_of(word_space(TOKENIZER, text, drop=1)) == {
        text, " go, my lord", "Don't, my lord", "Don't go, lord", "Don't go, my",
    }  # fmt: skip
    assert texts_of(word_space(TOKENIZER, "we see it", typo=1)) == {
        "we see it", "ew see it", "we ese it", "we see ti",
    }  # fmt: skip
    both = word_space(TOKENIZER, text, dup=1, drop=1)
    assert {"Don't Don't go, my", "go"} & texts_of(both) == {"Don't Don't go, my"}


def test_a_tokenizer_that_does_not_cut_at_words_is_refused() -> None:
    joined = Tokenizer(models.BPE())
    joined.train_from_iterator(["ab cd ab cd"], trainers.BpeTrainer(special_tokens=["<bos>"]))
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=joined, bos_token="<bos>")
    with pytest.raises(SpaceError, match="does not cut 'ab cd' between its words"):
        word_space(tokenizer, "ab cd", drop=1)
    letters = {letter: token for token, letter in enumerate(["<bos>", *"abcdx ", "x "])}
    merged = Tokenizer(models.BPE(vocab=letters, merges=[("x", " ")]))  # x takes the space after it
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=merged, bos_token="<bos>")
    assert word_space(tokenizer, "ab cd", words={"cd": ["dc"]}, sub=1).space
    of = word_space(tokenizer, "ab cd", words={"ab": ["ax", "ba"]}, sub=1)
    assert (of.left_out, texts_of(of)) == (("ax cd",), {"ab cd", "ba cd"})
    with pytest.raises(SpaceError, match="another text"):
        word_space(TOKENIZER, "the king", drop=1).space.size(encode("the queen"))


@pytest.mark.global_rng  # of TransformerLens
def test_a_certificate_shows_words() -> None:
    """Of a language model with a tokenizer; the verdict is that of running every text."""
    config = HookedTransformerConfig(
        n_layers=1, d_model=16, n_heads=4, d_head=4, d_mlp=32, n_ctx=48, d_vocab=len(TOKENIZER),
        act_fn="gelu", normalization_type="LN", seed=1, device="cpu",
    )  # fmt: skip
    model = HookedTransformer(config)
    with torch.no_grad():
        model.embed.W_E *= 10
        model.unembed.W_U *= 10
    of = word_space(TOKENIZER, TEXT, words=WORDS, sub=1, before=[0])
    asker = Asker(model)
    verdict = of.translate(certify(asker, of.tokens, None, of.space))
    best = model(torch.tensor([of.tokens]))[0, -1].argmax()
    margins = []
    for string in of.space.enumerate(of.tokens):
        logits = model(torch.tensor([string]))[0, -1].detach()
        others = torch.cat([logits[:best], logits[best + 1 :]])
        margins.append(float(logits[best] - others.max()))
    assert abs(min(margins)) > 1e-4
    assert verdict.status == ("proved" if min(margins) > 0 else "refuted")
    assert "king" in repr(verdict)
    if verdict.worst is not None and verdict.worst.edits:
        assert "→" in verdict.marked()
