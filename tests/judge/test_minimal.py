"""Minimal circuits, held to every subset of heads on every string, by hooks of our own."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

import pytest
import torch

from tests.judge.methods.network import exchanged, right_brackets, strings
from tests.judge.test_every_string import bare, pairs, residues
from tests.judge.test_truths import somebodys
from tl_dyck import DyckTransformerConfig, build_model, construct, load_task, minimal_circuit
from tl_dyck.judge import JudgeError, minimal
from tl_dyck.judge.minimal import EveryAnswer
from tl_dyck.kit.check import WrongValueError
from tl_dyck.kit.registry import UnknownNameError

Head = tuple[int, int]
N = 4


def random_model(seed: int, task: Any) -> Any:
    """Two layers with norms and positions; not trained, so that its answers hang on all it does."""
    config = DyckTransformerConfig(
        n_types=task.n_types, max_depth=task.max_depth, model_name="random", block="gpt",
        n_layers=2, n_heads=2, d_model=12, d_head=6, d_mlp=8, n_ctx=16, dtype=torch.float64,
    )  # fmt: skip
    model = build_model(config, seed=seed)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".W_" in name or "embed" in name:
                scale = 0.5 if "embed" in name else 0.3
                weight.copy_(torch.randn(weight.shape, generator=generator) * scale)
        for block in model.blocks:  # some heads say much more than others
            loud = 10 ** (1 - 4 * torch.rand(len(block.attn.W_O), generator=generator))
            block.attn.W_O.mul_(loud[:, None, None])
    return model


def set_head(z: torch.Tensor, hook: Any, head: int, to: Any) -> torch.Tensor:
    z[:, :, head] = to
    return z


class ByHand:
    """Every string, with hooks that set one head at a time."""

    def __init__(self, model: Any, task: Any, n: int, instead: str) -> None:
        self.model, self.k, self.instead = model, task.n_types, instead
        rows = strings(task.n_types, task.max_depth, n)
        self.rows, self.right = torch.tensor(rows), torch.tensor(right_brackets(rows))
        self.weight = task.distribution.log_prob(self.rows, mode="prefix").exp()
        self.heads = [(i, j) for i in range(model.cfg.n_layers) for j in range(model.cfg.n_heads)]
        alone = [model.run_with_cache(row[None]) for row in self.rows]
        self.whole = torch.cat([logits for logits, _ in alone])
        self.other = model.run_with_cache(torch.tensor(exchanged(rows, self.k)))[1]
        self.means = {}
        for layer, head in self.heads:
            z = torch.cat(
                [cache[f"blocks.{layer}.attn.hook_z"][..., head, :] for _, cache in alone]
            )
            share = self.weight / self.weight.sum() / z.shape[1]
            self.means[layer, head] = torch.einsum("r,rpd->d", share, z)

    def put(self, layer: int, head: int) -> Any:
        if self.instead == "zero":
            return 0.0
        if self.instead == "mean":
            return self.means[layer, head]
        return self.other[f"blocks.{layer}.attn.hook_z"][:, :, head]

    def changed(self, circuit: Collection[Head], claim: str) -> tuple[list[tuple[int, ...]], float]:
        """The prefixes with another answer, and their share."""
        hooks = []
        for layer, head in self.heads:
            if (layer, head) not in circuit:
                put = partial(set_head, head=head, to=self.put(layer, head))
                hooks.append((f"blocks.{layer}.attn.hook_z", put))
        logits = self.model.run_with_hooks(self.rows, fwd_hooks=hooks)
        if claim == "agree":
            closing = slice(1, 2 * self.k, 2)
            other = (best(self.whole[..., closing]) != best(logits[..., closing])).any(-1)
        else:
            right = torch.arange(logits.shape[-1]) == self.right[..., None]
            other = (best(self.whole) == right).all(-1) & (best(logits) != right).any(-1)
        weight = self.weight[:, None] * (self.right >= 0)
        lost = [(row, end) for row, end in (other & (weight > 0)).nonzero().tolist()]
        found = {tuple(self.rows[row, : end + 1].tolist()) for row, end in lost}
        return sorted(found, key=len), float((weight * other).sum() / weight.sum())


def best(logits: torch.Tensor) -> torch.Tensor:
    """Which are largest, up to rounding."""
    return logits > logits.max(-1, keepdim=True).values - 1e-9


def subsets(heads: Sequence[Head]) -> list[tuple[Head, ...]]:
    return [c for size in range(len(heads) + 1) for c in itertools.combinations(heads, size)]


@pytest.mark.parametrize(
    ("seed", "claim", "instead"),
    [
        *((0, "agree", "mean"), (1, "agree", "zero"), (1, "agree", "exchanged")),
        *((2, "any_token", "mean"), (2, "any_token", "exchanged")),
    ],
)
def test_every_subset_is_as_faithful_as_by_hand(seed: int, claim: str, instead: str) -> None:
    task = load_task("dyck-2-4")
    model = random_model(seed, task)
    if claim == "any_token":  # so that closing brackets are predicted at all
        with torch.no_grad():
            model.unembed.b_U[1:4:2] += 3.0
    hand = ByHand(model, task, N, instead)
    answers = EveryAnswer(model, task, N, instead=instead, claim=claim)
    found = minimal_circuit(model, task, N, instead=instead, claim=claim)
    known = {circuit: hand.changed(circuit, claim) for circuit in subsets(hand.heads)}
    for circuit, (prefixes, share) in known.items():
        assert answers.is_faithful(circuit) == (not prefixes), circuit
        assert answers.share(circuit) == pytest.approx(share, abs=1e-9), circuit
    faithful = [circuit for circuit, (prefixes, _) in known.items() if not prefixes]
    least = [circuit for circuit in faithful if len(circuit) == len(faithful[0])]
    assert found.least
    assert [found.heads, *found.others] == least
    assert [*zip(found.table["layer"], found.table["head"], strict=True)] == [*found.heads]
    closing = task.language.alphabet[1:4:2] if claim == "agree" else task.language.alphabet
    for row in found.table.itertuples():
        prefixes, share = known[tuple(h for h in found.heads if h != (row.layer, row.head))]
        text = [task.language.to_string(torch.tensor(prefix)) for prefix in prefixes]
        assert row.prefix in text
        assert len(task.language.parse(row.prefix)) <= len(prefixes[0])  # none is shorter
        assert row.share == pytest.approx(share, abs=1e-9)
        assert row.whole in closing
        assert row.without != row.whole


def test_seeds_tell_circuits_apart() -> None:
    """What the test above rests on: sizes differ, and with what is put in their place."""
    task = load_task("dyck-2-4")
    found = {
        minimal_circuit(random_model(seed, task), task, N, instead=instead).heads
        for seed in range(3)
        for instead in ("mean", "zero", "exchanged")
    }
    assert len({len(heads) for heads in found}) > 1


def test_a_decoy_is_not_in_it_and_the_only_head_is() -> None:
    task = load_task("dyck-2-4")
    model = construct.uniform_attention(task.language)
    for instead in ("mean", "zero", "exchanged"):
        for claim in ("agree", "any_token"):
            given = {"instead": instead, "claim": claim}
            assert minimal_circuit(model, task, 6, **given).heads == ((0, 0),)
            for pattern in ("stack", "previous"):
                decoy = construct.decoy_head(model, pattern)
                found = minimal_circuit(decoy, task, 6, **given)
                assert (found.heads, found.others, found.n_heads) == (((0, 0),), (), 2)


def doubled(task: Any) -> Any:
    """A head that counts, and another of the same weights."""
    model = construct.decoy_head(construct.uniform_attention(task.language), "uniform")
    attn = model.blocks[0].attn
    with torch.no_grad():
        for name in ("W_Q", "W_K", "W_V", "W_O", "b_Q", "b_K", "b_V"):
            getattr(attn, name)[1] = getattr(attn, name)[0]
    return model


def test_of_a_head_and_its_double_one_is_enough() -> None:
    """With either alone all is half as large, and no sign turns."""
    task = load_task("dyck-2-4")
    found = minimal_circuit(doubled(task), task, 6, instead="zero")
    assert (found.heads, found.others) == (((0, 0),), (((0, 1),),))
    assert "1 of the same size" in str(found)


def test_no_head_and_all_heads() -> None:
    task = load_task("dyck-2-4")
    model = random_model(0, task)
    with torch.no_grad():
        for block in model.blocks:
            block.attn.W_O.zero_()
    none = minimal_circuit(model, task, N, instead="mean")
    assert (none.heads, len(none.table), none.others) == ((), 0, ())
    assert "no head, of 4 heads, is faithful" in str(none)
    model = doubled(task)
    with torch.no_grad():
        for head in range(2):  # each writes every other number of what it counts
            model.blocks[0].attn.W_O[head, head::2] = 0.0
    every = minimal_circuit(model, task, 6, instead="zero")
    assert (every.heads, len(every.table), every.others) == (((0, 0), (0, 1)), 2, ())


def test_many_heads_are_dropped_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Then none can be dropped; and what is found is no smaller than the least circuit."""
    monkeypatch.setattr(minimal, "_FEW", 3)
    task = load_task("dyck-2-4")
    for seed in range(3):
        model = random_model(seed, task)
        found = minimal_circuit(model, task, N, instead="zero")
        answers = EveryAnswer(model, task, N, instead="zero")
        assert (found.least, found.others) == (False, ())
        assert answers.is_faithful(found.heads)
        for head in found.heads:
            assert not answers.is_faithful({*found.heads} - {head})
        assert "none of its heads can be dropped" in str(found)
        faithful = [c for c in subsets(answers.heads) if answers.is_faithful(c)]
        assert len(found.heads) >= len(faithful[0])


