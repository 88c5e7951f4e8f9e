"""Every public call in modes that a caller may have set: the same result, and the modes afterwards.

The calls are those of `tests.arguments`: all that is public, found in the packages themselves. Each
is made as it stands, and again in modes of the caller's, several at once.
"""

from __future__ import annotations

import ast
import contextlib
import dataclasses
import functools
import inspect
import math
import threading
import types
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn

from tests.arguments import calls
from tests.arguments.public import Public, public
from tests.patience import PATIENCE
from tests.sources import SOURCES, module, shown
from tl_dyck import construct, export_rnn
from tl_dyck.kit import modes
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongValueError

# --- modes ----------------------------------------------------------------------------------------


@contextlib.contextmanager
def setting(get: Callable[[], Any], put: Callable[[Any], Any], value: Any) -> Iterator[None]:
    before = get()
    put(value)
    try:
        yield
        assert get() == value, f"{put} was not given back"
    finally:
        put(before)


@contextlib.contextmanager
def asked(name: str, mode: Any, get: Callable[[], Any]) -> Iterator[None]:
    with mode:
        wanted = get()
        yield
        assert get() == wanted, f"{name} was not given back"


def autocast(dtype: torch.dtype) -> Any:
    def get() -> Any:
        return torch.is_autocast_enabled("cpu"), torch.get_autocast_dtype("cpu")

    return asked("autocast", torch.autocast("cpu", dtype=dtype), get)


def deterministic(mode: bool) -> None:
    torch.use_deterministic_algorithms(mode)


MODES: dict[str, Callable[[], Any]] = {
    "bfloat16": lambda: autocast(torch.bfloat16),
    "float16": lambda: autocast(torch.float16),
    "no gradients": lambda: asked("grad", torch.no_grad(), torch.is_grad_enabled),
    "inference": lambda: asked(
        "inference", torch.inference_mode(), torch.is_inference_mode_enabled
    ),
    "default float64": lambda: setting(
        torch.get_default_dtype, torch.set_default_dtype, torch.float64
    ),
    "default bfloat16": lambda: setting(
        torch.get_default_dtype, torch.set_default_dtype, torch.bfloat16
    ),
    "default meta": lambda: asked("device", torch.device("meta"), torch.get_default_device),
    "default cpu:0": lambda: asked("device", torch.device("cpu:0"), torch.get_default_device),
    "deterministic": lambda: setting(
        torch.are_deterministic_algorithms_enabled, deterministic, True
    ),
    "quick products": lambda: setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision, "medium"
    ),
    "anomalies": lambda: setting(torch.is_anomaly_enabled, torch.autograd.set_detect_anomaly, True),
    "errors": lambda: asked("errstate", np.errstate(all="raise"), np.geterr),
    "threads": lambda: setting(torch.get_num_threads, torch.set_num_threads, 3),
}

#: At once, each of them somewhere.
TOGETHER = (
    ("bfloat16", "no gradients", "default float64", "default meta", "quick products", "errors"),
    ("float16", "inference", "default bfloat16", "default cpu:0", "deterministic", "anomalies"),
)


@contextlib.contextmanager
def within(*names: str) -> Iterator[None]:
    with contextlib.ExitStack() as stack, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Anomaly Detection has been enabled")
        for name in names:
            stack.enter_context(MODES[name]())
        yield


# --- calls ----------------------------------------------------------------------------------------

#: What takes long, waits for a network, or reads tables of runs, in which no mode changes anything;
#: `DyckTransformer` is left out below, as nothing has been written into the weights that it has.
LEFT_OUT = (
    *("reproduce", "run_study", "judge.judge_methods", "as_bridge", "load_arena"),
    *("text.load_sst2", "studies.", "runs.", "write_report", "judge.load_judgement"),
    *("judge.Judgement", "training.load_result", "ablation.ImportanceComparison", "TrainResult"),
    *("DyckTransformer.process_weights_", "run_sweep", "register_", "report.page"),
)
_OPTIONAL = ("n", "chunk", "n_bootstrap", "progress", "n_ctx", "lengths", "options", "generator")


def arguments(each: Public) -> tuple[list[Any], dict[str, Any]]:
    """Arguments that are right; the same at each call."""
    own, given, rest = calls.OF.get(each.name, {}), {}, []
    for parameter in each.parameters:
        name = parameter.name
        if parameter.kind is parameter.VAR_POSITIONAL:
            rest = [own["*" + name]()] if "*" + name in own else []
        elif parameter.kind is parameter.VAR_KEYWORD:
            given |= own["**" + name]() if "**" + name in own else {}
        elif name in own:
            given[name] = own[name]()
        elif name == "generator" and "seed" in own:
            continue  # one of the two
        elif name in calls.COMMON and (parameter.default is parameter.empty or name in _OPTIONAL):
            given[name] = calls.COMMON[name]()
    return rest, given


