"""Proofs of edits: what is wrong has none, and changes are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.certify.oracles import (
    PROVABLE,
    Problem,
    RNNRecipe,
    brute_force,
    favouring,
    margins,
    problems,
    random_rnn,
    rnns,
    strings_of,
)
from tests.certify.proofs.changed import SPACE, STRING, make_edits
from tests.certify.proofs.common import (
    check_file,
)
from tl_dyck import construct
from tl_dyck.certify import (
    Delete,
    PerturbationSpace,
    SwapAdjacent,
    check_edits,
)
from tl_dyck.certify.check_language import ProofError, read
from tl_dyck.certify.check_model import compare_exported
from tl_dyck.certify.edit_proofs import prove_edits
from tl_dyck.certify.proof import NoProofError, pack
from tl_dyck.cli import app
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import export_rnn, save_rnn


@pytest.fixture(scope="module")
def proof(tmp_path_factory) -> tuple[Path, Path]:
    """A proof of a few parts, of a margin of 0.01, and its exported RNN."""
    return make_edits(tmp_path_factory.mktemp("proof"))


def test_a_proof_is_compared_with_the_exported_rnn(proof, tmp_path):
    assert check_file(*proof).endswith("compared with the model")
    facts, arrays = read(proof[0])
    assert (arrays["trees"] == check_edits.BOUND).sum() > 3
    for name in set(arrays) - {"trees"}:
        other = {**arrays, name: arrays[name] + 1e-6}
        with pytest.raises(ProofError, match=f"{name} is not that of the model"):
            compare_exported(facts, other, proof[1])
    for name, value in {"eps": 1e-4, "n_ctx": 23, "residual": False}.items():
        with pytest.raises(ProofError, match=name):
            compare_exported({**facts, "config": facts["config"] | {name: value}}, arrays, proof[1])
    for name, value in {"texts": ["a"] * len(facts["tokens"]), "names_logits": True}.items():
        with pytest.raises(ProofError, match=name):
            compare_exported({**facts, name: value}, arrays, proof[1])
    with pytest.raises(ProofError, match="export"):
        check_file(proof[0], tmp_path)


HOSTILE = {
    "a token is none": [{"string": [0, -1]}, {"string": [0, 7]}, {"string": [0, 1.5]}],
    "a budget is no": [{"budgets": [-1]}, {"budgets": [2**40]}, {"budgets": [1.0]}],
    "of no kind or place": [{"rewrites": [[1, 0, 1, [0]]]}, {"rewrites": [[0, 5, 1, [0]]]}],
    "too many rewritings": [{"rewrites": [[0, 0, 1, [0]]] * 20_000}, {"budgets": [0] * 9}],
    "its target is no logit": [{"target": -1}, {"target": 3}, {"target": "1"}],
    "strings are too long": [{"string": [0] * 24}, {"rewrites": [[0, 0, 0, [0] * 12]]}],
}


@pytest.mark.parametrize("reason", HOSTILE)
def test_hostile_words_are_refused_as_such(proof, reason):
    facts, arrays = read(proof[0])
    for change in HOSTILE[reason]:
        with pytest.raises(ProofError, match=reason):
            check_edits.check(facts | change, dict(arrays))


@pytest.mark.parametrize("change", [{"names": ["sub\nb.proof: proved"]}, {"names": ["\x1b[2J"]}])
def test_a_sentence_is_one_line_of_text(proof, tmp_path, change):
    """Whatever a file calls its edits: nothing is said in another's name."""
    facts, arrays = read(proof[0])
    del facts["arrays"]
    (tmp_path / "x").write_bytes(pack(facts | change, arrays))
    with pytest.raises(ProofError, match="names that are no text"):
        check_file(tmp_path / "x")


def test_trees_of_no_group_are_refused(proof):
    facts, arrays = read(proof[0])
    more = np.concatenate([arrays["trees"], np.array([check_edits.BOUND, 0], dtype="<u2")])
    with pytest.raises(ProofError, match="trees of no group"):
        check_edits.check(facts, {**arrays, "trees": more})


