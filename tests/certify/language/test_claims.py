"""The other claims, against every prefix run through the model."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.certify.language.test_decide import TASK, last, prefixes, random_model
from tl_dyck.certify import CertifyError
from tl_dyck.certify.language import certify_language
from tl_dyck.models import DyckTransformer, construct
from tl_dyck.tasks import DyckTask

LENGTH = 6


def logits_of(model: DyckTransformer, length: int) -> Any:
    return last(model, prefixes(TASK, length))


def law(length: int) -> Any:
    return TASK.distribution.next_token_probs(prefixes(TASK, length))[:, -1]


def mass(length: int) -> Any:
    return TASK.distribution.log_prob(prefixes(TASK, length)).exp()


def test_valid_tokens_are_those_of_positive_probability() -> None:
    model = random_model("minimal-onehot", TASK, seed=2, scale=2.0)
    found = certify_language(model, TASK, LENGTH, "valid_token")
    for row in found.by_length:
        top = logits_of(model, row.length).argmax(1, keepdim=True)
        bad = law(row.length).gather(1, top)[:, 0] == 0
        assert row.prefixes == len(bad)
        assert row.wrong == bad.sum()
        assert row.error.low == pytest.approx(float(mass(row.length)[bad].sum()), abs=1e-12)
    assert 0 < found.wrong < found.prefixes


@pytest.mark.parametrize("name", ["total_variation", "kl"])
def test_distances_to_the_next_token_s_law(name: str) -> None:
    model = random_model("minimal-split", TASK, seed=0, scale=1.5)
    distances = []
    for length in range(LENGTH + 1):
        p, log_q = law(length), logits_of(model, length).log_softmax(-1)
        kl = torch.special.xlogy(p, p).sum(-1) - (p * log_q).sum(-1)
        distances.append(kl if name == "kl" else (p - log_q.exp()).abs().sum(-1) / 2)
    every = torch.cat(distances)
    for epsilon in (0.99 * float(every.max()), 1.01 * float(every.max())):
        found = certify_language(model, TASK, LENGTH, name, epsilon=epsilon)
        assert found.status == ("proved" if epsilon > every.max() else "refuted")
        assert [row.wrong for row in found.by_length] == [
            int((d > epsilon).sum()) for d in distances
        ]
        assert epsilon - found.margin.high == pytest.approx(float(every.max()), abs=1e-9)


def test_a_construction_knows_the_law() -> None:
    model = construct.balanced(TASK.language)
    found = certify_language(model, TASK, 8, "total_variation", epsilon=1e-5)
    assert found.status == "proved"


def test_models_agree_where_their_largest_logits_do() -> None:
    one, two = (random_model("minimal-onehot", TASK, seed) for seed in (1, 2))
    found = certify_language(one, TASK, LENGTH, "agree", other=two)
    for row in found.by_length:
        same = logits_of(one, row.length).argmax(1) == logits_of(two, row.length).argmax(1)
        assert row.wrong == (~same).sum()
    assert found.status == "refuted"
    assert certify_language(one, TASK, LENGTH, "agree", other=one).status == "proved"


def test_a_claim_about_no_prefix_is_refused_however_many_are_run() -> None:
    """One type has no closing bracket that could rival: there would be a verdict on nothing."""
    task = DyckTask(name="one", n_types=1, max_depth=3, train_lengths=(4,), long_lengths=(8, 8))
    for family, layers, most in (("gpt", 2, 10_000), ("gpt", 2, 5), ("minimal-onehot", 1, 0)):
        model = random_model(family, task, 0, n_layers=layers)
        with pytest.raises(CertifyError, match="closing_only says nothing of strings of"):
            certify_language(model, task, LENGTH, "closing_only", most_run=most)
