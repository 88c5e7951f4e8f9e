"""What Theorem 1 and Corollary 1 do not say, by examples: each hypothesis is needed."""

from __future__ import annotations

import copy

import pytest
import torch

from tl_dyck import DyckLanguage, balance_violation, build_model, construct, get_config, load_task
from tl_dyck.models import DyckTransformer

LANGUAGE = DyckLanguage(2, 4)


def test_balance_is_not_sufficient() -> None:
    """β = 0, P > 0 and Eq. 11 hold of a model that cannot tell the two types on the stack apart.

    Eq. 11 is about scores: with them *some* values make an exact model, not all values do.
    """
    model = construct.balanced(LANGUAGE, seed=0)
    depth = LANGUAGE.max_depth
    with torch.no_grad():  # values of type 1 are written where those of type 0 are
        model.blocks[0].attn.W_O[0, depth : 2 * depth] = model.blocks[0].attn.W_O[0, :depth]
    found = balance_violation(model)
    assert float(found) < 1e-12
    assert float(found.P.min()) > 0.01
    assert construct.satisfies_balance(model, tolerance=1e-12)
    task = load_task("dyck-2-4")
    for long in (False, True):
        right = task.closing_accuracy(model, n=40, long=long, seed=0)
        chance = task.closing_chance(long=long)
        assert right.any_token == pytest.approx(chance.copier, abs=0.03)
        assert right.after_close == pytest.approx(chance.constant, abs=0.05)


def test_with_equation_49_the_stack_fades() -> None:
    """Without a LayerNorm on the attention's output what tells types apart falls like 1/n.

    The same weights in Eq. 6 tell them apart by the same amount at any length (Appendix C.7).
    """
    model = construct.balanced(LANGUAGE, seed=1)
    cfg = copy.deepcopy(model.cfg)
    cfg.block = "eq49"
    other = DyckTransformer(cfg)
    other.load_state_dict(model.state_dict())

    def apart(model: DyckTransformer, pairs: int) -> float:
        """Largest difference of logits of two strings with another bracket at the bottom."""
        tokens = torch.tensor([[4, bottom, *[2, 3] * pairs, 0, 1] for bottom in (0, 2)])
        with torch.no_grad():
            first, second = model(tokens)[:, -1]
        return float((first - second).abs().max())

    assert [apart(model, pairs) for pairs in (100, 900)] == pytest.approx([40, 40])
    near, far = apart(other, 100), apart(other, 900)
    n = [2 * pairs + 4 for pairs in (100, 900)]  # tokens, BOS among them
    assert near < 15
    assert near * n[0] == pytest.approx(far * n[1], rel=0.05)


@pytest.mark.parametrize("layers", [1, 3])
def test_uniform_attention_needs_a_start_token(layers: int) -> None:
    """Footnote 5: without one, uniform attention cannot tell ``(`` from ``((``, at any depth."""
    config = get_config(
        "gpt-uniform", "dyck-2-4", n_layers=layers, initializer_range=0.8, dtype=torch.float64
    )
    model = build_model(config, seed=0)
    with torch.no_grad():
        bare = model(torch.tensor([[0, 0, 0, 0]]))[0]
        started = model(torch.tensor([[4, 0, 0, 0, 0]]))[0, 1:]
    assert torch.allclose(bare, bare[:1].expand_as(bare), atol=1e-10)
    assert (started[1:] - started[:-1]).abs().amax(-1).min() > 1e-3


@pytest.mark.parametrize("built", [True, False])
def test_deeper_models_can_do_it_too(built: bool) -> None:
    """Appendix C.2: more layers can be the identity, whatever their attention shows.

    Their values and MLP are zero: with Eq. 6 LN_C of nothing is nothing, and a block of GPT-2 adds
    nothing.
    """
    model = (
        construct.balanced(LANGUAGE, seed=2)
        if built
        else build_model(get_config("gpt", "dyck-2-4", n_layers=1), seed=0)
    )
    cfg = copy.deepcopy(model.cfg)
    cfg.n_layers = 3
    deeper = build_model(cfg, seed=1)
    with torch.no_grad():
        for block in deeper.blocks[1:]:
            for name, weight in block.named_parameters():
                if name not in ("attn.W_Q", "attn.W_K"):
                    weight.zero_()
                else:
                    weight.copy_(
                        torch.randn(weight.shape, generator=torch.Generator().manual_seed(1))
                    )
        deeper.load_state_dict(deeper.state_dict() | model.state_dict())
        tokens = torch.tensor([[4, 0, 0, 1, 2, 3, 2, 0, 1, 3, 1]])
        expected = model(tokens)
        found, cache = deeper.run_with_cache(tokens)
    assert torch.allclose(found, expected, atol=1e-6)
    first, last = (cache[f"blocks.{layer}.attn.hook_pattern"] for layer in (0, 2))
    if built:  # on the same input as the layer that does the work
        assert torch.equal(cache["blocks.1.hook_resid_pre"], cache["blocks.2.hook_resid_post"])
    assert float((first - last).abs().max()) > 0.1
