"""What takes steps, samples or a solver is converged, or it is no answer."""

from __future__ import annotations

import inspect
import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from tests.judge.methods.network import Network, right_brackets
from tl_dyck.judge import (
    ABOUT_HEADS,
    CONVERGED,
    Case,
    Question,
    WithError,
    find_directions,
    judge,
    make_case,
    methods,
    score_brackets,
    score_edges,
    score_heads,
)
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.convergence import averaged, doubled, integrated, refined, relative
from tl_dyck.judge.scores import ask

MOST = 1280


def integral(slope: Any, steps: int) -> float:
    return sum(slope((at + 0.5) / steps) for at in range(steps)) / steps


def summed(slope: Any, change: float) -> tuple[Any, list[int]]:
    """The integral of a slope whose ends are known, and the steps that were tried."""
    tried: list[int] = []

    def run(n: int) -> WithError:
        tried.append(n)
        found = integral(slope, n)
        return WithError(found, relative(found - change, change))

    return refined(run, 20, MOST), tried


def test_a_linear_function_is_exact_at_once() -> None:
    found, tried = summed(lambda x: 3.0, 3.0)
    assert tried == [20]
    assert found.values == pytest.approx(3.0)
    assert float(found.error) < 1e-12


@given(at=st.floats(0.01, 0.98), width=st.floats(1e-6, 0.02))
def test_a_step_is_converged_or_withheld(at: float, width: float) -> None:
    """A reader that steps from 0 to 1 in so short a way: what is said to be converged is right."""
    found, tried = summed(lambda x: (at < x < at + width) / width, 1.0)
    assert (float(found.error) <= CONVERGED) == (abs(found.values - 1) <= CONVERGED)
    assert tried == [20 * 2**n for n in range(len(tried))]
    assert tried[-1] <= MOST


def test_a_step_takes_more_steps_than_twenty_which_show_nothing_of_it() -> None:
    def slope(x: float) -> float:
        return 80.0 * (0.4026 < x < 0.4151)

    assert integral(slope, 20) == 0.0  # this was published
    found, tried = summed(slope, 1.0)
    assert tried == [20, 40, 80]
    assert found.values == pytest.approx(1.0)
    given_up, tried = summed(lambda x: 1e9 * (0.405 < x < 0.405 + 1e-9), 1.0)
    assert float(given_up.error) == 1.0
    assert tried[-1] < MOST  # it is seen earlier that it leads nowhere


# --- parts of an integral -------------------------------------------------------------------------


def off_by_opposite_amounts(*, at: float, also: float, width: float) -> Any:
    """Two parts, 1 and 1: a steep place adds 1 to the first; another takes 1 from the second, of 2.

    What integrals of so many midpoints say, and what is missing in their sum, which is 2.
    """

    def run(n: int) -> tuple[Tensor, float]:
        first = integral(lambda x: (at < x < at + width) / width, n)
        second = 2 - integral(lambda x: (also < x < also + width) / width, n)
        return torch.tensor([first, second], dtype=torch.float64), first + second - 2

    return run


def by_sum_alone(run: Any) -> WithError:
    """As it was said before: converged where parts add up."""

    def step(n: int) -> WithError:
        parts, gap = run(n)
        return WithError(parts, relative(gap, 2.0))

    return refined(step, 20, MOST)


def by_parts(run: Any) -> WithError:
    return integrated(run, 2.0, 5, MOST)


def test_parts_that_are_off_by_opposite_amounts_have_not_converged() -> None:
    """Each of 20 midpoints is worth 1/20: one in each steep place makes 4/3 of 1, and 2/3."""
    run = off_by_opposite_amounts(at=0.26, also=0.66, width=3 / 80)
    before = by_sum_alone(run)
    assert float(before.error) < 1e-9
    assert before.values.tolist() == pytest.approx([4 / 3, 2 / 3])
    found = by_parts(run)
    assert found.values.tolist() == pytest.approx([1, 1], abs=CONVERGED)
    assert float(found.error) <= CONVERGED


def test_what_half_and_a_quarter_of_the_steps_say_tells_wrong_parts_from_right_ones() -> None:
    """Of three hundred pairs of steep places, among what is said to be converged."""
    generator = np.random.default_rng(0)
    wrong = {by_sum_alone: 0, by_parts: 0}
    passed = dict(wrong)
    for _ in range(300):
        at, also = generator.uniform(0, 0.95, 2)
        run = off_by_opposite_amounts(at=at, also=also, width=generator.integers(3, 9) / 160)
        for rule in wrong:
            found = rule(run)
            if float(found.error) <= CONVERGED:
                passed[rule] += 1
                wrong[rule] += bool((found.values - 1).abs().max() > CONVERGED)
    assert passed[by_parts] > 240
    assert wrong[by_parts] < 0.04 * passed[by_parts]  # some are met as often each time
    assert wrong[by_sum_alone] > 0.3 * passed[by_sum_alone]


