"""What a certificate says: of what was done, never more; and what is refused in one line."""

from __future__ import annotations

import json
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.certify.language.test_decide import TASK, margins, random_model, task_of
from tl_dyck.certify import certify
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.language import certify_language, decide
from tl_dyck.certify.language.claims import Agreement, NextToken, Signs
from tl_dyck.certify.language.evaluator import Evaluator
from tl_dyck.certify.language.forms import Form
from tl_dyck.certify.language.profiles import Ending, Profiles
from tl_dyck.certify.language.questions import ask
from tl_dyck.certify.language.tally import JudgedPrefixes, Tally
from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.models import DyckTransformer, build_model, construct, get_config
from tl_dyck.rnn import UnsupportedModelError, export_rnn
from tl_dyck.tasks import DyckTask, load_task

# --- what was run, and what was not ---------------------------------------------------------------


def test_of_a_model_that_is_run_it_is_said_how_far() -> None:
    model = random_model("gpt", TASK, seed=0, n_layers=2)
    found = certify_language(model, TASK, 12, most_run=1_000)
    language = TASK.language
    run, prefixes = 0, 0
    while run + language.count(prefixes, "prefix") <= 1_000:
        run, prefixes = run + language.count(prefixes, "prefix"), prefixes + 1
    longest = prefixes - 1
    every = [margins(model, TASK, n, "any_token")[1] for n in range(1, longest + 1)]
    decided, wrong = sum(map(len, every)), sum(int((each < 0).sum()) for each in every)
    assert (found.prefixes_decided, found.complete) == (decided, False)
    text = " ".join(repr(found).split())
    assert f"every one of lengths 0 to {longest}, {decided:,}; of" in text
    assert f"wrong at least {found.wrong:,} prefixes" in text
    left = sum(not row.decided for row in found.by_length)
    assert wrong < found.wrong <= wrong + left  # of a length that was drawn from, one
    assert "every prefix" not in text
    assert "as computed in float64" in found.method
    assert "prefixes were run: the model has 2 layers" in found.reason
    plain = json.loads(json.dumps(found.to_dict()))
    assert plain["prefixes_decided"] == decided
    assert plain["complete"] is False
    assert plain["wrong"] == found.wrong
    whole = certify_language(model, TASK, 5)
    assert whole.complete
    assert "at least" not in repr(whole)


def test_a_drawn_error_is_one_at_least() -> None:
    model = random_model("gpt-linear", TASK, seed=1, n_layers=1)
    found = certify_language(model, TASK, range(30, 34), most_run=0)
    assert (found.status, found.is_likeliest) == ("refuted", False)
    assert found.likeliest is not None
    assert 30 <= len(found.likeliest.tokens) < 34
    assert TASK.language.is_prefix(torch.tensor(found.likeliest.tokens))
    rows = {row.length: row for row in found.by_length}
    assert rows[len(found.likeliest.tokens)].wrong == 1
    assert found.wrong >= 1
    assert "none decided; of" in repr(found)
    assert found.shortest is not None
    assert found.is_shortest == (len(found.shortest.tokens) == 30)  # none that was asked is shorter


# --- doubts ---------------------------------------------------------------------------------------


def nearly_tied() -> tuple[DyckTransformer, DyckTask]:
    """After ``[`` the margin is -1e-13, which rounding may hide."""
    task = load_task("dyck-2-3")
    model = random_model("minimal-onehot", task, seed=9, scale=1.0)
    for _ in range(3):
        strings, margin, _, _ = margins(model, task, 1, "any_token")
        index = strings[:, 0].tolist().index(0)
        with torch.no_grad():
            model.unembed.b_U[1] -= margin[index] + 1e-13
    return model, task


