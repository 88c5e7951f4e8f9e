"""Tasks that are no Dyck tasks: the protocol, the automaton, and the three that come along."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from dataclasses import replace

import pytest
import torch

from tl_dyck import (
    AutomatonTask,
    DyckTask,
    TrainConfig,
    load_task,
)

NAMES = ("anbncn", "dyck-1", "shuffle-dyck")
QUICK = TrainConfig(steps=6, batch_size=8, check_every=3, check_size=50, target=None)


def _balanced(text: str, opening: str, closing: str) -> bool:
    """Whether no prefix closes more than it opens."""
    depth = itertools.accumulate((s == opening) - (s == closing) for s in text)
    return min(depth, default=0) >= 0


def _in_language(name: str, text: str) -> bool:
    """Membership, as a mathematician would put it: nothing of an automaton."""
    if name == "anbncn":
        n = len(text) // 3
        return text == "a" * n + "b" * n + "c" * n
    if name == "dyck-1":
        return _balanced(text, "(", ")")
    return _balanced(text, "(", ")") and _balanced(text, "[", "]")


def _weight(name: str, text: str) -> float:
    """The probability of a string among those of its length, up to a factor."""
    if name == "anbncn":
        return 1.0
    weight = 1.0
    for at, symbol in enumerate(text):
        before = text[:at]
        open_types = [a for a, b in (("(", ")"), ("[", "]")) if before.count(a) > before.count(b)]
        if name == "dyck-1":
            weight *= 0.6 if symbol == ")" else 0.4 if open_types else 1.0
        elif symbol in ")]":
            weight *= 0.5 / len(open_types)
        else:
            weight *= (0.5 if open_types else 1.0) / 2
    return weight


def _all_strings(name: str, lengths: tuple[int, ...]) -> dict[str, float]:
    """All strings and their probabilities: a length, each as likely, then a string by weight."""
    found: dict[str, float] = {}
    for length in lengths:
        texts = map("".join, itertools.product(load_task(name).symbols, repeat=length))
        weights = {text: _weight(name, text) for text in texts if _in_language(name, text)}
        total = sum(weights.values())
        found |= {text: weight / total / len(lengths) for text, weight in weights.items()}
    return found


def _short(name: str) -> tuple[AutomatonTask, dict[str, float]]:
    lengths = (3, 6, 9) if name == "anbncn" else (2, 3, 5, 6)
    task = replace(load_task(name), train_lengths=lengths, long_lengths=(6, 9))
    return task, _all_strings(name, lengths)


@pytest.mark.parametrize("name", NAMES)
def test_law_and_floor_are_those_of_all_strings_enumerated(name: str) -> None:
    task, strings = _short(name)
    assert sum(strings.values()) == pytest.approx(1.0)
    following: dict[str, Counter[str]] = {}
    nats = 0.0
    for text, probability in strings.items():
        for at, symbol in enumerate(text):
            following.setdefault(text[:at], Counter())[symbol] += probability
    for prefix, symbols in following.items():
        total = symbols.total()
        wanted = [symbols[symbol] / total for symbol in task.symbols]
        tokens = torch.cat(
            [torch.tensor([task.language.bos_token]), task.language.tokenize(prefix)]
        )
        found = task.next_token_probs(tokens[None])[0, -1]
        assert found[:-1].tolist() == pytest.approx(wanted, abs=1e-12)
        assert found[-1] == 0
        nats -= sum(p * math.log(p / total) for p in symbols.values())
    mean_length = sum(probability * len(text) for text, probability in strings.items())
    assert task.entropy_floor == pytest.approx(nats / mean_length, rel=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_drawn_as_often_as_they_are_likely(name: str) -> None:
    task, strings = _short(name)
    n = 3_000
    drawn = Counter(task.language.to_string(row) for row in task.sample(n, seed=1))
    assert set(drawn) <= set(strings)
    for text, probability in strings.items():
        spread = math.sqrt(n * probability * (1 - probability))
        assert abs(drawn[text] - n * probability) < 5 * spread + 1, text


@pytest.mark.parametrize("name", NAMES)
def test_long_strings_are_of_the_language_and_as_long_as_they_should(name: str) -> None:
    task = load_task(name)
    tokens = task.sample(40, long=True, seed=0)
    texts = [task.language.to_string(row) for row in tokens]
    assert all(_in_language(name, text) for text in texts)
    shortest, longest = task.long_lengths
    assert {len(text) for text in texts} <= set(range(shortest, longest + 1))
    assert len({len(text) for text in texts}) > 3
    assert task.sample(40, long=True, seed=0).equal(tokens)
    assert not task.sample(40, long=True, seed=1).equal(tokens)


def test_a_position_after_which_nothing_follows_has_no_law() -> None:
    task = load_task("anbncn")
    tokens = torch.tensor([[3, *[0] * 10, *[1] * 10, *[2] * 10, 3]])
    assert task.next_token_probs(tokens)[0, -2:].sum() == 0
    with pytest.raises(ValueError, match="position 2 makes it no prefix of anbncn: 'ac'"):
        task.next_token_probs(torch.tensor([[3, 0, 2]]))


def test_counted_positions_by_hand() -> None:
    def counted(name: str, text: str) -> str:
        task = load_task(name)
        tokens = torch.cat([torch.tensor([task.language.bos_token]), task.language.tokenize(text)])
        found = task.counted_positions(tokens[None])[0]
        assert not found[0]
        return "".join("^" if mark else "." for mark in found[1:])

    assert counted("anbncn", "aabbcc") == "...^^^"
    assert counted("dyck-1", "(())()") == "^.^^^^"
    assert counted("shuffle-dyck", "([)](())") == "...^..^^"


def _stack_moves(stack: str) -> dict[str, str]:
    found = {} if len(stack) == 3 else {"[": stack + "]", "(": stack + ")"}
    return found | ({stack[-1]: stack[:-1]} if stack else {})


def _stack_weight(stack: str, symbol: str) -> float:
    opens = 1.0 if not stack else 0.0 if len(stack) == 3 else 0.3
    return opens / 2 if symbol in "[(" else 1 - opens


@pytest.mark.parametrize("mode", ["complete", "prefix"])
def test_an_automaton_with_a_stack_is_the_dyck_task(mode: str) -> None:
    lengths = (2, 4, 10) if mode == "complete" else (1, 4, 9)
    dyck = DyckTask(
        name="d", n_types=2, max_depth=3, q=0.3, mode=mode, train_lengths=lengths,
        long_lengths=(12, 14),
    )  # fmt: skip
    automaton = AutomatonTask(
        name="stack",
        symbols=("[", "]", "(", ")"),
        start="",
        moves=_stack_moves,
        weight=_stack_weight,
        ends=(lambda stack: not stack) if mode == "complete" else None,
        counted=lambda stack, symbol: symbol in "])",
        train_lengths=lengths,
        long_lengths=(12, 14),
    )
    assert automaton.entropy_floor == pytest.approx(dyck.entropy_floor, rel=1e-12)
    for source in (dyck, automaton):
        tokens = source.sample(100, seed=0)
        torch.testing.assert_close(
            automaton.next_token_probs(tokens), dyck.next_token_probs(tokens), rtol=0, atol=1e-12
        )
        assert automaton.counted_positions(tokens).equal(dyck.counted_positions(tokens))


def test_moves_that_change_what_they_returned() -> None:
    """One mapping, filled anew at each call, says what a new one each time would say."""
    one: dict[str, int] = {}

    def moves(n: int) -> dict[str, int]:
        one.clear()
        one.update({"a": n + 1, "b": n + 2} if n < 3 else {"b": 0})
        return one

    kinds = [moves, lambda n: dict(moves(n))]
    shared, fresh = (
        AutomatonTask(
            name="t", symbols=["a", "b"], start=0, moves=each, train_lengths=[4],
            long_lengths=[4, 4],
        )
        for each in kinds
    )  # fmt: skip
    assert shared.to_dict() == fresh.to_dict()
    tokens = fresh.sample(50, seed=0)
    assert shared.allowed(tokens).equal(fresh.allowed(tokens))


def test_what_an_automaton_refuses() -> None:
    def task(**changed: object) -> AutomatonTask:
        given = {
            "name": "t", "symbols": ("a", "b"), "start": 0, "moves": lambda n: {"a": n + 1},
            "train_lengths": (2,), "long_lengths": (3, 4),
        }  # fmt: skip
        return AutomatonTask(**(given | changed))  # type: ignore[arg-type]

    placed: dict[str, object] = {"places": [0], "train_lengths": (), "long_lengths": ()}
    for message, changed in {
        "symbol 'a' is given twice": {"symbols": ("a", "a")},
        "a symbol is the empty string": {"symbols": ("", "a")},
        "the symbol 0; its symbols are 'a', 'b'": {"moves": lambda n: {0: 0}},
        "t has no string of length 1; its places need one": {
            **placed,
            "moves": lambda n: {},
            "answer": lambda n: n,
        },
        "one place, after which no symbol follows; give it an answer=": placed,
        "must be positive and finite": {"weight": lambda n, symbol: 0.0},
        "t has no string of length 2; leave it out": {"ends": lambda n: n % 2},
        "train_lengths must be one to 100,000 lengths, got none": {"train_lengths": ()},
        "a shortest and a longest": {"long_lengths": (4, 3)},
    }.items():
        with pytest.raises(ValueError, match=message):
            task(**changed)
    with pytest.raises(TypeError, match="moves of t fails at 0: ZeroDivisionError: "):
        task(moves=lambda n: {"a": 1 // n})
    with pytest.raises(ValueError, match="more than 100,000 states"):
        task(moves=lambda n: {"a": (n, 0), "b": (n, 1)}, long_lengths=(30, 30)).sample(
            1, long=True, seed=0
        )
    with pytest.raises(ValueError, match="t has no string of 3 to 3 symbols"):
        task(ends=lambda n: n == 2, long_lengths=(3, 3)).sample(1, long=True, seed=0)
    with pytest.raises(ValueError, match="a generator or a seed"):
        task().sample(1)
