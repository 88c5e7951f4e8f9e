"""The modes that our functions compute in, whatever the caller's are; these are given back.

Knows: which switches of torch and NumPy change what is computed or whether it can be, and what each
is set to here. `tl_dyck.kit.arguments.checked`, which every public function has, calls through
`call`. What a user calls on a model of ours, such as ``model(tokens)``, is left in the user's
modes.

| mode | here |
|---|---|
| autocast | off |
| gradients | on, and off again on what is returned, if the caller has them off |
| inference mode | off; tensors that were made in it are copied |
| default dtype, default device | float32, the CPU |
| precision of float32 products | "highest" |
| NumPy's `errstate` | NumPy's own |
| a model's train mode | eval, in every part; of models in a list, an object or a function, too |
| deterministic algorithms, anomaly detection | the caller's: results are the same |
| threads | one where we train, certify or judge; else the caller's: last digits may differ |
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from functools import partial
from itertools import islice
from types import FunctionType, MethodType, ModuleType
from typing import Any

from tl_dyck.kit.check import WrongValueError

#: What torch can have autocast for; a name that it does not know is left out.
_DEVICES = ("cpu", "cuda", "mps", "xpu", "hpu", "xla")
_ERRORS = {"divide": "warn", "over": "warn", "under": "ignore", "invalid": "warn"}


class _Caller(threading.local):
    """Whether this thread is in a function of ours already: grad mode is then ours."""

    inside = False


_caller = _Caller()


def call(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: Mapping[str, Any],
    from_ours: bool = False,
) -> Any:
    """Call a function in our modes; a generator is run in them, and what it is read by is not.

    Args:
        target: the function.
        args: its arguments.
        kwargs: likewise.
        from_ours: it is code of ours that calls, so that in a call of ours modes are ours.

    Raises:
        WrongValueError: an argument is on the meta device, or a model's weights were made in
            inference mode and the function needs gradients.
    """
    torch = sys.modules.get("torch")
    if torch is None or not hasattr(torch, "get_default_device"):  # not loaded: no mode was set
        return target(*args, **kwargs)
    given = (*args, *kwargs.values())
    if _caller.inside and (from_ours or not _is_foreign(torch, given)):
        return target(*args, **kwargs)
    with _ours(torch, given):
        result = target(
            *(_readable(torch, each) for each in args),
            **{name: _readable(torch, each) for name, each in kwargs.items()},
        )
    back = any(result is each for each in given)
    if isinstance(result, Iterator) and hasattr(result, "send") and not back:
        return _steps(torch, result, args)
    return result if torch.is_grad_enabled() else _without_graph(torch, result)


def is_traced() -> bool:
    """Whether torch compiles or exports what is run, and so keeps no modes of ours."""
    torch = sys.modules.get("torch")
    return torch is not None and hasattr(torch, "compiler") and torch.compiler.is_compiling()


def _is_foreign(torch: Any, arguments: tuple[Any, ...]) -> bool:
    """Whether what we called, a method or metric of a user, called us in other modes."""
    return bool(
        any(map(torch.is_autocast_enabled, _autocasts(torch)))
        or torch.is_inference_mode_enabled()
        or torch.get_default_dtype() != torch.float32
        or torch.empty(0).device.type != "cpu"
        or _precision(torch) != "highest"
        or any(getattr(each, "__dict__", {}).get("training") is True for each in arguments)
        # to ignore errors, as we do ourselves round some calls, changes nothing that is computed
        or ((numpy := sys.modules.get("numpy")) is not None and "raise" in numpy.geterr().values())
    )


@contextmanager
def _ours(torch: Any, arguments: tuple[Any, ...]) -> Iterator[None]:
    outermost = not _caller.inside
    with ExitStack() as stack:
        _caller.inside = True
        stack.callback(setattr, _caller, "inside", not outermost)
        for device in _autocasts(torch):
            if torch.is_autocast_enabled(device):
                stack.callback(torch.set_autocast_enabled, device, True)
                torch.set_autocast_enabled(device, False)
        gradients = torch.is_grad_enabled()
        if torch.is_inference_mode_enabled():
            stack.enter_context(torch.inference_mode(False))
        if outermost or torch.is_grad_enabled() != gradients:
            stack.enter_context(torch.set_grad_enabled(outermost or gradients))
        stack.enter_context(_DTYPE.held(torch, torch.float32))
        stack.enter_context(_PRODUCTS.held(torch, "highest"))
        if torch.empty(0).device != torch.device("cpu"):
            stack.enter_context(torch.device("cpu"))
        if (numpy := sys.modules.get("numpy")) is not None:
            stack.enter_context(numpy.errstate(**_ERRORS))
        for each in arguments:
            _evaluated(torch, each, stack)
        try:
            yield
        except RuntimeError as error:
            if not str(error).startswith("Inference tensors cannot"):
                raise
            raise WrongValueError(
                "the model's weights, or a tensor, were made in torch.inference_mode(), which "
                "keeps them from gradients; make them outside of it"
            ) from error


def _steps(torch: Any, generator: Any, arguments: tuple[Any, ...]) -> Iterator[Any]:
    """What a generator yields; only its own steps are in our modes."""
    try:
        while True:
            with _ours(torch, arguments):
                try:
                    value = next(generator)
                except StopIteration:
                    return
            yield value
    finally:
        generator.close()


def _autocasts(torch: Any) -> tuple[str, ...]:
    if not _known:
        for device in _DEVICES:
            try:
                torch.is_autocast_enabled(device)
            except RuntimeError:
                continue
            _known.append(device)
    return tuple(_known)


_known: list[str] = []


def _readable(torch: Any, value: Any) -> Any:
    """An argument that can be computed with: no tensor of inference mode, none without numbers."""
    if isinstance(value, torch.Tensor):
        if value.is_meta:
            raise WrongValueError(
                f"a tensor of shape {list(value.shape)} is on the meta device, which keeps shapes "
                "and no numbers; make it on another device"
            )
        if value.is_inference():
            return value.clone()
    return value


def _evaluated(torch: Any, value: Any, stack: ExitStack) -> None:
    """Put models that an argument is or has in eval mode, every part; and back in the end."""
    for model in _models(torch, value):
        for part in _parts(torch, model):
            if part.training:
                part.training = False
                stack.callback(setattr, part, "training", True)


_DEEP = 3  # a metric of a function of a model, and one more


def _models(torch: Any, value: Any, deep: int = _DEEP) -> Iterator[Any]:
    """Models among an argument, its elements or attributes, or what a function would call."""
    if isinstance(value, torch.nn.Module):
        if "_modules" in vars(value):  # not being made
            yield value
        return
    for each in _inside(value) if deep else ():
        if isinstance(each, (torch.nn.Module, FunctionType, MethodType, partial)):
            yield from _models(torch, each, deep - 1)


def _inside(value: Any) -> Iterable[Any]:
    if isinstance(value, (list, tuple)):
        # no collection that is looked into needs more: it is for a handful of models
        return value[:1000]
    if isinstance(value, FunctionType):
        return _named_in(value)
    if isinstance(value, MethodType):
        return (value.__self__,)
    if isinstance(value, partial):
        return (value.func, *value.args, *value.keywords.values())
    if isinstance(value, Mapping):
        return islice(value.values(), 1000)
    return () if isinstance(value, (type, ModuleType)) else getattr(value, "__dict__", {}).values()


def _named_in(function: FunctionType) -> Iterator[Any]:
    """What a function's own names stand for outside of it."""
    for name in function.__code__.co_names:
        yield function.__globals__.get(name)
    for cell in function.__closure__ or ():
        with suppress(ValueError):  # a name that is not set yet
            yield cell.cell_contents


