"""A method by itself: a copy of the case for it, and the process as it found it.

Knows: what a method can change that later ones see. A case is handed out in copies, so whatever is
done to one (hooks, weights, tokens, modules, configuration) ends with it. What belongs to the whole
process is put back, and who left it changed is refused by name; only random generators may be used
freely: each call finds them seeded, whoever was called before.

It guards against slips, not against malice: a method is code of whoever runs it.
"""

from __future__ import annotations

import builtins
import contextlib
import decimal
import gc
import io
import json
import locale
import logging
import math
import os
import pickle
import random
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, final

import numpy as np
import pandas as pd
import torch
from torch import Tensor, nn
from torch.nn import functional

from tl_dyck.judge.protocol import Case, Fact, JudgeError, by_target
from tl_dyck.kit.files import sha256


@final
class SealedCase:
    """A case that cannot be changed; copies of it can.

    Args:
        kind: of model.
        seed: from which it was made.
        case: as it was made; copies of it have another name.
        facts: all that is known of it, in any order.

    Attributes:
        facts: the same, sorted by what they are about: neither the order in which they were found,
            nor how often, says anything of their answers.
        kind: the same.
        name: of the case, kind and seed.
        classes: of its modules.
    """

    def __init__(self, kind: str, seed: int, case: Case, facts: Iterable[Fact]) -> None:
        self.facts = tuple(sorted(facts, key=lambda fact: by_target(fact.question)))
        self.kind, self.name = kind, f"{kind}-{seed % 2**64}"  # without a private suite's key
        if len({fact.question for fact in self.facts}) < len(self.facts):
            raise JudgeError(f"{self.name}: a question is asked twice")
        # 48 bits that say neither kind nor seed; methods draw by them
        case = replace(case, name=sha256(f"{kind}-{seed}")[:12])
        models = [model for model in (case.model, case.other) if model is not None]
        self.classes = frozenset(type(part) for model in models for part in model.modules())
        file = io.BytesIO()
        pickler = _Pickler(file)
        try:
            pickler.dump(case)
        except (AttributeError, TypeError, pickle.PicklingError) as error:
            raise JudgeError(f"{self.name} cannot be copied: {error}") from error
        self._bytes, self._tensors = file.getvalue(), pickler.tensors

    def copy(self) -> Case:
        """The case, shared with nobody. Takes a quarter of what `copy.deepcopy` does."""
        case: Case = _Unpickler(io.BytesIO(self._bytes), self._tensors).load()
        return case


