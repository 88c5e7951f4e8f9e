"""Models on disk: bit for bit, or a clear error; nothing half-written, nothing silly built."""

from __future__ import annotations

from functools import partial

import pytest
import torch
from torch.nn.utils import parametrize

from tl_dyck import VocabularyError, load_pretrained, load_task
from tl_dyck.kit.check import WrongValueError
from tl_dyck.models import build_model, get_config, list_models, load_model, save_model
from tl_dyck.models.storage import NotFiniteError
from tl_dyck.reading.inputs import as_tokens, language_of

TASK = "dyck-2-4"
TASK_ = load_task(TASK)


@pytest.mark.parametrize("family", list_models())
def test_round_trip_bit_for_bit(random_model, family, tmp_path):
    model = random_model(family)
    folder = save_model(model, tmp_path / "a" / "b")
    assert sorted(path.name for path in folder.iterdir()) == ["config.json", "model.safetensors"]
    loaded = load_model(folder)
    assert loaded.cfg.to_saved() == model.cfg.to_saved()
    for (name, mine), (other, theirs) in zip(
        model.named_parameters(), loaded.named_parameters(), strict=True
    ):
        assert name == other
        assert mine.dtype == theirs.dtype
        assert torch.equal(mine, theirs)
        assert mine.requires_grad == theirs.requires_grad
    assert torch.equal(loaded("[()]"), model("[()]"))
    assert loaded.generate("[", 5, do_sample=False) == model.generate("[", 5, do_sample=False)


def test_saving_again_replaces(random_model, tmp_path):
    save_model(random_model("gpt"), tmp_path)
    save_model(random_model("minimal-yao", dtype=torch.bfloat16), str(tmp_path))
    assert load_model(str(tmp_path)).cfg.model_name == "minimal-yao"


def test_frozen_values_that_someone_changed_are_kept(random_model, tmp_path):
    model = random_model("gpt-linear")
    with torch.no_grad():
        model.pos_embed.W_pos += 1
    assert torch.equal(load_model(save_model(model, tmp_path)).W_pos, model.W_pos)


@pytest.mark.filterwarnings("ignore:process_weights_ of this")
def test_what_the_config_does_not_describe_is_not_saved(random_model, tmp_path):
    model = random_model("gpt")
    model.process_weights_()
    with pytest.raises(ValueError, match="process_weights_ has folded the LayerNorms"):
        save_model(model, tmp_path)
    model = random_model("gpt", dtype=torch.float32)
    model.double()  # behind TransformerLens' back
    with pytest.raises(
        ValueError,
        match=r"weights are torch.float64, but model.cfg.dtype is torch.float32; .* model.to",
    ):
        save_model(model, tmp_path)
    model.to(torch.float64)
    assert load_model(save_model(model, tmp_path)).cfg.dtype == torch.float64


WRAPPERS = {
    "compile": partial(torch.compile, backend="eager"),
    "DataParallel": torch.nn.DataParallel,
    "Sequential": torch.nn.Sequential,
    "both": lambda model: torch.nn.Sequential(torch.compile(model, backend="eager")),
}


@pytest.mark.parametrize("wrap", WRAPPERS.values(), ids=WRAPPERS)
def test_what_torch_puts_around_a_model_stays_behind(random_model, wrap, tmp_path):
    model = random_model("minimal-onehot")
    loaded = load_model(save_model(wrap(model), tmp_path))
    assert type(loaded) is type(model)
    assert torch.equal(loaded("[()]"), model("[()]"))
    assert TASK_.closing_accuracy(loaded, n=5) == TASK_.closing_accuracy(model, n=5)


def test_a_wrapped_model_is_asked_for_its_vocabulary():
    """As the model itself would be: `closing_accuracy` runs any function of tokens."""
    other = build_model(get_config("gpt", "dyck-3-4"))
    for wrap in (torch.nn.DataParallel, torch.nn.Sequential):
        with pytest.raises(VocabularyError, match="3 types of brackets, not 2"):
            TASK_.closing_accuracy(wrap(other), n=5)
        with pytest.raises(TypeError, match=r"not .*; give the DyckTransformer inside it"):
            as_tokens(wrap(other), "[]")
        with pytest.raises(TypeError, match=r"not .*; give the DyckTransformer inside it"):
            language_of(wrap(other))


def _parametrised(model):
    parametrize.register_parametrization(model.blocks[0].attn, "W_O", torch.nn.Identity())


def _widened(model):
    model.unembed.W_U = torch.nn.Parameter(torch.zeros(50, 7, dtype=torch.float64))


def _extended(model):
    model.extra = torch.nn.Parameter(torch.zeros(2, dtype=torch.float64))


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (_parametrised, "blocks.0.attn.W_O"),
        (_widened, "unembed.W_U"),
        (_extended, "extra"),
    ],
)
def test_what_could_not_come_back_is_refused_before_anything_is_written(
    random_model, change, named, tmp_path
):
    model = random_model("gpt")
    save_model(model, tmp_path / "old")
    before = {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()}
    change(model)
    for folder in (tmp_path / "old", tmp_path / "new"):
        with pytest.raises(ValueError, match=rf"^{named} is not what .*state_dict\(\)$"):
            save_model(model, folder)
    assert not (tmp_path / "new").exists()
    assert {path.name: path.read_bytes() for path in (tmp_path / "old").iterdir()} == before


def test_a_model_without_numbers_is_refused(random_model, tmp_path):
    model = random_model("gpt")
    torch.nn.Module.to(model, "meta")
    for ask in (
        lambda: save_model(model, tmp_path / "new"),
        lambda: TASK_.closing_accuracy(model, n=5),
        lambda: TASK_.closing_accuracy(torch.nn.DataParallel(model), n=5),
        lambda: as_tokens(model, "[]"),
    ):
        with pytest.raises(WrongValueError, match=r"\w is on the meta device, which keeps shapes"):
            ask()
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("family", ["gpt", "minimal-onehot"])
@pytest.mark.parametrize("how", ["half", "bfloat16", "double"])
def test_a_converted_model_runs_or_says_what_to_do(random_model, family, how):
    model = random_model(family, dtype=torch.float32)
    getattr(model, how)()  # behind TransformerLens' back
    try:
        model("[]")
    except RuntimeError:
        for ask in (lambda: TASK_.closing_accuracy(model, n=5), lambda: as_tokens(model, "[]")):
            with pytest.raises(WrongValueError, match=r"cannot run: .* model.to\(dtype\)"):
                ask()
        model.to(next(model.parameters()).dtype)
    assert 0 <= TASK_.closing_accuracy(model, n=5).any_token <= 1


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
def test_weights_that_are_no_numbers(random_model, value, tmp_path):
    model = random_model("gpt")
    with torch.no_grad():
        model.unembed.W_U[3, 1] = value
    save_model(model, tmp_path / "own" / "first")
    for load in (
        lambda: load_model(tmp_path / "own" / "first"),
        lambda: load_pretrained("own/first", tmp_path),
    ):
        with pytest.raises(NotFiniteError, match=r"weight unembed.W_U holds nan or infinite"):
            load()
    kept = load_model(tmp_path / "own" / "first", diverged=True)
    assert torch.equal(kept.W_U.isfinite(), model.W_U.isfinite())
