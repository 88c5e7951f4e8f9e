"""Tasks: what is drawn against all strings counted, the metric against a loop over prefixes."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
import weakref
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.registry import RegistryError, UnknownNameError
from tl_dyck.tasks import ClosingAccuracy, DyckTask, list_tasks, load_task, tasks


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


# --- the distribution, string by string -----------------------------------------------------------


def prefixes(task: DyckTask, length: int) -> dict[tuple[int, ...], float]:
    """Every prefix of a length and its probability under D(q, k, D), grown bracket by bracket."""
    found = {(): (1.0, ())}
    for _ in range(length):
        longer = {}
        for string, (p, stack) in found.items():
            opening = 1.0 if not stack else 0.0 if len(stack) == task.max_depth else task.q
            for kind in range(task.n_types):
                if opening:
                    longer[(*string, 2 * kind)] = (p * opening / task.n_types, (*stack, kind))
            if opening < 1:
                longer[(*string, 2 * stack[-1] + 1)] = (p * (1 - opening), stack[:-1])
        found = longer
    return {string: p for string, (p, _) in found.items()}


def normalised(weights: dict) -> dict:
    total = sum(weights.values())
    return {key: value / total for key, value in weights.items()}


def strings_of_length(task: DyckTask, length: int) -> dict[tuple[int, ...], float]:
    found = prefixes(task, length)
    if task.mode == "complete":
        found = {
            string: p for string, p in found.items() if 2 * sum(t % 2 for t in string) == length
        }
    return normalised(found)


def training_strings(task: DyckTask) -> dict[tuple[int, ...], float]:
    mixture: Counter = Counter()
    for length in task.train_lengths:
        for string, p in strings_of_length(task, length).items():
            mixture[string] += p / len(task.train_lengths)
    return mixture


def closing_prefixes(task: DyckTask, *, long: bool) -> dict[tuple[int, ...], float]:
    """What `sample_closing` should draw."""
    mixture: Counter = Counter()
    if task.mode == "complete" and not long:
        for string, p in training_strings(task).items():
            ends = [i for i, token in enumerate(string) if token % 2]
            for end in ends:
                mixture[string[: end + 1]] += p / len(ends)
        return mixture
    lengths = range(task.long_lengths[0], task.long_lengths[1] + 1) if long else task.train_lengths
    each = []
    for length in lengths:
        found = {string: p for string, p in prefixes(task, length).items() if string[-1] % 2}
        if found:
            each.append(normalised(found))
    for found in each:
        for string, p in found.items():
            mixture[string] += p / len(each)
    return mixture


def agree(drawn: list[tuple[int, ...]], expected: dict[tuple[int, ...], float]) -> None:
    """Frequencies within five standard deviations of probabilities, and nothing impossible."""
    counts, n = Counter(drawn), len(drawn)
    assert set(counts) <= set(expected)
    assert sum(expected.values()) == pytest.approx(1)
    for string, p in expected.items():
        assert abs(counts[string] - n * p) < 5 * math.sqrt(n * p) + 1, (
            string,
            counts[string],
            n * p,
        )


SMALL = [
    DyckTask(name="a", n_types=2, max_depth=2, train_lengths=(2, 4), long_lengths=(2, 5)),
    DyckTask(name="b", n_types=1, max_depth=3, q=0.3, train_lengths=(6,), long_lengths=(3, 6)),
    DyckTask(name="c", n_types=1, max_depth=1, train_lengths=(2, 6), long_lengths=(4, 7)),
    DyckTask(
        name="d",
        n_types=2,
        max_depth=2,
        mode="prefix",
        train_lengths=(1, 2, 3, 4),
        long_lengths=(4, 4),
    ),
    DyckTask(
        name="e",
        n_types=3,
        max_depth=4,
        mode="prefix",
        q=0.8,
        train_lengths=(3, 1),
        long_lengths=(2, 3),
    ),
]


@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.name)
def test_training_strings_come_from_the_exact_distribution(task):
    tokens = task.sample(8000, generator=seeded())
    bos = task.language.bos_token
    assert tokens.dtype == torch.int64
    assert (tokens[:, 0] == bos).all()
    assert tokens.shape[1] == 1 + max(task.train_lengths)
    strings = []
    for row in tokens[:, 1:].tolist():
        length = len([token for token in row if token != bos])
        assert row[length:] == [bos] * (len(row) - length)
        strings.append(tuple(row[:length]))
    agree(strings, training_strings(task))
    lengths = Counter(map(len, strings))
    for length in task.train_lengths:
        assert abs(lengths[length] - 8000 / len(task.train_lengths)) < 5 * math.sqrt(
            8000 / len(task.train_lengths)
        )


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("task", SMALL, ids=lambda task: task.name)
def test_prefixes_that_end_with_a_close_come_from_the_exact_distribution(task, long):
    tokens, last = task.sample_closing(8000, long=long, generator=seeded(1))
    bos = task.language.bos_token
    drawn = []
    for row, end in zip(tokens.tolist(), last.tolist(), strict=True):
        assert row[0] == bos
        assert row[end] % 2 == 1
        assert row[end + 1 :] == [bos] * (len(row) - end - 1)  # the rest of the string is not shown
        drawn.append(tuple(row[1 : end + 1]))
    agree(drawn, closing_prefixes(task, long=long))


def test_the_same_generator_state_gives_the_same_strings():
    task = load_task("dyck-2-4")
    for draw in (
        lambda g: task.sample(50, generator=g),
        lambda g: task.sample_closing(50, generator=g)[0],
        lambda g: task.sample_closing(20, long=True, generator=g)[0],
    ):
        assert torch.equal(draw(seeded(3)), draw(seeded(3)))
        generator = seeded(3)
        first, second = draw(generator), draw(generator)
        assert first.shape != second.shape or not torch.equal(first, second)


def test_long_prefixes_have_every_length():
    task = load_task("dyck-2-4")
    tokens, last = task.sample_closing(3000, long=True, generator=seeded())
    counts = Counter(last.tolist())
    assert set(counts) == set(range(400, 501))
    assert max(counts.values()) < 3000 / 101 + 6 * math.sqrt(3000 / 101)
    assert bool(task.language.is_prefix(tokens).all())


# --- the metric -----------------------------------------------------------------------------------


class Noise:
    """A causal "model" with random logits that depend on every token so far, and nothing else."""

    def __init__(self, d_vocab: int, seed: int) -> None:
        self.table = torch.randn(40, d_vocab, d_vocab, generator=seeded(seed), dtype=torch.float64)
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, tokens: torch.Tensor, /) -> torch.Tensor:
        self.shapes.append(tuple(tokens.shape))
        return self.table[torch.arange(tokens.shape[1]) % 40, tokens].cumsum(1)


def by_hand(task: DyckTask, model, n: int, long: bool, seed: int) -> tuple[float, float]:
    """The metric, one prefix at a time, the right bracket found with a stack."""
    tokens, last = task.sample_closing(n, long=long, generator=seeded(seed))
    any_token = closing_only = 0
    for row, end in zip(tokens, last.tolist(), strict=True):
        stack = []
        for token in row[1:end].tolist():
            stack.append(token) if token % 2 == 0 else stack.pop()
        right = stack[-1] + 1
        assert right == row[end]
        logits = model(row[None, :end])[0, -1].tolist()
        any_token += max(range(len(logits)), key=logits.__getitem__) == right
        closing_only += max(range(1, 2 * task.n_types, 2), key=logits.__getitem__) == right
    return any_token / n, closing_only / n


@settings(max_examples=25)
@given(
    task=st.sampled_from([*SMALL, load_task("dyck-2-4"), load_task("dyck-3-8-prefix")]),
    seed=st.integers(0, 1000),
    n=st.integers(1, 60),
    chunk=st.integers(1, 70),
    long=st.booleans(),
)
def test_metric_by_hand(task, seed, n, chunk, long):
    model = Noise(task.language.d_vocab, seed)
    found = task.closing_accuracy(model, n=n, long=long, seed=seed, chunk=chunk)
    assert all(rows <= chunk for rows, _ in model.shapes)
    assert found.n == n == sum(rows for rows, _ in model.shapes)
    assert (found.any_token, found.closing_only) == pytest.approx(
        by_hand(task, model, n, long, seed)
    )


def exact_model(task: DyckTask):
    """The best possible model of prefixes: exact log-probabilities of the next token."""

    def logits(tokens: torch.Tensor, /) -> torch.Tensor:
        return task.distribution.next_token_probs(tokens).log()

    return logits


@pytest.mark.parametrize("long", [False, True])
@pytest.mark.parametrize("name", ["dyck-2-4", "dyck-3-8", "dyck-2-8-prefix"])
def test_the_exact_model(name, long):
    """With q = 1/2 a close is likelier than each kind of open, so both readings are 1."""
    task = load_task(name)
    accuracy = task.closing_accuracy(exact_model(task), n=150, long=long)
    assert accuracy == ClosingAccuracy(any_token=1.0, closing_only=1.0, n=150)


def test_the_two_readings_differ_where_opens_are_likelier():
    """With q = 0.9 the exact model expects opens where allowed; it still knows the right close."""
    task = DyckTask(name="opens", n_types=2, max_depth=3, q=0.9, train_lengths=(8, 10))
    accuracy = task.closing_accuracy(exact_model(task), n=400, seed=5)
    tokens, last = task.sample_closing(400, generator=seeded(5))
    before = task.language.depth(tokens).gather(1, last[:, None] - 1)[:, 0]
    assert accuracy.closing_only == 1.0
    assert accuracy.any_token == pytest.approx((before == 3).double().mean().item())
    assert 0.05 < accuracy.any_token < 0.95


def test_a_constant_and_an_adversarial_model():
    task = load_task("dyck-2-4")

    def constant(tokens: torch.Tensor, /) -> torch.Tensor:
        return torch.zeros(*tokens.shape, 5)

    accuracy = task.closing_accuracy(constant, n=2000)
    assert accuracy.any_token == 0  # of equal logits the first counts: an open
    assert accuracy.closing_only == pytest.approx(0.5, abs=5 * (0.25 / 2000) ** 0.5)

    def always_one_close(tokens: torch.Tensor, /) -> torch.Tensor:
        return constant(tokens) + torch.tensor([0.0, 0, 0, 9, 0])

    accuracy = task.closing_accuracy(always_one_close, n=2000)
    assert (
        accuracy.any_token
        == accuracy.closing_only
        == pytest.approx(0.5, abs=5 * (0.25 / 2000) ** 0.5)
    )
    exact = exact_model(task)

    def contrary(tokens: torch.Tensor, /) -> torch.Tensor:
        return -exact(tokens)

    assert task.closing_accuracy(contrary, n=100) == ClosingAccuracy(
        any_token=0.0, closing_only=0.0, n=100
    )


def test_a_model_cannot_peek():
    """The bracket in question and what follows are hidden, even from a model that looks ahead."""
    task = load_task("dyck-2-4")

    def peek(tokens: torch.Tensor, /) -> torch.Tensor:
        following = torch.cat([tokens[:, 1:], torch.full_like(tokens[:, :1], 4)], dim=1)
        return torch.nn.functional.one_hot(following, 5).double()

    accuracy = task.closing_accuracy(peek, n=300)
    assert accuracy.any_token == 0


def test_test_data_depend_on_the_seed_alone():
    task = load_task("dyck-2-4")
    model = Noise(5, 0)
    assert task.closing_accuracy(model, n=80, seed=3) == task.closing_accuracy(
        model, n=80, seed=3, chunk=7
    )
    values = {task.closing_accuracy(model, n=80, seed=seed).any_token for seed in range(6)}
    assert len(values) > 1


def test_the_metric_keeps_the_logits_of_one_chunk():
    """However many prefixes: the model's earlier returns are let go of, with views of them."""
    task = load_task("dyck-2-4")
    returned: list[weakref.ref] = []
    alive = []

    def model(tokens: torch.Tensor, /) -> torch.Tensor:
        alive.append(sum(ref() is not None for ref in returned))
        logits = np.zeros((*tokens.shape, 5))
        returned.append(weakref.ref(logits))
        return torch.from_numpy(logits)  # lives as long as any tensor that shares its memory

    task.closing_accuracy(model, n=60, long=True, chunk=10)
    assert alive == [0, 1, 1, 1, 1, 1]


