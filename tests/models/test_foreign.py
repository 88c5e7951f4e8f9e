"""Models of others come in, and say what they said: bridges, GPT-2, folders, state dicts."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from safetensors.torch import load_file, save_file
from tokenizers import Tokenizer, models, pre_tokenizers
from torch import Tensor, nn
from transformers import GPT2Config, GPT2ForSequenceClassification, GPT2LMHeadModel

from tests.foreign import LANGUAGE, VOCABULARY, foreign
from tl_dyck import VocabularyError, adopt, certify_language, export_rnn, load_task
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.models.foreign import NotCarriedError, as_hooked
from tl_dyck.models.hooked import HookedTransformerConfig
from tl_dyck.models.hooked.installed import MAJOR
from tl_dyck.models.state_dicts import read_state_dict

TASK = load_task("dyck-2-4")
TOKENS = torch.tensor([[1, 4, 2, 3, 5, 0, 6], [1, 2, 2, 3, 3, 0, 0]])
SIZES = {"d_model": 16, "d_head": 8, "n_layers": 2, "n_ctx": 12, "n_heads": 2, "d_vocab": 7}
NATIVE = {**SIZES, "d_mlp": 24, "act_fn": "relu", "normalization_type": "LN"}
needs_4 = pytest.mark.skipif(MAJOR < 4, reason="TransformerLens 3 has no native bridges")
CARRIED: dict[str, dict[str, Any]] = {
    "LN": {},
    "LNPre": {"normalization_type": "LNPre"},
    "no norm": {"normalization_type": None},
    "silu": {"act_fn": "silu"},
    "attention only": {"attn_only": True},
    "bidirectional": {"attention_dir": "bidirectional"},
    "scale": {"attn_scale": 3.0},
    "more outputs": {"d_vocab_out": 9},
    "double": {"dtype": torch.float64},
    "eps": {"eps": 1e-2},
}
REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "RMS": ({"normalization_type": "RMS"}, "RMSNorm"),
    "gates": ({"gated_mlp": True}, "gated_mlp"),
    "rotary": ({"positional_embedding_type": "rotary"}, "rotary"),
    "groups": ({"n_key_value_heads": 1}, "n_key_value_heads"),
    "capped scores": ({"attn_scores_soft_cap": 5.0}, "attn_scores_soft_cap"),
    "capped logits": ({"output_logits_soft_cap": 5.0}, "output_logits_soft_cap"),
}


def drawn(model: Any) -> Any:
    """With weights that make every part count: LayerNorms' too, which begin as the identity."""
    generator = torch.Generator().manual_seed(3)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) / 2)
    return model.eval()


def native(more: dict[str, Any]) -> Any:
    from transformer_lens import TransformerBridgeConfig
    from transformer_lens.model_bridge import TransformerBridge

    config = TransformerBridgeConfig(
        **{**NATIVE, **more}, architecture="TransformerLensNative", device="cpu"
    )
    return drawn(TransformerBridge.boot_native(config))


def gpt2(kind: Any = GPT2LMHeadModel, **more: Any) -> Any:
    sizes = {"vocab_size": 7, "n_positions": 12, "n_embd": 16, "n_layer": 2, "n_head": 2}
    with torch.random.fork_rng(devices=[]):  # theirs draw weights, which are replaced
        return drawn(kind(GPT2Config(**{**sizes, "bos_token_id": 1, "eos_token_id": 6, **more})))


@needs_4
@pytest.mark.global_rng
@pytest.mark.parametrize(
    ("name", "processed"),
    [*((name, False) for name in CARRIED), *((name, True) for name in list(CARRIED)[::3])],
)
def test_a_native_bridge_comes_in(name: str, processed: bool) -> None:
    bridge = native(CARRIED[name])
    if processed:
        bridge.enable_compatibility_mode()
    mine = as_hooked(bridge)
    torch.testing.assert_close(mine(TOKENS), bridge(TOKENS), rtol=1e-5, atol=1e-5)
    assert mine.cfg.dtype == bridge.cfg.dtype
    assert not mine.training


@needs_4
@pytest.mark.global_rng
@pytest.mark.parametrize("name", REFUSED)
def test_what_a_bridge_has_and_we_have_not_is_named(name: str) -> None:
    more, said = REFUSED[name]
    bridge = native(more)
    with pytest.raises(NotCarriedError, match=said) as found:
        adopt(bridge, VOCABULARY)
    assert "\n" not in str(found.value)
    assert "measure what it does" in str(found.value)


@needs_4
@pytest.mark.global_rng
def test_a_bridge_that_computes_something_else_is_refused() -> None:
    bridge = native({})
    bridge.train()
    bridge.blocks[1].mlp.register_forward_hook(lambda module, given, out: 2 * out)
    with pytest.raises(NotCarriedError, match="off by"):
        as_hooked(bridge)
    assert bridge.training  # as it was


