"""Which of the wrong values are right after all, by the annotation and name of a parameter."""

from __future__ import annotations

import inspect

from tests.arguments.public import Public

TEXTS = {"empty", "text", "lines"}
ANYTHING = {"none", "object", "bytes", "nan", "inf", "minus", "zero", "half", "huge", "true"}
ANYTHING |= {"list", "dict", "set", "letters", "tensor", "nans", "cube", "far", "meta", "array"}
ANYTHING |= {"generator", "endless", "class", "linear", "config", "complex", "function", *TEXTS}

#: By the name of a parameter, wherever it is.
BY_NAME: dict[str, set[str]] = {
    **{name: {"zero", "huge"} for name in ("seed", "chunk", "n_bootstrap", "steps")},
    **{name: {"zero", "huge"} for name in ("longest", "length", "lengths", "most_run", "n")},
    "time_limit": {"half", "huge"},
    "called": TEXTS,  # what stands before names in messages
}
"""Zero where nothing is drawn or asked of the empty string; huge where it is only a bound."""


def is_right(each: Public, parameter: inspect.Parameter, label: str) -> bool:
    """Whether this value is documented as one that the parameter may have."""
    annotation = str(parameter.annotation)
    if label == "none" and (parameter.default is None or "None" in annotation):
        return True
    if label == "true" and "bool" in annotation:
        return True
    if label == "config" and "Config" in annotation:
        return True
    if label == "cube" and "Int[Tensor" in annotation and "*" in annotation:
        return True  # tokens of any shape
    if label in ("class", "linear", "function") and "Callable" in annotation:
        return True  # it is called later
    if label == "dict" and ("Mapping" in annotation or parameter.name == "values"):
        return True
    if label in BY_NAME.get(parameter.name, ()):
        return True
    return label in HERE.get(f"{each.name}.{parameter.name}", ())


#: By both.
HERE: dict[str, set[str]] = {}
