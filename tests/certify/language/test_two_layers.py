"""Two layers without positions: every profile's least margin, against every prefix run."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import thinned
from tests.certify.language.test_decide import margins, random_model, task_of
from tests.certify.oracles import in_long_double
from tl_dyck.certify.deadline import Deadline
from tl_dyck.certify.exact import walks
from tl_dyck.certify.exact.lower_layer import Below
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import count_paths, emission_costs, live_emissions, sweep
from tl_dyck.certify.exact.search import Search
from tl_dyck.certify.exact.splits import Brancher
from tl_dyck.certify.exact.walks import Walks
from tl_dyck.certify.language import automata, certify_language
from tl_dyck.certify.language.automata import Margins
from tl_dyck.certify.language.questions import ask
from tl_dyck.models import DyckTransformer, construct
from tl_dyck.rnn.export import export_layers
from tl_dyck.tasks import DyckTask, load_task

TASK = load_task("dyck-2-4")

LINEAR: dict[str, Any] = {"mlp": False, "layer_norm": False, "d_model": 8, "n_layers": 2}


def tied(model: DyckTransformer, task: DyckTask, longest: int, by: float = 0.0) -> DyckTransformer:
    """Closing brackets gain what makes the least margin over openings and BOS that of `by`."""
    least = min(margins(model, task, n, "any_token")[1].min() for n in lengths_of(task, longest))
    with torch.no_grad():
        model.unembed.b_U[1 : 2 * task.language.n_types : 2] += by - least
    return model


def lengths_of(task: DyckTask, longest: int) -> list[int]:
    return [n for n in range(1, longest + 1) if task.language.max_depth > 1 or n % 2]


def asked(model: DyckTransformer, task: DyckTask, longest: int, name: str = "any_token") -> Margins:
    paths = ask(model, task, name, longest).paths
    assert paths is not None
    return paths


@pytest.mark.parametrize("embedding", ["token", "onehot", "yao"])
def test_what_the_first_layer_hands_on_follows_from_the_profile(embedding: str) -> None:
    fields = {"embedding": embedding, "n_layers": 2, "n_heads": 2, "d_model": 32, "d_mlp": 9}
    model = random_model("eq6", TASK, seed=0, scale=2.0, **fields)
    first, second = export_layers(model)
    below = Below(Network(first))
    strings = TASK.language.enumerate(6, "prefix")
    tokens = torch.cat([torch.full((len(strings), 1), TASK.language.bos_token), strings], 1)
    states = below.states(tokens)
    with torch.no_grad():
        _, cache = model.run_with_cache(tokens)
        expected = cache["blocks.0.hook_resid_post"].numpy()
        r = first(tokens)
        own = second.readout(r, attend(second, r))
        assert torch.allclose(own, model(tokens), atol=1e-10)
    for position in (0, 1, 4, 6):
        found = below.residual(tokens[:, position].numpy(), states[:, position].numpy())
        assert found.rad.max() < 1e-9
        assert (abs(found.mid - expected[:, position]) <= found.rad + 1e-12).all()
    numbers: dict[Any, set[int]] = {}
    depths = TASK.language.depth(strings)
    for row, (string, depth) in enumerate(zip(strings.tolist(), depths.tolist(), strict=True)):
        symbols = zip(string, depth if embedding != "token" else [0] * 6, strict=True)
        numbers.setdefault(tuple(sorted(symbols)), set()).add(int(states[row, -1]))
    assert all(len(each) == 1 for each in numbers.values())
    assert len(numbers) == len({state for each in numbers.values() for state in each})


def attend(layer: Any, r: torch.Tensor) -> torch.Tensor:
    """Causal attention, position by position."""
    q, k, v = layer.query(r), layer.key(r), layer.value(r)
    score = torch.einsum("bihe,bjhe->bhij", q, k)
    score = score.masked_fill(torch.ones(score.shape[-2:]).triu(1).bool(), -torch.inf)
    return torch.einsum("bhij,bjhe->bihe", score.softmax(-1), v)


def test_the_radius_covers_what_float64_loses() -> None:
    """Against 80-bit floats, with scores so large that rounding shows."""
    model = random_model("gpt", TASK, seed=3, scale=5.0, **LINEAR)
    first = export_layers(model)[0]
    below = Below(Network(first))
    tokens = torch.tensor([[4, 0, 2, 3, 0, 1, 1, 2, 2, 3, 3, 0, 0, 1, 0]])
    states = below.states(tokens)
    found = below.residual(tokens[0].numpy(), states[0].numpy())
    for at in range(tokens.shape[1]):
        exact, _ = in_long_double(first, tokens[0, : at + 1].tolist())
        off = abs(found.mid[at].astype(np.longdouble) - exact)
        assert (off <= found.rad[at]).all()
        assert found.rad[at].max() < 1e-9


@pytest.mark.parametrize(
    ("family", "options"),
    thinned(
        [
            ("gpt", {}),
            ("gpt", {"mlp": False}),
            ("gpt", {"mlp": False, "layer_norm": False, "n_heads": 2}),
            ("minimal-onehot", {"d_model": 50}),
            ("eq49", {"n_heads": 2}),
            ("eq6", {}),
        ]
    ),
)
def test_norms_mlps_and_heads_are_decided_by_bounds_as_by_brute_force(
    family: str, options: dict[str, Any]
) -> None:
    task, longest, decided = task_of(2, 3), 5, 0
    fields = {"n_layers": 2, "d_model": 8, "d_mlp": 6, **options}
    model = tied(random_model(family, task, 0, 1.0, **fields), task, longest, by=0.0)
    for name in ("any_token", "closing_only"):
        paths = asked(model, task, longest, name)
        for n in (2, 4, 5):
            least = margins(model, task, n, name)[1].min()
            found = paths.least(n, Deadline(), decide=False)
            assert found.low <= least + 1e-9
            assert found.high >= least - 1e-9
            decided += found.low > 0 or found.high < 0
    assert decided >= 4  # of 6; the others are ties


def test_parts_are_split_by_profiles_until_each_string_is_alone() -> None:
    """Whatever the strings are split by, each is on exactly one side."""
    task, n = task_of(2, 3), 6
    paths = asked(random_model("gpt", task, 0, **LINEAR), task, n)
    graph = Walks.begin(paths.network, paths.answers.after).graph(paths.answers.answer == 1, n)
    assert graph is not None
    brancher, rng = Brancher(graph), np.random.default_rng(0)
    strings = []
    for group in range(len(graph.groups)):
        waiting = [live_emissions(graph, group, None)]
        while waiting:
            part = waiting.pop()
            halves = brancher.halves(part, rng.normal(size=(len(part), 3)))
            if halves is None:
                nothing = np.zeros((len(graph.symbols.tokens), 1))
                costs = emission_costs(graph, nothing, np.array([group]), part[:, None])
                strings.append(graph.string_of(sweep(graph, costs).paths(np.zeros(1, int))[0]))
                continue
            numbers = [count_paths(graph, np.array([group]), each[:, None]) for each in halves]
            assert min(numbers) > 0
            waiting += [live_emissions(graph, group, each) for each in halves]
    every = task.language.enumerate(n, "prefix")
    top = task.language.top_of_stack(every)[:, -1]
    mine = every[(top >= 0) & (every.gather(1, top.clamp(min=0)[:, None])[:, 0] == 0)]
    assert sorted(strings) == sorted(map(tuple, mine.tolist()))


def test_where_bounds_do_not_settle_a_profile_it_is_split(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is listed, so that every string is in a part with a bound, or alone in one."""
    task, longest, splits = task_of(2, 3), 7, 0
    halves = Brancher.halves

    def counted(self: Brancher, *args: Any) -> Any:
        nonlocal splits
        splits += 1
        return halves(self, *args)

    searched = partial(Search, most_listed=0, always_listed=0)
    monkeypatch.setattr(automata, "Search", searched)
    monkeypatch.setattr(Brancher, "halves", counted)
    fields = {"n_layers": 2, "d_model": 8, "d_mlp": 6, "n_heads": 2}
    model = tied(random_model("gpt", task, 0, 2.0, **fields), task, longest, by=1e-3)
    least = margins(model, task, longest, "any_token")[1].min()
    found = asked(model, task, longest).least(longest, Deadline(), decide=False)
    assert found.low <= least + 1e-9
    assert found.high == pytest.approx(least, abs=1e-3)
    assert found.high - found.low < 1e-3
    assert splits > 10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_near_ties_are_never_decided_wrongly(dtype: torch.dtype) -> None:
    """One type of bracket, so that a bias moves all margins; 3 brackets, as many profiles."""
    task = task_of(1, 3)
    for by in (0.0, 1e-15, -1e-9, 1e-5, -1e-5):
        model = random_model("gpt", task, 0, 2.0, **LINEAR).to(dtype)
        exact = random_model("gpt", task, 0, 2.0, **LINEAR).to(dtype).double()
        with torch.no_grad():
            model.unembed.b_U += tied(exact, task, 6, by).unembed.b_U
            exact.load_state_dict({n: w.double() for n, w in model.state_dict().items()})
        paths = asked(model, task, 6)
        for n in lengths_of(task, 6):
            least = margins(exact, task, n, "any_token")[1].min()
            found = paths.least(n, Deadline(), decide=True)
            assert not (found.low > 0 and least < -1e-14)
            assert not (found.high < 0 and least > 1e-14)
            if abs(least) > 1e-7:
                assert (found.low > 0, found.high < 0) == (least > 0, least < 0)


