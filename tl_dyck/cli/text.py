"""``tl-dyck text``: robust classifiers of sentences."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from tl_dyck.cli.answers import Answer, Rows, Saved, answers
from tl_dyck.cli.early import existing
from tl_dyck.cli.options import (
    Processes,
    Runs,
    Synonyms,
    one_seed,
    out_file,
    out_folder,
    parse_seeds,
    some_seconds,
    whole,
)
from tl_dyck.cli.terminal import Command, Group, say_note
from tl_dyck.cli.text_table import markdown_table, said_means

if TYPE_CHECKING:
    from typing_extensions import Unpack

    from tl_dyck.certify import PerturbationSpace
    from tl_dyck.models.text import TextConfig
    from tl_dyck.runs import RunOptions
    from tl_dyck.studies.sentences import TextTable
    from tl_dyck.text import Corpus

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
    "certified": "{certified:.1%}",
    "falsified": "{falsified:.1%}",
    "undecided": "{unknown:.1%}",
    "median ms": "{median:.1f}",
    "95 %": "{late:.1f}",
}
_LONGEST = 512  # n_ctx, unless asked for

text_app = typer.Typer(
    cls=Group,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Train and certify one-layer classifiers of sentences.",
)

_Data = Annotated[
    str,
    typer.Option(
        "--data",
        metavar="DIR",
        show_default=False,
        help="Folder with train.tsv and dev.tsv; or [bold]sst2[/bold].",
    ),
]
_K = Annotated[int, typer.Option(metavar="N", help="Synonyms of each word.", callback=whole(1))]
_Width = Annotated[int, typer.Option(metavar="N", help="Width of the model.", callback=whole(1))]
_Context = Annotated[
    int | None,
    typer.Option(
        "--n-ctx",
        metavar="N",
        callback=whole(2),
        help="Words of the longest sentence, with duplications, and 1. \\[default: "
        "what the data needs, 80 to 512]",
    ),
]
_Space = Annotated[str, typer.Option(metavar="SPACE", help="Edits with budgets: dup, del, sub.")]


_Objective = Annotated[str, typer.Option(metavar="NAME", help="clean, augment, worst or ibp.")]
_Seconds = Annotated[
    float | None,
    typer.Option(
        metavar="S",
        help="Processor time of a training, instead of --steps: as the machine is.",
        callback=some_seconds,
    ),
]
_Mlp = Annotated[
    int, typer.Option(metavar="N", help="Width of a ReLU MLP; 0 for none.", callback=whole())
]
_Limit = Annotated[
    int | None, typer.Option(metavar="N", help="Sentences. \\[default: all]", callback=whole(1))
]
_Position = Annotated[str, typer.Option(metavar="NAME", help="none, linear or sinusoidal.")]


@text_app.command(cls=Command)
@answers
def train(
    data: _Data,
    out: Annotated[Path, out_folder("Folder.")] = Path("results/text"),
    objective: _Objective = "worst",
    space: _Space = "dup:2,del:2,sub:2",
    synonyms: Synonyms = None,
    k: _K = 1,
    seconds: _Seconds = None,
    steps: Annotated[
        int, typer.Option(metavar="N", help="Training steps.", callback=whole(1))
    ] = 1000,
    d_model: _Width = 32,
    heads: Annotated[
        int, typer.Option(metavar="N", help="Attention heads.", callback=whole(1))
    ] = 1,
    mlp: _Mlp = 0,
    position: _Position = "none",
    layer_norm: Annotated[bool, typer.Option("--layer-norm", help="With LayerNorms.")] = False,
    seed: Annotated[
        int, typer.Option(metavar="N", help="Of weights and batches.", callback=one_seed)
    ] = 0,
    n_ctx: _Context = None,
) -> Answer:
    """Train one classifier, plainly or against edits.

    No sentence is cut: one that is longer than --n-ctx allows is refused.
    """
    from tl_dyck.certify import load_synonyms
    from tl_dyck.files import CorruptFileError, ensure_folder, write_json
    from tl_dyck.models.text import TextConfig, save_text_model
    from tl_dyck.rnn import export_rnn, save_rnn
    from tl_dyck.text import TextTraining, accuracy, build_words, text_space, train_text
    from tl_dyck.text.edits import encode_sentences

    options = TextTraining(objective=objective, seconds=seconds, steps=steps)
    corpus = _load_corpus(data)
    config = TextConfig(
        words=build_words(corpus.train),
        n_classes=corpus.n_classes,
        d_model=d_model,
        n_heads=heads,
        d_mlp=mlp,
        position=position,
        normalization="ln" if layer_norm else "none",
    )
    words = load_synonyms(synonyms) if synonyms is not None else {}
    edits = text_space(space, config, words, k)
    config = replace(config, n_ctx=n_ctx or _needed_n_ctx(corpus, edits, config))
    encode_sentences(config, corpus.test, edits)  # before training, not after it
    if objective != "clean" and "sub" in space and not words:
        raise CorruptFileError(
            '"sub" in the space needs synonyms: give --synonyms FILE, a JSON object'
        )
    ensure_folder(out)
    model, curve = train_text(config, corpus.train, options, space=edits, seed=seed)
    save_text_model(model, out)
    save_rnn(
        export_rnn(model, alphabet=config.words, separator=" ", unknown_token=config.unknown_token),
        out / "rnn",
    )
    kept = {"options": options.to_dict(), "space": space, "k": k, "seed": seed, "curve": curve}
    write_json(out / "training.json", kept)
    train_accuracy, test_accuracy = (
        accuracy(model, corpus.train[:2000]),
        accuracy(model, corpus.test),
    )
    found = {"objective": objective, **curve[-1]}
    found |= {"train_accuracy": train_accuracy, "test_accuracy": test_accuracy}
    unknown = sum(
        token == config.unknown_token for row in corpus.test for token in config.encode(row.text)
    )
    yield (
        f"{len(corpus.train):,} sentences, {len(config.words):,} words; "
        f"{unknown:,} unknown words in the test set"
    )
    yield found
    yield Rows("", [found], _TRAINED)
    yield Saved("Model", out)


@text_app.command(cls=Command)
@answers
def certify(
    model: Annotated[
        Path,
        typer.Argument(metavar="MODEL", help="Folder of a trained classifier.", show_default=False),
    ],
    data: _Data,
    space: _Space = "dup:2,del:2,sub:2",
    synonyms: Synonyms = None,
    k: _K = 1,
    certifier: Annotated[
        str, typer.Option(metavar="NAME", help="exact, interval, exhaustive, …")
    ] = "exact",
    limit: _Limit = None,
    time_limit: Annotated[
        float, typer.Option(metavar="S", help="Seconds a sentence.", callback=some_seconds)
    ] = 10.0,
    out: Annotated[Path | None, out_file("Page of pictures. \\[default: in MODEL]")] = None,
    jobs: Processes = 1,
) -> Answer:
    """Certify the sentences of dev.tsv, and show which edits flip which."""
    import numpy as np

    from tl_dyck.certify import load_synonyms
    from tl_dyck.files import write_json
    from tl_dyck.models.text import load_text_model
    from tl_dyck.report import write_report
    from tl_dyck.report.sentences import CertifiedSentences
    from tl_dyck.text import accuracy, certify_sentences, text_space

    existing(model, synonyms)
    classifier, corpus = load_text_model(model), _load_corpus(data)
    words = load_synonyms(synonyms) if synonyms is not None else {}
    test = corpus.test[:limit]
    edits = text_space(space, classifier.text, words, k)
    found = certify_sentences(
        classifier,
        test,
        edits,
        certifier=certifier,
        time_limit=time_limit,
        n_jobs=jobs,
        progress=True,
    )
    counts = Counter(str(certificate.status) for certificate in found)
    ms = np.array([certificate.seconds for certificate in found]) * 1e3
    kinds = ("certified", "falsified", "unknown")
    share = accuracy(classifier, test)
    yield {"sentences": len(found), "accuracy": share, **{kind: counts[kind] for kind in kinds}}
    row = {
        "n": len(found),
        "accuracy": share,
        **{kind: counts[kind] / len(found) for kind in kinds},
    }
    row |= {"median": np.median(ms), "late": np.quantile(ms, 0.95)}
    yield Rows("", [row], _CERTIFIED)
    yield (
        "certified: the right class is predicted on every string of the space; falsified: "
        "on some it is not."
    )
    page = CertifiedSentences(model=classifier, sentences=test, certificates=found, folder=model)
    target = write_report(page, out)
    write_json(target.with_suffix(".json"), [certificate.to_dict() for certificate in found])
    yield Saved("Pictures", target)


@text_app.command(cls=Command)
@answers
def table(
    runs: Runs,
    data: _Data,
    synonyms: Annotated[
        Path,
        typer.Option(
            metavar="FILE", show_default=False, help="JSON: word to list of words, best first."
        ),
    ],
    out: Annotated[Path, out_folder("Folder.")] = Path("results/text-table"),
    objectives: Annotated[
        str, typer.Option(metavar="NAMES", help="Names, separated by commas.")
    ] = "clean,augment,worst,ibp",
    ks: Annotated[
        str,
        typer.Option(
            "--k", metavar="LIST", help="Synonyms of a word: numbers, separated by commas."
        ),
    ] = "1,8",
    seeds: Annotated[
        str, typer.Option(metavar="LIST", help='How many ("3"), or which ("0-2").')
    ] = "3",
    steps: Annotated[
        int, typer.Option(metavar="N", help="Steps of each training.", callback=whole(1))
    ] = 600,
    seconds: _Seconds = None,
    d_model: _Width = 32,
    limit: Annotated[
        int, typer.Option(metavar="N", help="Sentences certified; 0 for all.", callback=whole())
    ] = 0,
    intervals: Annotated[
        int,
        typer.Option(metavar="N", help="Of these also by interval; 0 for all.", callback=whole()),
    ] = 0,
    n_ctx: _Context = None,
) -> Answer:
    """Objectives against spaces: clean and certified accuracy, over seeds; can be resumed."""
    from tl_dyck.studies.sentences import TextTable
    from tl_dyck.text import TextTraining

    wanted = TextTable(
        objectives=tuple(name.strip() for name in objectives.split(",")),
        ks=_numbers(ks),
        seeds=parse_seeds(seeds),
        training=TextTraining(steps=steps, seconds=seconds),
        model=(("d_model", d_model),),
        limit=limit,
        n_interval=intervals,
    )
    yield from train_table(data, synonyms, out, wanted, n_ctx, **runs.how)


def train_table(
    data: str,
    synonyms: Path,
    out: Path,
    wanted: TextTable,
    n_ctx: int | None = None,
    **how: Unpack[RunOptions],
) -> Answer:
    """Train and certify everything, and print and write the table."""
    from tl_dyck.certify import load_synonyms
    from tl_dyck.environment import environment
    from tl_dyck.files import write_bytes, write_json
    from tl_dyck.studies.sentences import run_table, summarise
    from tl_dyck.text import build_words, text_space
    from tl_dyck.text.edits import encode_sentences

    corpus = _load_corpus(data)
    words = load_synonyms(synonyms)
    wanted = replace(
        wanted, model=tuple({**dict(wanted.model), "n_classes": corpus.n_classes}.items())
    )
    config = wanted.config(build_words(corpus.train))
    edits = text_space(wanted.defend, config, words, max(wanted.ks))
    needed = n_ctx or _needed_n_ctx(corpus, edits, config)
    encode_sentences(
        replace(config, n_ctx=needed), (*corpus.train, *corpus.test), edits
    )  # before training
    if needed != config.n_ctx:
        wanted = replace(wanted, model=(*wanted.model, ("n_ctx", needed)))
    rows = run_table(corpus, words, out, wanted, **how)
    means = summarise(rows)
    yield {"means": means}
    yield from said_means(means)
    listed, differ = int(rows["enumerated"].sum()), int(rows["disagreements"].sum())
    n = len(wanted.seeds)
    means_over = (
        f"Means over {n} seeds, with 95 % bootstrap intervals" if n > 1 else "One seed: no interval"
    )
    yield (
        f"{means_over}. certified: exact; "
        f"{listed:,} of its verdicts were checked by enumeration, {differ} differ."
    )
    write_bytes(out / "summary.csv", means.to_csv(index=False).encode())
    write_bytes(out / "table.md", markdown_table(means).encode())
    write_json(out / "question.json", asdict(wanted))
    write_json(out / "environment.json", environment())
    yield Saved("Table", out / "table.md")


def _load_corpus(data: str) -> Corpus:
    """A local folder, or "sst2" for the Hugging Face hub's; says what could not be used."""
    from tl_dyck.text import load_folder, load_sst2

    corpus = load_sst2() if data == "sst2" and not Path(data).exists() else load_folder(data)
    for reason, count in corpus.problems.items():
        say_note(f"left out, {reason}: {count}")
    return corpus


def _needed_n_ctx(corpus: Corpus, space: PerturbationSpace, config: TextConfig) -> int:
    """The least n_ctx for every sentence with its duplications, but no less than that of `config`.

    Raises:
        CorpusError: a sentence is so long that nobody can want that unasked: memory grows with the
            square of it.
    """
    from tl_dyck.text.corpus import CorpusError
    from tl_dyck.text.edits import BatchEdits

    sentence = max((*corpus.train, *corpus.test), key=lambda sentence: len(sentence.text.split()))
    longest = len(sentence.text.split())
    needed = max(config.n_ctx, longest + BatchEdits.of(space, config).budgets[0] + 1)
    if needed > _LONGEST:
        raise CorpusError(
            f"a sentence has {longest} words ({sentence.text[:30]!r}…): leave it out, or give "
            f"--n-ctx {needed} if you have the memory, which grows with the square of that"
        )
    return needed


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ValueError(
            f"--k is numbers of synonyms, separated by commas, such as 1,8, not {text!r}"
        )
    return tuple(map(int, parts))
