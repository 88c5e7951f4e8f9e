"""Hook points and cache entries mean what TransformerLens users expect.

Identities between them, and interventions.
"""

from __future__ import annotations

import warnings
from contextlib import nullcontext

import pytest
import torch
from transformer_lens.hook_points import HookPoint

from tl_dyck.models import get_config
from tl_dyck.models.caches import UnsummedWarning
from tl_dyck.models.hooked import HookedTransformer
from tl_dyck.models.hooked.own import UnitNorm

#: One of each block, embedding and kind of attention: all others are made of these parts.
FAMILIES = ["gpt", "attn-only", "gpt-uniform", "eq6", "eq49", "minimal-onehot", "figure2-yao"]
BLOCK = {name: get_config(name, "dyck-2-4").block for name in FAMILIES}
WITH_RESIDUAL = [name for name in FAMILIES if BLOCK[name] != "bare"]
BARE = [name for name in FAMILIES if BLOCK[name] == "bare"]
TEXTS = ["[([])]", "(()[])", "[[((", "[]()[]"]


@pytest.fixture(params=FAMILIES)
def family(request):
    return request.param


@pytest.fixture
def model(family, random_model) -> HookedTransformer:
    return random_model(family, n_heads=2, d_head=6)


def close(a: torch.Tensor, b: torch.Tensor) -> None:
    torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)


INSIDE = {
    "gpt": ("ln1", "ln2"), "attn-only": ("ln1",), "eq6": ("ln1_post",), "eq49": ("ln2",),
    "bare": (),
}  # fmt: skip


def test_documented_hook_points_exist(model, family):
    has_mlp = family not in BARE and family != "attn-only"
    kind = "attn-only" if family == "attn-only" else BLOCK[family]
    wanted = {"hook_embed", "hook_pos_embed"}
    every = "attn.hook_q attn.hook_k attn.hook_v attn.hook_z attn.hook_attn_scores "
    every += "attn.hook_pattern attn.hook_result hook_resid_pre hook_attn_out hook_resid_post "
    every += "hook_q_input hook_k_input hook_v_input hook_attn_in "
    if has_mlp:
        every += "hook_resid_mid hook_mlp_in hook_mlp_out mlp.hook_pre mlp.hook_post"
    norms = [f"blocks.{layer}.{n}" for layer in range(model.cfg.n_layers) for n in INSIDE[kind]]
    norms += ["ln_final"] if BLOCK[family] == "gpt" else []
    for layer in range(model.cfg.n_layers):
        wanted |= {f"blocks.{layer}.{name}" for name in every.split()}
    wanted |= {f"{norm}.{name}" for norm in norms for name in ("hook_scale", "hook_normalized")}
    assert wanted <= set(model.hook_dict)
    assert all(point.name == name for name, point in model.hook_dict.items())


def test_every_module_is_known_by_its_name(model):
    modules = {name: module for name, module in model.named_modules() if name}
    assert {name: model.mod_dict[name] for name in modules} == modules


def test_every_hook_point_that_is_on_fires(model, family):
    fired: list[str] = []
    model.run_with_hooks(
        "[()]", fwd_hooks=[(lambda _: True, lambda x, hook: fired.append(hook.name))]
    )
    off = [
        "hook_result",
        "hook_q_input",
        "hook_k_input",
        "hook_v_input",
        "hook_attn_in",
        "hook_mlp_in",
    ]
    off += ["hook_mlp_out"] if family in BARE or family == "attn-only" else []
    assert set(fired) == {name for name in model.hook_dict if not name.endswith(tuple(off))}
    # TransformerLens normalises for query, key and value each
    norms = ("ln1.hook_scale", "ln1.hook_normalized")
    assert all(fired.count(name) == (3 if name.endswith(norms) else 1) for name in fired)


def test_residual_stream_identities(model, family):
    _, cache = model.run_with_cache(TEXTS)
    close(cache["resid_pre", 0], cache["hook_embed"] + cache["hook_pos_embed"])
    for layer in range(model.cfg.n_layers):
        if layer > 0:
            close(cache["resid_pre", layer], cache["resid_post", layer - 1])
        if family == "attn-only":
            close(cache["resid_post", layer], cache["resid_pre", layer] + cache["attn_out", layer])
        elif family in BARE:
            close(cache["resid_post", layer], cache["attn_out", layer])
            assert f"blocks.{layer}.hook_resid_mid" not in cache
        else:
            close(cache["resid_mid", layer], cache["resid_pre", layer] + cache["attn_out", layer])
            kept = "ln2.hook_normalized" if BLOCK[family] == "eq49" else "hook_resid_mid"
            close(
                cache["resid_post", layer],
                cache[f"blocks.{layer}.{kept}"] + cache["mlp_out", layer],
            )


