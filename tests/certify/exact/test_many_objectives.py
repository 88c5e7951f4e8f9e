"""Hundreds of logits, of which few matter: as models that read text have them."""

from __future__ import annotations

from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import favouring, margins, random_rnn, strings_of
from tl_dyck.certify import Asker, Delete, Duplicate, PerturbationSpace, Substitute, certify
from tl_dyck.certify.exact import work
from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.balls import Ball
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import count_paths
from tl_dyck.certify.exact.readout import Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.unembedding import MANY, Unembedding, Weights
from tl_dyck.certify.objectives import Objectives
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.rnn import TwoLayerRNN

LOGITS = 150
STRING = (0, 3, 1, 5)
SPACE = PerturbationSpace(
    [(Substitute({w: [(w + 1) % 6, (w + 3) % 6] for w in range(6)}), 2), (Delete([0, 3]), 1)]
)
READOUTS: tuple[dict[str, Any], ...] = (
    {},
    {"n_heads": 2},
    {"n_heads": 2, "ln1": "ln", "ln_final": "ln"},
    {"act_fn": "gelu", "ln2": "ln", "ln_final": "ln", "state": "position"},
    {"act_fn": "relu", "n_heads": 3, "ln_final": "lnpre"},
    {"ln_c": 0.1},
)
"""A linear one, norms, MLPs."""


def many(seed: int, **readout: Any) -> TwoLayerRNN:
    return random_rnn(seed, d_vocab_out=LOGITS, **readout)


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_values_of_many_objectives_hold_those_of_few(readout: dict[str, Any]) -> None:
    network = Network(many(0, **readout))
    strings = strings_of(network.rnn, SPACE, STRING)
    objectives = Objectives.margins(4, LOGITS)
    unembedding = network.unembedding(objectives)
    values = network.values_of(strings, objectives)
    assert values.mid.shape == (len(strings), LOGITS - 1)
    for start in range(0, LOGITS - 1, MANY):
        which = np.arange(start, min(start + MANY, LOGITS - 1))
        few = network.values_of(strings, unembedding.take(which).objectives)
        gap = abs(values.mid[:, which] - few.mid)
        assert (gap <= values.rad[:, which] + few.rad).all()
        assert (values.rad[:, which] <= 100 * few.rad + 1e-13).all()
    least = network.least_of(strings, objectives)
    for bound, ends in ((least.lower, values.low), (least.upper, values.high)):
        assert (abs(bound - ends.min(1)) <= 2 * values.rad.max(1)).all()
    assert (least.lower <= values.high.min(1)).all()
    assert (least.upper >= values.low.min(1)).all()


@pytest.mark.parametrize(
    ("apart", "scale"),
    [
        *((apart, 1.0) for apart in (1e-3, 1e-6, 1e-7, 0.0)),
        *((1e-6, 1e-42), (1e-7, 1e25), (0.0, 1e45)),
    ],
)
def test_rivals_that_single_precision_cannot_tell_apart_are_all_looked_at(
    apart: float, scale: float
) -> None:
    """Many rivals are nearly one; the least lies where exact fractions say, at every size."""
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(8, LOGITS))
    weight[:, 5:40] = weight[:, [5]] * 1.5 + apart * rng.normal(size=(8, 35))
    bias = rng.normal(size=LOGITS)
    bias[5:40] = bias[5]
    weights = Weights(weight * scale, bias * scale)
    reads = rng.normal(size=(20, 8)) * 0.1 + weight[:, 5]
    unembedding = Unembedding(weights, Objectives.margins(0, LOGITS))
    pairs = [unembedding.least(Ball.exact(reads[i : i + 2])) for i in range(0, 20, 2)]
    lowers, uppers = (np.concatenate(ends) for ends in list(zip(*pairs, strict=True))[:2])
    # every float is a whole number of 2**-1074
    whole = np.frompyfunc(lambda each: int(Fraction(each) * 2**1074), 1, 1)
    logits = whole(reads) @ whole(weights.weight) + whole(weights.bias) * 2**1074
    gaps = logits[:, 0] - logits[:, 1:].max(1)
    for gap, lower, upper in zip(gaps, lowers, uppers, strict=True):
        assert Fraction(lower) <= Fraction(gap, 2**2148) <= Fraction(upper)
        assert upper - lower <= 1e-12 * scale + 1e-290


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_what_is_ruled_out_is_nowhere_below_its_bound(readout: dict[str, Any]) -> None:
    """Ranges of coordinates bound every objective on every string; on one string, closely."""
    network = Network(many(1, **readout))
    for space in (SPACE, PerturbationSpace([(Duplicate(), 1)]), PerturbationSpace([])):
        graph = build_graph(network, space.lattice(STRING))
        items = Items(np.flatnonzero(count_paths(graph, np.arange(len(graph.groups)))))
        attention = AttentionWeights(network, graph)
        centre = np.zeros((len(items), network.config.n_heads, network.config.d_head))
        region = Region.of_values(attention, items, centre)
        unembedding = network.unembedding(Objectives.margins(4, LOGITS))
        residual = graph.symbols.r.at(graph.groups[items.groups])
        low = Readout(network, region, residual).screen(unembedding)
        strings = strings_of(network.rnn, space, STRING)
        values = network.values_of(strings, unembedding.objectives)
        last = graph.symbols.tokens[graph.groups[items.groups]]
        for item, token in enumerate(last):
            rows = [i for i, string in enumerate(strings) if string[-1] == token]
            assert rows
            same_state = (last == token).sum() == 1  # else the rows are of several items
            least = (values.mid + values.rad)[rows].min(0)
            if same_state:
                assert (low[item] <= least).all()
        at_once = network.largest_read(graph.symbols, graph.groups)
        assert unembedding.least(at_once).lower[0] <= values.mid.min()
        assert np.isfinite(unembedding.least(at_once).lower[0])


