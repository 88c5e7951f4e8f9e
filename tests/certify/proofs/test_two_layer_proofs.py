"""Proofs of two layers: what is proved holds on every prefix, run through the model itself."""

from __future__ import annotations

import copy
import itertools
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from typer.testing import CliRunner

from tests.cases import thinned
from tests.certify.language.test_decide import random_model, task_of
from tests.certify.oracles import in_long_double
from tests.certify.proofs.changed import change_arrays
from tests.certify.proofs.common import agreement, check_file, enumerated, run_copied_out
from tl_dyck import construct
from tl_dyck.certify import (
    CertifyError,
    check_bounds,
    check_language,
    check_layer,
    check_two_layers,
)
from tl_dyck.certify.check_language import Enclosure, ProofError, read
from tl_dyck.certify.check_model import compare_two_layers, layers_of
from tl_dyck.certify.check_two_layers import BOUND, PrefixGraph, TwoLayers, activated
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.certify.proof import NoProofError, Proof, pack
from tl_dyck.certify.two_layer_proofs import _layers
from tl_dyck.cli import app
from tl_dyck.models import DyckTransformer, load_model, save_model
from tl_dyck.rnn.export import export_layers

ONE, TWO = task_of(1, 3), task_of(2, 2)
N = 5

#: Families and options: norms before and behind, heads, MLPs or none, embeddings of depths.
KINDS: list[tuple[str, dict[str, Any]]] = [
    ("gpt", {}),
    ("gpt", {"act_fn": "gelu", "n_heads": 2}),
    ("gpt", {"mlp": False, "layer_norm": False, "n_heads": 2}),
    ("attn-only", {}),
    ("eq6", {"ln_c": 5.0}),
    ("eq49", {"n_heads": 2}),
    ("minimal-onehot", {"d_model": 20, "block": "bare"}),
    ("minimal-yao", {"d_model": 12, "ln_c": 5.0}),
    ("gpt", {"act_fn": "silu"}),
]


def a_model(kind: int, seed: int, task: Any = ONE, scale: float = 3.0) -> DyckTransformer:
    """Random weights, biases too."""
    family, options = KINDS[kind]
    fields = {"n_layers": 2, "d_model": 8, "d_mlp": 6, "initializer_range": 0.3, **options}
    model, generator = random_model(family, task, seed, scale, **fields), torch.Generator()
    generator.manual_seed(seed)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if ".b" in name or ".w" in name:
                noise = torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
                weight += 0.3 * noise
    return model


def a_construction(seed: int, noise: float) -> DyckTransformer:
    model = construct.uniform_attention(TWO.language, first_layer="attention", n_ctx=16)
    torch.nn.Module.double(model)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight *= 1 + noise * torch.randn(weight.shape, generator=generator, dtype=weight.dtype)
        for name in ("W_Q", "W_K"):  # attention that is not uniform
            weight = getattr(model.blocks[1].attn, name)
            weight += 30 * noise * torch.randn(weight.shape, generator=generator).double()
        model.unembed.b_U[1:4:2] += 3.0
    return model


def tie(model: DyckTransformer, task: Any, by: float) -> float:
    """Give the closing bracket a bias that makes the least margin ``by``; that margin."""
    with torch.no_grad():
        model.unembed.b_U[1] += by - enumerated(model, task.language, "any_token", N)
    return enumerated(model, task.language, "any_token", N)


def tie_with_bos(model: DyckTransformer, task: Any, claim: str, by: float) -> float:
    """Make BOS a rival that loses by ``by`` somewhere; the least margin over all rivals."""
    with torch.no_grad():
        model.unembed.b_U[-1] += 100
        model.unembed.b_U[-1] += enumerated(model, task.language, claim, N) - by
    return enumerated(model, task.language, claim, N)


def settle(least: float, *question: Any, **how: Any) -> Proof | None:
    """A proof of what holds; of nothing else there is one, and near a tie there may be none."""
    model, task, claim = question
    try:
        proof = prove_language(model, task, N, claim, **how)
    except NoProofError:
        assert least < 5e-7
        return None
    assert least > 0
    return proof


@pytest.mark.parametrize("kind", thinned(range(len(KINDS)), first=1))
def test_what_holds_is_proved_and_what_does_not_is_not(kind: int, tmp_path: Path) -> None:
    """The bracket that closes wins or loses by a margin that enumeration has set."""
    by = (1e-6, -1e-6, 1e-6, 1e-9, 1e-6, -1e-9)[kind % 6]
    model = a_model(kind, kind % 2)
    least = tie(model, ONE, by)
    assert abs(least - by) < 1e-11
    proof = settle(least, model, ONE, "any_token")
    if proof is not None:
        assert check_file(proof.save(tmp_path / "a")).startswith(f"proved: {proof.says}")


