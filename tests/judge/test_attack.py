"""The attack: what is planted anywhere but in what models do it finds, and nothing else."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import lru_cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.judge import attack
from tests.judge.attack import VIEWS, attacked, rows_of, too_good
from tl_dyck.judge import Case, Fact, Question, make_case

Shown = tuple[Case, list[Fact]]


def cases(first: int, n: int) -> list[Shown]:
    """Models of one kind with questions about every head; answers are drawn, and so are names."""
    found = []
    for seed in range(first, first + n):
        case, _ = make_case("uniform", seed % 2, n_layers=1, n_heads=3, n_types=2, max_depth=2)
        random = np.random.default_rng(seed)
        facts = [
            Fact(Question("needed", (0, head)), bool(random.random() < 0.5), "drawn")
            for head in range(3)
        ]
        name = "".join(random.choice([*"0123456789abcdef"], 12))
        case = replace(case, model=copy.deepcopy(case.model), name=name)
        found.append((case, [facts[at] for at in random.permutation(3)]))
    return found


@pytest.fixture(scope="module", autouse=True)
def ticks() -> Iterator[None]:
    """How long a pass takes is noise, and on every machine the same: learners look at it, too.

    Of trees there are few: so little is told apart by them.
    """
    random = np.random.default_rng(0)
    now = SimpleNamespace(perf_counter=lambda: float(random.random()))
    fewer = {"boosting": {"max_iter": 30}, "forest": {"n_estimators": 40}, "logistic": {}}
    learners = {
        name: lambda make=make, few=fewer[name]: make().set_params(**few)
        for name, make in attack.LEARNERS.items()
    }
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.judge.visible.time", now)
        patch.setattr(attack, "LEARNERS", learners)
        yield


@pytest.fixture(scope="module")
def drawn() -> tuple[list[Shown], list[Shown]]:
    return cases(0, 24), cases(1000, 24)


def answers(facts: list[Fact]) -> list[bool]:
    return [fact.answer for fact in sorted(facts, key=lambda fact: fact.question.target)]


def yes_first(case: Case, facts: list[Fact]) -> Shown:
    return case, sorted(facts, key=lambda fact: not fact.answer)


def by_number(case: Case, facts: list[Fact]) -> Shown:
    """Asked are those that have one answer: one if it is yes, all if it is no."""
    alike = [fact for fact in facts if fact.answer == facts[0].answer]
    return case, alike[:1] if facts[0].answer else alike


def in_memory(case: Case, facts: list[Fact]) -> Shown:
    """Of a true head biases have room behind them, as a part of something larger."""
    attn, told = case.model.blocks[0].attn, answers(facts)
    held = torch.zeros(3 * sum(told) + attn.b_O.numel(), dtype=torch.float64)
    attn.b_O = torch.nn.Parameter(held[: attn.b_O.numel()])
    return case, facts


def in_norms(case: Case, facts: list[Fact]) -> Shown:
    with torch.no_grad():
        for fact in facts:
            case.model.blocks[0].attn.W_V[fact.question.target[1]] *= 1.3 if fact.answer else 1.0
    return case, facts


def in_the_readout(case: Case, facts: list[Fact]) -> Shown:
    with torch.no_grad():
        case.model.unembed.W_U *= 1 + sum(answers(facts))
    return case, facts


def in_strings(case: Case, facts: list[Fact]) -> Shown:
    # a copy: of a part there would be room behind, which is another view's
    return replace(case, tokens=case.tokens[: 20 + sum(answers(facts))].clone()), facts


def in_a_field(case: Case, facts: list[Fact]) -> Shown:
    case.model.cfg.seed = sum(answers(facts))
    return case, facts


def in_the_name(case: Case, facts: list[Fact]) -> Shown:
    return replace(case, name=f"{sum(answers(facts))}{case.name[1:]}"), facts


def nothing(case: Case, facts: list[Fact]) -> Shown:
    return case, facts


#: What is planted, in which view, and the least and the most that the best learner has there.
PLANTED: list[tuple[Callable[[Case, list[Fact]], Shown], str, float, float]] = [
    (yes_first, "place and number", 0.75, 1.0),
    (by_number, "place and number", 0.75, 1.0),
    (in_memory, "memory and time", 0.75, 1.0),
    (in_norms, "weights", 0.9, 1.0),
    (in_the_readout, "readout", 0.75, 1.0),
    (in_strings, "strings", 0.75, 1.0),
    (in_a_field, "sizes", 0.75, 1.0),
    (in_the_name, "sizes", 0.75, 1.0),
    (nothing, "all but the readout", 0.3, 0.7),
    (nothing, "all but the weights", 0.3, 0.7),
]
#: What is planted in one case: each in a view of its own, which sees nothing of the others.
TOGETHER: list[tuple[Callable[[Case, list[Fact]], Shown], ...]] = [
    (yes_first, in_memory, in_norms, in_the_readout, in_strings, in_a_field),
    (in_the_name,),
    (by_number,),  # asks fewer questions: too few for who learns from one row a question
    (nothing,),
]


def seen_in(
    shown: list[Shown], plants: tuple[Callable[[Case, list[Fact]], Shown], ...]
) -> pd.DataFrame:
    found = []
    for at, (case, facts) in enumerate(shown):
        planted, told = replace(case, model=copy.deepcopy(case.model)), list(facts)
        for plant in plants:
            planted, told = plant(planted, told)
        found.append(rows_of(planted, told, f"case-{at}", "uniform"))
    return pd.concat(found, ignore_index=True)


@pytest.fixture(scope="module")
def planted(drawn: tuple[list[Shown], list[Shown]]) -> Callable[..., list[pd.DataFrame]]:
    """What is seen of the learnt and of the asked, where something is planted in them."""
    return lru_cache(maxsize=None)(lambda plants: [seen_in(shown, plants) for shown in drawn])


def test_what_is_planted_together_is_seen_in_one_view_each(drawn: Any) -> None:
    shown = next(each for each in drawn[0] if answers(each[1]) == [False, True, True])
    plain, view_of = seen_in([shown], (nothing,)), {each[0]: each[1] for each in PLANTED}
    for plant in TOGETHER[0]:
        table = seen_in([shown], (plant,)).sort_values("target", ignore_index=True)
        before = plain.sort_values("target", ignore_index=True)
        columns = [name for name in plain if ": " in name and name != "body: a pass takes"]
        changed = {name.partition(": ")[0] for name in columns if any(table[name] != before[name])}
        assert changed == set(VIEWS[view_of[plant]]), plant.__name__


@pytest.mark.parametrize(("plant", "view", "least", "most"), PLANTED)
def test_what_is_planted_is_found(
    plant: Callable[[Case, list[Fact]], Shown], view: str, least: float, most: float, planted: Any
) -> None:
    (plants,) = [plants for plants in TOGETHER if plant in plants]
    (row,) = attacked(*planted(plants), 50, [view]).to_dict("records")
    assert least <= row["auroc"] <= most, row
    beyond = row["auroc"] > 0.75 or row["auroc_high"] > 0.8
    assert bool(too_good(pd.DataFrame([row]))) == beyond


def test_who_learns_from_the_suite_itself_is_told_no_answer_about_what_he_is_asked() -> None:
    """Six cases of each of 40 models: together in a fold they tell nothing, apart everything."""
    random = np.random.default_rng(0)
    which = np.arange(240) % 40
    table = pd.DataFrame({"case": which.astype(str) + "-" + (np.arange(240) // 40).astype(str)})
    table = table.assign(model="uniform", question="needed", target="0 0")
    table["answer"] = (random.random(40) < 0.5)[which]
    table["weights: own"] = which + random.random(240) / 9
    for folds, least, most in ((5, 0.25, 0.75), (7, 0.9, 1.0)):  # 5 divides 40, 7 does not
        found = attacked(table[:0], table, 50, ["weights"], folds)
        assert least <= found["auroc"].item() <= most


def test_a_case_of_which_nothing_is_asked_is_passed_over() -> None:
    (case, facts) = cases(0, 1)[0]
    rows = [rows_of(case, asked, "case", "uniform") for asked in (facts, [])]
    assert [*map(len, rows)] == [3, 0]
    assert len(pd.concat(rows)) == 3
