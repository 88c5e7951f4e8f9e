"""Proofs of adders of one layer, made by hand: all sums of few digits are run, of many none."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

from tests.certify.oracles import favouring
from tests.certify.proofs.common import unpacked
from tl_dyck.certify import check_automaton, check_language, check_model
from tl_dyck.certify.check_bounds import BOUND
from tl_dyck.certify.check_language import ProofError
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.tasks import AutomatonTask, addition_task
from tl_dyck_papers.by_hand import adder


def every_prefix(rnn: TwoLayerRNN, task: AutomatonTask) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Of each place that is asked: all logits after all sums, and which must be largest."""
    (length,), base = task.train_lengths, len(task.symbols) - 2
    n, sums = (length - 3) // 3, []
    for a, b in itertools.product(range(base**n), repeat=2):
        figures = [[x // base**k % base for k in range(n + 1)] for x in (a, b, a + b)]
        sums.append(
            [*figures[0][n - 1 :: -1], base, *figures[1][n - 1 :: -1], base + 1, *figures[2]]
        )
    tokens = torch.tensor(sums)
    logits = rnn(tokens).numpy()
    yield from ((logits[:, place], tokens[:, place + 1].numpy()) for place in task.asked)


@pytest.mark.parametrize(
    ("digits", "base", "ln_final"), [(2, 3, None), (3, 2, "lnpre"), (1, 5, "lnpre")]
)
@np.errstate(all="ignore")
def test_of_few_digits_all_sums_count(digits: int, base: int, ln_final: str | None) -> None:
    """On both sides of a tie with the largest digit, which wins wrongly after some sum, or none."""
    rnn, task, rival = adder(digits, base, ln_final), addition_task(digits, base=base), base - 1
    rows, gaps = [*every_prefix(rnn, task)], []
    for logits, right in rows:
        assert (logits.argmax(1) == right).all()
        others = right != rival
        gaps.append((logits[np.arange(len(right)), right] - logits[:, rival])[others].min())
    proof = prove_language(favouring(rnn, rival, min(gaps) - 1e-7), task)
    n = sum(len(right) for _, right in rows)
    assert f"after each of {n:,} strings of {2 * digits + 2} to {3 * digits + 2}" in proof.says
    facts, arrays = unpacked(proof.content)
    assert check_automaton.check(facts, arrays) == proof.says
    wrong = favouring(rnn, rival, min(gaps) + 1e-7)
    with pytest.raises(NoProofError, match="another logit is larger"):
        prove_language(wrong, task)
    with pytest.raises(ProofError, match="not settled"):
        check_automaton.check(facts, arrays | {"b_U": wrong.b_U.numpy()})


@pytest.mark.parametrize(("digits", "base"), [(4, 3), pytest.param(10, 10, marks=pytest.mark.slow)])
def test_of_many_digits_none_is_run(digits: int, base: int, tmp_path: Path) -> None:
    """3⁸ and 10²⁰ sums: one file, of some thousand leaves at most, for all answers."""
    proof = prove_language(adder(digits, base, "lnpre"), addition_task(digits, base=base))
    path = proof.save(tmp_path / "sums.proof")
    proved, said = check_model.verdict(path)
    assert proved, said
    longest = 3 * digits + 2
    sums = (digits + 1) * base ** (2 * digits)
    assert f"each of {sums:,} strings of {longest - digits} to {longest} tokens" in said
    leaves = int((unpacked(proof.content)[1]["trees"] == BOUND).sum())
    assert leaves < (digits + 1) * base**2 * 40
    # a reckoning of all leaves, made after the first of them, refuses what is too much
    done = check_language.WORK.done
    proved, said = check_model.verdict(path, work=done / 2)
    assert not proved
    assert "too large: it asks for work" in said
    assert check_language.WORK.done < 40 * done / leaves
