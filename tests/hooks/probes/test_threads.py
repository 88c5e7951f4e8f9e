"""The built-in probes compute with one thread, faster, and leave the user's setting alone."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch

from tl_dyck.models import build_model, get_config
from tl_dyck.tasks import load_task
from tl_dyck_hooks.probes import attention_variation, balance_violation, stack_likeness

TASK = load_task("dyck-2-4")
PROBES: dict[str, Callable[[Any], object]] = {
    "attention_variation": lambda model: attention_variation([model, model]),
    "balance_violation": balance_violation,
    "stack_likeness": lambda model: stack_likeness(model, TASK, n=3),
}


class StopError(Exception):
    """Raised in the midst of a probe."""


@pytest.fixture
def three_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    yield
    torch.set_num_threads(before)


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("name", PROBES)
@pytest.mark.usefixtures("three_threads")
def test_one_thread_and_then_as_before(name: str, fails: bool) -> None:
    model, seen = build_model(get_config("minimal-onehot", TASK, device="cpu")), []

    def look(module: Any, arguments: Any) -> None:
        seen.append(torch.get_num_threads())
        if fails:
            raise StopError

    model.blocks[0].attn.register_forward_pre_hook(look)
    if fails:
        with pytest.raises(StopError):
            PROBES[name](model)
    else:
        PROBES[name](model)
    assert set(seen) == {1}
    assert torch.get_num_threads() == 3