def test_what_could_not_be_dropped_is_tried_again() -> None:
    """Without the second head the first can go, which it cannot before."""
    a, b, c = heads = [(0, 0), (0, 1), (1, 0)]
    faithful = [{a, b, c}, {a, c}, {c}]

    class Known(EveryAnswer):  # type: ignore[misc]  # it is final
        def __init__(self) -> None:
            self.heads = heads

        def share(self, circuit: Collection[Head]) -> float:
            return [{b, c}, {a, c}, {a, b}].index({*circuit}) / 10

        def is_faithful(self, circuit: Collection[Head]) -> bool:
            return {*circuit} in faithful

    answers: Any = Known()
    assert minimal._greedy(answers) == (c,)
    assert minimal._of_least_size(answers) == [(c,)]


def test_automata_are_asked_where_they_ask() -> None:
    task = residues(5)
    model = bare(task, 0, d_vocab_out=5, n_layers=2)
    answers = EveryAnswer(model, task, instead="zero")
    found = minimal_circuit(model, task, instead="zero")
    exact = model.to(torch.float64, print_details=False)
    for circuit in subsets(answers.heads):
        differ = 0
        for a, b in itertools.product(range(5), repeat=2):
            tokens = torch.tensor([[task.language.bos_token, a, b, 5]])
            hooks = []
            for layer, head in answers.heads:
                if (layer, head) not in circuit:
                    off = partial(set_head, head=head, to=0.0)
                    hooks.append((f"blocks.{layer}.attn.hook_z", off))
            after = exact.run_with_hooks(tokens, fwd_hooks=hooks)[0, -1]
            differ += bool((best(exact(tokens)[0, -1]) != best(after)).any())
        assert answers.share(circuit) == pytest.approx(differ / 25)
        assert answers.is_faithful(circuit) == (differ == 0)
    assert answers.is_faithful(found.heads)


