"""Published adders and models of regular languages: how they are read, and that both routes agree.

Their weights are not here: small ones with the same shapes and random weights are.
"""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from tests.models.test_arena import random_state
from tl_dyck import certify_language, load_arena
from tl_dyck.certify import check_model
from tl_dyck.models.arena import arena_tokens
from tl_dyck.models.hooked import installed
from tl_dyck.tasks import addition_task
from tl_dyck.tasks.tables import all_strings
from tl_dyck_papers import adders, by_hand, decompiled, published, ran
from tl_dyck_papers import sums as board

REGULAR = {
    "012_0_2": r"[012]*02*",
    "ab_d_bc": r"[ab]*d[bc]*",
    "abcde": r"a+b+c+d+e+",
    "aastar": r"(aa)*",
    "aaaastar": r"(aaaa)*",
    "ababstar": r"(abab)*",
    "tomita1": r"1*",
    "tomita2": r"(10)*",
    "tomita4": r"(?!.*000)[01]*",
    "tomita7": r"0*1*0*1*",
}
OTHER: dict[str, Callable[[str], bool]] = {
    "D2": lambda text: depths(text, 2),
    "bce_D3-@1l1h64d3lr00drop": lambda text: depths(text, 3),
    "d_12": lambda text: depths(text, 12),
    "tomita3": lambda text: not re.search(r"(?<!1)1(11)*0(00)*(?!0)", text),
    "tomita5": lambda text: text.count("0") % 2 == 0 and text.count("1") % 2 == 0,
    "tomita6": lambda text: (text.count("0") - text.count("1")) % 3 == 0,
}


def depths(text: str, deepest: int) -> bool:
    found = np.cumsum([1 if each == "a" else -1 for each in text] or [0])
    return bool(found.min() >= 0 and found.max() <= deepest and found[-1] == 0)


@pytest.mark.parametrize("name", sorted(decompiled.REGULAR | OTHER))
def test_languages_are_those_of_their_expressions(name: str) -> None:
    task, alone = decompiled.task_of(name), decompiled.task_of(name, end=False)
    strings = all_strings(task, 7, 100_000)
    assert strings is not None
    whole = {
        task.language.to_string(torch.tensor(row[row >= 0])).removesuffix("$")
        for row in strings
        if (row == len(task.symbols) - 1).any()
    }
    symbols = task.symbols[:-1]
    texts = [""]
    wanted = set()
    for _ in range(7):
        for text in texts:
            fits = OTHER[name](text) if name in OTHER else re.fullmatch(REGULAR[name], text)
            wanted |= {text} if fits else set()
        texts = [text + symbol for text in texts for symbol in symbols]
    assert whole == wanted
    # without an end: the beginnings of what has one
    begun, others = all_strings(alone, 4, 10_000), all_strings(task, 4, 10_000)
    assert begun is not None
    assert others is not None
    others = others[((others >= 0) & (others < len(symbols))).all(1)]
    assert {*map(tuple, begun.tolist())} == {*map(tuple, others.tolist())}


def low_rank(seed: int) -> dict[str, Any]:
    """What a file of such an adder holds."""
    draw = torch.Generator().manual_seed(seed)

    def random(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=draw)

    table = random(14, 4)
    names = {"attn.proj": (4, 4), "mlp.fc1": (4, 8), "mlp.fc2": (8, 4)}
    state = {"token_emb.weight": table, "lm_head.weight": table, "ln_f.weight": random(4)}
    state |= {f"blocks.0.ln{n}.weight": random(4) for n in (1, 2)}
    state |= {"pos_emb.A": random(12, 3), "pos_emb.B": random(3, 4)}
    state |= {f"blocks.0.attn.qkv_{name}": random(3, 4) for name in ("Bq", "Bkv")}
    state |= {"blocks.0.attn.qkv_A": random(4, 3)}
    for name, (rows, columns) in names.items():
        state |= {f"blocks.0.{name}.A": random(rows, 3), f"blocks.0.{name}.B": random(3, columns)}
    config = {"d_model": 4, "d_ff": 8, "max_seq_len": 12, "vocab_size": 14}
    return {"model_state": state, "model_config": config}


