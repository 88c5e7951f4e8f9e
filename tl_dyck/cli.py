"""The command line: ``tl-dyck study``, ``report``, ``train``, ``probe``, ``certify``, and more.

Nothing heavy is imported before a command needs it, so ``tl-dyck --help`` answers at once.
"""

from __future__ import annotations

import shlex
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
import typer.core
from rich.text import Text

from tl_dyck.cli_sweep import sweep_app
from tl_dyck.cli_text import text_app
from tl_dyck.screen import console

__all__ = ["app", "main"]


class _Commands(typer.core.TyperGroup):
    """Says in one line what went wrong, where the cause is what the user asked for rather than a bug."""

    def invoke(self, ctx: Any) -> Any:
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt:
            console(stderr=True).print(Text("stopped; run again to go on from the checkpoint", style="yellow"))
            raise typer.Exit(130) from None
        except BrokenPipeError:  # the reader of a pipe went away: typer ends quietly
            raise
        except (ValueError, OSError, RuntimeError, ImportError) as error:
            if ctx.params.get("debug") or not _is_ours(error):
                raise
            _fail(error)


app = typer.Typer(
    name="tl-dyck",
    cls=_Commands,
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode="rich",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Start with [bold]tl-dyck study[/bold]: about two minutes on two cores.",
)

app.add_typer(text_app, name="text")
app.add_typer(sweep_app, name="sweep")

_Task = Annotated[str, typer.Option("--task", "-t", metavar="NAME", help="A task, see [bold]tl-dyck tasks[/bold].")]
_Steps = Annotated[int | None, typer.Option(min=1, metavar="N", help="Training steps at most.")]
_Jobs = Annotated[
    int | None, typer.Option(min=1, metavar="N", help="Worker processes. \\[default: one per core; one on a GPU]")
]
_Device = Annotated[
    str | None, typer.Option(metavar="NAME", help='"cpu", "cuda", "cuda:1", … \\[default: a GPU if there is one]')
]


def _version(wanted: bool) -> bool:
    if wanted:
        from tl_dyck import __version__

        typer.echo(f"tl_dyck {__version__}")
        raise typer.Exit
    return wanted


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show the traceback of an error.")] = False,
) -> None:
    """Test claims about attention where the right answer is known: bounded Dyck languages."""


@app.command()
def study(
    task: _Task = "dyck-2-4",
    families: Annotated[
        str | None,
        typer.Option(metavar="NAMES", help="With commas between. \\[default: gpt,gpt-linear,minimal-onehot]"),
    ] = None,
    seeds: Annotated[str, typer.Option(metavar="LIST", help='How many ("8"), or which ("0-7", "0,3,5").')] = "8",
    steps: _Steps = None,
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for runs, tables and report.")
    ] = Path("results/study"),
    jobs: _Jobs = None,
    device: _Device = None,
) -> None:
    """Train several families with several seeds, probe every model, and write a [bold]report.html[/bold].

    What is already in the folder is kept: an interrupted study goes on where it stopped.
    """
    from tl_dyck.report import write_report
    from tl_dyck.report.commands import parse_seeds, with_steps
    from tl_dyck.report.terminal import say_study
    from tl_dyck.studies import StudyConfig, run_study

    config = StudyConfig(task=task, seeds=parse_seeds(seeds))
    config = replace(config, training=with_steps(config.training, steps))
    if families is not None:
        config = replace(config, families=_names(families))
    done = run_study(config, out, n_jobs=jobs, device=_device(device))
    say_study(done, write_report(done))


@app.command()
def report(
    results: Annotated[Path, typer.Argument(metavar="RESULTS", help="Folder of a study.", show_default=False)],
    out: Annotated[
        Path | None,
        typer.Option("--out", "-o", metavar="FILE", help="File to write. \\[default: report.html in that folder]"),
    ] = None,
) -> None:
    """Write the report of a finished study again, without training."""
    from tl_dyck.report import write_report
    from tl_dyck.report.terminal import say_study
    from tl_dyck.studies import load_study

    done = load_study(results.parent if results.name == "results.json" else results)
    say_study(done, write_report(done, out))