def test_the_error_is_that_of_the_part_that_moves_most_or_of_the_sum() -> None:
    """By hand: of 5, 10 and 20 steps; two strings at once, the second of one part alone."""
    told = {5: [[9.0, 1.0], [4.0, 0.0]], 10: [[8.0, 2.0], [4.0, 0.0]], 20: [[8.0, 2.2], [4.0, 0.0]]}

    def run(n: int) -> tuple[Tensor, Tensor]:
        return torch.tensor(told[n]), torch.tensor([0.0, -0.4])

    found = integrated(run, torch.tensor([2.0, 4.0]), 5, 20)
    assert found.error.tolist() == pytest.approx([1.2 / 8, 0.1])
    beside = integrated(run, torch.tensor([100.0, -4.0]), 5, 20)  # a scale above all parts
    assert beside.error.tolist() == pytest.approx([1.2 / 100, 0.1])


def test_no_method_holds_an_integral_against_its_sum_alone() -> None:
    """The rule has one home: whoever calls `refined` by himself has another."""
    for path in (Path(__file__).parents[2] / "hooks").rglob("*.py"):
        assert not re.search(r"\brefined\b", path.read_text(encoding="utf-8")), path


def test_draws_that_all_miss_the_same_have_not_converged() -> None:
    """The gradient of a step is 0 wherever it is drawn: no spread, and its sum is missing."""
    missing = averaged(lambda: torch.tensor([0.0, -1.0]), 1.0, 4, 64, lambda mean: mean[-1:])
    assert missing.error.max() == 1
    alike = averaged(lambda: torch.tensor([2.0]), 1.0, 4, 64)
    assert float(alike.error) == 0
    assert float(alike.values) == 2


def test_a_standard_error_is_that_of_the_mean() -> None:
    generator = torch.Generator().manual_seed(0)
    off, said = [], []
    for _ in range(200):
        found = averaged(lambda: torch.randn(2, generator=generator), 1.0, 8, 64)
        off.append(found.values)
        said.append(found.error)
    spread, errors = torch.stack(off).std(), torch.stack(said).mean()
    # given up after 8, since 64 draws would not have been enough
    assert spread == pytest.approx(8**-0.5, rel=0.1)
    assert errors == pytest.approx(8**-0.5, rel=0.15)
    small = averaged(lambda: 5 + torch.randn(2, generator=generator) / 20, 1.0, 8, 640)
    assert (small.error <= CONVERGED).all()
    assert (small.values - 5).abs().max() < 5 * CONVERGED


@pytest.mark.parametrize("rate", [0.5, 0.9, 0.99, 0.999, 0.99999])
def test_a_solver_that_moves_little_has_not_converged(rate: float) -> None:
    """Steepest descent on x²: x after n steps is r^n. Slow ones hardly move, and are far off."""
    tried: list[int] = []

    def run(n: int) -> Tensor:
        tried.append(n)
        return torch.tensor([1 + rate**n], dtype=torch.float64)

    found = doubled(run, 0.0, 5, 80)
    assert tried == [5, 10, 20, 40, 80][: len(tried)]
    assert len(tried) >= 3
    off = float(found.values) - 1
    if float(found.error) <= CONVERGED:
        assert off <= CONVERGED
    assert (float(found.error) <= CONVERGED) == (rate < 0.6)


@pytest.mark.parametrize(
    ("gap", "scale", "error"),
    [(0, 0, 0), (0, 2, 0), (1, 0, math.inf), (-1, 4, 0.25), (1, -4, 0.25)],
)
def test_an_error_is_a_share(gap: float, scale: float, error: float) -> None:
    assert float(relative(gap, scale)) == error


# --- methods --------------------------------------------------------------------------------------


def test_what_has_not_converged_is_no_answer() -> None:
    """Of heads by head, of brackets by string, of edges all together, of directions by head."""

    @score_heads(above=0.0)
    def heads(case: Case) -> Any:
        shape = case.model.cfg.n_layers, case.model.cfg.n_heads
        errors = torch.zeros(shape)
        errors[:, 1:] = 0.02
        return WithError(torch.ones(shape), errors)

    @score_brackets()
    def brackets(case: Case, tokens: Tensor, answers: Tensor) -> Any:
        error = torch.zeros(len(tokens))
        error[1:] = 0.02
        return WithError(torch.rand(tokens.shape), error)

    @score_edges(above=0.0)
    def edges(case: Case) -> Any:
        return WithError({(None, (0, 0)): 1.0, ((0, 0), None): 2.0}, 0.02)

    @find_directions()
    def directions(case: Case, layer: int, head: int) -> Any:
        assert case.directions is not None
        return WithError(case.directions, 0.02 * (head > 0))

    sealed = sealed_case("balanced", 2, n_heads=3, n_layers=1)
    rows = ask("heads", heads, sealed)
    every = [fact for fact in sealed.facts if fact.question.kind in ABOUT_HEADS]
    assert [row["target"] for row in rows] == [
        "0 0" for fact in every if fact.question.target == (0, 0)
    ]
    assert {row["error"] for row in rows} <= {0.0}
    rows = ask("brackets", brackets, sealed)
    prefixes = {fact.question.target[0] for fact in sealed.facts if fact.question.kind == "token"}
    lengths = {len(prefix) for prefix in prefixes}
    assert len({row["target"].rpartition(" ")[0] for row in rows}) <= len(lengths)
    assert ask("edges", edges, sealed_case("built-edges", 0)) == []
    rows = ask("directions", directions, sealed_case("features", 0))
    assert {row["target"].split()[1] for row in rows} <= {"0"}
    table = judge(heads, [("balanced", 1), ("uniform", 0)])
    assert (table["answered"] < 1).all()
    assert (table["error"] == 0).all()


