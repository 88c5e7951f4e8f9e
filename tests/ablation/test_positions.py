"""Strings of mixed lengths: by hand each is read alone, so that there is no filling."""

from __future__ import annotations

import math
from functools import cache, partial

import numpy as np
import pytest
import torch

from tests.ablation.conftest import dyck_model, plain_model
from tl_dyck.ablation import (
    FinetuneConfig,
    attention_entropy,
    finetuned_importance,
    frozen,
    frozen_importance,
    gradient_importance,
    leave_one_out_importance,
    log_likelihood,
    measure_heads,
    pattern_drift,
)
from tl_dyck.judge import Case, Question
from tl_dyck.language import VocabularyError, build_tokenizer
from tl_dyck.tasks import load_task
from tl_dyck_hooks.methods.ablation import mean_ablation, resample_ablation
from tl_dyck_hooks.methods.shared import answer_metric

TASK = load_task("dyck-2-4")
STRINGS = ["[]", "[()]", "()", "[[]]()", "()[(())][]", "[()()]", "[][]()[]([])"]
HEADS = [(0, 0), (0, 1), (1, 0), (1, 1)]
SEED = 3
tune = FinetuneConfig(penalties=(0.1,), steps=1, batch_size=4, n_eval=7, learning_rate=0.0)
quiet = {"progress": False, "seed": SEED}


@pytest.fixture(scope="module")
def model():
    return dyck_model("attn-only", n_layers=2, n_heads=2, d_model=16)


@pytest.fixture(scope="module")
def tokens(model):
    return model.to_tokens(STRINGS)


def alone(model, text, hooks=()):
    """One string without filling: its tokens, the log-probability of each but BOS, activations."""
    ids = [TASK.language.bos_token, *(TASK.language.alphabet.index(symbol) for symbol in text)]
    with torch.no_grad(), model.hooks(fwd_hooks=list(hooks)):
        logits, cache = model.run_with_cache(torch.tensor([ids]))
    told = 0.0
    for at, target in enumerate(ids[1:]):
        row = logits[0, at].tolist()
        top = max(row)
        told += row[target] - top - math.log(sum(math.exp(one - top) for one in row))
    return told / (len(ids) - 1), cache


def with_z(head, wanted):
    """A hook that puts ``wanted(pos)`` in place of what a head puts out; None leaves it."""
    layer, index = head

    def hook(z, hook):
        z = z.clone()
        for at in range(z.shape[1]):
            new = wanted(at)
            if new is not None:
                z[:, at, index] = new
        return z

    return (f"blocks.{layer}.attn.hook_z", hook)


@cache
def outputs(model, head):
    """What a head puts out at each bracket of each string, by string and position (1 and up)."""
    found = {}
    for number, text in enumerate(STRINGS):
        _, cache = alone(model, text)
        for at in range(1, len(text) + 1):
            found[number, at] = cache["z", head[0]][0, at, head[1]]
    return found


def donor(number, at):
    """Whose output is taken: the next on the cycle that is as long, else at the nearest place."""
    order = torch.randperm(len(STRINGS), generator=torch.Generator().manual_seed(SEED)).tolist()
    start = order.index(number)
    for place in sorted(range(1, 13), key=lambda other: abs(other - at)):
        for step in range(1, len(STRINGS)):
            other = order[(start + step) % len(STRINGS)]
            if place <= len(STRINGS[other]):
                return other, place
    raise AssertionError


def drop(model, head, mode):
    """The mean drop of the metric over the strings, by plain loops."""
    z = outputs(model, head)
    mean = sum(z.values()) / len(z)
    total = 0.0
    for number, text in enumerate(STRINGS):
        wanted = {
            "zero": lambda at: torch.zeros_like(mean),
            "mean": lambda at: mean,
            "resample": lambda at, number=number: z[donor(number, at)] if at else None,
        }[mode]
        total += alone(model, text)[0] - alone(model, text, [with_z(head, wanted)])[0]
    return total / len(STRINGS)


@cache
def by_hand(model, mode):
    return np.array([drop(model, head, mode) for head in HEADS]).reshape(2, 2)


