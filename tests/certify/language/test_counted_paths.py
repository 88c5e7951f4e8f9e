"""Two layers with a linear readout: how many prefixes are wrong, against running every one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.language.test_decide import check, margins, random_model, task_of
from tl_dyck.certify.exact.loss_counts import Losing
from tl_dyck.certify.language import automata, certify_language
from tl_dyck.certify.language.automata import Answers
from tl_dyck.models import DyckTransformer
from tl_dyck.tasks import DyckTask


def partly_wrong(
    task: DyckTask, seed: int, longest: int, name: str, share: float, **options: Any
) -> DyckTransformer:
    """On a share of the prefixes the closing brackets lose to openings, or to each other."""
    shape = {"n_layers": 2, "d_model": 8, "layer_norm": False, **options}
    model = random_model("attn-only", task, seed, 1.0, **shape)
    lengths = range(2 if name == "closing_only" else 1, longest + 1)
    every = np.concatenate([margins(model, task, n, name)[1] for n in lengths])
    with torch.no_grad():
        if name == "any_token":
            model.unembed.b_U[1 : 2 * task.language.n_types : 2] -= np.quantile(every, share) + 1e-5
    return model


@settings(max_examples=3)
@given(
    k=st.integers(1, 3),
    deepest=st.integers(1, 4),
    q=st.sampled_from([0.3, 0.5, 0.8]),
    seed=st.integers(0, 99),
    share=st.sampled_from([0.02, 0.5]),
)
def test_what_is_not_run_is_counted(
    k: int, deepest: int, q: float, seed: int, share: float
) -> None:
    """Numbers, probabilities, the likeliest and the shortest, as if all had been run."""
    task, longest = task_of(k, deepest, q), 7 - k
    name = "closing_only" if k == 2 else "any_token"
    model = partly_wrong(task, seed, longest, name, share)
    found = certify_language(model, task, longest, name, most_run=3)
    assert found.complete
    check(found, model, task, longest, name)


@pytest.mark.parametrize("deepest", [2, 3])
def test_strings_of_a_state_are_as_probable(deepest: int) -> None:
    """Those that stood as often at the bottom and at the top; each string is in one state."""
    task = task_of(2, deepest, 0.3)
    answers = Answers.of_brackets(task.language, 6, alike=True)
    strings = task.language.enumerate(6, "prefix")
    state = torch.zeros(len(strings), dtype=torch.int64)
    for token in strings.T:
        state = torch.from_numpy(answers.after)[state, token]
    nats = task.distribution.log_prob(strings)
    for each in state.unique():
        mine = nats[state == each]
        assert float(mine.max() - mine.min()) < 1e-12
        assert len(mine) == answers.numbers(6)[each]
    states, examples = answers.examples(6)
    assert sorted(states) == state.unique().tolist()
    for number, example in zip(states, examples, strict=True):
        at = (strings == torch.from_numpy(example)).all(1).nonzero().item()
        assert state[at] == number


def test_what_is_only_bounded_is_said_to_be(monkeypatch: pytest.MonkeyPatch) -> None:
    task = task_of(2, 3)
    model = partly_wrong(task, 3, 6, "any_token", 0.3)
    truth = certify_language(model, task, 6)
    exact = automata.count_wrong

    def vague(*asked: Any, **how: Any) -> Losing:
        low, high = exact(*asked, **how)
        return Losing(low - low // 2, high + (high > 0))

    monkeypatch.setattr(automata, "count_wrong", vague)
    found = certify_language(model, task, 6, most_run=60)
    assert not found.complete
    vaguely = 0
    for row, true in zip(found.by_length, truth.by_length, strict=True):
        assert row.wrong <= true.wrong
        assert row.error.low <= true.error.low + 1e-12
        assert row.error.high >= true.error.high - 1e-12
        vaguely += 0 < row.error.low < row.error.high
    assert vaguely
    assert not found.is_likeliest or found.likeliest == truth.likeliest


def test_with_norms_nothing_is_counted() -> None:
    """Prefixes are run in less time."""
    task = task_of(2, 3)
    model = random_model("gpt", task, 0, 1.0, n_layers=2, d_model=8, d_mlp=6)
    found = certify_language(model, task, 6, most_run=20)
    assert found.status == "refuted"
    assert [row.length for row in found.by_length if row.wrong == 1 and not row.decided]
