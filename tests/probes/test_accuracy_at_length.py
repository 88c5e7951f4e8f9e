"""Accuracy predicted from moments against accuracy on strings that are drawn and read."""

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch

from tests.probes.test_balance_violation import make_model
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.language.pairs import pair_counts
from tl_dyck.models import build_model, construct, get_config, lean_logits
from tl_dyck.probes.length import _draw, accuracy_at_length
from tl_dyck.reading.states import StateIndex
from tl_dyck.tasks import DyckTask, load_task

TASK = load_task("dyck-2-4")


def held_to_measurement(model, task, n=80):
    """The prediction, after it was held to what is measured on strings."""
    found = accuracy_at_length(model, task.closing_lengths(long=True), task.distribution)
    measured = task.closing_accuracy(partial(lean_logits, model), n=n, long=True)
    error = math.hypot(found.error, measured.after_close_error)
    assert found.after_close == pytest.approx(measured.after_close, abs=4 * error + 0.005)
    for mine, theirs in zip(found.after_close_by_depth, measured.after_close_by_depth, strict=True):
        assert mine == pytest.approx(theirs, abs=12 * error + 0.01)
    return found.after_close


def unbalanced(by, task=TASK):
    """A solution of Dyck whose key of one bracket is off."""
    model = construct.balanced(task.language, seed=2)
    with torch.no_grad():
        model.blocks[0].attn.W_K[0, 1] *= 1 + by
    return model


def test_it_is_what_damaged_solutions_get():
    found = [held_to_measurement(unbalanced(by), TASK) for by in (0.002, 0.05, 0.5)]
    assert found == sorted(found, reverse=True)
    assert found[0] > 0.95
    assert found[-1] < 0.65


@pytest.mark.parametrize(
    ("family", "options", "q"),
    [
        ("minimal-onehot", {}, 0.5),
        ("minimal-split", {"n_heads": 2, "d_model": 32}, 0.3),
        ("minimal-yao", {"n_heads": 3, "d_model": 24}, 0.7),
        ("minimal-uniform", {}, 0.6),
        ("figure2-onehot", {}, 0.5),
    ],
)
def test_it_is_what_models_get_that_know_nothing(family, options, q):
    """Their answers depend on all that they see, and on every direction of it."""
    task = DyckTask(name="three", n_types=3, max_depth=3, q=q, long_lengths=(150, 200))
    config = get_config(family, task, initializer_range=0.4, dtype=torch.float64, **options)
    model = build_model(config, seed=1)
    held_to_measurement(model, task, n=70)


def test_among_closing_brackets_it_is_what_strings_give():
    """A model that would rather open: wrong of all tokens, not of closing brackets."""
    model = unbalanced(0.5)
    with torch.no_grad():
        model.unembed.b_U[0] += 100
    tokens = TASK.distribution.sample(
        8000, 60, mode="prefix", generator=torch.Generator().manual_seed(0)
    )
    language = TASK.language
    right = language.right_bracket(tokens)[:, -1]
    asked = language.is_close(tokens[:, -1]) & (right >= 0)
    tokens = torch.cat([torch.full((8000, 1), language.bos_token), tokens], dim=1)[asked]
    with torch.no_grad():
        answers = 2 * lean_logits(model, tokens)[:, -1, 1:4:2].argmax(-1) + 1
    measured = (answers == right[asked]).double().mean().item()
    found = accuracy_at_length(model, 61)
    assert found.after_close == 0
    assert 0.55 < measured < 0.95
    assert found.closing_only == pytest.approx(measured, abs=0.04)


@pytest.mark.parametrize("make", [construct.uniform_attention, construct.balanced])
@pytest.mark.parametrize("lengths", [4, 4001, (20, 41)])
def test_where_pairs_cancel_every_answer_is_right(make, lengths):
    found = accuracy_at_length(make(TASK.language), lengths, n=200)
    assert float(found) == found.after_close == found.closing_only == 1
    assert found.error == 0


