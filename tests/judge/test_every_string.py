"""What heads do on every string of an automaton: against hooks, string by string."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.certify.language.test_automata import random_model
from tests.certify.language.test_places import of_residues, prefixes_of
from tl_dyck import AutomatonTask, Vocabulary, adopt, head_truths
from tl_dyck.judge import JudgeError
from tl_dyck.judge.every_string import EveryString
from tl_dyck.tasks import addition_task

KINDS = ("needed", "mean", "carries", "pattern")

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def residues(n: int = 7) -> AutomatonTask:
    return AutomatonTask(
        name=f"mod {n}", symbols=[*map(str, range(n)), "="], start=(0, 0),
        moves=lambda state: of_residues(n, state), answer=lambda state: state[1], places=[0, 1, 2],
    )  # fmt: skip


def pairs() -> AutomatonTask:
    """(ab)*, then END: strings that go no further, and others."""
    moves = {"even": {"a": "odd", "END": "over"}, "odd": {"b": "even"}, "over": {}}
    return AutomatonTask(
        name="pairs", symbols=("a", "b", "END"), start="even", moves=moves.__getitem__,
        train_lengths=[3], long_lengths=[3, 9],
    )  # fmt: skip


def bare(task: AutomatonTask, seed: int = 0, **options: Any) -> Any:
    n = len(task.symbols)
    model = random_model(task, seed, 1.0, n_heads=2, **options)
    classes = () if "d_vocab_out" in options else None
    return adopt(model, Vocabulary(task.language, range(n), bos=None), outputs=classes)


def learn(model: Any, task: AutomatonTask, after: dict[tuple[int, ...], Any]) -> None:
    """Some steps, so that most answers are right, and break where a head does something else."""
    tokens = torch.tensor([[task.language.bos_token, *string] for string in after])
    right = torch.tensor([said for (said,) in after.values()])
    optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
    for _ in range(60):
        loss = torch.nn.functional.cross_entropy(model(tokens)[:, -1], right)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    model.requires_grad_(False)


def wrong(logits: torch.Tensor, right: int) -> bool:
    return int(logits.argmax()) != right


@pytest.mark.parametrize("seed", range(2))
def test_shares_are_those_of_strings_run_one_by_one(seed: int) -> None:
    task = residues()
    model = bare(task, seed, d_vocab_out=7, n_layers=2)
    after = prefixes_of(task, 2)
    learn(model, task, after)
    found = head_truths(model, task)
    world = EveryString(model, task, 3)
    partner = {tuple(a[1:].tolist()): b for a, b in zip(world.tokens, world.partners, strict=True)}
    assert len(partner) == len(after) == 49
    every = [torch.tensor([[task.language.bos_token, *string]]) for string in after]
    every_z = [model.run_with_cache(tokens)[1] for tokens in every]
    intact = 0
    lost: dict[tuple[int, int, str], list[tuple[int, ...]]] = {}
    for string, said in after.items():
        (right,), tokens = said, torch.tensor([[task.language.bos_token, *string]])
        assert after[tuple(partner[string][1:].tolist())] != said
        if wrong(model(tokens)[0, -1], right):
            continue
        intact += 1
        _, other = model.run_with_cache(partner[string][None])
        for layer in range(2):
            for head in range(2):
                for kind in KINDS:

                    def change(
                        x: Any, hook: Any, kind: str = kind, head: int = head, other: Any = other
                    ) -> Any:
                        if kind == "pattern":
                            rows = torch.ones(x.shape[-2:], dtype=x.dtype).tril()
                            rows[1:, 0] = 0.0  # the start token, which it does not read
                            x[:, head] = rows / rows.sum(-1, keepdim=True)
                        elif kind == "needed":
                            x[:, :, head] = 0.0
                        elif kind == "mean":  # at each place by itself
                            total = sum(each[hook.name][:, :, head] for each in every_z)
                            x[:, :, head] = total / 49
                        else:
                            x[:, :, head] = other[hook.name][:, :, head]
                        return x

                    name = "pattern" if kind == "pattern" else "z"
                    hooks = [(f"blocks.{layer}.attn.hook_{name}", change)]
                    logits = model.run_with_hooks(tokens, fwd_hooks=hooks)[0, -1]
                    key = layer, head, kind
                    lost.setdefault(key, []).extend([string] * wrong(logits, right))
    assert found.accuracy == pytest.approx(intact / 49)
    for row in found.table.itertuples():
        for kind in KINDS:
            share = len(lost[row.layer, row.head, kind]) / 49
            assert getattr(row, kind) == pytest.approx(share), (row, kind)
    named = {kind: strings for kind, strings in lost.items() if strings}
    assert len(found.broken) == len(named) > 6
    for row in found.broken.itertuples():
        strings = named[row.layer, row.head, row.change]
        assert row.number == len(strings)
        witness = tuple(task.language.parse(row.prefix).tolist())
        assert witness in strings
        assert after[witness] == {int(row.right)}
        assert row.said != row.right


def test_each_beginning_counts_once_and_what_goes_no_further_is_left_out() -> None:
    task = pairs()
    world = EveryString(bare(task), task, 4)
    # END, abEND, abab; of the last one everything is asked for but what follows a and END
    texts = sorted(task.language.to_string(row) for row in world.tokens)
    assert texts == ["END", "abEND", "abab"]
    # "a" and "aba" ask for b; of all others two symbols may follow, or none
    assert float((world.asked * world._weight).sum()) == pytest.approx(2)
    sets = EveryString(bare(task), task, 4, threshold=0.0)
    # a, ab, aba, abab; of "END" and "abEND" nothing may follow
    assert float((sets.asked * sets._weight).sum()) == pytest.approx(4)


def test_sums_are_asked_where_the_task_asks() -> None:
    task = addition_task(1, base=3)
    world = EveryString(bare(task), task, 6)
    assert world.asked.sum(1).tolist() == [2] * 9
    # after "a+b=" each of 9 beginnings, and as many after the digit that it determines
    assert float((world.asked * world._weight).sum()) == pytest.approx(18)
    right = world.tokens.roll(-1, 1)[:, [4, 5]]
    assert world.right[:, [4, 5]].equal(right)


def test_truths_of_automata_are_printed_and_have_no_stack() -> None:
    task = residues()
    truths = head_truths(bare(task, d_vocab_out=7), task)
    assert [*truths.table] == ["layer", "head", *KINDS]
    text = str(truths)
    assert "mod 7, every prefix of at most 3 symbols" in text
    assert "answered right" in text
    assert "carries: it is that of a string with another answer" in text
    assert "stack" not in text
    assert truths.plot().data
    with pytest.raises(JudgeError, match="no stack is known"):
        truths.reads_top(0, 0)


def test_too_many_strings_are_refused_before_they_are_listed() -> None:
    task = addition_task(10)
    model = bare(task, n_ctx=40)
    with pytest.raises(JudgeError, match="more than 20,000 strings of 33 symbols"):
        head_truths(model, task)


def test_of_a_task_that_asks_for_nothing_there_is_nothing_to_say() -> None:
    task = AutomatonTask(
        name="free", symbols=("a", "b"), start=0, moves=lambda state: {"a": 0, "b": 0},
        train_lengths=[3], long_lengths=[3, 9],
    )  # fmt: skip
    with pytest.raises(JudgeError, match="nothing is asked"):
        head_truths(bare(task), task, 3)
