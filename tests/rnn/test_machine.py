"""The machine by itself: its forms against each other (`test_accounts` has the truth)."""

from __future__ import annotations

import copy
import dataclasses
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from tests.certify.oracles import RNNRecipe, rnns
from tl_dyck.language import DyckStringError
from tl_dyck.rnn import (
    RNNConfig,
    RNNConfigError,
    RNNInputError,
    RNNWeightError,
    TwoLayerRNN,
    weight_shapes,
)


def random_rnn(
    config: RNNConfig, seed: int = 0, dtype: torch.dtype = torch.float64, size: float = 1.0
) -> TwoLayerRNN:
    generator = torch.Generator().manual_seed(seed)
    return TwoLayerRNN(
        config,
        {
            name: (size * torch.randn(shape, generator=generator, dtype=torch.float64)).to(dtype)
            for name, shape in weight_shapes(config).items()
        },
    )


SMALL: dict[str, Any] = {
    "d_model": 5,
    "n_heads": 2,
    "d_head": 3,
    "d_vocab": 5,
    "d_vocab_out": 3,
    "n_ctx": 16,
}


strings = st.integers(1, 12).flatmap(
    lambda n: st.lists(st.lists(st.integers(0, 4), min_size=n, max_size=n), min_size=1, max_size=3)
)


def close(actual: Tensor, expected: Tensor, tolerance: float = 1e-9) -> bool:
    return float((actual - expected).abs().max()) <= tolerance * (1 + float(expected.abs().max()))


# ------------------------------------------------------------ every form computes the same function


@settings(max_examples=20)
@given(rnns(), strings)
def test_streaming_equals_whole_strings(recipe: RNNRecipe, batch: list[list[int]]) -> None:
    rnn, tokens = recipe.build(), torch.tensor(batch)
    if rnn.config.has_position:
        with pytest.raises(RNNInputError, match="is not read token by token"):
            rnn.initial(len(batch))
        return
    carry = rnn.initial(len(batch))
    expected = rnn(tokens)
    for position in range(tokens.shape[1]):
        carry, logits = rnn.step(carry, tokens[:, position])
        assert close(logits, expected[:, position])
        assert torch.equal(carry.state, rnn.states(tokens)[:, position])


@given(rnns(), strings, st.data())
def test_last_logits_of_padded_strings(
    recipe: RNNRecipe, batch: list[list[int]], data: st.DataObject
) -> None:
    rnn, tokens = recipe.build(), torch.tensor(batch)
    lengths = torch.tensor([data.draw(st.integers(1, tokens.shape[1])) for _ in batch])
    expected = rnn(tokens)[torch.arange(len(batch)), lengths - 1]
    assert close(rnn.last_logits(tokens, lengths), expected)
    assert close(rnn.last_logits(tokens), rnn(tokens)[:, -1])


def test_states_mean_what_they_say() -> None:
    brackets = {"n_types": 2, "max_depth": 2}
    tokens = torch.tensor([4, 0, 2, 3, 1, 1, 0])  # BOS [ ( ) ] ] [
    assert random_rnn(RNNConfig(**SMALL)).states(tokens).tolist() == [0] * 7
    position = random_rnn(RNNConfig(**SMALL, state="position"))
    assert position.states(tokens).tolist() == list(range(7))
    depth = random_rnn(RNNConfig(**SMALL, state="depth", **brackets))
    # unclamped: the second ] goes below zero
    assert depth.states(tokens).tolist() == [0, 1, 2, 1, 0, -1, 0]


# ---------------------------------------------------------------------- numerics


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("size", [1e2, 1e4, 1e8])
@pytest.mark.parametrize("state", ["none", "position"])
def test_saturated_scores_never_overflow(state: Any, size: float, dtype: torch.dtype) -> None:
    rnn = random_rnn(RNNConfig(**SMALL, state=state), dtype=dtype)
    rnn.W_Q *= size
    rnn.b_Q *= size
    tokens = torch.randint(5, (4, 16), generator=torch.Generator().manual_seed(0))
    r = rnn.embed(tokens, rnn.states(tokens))
    assert float(torch.einsum("bqhe,bkhe->bqkh", rnn.query(r), rnn.key(r)).abs().max()) > size
    expected = copy.deepcopy(rnn).to(torch.float64)(tokens)
    # a score a is known to a·eps only, which is the relative error of its exponential
    tolerance = 50 * size * torch.finfo(dtype).eps
    carry = rnn.initial(4) if state == "none" else None
    for position in range(16 if state == "none" else 0):
        carry, logits = rnn.step(carry, tokens[:, position])
        assert bool(logits.isfinite().all())
        assert close(logits.double(), expected[:, position], min(tolerance, 10.0))
    assert bool(rnn(tokens).isfinite().all())
    assert close(rnn(tokens).double(), expected, min(tolerance, 10.0))


