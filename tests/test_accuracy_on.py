"""Accuracy on given strings, by length, depth and need, against one place after the other."""

from __future__ import annotations

from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch

from tests.doors import ended
from tl_dyck import (
    DyckLanguage,
    UnknownNameError,
    Vocabulary,
    VocabularyError,
    accuracy_on,
    adopt,
    build_model,
    construct,
    export_rnn,
    get_config,
    load_task,
    read_strings,
)
from tl_dyck.language import DyckStringError
from tl_dyck.models.hooked import HookedTransformer, HookedTransformerConfig
from tl_dyck.tasks import AutomatonTask

pytestmark = [
    pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated"),
    pytest.mark.filterwarnings("ignore::tl_dyck.language.VocabularyWarning"),
]
TASK = load_task("dyck-3-3")
ALPHABET = "[](){}"


def random_model(task: Any, seed: int, **more: Any) -> Any:
    n = len(task.language.alphabet)
    sizes = {
        "n_layers": 1, "d_model": 8, "n_heads": 2, "d_head": 4, "n_ctx": 20, "d_vocab": n + 1,
        "act_fn": "relu", "device": "cpu", "dtype": torch.float64, "init_weights": False,
    }  # fmt: skip
    model = HookedTransformer(HookedTransformerConfig(**{**sizes, **more}))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    return model.eval()


def sampled(task: Any, n: int = 60) -> list[str]:
    rows = [*task.sample(n, seed=1), *task.sample(3, long=False, seed=2)]
    return [task.language.to_string(row) for row in rows]


def last(model: Any, ids: list[int]) -> np.ndarray:
    with torch.no_grad():
        return model(torch.tensor([ids]))[0, -1].numpy()


