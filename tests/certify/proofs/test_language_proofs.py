"""Proofs of a language: what is proved holds, and what does not hold has none."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.certify.proofs.common import (
    CLAIMS,
    ONE_MODEL,
    SMALL,
    N,
    check_file,
    enumerated,
    rnn_of,
    unpacked,
)
from tl_dyck import construct
from tl_dyck.certify.check_language import check
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError, Proof
from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, get_config
from tl_dyck.rnn import TwoLayerRNN, export_rnn


def test_a_construction_is_proved_and_the_sentence_says_how_many_prefixes(proof):
    said = check_file(*proof)
    language = DyckLanguage(2, 3)
    n = sum(sum(ways[1:]) for ways in language.prefixes_by_depth(20))
    assert f"each of {n:,} prefixes of Dyck(2, 3) of up to 20 brackets" in said
    assert said.endswith("compared with the model")


def test_nothing_is_proved_where_attention_adds_nothing_and_the_answer_is_wrong():
    """Then |u| is 0, and the tangent of it is none."""
    rnn = rnn_of("eq6", 0)
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["W_O"].zero_()
    weights["b_O"].zero_()
    weights["b_U"][0] += 100
    with pytest.raises(NoProofError):
        prove_language(TwoLayerRNN(rnn.config, weights), SMALL, N)


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("minimal-onehot", {"property": "kl"}, "unknown property that can be proved"),
        ("minimal-onehot", {"property": "agree"}, "is about 2 model"),
        ("minimal-onehot", {"head": 0}, "is about 1 model"),
        ("minimal-onehot", {"property": "head", "head": 1}, "head must be 0, not 1"),
        ("minimal-onehot", {"length": -1}, "length must be at least 0"),
        ("minimal-onehot", {"time_limit": float("nan")}, "time_limit must be"),
        ("minimal-onehot", {}, "is wrong, or within rounding"),
    ],
)
def test_what_cannot_be_proved_is_said_in_a_line(model, options, words):
    built = build_model(get_config(model, SMALL), 0)
    with pytest.raises((ValueError, TypeError), match=words):
        prove_language(built, SMALL, **{"length": 6, **options})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
def test_a_proof_goes_into_a_pipe_and_the_pipe_stays(proof, tmp_path):
    whole = Proof(proof[0].read_bytes(), "")
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        whole.save(tmp_path / "pipe")
        assert os.read(end, 2 * len(whole.content)) == whole.content
    finally:
        os.close(end)
    assert (tmp_path / "pipe").is_fifo()


@given(
    make=st.sampled_from([construct.balanced, construct.uniform_attention]),
    floor=st.sampled_from([1e-5, 0.5, 1.0, 2.0]),  # LN_C's C: never larger than |u| / Z, to often
    noise=st.sampled_from([0.0, 0.01, 0.03, 0.1]),
    seed=st.integers(0, 1000),
    claim=st.sampled_from(ONE_MODEL),
)
def test_what_is_proved_of_damaged_solutions_holds(make, floor, noise, seed, claim):
    """Some are right on every prefix, some are wrong on few."""
    rnn, generator = export_rnn(make(SMALL.language, n_ctx=16)), torch.Generator()
    generator.manual_seed(seed)
    weights = {
        name: w * (1 + noise * torch.randn(w.shape, generator=generator, dtype=w.dtype))
        for name, w in rnn.weights.items()
    }
    rnn = TwoLayerRNN(replace(rnn.config, ln_c=floor), weights)
    margin = enumerated(rnn, SMALL.language, claim)
    try:
        data = prove_language(rnn, SMALL, N, claim).content
    except NoProofError:
        assert margin < 1e-6
    else:
        assert margin > 0
        facts, arrays = unpacked(data)
        assert CLAIMS[claim] in check(facts, arrays)
