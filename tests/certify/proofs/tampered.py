"""Files that one guard of a checker refuses, and what is said where that guard is taken out."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType, ModuleType
from typing import Any, NamedTuple

import numpy as np

from tests.certify.proofs import too_large
from tl_dyck.certify import (
    check_agreement,
    check_automaton,
    check_bounds,
    check_edits,
    check_language,
    check_layer,
    check_model,
    check_paths,
    check_two_layers,
)
from tl_dyck.certify.check_language import LEAF

Facts = dict[str, Any]
Arrays = dict[str, Any]
NOTHING: Any = MappingProxyType({})


class Tampered(NamedTuple):
    """A file that one guard refuses.

    Attributes:
        make: facts and arrays of what the checker believes; of a model's proof the fixture.
        change: what is changed, in facts or arrays: by name, or a function of both.
        then: what is said without the guard.
        how: a change of the whole file, or of the folders that it is compared with.
        limits: of a guard against large files, which a small one is made to pass.
    """

    make: Callable[[], tuple[Facts, Arrays]] | str
    change: Facts | Callable[[Facts, Arrays], Any] = NOTHING
    then: str = "proved: "
    how: Callable[..., Any] | None = None
    limits: Mapping[tuple[ModuleType, str], Any] = NOTHING


def small(kind: Callable[..., Any], nodes: int, **sizes: Any) -> Callable[[], Any]:
    return lambda: kind(nodes=nodes, **sizes)


LANGUAGE = small(too_large.language, 3)
EDITS = small(too_large.edits, 1)
AUTOMATON = small(too_large.automaton, 4)
PART = small(too_large.places, 2)
SETS = small(too_large.automaton, 2, goes=1, threshold=0.5)
TWO = small(too_large.two_layers, 3)
GELU = small(too_large.edits, 1, mlp="gelu")
PLACES = small(too_large.edits, 1, state="position")


def floats(**changes: Any) -> Callable[[Facts, Arrays], Any]:
    """Weights in float64, of which some entries are set: name=(index, value)."""

    def change(facts: Facts, arrays: Arrays) -> None:
        for name, (index, value) in changes.items():
            name = name.replace("__", ".")
            arrays[name] = arrays[name].astype("<f8")
            arrays[name][index] = value

    return change


def config(which: int | None = None, **fields: Any) -> Callable[[Facts, Arrays], Any]:
    """Fields of the network's configuration."""

    def change(facts: Facts, arrays: Arrays) -> None:
        if which is None:
            facts["config"] = facts["config"] | fields
        else:
            facts["config"] = [
                x | fields if i == which else x for i, x in enumerate(facts["config"])
            ]

    return change


def all_of(*changes: Any) -> Callable[[Facts, Arrays], Any]:
    def change(facts: Facts, arrays: Arrays) -> None:
        for each in changes:
            facts.update(each) if isinstance(each, dict) else each(facts, arrays)

    return change


def tree(*nodes: int, times: int = 1) -> Callable[[Facts, Arrays], Any]:
    return lambda facts, arrays: arrays.update(trees=too_large.trees(*nodes, times=times))


def deep(levels: int) -> Callable[[Facts, Arrays], Any]:
    """An embedding of so many depths, all 0."""
    return lambda facts, arrays: arrays.update(
        W_E=np.zeros((len(arrays["W_E"]), levels, 2), np.uint8)
    )


def in_part(**fields: Any) -> Callable[[Facts, Arrays], Any]:
    """Fields of the only part."""
    return lambda facts, _: facts["parts"][0].update(fields)


def trailing(data: bytes) -> bytes:
    """64 MB of nothing behind the arrays, and the digest of that."""
    rest = data.partition(b"\n")[2] + bytes(check_language.MOST_BYTES)
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def in_json(change: Callable[[bytes], bytes]) -> Callable[[bytes], bytes]:
    """The line of facts as it says, sealed again."""

    def whole(data: bytes) -> bytes:
        _, line, rest = data.split(b"\n", 2)
        rest = change(line) + b"\n" + rest
        return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest

    return whole