def bound(each: Public) -> Callable[..., Any]:
    if each.owner is None:
        return each.call
    held = inspect.getattr_static(each.owner, each.attribute)
    name = each.name.rpartition(".")[0]
    if isinstance(held, classmethod | staticmethod):
        owner: Any = each.owner
    elif name in calls.ON:
        owner = calls.ON[name]()
    else:
        owner = each.owner(**{key: value() for key, value in calls.OF[name].items()})
    found: Callable[..., Any] = getattr(owner, each.attribute)
    return found


CALLS = {
    each.name: each
    for each in public()
    if not each.name.startswith(LEFT_OUT)
    and each.name not in ("DyckTransformer", "text.TextTransformer")  # without weights of ours
}


def outcome(call: Callable[..., Any], rest: list[Any], given: dict[str, Any]) -> Any:
    """What comes of it, by value; of a generator its items."""
    torch.manual_seed(0)  # for what draws from torch's own generator if none is given
    result = call(*rest, **given)
    return list(result) if isinstance(result, types.GeneratorType) else result


@functools.cache
def outside(name: str) -> Any:
    """What comes of a call in no mode."""
    rest, given = arguments(CALLS[name])
    return outcome(bound(CALLS[name]), rest, given)


def same(one: Any, two: Any, off: float = 0.0) -> bool:
    """Whether two results are alike to the last bit, or up to a share; times are not compared."""
    if type(one) is not type(two):
        return False
    if isinstance(one, torch.Tensor):
        return one.device == two.device and same(one.detach().numpy(), two.detach().numpy(), off)
    if isinstance(one, np.ndarray):
        if one.dtype != two.dtype or one.shape != two.shape:
            return False
        return bool(
            np.allclose(one, two, rtol=off, atol=off, equal_nan=True)
            if off and one.dtype.kind == "f"
            else np.array_equal(one, two, equal_nan=one.dtype.kind == "f")
        )
    if isinstance(one, pd.DataFrame):
        one, two = (each.drop(columns="seconds", errors="ignore") for each in (one, two))
        return bool(one.equals(two)) or (off > 0 and same(one.to_dict(), two.to_dict(), off))
    if isinstance(one, nn.Module):
        return same(one.state_dict(), two.state_dict(), off)
    if dataclasses.is_dataclass(one) and not isinstance(one, type):
        names = [each.name for each in dataclasses.fields(one) if "seconds" not in each.name]
        return all(same(getattr(one, name), getattr(two, name), off) for name in names)
    if isinstance(one, Mapping):
        return list(one) == list(two) and all(
            same(one[key], two[key], off) for key in one if key != "seconds"
        )
    if isinstance(one, list | tuple):
        return len(one) == len(two) and all(same(*each, off) for each in zip(one, two, strict=True))
    if isinstance(one, float):
        return math.isclose(one, two, rel_tol=off, abs_tol=off) or (one != one and two != two)
    plain = isinstance(one, int | str | bytes | Path | type(None) | set | frozenset)
    return bool(one == two) if plain else True


#: Where dropout is put: what reads tokens, in every class of model.
EMBEDDINGS = {type(each.embed) for each in (calls.model(), calls.minimal(), calls.foreign())}


@contextlib.contextmanager
def dropping(call: Callable[..., Any], *given: Any) -> Iterator[list[Any]]:
    """The models of a call in train mode, in which they would drop half; copies of them do not."""
    models = [each for each in held((call, given)) if isinstance(each, nn.Module)]
    parts = {part: None for model in models for part in model.modules()}
    dropped: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        for kind in EMBEDDINGS:
            patch.setattr(kind, "forward", _dropout(kind.forward, parts, dropped))
        for part in parts:
            part.training = True
        try:
            yield dropped
            assert {part.training for part in parts} <= {True}, "the mode was not given back"
        finally:
            for part in parts:
                part.training = False


def _dropout(forward: Any, parts: Mapping[Any, None], dropped: list[Any]) -> Any:
    def drops(self: Any, *args: Any, **kwargs: Any) -> Any:
        out = forward(self, *args, **kwargs)
        if not (self.training and self in parts):
            return out
        dropped.append(self)
        return out * (torch.arange(out.shape[-1]) % 2)

    return drops


def held(value: Any) -> Iterator[Any]:
    """What is in collections, and what an object of ours has."""
    yield value
    if isinstance(value, list | tuple):
        inside: Any = value
    elif isinstance(value, Mapping):
        inside = value.values()
    elif isinstance(value, types.MethodType):
        inside = (value.__self__,)
    elif isinstance(value, functools.partial):
        inside = (value.func, *value.args)
    else:
        ours = type(value).__module__.startswith("tl_dyck")
        inside = vars(value).values() if ours and hasattr(value, "__dict__") else ()
        inside = [each for each in inside if isinstance(each, nn.Module)]
    for each in inside:
        yield from held(each)