def test_the_metric_keeps_no_gradients():
    task = load_task("dyck-2-4")
    weight = torch.ones(5, 5, requires_grad=True)
    seen = []

    def model(tokens: torch.Tensor, /) -> torch.Tensor:
        seen.append((weight * 2)[tokens].requires_grad)
        return weight[tokens]

    task.closing_accuracy(model, n=10)
    assert seen == [False]


# --- tasks as values ------------------------------------------------------------------------------


def test_the_named_tasks():
    assert list_tasks() == sorted(
        f"dyck-{k}-{d}{mode}" for k in (2, 3) for d in (4, 8) for mode in ("", "-prefix")
    )
    for name in list_tasks():
        task = load_task(name)
        k, depth = int(name[5]), int(name[7])
        mode = "prefix" if name.endswith("prefix") else "complete"
        assert (task.name, task.n_types, task.max_depth, task.q, task.mode) == (
            name,
            k,
            depth,
            0.5,
            mode,
        )
        assert max(task.train_lengths) < 28  # spec §1: training lengths < 28, long ones 400 to 500
        assert task.train_lengths == (
            tuple(range(2, 28, 2)) if mode == "complete" else tuple(range(1, 28))
        )
        assert (task.long_lengths, task.max_length) == ((400, 500), 500)
        assert (task.language.n_types, task.language.max_depth, task.distribution.q) == (
            k,
            depth,
            0.5,
        )
        assert task.entropy_floor == task.distribution.entropy_floor(task.train_lengths, mode)
        assert 0.3 < task.entropy_floor < 2
        assert str(k) in tasks.summary(name)