def test_means_leave_out_what_is_no_prefix() -> None:
    """Not the filling of strings that go no further, nor a BOS that the model does not read."""
    task = pairs()
    model = bare(task)
    answers = EveryAnswer(model, task, 4)
    exact = model.to(torch.float64, print_details=False)
    seen = []
    for text in ("a", "ab", "aba", "abab", "END", "abEND"):
        tokens = torch.tensor([[task.language.bos_token, *task.language.parse(text).tolist()]])
        seen.append(exact.run_with_cache(tokens)[1]["blocks.0.attn.hook_z"][0, -1])
    found = answers._outside._instead[0]
    assert found.shape[:2] == (1, 1)
    torch.testing.assert_close(found[0, 0], torch.stack(seen).mean(0))


def test_the_model_stays_as_it_was_and_float32_finds_the_same() -> None:
    task = load_task("dyck-2-4")
    model = somebodys(task)
    before = {name: weight.clone() for name, weight in model.state_dict().items()}
    found = minimal_circuit(model, task, N)
    for name, weight in model.state_dict().items():
        assert torch.equal(weight, before[name])
    again = minimal_circuit(model.to(torch.float64, print_details=False), task, N)
    assert found.heads == again.heads


def test_what_is_refused() -> None:
    task = load_task("dyck-2-4")
    model = construct.stack(task.language)
    with pytest.raises(UnknownNameError, match="claim 'allowed'"):
        minimal_circuit(model, task, 4, claim="allowed")
    with pytest.raises(UnknownNameError, match="value of heads outside 'resample'"):
        minimal_circuit(model, task, 4, instead="resample")
    with pytest.raises(JudgeError, match="prefixes of 20 brackets, too many"):
        minimal_circuit(model, task, 20)
    with pytest.raises(WrongValueError, match="length must be at least 1"):
        minimal_circuit(model, task, 0)
    with torch.no_grad():
        model.unembed.W_U.zero_()
    with pytest.raises(JudgeError, match=r"two answers .* equal up to rounding after '\['"):
        minimal_circuit(model, task, 4)
    with pytest.raises(JudgeError, match="nothing can break"):
        minimal_circuit(model, task, 4, claim="any_token")


def test_what_hangs_on_rounding_is_not_said() -> None:
    """A head that moves a logit to 1e-8 beside the other: neither a change nor none."""
    task = load_task("dyck-2-4")
    model = construct.uniform_attention(task.language)
    answers = EveryAnswer(model, task, 4, instead="zero")
    assert not answers.is_faithful(())  # a tie without the head
    with torch.no_grad():
        answers._world.model.unembed.b_U[1] += 1e-8
    with pytest.raises(JudgeError, match="no head is faithful hangs on two logits"):
        EveryAnswer(answers._world.model, task, 4, instead="zero").is_faithful(())
