"""Trained models by name: from a study, from a folder of models, and by the recipe for a Hub."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import huggingface_hub
import pytest
import torch

from tl_dyck import load_pretrained
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.models import load_model
from tl_dyck.runs.saved import find_models
from tl_dyck.studies import Study

RECIPE = Path(__file__).parents[2] / "docs" / "packages.md"


@pytest.fixture(scope="module")
def models(tiny_study: Study, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The models of the study in a folder of their own."""
    folder = tmp_path_factory.mktemp("zoo") / "models"
    for saved in find_models(tiny_study.folder):
        place = folder / saved.name
        place.mkdir(parents=True)
        for file in ("config.json", "model.safetensors"):
            shutil.copy(saved.folder / file, place / file)
    return folder


def same(first: torch.nn.Module, second: torch.nn.Module) -> bool:
    one, other = dict(first.named_parameters()), dict(second.named_parameters())
    return one.keys() == other.keys() and all(torch.equal(one[key], other[key]) for key in one)


def test_without_a_folder_the_name_is_an_address(models, tiny_study):
    wanted = load_model(tiny_study.run_folder("gpt", 1), device="cpu")
    for address in (
        f"{tiny_study.folder}:gpt/seed-1",
        f"{models}:gpt/seed-1",
        models / "gpt" / "seed-1",
    ):
        assert same(load_pretrained(address, device="cpu"), wanted)
    for name, folder in (("gpt/seed-1", None), ("gpt/seed-1", models / "nowhere")):
        with pytest.raises(CorruptFileError, match=r"models are named by their folder, or as in"):
            load_pretrained(name, folder)


def test_the_recipe_for_a_hub(tiny_study, tmp_path, monkeypatch):
    """A Hub that is a folder: what the guide uploads is what it loads again."""
    hub = tmp_path / "hub"

    class Hub:
        def create_repo(self, repo_id: str, **options: Any) -> None:
            (hub / repo_id).mkdir(parents=True)

        def upload_folder(
            self, *, repo_id: str, folder_path: Path, path_in_repo: str, allow_patterns: list[str]
        ) -> None:
            (hub / repo_id / path_in_repo).mkdir(parents=True)
            for file in allow_patterns:
                shutil.copy(folder_path / file, hub / repo_id / path_in_repo / file)

        def upload_file(self, *, repo_id: str, path_or_fileobj: str, path_in_repo: str) -> None:
            shutil.copy(path_or_fileobj, hub / repo_id / path_in_repo)

    monkeypatch.setattr(huggingface_hub, "HfApi", Hub)
    monkeypatch.setattr(huggingface_hub, "snapshot_download", lambda name: str(hub / name))
    monkeypatch.chdir(tmp_path)
    text = RECIPE.read_text(encoding="utf-8").partition("## Trained models by name")[2]
    (card,) = re.findall(r"````markdown\n(.*?)````", text, re.DOTALL)
    assert huggingface_hub.ModelCard(card).data.library_name == "tl_dyck"
    Path("card.md").write_text(card, encoding="utf-8")
    Path("results").mkdir()
    Path("results/study").symlink_to(tiny_study.folder)
    names: dict[str, Any] = {}
    for block in re.findall(r"^```python\n(.*?)^```", text.replace(card, ""), re.DOTALL | re.M):
        exec(compile(block.replace("seed-3", "seed-4"), "packages.md", "exec"), names)
    wanted = load_model(tiny_study.run_folder("gpt", 4), device="cpu")
    assert same(names["model"].to("cpu"), wanted)
    assert (hub / "me" / "dyck" / "README.md").exists()