@pytest.mark.parametrize(
    "name",
    [
        "hook_embed",
        "hook_pos_embed",
        "blocks.0.hook_resid_pre",
        "blocks.0.hook_attn_out",
        "blocks.0.hook_resid_post",
    ],
)
def test_what_a_hook_writes_is_what_the_model_goes_on_with(model, name):
    """Adding at embedding, positions or resid_pre is the same; writes are read downstream."""
    push = torch.randn(
        model.cfg.d_model, generator=torch.Generator().manual_seed(0), dtype=torch.float64
    )
    before = model(TEXTS)
    after = model.run_with_hooks(TEXTS, fwd_hooks=[(name, lambda x, hook: x + push)])
    assert (after - before).abs().max() > 1e-3
    if name in ("hook_embed", "hook_pos_embed", "blocks.0.hook_resid_pre"):
        close(
            after,
            model.run_with_hooks(
                TEXTS, fwd_hooks=[("blocks.0.hook_resid_pre", lambda x, hook: x + push)]
            ),
        )
    if name == "blocks.0.hook_attn_out" and model.cfg.block == "bare":
        close(after, before + push @ model.W_U)


def test_use_split_qkv_input_and_attn_in(model):
    before = model(TEXTS)
    model.set_use_split_qkv_input(True)
    logits, cache = model.run_with_cache(TEXTS)
    close(logits, before)
    for kind in "qkv":
        shown = cache[f"blocks.0.hook_{kind}_input"]
        assert shown.shape == (4, 7, 2, 50)
        close(shown, cache["resid_pre", 0][:, :, None].expand_as(shown))

    def other_input(x: torch.Tensor, hook: HookPoint) -> torch.Tensor:
        x[:, :, 1] = 0.25 * x[:, :, 1].roll(1, dims=-1)
        return x

    # one head's query, key or value reads something else: that head, that part, and nothing more
    for kind in "qkv":
        with model.hooks([(f"blocks.0.hook_{kind}_input", other_input)]):
            _, changed = model.run_with_cache(TEXTS)
        for part in "qkv":
            close(changed[part, 0][:, :, 0], cache[part, 0][:, :, 0])
            same = torch.equal(changed[part, 0][:, :, 1], cache[part, 0][:, :, 1])
            assert same == (part != kind or (model.cfg.attention == "uniform" and part in "qk"))

    model.set_use_split_qkv_input(False)
    model.set_use_attn_in(True)
    logits, cache = model.run_with_cache(TEXTS)
    close(logits, before)
    assert cache["blocks.0.hook_attn_in"].shape == (4, 7, 2, 50)
    with model.hooks([("blocks.0.hook_attn_in", other_input)]):
        _, changed = model.run_with_cache(TEXTS)
    close(changed["v", 0][:, :, 0], cache["v", 0][:, :, 0])
    assert not torch.equal(changed["v", 0][:, :, 1], cache["v", 0][:, :, 1])

    model.set_use_split_qkv_input(
        True
    )  # both: TransformerLens lets the split inputs win, and so do we
    with model.hooks([("blocks.0.hook_v_input", other_input)]):
        _, both = model.run_with_cache(TEXTS)
    close(both["v", 0], changed["v", 0])


def test_use_hook_mlp_in_and_tokens(random_model):
    for family in (name for name in WITH_RESIDUAL if name != "attn-only"):
        model = random_model(family, use_hook_tokens=True)
        before = model("[()]")
        model.set_use_hook_mlp_in(True)
        logits, cache = model.run_with_cache("[()]")
        close(logits, before)
        close(cache["mlp_in", 0], cache["resid_mid", 0])
        assert cache["hook_tokens"].tolist() == [[4, 0, 2, 3, 1]]
    with pytest.raises(AssertionError, match="attn_only"):
        random_model(BARE[0]).set_use_hook_mlp_in(True)


def test_activation_cache_tools(model, family):
    model.set_use_attn_result(True)
    _, cache = model.run_with_cache(TEXTS)
    if BLOCK[family] not in (
        "bare",
        "eq49",
    ):  # where the residual stream is not a plain sum, there is nothing to sum
        parts, labels = cache.decompose_resid(layer=-1, return_labels=True)
        assert labels[:2] == ["embed", "pos_embed"]
        close(parts.sum(0), cache["resid_post", model.cfg.n_layers - 1])
    else:
        with pytest.warns(UnsummedWarning, match="do not add up to the residual stream, as"):
            parts = cache.decompose_resid(layer=-1)
        assert not torch.allclose(parts.sum(0), cache["resid_post", model.cfg.n_layers - 1])
        with pytest.warns(UnsummedWarning, match=r"^logit_attrs of"):
            cache.logit_attrs(parts, tokens=0)
    heads = heads_of(cache, model)
    assert heads.shape == (2 * model.cfg.n_layers, 4, 7, 50)
    directions = model.tokens_to_residual_directions(torch.tensor([0, 1]))
    close(directions, model.W_U[:, [0, 1]].T)


