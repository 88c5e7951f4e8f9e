"""Views of circuitsvis on our models, offline: its script is in the page, once."""

from __future__ import annotations

import html
import re
from collections.abc import Sequence
from functools import cache
from importlib.resources import files
from typing import Any, SupportsIndex

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.errors import needed
from tl_dyck.reading.inputs import looks_ahead
from tl_dyck.report.markup import element
from tl_dyck.report.page import asset
from tl_dyck.report.widgets.attention import String, chosen, name_of, read_attention, read_text
from tl_dyck.report.widgets.frame import Widget, note


@checked
def circuitsvis_attention(
    model: Any,
    text: String,
    *,
    layer: SupportsIndex | None = None,
    head: SupportsIndex | None = None,
) -> Widget:
    """The attention patterns of one model, as circuitsvis draws them: small maps and a large one.

    Args:
        model: a Dyck model, or any HookedTransformer, also one that looks ahead.
        text: the string, to which the model's tokenizer adds BOS; or tokens as they are.
        layer: only this one; negative counts from the last. None for all.
        head: likewise.

    Raises:
        MissingPackageError: the extra tl-dyck[circuitsvis] is not installed.
        UnreadableTextError: too long a string.
        ValueError: no such layer or head, or weights that are not finite.
    """
    string, patterns = read_attention(model, text)
    heads = chosen(patterns, layer, head)
    props = {
        "tokens": string.tokens,
        "attention": _finite(np.stack([patterns[place] for place in heads])),
        "attentionHeadNames": [f"L{at}H{which}" for at, which in heads],
        "maskUpperTri": not looks_ahead(model),
    }
    return _widget(
        f"Attention of {name_of(model)} (circuitsvis)", "AttentionHeads", props, height=700
    )


@checked
def circuitsvis_tokens(
    model: Any,
    text: String,
    values: Float[Tensor, "pos kinds"] | Float[np.ndarray, "pos kinds"] | None = None,
    *,
    labels: Sequence[str] | None = None,
) -> Widget:
    """The tokens of a string, coloured by values of your choice, as circuitsvis draws them.

    Args:
        model: a Dyck model, or any HookedTransformer; without `values` a causal one that predicts
            tokens.
        text: the string, to which the model's tokenizer adds BOS; or tokens as they are.
        values: for every token, BOS included, numbers of one or several kinds, between which a
            button changes. None for the model's probability of each token after those before it,
            its logarithm, and the logit.
        labels: names of the kinds.

    Raises:
        MissingPackageError: the extra tl-dyck[circuitsvis] is not installed.
        ValueError: not a row for every token, not a label for every kind, or values that are not
            finite.
    """
    tokens, string = read_text(model, text)
    shown = string.tokens
    if values is None:
        with torch.no_grad():
            # the logits at a position are of the token behind it: none for the last
            logits = model(tokens)[0, :-1].double()
        if logits.shape[-1] != model.cfg.d_vocab or looks_ahead(model):
            raise ValueError(
                f"{name_of(model)} does not predict the next token: {logits.shape[-1]} logits for "
                f"{model.cfg.d_vocab} tokens, {model.cfg.attention_dir} attention; give values of "
                "your own"
            )
        # [pos - 1, 1]; BOS is predicted by nothing
        own = tokens[0, 1:, None]
        kinds = [logits.softmax(-1), logits.log_softmax(-1), logits]
        values, shown = torch.cat([kind.gather(-1, own) for kind in kinds], dim=-1).cpu(), shown[1:]
        labels = ("probability", "log probability", "logit")
    table = np.asarray(values, dtype=float)
    labels = [f"value {kind}" for kind in range(table.shape[1])] if labels is None else list(labels)
    if table.shape != (len(shown), len(labels)):
        raise ValueError(
            f"values of shape {list(table.shape)} for {len(shown)} tokens and {len(labels)} "
            "labels: give a row for every token, BOS included, and a column for every label"
        )
    # this view reads tokens as HTML: <bos> would be an element, and not be seen
    props = {
        "tokens": [html.escape(token) for token in shown],
        "values": _finite(table),
        "labels": labels,
    }
    return _widget(
        f"Tokens, as {name_of(model)} sees them (circuitsvis)",
        "ColoredTokensMulti",
        props,
        height=320,
    )


def _widget(title: str, view: str, props: dict[str, Any], *, height: int) -> Widget:
    body = [
        element("div", element("div", id="view"), class_="circuitsvis"),
        note("Drawn by circuitsvis."),
    ]
    scripts = (_bundle(), asset("widgets/circuits.js"))
    return Widget(
        title=title, height=height, body=body, data={"view": view, "props": props}, scripts=scripts
    )


@cache
def _bundle() -> str:
    """The script of circuitsvis, for an element to hold, without its source map's address."""
    package = needed("circuitsvis", "this widget", "circuitsvis")
    path = files(package) / "dist" / "cdn" / "iife.js"
    code = re.sub(r"\n//# sourceMappingURL=\S*\s*$", "\n", path.read_text(encoding="utf-8"))
    # within texts of JavaScript, where it means the same
    return code.replace("</script", "<\\/script")


def _finite(values: np.ndarray) -> list[Any]:
    if not np.isfinite(values).all():
        raise ValueError("circuitsvis draws finite numbers only; are the model's weights finite?")
    # four digits are more than colours show, and make the page smaller
    found: list[Any] = values.round(4).tolist()
    return found
