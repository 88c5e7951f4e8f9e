"""Files that someone changed: refused in a line."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from tests.certify.proofs import changed
from tests.certify.proofs.common import check_file
from tl_dyck.certify import check_automaton, check_edits, check_language, check_model
from tl_dyck.certify.check_language import LEAF, ProofError, read
from tl_dyck.certify.proof import pack


@pytest.mark.parametrize(
    ("kind", "cases"),
    [
        ("a language", 60),
        ("edits", 44),
        ("edits, rays", 40),
        ("edits, lists", 30),
        ("edits, gates", 30),
        ("an automaton", 30),
        ("places", 30),
        ("an adder", 20),
    ],
)
def test_changed_files_are_refused_in_a_line_or_say_what_is_true(kind, cases, tmp_path):
    found = changed.tally(changed.KINDS[kind], cases, tmp_path)
    assert found["a byte", "refused"] == cases // 2
    refused = sum(times for (_, outcome), times in found.items() if outcome == "refused")
    assert 0.8 * cases < refused < cases


def test_a_huge_array_is_refused_before_it_is_made(little, tmp_path):
    facts, arrays = read(little[0])
    for shape in ([2**62], [2**40, 2**40], [-1], ["a"], [1.5], 3):
        facts["arrays"]["W_E"] = ["<f8", shape]
        rest = json.dumps(facts).encode() + b"\n" + arrays["trees"].tobytes()
        digest = hashlib.sha256(rest).hexdigest().encode()
        (tmp_path / "x").write_bytes(digest + b"\n" + rest)
        with pytest.raises(ProofError):
            check_file(tmp_path / "x")


OTHER = np.uint16(LEAF + 1)


CHANGES = {
    "longer": lambda facts, arrays: facts.update(length=21),
    "a length that is no integer": lambda facts, arrays: facts.update(length=20.0),
    "a depth that is no integer": lambda facts, arrays: facts.update(max_depth=3.0),
    "another format": lambda facts, arrays: facts.update(format="tl_dyck.proof/3"),
    "more types": lambda facts, arrays: facts.update(n_types=3),
    "another depth": lambda facts, arrays: facts.update(max_depth=4),
    "another claim": lambda facts, arrays: facts.update(claim="everything"),
    "no norm": lambda facts, arrays: facts.update(norm=False),
    "no residual stream": lambda facts, arrays: facts.update(added="never"),
    "a fact too few": lambda facts, arrays: facts.pop("attn_scale"),
    "another model": lambda facts, arrays: facts.update(model="0" * 64),
    "no trees": lambda facts, arrays: arrays.pop("trees"),
    "empty trees": lambda facts, arrays: arrays.update(trees=arrays["trees"][:0]),
    "a tree too few": lambda facts, arrays: arrays.update(trees=arrays["trees"][:-1]),
    "a tree too many": lambda f, arrays: arrays.update(trees=np.append(arrays["trees"], OTHER)),
    "one bound for each ending": lambda f, a: a.update(trees=a["trees"][a["trees"] >= LEAF]),
    "other winners": lambda f, a: a.update(trees=a["trees"] ^ (2 * (a["trees"] >= LEAF))),
    "an axis that is not there": lambda f, a: a.update(trees=np.full(600, 63, np.uint8)),
    "a weight too few": lambda facts, arrays: arrays.pop("b_O"),
    "a weight of another shape": lambda f, arrays: arrays.update(b_O=arrays["b_O"][:-1]),
    "weights that are other ones": lambda f, a: a.update(W_U=a["W_U"] * 1.000001),
    "types exchanged": lambda f, a: a.update(W_U=a["W_U"][:, [0, 3, 2, 1, 4]].copy()),
}


def changed_other(**facts: object):
    return lambda f, arrays: f["other"].update(facts)


PAIR_CHANGES = {
    "longer": lambda facts, arrays: facts.update(length=200),
    "a huge length": lambda facts, arrays: facts.update(length=10**12),
    "a stronger claim": lambda facts, arrays: facts.update(claim="any_token"),
    "another claim": lambda facts, arrays: facts.update(claim="head"),
    "no other": lambda facts, arrays: facts.pop("other"),
    "an other that is none": lambda facts, arrays: facts.update(other=[]),
    "no weights of the other": lambda f, arrays: arrays.pop("other.W_E"),
    "a weight of the other": lambda f, a: a.update({"other.W_U": a["other.W_U"] * 1.000001}),
    "both are one": lambda f, a: a.update({n: a[n.removeprefix("other.")] for n in a}),
    "the other's scale": changed_other(attn_scale=2.0),
    "the other's scale that is none": changed_other(attn_scale=0),
    "the other's norm": changed_other(norm=False),
    "the other's stream": changed_other(added="never"),
    "the other's digest": changed_other(model="0" * 64),
    "a language of the other's own": lambda f, arrays: (
        f.update(max_depth=1),
        f["other"].update(max_depth=2),
    ),
    "other winners": lambda f, a: a.update(trees=np.where(a["trees"] < LEAF, a["trees"], LEAF + 2)),
    "winners that are no tokens": lambda f, a: a.update(trees=a["trees"] + np.uint16(3)),
}


TABLE = [("proof", name) for name in CHANGES] + [("pair", name) for name in PAIR_CHANGES]


@pytest.mark.parametrize(("of", "change"), TABLE)
def test_what_is_changed_and_sealed_again_is_refused_by_what_it_says(of, change, tmp_path, request):
    path, *folders = request.getfixturevalue(of)
    facts, arrays = read(path)
    del facts["arrays"]
    (CHANGES if of == "proof" else PAIR_CHANGES)[change](facts, arrays)
    arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    (tmp_path / "x").write_bytes(pack(facts, arrays))
    with pytest.raises(ProofError) as caught:
        check_file(tmp_path / "x", *folders)
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 200


EDITS = {
    "a token is none": [{"string": [0, -1]}, {"string": [0, 7]}, {"string": [0, 1.5]}],
    "a budget is no": [{"budgets": [-1]}, {"budgets": [2**40]}, {"budgets": [1.0]}],
    "of no kind or place": [{"rewrites": [[1, 0, 1, [0]]]}, {"rewrites": [[0, 5, 1, [0]]]}],
    "too many rewritings": [{"rewrites": [[0, 0, 1, [0]]] * 20_000}, {"budgets": [0] * 9}],
    "its target is no logit": [{"target": -1}, {"target": 3}, {"target": "1"}],
    "its budgets allow [0-9]+ tokens, and the network reads": [
        {"string": [0] * 24},
        {"rewrites": [[0, 0, 0, [0] * 12]]},
    ],
}

AUTOMATA = {
    "no such automaton": [
        *({"after": [[0, 0, 0], [0, 0, 3], [0, 0, 0]]}, {"after": [[0]] * 3}, {"answers": [0]}),
        *({"written": [0, 1, 99]}, {"lengths": [9999]}, {"lengths": [2**40]}, {"lengths": [-1]}),
        *({"lengths": [1, 1, 2]}, {"lengths": [1, 3]}, {"written": [0, 1, 1]}),
    ],
    "its target is no logit": [{"answers": [0, -1, 0]}, {"answers": [0, 3, 0]}],
    "too large": [{"after": [[(i + j) % 3000 for j in range(3)] for i in range(3000)],
                   "answers": [0] * 3000, "lengths": [2000]}],
}  # fmt: skip

CHECKED = {"edits": (check_edits, EDITS), "automaton": (check_automaton, AUTOMATA)}


@pytest.mark.parametrize(
    ("of", "reason"), [(of, reason) for of, (_, reasons) in CHECKED.items() for reason in reasons]
)
def test_hostile_words_are_refused_as_such(of, reason, request):
    facts, arrays = read(request.getfixturevalue(of)[0])
    checker, changes = CHECKED[of]
    if reason == "too large":
        facts["config"] |= {"state": "none"}
        del arrays["W_pos"]
    for change in changes[reason]:
        with pytest.raises(ProofError, match=reason):
            checker.check(facts | change, dict(arrays))


def test_automata_are_compared_with_the_exported_rnn(automaton):
    assert check_file(*automaton).endswith("compared with the model")


@pytest.mark.parametrize(
    "content", [b"", b"\n", b"\n\n", b"x" * 100, b"[" * 10_000, b"\x80\x04\x95", b"{}\n{}\n"]
)
def test_what_is_no_proof_is_refused_in_a_line(tmp_path, content, capsys):
    (tmp_path / "x").write_bytes(content)
    for main in (check_model.main, check_language.main):
        assert main([str(tmp_path / "x")]) == 1
        assert "not proved" in capsys.readouterr().out
        assert main([str(tmp_path / "nothing")]) == 1
        assert "unreadable (FileNotFoundError)" in capsys.readouterr().out
