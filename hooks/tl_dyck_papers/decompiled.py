"""Published models of regular languages, decided: ``python -m tl_dyck_papers.decompiled FOLDER``.

The models are one-layer GPT-2s of "Decompiling Transformers to RASP" (arXiv 2602.08857). After each
prefix of a language they say which symbols may follow: those with a logit above 0. The folder has a
folder of each model, as `transformers` saves it.

Knows: which languages these are, and which ids the models read.
"""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tl_dyck import AutomatonTask, Vocabulary, adopt, certify_language
from tl_dyck.certify.language import LanguageCertificate
from tl_dyck.kit.files import CorruptFileError, parse_json, read_regular
from tl_dyck.kit.registry import unknown_name
from tl_dyck.tasks.tables import all_strings
from tl_dyck_papers.published import leave, options_of

_END = "$"
_MOST_RUN = 300_000  # strings that are run by transformers; a minute or two

Moves = Callable[[Any], Mapping[str, Any]]


#: Symbols, then a row for each state, from the first on: the state behind each symbol, "." where
#: that may not follow, and "$" where the string may end.
REGULAR = {
    "012_0_2": ("012", ["100", "101$"]),  # {0,1,2}*02*
    "ab_d_bc": ("abcd", ["00.1", ".11.$"]),  # {a,b}*d{b,c}*
    "abcde": ("abcde", ["1....", "12...", ".23..", "..34.", "...45", "....5$"]),  # a⁺b⁺c⁺d⁺e⁺
    "aastar": ("a", ["1$", "0"]),  # (aa)*
    "aaaastar": ("a", ["1$", "2", "3", "0"]),  # (aaaa)*
    "ababstar": ("ab", ["1.$", ".2", "3.", ".0"]),  # (abab)*
    "tomita1": ("01", [".0$"]),  # 1*
    "tomita2": ("01", [".1$", "0."]),  # (10)*
    "tomita3": ("01", ["01$", "20$", "3.", "21$"]),  # no odd run of 1 before an odd one of 0
    "tomita4": ("01", ["10$", "20$", ".0$"]),  # no 000
    "tomita5": ("01", ["12$", "03", "30", "21"]),  # 0s and 1s are even in number
    "tomita6": ("01", ["12$", "20", "01"]),  # 0s less 1s are a multiple of 3
    "tomita7": ("01", ["01$", "21$", "23$", ".3$"]),  # 0*1*0*1*
}
_OVER = -1  # the state behind the end


def _nested(deepest: int) -> Moves:
    """Dyck-1: `a` opens, `b` closes; the state is the depth."""

    def moves(depth: int) -> dict[str, int]:
        opens = {"a": depth + 1} if 0 <= depth < deepest else {}
        closes = {"b": depth - 1} if depth > 0 else {}
        return opens | closes | ({_END: _OVER} if depth == 0 else {})

    return moves


def _by_table(symbols: str, rows: list[str]) -> Moves:
    """The moves of a row of `REGULAR`."""

    def moves(state: int) -> dict[str, int]:
        row = rows[state] if state != _OVER else ""
        found = {x: int(to) for x, to in zip(symbols, row, strict=False) if to != "."}
        return found | ({_END: _OVER} if row.endswith(_END) else {})

    return moves


def language_of(name: str) -> tuple[str, Moves] | None:
    """Symbols and moves, from state 0, of a folder's name; None if it names no language.

    Names are the authors': "D3", "tomita4", "ab_d_bc", with what they put around: "bce_" before,
    and, from "-" or "@" on, the model's sizes.
    """
    stem = re.sub(r"[-@^].*", "", name.lower()).removeprefix("bce_")
    if nested := re.fullmatch(r"d_?([1-9]\d?)", stem):
        return "ab", _nested(int(nested[1]))
    if stem not in REGULAR:
        return None
    return REGULAR[stem][0], _by_table(*REGULAR[stem])


def left_out(folder: Path) -> str:
    """Why a folder is of no model that says what may follow in a language that is known here."""
    language = language_of(folder.name)
    if language is None:
        return "its name is no language's"
    try:
        config = parse_json(read_regular(folder / "config.json"))
    except (ValueError, CorruptFileError):
        config = None
    if not isinstance(config, dict):
        return "its config.json is no object of JSON"
    # models that say whether a string belongs have answers among the symbols, and so other ids
    n = len(language[0])
    if (config.get("bos_token_id"), config.get("eos_token_id")) != (n, n + 2):
        return f"its BOS and end are not {n} and {n + 2}, as of one that says what may follow"
    return ""


def task_of(name: str, *, end: bool = True) -> AutomatonTask:
    """The language of a folder, with an end; or its beginnings alone, without."""
    language = language_of(name)
    if language is None:
        raise unknown_name("language", name, ["D2", "D3", *REGULAR])
    symbols, moves = language

    def endless(state: Any) -> dict[str, Any]:
        return {symbol: after for symbol, after in moves(state).items() if symbol != _END}

    return AutomatonTask(
        name=name,
        symbols=(*symbols, _END) if end else tuple(symbols),
        start=0,
        moves=moves if end else endless,
        train_lengths=(20,),
        long_lengths=(20, 151),
    )


