"""Whole languages: time, and the share of prefixes decided, against length.

Models of `minimal-onehot` trained plainly and with the drift of matched pairs regularised, and a
construction with uniform attention, are decided on every prefix up to a length ("counted", so that
every wrong profile is evaluated), with a limit of time each. "decided" is the share of depths and
lengths that were gone through in it. Beside it: all prefixes up to length 10 run through the model,
one batch a length. One thread, or `--jobs` processes; only ratios carry over to other machines.

Run with ``python benchmarks/bench_language.py``; ``--figure FILE.html`` draws the decided
share against length, and with Chromium also ``FILE.png``. The picture in the documentation is
``--figure build/language-decided.html --seeds 1 --limit 10 --lengths 20 40 60 80 100 140 200``.
"""

from __future__ import annotations

from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np
import torch
from harness import heading, options, row, save_figure

from tl_dyck import certify_language, construct, get_config, load_task, train_seeds
from tl_dyck.models import lean_logits
from tl_dyck.plotting.plot_recipes import as_figure
from tl_dyck.plotting.plots import COLORS, SYMBOLS, Series, curves
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainConfig

TASK = load_task("dyck-2-4")


def run_all(model: Any, task: DyckTask, length: int) -> float:
    """Seconds to run every prefix through the model."""
    language, start = task.language, perf_counter()
    with torch.no_grad():
        for n in range(1, length + 1):
            prefixes = language.enumerate(n, "prefix")
            bos = torch.full((len(prefixes), 1), language.bos_token)
            for rows in torch.cat([bos, prefixes], 1).split(4096):
                lean_logits(model, rows)[:, -1].argmax(-1)
    return perf_counter() - start


def draw(shares: dict[str, list[float]], lengths: list[int], limit: float, file: Path) -> None:
    """The decided share against length, a curve per group of models."""
    looks = zip(COLORS, SYMBOLS, ("solid", "dash", "dot", "dashdot"), strict=False)
    series = [
        Series(name=name, x=lengths, y=[100 * share for share in found], color=color,
               symbol=symbol, line={"width": 2, "dash": dash})
        for (name, found), (color, symbol, dash) in zip(shares.items(), looks, strict=False)
    ]  # fmt: skip
    title, x = f"Lengths decided in {limit:g} s", "every prefix up to this length (brackets)"
    bounds = {"y": (-4, 104)}
    plot = curves(title, x, "lengths decided (%)", series, alt=title, limits=bounds)
    figure = as_figure([plot], title)
    figure.update_layout(width=760, height=400, legend={"orientation": "h", "y": -0.25})
    save_figure(figure, file)


def trained(weight: float, n_seeds: int) -> list[Any]:
    """Models of `minimal-onehot`, with the drift regularised by a weight."""
    training = TrainConfig(steps=600, target=None, drift_weight=weight)
    how: Any = {"options": training, "n_jobs": 1, "progress": False}
    found = train_seeds(get_config("minimal-onehot", TASK), TASK, seeds=range(n_seeds), **how)
    return [result.model for result in found]


def main() -> None:
    """Print a row for each group of models and length."""
    said = options(
        __doc__, seeds=4, lengths=[10, 20, 28, 36, 44, 60], limit=30.0, jobs=1, figure=""
    )
    groups = {
        "plain": trained(0.0, said.seeds),
        "drift 0.03": trained(0.03, said.seeds),
        "uniform": [construct.uniform_attention(TASK.language)],
        "balanced": [construct.balanced(TASK.language)],
    }
    print(f"limit {said.limit:g} s; medians over {said.seeds} seeds\n")
    heading("models", "length", "prefixes", "seconds", "decided", "verdicts")
    shares: dict[str, list[float]] = {}
    for name, models in groups.items():
        for length in said.lengths:
            how: Any = {"time_limit": said.limit, "n_jobs": said.jobs}
            found = [certify_language(each, TASK, length, **how) for each in models]
            decided = float(
                np.mean([np.mean([r.decided for r in each.by_length]) for each in found])
            )
            shares.setdefault(name, []).append(decided)
            statuses = [each.status for each in found]
            verdicts = ", ".join(f"{statuses.count(one)} {one}" for one in sorted(set(statuses)))
            seconds = f"{np.median([each.seconds for each in found]):.2f}"
            row(
                name, length, f"{float(found[0].prefixes):.1e}", seconds, f"{decided:.0%}", verdicts
            )
    if said.figure:
        draw(shares, said.lengths, said.limit, Path(said.figure))
    model = groups["plain"][0]
    listed, counted = run_all(model, TASK, 10), certify_language(model, TASK, 10).seconds
    print(f"\nevery prefix up to 10 run: {listed / counted:.0f} times as long as decided")
    every = certify_language(groups["uniform"][0], TASK, 500)
    print(f"uniform attention up to 500: {every.status} in {every.seconds:.1f} s")


if __name__ == "__main__":
    main()