@pytest.mark.parametrize("claim", ["any_token", "closing_only", "valid_token"])
def test_claims_of_constructions_are_proved_as_enumeration_says(claim: str) -> None:
    """BOS is made a rival that loses by some margin, or wins."""
    found = set()
    for seed, by in enumerate((1e-6, -1e-6)):
        model = a_construction(seed, (3e-4, 3e-3)[seed])
        least = tie_with_bos(model, TWO, claim, by)
        found.add(settle(least, model, TWO, claim) is not None)
    assert found == ({True} if claim == "closing_only" else {True, False})


@pytest.mark.parametrize(
    ("claim", "kind"),
    thinned(((("agree", "head")[kind % 2], kind) for kind in range(len(KINDS))), 3),
)
def test_two_models_are_proved_to_agree_as_enumeration_says(claim: str, kind: int) -> None:
    task, seed = TWO if kind == 2 else ONE, kind // 2 % 2
    model, generator = a_model(kind, seed, task, 1.0), torch.Generator().manual_seed(seed)
    other, how = copy.deepcopy(model), {}
    with torch.no_grad():
        if claim == "head":
            layer, head = seed, model.cfg.n_heads - 1
            how["head"] = (layer, head)
            attn = other.blocks[layer].attn
            attn.W_Q[head], attn.b_Q[head] = 0.0, 0.0
        else:
            how["other"], noise = other, (1e-6, 0.1)[seed]
            for name, weight in other.named_parameters():
                if name != "pos_embed.W_pos":
                    weight += noise * torch.randn(weight.shape, generator=generator).double()
    settle(agreement(model, other, task.language, N), model, task, claim, **how)


def numbers_of(graph: PrefixGraph) -> dict[Any, int]:
    """Symbols by bracket, depth and profile."""
    symbols = zip(graph.last.tolist(), graph.counts.astype(int).tolist(), strict=True)
    return {(graph.kinds[last], tuple(each)): i for i, (last, each) in enumerate(symbols)}


@pytest.mark.parametrize("has_depth", [False, True])
def test_every_prefix_is_one_path_and_the_least_sum_of_its_group_is_found(has_depth: bool) -> None:
    """Whatever tokens may win; parts are of the strings that their symbols say."""
    language, rng, longest = TWO.language, np.random.default_rng(0), 5
    facts = {"n_types": 2, "max_depth": 2, "claim": "valid_token", "length": longest}
    graph = PrefixGraph(facts, has_depth)
    rows = numbers_of(graph)
    costs = rng.normal(size=(len(rows), 2))
    paths: dict[Any, list[list[int]]] = {}
    for n in range(longest + 1):
        for string in language.enumerate(n, "prefix").tolist():
            stack: list[int] = []
            counts = [int(i == 0) for i in range(len(graph.kinds))]
            path = [rows[(4, 0), tuple(counts)]]
            for token in string:
                stack = [*stack, token] if token % 2 == 0 else stack[:-1]
                depth = len(stack) if has_depth else 0
                counts[graph.kinds.index((token, depth))] += 1
                path.append(rows[(token, depth), tuple(counts)])
            may = [0, 2] if len(stack) < 2 else []
            may += [stack[-1] + 1] if stack else []
            paths.setdefault((n, tuple(may), path[-1]), []).append(path)
    for may, group in graph.groups():
        mine = paths.pop((group.n_levels - 1, may, int(group.symbols[0, group.last])))
        own = costs[group.symbols[0]]
        assert np.allclose(group.walk(own, group.all), costs[mine].sum(1).min(0))
        local = {symbol: i for i, symbol in enumerate(group.symbols[0].tolist())}
        on = [[local[symbol] for symbol in path] for path in mine]
        i = int(rng.integers(len(local)))
        parts, level = group.parted(group.all, i), int(group.level[i])
        sides = [[path for path in on if (path[level] < i) == first] for first in (True, False)]
        for part, side in zip(parts, sides, strict=True):
            least = own[side].sum(1).min(0) if side else np.inf
            assert np.allclose(group.walk(own, part), least)
        assert graph.losers(may[0], may, 5) == sorted({*range(5)} - {*may})
    assert not paths


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_what_the_first_layer_hands_on_is_enclosed(kind: int) -> None:
    """Against 80-bit floats, with weights so large that rounding shows."""
    model = a_model(kind, 0, TWO, 3.0)
    language = TWO.language
    _, configs, weights = _layers(model, language, N)
    net = TwoLayers(configs, weights, 2, 2)
    facts = {"n_types": 2, "max_depth": 2, "claim": "any_token", "length": N}
    graph = PrefixGraph(facts, net.has_depth)
    found, first = net.handed_on(graph), export_layers(model)[0]
    rows = numbers_of(graph)
    strings = language.enumerate(N, "prefix")[kind % 2 :: 2]
    for string, depths in zip(strings.tolist(), language.depth(strings).tolist(), strict=True):
        tokens, depths = [4, *string], [0, *depths]
        symbols = zip(tokens, depths, strict=True)
        kinds = [graph.kinds.index((token, depth * net.has_depth)) for token, depth in symbols]
        counts = np.bincount(kinds, minlength=len(graph.kinds))
        at = rows[graph.kinds[kinds[-1]], tuple(counts.tolist())]
        off = abs(found.mid[at] - in_long_double(first, tokens)[0])
        assert (off <= found.rad[at] + 1e-17 * abs(found.mid).max()).all()
    assert 0 < found.rad.max() < 1e-7


