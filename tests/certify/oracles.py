"""Slow, independent answers for the tests of spaces and certifiers, and random inputs to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np
import torch
from hypothesis import strategies as st

from tl_dyck.certify import (
    Delete,
    Duplicate,
    Insert,
    InsertMatchedPairs,
    PerturbationSpace,
    Substitute,
    SwapAdjacent,
    Transformation,
    check_layer,
)
from tl_dyck.certify.lattice import KEEP, Lattice, Option
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import RNNConfig, TwoLayerRNN, weight_shapes

VOCABULARY = 7  # three types of brackets, and BOS where there is one
LANGUAGE = DyckLanguage(3, 3)
LONG = np.longdouble


def brute_force(
    space: PerturbationSpace, tokens: tuple[int, ...]
) -> list[tuple[tuple[int, ...], int]]:
    """Every way to edit `tokens`, as (string, number of edits), by recursion on the definition."""
    budgets = [budget for _, budget in space.transformations]
    rewrites = [_rewrites(space, tokens, i) for i in range(len(tokens) + 1)]

    def from_gap(i: int, left: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
        """What can become of x_i …, if nothing has been inserted at gap i yet."""
        for kind, span, text in rewrites[i]:
            if span == 0 and left[kind]:
                for rest, edits in from_word(i, _spend(left, kind)):
                    yield text + rest, edits + 1
        yield from from_word(i, left)

    def from_word(i: int, left: tuple[int, ...]) -> Iterator[tuple[tuple[int, ...], int]]:
        if i == len(tokens):
            yield (), 0
            return
        for rest, edits in from_gap(i + 1, left):
            yield (tokens[i], *rest), edits
        for kind, span, text in rewrites[i]:
            if span and left[kind]:
                for rest, edits in from_gap(i + span, _spend(left, kind)):
                    yield text + rest, edits + 1

    return list(from_gap(0, tuple(budgets)))


def _rewrites(
    space: PerturbationSpace, tokens: tuple[int, ...], position: int
) -> set[tuple[int, int, tuple[int, ...]]]:
    return {
        (kind, span, text)
        for kind, (transformation, _) in enumerate(space.transformations)
        for span, text in transformation.rewrites(tokens, position)
        if text != tokens[position : position + span]
    }


def _spend(left: tuple[int, ...], kind: int) -> tuple[int, ...]:
    return (*left[:kind], left[kind] - 1, *left[kind + 1 :])


def free(string: tuple[int, ...], words: int) -> Lattice:
    """Any of `words` words anywhere but last, no budget: a small graph of words^(n - 1) strings.

    Two places may also be filled at once, by a word and itself, so that there is more than one way
    onwards.
    """
    n = len(string)
    options = []
    for i in range(n - 1):
        options += [Option(i, i + 1, KEEP, i, i + 1, (word,)) for word in range(words)]
        options += [
            Option(i, i + 2, KEEP, i, i + 2, (word, word)) for word in range(words) if i + 2 < n
        ]
    return Lattice(string, (), n, (*options, Option(n - 1, n, KEEP, n - 1, n, string[-1:])))


def margins(
    rnn: TwoLayerRNN, strings: Sequence[tuple[int, ...]], target: int
) -> np.ndarray[Any, Any]:
    """The margin of each string (without BOS), by the RNN's forward pass, length by length."""
    bos = () if rnn.config.bos_token is None else (rnn.config.bos_token,)
    result = np.empty(len(strings))
    for length in {len(string) for string in strings}:
        rows = [i for i, string in enumerate(strings) if len(string) == length]
        logits = rnn(torch.tensor([bos + strings[i] for i in rows]))[:, -1].numpy()
        result[rows] = logits[:, target] - np.delete(logits, target, axis=1).max(1)
    return result


@cache
def _gauss() -> tuple[np.ndarray, ...]:
    return tuple(part.astype(LONG) for part in np.polynomial.legendre.leggauss(400))


def erf(x: np.ndarray) -> np.ndarray:
    """The error function in extended precision: Gauss-Legendre on the integral of exp(-t²)."""
    nodes, weights = _gauss()
    half = np.clip(x, -7, 7)[..., None] / 2
    integral = (np.exp(-((half * (nodes + 1)) ** 2)) * weights).sum(-1) * half[..., 0]
    return integral * 2 / np.sqrt(LONG(np.pi))


