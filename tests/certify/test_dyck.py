"""Matched pairs and the largest logit change, against every string and where theory tells."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.oracles import (
    RNNRecipe,
    SpaceRecipe,
    brute_force,
    rnns,
    spaces,
    strings_of,
    tokens,
)
from tl_dyck.certify import (
    CertifyError,
    PerturbationSpace,
    certify_dyck,
    worst_logit_change,
)
from tl_dyck.certify.dyck import closing_prefixes
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.models import DyckTransformer, build_model, construct, get_config
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.tasks import load_task

TASK = load_task("dyck-2-4")


def last_logits(rnn: TwoLayerRNN, string: tuple[int, ...]) -> np.ndarray:
    bos = () if rnn.config.bos_token is None else (rnn.config.bos_token,)
    return rnn(torch.tensor([(*bos, *string)]))[0, -1].numpy()


def changes_of(
    rnn: TwoLayerRNN, string: tuple[int, ...], texts: list[tuple[int, ...]]
) -> dict[tuple[int, ...], float]:
    """How far each text moves a logit; those of the same length are run together."""
    bos = () if rnn.config.bos_token is None else (rnn.config.bos_token,)
    found, own = {}, last_logits(rnn, string)
    for length in {len(text) for text in texts}:
        alike = [text for text in texts if len(text) == length]
        logits = rnn(torch.tensor([(*bos, *text) for text in alike]))[:, -1].numpy()
        found.update(zip(alike, abs(logits - own).max(-1).tolist(), strict=True))
    return found


@given(recipe=rnns(), space_recipe=spaces(), string=tokens())
def test_the_largest_change_is_that_of_some_string_and_of_no_other_larger(
    recipe: RNNRecipe, space_recipe: SpaceRecipe, string: tuple[int, ...]
) -> None:
    rnn, space = recipe.build(), space_recipe.build()
    if rnn.config.bos_token is None and space.contains(string, ()):
        return
    changes = changes_of(rnn, string, strings_of(rnn, space, string))
    largest, scale = max(changes.values()), max(1.0, abs(last_logits(rnn, string)).max())
    exact = worst_logit_change(rnn, string, space)
    listed = worst_logit_change(rnn, string, space, "exhaustive")
    bounded = worst_logit_change(rnn, string, space, "interval")
    for found in (exact, listed):
        assert found.proved >= largest - 1e-12 * scale
        assert found.seen <= largest + 1e-12 * scale
        assert found.proved == pytest.approx(found.seen, rel=1e-6, abs=1e-9 * scale)
        assert changes[found.worst.tokens] == pytest.approx(-found.worst.margin, abs=1e-9 * scale)
    assert bounded.proved >= largest - 1e-12 * scale


def changes(model: DyckTransformer, prefix: str, space: PerturbationSpace) -> tuple[float, float]:
    """Least margin of the right close and largest change of a logit, by the model, text by text."""
    language = model.cfg.language
    string = tuple(language.parse(prefix).tolist())
    target = string[int(language.top_of_stack(language.parse(prefix))[-1])] + 1
    texts = sorted({text for text, _ in brute_force(space, string)})
    every = torch.stack(
        [model(torch.tensor([(language.bos_token, *text)]))[0, -1] for text in texts]
    )
    others = every.clone()
    others[:, target] = -torch.inf
    margins = every[:, target] - others.max(1).values
    return float(margins.min()), float(abs(every - model(prefix)[0, -1]).max())


@pytest.mark.parametrize("family", ["minimal-onehot", "figure2-split", "eq6"])
def test_a_model_against_its_own_forward_pass(family: str) -> None:
    model = build_model(
        get_config(family, TASK, n_layers=1, dtype=torch.float64, device="cpu"), seed=3
    )
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(3.0)
        found = certify_dyck(model, TASK, prefixes=[[0, 2, 3], [2, 0, 0, 1]], budget=2)
        listed = certify_dyck(model, TASK, prefixes=[[0, 2, 3]], budget=2, certifier="exhaustive")
        assert listed.worst_change == pytest.approx(found.rows[0].change.seen, rel=1e-6)
        for row in found.rows:
            least, largest = changes(model, row.prefix, found.space)
            assert row.change.seen == pytest.approx(largest, rel=1e-6)
            assert row.certificate.lower <= least + 1e-9
            assert row.certificate.upper >= least - 1e-9
            if abs(least) > 1e-9:
                assert row.certificate.status == ("proved" if least > 0 else "refuted")


@pytest.mark.parametrize(
    "build", [construct.balanced, construct.uniform_attention], ids=["balanced", "uniform"]
)
def test_a_balanced_model_is_certified_and_does_not_move(build: object) -> None:
    """Theorem 1: what a matched pair adds to attention's numerator cancels for any pattern."""
    assert callable(build)
    found = certify_dyck(build(TASK.language), TASK, n=4, budget=3, seed=1)
    assert found.share("proved") == 1.0
    with pytest.raises(UnknownNameError, match="Did you mean 'proved'"):
        found.share("provd")
    assert found.counterexample is None
    assert found.worst_change_proved < 1e-8
    assert found.worst_margin == pytest.approx(
        np.log(2), abs=1e-6
    )  # P(close) = 1/2, each opening bracket 1/4