def big_endian(data: bytes) -> bytes:
    """Of one array the other order of bytes, which its type says."""
    _, line, rest = data.split(b"\n", 2)
    facts, end = json.loads(line), 0
    for name, (kind, shape) in facts["arrays"].items():
        size = int(np.prod(shape)) * np.dtype(kind).itemsize
        if name == "trees":
            facts["arrays"][name][0] = ">u2"
            turned = np.frombuffer(rest[end : end + size], kind).astype(">u2").tobytes()
            rest = rest[:end] + turned + rest[end + size :]
        end += size
    rest = json.dumps(facts).encode() + b"\n" + rest
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


IN_LANGUAGE = {
    "(x.rad < 0.001)": Tampered(LANGUAGE, floats(b_Q=(0, 1e14), b_K=(0, 1.0))),
    "n": Tampered(LANGUAGE, all_of({"claim": "any_token", "length": 0}, tree(times=0))),
    "facts['format'] == FORMAT": Tampered(LANGUAGE, {"format": "tl_dyck.proof/3"}),
    "next(nodes, None) is None": Tampered(LANGUAGE, tree(LEAF + 1, times=4)),
    "0 <= node < len(low)": Tampered(LANGUAGE, tree(5, 0, 0, 0), "not proved: unreadable"),
    "low[node] < high[node]": Tampered(LANGUAGE, tree(0, LEAF + 1, LEAF + 1, LEAF + 1)),
    "winner in may": Tampered(
        small(too_large.language, 2, k=2),
        all_of(
            {"claim": "closing_only"},
            tree(LEAF, times=2),
            lambda facts, arrays: arrays.update(b_U=np.eye(1, 5, dtype=np.uint8)[0]),
        ),
    ),
    "sizes['o'] >= 2": Tampered(
        LANGUAGE,
        all_of(
            tree(LEAF, times=3),
            lambda facts, arrays: arrays.update(
                {name: arrays[name][..., :1] for name in ("W_U", "b_U")}
            ),
        ),
    ),
    "form.settles": Tampered(LANGUAGE, floats(b_U=(slice(None), 1.0))),
    "stat.S_ISREG": Tampered(LANGUAGE, {}, "not proved: altered", lambda _: os.devnull),
    "found.st_size <= most": Tampered(LANGUAGE, how=trailing),
    "len(line) <= MOST_FACTS": Tampered(
        LANGUAGE, how=in_json(lambda line: line + b" " * check_language.MOST_FACTS)
    ),
    "len(pairs) == len(dict(pairs))": Tampered(
        LANGUAGE, how=in_json(lambda line: line.replace(b"{", b'{"length": 9, ', 1))
    ),
    "digest == ": Tampered(LANGUAGE, how=lambda data: b"0" + data[1:]),
    "kind in (": Tampered(LANGUAGE, how=big_endian),
    "0 < k * depth < LEAF": Tampered(small(too_large.language, 33, k=32, depth=2, length=1)),
    "k ** depth <= LARGEST": Tampered(small(too_large.language, 18, k=17, depth=3, length=1)),
    "type(facts[name]) in (int, float)": Tampered(LANGUAGE, {"floor": True}),
    "0 <= facts[name] <= most": Tampered(LANGUAGE, {"attn_scale": 1e10}),
    "np.isfinite": Tampered(LANGUAGE, floats(W_in=((0, 0), np.nan)), "not proved: not settled"),
    "sizes.setdefault": Tampered(small(too_large.language, 3, h=4097)),
}


def times(name: str) -> Callable[[Facts, Arrays], Any]:
    """A weight that is another by a billionth."""
    return lambda facts, arrays: arrays.update({name: arrays[name] * (1 + 1e-9)})


def capped(folder: Path) -> list[Path]:
    """An exported RNN beside another, whose scores it caps; all else is the same."""
    other = folder.with_name("capped")
    shutil.copytree(folder, other, dirs_exist_ok=True)
    said = json.loads((other / "rnn.json").read_text())
    said["config"]["score_cap"] = 9.0
    (other / "rnn.json").write_text(json.dumps(said))
    return [other]