@given(st.floats(-9, 9), st.floats(1e-9, 0.5), st.floats(-1, 1))
@example(1.4, 0.1, 1.0)  # where GELU is steepest
def test_activations_hold_what_lies_between(mid: float, rad: float, side: float) -> None:
    at = mid + side * rad * (1 - 1e-12)
    exacts = {name: curve(Decimal(at))[0] for name, (curve, *_) in check_layer.CURVES.items()}
    for act_fn, exact in ({"relu": max(at, 0.0)} | exacts).items():
        ball = activated(Enclosure(np.array([[mid]]), rad), act_fn)
        assert ball.low[0, 0] <= exact <= ball.high[0, 0]


def make(folder: Path) -> tuple[Path, Path]:
    """A proof of several parts, of a margin of 0.001, and its model."""
    tie(model := a_model(0, 0), ONE, 1e-3)
    save_model(model, folder / "model")
    return prove_language(model, ONE, N).save(folder / "a.proof"), folder / "model"


@pytest.fixture(scope="module")
def little(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    return make(tmp_path_factory.mktemp("l"))


def test_a_proof_stands_by_itself(little: tuple[Path, Path], tmp_path: Path) -> None:
    path, model = little
    digest = json.loads((model / "config.json").read_text())["sha256"]
    whole = (
        f"after each of 16 prefixes of Dyck(1, 3) of up to 5 brackets; weights called '{digest}'"
    )
    assert check_file(path, model).endswith(f"{whole}, compared with the model")
    copied = [check_two_layers, check_bounds, check_layer, check_language]
    said = run_copied_out(tmp_path, copied, path)
    assert said.strip().endswith(whole)
    out, words = str(tmp_path / "b"), ["certify-language", str(model), "--length", "4", "--proof"]
    assert CliRunner().invoke(app, [*words, out]).exit_code == 0
    done = CliRunner().invoke(app, ["check", out, "--model", str(model)])
    assert (done.exit_code, "8 prefixes" in done.output) == (0, True)


def _sealed_again(path: Path, rng: np.random.Generator) -> bytes:
    """A node, a piece of the trees, a weight, a fact or the network is another."""
    facts, arrays = read(path)
    del facts["arrays"]
    kind = int(rng.integers(6))
    if kind < 3:
        change_arrays(arrays, rng, [0, 1, 2, 5, 9, 2**15, BOUND])
    elif kind == 3:
        name = str(rng.choice(["n_types", "max_depth", "length"]))
        facts[name] = (0, -1, 2, 4, 6, 63, 10**6, 2**70, "6", None, 1.0, True)[rng.integers(12)]
    elif kind == 4:
        claims = ("head", "agree", "named", "closing_only", "valid_token", None)
        facts |= {"claim": claims[rng.integers(6)], "head": rng.integers(3, size=2).tolist()}
    else:
        config = facts["config"][rng.integers(2)]
        value = (None, -1, 0, 2, "depth", "gelu", [], 10**30)[rng.integers(8)]
        config[str(rng.choice(sorted(config)))] = value
    return pack(facts, arrays)


def test_changed_files_are_refused_in_a_line_or_say_what_is_true(
    little: tuple[Path, Path], tmp_path: Path
) -> None:
    path, folder = little
    rng, accepted, data = np.random.default_rng(0), 0, path.read_bytes()
    model, file = load_model(folder), tmp_path / "x"
    for number in range(48):
        place = int(rng.integers(len(data)))
        bytes_changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        file.write_bytes(_sealed_again(path, rng) if number % 4 else bytes_changed)
        try:
            said = check_file(file, folder)
        except ProofError as error:
            said = str(error)
        else:
            assert number % 4
            accepted += 1
            facts, _ = read(file)
            assert said.startswith(f"proved: {check_two_layers.says(facts)}")
            assert enumerated(model, ONE.language, facts["claim"], facts["length"]) > 0
        assert (len(said.splitlines()), len(said) < 400) == (1, True)
    assert 0 < accepted < 12


@pytest.mark.parametrize(
    ("reason", "change"),
    [
        ("absurd length", {"length": 1001}),
        ("no such head", {"claim": "head", "head": [1, 1]}),
        ("do not fit together", {"n_types": 2}),
        ("node", {"length": 6}),
        ("trees of no group", {"length": 4}),
    ],
)
def test_hostile_words_are_refused_as_such(
    little: tuple[Path, Path], reason: str, change: dict[str, Any]
) -> None:
    facts, arrays = read(little[0])
    with pytest.raises(ProofError, match=reason):
        check_two_layers.check(facts | change, arrays)


def test_layers_are_those_of_plain_decoders(little: tuple[Path, Path]) -> None:
    """What proofs of one layer know besides, norms of queries or gates, is none of theirs."""
    facts, arrays = read(little[0])
    for more in ({"qk_norm": True}, {"gated": False}, {"positions": "rotary"}):
        config = [facts["config"][0], facts["config"][1] | more]
        with pytest.raises(ProofError, match="layers are of another kind"):
            check_two_layers.check(facts | {"config": config}, arrays)


def test_a_leaf_must_hold_of_one_that_may_win(little: tuple[Path, Path]) -> None:
    facts, arrays = read(little[0])
    nodes, bias = arrays["trees"].copy(), arrays["1.b_U"].copy()
    nodes[np.flatnonzero(nodes == BOUND) + 1] = 0
    bias[1] -= 2e-3
    for change, reason in (({"trees": nodes}, "0 may not win"), ({"1.b_U": bias}, "not settled")):
        with pytest.raises(ProofError, match=reason):
            check_two_layers.check(facts, arrays | change)


def test_a_head_is_made_uniform_and_no_other() -> None:
    _, configs, weights = _layers(a_model(2, 0), ONE.language, N)
    facts = {"n_types": 1, "max_depth": 3, "config": configs, "claim": "head", "head": [1, 0]}
    one, other = (each.two["W_Q"] for each in check_two_layers.models(facts, weights))
    assert (other == one * np.array([0, 1])[:, None, None]).all()


def test_a_language_that_would_take_forever_is_refused() -> None:
    facts = {"n_types": 8, "max_depth": 4, "claim": "any_token", "length": 1000}
    with pytest.raises(ProofError, match="too many prefixes"):
        PrefixGraph(facts, True)


@pytest.mark.parametrize("kind", range(len(KINDS)))
def test_a_saved_model_is_compared_with_its_proof(kind: int, tmp_path: Path) -> None:
    model = a_model(kind, 1)
    save_model(model, tmp_path)
    digest, configs, weights = _layers(model, ONE.language, N)
    facts = {"n_types": 1, "max_depth": 3, "config": configs, "model": digest}
    compare_two_layers(facts, weights, tmp_path)
    for name, weight in weights.items():
        changed = weight.copy()
        changed += 1e-3
        with pytest.raises(ProofError, match=f"{name} is not that of the model"):
            compare_two_layers(facts, weights | {name: changed}, tmp_path)
    options = json.loads((tmp_path / "config.json").read_text())["config"]
    for layer, name in itertools.product((0, 1), layers_of(options)[0]):
        config = [dict(each) for each in configs]
        config[layer][name] = "else"
        with pytest.raises(ProofError, match=f"{name} is .* but not in the proof"):
            compare_two_layers(facts | {"config": config}, weights, tmp_path)
    with pytest.raises(ProofError, match="not the one that the proof names"):
        compare_two_layers(facts | {"model": "0"}, weights, tmp_path)


def test_what_has_no_proof_is_refused_by_name() -> None:
    for family, heads, why in (("gpt", 9, "has 9 heads"), ("gpt-learned", 1, "positions")):
        other = random_model(family, ONE, 0, 1.0, n_layers=2, d_model=10, n_heads=heads)
        with pytest.raises(NoProofError, match=why):
            prove_language(other, ONE, 3)
    model = a_construction(0, 0.0)
    with pytest.raises(CertifyError, match="the model reads 16"):
        prove_language(model, TWO, 16)
    with pytest.raises(CertifyError, match=r"give head=\(layer, head\)"):
        prove_language(model, TWO, 3, "head", head=0)
    with pytest.raises(NoProofError, match="1 layers, not 2"):
        prove_language(model, TWO, 3, "agree", other=random_model("eq6", TWO, 0, 1.0))
