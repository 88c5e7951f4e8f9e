"""Handing the question to another verifier: files, command, and what is made of its answers."""

from __future__ import annotations

import itertools
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("onnx", reason="the extra tl-dyck[onnx] is not installed")
pytest.importorskip("onnxruntime", reason="the extra tl-dyck[onnx] is not installed")

import onnxruntime

from tests.certify.oracles import random_rnn
from tests.hooks.certifiers.vnnlib_reader import parse_vnnlib
from tl_dyck.certify import (
    CertifyError,
    Duplicate,
    PerturbationSpace,
    Substitute,
    SwapAdjacent,
    certify,
)
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck_hooks.certifiers.onnx_vnnlib import onnx_vnnlib

SPACE = PerturbationSpace([(Substitute({0: [1, 2], 3: [4]}), 2)])
STRING = (0, 3, 5)


def verifier(tmp_path: Path, body: str) -> list[str]:
    """A program that is called as verifiers are."""
    script = tmp_path / "verifier.py"
    script.write_text(f"import sys, time\nnetwork, prop, results, timeout = sys.argv[1:]\n{body}\n")
    return [sys.executable, str(script), "{onnx}", "{vnnlib}", "{results}", "{timeout}"]


ANSWERS = [
    ("unsat", "proved"),
    ("holds", "proved"),
    ("sat", "open"),
    ("timeout", "open"),
]


@pytest.fixture
def rnn() -> TwoLayerRNN:
    """One that prefers logit 0 on `STRING`, by far, whatever is substituted."""
    rnn = random_rnn(0, act_fn="relu", bos_token=6)
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["b_U"][0] += 50.0
    return TwoLayerRNN(rnn.config, weights)


def test_without_a_verifier_the_files_are_written(rnn: TwoLayerRNN, tmp_path: Path) -> None:
    certificate = onnx_vnnlib(rnn, STRING, 0, SPACE, folder=tmp_path)
    assert certificate.status == "open"
    assert str(tmp_path / "network.onnx") in certificate.reason
    assert str(tmp_path / "property.vnnlib") in certificate.reason


def test_the_files_describe_every_string_of_the_space(rnn: TwoLayerRNN, tmp_path: Path) -> None:
    """onnxruntime and our reader of the property: no counterexample exactly if 0 wins."""
    for target in (0, 1):
        onnx_vnnlib(rnn, STRING, target, SPACE, folder=tmp_path)
        session = onnxruntime.InferenceSession(str(tmp_path / "network.onnx"))
        prop = parse_vnnlib((tmp_path / "property.vnnlib").read_text())
        for string in itertools.product([0, 1, 2], [3, 4], [5]):
            row = torch.tensor([6, *string])
            r = rnn.embed(row, rnn.states(row)).float()
            (logits,) = session.run(None, {session.get_inputs()[0].name: r[None].numpy()})
            assert prop.is_counterexample(r, torch.from_numpy(logits)[0]) is (target == 1)


@pytest.mark.parametrize(("answer", "status"), ANSWERS)
def test_answers_in_the_results_file(
    rnn: TwoLayerRNN, tmp_path: Path, answer: str, status: str
) -> None:
    command = verifier(tmp_path, f"open(results, 'w').write('{answer}\\n')")
    certificate = onnx_vnnlib(rnn, STRING, 0, SPACE, folder=tmp_path, command=command)
    assert certificate.status == status
    if status == "open":
        assert "verifier" in certificate.reason


@pytest.mark.parametrize(("answer", "status"), ANSWERS)
def test_answers_on_standard_output(
    rnn: TwoLayerRNN, tmp_path: Path, answer: str, status: str
) -> None:
    command = verifier(
        tmp_path, f"print('reading network: unknown layers 0\\nresult:', '{answer.upper()}')"
    )
    assert onnx_vnnlib(rnn, STRING, 0, SPACE, folder=tmp_path, command=command).status == status


def test_an_old_answer_is_not_read_again(rnn: TwoLayerRNN, tmp_path: Path) -> None:
    (tmp_path / "results.txt").write_text("unsat\n")
    certificate = onnx_vnnlib(
        rnn, STRING, 0, SPACE, folder=tmp_path, command=verifier(tmp_path, "sys.exit(3)")
    )
    assert certificate.status == "open"
    assert "exit status 3" in certificate.reason


def test_a_verifier_that_takes_too_long_is_stopped(rnn: TwoLayerRNN, tmp_path: Path) -> None:
    command = verifier(tmp_path, "time.sleep(60)")
    certificate = onnx_vnnlib(
        rnn, STRING, 0, SPACE, folder=tmp_path, command=command, time_limit=0.5
    )
    assert certificate.status == "open"
    assert "stopped after 0.5 s" in certificate.reason


def test_a_falsified_original_needs_no_verifier(rnn: TwoLayerRNN, tmp_path: Path) -> None:
    assert onnx_vnnlib(rnn, STRING, 1, SPACE, folder=tmp_path).status == "refuted"


def test_swaps_keep_the_length(rnn: TwoLayerRNN, tmp_path: Path) -> None:
    certificate = certify(
        rnn, STRING, 0, PerturbationSpace([(SwapAdjacent(), 1)]), "onnx-vnnlib", folder=tmp_path
    )
    assert certificate.status == "open"


def test_what_cannot_be_asked(rnn: TwoLayerRNN, tmp_path: Path) -> None:
    with pytest.raises(CertifyError, match=r"keeps the length, but dup:1 can turn 1 tokens"):
        onnx_vnnlib(rnn, STRING, 0, PerturbationSpace([(Duplicate(), 1)]), folder=tmp_path)
    with pytest.raises(CertifyError, match="cannot be started"):
        onnx_vnnlib(
            rnn, STRING, 0, SPACE, folder=tmp_path, command=[str(tmp_path / "no-such-verifier")]
        )
    with pytest.raises(CertifyError, match="must be a list of arguments"):
        onnx_vnnlib(rnn, STRING, 0, SPACE, folder=tmp_path, command=[])
