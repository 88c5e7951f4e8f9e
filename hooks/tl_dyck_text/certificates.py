"""Certificates of sentences: is the label predicted whatever is edited?"""

from __future__ import annotations

from collections.abc import Sequence

from tl_dyck.certify import Certificate, PerturbationSpace, certify_many
from tl_dyck.kit.arguments import checked
from tl_dyck_text.corpus import Sentence
from tl_dyck_text.edits import encode_sentences
from tl_dyck_text.model import TextTransformer


@checked
def certify_sentences(
    model: TextTransformer,
    sentences: Sequence[Sentence],
    space: PerturbationSpace,
    *,
    certifier: str = "exact",
    time_limit: float | None = None,
    n_jobs: int = 1,
    progress: bool = False,
) -> list[Certificate]:
    """Is each sentence's label predicted on every string of its space?

    Sentences in order, certificates in words.

    Raises:
        ValueError: a sentence is longer than the model reads.
    """
    rows = encode_sentences(model.text, sentences)
    labels = [sentence.label for sentence in sentences]
    found = certify_many(
        model,
        rows,
        labels,
        space,
        certifier,
        time_limit=time_limit,
        n_jobs=n_jobs,
        progress=progress,
    )
    return [certificate.with_symbols(model.text.symbols) for certificate in found]