def test_products_of_weights_are_those_of_rationals_rounded_once() -> None:
    """So every CPU decides the same model; single precision is off by a last bit somewhere."""
    saved, off = low_rank(0)["model_state"], 0
    found = adders.multiplied(saved)
    attn, mlp = "blocks.0.attn", "blocks.0.mlp"
    for name, left, right in (
        ("pos_embed", "pos_emb.A", "pos_emb.B"),
        (f"{attn}.q", f"{attn}.qkv_A", f"{attn}.qkv_Bq"),
        (f"{attn}.k", f"{attn}.qkv_A", f"{attn}.qkv_Bkv"),
        (f"{attn}.v", f"{attn}.qkv_A", f"{attn}.qkv_Bkv"),
        (f"{mlp}.in", f"{mlp}.fc1.A", f"{mlp}.fc1.B"),
    ):
        columns = [[*map(Fraction, each)] for each in saved[right].T.tolist()]
        rows = [[*map(Fraction, each)] for each in saved[left].tolist()]
        exact = [
            [float(sum(x * y for x, y in zip(row, column, strict=True))) for column in columns]
            for row in rows
        ]
        once = torch.tensor(exact, dtype=torch.float64).float()
        weight = found[f"{name}.weight"]
        assert torch.equal(weight if name == "pos_embed" else weight.T, once)
        off += int((saved[left] @ saved[right] != once).sum())
    assert off > 0


@pytest.mark.skipif(installed.MAJOR < 4, reason="TransformerLens 3 has no bridge of its own")
def test_an_adder_is_read_decided_and_shown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(adders, "_DIGITS", 1)
    monkeypatch.setattr(adders, "_DRAWN", 1000)
    torch.save(low_rank(0), tmp_path / "mine.pt")
    (tmp_path / "notes.txt").write_text("no weights")
    (adder,) = adders.read_adders(tmp_path)
    assert "notes.txt: no file of weights" in capsys.readouterr().out
    assert (
        adder.n_parameters == sum(each.numel() for each in low_rank(0)["model_state"].values()) - 56
    )
    tokens = adder.task.sample(50, seed=0)[:, 1:]
    with torch.no_grad():
        assert torch.allclose(adder.runs(tokens), adder.rnn(tokens).float(), atol=1e-4)
    row = adders.decide(adder, "signs", None)
    assert row["status"] == "refuted"
    prompt, said = row["wrong sums"][0]["prompt"], row["wrong sums"][0]["generated"]
    a, b = prompt[:-1].split("+")
    assert said[:2][::-1] != f"{int(a) + int(b):02d}"
    # all sums, by the model's own forward pass: each answer that is wrong somewhere is refuted
    every = torch.stack([adder.task.language.tokenize(text)[:6] for text in sums()])
    with torch.no_grad():
        wrong = (adder.runs(every)[:, 3:].argmax(-1) != every_next()).any(0)
    assert [each["status"] == "refuted" for each in row["answers"]] == wrong.tolist()
    table = adders.table([row])
    assert f"`{prompt}` gives `{said}`" in table


def arcs(tied: bool) -> dict[str, torch.Tensor]:
    """Weights of an adder whose digits lie on an arc, by its authors' names."""
    draw = torch.Generator().manual_seed(int(tied))
    shapes = {"q_proj": (4, 3), "k_proj": (4, 3), "gate_proj": (2, 3), "up_proj": (2, 3)}
    shapes |= {"down_proj": (3, 2), "ln1": (3,), "ln2": (3,), "ln_f": (3,)}
    shapes |= {"q_norm": (4,), "k_norm": (4,)}
    for name in ("down_proj", "ln2", "k_norm") if tied else ():
        del shapes[name]
    saved = {f"{name}.weight": torch.randn(n, generator=draw) for name, n in shapes.items()}
    arc = {"A": 3.0, "start": -0.4, "stride": 0.2}
    return saved | {f"tok_embed.arc_{name}": torch.tensor(each) for name, each in arc.items()}


