"""The built-in probes compute with one thread, faster, and leave the user's setting alone."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.parametrize("name", PROBES)
def test_one_thread_and_then_as_before(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    threads, seen = [3], set()
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads[0])
    monkeypatch.setattr(torch, "set_num_threads", lambda n: threads.__setitem__(0, n))
    model = build_model(get_config("minimal-onehot", TASK, device="cpu"))
    model.blocks[0].attn.register_forward_pre_hook(lambda *_: seen.add(threads[0]))
    PROBES[name](model)
    assert (seen, threads) == ({1}, [3])
