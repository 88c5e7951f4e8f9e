"""What a probe does not measure: each in one line that says why."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.probes.test_accuracy_at_length import unbalanced
from tests.probes.test_balance_violation import make_model
from tl_dyck import DyckDistribution, DyckLanguage, DyckTask, build_model, get_config
from tl_dyck.probes.balance import balance_violation
from tl_dyck.probes.drift import pair_drift
from tl_dyck.probes.length import accuracy_at_length
from tl_dyck.probes.likeness import stack_likeness
from tl_dyck.probes.shortest_sum import second_smallest_norm
from tl_dyck.probes.variation import attention_variation

SMALL = DyckTask(name="test", n_types=2, max_depth=3)
OTHER = DyckDistribution(DyckLanguage(2, 4))
READS_ANOTHER = r"the model reads Dyck.*3.*but the strings are of"


def model(family: str = "gpt", task: Any = "dyck-2-4", **options: Any) -> Any:
    return build_model(get_config(family, task, **options))


def means(tokens: Any = None, first_layer: Any = "means", **more: Any) -> Any:
    options = more.pop("model", {})
    data = tokens if tokens is None or isinstance(tokens, DyckTask) else torch.tensor(tokens)
    return balance_violation(model(task=SMALL, **options), data, first_layer=first_layer, **more)


minimal = partial(make_model, "minimal-onehot", seed=0)

REFUSED: list[tuple[Callable[[], Any], str]] = [
    (lambda: balance_violation(model()), "needs a minimal first layer"),
    (lambda: balance_violation(model("minimal-onehot", n_layers=2)), "needs a minimal first"),
    (lambda: balance_violation(model("minimal-onehot", n_heads=2)), "one head; this model has 2"),
    (lambda: balance_violation(model("minimal-onehot", position="linear")), "without positions"),
    (lambda: balance_violation(minimal(2, 4), torch.tensor([[4, 0]])), "reads no strings"),
    (lambda: balance_violation(model(task="dyck-1-4", n_heads=1)), "two types and depth 2"),
    (lambda: balance_violation(minimal(1, 4)), "two types and depth 2"),
    (lambda: balance_violation(minimal(2, 1)), "two types and depth 2"),
    (lambda: means(), "give a task, or tokens"),
    (lambda: means([[4, 0, 2, 3, 1]]), r"never visit '\[' at depth 2 \(8 states"),
    (lambda: means([[4, 1]]), "not all prefixes"),
    (lambda: means([[4, 0, 2, 3, 1]], "mean"), r"unknown first_layer 'mean'.*means"),
    (lambda: means(SMALL, model={"n_heads": 2}, head=2), "no head 2"),
    (lambda: pair_drift(model()), "minimal"),
    (lambda: pair_drift(minimal(1, 3)), "two types|one type|n_types"),
    (lambda: pair_drift(minimal(2, 3), OTHER), READS_ANOTHER),
    (lambda: pair_drift(unbalanced(0.1)).length_at(0.5), "between 0.5 .* and 1, not 0.5"),
    (lambda: accuracy_at_length(model()), "minimal first layer"),
    (lambda: accuracy_at_length(minimal(2, 3), 9, OTHER), READS_ANOTHER),
    (lambda: accuracy_at_length(minimal(2, 1)), "no prefix of"),
    (lambda: accuracy_at_length(minimal(2, 2), 5), "lengths.*: 5"),
    (lambda: accuracy_at_length(unbalanced(0.1), (450, 1)), "lengths must be at least 2, got 1"),
    (lambda: accuracy_at_length(unbalanced(0.1), 3), "no prefix of .*: 3"),
    (lambda: accuracy_at_length(unbalanced(0.1), ()), "lengths must be one to .*, got none"),
    (lambda: attention_variation([model()]), "at least two, not 1"),
    (lambda: attention_variation([model(), model(n_layers=1)]), "different shapes"),
    (lambda: attention_variation([model(), model()], level=95.0), "between 0 and 1"),
    (lambda: attention_variation([model(), model()], torch.zeros(2, 3, dtype=torch.long)),
     "one input at a time"),
    (lambda: stack_likeness(model(), model().to_tokens("")), "unmatched opening bracket"),
    (lambda: second_smallest_norm(np.zeros(2), np.full((3, 2, 2), np.nan)), "not finite"),
    (lambda: second_smallest_norm(np.zeros(2), np.zeros((13, 8, 2))),
     r"shortest of 8\^13 sums .* a smaller depth"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "words"), REFUSED, ids=[words for _, words in REFUSED])
def test_refused(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        call()


@pytest.mark.parametrize(
    ("family", "n_heads", "position", "given"),
    [
        *(("gpt", 1, "linear", ()), ("gpt", 2, "none", (SMALL,)), ("gpt", 2, "linear", ())),
        *(("minimal-onehot", 1, "none", given) for given in ((), (SMALL,))),
        *(("minimal-onehot", 2, "none", given) for given in ((), (SMALL,))),
        *(("minimal-onehot", n_heads, "linear", ()) for n_heads in (1, 2)),
    ],
)
def test_the_first_error_says_the_call_that_measures(
    family: str, n_heads: int, position: str, given: tuple[Any, ...]
) -> None:
    asked = {
        "model": model(family, SMALL, n_heads=n_heads, position=position),
        "task": SMALL,
    }
    try:
        found = balance_violation(asked["model"], *given)
    except ValueError as error:
        (call,) = re.findall(r"balance_violation\(.*?\)", str(error))
        found = eval(call, {"balance_violation": balance_violation, **asked})
    else:
        assert (family, n_heads, position) == ("minimal-onehot", 1, "none")
    assert found.beta > 0
