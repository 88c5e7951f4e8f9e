"""Every family against a forward pass in plain numpy, written from the paper's formulas."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.reference import architecture, reference_logits
from tl_dyck.models import build_model, get_config, list_models
from tl_dyck.models.embeddings import FIXED_POSITIONS
from tl_dyck.tasks import DyckTask

FAMILIES = {
    # block, embedding, position, attention, layers: what the names promise (spec §2)
    "gpt": ("gpt", "token", "none", "softmax", 2),
    "gpt-linear": ("gpt", "token", "linear", "softmax", 2),
    "gpt-learned": ("gpt", "token", "learned", "softmax", 2),
    "gpt-sinusoidal": ("gpt", "token", "sinusoidal", "softmax", 2),
    "attn-only": ("attn-only", "token", "none", "softmax", 2),
    "gpt-uniform": ("gpt", "token", "none", "uniform", 2),
    "eq6": ("eq6", "token", "none", "softmax", 2),
    "eq6-uniform": ("eq6", "token", "none", "uniform", 2),
    "eq49": ("eq49", "token", "none", "softmax", 2),
    "minimal-onehot": ("eq6", "onehot", "none", "softmax", 1),
    "minimal-split": ("eq6", "split", "none", "softmax", 1),
    "minimal-yao": ("eq6", "yao", "none", "softmax", 1),
    "minimal-uniform": ("eq6", "onehot", "none", "uniform", 1),
    "figure2-onehot": ("bare", "onehot", "none", "softmax", 1),
    "figure2-split": ("bare", "split", "none", "softmax", 1),
    "figure2-yao": ("bare", "yao", "none", "softmax", 1),
}


def check(model: Any, like: tuple) -> None:
    weights = {name: parameter.detach().numpy() for name, parameter in model.named_parameters()}
    tokens = [model.cfg.d_vocab - 1, 0, 2, 3, 1, 0, 1]
    with torch.no_grad():
        logits = model(torch.tensor([tokens]))[0].numpy()
    expected = reference_logits(model.cfg, weights, tokens, like)
    np.testing.assert_allclose(logits, expected, rtol=1e-9, atol=1e-9)


def test_every_family_is_what_its_name_promises():
    """Logits of each are held to the reference, as the configuration says it, in test_accounts."""
    found = {name: architecture(get_config(name, "dyck-2-4")) for name in list_models()}
    assert found == FAMILIES, "a family is a row of FAMILIES in this file"


@pytest.mark.parametrize("ln_c", [1e-5, 0.7, 1e6])
def test_large_c_of_the_unit_norm(random_model, ln_c):
    for family in ("eq6", "eq49"):
        model = random_model(family, ln_c=ln_c)
        check(model, FAMILIES[family])


@pytest.mark.parametrize("position", [*FIXED_POSITIONS, "learned"])
@pytest.mark.parametrize("family", ["minimal-yao", "figure2-onehot", "eq6"])
def test_any_family_takes_any_position_encoding(random_model, family, position):
    block, embedding, _, how, layers = FAMILIES[family]
    model = random_model(family, position=position, t_max=9)
    check(model, (block, embedding, position, how, layers))


def test_sinusoidal_positions_of_an_odd_width(random_model):
    model = random_model("gpt-sinusoidal", d_model=7)
    check(model, FAMILIES["gpt-sinusoidal"])


def test_t_max_and_n_ctx_come_from_the_task():
    task = DyckTask(
        name="own", n_types=2, max_depth=3, train_lengths=(4, 10), long_lengths=(30, 33)
    )
    model = build_model(get_config("gpt-linear", task))
    assert model.cfg.n_ctx == 34
    torch.testing.assert_close(model.W_pos[:, -1], torch.arange(34) / 10)
    assert model.W_pos[:, :-1].count_nonzero() == 0


@pytest.mark.parametrize("family", [name for name, like in FAMILIES.items() if like[0] == "eq6"])
@settings(max_examples=6)
@given(
    factor=st.floats(1e-3, 1e6),
    string=st.lists(st.integers(0, 3), min_size=1, max_size=12),
    data=st.data(),
)
def test_pinning(random_model, family, factor, string, data):
    """With Eq. 6, scaling the attention output by any c > 0 changes nothing.

    That is, as long as LN_C is not at its floor C.
    """
    model = random_model(family, seed=3, ln_c=1e-9)
    layer = data.draw(st.integers(0, model.cfg.n_layers - 1))
    tokens = torch.tensor([[4, *string]])
    before = model(tokens)
    with torch.no_grad():
        model.blocks[layer].attn.W_O *= factor
        model.blocks[layer].attn.b_O *= factor
    torch.testing.assert_close(model(tokens), before, rtol=1e-9, atol=1e-9)
