"""Classifiers of sentences: what ``tl-dyck text`` prints, and pictures of the edits that flip a prediction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from rich.text import Text

from tl_dyck.certify import Certificate, Edit, PerturbationSpace, load_synonyms, placed
from tl_dyck.files import CorruptFileError, ensure_folder, write_bytes, write_json
from tl_dyck.machine import environment
from tl_dyck.models.text import TextConfig, TextTransformer, load_text_model, save_text_model
from tl_dyck.report.markup import Html, element
from tl_dyck.report.markup import table as html_table
from tl_dyck.report.page import asset, shell
from tl_dyck.report.patterns import SHADES
from tl_dyck.report.terminal import console, say_note, say_path, table
from tl_dyck.rnn import export_rnn, save
from tl_dyck.text import (
    Corpus,
    Sentence,
    TextTable,
    TextTraining,
    accuracy,
    build_words,
    certify_sentences,
    load_folder,
    load_sst2,
    run_table,
    summarise,
    text_space,
    train_text,
)
from tl_dyck.text.corpus import CorpusError
from tl_dyck.text.edits import BatchEdits, encode_sentences
from tl_dyck.text.training import text_logits

__all__ = ["say_text_certificates", "say_text_table", "say_text_training", "sentence_picture", "write_sentences"]

_SHOWN = 40  # sentences on a page
_LONGEST = 512  # n_ctx, unless asked for


def load_corpus(data: str) -> Corpus:
    """A local folder, or "sst2" for the Hugging Face hub's; says what could not be used."""
    corpus = load_sst2() if data == "sst2" and not Path(data).exists() else load_folder(data)
    for reason, count in corpus.problems.items():
        say_note(f"left out, {reason}: {count}")
    return corpus


def needed_n_ctx(corpus: Corpus, space: PerturbationSpace, config: TextConfig) -> int:
    """The least n_ctx that every sentence fits in with its duplications, but no less than that of `config`.

    Raises:
        CorpusError: a sentence is so long that nobody can want that unasked: memory grows with the square of it.
    """
    sentence = max((*corpus.train, *corpus.test), key=lambda sentence: len(sentence.text.split()))
    longest = len(sentence.text.split())
    needed = max(config.n_ctx, longest + BatchEdits.of(space, config).budgets[0] + 1)
    if needed > _LONGEST:
        raise CorpusError(
            f"a sentence has {longest} words ({sentence.text[:30]!r}…): leave it out, or give --n-ctx {needed} if you "
            "have the memory, which grows with the square of that"
        )
    return needed


def say_text_training(
    data: str,
    out: Path,
    fields: dict[str, Any],
    options: TextTraining,
    space: str,
    synonyms: Path | None,
    k: int,
    seed: int,
    n_ctx: int | None = None,
) -> None:
    """Train one classifier and keep it, as a model and as an exported RNN.

    Raises:
        CorpusError, SpaceError, ValueError: what cannot be; says which and why.
    """
    corpus = load_corpus(data)
    config = TextConfig(words=build_words(corpus.train), n_classes=corpus.n_classes, **fields)
    words = load_synonyms(synonyms) if synonyms is not None else {}
    edits = text_space(space, config, words, k)
    config = replace(config, n_ctx=n_ctx or needed_n_ctx(corpus, edits, config))
    encode_sentences(config, corpus.test, edits)  # before training, not after it
    if options.objective != "clean" and "sub" in space and not words:
        raise CorruptFileError('"sub" in the space needs synonyms: give --synonyms FILE, a JSON object')
    ensure_folder(out)
    model, curve = train_text(config, corpus.train, options, space=edits, seed=seed)
    save_text_model(model, out)
    rnn = export_rnn(model, alphabet=config.words, separator=" ", unknown_token=config.unknown_token)
    save(rnn, out / "rnn")
    write_json(
        out / "training.json", {"options": options.to_dict(), "space": space, "k": k, "seed": seed, "curve": curve}
    )
    unknown = sum(token == config.unknown_token for row in corpus.test for token in config.encode(row.text))
    say_note(f"{len(corpus.train):,} sentences, {len(config.words):,} words; {unknown:,} unknown words in the test set")
    rows = table("objective", "steps", "time (s)", "clean loss", "robust loss", "train", "test", right=range(1, 7))
    last = curve[-1]
    rows.add_row(
        options.objective,
        f"{last['step']:,.0f}",
        f"{last['seconds']:.0f}",
        f"{last['clean_loss']:.3f}",
        f"{last['robust_loss']:.3f}",
        f"{accuracy(model, corpus.train[:2000]):.1%}",
        f"{accuracy(model, corpus.test):.1%}",
    )
    console().print(rows)
    say_path("Model", out)


