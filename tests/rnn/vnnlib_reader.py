"""A reader of VNN-LIB properties that evaluates them: what tests hold the library's files to."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, final

from jaxtyping import Float
from torch import Tensor


class NotVnnlibError(ValueError):
    """A text that is not VNN-LIB, or values that do not fit it."""


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
            NotVnnlibError: a value is missing, or of an undeclared constant.
        """
        if values.keys() != set(self.constants):
            raise NotVnnlibError(
                f"values missing or unknown: {sorted(values.keys() ^ set(self.constants))[:5]}"
            )
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
        NotVnnlibError: anything else.
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
                raise NotVnnlibError(
                    f"expected (declare-const NAME Real) or (assert …), found {form!r}."
                )
    return VnnlibProperty(tuple(constants), tuple(assertions))


def _read(tokens: list[str], place: int) -> tuple[Any, int]:
    """One expression and the place after it. Iterative, so that no nesting is too deep."""
    stack: list[list[Any]] = [[]]
    while True:
        if place == len(tokens):
            raise NotVnnlibError("a parenthesis is not closed.")
        token = tokens[place]
        place += 1
        if token == "(":
            stack.append([])
            continue
        if token == ")":
            if len(stack) == 1:
                raise NotVnnlibError("a parenthesis is closed that was not opened.")
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
                raise NotVnnlibError(
                    f"{number!r} is neither a number nor a declared constant."
                ) from error
        case ("and", *parts):
            return all(_evaluate(part, values) for part in parts)
        case ("or", *parts):
            return any(_evaluate(part, values) for part in parts)
        case ("-", part):
            return -_evaluate(part, values)
        case (str(name), left, right) if name in _OPERATIONS:
            return _OPERATIONS[name](_evaluate(left, values), _evaluate(right, values))
        case _:
            raise NotVnnlibError(f"unknown expression {form!r}.")
