"""``tl-dyck text``: robust classifiers of sentences."""

from __future__ import annotations

from collections import Counter
from dataclasses import fields
from pathlib import Path
from typing import Annotated, Any

import typer

from tl_dyck.cli.answers import Answer, Command, Group, Rows, Saved, answers
from tl_dyck.cli.options import (
    Certifying,
    Synonyms,
    argument,
    existing,
    one_seed,
    option,
    out_file,
    out_folder,
    whole,
)
from tl_dyck.cli.settings import changed, settings_of
from tl_dyck.kit.verdicts import VERDICTS

_TRAINED = {
    "objective": "{objective}",
    "steps": "{step:,.0f}",
    "time (s)": "{seconds:.0f}",
    "clean loss": "{clean_loss:.3f}",
    "robust loss": "{robust_loss:.3f}",
    "train": "{train_accuracy:.1%}",
    "test": "{test_accuracy:.1%}",
}
_CERTIFIED = {
    "sentences": "{n:,}",
    "accuracy": "{accuracy:.1%}",
    "proved": "{proved:.1%}",
    "refuted": "{refuted:.1%}",
    "open": "{open:.1%}",
    "median ms": "{median:.1f}",
    "95 %": "{late:.1f}",
}

text_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Train and certify one-layer classifiers of sentences. Many of them, by objectives, "
    "synonyms and seeds, are a sweep.",
)

_Data = Annotated[
    str,
    option(
        "DIR",
        "Folder with train.tsv and dev.tsv; or [bold]sst2[/bold].",
        "--data",
        show_default=False,
    ),
]
_Space = Annotated[str, option("SPACE", "Edits with budgets: dup, del, sub.")]
_K = Annotated[int, option("N", "Synonyms of each word.", check=whole(1))]


@text_app.command(cls=Command)
@answers
def train(
    data: _Data,
    out: Annotated[Path, out_folder("Folder.")] = Path("results/text"),
    objective: Annotated[str, option("NAME", "clean, augment, worst or ibp.")] = "worst",
    space: _Space = "dup:2,del:2,sub:2",
    synonyms: Synonyms = None,
    k: _K = 1,
    seed: Annotated[int, option("N", "Of weights and batches.", check=one_seed)] = 0,
    settings: settings_of("training.steps=600") = None,  # type: ignore[valid-type]
) -> Answer:
    """Train one classifier, plainly or against edits; no sentence is cut.

    Everything else by --set, such as training.steps=600 or model.d_model=64.
    """
    from tl_dyck.kit.files import ensure_folder, write_json
    from tl_dyck.rnn import export_rnn, save_rnn
    from tl_dyck_text.model import TextConfig, save_text_model
    from tl_dyck_text.recipe import TextRecipe
    from tl_dyck_text.training import TextTraining, accuracy, train_text

    own = [each for each in fields(TextConfig) if each.name not in ("words", "n_classes")]
    values = {
        "aside": 0.0,
        "training": TextTraining(objective=objective).to_dict(),
        "model": {each.name: each.default for each in own} | {"n_ctx": None},
    }
    asked = {"data": data, "synonyms": str(synonyms or ""), "space": space, "k": k}
    recipe = TextRecipe.from_dict({**asked, **changed(values, settings)})
    read = recipe.read()
    yield from (f"left out, {why}: {count}" for why, count in read.corpus.problems.items())
    ensure_folder(out)
    corpus, config = read.corpus, read.config
    model, curve = train_text(config, corpus.train, recipe.training, space=read.space, seed=seed)
    save_text_model(model, out)
    rnn = export_rnn(
        model, alphabet=config.words, separator=" ", unknown_token=config.unknown_token
    )
    save_rnn(rnn, out / "rnn")
    write_json(out / "training.json", {**recipe.to_dict(), "seed": seed, "curve": curve})
    found: dict[str, Any] = {"objective": recipe.training.objective, **curve[-1]}
    found["train_accuracy"] = accuracy(model, corpus.train[:2000])
    found["test_accuracy"] = accuracy(model, corpus.test)
    tokens = [token for row in corpus.test for token in config.encode(row.text)]
    yield (
        f"{len(corpus.train):,} sentences, {len(config.words):,} words; "
        f"{tokens.count(config.unknown_token):,} unknown words in the test set"
    )
    yield found
    yield Rows("", [found], _TRAINED)
    yield Saved("Model", out)


@text_app.command(cls=Command)
@answers
def certify(
    model: Annotated[Path, argument("MODEL", "Folder of a trained classifier.")],
    data: _Data,
    certifying: Certifying,
    space: _Space = "dup:2,del:2,sub:2",
    synonyms: Synonyms = None,
    k: _K = 1,
    limit: Annotated[int | None, option("N", "Sentences. \\[default: all]", check=whole(1))] = None,
    out: Annotated[Path | None, out_file("Page of pictures. \\[default: in MODEL]")] = None,
) -> Answer:
    """Certify the sentences of dev.tsv, and show which edits flip which."""
    existing(model, synonyms)
    import numpy as np

    from tl_dyck.certify import load_synonyms
    from tl_dyck.kit.files import write_json
    from tl_dyck.report import write_report
    from tl_dyck_text.certificates import certify_sentences
    from tl_dyck_text.edits import text_space
    from tl_dyck_text.model import load_text_model
    from tl_dyck_text.page import CertifiedSentences
    from tl_dyck_text.recipe import load_corpus
    from tl_dyck_text.training import accuracy

    classifier, test = load_text_model(model), load_corpus(data).test[:limit]
    words = load_synonyms(synonyms) if synonyms is not None else {}
    edits = text_space(space, classifier.text, words, k)
    found = certify_sentences(classifier, test, edits, progress=True, **certifying.how)
    counts = Counter(str(certificate.status) for certificate in found)
    kinds = VERDICTS
    share = accuracy(classifier, test)
    yield {"sentences": len(found), "accuracy": share, **{kind: counts[kind] for kind in kinds}}
    ms = np.array([certificate.seconds for certificate in found]) * 1e3
    row: dict[str, float] = {kind: counts[kind] / len(found) for kind in kinds}
    row |= {"n": len(found), "accuracy": share}
    yield Rows("", [{**row, "median": np.median(ms), "late": np.quantile(ms, 0.95)}], _CERTIFIED)
    yield (
        "proved: the right class is predicted on every string of the space; refuted: "
        "on some it is not."
    )
    page = CertifiedSentences(model=classifier, sentences=test, certificates=found, folder=model)
    target = write_report(page, out)
    write_json(target.with_suffix(".json"), [certificate.to_dict() for certificate in found])
    yield Saved("Pictures", target)
