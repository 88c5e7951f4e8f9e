"""Two layers and what they predict (valid tokens, agreement, heads), against every prefix run."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.cases import thinned
from tests.certify.language.test_decide import (
    TASK,
    last,
    make_same,
    prefixes,
    random_model,
    task_of,
)
from tl_dyck.certify import CertifyError
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.language import LanguageCertificate, certify_language
from tl_dyck.certify.language.questions import ask
from tl_dyck.models import DyckTransformer, construct
from tl_dyck.tasks import DyckTask

SHAPES: list[dict[str, Any]] = [
    {"mlp": False, "layer_norm": False},
    {"mlp": False, "layer_norm": False, "n_heads": 2},
    {"d_mlp": 6},
    {"mlp": False, "n_heads": 2},
]


def two_layers(task: DyckTask, seed: int, scale: float, shape: dict[str, Any]) -> DyckTransformer:
    return random_model("gpt", task, seed, scale, n_layers=2, d_model=8, **shape)


def valid_margins(model: DyckTransformer, task: DyckTask, length: int) -> torch.Tensor:
    """The best token that may follow, less the best that may not."""
    tokens = prefixes(task, length)
    valid = task.distribution.next_token_probs(tokens)[:, -1] > 0
    logits = last(model, tokens)
    wins, loses = (logits.masked_fill(which, -torch.inf).max(1).values for which in (~valid, valid))
    return wins - loses


def check(found: LanguageCertificate, wrong: list[int], least: float) -> bool:
    """Whether it was decided; never otherwise than by every prefix of each length, from 0 on."""
    shortest = next((n for n, number in enumerate(wrong) if number), len(wrong))
    assert found.proved_to < shortest
    for row, number in zip(found.by_length, wrong, strict=True):
        assert row.wrong <= number
        assert row.error.low <= (number > 0)
        if row.decided:
            assert row.wrong == number
    if found.status == "proved":
        assert 0 < found.margin.low <= least + 1e-9
    assert found.status in ("open", "refuted" if shortest < len(wrong) else "proved")
    return found.status != "open"


@settings(max_examples=4)
@given(
    k=st.integers(1, 3),
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 99),
    by=st.sampled_from([1.0, 1e-6, -1e-6, 1e-9, -1e-9]),
)
def test_valid_tokens_as_by_brute_force(
    k: int, shape: dict[str, Any], seed: int, by: float
) -> None:
    """So deep that an opening bracket is always valid, and the least margin is set by its bias."""
    longest = 6 - k
    task = task_of(k, longest + 1)
    model = two_layers(task, seed, 1.0, shape)
    with torch.no_grad():
        model.unembed.b_U[0 : 2 * k : 2] += 50.0
        least = min(valid_margins(model, task, n).min() for n in range(longest + 1))
        model.unembed.b_U[0 : 2 * k : 2] += by - least
    margins = [valid_margins(model, task, n) for n in range(longest + 1)]
    found = certify_language(model, task, longest, "valid_token", most_run=0)
    decided = check(found, [int((m < 0).sum()) for m in margins], by)
    assert decided or abs(by) < 1e-6


@pytest.mark.parametrize(("deepest", "shape"), thinned([(2, 3), (1, 0), (4, 2)], 3))
def test_valid_tokens_at_all_depths(deepest: int, shape: int) -> None:
    """A model that is wrong at the greatest depth, where no bracket may open."""
    task = task_of(2, deepest)
    model = two_layers(task, 1, 1.0, SHAPES[shape])
    for shift in (-2.0, 5.0):
        with torch.no_grad():
            model.unembed.b_U[0:4:2] += shift
        wrong = [int((valid_margins(model, task, n) < 0).sum()) for n in range(5)]
        check(certify_language(model, task, 4, "valid_token", most_run=0), wrong, torch.inf)
    built = construct.uniform_attention(task.language, first_layer="attention")
    ran, found = (certify_language(built, task, 4, "valid_token", most_run=m) for m in (9_999, 9))
    assert (ran.status, ran.wrong) == (found.status, found.wrong)


@settings(max_examples=4)
@given(
    k=st.integers(1, 3),
    deepest=st.integers(1, 4),
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 99),
    by=st.sampled_from([-1e-6, 1e-6, -1e-9, 1e-9, 1.0]),
)
def test_agreement_as_by_brute_force(
    k: int, deepest: int, shape: dict[str, Any], seed: int, by: float
) -> None:
    """The other model likes one bracket more, by what nearly makes it the first somewhere."""
    task, longest = task_of(k, deepest), 6 - k
    model = two_layers(task, seed, 0.3, shape)
    other = copy.deepcopy(model)
    every = [last(model, prefixes(task, n)) for n in range(longest + 1)]
    behind = [(logits.max(1).values - logits[:, 0]) for logits in every]
    nearest = min(
        float(each[each > 0].min(initial=9.0)) for each in map(torch.Tensor.numpy, behind)
    )
    with torch.no_grad():
        other.unembed.b_U[0] += nearest - by
    tops = [logits.argmax(1) for logits in every]
    theirs = [last(other, prefixes(task, n)).argmax(1) for n in range(longest + 1)]
    wrong = [int((a != b).sum()) for a, b in zip(tops, theirs, strict=True)]
    found = certify_language(model, task, longest, "agree", other=other, most_run=0)
    check(found, wrong, torch.inf)
    check(
        certify_language(other, task, longest, "agree", other=model, most_run=0), wrong, torch.inf
    )


@pytest.mark.parametrize("which", [0, 1])
def test_both_models_are_decided(which: int) -> None:
    """One predicts one token always, the other on all prefixes but one, or on all."""
    task, n = task_of(2, 3), 6
    for seed in range(2):
        model = two_layers(task, seed, 1.0, SHAPES[0])
        always = copy.deepcopy(model)
        logits = last(model, prefixes(task, n))
        lead = logits[:, 0] - logits[:, 1:].max(1).values
        with torch.no_grad():
            always.unembed.b_U[0] += 1e3
            model.unembed.b_U[0] -= lead.min() - 1e-6
        models = [model, always] if which == 0 else [always, model]
        paths = ask(models[0], task, "agree", n, other=models[1]).paths
        assert paths is not None
        assert paths.least(n, Deadline(), decide=True).low > 0
        with torch.no_grad():
            model.unembed.b_U[0] -= 2e-6
        paths = ask(models[0], task, "agree", n, other=models[1]).paths
        assert paths is not None
        found = paths.least(n, Deadline(), decide=True)
        assert found.high < 0
        assert found.string == tuple(prefixes(task, n)[lead.argmin(), 1:].tolist())


def test_models_of_other_kinds_agree_and_do_not() -> None:
    """With one layer, and with a second one that does nothing."""
    one = random_model("eq6", TASK, seed=3, scale=1.0, n_layers=1)
    two = random_model("eq6", TASK, seed=3, scale=1.0, n_layers=2)
    make_same(two, one)
    for a, b in ((one, two), (two, one)):
        found = certify_language(a, TASK, 4, "agree", other=b, most_run=20)
        assert found.status != "refuted"
        assert found.proved_to >= 3
    with torch.no_grad():
        two.unembed.b_U[1] += 1.0
    assert certify_language(one, TASK, 4, "agree", other=two, most_run=20).status == "refuted"


@pytest.mark.parametrize(("layers", "layer"), thinned([(1, 0), (2, 0), (2, 1)]))
def test_a_head_is_made_uniform_where_it_is(layers: int, layer: int) -> None:
    """With W_V = 0 its pattern does not matter; another's does, as a hook on its pattern says."""
    model = two_layers(TASK, 1, 2.0, SHAPES[1])
    if layers == 1:
        model = random_model("minimal-onehot", TASK, seed=1, n_heads=2)
    with torch.no_grad():
        model.blocks[layer].attn.W_V[1] = 0.0
    both: list[Any] = [0, 1] if layers == 1 else [(layer, 0), (layer, 1)]
    idle = certify_language(model, TASK, 4, "head", head=both[1], most_run=50)
    assert idle.status != "refuted"
    assert idle.proved_to >= 3

    def uniform(pattern: torch.Tensor, hook: object) -> torch.Tensor:
        size = pattern.shape[-1]
        flat = torch.tril(torch.ones(size, size)) / torch.arange(1, size + 1)[:, None]
        pattern[:, 0] = flat.to(pattern)
        return pattern

    where = f"blocks.{layer}.attn.hook_pattern"
    wrong = []
    for n in range(6):
        tokens = prefixes(TASK, n)
        flat = model.run_with_hooks(tokens, fwd_hooks=[(where, uniform)])[:, -1].argmax(1)
        wrong.append(int((flat != last(model, tokens).argmax(1)).sum()))
    ran = certify_language(model, TASK, 5, "head", head=both[0])
    assert [row.wrong for row in ran.by_length] == wrong
    assert ran.status == "refuted"
    check(certify_language(model, TASK, 5, "head", head=both[0], most_run=0), wrong, torch.inf)


@pytest.mark.parametrize(
    ("head", "message"),
    [
        (0, r"2 layers: give head=\(layer, head\), not 0"),
        ((2, 0), r"layer must be one of 0\.\.1, not 2"),
        ((1, 1), r"head must be one of 0\.\.0, not 1"),
    ],
)
def test_a_head_that_is_not_there_is_named(head: Any, message: str) -> None:
    model = two_layers(TASK, 0, 1.0, SHAPES[0])
    with pytest.raises(CertifyError, match=message):
        certify_language(model, TASK, 4, "head", head=head)