def test_longer_prefixes_than_are_run_are_proved() -> None:
    model = construct.uniform_attention(TASK.language, first_layer="attention")
    ran = certify_language(model, TASK, 6)
    assert (ran.status, ran.proved_to, ran.method[:8]) == ("proved", 6, "prefixes")
    found = certify_language(model, TASK, 7, most_run=150)
    assert (found.status, found.proved_to) == ("proved", 7)
    assert found.complete
    assert "longer ones as paths of a graph" in found.method
    assert found.margin.high == pytest.approx(ran.margin.high)
    with torch.no_grad():  # its second layer takes one bracket for the other, deep down
        model.blocks[1].attn.W_V[..., 1] *= -1
    broken = certify_language(model, TASK, 7, most_run=150)
    assert broken.status == "refuted"


@pytest.mark.parametrize("limit", ["walks._MOST_PAIRS", "automata._MOST_WEIGHTS"])
def test_what_memory_cannot_hold_is_left_open(limit: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where = {"walks": walks, "automata": automata}[limit.split(".")[0]]
    monkeypatch.setattr(where, limit.split(".")[1], 300)
    model = construct.uniform_attention(TASK.language, first_layer="attention")
    found = certify_language(model, TASK, 11, most_run=100)
    assert found.status == "open"
    assert 3 < found.proved_to < 11
    assert "too many prefixes" in found.reason


def test_a_first_wrong_length_beyond_those_that_are_run_is_found() -> None:
    """A margin that shrinks with length, and the exact length from which on it is negative."""
    task, longest = task_of(1, 2), 12
    model = random_model("gpt", task, 0, 2.0, **LINEAR)
    least = [margins(model, task, n, "any_token")[1].min() for n in range(1, longest + 1)]
    for turn in range(2, longest):
        if min(least[:turn]) > min(least[turn:]) + 1e-6:
            with torch.no_grad():
                shift = -(min(least[:turn]) + min(least[turn:])) / 2
                shifted = random_model("gpt", task, 0, 2.0, **LINEAR)
                shifted.unembed.b_U[1] += shift
            wrong = [n for n in range(1, longest + 1) if least[n - 1] + shift < 0]
            found = certify_language(shifted, task, longest, most_run=10)
            assert found.status == "refuted"
            assert found.proved_to == min(wrong) - 1
            assert found.shortest is not None
            break
    else:
        raise AssertionError("the margin of this model never shrinks")
