"""The lean forward pass is the model's own, for every family and option, gradients included."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tl_dyck.models import build_model, get_config, lean_logits, list_models
from tl_dyck.tasks import load_task

TASK = load_task("dyck-2-4")


def random_model(family, seed, dtype=torch.float64, **overrides):
    model = build_model(
        get_config(family, TASK, dtype=dtype, initializer_range=0.4, **overrides), seed=seed
    )
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # biases and LayerNorm scales that do something
        for name, parameter in model.named_parameters():
            if parameter.requires_grad and ".W_" not in name:
                parameter += 0.3 * torch.randn(
                    parameter.shape, generator=generator, dtype=torch.float64
                )
    return model


@given(
    family=st.sampled_from(list_models()),
    seed=st.integers(0, 1000),
    n_heads=st.integers(1, 3),
    n_layers=st.integers(1, 3),
    act_fn=st.sampled_from(["relu", "gelu", "gelu_new", "silu", "gelu_fast", "solu_ln"]),
    batch=st.integers(1, 3),
    length=st.integers(1, 30),
)
@settings(max_examples=60)
def test_logits_and_gradients_are_the_models(
    family, seed, n_heads, n_layers, act_fn, batch, length
):
    model = random_model(family, seed, n_heads=n_heads, n_layers=n_layers, act_fn=act_fn)
    tokens = torch.randint(5, (batch, length), generator=torch.Generator().manual_seed(seed))
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    slow, fast = model(tokens), lean_logits(model, tokens)
    assert torch.allclose(fast, slow, rtol=1e-10, atol=1e-10)
    weights = torch.randn(slow.shape, generator=torch.Generator().manual_seed(1), dtype=slow.dtype)
    for a, b in zip(
        torch.autograd.grad((fast * weights).sum(), trained, allow_unused=True),
        torch.autograd.grad((slow * weights).sum(), trained, allow_unused=True),
        strict=True,
    ):
        assert (a is None) == (b is None)
        if a is not None:
            assert torch.allclose(a, b, rtol=1e-7, atol=1e-8 * float(1 + b.abs().max()))
