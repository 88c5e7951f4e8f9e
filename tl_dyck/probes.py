"""Probes read a trained model and say how much it looks like a stack.

Ours are imported by name, ``from tl_dyck.probes import balance_violation``; they live in
`tl_dyck_hooks.probes`, the home of what works by hooks. Other people's are found by the registry,
where ours are announced as theirs are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tl_dyck.registry import Registry

if TYPE_CHECKING:
    from tl_dyck_hooks.probes import (
        attention_variation,
        balance_violation,
        pair_drift,
        stack_likeness,
    )

__all__ = [
    "Probe",
    "attention_variation",
    "balance_violation",
    "list_probes",
    "load_probe",
    "pair_drift",
    "probes",
    "stack_likeness",
]

Probe = Callable[..., Any]

probes: Registry[Probe] = Registry("probe", "tl_dyck.probes")
register_probe = probes.register
"""Decorator that registers a probe of your own: see `Registry.register`."""


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


def __getattr__(name: str) -> Any:
    """Load our own probes when asked for: they bring torch, which a list of names does not need."""
    if name in ("attention_variation", "balance_violation", "pair_drift", "stack_likeness"):
        import tl_dyck_hooks.probes

        return getattr(tl_dyck_hooks.probes, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
