"""Files that someone changed: refused in a line."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path

import numpy as np
import pytest

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


def _bytes_changed(data: bytes, rng: np.random.Generator) -> bytes:
    at, kind = int(rng.integers(len(data))), rng.integers(4)
    other = bytes([data[at] ^ int(rng.integers(1, 256))])
    return (
        data[:at] + other + data[at + 1 :],
        data[:at],
        data[:at] + data[at + 1 :],
        data[:at] + other + data[at:],
    )[kind]


def _sealed_again(path: Path, rng: np.random.Generator) -> bytes:
    """A weight, a node, two endings, a size or the length is another, and the digest fits."""
    facts, arrays = read(path)
    del facts["arrays"]
    trees = arrays["trees"].copy()
    kind = rng.integers(6)
    if kind == 0:
        name = str(rng.choice(sorted(set(arrays) - {"trees"})))
        weight = arrays[name] = arrays[name].astype("<f8")
        if weight.size:
            index = np.unravel_index(rng.integers(weight.size), weight.shape)
            weight[index] = weight[index] * (1 + 1e-6) + (weight[index] == 0) * 1e-6
        else:
            arrays[name] = np.zeros(3)
    elif kind == 1:
        trees[rng.integers(len(trees))] = rng.integers(LEAF + 8)
    elif kind == 2:
        at = np.sort(rng.integers(len(trees) + 1, size=3))
        trees = np.concatenate([np.split(trees, at)[k] for k in (0, 2, 1, 3)])
    elif kind == 3:
        facts["length"] = int(rng.choice([9, 10, 12, 100, 10_000, 2**40]))
    elif kind == 4:
        facts[str(rng.choice(["n_types", "max_depth", "attn_scale", "floor"]))] = int(
            rng.choice([0, -1, 3, 63, 10**6, 10**30])
        )
    else:
        name = str(rng.choice(sorted(set(arrays) - {"trees"})))
        arrays[name] = np.zeros(tuple(rng.integers(0, 3, size=int(rng.integers(0, 5)))))
    arrays["trees"] = trees
    return pack(facts, {name: np.ascontiguousarray(each) for name, each in arrays.items()})


def test_a_thousand_changes_are_refused_in_a_line_or_prove_the_same(little, tmp_path):
    """Another tree may be as good a proof: of the same sentence, and of no other."""
    path, model = little
    whole, rng = check_file(path, model), np.random.default_rng(0)
    data, refused = path.read_bytes(), 0
    for number in range(1000):
        changed = _bytes_changed(data, rng) if number % 2 else _sealed_again(path, rng)
        (tmp_path / "x").write_bytes(changed)
        if changed == data:
            continue
        try:  # changed bytes do not have the digest, whatever they say
            said = check_file(tmp_path / "x", *([] if number % 2 else [model]))
        except ProofError as error:
            said, refused = str(error), refused + 1
        else:
            assert said == whole
        assert len(said.splitlines()) == 1
        assert len(said) < 400
    assert refused > 950


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
