"""Scores by their definitions, the controls, and what a method may answer."""

from __future__ import annotations

import itertools
import json
import math
import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats
from typer.testing import CliRunner

from tests.judge.conftest import SHIPPED
from tests.judge.methods.cases import TWO_LAYERS
from tl_dyck.cli.entry import app
from tl_dyck.intervals import mean
from tl_dyck.judge import (
    CHEATS,
    KINDS,
    JudgeError,
    Question,
    Suite,
    compare_methods,
    judge,
    judge_methods,
    make_case,
    methods,
)
from tl_dyck.judge import (
    scores as judge_scores,
)
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.cheats import broken
from tl_dyck.judge.rates import auroc
from tl_dyck.judge.run import load_judgement
from tl_dyck.judge.scores import ask, most_misleading, oracle_rows, score_table
from tl_dyck.judge.suites import DEVELOPMENT, HELD_OUT, SUITES
from tl_dyck.kit.check import WrongTypeError, WrongValueError
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.report import judge as report
from tl_dyck.report import write_report
from tl_dyck.report.judge import lessons
from tl_dyck_hooks.methods import adaptation

ROOT = Path(__file__).resolve().parents[2]


def test_auroc_counts_pairs() -> None:
    random = np.random.default_rng(0)
    for _ in range(20):
        answers = random.random(12) < 0.4
        scores = random.integers(0, 5, 12).astype(float)
        pairs = [
            (scores[i] > scores[j]) + 0.5 * (scores[i] == scores[j])
            for i, j in itertools.product(range(12), repeat=2)
            if answers[i] and not answers[j]
        ]
        if pairs:
            assert auroc(answers, scores) == pytest.approx(np.mean(pairs))
    assert np.isnan(auroc(np.array([True]), np.array([1.0])))


def rows_of(method: str, cases: list[str], answers: list[bool], scores: list[float]) -> Any:
    table = {"method": method, "question": "needed", "case": cases, "answer": answers}
    sizes = {"size": np.nan, "said": np.nan}
    cost = {"seconds": 1.0, "passes": 2.0, "backward": 0.0, "target": "0 0"}
    return pd.DataFrame({**table, "score": scores, **sizes, **cost})


def test_rates_at_a_methods_own_threshold() -> None:
    answers = [True, True, False, False, False]
    table = score_table(rows_of("m", list("aabbb"), answers, [1.0, -1.0, 2.0, -1.0, -2.0]))
    row = table.loc[("m", "needed")]
    assert row["accuracy"] == 3 / 5
    assert row["false_alarms"] == 1 / 3
    assert row["misses"] == 1 / 2
    assert (row["seconds"], row["passes"], row["cases"]) == (2.5, 5.0, 2)


def test_what_is_run_is_counted_by_strings_and_paid_for_by_what_is_answered() -> None:
    def busy(case: Any, questions: Any) -> list[float | None]:
        case.model(case.tokens[:16])  # a quarter of the strings, one after the other or at once
        for row in case.tokens[:16]:
            case.model(row[None])
        case.model(torch.cat([case.tokens, case.tokens]))
        with torch.enable_grad():
            embedded = case.model.embed(case.tokens).detach().requires_grad_()
            case.forward(embedded).sum().backward()
        return [1.0] + [None] * (len(questions) - 1)

    sealed = sealed_case("uniform", 0)
    kinds = {fact.question.kind for fact in sealed.facts}
    rows = ask("busy", busy, sealed)
    assert len(rows) == len(kinds) < len(sealed.facts)
    # 1/4 + 1/4 + 2, the embedding, and the pass from embeddings, which looks tokens up, too
    assert {(row["passes"], row["backward"]) for row in rows} == {(4.5, 1.0)}


def test_how_far_a_size_is_off_is_of_all_that_was_to_be_said() -> None:
    rows = rows_of("m", list("aabb"), [True, False, True, True], [1.0, -1.0, 2.0, 3.0])
    rows = rows.assign(size=[2.0, np.nan, 1.0, 1.0], said=[1.0, 7.0, 1.5, 1.0])
    row = score_table(rows).loc[("m", "needed")]
    assert row["off"] == pytest.approx((1 + 0.5) / 4)
    assert (row["off_low"], row["off_high"]) == pytest.approx((0.5 / 2, 1 / 2))  # of one case each
    assert np.isnan(score_table(rows.assign(size=np.nan)).loc[("m", "needed"), "off"])


