"""What ``tl-dyck ablate`` prints, and the page it writes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.padding import Padding
from rich.text import Text

from tl_dyck.files import ensure_folder, write_bytes
from tl_dyck.report.figures import percent
from tl_dyck.report.heads import ablate_command, ablation_figures
from tl_dyck.report.markup import Html, element, table
from tl_dyck.report.page import document
from tl_dyck.report.sections import figure_section
from tl_dyck.report.terminal import console, say_path
from tl_dyck.report.terminal import table as text_table
from tl_dyck.studies.heads import AblateConfig, Ablation, ablate_runs, run_experiment

__all__ = ["say_ablation", "write_ablation"]


def say_ablation(
    folders: Sequence[Path],
    task: str | None,
    out: Path | None,
    steps: int | None,
    seeds: Sequence[int] | None,
    n_jobs: int | None,
    device: str | None,
) -> None:
    """Ablate saved models, or train and ablate those of the experiment; print what was found, and write the page.

    Args:
        folders: of models, runs or studies; none for the experiment.
        task: of which strings are drawn; None for each run's own.
        out: folder of the results; None for ``ablation`` in the folder of a study, or ``results/ablation``.
        steps: of fine-tuning, per stage of the penalty and per head left out; 0 for frozen models only.
        seeds: of the experiment.
        n_jobs: worker processes.
        device: of the models.

    Raises:
        ValueError: neither folders nor seeds, or both.
    """
    if bool(folders) == (seeds is not None):
        raise ValueError("give folders of saved models, or --experiment with none")
    config = AblateConfig()
    if steps is not None:
        tuned = None if steps == 0 else replace(config.finetune, steps=steps) if config.finetune else None
        config = replace(config, finetune=tuned, leave_one_out=tuned)
    if out is None:
        study = len(folders) == 1 and (folders[0] / "results.json").exists()
        out = folders[0] / "ablation" if study else Path("results", "ablation")
    if seeds is not None:
        tasks = ("dyck-2-4", "dyck-2-4-prefix") if task is None else (task,)
        found = run_experiment(out, seeds=seeds, tasks=tasks, config=config, n_jobs=n_jobs)
    else:
        found = ablate_runs(folders, out, task=task, config=config, device=device, n_jobs=n_jobs)
    path = write_ablation(found)
    printed = console()
    for question in dict.fromkeys(answer.question for answer in found.answers):
        printed.print(Text(question, style="bold"))
        for answer in found.answers:
            if answer.question == question:
                printed.print(Padding(Text(f"{answer.group}: {answer.text}"), (0, 0, 0, 2)))
        printed.print()
    _say_heads(found)
    say_path("Report", path)


def _say_heads(found: Ablation) -> None:
    """The heads of a few models; of many, only where to find them."""
    heads = found.comparison.heads
    if heads["model"].nunique() > 3:
        return
    columns = [
        name for name in ("zero", "mean", "gates", "leave-one-out", "stack-likeness", "entropy") if name in heads
    ]
    rows = text_table("model", "layer", "head", *columns, right=range(1, 3 + len(columns)))
    for _, row in heads.iterrows():
        cells = ["–" if row[name] != row[name] else f"{row[name]:.3f}" for name in columns]
        rows.add_row(Text(str(row["model"])), str(row["layer"]), str(row["head"]), *cells)
    console().print(rows)


def write_ablation(ablation: Ablation, path: str | Path | None = None) -> Path:
    """Write an ablation as one self-contained HTML file.

    Args:
        ablation: from `ablate_runs`, `run_experiment` or `load_ablation`.
        path: of the file; None for ``ablation.html`` in its folder.

    Returns:
        The path.
    """
    target = ablation.folder / "ablation.html" if path is None else Path(path)
    made = ablation_figures(ablation)
    sections: list[tuple[str, str, Any]] = [(figure.name, figure.title, figure_section(figure)) for figure in made]
    sections += [("models", "All models", _models(ablation)), ("about", "How this was made", _about(ablation))]
    page = document("tl_dyck: which heads matter", _lead(ablation), sections, made, _versions(ablation))
    ensure_folder(target.parent)
    write_bytes(target, page.encode())
    return target


def _lead(ablation: Ablation) -> Html:
    heads = ablation.comparison.heads
    groups = ", ".join(str(group) for group in heads["group"].unique())
    text = (
        f"{len(heads)} attention heads of {len(ablation.models)} transformers ({groups}). Each head was disabled while "
        "all else stayed, and gated while all else could adapt. Are the heads that look like a stack those that matter?"
    )
    return element("p", text, class_="lead")


def _models(ablation: Ablation) -> Html:
    rows = [
        (
            str(row.model),
            str(row.group),
            "–" if row.accuracy != row.accuracy else percent(row.accuracy),
            "–" if row.metric != row.metric else f"{row.metric:.4f}",
            str(row.status),
        )
        for row in ablation.models.itertuples()
    ]
    columns = ("model", "kind", "accuracy", "log-likelihood (nats per token)", "gates")
    return table("Every model, whether it learned its task or not", columns, rows, numeric=(2, 3))


def _about(ablation: Ablation) -> list[Html]:
    config = json.dumps(ablation.config, indent=1)
    return [
        element("p", "Measure again: ", element("code", ablate_command(ablation))),
        element("p", "Every interval is a 95% percentile bootstrap over models."),
        element(
            "details",
            element("summary", "The whole configuration"),
            element("pre", element("code", config), tabindex="0"),
        ),
    ]


def _versions(ablation: Ablation) -> Html:
    packages = ", ".join(f"{name} {version}" for name, version in ablation.versions.items())
    return element("dl", element("dt", "Versions"), element("dd", packages))