def test_equal_scores_give_the_mean() -> None:
    """A tie of saturated scores: every token weighs the same, whichever came first."""
    rnn = random_rnn(RNNConfig(**SMALL, state="position"))
    for name in ("W_Q", "W_K", "b_K"):
        getattr(rnn, name).zero_()
    rnn.b_Q.fill_(1e150)
    rnn.b_K.fill_(1e150)  # every score is 3e300
    tokens = torch.tensor([[0, 1, 2, 3]])
    r = rnn.embed(tokens, rnn.states(tokens))
    expected = rnn.readout(r[:, -1], rnn.value(r).mean(1))
    assert close(rnn(tokens)[:, -1], expected)
    assert close(rnn.last_logits(tokens), expected)


def test_memory_of_the_stream_does_not_grow() -> None:
    rnn, sizes = random_rnn(RNNConfig(**SMALL)), set()
    carry = rnn.initial(2)
    for _ in range(100):
        carry, _ = rnn.step(carry, torch.tensor([1, 2]))
        sizes.add(sum(part.numel() for part in carry.sums))
    assert sizes == {2 * 5 * 2 * (3 + 2)}  # batch * queries * head * (d_head + 2)


def test_one_prefix_continues_in_several_ways() -> None:
    rnn = random_rnn(RNNConfig(**SMALL))
    carry = rnn.initial()
    for token in (0, 3, 1):
        carry, _ = rnn.step(carry, torch.tensor([token]))
    for token in (4, 2, 0):
        _, logits = rnn.step(carry, torch.tensor([token]))
        assert close(logits, rnn(torch.tensor([[0, 3, 1, token]]))[:, -1])


def test_strings_beyond_n_ctx() -> None:
    tokens = torch.zeros(1, 40, dtype=torch.long)
    assert random_rnn(RNNConfig(**SMALL))(tokens).shape == (1, 40, 3)  # no positions, no limit
    rnn = random_rnn(RNNConfig(**SMALL, state="position"))
    with pytest.raises(RNNInputError, match="40 tokens, but the model has 16 positions"):
        rnn(tokens)


# ---------------------------------------------------------------------- what is refused


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"d_model": 0}, "d_model must be at least 1"),
        ({"n_heads": 2.0}, "n_heads must be an integer"),
        ({"n_heads": True}, "n_heads must be an integer"),
        ({"d_vocab": 2**31}, "d_vocab must be at most"),
        ({"state": "rotary"}, "unknown state 'rotary'"),
        ({"act_fn": "relu"}, "both d_mlp and act_fn"),
        ({"d_mlp": 4}, "both d_mlp and act_fn"),
        ({"d_mlp": 4, "act_fn": "swiglu"}, "unknown act_fn"),
        ({"ln1": "rms"}, "unknown ln1"),
        ({"ln2": "ln"}, "precedes an MLP"),
        ({"ln_c": 0.0}, "ln_c must be above 0"),
        ({"ln_mid": 0.0}, "ln_mid must be above 0"),
        ({"attn_scale": float("nan")}, "attn_scale must be finite"),
        ({"eps": -1.0}, "eps must be at least 0"),
        ({"state": "depth"}, "a depth counter has n_types and max_depth"),
        ({"n_types": 2, "max_depth": 2}, "a depth counter has n_types and max_depth"),
        ({"state": "depth", "n_types": 3, "max_depth": 2}, "needs at least 6 tokens"),
        ({"bos_token": 5}, "bos_token=5 is not a token"),
        ({"alphabet": ("a",)}, "1 texts for d_vocab=5"),
        ({"separator": ""}, "without an alphabet"),
        ({"residual": 1}, "residual must be True or False"),
        ({"model_name": None}, "model_name must be a text"),
    ],
)
def test_impossible_configurations(change: dict[str, Any], message: str) -> None:
    with pytest.raises(RNNConfigError, match=message):
        RNNConfig.from_dict({**SMALL, **change})


