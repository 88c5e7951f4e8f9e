"""Proofs: what is proved holds; what does not hold has none; what someone changed is none."""

from __future__ import annotations

import ast
import hashlib
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from decimal import Decimal, localcontext
from fractions import Fraction
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from typer.testing import CliRunner

from tl_dyck import construct
from tl_dyck.certify import (
    check_agreement,
    check_automaton,
    check_edits,
    check_language,
    check_model,
    check_two_layers,
    language_proofs,
)
from tl_dyck.certify.check_language import (
    LEAF,
    Enclosure,
    Margin,
    Model,
    ProofError,
    check,
    dot,
    endings,
    read,
    relu,
)
from tl_dyck.certify.check_model import compare_language
from tl_dyck.certify.language.counted import NetworkSymbols
from tl_dyck.certify.language.forms import Form
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.objectives import Objectives
from tl_dyck.certify.proof import NoProofError, Proof, pack
from tl_dyck.cli import app
from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, get_config, load_model, save_model
from tl_dyck.rnn import TwoLayerRNN, export_rnn
from tl_dyck.tasks import DyckTask

SMALL = DyckTask(name="small", n_types=2, max_depth=2, train_lengths=(4,), long_lengths=(8, 8))
FAMILIES = ("minimal-onehot", "minimal-split", "minimal-yao", "figure2-onehot", "eq6", "eq49")
N = 6
TWO_MODELS = tuple(check_agreement.CLAIMS)
ONE_MODEL = sorted(check_language.CLAIMS.keys() - {"named"})
CLAIMS = check_language.CLAIMS | check_agreement.CLAIMS


def check_file(path: Path, *folders: Path) -> str:
    """What a proof proves; raises ProofError with what is said if that is nothing."""
    proved, said = check_model.verdict(path, *folders)
    if not proved:
        raise ProofError(said)
    return said


def every_prefix(
    rnn: TwoLayerRNN, language: DyckLanguage, length: int = N
) -> Iterator[tuple[int, int, np.ndarray]]:
    """Depth, the bracket that closes, and the logits in float64, after each."""
    rnn = rnn.to(torch.float64)
    for n in range(length + 1):
        strings = language.enumerate(n, "prefix")
        tokens = torch.nn.functional.pad(strings, (1, 0), value=language.bos_token)
        logits = rnn(tokens)[:, -1].detach().numpy()
        depth = language.depth(tokens)[:, -1].tolist()
        yield from zip(depth, language.right_bracket(tokens)[:, -1].tolist(), logits, strict=True)


def enumerated(rnn: TwoLayerRNN, language: DyckLanguage, claim: str, length: int = N) -> float:
    """The least margin over all prefixes, each run through the RNN."""
    worst = np.inf
    for d, right, row in every_prefix(rnn, language, length):
        may = [right] if d else []
        if claim == "valid_token":
            may += range(0, 2 * language.n_types, 2) if d < language.max_depth else []
        rivals = range(len(row)) if claim != "closing_only" else range(1, language.bos_token, 2)
        must_not = [token for token in rivals if token not in may]
        if may and must_not:
            worst = min(worst, max(row[may]) - max(row[must_not]))
    return worst


def agreement(
    rnn: TwoLayerRNN, other: TwoLayerRNN, language: DyckLanguage, length: int = N
) -> float:
    """The least gap, in either, of the largest logit to the second; negative if they disagree."""
    worst = np.inf
    both = (every_prefix(each, language, length) for each in (rnn, other))
    for rows in zip(*both, strict=True):
        gap = min(np.diff(np.sort(row)[-2:])[0] for *_, row in rows)
        same = len({row.argmax() for *_, row in rows}) == 1
        worst = min(worst, gap if same else -gap)
    return worst


def pair_of(rnn: TwoLayerRNN, claim: str, noise: float, seed: int) -> tuple[TwoLayerRNN, dict]:
    """Another model, of other weights and another scale, or without queries; how to ask."""
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    if claim == "head":
        weights["W_Q"].zero_()
        weights["b_Q"].zero_()
        return TwoLayerRNN(rnn.config, weights), {"head": 0}
    generator = torch.Generator().manual_seed(seed)
    for weight in weights.values():
        weight += noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    config = replace(rnn.config, attn_scale=2 * rnn.config.attn_scale)
    other = TwoLayerRNN(config, weights)
    return other, {"other": other}


