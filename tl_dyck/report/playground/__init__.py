"""A page on which saved models read what one types: attention, predictions and the exact law.

Knows: a model's weights as a browser reads them, and what is shown of them.
Does not know: studies and runs (`tl_dyck.studies`, `tl_dyck.runs`).

Examples:
    >>> from tl_dyck import build_model, get_config, write_playground
    >>> models = [build_model(get_config("gpt", "dyck-2-4"), seed=seed) for seed in range(2)]
    >>> write_playground(models, "results/playground.html").name
    'playground.html'
"""

from tl_dyck.report.playground.page import write_playground
from tl_dyck.report.playground.weights import UnplayableModelError

__all__ = ["UnplayableModelError", "write_playground"]