IN_MODEL = {
    "theirs.get(name": Tampered("edits", how=capped),
    "hashlib.sha256(data)": Tampered("little", {"model": "0" * 64}),
    "theirs[name] == (facts": Tampered(
        "little", lambda f, _: f.update(attn_scale=f["attn_scale"] * (1 + 1e-9))
    ),
    "as_embedded(options, saved, mine)": Tampered("little", times("W_E")),
    "np.array_equal(there.ravel()": Tampered("little", times("W_U")),
    "theirs[name] == mine[name]": Tampered("two", config(0, eps=1e-5 * (1 + 1e-9))),
    "as_embedded(options, saved, mine[": Tampered("two", times("0.W_E")),
    "np.array_equal(there, mine)": Tampered("two", times("1.W_U")),
    "file.exists()": Tampered("edits", {}, "not proved: unreadable", lambda *_: ["nowhere"]),
    "theirs[name] == value": Tampered("edits", config(eps=1e-5 * (1 + 1e-9))),
    "name == 'trees' or": Tampered("edits", times("W_U")),
    "facts['format'] in KINDS": Tampered("little", {"format": "x"}, "not proved: unreadable"),
    "len(folders) == n_models": Tampered("pair", how=lambda one, other: [one]),
}

IN_AGREEMENT = {"facts['format'] == FORMAT": Tampered("pair", {"format": "x"})}

#: For a moment in 144 states, then in one for ever.
WIDE = [
    *([12 * i + j + 1 for j in range(12)] for i in range(13)),
    *([157, *[-1] * 11] for _ in range(145)),
]

IN_AUTOMATON = {
    "type(self.threshold) in": Tampered(SETS, all_of({"threshold": True}, floats(b_U=(0, 2.0)))),
    "abs(self.threshold) < 1": Tampered(SETS, all_of({"threshold": 1e9}, floats(b_U=(0, 2e9)))),
    "{*written} <= ": Tampered(small(too_large.automaton, 2, goes=1, threshold=0.5, o=1)),
    "longest < BOUND": Tampered(AUTOMATON, limits={(check_automaton, "BOUND"): 2}),
    "all((type(y) is int and y in network.rows": Tampered(AUTOMATON, {"written": [0, True]}),
    "all((type(y) is int and y in states": Tampered(AUTOMATON, {"after": [[True, 0], [0, 1]]}),
    "len(self.answers) == len(after)": Tampered(AUTOMATON, {"answers": [0, 0, 0]}),
    "{len(row) for row in after}": Tampered(AUTOMATON, {"after": [[1, 0, 0], [0, 1, 0]]}),
    "all((type(y) is int and y >= 0": Tampered(AUTOMATON, {"lengths": [True, 2]}),
    "self.lengths == ": Tampered(AUTOMATON, {"lengths": [1, 1]}),
    "len({*written}) == ": Tampered(
        AUTOMATON, all_of({"written": [0, 0]}, tree(check_bounds.BOUND, 0, times=2))
    ),
    "'position' not in": Tampered(
        small(too_large.automaton, 4, state="position", p=1), config(n_ctx=1)
    ),
    "self.size * len(": Tampered(
        small(too_large.automaton, 1, columns=12, states=158),
        {"after": WIDE, "lengths": [80]},
        limits={(check_automaton, "MOST"): 11_000},
    ),
    "n <= MOST // 8": Tampered(AUTOMATON, limits={(check_automaton, "MOST"): 8 * 8}),
    "all((last < first": Tampered(
        small(too_large.places, 4, parts=2), lambda f, _: f["parts"].reverse()
    ),
    "all((type(y) is int for y in order": Tampered(PART, in_part(order=[0, True])),
    "sorted(order) == ": Tampered(PART, in_part(order=[1, 1])),
    "order[-1:] == ": Tampered(PART, in_part(order=[1, 0])),
    "self.lengths == [longest]": Tampered(small(too_large.places, 4), in_part(lengths=[1, 2])),
    "'depth' not in": Tampered(
        PART, all_of(deep(2), config(state="depth", n_types=1, max_depth=1))
    ),
    "all((type(y) is int and y in written": Tampered(
        small(too_large.places, 1, goes=1, threshold=0.5), in_part(answers=[[0, 9], [0, 9]])
    ),
    "ways > 0": Tampered(AUTOMATON, all_of({"answers": [None, None]}, tree(times=0))),
}