def rnn_of(family: str, seed: int, task: DyckTask = SMALL, **options: object) -> TwoLayerRNN:
    config = get_config(
        family, task, n_layers=1, dtype=torch.float64, initializer_range=0.7, **options
    )
    model, generator = build_model(config, seed), torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".b_" in name:  # zero at first
                weight += 0.3 * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
    return export_rnn(model)


def with_bias(rnn: TwoLayerRNN, shift: float, language: DyckLanguage) -> TwoLayerRNN:
    """Closing brackets by so much more likely."""
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["b_U"][1 : language.bos_token : 2] += shift
    return TwoLayerRNN(rnn.config, weights)


def unpacked(data: bytes) -> tuple[dict, dict]:
    line, numbers = data.split(b"\n", 2)[1:]
    facts, arrays, end = json.loads(line), {}, 0
    for name, (kind, shape) in facts.pop("arrays").items():
        arrays[name] = np.frombuffer(numbers, kind, int(np.prod(shape)), end).reshape(shape)
        end += arrays[name].nbytes
    return facts, arrays


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
    assert said.endswith("compared with the model")


@pytest.fixture(scope="module")
def little(tmp_path_factory) -> tuple[Path, Path]:
    """A proof that is checked in a moment, and its model: right up to 8, wrong at 9."""
    folder = tmp_path_factory.mktemp("little")
    task = DyckTask(name="d", n_types=1, max_depth=2, train_lengths=(4,), long_lengths=(8, 8))
    options = {"dtype": torch.float64, "d_mlp": 4, "initializer_range": 0.7}
    model = build_model(get_config("minimal-split", task, **options), 21)
    margins = [enumerated(export_rnn(model), task.language, "any_token", n) for n in (8, 9)]
    assert margins[1] < margins[0] - 1e-3
    with torch.no_grad():
        model.unembed.b_U[1] -= sum(margins) / 2
    save_model(model, folder / "model")
    return prove_language(model, task, 8).save(folder / "a.proof"), folder / "model"


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


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *(("floor", -1.0), ("attn_scale", -1), ("length", -1), ("n_types", 64), ("length", 10**6)),
        *(("length", "8"), ("n_types", True), ("max_depth", None), ("floor", float("nan"))),
    ],
)
def test_a_fact_beyond_its_range_is_named(little, name, value):
    facts, arrays = read(little[0])
    with pytest.raises(ProofError, match=f"absurd {name}"):
        check({**facts, name: value}, arrays)


def test_nothing_is_proved_where_attention_adds_nothing_and_the_answer_is_wrong():
    """Then |u| is 0, and the tangent of it is none."""
    rnn = rnn_of("eq6", 0)
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["W_O"].zero_()
    weights["b_O"].zero_()
    weights["b_U"][0] += 100
    with pytest.raises(NoProofError):
        prove_language(TwoLayerRNN(rnn.config, weights), SMALL, N)


def test_a_weight_that_is_not_finite_is_refused_as_such(little):
    facts, arrays = read(little[0])
    with pytest.raises(ProofError, match="a weight is not finite"):
        check(facts, {**arrays, "b_U": arrays["b_U"] * np.nan})


@pytest.mark.parametrize("unknown", [np.nan, np.inf])
@np.errstate(all="ignore")
def test_nothing_follows_from_a_divisor_that_is_not_known(monkeypatch, unknown):
    """Though the winner's bias is beyond doubt."""
    rnn, language = rnn_of("eq6", 0), SMALL.language
    facts, weights = language_proofs.facts_and_weights(rnn, language, "closing_only", N)
    network = Model(facts, {**weights, "b_U": np.array([0.0, 100, 0, 0, 0])})
    ending = next(each for each in endings(facts) if each.stack == (0,))
    form = Margin(network, ending, 1, ending.may)
    low = high = np.ones((1, 4))
    assert form.settles(low, high)[0].all()
    rho = form.divisor(Enclosure(np.ones((1, 5))))
    monkeypatch.setattr(form, "divisor", lambda box: Enclosure(rho.mid, rho.rad + unknown))
    assert not form.settles(low, high)[0].any()