@pytest.mark.global_rng
@pytest.mark.parametrize("processed", [False, True])
def test_a_bridge_of_a_folder_comes_in(tmp_path: Path, processed: bool) -> None:
    from transformer_lens.model_bridge import TransformerBridge

    boot = getattr(TransformerBridge, "boot_transformers", None)
    if boot is None:
        pytest.skip("this TransformerLens has no such bridge")
    gpt2().save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    bridge = boot(str(tmp_path), device="cpu")
    if processed:
        bridge.enable_compatibility_mode()
    wanted = bridge(TOKENS).log_softmax(-1)
    found = adopt(bridge, LANGUAGE)(VOCABULARY.to_ours(TOKENS[:1, :5])).log_softmax(-1)
    order = [4, 5, 2, 3, 1]
    torch.testing.assert_close(found[..., :5], wanted[:1, :5, order], rtol=1e-4, atol=1e-4)


@needs_4
@pytest.mark.global_rng
def test_a_bridge_in_train_mode_is_read_without_its_dropout(tmp_path: Path) -> None:
    """That of GPT-2's embeddings is no part of the bridge, but of the model that it is of."""
    from transformer_lens.model_bridge import TransformerBridge

    model = gpt2(n_layer=1, embd_pdrop=0.001)  # so little that it would pass for rounding
    model.save_pretrained(tmp_path)
    tokenizer().save_pretrained(tmp_path)
    bridge = TransformerBridge.boot_transformers(str(tmp_path), hf_model=model, device="cpu")
    wanted = bridge(TOKENS)
    bridge.train()
    bridge.blocks[0].eval()
    for found in (export_rnn(bridge)(TOKENS), as_hooked(bridge)(TOKENS)):
        torch.testing.assert_close(found, wanted, rtol=1e-5, atol=1e-5)
    assert bridge.original_model.transformer.drop.training
    assert (bridge.training, bridge.blocks[0].training) == (True, False)


# --- transformers ---------------------------------------------------------------------------------

GPT2S: dict[str, dict[str, Any]] = {
    "plain": {},
    "own head": {"tie_word_embeddings": False},
    "relu": {"activation_function": "relu"},
    "pytorch's tanh": {"activation_function": "gelu_pytorch_tanh"},
    "swish": {"activation_function": "swish"},
    "narrow MLP": {"n_inner": 10},
    "one layer, one head": {"n_layer": 1, "n_head": 1},
    "eps": {"layer_norm_epsilon": 1e-2},
    **{name: {"activation_function": name} for name in ("gelu", "gelu_new", "silu", "relu2")},
}


@pytest.mark.parametrize("name", GPT2S)
def test_a_gpt2_and_its_folder_come_in(name: str, tmp_path: Path) -> None:
    model = gpt2(**GPT2S[name]).double()
    wanted = model(TOKENS).logits
    model.train()
    torch.testing.assert_close(as_hooked(model)(TOKENS), wanted, rtol=1e-10, atol=1e-10)
    assert model.training  # as it was
    model.save_pretrained(tmp_path)
    torch.testing.assert_close(as_hooked(tmp_path)(TOKENS), wanted, rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(as_hooked(str(tmp_path))(TOKENS), wanted, rtol=1e-10, atol=1e-10)


#: What somebody may change in a folder: options, or weights, and what is said of it.
SPOILT: dict[str, tuple[dict[str, Any], dict[str, Any], str]] = {
    "whole numbers": (
        {},
        {"transformer.h.0.ln_1.weight": torch.ones(16, dtype=torch.int8)},
        "int8",
    ),
    "another width": ({"n_inner": 10**12}, {}, "W_in"),
    "a negative width": ({"n_inner": -5}, {}, "d_mlp must be at least 1"),
    "no width": ({"n_inner": 0}, {}, "d_mlp must be at least 1"),
    "a negative eps": ({"layer_norm_epsilon": -1}, {}, "eps must be at least 0"),
    "a word for eps": ({"layer_norm_epsilon": "x"}, {}, "eps must be a number"),
    "many positions": ({"n_positions": 10**9}, {}, "n_ctx must be at most"),
    "few positions": ({"n_positions": 5}, {}, "W_pos"),
    "heads that do not fit": ({"n_head": 3}, {}, "3 heads"),
    "a head of its own that is not there": ({"tie_word_embeddings": False}, {}, "lm_head.weight"),
    "one weight twice": ({}, {"wte.weight": torch.ones(7, 16)}, "twice"),
    "one weight twice, wrapped": (
        {},
        {"module.transformer.wte.weight": torch.ones(7, 16)},
        "two weights",
    ),
}


@pytest.mark.parametrize("name", SPOILT)
def test_a_folder_that_somebody_changed_is_refused_in_a_line(name: str, tmp_path: Path) -> None:
    options, weights, said = SPOILT[name]
    gpt2().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, **options}))
    path = tmp_path / "model.safetensors"
    save_file({**load_file(path), **weights}, path)
    with pytest.raises((NotCarriedError, CorruptFileError), match=said) as found:
        as_hooked(tmp_path)
    assert "\n" not in str(found.value)


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"scale_attn_weights": False}, "scale_attn_weights"),
        ({"scale_attn_by_inverse_layer_idx": True}, "scale_attn_by_inverse_layer_idx"),
        ({"activation_function": "gelu_10"}, "gelu_10"),
    ],
)
def test_another_gpt2_is_refused_by_name(more: dict[str, Any], said: str) -> None:
    with pytest.raises(NotCarriedError, match=said):
        as_hooked(gpt2(**more))


