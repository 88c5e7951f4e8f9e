"""The base of our errors, and what tells a refusal from a bug."""

from __future__ import annotations

import errno
import importlib
import pickle
import re
from importlib import metadata
from pathlib import Path

import pytest

import tl_dyck
import tl_dyck_hooks
from tl_dyck.kit import errors
from tl_dyck.kit.errors import DyckError, MissingPackageError, is_refusal, needed
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.processes import FolderBusyError
from tl_dyck.language import DyckLanguage
from tl_dyck.training.seeds import TrainingFailedError

DEFINED = [
    (".".join(path.relative_to(root.parent).with_suffix("").parts).removesuffix(".__init__"), name)
    for root in (Path(tl_dyck.__path__[0]), Path(tl_dyck_hooks.__path__[0]))
    for path in sorted(root.rglob("*.py"))
    for name in re.findall(r"^class (\w+Error)\(", path.read_text(encoding="utf-8"), re.M)
    if path.name != "check_language.py"  # stands for itself
]


@pytest.mark.parametrize(
    ("module", "name"), [found for found in DEFINED if found[1] != "DyckError"]
)
def test_an_error_of_ours_is_a_dyck_error_and_a_builtin_one(module: str, name: str) -> None:
    error = getattr(importlib.import_module(module), name)
    assert issubclass(error, DyckError)
    assert {base for base in error.__mro__ if base.__module__ == "builtins"} > {
        Exception,
        BaseException,
        object,
    }


def test_there_are_such_errors() -> None:
    assert len(DEFINED) > 25
    assert ("tl_dyck.kit.errors", "DyckError") in DEFINED


def test_errors_come_back_from_worker_processes_as_they_are() -> None:
    busy = pickle.loads(pickle.dumps(FolderBusyError(errno.EAGAIN, "another process is at work")))
    assert (type(busy), busy.errno, busy.strerror) == (
        FolderBusyError,
        errno.EAGAIN,
        "another process is at work",
    )


def caught(code: str, module: str = "tl_dyck.somewhere") -> Exception:
    """What a line of code raises that stands in a module of that name."""
    try:
        exec(f"import numpy, pathlib, torch\n{code}", {"__name__": module})
    except Exception as error:
        return error
    raise AssertionError(f"{code} raised nothing")


RAISE = "raise ValueError('x')"


@pytest.mark.parametrize(
    "error",
    [
        *(kind("x") for kind in (CorruptFileError, MissingPackageError, TrainingFailedError)),
        FolderBusyError(1, "x"),
        # what a file system says
        caught("pathlib.Path('/no/where').read_text()", "torch.serialization"),
        *(
            caught(code, module)
            for module in ("tl_dyck", "tl_dyck.kit.files", "tl_dyck.probes")
            for code in (RAISE, f"with torch.no_grad():\n  {RAISE} from None")
        ),
    ],
)
def test_what_we_raise_is_a_refusal_and_our_own_errors_whoever_raises_them(
    error: Exception,
) -> None:
    assert is_refusal(error)


def test_so_it_is_where_it_passes_through_the_code_of_others() -> None:
    with pytest.raises(ValueError, match="n_types") as found:
        max([0], key=lambda n: DyckLanguage(n, 4))
    assert is_refusal(found.value)


@pytest.mark.parametrize(
    ("code", "module"),
    [
        *((code, "tl_dyck.somewhere") for code in (
            "int('x')",
            "a, b = ()",
            "list(zip([1], [], strict=True))",
            "numpy.zeros(2).reshape(3)",
            "torch.nn.init.kaiming_uniform_(torch.zeros(2, 2), mode='x')",
            "raise TypeError('x')",
            "raise RuntimeError('x')",
            "raise KeyError('x')",
            "import nowhere_at_all",
        )),
        *((RAISE, module) for module in
          ("torch", "numpy.linalg", "transformer_lens", "tl_dyckling", "")),
    ],
)  # fmt: skip
def test_the_rest_and_what_others_raise_is_a_bug(code: str, module: str) -> None:
    assert not is_refusal(caught(code, module))


def test_a_plug_in_may_refuse_too(monkeypatch: pytest.MonkeyPatch) -> None:
    point = metadata.EntryPoint("mine", "their_package.probes:mine", "tl_dyck.probes")
    other = metadata.EntryPoint("mine", "another:mine", "console_scripts")
    monkeypatch.setattr(errors, "announced", lambda: metadata.EntryPoints([point, other]))
    assert is_refusal(caught("raise ValueError('x')", "their_package.deep.inside"))
    assert not is_refusal(caught("int('x')", "their_package.deep.inside"))
    assert not is_refusal(caught("raise ValueError('x')", "another"))


def test_an_error_that_was_never_raised_is_nobodys() -> None:
    assert not is_refusal(ValueError("x"))


def test_a_package_that_is_missing_is_named_with_its_extra() -> None:
    assert needed("json", "this", "none").loads("[1]") == [1]
    said = r"the dask backend needs the package no_dask; .* pip install 'tl-dyck\[dask\]'$"
    with pytest.raises(MissingPackageError, match=said) as caught:
        needed("no_dask.client", "the dask backend", "dask")
    assert isinstance(caught.value.__cause__, ImportError)
