"""Proofs: what is proved holds; what does not hold has none; what someone changed is none."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tl_dyck import construct
from tl_dyck.certify import check_proof
from tl_dyck.certify.check_proof import Enclosure, ProofError, check, check_file, dot, read
from tl_dyck.certify.proving import LanguageProof, NoProofError, pack, prove_language
from tl_dyck.cli import app
from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, get_config, save_model
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.tasks import DyckTask

SMALL = DyckTask(name="small", n_types=2, max_depth=2, train_lengths=(4,), long_lengths=(8, 8))
FAMILIES = ("minimal-onehot", "minimal-split", "minimal-yao", "figure2-onehot", "eq6", "eq49")
N = 6


def enumerated(rnn: TwoLayerRNN, language: DyckLanguage, claim: str, length: int = N) -> float:
    """The least margin over all prefixes, each run through the RNN in float64."""
    rnn, worst = rnn.to(torch.float64), np.inf
    for n in range(length + 1):
        strings = language.enumerate(n, "prefix")
        tokens = torch.nn.functional.pad(strings, (1, 0), value=language.bos_token)
        logits = rnn(tokens)[:, -1].detach().numpy()
        depth = language.depth(tokens)[:, -1].tolist()
        closing = language.right_bracket(tokens)[:, -1].tolist()
        for row, d, right in zip(logits, depth, closing, strict=True):
            may = [right] if d else []
            if claim == "valid_token":
                may += range(0, 2 * language.n_types, 2) if d < language.max_depth else []
            rivals = range(len(row)) if claim != "closing_only" else range(1, language.bos_token, 2)
            must_not = [token for token in rivals if token not in may]
            if may and must_not:
                worst = min(worst, max(row[may]) - max(row[must_not]))
    return worst


def rnn_of(family: str, seed: int, task: DyckTask = SMALL, **options: object) -> TwoLayerRNN:
    config = get_config(
        family, task, n_layers=1, dtype=torch.float64, initializer_range=0.7, **options
    )
    return export_rnn(build_model(config, seed))


def with_bias(rnn: TwoLayerRNN, shift: float, language: DyckLanguage) -> TwoLayerRNN:
    """Closing brackets by so much more likely."""
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["b_U"][1 : language.bos_token : 2] += shift
    return TwoLayerRNN(rnn.config, weights)


@settings(max_examples=25)
@given(
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 1000),
    claim=st.sampled_from(sorted(check_proof.CLAIMS)),
    shift=st.sampled_from([0.0, 2.0, 8.0]),
)
def test_what_is_proved_holds_on_every_prefix(family, seed, claim, shift):
    """And what holds clearly is proved."""
    language = SMALL.language
    rnn = with_bias(rnn_of(family, seed), shift, language)
    margin = enumerated(rnn, language, claim)
    try:
        data = prove_language(rnn, SMALL, N, claim).content
    except NoProofError:
        assert margin < 1e-6
    else:
        assert margin > 0
        facts, arrays = unpacked(data)
        assert check_proof.CLAIMS[claim] in check(facts, arrays)


def unpacked(data: bytes) -> tuple[dict, dict]:
    line, numbers = data.split(b"\n", 2)[1:]
    facts, arrays, end = json.loads(line), {}, 0
    for name, (kind, shape) in facts.pop("arrays").items():
        arrays[name] = np.frombuffer(numbers, kind, int(np.prod(shape)), end).reshape(shape)
        end += arrays[name].nbytes
    return facts, arrays


@pytest.mark.parametrize("gap", [1e-6, 1e-9, -1e-9, -1e-6])
@pytest.mark.parametrize("seed", range(6))
def test_near_ties_are_never_proved_wrongly(seed, gap):
    """The bias is moved so that the least margin over all prefixes is the gap."""
    language = SMALL.language
    rnn = rnn_of(("minimal-onehot", "eq6")[seed % 2], seed)
    rnn = with_bias(rnn, gap - enumerated(rnn, language, "valid_token"), language)
    margin = enumerated(rnn, language, "any_token")
    shifted = with_bias(rnn, 0.0, language)
    shifted.b_U[1 : language.bos_token : 2] += gap - margin
    within_closing = enumerated(shifted, language, "any_token")
    if within_closing < 0:
        with pytest.raises(NoProofError):
            prove_language(shifted, SMALL, N)
    elif within_closing > 5e-7:
        prove_language(shifted, SMALL, N)


@pytest.fixture(scope="module")
def proof(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("proof")
    task = DyckTask(name="d", n_types=2, max_depth=3, train_lengths=(4,), long_lengths=(8, 8))
    model = construct.balanced(task.language, n_ctx=16)
    save_model(model, folder / "model")
    return prove_language(model, task, 20).save(folder / "a.proof"), folder / "model"


def test_a_construction_is_proved_and_the_sentence_says_how_many_prefixes(proof):
    said = check_file(*proof)
    language = DyckLanguage(2, 3)
    n = sum(sum(ways[1:]) for ways in language.prefixes_by_depth(20))
    assert f"each of {n:,} prefixes of Dyck(2, 3) of up to 20 brackets" in said
    assert said.endswith("compared")


def test_every_changed_byte_is_refused(proof, tmp_path):
    data = proof[0].read_bytes()
    generator = np.random.default_rng(0)
    for at in generator.integers(len(data), size=250).tolist():
        changed = bytearray(data)
        changed[at] ^= int(generator.integers(1, 256))
        (tmp_path / "x").write_bytes(changed)
        with pytest.raises(ProofError):
            check_file(tmp_path / "x")
    for end in generator.integers(len(data), size=50).tolist():
        (tmp_path / "x").write_bytes(data[:end])
        with pytest.raises(ProofError):
            check_file(tmp_path / "x")


CHANGES = {
    "longer": lambda facts, arrays: facts.update(length=21),
    "a length that is no number": lambda facts, arrays: facts.update(length="20"),
    "a length that is no integer": lambda facts, arrays: facts.update(length=20.0),
    "a depth that is no integer": lambda facts, arrays: facts.update(max_depth=3.0),
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
    "a tree too many": lambda f, arrays: arrays.update(trees=np.append(arrays["trees"], 255)),
    "one bound for each ending": lambda f, a: a.update(trees=np.full(60, 255, np.uint8)),
    "an axis that is not there": lambda f, a: a.update(trees=np.full(600, 63, np.uint8)),
    "nodes of no kind": lambda f, a: a.update(trees=np.full(60, 254, np.uint8)),
    "a weight too few": lambda facts, arrays: arrays.pop("b_O"),
    "a weight too many": lambda facts, arrays: arrays.update(b_X=arrays["b_O"]),
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
    assert check_proof.main([str(tmp_path / "x")]) == 1
    assert "not proved" in capsys.readouterr().out
    assert check_proof.main([str(tmp_path / "nothing")]) == 1
    assert "cannot be read" in capsys.readouterr().out


def test_the_checker_is_one_file_that_needs_numpy_alone(proof, tmp_path):
    source = Path(check_proof.__file__).read_text(encoding="utf-8")
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(source))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module)])
    }
    assert names - sys.stdlib_module_names == {"numpy"}
    copied = tmp_path / "check_proof.py"
    copied.write_text(source, encoding="utf-8")
    command = [sys.executable, "-I", copied, proof[0], "--model", proof[1]]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "proved: the bracket that closes" in done.stdout


numbers = st.floats(-1e3, 1e3).filter(lambda x: x == 0 or abs(x) > 1e-6)


@given(st.lists(st.tuples(numbers, numbers, numbers, numbers), min_size=1, max_size=12))
def test_balls_hold_the_exact_result(rows):
    """Every operation against fractions, at the ends of the balls as well."""
    a, ra, b, rb = (np.array(column) for column in zip(*rows, strict=True))
    x, y = Enclosure(a, abs(ra) * 1e-8), Enclosure(b, abs(rb) * 1e-8)

    def ends(ball):
        return [
            [Fraction(m) + sign * Fraction(r) for m, r in zip(ball.mid, ball.rad, strict=True)]
            for sign in (-1, 1)
        ]

    def inside(ball, exact):
        for m, r, e in zip(ball.mid.ravel(), ball.rad.ravel(), exact, strict=True):
            assert abs(Fraction(float(m)) - e) <= Fraction(float(r))

    for u in ends(x):
        for v in ends(y):
            inside(x + y, [p + q for p, q in zip(u, v, strict=True)])
            inside(x * y, [p * q for p, q in zip(u, v, strict=True)])
            total = sum((p * q for p, q in zip(u, v, strict=True)), Fraction(0))
            inside(dot("i,i->", x, y), [total])
            inside(x - y, [p - q for p, q in zip(u, v, strict=True)])
        mean = sum(u, Fraction(0)) / len(u)
        inside(check_proof.centred(Enclosure(x.mid[None], x.rad[None])), [p - mean for p in u])


def test_from_the_command_line(proof, tmp_path, monkeypatch):
    runner, folder = CliRunner(), proof[1]
    words = ["certify-language", str(folder), "-n", "10", "--proof", str(tmp_path / "x.proof")]
    done = runner.invoke(app, words)
    assert (done.exit_code, "To check it" in done.stdout) == (0, True)
    done = runner.invoke(app, ["check", str(tmp_path / "x.proof"), "--model", str(folder)])
    assert done.exit_code == 0
    assert "of up to 10 brackets" in done.stdout.replace("\n", " ")
    (tmp_path / "y.proof").write_text("nothing")
    done = runner.invoke(app, ["check", str(tmp_path / "x.proof"), str(tmp_path / "y.proof")])
    assert done.exit_code == 1
    assert "not proved" in done.stdout


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("gpt", {}, "only one-layer models are supported"),
        ("minimal-onehot", {"property": "kl"}, "unknown property that can be proved"),
        ("minimal-onehot", {"length": -1}, "length must be at least 0"),
        ("minimal-onehot", {"time_limit": float("nan")}, "time_limit must be"),
        ("minimal-onehot", {}, "is wrong, or within rounding"),
    ],
)
def test_what_cannot_be_proved_is_said_in_a_line(model, options, words):
    built = build_model(get_config(model, SMALL), 0)
    with pytest.raises((ValueError, TypeError), match=words):
        prove_language(built, SMALL, **{"length": 6, **options})


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes with names on this system")
def test_a_proof_goes_into_a_pipe_and_the_pipe_stays(proof, tmp_path):
    whole = LanguageProof(proof[0].read_bytes(), "")
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        whole.save(tmp_path / "pipe")
        assert os.read(end, 2 * len(whole.content)) == whole.content
    finally:
        os.close(end)
    assert (tmp_path / "pipe").is_fifo()