def test_the_entropy_floor_by_hand():
    """Lengths 2 and 4, D = 1: only types are free, one in two brackets; the floor is half log k."""
    task = DyckTask(name="flat", n_types=3, max_depth=1, train_lengths=(2, 4))
    assert task.entropy_floor == pytest.approx(math.log(3) / 2)


@given(
    values=st.fixed_dictionaries(
        {
            "name": st.text(min_size=1),
            "n_types": st.integers(1, 3),
            "max_depth": st.integers(1, 5),
            "q": st.floats(0.01, 0.99),
            "mode": st.sampled_from(["complete", "prefix"]),
            "train_lengths": st.lists(
                st.integers(1, 20).map(lambda n: 2 * n), min_size=1, max_size=4
            ),
            "long_lengths": st.tuples(st.integers(2, 9), st.integers(10, 20)),
        }
    )
)
def test_json_round_trip(values):
    task = DyckTask(**values)
    twin = DyckTask(**json.loads(json.dumps(task.to_dict())))
    assert twin == task
    assert hash(twin) == hash(task)
    assert twin.language == task.language
    assert twin.distribution == task.distribution
    assert pickle.loads(pickle.dumps(task)) == task
    assert {task: 1}[twin] == 1
    assert dataclasses.replace(task, name="other") != task


