"""Models with positions or two layers: every prefix run while there are few, then drawn ones."""

from __future__ import annotations

import pytest
import torch

from tests.certify.language.test_decide import TASK, check, margins, random_model
from tl_dyck.certify.language import certify_language
from tl_dyck.models import construct


@pytest.mark.parametrize(
    ("family", "options"),
    [
        ("gpt-linear", {"n_layers": 1}),
        ("gpt", {"n_layers": 2}),
        ("eq6", {"n_layers": 2, "n_heads": 2}),
    ],
)
def test_a_model_of_any_kind_is_run_on_every_prefix(family: str, options: dict[str, int]) -> None:
    model = random_model(family, TASK, seed=1, **options)
    found = certify_language(model, TASK, 6)
    assert found.method == "prefixes run one by one, as computed in float64"
    assert found.status == "refuted"
    check(found, model, TASK, 6, "any_token")


def test_the_stack_construction_is_proved_beyond_what_is_run() -> None:
    model = construct.stack(TASK.language)
    found = certify_language(model, TASK, 7)
    assert (found.status, found.proved_to) == ("proved", 7)
    more = certify_language(model, TASK, 9, most_run=300)
    assert (more.status, more.proved_to) == ("proved", 9)
    assert more.complete
    assert "longer ones as paths of a graph" in more.method
    assert more.margin.high == pytest.approx(found.margin.high)
    valid = certify_language(model, TASK, 9, "valid_token", most_run=300)
    assert (valid.status, valid.proved_to) == ("proved", 9)
    some = certify_language(model, TASK, 9, "kl", epsilon=9.0, most_run=300)
    assert some.status == "open"
    assert 3 <= some.proved_to < 9
    assert "too many prefixes to run" in some.reason
    assert some.by_length[-1].error == (0, 1)


@pytest.mark.parametrize("family", ["gpt-learned", "gpt-linear"])
@pytest.mark.parametrize("claim", ["any_token", "closing_only"])
def test_positions_are_decided_along_paths_as_by_brute_force(family: str, claim: str) -> None:
    for seed in range(1):
        model = random_model(family, TASK, seed=seed, scale=1.0, n_layers=1, d_model=8, d_mlp=6)
        found = certify_language(model, TASK, range(1, 8), claim, most_run=0)
        for row in found.by_length:
            _, margin, _, _ = margins(model, TASK, row.length, claim)
            assert row.decided == bool((margin > 0).all())
            assert (row.wrong > 0) == bool((margin < 0).any())


def test_long_prefixes_are_refuted_before_they_are_counted() -> None:
    model = random_model("minimal-onehot", TASK, seed=0, n_ctx=502)
    found = certify_language(model, TASK, range(400, 501), until="refuted")
    assert found.status == "refuted"
    assert found.likeliest is not None
    assert 400 <= len(found.likeliest.tokens) <= 500
    assert TASK.language.is_prefix(torch.tensor(found.likeliest.tokens))


@pytest.mark.parametrize("until", ["counted", "likeliest", "refuted"])
def test_models_that_are_run_are_run_until_that_is_known_which_is_asked_for(until: str) -> None:
    model = random_model("gpt", TASK, seed=1, n_layers=2)
    found = certify_language(model, TASK, 8, until=until)
    decided = [row.length for row in found.by_length if row.decided]
    assert decided == list(range(1, {"counted": 9, "likeliest": 2, "refuted": 2}[until]))
    assert found.status == "refuted"
