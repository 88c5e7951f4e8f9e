"""The artefact on disk: what is written reads back, and nothing else is accepted."""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file, save_file

from tests.cases import CASES, Case, case
from tl_dyck.files import CorruptFileError
from tl_dyck.rnn import export_rnn, load_rnn, save_rnn


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return save_rnn(export_rnn(case("gelu-ln").build(torch.float32)), tmp_path / "rnn")


def edit(folder: Path, change: Callable[[dict[str, Any]], object]) -> None:
    plain = json.loads((folder / "rnn.json").read_text())
    change(plain)
    (folder / "rnn.json").write_text(json.dumps(plain))


def rewrite_weights(folder: Path, change: Callable[[dict[str, torch.Tensor]], object]) -> None:
    """Alter the tensors and make the file's hash right: an attacker who knows the format."""
    tensors = load_file(folder / "rnn.safetensors")
    change(tensors)
    save_file(tensors, folder / "rnn.safetensors")
    digest = hashlib.sha256((folder / "rnn.safetensors").read_bytes()).hexdigest()
    edit(folder, lambda plain: plain.update(sha256=digest))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=["float32", "float64"])
@pytest.mark.parametrize("entry", CASES, ids=lambda entry: entry.name)
def test_what_is_saved_reads_back(entry: Case, dtype: torch.dtype, tmp_path: Path) -> None:
    rnn = export_rnn(entry.build(dtype))
    again = load_rnn(save_rnn(rnn, tmp_path / "a" / "b"))
    assert again.config == rnn.config
    assert again.dtype == dtype
    tokens = entry.tokens(2, 9, rnn.config.d_vocab)
    assert torch.equal(again(tokens), rnn(tokens))


def test_the_folder_holds_two_files_and_no_pickle(folder: Path) -> None:
    assert sorted(os.listdir(folder)) == ["rnn.json", "rnn.safetensors"]
    plain = json.loads((folder / "rnn.json").read_text())
    assert set(plain) == {"format", "config", "tensors", "sha256"}
    assert plain["config"]["format_version"] == 1
    assert plain["sha256"] == hashlib.sha256((folder / "rnn.safetensors").read_bytes()).hexdigest()


def test_saving_over_an_older_artefact(folder: Path) -> None:
    other = export_rnn(case("relu").build())
    save_rnn(other, folder)
    assert load_rnn(folder).config == other.config


