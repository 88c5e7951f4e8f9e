"""One bit that is turned, or a file that is cut: it is noticed, or nothing has changed."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

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
@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_turned_bit_or_a_cut_is_noticed(whole: Path, data: st.DataObject) -> None:
    kind, folder = whole.name, whole.parent / "spoiled"
    wanted = read_json(whole / "checkpoint.json")["identity"] if kind == "checkpoint" else None
    path = folder / data.draw(st.sampled_from(sorted(path.name for path in whole.iterdir())))
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(whole, folder)
    bytes_ = bytearray(path.read_bytes())
    place = data.draw(st.integers(0, len(bytes_) - 1))
    if data.draw(st.booleans()):
        del bytes_[place:]
    else:
        bytes_[place] ^= 1 << data.draw(st.integers(0, 7))
    path.write_bytes(bytes_)
    try:
        found, said = LOADED[kind](folder, wanted)
    except CorruptFileError:
        return
    assert path.suffix == ".json"
    expected, _ = LOADED[kind](whole, wanted)
    assert found.keys() == expected.keys()
    assert all(
        torch.equal(found[name].nan_to_num(), t.nan_to_num()) for name, t in expected.items()
    )
    assert said is None or said == read_json(path)["config"]
