"""The claim "allowed": of every symbol, may it follow? Against every string, run one by one."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import GPT2Config, GPT2LMHeadModel

from tests.cases import thinned
from tests.certify.language.test_automata import SHAPES, every, random_model
from tl_dyck import DyckStringError, DyckTask, VocabularyError, adopt, load_task
from tl_dyck.certify import CertifyError
from tl_dyck.certify.language import certify_language, sample_error
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.language import Vocabulary
from tl_dyck.tasks import AutomatonTask

pytestmark = pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")


def then_zero() -> AutomatonTask:
    """{0,1,2}*02*: any, then a 0, then 2s; and an end, after which nothing is asked."""

    def moves(state: str) -> dict[str, str]:
        if state == "over":
            return {}
        found = {"0": "zero", "1": "other", "2": state}
        return found | ({"$": "over"} if state == "zero" else {})

    return AutomatonTask(
        name="012*02*", symbols=("0", "1", "2", "$"), start="other", moves=moves,
        train_lengths=[5], long_lengths=[1, 6],
    )  # fmt: skip


TASK = then_zero()


def margins(
    model: Any, task: AutomatonTask, length: int, threshold: float, bos: bool
) -> np.ndarray:
    """Of each string after which something may follow: how far the nearest logit is, by sign."""
    asked = [(s, state) for s, state in every(task, length) if task.moves(state) and (s or bos)]
    if not asked:
        return np.empty(0)
    n = len(task.symbols)
    with torch.no_grad():
        logits = model(torch.tensor([[*[n] * bos, *s] for s, _ in asked]))[:, -1, :n] - threshold
    may = torch.tensor([[x in task.moves(state) for x in task.symbols] for _, state in asked])
    return torch.where(may, logits, -logits).amin(1).numpy()


def check(model: Any, task: AutomatonTask, longest: int, threshold: float, bos: bool) -> None:
    found = certify_language(model, task, longest, "allowed", threshold=threshold)
    rows = {row.length: row for row in found.by_length}
    assert found.claim == "allowed"
    assert found.threshold == threshold
    least, first = np.inf, None
    for length in range(longest + 1):
        margin = margins(model, task, length, threshold, bos)
        if not len(margin):
            assert length not in rows
            continue
        row, wrong = rows[length], int((margin < 0).sum())
        assert (row.prefixes, row.decided, row.wrong) == (len(margin), True, wrong)
        assert row.margin is not None
        assert row.margin.low <= margin.min() + 1e-9
        assert row.margin.high == pytest.approx(margin.min(), abs=1e-9)
        least = min(least, margin.min())
        first = length if wrong and first is None else first
    assert found.margin.high == pytest.approx(least, abs=1e-9)
    assert found.status == ("proved" if first is None else "refuted")
    if found.shortest is None:
        return
    assert found.shortest.length == first
    state: Any = task.start
    for token in found.shortest.tokens:
        state = task.moves(state)[task.symbols[token]]
    assert found.shortest.may_follow == tuple(s for s in task.symbols if s in task.moves(state))
    logits = found.shortest.logits[: len(task.symbols)]
    said = " ".join(s for s, x in zip(task.symbols, logits, strict=True) if x > threshold)
    assert found.shortest.predicted == (said or "nothing")


@settings(max_examples=8)
@given(
    shape=st.sampled_from(SHAPES),
    seed=st.integers(0, 10**6),
    threshold=st.sampled_from([0.0, -0.4, 1.0]),
    scale=st.sampled_from([0.1, 0.7]),
    more=st.integers(0, 2),
)
def test_strings_of_an_automaton_are_decided_as_by_brute_force(
    shape: dict[str, Any], seed: int, threshold: float, scale: float, more: int
) -> None:
    """With BOS where there is a token more than there are symbols; other logits say nothing."""
    sizes = {"d_vocab": 4 + more, "d_vocab_out": 4 + more}
    model = random_model(TASK, seed, scale, **sizes, **shape)
    if more == 2:
        model = adopt(model, Vocabulary(TASK.language, [0, 1, 2, 3], bos=4))
    check(model, TASK, 4, threshold, bos=more > 0)


@pytest.mark.global_rng
def test_a_folder_as_others_publish_them_is_decided_as_transformers_says(tmp_path: Path) -> None:
    """Symbols, BOS, an id that is never used, EOS, PAD; one layer, a logit for each id."""
    sizes = {"n_positions": 12, "n_embd": 8, "n_layer": 1, "n_head": 1, "vocab_size": 7}
    theirs = GPT2LMHeadModel(GPT2Config(**sizes, bos_token_id=3, eos_token_id=5)).eval()
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for weight in theirs.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator) / 2)
    theirs.save_pretrained(tmp_path)
    ids = Vocabulary(TASK.language, [0, 1, 2, 5], bos=3, padding=6)
    found = certify_language(adopt(tmp_path, ids), TASK, 4, "allowed")
    for row in found.by_length:
        margin = margins(
            lambda tokens: theirs(ids.to_model(tokens)).logits[..., ids.ids],
            TASK, row.length, 0.0, bos=True,
        )  # fmt: skip
        assert (row.prefixes, row.wrong) == (len(margin), (margin < 0).sum())
        assert row.margin.high == pytest.approx(margin.min(), abs=1e-5)
    assert {row.length for row in found.by_length} == {0, 1, 2, 3, 4}


def sure(model: Any, task: AutomatonTask, off: float) -> None:
    """Logits by position and last symbol so that sets are right after each string, but for `off`.

    No head; the stream is a one-hot of the last symbol. So only what that decides can be right.
    """
    with torch.no_grad():
        for weight in model.parameters():
            weight.zero_()
        n = len(task.symbols)
        model.embed.W_E[: n + 1, : n + 1] = torch.eye(n + 1, dtype=torch.float64)
        for string, state in [*every(task, 0), *every(task, 1), *every(task, 2)]:
            last = string[-1] if string else n
            may = [symbol in task.moves(state) for symbol in task.symbols]
            model.unembed.W_U[last, :n] = torch.tensor([1.0 if m else -1.0 for m in may])
        model.unembed.W_U[0, 0] = off


@pytest.mark.parametrize("off", [1.0, 1e-3, -1e-3])
def test_a_model_that_is_right_is_proved(off: float) -> None:
    """(ab)* and an end: what may follow hangs on the last symbol alone."""
    moves = {"even": {"a": "odd", "$": "over"}, "odd": {"b": "even"}, "over": {}}
    task = AutomatonTask(
        name="pairs", symbols=("a", "b", "$"), start="even", moves=moves.__getitem__,
        train_lengths=[1], long_lengths=[1, 2],
    )  # fmt: skip
    model = random_model(task, 0, 1.0, d_vocab=4, d_vocab_out=4, d_model=8, n_ctx=17)
    sure(model, task, -off)  # a may not follow a
    found = certify_language(model, task, 12, "allowed")
    assert found.status == ("proved" if off > 0 else "refuted")
    if off > 0:
        proof = prove_language(model, task, 12, "allowed")
        assert "above 0.0 exactly if it may follow, after each of 13 strings" in proof.says
    assert found.margin.high == pytest.approx(min(off, 1.0))
    assert certify_language(model, task, 12, "allowed", threshold=2.0).status == "refuted"


BRACKETS = DyckTask(name="small", n_types=2, max_depth=2, train_lengths=[2], long_lengths=[2, 4])


def of_brackets(model: Any, length: int, threshold: float) -> np.ndarray:
    """Whether each prefix is wrong, a stack at a time."""
    strings: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((), ())]
    for _ in range(length):
        grown = []
        for string, stack in strings:
            if len(stack) < 2:
                grown += [((*string, 2 * kind), (*stack, kind)) for kind in (0, 1)]
            if stack:
                grown.append(((*string, 2 * stack[-1] + 1), stack[:-1]))
        strings = grown
    with torch.no_grad():
        logits = model(torch.tensor([[4, *string] for string, _ in strings]))[:, -1, :4].numpy()
    wrong = []
    for row, (_, stack) in zip(logits, strings, strict=True):
        may = [len(stack) < 2, stack[-1:] == (0,), len(stack) < 2, stack[-1:] == (1,)]
        wrong.append(not np.array_equal(row > threshold, may))
    return np.array(wrong)


@pytest.mark.parametrize(
    ("shape", "positions", "most_run"),
    thinned(itertools.product(SHAPES[:3], [True, False], [0, 10**5]), 3, 1),
    ids=str,
)
def test_brackets_are_decided_as_by_brute_force(
    shape: dict[str, Any], positions: bool, most_run: int
) -> None:
    """Counted by profiles, run, or along paths."""
    model = random_model(TASK, 3, 0.4, d_vocab=5, d_vocab_out=5, **shape)
    with torch.no_grad():
        model.unembed.b_U[:4] = torch.tensor([1.0, 0.4, 1.0, -0.9])
        if not positions:
            model.pos_embed.W_pos.zero_()
    model = adopt(model, Vocabulary.ours(BRACKETS.language))
    for threshold in (0.0, 0.5):
        found = certify_language(
            model, BRACKETS, 5, "allowed", threshold=threshold, most_run=most_run
        )
        for row in found.by_length:
            wrong = of_brackets(model, row.length, threshold)
            assert row.prefixes == len(wrong)
            assert row.wrong <= wrong.sum()
            assert bool(row.wrong) == wrong.any()
            if row.decided:
                assert row.wrong == wrong.sum()
        linear = shape == {"attn_only": True}
        assert found.complete or (positions and not most_run and not linear)


def test_a_share_of_strings_is_estimated() -> None:
    """Each string of a length as likely; the exact share lies in the interval."""
    model = random_model(TASK, 5, 0.5, d_vocab=5, d_vocab_out=5)
    with torch.no_grad():
        model.unembed.b_U.copy_(torch.tensor([2.0, 2.0, 2.0, 0.0, 0.0]))
    wrong = margins(model, TASK, 4, 0.2, True) < 0
    (found,) = sample_error(model, TASK, 4, "allowed", threshold=0.2, n=4000, level=0.999)
    assert 0 < wrong.mean() < 1
    assert found.error.low <= wrong.mean() <= found.error.high
    assert found.error.high - found.error.low < 0.06
    assert sample_error(model, TASK, 4, "allowed", threshold=0.2, n=4000, level=0.999) == (found,)
    with pytest.raises(CertifyError, match="asks for nothing"):
        sample_error(model, AutomatonTask(
            name="one", symbols=tuple("abcd"), start=0, train_lengths=[1], long_lengths=[1, 1],
            moves=lambda state: {} if state else {"a": 1},
        ), 1, "allowed")  # fmt: skip


def test_targets_are_sets() -> None:
    tokens = torch.tensor([TASK.language.parse(text).tolist() for text in ("120", "02$", "000")])
    bos = torch.full((3, 1), TASK.language.bos_token)
    said = TASK.allowed(torch.cat([bos, tokens, bos], 1))
    for row, text in zip(said.tolist(), ("120", "02$", "000"), strict=True):
        state: Any = TASK.start
        for at in range(5):
            if 0 < at < 4:
                state = TASK.moves(state)[text[at - 1]]
            assert row[at] == [symbol in TASK.moves(state) for symbol in TASK.symbols]
    with pytest.raises(DyckStringError):
        TASK.allowed(TASK.language.parse("1$")[None])
    with pytest.raises(DyckStringError):
        BRACKETS.allowed(torch.tensor([0, 3]))


def test_what_is_no_such_claim_is_refused_in_a_line() -> None:
    model = random_model(TASK, 5, 0.5, d_vocab=5, d_vocab_out=5)
    other = random_model(TASK, 5, 0.5, d_vocab=5, d_vocab_out=7)
    mine = adopt(model, Vocabulary.ours(load_task("dyck-2-4").language))
    for call, said in (
        (lambda: certify_language(model, TASK, 2, threshold=1.0), "has no threshold"),
        (lambda: certify_language(mine, "dyck-2-4", 2, threshold=1.0), "has no threshold"),
        (lambda: certify_language(model, TASK, 2, "allowed", threshold=np.nan), "threshold"),
        (lambda: certify_language(model, TASK, 2, "allowed", epsilon=0.1), "'any_token' and"),
        (lambda: prove_language(model, TASK, 2, "allowed"), "on the wrong side of the threshold"),
        (lambda: prove_language(mine, "dyck-2-4", 2, "allowed"), "wrong side of the threshold"),
        (lambda: prove_language(mine, "dyck-2-4", 2, "allowed", by="boxes"), "proofs by paths"),
        (lambda: prove_language(mine, "dyck-2-4", 2, threshold=1.0), "has no threshold"),
        (lambda: prove_language(model, TASK, 2, "allowed", head=0), "'any_token' and"),
        (lambda: certify_language(other, TASK, 2, "allowed"), "nothing says which of the 7"),
    ):
        with pytest.raises((CertifyError, ValueError, NoProofError, VocabularyError)) as error:
            call()
        assert said in str(error.value)
        assert "\n" not in str(error.value)
