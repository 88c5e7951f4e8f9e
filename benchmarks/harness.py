"""What benchmarks share: options from defaults, ways timed in turns, tables.

Knows: that the ways that are compared take turns, so that what else the machine does falls on all
alike, and that only their ratios carry over to other machines.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch


def options(description: str, **defaults: Any) -> argparse.Namespace:
    """The command line: an option for each default, of its type; True and False are switches."""
    form = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(description=description, formatter_class=form)
    for name, value in defaults.items():
        given: dict[str, Any] = {"default": value}
        if isinstance(value, bool):
            given["action"] = argparse.BooleanOptionalAction
        elif isinstance(value, (list, tuple)):
            given |= {"nargs": "+", "type": type(value[0])}
        else:
            given["type"] = type(value)
        parser.add_argument(f"--{name}", **given)
    torch.set_num_threads(1)
    return parser.parse_args()


def clock(device: str = "cpu") -> float:
    """Seconds; of processor time on the CPU, so that what else it does does not count."""
    if device != "cpu":
        torch.cuda.synchronize()
        return time.perf_counter()
    return time.process_time()


def in_turns(
    ways: Mapping[str, Callable[[], Any]],
    rounds: int,
    now: Callable[[], float] = clock,
) -> dict[str, list[float]]:
    """Seconds of every way in every round; once more before, to warm up."""
    for way in ways.values():
        way()
    found: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for name, way in ways.items():
            started = now()
            way()
            found[name].append(now() - started)
    return found


def heading(*names: str) -> None:
    """Begin a table."""
    print(f"| {' | '.join(names)} |\n|{'---|' * len(names)}", flush=True)


def row(*cells: Any) -> None:
    """A row of a table."""
    print(f"| {' | '.join(map(str, cells))} |", flush=True)


def save_figure(figure: Any, file: Path) -> None:
    """A page, of 760 × 400 pixels if the figure has no size; with Chromium a picture beside it."""
    figure.write_html(file, config={"displayModeBar": False})
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    if browser:
        shot = f"--screenshot={file.with_suffix('.png').resolve()}"
        width, height = figure.layout.width or 760, figure.layout.height or 400
        size = [
            f"--window-size={width + 16},{height + 16}",
            "--hide-scrollbars",
            "--virtual-time-budget=5000",
        ]
        words = [browser, "--headless", "--no-sandbox", "--disable-gpu", *size, shot]
        subprocess.run([*words, file.resolve().as_uri()], check=True, capture_output=True)
    print(f"drawn in {file}")


def spread(seconds: Sequence[float]) -> str:
    """Median, 95 % quantile and largest, in milliseconds."""
    ms = torch.tensor(seconds, dtype=torch.float64) * 1e3
    return f"{ms.quantile(0.5):.1f} | {ms.quantile(0.95):.1f} | {ms.max():.1f}"


def peak_flops(device: str = "cpu") -> float:
    """Floating-point operations per second of a large float32 matrix product, on one thread."""
    a = torch.randn(1024, 1024, device=device)
    return 2 * 1024**3 / min(in_turns({"": lambda: a @ a}, 10, lambda: clock(device))[""])
