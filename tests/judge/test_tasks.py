"""Cases of several tasks: answers counted again string by string, and orders of methods."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import stats

from tests.judge import shut
from tests.judge.methods.network import Network, exchanged, right_brackets
from tests.judge.methods.network import strings as brackets
from tests.judge.test_recount import margins
from tl_dyck.judge import (
    SUITES,
    Case,
    Fact,
    JudgeError,
    Judgement,
    Question,
    make_case,
    methods,
    rank_correlations,
    score_table,
)
from tl_dyck.judge.across import kendall, spearman
from tl_dyck.judge.asked import partners, right_answers
from tl_dyck.judge.case_files import dump_case, read_case
from tl_dyck.judge.cases import sealed_case
from tl_dyck.judge.facts import head_facts
from tl_dyck.judge.scores import ask
from tl_dyck.judge.small_tasks import BRACKETS, TASKS, small_automaton
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.kit.registry import UnknownNameError
from tl_dyck.language import DyckStringError
from tl_dyck.report.judge_tasks import tasks_markdown, tasks_section
from tl_dyck_hooks.cases import trained
from tl_dyck_hooks.cases.pose import every_string, generator_of
from tl_dyck_hooks.cases.trained import _drawn, _train, two_circuits

#: Of each task a case that is trained in a second, and about which something is asked.
SEEDS = {"largest": (1, 2), "sign": (1, 2), "modular": (4, 3), "copy": (1, 2)}
NAMES = [name for name in TASKS if name != BRACKETS]


def said(name: str, string: Sequence[int]) -> list[int]:
    """What is right after each symbol, and before the first; -1 where nothing is asked."""
    if name == "largest":
        return [-1, *(max(string[:n]) for n in range(1, 5))]
    if name == "sign":
        sums = [sum(string[:n]) - n for n in range(5)]  # - 0 + are 0, 1, 2
        return [1 + int(np.sign(total)) for total in sums]
    if name == "modular":
        return [-1, -1, sum(string) % 5]
    return [-1] * 5 + [*string[:4], -1]


def strings(name: str) -> list[tuple[int, ...]]:
    numbers, places = {"largest": (4, 4), "sign": (3, 4), "modular": (5, 2), "copy": (3, 4)}[name]
    every = itertools.product(range(numbers), repeat=places)
    return [(*row, 3, *row) if name == "copy" else row for row in every]


def case_of(name: str) -> tuple[Case, tuple[Fact, ...]]:
    seed, n_heads = SEEDS[name]
    return make_case(f"task-{name}", seed, n_heads=n_heads, n_layers=1)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_asked_is_what_the_task_says_and_partners_are_asked_something_else(
    name: str,
) -> None:
    task = small_automaton(name)
    rows = torch.tensor([[task.language.bos_token, *string] for string in strings(name)])
    right = torch.tensor([said(name, string) for string in strings(name)])
    assert right_answers(task, rows).equal(right)
    other = partners(task, rows)
    assert {*map(tuple, other.tolist())} <= {*map(tuple, rows.tolist())}
    end = -2 if name == "copy" else -1
    assert bool((right_answers(task, other)[:, end] != right[:, end]).all())
    with pytest.raises(DyckStringError, match=f"no string of {name}"):
        partners(task, torch.full_like(rows, task.language.bos_token))


def breaks(case: Case, fact: Fact, rows: torch.Tensor, right: torch.Tensor) -> bool:
    """All strings are run, with a hook: whether an answer is lost."""
    layer, head = fact.question.target
    _, other = case.model.run_with_cache(partners(case.task, rows))

    def change(x: Any, hook: Any) -> Any:
        if fact.question.kind == "pattern":
            x[:, head] = torch.ones(x.shape[-2:], dtype=x.dtype).tril()
            x[:, head] /= x[:, head].sum(-1, keepdim=True)
        elif fact.question.kind == "needed":
            x[:, :, head] = 0.0
        else:
            x[:, :, head] = other[hook.name][:, :, head]
        return x

    name = "pattern" if fact.question.kind == "pattern" else "z"
    hooks = [(f"blocks.{layer}.attn.hook_{name}", change)]
    said = case.model.run_with_hooks(rows, fwd_hooks=hooks).argmax(-1)
    return bool((said != right)[right >= 0].any())


@pytest.mark.parametrize("name", NAMES)
def test_answers_are_found_again_on_all_strings(name: str) -> None:
    case, facts = case_of(name)
    rows = torch.tensor([[case.task.language.bos_token, *string] for string in strings(name)])
    right = torch.tensor([said(name, string) for string in strings(name)])
    with torch.no_grad():
        good = case.model(rows).argmax(-1) == right
        assert bool(good[right >= 0].all())  # the model has learnt the task
        for fact in facts:
            assert breaks(case, fact, rows, right) == fact.answer, fact
    assert facts


def _changed(question: Question, flat: np.ndarray, put: Any) -> dict[str, Any]:
    """The change that a question is about: other outputs, none, or a flat pattern."""

    def here(layer: int, head: int) -> bool:
        return (layer, head) == question.target

    if question.kind == "pattern":
        return {
            "pattern": lambda i, j, old: np.broadcast_to(flat, old.shape) if here(i, j) else old
        }
    return {"z": lambda i, j, old: (0 * old if put is None else put[i][j]) if here(i, j) else old}


@pytest.mark.slow
@pytest.mark.parametrize("name", TASKS)
def test_100_answers_of_each_task_are_found_again_in_numpy(name: str) -> None:
    """Of every head of models and their mirrors, also where it is hidden which are heard."""
    counted, seed = {"needed": 0, "carries": 0, "pattern": 0}, 0
    yes = dict(counted)
    while sum(counted.values()) < 100:
        seed += 1
        generator = generator_of(f"recounted-{name}", seed)
        hidden = seed % 2 == 1
        kind = f"hidden-{name}" if hidden else f"task-{name}"
        task, config, share = _drawn(kind, {"n_heads": 4, "n_layers": 2}, generator)
        try:
            pair = two_circuits(config, task, share, generator, 50, hidden=hidden)
            worlds = [every_string(model, task, name) for model in pair]
        except JudgeError:
            continue  # not learnt
        if name == BRACKETS:
            rows = brackets(task.n_types, task.max_depth, max(task.train_lengths))
            right, other = right_brackets(rows), exchanged(rows, task.n_types)
        else:
            rows = np.array([[task.language.bos_token, *string] for string in strings(name)])
            right = np.array([said(name, string) for string in strings(name)])
            other = partners(task, torch.from_numpy(rows)).numpy()
        for world in worlds:
            network = Network(world.model)
            intact = margins(network.run(rows).logits, right) > 1e-9
            put = {"carries": network.run(other).z}
            n = rows.shape[1]
            flat = np.tril(np.ones((n, n))) / np.arange(1, n + 1)[:, None]
            for fact in head_facts(world):
                kind = fact.question.kind
                edits = _changed(fact.question, flat, put.get(kind))
                logits = network.run(rows, **edits).logits
                broken = bool((intact & (margins(logits, right) <= 1e-9)).any())
                assert broken == fact.answer, (seed, fact)
                counted[kind] += 1
                yes[kind] += broken
    assert min(counted.values()) > 30
    assert min(yes.values()) > 2, yes


def test_methods_are_asked_of_any_task_but_those_that_need_brackets() -> None:
    sealed = sealed_case("task-largest", 1, n_heads=2, n_layers=1)
    asked = {fact.question for fact in sealed.facts}
    for name in ("zero-ablation", "attribution-patching", "path-patching", "concept-erasure"):
        assert len(ask(name, methods.get(name), sealed)) == len(asked), name
    for name in ("attention-knockout", "stack-attention", "depth-erasure", "type-probe"):
        assert not ask(name, methods.get(name), sealed), name


def test_a_case_of_a_task_is_kept_in_a_file_and_a_string_of_another_is_refused() -> None:
    case, facts = case_of("modular")
    data = dump_case(case, facts)
    again, known = read_case(data, "this")
    assert (again.task, again.length, tuple(known)) == (case.task, 2, facts)
    assert again.right.equal(case.right)
    assert again.partners.equal(case.partners)
    for other in (b"largest", b"missing"):
        with pytest.raises(CorruptFileError, match="holds no case"):
            read_case(data.replace(b'"task":"modular"', b'"task":"%s"' % other), "this")


def hidden_units(model: Any, rows: torch.Tensor, hooks: Sequence[Any] = ()) -> list[torch.Tensor]:
    """What units of each MLP put out, ``[row · place, unit]``, with some hooks."""
    found: list[torch.Tensor] = []

    def keep(x: torch.Tensor, hook: Any) -> None:
        found.append(x.flatten(0, 1).clone())

    keeps = [(f"blocks.{i}.mlp.hook_post", keep) for i in range(model.cfg.n_layers)]
    with torch.no_grad():
        model.run_with_hooks(rows, fwd_hooks=[*hooks, *keeps])
    return found


@cache
def both_pairs(name: str, n_layers: int) -> tuple[Any, list[tuple[Any, Any]]]:
    """A task; a model and its mirror, as they are trained, and with what is heard hidden."""
    found, kept = [], []

    def once(model: Any, task: Any, generator: torch.Generator, *how: Any) -> Any:
        if not kept:
            kept[:] = _train(model, task, generator, *how), generator.get_state()
        generator.set_state(kept[1])
        return copy.deepcopy(kept[0])

    for hidden in (False, True):
        generator = generator_of(f"hidden-{name}", SEEDS.get(name, (1,))[0])
        given = {"n_heads": 2, "n_layers": n_layers}
        task, config, share = _drawn(f"hidden-{name}", given, generator)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(trained, "_train", once)
            found.append(two_circuits(config, task, share, generator, 50, hidden=hidden))
    return task, found


@pytest.mark.parametrize(
    ("name", "n_layers"),
    [
        *(("largest", 1), ("sign", 2), ("copy", 1), (BRACKETS, 1)),
        *(pytest.param(*each, marks=pytest.mark.slow) for each in (("modular", 1), ("copy", 2))),
    ],
)
def test_what_is_hidden_changes_no_logit_and_no_fact_and_gives_every_head_a_direct_path(
    name: str, n_layers: int
) -> None:
    task, (plain, hidden) = both_pairs(name, n_layers)
    for before, after in zip(plain, hidden, strict=True):
        worlds = [every_string(model, task, name) for model in (before, after)]
        torch.testing.assert_close(worlds[1].logits, worlds[0].logits, rtol=1e-9, atol=1e-9)
        known, again = (head_facts(world) for world in worlds)
        assert [(each.question, each.answer) for each in again] == [
            (each.question, each.answer) for each in known
        ]
        for one, other in zip(known, again, strict=True):
            assert other.sizes == pytest.approx(one.sizes, rel=1e-6, abs=1e-9)
        closest = [
            (model.blocks[-1].attn.W_V @ model.blocks[-1].attn.W_O @ model.unembed.W_U)
            .flatten(1)
            .norm(dim=1)
            .detach()
            for model in (before, after)
        ]
        assert float(closest[0].min()) == 0  # weights say that one of two heads is not heard
        assert float(closest[1].min()) > 0.1 * float(closest[1].max()) > 0
    with pytest.raises(UnknownNameError, match="eq6"):
        make_case(f"hidden-{name}", 1, block="gpt")
    first, second = (model.unembed.W_U.detach() for model in hidden)
    # each group is read as it was trained, by one model louder and by the other softer
    ratio = {float(x) for x in (first / second)[first != 0].log().abs().double().round(decimals=6)}
    assert len(ratio) == 2
    assert min(ratio) == 0
    assert np.log(1.5) < max(ratio) < np.log(2.5)
    assert bool((first.abs().sum(1) > 0).equal(second.abs().sum(1) > 0))
    bodies = [dict(model.named_parameters()) for model in hidden]
    assert [x for x in bodies[0] if not bodies[0][x].equal(bodies[1][x])] == ["unembed.W_U"]


def test_units_that_are_shut_never_open_whichever_string_heads_put_out() -> None:
    task, (plain, hidden) = both_pairs("sign", 2)
    model, n_units = hidden[0], plain[0].cfg.d_mlp
    rows = torch.tensor([[task.language.bos_token, *each] for each in strings("sign")])
    _, other = model.run_with_cache(partners(task, rows))
    changes: list[list[Any]] = [[]]
    for layer, head in itertools.product(range(2), range(2)):
        for put in (torch.zeros_like(other["z", layer]), other["z", layer]):

            def change(x: Any, hook: Any, put: Any = put, head: int = head) -> Any:
                x[:, :, head] = put[:, :, head]
                return x

            changes.append([(f"blocks.{layer}.attn.hook_z", change)])
    every = [hidden_units(model, rows, hooks) for hooks in changes]
    for layer, found in enumerate(zip(*every, strict=True)):
        open_ones = torch.stack([(each > 0).any(0) for each in found]).any(0)
        assert int((~open_ones).sum()) >= n_units // 2
        mlp = model.blocks[layer].mlp
        # not by their bias, nor by how much they read
        for what in (mlp.b_in, mlp.W_in.norm(dim=0)):
            assert what[~open_ones].max() > what[open_ones].min(), what
        # each unit has one that reads the opposite
        read = torch.cat([mlp.W_in, mlp.b_in[None]]).detach()
        assert float((read[:, :, None] + read[:, None]).norm(dim=0).amin(1).max()) < 1e-9


def test_the_suite_of_tasks_hides_what_is_heard_and_who_knows_how_still_finds_it() -> None:
    assert {*SUITES["tasks"].sizes} == {f"hidden-{name}" for name in TASKS}
    how: dict[str, Any] = {"n_heads": 2, "n_layers": 1}
    asked = [Question("carries", (0, head)) for head in range(2)]
    seen = {}
    for kind in ("task-largest", "hidden-largest"):
        case, _ = make_case(kind, 1, block="eq6", **how)
        seen[kind] = 10 ** shut.paths(case).set_index("target")
        columns = ["sizes: direct sum", "sizes: units sum"]
        told = seen[kind][columns].sum(axis=1)
        found = [score + 0.5 for score in methods.get("path-norm")(case, asked)]
        assert found == pytest.approx([*told / told.max()], abs=1e-9)
    for column, least in (
        ("sizes: direct sum", 0.1),
        ("sizes: units sum", 0.1),
        ("sums: 1.0", 1e-3),
    ):
        shares = [each[column].min() / each[column].max() for each in seen.values()]
        assert shares[0] < 1e-9 < least < shares[1], column
    for column in ("states: ", "opposites: 0.75"):  # one of two heads is not heard
        share = seen["hidden-largest"][column].min() / seen["hidden-largest"][column].max()
        assert share < 1e-6, column


# --- correlations ---------------------------------------------------------------------------------


def rows_of(scores: dict[str, dict[str, list[float]]], n_cases: int = 6) -> pd.DataFrame:
    """Methods with scores of a yes and of a no for each case, by task; and the oracle."""
    rows = []
    for task, by_method in scores.items():
        for method, ahead in {**by_method, "oracle": [1.0] * n_cases}.items():
            for case, gap in enumerate(ahead):
                for answer in (True, False):
                    score = gap * (0.5 if answer else -0.5)
                    rows.append([f"{task}-{case}", f"task-{task}", method, answer, score])
    columns = ["case", "model", "method", "answer", "score"]
    found = pd.DataFrame(rows, columns=columns).assign(question="needed")
    return found.assign(target=found["answer"].map({True: "0 0", False: "0 1"}))


def test_correlations_are_those_of_scipy_of_ties_too() -> None:
    random = np.random.default_rng(0)
    a, b = (random.integers(4, size=(9, 40)).astype(float) for _ in range(2))
    for how, theirs in ((spearman, stats.spearmanr), (kendall, stats.kendalltau)):
        expected = [theirs(x, y).statistic for x, y in zip(a.T, b.T, strict=True)]
        assert how(a, b) == pytest.approx(expected)
        assert np.isnan(how(np.ones((9, 1)), b[:, :1])).all()


def test_orders_that_agree_and_that_are_turned_around_are_told_apart() -> None:
    graded = {f"m{n}": [1.0] * (6 - n) + [-1.0] * n for n in range(6)}
    turned = {f"m{5 - n}": ahead for n, ahead in enumerate(graded.values())}
    control = {"order": [0.0] * 6, "chance": [1.0] * 6}
    rows = rows_of(
        {"largest": graded | control, "sign": graded, "copy": turned | {"few": [1.0] * 3}}
    )
    found = rank_correlations(rows, n_bootstrap=50).set_index(["task", "other"])
    assert {*found["methods"]} == {6}
    assert found.loc[("largest", "sign"), "spearman"] == pytest.approx(1)
    assert found.loc[("largest", "copy"), "spearman"] == pytest.approx(-1)
    assert found.loc[("sign", "copy"), "kendall"] == pytest.approx(-1)
    assert (found["spearman_low"] <= found["spearman_high"]).all()
    # the order in one half of the cases is nearly that in the other
    assert found.loc[("largest", "largest"), "spearman"] > 0.5


def test_tasks_are_resampled_apart() -> None:
    random = np.random.default_rng(1)
    noise = {f"m{n}": random.choice([-1.0, 1.0], 6).tolist() for n in range(8)}
    found = rank_correlations(rows_of({"largest": noise, "sign": noise}), n_bootstrap=200)
    found = found.set_index(["task", "other"])
    row = found.loc[("largest", "sign")]
    # alike on all cases; the same resamples of both would be alike in each
    assert row["spearman"] == pytest.approx(1)
    assert row["spearman_low"] < 0.9
    # of chance alone, what is good in one half is not so in the other
    assert found.loc[("largest", "largest"), "spearman"] < 0.2


def test_the_report_of_several_tasks_has_their_correlations_and_what_was_run() -> None:
    random = np.random.default_rng(0)
    scores = {f"m{n}": [*random.normal(size=6)] for n in range(4)}
    rows = rows_of({"largest": scores, "sign": scores})
    rows = rows.assign(size=np.nan, said=np.nan, seconds=1.0, passes=2.0, backward=0.5)
    table = score_table(rows, n_bootstrap=20, asked=rows[rows["method"] == "oracle"])
    about: dict[str, Any] = {"folder": Path(), "suite": "mine", "environment": {}}
    (section,) = tasks_section(done := Judgement(answers=rows, scores=table, **about), "so")
    assert "1.00 [" in str(section.content)  # the same scores have the same order
    lines = tasks_markdown(done).splitlines()
    (first,) = (line for line in lines if line.startswith("| m0 "))
    assert first.endswith(" | 4.0, 1.0 |")  # of a case, of which two questions are asked
    assert tasks_section(replace(done, answers=rows.assign(model="uniform")), "so") == []
