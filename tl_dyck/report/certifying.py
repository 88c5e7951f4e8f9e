"""Exports and certificates, as text: what ``tl-dyck export`` and ``tl-dyck certify`` print and write."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, final

import numpy as np
import typer
from rich.progress import track
from rich.text import Text

from tl_dyck.certify import (
    STOP_WORDS,
    Certificate,
    CertifyError,
    Edit,
    Resources,
    Symbols,
    certify_each,
    load_synonyms,
    parse_space,
    passages,
    substitution_table,
)
from tl_dyck.files import CorruptFileError, ensure_folder, read_text, saved_runs, write_json
from tl_dyck.language import DyckLanguage
from tl_dyck.report.terminal import console, say_note, say_path, table
from tl_dyck.rnn import RNNConfig, export_rnn, load_rnn, save
from tl_dyck.rnn.artefact import CONFIG_FILE
from tl_dyck.rnn.text import text_to_tokens

__all__ = ["Question", "say_certificates", "say_export"]

_STYLES = {"certified": "green", "falsified": "red", "unknown": "yellow"}


def say_export(checkpoint: Path, out: Path, onnx_length: int | None) -> None:
    """Export a saved one-layer model, and say what was written.

    Args:
        checkpoint: folder of a model or of a finished run.
        out: folder to write.
        onnx_length: also write the ONNX network for strings of this many tokens, BOS included.

    Raises:
        CorruptFileError: the folder holds no model, or several.
        UnsupportedModelError: the model has no two-layer RNN.
        MissingOnnxError: ONNX is wanted, and not installed.
    """
    rnn = export_rnn(_load_model(checkpoint))
    if onnx_length is not None:
        from tl_dyck.rnn.onnx import save_onnx  # before anything is written: it may not be installed

        save_onnx(rnn, ensure_folder(out) / f"network-{onnx_length}.onnx", onnx_length)
    save(rnn, out)
    config, numbers = rnn.config, sum(weight.numel() for weight in rnn.weights.values())
    mlp = f"{config.act_fn} MLP of {config.d_mlp}" if config.mlp else "no MLP"
    say_note(
        f"{config.model_name}: {config.n_heads} head{'s' * (config.n_heads > 1)}, width {config.d_model}, {mlp}, "
        f"{numbers:,} weights; layer 1 carries {'nothing' if config.state == 'none' else config.state}. "
        "Compared with the model on random strings: equal."
    )
    say_path("RNN", out)


@final
@dataclass(frozen=True, kw_only=True)
class Question:
    """What is asked of each string; fields are the options of ``tl-dyck certify``."""

    space: str
    target: str | None = None
    certifier: str = "exact"
    synonyms: Path | None = None
    k: int | None = None
    delete: str | None = None
    insert: str | None = None
    time_limit: float = 10.0
    tight: bool = False


def say_certificates(
    source: Path, texts: Sequence[str], file: Path | None, question: Question, out: Path | None, n_jobs: int
) -> None:
    """Certify texts, print what came of it, and write it as JSON if wanted.

    Ctrl-C ends it early: what is done by then is printed and written.

    Args:
        source: folder of an exported RNN, of a model, or of a finished run. With a model, counterexamples are
            confirmed by the model itself.
        texts: strings to certify.
        file: more of them, one a line; a target may follow after a tab.
        question: what to ask.
        out: file to write.
        n_jobs: worker processes.

    Raises:
        CertifyError, RNNTextError, SpaceError: a string, target or space that cannot be; says which.
    """
    model, config, language = _load(source)
    rows = [(text, question.target) for text in texts] + (_lines(file, question.target) if file else [])
    if not rows:
        raise CertifyError("no strings: give --text, or --file with one string a line.")
    strings = [_numbered(index, len(rows), text_to_tokens, config, text) for index, (text, _) in enumerate(rows)]
    targets = [None if target is None else _target(config, target) for _, target in rows]
    space = parse_space(question.space, **_resources(config, language, question))
    certificates = certify_each(
        model,
        strings,
        targets,
        space,
        question.certifier,
        time_limit=question.time_limit,
        tight=question.tight,
        n_jobs=n_jobs,
    )
    done: list[Certificate] = []
    stopped = False
    try:
        for certificate in track(
            certificates, "certifying", total=len(rows), transient=True, disable=len(rows) == 1, console=console()
        ):
            done.append(certificate)  # one by one, so that an interrupt loses nothing
    except KeyboardInterrupt:
        stopped = True
    if len(rows) == 1 and done:
        _say_one(config, done[0])
    elif done:
        _say_many(config, done)
    if out is not None:
        write_json(out, [_as_json(config, certificate) for certificate in done])
        say_path("Certificates", out)
    if stopped:
        say_note(f"stopped after {len(done)} of {len(rows)} strings")
        raise typer.Exit(130)


# --- reading ----------------------------------------------------------------------------------------------------------


def _load_model(folder: Path) -> Any:
    runs = saved_runs(folder)
    if len(runs) > 1:
        raise CorruptFileError(f"{str(folder)!r} holds {len(runs)} runs; name one, such as {str(runs[0])!r}")
    from tl_dyck.models import load_model

    return load_model(runs[0], device="cpu")


def _load(source: Path) -> tuple[Any, RNNConfig, DyckLanguage | None]:
    """A model or an RNN, its description, and the bracket language if there is one."""
    if (source / CONFIG_FILE).exists():
        rnn = load_rnn(source)
        return rnn, rnn.config, _language(rnn.config)
    model = _load_model(source)
    return model, export_rnn(model).config, model.cfg.language


def _language(config: RNNConfig) -> DyckLanguage | None:
    """Of an RNN that counts depths; others do not say."""
    if config.n_types is None or config.max_depth is None:
        return None
    return DyckLanguage(config.n_types, config.max_depth)


def _lines(file: Path, target: str | None) -> list[tuple[str, str | None]]:
    rows = []
    for line in read_text(file).splitlines():
        text, tab, wanted = line.partition("\t")
        if text.strip():
            rows.append((text.strip(), wanted.strip() if tab and wanted.strip() else target))
    return rows


def _numbered(index: int, of: int, read: Any, *arguments: Any) -> Any:
    """Call `read`; what it raises names the string, if there are several."""
    try:
        return read(*arguments)
    except ValueError as error:
        raise CertifyError(f"string {index + 1} of {of}: {error}" if of > 1 else str(error)) from error


def _target(config: RNNConfig, text: str) -> int:
    """A target is a symbol of the alphabet, where logits are tokens, or the number of a class."""
    if config.alphabet is not None and config.d_vocab_out == config.d_vocab and text in config.alphabet:
        return config.alphabet.index(text)
    if text.isascii() and text.isdigit():
        return int(text)
    raise CertifyError(f"target {text!r} is neither a symbol that the model predicts nor the number of a logit.")


def _resources(config: RNNConfig, language: DyckLanguage | None, question: Question) -> dict[str, Any]:
    """What the space's text cannot say; only what it asks for is looked up."""
    names = {part.partition(":")[0].strip() for part in question.space.split(",")}
    found: dict[str, Any] = {"language": language}
    if "sub" in names and question.synonyms is not None:
        found["substitutes"] = substitution_table(load_synonyms(question.synonyms), _alphabet(config), question.k)
    if "del" in names:
        found["deletable"] = _deletable(config, question.delete)
    if "ins" in names and question.insert is not None:
        found["insertions"] = [
            text_to_tokens(config, text, prepend_bos=False) for text in question.insert.split(",") if text.strip()
        ]
    if "sub" in names and question.synonyms is None:
        raise CertifyError('"sub" needs synonyms: give --synonyms FILE, a JSON object from word to list of words.')
    if "ins" in names and question.insert is None:
        raise CertifyError('"ins" needs strings to insert: give --insert TEXTS, with commas between.')
    if "pairs" in names and language is None:
        raise CertifyError(
            '"pairs" needs the bracket language, which this RNN does not carry (only those with a depth counter do); '
            "certify the model's own folder instead of the exported one."
        )
    return {field: value for field, value in found.items() if field in Resources.__dataclass_fields__}


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
            f'none of the words that "del" may drop ({" ".join(wanted)}) is in the alphabet: name some with '
            "--delete WORDS, or all with --delete '*'."
        )
    return [alphabet.index(word) for word in wanted if word in alphabet]


