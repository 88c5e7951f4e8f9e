"""Gates prune what is of no use and nothing else."""

from __future__ import annotations

from functools import partial

import numpy as np
import torch

from tests.ablation.conftest import dyck_model
from tests.ablation.planted import KINDS, USEFUL, USELESS, metric, metric_of_one, planted, sample
from tl_dyck.ablation import (
    FinetuneConfig,
    finetuned_importance,
)
from tl_dyck.models.storage import weights_digest
from tl_dyck.tasks import load_task

TASK = load_task("dyck-2-4")


tune = partial(finetuned_importance, progress=False, ignore=())


def test_useless_heads_are_removed_and_only_those():
    found = tune(
        planted(),
        sample,
        metric,
        options=FinetuneConfig(penalties=(0.01, 0.1), steps=40, gate_learning_rate=0.2),
    )
    assert {head for _, head in found.removal_order} == set(USELESS)
    assert found.status == "finished"
    assert (found.gates[0, list(USEFUL)] == 1).all()
    assert (found.gates[0, list(USELESS)] == 0).all()
    assert found.values[0, list(USEFUL)].min() > 0.9 > 0.3 > found.values[0, list(USELESS)].max()
    assert found.path["n_open"].tolist() == [2, 2]
    assert found.path["metric"].iloc[-1] > found.metric  # nothing was lost


def test_an_essential_head_survives_longest():
    """The others can adapt: they have random weights and gradients, only less to offer at first."""
    model = planted()
    generator = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for name in ("W_V", "W_O"):
            weight = getattr(model.blocks[0].attn, name)
            weight[1:] = 0.2 * torch.randn(weight[1:].shape, generator=generator)
    options = FinetuneConfig(
        penalties=(0.3, 30.0), steps=60, learning_rate=3e-3, gate_learning_rate=0.2, log_every=1
    )
    found = tune(model, sample, metric_of_one, options=options)
    assert found.path["n_open"].iloc[0] == 1  # three are gone at a price that the fourth is worth
    assert found.gates.sum() == 0  # and at an absurd one it goes too
    assert found.status == "all heads removed"
    assert found.removal_order[-1] == (0, 0)
    assert found.values.argmax() == 0
    after = found.trajectories[found.trajectories["step"] > 0]  # nothing is open in the steps left
    np.testing.assert_allclose(found.values[0], after.groupby("head")["expected_gate"].sum() / 120)
    assert (
        found.path["metric"].iloc[-1] < -np.log(KINDS) < -0.1 < found.path["metric"].iloc[0]
    )  # worse than a guess


def test_record():
    options = FinetuneConfig(penalties=(0.01, 0.1), steps=30, log_every=7, n_eval=50)
    model = planted()
    found = tune(model, sample, metric, options=options)
    logged = found.trajectories
    assert sorted(set(logged["step"])) == [0, 7, 14, 21, 28, 30, 35, 42, 49, 56, 60]
    assert (logged.groupby("step").size() == 4).all()
    assert set(logged.loc[logged["step"] == 0, "log_alpha"]) == {options.log_alpha}
    assert set(logged.loc[logged["step"].between(1, 30), "penalty"]) == {0.01}
    assert found.path["step"].tolist() == [30, 60]
    assert found.heads["step"].tolist() == [30] * 4 + [60] * 4
    last = found.trajectories[found.trajectories["step"] == 60]
    np.testing.assert_allclose(last["gate"], found.gates.ravel())
    assert found.drift.shape == (1, 4)
    # a head that is open to the end has the drift of the end; one that never was at the end of a
    # stage has none
    alive = found.heads[(found.heads["step"] == 60) & (found.heads["head"] == 0)]
    assert found.drift[0, 0] == alive["drift"].iloc[0]
    figure = found.plot()
    assert [trace.name for trace in figure.data] == ["L0H0", "L0H1", "L0H2", "L0H3"]
    assert "finished" in repr(found)


def test_mean_expected_gate_and_removal_step():
    """`values` and `removed_at`, from a trajectory that logs every step."""
    options = FinetuneConfig(penalties=(0.01,), steps=70, log_every=1, n_eval=20)
    found = tune(planted(), sample, metric, options=options)
    table = found.trajectories.pivot_table(
        index="step", columns="head", values=["expected_gate", "gate"]
    )
    np.testing.assert_allclose(found.values[0], table["expected_gate"].loc[1:].mean())
    for head in range(4):
        gate = table["gate"][head].to_numpy()
        assert found.removed_at[0, head] == (-1 if gate[-1] > 0 else max(np.flatnonzero(gate > 0)))


def test_the_model_is_left_as_it_was():
    model = planted()
    before = weights_digest(model)
    found = tune(model, sample, metric, options=FinetuneConfig(penalties=(0.1,), steps=3))
    assert weights_digest(model) == before != weights_digest(found.model)
    assert all(parameter.grad is None for parameter in model.parameters())
    assert not any(point.fwd_hooks for point in found.model.hook_dict.values())


def test_frozen_weights_stay():
    model = dyck_model("gpt-linear", n_layers=1, dtype=torch.float32, d_model=16)
    found = tune(
        model,
        TASK,
        options=FinetuneConfig(penalties=(0.1,), steps=2, batch_size=4, n_eval=4),
        ignore=None,
    )
    assert torch.equal(found.model.pos_embed.W_pos, model.pos_embed.W_pos)
    assert not torch.equal(found.model.embed.W_E, model.embed.W_E)
