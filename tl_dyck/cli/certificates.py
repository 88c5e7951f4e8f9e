"""What ``tl-dyck certify`` reads: models, strings with targets, spaces of edits."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tl_dyck.certify import (
    STOP_WORDS,
    CertifyError,
    PerturbationSpace,
    SpaceError,
    Symbols,
    load_synonyms,
    parse_space,
    substitution_table,
)
from tl_dyck.cli.options import EditOptions
from tl_dyck.kit.files import read_text
from tl_dyck.language import DyckLanguage, DyckStringError
from tl_dyck.rnn import RNNConfig, TwoLayerRNN, export_rnn, load_rnn
from tl_dyck.rnn.artefact import FILES

#: What to do where data is missing that a transformation needs, by the field of `Resources`.
_MISSING = {
    "substitutes": "synonyms: give --synonyms FILE, a JSON object from word to list of words",
    "deletable": "words that may go: give --delete WORDS, or all with --delete '*'",
    "insertions": "strings to insert: give --insert TEXTS, separated by commas",
    "language": "the bracket language, which this RNN does not carry (only those with a depth "
    "counter do); certify the model's own folder instead of the exported one",
}


def load_any(source: str) -> tuple[Any, DyckLanguage | None]:
    """A model or an RNN, and the bracket language if it says which."""
    # the JSON file of an exported RNN
    if (Path(source) / FILES[0]).exists():
        rnn = load_rnn(source)
        return rnn, rnn.config.language
    from tl_dyck.runs.saved import load_pretrained

    model = load_pretrained(source, device="cpu")
    return model, model.cfg.language


def description(network: Any) -> RNNConfig:
    """What a model reads and puts out, as the RNN that it is."""
    # not compared with the model here: whoever certifies exports it again, and compares
    rnn = network if isinstance(network, TwoLayerRNN) else export_rnn(network, verify=False)
    return rnn.config


def read_lines(file: Path, target: str | None) -> list[tuple[str, str | None]]:
    """Strings, one a line, maybe a tab and a target; `target` for those that have none."""
    rows = []
    # not `splitlines`: words may hold its other line ends
    for line in read_text(file).split("\n"):
        text, tab, wanted = line.partition("\t")
        if text.strip():
            rows.append((text.strip(), wanted.strip() if tab and wanted.strip() else target))
    return rows


def read_rows(
    config: RNNConfig, rows: Sequence[tuple[str, str | None]]
) -> tuple[list[list[int]], list[int | None]]:
    """Strings and targets as tokens and logits; a target is the name of a logit, or its number.

    Raises:
        CertifyError: one that cannot be; of several strings the message names which.
    """
    if not rows:
        raise CertifyError("no strings: give --text, or --file with one string a line.")
    symbols, strings = config.symbols, []
    targets: list[int | None] = []
    for number, (text, target) in enumerate(rows, start=1):
        try:
            strings.append(config.read(text))
        except DyckStringError as error:
            which = f"string {number} of {len(rows)}: " if len(rows) > 1 else ""
            raise CertifyError(f"{which}{error}") from error
        targets.append(None if target is None else _logit(symbols, target))
    return strings, targets


def _logit(symbols: Symbols, target: str) -> int:
    if target in symbols.alphabet[: symbols.logits]:
        return symbols.index(target)
    if target.isascii() and target.isdigit():
        return int(target)
    raise CertifyError(
        f"target {target!r} is neither a symbol that the model predicts nor the number of a logit."
    )


def read_space(
    edits: EditOptions, config: RNNConfig, language: DyckLanguage | None
) -> PerturbationSpace:
    """A space of edits, with what its text cannot say: what options give, or "del" looks up.

    Raises:
        CertifyError, SpaceError: a space that cannot be, or something that it needs is missing.
    """
    # "pairs:2" by its name
    named = {part.partition(":")[0].strip() for part in edits.space.split(",")}
    found: dict[str, Any] = {"language": language}
    if edits.synonyms is not None:
        synonyms = load_synonyms(edits.synonyms)
        found["substitutes"] = substitution_table(synonyms, _alphabet(config), edits.k)
    if "del" in named or edits.delete is not None:
        found["deletable"] = _deletable(config, edits.delete)
    if edits.insert is not None:
        texts = [each for each in edits.insert.split(",") if each.strip()]
        found["insertions"] = [config.read(each, prepend_bos=False) for each in texts]
    try:
        return parse_space(edits.space, **found)
    except SpaceError as error:
        name, field = error.missing or ("", "")
        if field not in _MISSING:
            raise
        raise CertifyError(f'"{name}" needs {_MISSING[field]}.') from error


def _deletable(config: RNNConfig, words: str | None) -> list[int]:
    if words == "*":
        return [token for token in range(config.d_vocab) if token != config.bos_token]
    wanted = STOP_WORDS if words is None else words.split()
    alphabet = _alphabet(config)
    unknown = [word for word in wanted if word not in alphabet]
    # of the usual stop words some may be absent; of words that were asked for none
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