def _alphabet(config: RNNConfig) -> tuple[str, ...]:
    if config.alphabet is None:
        raise CertifyError("this RNN has no alphabet, so words mean nothing to it; export it with alphabet=….")
    return config.alphabet


# --- showing ----------------------------------------------------------------------------------------------------------


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
        rows.add_row("its edits", _edited(config, certificate.tokens, worst.edits) if worst.edits else "none")
        order = np.argsort(worst.logits)[::-1][:4]
        logits = "  ".join(f"{_logit_name(config, int(index))} {worst.logits[index]:.4g}" for index in order)
        rows.add_row("its logits", Text(logits))
    rows.add_row("target", Text(_logit_name(config, certificate.target)))
    proved = f"at least {certificate.lower:.6g} proved, " if np.isfinite(certificate.lower) else ""
    rows.add_row("margin", f"{proved}{certificate.upper:.6g} seen")
    counts = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in certificate.stats.items())
    rows.add_row("effort", f"{certificate.seconds * 1e3:.3g} ms{', ' * bool(counts)}{counts}")
    out.print(rows)


def _say_many(config: RNNConfig, certificates: Sequence[Certificate]) -> None:
    rows = table("", "verdict", "margin", "ms", "string, and what edits make of it", right=(0, 2, 3))
    for number, certificate in enumerate(certificates, start=1):
        shown = certificate.worst.edits if certificate.status == "falsified" and certificate.worst else ()
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
        f"{said}. {np.median(times):.1f} ms a string (median), {np.quantile(times, 0.95):.1f} ms for 95 %. "
        "margin: proved, or the counterexample's."
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
    return _separator(config).join(_symbol(config, token) for token in tokens if token != config.bos_token)


def _logit_name(config: RNNConfig, index: int) -> str:
    return _symbol(config, index) if config.d_vocab_out == config.d_vocab else str(index)


def _as_json(config: RNNConfig, certificate: Certificate) -> dict[str, Any]:
    plain = certificate.to_dict()
    texts = {"text": _text(config, certificate.tokens), "target_text": _logit_name(config, certificate.target)}
    if certificate.worst is not None:
        texts["worst_text"] = _text(config, certificate.worst.tokens)
    return texts | plain