@pytest.mark.parametrize("fields", PROVABLE)
def test_every_network_is_settled_by_one_in_ten_million(fields):
    """On both sides of a tie, so that whatever a network has counts."""
    space, string = PerturbationSpace([(SwapAdjacent(), 1)]), (0, 3, 2, 5)
    options = {"attn_scale": 1.7, "eps": 0.1, "state": "position+depth", "bos_token": 6, **fields}
    for seed in range(3):
        rnn = random_rnn(seed, n_heads=2, **options)
        least = margins(rnn, strings_of(rnn, space, string), 0).min()
        prove_edits(favouring(rnn, 0, 1e-7 - least), string, 0, space)
        with pytest.raises(NoProofError):
            prove_edits(favouring(rnn, 0, -1e-7 - least), string, 0, space)


@given(
    rnns(PROVABLE, sharpness=(0.0, 1.0, 5.0, 200.0)),
    problems(),
    st.sampled_from([1e-2, 1e-6, 1e-9, -1e-9, -1e-6, -1e-2]),
)
@settings(max_examples=30)
def test_what_holds_is_proved_and_what_does_not_is_not(
    tmp_path_factory, recipe: RNNRecipe, problem: Problem, least: float
):
    """The least margin is set to be ``least``, by enumeration."""
    rnn = RNNRecipe(recipe.seed, recipe.fields | {"attn_scale": 1.7, "eps": 0.1}).build()
    space, string = problem.build()
    strings = strings_of(rnn, space, string)
    assume(len(strings) < 60)
    before = margins(rnn, strings, 0).min()
    rnn = favouring(rnn, 0, least - before)
    if least < 0:
        with pytest.raises(NoProofError):
            prove_edits(rnn, string, 0, space)
        return
    file = prove_edits(rnn, string, 0, space).save(tmp_path_factory.mktemp("proof") / "a")
    n = sum(1 for each, _ in brute_force(space, string) if each or rnn.config.bos_token is not None)
    assert f"each of {n:,} ways of editing" in check_file(file)


@pytest.mark.parametrize("state", ["none", "position+depth"])
def test_the_string_of_which_all_is_deleted_counts(state):
    """BOS alone, the only string that is wrong."""
    space, rnn = PerturbationSpace([(Delete(None), 2)]), random_rnn(2, bos_token=6, state=state)
    alone = margins(rnn, [()], 0)[0]
    others = margins(rnn, [(0,), (1,), (0, 1)], 0).min()
    rnn = favouring(rnn, 0, -others + 1e-3)
    with pytest.raises(NoProofError, match="on \\(\\) another"):
        prove_edits(rnn, (0, 1), 0, space)
    rnn = favouring(rnn, 0, others - alone)
    assert "after each of 4 ways" in prove_edits(rnn, (0, 1), 0, space).says


def test_what_cannot_be_proved_is_said(proof):
    for fields in ({"n_heads": 5}, {"act_fn": "silu"}):
        with pytest.raises(NoProofError, match="up to 4 heads, with relu, gelu or no MLP"):
            prove_edits(random_rnn(0, **fields), STRING, 1, SPACE)
    with pytest.raises(NoProofError, match="none was found in 1e-09"):
        prove_edits(random_rnn(0), STRING, None, SPACE, time_limit=1e-9)
    wrong = favouring(random_rnn(0), 1, -100)
    with pytest.raises(NoProofError, match="another logit is larger"):
        prove_edits(wrong, STRING, 1, SPACE)


def test_the_command_line_writes_proofs_and_checks_them(tmp_path):
    run, proofs = CliRunner().invoke, tmp_path / "proofs"
    save_rnn(export_rnn(construct.uniform_attention(DyckLanguage(2, 4))), tmp_path / "rnn")
    asked = ["certify", str(tmp_path / "rnn"), "--text", "([)", "--text", "()[", "--text", "((["]
    done = run(app, [*asked, "--space", "pairs:1", "--target", "]", "--proofs", str(proofs)])
    names = [
        "2.proof",
        "3.proof",
    ]  # of the first nothing is certified
    assert sorted(path.name for path in proofs.iterdir()) == names, done.output
    files = [str(proofs / name) for name in names]
    checked = run(app, ["check", *files, "--model", str(tmp_path / "rnn")])
    assert checked.exit_code == 0
    assert checked.output.count("compared with the model") == 2
    assert "ways of editing '()['" in checked.output
    assert "logit 1 (']') is the largest" in checked.output