def heads_of(cache, model):
    """`stack_head_results`, which warns if heads do not add up to what attention adds (Eq. 6)."""
    missing = pytest.warns(UnsummedWarning) if model.cfg.block == "eq6" else nullcontext()
    with missing:
        found = cache.stack_head_results(layer=-1)
    return found


STREAM = {
    "decompose_resid": {"layer": -1},
    "get_full_resid_decomposition": {"expand_neurons": False},
}


def test_without_an_mlp_there_are_no_neurons(model: HookedTransformer, family: str):
    """Said by name, of every family; with one they are what the MLP adds."""
    _, cache = model.run_with_cache(model.to_tokens("()[]"))
    if model.cfg.attn_only:
        for asked in (cache.get_neuron_results, cache.stack_neuron_results):
            with pytest.raises(ValueError, match=f"'{family}' has no MLP, so it has no neurons"):
                asked(0)
        return
    last = model.cfg.n_layers - 1
    total = cache.get_neuron_results(last).sum(-2) + model.blocks[last].mlp.b_out
    close(total, cache["mlp_out", last])


@pytest.mark.parametrize("what", ["stack_head_results", *STREAM])
def test_what_does_not_add_up_is_said_with_its_size(model, family, what):
    """The sum is made here; a warning comes exactly where it is off, and says by how much."""
    with torch.no_grad():
        _, cache = model.run_with_cache(TEXTS)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        parts = getattr(cache, what)(**STREAM.get(what, {}))
    layers = model.cfg.n_layers
    if what in STREAM:
        off = parts.sum(0) - cache["resid_post", layers - 1]
    else:
        each = parts.unflatten(0, (layers, -1)).sum(1) + model.b_O[:, None, None]
        off = each - torch.stack([cache["attn_out", layer] for layer in range(layers)])
    largest = float(off.detach().abs().max())
    said = [str(each.message) for each in caught if each.category is UnsummedWarning]
    assert bool(said) == (largest > 1e-3)
    if said:
        (line,) = said
        assert line.startswith(f"{what} of {model.cfg.model_name!r}: the parts do not add up to")
        assert f"they miss it by up to {largest:.2g};" in line


def test_folding_layer_norms_warns_where_it_changes_predictions(model):
    tokens = model.to_tokens(model.language.probe_string)
    before = model(tokens).log_softmax(-1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.process_weights_()
    change = float((model(tokens).log_softmax(-1) - before).detach().abs().max())
    said = [str(each.message) for each in caught if "changed log-prob" in str(each.message)]
    assert bool(said) == (change > 1e-2)


def test_centring_the_weights_changes_no_prediction(model):
    """TransformerLens' own, which knows from the config what may be centred (float32 inside)."""
    before = model(TEXTS).log_softmax(-1)
    model.process_weights_(fold_ln=False)
    torch.testing.assert_close(model(TEXTS).log_softmax(-1), before, rtol=1e-4, atol=1e-4)


def test_gradients_reach_every_trained_weight_and_no_other(model, family):
    model(TEXTS, return_type="loss").backward()
    for name, parameter in model.named_parameters():
        frozen = name == "pos_embed.W_pos" and model.cfg.position != "learned"
        frozen |= model.cfg.attention == "uniform" and name.split(".")[-1] in (
            "W_Q",
            "W_K",
            "b_Q",
            "b_K",
        )
        assert parameter.requires_grad == (not frozen), name
        if frozen:
            assert parameter.grad is None
        elif not name.endswith("b_K"):  # a softmax does not see what is added to all its scores
            assert parameter.grad.abs().max() > 0, name


def test_unit_norm_by_hand_and_its_gradient():
    norm = UnitNorm(0.5).double()
    x = torch.tensor(
        [[[3.0, 0, 0, -3], [0, 0, 0, 0], [7, 7, 7, 7], [1.1, 0.9, 1, 1]]], dtype=torch.float64
    )
    expected = torch.tensor(
        [[[0.5**0.5, 0, 0, -(0.5**0.5)], [0, 0, 0, 0], [0, 0, 0, 0], [0.2, -0.2, 0, 0]]],
        dtype=torch.float64,
    )
    close(norm(x), expected)
    x.requires_grad_()
    norm(x).square().sum().backward()
    assert x.grad.isfinite().all()
    inner = torch.randn(
        2, 3, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64, requires_grad=True
    )
    assert torch.autograd.gradcheck(norm, inner)
    assert torch.autograd.gradcheck(norm, (inner.detach() * 0.01).requires_grad_())  # below C


def test_a_batch_is_its_rows_and_padding_is_never_seen(model):
    texts = ["[", "[()]", "", "(([]))["]
    batch = model(texts)
    left = model(texts, padding_side="left")
    for row, text in enumerate(texts):
        close(batch[row, : len(text) + 1], model(text)[0])
        close(left[row, len(left[row]) - len(text) - 1 :], model(text)[0])
