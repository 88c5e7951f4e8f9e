"""ARENA's bracket classifier from a state dict of its shape, held to a plain account of it."""

from __future__ import annotations

import copy
import math
import re
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from tests.reference import reference_logits
from tl_dyck import export_rnn, load_arena
from tl_dyck.kit.files import CorruptFileError
from tl_dyck.models import arena
from tl_dyck.models.arena import arena_tokens, is_balanced
from tl_dyck.report import widgets
from tl_dyck.report.heatmap import token_label
from tl_dyck.rnn import UnsupportedModelError

TEXTS = ["(())", "()", "", "(()", ")(", "()" * 20, "(" * 7 + ")" * 7]


def random_state(
    n_layers: int = 3, d_model: int = 56, n_heads: int = 2, d_mlp: int = 56, n_ctx: int = 42
) -> dict[str, Tensor]:
    """Names and shapes as in ``brackets_model_state_dict.pt``, buffers included."""
    generator = torch.Generator().manual_seed(5)
    d_head = d_model // n_heads

    def draw(*shape: int) -> Tensor:
        return 0.3 * torch.randn(*shape, generator=generator)

    found = {"embed.W_E": draw(5, d_model), "pos_embed.W_pos": draw(n_ctx, d_model)}
    for layer in range(n_layers):
        at = f"blocks.{layer}."
        for norm in ("ln1", "ln2"):
            found |= {f"{at}{norm}.w": 1 + draw(d_model), f"{at}{norm}.b": draw(d_model)}
        for part in "QKV":
            found[f"{at}attn.W_{part}"] = draw(n_heads, d_model, d_head)
            found[f"{at}attn.b_{part}"] = draw(n_heads, d_head)
        found |= {f"{at}attn.W_O": draw(n_heads, d_head, d_model), f"{at}attn.b_O": draw(d_model)}
        found |= {f"{at}mlp.W_in": draw(d_model, d_mlp), f"{at}mlp.b_in": draw(d_mlp)}
        found |= {f"{at}mlp.W_out": draw(d_mlp, d_model), f"{at}mlp.b_out": draw(d_model)}
        found[f"{at}attn.mask"] = torch.ones(n_ctx, n_ctx, dtype=torch.bool).tril()
        found[f"{at}attn.IGNORE"] = torch.tensor(-1e5)
    found |= {"ln_final.w": 1 + draw(d_model), "ln_final.b": draw(d_model)}
    found |= {"unembed.W_U": draw(d_model, 2), "unembed.b_U": draw(2)}
    return found


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("arena") / "brackets_model_state_dict.pt"
    torch.save(random_state(), path)
    return path


@pytest.fixture(scope="module")
def model(file: Path) -> Any:
    return load_arena(file, device="cpu")


def by_hand(model: Any, state: dict[str, Tensor], text: str) -> Tensor:
    """The two logits at the first position, of one string without padding, in float64."""
    weights = {name: value.double().numpy() for name, value in state.items()}
    ids = [0, *(3 if letter == "(" else 4 for letter in text), 2]
    return torch.from_numpy(reference_logits(model.cfg, weights, ids))[0]


def test_logits_are_those_of_a_plain_account_and_padding_changes_none(model):
    tokens = arena_tokens(TEXTS)
    assert tokens.shape == (7, 42)
    with torch.no_grad():
        logits = model(tokens)[:, 0]
        again, cache = model.run_with_cache(tokens)
    for text, row in zip(TEXTS, logits, strict=True):
        assert torch.allclose(row.double(), by_hand(model, random_state(), text), atol=1e-4)
    assert torch.equal(again[:, 0], logits)
    padding = (tokens == 1)[:, None, None, :]
    for layer in range(3):
        assert cache["pattern", layer].masked_select(padding).max() == 0


def test_a_copy_has_its_padding_masked_too(model):
    tokens = arena_tokens(["()", "(())"])
    with torch.no_grad():
        assert torch.equal(copy.deepcopy(model)(tokens), model(tokens))


