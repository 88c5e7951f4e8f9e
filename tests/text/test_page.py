"""Pictures of sentences: words, attention, edits; and nothing that a sentence says is run."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.report.pages import read_page
from tl_dyck.report import write_report
from tl_dyck_text.certificates import certify_sentences
from tl_dyck_text.corpus import Sentence
from tl_dyck_text.edits import text_space
from tl_dyck_text.model import TextConfig, TextTransformer, build_text_model
from tl_dyck_text.page import CertifiedSentences

EVIL = "<script>alert(1)</script>"
WORDS = ("<unk>", "<cls>", "the", "film", "good", "bad", EVIL)


@pytest.fixture
def model() -> TextTransformer:
    model = build_text_model(TextConfig(words=WORDS, d_model=8), seed=1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(4.0)
    return model


def test_every_sentence_has_its_words_attention_and_edits(
    model: TextTransformer, tmp_path: Path
) -> None:
    rows = [
        Sentence(text, label)
        for label in (0, 1)
        for text in ("the film good", f"{EVIL} film", "bad")
    ]
    space = text_space("dup:1,sub:1", model.text, {"good": ["bad"], "film": [EVIL]})
    found = certify_sentences(model, rows, space)
    results = CertifiedSentences(model=model, sentences=rows, certificates=found, folder=tmp_path)
    assert write_report(results) == tmp_path / "sentences.html"
    page = read_page(tmp_path / "sentences.html")
    assert not any("alert" in script.text for script in page.find("script"))
    pictures = page.find("div", class_="sentence")
    assert len(pictures) == len(rows)
    seen = set()
    for picture in pictures:
        before = picture.find("p", class_="words")[0].find("span")
        words = tuple(span.text for span in before)
        certificate = next(
            c
            for c in found
            if tuple(WORDS[t] for t in c.tokens) == words
            and picture.find("h3")[0].text == f"{c.status} class {c.target}"
        )
        seen.add((certificate.tokens, certificate.target))
        assert certificate.words() == [word for word in words if word != "<cls>"]
        tokens = torch.tensor([certificate.tokens])
        _, cache = model.run_with_cache(tokens)
        weights = cache["blocks.0.attn.hook_pattern"][0, 0, -1]
        for span, weight in zip(before, weights.tolist(), strict=True):
            assert span.attributes["title"].endswith(f": {weight:.1%} of the attention")
        worst = certificate.worst
        assert worst is not None
        gone = [span.text for span in before if span.attributes["class"].endswith(" gone")]
        replaced = [edit for edit in worst.edits if edit.transformation != "dup"]
        assert gone == [WORDS[token] for edit in replaced for token in edit.removed]
        if worst.edits:
            after = picture.find("p", class_="words")[1].find("span")
            assert tuple(span.text for span in after) == tuple(
                WORDS[token] for token in worst.tokens
            )
            new = [span.text for span in after if span.attributes["class"].endswith(" new")]
            # of a repeated word the second one is new
            assert new == [WORDS[token] for edit in worst.edits for token in edit.inserted[-1:]]
    assert len(seen) == len(rows)
