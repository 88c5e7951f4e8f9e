"""The ONNX network: the same logits as the RNN, in the few operations that verifiers know."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch

from tests.cases import CASES, Case, case
from tl_dyck.kit.errors import MissingPackageError
from tl_dyck.rnn import export_rnn
from tl_dyck_hooks.certifiers.onnx import save_onnx, to_onnx

onnx = pytest.importorskip("onnx")
pytest.importorskip("onnx.reference")
onnxruntime = pytest.importorskip("onnxruntime")

ALWAYS = {"MatMul", "Add", "Mul", "Softmax", "Flatten"}
NORM = {"Sqrt", "Div"}
ACTIVATION = {
    None: set(),
    "relu": {"Relu"},
    "gelu": {"Erf"},
    "gelu_new": {"Tanh"},
    "silu": {"Sigmoid"},
}


@pytest.mark.parametrize("entry", CASES, ids=lambda entry: entry.name)
def test_only_few_operations_and_static_shapes(entry: Case) -> None:
    rnn = export_rnn(entry.build(torch.float32))
    proto, c = to_onnx(rnn, 5), rnn.config
    onnx.checker.check_model(proto, full_check=True)
    allowed = ALWAYS | ACTIVATION[c.act_fn]
    if any((c.ln1, c.ln2, c.ln_final, c.ln_c, c.ln_mid)):
        allowed |= NORM
    if c.ln_c is not None or c.ln_mid is not None:
        allowed |= {"Relu"}  # the maximum with C
    assert {node.op_type for node in proto.graph.node} <= allowed
    (given_input,), (output,) = proto.graph.input, proto.graph.output
    assert [d.dim_value for d in given_input.type.tensor_type.shape.dim] == [1, 5, c.d_model]
    assert [d.dim_value for d in output.type.tensor_type.shape.dim] == [1, c.d_vocab_out]
    inferred = onnx.shape_inference.infer_shapes(proto, strict_mode=True)
    for value in inferred.graph.value_info:
        assert all(d.dim_value > 0 for d in value.type.tensor_type.shape.dim), value.name


def test_files_and_wrong_lengths(tmp_path: Path) -> None:
    rnn = export_rnn(case("gpt-linear").build(torch.float32, n_ctx=8))
    path = save_onnx(rnn, tmp_path / "rnn.onnx", 8)
    assert onnx.load(path) == to_onnx(rnn, 8)
    for length in (0, 9):
        with pytest.raises(ValueError, match=rf"length must be in 1\.\.8, not {length}"):
            to_onnx(rnn, length)
    to_onnx(export_rnn(case("gpt").build(torch.float32, n_ctx=8)), 9)  # no positions, no limit


def test_without_the_package_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    with pytest.raises(MissingPackageError, match=r"pip install 'tl-dyck\[onnx\]'"):
        to_onnx(export_rnn(case("gpt").build(torch.float32)), 3)


def test_double_precision() -> None:
    """By onnx's own evaluator, a second and independent reader."""
    entry = case("relu-ln-4heads")
    rnn, tokens = export_rnn(entry.build()), entry.tokens(1, 5, 11)
    r = rnn.embed(tokens, rnn.states(tokens))
    evaluator = onnx.reference.ReferenceEvaluator(to_onnx(rnn, 5, dtype=torch.float64))
    (found,) = evaluator.run(None, {"embeddings": r.numpy()})
    expected = rnn(tokens)[:, -1]
    torch.testing.assert_close(torch.from_numpy(found), expected, rtol=1e-10, atol=1e-10)
