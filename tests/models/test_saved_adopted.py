"""Adopted models on disk: bit for bit with their vocabulary, or refused before or when read."""

from __future__ import annotations

import json
import shutil
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.foreign import LANGUAGE, SHAPES, VOCABULARY, foreign, theirs
from tl_dyck import (
    SymbolLanguage,
    Vocabulary,
    adopt,
    load_model,
    load_task,
    save_model,
)
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.models.hooked.own import LayerNormPre

TEXT = "[(())]()"
TASK = load_task("dyck-2-4")


@pytest.mark.parametrize("shape", SHAPES)
def test_round_trip_bit_for_bit(shape: str, tmp_path: Path) -> None:
    mine = adopt(foreign(shape), VOCABULARY)
    again = load_model(save_model(mine, tmp_path), device="cpu")
    assert type(again) is type(mine)
    for (name, a), (other, b) in zip(
        mine.named_parameters(), again.named_parameters(), strict=True
    ):
        assert (name, a.dtype) == (other, b.dtype)
        assert torch.equal(a, b)
    assert torch.equal(again(TEXT), mine(TEXT))
    # the user's own ids, through the vocabulary that came along: against the model as it was
    ours = again.vocabulary.to_ours(torch.tensor([theirs(TEXT)]))
    logits = foreign(shape)(torch.tensor([theirs(TEXT)]))[..., again.vocabulary.ids]
    torch.testing.assert_close(again(ours)[..., :5], logits, rtol=1e-5, atol=1e-5)
    assert again.vocabulary == mine.vocabulary == VOCABULARY
    assert again.cfg.language == LANGUAGE


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_types_classes_and_folded_norms(dtype: torch.dtype, tmp_path: Path) -> None:
    model = foreign("three-layers", d_vocab_out=2, dtype=dtype)
    model.blocks[0].ln1 = LayerNormPre(model.cfg)
    for mine in (adopt(foreign("gpt2", dtype=dtype), VOCABULARY),):
        again = load_model(save_model(mine, tmp_path / "a"))
        assert again.cfg.dtype == dtype
        assert torch.equal(again(TEXT), mine(TEXT))
    with pytest.raises(ValueError, match=r"blocks.0.ln1"):
        save_model(adopt(model, VOCABULARY), tmp_path / "b")
    assert not (tmp_path / "b").exists()


def test_a_language_without_brackets(tmp_path: Path) -> None:
    language = SymbolLanguage("letters", ("a", "b"))
    mine = adopt(foreign("one-layer"), Vocabulary(language, {"a": 3, "b": 2}, bos=7))
    again = load_model(save_model(mine, tmp_path))
    assert again.cfg.language == language
    assert torch.equal(again("abba"), mine("abba"))


def test_what_cannot_come_back_is_not_written(tmp_path: Path) -> None:
    hooked = adopt(foreign("attn-only"), VOCABULARY)
    hooked.add_perma_hook("blocks.1.attn.hook_z", lambda z, hook: 0 * z)
    odd = adopt(foreign("attn-only"), VOCABULARY)
    odd.blocks[0].attn.hook_z = torch.nn.Identity()
    other = adopt(foreign("attn-only"), VOCABULARY)
    other.cfg.n_key_value_heads = 2
    for model, said in (
        (hooked, r"a hook at blocks.1.attn.hook_z .*reset_hooks"),
        (odd, r"blocks.0.attn.hook_z is not what"),
        (other, r"n_key_value_heads=2 cannot be saved"),
        (adopt(foreign("attn-only"), VOCABULARY).double(), "weights are torch.float64, but"),
    ):
        with pytest.raises(ValueError, match=said) as refusal:
            save_model(model, tmp_path / "new")
        assert "\n" not in str(refusal.value)
        assert not (tmp_path / "new").exists()
    with pytest.raises(TypeError, match=r"not a HookedTransformer of your own; adopt"):
        save_model(foreign("attn-only"), tmp_path / "new")
    assert not (tmp_path / "new").exists()


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return save_model(
        adopt(foreign("three-layers"), VOCABULARY), tmp_path_factory.mktemp("adopted") / "whole"
    )


