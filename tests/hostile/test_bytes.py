"""One bit that is turned, or a file that is cut: it is noticed, or nothing has changed."""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from tl_dyck.files import CorruptFileError, read_json
from tl_dyck.models import load_model
from tl_dyck.models.text import load_text_model
from tl_dyck.rnn import load_rnn
from tl_dyck.training import load_result
from tl_dyck.training.checkpoint import read_checkpoint

#: What an artefact holds: its tensors by name, and what its JSON says (where it is all kept).
LOADED: dict[str, Callable[[Path, Any], tuple[dict[str, torch.Tensor], Any]]] = {
    "model": lambda folder, _: (model := load_model(folder)) and (
        dict(model.named_parameters()), model.cfg.to_saved()
    ),
    "text": lambda folder, _: (dict(load_text_model(folder).named_parameters()), None),
    "rnn": lambda folder, _: (load_rnn(folder).weights, None),
    "run": lambda folder, _: (dict(load_result(folder).model.named_parameters()), None),
    "checkpoint": lambda folder, wanted: (read_checkpoint(folder, wanted)[1], None),
}  # fmt: skip


@pytest.fixture
def whole(original: Callable[[str], Path], request: pytest.FixtureRequest) -> Path:
    return original(request.param)


@pytest.mark.parametrize("whole", LOADED, indirect=True)
def test_a_turned_bit_or_a_cut_is_noticed(whole: Path) -> None:
    kind, folder, chance = whole.name, whole.parent / "spoiled", random.Random(0)
    wanted = read_json(whole / "checkpoint.json")["identity"] if kind == "checkpoint" else None
    expected, _ = LOADED[kind](whole, wanted)
    for name in [path.name for path in sorted(whole.iterdir())] * 15:
        path = folder / name
        shutil.rmtree(folder, ignore_errors=True)
        shutil.copytree(whole, folder)
        spoiled = bytearray(path.read_bytes())
        place = chance.randrange(len(spoiled))
        if chance.random() < 0.3:
            del spoiled[place:]
        else:
            spoiled[place] ^= 1 << chance.randrange(8)
        path.write_bytes(spoiled)
        try:
            found, said = LOADED[kind](folder, wanted)
        except CorruptFileError:
            continue
        assert path.suffix == ".json"
        assert found.keys() == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in found.items())
        assert said is None or said == read_json(path)["config"]
