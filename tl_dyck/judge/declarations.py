"""What a method declares: the questions it answers, from where on it says yes, and after whom.

Knows: how numbers of heads and sizes of brackets become scores, and that those of heads are
computed once a case, of however many kinds the questions are.
"""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, wraps
from typing import Any

import numpy as np
import pandas as pd
import torch
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.judge.protocol import (
    ABOUT_HEADS,
    KINDS,
    Case,
    JudgeError,
    Method,
    Question,
    Scores,
    WithError,
    methods,
)
from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import WrongTypeError, check_integer, check_number, shown
from tl_dyck.kit.registry import unknown_name

#: From tokens ``[n, pos]`` and the closing bracket that the model predicts after each, ``[n]``, to
#: a size for each position, ``[n, pos]``.
Sizes = Callable[[Case, Tensor, Tensor], Tensor | WithError]
#: A number for each edge, by its source and its reader.
Numbers = Mapping[tuple[Any, Any], float]


@dataclass(frozen=True)
class Declared:
    """What a method says of itself.

    Attributes:
        kinds: of question that it answers.
        yes: when it says yes, in words.
        paper: where it is from.
        above: of heads, edges and directions, what was subtracted from numbers to make scores.
        unit: of the numbers.
    """

    kinds: tuple[str, ...]
    yes: str
    paper: str
    above: float = 0.0
    unit: str = ""


@checked
def declare_method(*kinds: str, yes: str, paper: str = "") -> Callable[[Method], Method]:
    """Declare a method, which is then asked these kinds of question only.

    Args:
        *kinds: keys of `KINDS`. "same" is asked where there is a second model.
        yes: when it says yes, in words.
        paper: where it is from.
    """
    for kind in kinds:
        if kind not in KINDS:
            raise unknown_name("kind", kind, KINDS)

    def declare(method: Method) -> Method:
        @wraps(method)
        def asked(case: Case, questions: Sequence[Question]) -> Scores:
            kind = questions[0].kind
            if kind not in kinds or (kind == "same" and case.other is None):
                return None
            return method(case, questions)

        asked.declared = Declared(kinds, yes, paper)  # type: ignore[attr-defined]
        return asked

    return declare


@checked
def combine_methods(*several: Method) -> Method:
    """One method of several that answer different kinds of question; the first that answers does.

    Args:
        *several: declared by `declare_method`, `score_heads` or `score_brackets`.
    """
    first, *_ = declared = [each.declared for each in several]  # type: ignore[attr-defined]

    @wraps(several[0])
    def method(case: Case, questions: Sequence[Question]) -> Scores:
        asked = (each(case, questions) for each in several)
        return next((scores for scores in asked if scores is not None), None)

    kinds = tuple(dict.fromkeys(kind for each in declared for kind in each.kinds))
    yes = " or ".join(dict.fromkeys(each.yes for each in declared))
    method.declared = replace(first, kinds=kinds, yes=yes)  # type: ignore[attr-defined]
    return method


@checked
def score_heads(
    above: float,
    unit: str = "",
    paper: str = "",
    *,
    kinds: tuple[str, ...] = ABOUT_HEADS,
    every: int = 1,
    stack: Callable[[Case], float] | None = None,
) -> Callable[[Callable[[Case], Any]], Method]:
    """Declare a method by a function from a case to a number for each head.

    The function returns ``[layer, head]``, NaN for a head that it says nothing about, or None; or
    these `WithError`. It is called once a case.

    Examples:
        >>> from tl_dyck.judge import judge_method, score_heads
        >>> @score_heads(above=0.5, unit="of the largest norm")
        ... def largest(case):
        ...     norms = [block.attn.W_O.norm(dim=(1, 2)).tolist() for block in case.model.blocks]
        ...     return [[norm / max(map(max, norms)) for norm in layer] for layer in norms]
        >>> int(judge_method(largest, [("uniform", 0)]).loc["needed", "cases"])
        1

    Args:
        above: the number from which on it says yes.
        unit: of the numbers.
        paper: where it is from.
        kinds: of question that it answers, some of `ABOUT_HEADS`.
        every: one in so many cases is asked about, for what is slow.
        stack: the number of a whole model, where the method answers "stack" too.
    """
    above, every = check_number("above", above), check_integer("every", every, least=1)

    def declare(values: Callable[[Case], Any]) -> Method:
        once = lru_cache(maxsize=1)(values)
        asked = kinds if stack is None else (*kinds, "stack")

        @declare_method(*asked, yes=f"above {above:g} {unit}".rstrip(), paper=paper)
        @wraps(values)
        def method(case: Case, questions: Sequence[Question]) -> Scores:
            if stack is not None and questions[0].kind == "stack":
                return [stack(case) - above] * len(questions)
            # names are digests: every so many-th case, the same on each machine
            found = None if int(case.name, 16) % every else once(case)
            if found is None:
                return None
            cfg, targets = case.model.cfg, _targets(questions)

            def of_heads(values: Any) -> list[float]:
                shape, layers = (cfg.n_layers, cfg.n_heads), []
                with contextlib.suppress(TypeError):  # what has too few axes
                    layers = [_numbers(each, shape[1]) for each in _first(values, shape[0])]
                if len(layers) != shape[0] or {each.shape for each in layers} != {shape[1:]}:
                    raise _misshapen("of heads", "[layer, head]", shape, values)
                return [float(layers[layer][head]) for layer, head in targets]

            if not isinstance(found, WithError):
                return [_score(value, above) for value in of_heads(found)]
            error = torch.as_tensor(found.error, dtype=torch.float64)
            errors = of_heads(error.expand(cfg.n_layers, cfg.n_heads))
            return WithError([_score(value, above) for value in of_heads(found.values)], errors)

        return _measuring(method, above, unit)

    return declare