def on_arcs(saved: dict[str, torch.Tensor], tokens: torch.Tensor) -> torch.Tensor:
    """What such an adder says, from its authors' description, in double precision."""
    w = {name: each.double() for name, each in saved.items()}
    places = torch.arange(tokens.shape[1]).double()
    angles = w["tok_embed.arc_start"] + torch.arange(10) * w["tok_embed.arc_stride"]
    table = w["tok_embed.arc_A"] * torch.stack([angles.cos(), angles.sin()], 1)

    def normed(x: torch.Tensor, name: str) -> torch.Tensor:
        return x / ((x * x).mean(-1, keepdim=True) + 1e-6).sqrt() * w[f"{name}.weight"]

    def turned(x: torch.Tensor) -> torch.Tensor:
        """Pairs of neighbours as complex numbers, by 1 and 3^-1/2 a place."""
        pairs = torch.view_as_complex(x.reshape(*x.shape[:-1], 2, 2))
        turns = torch.polar(torch.ones(len(places), 2).double(), places[:, None] / w["turn"])
        return torch.view_as_real(pairs * turns).flatten(-2)

    w["turn"] = torch.tensor([1.0, 3.0]).double().sqrt()
    place = (places / 1e4).sin()[:, None].expand(*tokens.shape, 1)
    x = torch.cat([table[tokens], place], -1)
    y = normed(x, "ln1")
    q, k = (y @ w[f"{name}_proj.weight"].T for name in "qk")
    scores = turned(normed(q, "q_norm")) @ turned(
        normed(k, "k_norm" if "k_norm.weight" in w else "q_norm")
    ).transpose(1, 2)
    seen = (scores / 2).masked_fill(places[:, None] < places, -torch.inf).softmax(-1)
    x = x + seen @ k @ w["q_proj.weight"]
    y = normed(x, "ln2" if "ln2.weight" in w else "ln1")
    gate, up = (y @ w[f"{name}_proj.weight"].T for name in ("gate", "up"))
    down = w.get("down_proj.weight", w["gate_proj.weight"].T)
    x = x + (gate * gate.sigmoid() * up) @ down.T
    return normed(x, "ln_f")[..., :2] @ table.T


@pytest.mark.skipif(installed.MAJOR < 4, reason="TransformerLens 3 has no bridge of its own")
@pytest.mark.parametrize("tied", [True, False])
def test_weights_in_a_text_are_read_and_nothing_of_it_is_run(tied: bool, tmp_path: Path) -> None:
    saved = arcs(tied)
    lines = [f'    "{name}": torch.tensor({each.tolist()}),' for name, each in saved.items()]
    text = 'import torch\nopen("run", "w")\nOTHER = {"a": 1}\n_W = {\n' + "\n".join(lines) + "\n}\n"
    (tmp_path / "mine_49p.py").write_text(text, encoding="utf-8")
    arguments = (b"y", b"", b"[1, [2]]", b"['a']")
    unreadable = [b"x = {'q_norm.weight': torch.tensor(%s)}" % each for each in arguments]
    for i, other in enumerate(
        (b"x = 1", b"x = (", b"\xff\0", b"x = {'a': torch.tensor(1)}", *unreadable)
    ):
        (tmp_path / f"other_{i}.py").write_bytes(other)
    (adder,) = adders.read_adders(tmp_path)
    assert not Path("run").exists()
    assert adder.n_parameters == sum(each.numel() for each in saved.values())
    assert adder.n_parameters == (49 if tied else 62)
    tokens = adder.task.sample(50, seed=0)[:, 1:]
    true = on_arcs(saved, tokens)
    with torch.no_grad():
        assert torch.allclose(adder.rnn(tokens).double(), true, atol=1e-4)
        assert torch.allclose(adder.runs(tokens).double(), true, atol=1e-4)


@pytest.mark.parametrize("how", [("a+b=s", "s"), ("0a00b0s", "abs")])
def test_sums_of_the_board_are_written_as_a_task_writes_them(how: tuple[str, str]) -> None:
    """As many as the board tests, with its first, and with Python's own first draw."""
    pairs = board.board_sums()
    assert len(pairs) == 10_010
    assert pairs[5:8] == [(5 * 10**9,) * 2, (1111111111, 8888888889), (1234567890, 9876543210)]
    task = addition_task(10, how[0], least_first=how[1])
    tokens = board.written_sums(task, pairs[:50])
    for row, (a, b) in zip(tokens, pairs, strict=False):
        parts = {"a": f"{a:010d}", "b": f"{b:010d}", "s": f"{a + b:011d}"}
        parts = {name: x[::-1] if name in how[1] else x for name, x in parts.items()}
        assert task.language.to_string(row) == "".join(parts.get(x, x) for x in how[0])
    assert adders.board_wrong(adders.Adder("two", 1, None, None, addition_task(2))) is None


