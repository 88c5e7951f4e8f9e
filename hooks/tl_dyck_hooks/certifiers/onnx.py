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

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from tl_dyck.kit.errors import needed
from tl_dyck.kit.files import write_bytes
from tl_dyck.reading.activations import ACTIVATIONS
from tl_dyck.rnn.machine import TwoLayerRNN
from tl_dyck.rnn.unsupported import UnsupportedModelError

_OPSET = 13
_IR_VERSION = 8  # the one that belongs to that opset's time; older tools refuse newer ones


def save_onnx(rnn: TwoLayerRNN, path: str | Path, length: int) -> Path:
    """Write `to_onnx(rnn, length)` to a file, whole or not at all, and return its path."""
    write_bytes(path, to_onnx(rnn, length).SerializeToString())
    return Path(path)


def to_onnx(rnn: TwoLayerRNN, length: int, *, dtype: torch.dtype = torch.float32) -> Any:
    """The network from the embeddings of `length` tokens to the logits at the last one.

    Args:
        rnn: the RNN.
        length: number of tokens, BOS included.
        dtype: of weights, input and output, float32 or float64; verifiers want float32.

    Returns:
        An `onnx.ModelProto` that `onnx.checker` accepts.

    Raises:
        MissingPackageError: onnx is not installed.
        UnsupportedModelError: the RNN has parts beyond a plain decoder (`RNNConfig.beyond`).
        ValueError: `length` is not positive, or more than the model has positions.
    """
    for name, value in rnn.config.beyond.items():
        raise UnsupportedModelError(
            f"{rnn.config.model_name} has {name}={value!r}, which is not written as ONNX."
        )
    if length < 1 or (rnn.config.has_position and length > rnn.config.n_ctx):
        raise ValueError(f"length must be in 1..{rnn.config.n_ctx}, not {length}.")
    graph = _Graph(rnn, length, dtype)
    return graph.model(graph.logits())


class _Graph:
    """Collects constants and nodes; most methods add nodes and return their output's name."""

    def __init__(self, rnn: TwoLayerRNN, length: int, dtype: torch.dtype) -> None:
        self.onnx = needed("onnx", "exporting to ONNX", "onnx")
        self.rnn, self.length, self.dtype = rnn, length, dtype
        self.nodes: list[Any] = []
        self.constants: list[Any] = []

    def op(self, kind: str, *inputs: str | Tensor | float, **attributes: Any) -> str:
        """Add a node; inputs that are no names are constants."""
        names = [value if isinstance(value, str) else self._constant(value) for value in inputs]
        name = f"{kind.lower()}{len(self.nodes)}"
        self.nodes.append(self.onnx.helper.make_node(kind, names, [name], name=name, **attributes))
        return name

    def _constant(self, value: Tensor | float) -> str:
        name = f"c{len(self.constants)}"
        array = torch.as_tensor(value, dtype=self.dtype).detach().cpu().contiguous().numpy()
        self.constants.append(self.onnx.numpy_helper.from_array(array, name))
        return name

    def affine(self, x: str, weight: Tensor, bias: Tensor) -> str:
        return self.op("Add", self.op("MatMul", x, weight), bias)

    def model(self, output: str) -> Any:
        """Close the graph, check it, and return it."""
        helper, config = self.onnx.helper, self.rnn.config
        element = helper.np_dtype_to_tensor_dtype(torch.empty(0, dtype=self.dtype).numpy().dtype)
        value = helper.make_tensor_value_info
        self.nodes.append(helper.make_node("Flatten", [output], ["logits"], name="logits", axis=1))
        graph = helper.make_graph(
            self.nodes,
            "two_layer_rnn",
            [value("embeddings", element, [1, self.length, config.d_model])],
            [value("logits", element, [1, config.d_vocab_out])],
            self.constants,
        )
        opset = helper.make_opsetid("", _OPSET)
        proto = helper.make_model(
            graph, opset_imports=[opset], ir_version=_IR_VERSION, producer_name="tl_dyck"
        )
        self.onnx.checker.check_model(proto, full_check=True)
        return proto

    def logits(self) -> str:
        """Everything from ``embeddings`` to the logits, ``[1, 1, d_vocab_out]``."""
        rnn, c = self.rnn, self.rnn.config
        resid = self.op("MatMul", torch.eye(self.length)[-1:], "embeddings")
        attn_out = self._attention(self._norm("ln1", "embeddings"), self._norm("ln1", resid))
        if c.ln_c is not None:
            attn_out = self._unit_norm(attn_out, c.ln_c)
        resid = self.op("Add", resid, attn_out) if c.residual else attn_out
        if c.ln_mid is not None:
            resid = self._unit_norm(resid, c.ln_mid)
        if c.act_fn is not None:
            pre = self.affine(self._norm("ln2", resid), rnn.W_in, rnn.b_in)
            post = self._activation(c.act_fn, pre)
            resid = self.op("Add", resid, self.affine(post, rnn.W_out, rnn.b_out))
        return self.affine(self._norm("ln_final", resid), rnn.W_U, rnn.b_U)

    def _attention(self, every: str, last: str) -> str:
        """Σ_h softmax(q_L · k_i) v_i W_O + b_O for the last position, ``[1, 1, d_model]``."""
        rnn, scale, total = self.rnn, self.rnn.config.attn_scale, ""
        for head in range(rnn.config.n_heads):
            query = self.affine(last, rnn.W_Q[head] / scale, rnn.b_Q[head] / scale)
            key = self.affine(every, rnn.W_K[head], rnn.b_K[head])  # [1, length, d_head]
            value = self.affine(every, rnn.W_V[head], rnn.b_V[head])
            column = torch.ones(rnn.config.d_head, 1)
            scores = self.op("MatMul", self.op("Mul", key, query), column)  # [1, length, 1]
            weighted = self.op("Mul", self.op("Softmax", scores, axis=1), value)
            z = self.op("MatMul", torch.ones(1, self.length), weighted)  # [1, 1, d_head]
            total = self.op("Add", total or rnn.b_O, self.op("MatMul", z, rnn.W_O[head]))
        return total

    def _centred(self, x: str, factor: float) -> tuple[str, str]:
        """X less its mean over d_model, x (I - 11ᵀ/d); and the sum of its squares, times that."""
        d = self.rnn.config.d_model
        x = self.op("MatMul", x, torch.eye(d, dtype=torch.float64) - 1 / d)
        column = torch.full((d, 1), factor, dtype=torch.float64)
        return x, self.op("MatMul", self.op("Mul", x, x), column)

    def _norm(self, name: str, x: str) -> str:
        kind, config = getattr(self.rnn.config, name), self.rnn.config
        if kind is None:
            return x
        x, variance = self._centred(x, 1 / config.d_model)
        x = self.op("Div", x, self.op("Sqrt", self.op("Add", variance, config.eps)))
        if kind == "ln":
            weight, bias = (getattr(self.rnn, f"{name}_{part}") for part in "wb")
            x = self.op("Add", self.op("Mul", x, weight), bias)
        return x

    def _unit_norm(self, x: str, c: float) -> str:
        """LN_C of Eq. 6 and 49: centre, then divide by max(norm, C) = Relu(norm - C) + C."""
        x, square = self._centred(x, 1.0)
        above = self.op("Relu", self.op("Add", self.op("Sqrt", square), -c))
        return self.op("Div", x, self.op("Add", above, c))

    def _activation(self, name: str, x: str) -> str:
        found: str = ACTIVATIONS[name].known("onnx")(self.op, x)
        return found
