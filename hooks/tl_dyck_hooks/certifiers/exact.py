"""The exact certifier."""

from __future__ import annotations

import time

from tl_dyck.certify import Certificate, PerturbationSpace, conclude
from tl_dyck.certify.network import Network, Objectives
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck_hooks.certifiers._minimise import minimise

__all__ = ["exact"]


def exact(
    rnn: TwoLayerRNN,
    tokens: tuple[int, ...],
    target: int,
    space: PerturbationSpace,
    *,
    time_limit: float | None = None,
    objectives: Objectives | None = None,
    tight: bool = False,
    tolerance: float = 1e-9,
    max_listed: int = 2048,
) -> Certificate:
    """Decide exactly, by shortest paths and branch and bound."""
    started = time.perf_counter()
    found = minimise(
        Network(rnn),
        space.lattice(tokens),
        Objectives.margins(target, rnn.config.d_vocab_out) if objectives is None else objectives,
        decide=not tight,
        time_limit=time_limit,
        tolerance=tolerance,
        max_listed=max_listed,
    )
    return conclude(
        rnn,
        tokens,
        target,
        space,
        certifier="exact",
        objectives=objectives,
        lower=found.lower,
        string=found.string,
        started=started,
        reason="" if found.in_time else f"the time limit of {time_limit} s was reached",
        stats=found.stats,
    )
