"""Automata, positions included, decided: against every string, run one by one."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.cases import thinned
from tests.doors import ended, thirds
from tl_dyck.certify import CertifyError
from tl_dyck.certify.language import LanguageCertificate, certify_language
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.rnn import export_rnn
from tl_dyck.tasks import AutomatonTask, load_task

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def cumulative_sum(largest: int = 1, values: list[int] | None = None) -> AutomatonTask:
    """Of numbers up to ±largest: is their sum negative, zero, or positive?"""
    values = values or [*range(largest + 1), *range(-largest, 0)]
    return AutomatonTask(
        name="cumulative sum",
        symbols=[f"{value:+d}" for value in values],
        start=0,
        moves=lambda total: {f"{value:+d}": total + value for value in values},
        answer=lambda total: (total > 0) - (total < 0) + 1,
        train_lengths=[6],
        long_lengths=[1, 6],
    )


def greatest(values: int) -> AutomatonTask:
    """The largest number seen."""
    return AutomatonTask(
        name="max",
        symbols=[f"<{value}>" for value in range(values)],
        start=-1,
        moves=lambda seen: {f"<{value}>": max(seen, value) for value in range(values)},
        answer=lambda seen: None if seen < 0 else seen,
        train_lengths=[3],
        long_lengths=[1, 3],
    )


def random_model(task: AutomatonTask, seed: int, scale: float, **options: Any) -> Any:
    """A model of one layer that reads the symbols bare, float64."""
    config = {
        "n_layers": 1, "n_heads": 1, "d_model": 6, "d_head": 4, "d_mlp": 5, "n_ctx": 8,
        "d_vocab": len(task.symbols), "act_fn": "relu", "normalization_type": None,
        "init_weights": False, "dtype": torch.float64, "device": "cpu", **options,
    }  # fmt: skip
    model = HookedTransformer(HookedTransformerConfig(**config))
    with torch.no_grad():
        for weight in model.parameters():
            noise = torch.randn(weight.shape, generator=torch.Generator().manual_seed(seed))
            weight.copy_(scale * noise)
    return model.eval()


def every(task: AutomatonTask, length: int) -> list[tuple[tuple[int, ...], Any]]:
    """All strings of a length with the state they leave, one move after the other."""
    found: list[tuple[tuple[int, ...], Any]] = [((), task.start)]
    for _ in range(length):
        found = [
            ((*string, task.symbols.index(symbol)), after)
            for string, state in found
            for symbol, after in task.moves(state).items()
        ]
    return found


def brute(model: Any, task: AutomatonTask, length: int, bos: int | None = None) -> np.ndarray:
    """The margin of each string of which something is asked."""
    strings, wanted = [], []
    for string, state in every(task, length):
        answer = asked(task, state)
        if answer is not None:
            strings.append(string)
            wanted.append(answer)
    if not strings:
        return np.empty(0)
    tokens = torch.tensor(strings, dtype=torch.int64).reshape(len(strings), length)
    if bos is not None:
        tokens = torch.cat([torch.full((len(tokens), 1), bos), tokens], 1)
    with torch.no_grad():
        logits = torch.cat([model(part)[:, -1] for part in tokens.split(4096)])
    right = torch.tensor(wanted)[:, None]
    others = logits.scatter(1, right, -torch.inf).max(1).values
    return (logits.gather(1, right)[:, 0] - others).numpy()


def asked(task: AutomatonTask, state: Any) -> int | None:
    if task.answer is not None:
        return task.answer(state)
    after = [*task.moves(state)]
    counts = task.counted or (lambda state, symbol: len(after) == 1)
    counted = [symbol for symbol in after if counts(state, symbol)]
    return task.symbols.index(counted[0]) if len(counted) == 1 else None


def says(task: AutomatonTask, length: int) -> bool:
    """Whether anything is asked at a length."""
    return any(asked(task, state) is not None for _, state in every(task, length))


def check(
    found: LanguageCertificate,
    model: Any,
    task: AutomatonTask,
    lengths: Sequence[int],
    bos: int | None = None,
    off: float = 1e-9,
) -> None:
    """Everything that a certificate says, against all strings; rounding may come to `off`."""
    rows = {row.length: row for row in found.by_length}
    wrong_at = []
    least = np.inf
    for length in lengths:
        margin = brute(model, task, length, bos)
        if not len(margin):
            assert length not in rows
            continue
        row, wrong = rows[length], int((margin < 0).sum())
        assert row.prefixes == len(margin)
        assert row.decided
        assert row.wrong == wrong
        assert row.error.exact
        assert row.error.low == pytest.approx(float(Fraction(wrong, len(margin))))
        assert row.margin is not None
        scale = off * max(1.0, abs(margin.min()))
        assert row.margin.low <= margin.min() + scale
        assert row.margin.high == pytest.approx(margin.min(), abs=scale)
        assert row.margin.low == pytest.approx(margin.min(), abs=scale)
        wrong_at += [length] * bool(wrong)
        least = min(least, margin.min())
    assert found.margin.high == pytest.approx(least, abs=off * max(1.0, abs(least)))
    assert found.status == ("refuted" if wrong_at else "proved")
    first = 0 if bos is not None else 1
    left_out = [n for n in range(first, lengths[-1]) if says(task, n) and n not in lengths]
    assert found.gap == min(left_out, default=None)
    stop = min([*wrong_at, *left_out], default=lengths[-1] + 1)
    assert found.proved_to == max((n for n in lengths if n < stop), default=-1)
    if wrong_at:
        assert found.likeliest is not None
        assert found.is_shortest
        assert len(found.likeliest.tokens) == wrong_at[0]


SHAPES = [
    {},
    {"attn_only": True},
    {"normalization_type": "LN"},
    {"n_heads": 2},
    {"act_fn": "gelu", "normalization_type": "LNPre"},
]


@pytest.mark.parametrize("shape", thinned(SHAPES), ids=str)
def test_sums_are_decided_as_by_brute_force(shape: dict[str, Any]) -> None:
    task = cumulative_sum()
    lengths, model = range(1, 5), random_model(task, 0, 0.5, d_vocab_out=3, **shape)
    check(certify_language(model, task, lengths, until="counted"), model, task, lengths)


@pytest.mark.parametrize("shape", thinned(SHAPES), ids=str)
def test_two_layers_without_positions_are_decided_as_by_brute_force(shape: dict[str, Any]) -> None:
    task = cumulative_sum()
    model = random_model(task, 1, 0.5, d_vocab_out=3, n_layers=2, **shape)
    with torch.no_grad():
        model.pos_embed.W_pos.zero_()
    check(
        certify_language(model, task, range(1, 4), until="counted"),
        model,
        task,
        range(1, 4),
        off=1e-7,
    )


@example(task=cumulative_sum(2), shape={"attn_only": True}, seed=252, scale=2.0)  # logits of 2,700
@settings(max_examples=6)
@given(
    task=st.sampled_from([cumulative_sum(2), greatest(4), cumulative_sum(values=[3, -2, 0])]),
    shape=st.sampled_from(SHAPES[:3]),
    seed=st.integers(0, 10**6),
    scale=st.sampled_from([0.1, 0.5, 2.0]),
)
def test_small_automata_are_decided_as_by_brute_force(
    task: AutomatonTask, shape: dict[str, Any], seed: int, scale: float
) -> None:
    model = random_model(task, seed, scale, d_vocab_out=max(4, len(task.symbols)), **shape)
    found = certify_language(model, task, range(1, 4), until="counted")
    off = 1e-8 if scale > 1 else 1e-9  # of numbers larger than the margin
    check(found, model, task, range(1, 4), off=off)


def toward(model: Any, task: AutomatonTask, length: int, margin: float) -> None:
    """Shift one bias until the least margin of that length is this, where one answer is asked."""
    with torch.no_grad():
        model.unembed.b_U[1] += margin - brute(model, task, length).min()


@pytest.mark.parametrize("side", [1e-7, -1e-7])
@pytest.mark.parametrize("seed", range(3))
def test_near_ties_fall_on_their_side(seed: int, side: float) -> None:
    task = AutomatonTask(
        name="sum is zero",
        symbols=["+", "-"],
        start=0,
        moves=lambda total: {"+": total + 1, "-": total - 1},
        answer=lambda total: 1 if total == 0 else None,
        train_lengths=[6],
        long_lengths=[1, 6],
    )
    model = random_model(task, seed, 0.7, d_vocab_out=3)
    toward(model, task, 6, side)
    found = certify_language(model, task, [6], until="counted")
    assert found.status == ("proved" if side > 0 else "refuted")
    assert found.margin.high == pytest.approx(side, abs=1e-9)
    check(found, model, task, range(6, 7))


def test_a_tie_stays_open() -> None:
    model = random_model(cumulative_sum(), 0, 0.0, d_vocab_out=3)
    found = certify_language(model, cumulative_sum(), range(1, 5))
    assert found.status == "open"
    assert "a tie" in found.reason
    assert found.wrong == 0


def test_of_numbers_too_large_it_is_said_that_rounding_hides_margins() -> None:
    model = random_model(cumulative_sum(), 0, 1.0, d_vocab_out=3)
    with torch.no_grad():
        model.pos_embed.W_pos.mul_(1e9)  # scores of 1e18 are known to some 100
    found = certify_language(model, cumulative_sum(), range(1, 4))
    assert (found.status, found.margin.high) == ("open", np.inf)
    assert "rounding hides every margin" in found.reason


def test_a_symbol_that_no_string_has() -> None:
    """Of two layers it is in no profile; what no pass bounded is bounded all the same."""
    task = replace(cumulative_sum(), moves=lambda total: {"+1": total + 1})
    norms = {"n_layers": 2, "normalization_type": "LN", "d_vocab_out": 3}
    model = random_model(task, 0, 1.0, **norms)
    with torch.no_grad():
        model.pos_embed.W_pos.zero_()
    found = certify_language(model, task, range(1, 5), time_limit=1e-9)
    assert found.status == "open"
    assert np.isfinite(found.margin.low)


def test_sums_of_twelve_numbers_that_are_right() -> None:
    """Uniform attention to the numbers and one ReLU a side: the sign of the mean."""
    task = cumulative_sum(5)
    model = random_model(task, 0, 0.0, d_vocab_out=3, n_ctx=12)
    mean_to_class(model, task, threshold=1 / 24)
    found = certify_language(model, task, range(1, 13))
    assert found.status == "proved"
    assert found.prefixes == sum(11**length for length in range(1, 13))
    # the least mean that is not 0 is 1/12; it makes a logit of 1/12 that beats 1/24
    assert found.margin.high == pytest.approx(1 / 24, abs=1e-9)
    assert found.margin.low == pytest.approx(1 / 24, abs=1e-9)


def test_wrong_sums_of_twenty_numbers_are_counted() -> None:
    """Too high a threshold: exactly the strings whose sum is 1 or -1 are wrong, at length 20."""
    task = cumulative_sum(1)
    model = random_model(task, 0, 0.0, d_vocab_out=3, n_ctx=20)
    mean_to_class(model, task, threshold=1.5 / 20)
    found = certify_language(model, task, [20], until="counted")  # however long it takes
    ways = np.array([1], dtype=object)
    for _ in range(20):
        ways = np.convolve(ways, np.ones(3, dtype=object))
    assert found.status == "refuted"
    assert found.complete
    assert found.wrong == ways[19] + ways[21]


def mean_to_class(model: Any, task: AutomatonTask, threshold: float = 1 / 40) -> None:
    """The mean of the numbers beside a threshold: logits -mean, threshold, mean."""
    with torch.no_grad():
        model.embed.W_E[:, 0] = torch.tensor([float(symbol) for symbol in task.symbols])
        block = model.blocks[0]
        block.attn.W_V[0, 0, 0] = 1.0
        block.attn.W_O[0, 0, 1] = 1.0
        block.mlp.W_in[1, 0] = 1.0
        block.mlp.W_in[1, 1] = -1.0
        block.mlp.W_out[0, 2] = 1.0
        block.mlp.W_out[1, 3] = 1.0
        model.unembed.W_U[3, 0] = 1.0
        model.unembed.W_U[2, 2] = 1.0
        model.unembed.b_U[1] = threshold


@pytest.mark.parametrize("name", ["shuffle-dyck", "anbncn"])
def test_what_must_follow_is_what_counts(name: str) -> None:
    """Of a language to be continued: the symbol that counts, where there is one; with BOS."""
    task = load_task(name)
    assert isinstance(task, AutomatonTask)
    size = len(task.symbols) + 1
    model = random_model(task, 1, 0.5, d_vocab=size, d_vocab_out=size)
    found = certify_language(model, task, 5, until="counted")
    check(found, model, task, range(6), bos=size - 1)
    rnn = export_rnn(model, bos_token=size - 1, alphabet=(*task.symbols, "BOS"))
    assert certify_language(rnn, task, 5).wrong == found.wrong


@pytest.mark.parametrize(
    ("task", "layers"),
    thinned(
        [
            (load_task("dyck-1"), 2),
            (cumulative_sum(), 1),
            (ended(), 1),
            (thirds(), 2),
            (thirds(), 1),
        ]
    ),
)
def test_what_is_asked_before_the_first_symbol_is_decided(task: Any, layers: int) -> None:
    bos = len(task.symbols)
    shape = {"d_vocab": bos + 1, "d_vocab_out": bos + 1, "n_layers": layers}
    for seed, lengths in enumerate([range(5), range(2), [0, 3]]):
        model = random_model(task, seed, 0.5, **shape)
        if layers == 2:
            with torch.no_grad():
                model.pos_embed.W_pos.zero_()
        found = certify_language(model, task, lengths, until="counted")
        check(found, model, task, lengths, bos=bos, off=1e-9 if layers == 1 else 1e-7)
        first = certify_language(model, task, lengths, until="refuted")
        assert first.status == found.status


@pytest.mark.parametrize("task", [load_task("dyck-1"), thirds()], ids=lambda task: task.name)
def test_the_answer_before_the_first_symbol_has_a_proof(task: Any) -> None:
    bos = len(task.symbols)
    model = random_model(task, 0, 0.3, d_vocab=bos + 1, d_vocab_out=bos + 1)
    with torch.no_grad():
        model.unembed.b_U[0] += 50.0
    assert len(brute(model, task, 0, bos)) == 1
    proof = prove_language(model, task, 0)
    assert "after each of 1 strings of 0 to 0 tokens" in proof.says
    with torch.no_grad():
        model.unembed.b_U[1] += 100.0
    with pytest.raises(NoProofError, match="another logit is larger"):
        prove_language(model, task, 0)


# --- lengths that were left out -------------------------------------------------------------------


def right_but_at(task: AutomatonTask, wrong: int, longest: int) -> Any:
    """A model that answers every string right, but for those of one length."""
    model = random_model(task, 0, 0.0, d_vocab_out=3, n_ctx=longest)
    mean_to_class(model, task)
    with torch.no_grad():  # the last position says its length; the MLP's last unit hears it
        model.pos_embed.W_pos[wrong - 1, 4] = 1.0
        model.blocks[0].mlp.W_in[4, 4] = 1.0
        model.blocks[0].mlp.W_out[4, 5] = 1.0
        model.unembed.W_U[5] = torch.tensor([9.0, 0.0, 0.0])
    return model


@pytest.mark.parametrize(
    ("lengths", "status", "to", "said"),
    [
        ([1], "proved", 1, "up to length 1"),
        ([1, 3], "proved", 1, "lengths 1 and 3"),
        ([3], "proved", -1, "length 3"),
        ([1, 3, 4, 6], "proved", 1, "lengths 1, 3 to 4 and 6"),
        ([1, 2, 3], "refuted", 1, "up to length 1"),
        ([2, 3], "refuted", -1, "length 3"),
        ([2], "refuted", -1, "no length"),
    ],
)
def test_what_is_proved_has_no_gaps(lengths: Any, status: str, to: int, said: str) -> None:
    """Wrong at length 2, right everywhere else."""
    model = right_but_at(cumulative_sum(), 2, 8)
    found = certify_language(model, cumulative_sum(), lengths, until="counted")
    check(found, model, cumulative_sum(), lengths)
    assert (found.status, found.proved_to) == (status, to)
    assert dict(found.summary())["proved"] == said


def test_lengths_at_which_nothing_is_asked_are_no_gap() -> None:
    task = thirds()
    model = random_model(task, 0, 0.3, d_vocab=3, d_vocab_out=3)
    answer = replace(task, answer=lambda s: None if s[0] else 1)
    with torch.no_grad():
        model.unembed.b_U[1] += 50.0
    found = certify_language(model, answer, [0, 3, 6])
    assert (found.status, found.proved_to, found.gap) == ("proved", 6, None)
    assert dict(found.summary())["proved"] == "up to length 6"
    assert certify_language(model, answer, [0, 6]).proved_to == 0
    with pytest.raises(CertifyError, match="any_token says nothing of strings of thirds of length"):
        certify_language(model, answer, [1, 2])


@pytest.mark.parametrize(("seed", "merged"), [(0, 64), (1, 4)])
def test_too_many_to_be_counted_are_bounded(
    monkeypatch: pytest.MonkeyPatch, seed: int, merged: int
) -> None:
    for name, value in (("_MOST", 1), ("_LISTED", 0), ("_MERGED", merged)):
        monkeypatch.setattr(f"tl_dyck.certify.exact.loss_counts.{name}", value)
    task = cumulative_sum(2)
    model = random_model(task, seed, 0.5, d_vocab_out=3, attn_only=seed % 2 == 0)
    (row,) = certify_language(model, task, [6]).by_length
    wrong = (brute(model, task, 6) < 0).sum()
    assert row.wrong <= wrong <= round(row.error.high * row.prefixes)
    # told apart are some, so that the bounds say something
    assert row.error.high - row.error.low < (0.2 if merged == 64 and seed % 2 == 0 else 1)


def test_it_stops_at_the_first_error_which_is_the_shortest() -> None:
    task = cumulative_sum(2)
    model = random_model(task, 3, 0.5, d_vocab_out=3)
    found = certify_language(model, task, range(1, 9), until="refuted")
    first = min(n for n in range(1, 5) if (brute(model, task, n) < 0).any())
    assert found.status == "refuted"
    assert found.shortest is not None
    assert found.shortest.length == first
    assert not any(row.decided and row.prefixes > 1 for row in found.by_length)


def test_no_time_leaves_it_open() -> None:
    model = random_model(cumulative_sum(), 0, 0.5, d_vocab_out=3)
    found = certify_language(model, cumulative_sum(), range(1, 9), time_limit=1e-9)
    assert found.status == "open"
    assert "in time" in found.reason
    assert found.proved_to == -1


REFUSED: list[tuple[str, Callable[[], Any], type[Exception]]] = [
    ("asks for answer 2", lambda: ask(d_vocab_out=2), CertifyError),
    ("the model reads 8", lambda: ask(lengths=9, d_vocab_out=3), CertifyError),
    ("only 'any_token'", lambda: ask(d_vocab_out=3, claim="kl", epsilon=1.0), CertifyError),
    ("nothing says which token", lambda: ask(d_vocab=7, d_vocab_out=3), ValueError),
    ("the model reads 8", lambda: ask(lengths=9, d_vocab_out=3, n_layers=3), CertifyError),
]


def ask(*, lengths: Any = 3, claim: str = "any_token", epsilon: Any = None, **options: Any) -> Any:
    model = random_model(cumulative_sum(), 0, 0.5, **options)
    return certify_language(model, cumulative_sum(), lengths, claim, epsilon=epsilon)


@pytest.mark.parametrize(("message", "call", "kind"), REFUSED, ids=[each[0] for each in REFUSED])
def test_refusals(message: str, call: Callable[[], Any], kind: type[Exception]) -> None:
    with pytest.raises(kind, match=message):
        call()


@pytest.mark.skipif("TL_DYCK_CUMSUM" not in os.environ, reason="nobody gives ARENA's cumsum_model")
def test_arenas_cumulative_sum() -> None:
    task = cumulative_sum(5)
    shape = {"n_heads": 1, "d_model": 24, "d_head": 12, "d_mlp": 8, "n_ctx": 20, "d_vocab_out": 3}
    model = random_model(task, 0, 0.0, **shape)
    weights = torch.load(os.environ["TL_DYCK_CUMSUM"], map_location="cpu", weights_only=True)
    model.load_state_dict(weights, strict=False)
    found = certify_language(model, task, range(1, 21), until="likeliest")
    assert found.status == "proved"
    for row in found.by_length[:6]:
        assert row.margin is not None
        least = brute(model, task, row.length).min()
        assert row.margin.low == pytest.approx(least, abs=1e-9)
        assert row.margin.high == pytest.approx(least, abs=1e-9)