def test_what_is_balanced():
    def slow(text: str) -> bool:
        while "()" in text:
            text = text.replace("()", "")
        return not text

    texts = [f"{i:b}".replace("0", "(").replace("1", ")") for i in range(1, 600)]
    assert is_balanced(arena_tokens(texts)).tolist() == [slow(text) for text in texts]
    assert is_balanced(arena_tokens([*TEXTS])).tolist() == [slow(text) for text in TEXTS]


def test_other_sizes_and_precisions(tmp_path):
    state = random_state(n_layers=2, d_model=12, n_heads=3, d_mlp=7, n_ctx=9)
    torch.save({name: value.double() for name, value in state.items()}, tmp_path / "x.pt")
    small = load_arena(tmp_path / "x.pt", device="cpu")
    assert (small.cfg.n_layers, small.cfg.n_heads, small.cfg.d_head) == (2, 3, 4)
    with torch.no_grad():
        assert torch.allclose(
            small(arena_tokens("(()"))[0, 0].double(), by_hand(small, state, "(()"), atol=1e-4
        )


def test_what_needs_a_causal_model_refuses_it(model):
    with pytest.raises(UnsupportedModelError, match="3 layers"):
        export_rnn(model)
    shown = widgets.attention(model, arena_tokens("()")[0])  # which needs none: all of 4 x 4
    assert {len(each["weights"]) for each in shown.data["maps"]} == {16}
    (string,) = shown.data["strings"]
    assert string["tokens"] == ["[start]", "(", ")", "[end]"]
    assert [re.sub(r"<.*?>", "", token_label(name)[0]) for name in string["tokens"]] == [
        "start",
        "(",
        ")",
        "end",
    ]


class Evil:
    def __reduce__(self) -> Any:
        return (print, ("this ran",))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ({"x": 1}, "not a state dict"),
        ([1], "not a state dict"),
        ({"a": Evil()}, "is not a state dict"),
        ({"embed.W_E": torch.zeros(5, 4)}, "pos_embed.W_pos is missing"),
        (
            random_state() | {"embed.W_E": torch.zeros(7, 56)},
            r"embed.W_E is \[7, 56\], not of shape",
        ),
        (random_state() | {"blocks.1.attn.W_Q": torch.zeros(2, 5, 28)}, "W_Q"),
        (random_state() | {"extra": torch.zeros(1)}, "missing or unknown extra"),
        (random_state() | {"unembed.b_U": torch.tensor([0, math.nan])}, "unembed.b_U holds nan"),
        (random_state() | {"unembed.b_U": torch.tensor([0, math.inf])}, "unembed.b_U holds nan"),
    ],
)
def test_other_files_are_refused(content, said, tmp_path, capsys):
    torch.save(content, tmp_path / "x.pt")
    with pytest.raises(CorruptFileError, match=said):
        load_arena(tmp_path / "x.pt")
    assert capsys.readouterr().out == ""


def expanded(*shape: int) -> Tensor:
    """All numbers of a tensor are one: `torch.save` writes it alone."""
    return torch.zeros(1).expand(shape or (1,))


WIDE = {"d_model": 4, "d_mlp": 4, "n_layers": 1, "n_ctx": 8}
LARGE = {
    "every weight is one number": {
        **{name: expanded(*each.shape) for name, each in random_state(**WIDE).items()},
        "pos_embed.W_pos": expanded(10**6, 4),
    },
    "an MLP of 10⁹": {
        **random_state(**WIDE),
        "blocks.0.mlp.W_in": expanded(4, 10**9),
        "blocks.0.mlp.b_in": expanded(10**9),
        "blocks.0.mlp.W_out": expanded(10**9, 4),
    },
    "an MLP of 10⁹ that has no weights": {
        **random_state(**WIDE),
        "pos_embed.W_pos": torch.zeros(8, 0),
        "embed.W_E": torch.zeros(5, 0),
        "unembed.W_U": torch.zeros(0, 2),
        "blocks.0.attn.W_Q": torch.zeros(2, 0, 2),
        "blocks.0.mlp.W_in": torch.zeros(0, 10**9),
    },
    "only W_in is large": {**random_state(**WIDE), "blocks.0.mlp.W_in": torch.zeros(4, 3000)},
    "layers of one number": random_state(**WIDE)
    | {f"blocks.{i}.x": torch.zeros(1) for i in range(1, 4000)},
    "heads of one number": {**random_state(**WIDE), "blocks.0.attn.W_Q": torch.zeros(3000, 4, 1)},
    "positions": random_state(**WIDE | {"n_ctx": 5000}) | {"blocks.0.attn.mask": torch.ones(1)},
}


