"""How often intervals hold what they are to hold, measured.

    python docs/coverage.py          # some seconds; the table in docs/reading_the_report.md

Each cell is a share of simulated samples. Laws are chosen for their shape: an accuracy near 100 %
is skewed to the left, a logit change to the right.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tl_dyck.intervals import t_interval
from tl_dyck.studies.tables import markdown

PAGE = Path(__file__).resolve().parent / "reading_the_report.md"
SAMPLES = 100_000
SIZES = (2, 3, 5, 8, 16, 40)

Law = Callable[[np.random.Generator, tuple[int, int]], np.ndarray]

#: Law -> how it is drawn, and its mean.
LAWS: dict[str, tuple[Law, float]] = {
    "normal": (lambda g, size: g.normal(size=size), 0.0),
    "uniform": (lambda g, size: g.random(size), 0.5),
    "exponential": (lambda g, size: g.exponential(size=size), 1.0),
    "near an end, beta(9, ½)": (lambda g, size: g.beta(9, 0.5, size), 9 / 9.5),
    "lognormal, σ = 1": (lambda g, size: g.lognormal(size=size), math.exp(0.5)),
}


def covered(law: str, n: int, *, others: float = math.inf, samples: int = SAMPLES) -> float:
    """How often the interval of n numbers holds their mean, or the mean of so many others."""
    draw, wanted = LAWS[law]
    generator = np.random.default_rng(n)
    low, high = t_interval(draw(generator, (samples, n)), others=others)
    at = wanted if math.isinf(others) else draw(generator, (samples, int(others))).mean(-1)
    return float(((low <= at) & (at <= high)).mean())


def table() -> str:
    """A row per law, a column per number of seeds: of the mean, and of as many other seeds."""
    rows = [
        [law, *(f"{covered(law, n):.1%}, {covered(law, n, others=n):.1%}" for n in SIZES)]
        for law in LAWS
    ]
    return markdown(["numbers of the seeds are", *(f"{n} seeds" for n in SIZES)], rows)


def main() -> None:
    """Put the table into the page."""
    from tables import placed

    text = PAGE.read_text(encoding="utf-8")
    PAGE.write_text(placed(text, "coverage", table().strip()), encoding="utf-8")


if __name__ == "__main__":
    main()
