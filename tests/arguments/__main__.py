"""Call every public function with arguments that are wrong; print what is not refused in a line.

``python -m tests.arguments``; with ``--taken`` it also prints what was taken, with ``--third``
each parameter gets a third of the values, another one than its neighbour, and with a name only
functions whose names have it in them.
"""

from __future__ import annotations

import contextlib
import inspect
import os
import resource
import sys
import tempfile
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np

from tests.arguments import accepted, calls, wrong
from tests.arguments.public import Public, is_tried, public
from tl_dyck.kit.files import MissingFileError
from tl_dyck.models.bridge import NoBridgeError

MEMORY = 8 << 30  # bytes: what is asked for must be refused before it is made


def makers(each: Public) -> dict[str, Callable[[], Any]]:
    """What makes arguments that a function takes; those of ``*args`` have a star before it."""
    own, found = calls.OF.get(each.name, {}), {}
    for parameter in each.parameters:
        name = parameter.name
        if parameter.kind is parameter.VAR_KEYWORD:
            continue
        if parameter.kind is parameter.VAR_POSITIONAL:
            name = f"*{name}"
        if name in own:
            found[name] = own[name]
        elif name in calls.SMALL or (parameter.default is parameter.empty and name[0] != "*"):
            found[name] = calls.COMMON[name]
    return found


def made(makes: dict[str, Callable[[], Any]]) -> dict[str, Any]:
    """What they make, each time anew."""
    return {name: make() for name, make in makes.items()}


def called(each: Public) -> Callable[..., Any]:
    """The function, or the method of something that has it."""
    if each.owner is None:
        return each.call
    name = each.name.rpartition(".")[0]
    if isinstance(inspect.getattr_static(each.owner, each.attribute), (classmethod, staticmethod)):
        on: Any = each.owner
    elif name in calls.ON:
        on = calls.ON[name]()
    else:
        on = each.owner(**{key: made() for key, made in calls.OF[name].items()})
    function: Callable[..., Any] = getattr(on, each.attribute)
    return function


def call(each: Public, arguments: dict[str, Any]) -> Any:
    several = [arguments.pop(name) for name in list(arguments) if name[0] == "*"]
    found = called(each)(*several, **arguments)
    given = any(found is each for each in arguments.values())
    return list(found) if inspect.isgenerator(found) and not given else found


@contextlib.contextmanager
def stopped(each: Public) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        if each.name in calls.STOPPED:
            stack.enter_context(mock.patch(calls.STOPPED[each.name], calls.stop))
        yield


#: By parameters of functions that are `checked`, what is refused before any of them is called.
refused: dict[tuple[str, ...], set[str]] = {}


def gated(each: Public) -> bool:
    """Whether arguments are held to annotations by what stands before the function."""
    function = each.call.__init__ if isinstance(each.call, type) else each.call  # type: ignore[misc]
    return getattr(function, "__code__", None) is wrong.GATE


def tried(each: Public, *, taken: bool, third: bool) -> Iterator[str]:
    """What is wrong with what a function makes of wrong arguments."""
    right = partial(made, makers(each))
    called(each), right()  # what they need is made before anything is stopped
    with stopped(each):
        try:
            call(each, right())
        except (calls.Stop, NoBridgeError, MissingFileError):
            pass  # it was about to work
        except BaseException as error:
            yield f"{each.name} refuses what tests/arguments/calls.py gives as right: {error!r}"
            return
        for name, value in right().items():
            for kind in (np.int64, np.uint8) if type(value) is int and value >= 0 else ():
                arguments = {**right(), name: kind(value)}
                got = wrong.outcome(partial(call, each, arguments), name, value)
                if got != "taken" and each.name not in wrong.MISSING:
                    yield f"{each.name}({name}={kind.__name__}({value})): {got}"
        for parameter in each.parameters:
            several = parameter.kind is parameter.VAR_POSITIONAL
            if not is_tried(parameter):
                continue
            name = "*" * several + parameter.name
            # all that the gate knows of a parameter: it decides alike wherever that is the same
            alike = refused.setdefault((*map(str, (parameter, parameter.kind)), gated(each)), set())
            first = zlib.crc32(f"{each.name}.{name}".encode()) if third else 0
            for at, (label, value) in enumerate(wrong.values().items(), start=first):
                if (third and at % 3) or (label in alike and gated(each)):
                    continue
                arguments = {**right(), name: value}
                got = wrong.outcome(partial(call, each, arguments), parameter.name, value)
                said = f"{each.name}({parameter.name}={label})"
                if got.startswith("nameless") and each.name in wrong.VAGUE:
                    continue
                if got == "taken" and (taken or not accepted.is_right(each, parameter, label)):
                    yield f"{said} is taken [{parameter.annotation}]"
                elif got == wrong.AT_THE_GATE:
                    alike.add(label)
                elif got not in ("taken", "refused"):
                    yield f"{said}: {got}"


def main(*options: str) -> None:
    warnings.simplefilter("ignore")
    held = Path("/proc/self/statm")  # in pages, of whoever it is a fork of, too
    used = int(held.read_text().split()[0]) * os.sysconf("SC_PAGESIZE") if held.exists() else 0
    resource.setrlimit(resource.RLIMIT_AS, (used + MEMORY, resource.RLIM_INFINITY))
    out, sys.stdout = sys.stdout, open(os.devnull, "w")  # noqa: SIM115 - bars of progress
    sys.stderr = sys.stdout
    names = [each for each in options if each[0] != "-"]
    os.chdir(tempfile.mkdtemp())
    for each in public():
        if names and not any(name in each.name for name in names):
            continue
        started = time.process_time()
        try:
            for line in tried(each, taken="--taken" in options, third="--third" in options):
                print(line, file=out, flush=True)
        except Exception as error:
            print(
                f"{each.name} has no right entry in tests/arguments/calls.py: {error!r}", file=out
            )
        if "--times" in options:
            print(f"TIME {time.process_time() - started:.2f} {each.name}", file=out, flush=True)
    print("done", file=out, flush=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
