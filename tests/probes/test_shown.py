"""Results of probes as tables and figures: nothing is lost, nothing is in another place."""

import functools

import numpy as np
import pytest

from tl_dyck import (
    accuracy_at_length,
    attention_variation,
    balance_violation,
    build_model,
    get_config,
    load_task,
    pair_drift,
    stack_likeness,
)

TASK = load_task("dyck-2-4")


def marks(figure):
    return np.concatenate([np.array(trace.x, float) for trace in figure.data if trace.customdata
                           is not None or trace.mode == "markers"])  # fmt: skip


@functools.cache
def found(name):
    gpt = [build_model(get_config("gpt", TASK, n_heads=2), seed) for seed in range(3)]
    minimal = build_model(get_config("minimal-onehot", TASK))
    return {
        "variation": lambda: attention_variation(gpt, "[()]"),
        "likeness": lambda: stack_likeness(gpt[0], TASK, n=20),
        "balance": lambda: balance_violation(minimal),
        "accuracy": lambda: accuracy_at_length(minimal, n=50),
        "drift": lambda: pair_drift(minimal),
    }[name]()


#: Of each probe's table: how many rows, what stands where, and the columns that are drawn.
SHOWN = {
    "variation": (4, lambda r, f: [
        (r.variation, f.mean[r.layer, r.head]),
        ((r.low, r.high), tuple(f.interval[r.layer, r.head])),
        (r.matched, f.matched[r.layer]),
        ((r.matched_low, r.matched_high), tuple(f.matched_interval[r.layer])),
        (r.random, f.random_baseline),
    ], ["variation"]),
    "likeness": (4, lambda r, f: [
        (r.mass, f.mass[r.layer, r.head]),
        (r.argmax_at_closing, f.argmax_at_closing[r.layer, r.head]),
    ], ["mass", "mass_at_closing"]),
    "balance": (3 * 4 * 2 * 2, lambda r, f: [
        (value, table[r.depth - 1, r.pair_depth - 1, r.pair_type, r.query_type])
        for value, table in ((r.ratio, f.ratio), (r.S, f.S))
    ] + [(r.P, f.P[r.depth - 1, r.query_type])], ["ratio"]),
    "accuracy": (6, lambda r, f: [
        (r.accuracy, f.accuracy[r.depth - 1, r.type]),
        (r.among_closing, f.among_closing[r.depth - 1, r.type]),
        (r.weight, f.weight[r.depth - 1]),
    ], ["accuracy"]),
    "drift": (6, lambda r, f: [
        (value, table[r.depth - 1, r.type, r.pair])
        for value, table in ((r.drift, f.drift), (r.spread, f.spread), (r.half, f.half))
    ], [None]),
}  # fmt: skip


@pytest.mark.parametrize("name", SHOWN)
def test_each_number_is_in_its_place(name):
    n, pairs, drawn = SHOWN[name]
    table, dots = found(name).to_frame(), marks(found(name).plot())
    assert len(table) == n
    for row in table.itertuples():
        for shown, held in pairs(row, found(name)):
            assert shown == held
    assert len(dots) == n * len(drawn)
    if None not in drawn:
        numbers = table[drawn].to_numpy().ravel()
        assert sorted(dots) == pytest.approx(sorted(numbers), rel=1e-3)


def test_stack_likeness_of_eight_heads_is_printed_as_a_table() -> None:
    model = build_model(get_config("gpt", TASK, n_layers=2, n_heads=4, d_model=8), 0)
    likeness = stack_likeness(model, TASK, n=5)
    _, header, *rows = str(likeness).splitlines()[:11]
    assert header.split() == ["weight", "largest", "weight", "at", ")", "largest", "at", ")"]
    for row, values in zip(rows, likeness.to_frame().itertuples(), strict=False):
        said = f"layer {values.layer}, head {values.head}"
        assert row.startswith(said)
        numbers = (values.mass, values.argmax, values.mass_at_closing, values.argmax_at_closing)
        assert row.removeprefix(said).split() == [f"{number:.2f}" for number in numbers]
    assert rows[8].split()[0] == "chance"
    assert rows[8].split()[1] == f"{likeness.chance:.2f}"
    assert "\n" not in repr(likeness)
