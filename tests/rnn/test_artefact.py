"""The artefact on disk: what is written reads back, and nothing else is accepted."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from tests.cases import CASES, Case, case
from tl_dyck.rnn import export_rnn, load_rnn, save_rnn


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_rnn(export_rnn(case("gelu-ln").build(torch.float32)), tmp_path / "rnn")


@pytest.mark.parametrize("entry", CASES[::2], ids=lambda entry: entry.name)
def test_what_is_saved_reads_back(entry: Case, tmp_path: Path) -> None:
    dtype = torch.float32 if entry.largest_score is None else torch.float64
    rnn = export_rnn(entry.build(dtype))
    again = load_rnn(save_rnn(rnn, tmp_path / "a" / "b"))
    assert again.config == rnn.config
    assert again.dtype == dtype
    tokens = entry.tokens(2, 9, rnn.config.d_vocab)
    assert torch.equal(again(tokens), rnn(tokens))


def test_it_loads_and_runs_without_transformer_lens(folder: Path) -> None:
    """In another process, in which importing TransformerLens, transformers or onnx is an error."""
    expected = load_rnn(folder)(torch.tensor([[1, 2, 3]]))[0, -1].tolist()
    code = f"""
import sys
for name in ("transformer_lens", "transformers", "onnx", "onnxruntime"):
    sys.modules[name] = None
import torch, tl_dyck.rnn
rnn = tl_dyck.rnn.load_rnn({str(folder)!r})
print(rnn(torch.tensor([[1, 2, 3]]))[0, -1].tolist())
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == pytest.approx(expected, rel=1e-5, abs=1e-5)
