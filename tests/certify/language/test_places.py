"""Automata that read places in any order, against all strings as they are written."""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Mapping
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.certify.language.test_automata import random_model
from tests.rnn import architectures
from tl_dyck.certify import CertifyError
from tl_dyck.certify.exact import mass
from tl_dyck.certify.exact.loss_counts import Losing
from tl_dyck.certify.language import LanguageCertificate, certify_language, sample_error
from tl_dyck.certify.language.automaton_certificate import count_wrong_strings
from tl_dyck.language import DyckStringError
from tl_dyck.rnn import UnsupportedModelError, export_rnn
from tl_dyck.tasks import AutomatonTask, accuracy_on, addition_task, counted_accuracy
from tl_dyck.tasks.places import prefixes_at

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def strings_of(task: AutomatonTask) -> list[tuple[tuple[int, ...], Any]]:
    """Every string as it is written, with the state that it leaves."""
    read: list[tuple[tuple[int, ...], Any]] = [((), task.start)]
    for _ in task.places or ():
        read = [
            ((*string, task.symbols.index(symbol)), to)
            for string, state in read
            for symbol, to in task.moves(state).items()
        ]
    written = []
    for string, state in read:
        if task.ends is None or task.ends(state):
            by_place = dict(zip(task.places or (), string, strict=True))
            written.append((tuple(by_place[place] for place in range(len(string))), state))
    return written


def prefixes_of(task: AutomatonTask, place: int) -> dict[tuple[int, ...], set[Any]]:
    """Every prefix that ends at a place, and what may be said after it."""
    found: dict[tuple[int, ...], set[Any]] = {}
    for string, state in strings_of(task):
        said = found.setdefault(string[: place + 1], set())
        if task.answer is not None:
            said.add(task.answer(state))
        elif place + 1 < len(string):
            said.add(string[place + 1])
    return found


def known(said: set[Any]) -> int | None:
    """What must be said, if that is known."""
    return next(iter(said)) if len(said) == 1 else None


def brute(model: Any, task: AutomatonTask, place: int, bos: int | None = None) -> np.ndarray:
    """The margin of each prefix of which something is asked."""
    asked = {prefix: known(said) for prefix, said in prefixes_of(task, place).items()}
    rows = [(prefix, said) for prefix, said in asked.items() if said is not None]
    if not rows:
        return np.empty(0)
    tokens = torch.tensor([prefix for prefix, _ in rows])
    if bos is not None:
        tokens = torch.cat([torch.full((len(tokens), 1), bos), tokens], 1)
    with torch.no_grad():
        logits = model(tokens)[:, -1]
    right = torch.tensor([said for _, said in rows])[:, None]
    others = logits.scatter(1, right, -torch.inf).max(1).values
    return (logits.gather(1, right)[:, 0] - others).numpy()


def check(found: LanguageCertificate, model: Any, task: AutomatonTask, **how: Any) -> None:
    """Everything that a certificate of all places asked says, against all strings."""
    rows = {row.length: row for row in found.by_length}
    least = np.inf
    for place in task.asked or ():
        margin = brute(model, task, place, **how)
        if not len(margin):
            assert place + 1 not in rows
            continue
        row, wrong = rows[place + 1], int((margin < 0).sum())
        assert (row.prefixes, row.wrong, row.decided) == (len(margin), wrong, True)
        assert row.margin is not None
        assert row.margin.low == pytest.approx(margin.min(), abs=1e-8)
        assert row.margin.high == pytest.approx(margin.min(), abs=1e-8)
        assert row.worst is not None
        assert row.worst.margin == pytest.approx(margin.min(), abs=1e-8)
        spoken = {
            each: said for each, said in prefixes_of(task, place).items() if known(said) is not None
        }
        prefixes = [*spoken]
        assert margin[prefixes.index(row.worst.tokens)] == pytest.approx(margin.min(), abs=1e-8)
        least = min(least, margin.min())
    assert found.status == ("proved" if least > 0 else "refuted")


def of_table(table: tuple[tuple[int, ...], ...], state: tuple[int, int]) -> Mapping[str, Any]:
    """Moves of a table, [state, symbol], with the number of symbols read; -1 for none."""
    read, at = state
    return {"xyz"[i]: (read + 1, to) for i, to in enumerate(table[at]) if to >= 0}


