"""The machine: what it is, for the record, and how many threads a run may use."""

from __future__ import annotations

import contextlib
import gc
import importlib.metadata
import os
import platform
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any

import torch
from joblib import cpu_count

from tl_dyck.kit.check import shown

DISTRIBUTION = "tl-dyck"  # what `pip` calls this package


def environment() -> dict[str, Any]:
    """Versions and hardware, for the record."""
    packages = (
        DISTRIBUTION,
        "torch",
        "transformer_lens",
        "numpy",
        "pandas",
        "plotly",
    )
    return {
        "versions": {name: importlib.metadata.version(name) for name in packages},
        "python": platform.python_version(),
        "platform": platform.platform(),
        "cpu": cpu_name(),
        "cpu_cores": os.cpu_count(),
        "gpu": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
    }


@cache
def _version(package: str) -> str:
    """Which is installed: to read that takes as long as half a small certificate."""
    return importlib.metadata.version(package)


def made_with(model: Any) -> dict[str, str]:
    """What a certificate was computed with: the weights' dtype, torch, and TransformerLens.

    The last one only of a model of its classes. For `said_with`, which makes a line of it.
    """
    # a state dict of all weights would take a twentieth of a small certificate's time
    weights = chain(model.parameters(), model.buffers()) if hasattr(model, "parameters") else ()
    dtype = next((str(each.dtype) for each in weights if each.is_floating_point()), None)
    packages = {each.__module__.partition(".")[0] for each in type(model).__mro__}
    found = {} if dtype is None else {"dtype": dtype.removeprefix("torch.")}
    found["torch"] = torch.__version__.partition("+")[0]
    if "transformer_lens" in packages:
        found["transformer_lens"] = _version("transformer_lens")
    return found


def said_with(made: Mapping[str, str]) -> str:
    """For example ``float32, torch 2.13.0, transformer_lens 4.3.0``."""
    return ", ".join(said if name == "dtype" else f"{name} {said}" for name, said in made.items())


def cpu_name(cpuinfo: str | Path = "/proc/cpuinfo") -> str:
    """The model of the CPU, as it calls itself; its architecture where it does not say."""
    with contextlib.suppress(OSError):
        for line in Path(cpuinfo).read_text(encoding="utf-8", errors="replace").splitlines():
            name, _, value = line.partition(":")
            if name.strip().lower() in ("model name", "cpu model", "hardware") and value.strip():
                return " ".join(value.split())
    return platform.processor() or platform.machine() or "unknown"


def check_device(name: str | None) -> str | None:
    """Compute something on a device; a ValueError says why it cannot be used."""
    if name is None:
        return None
    try:
        if (torch.ones(1, device=name) + 1).item() != 2:  # "meta" has no numbers to give back
            raise RuntimeError("it does not compute")
    # what torch raises where a backend is missing is not always a RuntimeError
    except (
        RuntimeError,
        AssertionError,
        ImportError,
        AttributeError,
        TypeError,
        ValueError,
    ) as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        what = repr(name) if type(name) is str else shown(name)
        raise ValueError(
            f"device {what} cannot be used: {reason}; name another, such as cpu or cuda"
        ) from error
    return name


def default_jobs(device: str | torch.device | None) -> int:
    """Worker processes, where nobody says how many: one per core, but one on a GPU."""
    on_gpu = torch.cuda.is_available() if device is None else str(device).startswith("cuda")
    return 1 if on_gpu else cpu_count()


@contextmanager
def collected_later(time_limit: float | None) -> Iterator[None]:
    """Python collects garbage after this, not in it, if it has a limit of at most a minute.

    With TransformerLens loaded, a collection of all generations takes 0.3 s, whenever it comes.
    """
    # beside more than a minute 0.3 s are nothing, and memory would grow for too long
    if time_limit is None or time_limit > 60 or not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one thread everywhere, so that no result depends on the number of jobs."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