def _looked(
    c: Any, w: dict[str, np.ndarray], name: str, head: int, x: np.ndarray, position: int
) -> np.ndarray:
    """The query ("Q") or key ("K") of a head at one position, coordinate by coordinate."""
    if c.positions == "shortformer":
        x = x + w["W_pos"][position]
    y = x @ w[f"W_{name}"][head] + w[f"b_{name}"][head]
    if c.qk_norm:
        y = y / np.sqrt((y**2).mean() + LONG(c.eps)) * w[f"{name.lower()}_norm_w"]
    if "rotary_cos" not in w:
        return y
    turned = y * w["rotary_cos"][position]
    for i in range(len(y)):
        other = i if i == len(y) - 1 and i % 2 == 0 else i ^ 1
        turned[i] += y[other] * w["rotary_sin"][position, i]
    return turned


def in_long_double(rnn: TwoLayerRNN, tokens: Sequence[int]) -> tuple[np.ndarray, np.ndarray]:
    """What an RNN has in its stream after the last token, and its logits, in 80-bit floats."""
    c = rnn.config
    w = {name: weight.numpy().astype(LONG) for name, weight in rnn.weights.items()}
    full = torch.tensor(list(tokens))
    r = rnn.embed(full, rnn.states(full[None])[0]).numpy().astype(LONG)

    def norm(name: str, x: np.ndarray) -> np.ndarray:
        kind = getattr(c, name)
        if kind is None:
            return x
        x = x - x.mean(-1, keepdims=True)
        x = x / np.sqrt((x**2).mean(-1, keepdims=True) + LONG(c.eps))
        return x * w[f"{name}_w"] + w[f"{name}_b"] if kind == "ln" else x

    def limited(x: np.ndarray, floor: float | None) -> np.ndarray:
        if floor is None:
            return x
        x = x - x.mean()
        return x / max(np.sqrt((x**2).sum()), LONG(floor))

    x, attn, last = norm("ln1", r), w["b_O"].copy(), len(full) - 1
    for h in range(c.n_heads):
        v = x @ w["W_V"][h] + w["b_V"][h]
        scores = np.empty(len(full), dtype=LONG)
        q = _looked(c, w, "Q", h, x[last], last)
        for i in range(len(full)):  # one product a pair of places, as the definitions say
            k = _looked(c, w, "K", h, x[i], i)
            scores[i] = (q * k).sum() / LONG(c.attn_scale)
            if c.score_cap is not None:
                scores[i] = c.score_cap * np.tanh(scores[i] / LONG(c.score_cap))
            if c.positions == "alibi":
                scores[i] += w["W_near"][last - i, h]
        p = np.exp(scores - scores.max())
        attn = attn + (p @ v / p.sum()) @ w["W_O"][h]
    attn = limited(attn, c.ln_c)
    m = limited(r[-1] + attn if c.residual else attn, c.ln_mid)
    if c.act_fn is not None:
        read = norm("ln2", m)
        p, up = read @ w["W_in"] + w["b_in"], None
        if c.gated:
            p, up = read @ w["W_gate"] + w["b_gate"], p
        inner = np.sqrt(LONG(2) / LONG(np.pi)) * (p + LONG("0.044715") * p**3)
        hidden = {
            "relu": np.maximum(p, 0),
            "gelu": p / 2 * (1 + erf(p / np.sqrt(LONG(2)))),
            "gelu_new": p / 2 * (1 + np.tanh(inner)),
            "silu": p / (1 + np.exp(-p)),
        }[c.act_fn]
        hidden = hidden if up is None else hidden * up + w["b_post"]
        m = m + hidden @ w["W_out"] + w["b_out"]
    return m, norm("ln_final", m) @ w["W_U"] + w["b_U"]


def strings_of(
    rnn: TwoLayerRNN, space: PerturbationSpace, tokens: tuple[int, ...]
) -> list[tuple[int, ...]]:
    """The distinct strings of a space that the model can read."""
    return sorted(
        {
            string
            for string, _ in brute_force(space, tokens)
            if string or rnn.config.bos_token is not None
        }
    )