@st.composite
def placed(draw: Any, *, answers: bool = False) -> dict[str, Any]:
    """Automata of up to three states and symbols, places in any order; as options of a task."""
    states, symbols = draw(st.integers(1, 3)), draw(st.integers(2, 3))
    one = st.integers(-1, states - 1)
    rows = st.lists(one, min_size=symbols, max_size=symbols)
    table = draw(st.lists(rows, min_size=states, max_size=states))
    table[draw(st.integers(0, states - 1))][0] = 0
    table[0][0] = draw(st.integers(0, states - 1))
    for row in table:
        row[0] = max(row[0], 0)  # so that there is a string
    places = draw(st.permutations(range(draw(st.integers(1 + (not answers), 4)))))
    asked = draw(st.none() | st.lists(st.integers(0, len(places) - 1 - (not answers)), min_size=1))
    return dict(  # noqa: C408
        name="random", symbols=[*"xyz"[:symbols]], start=(0, 0),
        moves=partial(of_table, tuple(map(tuple, table))),
        answer=(lambda state: state[1] or None) if answers else None,
        places=places, asked=asked,
    )  # fmt: skip


@settings(deadline=None, max_examples=60)
@given(placed() | placed(answers=True), st.data())
def test_prefixes_are_those_of_all_strings(options: dict[str, Any], data: Any) -> None:
    task = AutomatonTask(**options)
    place = data.draw(st.integers(0, len(task.places or ()) - 1))
    wanted, found = prefixes_of(task, place), prefixes_at(task, place)
    n = len(task.symbols)
    every = np.array([*itertools.product(range(n), repeat=place + 1)])
    states = found.states(every)
    for string, state in zip(map(tuple, every.tolist()), states.tolist(), strict=True):
        if string not in wanted:
            assert state < 0
            continue
        assert found.answer[state] == (
            -1 if known(wanted[string]) is None else known(wanted[string])
        )
        if task.answer is None:
            assert {*np.flatnonzero(found.may[state]).tolist()} == wanted[string]


SHAPES: dict[str, dict[str, Any]] = {
    "positions": {},
    "LN, two heads": {"normalization_type": "LN", "n_heads": 2, "act_fn": "gelu"},
    "linear": {"attn_only": True, "n_heads": 1},
}


@pytest.mark.parametrize("shape", SHAPES)
def test_sums_are_decided_as_by_running_all(shape: str) -> None:
    task = addition_task(1, base=3, least_first="as")
    for seed in range(2):
        model = random_model(task, seed, 0.7, **SHAPES[shape])
        check(certify_language(model, task, until="counted"), model, task)


@pytest.mark.global_rng  # bridges draw weights, which are replaced
@pytest.mark.parametrize(
    ("row", "name"), [("rotary positions", "halves"), ("several of these", "Llama")]
)
def test_positions_of_other_kinds_are_those_of_the_places(row: str, name: str) -> None:
    task = addition_task(1, base=2, least_first="as")
    rnn = export_rnn(architectures.built(row, name, d_vocab=4))
    check(certify_language(rnn, task, until="counted"), rnn, task)


@settings(deadline=None, max_examples=12)
@given(placed(), st.integers(0, 99), st.booleans())
def test_any_order_is_decided_as_by_running_all(
    options: dict[str, Any], seed: int, with_bos: bool
) -> None:
    task = AutomatonTask(**options)
    n = len(task.symbols)
    model = random_model(task, seed, 1.0, d_vocab=n + with_bos, d_vocab_out=n + with_bos)
    spoken = [place for place in task.asked or () if any(
        known(said) is not None for said in prefixes_of(task, place).values()
    )]  # fmt: skip
    if not spoken:
        with pytest.raises(CertifyError, match="says nothing"):
            certify_language(model, task)
        return
    found = certify_language(model, task, until="counted")
    check(found, model, task, bos=n if with_bos else None)


@settings(deadline=None, max_examples=8)
@given(placed(answers=True), st.integers(0, 99))
def test_answers_to_whole_strings_and_to_their_beginnings(
    options: dict[str, Any], seed: int
) -> None:
    task = AutomatonTask(**options)
    model = random_model(task, seed, 1.0, d_vocab_out=4)
    if any(len(brute(model, task, place)) for place in task.asked or ()):
        check(certify_language(model, task, until="counted"), model, task)