def _first(values: Any, n: int) -> list[Any]:
    """The first n of some values, and one more if there is one: they may never end."""
    return list(itertools.islice(values, n + 1))


def _numbers(values: Any, n: int) -> Tensor:
    """Numbers of the n heads of a layer."""
    plain = values if isinstance(values, (Tensor, np.ndarray)) else _first(values, n)
    return torch.as_tensor(plain, dtype=torch.float64).detach()


def _misshapen(what: str, axes: str, wanted: tuple[int, ...], given: Any) -> JudgeError:
    """The shape that is wanted, and the one that is given; of nested lists as far as it is seen."""
    shape = getattr(given, "shape", None)
    try:
        shape = np.shape(given) if shape is None else shape
        said = str([*shape]) if len(shape) else shown(given)
    except (TypeError, ValueError):
        said = f"{shown(given)}, of which rows differ"
    return JudgeError(f"numbers {what} must have shape {axes} = {[*wanted]}, got {said}")


def _score(value: float, above: float) -> float | None:
    return None if math.isnan(value) else value - above


@checked
def score_edges(
    above: float, unit: str = "", paper: str = ""
) -> Callable[[Callable[[Case], Numbers | WithError]], Method]:
    """Declare a method by a function from a case to a number for each edge; the size counts.

    The function returns numbers by (source, reader), see `tl_dyck.judge.edges.Edge`, or these
    `WithError`; nothing is said of an edge that it leaves out.

    Args:
        above: the size from which on it says yes.
        unit: of the numbers.
        paper: where it is from.
    """
    above = check_number("above", above)

    def declare(values: Callable[[Case], Numbers | WithError]) -> Method:
        @declare_method("edge", yes=f"above {above:g} {unit}".rstrip(), paper=paper)
        @wraps(values)
        def method(case: Case, questions: Sequence[Question]) -> Scores:
            found = values(case)
            number = found.values if isinstance(found, WithError) else found
            if not isinstance(number, Mapping):
                raise WrongTypeError(f"numbers of edges are a mapping, not {shown(number)}")
            scores = [
                abs(number[target]) - above if target in number else None
                for target in _targets(questions)
            ]
            return WithError(scores, found.error) if isinstance(found, WithError) else scores

        return _measuring(method, above, unit)

    return declare


@checked
def find_directions(
    above: float = 0.9, paper: str = ""
) -> Callable[[Callable[[Case, int, int], Tensor | WithError]], Method]:
    """Declare a method by a function that finds features: directions, ``[n, d_head]``.

    It is called with a case, a layer and a head. Yes where one of what it finds has a cosine, in
    size, of more than `above` with the direction asked about. Several sets of directions, as of
    several seeds, ``[seed, n, d_head]``, say what they say on average. `WithError`, how far off the
    cosines are is the error.
    """
    above = check_number("above", above)

    def declare(features: Callable[[Case, int, int], Tensor | WithError]) -> Method:
        @declare_method("feature", yes=f"above {above:g}, the cosine", paper=paper)
        @wraps(features)
        def method(case: Case, questions: Sequence[Question]) -> Scores:
            found: dict[tuple[int, int], tuple[Tensor, float]] = {}
            scores, errors = [], []
            for layer, head, index in _targets(questions):
                if (layer, head) not in found:
                    told = features(case, layer, head)
                    values, error = (
                        (told.values, float(told.error))
                        if isinstance(told, WithError)
                        else (told, math.nan)
                    )
                    d_head = case.model.cfg.d_head
                    if getattr(values, "shape", (0,))[-1] != d_head:
                        raise _misshapen("of directions", "[n, d_head]", (-1, d_head), values)
                    found[layer, head] = _unit(values.detach().double()), error
                assert case.directions is not None  # or nobody is asked
                cosines = found[layer, head][0] @ _unit(case.directions[index])
                scores.append(float(cosines.abs().amax(-1).mean()) - above)
                errors.append(found[layer, head][1])
            return scores if any(map(math.isnan, errors)) else WithError(scores, errors)

        return _measuring(method, above, "")

    return declare


