"""The registry of probes: functions that read a trained model and say how much it looks like a stack.

The built-in ones live in `tl_dyck_hooks.probes` and are found by entry point, as anyone else's are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tl_dyck.registry import Registry

__all__ = ["Probe", "list_probes", "load_probe", "probes"]

Probe = Callable[..., Any]

probes: Registry[Probe] = Registry("probe", "tl_dyck.probes")


def list_probes() -> list[str]:
    """Names of all probes, built in or installed. Loads none of them."""
    return probes.names()


def load_probe(name: str) -> Probe:
    """Return the probe called `name`.

    Raises:
        UnknownNameError: no such probe; the message names the nearest.
        RegistryError: it is announced by an entry point that cannot be loaded.
    """
    return probes.get(name)
