"""The playground without a browser: the exact law, weights in few bytes, what is refused."""

from __future__ import annotations

import base64
import itertools
import re
from typing import Any

import numpy as np
import pytest
import torch

from tests.cases import UNWRITTEN, plain_model
from tests.foreign import VOCABULARY, foreign
from tests.report.conftest import EVIL, EVIL_BRACKETS
from tests.report.pages import data_block, read_page, whole_page
from tl_dyck import (
    DyckStringError,
    DyckTask,
    adopt,
    build_model,
    construct,
    get_config,
    load_task,
    write_playground,
)
from tl_dyck.report.playground import UnplayableModelError
from tl_dyck.report.playground.page import law_table, opening_law
from tl_dyck.report.playground.weights import pack

TASK = load_task("dyck-2-4")


def model_of(family: str = "gpt", task: DyckTask = TASK, seed: int = 0, **fields: Any) -> Any:
    return build_model(get_config(family, task, **fields), seed=seed)


@pytest.mark.parametrize("mode", ["complete", "prefix"])
@pytest.mark.parametrize("q", [0.5, 0.3])
def test_the_law_is_what_counting_all_training_strings_gives(mode, q):
    task = DyckTask(
        name="small", n_types=1, max_depth=3, q=q, mode=mode, train_lengths=(2, 4, 4, 8)
    )
    mass = np.zeros((9, 4, 2))  # of strings with these at a position, and which bracket follows
    for length in task.train_lengths:
        strings, chances = [], []
        for steps in itertools.product((1, -1), repeat=length):
            depths = np.concatenate([[0], np.cumsum(steps)])
            if depths.min() < 0 or depths.max() > 3 or (mode == "complete" and depths[-1]):
                continue
            chance = 1.0
            for depth, step in zip(depths[:-1], steps, strict=True):
                opens = 1.0 if depth == 0 else 0.0 if depth == 3 else q
                chance *= opens if step == 1 else 1 - opens
            strings.append((depths, steps))
            chances.append(chance)
        for (depths, steps), chance in zip(strings, chances, strict=True):
            for at, step in enumerate(steps):
                mass[at, depths[at], 0 if step == 1 else 1] += chance / sum(chances)
    with np.errstate(invalid="ignore"):
        wanted = mass[..., 0] / mass.sum(-1)
    found = opening_law(task)
    there = mass.sum(-1) > 0
    assert np.allclose(found[there], wanted[there], atol=1e-12)
    assert there.sum() > 8


def test_nothing_follows_the_longest_string_and_what_no_string_is():
    found = opening_law(TASK)
    assert np.isnan(found[26]).all()
    assert np.isnan(found[25, 2])  # two are open and one is left
    assert law_table(TASK)["open"][25] == [None, 0.0, None, None, None]
    assert law_table(TASK)["free"] == [1.0, 0.5, 0.5, 0.5, 0.0]


def steep(model: Any) -> Any:
    """A model in float64 of which the last digits matter."""
    with torch.no_grad():
        model.unembed.W_U *= 1e6
    return model


def read_back(packed: dict[str, Any]) -> dict[str, np.ndarray]:
    data = base64.b64decode(packed["data"])
    widths = [shape[1] for shape in packed["shapes"].values()]
    scales = np.frombuffer(data, "<f4", sum(widths)) if packed["bits"] == 16 else None
    kind = {16: "<i2", 32: "<f4", 64: "<f8"}[packed["bits"]]
    whole = np.frombuffer(data, kind, offset=4 * sum(widths) if packed["bits"] == 16 else 0)
    found, at, column = {}, 0, 0
    for name, (rows, width) in packed["shapes"].items():
        matrix = whole[at : at + rows * width].reshape(rows, width).astype(float)
        found[name] = matrix * scales[column : column + width] if scales is not None else matrix
        at, column = at + rows * width, column + width
    assert at == len(whole)
    return found


@pytest.mark.parametrize(
    ("model", "bits"),
    [
        (model_of("minimal-onehot"), 16),
        (model_of("gpt-learned", n_heads=2, initializer_range=2.0), 32),
        (steep(construct.stack(TASK.language)), 64),
        (construct.stack(TASK.language), 16),
    ],
)
def test_weights_are_there_in_the_bits_that_they_take(model, bits):
    strings = torch.cat(
        [torch.full((8, 1), 4), TASK.distribution.sample(8, 20, mode="prefix")], dim=1
    )
    packed = pack(model, 21, strings)
    assert packed["bits"] == bits
    found = read_back(packed)
    value = model.blocks[0].attn.W_O.detach().double().flatten(0, 1).numpy()
    assert np.abs(found["0.W_O"] - value).max() <= {16: 2e-5, 32: 1e-6, 64: 0}[bits] * max(
        1, np.abs(value).max()
    )
    query = model.blocks[0].attn.W_Q.detach().double()
    heads = found["0.W_Q"].reshape(model.cfg.d_model, model.cfg.n_heads, model.cfg.d_head)
    assert np.allclose(heads.swapaxes(0, 1), query.numpy(), rtol=1e-4, atol=1e-4)
    if bits == 32:
        assert found["pos"].shape == (21, 50)


