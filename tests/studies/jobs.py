"""Four jobs that are many runs, as small as they can be."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import tl_dyck_text.study
from tl_dyck.ablation import FinetuneConfig
from tl_dyck.kit.configuration import parameters_of
from tl_dyck.kit.files import ensure_folder, write_bytes
from tl_dyck.runs import Sweep, run_sweep
from tl_dyck.studies import Measurement, StudyConfig, run_study
from tl_dyck.studies.ablation import AblateConfig, ablate_trained
from tl_dyck.studies.reproduction import reproduce
from tl_dyck.training import TrainConfig
from tl_dyck_papers.wen_2023 import WEN_2023, Scale, evidence, measure, scales
from tl_dyck_papers.wen_2023.measure import PaperMeasurement
from tl_dyck_text.study import SentencesExperiment, sentences_table

TRAINING = TrainConfig(steps=4, batch_size=4, check_every=2, check_size=10, target=None)
ALL_GROUPS = scales.groups_of
SMALL = FinetuneConfig(penalties=(0.1,), steps=1, batch_size=4, n_eval=4)

TINY_PAPER = Scale(
    name="tiny",
    seeds=3,
    table_seeds=1,
    contrastive_seeds=3,
    weights=(0.0, 1.0),
    lengths=(),
    to_the_end=20,
    n_bootstrap=30,
    measurement=PaperMeasurement(n_accuracy=30, n_long=2, n_strings=20),
)


@contextlib.contextmanager
def few_groups(names: Sequence[str], **training: Any) -> Iterator[None]:
    """A reproduction trains these groups only, and not for long."""

    def few(scale: Scale) -> list[Any]:
        return [
            group
            | parameters_of("training", TrainConfig(target=None, **training, **weight))
            | {"measure.forecast": False}
            for group in ALL_GROUPS(scale)
            if group["group"] in names
            for weight in [{"contrastive_weight": group["training.contrastive_weight"]}]
        ]

    with patch.object(scales, "groups_of", few), patch.object(evidence, "groups_of", few):
        yield


def study(folder: Path, seeds: tuple[int, ...] = (0, 1), **how: Any) -> Any:
    measurement = Measurement(
        n_accuracy=10, n_long=2, n_strings=10, n_certified=1, n_inserted=1, decided_length=4
    )
    config = StudyConfig(
        families=("minimal-onehot",), seeds=seeds, training=TRAINING, measurement=measurement,
        n_bootstrap=5,
    )  # fmt: skip
    found = run_study(config, folder, **how)
    return found.models.drop(columns="seconds")


def paper(folder: Path, seeds: tuple[int, ...] = (0, 1), **how: Any) -> Any:
    scale = replace(
        TINY_PAPER,
        seeds=max(seeds) + 1,
        contrastive_seeds=1,
        weights=(0.0,),
        n_bootstrap=5,
        measurement=PaperMeasurement(n_accuracy=10, n_long=2, n_strings=10),
    )
    with few_groups(["minimal-onehot"], steps=4, batch_size=4, check_every=2, check_size=10):
        found = reproduce(replace(WEN_2023, claims=()), scale, folder, **how)
    return found.evidence.models.drop(columns="seconds")


def ablation(folder: Path, seeds: tuple[int, ...] = (0, 1), **how: Any) -> Any:
    config = AblateConfig(finetune=SMALL, leave_one_out=None, n=4)
    size: dict[str, Any] = {"layers": (1,), "n_heads": 2, "d_model": 6, "tasks": ("dyck-2-4",)}
    found = ablate_trained(folder, seeds=seeds, training=TRAINING, config=config, **size, **how)
    return found.comparison.heads


def table(folder: Path, seeds: tuple[int, ...] = (0, 1), **how: Any) -> Any:
    corpus = ensure_folder(folder.parent / "corpus")
    for name in ("train.tsv", "dev.tsv"):
        write_bytes(corpus / name, b"a good film\t1\na bad film\t0\n")
    write_bytes(corpus / "synonyms.json", b'{"good": ["bad"]}')
    point = {
        "data": str(corpus),
        "synonyms": str(corpus / "synonyms.json"),
        "space": "sub:1",
        "training": {"steps": 3},
        "model": {"d_model": 4},
        "measure": {"spaces": ["sub:1"]},
    }
    sweep = Sweep(list=[point], seeds=seeds, experiment="sentences")
    run_sweep(sweep, folder, experiment=SentencesExperiment(), **how)
    found = sentences_table(folder)
    return found.drop(columns=["seconds", "median_ms", "p95_ms", "interval_ms"])


JOBS: dict[str, Callable[..., Any]] = {
    "study": study,
    "paper": paper,
    "ablation": ablation,
    "table": table,
}

#: What is done once for each run.
STEPS = {
    "study": (Measurement, "measure"),
    "paper": (measure.PaperMeasurement, "measure"),
    "ablation": (AblateConfig, "look"),
    "table": (tl_dyck_text.study, "_measure"),
}


def main(name: str, folder: str, log: str) -> None:
    """Do a job of three seeds; every run that is done leaves its process's number in the log."""
    place, attribute = STEPS[name]
    step = getattr(place, attribute)

    def logged(*arguments: Any, **options: Any) -> Any:
        descriptor = os.open(log, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
        os.write(descriptor, f"{os.getpid()}\n".encode())
        os.close(descriptor)
        return step(*arguments, **options)

    setattr(place, attribute, logged)
    JOBS[name](Path(folder), (0, 1, 2), n_jobs=1, progress=False)
