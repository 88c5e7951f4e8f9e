"""A reader of proofs that was written from docs/theory/proof_format.md alone.

It imports nothing that checks: files are taken apart by the page's grammar, and what they say of
prefixes is held to the prefixes themselves, written out and run in plain arithmetic.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import tl_dyck
from tests.certify.oracles import favouring, random_rnn
from tests.certify.proofs.test_changed_files import CHANGES
from tl_dyck import DyckTask, construct, prove_edits, prove_language

SIZES = {"<f4": 4, "<f8": 8, "<u2": 2, "|u1": 1}
FORMATS = {"proof/4", "agreement/1", "edits/4", "automaton/5", "two_layers/1"}


class Refused(ValueError):
    pass


def need(true: object) -> None:
    if not true:
        raise Refused


def read(content: bytes) -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    """ "The file"."""
    digest, _, rest = content.partition(b"\n")
    need(digest == hashlib.sha256(rest).hexdigest().encode())
    line, _, numbers = rest.partition(b"\n")
    facts, arrays, at = json.loads(line), {}, 0
    for name, (kind, shape) in facts["arrays"].items():
        size = math.prod(shape) * SIZES[kind]
        need(at + size <= len(numbers))
        arrays[name] = np.frombuffer(numbers[at : at + size], kind).reshape(shape)
        at += size
    need(facts["format"].removeprefix("tl_dyck.") in FORMATS)
    return facts, arrays


# --- languages by boxes ---------------------------------------------------------------------------


def endings(facts: dict[str, Any], first: int) -> Iterator[tuple[Any, Any, int]]:
    """ "Endings, in order": stack, type of the last pair or None, brackets of both."""
    k, deepest = facts["n_types"], facts["max_depth"]
    for d in range(first, deepest + 1):
        for stack in itertools.product(range(k), repeat=d):
            for closes in (None, *(range(k) if d < deepest else ())):
                n = d + 2 * (closes is not None)
                if n <= facts["length"]:
                    yield stack, closes, n


def cut(low: list[int], high: list[int], most: int, n: int, k: int) -> Any:
    """ "Boxes"."""
    high = [min(h, at + most - sum(low)) for at, h in zip(low, high, strict=True)]
    for level in range(max(n, 1) + 1, len(low) // k + 1):
        if not any(high[(level - 2) * k : (level - 1) * k]):
            high[(level - 1) * k : level * k] = [0] * k
    return None if any(h < at for at, h in zip(low, high, strict=True)) else (low, high)


def leaves(nodes: Iterator[int], box: Any, *rule: int) -> list[tuple[Any, int]]:
    """ "Trees": the boxes of one tree, and who wins on each."""
    node = next(nodes, -1)
    need(node >= 0)
    if node >= 64:
        return [(box, node - 64)]
    low, high = box
    need(node < len(low) and low[node] < high[node])
    middle, found = (low[node] + high[node]) // 2, []
    lower = low, [middle if i == node else h for i, h in enumerate(high)]
    upper = [middle + 1 if i == node else at for i, at in enumerate(low)], high
    for half in (cut(*lower, *rule), cut(*upper, *rule)):
        found += [] if half is None else leaves(nodes, half, *rule)
    return found


def forest(facts: dict[str, Any], arrays: dict[str, np.ndarray], first: int) -> dict[Any, Any]:
    """The leaves of each ending; raises `Refused` if nodes are missing or left."""
    k, axes = facts["n_types"], facts["n_types"] * facts["max_depth"]
    nodes, found = iter(arrays["trees"].tolist()), {}
    for stack, closes, n in endings(facts, first):
        most = (facts["length"] - n) // 2 if n else 0
        whole = cut([0] * axes, [most] * axes, most, n, k)
        found[stack, closes] = leaves(nodes, whole, most, n, k)
    need(next(nodes, -1) == -1)
    return found


def prefixes(k: int, deepest: int, length: int) -> Iterator[tuple[int, ...]]:
    level: list[tuple[int, ...]] = [()]
    for _ in range(length + 1):
        yield from level
        level = [(*x, t) for x in level for t in range(2 * k) if stack_of((*x, t), deepest)]


def stack_of(brackets: tuple[int, ...], deepest: int) -> Any:
    """What is open, as (types, profile, type of the last pair); None of what is no prefix."""
    stack: list[int] = []
    pairs: dict[tuple[int, int], int] = {}
    last = None
    for token in brackets:
        kind, last = token // 2, None
        if token % 2 == 0:
            stack.append(kind)
        elif not stack or stack.pop() != kind:
            return None
        else:
            last = kind
            pairs[len(stack) + 1, kind] = pairs.get((len(stack) + 1, kind), 0) + 1
        if len(stack) > deepest:
            return None
    if last is not None:
        pairs[len(stack) + 1, last] -= 1
    return tuple(stack), pairs, last


def logits(facts: dict[str, Any], w: dict[str, np.ndarray], brackets: tuple[int, ...]) -> Any:
    """The model after a prefix, by the table of weights, in float64."""
    k, rows, depth = facts["n_types"], [0], 0
    for token in brackets:
        depth += 1 - token % 2
        rows.append(1 + 2 * ((depth - 1) * k + token // 2) + token % 2)
        depth -= token % 2
    x = w["W_E"][rows].astype(float)
    q, key, v = (x @ w[f"W_{n}"] + w[f"b_{n}"] for n in "QKV")
    scores = key @ q[-1] / facts["attn_scale"]
    share = np.exp(scores - scores.max())
    out = (share / share.sum()) @ v @ w["W_O"] + w["b_O"]
    out = out + x[-1] * (facts["added"] == "before")
    if facts["norm"]:
        out = out - out.mean()
        out = out / max(np.sqrt(out @ out), facts["floor"])
    out = out + x[-1] * (facts["added"] == "after")
    out = out + np.maximum(out @ w["W_in"] + w["b_in"], 0) @ w["W_out"] + w["b_out"]
    return out @ w["W_U"] + w["b_U"]


TASK = DyckTask(name="small", n_types=2, max_depth=2, train_lengths=(2, 4), long_lengths=(6, 8))


@pytest.mark.parametrize("claim", ["any_token", "closing_only", "valid_token", "head"])
def test_each_prefix_is_in_one_leaf_whose_token_wins(claim: str) -> None:
    how: dict[str, Any] = {"head": 0} if claim == "head" else {}
    model = construct.uniform_attention(TASK.language)
    with torch.no_grad():
        model.b_U[0] += 0.1  # or else the empty prefix has no largest logit
    facts, arrays = read(prove_language(model, TASK, 7, claim, **how).content)
    first = int(claim in ("any_token", "closing_only"))
    found, seen = forest(facts, arrays, first), 0
    for brackets in prefixes(2, 2, 7):
        stack, pairs, last = stack_of(brackets, 2)
        if len(stack) < first:
            continue
        m = [pairs.get((level, kind), 0) for level in (1, 2) for kind in (0, 1)]
        inside = [
            winner
            for (low, high), winner in found[stack, last]
            if all(a <= x <= b for a, x, b in zip(low, m, high, strict=True))
        ]
        assert len(inside) == 1
        own = logits(facts, arrays, brackets)
        rivals = {
            "any_token": set(range(len(own))),
            "closing_only": {1, 3},
            "valid_token": set(range(len(own))),
            "head": set(range(len(own))),
        }[claim] - {inside[0]}
        if claim == "valid_token":
            rivals -= {*(2 * a + 1 for a in stack[-1:]), *((0, 2) if len(stack) < 2 else ())}
        assert all(own[inside[0]] > own[rival] for rival in rivals)
        seen += 1
    assert seen > 100


def test_changed_files_are_refused_here_too() -> None:
    content = prove_language(construct.uniform_attention(TASK.language), TASK, 7).content
    for at in range(0, len(content), 97):
        changed = content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :]
        with pytest.raises(Refused):
            read(changed)
    facts, arrays = read(content)
    for name in ("empty trees", "a tree too few", "a tree too many", "an axis that is not there"):
        mine = {**arrays}
        CHANGES[name](facts, mine)
        with pytest.raises(Refused):
            forest(facts, mine, 1)
    with pytest.raises(Refused):  # longer prefixes have more endings than there are trees
        forest({**facts, "max_depth": 3}, arrays, 1)


# --- what is read along paths ---------------------------------------------------------------------


def trees(numbers: list[int], before: int, named: int) -> int:
    """How many trees there are; a node has so many numbers, a leaf so many before how many."""
    at = found = 0
    while at < len(numbers):
        todo, found = 1, found + 1
        while todo:
            need(at < len(numbers))
            if numbers[at] >= 65533:
                need(at + named + 1 < len(numbers) + 1)
                at += named + 1 + numbers[at + named]
                todo -= 1
            else:
                at += before
                todo += 1
    need(at == len(numbers))
    return found


def test_trees_along_paths() -> None:
    model = construct.uniform_attention(TASK.language)
    facts, arrays = read(prove_edits(model, "[([", None, "pairs:1").content)
    assert facts["format"] == "tl_dyck.edits/4"
    assert {span for _, _, span, _ in facts["rewrites"]} == {0}
    numbers = arrays["trees"].tolist()
    assert trees(numbers, 2, 1) == 1  # pairs go before the last bracket
    with pytest.raises(Refused):
        trees(numbers[:-1], 2, 1)
    assert arrays["W_E"].shape[0] == len(facts["tokens"]) == len(facts["texts"])
    of_nine = prove_edits(favouring(random_rnn(3, n_heads=9), 0, 9.0), (0, 1), 0, "swap:1")
    numbers = read(of_nine.content)[1]["trees"].tolist()
    assert numbers == [65533, 0] * trees(numbers, 2, 1)

    facts, arrays = read(prove_language(model, TASK, 4, by="paths").content)
    assert facts["format"] == "tl_dyck.automaton/5"
    asked = set()
    for string in itertools.chain(*(itertools.product(range(4), repeat=n) for n in range(1, 5))):
        state, depth = 0, 0
        for token in string:
            state = -1 if state < 0 else facts["after"][state][facts["written"].index(token)]
            depth += 1 - 2 * (token % 2)
        if state >= 0 and facts["answers"][state] is not None:
            asked.add((len(string), facts["answers"][state], string[-1], depth))
    assert trees(arrays["trees"].tolist(), 2, 1) == len(asked) > 8

    two = construct.uniform_attention(TASK.language, first_layer="attention")
    facts, arrays = read(prove_language(two, TASK, 3).content)
    assert facts["format"] == "tl_dyck.two_layers/1"
    ways = {
        (len(x), x[-1], stack_of(x, 2)[0][-1]) for x in prefixes(2, 2, 3) if x and stack_of(x, 2)[0]
    }
    assert trees(arrays["trees"].tolist(), 1, 2) >= len(ways)
    assert {name[:2] for name in arrays} == {"0.", "1.", "tr"}


def test_the_page_names_every_format() -> None:
    text = Path(__file__).parents[2].joinpath("docs/theory/proof_format.md").read_text("utf-8")
    for module in ("agreement", "automaton", "edits", "language", "two_layers"):
        source = Path(tl_dyck.__file__).parent / "certify" / f"check_{module}.py"
        names = {
            part.split('"')[0]
            for part in source.read_text("utf-8").split('"tl_dyck.')[1:]
            if "/" in part.split('"')[0]
        }
        assert names
        for name in names:  # of this format, and of those that are read besides
            assert f"`tl_dyck.{name}`" in text
