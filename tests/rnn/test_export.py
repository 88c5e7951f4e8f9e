"""What the exporter reads off a model, and what it refuses."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.cases import UNWRITTEN, case, hooked_config, plain_model
from tl_dyck.models import build_model, get_config
from tl_dyck.models.hooked import HookedTransformer
from tl_dyck.rnn import ExportMismatchError, UnsupportedModelError, export_rnn


def model_with(**fields: Any) -> HookedTransformer:
    """A plain two-head model, else as `fields` say; weights are zeros, nothing is computed."""
    values: dict[str, Any] = {
        "n_layers": 1,
        "d_model": 8,
        "d_head": 4,
        "n_heads": 2,
        "d_vocab": 5,
        "n_ctx": 8,
    }
    values |= {"act_fn": "relu", "init_weights": False, "device": "cpu", "d_mlp": 8, **fields}
    model = HookedTransformer(hooked_config(**values), move_to_device=False)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    return model


# ---------------------------------------------------------------------- refused, by name and reason


@pytest.mark.global_rng  # TransformerLens's mixture of experts draws from it
@pytest.mark.parametrize(
    ("fields", "where", "reason"),
    [
        ({"n_layers": 2}, "blocks.1", "2 layers"),
        ({"attention_dir": "bidirectional"}, "blocks.0.attn", "bidirectional"),
        (
            {"use_local_attn": True, "attn_types": ["local"], "window_size": 3},
            "blocks.0.attn",
            "window_size=3.*query's position",
        ),
        ({"num_experts": 2, "experts_per_token": 1}, "blocks.0.mlp", "mixture of experts"),
        ({"act_fn": UNWRITTEN}, "blocks.0.mlp", f"act_fn={UNWRITTEN!r}"),
        ({"act_fn": "solu_ln"}, "blocks.0.mlp", "act_fn='solu_ln'"),
        ({"final_rms": True}, "ln_final", "class RMSNorm, and blocks.0.ln1 subtracts the mean"),
        ({"dtype": torch.bfloat16}, "embed.W_E", "bfloat16"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_unsupported_models(fields: dict[str, Any], where: str, reason: str) -> None:
    with pytest.raises(UnsupportedModelError, match=rf"^{where}: (?s:.*){reason}"):
        export_rnn(model_with(**fields))


@pytest.mark.parametrize(
    "field", ["use_attention_sinks", "use_logn_attn", "load_in_4bit", "clip_qkv"]
)
def test_fields_that_only_newer_releases_have(field: str) -> None:
    model = model_with()
    setattr(model.cfg, field, 5.0 if field == "clip_qkv" else True)
    with pytest.raises(UnsupportedModelError, match=rf"blocks.0.attn: cfg.{field}="):
        export_rnn(model)
    setattr(model.cfg, field, None)
    export_rnn(model)


def test_relative_positions_and_post_norm_are_refused() -> None:
    model = model_with()
    model.cfg.positional_embedding_type = "relative_positional_bias"
    with pytest.raises(
        UnsupportedModelError, match=r"blocks\.0\.attn: relative_positional_bias positions"
    ):
        export_rnn(model)
    model = model_with()
    model.cfg.original_architecture = "Olmo2ForCausalLM"
    with pytest.raises(UnsupportedModelError, match=r"blocks\.0: .*Olmo2ForCausalLM"):
        export_rnn(model)
    model = case("minimal-onehot").build()
    for name, where in (("ln1_post", "ln1_post"), ("ln2_post", "ln2_post")):
        changed = copy.deepcopy(model)
        setattr(changed.blocks[0], name, nn.LayerNorm(changed.cfg.d_model))
        with pytest.raises(UnsupportedModelError, match=rf"blocks\.0\.{where}: .*LayerNorm"):
            export_rnn(changed)


def test_not_a_transformer() -> None:
    for thing in (nn.Identity(), nn.ReLU()):
        with pytest.raises(UnsupportedModelError, match="is not a HookedTransformer"):
            export_rnn(thing)


def test_hooks_are_refused_until_removed() -> None:
    model = case("relu").build()
    model.add_hook("blocks.0.attn.hook_z", lambda z, hook: z * 0, is_permanent=True)
    with pytest.raises(
        UnsupportedModelError, match=r"^blocks\.0\.attn\.hook_z: a hook is attached"
    ):
        export_rnn(model)
    model.reset_hooks(including_permanent=True)
    export_rnn(model)
    handle = model.blocks[0].mlp.register_forward_hook(lambda module, inputs, output: output * 0)
    with pytest.raises(UnsupportedModelError, match=r"^blocks\.0\.mlp: a hook"):
        export_rnn(model)
    handle.remove()
    export_rnn(model)


def test_the_type_is_that_of_the_weights() -> None:
    """`model.double()` leaves cfg.dtype behind; the weights say what the model is."""
    model = case("relu").build(torch.float32)
    tokens = torch.tensor([[0, 1, 2, 1]])
    expected = export_rnn(copy.deepcopy(model).to(torch.float64))(tokens)
    rnn = export_rnn(model.double())
    assert rnn.dtype == torch.float64
    assert torch.equal(rnn(tokens), expected)


def test_weights_of_two_types_are_refused() -> None:
    model = case("relu").build(torch.float32)
    model.unembed.double()
    with pytest.raises(UnsupportedModelError, match=r"unembed\.W_U: weights are torch\.float64"):
        export_rnn(model)


class Doubled(HookedTransformer):
    """A subclass that computes something else than its parts say."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return 2 * super().forward(*args, **kwargs)


def test_a_model_with_its_own_forward_is_refused() -> None:
    model = case("relu-ln-4heads").build()
    model.__class__ = Doubled
    with pytest.raises(
        ExportMismatchError, match="Doubled computes something else than its parts say"
    ):
        export_rnn(model)
    export_rnn(model, verify=False)


