"""The cases as a task of Inspect (inspect-ai): a folder each, a sandbox, answers as JSON.

Knows: Inspect. Needs the extra ``agents`` (Python 3.11 or later).
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import pandas as pd
from inspect_ai import Task, task
from inspect_ai.agent import react
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import Metric, SampleScore, Score, Scorer, Target, metric, scorer
from inspect_ai.solver import Generate, Solver, TaskState, solver
from inspect_ai.tool import bash, python
from inspect_ai.util import sandbox

from tl_dyck.judge import Suite, score_table
from tl_dyck.judge.cases import sealed_case
from tl_dyck.kit.environment import one_thread
from tl_dyck_hooks.agents.folder import MODELS, AgentCase
from tl_dyck_hooks.agents.scoring import score_answers
from tl_dyck_hooks.agents.scripted import answers_of

_SECONDS = 300  # that a call of a tool may take; every prefix of a case is run within one
_PROMPT = (
    "The working directory holds a small transformer: a folder of files, beginning with README.md. "
    "Read README.md, find out what it asks by running the model, and write answers.json there. "
    "Then submit."
)
_PARTS = ("prefix", "circuit")


@task
def circuits(
    cases: int = 4, trained: bool = True, salt: str | None = None, sandbox: str = "docker"
) -> Task:
    """Which heads matter, where the model is wrong, and the smallest circuit.

    Args:
        cases: of each kind of model.
        trained: whether there are trained models too; each takes some seconds to make.
        salt: of a private suite, see `tl_dyck.judge.Suite.with_salt`; None for one that is drawn.
        sandbox: where the agent's code runs: "docker", or "docker:compose.yaml" of an image with
            Python and torch; "local" runs it as you on this machine.

    Raises:
        WrongValueError: the salt is guessed too easily, or there are no cases.
    """
    drawn = secrets.token_hex(16) if salt is None else salt
    kinds = [kind for kind in MODELS if trained or kind != "trained"]
    suite = Suite(name="agents", sizes=dict.fromkeys(kinds, cases)).with_salt(drawn)
    where: Any = tuple(sandbox.split(":", 1)) if ":" in sandbox else sandbox
    return Task(
        dataset=MemoryDataset([*_samples(suite)], name=suite.name),
        solver=react(tools=[bash(timeout=_SECONDS), python(timeout=_SECONDS)]),
        scorer=computed(),
        sandbox=where,
        metadata={"salt": drawn, "suite": suite.name},
    )


@one_thread()
def _samples(suite: Suite) -> Iterator[Sample]:
    for number, (kind, seed) in enumerate(suite.cases()):
        files = {name: _url(data) for name, data in _case(kind, seed).files().items()}
        # metadata is in the log, and no agent's: a log can be scored again
        metadata = {"kind": kind, "seed": str(seed)}
        yield Sample(input=_PROMPT, id=number, files=files, metadata=metadata)


@lru_cache(maxsize=64)  # as many as `sealed_case` keeps: what is known of one is computed once
def _case(kind: str, seed: int) -> AgentCase:
    return AgentCase(sealed_case(kind, seed))


def _case_of(state: TaskState) -> AgentCase:
    return _case(state.metadata["kind"], int(state.metadata["seed"]))


def _url(data: bytes) -> str:
    """As Inspect takes bytes."""
    return "data:application/octet-stream;base64," + base64.b64encode(data).decode()


@solver
def script(name: str = "chance") -> Solver:
    """An agent that is a script: "oracle", or any registered method, see `scripted`."""

    async def solve(state: TaskState, generate: Generate) -> TaskState:
        await sandbox().write_file("answers.json", answers_of(name, _case_of(state)))
        return state

    return solve


@metric
def judged() -> Metric:
    """Means over cases, and AUROC by kind of question as the judge has it."""

    def compute(scores: list[SampleScore]) -> dict[str, float]:
        found = pd.DataFrame([each.score.metadata for each in scores])
        means = {
            name: float(found[name].astype(float).mean()) for name in ("brier", "stake", *_PARTS)
        }
        rows = pd.concat([pd.DataFrame(each) for each in found["rows"]], ignore_index=True)
        rows = rows[rows["told"]] if len(rows) else rows
        if rows.empty:
            return means
        table = score_table(rows.assign(method="agent")).loc["agent"]
        return means | {f"auroc, {name}": float(x) for name, x in table["auroc"].items()}

    return compute


@scorer(metrics=[judged()])
def computed() -> Scorer:
    """Holds `answers.json` of the sandbox against what was computed, see `score_answers`."""

    async def score(state: TaskState, target: Target) -> Score:
        try:
            data: bytes | None = await sandbox().read_file("answers.json", text=False)
        except (FileNotFoundError, OSError, ValueError):
            data = None
        found = score_answers(_case_of(state), data)
        return Score(
            value=found.brier,
            answer=None if data is None else str(data[:10_000], "utf-8", "replace"),
            explanation="; ".join(found.problems) or "every answer could be read",
            metadata={
                "rows": found.rows.to_dict("records"),
                "stake": found.stake,
                "brier": found.brier,
                **{name: getattr(found, name) for name in _PARTS},
            },
        )

    return score