def test_from_left_to_right_is_the_same_task_as_without_places() -> None:
    options: dict[str, Any] = {
        "name": "parity", "symbols": ["x", "y"], "start": (0, 0),
        "moves": partial(of_table, ((0, 1), (1, 0))), "answer": lambda state: state[1],
    }  # fmt: skip
    plain = AutomatonTask(**options, train_lengths=(5,), long_lengths=(5, 5))
    placed = AutomatonTask(**options, places=range(5))
    assert placed.asked == (4,)
    model = random_model(plain, 3, 1.0)
    one, other = certify_language(model, plain, [5]), certify_language(model, placed)
    assert one.margin == pytest.approx(other.margin)
    assert (one.wrong, one.prefixes) == (other.wrong, other.prefixes)


def test_what_may_follow_is_decided_where_places_are_in_any_order() -> None:
    task = addition_task(1, base=2, least_first="")
    asked = AutomatonTask(**{**fields(task), "asked": None})  # every place but the last
    for seed in range(2):
        model = random_model(task, seed, 0.5)
        found = certify_language(model, asked, property="allowed", threshold=0.1, until="counted")
        for row in found.by_length:
            after = prefixes_of(asked, row.length - 1)
            with torch.no_grad():
                logits = model(torch.tensor([*after]))[:, -1].numpy() - 0.1
            sign = np.array([[1 if i in may else -1 for i in range(4)] for may in after.values()])
            margin = (logits * sign).min(1)
            assert row.prefixes == len(after)
            assert row.wrong == (margin < 0).sum()
            assert row.margin is not None
            assert row.margin.low == pytest.approx(margin.min(), abs=1e-8)


