"""The two-layer RNN, unrolled for one length, as an ONNX network for verifiers.

It takes the extra ``tl-dyck[onnx]``.

Input ``embeddings`` ``[1, length, d_model]``: the residual stream r_1 … r_L before the block, that
is `TwoLayerRNN.embed` of tokens and states. Inputs are embeddings, not tokens, because a verifier's
input set is a box, and a set of tokens has none. Output ``logits`` ``[1, d_vocab_out]`` at the last
position.

Verifiers support few operations, so the network has only these, with static shapes and one input:

- MatMul, Add, Mul, Softmax; Relu for a ReLU MLP; Erf, Tanh or Sigmoid for another activation;
- Sqrt and Div, in a LayerNorm, which is decomposed: centring is a MatMul with I - 11ᵀ/d, the
  variance one with 1/d;
- Flatten, once, at the end.

No Transpose, Gather or Reduce: the last position is picked by a MatMul with a one-hot row, scores
are (k ⊙ q) 1, and attention is 1ᵀ (p ⊙ v), as MatMuls with rows and columns of ones.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tl_dyck.errors import DyckError
from tl_dyck.files import write_bytes
from tl_dyck.rnn.machine import TwoLayerRNN

_OPSET = 13
_IR_VERSION = 8  # the one that belongs to that opset's time; older tools refuse newer ones


class MissingOnnxError(DyckError, ImportError):
    """The optional dependency is not installed; the message says how to install it."""


def save_onnx(
    rnn: TwoLayerRNN, path: str | Path, length: int, *, dtype: torch.dtype = torch.float32
) -> Path:
    """Write `to_onnx(rnn, length)` to a file, whole or not at all, and return its path."""
    write_bytes(path, to_onnx(rnn, length, dtype=dtype).SerializeToString())
    return Path(path)


def to_onnx(rnn: TwoLayerRNN, length: int, *, dtype: torch.dtype = torch.float32) -> Any:
    """The network from the embeddings of `length` tokens to the logits at the last one.

    Args:
        rnn: the RNN.
        length: number of tokens, BOS included.
        dtype: of weights, input and output; verifiers want float32.

    Returns:
        An `onnx.ModelProto` that `onnx.checker` accepts.

    Raises:
        MissingOnnxError: onnx is not installed.
        ValueError: `length` is not positive, or more than the model has positions.
    """
    if length < 1 or (rnn.config.has_position and length > rnn.config.n_ctx):
        raise ValueError(f"length must be in 1..{rnn.config.n_ctx}, not {length}.")
    if dtype not in (torch.float32, torch.float64):
        raise ValueError(f"dtype must be torch.float32 or torch.float64, not {dtype}.")
    graph = _Graph(rnn, length, dtype)
    return graph.model(_logits(graph, rnn))


class _Graph:
    """Collects constants and nodes; every method adds a node and returns its output's name."""

    def __init__(self, rnn: TwoLayerRNN, length: int, dtype: torch.dtype) -> None:
        try:
            import onnx
        except ImportError as error:
            raise MissingOnnxError(
                "exporting to ONNX needs the package onnx; install it with: "
                "pip install 'tl-dyck[onnx]'"
            ) from error
        self.onnx = onnx
        self.dtype = dtype
        self.length = length
        self.d_model, self.d_vocab_out = rnn.config.d_model, rnn.config.d_vocab_out
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def constant(self, value: Tensor) -> str:
        name = f"c{len(self.constants)}"
        array = value.detach().cpu().to(self.dtype).contiguous().numpy()
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def scalar(self, value: float) -> str:
        return self.constant(torch.tensor(value, dtype=torch.float64))

    def op(self, kind: str, *inputs: str, **attributes: Any) -> str:
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(
            self.onnx.helper.make_node(kind, list(inputs), [name], name=name, **attributes)
        )
        return name

    def affine(self, x: str, weight: Tensor, bias: Tensor) -> str:
        return self.op("Add", self.op("MatMul", x, self.constant(weight)), self.constant(bias))

    def centre(self, x: str) -> str:
        """Subtract the mean over d_model: x (I - 11ᵀ/d)."""
        d = self.d_model
        return self.op("MatMul", x, self.constant(torch.eye(d, dtype=torch.float64) - 1 / d))

    def sum_of_squares(self, x: str, factor: float) -> str:
        """Σ x² · factor over d_model, kept as an axis of size 1."""
        column = torch.full((self.d_model, 1), factor, dtype=torch.float64)
        return self.op("MatMul", self.op("Mul", x, x), self.constant(column))

    def model(self, output: str) -> Any:
        """Close the graph, check it, and return it."""
        helper, kind = self.onnx.helper, self.onnx.TensorProto
        element = kind.FLOAT if self.dtype == torch.float32 else kind.DOUBLE
        self.nodes.append(helper.make_node("Flatten", [output], ["logits"], name="logits", axis=1))
        graph = helper.make_graph(
            self.nodes,
            "two_layer_rnn",
            [helper.make_tensor_value_info("embeddings", element, [1, self.length, self.d_model])],
            [helper.make_tensor_value_info("logits", element, [1, self.d_vocab_out])],
            self.constants,
        )
        opset = helper.make_opsetid("", _OPSET)
        proto = helper.make_model(
            graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="tl_dyck"
        )
        self.onnx.checker.check_model(proto, full_check=True)
        return proto


