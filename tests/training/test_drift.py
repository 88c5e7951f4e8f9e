"""The regularisation of drift: sums over drawn strings, finite differences, what it achieves."""

from __future__ import annotations

import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch

from tests.probes.test_balance_violation import make_model
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.models import build_model, construct, get_config
from tl_dyck.models.lean import lean_logits
from tl_dyck.probes.balance import state_contributions
from tl_dyck.reading.states import StateIndex, displacement
from tl_dyck.tasks import load_task
from tl_dyck.training import DriftRegularizer, TrainConfig
from tl_dyck.training.group import SeedGroup
from tl_dyck.training.run import RunState


def of_states(model):
    """Queries, keys and ``W_O v + b_O`` of the states, from a forward pass over strings."""
    language = model.cfg.language
    strings = language.parse(language.probe_string)[None]
    tokens = torch.cat([torch.tensor([[language.bos_token]]), strings], 1)
    _, cache = model.run_with_cache(tokens)
    rows = (tokens * (language.max_depth + 1) + language.depth(tokens))[0].tolist()
    where = [rows.index(row) for row in DriftRegularizer(DyckDistribution(language), 9).states]
    q, k, v = (cache["blocks.0.attn.hook_" + name][0, where, 0].double() for name in "qkv")
    attn = model.blocks[0].attn
    value = v @ attn.W_O[0].double() + attn.b_O.double()
    return q.detach(), k.detach(), value.detach(), attn.attn_scale


@pytest.mark.parametrize(("k", "depth", "q"), [(2, 3, 0.4), (3, 2, 0.7)])
def test_the_second_moment_is_that_of_drawn_strings(k, depth, q):
    """E‖S_N‖² of N brackets in the middle of long strings, summed state by state."""
    model = make_model("minimal-onehot", k, depth, seed=4)
    language, n, length = model.cfg.language, 4000, 300
    distribution = DyckDistribution(language, q)
    u, index = state_contributions(model), StateIndex(language)
    generator = torch.Generator().manual_seed(0)
    strings = distribution.sample(n, 2 * length, mode="prefix", generator=generator)
    states = strings * (language.max_depth + 1) + language.depth(strings)
    query = u[index.close(1, 1)].numpy()
    late = states[:, length:]
    grown = np.zeros((n, len(query)))
    np.add.at(grown, (np.arange(n)[:, None], late.numpy()), 1.0)  # how often each state came
    grown = grown @ query
    found = displacement(u, *index.pairs(), distribution)
    pairs = list(itertools.combinations(range(k), 2))
    for place, (a, b) in enumerate(pairs):
        half = float(np.linalg.norm(query[index.open(a, 1)] - query[index.open(b, 1)])) / 2
        squares = (grown**2).sum(1) / half**2
        expected = found.second_moment(length, anywhere=True)[0, 1, place]
        # what the ends add is of order 1 beside N
        slack = 5 * squares.std() / math.sqrt(n) + 0.05 * float(expected)
        assert float(expected) == pytest.approx(squares.mean(), abs=slack)


def test_r_by_hand():
    """Balanced: 0. One query, each number as it is defined."""
    task = load_task("dyck-2-4")
    regularizer = DriftRegularizer(task.distribution, 500)
    balanced = construct.balanced(task.language)
    assert float(regularizer(*of_states(balanced))) < 1e-6
    language = DyckLanguage(2, 2)
    model = make_model("minimal-onehot", 2, 2, seed=0)
    found = displacement(
        state_contributions(model), *StateIndex(language).pairs(), DyckDistribution(language)
    )
    N = 40
    terms = []
    for j in (0, 1):
        mean, spread = found.drift_anywhere[0, j].numpy(), float(found.variance_anywhere[0, j])
        half = float(found.half[0, j, 0])
        terms.append(math.log1p((N**2 * float(mean @ mean) + N * spread) / half**2))
    R = DriftRegularizer(DyckDistribution(language), N)(*of_states(model))
    assert float(R) == pytest.approx(np.mean(terms), rel=1e-9)