IN_EDITS = {
    "size * max(len(listed)": Tampered(EDITS, limits={(check_edits, "MOST"): 9}),
    "not counted[0] or longest": Tampered(PLACES, config(n_ctx=1)),
    "max(n, len(rewrites), len(words))": Tampered(
        EDITS,
        tree(4, 0),
        limits={(check_edits, "BOUND"): 4, (check_paths, "BOUND"): 4},
    ),
    "len(self.budgets) <= 8": Tampered(EDITS, {"budgets": [1, *[0] * 8], "names": ["sub"] * 9}),
    "all((type(y) is int and y in self": Tampered(EDITS, {"string": [0, True]}),
    "all((type(y) is int and 0 <= y": Tampered(EDITS, {"budgets": [True]}),
    "kind in kinds": Tampered(EDITS, {"rewrites": [[-1, 0, 1, [1]]]}),
    "0 <= start <= start + span <= n": Tampered(EDITS, {"rewrites": [[0, -1, 1, [1]]]}),
}

IN_PATHS = {
    "facts['format'] in": Tampered(EDITS, {"format": "tl_dyck.edits/1"}),
    "len(asked[0])": Tampered(small(too_large.edits, 1, o=1), then="not proved: unreadable"),
    "next(nodes, None) is None": Tampered(EDITS, tree(check_bounds.BOUND, 0, times=2)),
    "type(target) is int": Tampered(EDITS, {"target": 0.0}, "not proved: unreadable"),
    "0 <= target < n": Tampered(EDITS, all_of({"target": -1}, floats(b_U=(slice(None), -1.0)))),
    "bool(shown)": Tampered(EDITS, floats(b_U=(slice(None), 1.0))),
    "n <= most": Tampered(
        small(too_large.edits, 1, leaf=check_bounds.LIST), limits={(check_bounds, "LISTED"): 1}
    ),
}

IN_BOUNDS = {
    "first.group.net.v.mid.shape[1] <= HEADS": Tampered(small(too_large.edits, 1, n=9)),
    "net.c['ln_c']": Tampered(
        small(too_large.edits, 1, leaf=check_bounds.RAYS, n=1), {}, "not proved: unreadable"
    ),
    "w['W_O'].mid.shape[0] == 1": Tampered(
        small(too_large.edits, 1, leaf=check_bounds.RAYS, ln_c=0.1)
    ),
}

IN_LAYER = {
    "axes.keys() == weights.keys()": Tampered(EDITS, lambda f, a: a.update(W_X=np.zeros(2))),
    "all((weights[y].shape": Tampered(EDITS, lambda f, a: a.update(b_O=np.zeros(1))),
    "sizes.get('l', 1)": Tampered(
        EDITS, all_of(config(state="depth", n_types=1, max_depth=1, bos_token=2), deep(3))
    ),
    "sizes['t'] == len(self.rows)": Tampered(EDITS, {"tokens": [0, 1, 1], "texts": list("aab")}),
    "max((sizes[x] for x in 'nde'))": Tampered(small(too_large.edits, 1, d=4097, e=1, n=1)),
    "config['state'] in": Tampered(PLACES, config(state="positions")),
    "all((config[name] in (None": Tampered(
        small(too_large.edits, 1, norm="lnpre"), config(ln_final="rms")
    ),
    "config['act_fn'] in ACTIVATIONS": Tampered(
        GELU, config(act_fn="tanh"), then="not proved: unreadable (KeyError)"
    ),
    "type(config['residual']) is bool": Tampered(EDITS, config(residual=1)),
    "config['positions'] in": Tampered(EDITS, config(positions="none")),
    "type(config['qk_norm']) is bool": Tampered(EDITS, config(qk_norm=0)),
    "type(config['gated']) is bool": Tampered(EDITS, config(gated=0)),
    "depth == bool": Tampered(EDITS, all_of(config(state="depth", max_depth=1), deep(2))),
    "value is None or": Tampered(EDITS, config(attn_scale=1e10)),
    "bos is None or bos >= brackets": Tampered(
        EDITS, all_of(config(state="depth", n_types=1, max_depth=1, bos_token=0), deep(2))
    ),
    "all((np.isfinite(x).all()": Tampered(EDITS, floats(W_E=(2, np.nan))),
}


