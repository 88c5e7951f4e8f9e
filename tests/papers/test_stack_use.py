"""Interventions against slow accounts of their own, and on models whose answer is known."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch

from tests.report.pages import read_page
from tests.test_cli import call
from tl_dyck.models import build_model, construct, get_config
from tl_dyck.models.construct.counters import COUNTERS, counter
from tl_dyck.reading.interventions import align, hide_keys, key_of_one, run
from tl_dyck.report import write_report
from tl_dyck.studies import reproduction
from tl_dyck.studies.reproduction import load_reproduction, reproduce
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck_papers.stack_use import CLAIMS, SCALES, STACK_USE_2026, StackUseScale
from tl_dyck_papers.stack_use import alignment as search_module
from tl_dyck_papers.stack_use import evidence as evidence_module
from tl_dyck_papers.stack_use.alignment import interchange_accuracy, mean_subspace, pairs_of
from tl_dyck_papers.stack_use.controls import KNOWN, counter_alignment
from tl_dyck_papers.stack_use.directions import (
    depth_code,
    depth_effects,
    reading_of,
    sequence_accuracy,
)
from tl_dyck_papers.stack_use.evidence import measured
from tl_dyck_papers.stack_use.masks import FAR, far_answers, mask_effects, random_key
from tl_dyck_papers.stack_use.measure import StackUseMeasurement

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning")

TASK = load_task("dyck-2-4")
LANGUAGE = TASK.language
ONE_TYPE = DyckTask(name="one type", n_types=1, max_depth=4)


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


@pytest.fixture(scope="module")
def far():
    return far_answers(TASK, 200, generator())


# --- masks ----------------------------------------------------------------------------------------


def test_far_answers_and_their_controls(far):
    """Each is what it is called, by a stack that is kept in a loop."""
    assert len(far) > 30
    for row, (tokens, query) in enumerate(
        zip(far.tokens.tolist(), far.query.tolist(), strict=True)
    ):
        stack, depths = [], {}
        for place in range(1, query + 1):
            if tokens[place] % 2 == 0:
                stack.append(place)
                depths[place] = len(stack)
            else:
                stack.pop()
        top, other, twin, any_ = (int(far.keys[k][row]) for k in ("top", "other", "twin", "any"))
        assert top == stack[-1]
        assert far.answer[row] == tokens[query + 1] == tokens[top] + 1
        assert query + 1 - top > FAR
        assert other != top
        assert other in depths
        assert tokens[other] == tokens[top]
        assert 1 <= any_ < query
        assert any_ != top
        twins = [
            p for p in depths if p != top and (tokens[p], depths[p]) == (tokens[top], len(stack))
        ]
        assert twin in (twins or [-1])
    assert 0.5 < far.share <= 1


def test_keys_are_drawn_from_those_allowed():
    allowed = torch.tensor([[False, True, True], [False, False, False]]).expand(500, 2, 3)
    drawn = random_key(allowed, generator())
    assert (drawn[:, 1] == -1).all()
    assert 150 < int((drawn[:, 0] == 1).sum()) < 350
    assert set(drawn[:, 0].tolist()) == {1, 2}


def test_a_parser_needs_the_top_alone(far):
    found = mask_effects(construct.stack(LANGUAGE, n_ctx=64), far)
    assert found["far"] == 1
    assert found["top_all"] < 0.7
    for kind in ("other", "twin", "any"):
        assert found[f"{kind}_all"] == 1
    assert found["every_top"] == found["top_all"]  # one layer: no other query matters


def test_a_counter_needs_twins_as_much(far):
    found = mask_effects(construct.uniform_attention(LANGUAGE, n_ctx=64), far)
    assert found["far"] == 1
    assert found["top_last"] == found["twin_last"] == found["twin_top_last"] == 0
    assert found["other_last"] > 0.6


def test_a_decoy_needs_none(far):
    model = KNOWN["decoy head"](LANGUAGE)
    found = mask_effects(model, far, heads=(model.cfg.n_heads - 1,))
    assert {found[f"{k}_{w}"] for k in far.keys for w in ("all", "first", "last")} == {1.0}


def test_without_positions_the_first_layer_cannot_tell_brackets_of_a_type_apart(far):
    """Masking the top there or another opening bracket of its type gives the same logits."""
    model = build_model(get_config("gpt", TASK, dtype=torch.float64, initializer_range=0.5), seed=2)
    rows, length = torch.arange(len(far)), far.tokens.shape[1]
    top, other = (
        run(model, far.tokens, hide_keys(key_of_one(far.query, far.keys[kind], length), (0,)))
        for kind in ("top", "other")
    )
    assert torch.allclose(top[rows, far.query], other[rows, far.query], rtol=0, atol=1e-9)


# --- directions -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("reads", "after", "reading"),
    [
        ("once", (0, 1, 0), "read alone"),
        ("spare", (1, 0, 0), "not read"),
        ("twice", (1, 1, 0), "redundant"),
    ],
)
def test_counters_read_what_they_are_built_to_read(reads, after, reading):
    model = counter(4, reads)
    found = depth_effects(model, ONE_TYPE, None, 200, generator())
    assert found["sequence"] == 1
    assert found["r2_end"] == pytest.approx(1)
    assert found["rank_end"] == 2
    ablated = [found[f"{kind}_end_sequence"] for kind in ("direction", "rest", "all")]
    assert tuple(ablated) == after
    assert reading_of(1.0, *ablated, 0.1) == reading
    assert abs(found["all_end_r2"]) < 0.01
    tokens = ONE_TYPE.sample(20, generator=generator(1))
    depth = ONE_TYPE.language.depth(tokens)
    _, cache = model.run_with_cache(tokens)
    stream = cache["blocks.0.hook_resid_post"]
    assert torch.equal(stream[..., -2], depth.double())
    assert torch.equal(stream[..., -1], (depth > 0).double())
    assert (stream[..., :-2] == 0).all()


def test_ablations_of_a_direction_and_of_the_rest():
    drawn = generator(4)
    stream = torch.randn(500, 5, generator=drawn, dtype=torch.float64) + 2
    depth = (stream[:, 1] > 2).long() + (stream[:, 1] > 3).long()
    found = depth_code(stream, depth, 3)
    changes = found.changes(drawn)
    gone = changes["direction"](stream)
    u = found.direction
    assert u.norm() == pytest.approx(1)
    assert (gone @ u).std() < 1e-9
    flat = torch.eye(5, dtype=torch.float64) - torch.outer(u, u)
    assert torch.allclose(gone @ flat, stream @ flat)
    rest, erased = changes["rest"](stream), changes["all"](stream)
    assert torch.allclose(rest @ u, stream @ u)
    assert torch.allclose(rest @ flat, erased @ flat)
    along = torch.tensor(np.cov(stream.T.numpy(), depth.numpy(), bias=True)[-1, :-1])
    gone = changes["covariance"](stream)
    assert (gone @ along / along.norm()).std() < 1e-9
    assert np.linalg.matrix_rank((changes["random"](stream) - stream).numpy(), tol=1e-9) == 1


def test_sequences_are_right_if_every_likeliest_token_can_follow():
    strings = ["[()]", "[()]", "[()]", "[[[[]]]]"]
    wanted = ["[()]", "[()]", "[()[", "[[[[]]]]"]
    wrong = {1: (1, ")"), 2: (3, ")")}  # a wrong closing bracket; one more after it all closed
    tokens = torch.full((4, 9), LANGUAGE.bos_token)
    logits = torch.zeros(4, 9, LANGUAGE.d_vocab)
    for row, (text, likeliest) in enumerate(zip(strings, wanted, strict=True)):
        tokens[row, 1 : len(text) + 1] = LANGUAGE.parse(text)
        for place, bracket in enumerate(likeliest):
            if row in wrong and wrong[row][0] == place:
                bracket = wrong[row][1]
            logits[row, place, LANGUAGE.alphabet.index(bracket)] = 1
    right = [sequence_accuracy(logits[i : i + 1], tokens[i : i + 1], TASK) for i in range(4)]
    assert right == [1, 0, 0, 1]
    assert sequence_accuracy(logits, tokens, TASK) == 0.5
    too_deep = logits.clone()
    too_deep[3, 4] = torch.tensor([2.0, 0, 0, 0, 0])
    assert sequence_accuracy(too_deep[3:], tokens[3:], TASK) == 0


def test_every_reading_of_three_ablations():
    assert reading_of(1.0, 0.95, 0.95, 0.95, 0.1) == "unused"
    assert reading_of(1.0, 0.0, 0.0, 0.0, 0.1) == "read with the rest"
    assert reading_of(1.0, 0.0, 1.0, 1.0, 0.1) == "unclear"


# --- interchange ----------------------------------------------------------------------------------


def test_pairs_are_what_they_say_and_balanced():
    pairs = pairs_of(TASK, 64, generator())
    levels = []
    for row in range(64):
        stack = []
        for token in pairs.base[row, 1 : int(pairs.position[row]) + 1].tolist():
            stack = [*stack, token] if token % 2 == 0 else stack[:-1]
        assert len(stack) == 3
        depth = int(LANGUAGE.depth(pairs.source[row])[pairs.source_position[row]])
        assert pairs.answer[row] == stack[depth - 1] + 1
        assert pairs.relabelled[row] == stack[2 - depth] + 1
        assert stack[0] != stack[1]
        levels.append((depth, int(pairs.answer[row]) == stack[2] + 1))
        for tokens, place in ((pairs.base, pairs.position), (pairs.source, pairs.source_position)):
            assert tokens[row, place[row]] % 2 == 1
    assert {levels.count(each) for each in set(levels)} == {16}
    for task in (ONE_TYPE, DyckTask(name="flat", n_types=2, max_depth=3)):
        with pytest.raises(ValueError, match="distributed alignment needs"):
            pairs_of(task, 8, generator())


def test_the_known_subspace_carries_the_depth():
    """Stack attention looks up the depth of its query: the whole stream, or the means' span."""
    pairs = pairs_of(TASK, 64, generator())
    for model in (construct.stack(LANGUAGE, n_ctx=64), build_model(get_config("gpt", TASK))):
        size = model.cfg.d_model
        accuracy = {
            "none": interchange_accuracy(model, pairs, torch.zeros(size, 1), target="answer"),
            "whole": interchange_accuracy(model, pairs, torch.eye(size), target="answer"),
            "means": interchange_accuracy(
                model, pairs, mean_subspace(model, pairs), target="answer"
            ),
            "other": interchange_accuracy(model, pairs, torch.eye(size), target="relabelled"),
        }
        if model.cfg.model_name == "stack":
            assert accuracy == {"none": 0.5, "whole": 1, "means": 1, "other": 0}
        else:
            assert accuracy["whole"] < 0.9