@pytest.mark.global_rng
@pytest.mark.parametrize("name", CALLS)
def test_results_are_the_same_in_any_mode_and_modes_are_given_back(name):
    for names in TOGETHER:
        rest, given = arguments(CALLS[name])
        call = bound(CALLS[name])
        with dropping(call, rest, given) as dropped, within(*names):
            found = outcome(call, rest, given)
        assert not dropped
        assert same(outside(name), found), names


# --- each mode, and where they meet ---------------------------------------------------------------

FEW = (
    *("train", "certify_language", "gradient_importance", "accuracy_at_length", "export_rnn"),
    *("head_truths", "judge_method", "certify_edits", "build_model", "text.train_text"),
)


@pytest.mark.global_rng
@pytest.mark.parametrize("mode", MODES)
def test_each_mode_alone(mode):
    for name in FEW:
        rest, given = arguments(CALLS[name])
        with within(mode):
            found = outcome(bound(CALLS[name]), rest, given)
        # with more threads sums may be added up in another order, on some CPUs
        assert same(outside(name), found, 1e-5 if mode == "threads" else 0.0), name


@checked
def seen(during: Callable[[], Any] | None = None) -> Any:
    """What a function of ours computes in; and what it calls, a user's."""
    if during is not None:
        during()
    return (
        torch.is_autocast_enabled("cpu"),
        torch.is_grad_enabled(),
        torch.is_inference_mode_enabled(),
        torch.get_default_dtype(),
        torch.empty(0).device,
        torch.get_float32_matmul_precision(),
    )


OURS = (False, True, False, torch.float32, torch.device("cpu"), "highest")


@pytest.mark.parametrize("names", TOGETHER, ids=["one", "other"])
def test_modes_are_given_back_after_an_error_too(names):
    def fails() -> None:
        assert seen() == OURS
        raise KeyError("mine")

    with within(*names):
        before = seen.__wrapped__()
        assert before != OURS
        with pytest.raises(KeyError, match="mine"):
            seen(fails)
        assert seen() == OURS
        assert seen.__wrapped__() == before


def test_what_a_users_function_sets_holds_inside_it_and_no_longer():
    """A method or metric of a user's may set modes and call us again."""
    inside = []

    def users() -> None:
        with within(*TOGETHER[0]):
            inside.append(seen.__wrapped__()[:1])
            inside.append(seen())

    assert seen(users) == OURS
    assert inside[0] == (True,)
    assert inside[1] == (False, False, *OURS[2:])  # gradients were off by the user's own will


@pytest.mark.parametrize("mode", MODES)
def test_each_mode_of_a_users_function_alone(mode):
    """None is seen by what it calls of ours, whichever it is; but gradients that it wants off."""
    inside = []

    def users() -> None:
        with within(mode):
            inside.append(seen(lambda: errors.append(np.geterr())))

    errors: list[Any] = []
    seen(users)
    is_off = mode in ("no gradients", "inference")
    assert inside == [(False, not is_off, *OURS[2:])]
    assert errors == [np.geterr()]


def gradients(tree: ast.AST, inside: bool = False) -> Iterator[tuple[int, bool]]:
    """Lines that ask autograd for gradients, and whether these are switched on there."""
    for node in ast.iter_child_nodes(tree):
        here = inside
        if isinstance(node, ast.FunctionDef):
            here |= any("enable_grad" in ast.unparse(each) for each in node.decorator_list)
        elif isinstance(node, ast.With):
            here |= any("enable_grad" in ast.unparse(each) for each in node.items)
        elif isinstance(node, ast.Call):
            asks = ast.unparse(node.func)
            if asks.endswith(".backward") or asks == "torch.autograd.grad":
                yield node.lineno, inside
        yield from gradients(node, here)


def test_what_asks_for_gradients_switches_them_on():
    """Or a user's function without gradients that calls it would get none, or an error."""
    found = {
        f"{shown(path)}:{line}": on
        for path in SOURCES.values()
        if "grad" in (source := path.read_text(encoding="utf-8")) or "backward" in source
        for line, on in gradients(module(path))
    }
    assert len(found) > 10
    assert [place for place, on in found.items() if not on] == []


def test_a_generator_leaves_the_modes_of_what_reads_it_alone():
    @checked
    def steps() -> Iterator[Any]:
        yield seen.__wrapped__()
        yield seen.__wrapped__()

    with within(*TOGETHER[0]):
        before, found = seen.__wrapped__(), []
        for each in steps():
            found.append(each)
            assert seen.__wrapped__() == before
    assert found == [OURS, OURS]


