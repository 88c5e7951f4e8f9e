"""Frozen importance against models without the head, and against one run with hooks per head."""

from __future__ import annotations

import copy

import numpy as np
import pytest
import torch

from tests.ablation.conftest import DYCK, PLAIN, dyck_model, make_any, plain_model
from tl_dyck.ablation import MODES, frozen_importance, gradient_importance, log_likelihood
from tl_dyck.ablation.frozen import partners
from tl_dyck.ablation.replay import Replay
from tl_dyck.models.construct import decoy_head
from tl_dyck.models.lean import LeanTail

EXACT = 1e-10  # float64 rounding of these small models, with a wide margin


def odd_metric(logits, tokens):
    """Not linear, not symmetric in the positions, different for every example."""
    weight = torch.linspace(0.5, 2.0, logits.shape[1], dtype=logits.dtype)
    return (logits.log_softmax(-1)[..., 1] * weight).sum(-1) + logits[:, -1].max(
        -1
    ).values * tokens[:, 1]


def heads_of(model):
    return [
        (layer, head) for layer in range(model.cfg.n_layers) for head in range(model.cfg.n_heads)
    ]


def removed(model, layer, head):
    """The model without the head's slice of W_O."""
    clone = copy.deepcopy(model)
    with torch.no_grad():
        clone.blocks[layer].attn.W_O[head] = 0
    return clone


def by_hooks(model, tokens, layer, head, mode, partner=None):
    """Logits with one head replaced, by one ordinary run with a hook."""
    prefix = f"blocks.{layer}.attn."
    _, cache = model.run_with_cache(tokens)
    z = cache[prefix + "hook_z"][:, :, head]

    def replace(activation, hook):
        activation = activation.clone()
        activation[:, :, head] = {"mean": lambda: z.mean((0, 1)), "resample": lambda: z[partner]}[
            mode
        ]()
        return activation

    def flatten(pattern, hook):
        pattern = pattern.clone()
        scores = cache[prefix + "hook_attn_scores"][:, head]
        for example in range(len(pattern)):
            for query in range(pattern.shape[2]):
                allowed = scores[example, query] > -1e300
                pattern[example, head, query] = allowed.double() / allowed.sum()
        return pattern

    hook = (
        (prefix + "hook_pattern", flatten)
        if mode == "uniform-pattern"
        else (prefix + "hook_z", replace)
    )
    return model.run_with_hooks(tokens, fwd_hooks=[hook])


@torch.no_grad()
def test_zero_is_the_model_without_the_slice_of_w_o(any_model, tokens_for):
    tokens = tokens_for(any_model)
    found = frozen_importance(any_model, tokens, odd_metric)
    intact = odd_metric(any_model(tokens), tokens)
    np.testing.assert_allclose(found.baseline, intact, atol=EXACT)
    for layer, head in heads_of(any_model):
        without = odd_metric(removed(any_model, layer, head)(tokens), tokens)
        np.testing.assert_allclose(found.per_example[layer, head], intact - without, atol=EXACT)
    assert (
        np.abs(found.values).min() > 1e-4
    )  # every head does something, so the comparison says something


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        *(
            (name, mode)
            for mode in ("mean", "resample")
            for name in ("gpt2", "grouped", "eq6", "figure2-onehot")
        ),
        *(
            (name, "uniform-pattern")
            for name in ("gpt2", "grouped", "eq6", "figure2-onehot", "gpt-uniform")
        ),
        *(
            (name, "uniform-pattern")
            for name in ("no positions by table", "local", "bidirectional", "sinks")
        ),
    ],
)
@torch.no_grad()
def test_other_modes_are_what_one_hook_per_head_gives(name, tokens_for, mode):
    model = make_any(name)
    tokens = tokens_for(model)
    real = torch.ones_like(tokens, dtype=torch.bool)
    found = frozen_importance(model, tokens, odd_metric, mode, where=real, seed=5)
    partner = partners(real, 5)[0][:, 0]
    intact = odd_metric(model(tokens), tokens)
    for layer, head in heads_of(model):
        logits = by_hooks(model, tokens, layer, head, mode, partner)
        drop = intact - odd_metric(logits, tokens)
        np.testing.assert_allclose(found.per_example[layer, head], drop, atol=EXACT)


LEAN = {"gpt2", "scale by layer", "attention only", "results", "gpt-linear", "gpt-uniform"}


@pytest.mark.parametrize("name", [*PLAIN, *DYCK])
def test_models_of_the_usual_shape_take_the_short_way(name, tokens_for, monkeypatch):
    """The tests above hold for both ways; this says which way they tested."""
    rows, model = [], make_any(name)
    run = LeanTail.run
    monkeypatch.setattr(
        LeanTail,
        "run",
        lambda self, *arguments: rows.append(len(arguments[1])) or run(self, *arguments),
    )
    frozen_importance(model, tokens_for(model), odd_metric)
    assert bool(rows) == LeanTail.fits(model) == (name in LEAN)


@pytest.mark.parametrize("norm", ["LN", "LNPre", None])
@pytest.mark.parametrize("act", ["relu", "gelu", "gelu_new", "gelu_pytorch_tanh", "silu"])
def test_the_short_way_knows_norms_and_activations(norm, act, tokens_for):
    model = plain_model(normalization_type=norm, act_fn=act, attn_scale=1.7)
    assert LeanTail.fits(model)
    tokens = tokens_for(model)
    replay = Replay(model, tokens, lean=LeanTail(model))
    change = replay.change(0, [1], torch.ones(1, 1, 1, 4, dtype=torch.float64))
    assert replay._lean is not None
    short = replay.run(0, change)
    replay._lean = None
    torch.testing.assert_close(short, replay.run(0, change), rtol=0, atol=EXACT)