def _parts(torch: Any, model: Any) -> Iterator[Any]:
    """All of a model; of a part whose `train` reaches further than modules do, that too.

    So a TransformerBridge has the model that it is of, and its dropout, as a plain attribute.
    """
    for part in model.modules():
        yield part
        if type(part).train is not torch.nn.Module.train:
            for held in list(vars(part).values()):
                if isinstance(held, torch.nn.Module):
                    yield from held.modules()


def _without_graph(torch: Any, result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return result.detach() if result.grad_fn is not None else result
    if type(result) in (list, tuple):
        return type(result)(_without_graph(torch, each) for each in result)
    return result


class _Shared:
    """A setting of the whole process; threads whose calls overlap have one value to give back."""

    def __init__(self, get: Callable[[Any], Any], put: Callable[[Any, Any], None]) -> None:
        self._get, self._put = get, put
        self._lock, self._users, self._saved = threading.Lock(), 0, None

    @contextmanager
    def held(self, torch: Any, ours: Any) -> Iterator[None]:
        with self._lock:
            found, first = self._get(torch), not self._users
            if first:
                self._saved = found
            self._users += 1
            if found != ours:
                self._put(torch, ours)
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                # set inside one of our calls, by what that called: its own to have back
                back = self._saved if not self._users else (ours if first else found)
                if self._get(torch) != back:
                    self._put(torch, back)


def _precision(torch: Any) -> Any:
    """One word, or of each backend, if that was set by backend."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return tuple(each.matmul.fp32_precision for each in _backends(torch))


def _set_precision(torch: Any, value: Any) -> None:
    if isinstance(value, str):
        torch.set_float32_matmul_precision(value)
    else:
        for backend, each in zip(_backends(torch), value, strict=True):
            backend.matmul.fp32_precision = each


def _backends(torch: Any) -> tuple[Any, ...]:
    return torch.backends.mkldnn, torch.backends.cuda


_DTYPE = _Shared(
    lambda torch: torch.get_default_dtype(), lambda torch, value: torch.set_default_dtype(value)
)
_PRODUCTS = _Shared(_precision, _set_precision)
