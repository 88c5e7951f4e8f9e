"""Do a paper's experiments at a scale, and judge its claims: train, measure, read, judge."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, final

import pandas as pd
from typing_extensions import Self, Unpack

from tl_dyck.kit.arguments import checked
from tl_dyck.kit.configuration import Configuration
from tl_dyck.kit.registry import Registry, RegistryError, unknown_name
from tl_dyck.kit.suggest import command
from tl_dyck.runs import RunOptions, run_sweep
from tl_dyck.runs.analysis import Analysis
from tl_dyck.runs.spec import Sweep
from tl_dyck.studies.claims import Claim, Reading, claims_table
from tl_dyck.studies.train import TrainExperiment

__all__ = [
    "Paper",
    "Reproduction",
    "Size",
    "load_paper",
    "load_reproduction",
    "papers",
    "register_paper",
    "reproduce",
]

REPRODUCTION = Analysis("claims.json", "tl_dyck.reproduction/6", "a reproduction")

_USUAL = "wen-2023"  # the paper of `reproduce` unless another is named


@dataclass(frozen=True, kw_only=True)
class Size(Configuration):
    """A scale: how many models, and how closely they are measured.

    Attributes:
        name: of the scale.
        seeds: models of a group.
    """

    name: str = "quick"
    seeds: int = 4

    def with_seeds(self, seeds: int) -> Self:
        """The same with as many models in each group."""
        return replace(self, seeds=seeds)

    def sweep(self) -> Sweep:
        """The runs."""
        raise NotImplementedError


@final
@dataclass(frozen=True, kw_only=True)
class Paper:
    """What is claimed, and what is done to see whether it holds.

    Attributes:
        name: for the command line and the record.
        folder: where it goes if nothing else is said.
        title: of its page.
        lead: first paragraph of the page; ``{models}`` and ``{scale}`` are filled in.
        caption: of the table of claims; ``{intervals}`` is filled in.
        scales: by name, all of one class.
        experiment: that makes its runs.
        claims: see `load_claims`.
        readings: by the name that claims read them by: functions of the evidence.
        read: from the folder, rows of its runs and a scale to evidence, which has a table
            ``models``, and ``scale``.
        figures: of its page, from a `Reproduction` to figures of `tl_dyck.report.page`.
    """

    name: str
    folder: str
    title: str
    lead: str
    caption: str
    scales: Mapping[str, Any]
    experiment: TrainExperiment
    claims: Sequence[Claim]
    readings: Mapping[str, Reading]
    read: Callable[[Path, pd.DataFrame, Any], Any]
    figures: Callable[[Any], Sequence[Any]] = lambda done: ()


@final
@dataclass(frozen=True, kw_only=True)
class Reproduction:
    """Verdicts on a paper's claims, with the evidence.

    Attributes:
        paper: whose claims.
        folder: where everything is.
        claims: one row per claim: name, about, where, says, quantity, reported (recalled; "" if
            lost), ours (whether the paper does not claim it), assumed (how the text is read), form,
            measured and beside (as text), value, the columns of
            `Estimate.ends` (low, high, kind, …), n_seeds, rule (in words), limit, upper
            and unit (the numbers of it), correlation, verdict, outcome, why, p, p_holm, detectable
            (see `ClaimVerdict`), positive, negative (the same quantity on constructions, as text),
            reading.
        evidence: what they were judged by.
        environment: versions and hardware.
    """

    paper: Paper
    folder: Path
    claims: pd.DataFrame
    evidence: Any
    environment: dict[str, Any]

    @property
    def scale(self) -> Any:
        """How many models, and how closely they were measured."""
        return self.evidence.scale

    @property
    def command(self) -> str:
        """What does it on the command line, in any folder."""
        scale = self.scale
        # a scale with settings is called "quick, steps=100"
        name, *settings = scale.name.split(", ")
        words = ["reproduce", "--scale", name]
        if self.paper.name != _USUAL:
            # behind the command's name
            words[1:1] = ["--paper", self.paper.name]
        for setting in settings:
            words += ["--set", setting]
        usual = self.paper.scales.get(name)
        is_set = any(setting.startswith("seeds=") for setting in settings)
        if not is_set and (usual is None or usual.seeds != scale.seeds):
            words += ["--seeds", str(scale.seeds)]
        return command(*words)


@checked
def reproduce(
    paper: Paper | str = _USUAL,
    scale: Size | str = "quick",
    folder: str | Path | None = None,
    *,
    seeds: int | None = None,
    device: str | None = None,
    **how: Unpack[RunOptions],
) -> Reproduction:
    """Train every model that a scale asks for, measure it, and judge every claim.

    It is a sweep (`run_sweep`): what is done is kept, several machines may share the folder, and a
    larger scale finds the models of a smaller one. ``claims.json`` says what was asked, and
    ``claims.parquet`` keeps the verdicts.

    Args:
        paper: "wen-2023" (the Dyck paper), "stack-use-2026" (is the stack used?), or one of your
            own.
        scale: a name: "quick", "paper", of wen-2023 also "full"; or one of your own.
        folder: where to put everything; None for the paper's usual one.
        seeds: models of each group, at least 2; None for those of the scale. More seeds later find
            the models of fewer.
        device: of the models while they are trained.
        **how: n_jobs, backend, address, retry_failed, progress, … as for `run_sweep`.

    Raises:
        UnknownNameError: no such paper or scale.
        ValueError: fewer than two seeds.
        FailedRunsError: a run raised; the others are done.
        ClaimError: a claim is read by what is no reading.
    """
    asked = load_paper(paper)
    size = size_of(scale, asked.scales, seeds)
    path = Path(asked.folder if folder is None else folder)
    run_sweep(size.sweep(), path, experiment=replace(asked.experiment, device=device), **how)
    REPRODUCTION.write(path, paper=asked.name, scale=size.to_dict())
    return load_reproduction(path, asked)


def load_reproduction(folder: str | Path, paper: Paper | None = None) -> Reproduction:
    """Load what `reproduce` wrote.

    Args:
        folder: of it.
        paper: if it is not one of ours.

    Raises:
        CorruptFileError: a file is missing, altered or of another version.
    """
    path = Path(folder)
    with REPRODUCTION.read(path) as (saved, runs):
        asked = load_paper(saved["paper"]) if paper is None else paper
        scale = type(next(iter(asked.scales.values()))).from_dict(saved["scale"])
        where = dict(saved["environment"])
    evidence = asked.read(path, runs, scale)
    claims = REPRODUCTION.kept(
        path, "claims", lambda: claims_table(asked.claims, asked.readings, evidence)
    )
    return Reproduction(
        paper=asked, folder=path, claims=claims, evidence=evidence, environment=where
    )


def load_paper(paper: Paper | str) -> Paper:
    """A registered paper by its name, or one's own.

    Raises:
        UnknownNameError: no such paper.
    """
    return paper if isinstance(paper, Paper) else papers.get(paper)


def _check_paper(name: str, paper: Any) -> None:
    """Refuse what is no `Paper` of that name."""
    if not isinstance(paper, Paper) or paper.name != name:
        raise RegistryError(f"paper {name!r} must be a Paper of that name, not {paper!r:.80}")


papers: Registry[Paper] = Registry("paper", "tl_dyck.papers", check=_check_paper)
register_paper = papers.register
"""Register a `Paper` of your own: see `Registry.register`."""


def size_of(scale: Size | str, scales: Mapping[str, Size], seeds: int | None) -> Size:
    """A scale by its name, or one's own, with other numbers of models if they are given.

    Raises:
        UnknownNameError: no such scale.
        ValueError: fewer than two seeds.
    """
    if isinstance(scale, str):
        if scale not in scales:
            raise unknown_name("scale", scale, scales)
        scale = scales[scale]
    if seeds is None:
        return scale
    if seeds < 2:
        raise ValueError(f"seeds must be at least 2, to compare models, not {seeds}")
    return scale.with_seeds(seeds)