@pytest.mark.parametrize("what", LARGE)
def test_a_model_is_not_built_larger_than_its_file(what, tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    torch.save(LARGE[what], path)
    assert path.stat().st_size < 3 * 2**20
    built = []
    monkeypatch.setattr(arena, "HookedTransformer", lambda *config, **how: built.append(config))
    with pytest.raises(CorruptFileError) as caught:
        load_arena(path)
    assert not built
    assert str(caught.value).isprintable()


def test_an_archive_that_grows_is_not_unpacked(tmp_path, monkeypatch):
    torch.save(random_state(), tmp_path / "x.pt")
    with (
        zipfile.ZipFile(tmp_path / "x.pt") as plain,
        zipfile.ZipFile(tmp_path / "y.pt", "w", zipfile.ZIP_DEFLATED) as packed,
    ):
        for name in plain.namelist():
            packed.writestr(name, plain.read(name) + b"\0" * 2**20)
    monkeypatch.setattr(torch, "load", lambda *data, **how: pytest.fail("it was read"))
    with pytest.raises(CorruptFileError, match="unpacks to"):
        load_arena(tmp_path / "y.pt")


def test_what_is_no_file_or_no_text(tmp_path):
    (tmp_path / "x.pt").write_bytes(b"not a pickle")
    for name in ("x.pt", "nowhere.pt"):
        with pytest.raises(CorruptFileError):
            load_arena(tmp_path / name)
    with pytest.raises(ValueError, match="reads only"):
        arena_tokens(["()", "[]"])
    with pytest.raises(ValueError, match="no text"):
        arena_tokens([])


def test_what_is_coloured_is_given_where_no_token_is_predicted(model):
    tokens = arena_tokens("(())")[0]
    with pytest.raises(ValueError, match=r"2 logits for 5 tokens.*give values"):
        widgets.circuitsvis_tokens(model, tokens)
    widgets.circuitsvis_tokens(model, tokens, torch.arange(6.0)[:, None])
    with pytest.raises(TypeError, match="not Identity"):
        widgets.circuitsvis_tokens(torch.nn.Identity(), tokens)


def test_what_the_model_could_not_read_is_refused():
    assert arena_tokens("(" * 40).shape == (1, 42)
    assert arena_tokens("(" * 41, n_ctx=43).shape == (1, 43)
    for texts, said in (
        (["()", "(" * 41], r"41 brackets: the model reads at most 40 \(n_ctx=42"),
        ("(" * 10**6, "1000000 brackets"),
    ):
        with pytest.raises(ValueError, match=said) as refusal:
            arena_tokens(texts)
        assert len(str(refusal.value)) < 200
    with pytest.raises(ValueError, match="n_ctx must be at least 2"):
        arena_tokens("()", n_ctx=1)


def test_nothing_is_kept_from_one_call_for_the_next(model):
    short, full = arena_tokens(["(())()", "(()"]), arena_tokens(["(())()", "()()()"])
    for tokens in (short, full, full[:1]):
        with torch.no_grad():
            whole, middle = model(tokens), model(tokens, stop_at_layer=1)
            for other in (full, short):  # with and without padding
                model(other)
                with pytest.raises(RuntimeError):  # nor is it by a call that fails
                    model.run_with_hooks(other, fwd_hooks=[("blocks.1.hook_resid_pre", _fails)])
                given = model(middle, start_at_layer=1, tokens=tokens)
                masked = model(middle, start_at_layer=1, attention_mask=tokens != 1)
                assert torch.equal(given, whole)
                assert torch.equal(masked, whole)
                with pytest.raises(ValueError, match="give tokens=…, or attention_mask=…"):
                    model(middle, start_at_layer=1)


def _fails(value: Tensor, hook: Any) -> None:
    raise RuntimeError
