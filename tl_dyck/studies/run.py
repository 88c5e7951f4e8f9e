"""Run a study: a sweep of families and seeds, and what is compared over seeds once it is done."""

from __future__ import annotations

from pathlib import Path

from typing_extensions import Unpack

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.files import write_bytes
from tl_dyck.language.symbols import needs_stack
from tl_dyck.runs import RunOptions, run_sweep
from tl_dyck.studies.config import StudyConfig
from tl_dyck.studies.results import STUDY, Study, load_study
from tl_dyck.studies.tables import study_markdown
from tl_dyck.studies.train import TrainExperiment
from tl_dyck.tasks import load_task


@checked
def run_study(
    config: StudyConfig | None = None,
    folder: str | Path = "results/study",
    *,
    device: str | None = None,
    **how: Unpack[RunOptions],
) -> Study:
    """Train every family with every seed, measure each model, and write the results into `folder`.

    It is a sweep (`run_sweep`): what is done is kept, several processes may work on one folder,
    folders of several machines can be merged, and a study of more seeds finds those that are there.

    Args:
        config: what to do; None for the default study: three families, eight seeds, ``dyck-2-4``.
        folder: where to put runs; `results.json`, which says that it is a study; and its table as
            Markdown, `table.md`.
        device: of the models; None for TransformerLens' default.
        **how: n_jobs, backend, address, retry_failed, progress, … as for `run_sweep`.

    Raises:
        UnknownNameError: no such task or family.
        OSError: `folder` cannot be written.
        FailedRunsError: a run raised; the others are done.
    """
    config = config or StudyConfig()
    task = load_task(config.task)
    needs_stack(task.language, "a study, with its report, is")
    run_sweep(config.sweep(), folder, experiment=TrainExperiment(device=device), **how)
    STUDY.write(folder, config=config.to_dict(), task=task.to_dict())
    study = load_study(folder)
    write_bytes(study.folder / "table.md", study_markdown(study).encode())
    return study
