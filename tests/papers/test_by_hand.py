"""Adders that are written by hand, and spoiled ones: against all sums, run."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
import pytest
import torch

from tests.papers.every_sum import margins, spoiled
from tl_dyck.certify.language import certify_language
from tl_dyck.models.hooked import installed
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.tasks import AutomatonTask, addition_task
from tl_dyck_papers import by_hand
from tl_dyck_papers.adders import Adder


def every_sum(digits: int, base: int, task: AutomatonTask, rotary: bool) -> torch.Tensor:
    """All sums as tokens, by plain arithmetic."""
    numbers = np.array([*itertools.product(range(base**digits), repeat=2)])
    a, b = numbers.T

    def figures(x: Any, n: int) -> Any:
        return np.stack([x // base**k % base for k in range(n)], 1)

    def sign(text: str) -> Any:
        return np.full((len(a), 1), task.symbols.index(text))

    low, high, total = figures(a, digits), figures(b, digits), figures(a + b, digits + 1)
    if rotary:
        parts = [sign("<"), low, sign("+"), high, sign("="), total]
    else:
        parts = [low[:, ::-1], sign("+"), high[:, ::-1], sign("="), total]
    return torch.from_numpy(np.concatenate(parts, 1).astype(np.int64))


def made(digits: int, base: int, rotary: bool) -> tuple[TwoLayerRNN, AutomatonTask]:
    if rotary:
        return by_hand.rotary_adder(digits, base)
    return by_hand.adder(digits, base), addition_task(digits, base=base)


def agrees(rnn: TwoLayerRNN, task: AutomatonTask, tokens: torch.Tensor, until: str) -> int:
    """Hold a certificate to all sums; how many answers are wrong."""
    found, wrong_at_all = certify_language(rnn, task, until=until), 0
    assert task.asked is not None
    asked = [*task.asked]
    logits = torch.cat([rnn(part)[:, asked] for part in tokens.split(20_000)])
    for at, (row, place) in enumerate(zip(found.by_length, asked, strict=True)):
        prefixes, first = np.unique(tokens[:, : place + 1].numpy(), axis=0, return_index=True)
        right = tokens[first, place + 1][:, None]
        said = logits[first, at]
        margin = said.gather(1, right)[:, 0] - said.scatter(1, right, -torch.inf).amax(1)
        wrong, least = int((margin < 0).sum()), float(margin.min())
        assert row.prefixes == len(prefixes)
        assert row.margin is not None
        off = 1e-9 * max(1.0, abs(least))
        assert row.margin.low - off <= least <= row.margin.high + off
        if until == "counted":
            assert (row.wrong, row.decided) == (wrong, True)
            assert row.margin.low == pytest.approx(least, rel=1e-9, abs=1e-7)
        else:
            assert (row.margin.low > 0) == (least > 0)
        wrong_at_all += wrong
    assert (found.status == "proved") == (wrong_at_all == 0)
    return wrong_at_all


@pytest.mark.parametrize(("digits", "base", "rotary"), [(1, 10, True), (2, 3, True), (3, 2, False)])
def test_verdict_margin_and_count_are_those_of_all_sums(
    digits: int, base: int, rotary: bool
) -> None:
    rnn, task = made(digits, base, rotary)
    tokens = every_sum(digits, base, task, rotary)
    assert agrees(rnn, task, tokens, "counted") == 0
    wrong = agrees(spoiled(rnn, 0.05, 0), task, tokens, "counted")
    assert 0 < wrong < len(tokens) * (digits + 1)


@pytest.mark.parametrize(
    ("digits", "noise"),
    [(1, 0.0), (1, 0.05), *(pytest.param(3, each, marks=pytest.mark.slow) for each in (0.0, 0.05))],
)
def test_counts_are_those_of_every_sum_in_numpy(digits: int, noise: float) -> None:
    """A second way to run them all; `python -m tests.papers.every_sum` runs 10^8."""
    rnn = spoiled(by_hand.adder(digits, 10), noise, 0)
    found = certify_language(rnn, addition_task(digits), until="counted")
    assert (found.status == "refuted") == (noise > 0)
    for answer, row in enumerate(found.by_length):
        wrong, least = margins(rnn, digits, answer)
        assert row.margin is not None
        assert (row.decided, row.wrong) == (True, wrong)
        assert row.margin.low == pytest.approx(least, rel=1e-9, abs=1e-7)


@pytest.mark.skipif(installed.MAJOR < 4, reason="TransformerLens 3 has no bridge of its own")
def test_those_of_others_are_as_their_authors_say() -> None:
    """How many numbers they have; and that long carries and drawn sums are right, both ways."""
    others = {other.name: other for other in by_hand.of_others()}
    assert [*others] == ["zcbtrak, 6", "Wonderfall, 121", "cosminscn, 130"]
    assert all(name.endswith(f", {other.n_parameters}") for name, other in others.items())
    for other in others.values():
        check_sums(other)


def check_sums(other: Adder) -> None:
    task = other.task
    assert task.places is not None
    assert task.asked is not None
    first, last = task.asked[0], task.asked[-1]
    tokens = task.sample(200, seed=0)[:, 1:]
    texts = ["9999999999+0000000001", "5555555555+4444444445", "0000000000+0000000000"]
    for text in texts:  # the prompt has 0 for what is no digit
        a, b = text.split("+")
        prompt = tokens[0, : first + 1].clone()
        least = "abs" if first > 21 else "s"
        for number, start in ((a, int(first > 21)), (b, first - 10)):
            figures = [*map(int, number[::-1] if least == "abs" else number)]
            prompt[start : start + 10] = torch.tensor(figures)
        total = [*map(int, f"{int(a) + int(b):011d}"[::-1])]
        tokens = torch.cat([tokens, torch.cat([prompt, torch.tensor(total)])[None]])
    right = tokens[:, first + 1 : last + 2]
    with torch.no_grad():
        for runs in (other.runs, other.rnn):
            assert torch.equal(runs(tokens)[:, first : last + 1].argmax(-1), right)


def test_the_command_tells_of_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Any) -> None:
    monkeypatch.setattr("tl_dyck_papers.adders._DRAWN", 1000)
    monkeypatch.setattr("sys.argv", ["by_hand", "--digits", "1", "--out", str(tmp_path)])
    by_hand.main()
    table = (tmp_path / "table.md").read_text(encoding="utf-8")
    assert table.count("**proved**: of 2 answers 2 proved") == 2
    assert "| by hand, rotary positions | 235 |" in table
