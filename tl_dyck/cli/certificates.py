"""What ``tl-dyck certify`` reads, and certificates as text."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from rich.text import Text

from tl_dyck.certify import (
    STOP_WORDS,
    Certificate,
    CertifyError,
    Edit,
    PerturbationSpace,
    Resources,
    Symbols,
    load_synonyms,
    parse_space,
    passages,
    substitution_table,
)
from tl_dyck.cli.terminal import console, say_note, table
from tl_dyck.errors import is_refusal
from tl_dyck.files import read_text
from tl_dyck.language import DyckLanguage
from tl_dyck.rnn import RNNConfig, export_rnn, load_rnn
from tl_dyck.rnn.artefact import FILES
from tl_dyck.rnn.text import text_to_tokens

_STYLES = {"certified": "green", "falsified": "red", "unknown": "yellow"}


# --- reading --------------------------------------------------------------------------------------


def load_any(source: str) -> tuple[Any, RNNConfig, DyckLanguage | None]:
    """A model or an RNN, its description, and the bracket language if there is one."""
    if (Path(source) / FILES[0]).exists():
        rnn = load_rnn(source)
        return rnn, rnn.config, _language(rnn.config)
    from tl_dyck.runs.pretrained import load_pretrained

    model = load_pretrained(source, device="cpu")
    return model, export_rnn(model).config, model.cfg.language


def _language(config: RNNConfig) -> DyckLanguage | None:
    """Of an RNN that counts depths; others do not say."""
    if config.n_types is None or config.max_depth is None:
        return None
    return DyckLanguage(config.n_types, config.max_depth)


def read_lines(file: Path, target: str | None) -> list[tuple[str, str | None]]:
    """Strings, one a line, maybe a tab and a target; `target` for those that have none."""
    rows = []
    for line in read_text(file).splitlines():
        text, tab, wanted = line.partition("\t")
        if text.strip():
            rows.append((text.strip(), wanted.strip() if tab and wanted.strip() else target))
    return rows


def read_rows(
    config: RNNConfig, rows: Sequence[tuple[str, str | None]]
) -> tuple[list[list[int]], list[int | None]]:
    """Strings and targets as tokens.

    Raises:
        CertifyError: one that cannot be; of several strings the message names which.
    """
    if not rows:
        raise CertifyError("no strings: give --text, or --file with one string a line.")
    strings = [
        _numbered(index, len(rows), text_to_tokens, config, text)
        for index, (text, _) in enumerate(rows)
    ]
    return strings, [None if target is None else _target(config, target) for _, target in rows]


def _numbered(index: int, of: int, read: Any, *arguments: Any) -> Any:
    """Call `read`; what it raises names the string, if there are several."""
    try:
        return read(*arguments)
    except ValueError as error:
        if not is_refusal(error):
            raise
        raise CertifyError(
            f"string {index + 1} of {of}: {error}" if of > 1 else str(error)
        ) from error


def _target(config: RNNConfig, text: str) -> int:
    """A target is a symbol of the alphabet, where logits are tokens, or the number of a class."""
    if (
        config.alphabet is not None
        and config.d_vocab_out == config.d_vocab
        and text in config.alphabet
    ):
        return config.alphabet.index(text)
    if text.isascii() and text.isdigit():
        return int(text)
    raise CertifyError(
        f"target {text!r} is neither a symbol that the model predicts nor the number of a logit."
    )


def read_space(
    text: str,
    config: RNNConfig,
    language: DyckLanguage | None,
    *,
    synonyms: Path | None,
    k: int | None,
    delete: str | None,
    insert: str | None,
) -> PerturbationSpace:
    """A space of edits, with what its text cannot say; only what it asks for is looked up.

    Raises:
        CertifyError, SpaceError: a space that cannot be, or something that it needs is missing.
    """
    named = {part.partition(":")[0].strip() for part in text.split(",")}
    found: dict[str, Any] = {"language": language}
    if "sub" in named and synonyms is not None:
        found["substitutes"] = substitution_table(load_synonyms(synonyms), _alphabet(config), k)
    if "del" in named:
        found["deletable"] = _deletable(config, delete)
    if "ins" in named and insert is not None:
        found["insertions"] = [
            text_to_tokens(config, each, prepend_bos=False)
            for each in insert.split(",")
            if each.strip()
        ]
    if "sub" in named and synonyms is None:
        raise CertifyError(
            '"sub" needs synonyms: give --synonyms FILE, a JSON object from word to list of words.'
        )
    if "ins" in named and insert is None:
        raise CertifyError(
            '"ins" needs strings to insert: give --insert TEXTS, separated by commas.'
        )
    if "pairs" in named and language is None:
        raise CertifyError(
            '"pairs" needs the bracket language, '
            "which this RNN does not carry (only those with a depth counter do); "
            "certify the model's own folder instead of the exported one."
        )
    return parse_space(
        text,
        **{name: value for name, value in found.items() if name in Resources.__dataclass_fields__},
    )


def _deletable(config: RNNConfig, words: str | None) -> list[int]:
    if words == "*":
        return [token for token in range(config.d_vocab) if token != config.bos_token]
    wanted = STOP_WORDS if words is None else words.split()
    alphabet = _alphabet(config)
    unknown = [word for word in wanted if word not in alphabet]
    if words is not None and unknown:
        raise CertifyError(f"--delete names words outside the alphabet: {' '.join(unknown)}.")
    if len(unknown) == len(wanted):
        raise CertifyError(
            f'none of the words that "del" may drop ({" ".join(wanted)}) is in the alphabet: '
            "name some with "
            "--delete WORDS, or all with --delete '*'."
        )
    return [alphabet.index(word) for word in wanted if word in alphabet]


def _alphabet(config: RNNConfig) -> tuple[str, ...]:
    if config.alphabet is None:
        raise CertifyError(
            "this RNN has no alphabet, so words mean nothing to it; export it with alphabet=…."
        )
    return config.alphabet


# --- showing --------------------------------------------------------------------------------------


def say_certificates(config: RNNConfig, certificates: Sequence[Certificate], n: int) -> None:
    """One in full, or several in a table; `n` is how many were asked for."""
    if n == 1 and certificates:
        _say_one(config, certificates[0])
    elif certificates:
        _say_many(config, certificates)


def _say_one(config: RNNConfig, certificate: Certificate) -> None:
    out = console()
    style = _STYLES[certificate.status]
    out.print(Text.assemble((certificate.status, f"bold {style}"), f"  {_in_words(certificate)}"))
    rows = table("", "")
    rows.show_header = False
    rows.add_row("string", Text(_text(config, certificate.tokens)))
    worst = certificate.worst
    if worst is not None:
        name = "counterexample" if certificate.status == "falsified" else "worst seen"
        rows.add_row(name, Text(_text(config, worst.tokens)))
        rows.add_row(
            "its edits", _edited(config, certificate.tokens, worst.edits) if worst.edits else "none"
        )
        order = np.argsort(worst.logits)[::-1][:4]
        logits = "  ".join(
            f"{_logit_name(config, int(index))} {worst.logits[index]:.4g}" for index in order
        )
        rows.add_row("its logits", Text(logits))
    rows.add_row("target", Text(_logit_name(config, certificate.target)))
    proved = f"at least {certificate.lower:.6g} proved, " if np.isfinite(certificate.lower) else ""
    rows.add_row("margin", f"{proved}{certificate.upper:.6g} seen")
    counts = ", ".join(
        f"{count:,} {name.replace('_', ' ')}" for name, count in certificate.stats.items()
    )
    rows.add_row("effort", f"{certificate.seconds * 1e3:.3g} ms{', ' * bool(counts)}{counts}")
    out.print(rows)


def _say_many(config: RNNConfig, certificates: Sequence[Certificate]) -> None:
    rows = table(
        "", "verdict", "margin", "ms", "string, and what edits make of it", right=(0, 2, 3)
    )
    for number, certificate in enumerate(certificates, start=1):
        shown = (
            certificate.worst.edits
            if certificate.status == "falsified" and certificate.worst
            else ()
        )
        margin = certificate.upper if certificate.status == "falsified" else certificate.lower
        rows.add_row(
            str(number),
            Text(certificate.status, style=_STYLES[certificate.status]),
            f"{margin:.3g}",
            f"{certificate.seconds * 1e3:.0f}",
            _edited(config, certificate.tokens, shown),
        )
    console().print(rows)
    counts = Counter(str(certificate.status) for certificate in certificates)
    said = ", ".join(f"{counts[status]} {status}" for status in _STYLES if counts[status])
    times = np.array([certificate.seconds for certificate in certificates]) * 1e3
    say_note(
        f"{said}. {np.median(times):.1f} ms a string (median), {np.quantile(times, 0.95):.1f} ms "
        "for 95 %. margin: proved, or the counterexample's."
    )


def _in_words(certificate: Certificate) -> str:
    return {
        "certified": f"no string of {certificate.space} changes the prediction",
        "falsified": f"a string of {certificate.space} changes the prediction",
        "unknown": certificate.reason,
    }[certificate.status]


def _edited(config: RNNConfig, tokens: Sequence[int], edits: Iterable[Edit]) -> Text:
    """The original text, each edit as ‹what goes→what comes› in its place."""
    parts = [
        Text(p.before)
        if p.edit is None
        else Text.assemble("‹", (p.before, "red"), p.sign, (p.after, "bold green"), "›")
        for p in passages(tokens, edits, Symbols.of(config))
    ]
    return Text(_separator(config)).join(parts)


def _separator(config: RNNConfig) -> str:
    return " " if config.alphabet is None else config.separator or ""


def _symbol(config: RNNConfig, token: int) -> str:
    return str(token) if config.alphabet is None else config.alphabet[token]


def _text(config: RNNConfig, tokens: Sequence[int]) -> str:
    return _separator(config).join(
        _symbol(config, token) for token in tokens if token != config.bos_token
    )


def _logit_name(config: RNNConfig, index: int) -> str:
    return _symbol(config, index) if config.d_vocab_out == config.d_vocab else str(index)


def as_json(config: RNNConfig, certificate: Certificate) -> dict[str, Any]:
    """A certificate with its strings as text too."""
    plain = certificate.to_dict()
    texts = {
        "text": _text(config, certificate.tokens),
        "target_text": _logit_name(config, certificate.target),
    }
    if certificate.worst is not None:
        texts["worst_text"] = _text(config, certificate.worst.tokens)
    return texts | plain
