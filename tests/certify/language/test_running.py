"""Models that can only be run: against every string, run one by one."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from tests.certify.language.test_automata import brute, check, cumulative_sum, random_model
from tests.certify.language.test_places import of_residues
from tl_dyck.certify import CertifyError
from tl_dyck.certify.language import certify_language, sample_error
from tl_dyck.rnn import UnsupportedModelError
from tl_dyck.tasks import AutomatonTask, addition_task

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def words(answer: Any, n: int = 2, **options: Any) -> AutomatonTask:
    """All strings of a, b, …; what is asked hangs on how many symbols were read, at most 40."""
    symbols = "abcd"[:n]
    return AutomatonTask(
        name="words", symbols=[*symbols], start=0, moves=lambda at: dict.fromkeys(symbols, at + 1),
        answer=answer, train_lengths=[4], long_lengths=[1, 40], **options,
    )  # fmt: skip


def longest_run(tokens: torch.Tensor, symbol: int) -> torch.Tensor:
    """Of each row, how often the symbol stands there in a row, at most."""
    most = here = torch.zeros(len(tokens), dtype=torch.int64)
    for each in (tokens == symbol).int().T:
        here = (here + each) * each
        most = torch.maximum(most, here)
    return most


def wrong_from(n: int, symbol: int = 1) -> Any:
    """Says class 0, but 1 where a symbol stands n times in a row; clearer the longer the row."""

    def says(tokens: torch.Tensor) -> torch.Tensor:
        over = longest_run(tokens, symbol).double() - n + 0.5
        return torch.stack([torch.zeros_like(over), over], 1)

    return says


DEEP: list[dict[str, Any]] = [
    {"n_layers": 2},
    {"n_layers": 2, "n_heads": 2, "normalization_type": "LN"},
    {"n_layers": 3, "attn_only": True},
]


@pytest.mark.parametrize("deep", DEEP, ids=str)
@pytest.mark.parametrize("bos", [None, 3])
def test_several_layers_with_positions_are_run_on_every_string(
    deep: dict[str, Any], bos: int | None
) -> None:
    task = cumulative_sum()
    model = random_model(task, 1, 1.0, d_vocab_out=3, **{**deep, "d_vocab": 3 + (bos is not None)})
    found = certify_language(model, task, range(1, 5))
    assert found.method == "strings run"
    check(found, model, task, range(1, 5), bos)
    assert found.stats["strings"] == 3 + 9 + 27 + 81
    assert found.complete
    assert not found.drawn

    def says(tokens: torch.Tensor) -> torch.Tensor:
        first = [] if bos is None else [torch.full((len(tokens), 1), bos)]
        said: torch.Tensor = model(torch.cat([*first, tokens], 1))[:, -1]
        return said

    again = certify_language(says, task, range(1, 5))
    assert [row.to_dict() for row in again.by_length] == [row.to_dict() for row in found.by_length]
    margin = brute(model, task, 4, bos)
    (sampled,) = sample_error(model, task, 4, n=500, level=0.999)
    assert sampled.error.low <= (margin < 0).mean() <= sampled.error.high


def test_beyond_the_limit_the_length_is_said_and_drawn_strings_give_an_interval() -> None:
    task, told = cumulative_sum(), list[float]()
    model = random_model(task, 1, 1.0, d_vocab_out=3, n_layers=2)
    found = certify_language(model, task, range(1, 7), most_run=120, progress=told.append)
    assert [row.decided for row in found.by_length] == [True] * 4 + [False] * 2
    assert found.status == "refuted"
    assert found.reason == "too many strings to run: those of length 5 and others were not"
    assert told == sorted(told)
    assert told[-1] == 1.0
    assert len(told) == 5
    assert [each.length for each in found.drawn] == [5, 6]
    assert f"length 6      {found.drawn[-1]}" in str(found)
    for row, drawn in zip(found.by_length[4:], found.drawn, strict=True):
        wrong = brute(model, task, row.length) < 0
        assert 0 < row.wrong <= wrong.sum()
        assert drawn.n == 2000
        assert abs(drawn.wrong / drawn.n - wrong.mean()) < 0.06
        assert drawn.error.low < wrong.mean() < drawn.error.high
        assert row.margin is not None
        assert row.margin.low == -np.inf
        # descent and walks have seen the least of all, of so few strings
        assert row.margin.high == pytest.approx(brute(model, task, row.length).min())


def test_what_breaks_on_long_runs_alone_is_found_by_walks_and_cut() -> None:
    task = words(lambda at: 0)
    found = certify_language(wrong_from(21), task, range(1, 31), most_run=1000)
    assert found.status == "refuted"
    assert found.shortest is not None
    assert found.shortest.text == "b" * 21
    assert not found.is_shortest
    assert [row.length for row in found.by_length if row.decided] == [*range(1, 9)]
    # walks are no draws of the task: of these none is wrong
    assert [each.wrong for each in found.drawn] == [0] * 22
    first = certify_language(wrong_from(21), task, 30, most_run=1000, until="refuted")
    assert first.status == "refuted"
    assert first.stats["strings"] < found.stats["strings"] / 5
    assert not first.drawn


def test_descent_finds_what_neither_walks_nor_draws_do() -> None:
    def says(tokens: torch.Tensor) -> torch.Tensor:
        """Wrong on (abc)* alone, from 15 symbols on, and the clearer the nearer to it."""
        alike = (tokens == torch.arange(tokens.shape[1]) % 3).double().sum(1)
        over = alike - max(tokens.shape[1], 15) + 0.5
        return torch.stack([torch.zeros_like(over), over], 1)

    found = certify_language(says, words(lambda at: 0, 3), 18, most_run=100)
    assert [each.wrong for each in found.drawn] == [0] * 15
    assert found.shortest is not None
    assert found.shortest.text == "abc" * 5


def test_until_refuted_ends_at_the_first_error() -> None:
    calls = []

    def says(tokens: torch.Tensor) -> torch.Tensor:
        calls.append(tokens.shape)
        return wrong_from(3)(tokens)

    task = words(lambda at: 0)
    found = certify_language(says, task, range(1, 9), until="refuted")
    assert found.shortest is not None
    assert found.shortest.text == "bbb"
    assert found.is_shortest
    assert max(length for _, length in calls) == 3


def test_places_and_sets_are_run_too() -> None:
    n = 5
    residues = AutomatonTask(
        name="mod", symbols=[*map(str, range(n)), "="], start=(0, 0), places=[0, 1, 2],
        moves=lambda state: of_residues(n, state), answer=lambda state: state[1],
    )  # fmt: skip
    right = certify_language(
        lambda tokens: torch.eye(n)[(tokens[:, 0] + tokens[:, 1]) % n], residues
    )
    assert (right.status, right.prefixes, right.margin.high) == ("proved", 25, 1.0)
    sums = addition_task(1, base=3)  # a+b=s, of which the sum's two digits are asked

    def adds(tokens: torch.Tensor) -> torch.Tensor:
        total = tokens[:, 0] + tokens[:, 2]
        digit = total % 3 if tokens.shape[1] == 4 else total // 3
        # the carry of 2 + 2 is forgotten
        digit = torch.where((total == 4) & (tokens.shape[1] == 5), 0, digit)
        return torch.eye(len(sums.symbols))[digit]

    found = certify_language(adds, sums)
    assert [(row.length, row.prefixes, row.wrong) for row in found.by_length] == [
        (4, 9, 0), (5, 9, 1),
    ]  # fmt: skip
    assert found.shortest is not None
    assert found.shortest.text == "2+2=1"

    ends = AutomatonTask(
        name="pairs", symbols=["a", "b", "END"], start=0, train_lengths=[3], long_lengths=[1, 9],
        moves=[{"a": 1, "END": 2}, {"b": 0}, {}].__getitem__,
    )  # fmt: skip

    def sets(tokens: torch.Tensor) -> torch.Tensor:
        last = tokens[:, -1]  # a: b may follow; b: a, END
        return torch.tensor([[-1.0, 1, -1], [1, -1, 1], [1, 1, 1]])[last]

    allowed = certify_language(sets, ends, 5, "allowed")
    # after END nothing may follow, and nothing is asked
    assert [(row.length, row.prefixes, row.wrong) for row in allowed.by_length] == [
        (n, 1, 0) for n in range(1, 6)
    ]
    assert allowed.status == "proved"
    assert certify_language(sets, ends, 5, "allowed", threshold=1.5).wrong == 5


@pytest.mark.parametrize(("said", "status"), [(0.0, "open"), (float("nan"), "refuted")])
def test_a_tie_is_open_and_no_number_is_wrong(said: float, status: str) -> None:
    def says(tokens: torch.Tensor) -> torch.Tensor:
        found = torch.tensor([[1.0, 0.0]]).repeat(len(tokens), 1)
        found[(tokens == 1).all(1) & (tokens.shape[1] == 3), 0] = said
        return found

    found = certify_language(says, words(lambda at: 0), range(1, 5))
    assert found.status == status
    assert found.reason == ("a tie, at length 3" if status == "open" else "")
    assert [row.decided for row in found.by_length] == [True, True, status != "open", True]


@pytest.mark.parametrize("every", [np.inf, -np.inf])
def test_two_infinite_logits_are_a_tie(every: float) -> None:
    task = words(lambda at: 0)
    found = certify_language(lambda tokens: torch.full((len(tokens), 2), every), task, [1, 2])
    assert (found.status, found.wrong, found.reason) == ("open", 0, "a tie, at length 1")
    one = torch.tensor([np.inf, 0.0])
    assert certify_language(lambda tokens: one.repeat(len(tokens), 1), task, [1]).status == "proved"


def test_what_cannot_be_run_is_refused() -> None:
    task = words(lambda at: 0)
    with pytest.raises(CertifyError, match=r"map tokens \[n, length\] to logits"):
        certify_language(lambda tokens: tokens[:, 0], task, [1, 2])
    with pytest.raises(CertifyError, match="asks for answer 2, but the model has 2 logits"):
        certify_language(wrong_from(3), words(lambda at: 2), [1, 2])
    ahead = random_model(
        cumulative_sum(), 0, 1.0, n_layers=2, d_vocab_out=3, attention_dir="bidirectional"
    )
    with pytest.raises(UnsupportedModelError, match=r"looks ahead; give a function .* no asked="):
        certify_language(ahead, cumulative_sum(), 3)
    found = certify_language(lambda tokens: ahead(tokens)[:, 0], cumulative_sum(), range(1, 4))
    wrong = 0
    for string in itertools.chain(*(itertools.product(range(3), repeat=n) for n in (1, 2, 3))):
        total = sum([0, 1, -1][symbol] for symbol in string)
        logits = ahead(torch.tensor([string]))[0, 0]
        wrong += int(logits.argmax()) != (total > 0) - (total < 0) + 1
    assert found.wrong == wrong > 0
