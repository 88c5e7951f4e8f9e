"""VNN-LIB properties for the network that `tl_dyck.rnn.onnx` writes, and a reader that evaluates them.

Polarity, as in VNN-COMP: the file describes a *counterexample*. Its constraints on the inputs X are the box of
embeddings, its constraint on the outputs Y is "some other logit is at least the target's". A verifier that answers
``unsat`` has certified the property; ``sat`` means unsafe, with the X and Y it found. A box holds more than the
embeddings of tokens, so ``sat`` need not belong to a string.

X_i are the embeddings ``[1, pos, d_model]`` in row-major order, Y_j the logits.
"""

from __future__ import annotations

import math
import operator
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path
from typing import Any, final

import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.files import write_bytes
from tl_dyck.rnn.machine import RNNInputError, TwoLayerRNN

__all__ = ["VnnlibError", "VnnlibProperty", "embedding_box", "parse_vnnlib", "save_vnnlib", "vnnlib_property"]


class VnnlibError(ValueError):
    """A property that cannot be written, or a text that is not VNN-LIB; the message says what and where."""


def embedding_box(
    rnn: TwoLayerRNN, allowed: Sequence[Sequence[int]]
) -> tuple[Float[Tensor, "pos d_model"], Float[Tensor, "pos d_model"]]:
    """The smallest box around the embeddings that a length-preserving set of strings can have at each position.

    The states that layer 1 can be in are followed along the string, so depths are only those that occur.

    Args:
        rnn: the RNN.
        allowed: for each position, the tokens that may stand there.

    Returns:
        (lower, upper).

    Raises:
        RNNInputError: a position without tokens, or more positions than the model has.
    """
    if rnn.config.has_position and len(allowed) > rnn.config.n_ctx:
        raise RNNInputError(f"{len(allowed)} tokens, but the model has {rnn.config.n_ctx} positions (n_ctx).")
    states, lower, upper = torch.tensor([rnn.start_state]), [], []
    for position, tokens in enumerate(allowed):
        if not tokens:
            raise RNNInputError(f"no token is allowed at position {position}; every position needs at least one.")
        pairs = torch.cartesian_prod(states, torch.tensor(sorted(set(tokens))))
        rnn.states(pairs[:, 1:])  # refuses tokens outside the vocabulary
        after = rnn.next_state(pairs[:, 0].to(rnn.device), pairs[:, 1].to(rnn.device))
        r = rnn.embed(pairs[:, 1].to(rnn.device), after)
        lower.append(r.amin(0))
        upper.append(r.amax(0))
        states = after.cpu().unique()
    if not lower:
        raise RNNInputError("a string needs at least one position.")
    return torch.stack(lower), torch.stack(upper)


def vnnlib_property(
    lower: Float[Tensor, "pos d_model"],
    upper: Float[Tensor, "pos d_model"],
    target: int,
    d_vocab_out: int,
    *,
    dtype: torch.dtype = torch.float32,
) -> str:
    """The text of the property "on this box, the target's logit exceeds all others", negated as VNN-LIB wants it.

    Args:
        lower: lower ends of the embeddings.
        upper: upper ends.
        target: the class or token whose logit must be the largest.
        d_vocab_out: number of logits.
        dtype: type of the network's input; bounds are rounded *outwards* to it, and written so that they read back
            exactly, so the box in the file contains the box that was given.

    Raises:
        VnnlibError: bounds that are not finite or not in order, a target that does not exist, or a single class.
    """
    if lower.shape != upper.shape or not bool((lower <= upper).all()):  # nan is in no order
        raise VnnlibError("lower and upper must have one shape, and lower <= upper everywhere.")
    if not bool(lower.isfinite().all() and upper.isfinite().all()):
        raise VnnlibError("bounds must be finite.")
    if not 0 <= target < d_vocab_out or d_vocab_out < 2:
        raise VnnlibError(f"target {target} is not one of {d_vocab_out} logits, or there is nothing to compare with.")
    least = _round(lower, dtype, -torch.inf).flatten().tolist()
    largest = _round(upper, dtype, torch.inf).flatten().tolist()
    if not math.isfinite(min(least)) or not math.isfinite(max(largest)):
        raise VnnlibError(f"a bound is too large for {dtype}.")
    lines = [f"; some other logit is at least Y_{target}, for embeddings in a box: sat means unsafe"]
    lines += [f"(declare-const X_{i} Real)" for i in range(len(least))]
    lines += [f"(declare-const Y_{j} Real)" for j in range(d_vocab_out)]
    for i, (low, high) in enumerate(zip(least, largest, strict=True)):
        lines += [f"(assert (>= X_{i} {_number(low)}))", f"(assert (<= X_{i} {_number(high)}))"]
    others = " ".join(f"(and (>= Y_{j} Y_{target}))" for j in range(d_vocab_out) if j != target)
    lines.append(f"(assert (or {others}))")
    return "\n".join(lines) + "\n"