def test_other_models_of_transformers_are_refused_by_name() -> None:
    with pytest.raises(NotCarriedError, match=r"score\.weight"):
        as_hooked(gpt2(GPT2ForSequenceClassification))
    config = transformers.OPTConfig(
        vocab_size=7, hidden_size=8, num_hidden_layers=1, ffn_dim=8, num_attention_heads=1
    )
    with torch.random.fork_rng(devices=[]):
        other = transformers.OPTForCausalLM(config)
    with pytest.raises(NotCarriedError, match="'opt'"):
        adopt(other, VOCABULARY)


def test_every_prefix_is_decided_as_the_folders_model_answers_it(tmp_path: Path) -> None:
    """`certify_language` of what came in, against the GPT-2 itself on every prefix."""
    model = gpt2(n_layer=1, vocab_size=6)
    model.save_pretrained(tmp_path)
    found = certify_language(
        adopt(tmp_path, VOCABULARY), TASK, 6, property="closing_only", time_limit=None
    )
    names = {"(": 2, ")": 3, "[": 4, "]": 5}
    said: list[bool] = []
    for length in range(1, 7):
        for text in map("".join, itertools.product("[]()", repeat=length)):
            stack = opened(text)
            if stack:
                tokens = torch.tensor([[1, *map(names.__getitem__, text)]])
                logits = model(tokens).logits[0, -1]
                said.append(bool(logits[names[stack[-1]]] > logits[8 - names[stack[-1]]]))
    assert 0 < said.count(False) < len(said)
    assert (found.wrong, found.prefixes) == (said.count(False), len(said))


def opened(text: str) -> str | None:
    """The closing brackets that a prefix asks for; None if it is no prefix of depth 4."""
    stack = ""
    for each in text:
        if each in "[(":
            stack += "])"["[(".index(each)]
        elif not stack or stack[-1] != each:
            return None
        else:
            stack = stack[:-1]
        if len(stack) > 4:
            return None
    return stack


# --- files ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("ending", ["pt", "safetensors"])
@pytest.mark.parametrize("wrapper", ["", "_orig_mod.", "module.", "module._orig_mod."])
def test_a_state_dict_comes_in_out_of_its_wrappers(
    tmp_path: Path, ending: str, wrapper: str
) -> None:
    model = foreign("one-layer")
    state: dict[str, Tensor] = {
        wrapper + name: value.clone() for name, value in model.named_parameters()
    }
    state[f"{wrapper}blocks.0.attn.mask"] = torch.ones(4, 4).tril().bool()
    state[f"{wrapper}blocks.0.attn.IGNORE"] = torch.tensor(-1e5)
    path = tmp_path / f"weights.{ending}"
    if ending == "pt":
        torch.save(state, path)
    else:
        save_file(state, path)
    wanted = adopt(model, VOCABULARY)("[()]")
    for source in (path, str(path), state):
        found = adopt(source, VOCABULARY, config=model.cfg)("[()]")
        torch.testing.assert_close(found, wanted, rtol=0, atol=0)
    assert set(read_state_dict(path)) == set(dict(model.named_parameters()))


