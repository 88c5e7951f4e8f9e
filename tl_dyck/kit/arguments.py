"""Arguments of public functions, held to their annotations whenever one is called.

Knows: what is asked of an argument besides, by its name. A signature is the one place that says
what a function takes; `checked` reads it on the first call, and refuses anything else in a line
that names the argument. Ranges, and what depends on other arguments, are left to the function.
"""

from __future__ import annotations

import inspect
import sys
import typing
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, partial, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

from tl_dyck.kit import modes
from tl_dyck.kit.annotations import LOOKED_AT, Meaning, Scope, meaning
from tl_dyck.kit.check import (
    WrongTypeError,
    WrongValueError,
    check_draws,
    check_integer,
    check_time_limit,
    shown,
    too_large,
)

Target = TypeVar("Target", bound=Callable[..., Any])


def checked(target: Target) -> Target:
    """Check the arguments of a function, a method or a class (of its constructor) at each call.

    It is run in the modes of `tl_dyck.kit.modes`, whatever the caller's are.

    Raises:
        WrongTypeError: at a call, of an argument that is not what its annotation says.
        WrongValueError: of a path that is empty.
    """
    if isinstance(target, type):
        target.__init__ = checked(target.__init__)  # type: ignore[misc]
        return target
    # not a list that the first call fills: a digest of code that calls this would change with it
    parameters_of = cache(partial(_parameters, target))

    @wraps(target)
    def call(*args: Any, **kwargs: Any) -> Any:
        if modes.is_traced():  # a graph is to hold what is computed, not questions about it
            return target(*args, **kwargs)
        parameters = parameters_of()
        for (name, kind), value in zip(parameters.in_order, args, strict=False):
            if kind is not None and not kind.fits(value):
                _refuse(name, value, kind)
        for name, value in kwargs.items():
            kind = parameters.by_name.get(name)
            if kind is not None and not kind.fits(value):
                _refuse(name, value, kind)
        # nobody else's code, which could have set other modes, is between two functions of ours
        from_ours = sys._getframe(1).f_globals.get("__name__", "").startswith("tl_dyck.")
        return modes.call(target, args, kwargs, from_ours)

    return cast(Target, call)


@cache
def _fields(owner: type) -> Mapping[str, Meaning | None]:
    return _parameters(owner).by_name


def check_field(owner: type, name: str, value: Any) -> None:
    """Check what a field of a dataclass is to hold, as `checked` does; for what converts it."""
    kind = _fields(owner)[name]
    if kind is not None and not kind.fits(value):
        _refuse(name, value, kind)


def _refuse(name: str, value: Any, kind: Meaning) -> None:
    much = too_large(value)
    if much is not None:
        raise WrongValueError(f"{name} must be {much}")
    error = WrongValueError if isinstance(value, str) and not value else WrongTypeError
    raise error(f"{name} must be {kind.words}, got {shown(value)}")


@dataclass(frozen=True)
class _Parameters:
    """Of a function, what each argument has to be; None where anything goes."""

    in_order: Iterable[tuple[str, Meaning | None]]
    by_name: Mapping[str, Meaning | None]


def _parameters(target: Callable[..., Any]) -> _Parameters:
    scope = Scope(vars(sys.modules[inspect.unwrap(target).__module__]))
    in_order: list[tuple[str, Meaning | None]] = []
    by_name: dict[str, Meaning | None] = {}
    for name, parameter in inspect.signature(target).parameters.items():
        hint = parameter.annotation
        if parameter.kind is parameter.VAR_KEYWORD:
            by_name.update(_options(hint, scope))
            continue
        kind = None if hint is parameter.empty else meaning(hint, scope)
        kind = _by_name(name, kind, parameter.default)
        if parameter.kind is parameter.VAR_POSITIONAL:
            in_order += [(name, kind)] * LOOKED_AT
        else:
            by_name[name] = kind
            if parameter.kind is not parameter.KEYWORD_ONLY:
                in_order.append((name, kind))
    return _Parameters(in_order, by_name)


def _by_name(name: str, kind: Meaning | None, default: Any) -> Meaning | None:
    """What is asked besides of an argument of this name; None only if that is its default."""
    if name in _WIDE and kind is not None and kind.fits(0):
        return None
    if name in _MODELS and kind is None:
        return Meaning("a model", lambda value: value is default or _is_model(name, value))
    if name not in _RANGES or (name == "name" and kind is not None and kind.fits(_ADDRESS)):
        return kind

    def fits(value: Any) -> bool:
        if kind is not None and not kind.fits(value):
            return False
        if value is not None or default is not None:
            _RANGES[name](value)
        return True

    return Meaning("" if kind is None else kind.words, fits)


#: Where this fits, a name is the address of what is on the disk: files may have any names.
_ADDRESS = Path()

#: Integers of more bits than all others; their functions check them.
_WIDE = ("key",)

#: Parameters that are models, where the annotation is Any.
_MODELS = ("model", "model_or_rnn", "rnn_or_model", "rnn", "before", "after", "other")


def _is_model(name: str, value: Any) -> bool:
    """What can be called, or asks a model itself; a list is answered by what to do with it."""
    if isinstance(value, (list, tuple, dict)):
        raise WrongTypeError(
            f"{name} must be one model, not a {type(value).__name__} of {len(value)}; call it for "
            "each of them"
        )
    return (callable(value) or hasattr(value, "model_or_rnn")) and not isinstance(value, type)


def _check_device(value: Any) -> None:
    from tl_dyck.kit.environment import check_device

    check_device(value)


def _check_bits(value: Any) -> None:
    """What torch's generators take; most functions ask for a seed that is not negative besides."""
    # torch reads a seed as 64 bits, with a sign or without
    check_integer("seed", value, least=-(2**63), most=2**64 - 1)


def _check_name(value: Any) -> None:
    if isinstance(value, str) and not value.isprintable():
        raise WrongValueError(f"name must be a text without control characters, got {value!r:.80}")


#: Checks of values, by the names of parameters that mean the same everywhere.
_RANGES: dict[str, Callable[[Any], object]] = {
    "seed": _check_bits,
    "time_limit": check_time_limit,
    "device": _check_device,
    "name": _check_name,
    "n_bootstrap": partial(check_draws, name="n_bootstrap"),
}


def _options(hint: Any, scope: Scope) -> dict[str, Meaning | None]:
    """Those of ``**how: Unpack[Options]``, where `Options` says the types of all."""
    typed = eval(hint, {}, scope) if isinstance(hint, str) else hint
    for options in typing.get_args(typed):
        inside = Scope(vars(sys.modules[options.__module__]))
        return {name: meaning(each, inside) for name, each in options.__annotations__.items()}
    return {}