def test_an_unbalanced_model_is_falsified_and_shows_the_string() -> None:
    model = construct.balanced(TASK.language, seed=0)
    weight = model.blocks[0].attn.W_V
    with torch.no_grad():  # the value of a bracket is no longer that of its partner, negated
        weight += torch.randn(
            weight.shape, generator=torch.Generator().manual_seed(0), dtype=weight.dtype
        )
    found = certify_dyck(model, TASK, prefixes=[[0, 2, 3], [0, 2, 2, 3]], budget=2)
    assert found.worst_change > 1.0
    (row, *_) = found.to_rows()
    assert row["prefix"] == "[()"
    assert row["target"] == "]"
    assert model.cfg.language.is_prefix(model.cfg.language.parse(row["most_changed_string"]))
    assert row["most_changed_string"].endswith(")")


@settings(max_examples=20)
@given(n=st.integers(1, 12), length=st.integers(3, 20), seed=st.integers(0, 99))
def test_closing_prefixes(n: int, length: int, seed: int) -> None:
    language = TASK.language
    # of length 3 there are just four: the bracket left open, and the pair behind it
    drawn = closing_prefixes(
        language, min(n, 4), length, generator=torch.Generator().manual_seed(seed)
    )
    assert drawn.shape == (min(n, 4), length)
    assert len({tuple(row) for row in drawn.tolist()}) == len(drawn)
    assert bool(language.is_prefix(drawn).all())
    assert bool(language.is_close(drawn)[:, -1].all())
    assert bool((language.depth(drawn)[:, -1] > 0).all())
    assert bool((DyckDistribution(language).log_prob(drawn) > -np.inf).all())


def test_shows_itself_in_a_few_lines_whatever_the_number_of_prefixes() -> None:
    model = build_model(get_config("minimal-onehot", TASK, d_model=20), 0)
    found = certify_dyck(model, TASK, n=8, length=7, budget=1, seed=1)
    text, page = repr(found), found._repr_html_()
    assert len(text.splitlines()) <= 7
    assert "prefixes       8" in text
    for shown in (text, page):
        assert f"refuted {found.share('refuted'):.0%}" in shown
        assert found.counterexample is None or found.counterexample.prefix in shown
    plain = json.loads(json.dumps(found.to_dict(), allow_nan=False))  # -inf is None
    assert [row["worst_string"] for row in plain["rows"]] == [
        row["worst_string"] for row in found.to_rows()
    ]


def test_prefixes_that_cannot_be() -> None:
    generator = torch.Generator().manual_seed(0)
    with pytest.raises(CertifyError, match=r"found only \d of 9 distinct prefixes of length 3"):
        closing_prefixes(DyckLanguage(2, 2), 9, 3, generator=generator)
    model = build_model(get_config("minimal-onehot", TASK, device="cpu"))
    for wrong in ([0, 1], [0, 3], [1]):
        with pytest.raises(CertifyError, match="leaves no bracket open"):
            certify_dyck(model, TASK, prefixes=[wrong])
