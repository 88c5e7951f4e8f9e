"""Results of probes as tables and figures: nothing is lost, nothing is in another place."""

import numpy as np
import pytest

from tl_dyck import (
    accuracy_at_length,
    attention_variation,
    balance_violation,
    build_model,
    construct,
    get_config,
    load_task,
    pair_drift,
    stack_likeness,
)

TASK = load_task("dyck-2-4")


@pytest.fixture(scope="module")
def gpt():
    return [build_model(get_config("gpt", TASK, n_heads=2), seed) for seed in range(3)]


@pytest.fixture(scope="module")
def minimal():
    return build_model(get_config("minimal-onehot", TASK))


def marks(figure):
    return np.concatenate([np.array(trace.x, float) for trace in figure.data if trace.customdata
                           is not None or trace.mode == "markers"])  # fmt: skip


def test_attention_variation(gpt):
    found = attention_variation(gpt, "[()]", n_bootstrap=50)
    table = found.to_frame()
    for row in table.itertuples():
        assert row.variation == found.mean[row.layer, row.head]
        assert (row.low, row.high) == tuple(found.interval[row.layer, row.head])
        assert row.matched == found.matched[row.layer]
        assert (row.matched_low, row.matched_high) == tuple(found.matched_interval[row.layer])
    assert len(table) == 4
    assert (table["random"] == found.random_baseline).all()
    assert sorted(marks(found.plot())) == pytest.approx(sorted(table["variation"]), rel=1e-3)


def test_stack_likeness(gpt):
    found = stack_likeness(gpt[0], TASK, n=20)
    table = found.to_frame()
    for row in table.itertuples():
        assert row.mass == found.mass[row.layer, row.head]
        assert row.argmax_at_closing == found.argmax_at_closing[row.layer, row.head]
    shown = sorted([*table["mass"], *table["mass_at_closing"]])
    assert sorted(marks(found.plot())) == pytest.approx(shown, rel=1e-3)


def test_balance_violation(minimal):
    found = balance_violation(minimal)
    table = found.to_frame()
    assert len(table) == found.ratio.size == 3 * 4 * 2 * 2
    for row in table.itertuples():
        place = (row.depth - 1, row.pair_depth - 1, row.pair_type, row.query_type)
        assert (row.ratio, row.S) == (found.ratio[place], found.S[place])
        assert found.P[row.depth - 1, row.query_type] == row.P
    assert table["ratio"].mean() == pytest.approx(found.beta)
    assert len(marks(found.plot())) == len(table)


def test_accuracy_at_length(minimal):
    found = accuracy_at_length(minimal, n=50)
    table = found.to_frame()
    for row in table.itertuples():
        assert row.accuracy == found.accuracy[row.depth - 1, row.type]
        assert row.among_closing == found.among_closing[row.depth - 1, row.type]
        assert row.weight == found.weight[row.depth - 1]
    assert (table["accuracy"] * table["weight"]).sum() / 2 == pytest.approx(float(found))
    assert len(marks(found.plot())) == len(table)


@pytest.mark.parametrize("build", [None, construct.balanced])
def test_pair_drift(minimal, build):
    found = pair_drift(minimal if build is None else build(TASK.language))
    table = found.to_frame()
    for row in table.itertuples():
        place = (row.depth - 1, row.type, row.pair)
        assert (row.drift, row.spread, row.half) == (
            found.drift[place], found.spread[place], found.half[place]
        )  # fmt: skip
    share = (table["drift"].abs() / (2 * table["half"]) * table["weight"]).groupby(table["depth"])
    assert share.mean().sum() == pytest.approx(float(found))
    assert len(marks(found.plot())) == len(table)
