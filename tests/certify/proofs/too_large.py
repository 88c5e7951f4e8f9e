"""Proofs that ask for too much: one of their numbers or shapes blown up, sealed again."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from tl_dyck.certify import (
    check_automaton,
    check_bounds,
    check_edits,
    check_language,
    check_layer,
    check_two_layers,
)
from tl_dyck.certify.proof import pack

Facts = dict[str, Any]
Arrays = dict[str, Any]
MANY = 4096


def weights(axes: dict[str, str], sizes: dict[str, int]) -> Arrays:
    """A byte for each weight, all 0: the cheapest to send."""
    return {name: np.zeros([sizes[axis] for axis in its], np.uint8) for name, its in axes.items()}


def trees(*nodes: int, times: int = 1) -> np.ndarray:
    return np.tile(np.array(nodes, np.uint16), times)


# --- languages ------------------------------------------------------------------------------------


def language(
    k: int = 1, depth: int = 1, length: int = 2, nodes: int = 3, **wide: int
) -> tuple[Facts, Arrays]:
    """A file about a language, with what it says of its sizes."""
    sizes = {"s": 1 + 2 * k * depth, "d": 2, "e": 2, "h": 2, "o": 2 * k + 1} | wide
    facts = {
        **{"format": check_language.FORMAT, "claim": "named", "model": "0" * 64},
        **{"n_types": k, "max_depth": depth, "length": length},
        **{"norm": False, "floor": 1.0, "added": "after", "attn_scale": 1.0},
    }
    arrays = weights(check_language.AXES, sizes)
    arrays["b_U"][1] = 1  # so token 1 wins, and bounds settle every leaf
    leaf = check_language.LEAF + 1
    return facts, arrays | {"trees": trees(leaf, times=nodes)}


LANGUAGES = {
    **{f"{axis} of {MANY:,}": {axis: MANY} for axis in "deho"},
    "all of 2,000": dict.fromkeys("deho", 2000),
    "endings of four brackets of 8 types": {
        "k": 8,
        "depth": 4,
        "length": 1000,
        "d": 300,
        "o": 900,
        "nodes": 40_000,
    },
    "63 types": {"k": 63, "length": 1000, "h": 1000, "o": 1000, "nodes": 4000},
    "33 million nodes": {"nodes": 2**24 + 2**23},
}


# --- edits ----------------------------------------------------------------------------------------

CONFIG = dict.fromkeys(check_layer.CONFIG) | {
    **{"state": "none", "residual": True, "attn_scale": 1.0, "eps": 1e-5, "n_ctx": 17_000},
}


def one_layer(
    state: str = "none",
    mlp: str | None = None,
    norm: str | None = None,
    ln_c: float | None = None,
    **wide: int,
):
    """A configuration, and weights of bytes."""
    sizes = {"t": 3, "d": 2, "n": 2, "e": 2, "o": 3, "h": 2, "p": 3} | wide
    axes = check_layer.AXES | {"W_E": "td"}
    axes |= {"W_in": "dh", "b_in": "h", "W_out": "hd", "b_out": "d"} if mlp else {}
    axes |= {"W_pos": "pd"} if state == "position" else {}
    arrays = weights(axes, sizes)
    arrays["b_U"][0] = 1
    arrays["b_O"][0] = ln_c is not None  # so LN_C divides by more than its constant
    config = CONFIG | {"state": state, "act_fn": mlp, "ln2": norm, "ln_final": norm, "ln_c": ln_c}
    return config, arrays, list(range(sizes["t"]))


def edits(
    string: int = 2,
    rewrites: int = 1,
    emits: int = 1,
    budgets: Any = (1,),
    nodes: int = 1,
    leaf: int = check_bounds.BOUND,
    **net: Any,
) -> tuple[Facts, Arrays]:
    """A file about the edits of a string: many bounds of all of it."""
    config, arrays, tokens = one_layer(**net)
    rows = [[i % len(budgets), i % string, 1, [1] * emits] for i in range(rewrites)]
    facts = {
        **{"format": check_edits.FORMAT, "config": config, "tokens": tokens, "texts": None},
        **{"names": ["sub"] * len(budgets), "names_logits": False},
        **{"string": [i % 2 for i in range(string)], "target": 0},
        **{"rewrites": rows, "budgets": list(budgets)},
    }
    return facts, arrays | {"trees": trees(leaf, 0, times=nodes)}


RAYS = {"leaf": check_bounds.RAYS, "n": 1, "ln_c": 0.1}
LISTS = {"leaf": check_bounds.LIST, "n": 9}


EDITS = {
    "16,000 tokens": {"string": 16_000, "nodes": 2},
    "16,000 tokens with positions": {
        "string": 16_000,
        "state": "position",
        "p": 17_000,
        "nodes": 16_000,
    },
    "16,000 rewritings": {"string": 200, "rewrites": 16_000, "budgets": (50,), "nodes": 9},
    "a rewriting to 15,000": {"emits": 15_000, "nodes": 4},
    "many rewritings to many": {"string": 9, "rewrites": 120, "emits": 120, "budgets": (9,) * 3},
    "eight budgets": {"string": 60, "rewrites": 64, "budgets": (3,) * 8},
    "16,000 bounds": {"string": 300, "rewrites": 300, "budgets": (9,), "nodes": 16_000},
    "1e12 strings, one by one": {"string": 40, "rewrites": 40, "budgets": (40,), **LISTS},
    "lists of 8,192 strings": {
        **{"string": 13, "rewrites": 13, "budgets": (13,), "nodes": 20},
        **{"h": 2000, "mlp": "gelu"},
        **LISTS,
    },
    "16,000 bounds of rays": {
        **{"string": 300, "rewrites": 300, "budgets": (9,), "nodes": 16_000},
        **RAYS,
    },
    "rays of 2,000 dimensions": {"string": 300, "d": 2000, "nodes": 9, **RAYS},
    "norms of 1,000 dimensions": {"d": 1000, "string": 200, "norm": "lnpre", "nodes": 200},
    "2,000 dimensions": {"d": 2000, "e": 2000, "n": 4, "norm": "ln1"},
    "100,000 logits": {"o": 100_000},
    "1,500 logits, 4 heads": {"o": 1500, "n": 4, "string": 300, "nodes": 300},
    "a million tokens": {"t": 10**6, "d": 4},
    "100,000 neurons": {"h": 100_000, "mlp": "gelu", "nodes": 400},
    "2,000 neurons": {"h": 2000, "mlp": "relu", "string": 300, "nodes": 800},
}


# --- automata -------------------------------------------------------------------------------------


def automaton(
    states: int = 2,
    columns: int = 2,
    length: int = 2,
    goes: int = 2,
    nodes: int = 1,
    threshold: float | None = None,
    **net: Any,
) -> tuple[Facts, Arrays]:
    """A file about an automaton: its first columns lead somewhere, the others nowhere."""
    config, arrays, tokens = one_layer(t=columns, **net)
    after = [
        [(i * goes + j + 1) % states if j < goes else -1 for j in range(columns)]
        for i in range(states)
    ]
    facts = {
        **{"format": check_automaton.FORMAT, "config": config, "tokens": tokens, "texts": None},
        **{"name": "x", "names_logits": False, "written": tokens, "after": after},
        **{"answers": [0] * states, "lengths": [*range(1, length + 1)], "threshold": threshold},
    }
    return facts, arrays | {"trees": trees(check_bounds.BOUND, 0, times=nodes)}


def places(length: int = 2, parts: int = 1, nodes: int = 1, **sizes: Any) -> tuple[Facts, Arrays]:
    """A file about automata that read places backwards, but for the last: of lengths up to one."""
    facts, arrays = automaton(length=length, nodes=nodes, **sizes)
    part = {name: facts.pop(name) for name in ("after", "answers", "lengths")}
    facts["parts"] = [
        part | {"lengths": [n], "order": [*reversed(range(n - 1)), n - 1]}
        for n in range(length - parts + 1, length + 1)
    ]
    return facts, arrays


AUTOMATA = {
    "1,500 states": {"states": 1500, "length": 150, "nodes": 300},
    "30,000 places": {"length": 30_000},
    "900 states, 400 columns that lead nowhere": {"states": 900, "columns": 400, "length": 900},
    "9,000 columns": {"columns": 9000, "goes": 9000, "length": 2},
    "2,000 lengths": {"length": 2000, "state": "position", "p": 2001, "nodes": 2000},
}


# --- two layers -----------------------------------------------------------------------------------


def two_layers(
    k: int = 1, depth: int = 1, length: int = 2, nodes: int = 1, mlp: str | None = None, **wide: int
) -> tuple[Facts, Arrays]:
    """A file about two layers."""
    tokens, sizes = 2 * k + 1, {"d": 2, "e": 2, "n": 2, "h": 2, "o": 2 * k + 1, **wide}
    arrays: Arrays = {}  # token 0 wins: the last layer has its bias
    for layer in "01":
        _, own, _ = one_layer(mlp=mlp, **{**sizes, "t": tokens})
        for name, array in own.items():
            if not (layer == "1" and name == "W_E") and not (layer == "0" and name[-1] == "U"):
                arrays[f"{layer}.{name}"] = array
    config = CONFIG | {"act_fn": mlp, "bos_token": 2 * k}
    facts = {
        **{"format": check_two_layers.FORMAT, "claim": "head", "model": "0" * 64},
        "head": [0, 0],
        **{"n_types": k, "max_depth": depth, "length": length, "config": [config, config]},
    }
    return facts, arrays | {"trees": trees(check_two_layers.BOUND, 0, 0, times=nodes)}


TWO_LAYERS = {
    "1,000 brackets": {"length": 1000},
    "63 types": {"k": 63, "length": 40},
    "31 types of two levels": {"k": 31, "depth": 2, "length": 1000},
    "1,000 dimensions": {"d": 1000, "e": 1000, "length": 60, "nodes": 60},
    "4,000 neurons": {"h": 4000, "mlp": "gelu", "length": 40},
    "100,000 logits": {"o": 100_000},
    "60 levels": {"depth": 60, "length": 300, "h": 100, "mlp": "gelu"},
}

KINDS = {
    "a language": (language, LANGUAGES),
    "edits": (edits, EDITS),
    "an automaton": (automaton, AUTOMATA),
    "two layers": (two_layers, TWO_LAYERS),
}


def every() -> Iterator[tuple[str, str]]:
    """Kinds, and what is too large in them."""
    return ((kind, what) for kind, (_, rows) in KINDS.items() for what in rows)


def write(path: Path, kind: str, what: str | None = None) -> Path:
    """A file that asks for too much, or the small one that it was made from."""
    make, rows = KINDS[kind]
    path.write_bytes(pack(*make(**(rows[what] if what else {}))))
    return path