def test_logits_that_overflow_are_said_to() -> None:
    model = case("relu-ln-4heads").build()
    with torch.no_grad():
        model.unembed.W_U.fill_(torch.finfo(model.unembed.W_U.dtype).max)
    with pytest.raises(ExportMismatchError, match="numbers overflow on random strings"):
        export_rnn(model)


class Rounding(HookedTransformer):
    """A subclass that rounds otherwise than its parts: the last logit, the only large one."""

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        logits = super().forward(*args, **kwargs)
        return torch.cat([logits[..., :-1], logits[..., -1:] * (1 + 1e-4)], -1)


def test_rounding_counts_against_the_largest_logit() -> None:
    """A small logit beside it, here 0, makes it no other function."""
    model = case("relu").build()
    with torch.no_grad():
        model.unembed.W_U[:, :-1] = 0
        model.unembed.b_U[:] = 0
        model.unembed.b_U[-1] = 100
    model.__class__ = Rounding
    export_rnn(model)


class Uncausal(nn.Module):
    def __init__(self, attn: nn.Module) -> None:
        super().__init__()
        self.inner = attn

    def __getattr__(self, name: str) -> Any:
        return (
            super().__getattr__(name)
            if name == "inner"
            else getattr(super().__getattr__("inner"), name)
        )

    def forward(self, **kwargs: Any) -> Tensor:
        return self.inner(**kwargs)


def test_an_attention_of_another_class_is_refused() -> None:
    model = case("relu").build()
    model.blocks[0].attn = Uncausal(model.blocks[0].attn)
    with pytest.raises(UnsupportedModelError, match=r"blocks\.0\.attn: class Uncausal"):
        export_rnn(model)
    model = case("relu").build()
    model.embed = nn.Identity()
    with pytest.raises(UnsupportedModelError, match="embed: Identity is neither"):
        export_rnn(model)


# ---------------------------------------------------------------------- what is exported


def test_what_the_state_machine_counts() -> None:
    states = {
        name: export_rnn(case(name).build()).config.state
        for name in ("gpt", "gpt-linear", "minimal-onehot")
    }
    assert states == {"gpt": "none", "gpt-linear": "position", "minimal-onehot": "depth"}
    assert export_rnn(case("minimal-onehot-linear-2heads").build()).config.state == "position+depth"


def test_learned_positions_that_are_still_zero_are_no_positions() -> None:
    model = plain_model("relu", torch.float64, 8, position="none")
    assert "W_pos" not in export_rnn(model).weights
    with torch.no_grad():
        model.pos_embed.W_pos[3, 2] = 1e-30
    assert "W_pos" in export_rnn(model).weights


def test_the_weights_are_a_copy_and_the_model_is_unchanged() -> None:
    model = case("gelu-ln").build()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    rnn = export_rnn(model)
    tokens = case("gelu-ln").tokens(2, 5, 11)
    expected = rnn(tokens)
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()
    assert torch.equal(rnn(tokens), expected)
    assert not any(weight.requires_grad for weight in rnn.weights.values())


def test_a_tokenizer_that_pads_on_the_left() -> None:
    """The model then takes leading pads (here BOS) for padding; the RNN reads strings only."""
    model = case("gpt-linear").build()
    model.tokenizer.padding_side = "left"
    rnn = export_rnn(model)
    tokens = model.to_tokens("[()]")
    assert torch.allclose(rnn(tokens), model(tokens), rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize(
    "setting", ["use_attn_result", "use_split_qkv_input", "use_attn_in", "use_hook_mlp_in"]
)
def test_settings_that_only_add_hook_points_change_nothing(setting: str) -> None:
    model = case("relu-ln-4heads").build()
    tokens = case("relu-ln-4heads").tokens(2, 6, 11)
    expected = export_rnn(model)(tokens)
    getattr(model, f"set_{setting}")(True)
    assert torch.equal(export_rnn(model)(tokens), expected)


@pytest.mark.parametrize("name", ["gpt", "minimal-onehot"])
def test_texts_are_tokenised_as_the_model_does(name: str) -> None:
    model = case(name).build()
    rnn = export_rnn(model)
    for text in ("[()]", "", "([[", "[ ( ) ]"[:1]):
        assert torch.equal(rnn.to_tokens(text), model.to_tokens(text))
    tokens = model.to_tokens("[()]")[0]
    assert rnn.to_str_tokens(tokens) == model.to_str_tokens(tokens)
    assert rnn.to_string(tokens) == "[()]"


def test_brackets_of_several_characters() -> None:
    brackets = ("<<", ">>", "if", "fi")
    model = build_model(get_config("gpt", "dyck-2-4", n_layers=1, brackets=brackets))
    rnn = export_rnn(model)
    assert rnn.config.alphabet is not None
    assert rnn.config.alphabet[:4] == brackets
    assert torch.equal(rnn.to_tokens("<<iffi>>"), model.to_tokens("<<iffi>>"))


def test_texts_the_caller_describes() -> None:
    model = model_with(default_prepend_bos=False)
    assert export_rnn(model).config.alphabet is None
    words = ("a", "b", "c", "?", "<s>")
    rnn = export_rnn(model, alphabet=words, separator=" ", unknown_token=3, bos_token=4)
    assert rnn.to_tokens("b zzz").tolist() == [[4, 1, 3]]


def test_bos_only_where_the_model_prepends_it() -> None:
    model = build_model(get_config("gpt", "dyck-2-4", n_layers=1, default_prepend_bos=False))
    assert export_rnn(model).config.bos_token is None
    assert export_rnn(case("gpt").build()).config.bos_token == 4
