"""The machine: what it is, for the record, and how many threads a run may use."""

from __future__ import annotations

import importlib.metadata
import os
import platform
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["environment", "one_thread"]


def environment() -> dict[str, Any]:
    """Versions and hardware, for the record."""
    packages = ("tl-dyck", "torch", "transformer_lens", "numpy", "pandas", "plotly", "circuitsvis")
    return {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu_cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread, in a worker process and elsewhere, so that no result depends on the number of jobs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