@pytest.mark.parametrize("anywhere", [True, False])
def test_gradients_are_those_of_differences(anywhere):
    distribution = DyckDistribution(DyckLanguage(3, 3), 0.6)
    regularizer = DriftRegularizer(distribution, 50, anywhere=anywhere)
    q, k, value, scale = of_states(make_model("minimal-split", 3, 3, seed=2))
    inputs = [each.requires_grad_() for each in (q, k, value)]
    assert torch.autograd.gradcheck(partial(regularizer, attn_scale=scale), inputs, fast_mode=True)


@pytest.mark.parametrize("family", ["minimal-onehot", "minimal-yao", "figure2-split"])
def test_a_stack_knows_r_of_each_of_its_models(family):
    """Beside what the hooks of each model give."""
    task = load_task("dyck-2-4")
    options = TrainConfig(steps=9, batch_size=4, check_size=9, target=None, drift_weight=0.1)
    runs = [RunState(get_config(family, task), task, options, seed) for seed in range(3)]
    group = SeedGroup(runs)
    regularizer = DriftRegularizer(task.distribution, task.long_lengths[1])
    group.stack.losses(*group._batches(0))
    found = group.stack._drifts(regularizer)
    expected = [float(regularizer(*of_states(run.model))) for run in runs]
    assert found.tolist() == pytest.approx(expected, rel=1e-4)


@pytest.mark.parametrize("anywhere", [True, False])
def test_a_step_descends_it_too(tiny, anywhere):
    """The difference that the weight makes to the gradient is the gradient of R."""
    config = get_config("minimal-onehot", tiny.task, d_model=10, d_mlp=4)
    task, slopes = tiny.task, []
    for weight in (0.0, 0.25):
        more = {"target": None, "drift_weight": weight, "drift_anywhere": anywhere}
        options = TrainConfig(steps=1, batch_size=3, check_size=9, **more)
        group = SeedGroup([RunState(config, task, options, 1)])
        group.advance()
        slopes.append({name: slope.clone() for name, slope in group.stack._gradients.items()})
    model = build_model(config, 1)
    attn = model.blocks[0].attn
    regularizer = DriftRegularizer(task.distribution, task.long_lengths[1], anywhere=anywhere)
    x = model.embed.table.flatten(0, 1)[regularizer.states]
    q, k, v = (x @ getattr(attn, f"W_{n}")[0] + getattr(attn, f"b_{n}")[0] for n in "QKV")
    R = regularizer(q, k, v @ attn.W_O[0] + attn.b_O, attn.attn_scale)
    W_O, b_O = torch.autograd.grad(R, [attn.W_O, attn.b_O])
    for name, expected in (("W_O", W_O), ("b_O", b_O)):
        key = f"blocks.0.attn.{name}"
        torch.testing.assert_close(
            slopes[1][key][0] - slopes[0][key][0], 0.25 * expected, rtol=1e-3, atol=1e-6
        )


def test_it_makes_models_generalise_to_any_length():
    """In all directions it does; along the axis alone it satisfies only what is predicted.

    This seed has 0.99 and 0.50, seeds 0 and 2 have 0.93 and 0.96, 0.68 and 0.72, so other CPUs
    will not differ.
    """
    from tl_dyck import pair_drift, train

    task, config = load_task("dyck-2-4"), get_config("minimal-onehot", "dyck-2-4")
    found, predicted = {}, {}
    for anywhere in (True, False):
        options = TrainConfig(steps=200, target=None, drift_weight=0.1, drift_anywhere=anywhere)
        model = train(config, task, seed=1, options=options, progress=False).model
        measured = task.closing_accuracy(partial(lean_logits, model), n=60, long=True)
        found[anywhere] = measured.after_close
        predicted[anywhere] = pair_drift(model).accuracy(450)
    assert predicted[True] > 0.999
    assert predicted[False] > 0.9
    assert found[True] > 0.9
    assert found[False] < found[True] - 0.05


def test_without_weight_nothing_changes(tiny):
    assert not {"drift_weight", "drift_anywhere"} & set(tiny.train(seed=1).identity()["options"])