def say_text_certificates(
    folder: Path,
    data: str,
    space: str,
    synonyms: Path | None,
    k: int,
    certifier: str,
    limit: int | None,
    time_limit: float,
    out: Path | None,
    jobs: int,
) -> None:
    """Certify the test sentences, print a summary, and write the page of pictures."""
    model, corpus = load_text_model(folder), load_corpus(data)
    words = load_synonyms(synonyms) if synonyms is not None else {}
    test = corpus.test[:limit]
    edits = text_space(space, model.text, words, k)
    found = certify_sentences(
        model, test, edits, certifier=certifier, time_limit=time_limit, n_jobs=jobs, progress=True
    )
    counts = Counter(str(certificate.status) for certificate in found)
    ms = np.array([certificate.seconds for certificate in found]) * 1e3
    rows = table("sentences", "accuracy", "certified", "falsified", "undecided", "median ms", "95 %", right=range(7))
    shares = [f"{counts[status] / len(found):.1%}" for status in ("certified", "falsified", "unknown")]
    times = f"{np.median(ms):.1f}", f"{np.quantile(ms, 0.95):.1f}"
    rows.add_row(f"{len(found):,}", f"{accuracy(model, test):.1%}", *shares, *times)
    console().print(rows)
    say_note("certified: the right class is predicted on every string of the space; falsified: on some it is not.")
    target = out or folder / "sentences.html"
    write_sentences(model, test, found, target)
    write_json(target.with_suffix(".json"), [certificate.to_dict() for certificate in found])
    say_path("Pictures", target)


def say_text_table(
    data: str, synonyms: Path, out: Path, wanted: TextTable, jobs: int, n_ctx: int | None = None
) -> None:
    """Train and certify everything, and print and write the table."""
    corpus = load_corpus(data)
    words = load_synonyms(synonyms)
    wanted = replace(wanted, model=tuple({**dict(wanted.model), "n_classes": corpus.n_classes}.items()))
    config = wanted.config(build_words(corpus.train))
    edits = text_space(wanted.defend, config, words, max(wanted.ks))
    needed = n_ctx or needed_n_ctx(corpus, edits, config)
    encode_sentences(replace(config, n_ctx=needed), (*corpus.train, *corpus.test), edits)  # before training
    if needed != config.n_ctx:
        wanted = replace(wanted, model=(*wanted.model, ("n_ctx", needed)))
    rows = run_table(corpus, words, out, wanted, n_jobs=jobs)
    means = summarise(rows)
    for k, group in means.groupby("k", sort=False):
        console().print(Text(f"\n{k} synonym{'s' * (k != 1)} a word", style="bold"))
        shown = table("space", "objective", "clean", "certified", "interval", "ms", "95 %", right=range(2, 7))
        for row in group.itertuples():
            shown.add_row(
                Text(str(row.space)),
                str(row.objective),
                f"{row.clean:.1%}",
                f"{row.certified:.1%} [{row.certified_low:.1%}, {row.certified_high:.1%}]",
                f"{row.interval:.1%}",
                f"{row.median_ms:.1f}",
                f"{row.p95_ms:.1f}",
            )
        console().print(shown)
    listed, differ = int(rows["enumerated"].sum()), int(rows["disagreements"].sum())
    say_note(
        f"Means over {len(wanted.seeds)} seeds, with 95 % bootstrap intervals. certified: exact; {listed:,} of its "
        f"verdicts were checked by enumeration, {differ} differ."
    )
    write_bytes(out / "summary.csv", means.to_csv(index=False).encode())
    write_bytes(out / "table.md", markdown_table(means).encode())
    write_json(out / "question.json", asdict(wanted))
    write_json(out / "environment.json", environment())
    say_path("Table", out / "table.md")