def test_the_search_finds_what_is_read_and_not_what_is_decodable():
    found = {
        reads: counter_alignment(counter(4, reads), ONE_TYPE, 64, generator())
        for reads in ("once", "spare")
    }
    for each in found.values():
        assert each["none"] == 0.5
        assert each["search"] > 0.9
    assert found["once"]["depth"] > 0.8
    assert found["spare"]["sign"] > 0.8


# --- claims ---------------------------------------------------------------------------------------


def test_every_control_of_a_claim_is_known():
    known = {*KNOWN, *(f"counter, {reads}" for reads in COUNTERS), ""}
    for claim in CLAIMS:
        assert {claim.of.get("positive", ""), claim.of.get("negative", "")} <= known
    for scale in SCALES.values():
        assert StackUseScale.from_dict(json.loads(json.dumps(scale.to_dict()))) == scale
    assert SCALES["paper"].seeds == 40


def test_a_reading_names_the_effect_that_the_seeds_see():
    values = np.array([0.1, 0.2, 0.4, 0.7])
    models = pd.DataFrame({"a": [*values, np.nan], "b": 1.0, "group": "gpt", "status": "target"})
    rows = [{"model": "passes", "a": 0.5, "b": 0.25}, {"model": "is not asked", "b": 1.0}]
    evidence = evidence_module.StackUseEvidence(
        folder=Path(), scale=SCALES["quick"], models=models, known=pd.DataFrame(rows)
    )
    found = measured(
        evidence, "gpt", "a", "+.1%", beside={"b": "b"}, positive="passes", negative="is not asked"
    )
    assert (found.estimate.value, found.estimate.n) == (pytest.approx(0.35), 4)
    assert found.reading == "b 100.0%; 4 seeds."
    assert (found.positive, found.negative) == ("+50.0% (passes)", "– (is not asked)")
    nested = measured(evidence, "gpt", [["b", "a"], "a"], "+.1%", positive="passes")
    assert nested.estimate.value == pytest.approx(np.mean(1 - 2 * values))
    assert nested.positive == "-75.0% (passes)"