@app.command()
def tasks() -> None:
    """List the tasks."""
    from tl_dyck.report.terminal import say_note, table
    from tl_dyck.tasks import load_task
    from tl_dyck.tasks import tasks as registry

    rows = table("task", "k", "D", "lengths", "long", "floor", "what it is", right=(1, 2, 5))
    for name, summary in registry.summaries().items():
        try:
            found = load_task(name)
        except ValueError:  # the summary says why it is unusable
            rows.add_row(name, "", "", "", "", "", Text(summary))
            continue
        lengths = f"{min(found.train_lengths)}–{max(found.train_lengths)}"
        far = f"{found.long_lengths[0]}–{found.long_lengths[1]}"
        facts = (str(found.n_types), str(found.max_depth), lengths, far, f"{found.entropy_floor:.3f}")
        rows.add_row(name, *facts, Text(summary))
    console().print(rows)
    say_note("k: bracket types. D: largest depth. lengths: of training strings, in brackets.")
    say_note("long: lengths that test length generalisation.")
    say_note("floor: the least cross-entropy any model can reach, nats per token.")


@app.command()
def models(task: _Task = "dyck-2-4") -> None:
    """List the model families, as they are for a task."""
    from tl_dyck.models import get_config
    from tl_dyck.models import models as registry
    from tl_dyck.report.terminal import say_note, table
    from tl_dyck.tasks import load_task

    chosen = load_task(task)
    rows = table("family", "layers", "heads", "width", "what it is", right=(1, 2, 3))
    for name, summary in registry.summaries().items():
        try:
            config = get_config(name, chosen)
        except ValueError as error:
            rows.add_row(name, "", "", "", Text(f"{summary} (not for this task: {error})"))
            continue
        facts = (str(config.n_layers), str(config.n_heads), str(config.d_model))
        rows.add_row(name, *facts, Text(summary))
    console().print(rows)
    say_note("Any field can be changed in Python: get_config(family, task, n_layers=3, n_heads=4).")


@app.command()
def train(
    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A family, see [bold]tl-dyck models[/bold].", show_default=False)
    ],
    task: _Task = "dyck-2-4",
    seed: Annotated[int | None, typer.Option(min=0, metavar="N", help="Train this seed alone. \\[default: 0]")] = None,
    seeds: Annotated[str | None, typer.Option(metavar="LIST", help='Or several: "8", "0-7", "0,3,5".')] = None,
    steps: _Steps = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Folder. \\[default: results/train/TASK/MODEL]")
    ] = None,
    jobs: _Jobs = None,
    device: _Device = None,
) -> None:
    """Train one family; each seed is kept in a folder of its own and resumed if interrupted."""
    from tl_dyck.models import get_config
    from tl_dyck.report.commands import parse_seeds, with_steps
    from tl_dyck.report.terminal import say_note, say_path, table
    from tl_dyck.training import TrainConfig, train_seeds
    from tl_dyck.training import train as train_one

    if seed is not None and seeds is not None:
        raise ValueError("give --seed or --seeds, not both")
    chosen = parse_seeds(seeds) if seeds is not None else (seed or 0,)
    config = get_config(model, task, device=_device(device))
    options = with_steps(TrainConfig(), steps)
    folder = out or Path("results", "train", task, model)
    if len(chosen) == 1:  # in this process, so that the bar shows loss and accuracy
        results = [train_one(config, task, seed=chosen[0], options=options, folder=folder / f"seed-{chosen[0]}")]
    else:
        results = train_seeds(config, task, seeds=chosen, options=options, folder=folder, n_jobs=jobs)
    rows = table("seed", "status", "steps", "time (s)", "accuracy", "among closings", right=(0, 2, 3, 4, 5))
    for result in results:
        accuracy = f"{result.accuracy.any_token:.1%}", f"{result.accuracy.closing_only:.1%}"
        status = Text(result.status, style="" if result.learned else "red")
        rows.add_row(str(result.seed), status, f"{result.steps:,}", f"{result.seconds:.1f}", *accuracy)
    console().print(rows)
    say_path("Models", folder)
    say_note(f"Probe them: tl-dyck probe {shlex.quote(folder.as_posix())}")


