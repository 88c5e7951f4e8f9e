"""A small made corpus: words have a polarity, a sentence's label is the sign of their sum."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

GOOD, BAD = ("good", "fine", "great", "warm"), ("bad", "poor", "dull", "cold")
OTHER = ("a", "the", "of", "film", "movie", "plot", "was", "is", "and", "to")
SYNONYMS = {
    "good": ["fine", "great"],
    "fine": ["good", "cold"],
    "bad": ["poor"],
    "dull": ["cold", "warm"],
    "film": ["movie", "flick"],
    "plot": [],
}


def sentences(n: int, seed: int) -> list[tuple[str, int]]:
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(n):
        label = int(rng.integers(2))
        words = [
            *rng.choice(OTHER, rng.integers(2, 6)),
            *rng.choice(GOOD if label else BAD, rng.integers(1, 4)),
        ]
        rows.append((" ".join(str(word) for word in rng.permutation(words)), label))
    return rows


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A local data folder with synonyms."""
    path = tmp_path_factory.mktemp("corpus")
    for name, n, seed in (("train.tsv", 300, 0), ("dev.tsv", 40, 1)):
        lines = [f"{text}\t{label}\n" for text, label in sentences(n, seed)]
        (path / name).write_text("".join(lines), encoding="utf-8")
    (path / "synonyms.json").write_text(json.dumps(SYNONYMS))
    return path
