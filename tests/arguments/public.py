"""Every public function, constructor and method, found in the packages themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import tl_dyck

#: Records that functions return and nobody makes; their methods are called all the same.
RETURNED = {
    "TrainResult",
    "ablation.Answer",
    "ablation.FinetunedImportance",
    "ablation.HeadImportance",
    "ablation.ImportanceComparison",
    "ablation.LeaveOneOutImportance",
    "certify.Certificate",
    "certify.DyckCertificate",
    "certify.DyckCertificates",
    "certify.Edit",
    "certify.LogitChange",
    "certify.Objectives",
    "certify.Passage",
    "certify.SpaceQuestion",
    "certify.Witness",
    "certify.WordSpace",
    "certify.language.Bounds",
    "certify.language.Ending",
    "certify.language.LanguageCertificate",
    "certify.language.LengthResult",
    "certify.language.PrefixFound",
    "certify.language.SampledError",
    "judge.Case",
    "language.StringList",
    "tasks.StringAccuracy",
    "judge.Fact",
    "judge.HeadTruths",
    "judge.JudgedCase",
    "judge.Judgement",
    "judge.MinimalCircuit",
    "judge.Question",
    "judge.SuiteFile",
    "judge.Tuned",
    "models.construct.Pruning",
    "models.construct.Twins",
    "report.widgets.Widget",
    "rnn.QueryCarry",
    "runs.MergeReport",
    "runs.SweepStatus",
    "studies.Study",
    "text.Ingredients",
    "interventions.Eraser",
}


#: For whoever writes a certifier or a transformation: they are handed what our functions checked.
INNER = (
    *("certify.Objectives.", "certify.language.Profiles.", "language.Language."),
    *("errors.is_refusal", "certify.conclude"),
)


#: Packages that name nothing themselves, and what stands for their modules in the names here.
BY_MODULES = {"tl_dyck_text": "text"}


@dataclass(frozen=True)
class Public:
    """Something that a user can call: its name, what it is called on, and its parameters."""

    name: str
    owner: type | None
    attribute: str
    call: Callable[..., Any]
    parameters: tuple[inspect.Parameter, ...]


def modules() -> list[ModuleType]:
    """The subpackages that `tl_dyck` names, and what these have in ``__all__`` that is a module."""
    found = [getattr(tl_dyck, name) for name in tl_dyck._ORIGINS]
    found = [each for each in found if inspect.ismodule(each) and hasattr(each, "__all__")]
    found.append(import_module("tl_dyck.certify.language"))
    return sorted(found, key=lambda each: each.__name__)


def documented() -> Iterator[tuple[str, Any]]:
    """What the pages of the API name of modules that are in no package's ``__all__``."""
    for page in sorted((Path(__file__).parents[2] / "docs" / "api").glob("*.md")):
        for where in re.findall(r"(?m)^::: (\S+)$", page.read_text(encoding="utf-8")):
            module, _, name = where.rpartition(".")
            for package, prefix in BY_MODULES.items():
                if module.startswith(f"{package}."):
                    yield f"{prefix}.{name}", getattr(import_module(module), name)


def names() -> dict[str, Any]:
    """All public objects by the name that a user writes, without the modules; each once."""
    found = {name: getattr(tl_dyck, name) for name in tl_dyck.__all__}
    found |= dict(documented())
    seen = {id(each) for each in found.values()}
    for module in modules():
        for name in module.__all__:
            value = getattr(module, name)
            if id(value) not in seen:
                seen.add(id(value))
                where = re.sub(r"^tl_dyck\.(reading\.|kit\.)?", "", module.__name__)
                found[f"{where}.{name}"] = value
    return found


def public() -> Iterator[Public]:
    """All that takes arguments, but exceptions, protocols, `RETURNED` and `INNER`."""
    for each in _all():
        inner = each.name.startswith(INNER) or each.attribute == "rewrites"
        if any(is_tried(parameter) for parameter in each.parameters) and not inner:
            yield each


def is_tried(parameter: inspect.Parameter) -> bool:
    """Not what is handed on to another function."""
    several = parameter.kind is parameter.VAR_POSITIONAL and "Any" in str(parameter.annotation)
    return parameter.kind is not parameter.VAR_KEYWORD and not several


def _all() -> Iterator[Public]:
    for name, value in names().items():
        if inspect.isclass(value):
            if issubclass(value, BaseException) or getattr(value, "_is_protocol", False):
                continue
            if not (inspect.isabstract(value) or issubclass(value, dict) or name in RETURNED):
                yield Public(name, None, "", value, _parameters(value))
            yield from _methods(name, value)
        elif inspect.isfunction(value):
            yield Public(name, None, "", value, _parameters(value))


def _methods(name: str, owner: type) -> Iterator[Public]:
    for attribute in dir(owner):
        held = inspect.getattr_static(owner, attribute)
        function = getattr(held, "__func__", held)
        if attribute.startswith("_") or not inspect.isfunction(function):
            continue
        if not function.__module__.startswith("tl_dyck") or ".hooked." in function.__module__:
            continue
        whole = _parameters(getattr(owner, attribute))
        is_own = not isinstance(held, (classmethod, staticmethod))
        yield Public(f"{name}.{attribute}", owner, attribute, function, whole[is_own:])


def _parameters(call: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(call).parameters.values())
