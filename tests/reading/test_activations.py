"""What is known of an activation stands in one record, and is true; who lacks a field says so."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import pytest
import torch
from scipy.optimize import minimize_scalar

from tests.certify.oracles import READOUTS, random_rnn
from tl_dyck import build_model, get_config, load_task, write_playground
from tl_dyck.certify import Duplicate, PerturbationSpace, certify_edits
from tl_dyck.certify.exact.balls import Ball, activation
from tl_dyck.certify.exact.mlp import activation_lines
from tl_dyck.certify.exact.single import Rounded
from tl_dyck.reading.activations import (
    ACTIVATIONS,
    Activation,
    UnknownActivationError,
    canonical_activation,
)
from tl_dyck.rnn import export_rnn

GRID = np.linspace(-12, 12, 240_001)

#: By their formulas, in the standard library, or in another one that computes with more digits.
TRUE: dict[str, Callable[..., Any]] = {
    "relu": lambda x, m=math: max(x, 0),
    "gelu": lambda x, m=math: x * (1 + m.erf(x / m.sqrt(2))) / 2,
    "gelu_new": lambda x, m=math: x * (1 + m.tanh(m.sqrt(2 / m.pi) * (x + 0.044715 * x**3))) / 2,
    "silu": lambda x, m=math: x / (1 + m.exp(-x)),
}
SMOOTH = [name for name in TRUE if not ACTIVATIONS[name].is_piecewise_linear]
LEAK = 0.3

#: Made-up ones: what is bounded follows the record and no name.
MADE = {
    "leaky": (
        Activation(
            name="leaky",
            formula=lambda x: torch.where(x >= 0, x, LEAK * x),
            is_piecewise_linear=True,
            curvature=0.0,
            steepest=1.0,
            rounding=1.0,  # of one product
        ),
        lambda x, m: x if x >= 0 else m.mpf(LEAK) * x,
    ),
    "roof": (
        Activation(
            name="roof",
            formula=lambda x: -3 * x.abs(),
            is_piecewise_linear=True,
            curvature=0.0,
            steepest=3.0,
            rounding=3.0,
        ),
        lambda x, m: -3 * abs(x),
    ),
    "softsign": (
        Activation(
            name="softsign",
            formula=torch.nn.functional.softsign,
            lowest_at=-math.inf,
            curvature=2.0,
            steepest=1.0,
            rounding=4.0,
        ),
        lambda x, m: x / (1 + abs(x)),
    ),
}


def of(name: str, x: Any) -> np.ndarray:
    return ACTIVATIONS[name](torch.as_tensor(x, dtype=torch.float64)).numpy()


def test_all_are_known() -> None:
    assert ACTIVATIONS.keys() == TRUE.keys(), "add the formula to TRUE in this file"
    held = {each.get("act_fn") for each in READOUTS} - {None}
    assert ACTIVATIONS.keys() == held, "add a network to READOUTS in tests/certify/oracles.py"
    assert all(name == each.name for name, each in ACTIVATIONS.items())


@pytest.mark.parametrize("name", TRUE)
def test_formulas(name: str) -> None:
    some = GRID[::1000]
    assert of(name, some) == pytest.approx([TRUE[name](x) for x in some], rel=1e-12, abs=1e-15)


@pytest.mark.parametrize("name", SMOOTH)
def test_the_lowest_point(name: str) -> None:
    found = minimize_scalar(TRUE[name], bounds=(-3, 0), method="bounded", options={"xatol": 1e-12})
    place = ACTIVATIONS[name].known("lowest_at")
    assert place == pytest.approx(found.x, abs=1e-6)  # as far as values tell
    slope = (TRUE[name](place + 1e-6) - TRUE[name](place - 1e-6)) / 2e-6
    assert abs(slope) < 1e-9
    values = of(name, GRID)
    assert (np.diff(values[place - 1e-9 > GRID]) <= 1e-16).all()  # falls, then rises
    assert (np.diff(values[place + 1e-9 < GRID]) >= -1e-16).all()


@pytest.mark.parametrize("name", TRUE)
def test_bounds_of_slope_and_curvature_hold_and_are_close(name: str) -> None:
    step = GRID[1] - GRID[0]
    values = np.array([TRUE[name](x) for x in GRID])
    slope = abs(np.diff(values) / step).max()
    steepest = ACTIVATIONS[name].known("steepest")
    assert slope - 1e-9 <= steepest <= 1.02 * slope
    if ACTIVATIONS[name].is_piecewise_linear:
        assert ACTIVATIONS[name].curvature == 0
        return
    bend = abs(np.diff(values[::10], 2) / (10 * step) ** 2).max()
    assert bend <= ACTIVATIONS[name].known("curvature") <= 1.03 * bend


@pytest.fixture
def true(name: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[float], Any]:
    """φ to 40 digits; a made-up one is registered."""
    formula = TRUE.get(name)
    if name in MADE:
        made, formula = MADE[name]
        monkeypatch.setitem(ACTIVATIONS, name, made)
    assert formula is not None

    def exactly(x: float) -> Any:
        with mpmath.workdps(40):
            return formula(mpmath.mpf(x), mpmath.mp)

    return exactly


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("name", [*TRUE, *MADE])
def test_the_rounding_error_of_the_formula(name: str, dtype: torch.dtype, true: Any) -> None:
    assert true(0.0) == 0
    numbers = torch.tensor(np.random.default_rng(0).normal(size=400) * 4, dtype=dtype)
    values = ACTIVATIONS[name](numbers)
    unit = torch.finfo(dtype).eps / 2
    for x, value in zip(numbers.tolist(), values.tolist(), strict=True):
        assert abs(value - true(x)) <= ACTIVATIONS[name].known("rounding") * unit * abs(x)


@pytest.mark.parametrize("name", [*TRUE, *MADE])
def test_vectors_in_single_precision_are_bounded(name: str, true: Any) -> None:
    numbers = np.random.default_rng(0).normal(size=(20, 3)).astype(np.float32)
    found = Rounded(numbers, np.zeros(20)).activated(name)
    for row, mid, error in zip(numbers.tolist(), found.mid.tolist(), found.error, strict=True):
        assert math.dist(mid, [float(true(x)) for x in row]) <= error


@pytest.mark.parametrize("width", [0.0, 1e-7, 0.01, 1.0, 20.0])
@pytest.mark.parametrize("name", [*TRUE, *MADE])
def test_lines_and_balls_hold_the_function(name: str, width: float, true: Any) -> None:
    rng = np.random.default_rng(0)
    low = rng.normal(size=(6, 1)) * (width + 0.1) - width / 2
    low[0] = -6.0  # where GELU by tanh cancels: off by u |x|, of a value near 0
    high, centre = low + width, low + width * rng.random((6, 1))
    found, ball = (
        activation_lines(name, low, high, centre),
        activation(Ball.between(low, high), name),
    )
    for i in range(len(low)):
        for x in {*np.linspace(low[i, 0], high[i, 0], 41), *np.clip([0.0], low[i], high[i])}:
            y = true(x)
            assert ball.low[i, 0] <= y <= ball.high[i, 0]
            assert found.low[i, 0] <= y <= found.high[i, 0]
            with mpmath.workdps(40):
                p = mpmath.mpf(x)
                assert found.slope_below[i, 0] * p + found.rest_below[i, 0] <= y
                assert y <= found.slope_above[i, 0] * p + found.rest_above[i, 0]


@pytest.mark.parametrize("name", TRUE)
def test_in_onnx_and_in_javascript(name: str) -> None:
    ops: dict[str, Callable[..., float]] = {
        "Mul": lambda a, b: a * b,
        "Add": lambda a, b: a + b,
        "Erf": math.erf,
        "Tanh": math.tanh,
        "Sigmoid": lambda a: 1 / (1 + math.exp(-a)),
        "Relu": lambda a: max(a, 0.0),
    }
    script = re.sub(r"Math\.(\w+)", r"\1", ACTIVATIONS[name].known("javascript"))
    known = {"SQRT2": math.sqrt(2), "PI": math.pi, "erf": math.erf, "tanh": math.tanh}
    known |= {"sqrt": math.sqrt, "exp": math.exp, "max": max}
    for x in (-3.0, -0.75, 0.0, 0.3, 4.0):
        nodes = {"x": x}

        def node(op: str, *given: str | float, nodes: dict[str, float] = nodes) -> str:
            values = [nodes[each] if isinstance(each, str) else each for each in given]
            nodes[f"{len(nodes)}"] = ops[op](*values)
            return f"{len(nodes) - 1}"

        assert nodes[ACTIVATIONS[name].known("onnx")(node, "x")] == pytest.approx(
            TRUE[name](x), abs=1e-12
        )
        assert eval(script, {**known, "x": x}) == pytest.approx(TRUE[name](x), abs=1e-12)


def test_a_page_has_the_formulas(tmp_path: Any) -> None:
    model = build_model(get_config("gpt", "dyck-2-4", n_layers=1))
    text = write_playground({"one": model}, tmp_path / "page.html").read_text(encoding="utf-8")
    for name, each in ACTIVATIONS.items():
        assert f"{name}: (x) => {each.javascript}," in text
    assert "filled in" not in text


@pytest.fixture
def bare(monkeypatch: pytest.MonkeyPatch) -> str:
    """An activation of which only the formula is known."""
    made = Activation(name="cubed", formula=lambda x: x**3 / (1 + x**2))
    monkeypatch.setitem(ACTIVATIONS, "cubed", made)
    return made.name


@pytest.mark.parametrize(
    "field", ["lowest_at", "curvature", "steepest", "rounding", "onnx", "javascript"]
)
def test_a_field_that_nobody_gave_is_refused_by_name(bare: str, field: str) -> None:
    with pytest.raises(UnknownActivationError, match=f"the {field} of the activation 'cubed'"):
        ACTIVATIONS[bare].known(field)


def test_certificates_refuse_an_activation_by_name(bare: str) -> None:
    rnn = random_rnn(0, act_fn="gelu")
    assert rnn.config.act_fn is not None
    object.__setattr__(rnn.config, "act_fn", bare)
    with pytest.raises(UnknownActivationError, match="of the activation 'cubed' is not known"):
        certify_edits(rnn, (0, 1, 1, 0), None, PerturbationSpace([(Duplicate(), 2)]))


@pytest.mark.parametrize(("alias", "name"), [("swish", "silu"), ("gelu_pytorch_tanh", "gelu_new")])
def test_other_names(alias: str, name: str) -> None:
    assert canonical_activation(alias) == name
    task = load_task("dyck-2-4")
    asked, same = (
        build_model(get_config("gpt", task, n_layers=1, act_fn=each)) for each in (alias, name)
    )
    assert export_rnn(asked).config.act_fn == name
    torch.testing.assert_close(asked("[(()[])]"), same("[(()[])]"))


def test_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="unknown act_fn 'swush'"):
        get_config("gpt", "dyck-2-4", act_fn="swush")
