"""Tasks: what is drawn against all strings counted, the metric against a loop over prefixes."""

from __future__ import annotations

import dataclasses
import json
import math
import pickle
from collections import Counter

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tests.enumerated import SMALL, closing_prefixes, training_strings
from tl_dyck.kit.registry import RegistryError, UnknownNameError
from tl_dyck.tasks import DyckTask, list_tasks, load_task, tasks


def seeded(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


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


def test_the_named_tasks():
    dyck = [f"dyck-{k}-{d}{mode}" for k in (2, 3) for d in (4, 8) for mode in ("", "-prefix")]
    assert list_tasks() == sorted([*dyck, "anbncn", "dyck-1", "shuffle-dyck"])
    for name in dyck:
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
        assert task.long_lengths == (400, 500)
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
            "name": st.text(min_size=1).filter(str.isprintable),
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


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"mode": "complet"}, r"unknown mode 'complet'\. Did you mean 'complete'"),
        ({"train_lengths": ()}, "train_lengths must be one to 100,000 lengths, got none"),
        ({"train_lengths": (0, 2)}, "train_lengths must be at least 1, got 0"),
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
        ({"q": 1.0}, "q must be strictly between 0 and 1"),
        ({"brackets": ("[", "]")}, "2 bracket type"),
    ],
)
def test_bad_values(values, message):
    with pytest.raises(ValueError, match=message):
        DyckTask(**{"name": "x", "n_types": 2, "max_depth": 4, **values})


def test_bad_calls():
    with pytest.raises(TypeError):
        DyckTask(name="x", n_types=2, max_depth=4, train_lengths=(2.0, 4))
    with pytest.raises(ValueError, match="chunk must be at least 1, got 0"):
        load_task("dyck-2-4").closing_accuracy(len, chunk=0)
    with pytest.raises(
        UnknownNameError, match=r"unknown task 'dyck-2-4-prefx'\. Did you mean 'dyck-2-4-prefix'\?"
    ):
        load_task("dyck-2-4-prefx")


@pytest.mark.parametrize(("k", "depth"), [(1, 1), (1, 6), (2, 5), (20, 3), (128, 3), (2, 100)])
@pytest.mark.parametrize("ending", ["", "-prefix"])
def test_systematic_names_are_made_on_demand(k, depth, ending):
    task = load_task(f"dyck-{k}-{depth}{ending}")
    assert (task.n_types, task.max_depth, task.name) == (k, depth, f"dyck-{k}-{depth}{ending}")
    assert task == load_task(task.name)
    assert task.name not in list_tasks()
    strings = task.sample(20, seed=0)
    assert task.language.is_prefix(strings).all()
    assert int(task.language.depth(strings).max()) <= depth
    if not ending:
        assert task.language.is_complete(strings).all()


@pytest.mark.parametrize(
    "name", ["dyck-0-4", "dyck-2-0", "dyck-02-4", "dyck-2-٣", "dyck-2-4 ", "dyck-2-" + "9" * 5000]
)
def test_other_numbers_are_no_names(name):
    with pytest.raises(UnknownNameError):
        load_task(name)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("dyck-10001-4", "n_types must be at most 10000, got 10001"),
        ("dyck-2-10000001", "max_depth must be at most 10000000, got 10000001"),
    ],
)
def test_more_than_a_language_may_have_is_said_in_a_line(name, said):
    with pytest.raises(ValueError, match=said):
        load_task(name)


def test_a_task_made_by_a_function_when_it_is_looked_up():
    made = []

    @tasks.register("made")
    def make():
        """One type, made on demand."""
        made.append(1)
        return DyckTask(name="made", n_types=1, max_depth=2)

    try:
        assert not made
        assert load_task("made") is load_task("made")
        assert made == [1]
        assert tasks.summary("made") == "One type, made on demand."
        tasks.register("made", replace=True)(lambda: None)
        with pytest.raises(RegistryError, match=r"returned None \(NoneType\), not a Task"):
            load_task("made")
    finally:
        tasks.unregister("made")


def test_a_seed_instead_of_a_generator():
    task = load_task("dyck-2-4")
    drawn = task.sample(3, generator=torch.Generator().manual_seed(5))
    assert torch.equal(task.sample(3, seed=5), drawn)
    with pytest.raises(ValueError, match="give a generator or a seed"):
        task.sample(3)
    with pytest.raises(ValueError, match="give a generator or a seed"):
        task.sample(3, seed=5, generator=torch.Generator())
