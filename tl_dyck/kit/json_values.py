"""What a value is in JSON.

Knows: that JSON has neither tuples nor infinities, and that results say themselves what they are.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterable, Mapping
from typing import Any


def plain(value: Any) -> Any:
    """A value as JSON has it: arrays are lists, tables lists of rows, what is not finite is null.

    What has a method ``to_dict`` says itself what it is; what is nothing of this is its text.
    """
    if value is None or isinstance(value, (bool, int, str)):
        return value
    if isinstance(value, float):
        return float(value) if math.isfinite(value) else None
    if isinstance(value, Mapping):
        return {str(name): plain(each) for name, each in value.items()}
    if hasattr(value, "columns") and hasattr(value, "to_dict"):  # a table
        return plain(value.to_dict("records"))
    if hasattr(value, "to_dict"):
        return plain(value.to_dict())
    if hasattr(value, "tolist"):  # of NumPy or torch
        return plain(value.tolist())
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {field.name: plain(getattr(value, field.name)) for field in fields}
    if isinstance(value, Iterable):
        return [plain(each) for each in value]
    return str(value)
