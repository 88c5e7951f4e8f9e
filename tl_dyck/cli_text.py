"""``tl-dyck text``: robust classifiers of sentences."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

__all__ = ["text_app"]

text_app = typer.Typer(
    no_args_is_help=True, rich_markup_mode="rich", help="Train and certify one-layer classifiers of sentences."
)

_Data = Annotated[
    str,
    typer.Option(
        "--data", metavar="DIR", show_default=False, help="Folder with train.tsv and dev.tsv; or [bold]sst2[/bold]."
    ),
]
_Synonyms = Annotated[
    Path | None, typer.Option(metavar="FILE", help="JSON for sub: word to list of words, best first.")
]
_K = Annotated[int, typer.Option(min=1, metavar="N", help="Synonyms of each word.")]
_Width = Annotated[int, typer.Option(min=1, metavar="N", help="Width of the model.")]
_Context = Annotated[
    int | None,
    typer.Option(
        "--n-ctx",
        min=2,
        metavar="N",
        help="Words of the longest sentence, with duplications, and 1. \\[default: what the data needs, 80 to 512]",
    ),
]
_Space = Annotated[str, typer.Option(metavar="SPACE", help="Edits with budgets: dup, del, sub.")]


@text_app.command()
def train(
    data: _Data,
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder.")] = Path("results/text"),
    objective: Annotated[str, typer.Option(metavar="NAME", help="clean, augment, worst or ibp.")] = "worst",
    space: _Space = "dup:2,del:2,sub:2",
    synonyms: _Synonyms = None,
    k: _K = 1,
    seconds: Annotated[float | None, typer.Option(metavar="S", help="Time of training; else --steps.")] = None,
    steps: Annotated[int, typer.Option(min=1, metavar="N", help="Training steps.")] = 1000,
    d_model: _Width = 32,
    heads: Annotated[int, typer.Option(min=1, metavar="N", help="Attention heads.")] = 1,
    mlp: Annotated[int, typer.Option(min=0, metavar="N", help="Width of a ReLU MLP; 0 for none.")] = 0,
    position: Annotated[str, typer.Option(metavar="NAME", help="none, linear or sinusoidal.")] = "none",
    layer_norm: Annotated[bool, typer.Option("--layer-norm", help="With LayerNorms.")] = False,
    seed: Annotated[int, typer.Option(min=0, metavar="N", help="Of weights and batches.")] = 0,
    n_ctx: _Context = None,
) -> None:
    """Train one classifier, plainly or against edits.

    No sentence is cut: one that is longer than --n-ctx allows is refused.
    """
    from tl_dyck.report.texts import say_text_training
    from tl_dyck.text import TextTraining

    fields = {
        "d_model": d_model,
        "n_heads": heads,
        "d_mlp": mlp,
        "position": position,
        "normalization": "ln" if layer_norm else "none",
    }
    options = TextTraining(objective=objective, seconds=seconds, steps=steps)
    say_text_training(data, out, fields, options, space, synonyms, k, seed, n_ctx)


@text_app.command()
def certify(
    model: Annotated[Path, typer.Argument(metavar="MODEL", help="Folder of a trained classifier.", show_default=False)],
    data: _Data,
    space: _Space = "dup:2,del:2,sub:2",
    synonyms: _Synonyms = None,
    k: _K = 1,
    certifier: Annotated[str, typer.Option(metavar="NAME", help="exact, interval, exhaustive, …")] = "exact",
    limit: Annotated[int | None, typer.Option(min=1, metavar="N", help="Sentences. \\[default: all]")] = None,
    time_limit: Annotated[float, typer.Option(metavar="S", help="Seconds a sentence.")] = 10.0,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Page of pictures. \\[default: in MODEL]")
    ] = None,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Worker processes.")] = 1,
) -> None:
    """Certify the sentences of dev.tsv, and show which edits flip which."""
    from tl_dyck.report.texts import say_text_certificates

    say_text_certificates(model, data, space, synonyms, k, certifier, limit, time_limit, out, jobs)


@text_app.command()
def table(
    data: _Data,
    synonyms: Annotated[
        Path, typer.Option(metavar="FILE", show_default=False, help="JSON: word to list of words, best first.")
    ],
    out: Annotated[Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder.")] = Path("results/text-table"),
    objectives: Annotated[str, typer.Option(metavar="NAMES", help="With commas between.")] = "clean,augment,worst,ibp",
    ks: Annotated[str, typer.Option("--k", metavar="LIST", help="Synonyms a word, with commas between.")] = "1,8",
    seeds: Annotated[str, typer.Option(metavar="LIST", help='How many ("3"), or which ("0-2").')] = "3",
    seconds: Annotated[float, typer.Option(metavar="S", help="Time of each training.")] = 60.0,
    d_model: _Width = 32,
    limit: Annotated[int, typer.Option(min=0, metavar="N", help="Sentences certified; 0 for all.")] = 0,
    intervals: Annotated[int, typer.Option(min=0, metavar="N", help="Of these also by interval; 0 for all.")] = 0,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Worker processes.")] = 1,
    n_ctx: _Context = None,
) -> None:
    """Objectives against spaces: clean and certified accuracy, over seeds; resumes where it was stopped."""
    from tl_dyck.report.commands import parse_seeds
    from tl_dyck.report.texts import say_text_table
    from tl_dyck.studies.sentences import TextTable
    from tl_dyck.text import TextTraining

    wanted = TextTable(
        objectives=tuple(name.strip() for name in objectives.split(",")),
        ks=_numbers(ks),
        seeds=parse_seeds(seeds),
        training=TextTraining(seconds=seconds),
        model=(("d_model", d_model),),
        limit=limit,
        n_interval=intervals,
    )
    say_text_table(data, synonyms, out, wanted, jobs, n_ctx)


def _numbers(text: str) -> tuple[int, ...]:
    parts = [part.strip() for part in text.split(",")]
    if not all(part.isascii() and part.isdigit() and len(part) < 10 for part in parts):
        raise ValueError(f"--k is numbers of synonyms with commas between, such as 1,8, not {text!r}")
    return tuple(map(int, parts))
