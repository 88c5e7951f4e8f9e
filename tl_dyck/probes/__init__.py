"""Probes read trained models and say what their attention is like.

Knows: what ours measure, and how anybody's is called.
Does not know: where models come from (`tl_dyck.training`, `tl_dyck.runs`, `tl_dyck.studies`).

A probe is a function whose first parameter is ``model`` (it is called with one model) or ``models``
(with a list of them); every other parameter has a default. It returns anything with a `repr`.

Here are the registry and how a probe is called; ours have a module each beside it, which brings
torch, and names of `tl_dyck`. Other people's are found by the registry, where ours are announced as
theirs are.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_instance
from tl_dyck.kit.errors import DyckError
from tl_dyck.kit.registry import Registry, RegistryError

__all__ = [
    "Probe",
    "ProbeError",
    "call_probe",
    "list_probes",
    "load_probe",
    "probes",
    "takes_many",
]

Probe = Callable[..., Any]
_OURS = ("tl_dyck", "tl_dyck_hooks")  # packages whose errors say themselves what is wrong


class ProbeError(DyckError, RuntimeError):
    """A probe of a third party raised an error; the message is one line, the cause is chained."""


@checked
def takes_many(probe: Probe) -> bool:
    """Whether a probe is called with a list of models, not with one."""
    if not callable(probe):
        raise WrongTypeError(f"a probe is a function, not {probe!r}")
    return next(iter(inspect.signature(probe).parameters), "") == "models"


def _check_signature(name: str, probe: Any) -> None:
    """Refuse what cannot be called as a probe is."""
    how = "def probe(model, …) or def probe(models, …), where everything else has a default"
    try:
        parameters = list(inspect.signature(probe).parameters.values())
    except (TypeError, ValueError):
        raise RegistryError(f"probe {name!r} must be a function: {how}, not {probe!r}.") from None
    one = inspect.Parameter
    by_place = (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.VAR_POSITIONAL)
    if not parameters or parameters[0].kind not in by_place:
        raise RegistryError(f"probe {name!r} takes no model; write {how}.")
    needed = [
        each.name
        for each in parameters[1:]
        if each.default is one.empty and each.kind not in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
    ]
    if needed:
        raise RegistryError(
            f"probe {name!r} needs {', '.join(needed)}, which nobody gives it; write {how}."
        )


probes: Registry[Probe] = Registry("probe", "tl_dyck.probes", check=_check_signature)
register_probe = probes.register
"""Decorator that registers a probe of your own: see `Registry.register`."""


def list_probes() -> list[str]:
    """Names of all probes, built in or installed. Loads none of them."""
    return probes.names()


@checked
def load_probe(name: str) -> Probe:
    """Return the probe called `name`.

    Raises:
        TypeError: a name is text.
        UnknownNameError: no such probe; the message names the nearest.
        RegistryError: it is announced by an entry point that cannot be loaded.
    """
    check_instance("the name of a probe", name, str, "text")
    return probes.get(name)


@checked
def call_probe(name: str, models: Sequence[Any], **given: Any) -> Any:
    """Call a probe with one model, or with all if it takes them, and what else is given.

    Raises:
        ProbeError: a third party's raised something; ours say themselves what is wrong.
    """
    probe = load_probe(name)
    try:
        if takes_many(probe):
            return probe(list(models), **given)
        (model,) = models
        return probe(model, **given)
    except Exception as error:
        if str(getattr(probe, "__module__", "")).partition(".")[0] in _OURS:
            raise
        said = " ".join(str(error).split())
        raise ProbeError(
            f"probe {name!r} raised {type(error).__name__}{f': {said}' if said else ''}"
        ) from error