def test_own_brackets():
    task = DyckTask(name="words", n_types=1, max_depth=2, brackets=["begin ", "end "])
    assert task.brackets == task.language.alphabet == ("begin ", "end ")
    assert DyckTask(**task.to_dict()) == task


def test_tasks_are_frozen():
    task = load_task("dyck-2-4")
    with pytest.raises(dataclasses.FrozenInstanceError):
        task.q = 0.1
    with pytest.raises(TypeError):
        DyckTask("x", 2, 4)
    with pytest.raises(TypeError, match="depth"):
        DyckTask(name="x", n_types=2, depth=4)
    assert repr(task).startswith(
        "DyckTask(name='dyck-2-4', n_types=2, max_depth=4, q=0.5, mode='complete'"
    )


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "complet"}, r"unknown mode 'complet'\. Did you mean 'complete'"),
        ({"train_lengths": ()}, "train_lengths is empty"),
        ({"train_lengths": (0, 2)}, "a length must be at least 1, got 0"),
        (
            {"train_lengths": (2, 3)},
            r"complete strings have even lengths, but train_lengths is \(2, 3\)",
        ),
        (
            {"train_lengths": (1,), "mode": "prefix"},
            "with one of train_lengths ends with a closing bracket",
        ),
        ({"long_lengths": (5, 4)}, r"a shortest and a longest length, not \(5, 4\)"),
        ({"long_lengths": (4, 5, 6)}, "a shortest and a longest length"),
        ({"long_lengths": (1, 1)}, "with one of long_lengths ends with a closing bracket"),
        (
            {"long_lengths": (7, 7), "max_depth": 1},
            "with one of long_lengths ends with a closing bracket",
        ),
        ({"q": 0.0}, "q must be strictly between 0 and 1"),
        ({"q": 1.0}, "q must be strictly between 0 and 1"),
        ({"q": math.nan}, "q must be strictly between 0 and 1"),
        ({"n_types": 0}, "n_types must be at least 1"),
        ({"max_depth": 0}, "max_depth must be at least 1"),
        ({"brackets": ("[", "]")}, "2 bracket type"),
        ({"brackets": ("[", "[", "(", ")")}, "given twice"),
    ],
)
def test_bad_values(values, message):
    with pytest.raises(ValueError, match=message):
        DyckTask(**{"name": "x", "n_types": 2, "max_depth": 4, **values})


def test_bad_calls():
    task = load_task("dyck-2-4")
    with pytest.raises(ValueError, match="n must be at least 1, got 0"):
        task.closing_accuracy(Noise(5, 0), n=0)
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        task.closing_accuracy(Noise(5, 0), chunk=0)
    with pytest.raises(TypeError):
        DyckTask(name="x", n_types=2, max_depth=4, train_lengths=(2.0, 4))
    with pytest.raises(
        UnknownNameError, match=r"unknown task 'dyck-2-44'\. Did you mean 'dyck-2-4'\?"
    ):
        load_task("dyck-2-44")


def test_a_third_partys_task():
    mine = DyckTask(name="mine", n_types=1, max_depth=2, train_lengths=(2,), long_lengths=(4, 4))
    try:
        assert tasks.register("mine", "one type")(mine) is mine
        assert load_task("mine") is mine
        assert "mine" in list_tasks()
        with pytest.raises(RegistryError, match="already registered"):
            tasks.register("mine")(DyckTask(name="mine", n_types=2, max_depth=2))
        with pytest.raises(RegistryError, match="must be of type DyckTask"):
            tasks.register("not-a-task")(lambda: None)
    finally:
        tasks.unregister("mine")
