"""Pictures of the edits that flip a classifier's prediction of a sentence."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path
from typing import Any, final

import numpy as np
import torch

from tl_dyck.certify import Certificate, Edit
from tl_dyck.kit.arguments import checked
from tl_dyck.reading.hook_points import attention_patterns
from tl_dyck.report.heatmap import SHADES
from tl_dyck.report.markup import Html, element, table
from tl_dyck.report.page import Page, Section
from tl_dyck.report.widgets.certificates import marks
from tl_dyck_text.corpus import Sentence
from tl_dyck_text.model import TextTransformer
from tl_dyck_text.training import text_logits

_SHOWN = 40  # sentences on a page


@final
@checked
@dataclass(frozen=True, kw_only=True)
class CertifiedSentences:
    """Sentences, and what was proved of them.

    Attributes:
        model: the classifier.
        sentences: what it classifies.
        certificates: one for each, from `tl_dyck_text.certificates.certify_sentences`.
        folder: where their page is written, unless another place is named.
    """

    model: TextTransformer
    sentences: Sequence[Sentence]
    certificates: Sequence[Certificate]
    folder: Path

    page_name = "sentences.html"

    def page(self) -> Html:
        """Their page, which `tl_dyck.report.write_report` writes."""
        return sentences_page(self)


def sentences_page(results: CertifiedSentences) -> Html:
    """A picture per sentence, flipped ones first: the edits, the words, and the attention on each.

    At most 40 sentences are shown; all are in its table.
    """
    model, certificates = results.model, results.certificates
    order = {"refuted": 0, "open": 1, "proved": 2}
    with torch.no_grad():
        logits = text_logits(model, [certificate.tokens for certificate in certificates])
    right = [
        best == certificate.target
        for best, certificate in zip(logits.argmax(-1).tolist(), certificates, strict=True)
    ]
    # right answers first: of a wrong one no edit is to blame
    ranked = [
        certificate
        for _, certificate in sorted(
            zip(right, certificates, strict=True),
            key=lambda row: (not row[0], order[row[1].status], -row[1].upper),
        )
    ]
    counts = Counter(str(certificate.status) for certificate in certificates)
    said = ", ".join(f"{counts[status]} {status}" for status in order if counts[status])
    rows = [
        (model.text.symbols.text(each.tokens), each.status, f"{each.upper:.3g}", _edits(each))
        for each in ranked
    ]
    columns = ("sentence", "verdict", "margin seen", "edits")
    return Page(
        title="What flips a prediction",
        lead=f"{len(certificates)} sentences under "
        f"{certificates[0].space if certificates else 'no edits'}: {said}. Shown first: right "
        "predictions that edits flip, the least wrong of them first. The darker a word's ground, "
        "the more attention the readout gives it (mean over heads); struck out: replaced or "
        "dropped; framed: new.",
        parts=[
            Section("pictures", "Sentences", [_picture(model, each) for each in ranked[:_SHOWN]]),
            Section("all", "All sentences", table("All sentences", columns, rows, numeric=(2,))),
        ],
        style=files("tl_dyck_text").joinpath("sentences.css").read_text(encoding="utf-8"),
    ).html


def _picture(model: TextTransformer, certificate: Certificate) -> Html:
    """One sentence before and after its worst edits, with the readout's attention to words."""
    worst = certificate.worst
    edits = tuple(map(_visible, worst.edits)) if worst is not None else ()
    taken, put = marks(edits)
    before = _words(model, certificate.tokens, taken, "gone")
    rows = [element("p", element("b", "as it was: "), before, class_="words")]
    if worst is not None and edits:
        after = _words(model, worst.tokens, put, "new")
        rows.append(element("p", element("b", "worst edits: "), after, class_="words"))
    logits = (
        ""
        if worst is None
        else ", ".join(f"class {i}: {logit:.2f}" for i, logit in enumerate(worst.logits))
    )
    proved = f", proved at least {certificate.lower:.3g}" if np.isfinite(certificate.lower) else ""
    margin = f"margin {certificate.upper:.3g}{proved}"
    title = element(
        "h3",
        element("span", certificate.status, class_=certificate.status),
        f" class {certificate.target}",
    )
    return element(
        "div",
        title,
        rows,
        element("p", f"{margin}; {logits}", class_="note"),
        class_="sentence",
    )


def _visible(edit: Edit) -> Edit:
    """Return the visible part of an edit: of a word that is repeated, only the repetition."""
    same = len(edit.removed)
    if edit.inserted[:same] != edit.removed:
        return edit
    return replace(edit, start=edit.start + same, removed=(), inserted=edit.inserted[same:])


def _words(model: TextTransformer, tokens: Sequence[int], marked: set[int], mark: str) -> list[Any]:
    """Words with their attention as background; some are marked."""
    weights = attention_patterns(model, torch.tensor([list(tokens)]))[0, 0, :, -1].mean(0).tolist()
    parts: list[Any] = []
    for place, (token, weight) in enumerate(zip(tokens, weights, strict=True)):
        shade = round((min(max(weight, 0.0), 1.0) ** 0.5) * (SHADES - 1))
        classes = (
            f"word b{shade}"
            + (" light" if shade > SHADES // 2 else "")
            + (f" {mark}" if place in marked else "")
        )
        word = model.text.words[token]
        parts += [
            element("span", word, class_=classes, title=f"{word}: {weight:.1%} of the attention"),
            " ",
        ]
    return parts


def _edits(certificate: Certificate) -> str:
    edits = (part for part in certificate.passages() if part.edit is not None)
    return "; ".join(f"{edit.before} → {edit.after or '∅'}" for edit in edits)