@app.command()
def probe(
    checkpoints: Annotated[
        list[Path],
        typer.Argument(metavar="CHECKPOINT", help="Folders of saved models, or of several runs.", show_default=False),
    ],
    name: Annotated[
        str | None, typer.Option("--probe", "-p", metavar="NAME", help="One probe only. \\[default: all that apply]")
    ] = None,
    string: Annotated[
        str | None,
        typer.Option("--string", "-s", metavar="TEXT", help="Measure on this string, not on the probe's own."),
    ] = None,
    device: _Device = None,
) -> None:
    """Probe saved models: do their patterns differ, do they look at the stack, are they balanced?"""
    from tl_dyck.report.probing import say_probes

    say_probes(checkpoints, name, string, _device(device))


@app.command()
def ablate(
    checkpoints: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="CHECKPOINT", help="Folders of saved models, of runs, or of a study.", show_default=False
        ),
    ] = None,
    task: Annotated[
        str | None,
        typer.Option("--task", "-t", metavar="NAME", help="Strings of this task. \\[default: each model's own]"),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(
            "--out", "-o", metavar="FOLDER", help="Folder. \\[default: ablation in the study's, or in results]"
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(
            min=0, metavar="N", help="Steps per penalty and per head left out; 0: no fine-tuning. \\[default: 60]"
        ),
    ] = None,
    experiment: Annotated[
        bool, typer.Option("--experiment", help="Train 2- and 3-layer models with 4 heads first, and ablate those.")
    ] = False,
    seeds: Annotated[str, typer.Option(metavar="LIST", help="Seeds of the experiment.")] = "10",
    jobs: _Jobs = None,
    device: _Device = None,
) -> None:
    """Which heads matter: disable each while all else stays, and again while all else adapts.

    What is already in the folder is kept: an interrupted call goes on where it stopped.
    """
    from tl_dyck.report.ablating import say_ablation
    from tl_dyck.report.commands import parse_seeds

    chosen = parse_seeds(seeds) if experiment else None
    say_ablation(checkpoints or [], task, out, steps, chosen, jobs, _device(device))


@app.command()
def export(
    checkpoint: Annotated[
        Path, typer.Argument(metavar="CHECKPOINT", help="Folder of a saved one-layer model.", show_default=False)
    ],
    out: Annotated[Path, typer.Argument(metavar="OUT", help="Folder to write.", show_default=False)],
    onnx: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Also the ONNX network for strings of N tokens, BOS included."),
    ] = None,
) -> None:
    """Export a one-layer model as the two-layer RNN that equals it, to run on torch alone."""
    from tl_dyck.report.certifying import say_export

    say_export(checkpoint, out, onnx)


