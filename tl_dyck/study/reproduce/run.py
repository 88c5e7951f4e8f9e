"""Run every experiment of Wen et al. 2023 at a scale: train, measure, judge."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, final

import pandas as pd

from tl_dyck.files import CorruptFileError, ensure_folder, read_json, read_table, write_bytes, write_json
from tl_dyck.machine import environment
from tl_dyck.models import DyckTransformer
from tl_dyck.registry import unknown_name
from tl_dyck.study.reproduce.claims import CLAIMS
from tl_dyck.study.reproduce.evidence import Evidence, read_evidence, run_folder
from tl_dyck.study.reproduce.measure import measure, measure_checkpoint
from tl_dyck.study.reproduce.rules import Claim, judge
from tl_dyck.study.reproduce.scales import SCALES, Group, Scale, groups_of
from tl_dyck.study.results import without_nan
from tl_dyck.training import TrainResult
from tl_dyck.training.seeds import train_runs

__all__ = ["Reproduction", "load_reproduction", "reproduce"]

_FORMAT = "tl_dyck.reproduction/1"


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """What came of the paper's claims.

    Attributes:
        folder: where everything is.
        scale: how many models.
        claims: one row per claim: name, about, where, says, quantity, reported (recalled; "" if lost), measured (as
            text), value, low, high, n_seeds, rule, verdict, reading.
        evidence: what they were judged by.
        environment: versions and hardware.
    """

    folder: Path
    scale: Scale
    claims: pd.DataFrame
    evidence: Evidence
    environment: dict[str, Any]


def reproduce(
    scale: Scale | str = "quick",
    folder: str | Path = "results/reproduce",
    *,
    n_jobs: int | None = None,
    progress: bool = True,
    device: str | None = None,
) -> Reproduction:
    """Train every model that a scale asks for, measure it, and judge every claim.

    Models and measurements that are in the folder already are kept, so what was interrupted goes on where it stopped,
    and a larger scale with the same training options finds the models of a smaller one. Writes ``claims.json`` and
    ``claims``, ``models``, ``heads`` and ``checkpoints`` as Parquet tables.

    Args:
        scale: a key of `SCALES`, or one of your own.
        folder: where to put everything.
        n_jobs: worker processes of one thread each; None for one per core.
        progress: whether to show a progress bar.
        device: of the models while they are trained.

    Raises:
        UnknownNameError: no such scale.
        CheckpointError: the folder holds runs of another configuration.
        TrainingFailedError: a run raised.
    """
    if isinstance(scale, str):
        if scale not in SCALES:
            raise unknown_name("scale", scale, SCALES)
        scale = SCALES[scale]
    path = ensure_folder(folder)
    groups = groups_of(scale)
    by_folder = {run_folder(path, group.name, seed): group for group in groups for seed in range(group.seeds)}
    runs = [
        (group.config(device), group.load_task(), seed, group.training, run_folder(path, group.name, seed))
        for group in groups
        for seed in range(group.seeds)
    ]
    train_runs(
        runs,
        after=partial(_after, groups=by_folder, scale=scale),
        during=partial(_during, groups=by_folder, scale=scale),
        n_jobs=n_jobs,
        progress=progress,
    )
    evidence = read_evidence(path, scale)
    done = Reproduction(
        folder=path, scale=scale, claims=judge_all(evidence), evidence=evidence, environment=environment()
    )
    _save(done)
    return done


def _after(result: TrainResult, folder: Path, *, groups: dict[Path, Group], scale: Scale) -> None:
    measure(result, folder, groups[folder], scale)


def _during(step: int, model: DyckTransformer, folder: Path, *, groups: dict[Path, Group], scale: Scale) -> None:
    if groups[folder].watched:
        measure_checkpoint(step, model, folder, groups[folder], scale)


def judge_all(evidence: Evidence) -> pd.DataFrame:
    """One row per claim, see `Reproduction`."""
    return pd.DataFrame([_row(claim, evidence) for claim in CLAIMS])


def _row(claim: Claim, evidence: Evidence) -> dict[str, Any]:
    found = claim.measure(evidence)
    return {
        "name": claim.name,
        "about": claim.about,
        "where": claim.where,
        "says": claim.says,
        "quantity": claim.quantity,
        "reported": claim.reported or "",
        "measured": found.estimate.text(found.form),
        "value": found.estimate.value,
        "low": found.estimate.low,
        "high": found.estimate.high,
        "n_seeds": found.estimate.n,
        "rule": claim.rule.words,
        "verdict": judge(claim.rule, found),
        "reading": found.reading,
    }


def _save(done: Reproduction) -> None:
    tables = {"claims": done.claims, **{name: getattr(done.evidence, name) for name in _TABLES}}
    for name, table in tables.items():
        write_bytes(done.folder / f"{name}.parquet", table.to_parquet(index=False))
    saved = {
        "format": _FORMAT,
        "scale": done.scale.to_dict(),
        "claims": [without_nan(row) for row in done.claims.to_dict("records")],
        "environment": done.environment,
    }
    write_json(done.folder / "claims.json", saved)


_TABLES = ("models", "heads", "checkpoints")


def load_reproduction(folder: str | Path) -> Reproduction:
    """Load what `reproduce` wrote.

    Raises:
        CorruptFileError: a file is missing, altered or of another version.
    """
    path = Path(folder)
    saved = read_json(path / "claims.json")
    if not isinstance(saved, dict) or saved.get("format") != _FORMAT:
        raise CorruptFileError(f"{str(path)!r} does not hold a reproduction of this version ({_FORMAT})")
    try:
        scale = Scale.from_dict(saved["scale"])
        tables = {name: read_table(path / f"{name}.parquet") for name in ("claims", *_TABLES)}
        return Reproduction(
            folder=path,
            scale=scale,
            claims=tables.pop("claims"),
            evidence=Evidence(folder=path, scale=scale, **tables),
            environment=saved["environment"],
        )
    except CorruptFileError as error:
        raise CorruptFileError(f"{error}; run it again") from error
    except (KeyError, TypeError, ValueError, OSError) as error:
        raise CorruptFileError(f"{str(path)!r} does not hold a whole reproduction: {error!r}; run it again") from error
