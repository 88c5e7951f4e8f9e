"""The page itself: models, law and scripts in one file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import write_output
from tl_dyck.language import DyckLanguage
from tl_dyck.language.symbols import needs_stack
from tl_dyck.reading.activations import in_javascript
from tl_dyck.report.heatmap import color_bar
from tl_dyck.report.markup import Html, element, filled, json_block
from tl_dyck.report.page import asset, page_file, shell
from tl_dyck.report.playground.weights import UnplayableModelError, pack
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.tasks.dyck import complete_strings, opening_law

_MOST_MODELS = 32  # each adds its weights to the page
_MOST_BRACKETS = 100  # beyond, a map has cells of two pixels
_MOST_BLOCKS = 16  # columns of the table of matched pairs
_MOST_TRIED = 600  # strings near by, for each model
_ACTIVATIONS = "/* filled in: the activations */"
_SCRIPTS = ("network", "grammar", "view", "search", "path", "play")


@checked
def write_playground(
    models: Sequence[Any] | Mapping[str, Any],
    path: str | Path,
    *,
    task: DyckTask | str | None = None,
    string: str | None = None,
    progress: Callable[[float], None] | None = None,
) -> Path:
    """Write one self-contained page on which models read what one types, all side by side.

    For each prefix it shows every attention pattern, the next-token probabilities beside the exact
    law, depth and stack, what each matched pair changes, and for one-layer models the state and
    the sums of the two-layer RNN that they are. It needs no network. About 0.17 MB a model of the
    `gpt` family.

    Args:
        models: of one language, at most 32, such as the seeds of one family; a mapping gives them
            names. `DyckTransformer`s, and what `tl_dyck.adopt` returned if a `DyckTransformer`
            could be of its shape; tokens of it that are no brackets are one row, "other".
        path: of the HTML file; its folder is made if need be.
        task: what they were trained on, or its name, for the exact law; None for complete strings
            of the lengths in `DyckTask`.
        string: what the page opens with; None for the language's probe string.
        progress: told the share of the models, in 0..1, that are in the page; None for nobody.

    Returns:
        The path.

    Raises:
        UnplayableModelError: no models, too many, of several languages, or one that the page
            cannot run; the message names it.
        DyckStringError: `string` is no prefix of the language.
        IsADirectoryError: `path` is a folder.
    """
    named = _named(models)
    target = page_file(path, "playground.html")
    language = needs_stack(_language(named), "the playground is")
    found = load_task(task) if isinstance(task, str) else task or complete_strings(language)
    if found.language != language:
        raise UnplayableModelError(
            f"the task {found.name!r} is of {found.language}, the models are of {language}"
        )
    page = _page(named, found, language.probe_string if string is None else string, progress)
    write_output(target, page.encode())
    return target


def law_table(task: DyckTask) -> dict[str, Any]:
    """The law of the next token, by position and depth: of strings, and of prefixes beyond."""
    rows = [
        # 5 digits: more than a page shows
        [None if np.isnan(value) else round(float(value), 5) for value in row]
        for row in opening_law(task)
    ]
    return {"open": rows, "free": [float(value) for value in task.distribution.open_probability()]}


def _named(models: Sequence[Any] | Mapping[str, Any]) -> dict[str, Any]:
    if isinstance(models, Mapping):
        named = {str(name): model for name, model in models.items()}
    else:
        named = {f"seed {index}": model for index, model in enumerate(models)}
    if not 0 < len(named) <= _MOST_MODELS:
        raise UnplayableModelError(
            f"a playground shows 1 to {_MOST_MODELS} models, not {len(named)}: choose some"
        )
    return named


def _language(named: Mapping[str, Any]) -> Any:
    languages = {}
    for name, model in named.items():
        language = getattr(getattr(model, "cfg", None), "language", None)
        if language is None:
            raise UnplayableModelError(
                f"{name!r} is no Dyck model (build_model, load_model, adopt): the page must know "
                "its brackets"
            )
        languages[name] = language
    first, *others = languages.items()
    for name, language in others:
        if language != first[1]:
            raise UnplayableModelError(
                f"models of one page read one language, but {first[0]!r} reads {first[1]} and "
                f"{name!r} {language}"
            )
    found: DyckLanguage = first[1]
    return found


def _code() -> str:
    """The page's own scripts, with the activations in their place."""
    code = "".join(asset(f"playground/{name}.js") for name in _SCRIPTS)
    before, after = code.split(_ACTIVATIONS)  # not replace, which would not say that it is gone
    return before + in_javascript() + after


