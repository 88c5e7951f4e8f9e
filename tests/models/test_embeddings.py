"""The constant embeddings of a minimal first layer: Eq. 19, 20 and 21, number by number."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from tl_dyck.language import DyckLanguage
from tl_dyck.models import build_model, get_config
from tl_dyck.models.embeddings import (
    DEPTH_EMBEDDINGS,
    depth_embedding_size,
    depth_embedding_table,
)
from tl_dyck.tasks import DyckTask

SIZES = st.tuples(st.integers(1, 4), st.integers(1, 6))


@pytest.mark.parametrize("kind", DEPTH_EMBEDDINGS)
@given(size=SIZES)
def test_every_reachable_row_is_its_own_vector_and_the_rest_is_zero(kind, size):
    k, deepest = size
    language = DyckLanguage(k, deepest)
    table = depth_embedding_table(kind, language, depth_embedding_size(kind, language) + 2)
    assert table.shape == (2 * k + 1, deepest + 1, depth_embedding_size(kind, language) + 2)
    reachable = [
        (t, d)
        for t in range(2 * k)
        for d in (range(1, deepest + 1) if t % 2 == 0 else range(deepest))
    ]
    reachable.append((2 * k, 0))
    rows = torch.stack([table[t, d] for t, d in reachable])
    assert (torch.cdist(rows, rows) + torch.eye(len(rows)) > 1e-3).all()
    assert table.square().sum() == pytest.approx(rows.square().sum().item())
    norms = {"onehot": 1, "split": 2**0.5, "yao": 2**0.5}[kind]
    torch.testing.assert_close(
        rows[:-1].norm(dim=-1), torch.full((len(rows) - 1,), norms, dtype=torch.float64)
    )
    assert rows[:, -2:].count_nonzero() == 0
    assert rows[:-1] @ rows[-1] == pytest.approx(0)


def test_no_gradient_and_no_parameter():
    model = build_model(get_config("minimal-split", "dyck-2-4"))
    assert [name for name, _ in model.named_parameters() if name.startswith("embed")] == []
    assert not model.embed.table.requires_grad
    assert "embed.table" not in model.state_dict()
    with pytest.raises(AttributeError, match="'minimal-split' has no W_E: its minimal first layer"):
        _ = model.W_E


@pytest.mark.parametrize(("kind", "needed"), [("onehot", 17), ("split", 10), ("yao", 7)])
def test_too_small_a_model_is_refused_by_name(kind, needed):
    get_config(f"minimal-{kind}", "dyck-2-4", d_model=needed)
    with pytest.raises(
        ValueError,
        match=rf"d_model={needed - 1} is too small: the '{kind}' .* {needed} coordinates",
    ):
        get_config(f"minimal-{kind}", "dyck-2-4", d_model=needed - 1)


def test_large_languages_get_the_width_that_they_need():
    assert get_config("minimal-onehot", "dyck-2-4").d_model == 50
    assert get_config("minimal-onehot", "dyck-3-8").d_model == 50
    assert (
        get_config("minimal-onehot", DyckTask(name="deep", n_types=3, max_depth=20)).d_model == 121
    )
    assert get_config("gpt", DyckTask(name="deep", n_types=3, max_depth=20)).d_model == 50