def save_vnnlib(text: str, path: str | Path) -> Path:
    """Write a property to a file, whole or not at all, and return its path."""
    write_bytes(path, text.encode())
    return Path(path)


def _round(values: Tensor, dtype: torch.dtype, towards: float) -> Tensor:
    """The nearest values of `dtype` that lie on the side of `towards`, as float64."""
    rounded = values.to(dtype)
    beyond = torch.nextafter(rounded, torch.full_like(rounded, towards))
    inside = rounded.double() > values.double() if towards < 0 else rounded.double() < values.double()
    return torch.where(inside, beyond, rounded).double()


def _number(value: float) -> str:
    """The exact decimal, without an exponent, which not every reader knows."""
    return format(Decimal(value), "f")


# ---------------------------------------------------------------------- reading


@final
@dataclass(frozen=True)
class VnnlibProperty:
    """A parsed property: constants and assertions over them.

    Attributes:
        constants: the declared names.
        assertions: expressions as nested tuples, all of which a counterexample satisfies.
    """

    constants: tuple[str, ...]
    assertions: tuple[Any, ...]

    def holds(self, values: dict[str, float]) -> bool:
        """Whether all assertions hold: whether these inputs and outputs are a counterexample.

        Raises:
            VnnlibError: a value is missing, or of an undeclared constant.
        """
        if values.keys() != set(self.constants):
            raise VnnlibError(f"values missing or unknown: {sorted(values.keys() ^ set(self.constants))[:5]}")
        return all(bool(_evaluate(assertion, values)) for assertion in self.assertions)

    def is_counterexample(
        self, embeddings: Float[Tensor, "pos d_model"], logits: Float[Tensor, " d_vocab_out"]
    ) -> bool:
        """Whether embeddings and logits satisfy every assertion."""
        values = {f"X_{i}": x for i, x in enumerate(embeddings.double().flatten().tolist())}
        values |= {f"Y_{j}": y for j, y in enumerate(logits.double().tolist())}
        return self.holds(values)


def parse_vnnlib(text: str) -> VnnlibProperty:
    """Read a property: declare-const, assert, and, or, <=, >=, <, >, +, -, * and numbers.

    Raises:
        VnnlibError: anything else.
    """
    tokens = re.findall(r"[()]|[^\s()]+", re.sub(r";.*", "", text))
    constants: list[str] = []
    assertions: list[Any] = []
    place = 0
    while place < len(tokens):
        form, place = _read(tokens, place)
        match form:
            case ("declare-const", str(name), "Real"):
                constants.append(name)
            case ("assert", body):
                assertions.append(body)
            case _:
                raise VnnlibError(f"expected (declare-const NAME Real) or (assert …), found {form!r}.")
    return VnnlibProperty(tuple(constants), tuple(assertions))


def _read(tokens: list[str], place: int) -> tuple[Any, int]:
    """One expression and the place after it. Iterative, so that no nesting is too deep."""
    stack: list[list[Any]] = [[]]
    while True:
        if place == len(tokens):
            raise VnnlibError("a parenthesis is not closed.")
        token = tokens[place]
        place += 1
        if token == "(":
            stack.append([])
            continue
        if token == ")":
            if len(stack) == 1:
                raise VnnlibError("a parenthesis is closed that was not opened.")
            stack[-2].append(tuple(stack.pop()))
        else:
            stack[-1].append(token)
        if len(stack) == 1:
            return stack[0][0], place


_OPERATIONS: dict[str, Callable[[float, float], Any]] = {
    "<=": operator.le,
    ">=": operator.ge,
    "<": operator.lt,
    ">": operator.gt,
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
}


def _evaluate(form: Any, values: dict[str, float]) -> Any:
    match form:
        case str(name) if name in values:
            return values[name]
        case str(number):
            try:
                return float(number)
            except ValueError as error:
                raise VnnlibError(f"{number!r} is neither a number nor a declared constant.") from error
        case ("and", *parts):
            return all(_evaluate(part, values) for part in parts)
        case ("or", *parts):
            return any(_evaluate(part, values) for part in parts)
        case ("-", part):
            return -_evaluate(part, values)
        case (str(name), left, right) if name in _OPERATIONS:
            return _OPERATIONS[name](_evaluate(left, values), _evaluate(right, values))
        case _:
            raise VnnlibError(f"unknown expression {form!r}.")
