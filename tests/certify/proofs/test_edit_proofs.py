"""Proofs of edits: what is wrong has none, and changes are none."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from tests.cases import thinned
from tests.certify.oracles import PROVABLE, favouring, margins, random_rnn, strings_of
from tests.certify.proofs.changed import SPACE, STRING
from tests.certify.proofs.common import check_file, unpacked
from tl_dyck import construct
from tl_dyck.certify import (
    Delete,
    PerturbationSpace,
    Substitute,
    SwapAdjacent,
    check_bounds,
    check_edits,
    check_model,
)
from tl_dyck.certify.check_language import ProofError, read
from tl_dyck.certify.check_model import compare_exported
from tl_dyck.certify.edit_proofs import prove_edits
from tl_dyck.certify.path_proofs import refuse_others
from tl_dyck.certify.proof import NoProofError, pack
from tl_dyck.cli import app
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import export_rnn, save_rnn


def test_a_proof_is_compared_with_the_exported_rnn(edits, tmp_path):
    assert check_file(*edits).endswith("compared with the model")
    facts, arrays = read(edits[0])
    assert (arrays["trees"] == check_bounds.BOUND).sum() > 3
    for name in set(arrays) - {"trees"}:
        other = {**arrays, name: arrays[name] + 1e-6}
        with pytest.raises(ProofError, match=f"{name} is not that of the model"):
            compare_exported(facts, other, edits[1])
    for name, value in {"eps": 1e-4, "n_ctx": 23, "residual": False}.items():
        with pytest.raises(ProofError, match=name):
            compare_exported({**facts, "config": facts["config"] | {name: value}}, arrays, edits[1])
    for name, value in {"texts": ["a"] * len(facts["tokens"]), "names_logits": True}.items():
        with pytest.raises(ProofError, match=name):
            compare_exported({**facts, name: value}, arrays, edits[1])
    with pytest.raises(ProofError, match="export"):
        check_file(edits[0], tmp_path)


@pytest.mark.parametrize("change", [{"names": ["sub\nb.proof: proved"]}, {"names": ["\x1b[2J"]}])
def test_a_sentence_is_one_line_of_text(edits, tmp_path, change):
    """Whatever a file calls its edits: nothing is said in another's name."""
    facts, arrays = read(edits[0])
    del facts["arrays"]
    (tmp_path / "x").write_bytes(pack(facts | change, arrays))
    said = check_file(tmp_path / "x")
    assert said.isprintable()
    assert f"of 5 called {change['names'][0]!r}" in said


OLDER = {
    "edits-3-ln_c": "logit 1 is the largest after each of 14 ways of editing a string '0 3 0 5 1'",
    "edits-2": "logit 1 is the largest after each of 14 ways of editing a string '0 3 0 5 1'",
    "edits-2-ln_c": "logit 1 is the largest after each of 14 ways of editing a string '0 3 0 5 1'",
    "automaton-1": "after each of 14 strings of 0 to 3 tokens of an automaton of 3 states",
    "automaton-4": "strings of 2 to 3 tokens of automata, one a length, that read their places",
}


@pytest.mark.parametrize("name", OLDER)
def test_files_that_older_versions_wrote_are_still_proofs(name):
    path = Path(__file__).parent / "older" / f"{name}.proof"
    assert OLDER[name] in check_file(path)
    facts, arrays = read(path)
    assert check_bounds.LIST not in arrays["trees"]
    assert (check_bounds.RAYS in arrays["trees"]) is (name == "edits-3-ln_c")
    facts["format"] = facts["format"][:-1] + "0"
    with pytest.raises(ProofError, match="of format"):
        check_model.check(facts, arrays)


def test_trees_of_no_group_are_refused(edits):
    facts, arrays = read(edits[0])
    more = np.concatenate([arrays["trees"], np.array([check_bounds.BOUND, 0], dtype="<u2")])
    with pytest.raises(ProofError, match="trees of no group"):
        check_edits.check(facts, {**arrays, "trees": more})


@pytest.mark.parametrize("fields", thinned(PROVABLE, first=1))
def test_every_network_is_settled_by_one_in_ten_million(fields):
    """On both sides of a tie, so that whatever a network has counts."""
    space, string = PerturbationSpace([(SwapAdjacent(), 1)]), (0, 3, 2, 5)
    options = {"attn_scale": 1.7, "eps": 0.1, "state": "position+depth", "bos_token": 6, **fields}
    rnn = random_rnn(1, n_heads=2, **options)
    least = margins(rnn, strings_of(rnn, space, string), 0).min()
    prove_edits(favouring(rnn, 0, 1e-7 - least), string, 0, space)
    with pytest.raises(NoProofError):
        prove_edits(favouring(rnn, 0, -1e-7 - least), string, 0, space)


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


@pytest.mark.parametrize(
    ("heads", "act_fn"),
    [(5, "gelu"), (3, "silu"), (8, "relu"), (9, "relu"), (12, "silu"), (10, "gelu_new")],
)
def test_many_heads_are_proved_up_to_a_near_tie(heads, act_fn, tmp_path):
    """The least margin of all strings decides, moved to a millionth on either side of zero.

    Beyond eight heads the file lists strings, and is as near to a tie.
    """
    rnn = random_rnn(3, n_heads=heads, act_fn=act_fn)
    least = margins(rnn, strings_of(rnn, SPACE, STRING), 1).min()
    proof = prove_edits(favouring(rnn, 1, 1e-6 - least), STRING, 1, SPACE)
    listed = check_bounds.LIST in unpacked(proof.content)[1]["trees"]
    assert listed is (heads > check_bounds.HEADS)
    assert check_model.verdict(proof.save(tmp_path / "right.proof"))[0]
    with pytest.raises(NoProofError, match="another logit is larger"):
        prove_edits(favouring(rnn, 1, -1e-6 - least), STRING, 1, SPACE)


def test_what_cannot_be_proved_is_said(edits):
    with pytest.raises(NoProofError, match="up to 8 heads, with relu, gelu, gelu_new, silu or no"):
        refuse_others(random_rnn(0, n_heads=9).config)
    many = PerturbationSpace([(Substitute({0: (1, 2), 3: (4,)}), 99)])
    with pytest.raises(
        NoProofError, match=r"59,049 ways .* 9 heads: beyond 8 heads .* at most 10,"
    ):
        prove_edits(random_rnn(0, n_heads=9), (0,) * 10, None, many)
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
    assert "ways of editing a string called '()['" in checked.output
    assert "logit 1 (']') is the largest" in checked.output
