"""The page itself: models, law and scripts in one file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from tl_dyck.files import write_output
from tl_dyck.language import DyckLanguage
from tl_dyck.language.symbols import needs_stack
from tl_dyck.report.heatmap import color_bar
from tl_dyck.report.markup import Html, element, json_block, scrolling
from tl_dyck.report.page import asset, page_file, shell
from tl_dyck.report.playground.law import law_table
from tl_dyck.report.playground.weights import UnplayableModelError, pack
from tl_dyck.tasks import DyckTask, load_task
from tl_dyck.tasks.dyck import complete_strings

_MOST_MODELS = 32
_MOST_BRACKETS = 100  # beyond, a map has cells of two pixels
_MOST_BLOCKS = 16  # columns of the table of matched pairs
_MOST_TRIED = 600  # strings near by, for each model
_SCRIPTS = ("network", "grammar", "view", "search", "play")

_HOW = (
    "All of this is computed in your browser, from the weights in this file: nothing is loaded, "
    "nothing is sent. Logits are those of the models in PyTorch to within 0.001. The address of "
    "the page holds string and position: copy it to share what you see."
)


def write_playground(
    models: Sequence[Any] | Mapping[str, Any],
    path: str | Path,
    *,
    task: DyckTask | str | None = None,
    string: str | None = None,
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
    page = _page(named, found, language.probe_string if string is None else string)
    write_output(target, page.encode())
    return target


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


def _page(named: Mapping[str, Any], task: DyckTask, string: str) -> Html:
    language = task.language
    n_ctx = min(model.cfg.n_ctx for model in named.values())
    most = min(_MOST_BRACKETS, n_ctx - 1)
    opening = language.parse(string)[:most]
    checked = _strings(task, most + 1)
    data = {
        "language": {
            "n_types": language.n_types,
            "max_depth": language.max_depth,
            "brackets": list(language.alphabet),
        },
        "law": law_table(task),
        "law_note": f"Given that the string is one of those that the models learned from: "
        f"{_lengths(task)} brackets, {_KIND[task.mode]}.",
        "string": language.to_string(opening),
        "most": most,
        "most_blocks": _MOST_BLOCKS,
        "most_tried": _MOST_TRIED,
        "models": [
            {"name": name, **pack(model, most + 1, checked)} for name, model in named.items()
        ],
    }
    families = {str(model.cfg.model_name) for model in named.values()}
    title = f"Playground: {', '.join(sorted(families))}, {task.name}"
    scripts = (asset("shared.js") + "".join(asset(f"playground/{name}.js") for name in _SCRIPTS),)
    body = element(
        "body",
        element("header", element("h1", title), _lead(len(named), task)),
        _desk(language),
        element("main", _sections(named), id="main"),
        element("footer", element("p", _HOW)),
        element("div", id="tip", hidden=True),
        element("noscript", "The playground needs JavaScript: it runs the models."),
        json_block("data", data),
        [Html(f"<script>{script}</script>") for script in scripts],
    )
    return shell(title, body, scripts, asset("playground/playground.css"))


_KIND = {"complete": "complete when they end", "prefix": "cut off anywhere"}


def _lengths(task: DyckTask) -> str:
    return f"{min(task.train_lengths)} to {max(task.train_lengths)}"


def _strings(task: DyckTask, n_pos: int) -> Int[Tensor, "string pos"]:
    """Tokens on which weights in 16 bits are held to the model.

    Strings of training, strings as long as can be, and what is no string of the language. What
    fills up short ones is BOS, which changes nothing before it.
    """
    generator = torch.Generator().manual_seed(0)
    bos = task.language.bos_token
    short = task.sample(16, generator=generator)[:, :n_pos]
    rows = torch.full((48, n_pos), bos)
    rows[:16, : short.shape[1]] = short
    rows[16:32, 1:] = task.distribution.sample(16, n_pos - 1, mode="prefix", generator=generator)
    rows[32:, 1:] = torch.randint(0, bos, (16, n_pos - 1), generator=generator)
    return rows


def _lead(n_models: int, task: DyckTask) -> Html:
    who = f"{n_models} transformers read" if n_models > 1 else "A transformer reads"
    return element(
        "p",
        f"{who} what you type: balanced brackets of {task.n_types} "
        f"{'type' if task.n_types == 1 else 'types'}, at most {task.max_depth} deep. Here the "
        "right answer is known, so you can see where a model looks, what it expects next, and "
        "whether it is right.",
        class_="lead",
    )


def _button(name: str, text: str, label: str | None = None, class_: str | None = None) -> Html:
    return element("button", text, type="button", id=name, aria_label=label, class_=class_)


def _desk(language: DyckLanguage) -> Html:
    """Where one types, and the string with a position to look at; it stays in sight."""
    keys = [
        _button(f"key-{token}", bracket, f"insert {bracket}", "key")
        for token, bracket in enumerate(language.alphabet)
    ]
    typing = element(
        "div",
        element("label", "String", for_="text"),
        element(
            "input",
            id="text",
            type="text",
            autocomplete="off",
            autocapitalize="off",
            autocorrect="off",
            spellcheck="false",
            aria_describedby="status",
        ),
        element(
            "div",
            keys,
            _button("back", "⌫", "delete the bracket at the position"),
            _button("clear", "Clear"),
            _button("random", "Random", "a random string, as in training"),
            _button("longer", "Long", "a random string, longer than in training"),
            class_="keys",
            role="group",
            aria_label="brackets",
        ),
        class_="typing",
    )
    slider = element(
        "input", type="range", id="slider", min=0, max=0, value=0, aria_label="position to look at"
    )
    strip = element("div", element("div", element("div", id="strip"), slider, class_="strip"))
    strip = Html(strip.replace("<div>", '<div class="scroll">', 1))
    steps = element(
        "div",
        _button("previous", "◀", "one position back"),
        " ",
        _button("next", "▶", "one position on"),
        class_="keys",
    )
    return element(
        "section",
        typing,
        element("p", id="status", class_="status", aria_live="polite"),
        element("div", strip, steps, class_="stripbox"),
        id="string",
        class_="desk",
        aria_label="the string",
    )


def _section(name: str, title: str, *content: Any) -> Html:
    heading = element("h2", title, id=f"{name}-title")
    return element("section", heading, *content, aria_labelledby=f"{name}-title")


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


def _sections(named: Mapping[str, Any]) -> list[Html]:
    n_models = len(named)
    stack = element(
        "div",
        element("h2", "The stack, by the grammar"),
        element("div", id="stack", aria_hidden="true"),
        element("p", id="depth"),
    )
    law = element(
        "div",
        element("h2", "What follows, exactly"),
        element("div", id="law", class_="chances"),
        element("p", id="law-note", class_="note"),
    )
    grammar = element("section", stack, law, class_="panels", aria_label="what the grammar says")
    key = element(
        "div",
        _heads(named),
        element("span", element("span", class_="fillkey"), " the model’s next token"),
        element("span", element("span", class_="lawkey"), " the exact law"),
        color_bar(),
        class_="legend",
    )
    looks = _section(
        "models",
        "What the models do" if n_models > 1 else "What the model does",
        element("p", id="glance", aria_live="polite"),
        element(
            "p",
            "Maps: rows are queries, columns keys, every row sums to 1; the framed row is the "
            "chosen position. Point at a cell to see it in all models; click to look at its query.",
            class_="note",
        ),
        key,
        element("div", id="cards"),
    )
    return [grammar, looks, _pairs(), _near()]


def _pairs() -> Html:
    return _section(
        "pairs",
        "Balance: what each matched pair changes",
        element(
            "p",
            "A closed block changes nothing of what may follow. So a model that keeps a stack says "
            "the same without it. Here each block before the chosen position is taken out, and the "
            "number is how much of the model’s next-token probability moves (total variation).",
        ),
        element("p", "No block is closed yet at this position.", id="pairs-none", class_="note"),
        scrolling(element("table", id="pairs")),
    )


def _near() -> Html:
    return _section(
        "near",
        "A string near by that fools it",
        element(
            "p",
            "Insert pairs of brackets, which change nothing of what may follow, until the model "
            "closes with the wrong bracket.",
        ),
        _button("search", "Search"),
        element("p", id="near-note", class_="note", aria_live="polite"),
        element("ol", id="near"),
    )