@pytest.mark.parametrize("until", ["counted", "likeliest"])
def test_what_is_doubtful_may_be_the_likeliest_error(until: str) -> None:
    model, task = nearly_tied()
    found = certify_language(model, task, 4, until=until)
    _, margin, mass, _ = margins(model, task, 1, "any_token")
    assert abs(margin).min() < 1e-11
    assert not {row.length: row for row in found.by_length}[1].decided
    wrong = [
        (float(mass), n)
        for n in range(1, 5)
        for margin, mass in zip(*margins(model, task, n, "any_token")[1:3], strict=True)
        if margin < -1e-9
    ]
    assert found.likeliest is not None
    assert found.likeliest.probability == pytest.approx(max(wrong)[0])
    assert max(wrong)[0] < float(mass.max())
    assert not found.is_likeliest
    assert not found.is_shortest
    assert "an error" in repr(found)
    assert "likeliest error" not in repr(found)
    assert all(row.decided for row in found.by_length if row.length > 1)  # it went on


DEEP = DyckTask(name="flat", n_types=1, max_depth=2, q=1e-4, long_lengths=(40, 41))


def unlikely(monkeypatch: pytest.MonkeyPatch, margin: float) -> Any:
    """A margin within 0.1 of the truth at ``[[][]…[]`` of 201 brackets, of probability 10⁻⁴⁰⁰."""

    def margins_of(self: Evaluator, ending: Ending, block: Any) -> Any:
        here = (block[:, 1] == 100) & (ending == Ending((0,), 0))
        return np.where(here, margin, 1.0), np.full(len(block), 0.1)

    monkeypatch.setattr(Evaluator, "margins", margins_of)
    model = construct.uniform_attention(DEEP.language, n_ctx=256)
    return certify_language(model, DEEP, [201])


def test_a_doubt_of_vanishing_probability_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = unlikely(monkeypatch, -0.01)
    (row,) = found.by_length
    assert found.status == "open"
    assert (row.decided, row.wrong) == (False, 0)
    assert (row.error.low, row.error.high) == (0.0, math.ulp(0.0))
    assert not row.error.exact
    assert found.proved_to == -1


def test_an_error_of_vanishing_probability_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    found = unlikely(monkeypatch, -1.0)
    (row,) = found.by_length
    assert (row.decided, row.wrong) == (True, 1)  # one string has this profile
    assert (row.error.low, row.error.high) == (0.0, math.ulp(0.0))
    assert found.shortest is not None
    assert found.shortest.text == "[" + "[]" * 100
    assert found.shortest.probability == 0
    # 100 brackets open at depth 1 and close at depth 2, where that is certain; see the definition
    expected = DEEP.distribution.log_prob(torch.tensor(found.shortest.tokens))
    assert found.shortest.log_probability == pytest.approx(float(expected))
    assert "probability 10^-400.0" in repr(found)


def test_a_tally_counts_in_integers_and_logs() -> None:
    """Of numbers beyond float64, against integers and fractions."""
    tally = Tally(5, 0)
    counts = [10**400, 3, 7 * 10**200]
    log_count = np.array([math.log(n) for n in counts])
    log_string = np.array([-2000.0, -1500.0, -1400.0])

    def judged(lengths: Any, weigh: Any) -> JudgedPrefixes:
        def of(at: Any) -> Any:
            return np.array(lengths)[at], *weigh(at)

        nothing, rows = Ending((), None), np.zeros((3, 1), dtype=np.int16)
        return JudgedPrefixes(nothing, -np.ones(3), np.zeros(3), rows, "pairs", of)

    for _ in range(2):
        tally.take(judged([4, 4, 5], lambda at: (log_string[at], log_count[at])))
    assert tally.wrong.strings[4, 0] / (2 * (counts[0] + counts[1])) == pytest.approx(1, rel=1e-10)
    assert tally.wrong.strings[5, 0] / (2 * counts[2]) == pytest.approx(1, rel=1e-10)
    assert tally.wrong.log_mass[4, 0] == pytest.approx(math.log(2) - 2000 + 400 * math.log(10))
    few = Tally(2, 0)
    few.take(judged([2, 2, 2], lambda at: (at * 0.0, np.log(at + 1))))
    assert few.wrong.strings[2, 0] == 6
    assert few.doubtful.strings[2, 0] == 0