@app.command()
def certify(
    rnn: Annotated[
        Path,
        typer.Argument(metavar="RNN", help="Folder of an exported RNN, or of a saved model.", show_default=False),
    ],
    space: Annotated[
        str,
        typer.Option(
            "--space", metavar="SPACE", show_default=False, help="Edits with budgets: dup, del, sub, ins, swap, pairs."
        ),
    ],
    text: Annotated[list[str] | None, typer.Option("--text", metavar="TEXT", help="A string; repeatable.")] = None,
    file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Strings, one a line; a target may follow after a tab.")
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(metavar="NAME", help="What must stay predicted. \\[default: what the model predicts]"),
    ] = None,
    certifier: Annotated[str, typer.Option(metavar="NAME", help="exact, interval, exhaustive, …")] = "exact",
    synonyms: Annotated[
        Path | None, typer.Option(metavar="FILE", help="JSON for sub: word to list of words, best first.")
    ] = None,
    k: Annotated[int | None, typer.Option(min=1, metavar="N", help="Synonyms of each word. \\[default: all]")] = None,
    delete: Annotated[
        str | None, typer.Option(metavar="WORDS", help="For del; '*' for any. \\[default: a and the of to]")
    ] = None,
    insert: Annotated[str | None, typer.Option(metavar="TEXTS", help="For ins, with commas between.")] = None,
    time_limit: Annotated[float, typer.Option(metavar="S", help="Seconds a string.")] = 10.0,
    tight: Annotated[bool, typer.Option("--tight", help="Find the least margin, not only its sign.")] = False,
    jobs: Annotated[int, typer.Option(min=1, metavar="N", help="Worker processes.")] = 1,
    out: Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Certificates as JSON.")] = None,
) -> None:
    """Does a prediction survive every edit of a string? Prove it, or show the string that breaks it.

    For example: [bold]tl-dyck certify my-rnn --text "(()" --space pairs:2[/bold]
    """
    from tl_dyck.report.certifying import Question, say_certificates

    question = Question(
        space=space,
        target=target,
        certifier=certifier,
        synonyms=synonyms,
        k=k,
        delete=delete,
        insert=insert,
        time_limit=time_limit,
        tight=tight,
    )
    say_certificates(rnn, text or [], file, question, out, jobs)


@app.command()
def reproduce(
    scale: Annotated[
        str, typer.Option(metavar="NAME", help='"quick" (minutes), "full" (12 seeds), "paper" (40 seeds).')
    ] = "quick",
    out: Annotated[
        Path, typer.Option("--out", "-o", metavar="FOLDER", help="Folder for runs, tables and report.")
    ] = Path("results/reproduce"),
    jobs: _Jobs = None,
    device: _Device = None,
) -> None:
    """Run every experiment of the Dyck paper, and say of each of its claims whether we find the same.

    Writes [bold]reproduce.html[/bold], claims.md and claims.json. What is already in the folder is kept.
    """
    from tl_dyck.report.reproducing import say_reproduction, write_reproduction
    from tl_dyck.studies.paper import reproduce as run

    done = run(scale, out, n_jobs=jobs, device=_device(device))
    say_reproduction(done, write_reproduction(done))


def main() -> None:
    """Run the command line."""
    app()


# --- reading what users type ------------------------------------------------------------------------------------------


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _device(name: str | None) -> str | None:
    """Check a device before anything is trained on it."""
    from tl_dyck.machine import check_device

    return check_device(name)


# --- when something goes wrong ---------------------------------------------------------------------------------------


def _is_ours(error: Exception) -> bool:
    """Of RuntimeErrors and ImportErrors only those are the user's business that we raise on purpose."""
    if isinstance(error, ImportError):
        from tl_dyck.rnn.onnx import MissingOnnxError
        from tl_dyck.runs.backends import MissingBackendError

        return isinstance(error, (MissingOnnxError, MissingBackendError))
    if isinstance(error, RuntimeError):
        from tl_dyck.training.seeds import TrainingFailedError

        return isinstance(error, TrainingFailedError)
    return True


def _fail(error: Exception) -> NoReturn:
    lines = [line.strip() for line in str(error).splitlines() if line.strip()] or [type(error).__name__]
    # the message of failed runs ends with what the last of them raised
    text = lines[0] if len(lines) == 1 else f"{lines[0]} {lines[-1]} (tl-dyck --debug shows all)"
    if isinstance(error, OSError) and error.strerror:  # ours say it all; "[Errno 13]" adds nothing
        text = error.strerror if error.filename is None else f"{error.strerror}: {error.filename!r}"
    console(stderr=True).print(Text(f"Error: {text}", style="red"), soft_wrap=True)
    raise typer.Exit(2) from error
