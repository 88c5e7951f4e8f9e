"""What stands behind Tab: values of options, by name. Nothing that they name is loaded."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from tl_dyck.kit.addresses import REFERENCE, split_address
from tl_dyck.kit.announced import announced

#: Names that are registered in code which loads torch; a test holds them to what is there.
KNOWN = {
    "models": (
        *("attn-only", "eq49", "eq6", "eq6-uniform", "figure2-onehot", "figure2-split"),
        *("figure2-yao", "gpt", "gpt-learned", "gpt-linear", "gpt-sinusoidal", "gpt-uniform"),
        *("minimal-onehot", "minimal-split", "minimal-uniform", "minimal-yao"),
    ),
    "tasks": tuple(
        f"dyck-{k}-{depth}{mode}" for k in (2, 3) for depth in (4, 8) for mode in ("", "-prefix")
    ),
    "backends": ("dask", "loky"),
}
SUITES = ("quick", "full", "edges", "parts", "tasks")
SCALES = ("quick", "full", "paper")

Complete = Callable[[str], list[str]]


def named(group: str) -> Complete:
    """Names of a registry; several with commas between are completed at the last."""

    def complete(incomplete: str) -> list[str]:
        names = announced(group=f"tl_dyck.{group}").names
        return _last(incomplete, {*KNOWN.get(group, ()), *names})

    return complete


def one_of(names: Iterable[str]) -> Complete:
    """Of these names."""
    return lambda incomplete: [name for name in names if name.startswith(incomplete)]


def saved_models(incomplete: str) -> list[str]:
    """Folders, and behind the colon of ``results/study:`` the families."""
    folder, _ = split_address(incomplete)
    address, colon, name = incomplete.rpartition(":")
    if colon and str(folder) != incomplete:
        return [f"{address}:{each}" for each in KNOWN["models"] if each.startswith(name)]
    path = Path(incomplete)
    parent = path if incomplete.endswith("/") else path.parent
    begun = "" if incomplete.endswith("/") else path.name
    try:
        inside = sorted(each for each in parent.iterdir() if each.is_dir())
    except OSError:  # nothing there, or nothing to be read
        inside = []
    found = [str(each) for each in inside if each.name.startswith(begun) and each.name[0] != "."]
    return [*found, *(each for each in (REFERENCE,) if incomplete and each.startswith(incomplete))]


def _last(incomplete: str, names: Iterable[str]) -> list[str]:
    before, comma, begun = incomplete.rpartition(",")
    return [before + comma + name for name in sorted(names) if name.startswith(begun)]
