"""``tl-dyck sweep``: thousands of runs, and what came of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer
import typer.core

__all__ = ["sweep_app"]


class _SweepCommands(typer.core.TyperGroup):
    """``tl-dyck sweep FILE`` is short for ``tl-dyck sweep run FILE``."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        if args and args[0] not in self.commands and args[0] not in ("-h", "--help"):
            args = ["run", *args]
        found: list[str] = super().parse_args(ctx, args)
        return found


sweep_app = typer.Typer(
    cls=_SweepCommands,
    no_args_is_help=True,
    rich_markup_mode="rich",
    help="Thousands of runs that survive: [bold]tl-dyck sweep FILE.yaml[/bold], then status, resume, results, merge.",
)

_Folder = Annotated[Path, typer.Argument(metavar="FOLDER", help="Of a sweep.", show_default=False)]
_Jobs = Annotated[int | None, typer.Option(min=1, metavar="N", help="Worker processes. \\[default: one per core]")]
_Backend = Annotated[str, typer.Option(metavar="NAME", help='"loky" for this machine; "dask" or "ray" for a cluster.')]
_Address = Annotated[
    str | None, typer.Option(metavar="ADDRESS", help="Of the cluster's scheduler. \\[default: one made here]")
]
_RecordsOnly = Annotated[bool, typer.Option("--records-only", help="Do not keep models and patterns.")]
_NoWait = Annotated[bool, typer.Option("--no-wait", help="Leave runs that other processes are doing to them.")]
_Device = Annotated[str | None, typer.Option(metavar="NAME", help='"cpu", "cuda", … for experiments with models.')]
_Wandb = Annotated[
    str | None, typer.Option(metavar="PROJECT", help="Send results to this project of Weights & Biases too.")
]


@sweep_app.command()
def run(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The sweep, in YAML.", show_default=False)],
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FOLDER", help="Folder. \\[default: results/<FILE's name>]")
    ] = None,
    jobs: _Jobs = None,
    backend: _Backend = "loky",
    address: _Address = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")] = False,
    records_only: _RecordsOnly = False,
    no_wait: _NoWait = False,
    device: _Device = None,
    wandb: _Wandb = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Check every point, say what would be run.")] = False,
) -> None:
    """Carry out every run that is not done yet. Start it again after anything; start it in several processes at once.

    A sweep is a YAML file: [bold]grid[/bold] (every combination), [bold]list[/bold] (points one by one),
    [bold]common[/bold], [bold]seeds[/bold].
    """
    from tl_dyck.report.sweeping import go, say_plan

    if dry_run:
        say_plan(file)
        return
    go(
        file,
        out or Path("results") / file.stem,
        n_jobs=jobs,
        backend=backend,
        address=address,
        retry_failed=retry_failed,
        keep_files=not records_only,
        wait=not no_wait,
        device=device,
        wandb=wandb,
    )


@sweep_app.command()
def resume(
    folder: _Folder,
    jobs: _Jobs = None,
    backend: _Backend = "loky",
    address: _Address = None,
    retry_failed: Annotated[bool, typer.Option("--retry-failed", help="Try failed runs again.")] = False,
    records_only: _RecordsOnly = False,
    no_wait: _NoWait = False,
    device: _Device = None,
    wandb: _Wandb = None,
) -> None:
    """Go on with the sweep of a folder."""
    from tl_dyck.report.sweeping import go

    go(
        None,
        folder,
        n_jobs=jobs,
        backend=backend,
        address=address,
        retry_failed=retry_failed,
        keep_files=not records_only,
        wait=not no_wait,
        device=device,
        wandb=wandb,
    )


@sweep_app.command()
def status(folder: _Folder) -> None:
    """How many runs are done, failed, running, waiting; by parameter, with the errors."""
    from tl_dyck.report.sweeping import say_status

    say_status(folder)


@sweep_app.command()
def results(
    folder: _Folder,
    metrics: Annotated[str | None, typer.Option(metavar="NAMES", help="With commas between. \\[default: all]")] = None,
    by: Annotated[
        str | None, typer.Option(metavar="NAMES", help="Parameters to group by. \\[default: those that vary]")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="One row a run: .parquet or .csv.")
    ] = None,
) -> None:
    """Means over seeds with 95 % bootstrap intervals; or the table of all runs as a file."""
    from tl_dyck.report.sweeping import say_results

    say_results(folder, metrics, by, out)


@sweep_app.command()
def merge(
    into: Annotated[Path, typer.Argument(metavar="INTO", help="A folder, new or not.", show_default=False)],
    folders: Annotated[list[Path], typer.Argument(metavar="FOLDER...", help="What to copy.", show_default=False)],
) -> None:
    """Copy the runs of several machines' folders into one."""
    from tl_dyck.report.sweeping import say_merge

    say_merge(into, folders)
