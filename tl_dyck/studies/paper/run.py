"""Run every experiment of Wen et al. 2023 at a scale: train, measure, judge."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import pandas as pd
from typing_extensions import Unpack

from tl_dyck.environment import environment
from tl_dyck.files import CorruptFileError, copy_file, read_json, read_table, write_json
from tl_dyck.records import finite_rows, write_tables
from tl_dyck.registry import unknown_name
from tl_dyck.runs import RunOptions, run_sweep
from tl_dyck.runs.store import Store, point_id, run_id
from tl_dyck.studies.paper.claims import CLAIMS
from tl_dyck.studies.paper.evidence import Evidence, read_evidence
from tl_dyck.studies.paper.measure import PaperMeasurement
from tl_dyck.studies.paper.rules import Claim, judge
from tl_dyck.studies.paper.scales import SCALES, Scale
from tl_dyck.studies.train import TrainExperiment
from tl_dyck.training.checkpoint import has_result, load_result

__all__ = ["Reproduction", "load_reproduction", "reproduce"]

_FORMAT = "tl_dyck.reproduction/2"


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Verdicts on the paper's claims, with the evidence.

    Attributes:
        folder: where everything is.
        scale: how many models.
        claims: one row per claim: name, about, where, says, quantity, reported (recalled; "" if
            lost), measured (as text), value, low, high, n_seeds, rule, verdict, reading.
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
    device: str | None = None,
    **how: Unpack[RunOptions],
) -> Reproduction:
    """Train every model that a scale asks for, measure it, and judge every claim.

    It is a sweep (`run_sweep`): what is done is kept, several processes may work on one folder,
    folders of several machines can be merged, and a larger scale that measures as closely finds the
    models of a smaller one. Writes ``claims.json`` and ``claims``, ``models``, ``heads`` and
    ``checkpoints`` as Parquet tables. Models of the layout before there were sweeps,
    ``runs/<group>/seed-<n>``, are taken over and measured again.

    Args:
        scale: a key of `SCALES`, or one of your own.
        folder: where to put everything.
        device: of the models while they are trained.
        **how: n_jobs, backend, address, retry_failed, progress, … as for `run_sweep`.

    Raises:
        UnknownNameError: no such scale.
        FailedRunsError: a run raised; the others are done.
    """
    if isinstance(scale, str):
        if scale not in SCALES:
            raise unknown_name("scale", scale, SCALES)
        scale = SCALES[scale]
    path = Path(folder)
    adopt(path, scale)
    run_sweep(scale.sweep(), path, experiment=replace(PAPER, device=device), **how)
    evidence = read_evidence(path, scale)
    done = Reproduction(
        folder=path,
        scale=scale,
        claims=judge_all(evidence),
        evidence=evidence,
        environment=environment(),
    )
    _save(done)
    return done


#: Train, and measure what the paper's claims are about.
PAPER = TrainExperiment(name="paper", measurement=PaperMeasurement, defaults={})


def adopt(folder: Path, scale: Scale) -> int:
    """Take over models of an earlier layout, ``runs/<group>/seed-<n>``; returns how many.

    They took hours to train.

    They are measured again. What is copied is what training left, and only if it is of the same
    run.
    """
    adopted = 0
    for point, seeds in scale.sweep().points_and_seeds():
        group = folder / "runs" / point["group"]
        if not group.is_dir():
            continue
        identity = PAPER.identity(point)
        run = {name: identity[name] for name in ("task", "model", "options")}
        for seed in seeds:
            old = group / f"seed-{seed}"
            new = Store(folder.resolve()).path(run_id(point_id(PAPER.name, identity), seed))
            if not has_result(old) or has_result(new):
                continue
            load_result(old, {**run, "seed": seed})
            new.mkdir(parents=True, exist_ok=True)
            names = [
                path for path in old.iterdir() if not path.name.startswith((".", "reproduce."))
            ]
            for path in sorted(
                names, key=lambda path: path.name == "result.json"
            ):  # which says that all is there
                copy_file(path, new / path.name)
            adopted += 1
    return adopted


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
    write_tables(done.folder, tables)
    saved = {
        "format": _FORMAT,
        "scale": done.scale.to_dict(),
        "claims": finite_rows(done.claims.to_dict("records")),
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
        raise CorruptFileError(
            f"{str(path)!r} does not hold a reproduction of this version ({_FORMAT})"
        )
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
        raise CorruptFileError(
            f"{str(path)!r} does not hold a whole reproduction: {error!r}; run it again"
        ) from error
