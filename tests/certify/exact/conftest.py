"""A clock that tests can turn."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import pytest

from tl_dyck.certify import deadline


@pytest.fixture
def ticking(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """A clock that goes on by a second at each look; returns how often it was looked at."""
    ticks = itertools.count()
    looks = [0]

    def now() -> float:
        looks[0] = next(ticks)
        return float(looks[0])

    monkeypatch.setattr(deadline, "now", now)
    return lambda: looks[0]
