"""Eq. 22 against a slow account of it, its zeros, its gradient; and training with it."""

from __future__ import annotations

import math
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.models import build_model, construct, get_config, lean_logits
from tl_dyck.tasks import load_task
from tl_dyck.training import ContrastiveRegularizer, TrainConfig, load_result
from tl_dyck.training.run import stream
from tl_dyck.training.stack import Stack

LANGUAGES = {(k, depth): DyckLanguage(k, depth) for k in (1, 2, 3) for depth in (1, 2, 4)}


def rng(seed=0):
    return torch.Generator().manual_seed(seed)


def strings(language, lengths, seed=0):
    """Strings of several lengths, BOS first, filled up with BOS."""
    rows = [
        DyckDistribution(language).sample(1, n, mode="prefix", generator=rng(seed + n))[0]
        for n in lengths
    ]
    tokens = torch.full((len(rows), 1 + max(lengths)), language.bos_token)
    for row, string in zip(tokens, rows, strict=True):
        row[1 : 1 + len(string)] = string
    return tokens


def without_filling(row, bos):
    return [token for token in row.tolist() if token != bos]


@given(
    shape=st.sampled_from(sorted(LANGUAGES)),
    lengths=st.lists(st.integers(1, 9), min_size=1, max_size=5),
    seed=st.integers(0, 99),
)
@settings(max_examples=25)
def test_prefixes_are_nested_pairs_of_one_type(shape, lengths, seed):
    language = LANGUAGES[shape]
    tokens = strings(language, lengths, seed)
    longer, shift = ContrastiveRegularizer(language).prefixed(tokens, generator=rng(seed))
    assert language.is_prefix(longer).all()  # never deeper than D
    for row, new, moved in zip(tokens, longer, shift.tolist(), strict=True):
        x = without_filling(row, language.bos_token)
        found = without_filling(new, language.bos_token)
        r, i = moved // 2, found[0] // 2
        assert 1 <= r <= language.max_depth
        assert found == [2 * i] * r + [2 * i + 1] * r + x
        assert new[0] == language.bos_token
        assert new[1 : 1 + len(found)].tolist() == found