def favouring(rnn: TwoLayerRNN, target: int, by: float) -> TwoLayerRNN:
    """The same network with a bias for one logit."""
    weights = {name: weight.clone() for name, weight in rnn.weights.items()}
    weights["b_U"][target] += by
    return TwoLayerRNN(rnn.config, weights)


def random_rnn(
    seed: int,
    *,
    sharpness: float = 1.0,
    scale: float = 0.6,
    d_vocab: int = VOCABULARY,
    d_vocab_out: int = 3,
    **fields: Any,
) -> TwoLayerRNN:
    """A small RNN with random weights; `sharpness` multiplies its attention scores."""
    values: dict[str, Any] = {"d_model": 6, "n_heads": 1, "d_head": 3, "n_ctx": 24, **fields}
    if values.get("act_fn"):
        values.setdefault("d_mlp", 7)
    if values.get("positions"):  # then they are counted
        counts = {"depth": "position+depth", "position+depth": "position+depth"}
        values["state"] = counts.get(values.get("state", "none"), "position")
    if values.get("state") in ("depth", "position+depth"):
        values |= {"n_types": 3, "max_depth": 3}
    config = RNNConfig(d_vocab=d_vocab, d_vocab_out=d_vocab_out, **values)
    generator = torch.Generator().manual_seed(seed)
    weights = {}
    for name, shape in weight_shapes(config).items():
        weight = torch.randn(shape, generator=generator, dtype=torch.float64) * scale
        weights[name] = 1 + weight / 2 if name.endswith("_w") else weight
    weights["W_Q"] *= sharpness
    weights["b_Q"] *= sharpness
    return TwoLayerRNN(config, weights)


READOUTS: list[dict[str, Any]] = [
    {},
    {"residual": False},
    {"ln1": "ln"},
    {"ln_final": "lnpre"},
    {"ln_final": "ln", "residual": False},
    {"ln_c": 0.3},
    {"ln_c": 1.5, "residual": False},
    {"ln_mid": 0.3},
    {"ln_mid": 2.0, "act_fn": "relu"},
    {"act_fn": "relu"},
    {"act_fn": "relu", "ln_c": 0.3},
    {"act_fn": "relu", "ln1": "ln", "ln2": "ln", "ln_final": "ln"},
    {"act_fn": "gelu"},
    {"act_fn": "gelu", "ln2": "lnpre"},
    {"act_fn": "gelu_new", "ln1": "ln", "ln2": "ln", "ln_final": "ln"},
    {"act_fn": "silu", "ln_final": "lnpre"},
]
#: Beyond a plain decoder: each part alone, and together.
BEYOND: list[dict[str, Any]] = [
    {"positions": "rotary"},
    {"positions": "rotary", "d_head": 4, "ln1": "lnpre"},
    {"positions": "standard+rotary", "ln1": "ln", "act_fn": "relu"},
    {"positions": "alibi", "act_fn": "relu"},
    {"positions": "shortformer", "ln1": "ln"},
    {"qk_norm": True},
    {"score_cap": 0.7, "act_fn": "relu"},
    {"gated": True, "act_fn": "silu"},
    {"gated": True, "act_fn": "relu", "ln_final": "lnpre"},
    {"gated": True, "act_fn": "gelu", "ln1": "ln", "ln2": "ln", "ln_final": "ln"},
    {"gated": True, "act_fn": "silu", "ln2": "ln", "qk_norm": True, "positions": "rotary"},
    {"score_cap": 2.0, "positions": "alibi", "qk_norm": True},
]
READOUTS += BEYOND
#: Those that have proofs.
PROVABLE = [
    each
    for each in READOUTS
    if each.get("act_fn") in check_layer.ACTIVATIONS
    and each.get("positions", "standard") in check_layer.POSITIONS
    and "score_cap" not in each
]

STATES = ["none", "position", "depth", "position+depth"]


# Strategies yield plain data, and tests build objects from it: while Hypothesis draws, the run-time
# type checker must not run (it picks list items at random).


@dataclass(frozen=True)
class RNNRecipe:
    """What `random_rnn` is called with."""

    seed: int
    fields: dict[str, Any]

    def build(self) -> TwoLayerRNN:
        return random_rnn(self.seed, **self.fields)


@dataclass(frozen=True)
class SpaceRecipe:
    """Names and arguments of transformations, with budgets."""

    parts: tuple[tuple[str, Any, int], ...]

    def build(self) -> PerturbationSpace:
        return PerturbationSpace(
            [(MAKERS[name](argument), budget) for name, argument, budget in self.parts]
        )


