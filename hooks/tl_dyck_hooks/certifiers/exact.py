"""The exact certifier as a plug: it asks `tl_dyck.certify.exact` and makes a certificate of that.

It promises that `lower` is proved and `upper` is seen, whenever it stops, and that without a time
limit the verdict is that of running every string, unless the least margin is within rounding of 0:
then it is "open". How, why, and what it costs: the docstring of `tl_dyck.certify.exact`.
"""

from __future__ import annotations

import time

from tl_dyck.certify import Certificate, PerturbationSpace, conclude
from tl_dyck.certify.exact.minimise import minimise
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN


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
    always_listed: int | None = None,
) -> Certificate:
    """Decide exactly, by shortest paths and branch and bound; see `tl_dyck.certify.exact`.

    A `tl_dyck.certify.Certifier`. If `tight`, the proved and the seen margin stay at most
    `tolerance` apart, relative to max(1, |margin|). Parts with fewer candidates than `max_listed`
    are listed and run instead of being split; parts with at most `always_listed` strings are run
    without being bounded first (None: as many as it takes less work to run).

    Returns:
        A certificate whose `lower` is proved and whose `upper` was seen; `stats` counts nodes,
        emissions, parts, and strings run.

    Raises:
        SpaceTooLargeError: the budgets are so large that the graph of the space cannot be laid out.
    """
    started = time.perf_counter()
    found = minimise(
        Network.of(rnn),
        space.lattice(tokens),
        Objectives.wanted(objectives, target, rnn.config.d_vocab_out),
        decide=not tight,
        time_limit=time_limit,
        tolerance=tolerance,
        max_listed=max_listed,
        always_listed=always_listed,
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
        upper=found.upper,
    )