@pytest.fixture
def folder(whole: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


HUGE = 10**15


@pytest.mark.parametrize(
    ("where", "value", "said"),
    [
        ("options", None, "does not describe"),
        ("options", ..., "lacks 'options'"),
        ("language", ..., "keys missing or unknown in config"),
        ("vocabulary", [1], "vocabulary must be an object"),
        ("more", 1, "keys missing or unknown in config: \\['more'\\]"),
        ("options.tokenizer_name", "gpt2", "in options: \\['tokenizer_name'\\]"),
        ("options.seed", 5, "in options: \\['seed'\\]"),
        ("options.act_fn", ..., "in options: \\['act_fn'\\]"),
        ("options.positional_embedding_type", "nowhere", "does not describe"),
        ("options.dtype", "int8", "unknown dtype 'int8'"),
        ("options.dtype", "float64", "but the model has torch.float64"),
        ("options.n_layers", HUGE, "by its sizes blocks.999999999999999.attn.W_O"),
        ("options.n_layers", 2, "missing or unknown blocks.2"),
        ("options.d_model", HUGE, "by its sizes embed.W_E"),
        ("options.d_mlp", HUGE, "by its sizes blocks.2.mlp.W_in"),
        ("options.d_mlp", None, "d_mlp must be an integer"),
        ("options.attn_only", True, "missing or unknown blocks.0.ln2.b, .*blocks.0.mlp"),
        ("options.attn_only", "no", "attn_only must be true or false"),
        ("options.attn_scale", 0.0, "attn_scale must be"),
        ("options.model_name", 5, "model_name must be a text"),
        ("language.n_types", 3, "ids are given|brackets"),
        ("language.n_types", 10**9, "n_types must be at most"),
        ("language.brackets", ["a", "b"], "need 4 brackets"),
        (
            "language.brackets",
            ["<script>", "b", "c", None],
            "brackets must be a sequence of texts|Type-check error",
        ),
        ("vocabulary.bos", 10**30, "bos must be of at most 64 bits"),
        ("vocabulary.brackets", [4, 5, 2, 3.0], "a sequence of integers|Type-check error"),
        ("vocabulary.extra", 1, "in vocabulary: \\['extra'\\]"),
    ],
)
def test_altered_configs(folder: Path, where: str, value: Any, said: str) -> None:
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    *outer, key = where.split(".")
    target = saved["config"][outer[0]] if outer else saved["config"]
    if value is ...:
        del target[key]
    else:
        target[key] = value
    path.write_text(json.dumps(saved))
    with pytest.raises(CorruptFileError, match=said) as refusal:
        load_model(folder)
    assert "\n" not in str(refusal.value)


def test_a_rotary_model_cannot_ask_for_more_than_it_has_weights(tmp_path: Path) -> None:
    folder = save_model(adopt(foreign("rotary"), VOCABULARY), tmp_path)
    path = folder / "config.json"
    good = json.loads(path.read_text())
    for name, value in (("n_ctx", 10**9), ("rotary_dim", 10**9), ("rotary_dim", None)):
        saved = json.loads(path.read_text())
        saved["config"]["options"][name] = value
        path.write_text(json.dumps(saved))
        with pytest.raises(CorruptFileError, match=f"{name} must be"):
            load_model(folder)
        path.write_text(json.dumps(good))


def test_layers_are_counted_before_they_are_built(folder: Path) -> None:
    """A weight of the last layer is not enough: all of those before it would be built."""
    from safetensors.torch import load_file, save_file

    weights = load_file(folder / "model.safetensors")
    for part in ("attn.W_O", "mlp.W_in"):
        weights[f"blocks.999999999.{part}"] = weights[f"blocks.2.{part}"].clone()
        del weights[f"blocks.1.{part}"]
    save_file(weights, folder / "model.safetensors")
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    saved["config"]["options"]["n_layers"] = 10**9
    saved["sha256"] = sha256((folder / "model.safetensors").read_bytes()).hexdigest()
    path.write_text(json.dumps(saved))
    with pytest.raises(CorruptFileError, match=r"by its sizes blocks.1.attn.W_O"):
        load_model(folder)