def by_hand(
    model: Any, texts: list[str], claim: str, above: float = 0.0, bos: list[int] | None = None
) -> dict[tuple[str, Any], Counter[str]]:
    """Of brackets: places and right ones of each length, depth and need."""
    found: dict[tuple[str, Any], Counter[str]] = defaultdict(Counter)
    start = [6] if bos is None else bos
    for text in texts:
        stack: list[int] = []
        ids = [ALPHABET.index(x) for x in text]
        asked = fine = 0
        for at in range(len(ids) + 1):
            if at:
                stack = stack[:-1] if ids[at - 1] % 2 else [*stack, ids[at - 1] // 2]
            if not at and not start:
                continue
            logits = last(model, [*start, *ids[:at]])
            if claim == "any_token":
                if at == len(ids) or not ids[at] % 2:
                    continue
                right = logits.argmax() == ids[at]
            else:
                may = [
                    (len(stack) < 3) if x % 2 == 0 else bool(stack) and stack[-1] == x // 2
                    for x in range(6)
                ]
                right = [bool(x > above) for x in logits[:6]] == may
            need = "stack" if len({*stack}) > 1 else "counter"
            if at and not ids[at - 1] % 2:
                need = "previous" if claim == "any_token" else "counter"
            need = need if at else "previous"
            for key in (("length", len(ids)), ("depth", len(stack)), ("needs", need), ("all", 0)):
                found[key]["places"] += 1
                found[key]["right"] += int(right)
            asked, fine = asked + 1, fine + int(right)
        if asked:
            for key in (("length", len(ids)), ("all", 0)):
                found[key]["strings"] += 1
                found[key]["whole"] += asked == fine
    return found


def compare(found: Any, wanted: dict[tuple[str, Any], Counter[str]]) -> None:
    every = wanted.pop(("all", 0))
    assert (found.places, found.strings) == (every["places"], every["strings"])
    assert found.accuracy == pytest.approx(every["right"] / every["places"])
    assert found.whole == pytest.approx(every["whole"] / every["strings"])
    rows = {(row["by"], row["of"]): row for row in found.table.to_dict("records")}
    assert set(rows) == set(wanted)
    for key, count in wanted.items():
        assert (rows[key]["places"], rows[key]["right"]) == (count["places"], count["right"])
        assert rows[key]["accuracy"] == pytest.approx(count["right"] / count["places"])
        if key[0] == "length":
            assert rows[key]["strings"] == count["strings"]
            assert rows[key]["whole"] == pytest.approx(count["whole"] / count["strings"])
        else:
            assert pd.isna(rows[key]["whole"])


@pytest.mark.parametrize(("claim", "seed"), [("any_token", 0), ("allowed", 1)])
def test_brackets_as_counted_by_hand(claim: str, seed: int) -> None:
    task = load_task("dyck-3-3")
    texts = [text for text in sampled(task) if len(text) < 20]
    model = random_model(task, seed)
    mine = adopt(model, Vocabulary.ours(task.language))
    how: dict[str, Any] = {"claim": claim}
    if claim == "allowed":  # few sets are right by chance: have some be
        with torch.no_grad():
            mine.unembed.W_U.mul_(0.05)
            model.unembed.W_U.mul_(0.05)
            bias = torch.tensor([0.5, -0.5, 0.5, -0.5, 0.5, -0.5, 0.0])
            mine.unembed.b_U.copy_(bias)
            model.unembed.b_U.copy_(bias)
        how["threshold"] = 0.1
    found = accuracy_on(mine, texts, task, **how)
    wanted = by_hand(model, texts, claim, 0.1)
    assert 0 < wanted[("all", 0)]["right"] < wanted[("all", 0)]["places"]
    compare(found, wanted)


def test_a_model_without_bos_is_not_asked_before_the_first_symbol() -> None:
    texts = [text for text in sampled(TASK) if len(text) < 19]
    model = random_model(TASK, 0, d_vocab=6)
    mine = adopt(model, Vocabulary(TASK.language, range(6), bos=None))
    for claim in ("any_token", "allowed"):
        compare(accuracy_on(mine, texts, claim=claim), by_hand(model, texts, claim, bos=[]))


def test_an_automaton_as_counted_by_hand() -> None:
    """In (ab)*$ the last symbol says what follows; in aⁿbⁿcⁿ it does not."""
    task = ended()
    texts, model = ["ab$", "$", "abab", ""], random_model(task, 1, n_ctx=9)
    mine = adopt(model, Vocabulary.ours(task.language))
    found = accuracy_on(mine, [*texts[:2], "a"], task, claim="allowed")
    right = places = 0
    for text in ("ab$", "$", "a"):
        state: Any = "even"
        for at in range(len(text) + 1):
            if at:
                state = task.moves(state)[text[at - 1]]
            if not task.moves(state):
                continue
            said = last(model, [3, *("ab$".index(x) for x in text[:at])])[:3] > 0
            right += [*said] == [x in task.moves(state) for x in "ab$"]
            places += 1
    assert (found.places, found.accuracy) == (places, right / places)
    assert [*found.table.query("by == 'needs'")["of"]] == ["previous"]
    counts = load_task("anbncn")
    model = adopt(random_model(counts, 1), Vocabulary.ours(counts.language))
    found = accuracy_on(model, ["aabbcc", "abc"], counts, claim="allowed")
    needs = found.table.query("by == 'needs'").set_index("of")["places"]
    # before a, after each a (a or b may follow, whatever the number): the last symbol is enough;
    # after a b, or a c, the numbers count; after the last c nothing may follow
    assert needs.to_dict() == {"previous": 2 + 3, "state": 3 + 1}
    found = accuracy_on(model, ["aabbcc", "abc"], counts)
    expected = []
    for text in ("aabbcc", "abc"):
        tokens = counts.language.tokenize(text).tolist()
        first = text.index("b") + 1
        expected += [last(model, [3, *tokens[:at]]).argmax() == tokens[at]
                     for at in range(first, len(text))]  # fmt: skip
    assert (found.places, found.accuracy) == (len(expected), np.mean(expected))


def test_a_file_and_what_is_too_long(tmp_path: Path) -> None:
    path = tmp_path / "dev.txt"
    path.write_text("(a (b b) a) END\n(a a) (a a) END\n")
    language = DyckLanguage(2, 3, brackets=("(a", "a)", "(b", "b)"))
    model = construct.uniform_attention(language)
    found = accuracy_on(model, read_strings(path, language))
    assert (found.accuracy, found.whole, found.places, found.too_long) == (1.0, 1.0, 4, 0)
    assert "any_token: 100.00% of 4 places, 100.00% of 2 strings" in str(found)
    task = load_task("dyck-2-4")
    short = build_model(get_config("gpt", task, n_ctx=6))
    found = accuracy_on(short, ["[()]", "[()]()"])
    assert (found.strings, found.too_long) == (1, 1)
    assert "1 strings are too long" in str(found)


def test_what_cannot_be_measured_is_refused_in_a_line() -> None:
    task = load_task("dyck-2-4")
    model = construct.uniform_attention(task.language)
    bare = adopt(random_model(task, 0, d_vocab=4), Vocabulary(task.language, range(4), bos=None))
    asks = AutomatonTask(
        name="sums", symbols=("a", "b"), start=0, moves=lambda state: {"a": 0, "b": 1},
        answer=lambda state: state, train_lengths=[2], long_lengths=[2, 3],
    )  # fmt: skip
    two = adopt(random_model(asks, 0), Vocabulary.ours(asks.language))
    for call, kind, said in (
        (lambda: accuracy_on(model, ["[)"]), DyckStringError, "cannot close"),
        (lambda: accuracy_on(model, ["[("]), ValueError, "anything is asked"),
        (lambda: accuracy_on(model, []), ValueError, "of none of 0 strings"),
        (lambda: accuracy_on(model, ["[]"], claim="alowed"), UnknownNameError, "allowed"),
        (lambda: accuracy_on(model, ["[]"], threshold=1.0), ValueError, "has no threshold"),
        (lambda: accuracy_on(model, ["[]"], "anbncn"), DyckStringError, "unknown symbol"),
        (lambda: accuracy_on(lambda x: x, ["[]"]), TypeError, "nothing says which language"),
        (lambda: accuracy_on(bare, ["abc"], "anbncn"), VocabularyError, "not those of"),
        (lambda: accuracy_on(export_rnn(bare), ["[]"], task), VocabularyError, "reads no BOS"),
        (lambda: accuracy_on(two, ["ab"], asks), ValueError, "asks for answers"),
        (lambda: accuracy_on(two, ["abab"], asks, claim="allowed"), ValueError, "longer than any"),
    ):
        with pytest.raises(kind, match=said) as error:
            call()
        assert "\n" not in str(error.value)
