"""A model and its TransformerBridge say the same, to tools and to our own measures."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import case
from tl_dyck import (
    as_bridge,
    attention_variation,
    build_model,
    construct,
    frozen_importance,
    get_config,
    head_truths,
    stack_likeness,
)
from tl_dyck.ablation import attention_entropy, gradient_importance
from tl_dyck.judge import JudgeError
from tl_dyck.models import list_models
from tl_dyck.models.bridge import NoBridgeError
from tl_dyck.models.hooked.installed import MAJOR
from tl_dyck.tasks import load_task

needs_4 = pytest.mark.skipif(MAJOR < 4, reason="TransformerLens 3 has no such TransformerBridge")
TEXTS = ["[([])]", "(()[])", "[]()[]"]
#: One of each block, and of embeddings by depth.
DIFFERENT = ("gpt-learned", "eq49", "minimal-yao", "figure2-split")


@pytest.fixture(scope="module", params=list_models())
def model(request: Any, random_model: Any) -> Any:
    return random_model(request.param, n_heads=2, d_head=6).eval()


@pytest.fixture(scope="module")
def bridge(model: Any) -> Any:
    return as_bridge(model)


@pytest.mark.skipif(MAJOR >= 4, reason="TransformerLens 4 has it")
def test_on_3_it_is_refused_with_the_reason(random_model: Any) -> None:
    with pytest.raises(NoBridgeError, match=r"needs transformer_lens>=4"):
        as_bridge(random_model("gpt"))


@needs_4
def test_same_logits_and_cache_by_the_same_names(model: Any, bridge: Any) -> None:
    torch.testing.assert_close(bridge(TEXTS), model(TEXTS), rtol=1e-12, atol=1e-12)
    _, cache = model.run_with_cache(TEXTS)
    _, bridged = bridge.run_with_cache(TEXTS)
    own_norms = ("ln1_post", "ln2") if model.cfg.block in ("eq6", "eq49") else ()
    for name, value in cache.items():
        if not any(norm in name for norm in own_norms) and not name.endswith("attn_scores"):
            torch.testing.assert_close(bridged[name], value, rtol=1e-9, atol=1e-9, msg=name)
    assert bridge.to_str_tokens("[()]") == model.to_str_tokens("[()]")
    assert not bridge.training


@needs_4
@pytest.mark.parametrize("name", ["gpt", "eq6", "gelu-ln"])
def test_the_model_stays_as_it_is(name: str) -> None:
    model = case(name).build()
    before = {key: value.clone() for key, value in model.state_dict().items()}
    as_bridge(model)(case(name).tokens(3, 7, model.cfg.d_vocab))
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


@needs_4
@pytest.mark.parametrize("model", DIFFERENT, indirect=True)
def test_heads_are_as_important_through_the_bridge(model: Any, bridge: Any) -> None:
    tokens = model.to_tokens(TEXTS)
    for mode in ("zero", "mean", "resample"):
        mine, theirs = (frozen_importance(each, tokens, mode=mode) for each in (model, bridge))
        np.testing.assert_allclose(theirs.per_example, mine.per_example, atol=1e-9)
        assert np.abs(mine.per_example).max() > 1e-3
    mine, theirs = (gradient_importance(each, tokens) for each in (model, bridge))
    np.testing.assert_allclose(theirs.per_example, mine.per_example, atol=1e-9)
    with pytest.raises(ValueError, match="another mode than 'uniform-pattern'"):
        frozen_importance(bridge, tokens, mode="uniform-pattern")


@needs_4
@pytest.mark.parametrize("model", DIFFERENT, indirect=True)
def test_probes_read_a_bridge(model: Any, bridge: Any) -> None:
    data = load_task("dyck-2-4").distribution.sample(
        20, 12, generator=torch.Generator().manual_seed(0)
    )
    data = torch.nn.functional.pad(data, (1, 0), value=4)
    np.testing.assert_allclose(attention_entropy(bridge, data), attention_entropy(model, data))
    assert repr(stack_likeness(bridge, data)) == repr(stack_likeness(model, data))
    assert np.max(attention_variation([model, bridge], "[()]").mean) < 1e-12


@needs_4
def test_what_no_bridge_has_is_refused_by_name(random_model: Any) -> None:
    gpt = random_model("gpt")
    with pytest.raises(NoBridgeError, match="decoy head"):
        as_bridge(construct.decoy_head(gpt, "previous"))
    with pytest.raises(NoBridgeError, match="post_embedding_ln"):
        as_bridge(case("embedding-ln").build())
    with pytest.raises(NoBridgeError, match="xielu"):
        as_bridge(random_model("gpt", act_fn="xielu"))
    with pytest.raises(TypeError, match="model must be a HookedTransformer, got Identity"):
        as_bridge(torch.nn.Identity())


@needs_4
@pytest.mark.filterwarnings("ignore:process_weights_ of this")
def test_folded_weights_and_copies(random_model: Any) -> None:
    model = random_model("gpt")
    model.process_weights_()
    bridge = copy.deepcopy(as_bridge(model))
    torch.testing.assert_close(bridge(TEXTS), model(TEXTS), rtol=1e-5, atol=1e-5)


@needs_4
def test_what_is_said_of_heads_names_no_mode_where_there_is_none() -> None:
    bridge = as_bridge(build_model(get_config("gpt", "dyck-2-4")))
    with pytest.raises(JudgeError, match="give the HookedTransformer with its weights") as raised:
        head_truths(bridge, load_task("dyck-2-4"), 3)
    assert "mode" not in str(raised.value)