def test_eight_seeds_of_a_gpt_are_less_than_three_megabytes(tmp_path):
    models = [model_of("gpt-learned", seed=seed) for seed in range(8)]
    done: list[float] = []
    path = tmp_path / "new" / "play.html"
    page = write_playground(models, path, task="dyck-2-4", progress=done.append)
    assert done == [n / 8 for n in range(1, 9)]
    assert 1e5 < page.stat().st_size < 3e6
    assert [each["name"] for each in data_block(read_page(page))["models"]] == [
        f"seed {i}" for i in range(8)
    ]


def adopted(shape: str, **fields: Any) -> Any:
    return adopt(foreign(shape, **fields), VOCABULARY)


@pytest.mark.parametrize("shape", ["one-layer", "attn-only", "three-layers", "no-norm", "gpt2"])
def test_an_adopted_model_is_packed_with_all_its_tokens(shape):
    model = adopted(shape)
    strings = TASK.sample(8, seed=0)
    packed = pack(model, 27, strings)
    found = read_back(packed)
    assert found["W_U"].shape[1] == found["b_U"].shape[1] == len(found["embed"]) == 8
    for name, value in (("embed", model.W_E), ("W_U", model.W_U), ("pos", model.W_pos[:27])):
        assert np.allclose(found[name], value.detach().double().numpy(), atol=1e-4)
    assert ("ln_final.w" in found) == (shape != "no-norm")
    assert ("0.W_in" in found) == (shape in ("three-layers", "gpt2"))


def test_the_page_is_whole_and_shows_names_as_text(tmp_path):
    models = {EVIL_BRACKETS[0]: model_of("minimal-yao", EVIL)}
    path = write_playground(models, tmp_path / "play.html", task=EVIL)
    page = whole_page(path, n_scripts=1)
    assert data_block(page)["language"]["brackets"] == list(EVIL_BRACKETS)


@pytest.mark.parametrize(
    ("models", "said"),
    [
        ([], "1 to 32 models, not 0"),
        ([model_of("figure2-yao")] * 33, "1 to 32 models, not 33"),
        ([plain_model("plain", torch.float32, 30)], "'seed 0' is no Dyck model"),
        ([model_of(), model_of(task=load_task("dyck-3-4"))], "'seed 1' DyckLanguage(n_types=3"),
        ([model_of(act_fn=UNWRITTEN)], f"does not know the activation {UNWRITTEN!r} of 'gpt'"),
        ([model_of(dtype=torch.bfloat16)], "computes in torch.bfloat16"),
        ([adopted("bidirectional")], "attention_dir='bidirectional' is not supported"),
        ([adopted("one-layer", d_vocab_out=2)], "2 logits for 8 tokens, so it predicts no tokens"),
    ],
)
def test_what_the_page_cannot_show_is_refused_by_name(models, said, tmp_path):
    with pytest.raises(UnplayableModelError, match=re.escape(said)):
        write_playground(models, tmp_path / "play.html")
    assert not (tmp_path / "play.html").exists()


def test_other_wrong_arguments(tmp_path):
    broken, folded = model_of("gpt-uniform"), model_of()
    with torch.no_grad():
        broken.unembed.b_U[0] = float("nan")
    folded.process_weights_()
    with pytest.raises(UnplayableModelError, match="not finite"):
        write_playground([broken], tmp_path / "x.html")
    with pytest.raises(UnplayableModelError, match="process_weights_ has folded"):
        write_playground([folded], tmp_path / "x.html")
    with pytest.raises(UnplayableModelError, match="'dyck-3-4' is of"):
        write_playground([model_of()], tmp_path / "x.html", task="dyck-3-4")
    with pytest.raises(DyckStringError):
        write_playground([model_of()], tmp_path / "x.html", string="[)")
    with pytest.raises(IsADirectoryError, match=r"playground\.html"):
        write_playground([model_of()], tmp_path)