@pytest.mark.parametrize(
    "shape", [{}, {"normalization_type": "LN", "act_fn": "gelu"}, {"n_heads": 2}], ids=str
)
def test_wrong_sums_are_counted_by_parts_alone(
    shape: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every sum of two digits, of random weights: none is run, and nothing counted along paths."""
    task = addition_task(2, base=3, least_first="s")
    model = random_model(task, 1, 0.5, n_ctx=9, **shape)
    monkeypatch.setattr(mass, "_FEW_STRINGS", 0)
    monkeypatch.setattr(mass, "count_losing", lambda *_: Losing(0, 10**9))
    lengths, mixed = [place + 1 for place in task.asked or ()], 0
    for limit in (None, 100.0, 0.0):
        found = count_wrong_strings(model, task, lengths, limit)
        for length in lengths:
            after = prefixes_of(task, length - 1)
            with torch.no_grad():
                logits = model(torch.tensor([*after]))[:, -1]
            right = torch.tensor([known(said) for said in after.values()])
            wrong = int((logits.argmax(1) != right).sum())
            mixed += 0 < wrong < len(after)
            assert found[length].low <= wrong <= found[length].high
            if limit == 0.0:
                assert found[length] == (0, len(after))
            else:
                assert found[length] == (wrong, wrong)
    assert mixed


def fields(task: AutomatonTask) -> dict[str, Any]:
    """What a task was made of."""
    return {name: getattr(task, name) for name in task.__dataclass_fields__}


def test_strings_are_drawn_judged_and_read_as_they_are_written() -> None:
    task = addition_task(2, ("a", "+", "b", "=", "s", "end"))
    tokens = task.sample(200, seed=3)
    wanted = torch.zeros(12, dtype=torch.bool)
    wanted[7:11] = True  # BOS, "42+53=", the sum, the end
    for row, counted in zip(tokens, task.counted_positions(tokens), strict=True):
        a, _, b, _, total = row[1:3], 0, row[4:6], 0, row[7:10]
        number = [int("".join(map(str, each.tolist()))) for each in (a, b, total.flip(0))]
        assert number[0] + number[1] == number[2]
        assert counted.equal(wanted[: len(counted)])
    assert task.entropy_floor == pytest.approx(4 * np.log(10) / 10)
    assert task.next_token_probs(tokens) is None
    may = task.allowed(tokens)[0].sum(-1).tolist()
    assert may == [10, 10, 1, 10, 10, 1, 1, 1, 1, 1, 0]
    # as many as differ by which digits were drawn
    assert len({tuple(row) for row in tokens.tolist()}) > 150
    assert pickle.loads(pickle.dumps(task)).places == task.places


def test_accuracies_count_the_places_that_are_asked() -> None:
    task = addition_task(1, base=2)

    def right(tokens: torch.Tensor) -> torch.Tensor:
        """Of "a+b=" behind BOS: a + b modulo 2, then whether both are 1."""
        said = torch.zeros_like(tokens)
        for at in (4, 5):
            if tokens.shape[1] > at:
                total = tokens[:, 1] + tokens[:, 3]
                said[:, at] = total % 2 if at == 4 else total // 2
        return 9.0 * torch.nn.functional.one_hot(said, 5).double()

    assert counted_accuracy(task, right, n=20).any_token == 1.0
    strings = [task.language.to_string(row) for row in task.sample(9, seed=0)]
    found = accuracy_on(right, strings, task)
    assert (found.accuracy, found.places) == (1.0, 18)


def test_a_sample_draws_prefixes_alike() -> None:
    task = addition_task(1, base=3, least_first="as")
    model = random_model(task, 1, 0.7)
    exact = certify_language(model, task)
    for row in exact.by_length:
        (found,) = sample_error(model, task, row.length, n=500, seed=1)
        assert found.error.low <= row.error.low <= found.error.high


def test_strings_that_are_none_are_refused() -> None:
    task = addition_task(1)
    with pytest.raises(DyckStringError, match="no prefix of addition-1"):
        task.counted_positions(task.language.tokenize("1+1=30")[None])
    with pytest.raises(DyckStringError, match="have 6 symbols"):
        task.counted_positions(task.language.tokenize("1+1=200")[None])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"places": [0, 0, 1]}, "must name each of 0 to 2 once"),
        ({"places": [0, 2]}, "must name each of 0 to 1 once"),
        ({"places": None}, "asked= is of tasks with places="),
        ({"counted": lambda state, symbol: True}, "said by asked="),
        ({"train_lengths": [4]}, "as many symbols as places, 6"),
        ({"asked": [5]}, "places of 0 to 4"),
        ({"places": []}, "places"),
        ({"ends": lambda state: False}, "no string"),
    ],
)
def test_places_that_do_not_fit_are_refused(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        AutomatonTask(**{**fields(addition_task(1)), **changed})


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((1, "a+b"), "once each"),
        ((1, "aab=s"), "once each"),
        ((0,), "at least 1"),
        ((1, "a+b=s", "as="), "letters of a, b and s"),
        ((1, "a+b=s", "s", 11), "at most 10"),
    ],
)
def test_sums_that_nobody_can_write_are_refused(arguments: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        addition_task(
            *arguments[:2], **dict(zip(("least_first", "base"), arguments[2:], strict=False))
        )


def test_models_that_read_from_left_to_right_alone_are_refused() -> None:
    task = addition_task(1, base=2)
    two = random_model(task, 0, 1.0, n_layers=2)
    with torch.no_grad():
        two.pos_embed.W_pos.zero_()
    with pytest.raises(UnsupportedModelError, match="any order"):
        certify_language(two, task)


def of_residues(n: int, state: tuple[int, int]) -> Mapping[str, tuple[int, int]]:
    """Moves of "a b =", all modulo n."""
    read, total = state
    if read < 2:
        return {str(number): (read + 1, (total + number) % n) for number in range(n)}
    return {"=": (3, total)} if read == 2 else {}


def test_modular_addition_has_numbers_as_symbols() -> None:
    task = AutomatonTask(
        name="mod 11", symbols=[*map(str, range(11)), "="], start=(0, 0),
        moves=partial(of_residues, 11), answer=lambda state: state[1], places=[0, 1, 2],
    )  # fmt: skip
    model = random_model(task, 2, 0.6, d_vocab_out=11)
    found = certify_language(model, task, until="counted")
    check(found, model, task)
    assert found.tightest is not None
    assert task.language.parse(found.tightest.text).tolist() == [*found.tightest.tokens]