def test_what_cannot_be_computed_is_a_doubt() -> None:
    """A model that returns NaN is not right."""
    model = random_model("gpt", TASK, seed=0, n_layers=2)
    with torch.no_grad():
        model.unembed.b_U[:] = torch.nan
    found = certify_language(model, TASK, 3)
    assert (found.status, found.wrong) == ("open", 0)
    assert all(row.error == (0, 1) for row in found.by_length)


# --- models as they come --------------------------------------------------------------------------


@pytest.mark.parametrize("cast", ["double", "float"])
def test_a_model_that_was_cast_is_decided_in_what_it_was_cast_to(cast: str) -> None:
    start, end = torch.float32, torch.float64
    if cast == "float":
        start, end = end, start
    wanted = certify_language(construct.balanced(TASK.language).to(start).to(end), TASK, 8)
    model = construct.balanced(TASK.language).to(start)
    found = certify_language(getattr(model, cast)(), TASK, 8)
    assert (found.status, found.proved_to) == (wanted.status, 8) == ("proved", 8)
    assert found.method == wanted.method


@pytest.mark.parametrize("layers", [1, 2])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_refused_by_name(dtype: torch.dtype, layers: int) -> None:
    model = build_model(get_config("eq6", TASK, n_layers=layers, device="cpu"), 0).to(dtype)
    with pytest.raises(UnsupportedModelError, match=f"weights are {dtype}, and only float32"):
        certify_language(model, TASK, 4)


@pytest.mark.parametrize(
    "ask_it",
    [
        lambda model: certify_language(model, TASK, 4),
        lambda model: certify(model, "[()[]", "]", "pairs:1"),
        export_rnn,
    ],
    ids=["certify_language", "certify", "export_rnn"],
)
@pytest.mark.parametrize(
    ("wrap", "message"),
    [
        (lambda model: nn.DataParallel(model), "DataParallel is not a HookedTransformer.*module"),
        (lambda model: nn.Sequential(model), "Sequential is not a HookedTransformer"),
        (lambda model: nn.Module.to(model, "meta"), "on device meta"),
        (lambda model: nn.Module.half(model), "weights are torch.float16"),
    ],
    ids=["DataParallel", "Sequential", "meta", "half"],
)
def test_what_is_no_model_is_said_in_one_line(ask_it: Any, wrap: Any, message: str) -> None:
    model = construct.uniform_attention(TASK.language)
    with pytest.raises(UnsupportedModelError, match=message):
        ask_it(wrap(model))
    with pytest.raises(TypeError, match=r"model\w* must be a (model|Module), got 3 \(int\)"):
        ask_it(3)


# --- arguments and limits -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"lengths": 10**9}, "lengths must be at most 1000, got 1000000000"),
        ({"lengths": range(10**12)}, "lengths must be at most 1,000,000, got"),
        ({"lengths": range(-3, 2)}, "lengths must be at least 0"),
        (
            {"lengths": 4.0},
            "a collection of integers or None, got 4.0",
        ),
        (
            {"lengths": "6"},
            "a collection of integers or None, got '6'",
        ),
        ({"time_limit": math.nan}, "time_limit must be a finite number of seconds"),
        ({"n_jobs": 0}, "n_jobs must be at least 1"),
        ({"most_run": -1}, "most_run must be at least 0"),
        ({"property": "head", "head": "0"}, "head must be an integer"),
        ({"property": "kl", "epsilon": math.nan}, "epsilon must be finite"),
        ({"property": "any_token", "epsilon": 0.1}, "has no epsilon"),
        ({"lengths": []}, "lengths must be"),
        ({"lengths": 512}, "ask for lengths up to 511"),
        ({"property": "kl"}, "needs epsilon"),
        ({"property": "agree"}, "give other="),
        ({"property": "head", "head": 1}, r"head must be one of 0\.\.0"),
        ({"property": "anytoken"}, "any_token"),
    ],
)
def test_arguments_are_checked_first(options: dict[str, Any], message: str) -> None:
    model = construct.uniform_attention(TASK.language, n_ctx=512)
    with pytest.raises((ValueError, TypeError), match=message):
        certify_language(model, TASK, **({"lengths": np.int64(4)} | options))