def test_prefixes_are_uniform():
    language = LANGUAGES[3, 4]
    tokens = torch.full((12_000, 2), language.bos_token)
    tokens[:, 1] = 0
    longer, shift = ContrastiveRegularizer(language).prefixed(tokens, generator=rng())
    count = torch.zeros(4, 3).index_put_(
        (shift // 2 - 1, longer[:, 1] // 2), torch.ones(12_000), accumulate=True
    )
    # 12 cells of 1,000 on average; chi-squared with 11 degrees of freedom is below 31.3 with
    # probability 0.999
    assert ((count - 1000) ** 2 / 1000).sum() < 31.3


def slow(model, language, tokens, longer):
    """Eq. 22 string by string, each alone and without filling."""
    squares = []
    for row, new in zip(tokens, longer, strict=True):
        x, y = without_filling(row, language.bos_token), without_filling(new, language.bos_token)
        bos = [language.bos_token]
        with torch.no_grad():
            before, after = (model(torch.tensor([bos + string]))[0] for string in (x, y))
        for place in range(1, len(x) + 1):
            squares += [float(d) ** 2 for d in after[place + len(y) - len(x)] - before[place]]
    return math.fsum(squares) / len(squares)


@pytest.mark.parametrize("family", ["gpt-linear", "minimal-onehot", "eq6", "figure2-yao"])
def test_it_is_equation_22(family):
    task = load_task("dyck-2-4")
    model = build_model(
        get_config(family, task, dtype=torch.float64, initializer_range=0.5), seed=1
    )
    tokens = strings(task.language, [1, 4, 7, 12], seed=3)
    regularizer = ContrastiveRegularizer(task.language)
    longer, _ = regularizer.prefixed(tokens, generator=rng(5))
    expected = slow(model, task.language, tokens, longer)
    assert regularizer(model, tokens, generator=rng(5)).item() == pytest.approx(expected, rel=1e-9)
    lean = partial(lean_logits, model)
    quick = regularizer(lean, tokens, generator=rng(5))
    assert quick.item() == pytest.approx(expected, rel=1e-9)
    assert expected > 1e-4


@pytest.mark.parametrize("make", [construct.uniform_attention, construct.balanced])
def test_it_is_zero_for_balanced_models_and_only_for_those(make):
    language = LANGUAGES[2, 4]
    model = make(language, n_ctx=64)
    tokens = strings(language, [3, 8, 21], seed=1)
    regularizer = ContrastiveRegularizer(language)
    assert regularizer(model, tokens, generator=rng()).item() < 1e-20
    with torch.no_grad():  # the decoder tolerates a little
        model.blocks[0].attn.W_V += torch.randn(
            model.W_V[0].shape, generator=rng(), dtype=torch.float64
        )
    assert regularizer(model, tokens, generator=rng()).item() > 1e-6


@pytest.fixture(scope="module")
def roomy(tiny):
    """The tiny configuration with room for prefixes."""
    return get_config("minimal-onehot", tiny.task, d_model=10, d_mlp=4, n_ctx=16)


def regularised(tiny, weight):
    return TrainConfig(**{**vars(tiny.options), "contrastive_weight": weight})


def test_a_step_descends_the_sum_of_both(tiny, roomy, monkeypatch):
    """One step of plain gradient descent, by hand."""
    weight = 0.7
    seen = {}
    step = Stack.step

    def watched(self, batches, rate, contrastive_weight, drift_weight):
        nats, contrast = self.losses(*batches)
        (nats + contrastive_weight * contrast).sum().backward()
        seen.update(self._views({name: leaf.grad for name, leaf in self.leaves.items()}, 0))
        for leaf in self.leaves.values():
            leaf.grad = None
        return step(self, batches, rate, contrastive_weight, drift_weight)

    monkeypatch.setattr(Stack, "step", watched)
    options = TrainConfig(
        steps=1, batch_size=3, check_size=9, target=None, contrastive_weight=weight
    )
    tiny.train(config=roomy, options=options, seed=1)
    model = build_model(roomy, 1)
    trained = {
        name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad
    }
    generator = rng(stream(1, "train", 0))
    tokens = tiny.task.sample(32 * 3, generator=generator)[:3]
    R = ContrastiveRegularizer(tiny.task.language)(
        model, tokens, generator=rng(stream(1, "contrast", 0))
    )
    loss = (
        F.cross_entropy(
            model(tokens[:, :-1]).flatten(0, 1), tokens[:, 1:].flatten(), ignore_index=4
        )
        + weight * R
    )
    assert set(seen) == set(trained)
    for name, expected in zip(
        trained, torch.autograd.grad(loss, list(trained.values())), strict=True
    ):
        torch.testing.assert_close(seen[name], expected, rtol=1e-4, atol=1e-6)


def test_every_step_draws_prefixes_of_its_own(tiny, roomy, monkeypatch):
    seeds = []
    prefixed = ContrastiveRegularizer.prefixed

    def watched(self, tokens, *, generator):
        seeds.append(generator.initial_seed())
        return prefixed(self, tokens, generator=generator)

    monkeypatch.setattr(ContrastiveRegularizer, "prefixed", watched)
    tiny.train(config=roomy, options=regularised(tiny, 1.0), seed=1)
    tiny.train(config=roomy, options=regularised(tiny, 1.0), seed=2)
    assert len(set(seeds)) == len(seeds)
    assert {stream(seed, "contrast", step) for seed in (1, 2) for step in range(10)} <= set(seeds)


def test_without_weight_nothing_changes(tiny, uninterrupted, same_run, monkeypatch):
    monkeypatch.setattr(ContrastiveRegularizer, "prefixed", None)
    result = tiny.train(seed=1, options=regularised(tiny, 0.0))
    same_run(result, uninterrupted)
    assert "contrastive_weight" not in result.identity()["options"]


def test_the_history_is_of_the_cross_entropy_alone(tiny, roomy):
    """Otherwise it could not be held against the entropy floor."""
    losses = []
    for weight in (0.0, 1e3):
        options = TrainConfig(steps=1, batch_size=3, check_size=9, contrastive_weight=weight)
        losses += tiny.train(config=roomy, options=options, seed=1).history["loss"].tolist()
    assert losses[0] == pytest.approx(losses[1], rel=1e-6)


@pytest.mark.filterwarnings("ignore::ResourceWarning")
def test_models_can_be_looked_at_while_they_are_trained(tiny, tmp_path, uninterrupted, same_run):
    seen = []

    def look(step, model, folder):
        seen.append((step, folder.name, model.W_U.clone()))

    tiny.seeds([1], folder=tmp_path, on_model=look)
    assert [step for step, _, _ in seen] == uninterrupted.history["step"].tolist()
    assert torch.equal(seen[-1][2], uninterrupted.model.W_U)
    assert not torch.equal(seen[0][2], seen[-1][2])
    same_run(load_result(tmp_path / "seed-1"), uninterrupted)
    tiny.seeds([1], folder=tmp_path, on_model=look)
    assert len(seen) == 3