@pytest.mark.parametrize(("d", "j", "q"), [(1, 0, 0.5), (2, 1, 0.5), (1, 1, 0.7)])
def test_what_is_drawn_has_the_moments_of_strings(d, j, q):
    """How often prefixes of 30 or 50 brackets that end in close(j, d) hold each state."""
    distribution = DyckDistribution(DyckLanguage(2, 3), q)
    language, index = distribution.language, StateIndex(distribution.language)
    sizes = [30, 50] if d == 2 else [31, 51]
    generator = torch.Generator().manual_seed(0)
    kept = []
    for size in sizes:
        strings = distribution.sample(30_000, size, mode="prefix", generator=generator)
        last = (strings[:, -1] == 2 * j + 1) & (language.depth(strings)[:, -1] == d)
        strings = strings[last]
        states = strings * index.depths + language.depth(strings)
        counts = torch.nn.functional.one_hot(states, language.d_vocab * index.depths).sum(1)
        counts[:, index.bos] = 1
        kept.append((counts.double().numpy(), language.right_bracket(strings)[:, -1].numpy() // 2))
    assert min(len(counts) for counts, _ in kept) > 1000
    chosen = np.repeat([0, 1], [len(counts) for counts, _ in kept])
    strings, top = (np.concatenate(part) for part in zip(*kept, strict=True))
    found, drawn_top = _draw(
        language, pair_counts(distribution, sizes), chosen, d, j, np.random.default_rng(0)
    )
    for place in (0, 1):
        for kind in (0, 1):  # given what is on top, which is one of the states that are held
            mine = found[(chosen == place) & (drawn_top == kind)]
            theirs = strings[(chosen == place) & (top == kind)]
            error = theirs.std(0) / math.sqrt(min(len(mine), len(theirs)))
            assert (abs(mine.mean(0) - theirs.mean(0)) <= 6 * error + 0.02).all()
            spread = np.outer(theirs.std(0), theirs.std(0)) / math.sqrt(len(theirs))
            off = abs(np.cov(mine.T) - np.cov(theirs.T))
            assert (off <= 8 * spread + 0.05).all()


def test_its_error_is_that_of_its_draws():
    model = unbalanced(0.5)
    drawn = [accuracy_at_length(model, 450, n=100, seed=seed) for seed in range(24)]
    spread = np.std([float(each) for each in drawn], ddof=1)
    assert np.mean([each.error for each in drawn]) == pytest.approx(spread, rel=0.35)
    again = accuracy_at_length(model, 450, n=100, seed=7)
    assert float(again) == float(drawn[7])


@pytest.mark.parametrize("weights", ["lengths", "answers"])
@pytest.mark.parametrize("q", [0.4, 0.7])
def test_what_counts_how_often_by_enumeration(weights, q):
    """Every prefix of 4, 5 and 8 brackets with its probability; after a close, by what is open."""
    depth, lengths = 3, (4, 5, 8)
    asked = np.zeros((len(lengths), depth - 1))  # after a closing bracket, for a closing one
    closed = np.zeros(len(lengths))
    for row, length in enumerate(lengths):
        for steps in itertools.product((1, -1), repeat=length):
            at, chance = 0, 1.0
            for step in steps:
                up = 1.0 if at == 0 else 0.0 if at == depth else q
                chance *= up if step == 1 else 1 - up
                at += step
            closed[row] += chance * (steps[-1] == -1)
            if chance and steps[-2:] == (-1, -1):
                asked[row, at] += chance
    share = asked / closed[:, None] if weights == "lengths" else asked
    found = accuracy_at_length(
        make_model("minimal-onehot", 2, depth, seed=0),
        lengths,
        DyckDistribution(DyckLanguage(2, depth), q),
        weights=weights,
        n=5,
    )
    assert found.weight == pytest.approx(share.sum(0) / share.sum(), abs=1e-12)


def test_pooled_over_answers_it_is_what_strings_give():
    """All answers after a closing bracket at 59 to 62, of strings that are read; and it matters."""
    task = DyckTask(name="pooled", n_types=3, max_depth=5, q=0.4)
    model = unbalanced(1.0, task)
    language, lengths = task.language, range(59, 63)
    strings = task.distribution.sample(
        2500, 62, mode="prefix", generator=torch.Generator().manual_seed(0)
    )
    tokens = torch.cat([torch.full((len(strings), 1), language.bos_token), strings], 1)
    with torch.no_grad():
        answers = lean_logits(model, tokens).argmax(-1)
    right = asked = 0
    for length in lengths:  # brackets, the one to be predicted included
        here = language.is_close(tokens[:, length - 1]) & language.is_close(tokens[:, length])
        asked += int(here.sum())
        right += int((answers[:, length - 1] == tokens[:, length])[here].sum())
    measured = right / asked
    pooled, alike = (
        float(accuracy_at_length(model, lengths, task.distribution, weights=weights, n=1200))
        for weights in ("answers", "lengths")
    )
    error = math.sqrt(measured * (1 - measured) / asked)
    assert pooled == pytest.approx(measured, abs=4 * error + 0.005)
    assert abs(alike - measured) > abs(pooled - measured) + 0.01