@pytest.mark.parametrize("fails_at", [1, 2])
def test_a_crash_while_saving_never_leaves_a_wrong_artefact(
    folder: Path, fails_at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = load_rnn(folder)
    calls = 0
    replace = os.replace

    def crash(source: Any, target: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == fails_at:
            raise OSError("no space left on device")
        replace(source, target)

    monkeypatch.setattr(os, "replace", crash)
    with pytest.raises(OSError, match="no space left"):
        save_rnn(export_rnn(case("gelu-ln").build(torch.float64)), folder)
    monkeypatch.undo()
    assert sorted(os.listdir(folder)) == ["rnn.json", "rnn.safetensors"]
    if fails_at == 1:  # nothing replaced yet: the old one is whole
        assert load_rnn(folder).dtype == before.dtype == torch.float32
    else:
        with pytest.raises(CorruptFileError, match="truncated or was altered"):
            load_rnn(folder)


def test_it_loads_and_runs_without_transformer_lens(folder: Path) -> None:
    """In another process, in which importing TransformerLens, transformers or onnx is an error."""
    expected = load_rnn(folder)(torch.tensor([[1, 2, 3]]))[0, -1].tolist()
    code = f"""
import sys
for name in ("transformer_lens", "transformers", "onnx", "onnxruntime"):
    sys.modules[name] = None
import torch, tl_dyck.rnn, tl_dyck.rnn.onnx, tl_dyck.rnn.vnnlib
rnn = tl_dyck.rnn.load_rnn({str(folder)!r})
print(rnn(torch.tensor([[1, 2, 3]]))[0, -1].tolist())
carry = rnn.initial()
for token in (1, 2, 3):
    carry, logits = rnn.step(carry, torch.tensor([token]))
print(logits[0].tolist())
try:
    tl_dyck.rnn.onnx.to_onnx(rnn, 3)
except ImportError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    whole, stream, onnx = done.stdout.splitlines()
    assert json.loads(whole) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert json.loads(stream) == pytest.approx(expected, rel=1e-5, abs=1e-5)
    assert "pip install 'tl-dyck[onnx]'" in onnx


# ---------------------------------------------------------------------- hostile folders


HOSTILE_JSON: list[tuple[str, Callable[[dict[str, Any]], object], str]] = [
    ("other format", lambda p: p.update(format="pickle"), "does not hold an RNN of this version"),
    ("no format", lambda p: p.pop("format"), "does not hold an RNN of this version"),
    ("unknown key", lambda p: p.update(code="import os"), r"keys missing or unknown: \['code'\]"),
    ("missing key", lambda p: p.pop("sha256"), r"keys missing or unknown: \['sha256'\]"),
    ("unknown field", lambda p: p["config"].update(hook="os.system"), r"unknown fields \['hook'\]"),
    ("missing field", lambda p: p["config"].pop("d_model"), r"missing fields \['d_model'\]"),
    ("config is a list", lambda p: p.update(config=[]), "its config is \\[\\]"),
    (
        "newer version",
        lambda p: p["config"].update(format_version=2),
        "newer than 1.*update tl_dyck",
    ),
    (
        "huge vocabulary",
        lambda p: p["config"].update(d_vocab=2**31 - 1, alphabet=None),
        r"W_E is \[2147483647, 16\]",
    ),
    (
        "huge beyond int32",
        lambda p: p["config"].update(d_model=10**30),
        "d_model must be at most",
    ),
    ("float size", lambda p: p["config"].update(d_model=16.0), "d_model must be an integer"),
    ("string size", lambda p: p["config"].update(n_heads="2"), "n_heads must be an integer"),
    ("list size", lambda p: p["config"].update(n_heads=[2]), "n_heads must be an integer"),
    ("boolean size", lambda p: p["config"].update(n_heads=True), "n_heads must be an integer"),
    ("null size", lambda p: p["config"].update(d_model=None), "d_model must be an integer"),
    ("nan", lambda p: p["config"].update(attn_scale=float("nan")), "attn_scale must be a finite"),
    ("unknown state", lambda p: p["config"].update(state="__import__"), "state must be one of"),
    ("state is a list", lambda p: p["config"].update(state=["none"]), "state must be one of"),
    ("alphabet is a number", lambda p: p["config"].update(alphabet=3), "alphabet must be a list"),
    (
        "alphabet of numbers",
        lambda p: p["config"].update(alphabet=[1] * 11),
        "alphabet must be a tuple of strings",
    ),
    ("short alphabet", lambda p: p["config"].update(alphabet=["a"]), "1 texts for d_vocab=11"),
    ("hash is null", lambda p: p.update(sha256=None), "no SHA-256"),
    ("wrong hash", lambda p: p.update(sha256="0" * 64), "was altered"),
]


@pytest.mark.parametrize(
    ("change", "message"),
    [entry[1:] for entry in HOSTILE_JSON],
    ids=[entry[0] for entry in HOSTILE_JSON],
)
def test_hostile_descriptions(
    folder: Path, change: Callable[[dict[str, Any]], object], message: str
) -> None:
    edit(folder, change)
    with pytest.raises(CorruptFileError, match=message) as caught:
        load_rnn(folder)
    assert str(folder) in str(caught.value)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"null",
        b"\xff\xfe\x00",
        b"[" * 100_000,
        b"1" * 10_000,
        b'{"format": "tl_dyck.rnn"}',
    ],
)
def test_descriptions_that_are_not_json_objects(folder: Path, content: bytes) -> None:
    (folder / "rnn.json").write_bytes(content)
    with pytest.raises(CorruptFileError, match=r"rnn\.json"):
        load_rnn(folder)


def test_a_huge_description_is_not_read(folder: Path) -> None:
    with (folder / "rnn.json").open("wb") as file:
        file.truncate(100 * 2**20)
    with pytest.raises(
        CorruptFileError, match=r"rnn.json' has 104,857,600 bytes: too large to be read"
    ):
        load_rnn(folder)


@pytest.mark.parametrize("name", ["rnn.json", "rnn.safetensors"])
def test_missing_files_and_devices(folder: Path, name: str) -> None:
    (folder / name).unlink()
    with pytest.raises(CorruptFileError, match=f"there is no file .*{name}"):
        load_rnn(folder)
    (folder / name).symlink_to("/dev/null")  # a device: reading some of them never ends
    with pytest.raises(CorruptFileError, match=f"{name}' is not an ordinary file but a device"):
        load_rnn(folder)


HOSTILE_WEIGHTS: list[tuple[str, Callable[[dict[str, torch.Tensor]], object], str]] = [
    ("nan", lambda t: t["W_E"].fill_(torch.nan), "W_E holds nan"),
    ("infinite", lambda t: t["b_U"].fill_(-torch.inf), "b_U holds nan or infinite"),
    ("renamed", lambda t: t.update(W_X=t.pop("W_E")), r"W_E is \[11, 16\], .* have none"),
    ("extra", lambda t: t.update(extra=torch.zeros(1)), r"unknown \['extra'\]"),
    (
        "reshaped",
        lambda t: t.update(W_E=t["W_E"].T.contiguous()),
        r"W_E is \[11, 16\], but the weights have \[16, 11\]",
    ),
    (
        "integers",
        lambda t: t.update(b_U=t["b_U"].to(torch.int32)),
        "b_U is torch.int32",
    ),
    ("doubles", lambda t: t.update(b_U=t["b_U"].double()), "mixed types"),
]


@pytest.mark.parametrize(
    ("change", "message"),
    [entry[1:] for entry in HOSTILE_WEIGHTS],
    ids=[entry[0] for entry in HOSTILE_WEIGHTS],
)
def test_hostile_weights_with_a_right_hash(
    folder: Path, change: Callable[[dict[str, torch.Tensor]], object], message: str
) -> None:
    rewrite_weights(folder, change)
    with pytest.raises(CorruptFileError, match=message):
        load_rnn(folder)


def test_a_pickle_in_place_of_the_weights(folder: Path, tmp_path: Path) -> None:
    size = (folder / "rnn.safetensors").stat().st_size
    canary = tmp_path / "executed"

    class Payload:
        def __reduce__(self) -> Any:
            return (open, (str(canary), "w"))

    torch.save(Payload(), folder / "rnn.safetensors")
    with (folder / "rnn.safetensors").open("ab") as file:
        file.truncate(size)
    digest = hashlib.sha256((folder / "rnn.safetensors").read_bytes()).hexdigest()
    edit(folder, lambda plain: plain.update(sha256=digest))
    with pytest.raises(CorruptFileError, match="not a safetensors file"):
        load_rnn(folder)
    assert not canary.exists()


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_any_altered_byte_is_noticed(folder: Path, data: st.DataObject) -> None:
    """Flip one bit, or cut the file: an error of ours, or the same machine.

    The same: a bit in JSON's white space.
    """
    name = data.draw(st.sampled_from(["rnn.json", "rnn.safetensors"]))
    original = (folder / name).read_bytes()
    expected = load_rnn(folder)
    if data.draw(st.booleans()):
        altered = original[: data.draw(st.integers(0, len(original) - 1))]
    else:
        place, bit = data.draw(st.integers(0, len(original) - 1)), data.draw(st.integers(0, 7))
        altered = original[:place] + bytes([original[place] ^ (1 << bit)]) + original[place + 1 :]
    (folder / name).write_bytes(altered)
    try:
        loaded = load_rnn(folder)
    except CorruptFileError:
        pass
    else:
        assert name == "rnn.json"
        assert all(
            torch.equal(weight, expected.weights[key]) for key, weight in loaded.weights.items()
        )
    finally:
        (folder / name).write_bytes(original)