def decide(
    folder: Path, name: str, longest: int, until: str, time_limit: float | None, *, end: bool = True
) -> dict[str, Any]:
    """All that is said of a model, as JSON values; without `end`, of the symbols alone."""
    import transformers

    task = task_of(name, end=end)
    n = len(task.symbols) - end
    # of the symbols, and of the end; BOS is n, the padding n + 3
    ids = [*range(n), n + 2][: len(task.symbols)]
    model = adopt(folder / name, Vocabulary(task.language, ids, bos=n, padding=n + 3))
    started = time.perf_counter()
    found = certify_language(model, task, longest, "allowed", until=until, time_limit=time_limit)
    seconds = time.perf_counter() - started
    original = transformers.GPT2LMHeadModel.from_pretrained(folder / name).eval()
    worst = found.shortest or found.tightest
    assert worst is not None
    logits = _run(original, np.array([worst.tokens], dtype=np.int64), n, ids)[0, -1]
    return {
        "name": name,
        "status": found.status,
        "prefixes": found.prefixes,
        "proved to": found.proved_to,
        "longest": longest,
        "least margin": [found.margin.low, found.margin.high],
        "shortest": None if found.shortest is None else found.shortest.text,
        "says": [task.symbols[at] for at in np.flatnonzero(logits > 0).tolist()],
        "may": list(worst.may_follow),
        "run": _beside(original, task, found, n, ids),
        "seconds": seconds,
    }


@torch.no_grad()
def _run(model: Any, strings: NDArray[Any], bos: int, ids: list[int]) -> NDArray[Any]:
    """The model's logits of the symbols, ``[n, pos, symbol]``, in `transformers`, float32."""
    tokens = np.insert(np.array(ids)[strings], 0, bos, axis=1)
    parts = [model(part).logits[..., ids] for part in torch.from_numpy(tokens).split(4096)]
    found: NDArray[Any] = torch.cat(parts).double().numpy()
    return found


def _beside(
    model: Any, task: AutomatonTask, found: LanguageCertificate, bos: int, ids: list[int]
) -> dict[str, Any]:
    """Every string up to a length, run: how many beginnings are wrong, and how far margins differ.

    Raises:
        RuntimeError: the certificate says something else.
    """
    length, strings = 0, None
    for longer in range(1, found.lengths[-1] + 1):
        more = all_strings(task, longer, _MOST_RUN)
        if more is None:
            break
        length, strings = longer, more
    assert strings is not None
    there = np.insert(strings >= 0, 0, True, axis=1)
    tokens = np.insert(
        np.where(strings < 0, task.language.bos_token, strings), 0, task.language.bos_token, axis=1
    )
    may = task.allowed(torch.from_numpy(tokens)).numpy()
    logits = _run(model, np.maximum(strings, 0), bos, ids)
    margin = np.where(may, logits, -logits).min(-1)
    margin[~(there & may.any(-1))] = np.inf
    off, wrong = 0.0, 0
    for row in (row for row in found.by_length if row.length <= length and row.margin is not None):
        least = margin[:, row.length].min()
        _, first = np.unique(tokens[:, : row.length + 1], axis=0, return_index=True)
        number = int((margin[first, row.length] < 0).sum())
        if row.decided and number != row.wrong:
            raise RuntimeError(f"{task.name}, length {row.length}: {number} wrong, not {row.wrong}")
        assert row.margin is not None
        off = max(off, least - row.margin.high, row.margin.low - least)
        wrong += number
    return {"length": length, "wrong": wrong, "off": off}


def table(rows: list[dict[str, Any]]) -> str:
    """Markdown: a row for each model."""
    text = [
        "| model | on every prefix | least margin | shortest wrong prefix | it says | may follow | "
        "every string run to length | of these wrong, margins off by | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for row in rows:
        low, high = (f"{value:.4g}" for value in row["least margin"])
        margin = low if low == high else f"{low} to {high}"
        verdict = f"**{row['status']}**"
        if row["status"] != "refuted":
            verdict += f" to length {row['proved to']} of {row['longest']}"
        wrong = row["shortest"] is not None
        shown = f"`{row['shortest']}`" if wrong else ""
        says, may = (" ".join(row[each]) if wrong else "" for each in ("says", "may"))
        run = row["run"]
        text.append(
            f"| {row['name']} | {verdict} | {margin} | {shown} | {says} | {may} | "
            f"{run['length']} | {run['wrong']}, {run['off']:.1g} | {row['seconds']:.0f} |"
        )
    return "\n".join(text) + "\n"


def main() -> None:
    """Decide the models of a folder, and leave a table."""
    what = "Decide published models of regular languages."
    parser = options_of(what, "results/decompiled", until="counted")
    parser.add_argument("--longest", type=int, default=20, help="prefixes, in symbols")
    parser.add_argument(
        "--no-end", dest="end", action="store_false", help="ask of symbols, not whether it may end"
    )
    options = parser.parse_args()
    names = []
    for each in sorted(each.parent for each in options.folder.glob("*/config.json")):
        if why := left_out(each):
            print(f"{str(each)!r}: left out: {why}", file=sys.stderr)
        else:
            names.append(each.name)
    if not names:
        parser.error(
            f"no folder of a model in {options.folder}: each has a config.json, and a name "
            f"such as D2 or {', '.join(REGULAR)}"
        )
    how = options.longest, options.until, options.time_limit
    found = (decide(options.folder, name, *how, end=options.end) for name in names)
    leave(options.out, found, table)


if __name__ == "__main__":
    main()