def test_threads_have_one_value_to_give_back():
    """Of what is set for a whole process: the first to come is not the last to go."""
    begun, may_end = threading.Event(), threading.Event()

    def long() -> None:
        begun.set()
        may_end.wait(PATIENCE)

    with within("default float64"):
        first = threading.Thread(target=seen, args=(long,))
        first.start()
        begun.wait(PATIENCE)

        def second() -> None:
            may_end.set()
            first.join(PATIENCE)
            assert torch.get_default_dtype() == torch.float32

        assert seen(second)[3] == torch.float32
        assert torch.get_default_dtype() == torch.float64


def test_a_model_in_train_mode_is_measured_in_eval_mode_and_given_back():
    model = construct.uniform_attention(calls.language())
    model.train()
    model.blocks[0].eval()

    @checked
    def trains(model: Any, others: Any) -> bool:
        return any(part.training for each in (model, *others) for part in each.modules())

    assert not trains(model, [model])
    assert model.training
    assert not model.blocks[0].training


class Hides(nn.Module):
    """As a TransformerBridge does: part of what it runs is no module of its own."""

    def __init__(self) -> None:
        super().__init__()
        self.__dict__["inner"] = nn.Dropout(0.5)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        return self.inner(torch.ones(*tokens.shape, 5))

    def train(self, mode: bool = True) -> nn.Module:
        self.inner.train(mode)
        return super().train(mode)


HIDDEN = Hides()


def by_name(tokens: torch.Tensor) -> torch.Tensor:
    return HIDDEN(tokens)


@pytest.mark.global_rng
def test_what_a_model_hides_and_what_a_function_calls_is_in_eval_mode_too():
    """And if a function of a user's puts it in train mode inside a call of ours."""

    @checked
    def ones(run: Any) -> bool:
        if isinstance(run, list | dict):
            run = next(iter(run.values() if isinstance(run, dict) else run))
        return bool((run(torch.zeros(8, 8)) == 1).all())

    @checked
    def inside(run: Any) -> bool:
        HIDDEN.train()
        other = globals() | {"__name__": "elsewhere"}
        found = eval("ones(run)", other, {"ones": ones, "run": run})
        HIDDEN.eval()
        return bool(found)

    mine = HIDDEN.train()
    runs = (mine, lambda tokens: mine(tokens), by_name, mine.forward, functools.partial(by_name))
    for run in (*runs, nn.Sequential(mine), [mine], {"mine": mine}, lambda tokens: by_name(tokens)):
        assert ones(run), run
        assert mine.training
        assert mine.inner.training
    assert not ones.__wrapped__(mine)
    assert inside(mine)


def test_results_carry_no_graph_if_gradients_are_off():
    @checked
    def twice(x: Any) -> Any:
        return 2 * x, [x]

    x = torch.ones(2, requires_grad=True)
    assert twice(x)[0].requires_grad
    with torch.no_grad():
        double, (same_,) = twice(x)
    assert not double.requires_grad
    assert same_ is x


def test_what_cannot_be_computed_with_is_refused_in_a_line():
    with pytest.raises(WrongValueError, match=r"shape \[2\] is on the meta device"):
        checked(lambda x: x)(torch.empty(2, device="meta"))
    with torch.inference_mode():
        weight = nn.Parameter(torch.ones(2))
        made = torch.ones(2)
    with pytest.raises(WrongValueError, match=r"were made in torch\.inference"):
        checked(lambda: (weight * torch.ones(2, requires_grad=True)).sum().backward())()
    checked(lambda x: (x * torch.ones(2, requires_grad=True)).sum().backward())(made)


def test_a_precision_set_for_one_backend_is_given_back():
    backend = torch.backends.mkldnn.matmul
    if not hasattr(backend, "fp32_precision"):
        pytest.skip("this torch has one setting for all")
    before = torch.get_float32_matmul_precision()
    try:
        backend.fp32_precision = "bf16"
        inside = []
        seen(lambda: inside.append(backend.fp32_precision))
        assert inside == ["ieee"]
        assert backend.fp32_precision == "bf16"
    finally:
        torch.set_float32_matmul_precision(before)


def test_exported_models_run_in_our_modes_too():
    """An RNN of ours is ours: its certificates are of these numbers."""
    rnn = export_rnn(calls.minimal())
    tokens = torch.tensor([[4, 0, 2, 3]])
    expected = rnn.last_logits(tokens)
    with within("bfloat16"):
        assert torch.equal(rnn.last_logits(tokens), expected)


def test_nothing_is_loaded_to_ask_for_modes(monkeypatch):
    monkeypatch.delitem(modes.sys.modules, "torch")
    assert modes.call(lambda: 3, (), {}) == 3
