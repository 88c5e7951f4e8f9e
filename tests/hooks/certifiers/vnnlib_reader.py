"""A reader of VNN-LIB properties that evaluates them: what tests hold the library's files to."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from typing import Any, final

from jaxtyping import Float
from torch import Tensor

COMPARED = {"<=": operator.le, ">=": operator.ge}


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

    def is_counterexample(
        self, embeddings: Float[Tensor, "pos d_model"], logits: Float[Tensor, " d_vocab_out"]
    ) -> bool:
        """Whether embeddings and logits satisfy every assertion."""
        values = {f"X_{i}": x for i, x in enumerate(embeddings.double().flatten().tolist())}
        values |= {f"Y_{j}": y for j, y in enumerate(logits.double().tolist())}
        assert values.keys() == set(self.constants)
        return all(_holds(assertion, values) for assertion in self.assertions)


def parse_vnnlib(text: str) -> VnnlibProperty:
    """Read a property: declare-const, assert, and, or, <=, >= and numbers, and nothing else."""
    stack: list[list[Any]] = [[]]
    for token in re.findall(r"[()]|[^\s()]+", re.sub(r";.*", "", text)):
        if token == "(":
            stack.append([])
        elif token == ")":
            inner = tuple(stack.pop())
            stack[-1].append(inner)
        else:
            stack[-1].append(token)
    (forms,) = stack
    constants = tuple(form[1] for form in forms if form[0] == "declare-const")
    assertions = tuple(form[1] for form in forms if form[0] == "assert")
    assert len(constants) + len(assertions) == len(forms)
    return VnnlibProperty(constants, assertions)


def _holds(form: Any, values: dict[str, float]) -> bool:
    name, *parts = form
    if name in ("and", "or"):
        return (all if name == "and" else any)(_holds(part, values) for part in parts)
    left, right = (values[part] if part in values else float(part) for part in parts)
    return bool(COMPARED[name](left, right))
