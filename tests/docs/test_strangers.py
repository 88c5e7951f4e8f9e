"""The table of what strangers bring: each row's lines are typed, and what comes out is compared.

``python -m tests.docs.test_strangers`` writes what comes out now into the page.
"""

from __future__ import annotations

import ast
import contextlib
import gzip
import os
import re
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, OPTConfig, OPTForCausalLM

import tl_dyck
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.models.hooked.installed import MAJOR

pytestmark = [
    pytest.mark.global_rng,
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated"),
    pytest.mark.filterwarnings("ignore::tl_dyck.language.VocabularyWarning"),
]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "findings" / "strangers.md"
_CELL = re.compile(r"`` (.+?) ``")
_ONLY_4 = ("bridge", "odd_bridge")
_LEAST = 12
_LONGEST = 130


class Row(NamedTuple):
    """A row of the table."""

    what: str
    typed: tuple[str, ...]
    out: str


def rows(text: str) -> list[Row]:
    """The rows that have lines to type."""
    found = []
    for line in text.splitlines():
        cells = line.strip("|").split(" | ") if line.startswith("| ") else []
        if len(cells) == 3 and _CELL.search(cells[1]):
            typed = tuple(_CELL.findall(cells[1]))
            found.append(Row(cells[0].strip(), typed, _CELL.findall(cells[2])[0]))
    return found


# --- what they bring ------------------------------------------------------------------------------

SIZES = {"n_layers": 1, "d_model": 16, "n_heads": 2, "d_head": 8, "n_ctx": 24, "act_fn": "relu"}


def drawn(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=weight.dtype) / 3)
    return model.eval()


def gpt2(folder: str, vocab_size: int, seed: int, shards: str = "1GB", **more: Any) -> None:
    sizes = {"n_positions": 28, "n_embd": 16, "n_layer": 1, "n_head": 2, "bos_token_id": 1}
    config = GPT2Config(**{**sizes, "vocab_size": vocab_size, "eos_token_id": 0, **more})
    drawn(GPT2LMHeadModel(config), seed).save_pretrained(folder, max_shard_size=shards)


def hooked(d_vocab: int, seed: int, **more: Any) -> Any:
    cfg = HookedTransformerConfig(
        **{**SIZES, "d_vocab": d_vocab, "device": "cpu", "init_weights": False, **more}
    )
    return drawn(HookedTransformer(cfg), seed)


def brought() -> dict[str, Any]:
    """The names that rows use; files lie in the working folder."""
    gpt2("gpt2", 6, 0)
    gpt2("sets", 6, 1, bos_token_id=2, eos_token_id=4)
    gpt2("no-bos", 6, 2)
    gpt2("deep", 6, 3, n_layer=2)
    small = {"hidden_size": 8, "num_hidden_layers": 1, "ffn_dim": 8, "num_attention_heads": 1}
    OPTForCausalLM(OPTConfig(vocab_size=6, **small)).save_pretrained("opt")
    kept = hooked(6, 4)
    state = {f"_orig_mod.{name}": weight for name, weight in kept.named_parameters()}
    torch.save(state, "weights.pt")
    weights = {name: weight.detach() for name, weight in kept.named_parameters()}
    wrapped = {f"module._orig_mod.{name}": weight for name, weight in weights.items()}
    torch.save({"model_state_dict": wrapped, "epoch": 3}, "epoch.pt")
    torch.save(kept, "whole.pt")
    gpt2("sharded", 6, 12, shards="2KB", n_inner=10, tie_word_embeddings=False)
    theirs = GPT2LMHeadModel.from_pretrained("gpt2").state_dict()
    Path("old").mkdir()
    Path("old", "config.json").write_bytes(Path("gpt2", "config.json").read_bytes())
    torch.save(theirs, "old/pytorch_model.bin")
    linear = ("c_attn.weight", "c_proj.weight", "c_fc.weight")
    turned = {name: w.T if name.endswith(linear) else w for name, w in theirs.items()}
    sizes = {"n_layer": 1, "n_head": 2, "n_embd": 16, "block_size": 28, "vocab_size": 6}
    torch.save({"model": turned, "model_args": {**sizes, "bias": True}, "config": {}}, "nano.pt")
    text = "(a (b b) a) END\n(b b) (a (a a) a) END\n"
    files = {
        "hewitt.txt": text.encode(),
        "windows.txt": b"\xef\xbb\xbf" + text.replace("\n", "\r\n").encode(),
        "joined.txt": b"(a(bb)a)\n(bb)(a(aa)a)",
        "packed.gz": gzip.compress(text.encode()),
        "spaced.txt": b"[ ( ) ] END\n[ ] ( [ ( ) ] ) END\n",
        "plain.txt": b"[()]\n[]([()])\n",
        "words.txt": b"push push pop pop END\npush pop\n",
        "broken.txt": b"(a a)\n(a (b a) b)\n",
        "latin.txt": b"(a a)\n\xe9\n",
        "empty.txt": b"",
        "middle.txt": b"(a a) END (b b) END\n",
        "tabs.txt": b"\xef\xbb\xbf(a\t(b  b)\ta) END\r\n\r\n  (a a)",
        "mac.txt": b"(a a)\r(b b)\r",
        "table.csv": b"string,label\n(a a),1\n",
        "utf16.txt": "(a a)\n".encode("utf-16"),
        "cut.gz": gzip.compress(text.encode())[:-9],
        "zipped.txt": gzip.compress(text.encode()),
    }
    for name, data in files.items():
        Path(name).write_bytes(data)
    found: dict[str, Any] = {
        "ours": hooked(5, 5),
        "dead": hooked(6, 6, d_vocab_out=8),
        "classes": hooked(6, 7, d_vocab_out=2),
        "bidirectional": hooked(6, 8, attention_dir="bidirectional"),
        "cfg": kept.cfg,
    }
    if MAJOR >= 4:
        from transformer_lens import TransformerBridgeConfig
        from transformer_lens.model_bridge import TransformerBridge

        for name, norm in (("bridge", "LN"), ("odd_bridge", "RMS")):
            config = TransformerBridgeConfig(
                **SIZES, d_vocab=6, d_mlp=16, normalization_type=norm,
                architecture="TransformerLensNative", device="cpu",
            )  # fmt: skip
            found[name] = drawn(TransformerBridge.boot_native(config), 9)
    return found