def test_what_is_no_model_is_refused_in_a_line(tmp_path: Path) -> None:
    model = foreign("one-layer")
    state = {name: value.detach().clone() for name, value in model.named_parameters()}
    (tmp_path / "empty").mkdir()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "config.json").write_text(json.dumps({"format": "tl_dyck.model/1"}))
    gpt2().save_pretrained(tmp_path / "cut")
    config = json.loads((tmp_path / "cut" / "config.json").read_text())
    (tmp_path / "cut" / "config.json").write_text(json.dumps({**config, "n_layer": 3}))
    torch.save(state, tmp_path / "weights.pt")
    one: dict[str, Any] = {"config": model.cfg}
    less = {name: value for name, value in state.items() if "W_K" not in name}
    deeper = HookedTransformerConfig(**{**SIZES, "n_layers": 9, "act_fn": "relu", "device": "cpu"})
    for source, how, kind, said in (
        (tmp_path / "nothing", one, CorruptFileError, "there is no file"),
        (tmp_path / "empty", {}, CorruptFileError, "there is no file"),
        (tmp_path / "other", {}, CorruptFileError, "load_model"),
        (tmp_path / "cut", {}, CorruptFileError, "h.2.attn.c_attn.weight"),
        (tmp_path / "cut", one, TypeError, "has its own"),
        (tmp_path / "weights.pt", {}, TypeError, "give config="),
        (state, {}, TypeError, "give config="),
        (less, one, NotCarriedError, "W_K"),
        (state, {"config": deeper}, NotCarriedError, "n_layers=9"),
        ({**state, "blocks.0.attn.W_X": torch.ones(2)}, one, NotCarriedError, "W_X"),
        ({**state, "embed.W_E": torch.ones(2, 2)}, one, NotCarriedError, "W_E"),
        ({**state, "embed.W_E": "no"}, one, TypeError, "tensors"),
        (nn.Identity(), {}, TypeError, "Identity"),
        (model, one, TypeError, "brings its own"),
    ):
        with pytest.raises(kind, match=said) as found:
            as_hooked(source, **how)
        assert "\n" not in str(found.value), said


def tokenizer() -> Any:
    known = {"<pad>": 0, "<s>": 1, "(": 2, ")": 3, "[": 4, "]": 5, "</s>": 6}
    plain = Tokenizer(models.WordLevel(known, unk_token="<pad>"))
    plain.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=plain,
        bos_token="<s>",
        eos_token="</s>",
        unk_token="<pad>",
        pad_token="<pad>",
    )


def test_a_folders_own_tokenizer_says_which_id_is_which(tmp_path: Path) -> None:
    gpt2().save_pretrained(tmp_path)
    with pytest.raises(VocabularyError, match="no tokenizer"):
        adopt(tmp_path, LANGUAGE)
    tokenizer().save_pretrained(tmp_path)
    found = adopt(tmp_path, LANGUAGE)("[()]")
    torch.testing.assert_close(found, adopt(tmp_path, VOCABULARY)("[()]"), rtol=0, atol=0)
    (tmp_path / "tokenizer.json").write_text("{")
    with pytest.raises(CorruptFileError, match="tokenizer"):
        adopt(tmp_path, LANGUAGE)


@pytest.mark.parametrize("bias", [True, False])
def test_a_checkpoint_of_nanogpt_is_a_gpt2_whose_maps_are_turned(
    bias: bool, tmp_path: Path
) -> None:
    """Saved compiled; without biases those are 0."""
    theirs = gpt2(activation_function="gelu")
    state = theirs.state_dict()
    if not bias:
        for name in [name for name in state if name.endswith(".bias")]:
            state.pop(name).zero_()
    linear = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    turned = {
        f"_orig_mod.{name}": weight.T if name.endswith(linear) else weight
        for name, weight in state.items()
    }
    options = {"n_layer": 2, "n_head": 2, "n_embd": 16, "block_size": 12, "vocab_size": 7}
    path = tmp_path / "ckpt.pt"
    torch.save({"model": turned, "model_args": {**options, "bias": bias}, "iter_num": 1}, path)
    with torch.no_grad():
        torch.testing.assert_close(as_hooked(path)(TOKENS), theirs(TOKENS).logits)
    torch.save({"model": turned, "model_args": {"n_layer": 2}}, path)
    with pytest.raises(CorruptFileError, match="model_args of no nanoGPT: there is no 'n_head'"):
        as_hooked(path)


def test_shards_are_read_together_and_from_nowhere_else(tmp_path: Path) -> None:
    theirs, folder = gpt2(), tmp_path / "gpt2"
    theirs.save_pretrained(folder, max_shard_size="4KB")
    with torch.no_grad():
        torch.testing.assert_close(as_hooked(folder)(TOKENS), theirs(TOKENS).logits)
    index = folder / "model.safetensors.index.json"
    said = json.loads(index.read_text())
    first = next(iter(said["weight_map"]))
    save_file({"x": torch.zeros(1)}, tmp_path / "x.safetensors")
    for other in ("../x.safetensors", "/x.safetensors", "..", 3, None):
        index.write_text(json.dumps({"weight_map": {**said["weight_map"], first: other}}))
        with pytest.raises(CorruptFileError, match="does not say in which file each weight is"):
            as_hooked(folder)
    (folder / "again.safetensors").write_bytes(next(folder.glob("*-00001-*")).read_bytes())
    index.write_text(json.dumps({"weight_map": {**said["weight_map"], "y": "again.safetensors"}}))
    with pytest.raises(CorruptFileError, match="has weights that another file has"):
        as_hooked(folder)