def markdown_table(means: pd.DataFrame) -> str:
    """The means as a Markdown table."""
    lines = [
        "| k | space | training | clean | certified, exact | certified, interval | undecided | ms (median, 95 %) |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for row in means.itertuples():
        lines.append(
            f"| {row.k} | {row.space} | {row.objective} | "
            f"{row.clean:.1%} [{row.clean_low:.1%}, {row.clean_high:.1%}] | "
            f"{row.certified:.1%} [{row.certified_low:.1%}, {row.certified_high:.1%}] | {row.interval:.1%} | "
            f"{row.undecided:.1%} | {row.median_ms:.1f}, {row.p95_ms:.1f} |"
        )
    return "\n".join(lines) + "\n"


# --- pictures ---------------------------------------------------------------------------------------------------------


def write_sentences(
    model: TextTransformer, sentences: Sequence[Sentence], certificates: Sequence[Certificate], path: str | Path
) -> Path:
    """A page with a picture per sentence, flipped ones first: the edits, the words, and the attention on each.

    Self-contained, without scripts; user strings are escaped. At most 40 sentences are shown.
    """
    order = {"falsified": 0, "unknown": 1, "certified": 2}
    with torch.no_grad():
        predicted = text_logits(model, [certificate.tokens for certificate in certificates]).argmax(-1).tolist()
    right = [best == certificate.target for best, certificate in zip(predicted, certificates, strict=True)]
    # right answers first: of a wrong one no edit is to blame
    ranked = sorted(
        zip(right, sentences, certificates, strict=True),
        key=lambda row: (not row[0], order[row[2].status], -row[2].upper),
    )
    pairs = [(sentence, certificate) for _, sentence, certificate in ranked]
    parts = [sentence_picture(model, certificate) for _, certificate in pairs[:_SHOWN]]
    counts = Counter(str(certificate.status) for certificate in certificates)
    said = ", ".join(f"{counts[status]} {status}" for status in order if counts[status])
    intro = element(
        "p",
        f"{len(certificates)} sentences under {certificates[0].space if certificates else 'no edits'}: {said}. ",
        "Shown first: right predictions that edits flip, the least wrong of them first. The darker a word's ground, "
        "the more attention the readout gives it (mean over heads); struck out: replaced or dropped; framed: new.",
        class_="lead",
    )
    rows = [
        [_plain(model, certificate.tokens), certificate.status, f"{certificate.upper:.3g}", _edits(certificate)]
        for _, certificate in pairs
    ]
    everything = element(
        "details",
        element("summary", "All sentences"),
        html_table("All sentences", ("sentence", "verdict", "margin seen", "edits"), rows, numeric=(2,)),
    )
    body = element("body", element("main", element("h1", "What flips a prediction"), intro, parts, everything))
    target = Path(path)
    ensure_folder(target.parent)
    write_bytes(target, shell("What flips a prediction", body, style=asset("texts.css")).encode())
    return target


def sentence_picture(model: TextTransformer, certificate: Certificate) -> Html:
    """One sentence before and after its worst edits, with the attention of the readout on every word."""
    worst = certificate.worst
    edits = [_visible(edit) for edit in worst.edits] if worst is not None else []
    before = _words(model, certificate.tokens, [(edit.start, len(edit.removed)) for edit in edits], "gone")
    rows = [element("p", element("b", "as it was: "), before, class_="words")]
    if worst is not None and edits:
        after = _words(model, worst.tokens, _places(edits), "new")
        rows.append(element("p", element("b", "worst edits: "), after, class_="words"))
    logits = "" if worst is None else ", ".join(f"class {i}: {logit:.2f}" for i, logit in enumerate(worst.logits))
    proved = f", proved at least {certificate.lower:.3g}" if np.isfinite(certificate.lower) else ""
    margin = f"margin {certificate.upper:.3g}{proved}"
    title = element(
        "h2", element("span", certificate.status, class_=certificate.status), f" class {certificate.target}"
    )
    return element("section", title, rows, element("p", f"{margin}; {logits}", class_="note"), class_="sentence")


def _visible(edit: Edit) -> Edit:
    """What one sees of an edit: of a word that is repeated, only the repetition."""
    same = len(edit.removed)
    if edit.inserted[:same] != edit.removed:
        return edit
    return replace(edit, start=edit.start + same, removed=(), inserted=edit.inserted[same:])


def _places(edits: Sequence[Edit]) -> list[tuple[int, int]]:
    """Where the inserted tokens are in the edited string: (start, number)."""
    return [(at, len(edit.inserted)) for edit, at in placed(edits)]


@torch.no_grad()
def _words(model: TextTransformer, tokens: Sequence[int], marked: Sequence[tuple[int, int]], mark: str) -> list[Any]:
    """Words with their attention as background; some are marked."""
    _, cache = model.run_with_cache(
        torch.tensor([list(tokens)]), names_filter=lambda name: name.endswith("hook_pattern")
    )
    weights = cache["blocks.0.attn.hook_pattern"][0, :, -1].mean(0).tolist()
    special = {place for start, count in marked for place in range(start, start + count)}
    parts: list[Any] = []
    for place, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        shade = round((min(max(weight, 0.0), 1.0) ** 0.5) * (SHADES - 1))
        classes = (
            f"word b{shade}" + (" light" if shade > SHADES // 2 else "") + (f" {mark}" if place in special else "")
        )
        word = model.text.words[token]
        parts += [element("span", word, class_=classes, title=f"{word}: {weight:.1%} of the attention"), " "]
    return parts


def _plain(model: TextTransformer, tokens: Sequence[int]) -> str:
    return model.text.decode(tokens)


def _edits(certificate: Certificate) -> str:
    edits = (part for part in certificate.passages() if part.edit is not None)
    return "; ".join(f"{edit.before} → {edit.after or '∅'}" for edit in edits)