@pytest.mark.parametrize(("reader", "seed"), [("linear", 0), ("step", 0), ("step", 1)])
def test_integrated_gradients_add_up_or_say_nothing(reader: str, seed: int) -> None:
    """To the change from embeddings of zeros, which is run in numpy; behind step readers too."""
    case, _ = make_case("balanced", seed, reader=reader, n_layers=1, n_heads=2)
    ends = (case.task.language.right_bracket(case.tokens) >= 0).int().cumsum(1).argmax(1)
    rows = [tuple(case.tokens[row, : ends[row] + 1].tolist()) for row in range(3)]
    asked = [Question("token", (prefix, 1)) for prefix in dict.fromkeys(rows) if len(prefix) > 2]
    scores = methods.get("integrated-gradients")(case, asked)
    assert isinstance(scores, WithError)
    network, k = Network(case.model), case.task.n_types
    told = {}
    for prefix in dict.fromkeys(question.target[0] for question in asked):
        rows = np.array([prefix])
        logits = network.run(rows).logits[0, -1, 1 : 2 * k : 2]
        empty = network.run(rows, embed=0 * network.table[rows, 0]).logits[0, -1, 1 : 2 * k : 2]
        right = int(right_brackets(rows)[0, -1]) // 2
        change = [x[right] - (x.sum() - x[right]) / (k - 1) for x in (logits, empty)]
        told[prefix] = change[0] - change[1]
    for question, error in zip(asked, scores.error, strict=True):
        added = float(_parts(case, question.target[0], 250).sum())
        gap = abs(added - told[question.target[0]]) / max(abs(told[question.target[0]]), 0.1)
        if error <= CONVERGED:
            assert gap <= 5 * CONVERGED  # by 250 steps, which are a little off themselves
        else:
            assert reader == "step" or error < 1


def test_each_bracket_of_what_is_said_to_be_converged_is() -> None:
    """Beside 1,000 midpoints, to 1.3 %. By their sum alone, brackets were off by 2 % here."""
    case, facts = make_case("balanced", 0)
    asked = {fact.question.target[0] for fact in facts if fact.question.kind == "token"}
    tokens = torch.tensor(sorted(asked))
    answers = case.task.language.right_bracket(tokens)[:, -1]
    method: Any = inspect.unwrap(methods.get("integrated-gradients"))
    passed = 0
    for row in range(6):  # one by one: together they take the steps of the hardest
        found = method(case, tokens[row : row + 1], answers[row : row + 1])
        if float(found.error) <= CONVERGED:
            passed += 1
            wanted = _parts(case, tuple(tokens[row].tolist()), 1000).abs()
            assert (found.values[0] - wanted).abs().max() / wanted.max() <= 1.3 * CONVERGED
    assert passed > 3


def _parts(case: Case, prefix: tuple[int, ...], steps: int) -> Tensor:
    """Integrated gradients of each symbol of a prefix, of so many midpoints."""
    tokens = torch.tensor([prefix])
    right = int(case.task.language.right_bracket(tokens)[0, -1])
    with torch.no_grad():
        embed = case.model.embed(tokens)
    share = (torch.arange(steps, dtype=embed.dtype)[:, None, None] + 0.5) / steps
    x = (share * embed).requires_grad_()
    closing = case.forward(x)[:, -1, 1 : case.task.language.n_brackets : 2]
    mine = closing[:, right // 2]
    gap = mine - (closing.sum(1) - mine) / (closing.shape[1] - 1)
    slopes: Tensor = torch.autograd.grad(gap.sum(), x)[0] * embed
    return slopes.sum((0, -1)) / steps


def test_edges_of_a_step_reader_are_not_said_to_be_nothing() -> None:
    """Five midpoints see slopes of zero, and so do ten: half against double would be blind."""
    blind = 0
    for reader in ("step", "linear"):
        case, facts = make_case("built-edges", 0, reader=reader)
        scores = methods.get("edge-integrated-gradients")(case, [fact.question for fact in facts])
        assert isinstance(scores, WithError)
        said = [score + 0.1 for score in scores.values]
        if float(torch.as_tensor(scores.error)) <= CONVERGED:
            assert max(said) > 0.1
        else:
            blind += 1
            assert reader == "step"
    assert blind
