"""Three adders of others, written down from how their authors describe them.

All have one layer. Digit d is (c - e d² / 2, ± d, …) and the unembedding is the same table, so
logits are a parabola in d. The first coordinate is almost the same for all digits: queries and keys
hang on their places alone, and rotary positions turn a query to the digits that are added.

Knows: Wonderfall's (121 numbers: four heads see both digits, and those before, whole), and
zcbtrak's (6; so do kswain98's and Lokimorty's: one head sees both digits, and a tenth of those
before), in Qwen3's shape; cosminscn's (130: two heads, sines of period 11, no norm).
"""

from __future__ import annotations

from math import cos, log, pi, sin, sqrt

import numpy as np
import torch

from tl_dyck.rnn import RNNConfig, TwoLayerRNN, weight_shapes
from tl_dyck.tasks import addition_task
from tl_dyck_papers.adders import Adder
from tl_dyck_papers.qwen import LAYER, qwen

_ONE = 1000.0
"""c: beside it digits hardly change a state's norm."""


def wonderfall() -> Adder:
    """Heads see a_{k-1}, b_{k-1}, a_k, b_k; two units take 10 away.

    The carry is what the last norm makes of s_{k-1} - a_{k-1} - b_{k-1}.
    """
    size, sharp, step = _ONE / sqrt(3), 20.0, 5e-4  # of a digit, of a step; of logits
    d = np.arange(10)
    heads = [[cos(back), -sin(back)] for back in (23, 11, 22, 10)]
    o = np.zeros((3, 8))
    o[1, [0, 2]], o[2, [4, 6]] = -1, 1
    saved = {
        "embed_tokens": np.stack([_ONE - step / 2 * d**2, d, step * d], 1),
        "norm": [1 / sqrt(3), -0.1 * size * step, size],
        "input_layernorm": np.ones(3),
        "post_attention_layernorm": np.ones(3),
        "self_attn.q_norm": [256, 256],
        "self_attn.k_norm": [256, 256],
        "self_attn.q_proj": np.outer(np.ravel(heads), [1, 0, 0]),
        "self_attn.k_proj": [[1, 0, 0], [0, 0, 0]],
        "self_attn.v_proj": [[0, size, 0], [0, 0, 0]],
        "self_attn.o_proj": o,
        "mlp.gate_proj": sharp
        * np.array([[-188, -2, 20], [-189, -2, 20]])
        * [1 / sqrt(3), size, size],
        "mlp.up_proj": [[1, 0, 0], [1, 0, 0]],
        "mlp.down_proj": np.outer([0, 0, 1], [-10, 10]) / (sharp * sqrt(3)),
    }
    rope = {"rope_type": "default", "rope_theta": 1e4}
    return _qwen("Wonderfall", 121, saved, rope, "0a00b0s")


def zcbtrak() -> Adder:
    """A digit is ten places behind, one number 19 after the other: cos has the period 19.

    The head's peak is 0.3 places off, so that a_{k-1} and b_{k-1} have a tenth of the weight.
    """
    size, turn, off, sharp = _ONE / sqrt(2), 2 * pi / 19, 0.3, 256 / sqrt(2)
    d = np.arange(10)
    peak = log(10) / (cos(turn * off) - cos(turn * (1 - off)))
    gate = sharp / sqrt(2)
    saved = {
        "embed_tokens": np.stack([_ONE - d**2 / _ONE, -d], 1),
        "norm": [100 / sqrt(2), -size / 50],
        "input_layernorm": np.ones(2),
        "post_attention_layernorm": np.ones(2),
        "self_attn.q_norm": np.full(2, sqrt(peak / sqrt(2))),
        "self_attn.k_norm": np.full(2, sqrt(peak / sqrt(2))),
        "self_attn.q_proj": [[cos(turn * (10 + off)), 0], [-sin(turn * (10 + off)), 0]],
        "self_attn.k_proj": [[1, 0], [0, 0]],
        "self_attn.v_proj": [[0, -22 * size], [0, 0]],
        "self_attn.o_proj": [[0, 0], [1, 0]],
        "mlp.gate_proj": [[-94 * gate, sharp * size], [-95 * gate, sharp * size]],
        "mlp.up_proj": [[1, 0], [1, 0]],
        "mlp.down_proj": np.array([[0, 0], [-100, 100]]) / (sharp * sqrt(2)),
    }
    rope = {"rope_type": "linear", "factor": 1 / turn, "rope_theta": 1e4}
    return _qwen("zcbtrak", 6, saved, rope, "0a000000000b0s")


def _qwen(name: str, n: int, saved: dict[str, object], rope: dict[str, object], how: str) -> Adder:
    weights = {
        f"{'model' if each in ('embed_tokens', 'norm') else LAYER}.{each}.weight": torch.tensor(
            np.array(weight), dtype=torch.float32
        )
        for each, weight in saved.items()
    }
    return Adder(f"{name}, {n}", n, *qwen(weights, rope), addition_task(10, how, least_first="abs"))


def cosminscn() -> Adder:
    """Heads are 8 and 9 places of 11 behind: both numbers' digits, and those before.

    + and = are 0, too. Prompts' sines are 100 times as large, so that what was written is not seen.
    """
    place, d, turn = np.arange(35), np.arange(10), 2 * pi / 11
    config = RNNConfig(
        d_model=4, n_heads=2, d_head=2, d_vocab=10, d_vocab_out=10, n_ctx=35, state="position",
        d_mlp=4, act_fn="relu", attn_scale=sqrt(2),
    )  # fmt: skip
    w = {name: np.zeros(shape) for name, shape in weight_shapes(config).items()}
    w["W_E"][:, 0] = d
    loud = np.where(place <= 21, 100, 1)
    w["W_pos"][:, 1], w["W_pos"][:, 2] = loud * np.sin(place * turn), loud * np.cos(place * turn)
    for head, (behind, out) in enumerate(((8 * turn, 3), (9 * turn, 1))):
        w["W_Q"][head, 1] = -100 * cos(behind), 100 * sin(behind)
        w["W_Q"][head, 2] = 100 * sin(behind), 100 * cos(behind)
        w["W_K"][head, 1:3] = np.eye(2)
        # a mean of two digits, so twice
        w["W_V"][head, 0, 0], w["W_O"][head, 0, out] = 1, 2
    w["W_in"][[0, 1, 3]] = [[-100, -100, -10, -10], [100, 100, 10, 10], [0, 0, 1000, 1000]]
    w["b_in"][:] = -50, -150, -9045, -9055
    w["W_out"][:, 3] = 0.01, -0.01, -1, 1
    w["W_U"][3], w["b_U"][:] = 2 * d, -(d**2)
    rnn = TwoLayerRNN(config, {name: torch.from_numpy(each) for name, each in w.items()})
    task = addition_task(10, "a0b0s")
    return Adder("cosminscn, 130", 130, lambda tokens: rnn(tokens).float(), rnn, task)


def of_others() -> list[Adder]:
    """All, the smallest first."""
    return [zcbtrak(), wonderfall(), cosminscn()]
