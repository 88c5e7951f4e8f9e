"""Cheats: what they see runs no model, and what gives answers away they find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tl_dyck.judge import (
    ABOUT_HEADS,
    KINDS,
    cases,
    cheats,
    judge,
    make_case,
)
from tl_dyck.judge.cheats import bounds, norms
from tl_dyck.judge.facts import Enumeration, changed_heads, head_facts
from tl_dyck.judge.protocol import Fact, Question
from tl_dyck.judge.public import shipped
from tl_dyck.judge.rates import auroc
from tl_dyck.judge.scores import score_table
from tl_dyck.judge.suites import SUITES
from tl_dyck_hooks.cases import built, pose, trained


def test_cheats_run_no_model() -> None:
    """They look at the question or at weights, which is why they know nothing of the model."""
    suite = [("uniform", 0), ("balanced", 1), ("stack", 2), ("backup", 0)]
    for name, kinds in (("parser", ["token"]), ("sizes", ABOUT_HEADS), ("ov-norm", ABOUT_HEADS)):
        found = judge(name, suite)
        assert [*found.index] == [kind for kind in KINDS if kind in kinds and kind != "depth"]
        assert (found["passes"] == 0).all()
    assert judge("parser", suite).loc["token", "auroc"] == 0.5  # none of the asked is what it says


def test_a_forest_finds_what_a_norm_gives_away_and_nothing_else(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So do a few trees, of which each takes its time."""
    monkeypatch.setattr(cheats, "_TREES", 15)
    random = np.random.default_rng(0)
    n, n_cases = 400, 80
    weights = pd.DataFrame(random.normal(size=(n, 22))).add_prefix("norm_")
    cases = [f"case-{i % n_cases}" for i in range(n)]
    weights = weights.assign(case=cases, target=[f"0 {i // n_cases}" for i in range(n)])
    both = (weights["norm_3"] > 0) & (weights["norm_7"] > 0)  # of no use by itself alone
    kinds = [("a", "b")[i % n_cases % 2] for i in range(n)]
    known = weights[["case", "target"]].assign(
        model=kinds, method="oracle", effect=None, score=0.0, size=np.nan, said=np.nan
    )

    def scores(answers: Any) -> Any:
        rows = bounds(known.assign(question="needed", answer=answers), weights)
        return score_table(rows, n_bootstrap=1)["auroc"].unstack()["needed"]

    found = scores(both)
    assert found["forest"] > 0.95
    assert found["forest-other-kinds"] > 0.95
    assert found["kind-constant"] < 0.6
    drawn = scores(random.random(n) < 0.5)
    assert ((drawn - 0.5).abs() < 0.12).all()
    assert scores(np.array(kinds) == "a")["kind-constant"] == 1


def test_norms_are_of_weights() -> None:
    """34 numbers a head, found in numpy, and not moved by what no prediction sees."""
    case, _ = make_case("balanced", 1)
    table = norms(case.model)
    attn = case.model.blocks[0].attn
    q, k, v, o = (getattr(attn, f"W_{name}")[1].detach().numpy() for name in "QKVO")
    row = table[table["target"] == "0 1"].iloc[0]
    assert row["norm_0"] == pytest.approx(np.log(np.sqrt((q**2).sum())))
    assert row["norm_6"] == pytest.approx(np.log(np.sqrt(((q @ k.T) ** 2).sum())))
    assert row["norm_7"] == pytest.approx(np.log(np.sqrt(((v @ o) ** 2).sum())))
    with torch.no_grad():
        attn.W_V[1] *= 3
        attn.b_V[1] *= 3
        attn.W_O[1] /= 3
    after = norms(case.model)
    assert after[["norm_6", "norm_7"]].to_numpy() == pytest.approx(
        table[["norm_6", "norm_7"]].to_numpy()
    )
    assert len(table.filter(like="norm_").columns) == 34
    units = case.model.blocks[-1].mlp.W_in.detach().numpy()
    for name, matrix in (("norm_29", o), ("norm_30", v @ o @ units)):
        sizes = abs(matrix).sum(0)
        assert row[name] == pytest.approx(np.average(np.linspace(0, 1, len(sizes)), weights=sizes))
    assert row["norm_8"] == pytest.approx(np.log(np.sqrt(((v @ o @ units) ** 2).sum())))
    assert row["norm_20":"norm_22"].tolist() == [(each == 0).mean() for each in (q, v, o)]
    projectors = [
        np.linalg.pinv(moves) @ moves
        for moves in (
            v.detach().numpy() @ o.detach().numpy() for v, o in zip(attn.W_V, attn.W_O, strict=True)
        )
    ]
    alike = [
        np.trace(projectors[1] @ other) / min(np.trace(other), np.trace(projectors[1]))
        for index, other in enumerate(projectors)
        if index != 1
    ]
    expected = [np.mean(alike), max(alike), sum(np.array(alike) > 0.5)]
    assert row["norm_31":"norm_33"].tolist() == pytest.approx(expected)


