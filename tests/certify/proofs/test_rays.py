"""Leaves of rays: what LN_C shows of one head, of every string; refused where it shows more."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.certify.oracles import favouring, margins, random_rnn, strings_of
from tests.certify.proofs.changed import SPACE, STRING
from tests.certify.proofs.common import unpacked
from tests.certify.proofs.test_check_edits import Case, holds
from tl_dyck import construct
from tl_dyck.certify import PerturbationSpace, Substitute, check_edits
from tl_dyck.certify.check_bounds import RAYS, Affine, PartBounds
from tl_dyck.certify.check_language import Enclosure, ProofError
from tl_dyck.certify.edit_proofs import _facts, prove_edits
from tl_dyck.certify.proof import NoProofError
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import RNNConfig, TwoLayerRNN

READOUTS = [
    {"ln_c": 0.02},
    {"ln_c": 0.3, "act_fn": "relu"},
    {"ln_c": 1.2, "residual": False, "ln_final": "ln"},
    {"ln_c": 0.3, "act_fn": "gelu", "state": "position+depth"},
]


def count(content: bytes, leaf: int) -> int:
    return int((unpacked(content)[1]["trees"] == leaf).sum())


def norm_shows(made: Case, o: np.ndarray) -> np.ndarray:
    """P x of each string, x what the head's output becomes before LN_C."""
    x = np.einsum("bne,ned->bd", o, made.net.w["W_O"].mid) + made.net.w["b_O"].mid
    return x - x.mean(1, keepdims=True)


@pytest.mark.parametrize("fields", READOUTS)
@np.errstate(all="ignore")
def test_rays_hold_what_the_norm_shows_of_every_string(fields):
    rng, seen = np.random.default_rng(0), 0
    for seed in range(8):
        rnn = random_rnn(seed, bos_token=6, **fields)
        made, c = Case(rnn, SPACE, STRING), rnn.config.ln_c
        for last in made.ends():
            group = PartBounds([made.part(last)], rays=True)
            paths = [path for path in made.paths if path[-1] == last]
            shown = norm_shows(made, made.outputs(paths))
            size = np.linalg.norm(shown, axis=1, keepdims=True)
            if not group.known[0]:
                continue
            seen += 1
            assert (size >= c).all()  # so dividing by the length is what LN_C does
            rays = (shown / (shown @ group.u.mid[0, 0])[:, None])[:, None]
            d = shown.shape[1]
            own = Affine(Enclosure(np.eye(d)[None, :, None]), Enclosure(np.zeros((1, d))))
            divided = group.divided(own, 0.0)
            assert holds(divided, rays, shown / np.maximum(size, c))
            drawn = Affine(*(Enclosure(rng.normal(size=each)) for each in ((1, 9, 1, d), (1, 9))))
            for y in (divided, drawn):
                every = np.einsum("kne,bne->bk", y.slope.mid[0], rays) + y.rest.mid
                assert (group.below(y) <= every.min(0) + 1e-12 + y.rest.rad).all()
    assert seen > 3


@pytest.mark.parametrize("fields", READOUTS)
@np.errstate(all="ignore")
def test_what_rays_settle_holds_on_every_string_near_a_tie(fields):
    """On both sides of one: a string is wrong by 1e-7, or none is."""
    seen = 0
    for seed in range(2):
        rnn = random_rnn(seed, **fields)
        every = strings_of(rnn, SPACE, STRING)
        least = margins(rnn, every, 0).min()
        proof = prove_edits(favouring(rnn, 0, 1e-7 - least), STRING, 0, SPACE)
        seen += count(proof.content, RAYS)
        wrong = favouring(rnn, 0, -1e-7 - least)
        with pytest.raises(NoProofError):
            prove_edits(wrong, STRING, 0, SPACE)
        facts, arrays = unpacked(proof.content)
        with pytest.raises(ProofError, match="not settled"):
            check_edits.check(facts, arrays | {"b_U": wrong.b_U.numpy()})
    assert seen


def scaled(by: float, n_heads: int = 1, ln_c: float | None = 0.2) -> TwoLayerRNN:
    """Uniform attention to tokens: 0 is worth (1, -1), 1 that many times that, 2 nothing.

    The first logit is the first entry behind LN_C less 0.3, the second 0.
    """
    size = {"d_model": 2, "n_heads": n_heads, "d_head": 1, "d_vocab": 3, "d_vocab_out": 2}
    config = RNNConfig(**size, n_ctx=8, residual=False, ln_c=ln_c)
    like = random_rnn(0, d_model=2, n_heads=n_heads, d_head=1, d_vocab=3, d_vocab_out=2, ln_c=0.2)
    weights = {name: torch.zeros_like(weight) for name, weight in like.weights.items()}
    weights["W_E"][:2, 0] = torch.tensor([1.0, by], dtype=torch.float64)
    weights["W_V"][0, 0, 0] = 1
    weights["W_O"][0, 0] = torch.tensor([1.0, -1.0], dtype=torch.float64)
    weights["W_U"][0, 0], weights["b_U"][0] = 1, -0.3
    return TwoLayerRNN(config, weights)


def forged(rnn: TwoLayerRNN) -> tuple[dict, dict, float]:
    """A file whose single leaf is of rays, and by how much the least margin is above 0."""
    space, string = PerturbationSpace([(Substitute({0: (1,)}), 1)]), (0, 2)
    weights = {name: weight.numpy() for name, weight in rnn.weights.items()}
    trees = np.array([RAYS, 0], dtype="<u2")
    least = margins(rnn, strings_of(rnn, space, string), 0).min()
    return _facts(rnn.config, string, space, 0), weights | {"trees": trees}, float(least)


@pytest.mark.parametrize("by", [0.01, -1.0, -0.01, 0.0])
def test_rays_that_would_lie_are_refused(by):
    """The ray is the same, or its opposite: shorter than the constant, or of the other sign."""
    facts, arrays, least = forged(scaled(by))
    assert least < -0.1
    with np.errstate(all="ignore"), pytest.raises(ProofError, match="not settled"):
        check_edits.check(facts, arrays)
    facts, arrays, least = forged(scaled(2.0))
    assert least > 0.3
    with np.errstate(all="ignore"):
        assert "after each of 2 ways" in check_edits.check(facts, arrays)


@pytest.mark.parametrize("fields", [{"n_heads": 2}, {"ln_c": None}])
def test_other_networks_have_no_rays(fields):
    facts, arrays, _ = forged(scaled(2.0, **fields))
    with np.errstate(all="ignore"), pytest.raises(ProofError, match="no single head before LN_C"):
        check_edits.check(facts, arrays)


def test_pairs_in_a_balanced_model_need_one_bound():
    """They add nothing to the ray of what attention returns (Wen et al. 2023, Theorem 1)."""
    model = construct.uniform_attention(DyckLanguage(2, 4))
    content = prove_edits(model, "[(()[]", None, "pairs:2").content
    assert (count(content, RAYS), len(unpacked(content)[1]["trees"])) == (1, 2)