def metric_by_hand(model, hooks=()):
    return sum(alone(model, text, hooks)[0] for text in STRINGS) / len(STRINGS)


def off(head):
    return with_z(head, lambda at: torch.zeros(1, dtype=torch.float64))


def moved_by_hand(model, hooks):
    """How far patterns move with these hooks: squares over the queries of brackets, per string."""
    total = np.zeros((2, 2))
    for text in STRINGS:
        old, new = alone(model, text)[1], alone(model, text, hooks)[1]
        for layer, head in HEADS:
            change = (old["pattern", layer] - new["pattern", layer])[0, head]
            total[layer, head] += sum(float(row @ row) for row in change[1:]) / len(STRINGS)
    return total


@pytest.mark.parametrize(
    ("mode", "together"), [("zero", None), ("mean", 2), ("resample", None), ("resample", 2)]
)
def test_frozen(model, tokens, mode, together, monkeypatch):
    if together:
        monkeypatch.setattr(frozen, "rows_per_pass", lambda model, length: together)
    wanted = by_hand(model, mode)
    found = frozen_importance(model, tokens, mode=mode, seed=SEED)
    np.testing.assert_allclose(found.values, wanted, atol=1e-9)
    assert found.baseline.mean() == pytest.approx(metric_by_hand(model), abs=1e-9)
    metric = partial(log_likelihood, ignore=TASK.language.bos_token)
    where = tokens != TASK.language.bos_token
    told = frozen_importance(model, tokens, metric, mode, where=where, seed=SEED)
    np.testing.assert_allclose(told.values, wanted, atol=1e-9)
    if mode != "zero":  # and it matters
        every = frozen_importance(
            model, tokens, metric, mode, where=torch.ones_like(where), seed=SEED
        )
        assert np.abs(every.values - wanted).max() > 1e-3


def test_the_longest_string_takes_from_where_another_is_real():
    """Twelve brackets, and the next string has ten: the last two have no other at their place."""
    longest = STRINGS.index("[][]()[]([])")
    assert [donor(longest, at)[1] for at in (10, 11, 12)] == [10, 10, 10]
    assert donor(longest, 12)[0] == STRINGS.index("()[(())][]")


def test_gates(model, tokens):
    """All closed from the start, and no weight moves: what is measured is known."""
    options = FinetuneConfig(**{**tune.to_dict(), "penalties": (0.1,), "log_alpha": -10.0})
    found = finetuned_importance(model, tokens, options=options, **quiet)
    closed = [off(head) for head in HEADS]
    assert found.metric == pytest.approx(metric_by_hand(model), abs=1e-9)
    assert found.path["metric"].tolist() == pytest.approx([metric_by_hand(model, closed)], abs=1e-9)
    drift = found.heads["drift"].to_numpy().reshape(2, 2)
    np.testing.assert_allclose(drift, moved_by_hand(model, closed), atol=1e-9)
    assert drift[1].min() > 1e-3
    # what is learned is of brackets only, too
    log = {}
    for ignore in (None, TASK.language.bos_token, (TASK.language.bos_token,), ()):
        given = FinetuneConfig(penalties=(0.1,), steps=3, batch_size=4, n_eval=7)
        log[ignore] = finetuned_importance(model, tokens, options=given, ignore=ignore, **quiet)
    for ignore in (TASK.language.bos_token, (TASK.language.bos_token,)):
        assert np.array_equal(log[None].values, log[ignore].values)
    assert not np.array_equal(log[None].values, log[()].values)


def test_leave_one_out(model, tokens):
    """No weight moves, so that it is zero-ablation, and patterns move by the absence alone."""
    found = leave_one_out_importance(model, tokens, options=tune, **quiet)
    np.testing.assert_allclose(found.values, by_hand(model, "zero"), atol=1e-9)
    assert found.control == pytest.approx(metric_by_hand(model), abs=1e-9)
    for layer, head in HEADS:
        moved = moved_by_hand(model, [off((layer, head))])
        rest = [moved[other] for other in HEADS if other != (layer, head)]
        assert found.drift[layer, head] == pytest.approx(sum(rest) / 3, abs=1e-9)
    assert not found.control_drift.any()
    assert found.to_frame()["importance"].tolist() == found.values.ravel().tolist()