def prepared(text: str) -> dict[str, Any]:
    """The names that the page's first block makes, and those of `brought`."""
    space = {name: getattr(tl_dyck, name) for name in tl_dyck.__all__}
    block = re.search(r"```python\n(.*?)```", text, re.DOTALL)
    assert block is not None
    exec(block[1], space)  # the page's own lines
    return {**space, **brought()}


def answer(row: Row, space: dict[str, Any]) -> str:
    """What the last line gives; or the error, in one line."""
    own = dict(space)
    *before, last = ast.parse("\n".join(row.typed)).body
    assert isinstance(last, ast.Expr)
    try:
        exec(compile(ast.Module(before, []), "typed", "exec"), own)
        found = eval(compile(ast.Expression(last.value), "typed", "eval"), own)
    except (ValueError, TypeError) as error:
        return f"{type(error).__name__}: {error}"
    return str(found)


@contextlib.contextmanager
def elsewhere() -> Iterator[None]:
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as folder:
        os.chdir(folder)
        try:
            yield
        finally:
            os.chdir(before)


def test_what_is_typed_gives_what_the_page_says() -> None:
    text = PAGE.read_text(encoding="utf-8")
    with elsewhere(), torch.random.fork_rng(devices=[]):
        space = prepared(text)
        for row in rows(text):
            if MAJOR < 4 and any(name in " ".join(row.typed) for name in _ONLY_4):
                continue
            found = answer(row, space)
            assert "\n" not in found
            shown = row.out.removesuffix(" …")
            assert found.startswith(shown) if shown != row.out else found == shown, row


def test_there_are_a_dozen_of_each_kind() -> None:
    models, data = PAGE.read_text(encoding="utf-8").split("\n## Strings and tasks")
    assert len(rows(models)) >= _LEAST
    assert len(rows(data)) >= _LEAST


def _cut(found: str) -> str:
    """Not the numbers at an error's end, nor all of a long one."""
    if len(found) > _LONGEST:
        found = found[:_LONGEST].rpartition(" ")[0] + " …"
    return found


def write() -> None:
    """The page with what comes out now."""
    text = PAGE.read_text(encoding="utf-8")
    with elsewhere(), torch.random.fork_rng(devices=[]), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        space = prepared(text)
        for row in rows(text):
            found = answer(row, space)
            print(*row.typed, found, sep="\n  ")
            if not found.startswith(row.out.removesuffix(" …")):
                typed = "<br>".join(f"`` {line} ``" for line in row.typed)
                old = f"| {row.what} | {typed} | `` {row.out} `` |"
                assert old in text, old
                text = text.replace(old, f"| {row.what} | {typed} | `` {_cut(found)} `` |")
    PAGE.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    write()