@given(rnns())
def test_configurations_survive_a_dictionary(recipe: RNNRecipe) -> None:
    config = recipe.build().config
    assert RNNConfig.from_dict(config.to_dict()) == config
    with pytest.raises(RNNConfigError, match="unknown parameter 'd_modell'"):
        RNNConfig.from_dict({**config.to_dict(), "d_modell": 3})
    plain = config.to_dict()
    del plain["n_ctx"]
    with pytest.raises(RNNConfigError, match="RNNConfig lacks n_ctx"):
        RNNConfig.from_dict(plain)


def test_wrong_weights() -> None:
    config = RNNConfig(**SMALL)
    good = random_rnn(config).weights
    for change, message in (
        ({"W_pos": torch.zeros(16, 5)}, r"unknown \['W_pos'\]"),
        (
            {"W_Q": torch.zeros(2, 5, 4).double()},
            r"W_Q has shape \(2, 5, 4\), expected \(2, 5, 3\)",
        ),
        ({"b_U": torch.tensor([0.0, torch.nan, 0.0]).double()}, "b_U holds nan or infinite"),
        ({"b_U": torch.tensor([0.0, torch.inf, 0.0]).double()}, "b_U holds nan or infinite"),
        ({"b_U": torch.zeros(3)}, "mixed types"),
        ({"b_U": torch.zeros(3, dtype=torch.bfloat16)}, "only float32 and float64"),
    ):
        with pytest.raises(RNNWeightError, match=message):
            TwoLayerRNN(config, {**good, **change})
    with pytest.raises(RNNWeightError, match=r"missing \['W_E'\]"):
        TwoLayerRNN(config, {name: weight for name, weight in good.items() if name != "W_E"})


def test_wrong_strings() -> None:
    rnn = random_rnn(RNNConfig(**SMALL))
    for tokens, message in (
        (torch.tensor([[1, 5]]), r"token 5 is not in the vocabulary 0\.\.4"),
        (torch.tensor([[-1, 0]]), "token -1 is not in the vocabulary"),
        (torch.zeros(1, 0, dtype=torch.long), "an empty string"),
    ):
        with pytest.raises(RNNInputError, match=message):
            rnn(tokens)
        with pytest.raises(RNNInputError, match=message):
            rnn.last_logits(tokens)
    with pytest.raises(RNNInputError, match="token -1"):
        rnn.step(rnn.initial(), torch.tensor([-1]))
    for length in (0, 3):
        with pytest.raises(RNNInputError, match=r"lengths must be in 1\.\.2"):
            rnn.last_logits(torch.tensor([[1, 2]]), torch.tensor([length]))


# ---------------------------------------------------------------------- texts


def test_texts_of_characters_and_words() -> None:
    config = RNNConfig(**SMALL, alphabet=("[", "]", "<a", "<", "<bos>"), separator="", bos_token=4)
    rnn = random_rnn(config)
    assert rnn.to_tokens("[ <a]<").tolist() == [[4, 0, 2, 1, 3]]  # the longest symbol first
    assert rnn.to_tokens("<bos>[]").tolist() == [[4, 0, 1]]
    assert rnn.to_tokens("[]", prepend_bos=False).tolist() == [[0, 1]]
    assert rnn.to_string(torch.tensor([4, 0, 2, 1])) == "[<a]"
    assert rnn.to_str_tokens(torch.tensor([4, 0])) == ["<bos>", "["]
    with pytest.raises(DyckStringError, match=r"'x', symbol 2"):
        rnn.to_tokens("[x")
    words = dataclasses.replace(
        config, alphabet=("a", "good", "film", "?", "<bos>"), separator=" ", bos_token=None
    )
    assert random_rnn(words).to_tokens("a  good film").tolist() == [[0, 1, 2]]
    with pytest.raises(DyckStringError, match="'bad'"):
        random_rnn(words).to_tokens("a bad film")
    unknown = dataclasses.replace(words, unknown_token=3)
    assert random_rnn(unknown).to_tokens("a bad film").tolist() == [[0, 3, 2]]
    assert random_rnn(words).to_string(torch.tensor([0, 2])) == "a film"
    with pytest.raises(DyckStringError, match="no alphabet"):
        random_rnn(RNNConfig(**SMALL)).to_tokens("a")
    with pytest.raises(DyckStringError, match="token 5"):
        rnn.to_str_tokens(torch.tensor([5]))