@pytest.mark.parametrize("name", ["any_token", "kl"])
@pytest.mark.parametrize("lengths", [8, range(40, 45)])
def test_time_is_looked_at_however_many_stacks_there_are(
    lengths: Any, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 15⁷ stacks, each with a form of its own, none is made once time is up."""
    task = DyckTask(name="wide", n_types=15, max_depth=7, long_lengths=(40, 41))
    model = build_model(
        get_config("figure2-yao", task, n_layers=1, d_model=33, d_mlp=4, n_ctx=64, device="cpu"), 0
    )
    made, clock = [], [0.0]
    plain = Form.__init__

    def make(self: Form, *arguments: Any) -> None:
        made.append(1)
        clock[0] += 1.0
        plain(self, *arguments)

    def now() -> float:
        clock[0] += 1.0
        return clock[0]

    monkeypatch.setattr(Form, "__init__", make)
    monkeypatch.setattr("tl_dyck.certify.deadline.now", now)
    epsilon = 0.1 if name == "kl" else None
    found = certify_language(model, task, lengths, name, epsilon=epsilon, time_limit=20)
    assert not found.complete
    assert len(made) <= 24


# --- soundness of what is computed ----------------------------------------------------------------


def test_an_error_is_that_of_the_worst_objective() -> None:
    """Errors that differ by column: the largest one counts."""
    law = DyckDistribution(DyckLanguage(2, 4))
    values, ones = np.array([[3.0, 2.0, 0.0, 0.0, 0.0]]), np.array([[1.0, 0.0]])
    error = np.array([[0.1, 0.1, 0.1, 0.1, 0.6]])
    same = (values, np.full((1, 1), 0.01), ones)
    ending = Ending((0,), None)
    assert np.isinf(Agreement("agree").margins(ending, [(values, error, ones), same])[1])
    assert np.isinf(Agreement("agree").margins(ending, [same, (values, error, ones)])[1])
    assert Agreement("agree").margins(ending, [same, same])[1] == 0
    claim = Signs("any_token", law.language)
    assert claim.margins(ending, [(values[:, :4], error[:, 1:], ones)])[1] == 0.6
    for name in ("kl", "total_variation"):
        _, off = NextToken(name, law, 0.5).margins(ending, [(values, error, ones)])
        assert off >= np.expm1(2 * 2 * 0.6)
        ten = np.array([[1.0, 0.1]])  # a factor that is off by a tenth: so is a logit, of 3
        _, more = NextToken(name, law, 0.5).margins(ending, [(values, error, ten)])
        assert more >= np.expm1(2 * 2 * (0.6 + 0.3))


def test_what_is_sought_is_wrong_for_certain() -> None:
    """Of one type every prefix is a tie: drawn ones too are doubtful, and none is wrong."""
    task = task_of(1, 3)
    model = construct.uniform_attention(task.language)
    found = certify_language(model, task, range(29, 33), until="refuted", time_limit=5)
    assert (found.status, found.likeliest, found.wrong) == ("open", None, 0)
    asked, tally = ask(model, task, "any_token", 31), Tally(31, 3)
    decide.seek(asked, [30, 31], tally, Deadline())
    assert tally.wrong.likeliest is None
    assert tally.tightest is None


@pytest.mark.parametrize(("k", "deepest", "q"), [(2, 3, 0.3), (1, 2, 0.9), (3, 1, 0.5)])
def test_the_likeliest_prefix_is_that_of_all(k: int, deepest: int, q: float) -> None:
    law = DyckDistribution(DyckLanguage(k, deepest), q)
    best = {n: float(law.log_prob(law.language.enumerate(n, "prefix")).max()) for n in range(1, 8)}
    for lengths in ([3], [2, 7], [5, 6]):
        expected = max(best[n] for n in lengths)
        assert Profiles(law).best_log_string(lengths) == pytest.approx(expected)
    assert Profiles(law).best_log_string([]) == -math.inf
    assert Profiles(law).best_log_string([0, 5]) == 0
