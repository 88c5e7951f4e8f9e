"""A claim that speaks of no string is no proof: nobody makes one, and no checker takes one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.certify.oracles import random_rnn
from tests.certify.proofs.common import PAIR, SMALL, check_file
from tl_dyck.certify import (
    PerturbationSpace,
    SwapAdjacent,
    check_agreement,
    check_automaton,
    check_language,
    check_two_layers,
)
from tl_dyck.certify.check_language import ProofError
from tl_dyck.certify.edit_proofs import prove_edits
from tl_dyck.certify.language import certify_language
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError
from tl_dyck.certify.protocol import CertifyError
from tl_dyck.models import DyckTransformer, build_model, get_config
from tl_dyck.tasks import AutomatonTask

UNCOUNTED = AutomatonTask(
    name="uncounted",
    symbols=("a", "b"),
    start=0,
    moves=lambda state: {"a": 1} if state == 0 else {"b": 0},
    ends=lambda state: state == 0,
    counted=lambda state, symbol: False,
    train_lengths=(2, 4),
    long_lengths=(6, 8),
)
#: Kind of proof -> family, layers, task, length, claim.
CASES = {
    "boxes": ("minimal-onehot", 1, SMALL, 0, "any_token"),
    "closing": ("minimal-onehot", 1, SMALL, 0, "closing_only"),
    "paths": ("gpt", 1, SMALL, 0, "any_token"),
    "two layers": ("eq49", 2, PAIR, 0, "any_token"),
    "no rival": ("minimal-onehot", 1, PAIR, 4, "closing_only"),
    "no rival, two layers": ("eq49", 2, PAIR, 4, "closing_only"),
    "automaton": ("gpt", 1, UNCOUNTED, 5, "any_token"),
}


def asked(kind: str) -> tuple[DyckTransformer, Any, int, str]:
    family, layers, task, length, claim = CASES[kind]
    return build_model(get_config(family, task, n_layers=layers)), task, length, claim


@pytest.mark.parametrize("kind", CASES)
def test_no_proof_is_made_of_nothing(kind: str) -> None:
    model, task, length, claim = asked(kind)
    with pytest.raises(NoProofError, match=r"^nothing is asked: it speaks of no "):
        prove_language(model, task, length, claim)
    with pytest.raises(CertifyError, match="says nothing of strings"):
        certify_language(model, task, length, claim)


@pytest.mark.parametrize("kind", CASES)
def test_a_file_that_asks_nothing_proves_nothing(
    kind: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As it was written when nobody looked."""
    model, task, length, claim = asked(kind)
    for module in (check_language, check_automaton.base, check_two_layers.base):
        monkeypatch.setattr(module, "need", lambda true, why: None)
    proof = prove_language(model, task, length, claim)
    monkeypatch.undo()
    path = proof.save(tmp_path / "x.proof")
    with pytest.raises(ProofError, match=r"^not proved: nothing is asked"):
        check_file(path)


def test_an_only_logit_has_no_rival() -> None:
    """Nor is a file believed that says it has won: `tampered.IN_EDITS` has one."""
    rnn, space = random_rnn(0, d_vocab_out=1), PerturbationSpace([(SwapAdjacent(), 1)])
    with pytest.raises(CertifyError, match="single logit"):
        prove_edits(rnn, (0, 1), None, space)


def test_models_that_lack_logits_of_brackets_predict_none(tmp_path: Path) -> None:
    """With one logit each they would always agree."""
    model = build_model(get_config("minimal-onehot", PAIR))
    facts, arrays = check_language.read(
        prove_language(model, PAIR, 4, "agree", other=model).save(tmp_path / "x.proof")
    )
    for name in ("W_U", "b_U", "other.W_U", "other.b_U"):
        arrays[name] = arrays[name][..., :1]
    arrays["trees"] = np.minimum(arrays["trees"], check_language.LEAF)  # the only logit wins
    with pytest.raises(ProofError, match="no logit for some bracket"):
        check_agreement.check(facts, arrays)
