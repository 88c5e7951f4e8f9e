"""Models with random weights everywhere, so that no bias or scale can hide by being 0 or 1."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.cases import draw_normal
from tl_dyck.models import DyckTransformer, build_model, get_config

TASK = "dyck-2-4"


@pytest.fixture(scope="session")
def random_model() -> Callable[..., DyckTransformer]:
    """``random_model(family, seed=0, task=…, **overrides)``: small, float64, all weights random."""

    def make(family: str, *, seed: int = 0, task: Any = TASK, **overrides: Any) -> DyckTransformer:
        overrides = {"dtype": torch.float64, "n_ctx": 40, **overrides}
        return draw_normal(build_model(get_config(family, task, **overrides)), seed, 0.5)

    return make