def second(name: str, shape: tuple[int, ...]) -> Callable[[Facts, Arrays], Any]:
    return lambda facts, arrays: arrays.update({name: np.zeros(shape, np.uint8)})


IN_TWO_LAYERS = {
    "type(head) is int": Tampered(TWO, {"head": [0, True]}),
    "0 <= head < n_heads": Tampered(TWO, {"head": [0, -1]}),
    "0 < k * depth < base.LEAF": Tampered(small(too_large.two_layers, 33, k=32, depth=2, length=1)),
    "k ** depth <= base.LARGEST": Tampered(
        small(too_large.two_layers, 18, k=17, depth=3, length=1)
    ),
    "facts['claim'] in CLAIMS": Tampered(TWO, {"claim": "all"}, "not proved: "),
    "type(facts[name]) is int": Tampered(TWO, {"n_types": True}),
    "0 <= facts[name] <= base.MOST": Tampered(
        TWO, limits={(check_language, "MOST"): check_language.MOST | {"length": 1}}
    ),
    "facts['format'] == FORMAT": Tampered(TWO, {"format": "x"}),
    "next(numbers, None) is None": Tampered(TWO, tree(check_two_layers.BOUND, 0, 0, times=4)),
    "0 <= node < len(allowed)": Tampered(TWO, tree(9), "not proved: unreadable"),
    "winner in (range(n)": Tampered(small(too_large.two_layers, 2, k=2), {"claim": "closing_only"}),
    "each.wins": Tampered(TWO, floats(**{"1__b_U": (slice(None), 1.0)})),
    "len(one) + len(two) == len(weights)": Tampered(TWO, second("2.b_U", (3,))),
    "[each['state'] for each in configs]": Tampered(
        TWO, all_of(config(0, state="position"), second("0.W_pos", (3, 2)))
    ),
    "not any((layer.PLAIN": Tampered(TWO, config(1, gated=False)),
    "(configs[0]['n_types']": Tampered(
        small(too_large.two_layers, 3),
        all_of(config(0, state="depth", n_types=1, max_depth=2), second("0.W_E", (3, 3, 2))),
    ),
    "[each['bos_token'] for each in configs]": Tampered(TWO, config(1, bos_token=3)),
    "configs[0]['ln_final'] is None": Tampered(TWO, config(0, ln_final="lnpre")),
    "two['W_O'].shape[-1] == d": Tampered(
        TWO, second("1.W_O", (2, 2, 3)), "not proved: its weights do not fit together"
    ),
    "self.n_logits >= 2 * k": Tampered(TWO, all_of(second("1.b_U", (1,)), second("1.W_U", (2, 1)))),
    "n_symbols * width <= MOST_WORK": Tampered(TWO, limits={(check_two_layers, "MOST_WORK"): 9}),
    "net.c['act_fn'] in (None, 'relu') or": Tampered(
        small(too_large.two_layers, 3, mlp="gelu"), limits={(check_two_layers, "MOST"): 5}
    ),
    "size <= bounds.MOST": Tampered(TWO, limits={(check_bounds, "MOST"): 5}),
    "len(at) < BOUND": Tampered(
        TWO, tree(2, 0, 0, times=3), limits={(check_two_layers, "BOUND"): 2}
    ),
}

TABLES = {
    check_language: IN_LANGUAGE,
    check_model: IN_MODEL,
    check_agreement: IN_AGREEMENT,
    check_automaton: IN_AUTOMATON,
    check_edits: IN_EDITS,
    check_paths: IN_PATHS,
    check_bounds: IN_BOUNDS,
    check_layer: IN_LAYER,
    check_two_layers: IN_TWO_LAYERS,
}