def test_sizes_are_compared_in_the_unit_in_which_a_method_speaks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Path patching does what is asked, on 64 strings; the baseline speaks of something else."""
    monkeypatch.setattr(judge_scores, "sealed_case", partial(sealed_case, **TWO_LAYERS))
    facts = sealed_case("pre-norm", 5, **TWO_LAYERS).facts
    assert {"logits", "of the difference", "nats"} == {*facts[0].sizes}
    found = judge("edge-path-patching", [("pre-norm", 5)]).loc["edge, trained"]
    assert 0 < found["off"] < 0.3
    assert np.isnan(judge("edge-change", [("pre-norm", 5)]).loc["edge, trained", "off"])


def test_intervals_resample_whole_cases() -> None:
    """Questions of one case stand or fall together: ten copies of each tell nothing more."""
    random = np.random.default_rng(1)
    answers = random.random(30) < 0.5
    scores = answers + random.normal(0, 1.5, 30)
    names = [str(i) for i in range(30)]
    once = score_table(rows_of("m", names, list(answers), list(scores)))
    often = score_table(
        rows_of("m", names * 10, list(np.tile(answers, 10)), list(np.tile(scores, 10)))
    )
    for end in ("auroc_low", "auroc_high"):
        assert once[end].item() == pytest.approx(often[end].item(), abs=1e-9)
    known = mean((scores > 0) == answers)  # one question a case: a mean
    assert once["accuracy_low"].item() == pytest.approx(known.low, abs=0.035)
    assert once["accuracy_high"].item() == pytest.approx(known.high, abs=0.035)


def paired_rows(n: int, gap: float, generator: np.random.Generator) -> pd.DataFrame:
    """Two methods about the same cases: hard cases are hard for both; b is right less often."""
    names = [str(i) for i in generator.permutation(n)]
    hard = generator.random(n)
    alike = generator.random(n)
    answers = generator.random(n) < 0.5
    both = []
    for method, lost in (("a", 0.0), ("b", gap)):
        right = np.where(generator.random(n) < 0.15, generator.random(n), alike) > 0.5 * hard + lost
        scores = np.where(right == answers, 1.0, -1.0)
        both.append(rows_of(method, names, [*answers.tolist()], [*scores.tolist()]))
    return pd.concat(both, ignore_index=True)


@pytest.mark.parametrize(
    ("n", "within"), [(80, 0.07), pytest.param(400, 0.03, marks=pytest.mark.slow)]
)
def test_the_interval_of_a_difference_covers(n: int, within: float) -> None:
    """Whoever is asked `paired_rows` is right by the gap less often: 0.75 and 0.55 of cases."""
    generator, gap, hits = np.random.default_rng(6), 0.2, 0
    for _ in range(n):
        found = compare_methods(paired_rows(60, gap, generator), "a", "b", n_bootstrap=100)
        hits += found["accuracy_low"].item() <= gap <= found["accuracy_high"].item()
    assert hits / n == pytest.approx(0.95, abs=within)


def test_methods_are_compared_case_by_case() -> None:
    """The interval of the difference is narrower than two intervals would say."""
    rows = paired_rows(200, 0.2, np.random.default_rng(5))
    found = compare_methods(rows, "a", "b").iloc[0]
    alone = score_table(rows)
    width = [float((alone["accuracy_high"] - alone["accuracy_low"])[m].iloc[0]) for m in "ab"]
    assert found["accuracy_high"] - found["accuracy_low"] < 0.9 * np.hypot(*width)
    assert found["accuracy"] == pytest.approx(
        alone.loc["a", "accuracy"].item() - alone.loc["b", "accuracy"].item()
    )
    back = compare_methods(rows.sample(frac=1, random_state=0), "b", "a").iloc[0]
    assert back["auroc_low"] == pytest.approx(-found["auroc_high"])
    with pytest.raises(UnknownNameError, match="'c'"):
        compare_methods(rows, "a", "c")


def test_only_what_both_answer_is_compared() -> None:
    rows = paired_rows(30, 0.0, np.random.default_rng(0))
    less = rows.drop(rows[rows["method"] == "b"].index[:10])
    assert compare_methods(less, "a", "b")["n"].item() == 20


def test_scores_do_not_depend_on_the_order_of_rows_or_on_other_methods() -> None:
    rows = paired_rows(30, 0.1, np.random.default_rng(1))
    whole = score_table(rows)
    alone = score_table(rows[rows["method"] == "b"].sample(frac=1, random_state=0))
    assert alone.loc["b"].drop(columns=["interval"]).to_numpy(float) == pytest.approx(
        whole.loc["b"].drop(columns=["interval"]).to_numpy(float), nan_ok=True
    )


def test_the_most_misleading_question_is_furthest_on_the_wrong_side() -> None:
    rows = rows_of("m", list("abcd"), [True, True, False, False], [3.0, -1.0, 0.0, -2.0])
    worst = most_misleading(rows)
    assert worst["case"].tolist() == ["b"]  # below one of two; "c" is above one of two, and later
    assert worst["misled"].tolist() == [0.5]


def test_the_oracle_is_told_all() -> None:
    sealed = sealed_case("stack", 1)
    rows = oracle_rows(sealed)
    assert [row["answer"] for row in rows] == [fact.answer for fact in sealed.facts]
    assert [row["score"] > 0 for row in rows] == [fact.answer for fact in sealed.facts]
    assert "oracle" not in methods.names()  # no method is told


def test_a_method_sees_neither_kind_nor_seed() -> None:
    seen: list[Any] = []

    def curious(case: Any, questions: Any) -> list[float]:
        seen.append(case)
        return [0.0] * len(questions)

    judge(curious, [("balanced", 1), ("trained", SHIPPED)])
    assert len({case.name for case in seen}) == 2
    for case in seen:
        assert {"kind", "seed"}.isdisjoint(vars(case))
        assert case.model.cfg.model_name == "judged"
        assert not re.search("balanced|trained", case.name)


def test_who_has_not_the_salt_has_other_cases() -> None:
    salts = "9e107d9d372bb6826bd81d3542a419d6", "e4d909c290d0fb1ca068ffaddf22cbd0"
    mine, yours = map(SUITES["quick"].with_salt, salts)
    assert mine == SUITES["quick"].with_salt(salts[0])
    assert mine.sizes == yours.sizes
    assert len({mine.name, yours.name, SUITES["quick"].name}) == 3
    for suite in (yours, DEVELOPMENT, SUITES["full"]):
        assert {*mine.cases()}.isdisjoint(suite.cases())
    assert str(mine.first_seed) not in mine.name
    assert f"{mine.first_seed - HELD_OUT:x}"[:8] not in mine.name  # the name gives no seed away


def test_trained_and_built_models_stand_in_columns_of_their_own() -> None:
    rows = rows_of("m", list("abcd"), [True, False, True, False], [1.0, -1.0, -1.0, 1.0])
    asked = rows.assign(model=["uniform", "stack", "trained", "pre-norm"])
    table = score_table(asked.iloc[[0, 1, 2, 3]], asked=pd.concat([asked, asked])).loc["m"]
    assert table["auroc"].to_dict() == {"needed": 1.0, "needed, trained": 0.0}
    assert table["answered"].tolist() == [0.5, 0.5]


def test_controls_score_what_they_must_on_the_whole_suite() -> None:
    path = ROOT / "docs" / "results" / "judge.json"
    if not path.exists():
        pytest.skip("a copy without the documentation")
    record = json.loads(path.read_text(encoding="utf-8"))
    scores = {row["method"]: row["scores"] for row in record["rows"]}
    assert len(scores) >= 14
    assert record["cases"] >= 200
    controls = [
        (name, kind, scores[name][kind])
        for kind in record["questions"]
        for name in ("chance", "order")
        if kind in scores[name]
    ]
    # of so many 95 % intervals one is beside by chance: all together must be what one is (Šidák)
    wider = stats.norm.ppf((1 + 0.95 ** (1 / len(controls))) / 2) / stats.norm.ppf(0.975)
    for name, kind, known in controls:
        half = (known["auroc_high"] - known["auroc_low"]) / 2
        assert abs(known["auroc"] - 0.5) <= wider * half, (name, kind)
    for kind in record["questions"]:
        assert scores["oracle"][kind]["auroc"] == 1
    if record["suite"] != SUITES["quick"].name:
        pytest.skip(f"the record is of {record['suite']}")
    for kind in record["questions"]:
        for name in CHEATS:
            if kind in scores.get(name, {}):
                assert broken(scores[name][kind]) is None, (name, kind)
    assert scores["resample-ablation"]["carries"]["auroc"] >= 0.95


def test_what_is_not_known_breaks_no_promise() -> None:
    assert broken({"auroc": 0.7, "auroc_high": float("nan")}) is None
    assert "0.75" in str(broken({"auroc": 0.76, "auroc_high": float("nan")}))
    assert "0.80" in str(broken({"auroc": 0.7, "auroc_high": 0.81}))


def test_slow_methods_answer_every_tenth_case(monkeypatch: pytest.MonkeyPatch) -> None:
    known = SimpleNamespace(values=np.zeros((1, 2)))
    monkeypatch.setattr(adaptation, "leave_one_out_importance", lambda *_, **__: known)
    case, _ = make_case("uniform", 0, n_heads=2, n_layers=1)
    questions = [Question("needed", (0, 0))]
    for name, answers in (("a", True), ("b", False)):  # ten, and eleven
        found = methods.get("leave-one-out")(replace(case, name=name), questions)
        assert (found is not None) == answers


def test_what_is_no_suite(tmp_path: Any) -> None:
    with pytest.raises(JudgeError, match="suite 's' has no cases"):
        Suite(name="s")
    with pytest.raises(WrongValueError, match="number of uniform cases must be at least 1, got 0"):
        Suite(name="s", sizes={"uniform": 0})
    with pytest.raises(WrongTypeError, match="number of uniform cases must be an integer"):
        Suite(name="s", sizes={"uniform": 1.5})  # type: ignore[dict-item]
    with pytest.raises(UnknownNameError, match="uniform"):
        Suite(name="s", sizes={"unifrom": 1})
    for first in (-1, 2**63, 10**40):
        with pytest.raises(WrongValueError, match=r"first_seed must be (of )?at"):
            Suite(name="s", first_seed=first, sizes={"uniform": 1})
    last = 2**63 - 1
    assert [*Suite(name="s", first_seed=last, sizes={"uniform": 1}).cases()] == [("uniform", last)]
    with pytest.raises(WrongValueError, match="the last seed must be at most"):
        Suite(name="s", first_seed=last, sizes={"uniform": 2})
    assert Suite(name="s", first_seed=np.int64(1), sizes={"uniform": np.int64(2)}) == Suite(  # type: ignore[dict-item, arg-type]
        name="s", first_seed=1, sizes={"uniform": 2}
    )
    for pairs, text in (
        ([], "the suite has no cases"),
        ([("uniform", 2**63)], "seed must be at most"),
        ([("uniform", "1")], "a Suite or a collection of a tuple of 2, got"),
        (["uniform"], "a Suite or a collection of"),
        (iter([("uniform", "1")]), "seed must be an integer"),  # of what is read but once
        (iter(["uniform"]), "named by its kind and seed"),
        ("quick", "a Suite or a collection of"),
        (3, "a Suite or a collection of"),
    ):
        with pytest.raises((JudgeError, WrongTypeError, WrongValueError), match=text):
            judge("chance", pairs)  # type: ignore[arg-type]
    with pytest.raises(JudgeError, match="no method is named"):
        judge_methods("quick", tmp_path, [])
    with pytest.raises(WrongTypeError, match="names must be a sequence of texts or None, got"):
        judge_methods("quick", tmp_path, "chance")
    with pytest.raises(WrongTypeError, match="method must be a function or a text, got 3"):
        judge(3, [("uniform", 0)])  # type: ignore[arg-type]
    assert not [*tmp_path.iterdir()]


def test_no_methods_are_not_all_methods(tmp_path: Any) -> None:
    """On the command line: ``--methods ""`` names none."""
    done = CliRunner().invoke(app, ["judge", "--methods", "", "--out", str(tmp_path / "out")])
    assert done.exit_code == 2
    assert "leave names (--methods) out to ask all" in done.stderr
    assert not [*tmp_path.iterdir()]


def test_names_that_nobody_knows() -> None:
    with pytest.raises(UnknownNameError, match="zero-ablation"):
        judge("zero-ablatoin", [("uniform", 0)])
    with pytest.raises(UnknownNameError, match="uniform"):
        make_case("unifrom", 0)
    with pytest.raises(UnknownNameError, match="n_heads"):
        make_case("uniform", 0, n_head=3)
    with pytest.raises(UnknownNameError, match="quick"):
        judge_methods("quikc")


def test_tuning_and_scoring_have_no_seed_in_common() -> None:
    development = {*DEVELOPMENT.cases()}
    for suite in SUITES.values():
        assert development.isdisjoint(suite.cases())
        assert min(seed for _, seed in suite.cases()) == HELD_OUT
    assert {*SUITES["quick"].cases()} < {*SUITES["full"].cases()}
    assert len([*SUITES["quick"].cases()]) >= 200


def test_an_interval_of_one_case_is_not_shown() -> None:
    row = {"auroc_low": math.nan, "auroc_high": math.nan, "off_low": 0.1, "off_high": 0.25}
    assert report._ends(row, "auroc", ".2f") == ""
    assert report._ends(row, "off", ".0%") == " [10%, 25%]"


def test_a_run_is_kept_and_has_a_page(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    suite = Suite(name="tiny/quick", first_seed=3, sizes={"uniform": 2, "stack": 2})
    monkeypatch.setattr("tl_dyck.judge.cheats._TREES", 15)
    chosen = ["chance", "parser", "ov-norm", "zero-ablation", "attention-weight", "stack-attention"]
    done = judge_methods(suite, tmp_path, chosen, n_jobs=1, progress=False)
    again = load_judgement(tmp_path)
    pd.testing.assert_frame_equal(done.scores, again.scores)
    assert again.sizes == done.sizes
    by_hand = judge("zero-ablation", suite)
    for name in ("auroc", "accuracy", "misses", "n"):
        ours = done.scores.loc["zero-ablation"][name]
        np.testing.assert_array_equal(ours.to_numpy(), by_hand[name].to_numpy())
    page = write_report(done)
    text = page.read_text(encoding="utf-8")
    fine = text.partition("Never on the wrong side: ")[2].partition("</p>")[0]
    for name in (
        "zero-ablation",
        "stack-attention",
        "attention-weight",
    ):  # those that are no controls
        assert (f"<h3>{name}</h3>" in text) != (name in fine)
    assert text.count('class="map"') == text.count("<h3>") > 0
    assert 'data-plot="figure-0"' in text
    monkeypatch.setattr(report, "_CARDS", 1)
    few = write_report(done, tmp_path / "few.html").read_text(encoding="utf-8")
    shown, more, folded = few.partition(f"<summary>{text.count('<h3>') - 1} more methods<")
    assert (shown.count("<h3>"), bool(more)) == (1, True)
    assert folded.count("<h3>") == text.count("<h3>") - 1
    tables = " methods and questions about heads</summary>"
    assert tables not in text  # a table of few rows is open
    monkeypatch.setattr(report, "_OPEN", 1)
    assert tables in write_report(done, tmp_path / "few.html").read_text(encoding="utf-8")
    said = lessons(done)
    assert text.count("<summary>Other methods<") == sum("; " in one for one in said) > 0
    assert all(one.partition("; ")[0].rstrip(".") in text for one in said)
    off = done.scores.loc[("zero-ablation", "needed"), ["off", "off_low", "off_high"]]
    assert "{:.0%} [{:.0%}, {:.0%}]".format(*off) in text
    table = (tmp_path / "judge.md").read_text(encoding="utf-8")
    assert "| zero-ablation |" in table
    for name in ("oracle", "kind-constant", "forest", "forest-other-kinds"):
        assert name in done.scores.index
    assert (done.scores.loc["oracle", "accuracy"] == 1).all()
    cheats = [name for name in CHEATS if (name, "needed") in done.scores.index]
    best = max(done.scores.loc[name, "needed"]["auroc"] for name in cheats)
    assert any(f", which runs no model, scores {best:.2f}" in one for one in lessons(done))
    assert done.digest in text
    assert done.digest == again.digest
    flipped = done.answers.assign(answer=~done.answers["answer"].astype(bool))
    assert replace(done, answers=flipped).digest != done.digest
    asked = set(done.true_answers.query("question == 'stack'")["case"])
    assert f"not asked of {1 - len(asked) / 4:.0%} of the models" in text


def test_the_page_shows_an_answer_to_every_kind_of_question() -> None:
    """Its blocks are run in `tests/docs/test_outputs.py`."""
    text = (ROOT / "docs" / "judge.md").read_text(encoding="utf-8")
    shown = "".join(re.findall(r"```text\n(.*?)```", text, re.DOTALL))
    assert {line.split()[0] for line in shown.splitlines() if line} >= {*KINDS}