TINY = StackUseScale(
    name="tiny",
    seeds=2,
    steps=3,
    measurement=StackUseMeasurement(n_accuracy=10, n_far=40, n_depth=20, n_pairs=16),
)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_module, "align", partial(align, steps=2))
        patch.setattr(
            evidence_module, "known_models", lambda _: pd.DataFrame({"model": [*KNOWN, *_COUNTED]})
        )
        folder = tmp_path_factory.mktemp("stack")
        yield reproduce(STACK_USE_2026, TINY, folder, n_jobs=1, progress=False)


_COUNTED = [f"counter, {reads}" for reads in COUNTERS]


def test_a_reproduction_is_kept_and_shown(done):
    assert len(done.claims) == len(CLAIMS)
    assert done.claims["n_seeds"].eq(2).all()
    again = load_reproduction(done.folder)
    pd.testing.assert_frame_equal(again.claims, done.claims)
    path = write_report(again)
    page = read_page(path)
    rows = page.find("section", id="claims")[0].find("tbody")[0].find("tr")
    assert [row.children[6].text for row in rows] == done.claims["verdict"].tolist()
    heads = [cell.text for cell in page.find("section", id="claims")[0].find("th")[:4]]
    assert heads[:4] == ["what the paper says", "should pass", "should fail", "measured"]
    lines = path.with_name("claims.md").read_text(encoding="utf-8").splitlines()
    assert len(lines) == 2 + len(CLAIMS)
    row = done.evidence.models.iloc[0]
    label = json.loads(page.find("script", id="data-plots")[0].text)["masks-0"]["data"][0]
    of_group = done.evidence.of(row["group"])
    assert label["x"][0] == pytest.approx(100 * of_group["mask_far"].mean())


def test_the_command_takes_a_paper(done, monkeypatch):
    asked = {}

    def fake(paper, scale, folder, **how):
        asked.update(paper=paper, scale=scale, folder=folder)
        return done

    monkeypatch.setattr(reproduction, "reproduce", fake)
    result = call("reproduce --paper stack-use-2026 --device cpu")
    assert result.exit_code == 0, result.output
    assert asked == {"paper": "stack-use-2026", "scale": "quick", "folder": None}
    ours = sum(claim.ours for claim in CLAIMS)
    assert f"{len(CLAIMS) - ours} claims: " in result.output
    assert f"; {ours} checks of ours: " in " ".join(result.output.split())
