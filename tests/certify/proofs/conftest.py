"""Proofs of a language, and the models that they are of."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.certify.proofs.changed import make_automaton, make_edits, make_language
from tests.certify.proofs.common import PAIR
from tl_dyck import construct
from tl_dyck.certify.language_proofs import prove_language
from tl_dyck.models import build_model, get_config, save_model
from tl_dyck.tasks import DyckTask


@pytest.fixture(scope="module")
def proof(tmp_path_factory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("proof")
    task = DyckTask(name="d", n_types=2, max_depth=3, train_lengths=(4,), long_lengths=(8, 8))
    model = construct.balanced(task.language, n_ctx=16)
    save_model(model, folder / "model")
    return prove_language(model, task, 20).save(folder / "a.proof"), folder / "model"


@pytest.fixture(scope="module")
def little(tmp_path_factory) -> tuple[Path, Path]:
    """A proof that is checked in a moment, and its model: right up to 8, wrong at 9."""
    return make_language(tmp_path_factory.mktemp("little"))


@pytest.fixture(scope="module")
def edits(tmp_path_factory) -> tuple[Path, Path]:
    """A proof of a few parts, of a margin of 0.01, and its exported RNN."""
    return make_edits(tmp_path_factory.mktemp("edits"))


@pytest.fixture(scope="module")
def automaton(tmp_path_factory) -> tuple[Path, Path]:
    """A proof of several parts, of a margin of 0.01, and its exported RNN."""
    return make_automaton(tmp_path_factory.mktemp("automaton"))


@pytest.fixture(scope="module")
def pair(tmp_path_factory) -> tuple[Path, Path, Path]:
    """A proof that two models agree, and the models."""
    folder, models = tmp_path_factory.mktemp("pair"), []
    options = {"dtype": torch.float64, "d_mlp": 4, "initializer_range": 0.7}
    for name in ("one", "two"):
        model = build_model(get_config("minimal-split", PAIR, **options), 21)
        with torch.no_grad():
            model.unembed.b_U[0] += 0.01 * (name == "two")
        models.append(model)
        save_model(model, folder / name)
    proof = prove_language(models[0], PAIR, 6, "agree", other=models[1])
    return proof.save(folder / "a.proof"), folder / "one", folder / "two"