@pytest.mark.parametrize("claim", sorted(check_language.CLAIMS))
def test_every_prefix_is_in_the_box_of_its_ending(claim):
    """And what may win after it, and what must not, is as the claim says; by a walk of brackets."""
    language, d_vocab = SMALL.language, SMALL.language.d_vocab
    facts, weights = language_proofs.facts_and_weights(rnn_of("eq6", 0), language, claim, N)
    network = Model(facts, weights)
    found = {(each.stack, each.closes): each for each in endings(facts)}
    asked = set()
    for n in range(N + 1):
        for row in language.enumerate(n, "prefix").tolist():
            stack, pairs, closes = [], np.zeros(4, dtype=int), None
            for token in row:
                closes = token // 2 if token % 2 else None
                if token % 2:
                    pairs[2 * (len(stack) - 1) + stack.pop()] += 1
                else:
                    stack.append(token // 2)
            may = {2 * stack[-1] + 1} if stack else set()
            if claim == "valid_token":
                may |= {0, 2} if len(stack) < 2 else set()
            elif not stack and claim != "named":
                continue
            ending = tuple(stack), () if closes is None else (closes,)
            asked.add(ending)
            if claim != "named":
                assert set(found[ending].may) == may
            if closes is not None:
                pairs[2 * len(stack) + closes] -= 1  # the last one is known
            low, high = found[ending].box
            assert (low <= pairs).all()
            assert (pairs <= high).all()
    assert asked == set(found)
    rivals = {1, 3} if claim == "closing_only" else set(range(d_vocab))
    assert set(network.rivals) == rivals


def test_a_token_that_may_not_win_does_not(little):
    """Though it has the largest logit, of one logit, or of no logit at all."""
    facts, arrays = read(little[0])
    check(facts, arrays)
    for token in (0, 2, 3, 60):
        leaves = arrays["trees"] >= LEAF
        with pytest.raises(ProofError, match=f"token {token} cannot win"):
            check(facts, arrays | {"trees": np.where(leaves, LEAF + token, arrays["trees"])})


@given(st.floats(-9, 9), st.floats(-9, 9), st.floats(0, 1))
def test_a_relu_lies_between_two_lines(one, two, share):
    low, high = sorted((one, two))
    p = low + share * (high - low)
    with np.errstate(all="ignore"):
        slope, lift = relu(np.array(low), np.array(high))
    at = slope * p
    assert at - 1e-14 <= max(p, 0.0) <= at + lift + 1e-14


OPTIONS = {
    "ln_c": 0.5,
    "d_head": 7,
    "max_depth": 3,
    "n_layers": 2,
    "n_heads": 2,
    "position": "learned",
    "block": "eq49",
    "embedding": "onehot",
    "act_fn": "gelu",
}


@pytest.mark.parametrize("name", OPTIONS)
def test_a_model_with_another_option_is_refused(little, tmp_path, name):
    shutil.copytree(little[1], tmp_path / "model")
    file = tmp_path / "model" / "config.json"
    saved = json.loads(file.read_text())
    assert saved["config"][name] != OPTIONS[name]
    saved["config"][name] = OPTIONS[name]
    file.write_text(json.dumps(saved))
    with pytest.raises(ProofError):
        check_file(little[0], tmp_path / "model")


@pytest.mark.parametrize("family", [*FAMILIES, "minimal-uniform", "figure2-yao"])
def test_a_saved_model_is_compared_with_its_proof(family, tmp_path):
    model = build_model(get_config(family, SMALL, n_layers=1), 0)
    save_model(model, tmp_path)
    facts, weights = language_proofs.facts_and_weights(
        export_rnn(model), SMALL.language, "any_token", 4
    )
    facts["model"] = json.loads((tmp_path / "config.json").read_text())["sha256"]
    compare_language(facts, weights, tmp_path)
    for name, weight in weights.items():
        if weight.size:
            other = weight.copy()
            other.flat[0] += 1e-5
            with pytest.raises(ProofError, match=f"{name} is not that of the model"):
                compare_language(facts, {**weights, name: other}, tmp_path)


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


CHECKERS = (
    *(check_model, check_agreement, check_automaton, check_edits, check_language),
    check_two_layers,
)


def run_copied_out(folder: Path, modules: Sequence[ModuleType], *arguments: object) -> str:
    """What the first of some checkers prints, copied out, where there is no library."""
    for module in modules:
        shutil.copy(module.__file__, folder)
    (folder / "tl_dyck.py").write_text("raise SystemExit('imported')", encoding="utf-8")
    command = [sys.executable, "-E", folder / Path(modules[0].__file__).name, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("module", CHECKERS)
def test_the_checkers_import_numpy_and_each_other_alone(module):
    names = {
        alias.name.partition(".")[0]
        for node in ast.walk(ast.parse(Path(module.__file__).read_text(encoding="utf-8")))
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for alias in (node.names if isinstance(node, ast.Import) else [ast.alias(node.module)])
    }
    each_other = {"tl_dyck", *(Path(each.__file__).stem for each in CHECKERS)}
    assert names - sys.stdlib_module_names - each_other <= {"numpy"}


@pytest.mark.parametrize(("module", "most"), [(check_language, 300), (check_edits, 500)])
def test_a_checker_stays_as_short_as_is_said(module, most):
    assert len(Path(module.__file__).read_text(encoding="utf-8").splitlines()) <= most


def test_the_checkers_stand_by_themselves(proof, tmp_path):
    said = run_copied_out(tmp_path, CHECKERS, proof[0], "--model", proof[1])
    assert "proved: the bracket that closes" in said


def test_one_file_checks_a_language(proof, tmp_path):
    said = run_copied_out(tmp_path, [check_language], proof[0])
    digest = json.loads((proof[1] / "config.json").read_text())["sha256"]
    assert f"of Dyck(2, 3) of up to 20 brackets; weights '{digest}'" in said


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
        mean, centre = sum(u, Fraction(0)) / len(u), check_edits.centre(len(u))
        inside(dot("i,ij->j", x, centre), [p - mean for p in u])


@given(st.lists(st.tuples(st.floats(-30, 30), st.floats(0, 9e-4)), min_size=1, max_size=6))
def test_exponentials_hold_the_exact_ones(rows):
    mid, rad = (np.array(column) for column in zip(*rows, strict=True))
    found = check_language.exponential(Enclosure(mid, rad))
    with localcontext() as context:
        context.prec = 60
        for m, r, (value, size) in zip(
            mid, rad, zip(found.mid, found.rad, strict=True), strict=True
        ):
            for end in (Decimal(m) - Decimal(r), Decimal(m), Decimal(m) + Decimal(r)):
                exact = (end - Decimal(float(mid.max()))).exp()
                assert abs(Decimal(float(value)) - exact) <= Decimal(float(size))


def test_from_the_command_line(proof, tmp_path, monkeypatch):
    runner, folder = CliRunner(), proof[1]
    words = ["certify-language", str(folder), "-n", "10", "--proof", str(tmp_path / "x.proof")]
    done = runner.invoke(app, words)
    assert (done.exit_code, "To check it" in done.stdout) == (0, True)
    done = runner.invoke(app, ["check", str(tmp_path / "x.proof"), "--model", str(folder)])
    assert done.exit_code == 0
    assert "of up to 10 brackets" in done.stdout.replace("\n", " ")
    done = runner.invoke(app, ["check", "--beside", str(tmp_path / "x.proof")])
    assert (done.exit_code, "unreadable" in done.stdout) == (1, True)
    shutil.copytree(folder, tmp_path, dirs_exist_ok=True)
    done = runner.invoke(app, ["check", "--beside", str(tmp_path / "x.proof")])
    assert (done.exit_code, "compared with the model" in done.stdout) == (0, True)
    (tmp_path / "y.proof").write_text("nothing")
    done = runner.invoke(app, ["check", str(tmp_path / "x.proof"), str(tmp_path / "y.proof")])
    assert done.exit_code == 1
    assert "not proved" in done.stdout


@pytest.mark.parametrize(
    ("model", "options", "words"),
    [
        ("gpt", {}, "only one-layer models are supported"),
        ("minimal-onehot", {"property": "kl"}, "unknown property that can be proved"),
        ("minimal-onehot", {"property": "agree"}, "is about 2 model"),
        ("minimal-onehot", {"head": 0}, "is about 1 model"),
        ("minimal-onehot", {"property": "head", "head": 1}, "head must be 0, not 1"),
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
    whole = Proof(proof[0].read_bytes(), "")
    os.mkfifo(tmp_path / "pipe")
    end = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        whole.save(tmp_path / "pipe")
        assert os.read(end, 2 * len(whole.content)) == whole.content
    finally:
        os.close(end)
    assert (tmp_path / "pipe").is_fifo()


PAIR = DyckTask(name="d", n_types=1, max_depth=2, train_lengths=(4,), long_lengths=(8, 8))


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A proof that two models agree, and the models."""
    folder, models = tmp_path_factory.mktemp("pair"), []
    options = {"dtype": torch.float64, "d_mlp": 4, "initializer_range": 0.7}
    for name in ("one", "two"):
        model = build_model(get_config("minimal-split", PAIR, **options), 21)
        with torch.no_grad():
            model.unembed.b_U[0] += 0.01 * (name == "two")
        models.append(model)
        save_model(model, folder / name)
    proof = prove_language(models[0], PAIR, 6, "agree", other=models[1])
    return proof.save(folder / "a.proof"), folder / "one", folder / "two"


def test_two_models_are_compared_each_with_its_own(pair, tmp_path):
    path, one, two = pair
    assert check_file(*pair).endswith("compared with the models")
    assert check_file(path).endswith("as the file has them")
    digests = [json.loads((each / "config.json").read_text())["sha256"] for each in (one, two)]
    assert f"weights '{digests[0]}' and '{digests[1]}'" in check_file(*pair)
    copied = run_copied_out(tmp_path, [check_agreement, check_language], path)
    assert f"weights '{digests[0]}' and '{digests[1]}'" in copied
    for folders in ((two, one), (one, one), (two, two), (one,), (one, two, two)):
        with pytest.raises(ProofError):
            check_file(path, *folders)
    runner, words = CliRunner(), ["check", str(path), "--model", str(one), "--model", str(two)]
    assert runner.invoke(app, words).exit_code == 0
    assert runner.invoke(app, words[:-2]).exit_code == 1
    assert check_model.main(words[1:]) == 0
    out = tmp_path / "x.proof"
    words = ["certify-language", str(one), "-n", "6", "--property", "agree"]
    assert runner.invoke(app, [*words, "--other", str(two), "--proof", str(out)]).exit_code == 0
    assert check_file(out, one, two) == check_file(*pair)


def with_options(folder: Path, copy: Path, **options: object) -> Path:
    shutil.copytree(folder, copy)
    saved = json.loads((copy / "config.json").read_text())
    saved["config"] |= options
    (copy / "config.json").write_text(json.dumps(saved))
    return copy


def test_a_block_that_has_norms_of_its_own_is_refused(little, tmp_path):
    facts, arrays = read(little[0])
    model = with_options(little[1], tmp_path / "gpt", block="gpt")
    facts |= {"norm": False, "floor": 0.0, "added": "before"}
    with pytest.raises(ProofError, match="layer_norm is True"):
        compare_language(facts, arrays, model)


def test_the_other_model_is_of_the_same_language(pair, tmp_path):
    facts, arrays = read(pair[0])
    facts["other"]["max_depth"] = 3
    other = with_options(pair[2], tmp_path / "two", max_depth=3)
    with pytest.raises(ProofError, match="max_depth is 3 in the model"):
        compare_language(facts, arrays, pair[1], other)


@pytest.mark.parametrize("name", ["b_U", "other.b_U"])
def test_both_models_are_checked(pair, name):
    facts, arrays = read(pair[0])
    check_agreement.check(facts, arrays)
    with pytest.raises(ProofError, match="not settled"):
        check_agreement.check(facts, {**arrays, name: arrays[name] + 100 * (np.arange(3) == 2)})


def test_a_proof_about_a_head_is_about_one_model(pair, tmp_path):
    path = prove_language(load_model(pair[1]), PAIR, 6, "head", head=0).save(tmp_path / "a")
    said = check_file(path, pair[1])
    assert "the prediction stays the same when the head attends uniformly, after each of" in said
    assert said.endswith("compared with the model")
    with pytest.raises(ProofError, match=r"about 1 model\(s\), not 2"):
        check_file(path, *pair[1:])


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


@pytest.mark.parametrize("change", PAIR_CHANGES)
def test_what_is_changed_about_two_models_is_refused(pair, tmp_path, change):
    facts, arrays = read(pair[0])
    del facts["arrays"]
    PAIR_CHANGES[change](facts, arrays)
    arrays = {name: np.ascontiguousarray(value) for name, value in arrays.items()}
    (tmp_path / "x").write_bytes(pack(facts, arrays))
    with pytest.raises(ProofError) as caught:
        check_file(tmp_path / "x", *pair[1:])
    assert len(str(caught.value).splitlines()) == 1
    assert len(str(caught.value)) < 200


@pytest.mark.parametrize("change", ["other winners", "longer", "no weights of the other"])
def test_it_is_refused_without_the_models_too(pair, change):
    facts, arrays = read(pair[0])
    PAIR_CHANGES[change](facts, arrays)
    with pytest.raises((ProofError, KeyError)):
        check_agreement.check(facts, arrays)


# --- against enumeration: slow, so last


@settings(max_examples=25)
@given(
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 1000),
    claim=st.sampled_from(ONE_MODEL),
    shift=st.sampled_from([0.0, 2.0, 8.0]),
)
def test_what_is_proved_holds_on_every_prefix(family, seed, claim, shift):
    held_to_enumeration(with_bias(rnn_of(family, seed), shift, SMALL.language), claim)


@settings(max_examples=60)
@given(
    make=st.sampled_from([construct.balanced, construct.uniform_attention]),
    floor=st.sampled_from([1e-5, 0.5, 1.0, 2.0]),  # LN_C's C: never larger than |u| / Z, to often
    noise=st.sampled_from([0.0, 0.01, 0.03, 0.1]),
    seed=st.integers(0, 1000),
    claim=st.sampled_from(ONE_MODEL),
)
def test_what_is_proved_of_damaged_solutions_holds(make, floor, noise, seed, claim):
    """Some are right on every prefix, some are wrong on few."""
    rnn, generator = export_rnn(make(SMALL.language, n_ctx=16)), torch.Generator()
    generator.manual_seed(seed)
    weights = {
        name: w * (1 + noise * torch.randn(w.shape, generator=generator, dtype=w.dtype))
        for name, w in rnn.weights.items()
    }
    held_to_enumeration(TwoLayerRNN(replace(rnn.config, ln_c=floor), weights), claim)


def held_to_enumeration(rnn: TwoLayerRNN, claim: str) -> None:
    """What is proved holds on every prefix, and what holds clearly is proved."""
    margin = enumerated(rnn, SMALL.language, claim)
    try:
        data = prove_language(rnn, SMALL, N, claim).content
    except NoProofError:
        assert margin < 1e-6
    else:
        assert margin > 0
        facts, arrays = unpacked(data)
        assert CLAIMS[claim] in check(facts, arrays)


@pytest.mark.parametrize(
    ("family", "seed", "crossed"),
    [
        *((family, seed, False) for seed, family in enumerate(FAMILIES)),
        *((("eq6", "minimal-onehot")[seed % 2], seed, True) for seed in range(4)),
    ],
)
def test_a_box_with_a_wrong_point_is_never_settled(family, seed, crossed):
    """Biases are moved until the worst of 200 points, by another account of them, is just wrong.

    LN_C's C is small, or such that C Z is |u| at a corner of the box.
    """
    language, rng = SMALL.language, np.random.default_rng(seed)
    rnn = rnn_of(family, seed, ln_c=1e-5)
    facts, _ = language_proofs.facts_and_weights(rnn, language, "any_token", 40)
    for ending in list(endings(facts))[::3]:
        closes, winner = (*ending.closes, None)[0], 2 * ending.stack[-1] + 1
        named = Ending(ending.stack, closes)
        objectives = Objectives.margins(winner, language.d_vocab)
        plain = Form(NetworkSymbols(rnn, language), named, objectives)
        last = np.zeros(5)  # the pair that is closed last is no coordinate of the checker's
        if ending.closes:
            last[1 + 2 * len(ending.stack) + ending.closes[0]] = 1

        def form(rnn, ending=ending, winner=winner):
            facts, weights = language_proofs.facts_and_weights(rnn, language, "any_token", 40)
            network = Model(facts, weights)
            return Margin(network, ending, winner, ending.may)

        for _ in range(6):
            low = rng.integers(0, 3, (1, 4)).astype(float)
            high = low + rng.integers(0, 3, (1, 4))
            points = rng.integers(low, high + 1, (200, 4))
            rows = np.concatenate([np.ones((200, 1)), np.vstack([low, high, points])[:200]], axis=1)
            floor = 1e-5
            if crossed:
                floor = float((plain.values(rows + last)[2][:, 0] / ((rows + last) @ plain.z))[0])
            shifted = with_bias(rnn, 0.0, language)
            if rnn.config.ln_c is not None:
                shifted = TwoLayerRNN(replace(rnn.config, ln_c=floor), shifted.weights)
            there = Form(NetworkSymbols(shifted, language), named, objectives)
            values, _, rho = there.values(rows + last)
            margins = (values / rho).min(1)
            shifted.b_U[winner] -= margins.min() + 1e-6
            moved = form(shifted)
            assert not moved.settles(low, high)[0][0]
            x = np.pad((low + high) / 2, ((0, 0), (1, 0)), constant_values=1)
            box = Enclosure(x, np.pad((high - low) / 2, ((0, 0), (1, 0))))
            with np.errstate(all="ignore"):
                divisor = moved.divisor(box)
            line, off = rows @ divisor.mid[0], divisor.rad[0, 0]
            assert ((line - off) * (1 - 1e-9) <= rho[:, 0]).all()
            assert (rho[:, 0] <= (line + off) * (1 + 1e-9)).all()
            shifted.b_U[winner] += 3 * np.ptp(margins) + 1e-5
            points = np.unique(rows[:, 1:], axis=0)
            assert form(shifted).settles(points, points)[0].all()


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


@settings(max_examples=40)
@given(
    family=st.sampled_from(FAMILIES),
    seed=st.integers(0, 1000),
    claim=st.sampled_from(TWO_MODELS),
    queries=st.sampled_from([0.0, 1e-3, 0.1, 1.0]),
    noise=st.sampled_from([1e-4, 1e-2]),
)
def test_what_is_proved_of_two_models_holds(family, seed, claim, queries, noise):
    rnn = rnn_of(family, seed)
    rnn.W_Q.mul_(queries)
    rnn.b_Q.mul_(queries)
    other, how = pair_of(rnn, claim, noise, seed)
    margin = agreement(rnn, other, SMALL.language)
    try:
        data = prove_language(rnn, SMALL, N, claim, **how).content
    except NoProofError:
        assert margin < 1e-6
    else:
        assert margin > 0
        assert CLAIMS[claim] in check_agreement.check(*unpacked(data))


@pytest.mark.parametrize("gap", [1e-6, 1e-9, -1e-9, -1e-6])
@pytest.mark.parametrize("claim", TWO_MODELS)
@pytest.mark.parametrize("seed", range(3))
def test_models_that_nearly_disagree_are_told_from_those_that_do(seed, claim, gap):
    """A token is made likelier in both until it is about to win after the first prefix in one."""
    language, asked = SMALL.language, 0
    rnn = rnn_of(("minimal-onehot", "eq6", "eq49")[seed], seed)
    rnn.W_Q.mul_(1e-3)
    other, _ = pair_of(rnn, claim, 1e-4, seed)
    if agreement(rnn, other, language) < 0:
        rnn.b_U[0] += 20  # one token wins everywhere
        other.b_U[0] += 20
    for token in range(1, language.d_vocab):
        lead = min(
            np.delete(row, token).max() - row[token]
            for each in (rnn, other)
            for *_, row in every_prefix(each, language)
        )
        moved = [with_bias(each, 0.0, language) for each in (rnn, other)]
        for each in moved:
            each.b_U[token] += lead - gap
        how = {"head": 0} if claim == "head" else {"other": moved[1]}
        if agreement(*moved, language) > 0:
            assert gap > 0
            prove_language(moved[0], SMALL, N, claim, **how)
        else:
            with pytest.raises(NoProofError):
                prove_language(moved[0], SMALL, N, claim, **how)
            asked += gap < 0
    assert gap > 0 or asked