def _measuring(method: Method, above: float, unit: str) -> Method:
    method.declared = replace(  # type: ignore[attr-defined]
        method.declared,  # type: ignore[attr-defined]
        above=above,
        unit=unit,
    )
    return method


def _unit(vectors: Float[Tensor, "*n d"]) -> Float[Tensor, "*n d"]:
    # a vector of zeros stays one
    found: Tensor = vectors / vectors.norm(dim=-1, keepdim=True).clamp(min=1e-12)
    return found


@checked
def score_brackets(paper: str = "") -> Callable[[Sizes], Method]:
    """Declare a method by a function that gives each bracket a size; yes for the largest.

    The score of a bracket is how far it is ahead of all others of its prefix. An error is of each
    prefix, or one for all.
    """

    def declare(sizes: Sizes) -> Method:
        @declare_method("token", yes="for the largest", paper=paper)
        @wraps(sizes)
        def method(case: Case, questions: Sequence[Question]) -> Scores:
            prefixes = dict.fromkeys(prefix for prefix, _ in _targets(questions))
            ahead: dict[tuple[int, ...], Tensor] = {}
            errors: dict[tuple[int, ...], float] = {}
            for length in {len(prefix) for prefix in prefixes}:
                alike = [prefix for prefix in prefixes if len(prefix) == length]
                found, error = _ahead(case, torch.tensor(alike), sizes)
                ahead.update(zip(alike, found, strict=True))
                errors.update(zip(alike, error.tolist(), strict=True))
            targets = _targets(questions)
            scores = [float(ahead[prefix][place - 1]) for prefix, place in targets]
            if all(map(math.isnan, errors.values())):
                return scores
            return WithError(scores, [errors[prefix] for prefix, _ in targets])

        return method

    return declare


def _targets(questions: Sequence[Question]) -> list[tuple[Any, ...]]:
    return [question.target for question in questions]


def _ahead(case: Case, tokens: Int[Tensor, "n pos"], sizes: Sizes) -> tuple[Tensor, Tensor]:
    """How far each bracket is ahead, ``[n, brackets]``, and errors, ``[n]``, or NaN."""
    with torch.no_grad():
        # odd tokens close: their index i is token 2 i + 1
        closing = case.model(tokens)[:, -1, case.task.language.closing]
    told = sizes(case, tokens, 2 * closing.argmax(-1) + 1)
    values, error = (told.values, told.error) if isinstance(told, WithError) else (told, math.nan)
    if getattr(values, "shape", None) != tokens.shape:
        raise _misshapen("of brackets", "[n, pos]", tuple(tokens.shape), values)
    # without BOS
    found = values.detach().double()[:, 1:]
    two = found.topk(2, -1).values
    # the largest is ahead of the second, all others behind the largest
    rest = torch.where(found == two[:, :1], two[:, 1:], two[:, :1])
    # as a share of the largest, so that prefixes compare; 1e-12 for sizes that are all 0
    ahead = (found - rest) / two[:, :1].clamp(min=1e-12)
    return ahead, torch.as_tensor(error, dtype=torch.float64).expand(len(tokens))


def table_of_methods() -> pd.DataFrame:
    """The methods that can be imported here, and what they declare; "" where nothing.

    Returns:
        Indexed by name: ``asked`` (kinds of question), ``yes`` (when it says yes), ``paper``, and
        ``about`` (the first line of its docstring).
    """
    rows = []
    for name in sorted(set(methods.names()) - set(methods.unavailable())):
        method = methods.get(name)
        declared = getattr(method, "declared", Declared((), "", ""))
        line = ((method.__doc__ or "").strip().splitlines() or [""])[0]
        rows.append((name, ", ".join(declared.kinds), declared.yes, declared.paper, line))
    columns = ["method", "asked", "yes", "paper", "about"]
    return pd.DataFrame(rows, columns=columns).set_index("method")