#: Of each registered name of `parse_space`; those that are not in `_ARGUMENTS` take nothing.
MAKERS: dict[str, Callable[[Any], Transformation]] = {
    "dup": lambda _: Duplicate(),
    "sub": lambda argument: Substitute(argument),
    "del": Delete,
    "ins": lambda argument: Insert(argument),
    "swap": lambda _: SwapAdjacent(),
    "pairs": lambda _: InsertMatchedPairs(LANGUAGE),
}


@st.composite
def rnns(
    draw: st.DrawFn,
    readouts: Sequence[dict[str, Any]] = READOUTS,
    max_heads: int = 4,
    sharpness: Sequence[float] = (0.0, 1.0, 1.0, 5.0),
) -> RNNRecipe:
    """Random RNNs: every readout, every state machine, 1 to 4 heads, with BOS and without."""
    fields = {
        "sharpness": draw(st.sampled_from(sharpness)),
        "scale": draw(st.sampled_from([0.3, 0.6, 1.2])),
        "d_vocab_out": draw(st.integers(2, 4)),
        "n_heads": draw(st.integers(1, max_heads)),
        "state": draw(st.sampled_from(STATES)),
        "bos_token": draw(st.sampled_from([None, 6])),
    }
    return RNNRecipe(draw(st.integers(0, 10_000)), fields | draw(st.sampled_from(readouts)))


WORDS = st.integers(0, VOCABULARY - 2)


def tokens(max_size: int = 5) -> st.SearchStrategy[tuple[int, ...]]:
    """Non-empty strings without BOS."""
    return st.lists(WORDS, min_size=1, max_size=max_size).map(tuple)


_ARGUMENTS: dict[str, st.SearchStrategy[Any]] = dict.fromkeys(MAKERS, st.none()) | {
    "sub": st.dictionaries(WORDS, st.lists(WORDS, max_size=3), max_size=4),
    "del": st.one_of(st.none(), st.frozensets(WORDS, max_size=3)),
    "ins": st.lists(st.lists(WORDS, min_size=1, max_size=2).map(tuple), max_size=2),
}


@st.composite
def spaces(draw: st.DrawFn, max_budget: int = 2, max_parts: int = 3) -> SpaceRecipe:
    """Up to three different transformations, each with a budget."""
    names = draw(st.lists(st.sampled_from(sorted(_ARGUMENTS)), max_size=max_parts, unique=True))
    return SpaceRecipe(
        tuple((name, draw(_ARGUMENTS[name]), draw(st.integers(0, max_budget))) for name in names)
    )


@dataclass(frozen=True)
class Problem:
    """A string, and edits that meet it."""

    space_recipe: SpaceRecipe
    string: tuple[int, ...]

    def build(self) -> tuple[PerturbationSpace, tuple[int, ...]]:
        return self.space_recipe.build(), self.string


@st.composite
def problems(draw: st.DrawFn) -> Problem:
    """A string of 5 to 8 words, two kinds of edits of *its* words, up to three: hundreds."""
    string = tuple(draw(st.lists(WORDS, min_size=5, max_size=8)))
    own = st.sampled_from(sorted(set(string)))
    arguments = dict.fromkeys(MAKERS, st.none()) | {
        "sub": st.dictionaries(
            own, st.lists(WORDS, min_size=1, max_size=3, unique=True), min_size=2, max_size=4
        )
        if len(set(string)) > 1
        else st.just(
            {string[0]: [word for word in range(VOCABULARY - 1) if word != string[0]][:3]}
        ),
        "del": st.one_of(st.none(), st.frozensets(own, min_size=1, max_size=3)),
        "ins": st.lists(st.lists(WORDS, min_size=1, max_size=2).map(tuple), min_size=1, max_size=2),
    }
    names = draw(st.lists(st.sampled_from(sorted(arguments)), min_size=2, max_size=2, unique=True))
    budgets = draw(st.sampled_from([(1, 1), (1, 2), (2, 1)]))
    parts = tuple(
        (name, draw(arguments[name]), budget) for name, budget in zip(names, budgets, strict=True)
    )
    return Problem(SpaceRecipe(parts), string)
