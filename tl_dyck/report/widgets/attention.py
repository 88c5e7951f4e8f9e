"""Attention patterns: of one model, and of many side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Any, SupportsIndex

import numpy as np
from jaxtyping import Float, Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.check import check_integer
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck.reading.inputs import as_tokens, one_model, token_texts
from tl_dyck.report.heatmap import Text, color_bar, heat_map, text_of, thousandths
from tl_dyck.report.markup import Html, element
from tl_dyck.report.widgets.frame import Widget, note
from tl_dyck.report.widgets.strings import UnreadableTextError, check_readable, strip

# four a row: sixteen rows, more than one scrolls through to compare
_MOST_MAPS = 64

Pattern = Float[np.ndarray, "_query _key"]
String = str | Int[Tensor, "*batch pos"]

_HOW = (
    "Rows are queries, columns keys; every row sums to 1. Point at a cell for its weight, at a "
    "token (or move the slider) for what it attends to. "
)
_STACK = (
    "Arcs join matching brackets (dashed: still open), colours are depths, rings mark the top of "
    "the stack: the last bracket still open, where a parser would look."
)


@checked
def attention(
    model: Any,
    text: String,
    *,
    layer: SupportsIndex | None = None,
    head: SupportsIndex | None = None,
) -> Widget:
    """The attention patterns of one model on a string.

    Args:
        model: a Dyck model, or any HookedTransformer, also one that looks ahead.
        text: the string, to which the model's tokenizer adds BOS; or tokens as they are, ``[pos]``
            or ``[1, pos]``.
        layer: only this one; negative counts from the last. None for all.
        head: likewise.

    Raises:
        TypeError: not one HookedTransformer.
        VocabularyError: a text, and a model that cannot read it.
        UnreadableTextError: too long a string, several, or too many patterns.
        ValueError: no such layer or head.
    """
    string, patterns = read_attention(model, text)
    several = patterns.shape[1] > 1
    maps = [
        (f"layer {at}" + (f", head {which}" if several else ""), patterns[at, which])
        for at, which in chosen(patterns, layer, head)
    ]
    return _widget(f"Attention of {name_of(model)}", string, maps)


@checked
def attention_seeds(
    models: Sequence[Any] | Mapping[str, Any],
    text: String,
    *,
    layer: int = -1,
    head: int = 0,
) -> Widget:
    """One head of many models side by side, on the same string; a cell is marked in all of them.

    Args:
        models: such as the seeds of one family; a mapping gives them names.
        text: see `attention`.
        layer: which one; negative counts from the last.
        head: which one.

    Raises:
        UnreadableTextError: no model, too many of them, too long a string, or models that do not
            read it alike.
        ValueError: no such layer or head.
    """
    named = (
        dict(models)
        if isinstance(models, Mapping)
        else {f"seed {i}": model for i, model in enumerate(models)}
    )
    if not named:
        raise UnreadableTextError("there is no model to look at; give at least one")
    maps, strings = [], []
    for name, model in named.items():
        string, patterns = read_attention(model, text)
        strings.append(string)
        ((at, which),) = chosen(patterns, layer, head)
        maps.append((name, patterns[at, which]))
    odd = [
        name for name, string in zip(named, strings, strict=True) if string.ids != strings[0].ids
    ]
    if odd:
        raise UnreadableTextError(
            f"models read the string as different tokens: {next(iter(named))} and {odd[0]}"
        )
    first = next(iter(named.values()))
    names = {name_of(model) for model in named.values()}
    what = f"{names.pop()} models" if len(names) == 1 else "models"
    place = f"layer {layer % first.cfg.n_layers}" + (
        f", head {head}" if first.cfg.n_heads > 1 else ""
    )
    return _widget(f"Attention of {len(maps)} {what}, {place}", strings[0], maps)


def _widget(title: str, string: Text, maps: Sequence[tuple[str, Pattern]]) -> Widget:
    if len(maps) > _MOST_MAPS:
        raise UnreadableTextError(
            f"{len(maps)} patterns on one page are too many to compare; choose at most "
            f"{_MOST_MAPS} with layer=… or head=…"
        )
    figures, data = drawn(string, maps)
    explained = note(_HOW, _STACK if string.depth is not None else None)
    body = [strip(string), figures, color_bar(ring=string.depth is not None), explained]
    # pixels: one large map, two halves, or rows of four small ones of 290 below a head of 330
    height = 850 if len(maps) == 1 else 790 if len(maps) == 2 else 330 + 290 * -(-len(maps) // 4)
    # taller than a screen, a frame would be scrolled as well as the notebook
    return Widget(title=title, height=min(height, 1000), body=body, data=data)


def drawn(string: Text, maps: Sequence[tuple[str, Pattern]]) -> tuple[Html, dict[str, Any]]:
    """Heat maps of one string beside each other, and what the script reads of them."""
    figures = [figure_of(name, string, index, each) for index, (name, each) in enumerate(maps)]
    size = {1: "one", 2: "two"}.get(len(maps), "many")
    weights = [
        {"name": name, "string": 0, "weights": thousandths(pattern)} for name, pattern in maps
    ]
    data = {"strings": [string.to_json()], "maps": weights}
    return element("div", figures, class_=f"heads {size}"), data


def figure_of(name: str, string: Text, index: int, pattern: Pattern) -> Html:
    """A heat map with its name and a line that the script fills; `index` is its number."""
    finite = bool(np.isfinite(pattern).all())
    inside = element("p", "no pattern: the weights are not finite", class_="nomap")
    if finite:
        said = f"; {string.in_words(pattern)}" if any(top >= 0 for top in string.top) else ""
        inside = element(
            "div",
            heat_map(string, pattern),
            role="img",
            aria_label=f"Attention, {name}{said}",
            # short strings have no huge cells
            # 2.2 rem a cell at most; 1.7 cells are the names around the map, as in `heat_map`
            style=f"max-width:{2.2 * (len(string.tokens) + 1.7):.1f}rem",
        )
    return element(
        "figure",
        element("h2", name),
        inside,
        element("figcaption", class_="tells", aria_live="polite" if index == 0 else None),
        class_="head",
        data_map=index if finite else None,
        data_string=0,
    )


def read_text(model: Any, text: String) -> tuple[Int[Tensor, "1 pos"], Text]:
    """A string as a model reads it, and what is known about it."""
    one_model(model, "a picture of attention")
    language = getattr(model.cfg, "language", None)
    tokens = as_tokens(model, text).to(model.cfg.device)
    if len(tokens) != 1:
        raise UnreadableTextError(
            f"a picture is of one string, not of {len(tokens)}; give tokens[i]"
        )
    ids = tokens[0].cpu()
    return tokens, text_of(ids.tolist(), token_texts(model, ids, language), language)


def read_attention(
    model: Any, text: String
) -> tuple[Text, Float[np.ndarray, "layer head query key"]]:
    """A string and all patterns on it, from one forward pass."""
    tokens, string = read_text(model, text)
    check_readable(string)
    # [layer, batch, head, query, key]: the one string
    return string, attention_patterns(model, tokens)[:, 0].double().numpy()


def chosen(
    patterns: Float[np.ndarray, "layer head query key"],
    layer: SupportsIndex | None,
    head: SupportsIndex | None,
) -> list[tuple[int, int]]:
    """The layers and heads that are meant; None for all."""
    places = []
    for what, number, n in zip(("layer", "head"), (layer, head), patterns.shape[:2], strict=True):
        if number is None:
            places.append(list(range(n)))
            continue
        index = check_integer(what, number)
        if not -n <= index < n:
            raise ValueError(f"there is no {what} {index}; the model has {n}, counted from 0")
        # negative ones count from the last
        places.append([index % n])
    return [(at, which) for at, which in product(*places)]


def name_of(model: Any) -> str:
    """Return a title for a model."""
    return str(getattr(model.cfg, "model_name", None) or "model")
