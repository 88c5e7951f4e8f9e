"""Methods of packages that people use, by adapters: a module, and a line of the extra, a package.

Knows: how a method names the version of its package, and how a package is kept from talking.
Does not know: what is true of a case, by which it is scored (`tl_dyck.judge.truths`).
"""

from __future__ import annotations

import contextlib
import io
from collections.abc import Callable, Iterator
from importlib import metadata


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Bars of a package, which it draws on the error stream, are not shown."""
    with contextlib.redirect_stderr(io.StringIO()):
        yield


def named(package: str) -> Callable[[str], str]:
    """What says whom a method is after, and which release of a package computes it.

    Examples:
        >>> named("torch")("Syed et al. 2023").startswith("Syed et al. 2023; torch ")
        True
    """
    version = metadata.version(package)
    return lambda paper: f"{paper}; {package} {version}"
