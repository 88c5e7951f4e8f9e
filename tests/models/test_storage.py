"""Models on disk: bit for bit, or a clear error; nothing half-written, nothing silly built."""

from __future__ import annotations

import json
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch.nn.utils import parametrize

from tl_dyck import VocabularyError, load_pretrained, load_task
from tl_dyck.check import WrongValueError
from tl_dyck.files import CorruptFileError
from tl_dyck.models import build_model, get_config, list_models, load_model, save_model
from tl_dyck.models.storage import NotFiniteError, load_weights
from tl_dyck.reading import as_tokens, language_of

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


# --- damage ---------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> Path:
    return save_model(
        build_model(get_config("minimal-onehot", TASK, n_ctx=12)), tmp_path_factory.mktemp("whole")
    )


@pytest.fixture
def folder(whole, tmp_path) -> Path:
    return Path(shutil.copytree(whole, tmp_path / "copy"))


def change(folder: Path, **values: object) -> None:
    """Change entries of config.json; those named config__x belong to the config."""
    path = folder / "config.json"
    saved = json.loads(path.read_text())
    for name, value in values.items():
        where, key = (saved["config"], name[8:]) if name.startswith("config__") else (saved, name)
        if value is ...:
            del where[key]
        else:
            where[key] = value
    path.write_text(json.dumps(saved))


@settings(max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_flipped_byte_or_cut_of_the_weights_is_noticed(whole, data):
    path = whole / "model.safetensors"
    original = path.read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    try:
        path.write_bytes(
            original[:position]
            + bytes([original[position] ^ (1 << position % 8)])
            + original[position + 1 :]
        )
        with pytest.raises(CorruptFileError, match="truncated or was altered"):
            load_model(whole)
        path.write_bytes(original[:position])
        with pytest.raises(CorruptFileError, match="truncated or was altered"):
            load_model(whole)
    finally:
        path.write_bytes(original)
    load_model(whole)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_config_is_an_error_or_read_as_it_is(whole, data):
    path = whole / "config.json"
    original = path.read_bytes()
    position = data.draw(st.integers(0, len(original) - 1))
    byte = data.draw(st.sampled_from(b'0123456789abcdef"{}[],: \x00\xff'))
    try:
        for damaged in (
            original[:position] + bytes([byte]) + original[position + 1 :],
            original[:position],
        ):
            path.write_bytes(damaged)
            try:
                loaded = load_model(whole)
            except CorruptFileError:
                continue
            # white space, or another value that fits the weights: then the model says so
            assert loaded.cfg.to_saved() == json.loads(damaged)["config"]
    finally:
        path.write_bytes(original)


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"config__extra": 1}, "keys missing or unknown: extra"),
        ({"config__ln_c": ...}, "keys missing or unknown: ln_c"),
        ({"config__n_ctx": ...}, "lacks 'n_ctx'"),
        ({"config": ...}, r"keys missing or unknown: \['config'\]"),
        (
            {"config__n_layers": 10**9},
            r"by its sizes blocks.999999999.attn.W_O is .* but the weights have none",
        ),
        ({"config__n_layers": "2"}, "does not describe a Dyck model"),
        ({"config__n_ctx": 10**12}, r"by its sizes pos_embed.W_pos is \[1000000000000, 50\]"),
        ({"config__n_types": 10**9}, "by its sizes unembed.W_U"),
        ({"config__d_mlp": 10**9}, "by its sizes blocks.0.mlp.W_in"),
        ({"config__block": "bare"}, "missing or unknown blocks.0.mlp"),
        ({"config__block": "eq8"}, "unknown block 'eq8'"),
        ({"config__embedding": "token"}, "missing or unknown embed.W_E"),
        ({"config__max_depth": 100}, "d_model=50 is too small"),
        ({"config__dtype": "int8"}, "unknown dtype 'int8'"),
        ({"config__dtype": "float64"}, r"is torch.float32 \[.*\], but the model has torch.float64"),
        ({"config__ln_c": -1.0}, "ln_c must be"),
        ({"config__act_fn": "os.system"}, "unknown act_fn"),
        ({"config__brackets": ["a"]}, "need 4 brackets"),
        ({"config__brackets": [1, 2, 3, 4]}, "does not describe a Dyck model"),
        ({"format": "tl_dyck.model/99"}, "'tl_dyck.model/99', not 'tl_dyck.model/1'"),
        ({"format": ...}, "format in config.json is None"),
        ({"sha256": ...}, r"keys missing or unknown: \['sha256'\]"),
        ({"sha256": 5}, "no SHA-256"),
        ({"sha256": "0" * 64}, "truncated or was altered"),
    ],
)
def test_altered_configs(folder, values, message):
    change(folder, **values)
    with pytest.raises(CorruptFileError, match=message):
        load_model(folder)


def test_weights_of_another_model(random_model):
    model = random_model("gpt")
    good = {name: parameter.detach().clone() for name, parameter in model.named_parameters()}
    before = {name: value.clone() for name, value in good.items()}
    with pytest.raises(CorruptFileError, match=r"missing or unknown unembed.b_U"):
        load_weights(
            model, {name: value for name, value in good.items() if name != "unembed.b_U"}, "here"
        )
    with pytest.raises(CorruptFileError, match="missing or unknown extra"):
        load_weights(model, {**good, "extra": torch.zeros(1)}, "here")
    with pytest.raises(
        CorruptFileError,
        match=r"unembed.b_U in 'here' is torch.float64 \[1\], but the model has torch",
    ):
        load_weights(model, {**good, "unembed.b_U": torch.zeros(1, dtype=torch.float64)}, "here")
    with pytest.raises(
        CorruptFileError, match=r"is torch.float32 \[5\], but the model has torch.float64"
    ):
        load_weights(model, {**good, "unembed.b_U": torch.zeros(5)}, "here")
    for name, parameter in model.named_parameters():
        assert torch.equal(parameter, before[name])