@settings(max_examples=25)
@given(
    seed=st.integers(0, 10**6),
    readout=st.sampled_from(READOUTS),
    margin=st.sampled_from([1e-6, -1e-6, 0.5, -0.5, 3.0]),
    how=st.sampled_from([{}, {"always_listed": 3, "max_listed": 2}, {"always_listed": 0}]),
    tight=st.booleans(),
)
def test_verdicts_are_those_of_every_string(
    seed: int, readout: dict[str, Any], margin: float, how: dict[str, Any], tight: bool
) -> None:
    """Near ties on both sides, whatever is listed, screened or split."""
    rnn, target = many(seed, **readout), seed % LOGITS
    strings = strings_of(rnn, SPACE, STRING)
    rnn = favouring(rnn, target, margin - margins(rnn, strings, target).min())
    found = certify(rnn, STRING, target, SPACE, tight=tight, **how)
    assert found.status == ("proved" if margin > 0 else "refuted")
    assert found.lower <= margin + 1e-9
    assert found.upper >= margin - 1e-9
    if tight:
        assert found.upper - found.lower <= 1e-8


def test_what_bounds_cannot_settle_is_run() -> None:
    """Of 1,701 strings none is listed twice, once bounding has had a tenth of the work."""
    rnn = random_rnn(3, d_vocab_out=LOGITS, n_heads=3, sharpness=6.0, act_fn="gelu", ln2="ln")
    space = PerturbationSpace([(Substitute({w: range(6) for w in range(6)}), 3)])
    string = (0, 3, 1, 5, 2, 4)
    strings = strings_of(rnn, space, string)
    rnn = favouring(rnn, 0, 0.01 - margins(rnn, strings, 0).min())
    found = certify(rnn, string, 0, space)
    assert found.status == "proved"
    assert found.stats["strings_run"] < 1.2 * len(strings) + 200


@pytest.mark.parametrize("readout", READOUTS, ids=str)
def test_a_lower_bound_is_never_nothing(
    readout: dict[str, Any], ticking: Callable[[], int]
) -> None:
    """However little time there was after the strings were laid out."""
    rnn = many(2, **readout)
    strings = strings_of(rnn, SPACE, STRING)
    rnn = favouring(rnn, 7, 0.01 - margins(rnn, strings, 7).min())
    certify(rnn, STRING, 7, SPACE)  # the first of a process looks at the clock more often
    for limit in (25.0, 40.0, 80.0):
        found = certify(rnn, STRING, 7, SPACE, time_limit=limit, always_listed=0)
        assert -np.inf < found.lower <= 0.01 + 1e-9


def language_model(**fields: Any) -> HookedTransformer:
    """As TransformerLens has them: eight heads, positions, LN; small otherwise."""
    config = HookedTransformerConfig(
        **{
            "n_layers": 1,
            "d_model": 32,
            "n_heads": 8,
            "d_head": 4,
            "d_mlp": 64,
            "n_ctx": 16,
            "d_vocab": 400,
            "act_fn": "gelu",
            "normalization_type": "LN",
            "seed": 0,
            "init_weights": True,
            **fields,
        }
    )
    return HookedTransformer(config)


@pytest.mark.global_rng  # of TransformerLens
@pytest.mark.parametrize("fields", [{}, {"attn_only": True, "act_fn": None}], ids=["gelu", "attn"])
def test_near_ties_of_a_real_vocabulary_are_as_its_logits_say(
    fields: dict[str, Any],
) -> None:
    """Tokens and heads of `gelu-1l` and `attn-only-1l`: every text is run, none decided wrongly."""
    vocabulary, rng = 48_262, np.random.default_rng(0)
    model = language_model(d_vocab=vocabulary, **fields)
    with torch.no_grad():
        model.embed.W_E *= 20
        model.unembed.W_U *= 5
    asker = Asker(model)
    for _ in range(2):
        string = tuple(rng.integers(vocabulary, size=5).tolist())
        others = {token: rng.integers(vocabulary, size=2).tolist() for token in string}
        space = PerturbationSpace([(Substitute(others), int(rng.integers(1, 3)))])
        target = asker.target(string, None)
        least = margins(asker.rnn, strings_of(asker.rnn, space, string), target).min()
        for margin, status in ((1e-5, "proved"), (-1e-5, "refuted")):
            tied = favouring(asker.rnn, target, margin - least)
            found = certify(tied, string, target, space)
            assert found.status == status
            assert found.upper == pytest.approx(margin, abs=2e-6)


def test_a_space_that_is_too_large_to_be_run_at_once_is_split(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Where bounds have had their share, parts become small enough, and all is run."""
    monkeypatch.setattr(work, "_MOST_STRINGS", 20)
    rnn = many(3, n_heads=3, sharpness=6.0, act_fn="gelu", ln2="ln")
    space = PerturbationSpace([(Substitute({w: range(6) for w in range(6)}), 3)])
    string = (0, 3, 1, 5, 2)
    strings = strings_of(rnn, space, string)
    rnn = favouring(rnn, 0, 0.01 - margins(rnn, strings, 0).min())
    assert certify(rnn, string, 0, space).status == "proved"
