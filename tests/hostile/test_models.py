"""Folders of models and of RNNs that are not what they say."""

from __future__ import annotations

import hashlib
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file

from tests.hostile.tools import JUNK, alter, nest, refusal
from tl_dyck.models import load_model
from tl_dyck.models.text import load_text_model
from tl_dyck.rnn import load_rnn

Make = Callable[[str], Path]


@pytest.mark.parametrize("junk", JUNK)
@pytest.mark.parametrize(
    ("kind", "load", "file"),
    [
        ("model", load_model, "config.json"),
        ("text", load_text_model, "config.json"),
        ("rnn", load_rnn, "rnn.json"),
    ],
)
def test_descriptions_that_are_none(
    original: Make, kind: str, load: Callable[[Path], object], file: str, junk: str
):
    folder = original(kind)
    (folder / file).write_bytes(JUNK[junk])
    refusal(lambda: load(folder), str(folder))


WEIGHTS = {
    "empty": b"",
    "a pickle": JUNK["a pickle"],
    "a header of 2**63 bytes": struct.pack("<Q", 2**63),
    "a header that is longer than the file": struct.pack("<Q", 1000) + b"{}",
    "a header that is no JSON": struct.pack("<Q", 4) + b"{{{{",
    "a header that is a list": struct.pack("<Q", 2) + b"[]",
    "a tensor of 2**62 numbers": b'{"x":{"dtype":"F32","shape":[4611686018427387904],'
    b'"data_offsets":[0,4]}}',
    "a shape below zero": b'{"x":{"dtype":"F32","shape":[-1],"data_offsets":[0,4]}}',
    "an unknown type": b'{"x":{"dtype":"F99","shape":[1],"data_offsets":[0,4]}}',
    "tensors that overlap": b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4]},'
    b'"y":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}',
    "offsets beyond the end": b'{"x":{"dtype":"F32","shape":[1],"data_offsets":[4096,4100]}}',
    "no tensors": b"{}",
}


@pytest.mark.parametrize("digest", ["of before", "of now"])
@pytest.mark.parametrize("case", WEIGHTS)
@pytest.mark.parametrize(
    ("kind", "load", "json_file", "file", "where"),
    [
        ("model", load_model, "config.json", "model.safetensors", ("sha256",)),
        ("text", load_text_model, "config.json", "model.safetensors", ("sha256",)),
        ("rnn", load_rnn, "rnn.json", "rnn.safetensors", ("sha256",)),
    ],
)
def test_weights_that_are_none(original: Make, kind, load, json_file, file, where, case, digest):
    folder, data = original(kind), WEIGHTS[case]
    if data.startswith(b"{"):
        data = struct.pack("<Q", len(data)) + data + b"\0" * 4
    (folder / file).write_bytes(data)
    if digest == "of now":
        alter(folder / json_file, *where, value=hashlib.sha256(data).hexdigest())
    refusal(lambda: load(folder), str(folder))


CONFIG = {
    "no config": (("config",), ...),
    "config a list": (("config",), []),
    "config nested": (("config",), nest(200)),
    "no digest": (("sha256",), ...),
    "a digest that is a number": (("sha256",), 5),
    "a digest of something else": (("sha256",), "0" * 64),
    "no width": (("config", "d_model"), ...),
    "a width of 2**31": (("config", "d_model"), 2**31),
    "a width below zero": (("config", "d_model"), -1),
    "a width that is a text": (("config", "d_model"), "10"),
    "a width that is NaN": (("config", "d_model"), float("nan")),
    "a width that is a list": (("config", "d_model"), [10]),
    "2**40 positions": (("config", "n_ctx"), 2**40),
    "2**40 heads": (("config", "n_heads"), 2**40),
    "an unknown key": (("config", "__class__"), "os.system"),
    "another format": (("format",), "tl_dyck.model/99"),
    "a number beyond floats": (("config", "d_model"), 10**30),
    "a key that nobody knows": (("extra",), "x"),
}
MODEL = {
    "2**31 layers": (("config", "n_layers"), 2**31),
    "no layer": (("config", "n_layers"), 0),
    "2**31 types of brackets": (("config", "n_types"), 2**31),
    "depths of 2**31": (("config", "max_depth"), 2**31),
    "brackets of another number": (("config", "brackets"), ["(", ")"]),
    "brackets that are one": (("config", "brackets"), ["(", "(", "(", "("]),
    "brackets that are numbers": (("config", "brackets"), [1, 2, 3, 4]),
    "an unknown block": (("config", "block"), "eval"),
    "another block": (("config", "block"), "bare"),
    "another embedding": (("config", "embedding"), "token"),
    "more depths than its width has room for": (("config", "max_depth"), 100),
    "layers as text": (("config", "n_layers"), "2"),
    "10**9 layers": (("config", "n_layers"), 10**9),
    "a hidden width of 10**9": (("config", "d_mlp"), 10**9),
    "weights of another type": (("config", "dtype"), "float64"),
    "a C below zero": (("config", "ln_c"), -1.0),
    "no C": (("config", "ln_c"), ...),
    "an unknown type of numbers": (("config", "dtype"), "int64"),
    "a type that is an attribute of torch": (("config", "dtype"), "hub.load"),
    "an epsilon of NaN": (("config", "eps"), float("nan")),
    "an unknown activation": (("config", "act_fn"), "__import__"),
}
TEXT = {
    "words a text": (("config", "words"), "good"),
    "words twice": (("config", "words"), ["<unk>", "<cls>", "a", "a"]),
    "no <cls>": (("config", "words"), ["a", "b", "c", "d"]),
    "2**31 classes": (("config", "n_classes"), 2**31),
    "one class": (("config", "n_classes"), 1),
    "an unknown position": (("config", "position"), "eval"),
}