def test_of_an_adder_that_is_right_a_proof_is_left(tmp_path: Path) -> None:
    rnn, task = by_hand.adder(1, 3), addition_task(1, base=3)
    right = adders.Adder("mine", 3, lambda tokens: rnn(tokens).float(), rnn, task)
    row = adders.decide(right, "signs", None, tmp_path / "out")
    assert row["status"] == "proved"
    path = tmp_path / "out" / "mine.proof"
    assert check_model.verdict(path) == (True, row["proof"]["said"])
    assert "after each of 18 strings of 4 to 5 tokens" in row["proof"]["said"]
    assert row["proof"]["bytes"] == path.stat().st_size
    assert "kB, written in" in adders.table([row])
    assert adders.table([row]).splitlines()[2].endswith(": proved |")
    # of the share of all sums: none of 100,000, so 1 − 0.025^(1/100,000) at most
    assert "| 0 of 100,000 [0, 0.0037 %] |" in adders.table([row])
    # without the time for it that is said, and nothing is written
    none = adders.prove(right, tmp_path / "none", 1e-9)
    assert none == {"said": "not proved: none was found in 1e-09 s"}
    assert not (tmp_path / "none").exists()


def sums() -> list[str]:
    return [f"{a}+{b}={(a + b) % 10}{(a + b) // 10}" for a in range(10) for b in range(10)]


def every_next() -> torch.Tensor:
    """The sum's two digits, then <EOS>, which is token 13."""
    return torch.tensor([[int(text[4]), int(text[5]), 13] for text in sums()])


