"""The experiment "heads": measure every head of a model, a saved one or one trained for it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, final

from tl_dyck.ablation.measure import measure_heads
from tl_dyck.ablation.tuning import FinetuneConfig
from tl_dyck.kit.configuration import nested
from tl_dyck.kit.records import write_tables
from tl_dyck.models import DyckTransformer, load_model
from tl_dyck.models.storage import config_of, weights_digest
from tl_dyck.runs.experiments import Job
from tl_dyck.runs.spec import Point, SweepError
from tl_dyck.studies.measurement import Measures
from tl_dyck.studies.train import TrainExperiment, identity_of, plugged
from tl_dyck.tasks import Task, tasks
from tl_dyck.tasks.names import task_from_dict, task_of
from tl_dyck.training import TrainResult, load_result


@final
@dataclass(frozen=True, kw_only=True)
class AblateConfig(Measures):
    """Options of measuring the heads of every model.

    Attributes:
        finetune: of the gates; None to measure frozen models only.
        leave_one_out: of leave-one-out; None for none.
        n: strings on which frozen models are measured.
        seed: of everything that is drawn.
    """

    finetune: FinetuneConfig | None = field(default_factory=lambda: FinetuneConfig(steps=60))
    leave_one_out: FinetuneConfig | None = field(default_factory=lambda: FinetuneConfig(steps=60))
    n: int = 200
    seed: int = 0

    #: Another number where the same fields give other metrics: then runs are done again.
    code: ClassVar[int] = 2

    def measure(self, result: TrainResult, folder: Path) -> dict[str, Any]:
        """Measure the heads of a trained model, see `look`."""
        return {
            "accuracy": result.accuracy.any_token,
            **self.look(result.model, result.task, folder),
        }

    def look(self, model: DyckTransformer, task: Task, folder: Path) -> dict[str, Any]:
        """Measure the heads of a model; tables are kept in a folder.

        Returns:
            Metrics: heads_of (size and task, in words), metric (of the intact model) and gates
            (their status).
        """
        if task.language != model.cfg.language:
            raise ValueError(
                f"the model reads {model.cfg.language}, task {task.name!r} {task.language}"
            )
        heads, swept = measure_heads(
            model, task, finetune=self.finetune, leave_one_out=self.leave_one_out, n=self.n,
            seed=self.seed, progress=False,
        )  # fmt: skip
        tables = {"heads": heads}
        if swept is not None:
            tables |= {"trajectories": swept.trajectories, "paths": swept.path}
        write_tables(folder, tables)
        cfg = model.cfg
        size = (
            f"{cfg.n_layers} layer{'s' * (cfg.n_layers > 1)} × {cfg.n_heads} "
            f"head{'s' * (cfg.n_heads > 1)}"
        )
        return {
            "heads_of": f"{cfg.model_name}, {size}, {task.name}",
            "metric": None if swept is None else swept.metric,
            "gates": "frozen" if swept is None else swept.status,
        }


@final
@dataclass(frozen=True, kw_only=True)
class HeadsExperiment(TrainExperiment):
    """Measure the heads of a model: one that is saved, or one that is trained first.

    Parameters of a point: those of `TrainExperiment`, with ``measure.<field>`` of
    `AblateConfig`; or, for a saved model, ``saved`` (where it is), ``called`` (in tables),
    ``task`` (a name) or ``task.<field>`` of a whole `DyckTask` (that of the run if both are left
    out), and ``measure.<field>``.

    Metrics: those of `AblateConfig`, and accuracy (None if not known).
    """

    name: str = "heads"
    measurement: type[Measures] = AblateConfig
    defaults: Mapping[str, Any] = field(default_factory=dict)

    def prepare(self, point: Point) -> Job:
        """Load a saved model, or say how one is trained; errors name the parameter."""
        if "saved" not in point:
            return super().prepare(point)
        parts = nested({name: value for name, value in point.items() if "." in name})
        known = {"saved", "called", "task", "measure"}
        # dotted names by their first part
        for name in {*parts, *(name for name in point if "." not in name)} - known:
            raise SweepError(f"unknown parameter {name!r} of a saved model")
        try:
            measurement = AblateConfig.from_dict(parts.get("measure", {}), "measure.")
            fields = parts.get("task", {})
            named = plugged(tasks, point["task"], self.plugs) if "task" in point else None
            if named and fields:
                named = replace(named, **fields)
            task = named or (task_from_dict(fields) if fields else None)
        except TypeError as error:
            raise SweepError(f"{error}; the point is {point}") from error
        run = Path(point["saved"])
        if (run / "result.json").exists():
            result = load_result(run, device=self.device)
            accuracy = result.accuracy.any_token
            return SavedJob(result.model, task or result.task, measurement, accuracy)
        model = load_model(run, device=self.device)
        return SavedJob(model, task or task_of(model.cfg.language), measurement, None)


@final
@dataclass(frozen=True)
class SavedJob:
    """A saved model, to be measured."""

    model: DyckTransformer
    task: Task
    measurement: AblateConfig
    accuracy: float | None

    def identity(self) -> dict[str, Any]:
        """Its weights and settings, wherever it is."""
        return {
            "model": weights_digest(self.model),
            "settings": config_of(self.model),
            "task": self.task.to_dict(),
            "measure": identity_of(self.measurement),
        }

    def run(self, seed: int, folder: Path) -> dict[str, Any]:
        """Measure its heads."""
        found = self.measurement.look(self.model, self.task, folder)
        return {"accuracy": self.accuracy, **found}