def _logits(graph: _Graph, rnn: TwoLayerRNN) -> str:
    """Everything from ``embeddings`` to the logits, ``[1, 1, d_vocab_out]``."""
    c = rnn.config
    pick_last = torch.zeros(1, graph.length, dtype=torch.float64)
    pick_last[0, -1] = 1
    resid = graph.op("MatMul", graph.constant(pick_last), "embeddings")
    attn_out = _attention(
        graph, rnn, _norm(graph, rnn, "ln1", "embeddings"), _norm(graph, rnn, "ln1", resid)
    )
    if c.ln_c is not None:
        attn_out = _unit_norm(graph, attn_out, c.ln_c)
    resid = graph.op("Add", resid, attn_out) if c.residual else attn_out
    if c.ln_mid is not None:
        resid = _unit_norm(graph, resid, c.ln_mid)
    if c.act_fn is not None:
        pre = graph.affine(_norm(graph, rnn, "ln2", resid), rnn.W_in, rnn.b_in)
        resid = graph.op(
            "Add", resid, graph.affine(_activation(graph, c.act_fn, pre), rnn.W_out, rnn.b_out)
        )
    return graph.affine(_norm(graph, rnn, "ln_final", resid), rnn.W_U, rnn.b_U)


def _attention(graph: _Graph, rnn: TwoLayerRNN, all_positions: str, last: str) -> str:
    """Σ_h softmax(q_L · k_i) v_i W_O + b_O for the last position, ``[1, 1, d_model]``."""
    d_head = rnn.config.d_head
    ones_column = graph.constant(torch.ones(d_head, 1, dtype=torch.float64))
    ones_row = graph.constant(torch.ones(1, graph.length, dtype=torch.float64))
    total = graph.constant(rnn.b_O)
    for head in range(rnn.config.n_heads):
        scaled = rnn.W_Q[head] / rnn.config.attn_scale, rnn.b_Q[head] / rnn.config.attn_scale
        query = graph.affine(last, *scaled)  # [1, 1, d_head]
        key = graph.affine(all_positions, rnn.W_K[head], rnn.b_K[head])  # [1, length, d_head]
        value = graph.affine(all_positions, rnn.W_V[head], rnn.b_V[head])
        scores = graph.op("MatMul", graph.op("Mul", key, query), ones_column)  # [1, length, 1]
        pattern = graph.op("Softmax", scores, axis=1)
        z = graph.op("MatMul", ones_row, graph.op("Mul", pattern, value))  # [1, 1, d_head]
        total = graph.op("Add", total, graph.op("MatMul", z, graph.constant(rnn.W_O[head])))
    return total


def _norm(graph: _Graph, rnn: TwoLayerRNN, name: str, x: str) -> str:
    kind = getattr(rnn.config, name)
    if kind is None:
        return x
    x = graph.centre(x)
    variance = graph.sum_of_squares(x, 1 / graph.d_model)
    x = graph.op(
        "Div", x, graph.op("Sqrt", graph.op("Add", variance, graph.scalar(rnn.config.eps)))
    )
    if kind == "ln":
        scaled = graph.op("Mul", x, graph.constant(getattr(rnn, f"{name}_w")))
        x = graph.op("Add", scaled, graph.constant(getattr(rnn, f"{name}_b")))
    return x


def _unit_norm(graph: _Graph, x: str, c: float) -> str:
    """LN_C of Eq. 6 and 49: centre, then divide by max(norm, C) = Relu(norm - C) + C."""
    x = graph.centre(x)
    norm = graph.op("Sqrt", graph.sum_of_squares(x, 1.0))
    above = graph.op("Relu", graph.op("Add", norm, graph.scalar(-c)))
    return graph.op("Div", x, graph.op("Add", above, graph.scalar(c)))


def _activation(graph: _Graph, name: str, x: str) -> str:
    if name == "relu":
        return graph.op("Relu", x)
    if name == "silu":
        return graph.op("Mul", x, graph.op("Sigmoid", x))
    if name == "gelu":  # x (1 + erf(x / √2)) / 2
        inner = graph.op("Erf", graph.op("Mul", x, graph.scalar(1 / math.sqrt(2))))
    else:  # gelu_new: x (1 + tanh(√(2/π) (x + 0.044715 x³))) / 2
        cubic = graph.op("Mul", graph.op("Mul", graph.op("Mul", x, x), x), graph.scalar(0.044715))
        scaled = graph.op("Mul", graph.op("Add", x, cubic), graph.scalar(math.sqrt(2 / math.pi)))
        inner = graph.op("Tanh", scaled)
    half = graph.op("Mul", x, graph.scalar(0.5))
    return graph.op("Mul", half, graph.op("Add", inner, graph.scalar(1.0)))
