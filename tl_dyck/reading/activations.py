"""Activations by their formula, and by TransformerLens' names.

Knows: all that is known of an activation, in one record. To add one, add a record to `ACTIVATIONS`;
who needs a field that it lacks refuses the activation by name. Models look the formula up in
TransformerLens' `SUPPORTED_ACTIVATIONS`: a name that is not there has to be put in before.
`tests/reading/test_activations.py` wants the formula a second time, in `TRUE`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, final

import torch.nn.functional as F
from torch import Tensor

from tl_dyck.kit.errors import DyckError

#: Adds a node to an ONNX graph: its operator, then names of inputs or numbers; returns its name.
Op = Callable[..., str]


class UnknownActivationError(DyckError, ValueError):
    """Something is asked of an activation that nobody has written down."""


@final
@dataclass(frozen=True, kw_only=True)
class Activation:
    """What is known of an activation φ; None where nobody has said.

    Attributes:
        name: TransformerLens' name of it.
        formula: φ, elementwise.
        lowest_at: where φ, which first falls and then rises, is lowest, to 1e-9; -inf if it only
            rises. Certificates take φ for monotone on either side.
        is_piecewise_linear: whether φ is made of two lines that meet at 0, of whatever slopes; then
            `lowest_at` is not asked for. No other φ may have a corner.
        curvature: a bound of the size of φ'', off the corner of two lines.
        steepest: a bound of the size of φ'.
        rounding: r, where φ(0) = 0 and `formula` is off by r u |x| at most, in double and single
            precision, u = 2⁻⁵³ or 2⁻²⁴. A φ with φ(0) ≠ 0, as softplus, has none.
        onnx: adds φ(x) to an ONNX graph.
        javascript: φ(x) as an expression, which may call ``erf``.
    """

    name: str
    formula: Callable[[Tensor], Tensor]
    lowest_at: float | None = None
    is_piecewise_linear: bool = False
    curvature: float | None = None
    steepest: float | None = None
    rounding: float | None = None
    onnx: Callable[[Op, str], str] | None = None
    javascript: str | None = None

    def __call__(self, x: Tensor) -> Tensor:
        """φ(x)."""
        return self.formula(x)

    def known(self, field: str) -> Any:
        """A field, which must be there.

        Raises:
            UnknownActivationError: nobody has said it.
        """
        found = getattr(self, field)
        if found is None:
            has = [each.name for each in ACTIVATIONS.values() if getattr(each, field) is not None]
            raise UnknownActivationError(
                f"the {field} of the activation {self.name!r} is not known, which this takes; "
                f"known are those of {', '.join(has)}"
            )
        return found


def _silu_in_onnx(op: Op, x: str) -> str:
    return op("Mul", x, op("Sigmoid", x))


def _gelu_in_onnx(op: Op, x: str) -> str:
    inner = op("Erf", op("Mul", x, 1 / math.sqrt(2)))
    return op("Mul", op("Mul", x, 0.5), op("Add", inner, 1.0))


def _gelu_new_in_onnx(op: Op, x: str) -> str:
    # 0.044715: Hendrycks and Gimpel 2016, so that tanh comes close to erf
    cubic = op("Mul", op("Mul", op("Mul", x, x), x), 0.044715)
    inner = op("Tanh", op("Mul", op("Add", x, cubic), math.sqrt(2 / math.pi)))
    return op("Mul", op("Mul", x, 0.5), op("Add", inner, 1.0))


# Of x times something in [0, 1], computed from erf, tanh or exp. The longest is GELU: erf is off by
# 8 u of 1 (4 ulp), its argument by 1 u, the sum by 2 u; halved, and times x, 6.5 u |x|. tanh and
# exp take 11 u at most.
_ROUNDING = 16.0

#: "gelu" is the form with erf, x (1 + erf(x / √2)) / 2; "gelu_new" that of GPT-2,
#: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2.
ACTIVATIONS: dict[str, Activation] = {
    each.name: each
    for each in (
        Activation(
            name="relu",
            formula=F.relu,
            is_piecewise_linear=True,
            curvature=0.0,
            steepest=1.0,
            rounding=0.0,
            onnx=lambda op, x: op("Relu", x),
            javascript="Math.max(x, 0)",
        ),
        Activation(
            name="gelu",
            formula=F.gelu,
            lowest_at=-0.7517915246935645,
            curvature=0.8,  # √(2/π), at 0
            steepest=1.13,  # 1.1290, at √2
            rounding=_ROUNDING,
            onnx=_gelu_in_onnx,
            javascript="0.5 * x * (1 + erf(x / Math.SQRT2))",
        ),
        Activation(
            name="gelu_new",
            formula=partial(F.gelu, approximate="tanh"),
            lowest_at=-0.7524614220710163,
            curvature=0.8,  # √(2/π), at 0
            steepest=1.13,
            rounding=_ROUNDING,
            onnx=_gelu_new_in_onnx,
            javascript="0.5 * x * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * "
            "(x + 0.044715 * x ** 3)))",
        ),
        Activation(
            name="silu",
            formula=F.silu,
            lowest_at=-1.2784645427610738,
            curvature=0.51,  # 1/2, at 0
            steepest=1.1,  # 1.0998, at 2.4
            rounding=_ROUNDING,
            onnx=_silu_in_onnx,
            javascript="x / (1 + Math.exp(-x))",
        ),
    )
}

#: Other names of the same formulas, as TransformerLens or Hugging Face have them.
ALIASES = {"gelu_pytorch_tanh": "gelu_new", "swish": "silu"}


def canonical_activation(name: str | None) -> str:
    """The name of the same formula in `ACTIVATIONS`, or else the name itself; "" for None."""
    return ALIASES.get(name or "", name or "")


def in_javascript() -> str:
    """The activations that have one, as properties of an object of functions."""
    lines = (f"{name}: (x) => {each.javascript},\n" for name, each in ACTIVATIONS.items()
             if each.javascript is not None)  # fmt: skip
    return "".join(lines)