class _Pickler(pickle.Pickler):
    """Puts tensors aside: torch's own way through bytes is slow."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self.tensors: list[Tensor] = []
        self._places: dict[int, tuple[int, Tensor]] = {}

    def persistent_id(self, obj: Any) -> int | None:
        if not isinstance(obj, Tensor):
            return None
        if id(obj) not in self._places:
            self._places[id(obj)] = len(self.tensors), obj
            self.tensors.append(_copied(obj))
        return self._places[id(obj)][0]


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: io.BytesIO, tensors: list[Tensor]) -> None:
        super().__init__(file)
        self._tensors = tensors
        self._copies: dict[int, Tensor] = {}

    def persistent_load(self, pid: int) -> Tensor:
        if pid not in self._copies:
            self._copies[pid] = _copied(self._tensors[pid])
        return self._copies[pid]


def _copied(tensor: Tensor) -> Tensor:
    data = tensor.detach().clone()
    if isinstance(tensor, nn.Parameter):
        return nn.Parameter(data, tensor.requires_grad)
    return data.requires_grad_(tensor.requires_grad)


# --- what belongs to the process ------------------------------------------------------------------


@contextlib.contextmanager
def seeded(*what: str) -> Iterator[None]:
    """Random generators of the process, on the CPU, begin at a state of their own; then go on.

    Args:
        what: the seed, in words.
    """
    # the old generator of numpy, which methods may draw from, is the one that all share
    before = torch.get_rng_state(), np.random.get_state(), random.getstate()  # noqa: NPY002
    seed = int(sha256(what)[:8], 16)
    torch.default_generator.manual_seed(seed)
    np.random.seed(seed)  # noqa: NPY002
    random.seed(seed)
    try:
        yield
    finally:
        torch.set_rng_state(before[0])
        np.random.set_state(before[1])  # noqa: NPY002
        random.setstate(before[2])


@final
class LeftChangedError(JudgeError):
    """A method changed what belongs to the whole process; it has been put back."""


@contextlib.contextmanager
def left_alone(who: str, classes: frozenset[type]) -> Iterator[None]:
    """What belongs to the process is as before when this ends.

    Args:
        who: is asked, for the message.
        classes: of modules, whose attributes are watched too.

    Raises:
        LeftChangedError: it was left changed; it has been put back.
    """
    before = [(each, each.get()) for each in _watched(classes)]
    changed = []
    try:
        yield
    finally:
        for each, value in before:
            if each.get() != value:
                each.put_back(value)
                changed.append(each.name)
    if changed:
        raise LeftChangedError(
            f"{who} left {' and '.join(changed)} changed, which would change what others are scored"
            "; it has been put back: let the method put back what it changes"
        )


class _Watched(NamedTuple):
    """Something that is the same for all of a process."""

    name: str
    get: Callable[[], Any]
    put_back: Callable[[Any], Any]


@lru_cache(maxsize=16)
def _watched(classes: frozenset[type]) -> tuple[_Watched, ...]:
    modules = {base for each in classes for base in each.__mro__ if issubclass(base, nn.Module)}
    tables = [
        _Watched(f"torch.nn.modules.module.{name}", _content(table), _refill(table))
        for name, table in vars(nn.modules.module).items()
        if name.startswith("_global_") and isinstance(table, dict)
    ]
    return (
        *_SETTINGS,
        *map(_attributes, sorted(modules, key=lambda each: each.__qualname__)),
        # more may appear in these: torch loads parts of itself when they are asked for
        *(_attributes(owner, tuple(dir(owner))) for owner in _OWNERS),
        *(_attributes(module, tuple(vars(module))) for module in _ours()),
        *tables,
    )


_OWNERS: tuple[Any, ...] = (torch, torch.Tensor, functional, np, np.random, np.linalg)
_OWNERS += (builtins, os, os.path, math, random, time, json)


def _ours() -> list[Any]:
    """The modules of this library that are loaded; more names may appear in them."""
    return [sys.modules[name] for name in sorted(sys.modules) if name.startswith("tl_dyck.")]


def _umask() -> int:
    was = os.umask(0o077)  # there is no other way to read it
    os.umask(was)
    return was


_SIGNALS = [signal.SIGINT, signal.SIGTERM]
_SIGNALS += [getattr(signal, name) for name in ("SIGALRM", "SIGCHLD") if hasattr(signal, name)]


def _set_signals(was: list[Any]) -> None:
    for number, handler in zip(_SIGNALS, was, strict=True):
        if handler is not None:  # one that Python did not set
            signal.signal(number, handler)


def _set_decimals(was: tuple[int, str]) -> None:
    decimal.getcontext().prec, decimal.getcontext().rounding = was


def _environ() -> dict[str, str]:
    # pytest says there which test is run, and how far it is
    return {name: value for name, value in os.environ.items() if name != "PYTEST_CURRENT_TEST"}


def _set_environ(was: Mapping[str, str]) -> None:
    for name in {*_environ()} - {*was}:
        del os.environ[name]
    os.environ.update(was)


def _set_filters(was: list[Any]) -> None:
    warnings.resetwarnings()  # so that what was shown once is known to be of other filters
    warnings.filters[:] = was  # type: ignore[index]


def _flushes() -> bool:
    # torch has no function that says so: the least float is 0 then
    return bool((torch.tensor(5e-324, dtype=torch.float64) * 1.0 == 0).item())


def _set_collecting(was: bool) -> None:
    (gc.enable if was else gc.disable)()


def _pandas(options: Any = None, before: str = "") -> dict[str, Any]:
    """The options of pandas by their dotted names; without the warnings of those that end."""
    found: dict[str, Any] = {}
    for name, value in (pd.options.d if options is None else options).items():
        here = f"{before}{name}"
        found |= _pandas(value, f"{here}.") if isinstance(value, dict) else {here: value}
    return found


def _set_pandas(was: Mapping[str, Any]) -> None:
    now = _pandas()
    for name in was:
        if now[name] != was[name]:
            pd.set_option(name, was[name])


_SETTINGS = (
    _Watched("os.chdir", os.getcwd, os.chdir),
    _Watched("os.umask", _umask, os.umask),
    _Watched("signal.signal", lambda: [*map(signal.getsignal, _SIGNALS)], _set_signals),
    _Watched(
        "decimal.getcontext",
        lambda: (decimal.getcontext().prec, decimal.getcontext().rounding),
        _set_decimals,
    ),
    _Watched("os.environ", _environ, _set_environ),
    _Watched("warnings.filters", lambda: list(warnings.filters), _set_filters),
    _Watched(
        "warnings.showwarning",
        lambda: warnings.showwarning,
        lambda was: setattr(warnings, "showwarning", was),
    ),
    _Watched("sys.path", lambda: list(sys.path), lambda was: setattr(sys, "path", was)),
    _Watched("sys.stdout", lambda: sys.stdout, lambda was: setattr(sys, "stdout", was)),
    _Watched("sys.stderr", lambda: sys.stderr, lambda was: setattr(sys, "stderr", was)),
    _Watched("sys.setrecursionlimit", sys.getrecursionlimit, sys.setrecursionlimit),
    _Watched("gc.disable", gc.isenabled, _set_collecting),
    _Watched(
        "locale.setlocale",
        lambda: locale.setlocale(locale.LC_ALL),
        lambda was: locale.setlocale(locale.LC_ALL, was),
    ),
    _Watched("logging.disable", lambda: logging.root.manager.disable, logging.disable),
    _Watched("logging's level", lambda: logging.root.level, logging.root.setLevel),
    _Watched(
        "torch.autocast",
        lambda: torch.is_autocast_enabled("cpu"),
        lambda was: torch.set_autocast_enabled("cpu", was),
    ),
    _Watched(
        "torch.set_autocast_dtype",
        lambda: torch.get_autocast_dtype("cpu"),
        lambda was: torch.set_autocast_dtype("cpu", was),
    ),
    _Watched("torch.set_grad_enabled", torch.is_grad_enabled, torch.set_grad_enabled),
    _Watched("torch.set_default_dtype", torch.get_default_dtype, torch.set_default_dtype),
    _Watched(
        "torch.set_default_device",
        torch.get_default_device,
        # with "cpu" in place of None torch would look at every call
        lambda was: torch.set_default_device(None if was.type == "cpu" else was),
    ),
    _Watched("torch.set_flush_denormal", _flushes, torch.set_flush_denormal),
    _Watched("torch.set_num_threads", torch.get_num_threads, torch.set_num_threads),
    _Watched(
        "torch.use_deterministic_algorithms",
        torch.are_deterministic_algorithms_enabled,
        torch.use_deterministic_algorithms,
    ),
    _Watched(
        "torch.set_float32_matmul_precision",
        torch.get_float32_matmul_precision,
        torch.set_float32_matmul_precision,
    ),
    _Watched("torch.set_anomaly_enabled", torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    _Watched("numpy.seterr", np.geterr, lambda was: np.seterr(**was)),
    _Watched("numpy.set_printoptions", np.get_printoptions, lambda was: np.set_printoptions(**was)),
    _Watched("pandas.set_option", _pandas, _set_pandas),
)


_ABSENT = object()


def _attributes(owner: Any, names: tuple[str, ...] | None = None) -> _Watched:
    """The attributes of a class or module; of those names, or all that there are."""
    parts = [(name, f"{owner.__name__}.{name}") for name in names or ()]

    def get() -> dict[str, Any]:
        found, loaded = vars(owner), sys.modules
        if names is None:
            return dict(found)
        # NumPy and torch load parts of themselves when they are asked for: that is no change
        return {
            name: _ABSENT if (x := found.get(name, _ABSENT)) is loaded.get(part, _ABSENT) else x
            for name, part in parts
        }

    def put_back(was: Mapping[str, Any]) -> None:
        for name in {*get()} | {*was}:
            now, before = vars(owner).get(name, _ABSENT), was.get(name, _ABSENT)
            if before is _ABSENT:
                before = sys.modules.get(f"{owner.__name__}.{name}", _ABSENT)
            if before is _ABSENT and now is not _ABSENT:
                delattr(owner, name)
            elif now is not before:
                setattr(owner, name, before)

    return _Watched(f"attributes of {owner.__name__}", get, put_back)


def _content(table: dict[Any, Any]) -> Callable[[], dict[Any, Any]]:
    return lambda: dict(table)


def _refill(table: dict[Any, Any]) -> Callable[[dict[Any, Any]], None]:
    def put_back(was: dict[Any, Any]) -> None:
        table.clear()
        table.update(was)

    return put_back
