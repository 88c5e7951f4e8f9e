"""Batched edits, attacks and interval bounds: against enumeration, and against the certifiers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.text.conftest import SYNONYMS
from tl_dyck.certify import Insert, PerturbationSpace, SpaceError, certify_many
from tl_dyck_text.attack import Attack, UnsupportedTextModelError, margins
from tl_dyck_text.edits import BatchEdits, pad, random_strings, text_space
from tl_dyck_text.ibp import IntervalBound
from tl_dyck_text.model import TextConfig, TextTransformer, build_text_model
from tl_dyck_text.training import text_logits

WORDS = (
    "<unk>",
    "<cls>",
    "a",
    "the",
    "film",
    "movie",
    "flick",
    "good",
    "fine",
    "great",
    "bad",
    "poor",
    "dull",
    "cold",
)
SPACES = ["dup:2,sub:2", "del:1,sub:1", "del:2,dup:1", "dup:1,del:2,sub:2", "sub:3", "dup:0"]


def model_of(seed: int, scale: float = 3.0, **fields: Any) -> TextTransformer:
    """Random weights, large enough for attention that is not flat."""
    model = build_text_model(TextConfig(words=WORDS, d_model=8, **fields), seed).to(torch.float64)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(scale)
        model.blocks[0].attn.b_O.copy_(torch.linspace(-1, 1, 8))  # type: ignore[union-attr,operator]
    return model


sentences = st.lists(
    st.lists(st.sampled_from(WORDS[2:]), min_size=1, max_size=5).map(" ".join),
    min_size=1,
    max_size=4,
)


def encoded(model: TextTransformer, texts: list[str]) -> list[list[int]]:
    return [model.text.encode(text) for text in texts]


@settings(max_examples=40)
@given(texts=sentences, text=st.sampled_from(SPACES), seed=st.integers(0, 999))
def test_the_cheapest_string_is_the_cheapest_of_all(texts: list[str], text: str, seed: int) -> None:
    config = TextConfig(words=WORDS)
    space = text_space(text, config, SYNONYMS)
    rows = [config.encode(sentence) for sentence in texts]
    cost = np.random.default_rng(seed).normal(size=(len(rows), len(WORDS)))
    found, least = BatchEdits.of(space, config).cheapest(*pad(rows), cost, np.arange(len(WORDS)))
    for row, string, value, price in zip(rows, found, least, cost, strict=True):
        every = [sum(price[token] for token in option[:-1]) for option in space.enumerate(row)]
        assert value == pytest.approx(min(every), abs=1e-12)
        assert sum(price[token] for token in string[:-1]) == pytest.approx(value, abs=1e-12)
        assert space.contains(row, string)


@settings(max_examples=40)
@given(texts=sentences, text=st.sampled_from(SPACES), seed=st.integers(0, 99), data=st.data())
def test_attacks_on_linear_readouts_find_the_worst_string(
    texts: list[str], text: str, seed: int, data: st.DataObject
) -> None:
    model = model_of(seed)
    rows, space = encoded(model, texts), text_space(text, model.text, SYNONYMS)
    labels = torch.tensor([data.draw(st.integers(0, 1)) for _ in rows])
    attack = Attack(model, BatchEdits.of(space, model.text), rounds=20)
    strings, least = attack(*pad(rows), labels)
    seen = margins(text_logits(model, strings), labels)
    assert torch.allclose(seen, least, rtol=1e-5, atol=1e-6)
    exact = certify_many(model, rows, labels.tolist(), space, tight=True)
    for row, string, value, certificate in zip(rows, strings, least.tolist(), exact, strict=True):
        assert space.contains(row, string)
        assert value == pytest.approx(certificate.upper, rel=1e-5, abs=1e-6)


@pytest.mark.parametrize(
    "fields", [{"n_heads": 2}, {"d_mlp": 8}, {"n_heads": 2, "d_mlp": 8, "normalization": "ln"}]
)
def test_attacks_on_other_readouts_stay_in_the_space_and_report_what_the_model_says(
    fields: dict[str, Any],
) -> None:
    for seed in range(3):
        model = model_of(seed, scale=2.0, **fields)
        rows = encoded(model, ["the good film", "a dull plot was cold", "fine"])
        space, labels = text_space("dup:1,sub:2", model.text, SYNONYMS), torch.tensor([1, 0, 1])
        attack = Attack(model, BatchEdits.of(space, model.text))
        strings, least = attack(*pad(rows), labels)
        assert torch.allclose(margins(text_logits(model, strings), labels), least, atol=1e-9)
        clean = margins(text_logits(model, rows), labels)
        assert bool((least <= clean + 1e-9).all())
        assert all(space.contains(row, string) for row, string in zip(rows, strings, strict=True))


@pytest.mark.parametrize("fields", [{}, {"d_mlp": 8}, {"n_heads": 2, "d_mlp": 8}])
@pytest.mark.parametrize("text", SPACES)
def test_interval_bounds_are_those_of_the_certifier(fields: dict[str, Any], text: str) -> None:
    model = model_of(SPACES.index(text) % 3, scale=2.0, **fields)
    rows = encoded(model, ["the good film", "a dull plot was cold", "fine", "the movie"])
    labels, space = torch.tensor([1, 0, 1, 0]), text_space(text, model.text, SYNONYMS)
    with torch.no_grad():
        bound = IntervalBound(model, BatchEdits.of(space, model.text))(*pad(rows), labels)
    certified = certify_many(model, rows, labels.tolist(), space, "interval")
    for i, certificate in enumerate(certified):
        assert float(bound[i, labels[i]]) == pytest.approx(0.0, abs=1e-12)
        # the certifier also knows that a mean lies between its values, so it may be tighter; it
        # rounds outwards
        assert float(bound[i, 1 - labels[i]]) <= certificate.lower + 1e-7 * max(
            1.0, abs(certificate.lower)
        )
    for i, least in enumerate(certify_many(model, rows, labels.tolist(), space, "exhaustive")):
        assert float(bound[i, 1 - labels[i]]) <= least.upper + 1e-9


def test_interval_bounds_have_the_right_gradient() -> None:
    model = model_of(0, scale=1.5, d_mlp=8)
    rows, labels = encoded(model, ["the good film", "a dull plot"]), torch.tensor([1, 0])
    bound = IntervalBound(
        model, BatchEdits.of(text_space("dup:1,sub:1", model.text, SYNONYMS), model.text)
    )

    def loss() -> torch.Tensor:
        return bound(*pad(rows), labels).sum()

    loss().backward()
    parameter = model.blocks[0].attn.W_V  # type: ignore[union-attr]
    gradient = parameter.grad.clone()  # type: ignore[union-attr,operator]
    for index in ((0, 0, 0), (0, 3, 5), (0, 7, 2)):
        ends = []
        for step in (1e-6, -1e-6):
            with torch.no_grad():
                parameter[index] += step  # type: ignore[index,operator]
                ends.append(float(loss()))
                parameter[index] -= step  # type: ignore[index,operator]
        assert (ends[0] - ends[1]) / 2e-6 == pytest.approx(
            float(gradient[index]), rel=1e-4, abs=1e-6
        )


def test_random_strings_use_every_edit() -> None:
    config = TextConfig(words=WORDS)
    space, row = text_space("dup:1,del:1,sub:1", config, SYNONYMS), config.encode("the good film")
    rng = np.random.default_rng(0)
    drawn = {
        tuple(random_strings(BatchEdits.of(space, config), [row], rng)[0]) for _ in range(3000)
    }
    assert drawn == set(space.enumerate(row))


def test_cls_is_never_edited_and_unknown_words_are_one_token() -> None:
    config = TextConfig(words=WORDS)
    row = config.encode("the unheard good")
    assert row == [3, 0, 7, 1]
    assert config.symbols.text(row) == "the <unk> good"
    for text in SPACES:
        assert all(
            string[-1] == 1 and 1 not in string[:-1]
            for string in text_space(text, config, SYNONYMS).enumerate(row)
        )


def test_what_cannot_be() -> None:
    config = TextConfig(words=WORDS)
    with pytest.raises(SpaceError, match="is none of dup:N, del:N, sub:N"):
        text_space("swap:1", config, SYNONYMS)
    with pytest.raises(SpaceError, match="at least 1, not 0"):
        text_space("sub:1", config, SYNONYMS, 0)
    with pytest.raises(SpaceError, match="is not one of dup, del"):
        BatchEdits.of(PerturbationSpace([(Insert([(2,)]), 1)]), config)
    edits = BatchEdits.of(text_space("dup:1", config, SYNONYMS), config)
    with pytest.raises(UnsupportedTextModelError, match="position='linear'"):
        Attack(build_text_model(TextConfig(words=WORDS, position="linear")), edits)
    with pytest.raises(UnsupportedTextModelError, match="normalization='ln'"):
        IntervalBound(build_text_model(TextConfig(words=WORDS, normalization="ln")), edits)