def test_a_folder_of_a_language_is_decided_and_run(tmp_path: Path) -> None:
    import transformers

    config = transformers.GPT2Config(
        vocab_size=6, n_positions=12, n_embd=8, n_layer=1, n_head=2, bos_token_id=2, eos_token_id=4
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.GPT2LMHeadModel(config).eval()
    model.save_pretrained(tmp_path / "D2")
    row = decompiled.decide(tmp_path, "D2", 6, "counted", None)
    assert row["status"] == "refuted"
    assert row["run"]["length"] == 6
    assert row["run"]["off"] < 1e-4
    assert set(row["says"]) != set(row["may"])
    assert f"`{row['shortest']}`" in decompiled.table([row])
    # without the end the same wrong prefixes but those that are wrong about it alone
    alone = decompiled.decide(tmp_path, "D2", 6, "counted", None, end=False)
    assert alone["run"]["length"] == 6
    assert "$" not in alone["may"] + alone["says"]
    assert 0 < alone["run"]["wrong"] < row["run"]["wrong"]


def test_what_has_no_bound_is_written_as_null(tmp_path: Path) -> None:
    row = {"name": "one", "status": "refuted", "seconds": 1.0, "least margin": [-np.inf, -0.5]}
    published.leave(tmp_path, [row], lambda rows: f"{rows[0]['least margin'][0]}")
    (found,) = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert found == row | {"least margin": [None, -0.5]}
    assert (tmp_path / "table.md").read_text() == "-inf"


def test_folders_are_known_by_their_names_and_the_rest_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(decompiled, "decide", lambda folder, name, *_, end: asked.append(name))
    monkeypatch.setattr(decompiled, "leave", lambda out, rows, table: [*rows])
    monkeypatch.setattr("sys.argv", ["decompiled", str(tmp_path)])
    for name in ("parity", "D", "D0", "tomita8", "none"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text("{}")
    with pytest.raises(SystemExit):
        decompiled.main()
    assert "no folder of a model" in capsys.readouterr().err
    (tmp_path / "none" / "config.json").unlink()
    # of D5, which says whether a string belongs, "0" and "1" are symbols, too
    for name, bos in (("bce_D4", 2), ("ababstar-@1l2h64d3lr01drop", 2), ("D5", 4)):
        (tmp_path / name).mkdir()
        config = {"bos_token_id": bos, "eos_token_id": bos + 2}
        (tmp_path / name / "config.json").write_text(json.dumps(config))
    for name, text in (("tomita1", "[]"), ("tomita2", "{")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").write_text(text)
        assert decompiled.left_out(tmp_path / name) == "its config.json is no object of JSON"
        (tmp_path / name / "config.json").unlink()
    decompiled.main()
    assert asked == ["ababstar-@1l2h64d3lr01drop", "bce_D4"]
    said = [line.split(": left out: ") for line in capsys.readouterr().err.splitlines()]
    names = [Path(name.strip("'")).name for name, _ in said]
    assert names == ["D", "D0", "D5", "parity", "tomita8"]
    assert [why for _, why in said if why != "its name is no language's"] == [
        "its BOS and end are not 2 and 4, as of one that says what may follow"
    ]


@pytest.mark.parametrize("low", [0, 7, 31_710_003_300_001, 99_999_999])
@pytest.mark.parametrize("more", [1, 10**6, 12_345_678_901_234])
def test_a_number_between_two_is_rounded_outwards(low: int, more: int) -> None:
    before, _, after = adders._number((low, low + more)).partition(" to ")
    assert low * 0.998 <= float(before) <= low
    assert low + more <= float(after) <= (low + more) * 1.002
    assert adders._number((low, low)) == f"{low:,}"
    assert "to" not in adders._number((low, 10**20))


def counted(x: Fraction, longest: int, exactness: int) -> list[Fraction]:
    """What tracr's steps make of 1/(1 + n): how much of each n, exactly."""

    def step(threshold: Fraction) -> Fraction:
        over = exactness * (x - threshold)
        return max(over + 1, Fraction(0)) - max(over, Fraction(0))

    values = [Fraction(1, 1 + n) for n in range(longest + 1)]
    steps = [step((a + b) / 2) for a, b in itertools.pairwise(values)]
    return [above - below for above, below in zip([*steps, 1], [0, *steps], strict=True)]


@pytest.mark.parametrize("exactness", [100, 1000])
def test_programs_count_as_their_steps_do_and_wrongly_from_ten_on(exactness: int) -> None:
    longest = 14
    everything = torch.ones(1, 1)
    model = ran.selector_width(everything, longest, float(exactness))
    said = []
    for n in range(1, longest + 1):
        logits = ran.last_of(model, 1, torch.zeros(1, n, dtype=torch.int64))[0]
        exact = counted(Fraction(1, 1 + n), longest, exactness)
        np.testing.assert_allclose(logits.detach(), np.array(exact, dtype=float), atol=1e-4)
        said.append(int(logits.argmax()))
    assert said[:9] == [*range(1, 10)]
    assert said[9:] == ([9, 10, 11, 12, 13] if exactness == 100 else [*range(10, 15)])


def test_programs_select_what_they_should() -> None:
    hist, count = ran.compiled(6)
    for string in itertools.product(range(3), repeat=5):
        tokens = torch.tensor([string])
        assert int(hist.says(tokens).argmax()) == string.count(string[-1])
        assert int(count.says(tokens).argmax()) == string.count(0)
    assert ran.decide(hist, 2000, "signs", None)["status"] == "proved"


def test_programs_of_one_layer_are_decided_as_by_running_them() -> None:
    for whole in ran.compiled():
        model = whole.says.args[0]  # type: ignore[attr-defined]
        found, wanted = (
            certify_language(each, whole.task, range(1, 6)) for each in (model, whole.says)
        )
        assert (found.method, wanted.method) == ("paths of a graph", "strings run")
        for row, other in zip(found.by_length, wanted.by_length, strict=True):
            assert (row.prefixes, row.wrong) == (other.prefixes, other.wrong) == (3**row.length, 0)
            assert row.margin == pytest.approx(other.margin, abs=1e-4)  # which is of float32
        wrong = certify_language(model, whole.task, range(1, 13), until="signs")
        assert wrong.is_shortest
        assert len({*wrong.shortest.tokens}) == 1
        assert len(wrong.shortest.tokens) == 10


def test_a_classifier_of_brackets_is_run_and_told(tmp_path: Path) -> None:
    """One of ARENA's shape that always says "balanced" is wrong on a single bracket."""
    weights = random_state(1, 8, 2, 8, 10)
    weights["unembed.b_U"] = torch.tensor([0.0, 100.0])
    file = tmp_path / "brackets_model_state_dict.pt"
    torch.save(weights, file)
    whole = ran.arena(file)
    assert whole.longest == 8
    texts = ["(())", "())(", "()()()"]
    for text in texts:
        (said,) = whole.says(whole.task.language.parse(text)[None])
        wanted = load_arena(file)(arena_tokens(text, n_ctx=10))[0, 0]
        torch.testing.assert_close(said, wanted)
    row = ran.decide(whole, 50, "signs", None)
    assert (row["status"], row["right to"]) == ("refuted", -1)
    assert row["shortest"] in ("(", ")")
    assert (row["says"], row["right"]) == ("answer 1", "answer 0")
    assert row["run to"] == 4
    assert "| **refuted** | -1 |" in ran.table([row])