@pytest.mark.parametrize("kind", ["stack", "trained"])
def test_places_do_not_tell_which_heads_work(kind: str) -> None:
    """Neither coordinates nor units; in the order in which they were made both did."""
    file, rows = shipped(SUITES["quick"]), []
    assert file is not None
    for seed in range(file.suite.first_seed, file.suite.first_seed + 8):
        case = file.sealed(kind, seed).copy()
        world = Enumeration(case.model, case.task.language, case.length, case.task.distribution)
        carried = (world.breaks(*each, sizes=False) for each in changed_heads(world, ["carries"]))
        answers = {
            " ".join(map(str, fact.question.target)): fact.answer for fact in carried if fact
        }
        rows.append(norms(case.model).assign(case=seed).query("target in @answers"))
        rows[-1]["answer"] = rows[-1]["target"].map(answers)
    table = pd.concat(rows)
    for name in ("norm_29", "norm_30"):
        place = table[name] - table.groupby("case")[name].transform("mean")
        assert 0.2 < auroc(table["answer"].to_numpy(bool), place.to_numpy()) < 0.8


@pytest.mark.parametrize(("neither", "most"), [(0.25, 2 / 3), (0.5, 0.75)])
def test_the_bound_on_who_knows_all_but_which_circuit_is_heard(neither: float, most: float) -> None:
    """The model is one of the two, each as likely; he says yes where the answers differ."""
    random, generator = np.random.default_rng(0), torch.Generator().manual_seed(0)
    knows, answers = [], []
    for _ in range(3000):
        # of six heads each circuit has one or two; no head is in both
        heads = random.permutation(6)
        sides = [heads[: random.integers(1, 3)], heads[3 : 3 + random.integers(1, 3)]]
        random.shuffle(sides)
        mine, other = (
            [Fact(Question("needed", (0, head)), bool(head in side), "") for head in range(6)]
            for side in sides
        )
        there = [fact.answer for fact in other]
        for fact in pose.thin_by_mirror(mine, other, generator, neither):
            knows.append(float(fact.answer or there[fact.question.target[1]]))
            answers.append(fact.answer)
    # 14,000 questions: a standard error of 0.003
    assert auroc(np.array(answers), np.array(knows)) == pytest.approx(most, abs=0.015)


@pytest.mark.parametrize(
    ("kind", "seed", "knobs"),
    [
        *(("balanced", 1, {}), ("stack", 1, {}), ("backup", 1, {}), ("trained", 1, {})),
        ("hidden", 2, {"n_heads": 3, "n_layers": 1}),  # four, in two layers, take long to train
    ],
)
def test_who_knows_all_but_which_circuit_is_heard_knows_little(
    kind: str, seed: int, knobs: dict[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """He says how often the answer is yes in a model and its mirror: they share all but W_U."""
    mirrors: list[Any] = []

    def about_heads(mirror: Enumeration) -> Any:
        mirrors.append(mirror.model)
        return pose.about_heads(mirror)

    room: Any = trained if kind in ("trained", "hidden") else built
    monkeypatch.setattr(room, "about_heads", about_heads)
    case, facts = cases.case_kinds.get(kind).make(kind, seed, knobs)
    mirror = mirrors[-1]
    mine, other = case.model.state_dict(), mirror.state_dict()
    assert [name for name in mine if not torch.equal(mine[name], other[name])] == ["unembed.W_U"]
    world = Enumeration(mirror, case.task.language, case.length, case.task.distribution)
    there = {fact.question: fact.answer for fact in head_facts(world, sizes=False)}
    for question in ABOUT_HEADS:
        asked = [fact for fact in facts if fact.question.kind == question]
        either = [fact.answer + there[fact.question] for fact in asked]
        assert max(either, default=0) <= 1  # no head does the work of both
        assert either.count(0) <= either.count(1) / 4 + 1
