"""Two layers without positions: processor time of one length decided, against the length.

Every prefix of exactly that length, none of them run. `linear`: attention only, a linear readout,
random weights, of which the least margin is found: shortest paths alone. `construction`: uniform
attention of two layers, norms and MLPs: a bound for each profile. `trained`: the family `gpt`,
trained for 3,000 steps: bounds and splits, up to length ``--trained``. There are ``--types``
bracket types, of a depth of ``--depths`` at most; with more than two, lengths go to ``--three``.

Run with ``python benchmarks/bench_two_layers.py``; ``--figure FILE.html`` draws the time, and with
Chromium also ``FILE.png``. The picture in the documentation is
``--figure build/two-layers-cost.html --types 1 2 --depths 3 4 --trained 0``.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from harness import clock, heading, options, row, save_figure

from tl_dyck import build_model, construct, get_config, load_task, train_seeds
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.language.questions import ask
from tl_dyck.plotting.plot_recipes import as_figure
from tl_dyck.plotting.plots import COLORS, SYMBOLS, Series, curves
from tl_dyck.training import TrainConfig


def linear(task: Any) -> Any:
    """Random weights; closing brackets are favoured, or the first look would refute it."""
    shape = {"n_layers": 2, "d_model": 16, "dtype": torch.float64, "device": "cpu"}
    config = get_config("attn-only", task, layer_norm=False, n_ctx=128, **shape)
    model = build_model(config, 0)
    with torch.no_grad():
        model.unembed.b_U[1 : 2 * task.language.n_types : 2] += 3.0
    return model


def trained() -> Any:
    """A model of the family `gpt` that is right on every prefix up to 11."""
    how: Any = {"options": TrainConfig(steps=3000, target=None), "n_jobs": 1, "progress": False}
    return train_seeds("gpt", "dyck-2-4", seeds=1, **how)[0].model


def draw(seconds: dict[str, dict[int, float]], file: Path) -> None:
    """Time against length, a curve for each model and language."""
    looks = [(color, symbol) for symbol in SYMBOLS for color in COLORS[:4]]
    series = [
        Series(
            name=name,
            x=list(found),
            y=list(found.values()),
            color=color,
            symbol=symbol,
            line={"width": 2},
        )
        for (name, found), (color, symbol) in zip(seconds.items(), looks, strict=False)
    ]
    title = "Two layers: all prefixes of exactly one length"
    figure = as_figure([curves(title, "length (brackets)", "seconds", series, alt=title)], title)
    figure.update_layout(width=760, height=400)
    figure.update_yaxes(type="log")
    save_figure(figure, file)


def main() -> None:
    """Print a row for each model and length."""
    said = options(
        __doc__,
        lengths=[12, 16, 20, 28, 40],
        types=[2, 3],
        depths=[4],
        three=12,
        trained=16,
        figure="",
    )
    heading("model", "length", "prefixes", "seconds", "verdict")
    models: list[tuple[str, Any, Any, int]] = []
    for k in said.types:
        for deepest in said.depths:
            task, longest = load_task(f"dyck-{k}-{deepest}"), 999 if k < 3 else said.three
            models.append((f"linear, k = {k}, D = {deepest}", linear(task), task, longest))
            if k > 1:  # with one type the next bracket opens as probably as it closes: a tie
                built = construct.uniform_attention(task.language, first_layer="attention")
                models.append((f"construction, k = {k}, D = {deepest}", built, task, longest))
    if said.trained:
        models.append(("trained, k = 2, D = 4", trained(), load_task("dyck-2-4"), said.trained))
    seconds: dict[str, dict[int, float]] = {}
    for name, model, task, longest in models:
        for length in said.lengths:
            if length <= longest:
                started = clock()
                paths = ask(model, task, "any_token", length).paths
                least = paths.least(length, Deadline(), decide=not name.startswith("linear"))
                took = seconds.setdefault(name, {})[length] = clock() - started
                said_of = {True: "proved", False: "refuted" if least.high < 0 else "open"}
                prefixes = task.language.count(length, "prefix")
                row(name, length, f"{prefixes:.1e}", f"{took:.1f}", said_of[least.low > 0])
    if said.figure:
        draw(seconds, Path(said.figure))


if __name__ == "__main__":
    main()
