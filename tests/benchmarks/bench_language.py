"""Whole languages: time, and the share of prefixes decided, against length.

Models of `minimal-onehot` trained plainly and with the drift of matched pairs regularised, and a
construction with uniform attention, are decided on every prefix up to a length ("counted", so that
every wrong profile is evaluated), with a limit of time each. "decided" is the share of depths and
lengths that were gone through in it. Beside it: all prefixes up to length 10 run through the model,
one batch a length. One thread; only ratios carry over to other machines.

Run with ``python tests/benchmarks/bench_language.py``; ``--figure FILE.html`` draws the decided
share against length, and with Chromium also ``FILE.png``. The picture in the documentation is
``--figure build/language-decided.html --seeds 1 --limit 10 --lengths 20 40 60 80 100 140 200``.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np
import torch

from tl_dyck import certify_language, construct, get_config, load_task, train_seeds
from tl_dyck.models import lean_logits
from tl_dyck.plots import COLORS, SYMBOLS, Series, curves
from tl_dyck.recipes import as_figure
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainConfig


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
    dashes = ("solid", "dash", "dot", "dashdot")
    series = [
        Series(
            name=name,
            x=lengths,
            y=[100 * share for share in found],
            color=color,
            symbol=symbol,
            line={"width": 2, "dash": dash},
        )
        for (name, found), color, symbol, dash in zip(
            shares.items(), COLORS, SYMBOLS, dashes, strict=False
        )
    ]
    title = f"Lengths decided in {limit:g} s"
    plot = curves(
        title,
        "every prefix up to this length (brackets)",
        "lengths decided (%)",
        series,
        alt=title,
        limits={"y": (-4, 104)},
    )
    figure = as_figure([plot], title)
    figure.update_layout(width=760, height=400, legend={"orientation": "h", "y": -0.25})
    figure.write_html(file, config={"displayModeBar": False})
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser:
        shot = f"--screenshot={file.with_suffix('.png')}"
        size = ["--window-size=776,416", "--hide-scrollbars", "--virtual-time-budget=5000"]
        where = file.resolve().as_uri()
        words = [browser, "--headless", "--no-sandbox", "--disable-gpu", *size, shot, where]
        subprocess.run(words, check=True, capture_output=True)
    print(f"drawn in {file}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--lengths", type=int, nargs="+", default=[10, 20, 28, 36, 44, 60])
    parser.add_argument("--limit", type=float, default=30, help="seconds for a decision")
    parser.add_argument("--figure", type=Path, help="HTML file for the plot of decided shares")
    options = parser.parse_args()

    task = load_task("dyck-2-4")
    config = get_config("minimal-onehot", task)
    groups: dict[str, list[Any]] = {}
    for name, weight in (("plain", 0.0), ("drift 0.03", 0.03)):
        training = TrainConfig(steps=600, target=None, drift_weight=weight)
        found = train_seeds(
            config,
            task,
            seeds=range(options.seeds),
            options=training,
            n_jobs=1,
            progress=False,
        )
        groups[name] = [result.model for result in found]
    groups["uniform"] = [construct.uniform_attention(task.language)]
    groups["balanced"] = [construct.balanced(task.language)]

    print(f"limit {options.limit:g} s; medians over {options.seeds} seeds\n")
    print(f"{'models':<12}{'length':>8}{'prefixes':>12}{'seconds':>10}{'decided':>9}  verdicts")
    shares: dict[str, list[float]] = {}
    for name, models in groups.items():
        for length in options.lengths:
            certificates = [
                certify_language(model, task, length, time_limit=options.limit) for model in models
            ]
            decided = [
                np.mean([row.decided for row in certificate.by_length])
                for certificate in certificates
            ]
            shares.setdefault(name, []).append(float(np.mean(decided)))
            verdicts = [certificate.status for certificate in certificates]
            said = ", ".join(f"{verdicts.count(each)} {each}" for each in sorted(set(verdicts)))
            seconds = np.median([certificate.seconds for certificate in certificates])
            print(
                f"{name:<12}{length:>8}{float(certificates[0].prefixes):>12.1e}{seconds:>10.2f}"
                f"{np.mean(decided):>9.0%}  {said}"
            )
    if options.figure is not None:
        draw(shares, options.lengths, options.limit, options.figure)
    model = groups["plain"][0]
    listed = run_all(model, task, 10)
    counted = certify_language(model, task, 10).seconds
    print(f"\nevery prefix up to 10 run: {listed / counted:.0f} times as long as decided")
    every = certify_language(groups["uniform"][0], task, 500)
    print(f"uniform attention up to 500: {every.status} in {every.seconds:.1f} s")


if __name__ == "__main__":
    main()