@pytest.mark.parametrize("case", {**CONFIG, **MODEL})
def test_a_model_that_cannot_be(original: Make, case: str):
    keys, value = {**CONFIG, **MODEL}[case]
    folder = original("model")
    alter(folder / "config.json", *keys, value=value)
    refusal(lambda: load_model(folder), str(folder))


@pytest.mark.parametrize("case", {**CONFIG, **TEXT})
def test_a_classifier_that_cannot_be(original: Make, case: str):
    keys, value = {**CONFIG, **TEXT}[case]
    folder = original("text")
    alter(folder / "config.json", *keys, value=value)
    refusal(lambda: load_text_model(folder), str(folder))


RNN = {
    **{name: change for name, change in CONFIG.items() if "digest" not in name},
    "no digest": (("sha256",), ...),
    "a digest that is a number": (("sha256",), 5),
    "another digest": (("sha256",), "0" * 64),
    "a scale of NaN": (("config", "attn_scale"), float("nan")),
    "a scale of nothing": (("config", "attn_scale"), 0.0),
    "an unknown state machine": (("config", "state"), "eval"),
    "a newer format": (("config", "format_version"), 99),
    "an alphabet of another size": (("config", "alphabet"), ["a"]),
    "an alphabet of numbers": (("config", "alphabet"), [1, 2, 3, 4, 5]),
    "a start token beyond the alphabet": (("config", "bos_token"), 99),
    "depths of 2**60": (("config", "max_depth"), 2**60),
    "a huge vocabulary": (("config", "d_vocab"), 2**31 - 1),
    "an alphabet that is a number": (("config", "alphabet"), 3),
}


@pytest.mark.parametrize("case", RNN)
def test_an_rnn_that_cannot_be(original: Make, case: str):
    keys, value = RNN[case]
    folder = original("rnn")
    alter(folder / "rnn.json", *keys, value=value)
    refusal(lambda: load_rnn(folder), str(folder))


def _nan(tensors: dict[str, torch.Tensor], name: str) -> None:
    tensors[name].view(-1)[0] = float("nan")


CHANGED = {
    "one is gone": lambda tensors, name: tensors.pop(name),
    "one is more": lambda tensors, name: tensors.update(extra=torch.zeros(2)),
    "one is a row that could be repeated": lambda tensors, name: tensors.update(
        {name: tensors[name][:1].clone()}
    ),
    "one is larger": lambda tensors, name: tensors.update({name: torch.zeros(7, 7)}),
    "one is of whole numbers": lambda tensors, name: tensors.update({name: tensors[name].long()}),
    "one is of float64": lambda tensors, name: tensors.update({name: tensors[name].double()}),
}


# a model that diverged is kept, with the weights that it has; an RNN is exported only if it equals
# its model
@pytest.mark.parametrize("case", [*CHANGED, "one is not finite"])
@pytest.mark.parametrize(
    ("kind", "load", "json_file", "file", "where", "name"),
    [
        ("model", load_model, "config.json", "model.safetensors", ("sha256",), "unembed.W_U"),
        ("rnn", load_rnn, "rnn.json", "rnn.safetensors", ("sha256",), "W_U"),
    ],
)
def test_tensors_that_do_not_fit(original: Make, kind, load, json_file, file, where, name, case):
    folder = original(kind)
    tensors = load_file(folder / file)
    CHANGED.get(case, _nan)(tensors, name)
    save_file(tensors, folder / file)
    alter(
        folder / json_file, *where, value=hashlib.sha256((folder / file).read_bytes()).hexdigest()
    )
    if (kind, case) == ("model", "one is not finite"):
        assert load(folder, diverged=True).W_U.isnan().any()
    refusal(lambda: load(folder), str(folder))


def test_names_with_escapes_are_data(original: Make):
    """What they do to a terminal is for who prints them; see test_command_line."""
    folder = original("rnn")
    alphabet = ["\x1b[2J", "<script>", "[/]", "\u202e", "<bos>"]
    alter(folder / "rnn.json", "config", "alphabet", value=alphabet)
    alter(folder / "rnn.json", "config", "model_name", value="\x1b]0;owned\x07")
    assert list(load_rnn(folder).config.alphabet or ()) == alphabet


def test_a_description_that_is_larger_than_any(original: Make):
    folder = original("rnn")
    saved = json.loads((folder / "rnn.json").read_text())
    with (folder / "rnn.json").open("w") as file:
        json.dump(saved, file)
        file.truncate(2**27)
    refusal(lambda: load_rnn(folder), "rnn.json", "too large")
