"""Models of Qwen3's shape with one layer, from their weights; and weights that a text writes out.

Knows: Hugging Face's names of such weights, and how some of AdderBoard's adders tie theirs.
"""

from __future__ import annotations

import ast
import math
import tempfile
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from tl_dyck.rnn import TwoLayerRNN, export_rnn

LAYER = "model.layers.0"
_LONGEST = 42
"""Tokens: a sum has 35, or 42."""


def qwen(
    saved: dict[str, Tensor], rope: dict[str, Any], added: Tensor | None = None
) -> tuple[Callable[[Tensor], Tensor], TwoLayerRNN]:
    """The model as `transformers` runs it, float32: tokens to logits; and exported.

    Args:
        saved: weights by Hugging Face's names; embedding and unembedding are one table.
        rope: its ``rope_parameters``.
        added: ``[place, d_model]``, added to the embedding, beside rotary positions.
    """
    import transformers
    from transformer_lens.model_bridge import TransformerBridge

    table = saved["model.embed_tokens.weight"]
    d_head = len(saved[f"{LAYER}.self_attn.q_norm.weight"])
    config = transformers.Qwen3Config(
        vocab_size=len(table),
        hidden_size=table.shape[1],
        intermediate_size=len(saved[f"{LAYER}.mlp.up_proj.weight"]),
        num_hidden_layers=1,
        num_attention_heads=len(saved[f"{LAYER}.self_attn.q_proj.weight"]) // d_head,
        num_key_value_heads=len(saved[f"{LAYER}.self_attn.k_proj.weight"]) // d_head,
        head_dim=d_head,
        rms_norm_eps=1e-6,
        max_position_embeddings=_LONGEST,
        tie_word_embeddings=True,
        attention_bias=False,
        rope_parameters=rope,
    )
    with torch.random.fork_rng(devices=[]):
        model = transformers.Qwen3ForCausalLM(config).eval()
    model.load_state_dict(saved | {"lm_head.weight": table})
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder)
        bridge = TransformerBridge.boot_transformers(folder, hf_model=model, device="cpu")
        rnn = export_rnn(bridge)
    if added is None:
        return lambda tokens: model(tokens).logits, rnn
    # the RNN's stream is (x, -x), see `export_rnn`
    both = torch.cat([added, -added], 1)[: rnn.config.n_ctx]
    config = replace(rnn.config, positions="standard+rotary")
    rnn = TwoLayerRNN(config, {**rnn.weights, "W_pos": both.to(rnn.weights["W_E"])})

    def runs(tokens: Tensor) -> Tensor:
        logits: Tensor = model(inputs_embeds=table[tokens] + added[: tokens.shape[1]]).logits
        return logits

    return runs, rnn


def written_out(program: bytes) -> dict[str, Tensor]:
    """Weights that a program writes out: of the first dictionary of ``torch.tensor(numbers)``.

    Nothing of the program is run. What has no such dictionary has no weights.
    """
    try:
        for node in ast.walk(ast.parse(program)):
            if isinstance(node, ast.Dict) and node.keys:
                numbers = {
                    str(ast.literal_eval(key)): each.args[0]
                    for key, each in zip(node.keys, node.values, strict=True)
                    if key
                    and isinstance(each, ast.Call)
                    and each.args
                    and ast.unparse(each.func) == "torch.tensor"
                }
                if len(numbers) == len(node.keys):
                    return {name: torch.tensor(ast.literal_eval(x)) for name, x in numbers.items()}
    except (SyntaxError, ValueError, TypeError, RecursionError, MemoryError):
        pass  # no program, or none that writes numbers out
    return {}


def as_qwen(saved: dict[str, Tensor]) -> tuple[dict[str, Tensor], Tensor | None]:
    """Adders that tie K = V and O = Qᵀ, by Hugging Face's names; and what is added by place.

    Of one kind digits lie on an arc, A (cos, sin)(start + digit stride), and a third coordinate is
    sin(place / 10,000); norms, and the MLP's last matrix, may be tied, too. Of the other
    ("embedding.weight") a table is written out.
    """
    added = None
    if "tok_embed.arc_A" in saved:
        size, start, stride = (saved[f"tok_embed.arc_{each}"] for each in ("A", "start", "stride"))
        angles = start + torch.arange(10) * stride
        table = torch.stack([size * angles.cos(), size * angles.sin(), torch.zeros(10)], 1)
        added = torch.zeros(_LONGEST, 3)
        added[:, 2] = torch.sin(torch.arange(_LONGEST) * math.exp(-math.log(1e4)))
        names = "q_proj k_proj ln1 ln2 ln_f gate_proj up_proj down_proj q_norm k_norm"
    else:
        table = saved["embedding.weight"]
        names = "W_q W_kv norm1 norm2 norm_final W_gate W_up W_down q_norm k_norm"
    fields = ["q", "k", "ln1", "ln2", "ln_f", "gate", "up", "down", "q_norm", "k_norm"]
    w = dict(zip(fields, (f"{each}.weight" for each in names.split()), strict=True))
    ties = {"ln2": saved[w["ln1"]], "down": saved[w["gate"]].T, "k_norm": saved[w["q_norm"]]}
    of = {each: saved[name] if name in saved else ties[each] for each, name in w.items()}
    halves = [0, 2, 1, 3]  # pairs of neighbours are turned here; there i and i + 2
    weights = {
        "self_attn.q_proj": of["q"][halves],
        "self_attn.k_proj": of["k"][halves],
        "self_attn.v_proj": of["k"],
        "self_attn.o_proj": of["q"].T,
        "self_attn.q_norm": of["q_norm"][halves],
        "self_attn.k_norm": of["k_norm"][halves],
        "input_layernorm": of["ln1"],
        "post_attention_layernorm": of["ln2"],
        "mlp.gate_proj": of["gate"],
        "mlp.up_proj": of["up"],
        "mlp.down_proj": of["down"],
    }
    named = {f"{LAYER}.{name}.weight": each.contiguous() for name, each in weights.items()}
    return {"model.embed_tokens.weight": table, "model.norm.weight": of["ln_f"], **named}, added
