"""The exact law of the next token, as a table for a page: it depends on position and depth."""

from __future__ import annotations

from typing import Any

import numpy as np

from tl_dyck.tasks.dyck import DyckTask, opening_law


def law_table(task: DyckTask) -> dict[str, Any]:
    """The law as JSON values: `opening_law` (None for NaN), and the law of prefixes beyond it."""
    rows = [
        [None if np.isnan(value) else round(float(value), 5) for value in row]
        for row in opening_law(task)
    ]
    return {"open": rows, "free": [float(value) for value in task.distribution.open_probability()]}