def _page(
    named: Mapping[str, Any],
    task: DyckTask,
    string: str,
    progress: Callable[[float], None] | None,
) -> Html:
    language = task.language
    n_ctx = min(model.cfg.n_ctx for model in named.values())
    most = min(_MOST_BRACKETS, n_ctx - 1)
    opening = language.parse(string)[:most]
    checked = _strings(task, most + 1)
    packed = []
    for name, model in named.items():
        packed.append({"name": name, **pack(model, most + 1, checked)})
        if progress is not None:
            progress(len(packed) / len(named))
    data = {
        "language": {
            "n_types": language.n_types,
            "max_depth": language.max_depth,
            "brackets": list(language.alphabet),
        },
        "law": law_table(task),
        "law_note": f"Given that the string is one of those that the models learned from: "
        f"{min(task.train_lengths)} to {max(task.train_lengths)} brackets, {_KIND[task.mode]}.",
        "string": language.to_string(opening),
        "most": most,
        "most_blocks": _MOST_BLOCKS,
        "most_tried": _MOST_TRIED,
        "models": packed,
    }
    families = sorted({str(model.cfg.model_name) for model in named.values()})
    several = len(named) > 1
    scripts = (asset("shared.js") + _code(),)
    title = f"Playground: {f'{len(named)} models' if families[1:] else families[0]}, {task.name}"
    parts = {
        "title": title,
        "lead": f"{f'{len(named)} transformers read' if several else 'A transformer reads'} what "
        f"you type: balanced brackets of {task.n_types} {'type' if task.n_types == 1 else 'types'}"
        f", at most {task.max_depth} deep. Here the right answer is known, so you can see where a "
        "model looks, what it expects next, and whether it is right.",
        "what": f"What the {'models do' if several else 'model does'}",
        "keys": [
            element(
                "button",
                bracket,
                type="button",
                id=f"key-{token}",
                aria_label=f"insert {bracket}",
                class_="key",
            )
            for token, bracket in enumerate(language.alphabet)
        ],
        "heads": _heads(named),
        "scale": color_bar(),
        "data": json_block("data", data),
        "script": Html(f"<script>{scripts[0]}</script>"),
    }
    body = filled(asset("playground/playground.html"), parts)
    return shell(title, body, scripts, asset("playground/playground.css"))


_KIND = {"complete": "complete when they end", "prefix": "cut off anywhere"}


def _strings(task: DyckTask, n_pos: int) -> Int[Tensor, "string pos"]:
    """Tokens on which weights in 16 bits are held to the model.

    Strings of training, strings as long as can be, and what is no string of the language. What
    fills up short ones is BOS, which changes nothing before it.
    """
    generator = torch.Generator().manual_seed(0)
    bos = task.language.bos_token
    short = task.sample(16, generator=generator)[:, :n_pos]
    # 16 of each sort
    rows = torch.full((48, n_pos), bos)
    rows[:16, : short.shape[1]] = short
    rows[16:32, 1:] = task.distribution.sample(16, n_pos - 1, mode="prefix", generator=generator)
    rows[32:, 1:] = torch.randint(0, bos, (16, n_pos - 1), generator=generator)
    return rows


def _heads(named: Mapping[str, Any]) -> Html:
    """What to show: every head, or one of them in all models."""
    places = {
        (layer, head)
        for model in named.values()
        for layer in range(model.cfg.n_layers)
        for head in range(model.cfg.n_heads)
    }
    several = any(model.cfg.n_heads > 1 for model in named.values())
    options = [element("option", "all heads", value="all")] + [
        element(
            "option",
            f"layer {layer}" + (f", head {head}" if several else ""),
            value=f"{layer}-{head}",
        )
        for layer, head in sorted(places)
    ]
    return element("label", "Show ", element("select", options, id="show"), hidden=len(places) == 1)
