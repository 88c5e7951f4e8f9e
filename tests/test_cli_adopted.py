"""Commands on a folder that holds an adopted model, with tokens that are no brackets."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.foreign import VOCABULARY, foreign
from tests.test_cli import call
from tl_dyck import adopt, save_model


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("own")
    return save_model(adopt(foreign("one-layer"), VOCABULARY), folder / "model")


def test_other_commands(saved: Path, tmp_path: Path) -> None:
    assert call("play", saved, "-o", tmp_path / "page.html").exit_code == 0
    assert (tmp_path / "page.html").stat().st_size > 10_000
    result = call("certify", saved, "--text", "[()]", "--space", "pairs:1", "--json")
    assert result.exit_code in (0, 1)
    assert "status" in result.stdout
    out = tmp_path / "heads"
    assert call("ablate", saved, "--steps", 0, "--out", out, "--jobs", 1).exit_code == 0
    assert (out / "ablation.html").exists()


def test_of_several_models_those_without_numbers_are_left_out(saved: Path, tmp_path: Path) -> None:
    broken = adopt(foreign("one-layer"), VOCABULARY)
    save_model(broken, tmp_path / "models" / "a")
    with torch.no_grad():
        broken.unembed.b_U[2] = float("nan")
    save_model(broken, tmp_path / "models" / "b")
    both = call("probe", tmp_path / "models", "-p", "stack_likeness", "-s", "[()]")
    assert both.exit_code == 0
    assert "is left out" in both.output
    alone = call("probe", tmp_path / "models" / "b", "-p", "stack_likeness", "-s", "[()]")
    assert alone.exit_code == 2
    assert "holds nan or infinite values" in " ".join(alone.output.split())