def test_the_short_way_is_not_taken_if_it_is_wrong(tokens_for, monkeypatch):
    model = plain_model()
    tokens = tokens_for(model)
    wanted = frozen_importance(model, tokens, odd_metric).per_example
    run = LeanTail.run
    monkeypatch.setattr(LeanTail, "run", lambda self, *arguments: 1.001 * run(self, *arguments))
    np.testing.assert_allclose(
        frozen_importance(model, tokens, odd_metric).per_example, wanted, atol=EXACT
    )


def test_left_padding_is_masked_as_usual():
    """What the tokenizer pads on the left is hidden from attention.

    A run from the middle of a model would not know.
    """
    model = dyck_model(n_layers=2, n_heads=2)
    tokens = model.to_tokens(["[()]", "[]"], padding_side="left")
    model.tokenizer.padding_side = "left"
    with torch.no_grad():
        intact = odd_metric(model(tokens), tokens)
        found = frozen_importance(model, tokens, odd_metric)
        for layer, head in heads_of(model):
            without = odd_metric(removed(model, layer, head)(tokens), tokens)
            np.testing.assert_allclose(found.per_example[layer, head], intact - without, atol=EXACT)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("pattern", ["stack", "previous"])
def test_a_decoy_has_importance_exactly_zero(mode, pattern):
    """Also one that reads the tokens, in a layer after the ablated one."""
    model = decoy_head(dyck_model(n_layers=2, n_heads=2, dtype=torch.float32), pattern, layer=1)
    tokens = model.to_tokens(["[[()]]()", "()[(())]", "[]()[()]"])
    found = frozen_importance(model, tokens, odd_metric, mode)
    assert (found.per_example[:, 2] == 0).all()
    assert (found.per_example[:, :2] != 0).any(-1).all()


@pytest.mark.parametrize("n", [2, 3, 50])
def test_nobody_is_resampled_from_itself(n):
    real = torch.ones(n, 1, dtype=torch.bool)
    partner = partners(real, 1)[0][:, 0]
    assert sorted(partner.tolist()) == list(range(n))
    assert (partner != torch.arange(n)).all()
    assert n < 50 or not torch.equal(partner, partners(real, 2)[0][:, 0])


def test_hooks_that_the_model_has_take_part(tokens_for):
    model = plain_model()
    tokens = tokens_for(model)
    model.add_perma_hook(
        "blocks.0.attn.hook_z", lambda z, hook: z * torch.tensor([0.0, 1.0, 2.0])[:, None]
    )
    model.add_hook("blocks.1.hook_mlp_out", lambda out, hook: out * 3)
    found = frozen_importance(model, tokens, odd_metric)
    assert (found.per_example[0, 0] == 0).all()  # it is off already
    with torch.no_grad():
        drop = odd_metric(model(tokens), tokens) - odd_metric(removed(model, 0, 2)(tokens), tokens)
    np.testing.assert_allclose(found.per_example[0, 2], drop, atol=EXACT)


@pytest.mark.parametrize("fails", [False, True])
def test_the_model_is_left_as_it_was(tokens_for, fails):
    model = plain_model()
    tokens = tokens_for(model)
    model.add_hook("blocks.1.hook_mlp_out", lambda out, hook: out)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    logits, calls = model(tokens), []

    def metric(logits, tokens):
        calls.append(1)
        if fails and len(calls) > 2:
            raise RuntimeError("mine")
        return logits[:, -1, 0]

    real = torch.ones_like(tokens, dtype=torch.bool)
    for mode in MODES:
        calls.clear()
        if fails:
            with pytest.raises(RuntimeError, match="mine"):
                frozen_importance(model, tokens, metric, mode, where=real)
        else:
            frozen_importance(model, tokens, metric, mode, where=real)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert all("forward" not in vars(module) for module in model.modules())
    assert torch.equal(model(tokens), logits)
    hooked = [name for name, point in model.hook_dict.items() if point.fwd_hooks]
    assert hooked == ["blocks.1.hook_mlp_out"]
    assert not any(block.attn._forward_hooks for block in model.blocks)


# --- the gradient proxy ---------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["gpt2", "grouped", "eq6", "figure2-onehot"])
def test_gradient_is_the_finite_difference(name, tokens_for):
    model = make_any(name)
    tokens = tokens_for(model)
    found = gradient_importance(model, tokens, odd_metric)
    step = 1e-5
    for layer, head in heads_of(model):

        def scaled(factor, layer=layer, head=head):
            clone = copy.deepcopy(model)
            with torch.no_grad():
                clone.blocks[layer].attn.W_O[head] *= factor
                return odd_metric(clone(tokens), tokens)

        slope = (scaled(1 + step) - scaled(1 - step)) / (2 * step)
        np.testing.assert_allclose(
            found.per_example[layer, head], slope.abs(), rtol=1e-5, atol=1e-7
        )


# --- what comes out -------------------------------------------------------------------------------


def test_mean_error_and_frame(tokens_for):
    model = plain_model()
    found = frozen_importance(model, tokens_for(model), log_likelihood)
    frame = found.to_frame()
    assert list(zip(frame["layer"], frame["head"], strict=True)) == heads_of(model)
    for row in frame.itertuples():
        drops = found.per_example[row.layer, row.head].tolist()
        mean = sum(drops) / 5
        assert row.importance == pytest.approx(mean)
        assert row.standard_error == pytest.approx(
            (sum((drop - mean) ** 2 for drop in drops) / 4 / 5) ** 0.5
        )
    assert "zero" in repr(found)
    alone = frozen_importance(model, tokens_for(model, batch=1), log_likelihood)
    assert np.isnan(alone.standard_error).all()
