"""Attention-only models and plain configurations: built, trained, saved, exported."""

import pytest
import torch

from tl_dyck import (
    VocabularyError,
    get_config,
    load_task,
    register_model,
    train,
    train_seeds,
)
from tl_dyck.models import DyckTransformerConfig, config_for, models
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.training import TrainConfig, load_result

TASK = load_task("dyck-2-4")
SHORT = TrainConfig(steps=3, min_steps=0, target=None)


def plain(**fields):
    values = {"n_layers": 2, "d_model": 16, "n_heads": 2, "d_head": 8, "n_ctx": 32, "d_vocab": 5}
    return HookedTransformerConfig(**{**values, "attn_only": True, "device": "cpu", **fields})


def test_what_earlier_versions_saved_is_what_they_would_save_now():
    saved = get_config("gpt", TASK).to_saved()
    assert not {"mlp", "layer_norm", "attn_only", "normalization_type"} & set(saved)
    assert DyckTransformerConfig.from_saved(saved) == get_config("gpt", TASK)
    assert {"mlp", "layer_norm"} <= set(
        get_config("gpt", TASK, attn_only=True, normalization_type=None).to_saved()
    )


def test_a_plain_configuration_is_the_same_architecture(tmp_path):
    result = train(plain(), TASK, options=SHORT, progress=False, folder=tmp_path / "plain")
    model = result.model
    assert {name: p.shape for name, p in model.named_parameters()} == {
        "embed.W_E": (5, 16),
        "pos_embed.W_pos": (32, 16),
        **{f"blocks.{i}.attn.W_{x}": (2, 16, 8) for i in range(2) for x in "QKV"},
        **{f"blocks.{i}.attn.b_{x}": (2, 8) for i in range(2) for x in "QKV"},
        **{f"blocks.{i}.attn.W_O": (2, 8, 16) for i in range(2)},
        **{f"blocks.{i}.attn.b_O": (16,) for i in range(2)},
        **{f"blocks.{i}.ln1.{x}": (16,) for i in range(2) for x in "wb"},
        **{f"ln_final.{x}": (16,) for x in "wb"},
        "unembed.W_U": (16, 5),
        "unembed.b_U": (5,),
    }
    again = train(plain(), TASK, options=SHORT, progress=False, folder=tmp_path / "plain")
    assert torch.equal(again.model.W_E, model.W_E)  # loaded, not trained anew
    assert torch.equal(load_result(tmp_path / "plain").model.W_E, model.W_E)
    with_mlp = config_for(plain(attn_only=False, act_fn="gelu", d_mlp=24), TASK)
    assert (with_mlp.mlp, with_mlp.d_mlp, with_mlp.act_fn) == (True, 24, "gelu")


def test_a_family_may_return_a_plain_configuration():
    @register_model("plain-one")
    def plain_one(task, **overrides):
        """Somebody's."""
        return plain(d_vocab=task.language.d_vocab, **overrides)

    try:
        assert get_config("plain-one", TASK, n_layers=1).n_layers == 1
        results = train_seeds("plain-one", "dyck-2-4", seeds=2, options=SHORT, n_jobs=1,
                              progress=False)  # fmt: skip
        assert [result.seed for result in results] == [0, 1]
        assert results[0].model.cfg.n_layers == 2
    finally:
        models.unregister("plain-one")


@pytest.mark.global_rng  # TransformerLens seeds it
@pytest.mark.parametrize(
    ("fields", "error", "message"),
    [
        ({"d_vocab": 6}, VocabularyError, "d_vocab=6 .* has 5 tokens"),
        ({"d_vocab_out": 2}, VocabularyError, "d_vocab_out=2"),
        ({"seed": 1}, ValueError, "leave `seed` out"),
        ({"attention_dir": "bidirectional"}, ValueError, "attention_dir='bidirectional' is not"),
        ({"normalization_type": "LNPre"}, ValueError, "normalization_type='LNPre'"),
        ({"use_attn_scale": False}, ValueError, "attn_scale="),
    ],
)
def test_plain_configurations_that_no_dyck_model_has(fields, error, message):
    with pytest.raises(error, match=message):
        config_for(plain(**fields), TASK)


def test_other_refusals():
    with pytest.raises(TypeError, match=r"name of a family, not dict|or a text, got"):
        config_for({}, TASK)
    with pytest.raises(ValueError, match="mlp=False goes with block 'gpt', not with 'eq6'"):
        get_config("eq6", TASK, attn_only=True)
    with pytest.raises(ValueError, match="layer_norm=False goes with block 'gpt'"):
        get_config("eq49", TASK, normalization_type=None)
    with pytest.raises(TypeError, match="mlp must be True or False"):
        get_config("gpt", TASK, mlp="no")
