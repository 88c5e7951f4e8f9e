"""Which of the wrong values are right after all, by the annotation and name of a parameter."""

from __future__ import annotations

import inspect

from tests.arguments.public import Public


def is_right(each: Public, parameter: inspect.Parameter, label: str) -> bool:
    """Whether this value is documented as one that the parameter may have."""
    return label == "none" and (parameter.default is None or "None" in str(parameter.annotation))