def test_measure_heads(model, tokens):
    table, _ = measure_heads(model, tokens, leave_one_out=tune, finetune=tune, n=7, **quiet)
    for mode in ("zero", "mean", "resample"):
        np.testing.assert_allclose(table[mode], by_hand(model, mode).ravel(), atol=1e-9)
    np.testing.assert_allclose(table["leave-one-out"], by_hand(model, "zero").ravel(), atol=1e-9)
    nats, queries = np.zeros((2, 2)), 0
    for text in STRINGS:
        _, cache = alone(model, text)
        queries += len(text)
        for layer, head in HEADS:
            for row in cache["pattern", layer][0, head, 1:].tolist():
                nats[layer, head] -= sum(p * math.log(p) for p in row if p > 0)
    np.testing.assert_allclose(table["entropy"], (nats / queries).ravel(), atol=1e-9)
    np.testing.assert_allclose(attention_entropy(model, tokens), nats / queries, atol=1e-9)
    assert table["gradient"].to_numpy() == pytest.approx(
        gradient_importance(model, tokens).values.ravel()
    )


def test_drift_of_patterns(model, tokens):
    hooks = [off((0, 1))]
    found = pattern_drift(model, model, tokens, hooks=hooks)
    np.testing.assert_allclose(found, moved_by_hand(model, hooks), atol=1e-9)


def test_a_task_and_its_strings_are_measured_alike(model):
    options = FinetuneConfig(penalties=(0.1,), steps=1, n_eval=6)
    drawn = finetuned_importance(model, TASK, options=options, **quiet)
    assert drawn.metric == pytest.approx(
        finetuned_importance(
            model, TASK, options=options, ignore=TASK.language.bos_token, **quiet
        ).metric
    )


def test_a_tokenizer_says_what_is_filling(tokens):
    model = plain_model(d_vocab=5, n_ctx=16)
    model.set_tokenizer(build_tokenizer(TASK.language))
    where = tokens != TASK.language.bos_token
    found = frozen_importance(model, tokens, mode="mean").values
    metric = partial(log_likelihood, ignore=4)
    told = frozen_importance(model, tokens, metric, "mean", where=where).values
    np.testing.assert_array_equal(found, told)


READ = torch.tensor([[6, 1, 2, 3], [6, 2, 0, 0]])
UNKNOWN = {
    "mean": lambda model: frozen_importance(model, READ, log_likelihood, "mean"),
    "resample": lambda model: frozen_importance(model, READ, log_likelihood, "resample"),
    "metric": lambda model: frozen_importance(model, READ),
    "gradient": lambda model: gradient_importance(model, READ),
    "entropy": lambda model: attention_entropy(model, READ),
    "drift": lambda model: pattern_drift(model, model, READ),
    "gates": lambda model: finetuned_importance(model, READ, log_likelihood, options=tune),
    "leave one out": lambda model: leave_one_out_importance(model, READ, log_likelihood),
    "table": lambda model: measure_heads(model, READ, log_likelihood),
}


@pytest.mark.parametrize("what", UNKNOWN)
def test_where_nobody_knows_it_is_refused(what):
    passed = "metric=log_likelihood" if what in ("metric", "gradient") else r"(where|ignore)="
    with pytest.raises(VocabularyError, match=f"nothing says which tokens .*; pass {passed}"):
        UNKNOWN[what](plain_model())


def test_judged_methods_read_real_positions(model, tokens):
    """On strings of one length, too: BOS is no symbol."""
    real, metric = tokens != TASK.language.bos_token, answer_metric(TASK)
    case = Case(model=model, task=TASK, length=12, tokens=tokens, name="0")
    questions = [Question("needed", head) for head in HEADS]
    for mode, method in (("mean", mean_ablation), ("resample", resample_ablation)):
        wanted = frozen_importance(model, tokens, metric, mode, where=real).values
        np.testing.assert_allclose(method(case, questions), wanted.ravel() - 0.01, atol=1e-12)
