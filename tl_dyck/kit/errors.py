"""What tl_dyck raises on purpose, and how to tell it from a bug."""

from __future__ import annotations

import dis
from importlib import import_module
from typing import Any

from tl_dyck.kit.announced import announced
from tl_dyck.kit.visible import in_a_line

__all__ = ["DyckError", "MissingPackageError", "is_refusal"]


class DyckError(Exception):
    """Base of tl_dyck's own errors; each is a built-in one as well, most of them a ValueError.

    What a file or a user said stands in messages, and Python prints them as they are: so whatever a
    terminal would act on is an escape, and line feeds are, too.
    """

    #: What makes a message harmless; another in errors that bring whole tracebacks.
    _shown = staticmethod(in_a_line)

    def __str__(self) -> str:
        return self._shown(super().__str__())


class MissingPackageError(DyckError, ImportError):
    """A package is not installed that an extra of tl-dyck brings."""


def needed(module: str, what: str, extra: str) -> Any:
    """A module of a package that an extra brings; the error says what needs it, and the extra."""
    try:
        return import_module(module)
    except ImportError as error:
        package = module.partition(".")[0]
        raise MissingPackageError(
            f"{what} needs the package {package}; install it with: pip install 'tl-dyck[{extra}]'"
        ) from error


def is_refusal(error: BaseException) -> bool:
    """Whether an error says that something asked for cannot be done, not that a program is wrong.

    It does if it is a `DyckError`; or an OSError, for files and disks are not ours; or a ValueError
    that a ``raise`` statement in tl_dyck or in an installed plug-in raised, for that was written
    for whoever passed the value. A ValueError from inside torch, NumPy or pandas, or one of
    Python's own (``int("x")``), means that nobody checked.

    Args:
        error: what was caught; who raised it is read from its traceback.
    """
    if isinstance(error, (DyckError, OSError)):
        return True
    trace = error.__traceback__
    if not isinstance(error, ValueError) or trace is None:
        return False
    while trace.tb_next is not None:
        trace = trace.tb_next
    package = trace.tb_frame.f_globals.get("__name__", "").partition(".")[0]
    raised = trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]
    return raised and package in {"tl_dyck", "tl_dyck_hooks", *_plugged_in()}


def _plugged_in() -> set[str]:
    """The packages that announce anything in an entry-point group of ours."""
    points = announced()
    ours = [
        point
        for group in points.groups
        if group.startswith("tl_dyck.")
        for point in points.select(group=group)
    ]
    return {point.value.partition(":")[0].partition(".")[0] for point in ours}
