"""Files that someone changed: refused in a line."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import pytest

from tests.certify.proofs import changed
from tests.certify.proofs.common import (
    check_file,
)
from tl_dyck.certify import (
    check_language,
    check_model,
)
from tl_dyck.certify.check_language import (
    LEAF,
    ProofError,
    read,
)
from tl_dyck.certify.proof import pack


@pytest.mark.parametrize(
    ("kind", "cases"), [("a language", 1000), ("edits", 800), ("an automaton", 600)]
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
    "a length that is no number": lambda facts, arrays: facts.update(length="20"),
    "a length that is no integer": lambda facts, arrays: facts.update(length=20.0),
    "a depth that is no integer": lambda facts, arrays: facts.update(max_depth=3.0),
    "another format": lambda facts, arrays: facts.update(format="tl_dyck.proof/3"),
    "a huge length": lambda facts, arrays: facts.update(length=10**9),
    "a huge language": lambda facts, arrays: facts.update(n_types=10**6),
    "more types": lambda facts, arrays: facts.update(n_types=3),
    "another depth": lambda facts, arrays: facts.update(max_depth=4),
    "another claim": lambda facts, arrays: facts.update(claim="everything"),
    "no norm": lambda facts, arrays: facts.update(norm=False),
    "a floor that is a list": lambda facts, arrays: facts.update(floor=[]),
    "a floor below 0": lambda facts, arrays: facts.update(floor=-1.0),
    "no scale": lambda facts, arrays: facts.update(attn_scale=0),
    "no residual stream": lambda facts, arrays: facts.update(added="never"),
    "a fact too few": lambda facts, arrays: facts.pop("attn_scale"),
    "another model": lambda facts, arrays: facts.update(model="0" * 64),
    "no trees": lambda facts, arrays: arrays.pop("trees"),
    "empty trees": lambda facts, arrays: arrays.update(trees=arrays["trees"][:0]),
    "a tree too few": lambda facts, arrays: arrays.update(trees=arrays["trees"][:-1]),
    "a tree too many": lambda f, arrays: arrays.update(trees=np.append(arrays["trees"], OTHER)),
    "one bound for each ending": lambda f, a: a.update(trees=a["trees"][a["trees"] >= LEAF]),
    "other winners": lambda f, a: a.update(trees=a["trees"] ^ (2 * (a["trees"] >= LEAF))),
    "winners that are no tokens": lambda f, a: a.update(trees=np.full(60, 254, np.uint8)),
    "an axis that is not there": lambda f, a: a.update(trees=np.full(600, 63, np.uint8)),
    "a weight too few": lambda facts, arrays: arrays.pop("b_O"),
    "a weight of another shape": lambda f, arrays: arrays.update(b_O=arrays["b_O"][:-1]),
    "a weight that is not finite": lambda f, a: a.update(b_O=a["b_O"] * np.nan),
    "weights that are other ones": lambda f, a: a.update(W_U=a["W_U"] * 1.000001),
    "types exchanged": lambda f, a: a.update(W_U=a["W_U"][:, [0, 3, 2, 1, 4]].copy()),
}


@pytest.mark.parametrize("change", CHANGES)
def test_what_is_changed_and_sealed_again_is_refused_by_what_it_says(proof, tmp_path, change):
    facts, arrays = read(proof[0])
    del facts["arrays"]
    CHANGES[change](facts, arrays)
    arrays["trees" if "trees" in arrays else "b_O"] = arrays.get("trees", arrays.get("b_O"))
    (tmp_path / "x").write_bytes(
        pack(facts, {name: np.ascontiguousarray(value) for name, value in arrays.items()})
    )
    with pytest.raises(ProofError) as caught:
        check_file(tmp_path / "x", proof[1])
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 200


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
