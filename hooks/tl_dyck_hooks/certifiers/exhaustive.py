"""The oracle: run the network on every distinct string of the space."""

from __future__ import annotations

import math
import time

from tl_dyck.certify import Certificate, PerturbationSpace, conclude
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.exact.minimise import Minimum, run_all
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN


def exhaustive(
    rnn: TwoLayerRNN,
    tokens: tuple[int, ...],
    target: int,
    space: PerturbationSpace,
    *,
    time_limit: float | None = None,
    objectives: Objectives | None = None,
    tight: bool = True,
    max_strings: int = 1_000_000,
) -> Certificate:
    """Run the network on every string, in batches, each distinct string once.

    A `tl_dyck.certify.Certifier`, whose time limit is for counting the strings too; the least
    margin is found whether or not `tight` asks for it.

    Returns:
        The exact least margin, up to the rounding of the forward pass, which is bounded string by
        string.

    Raises:
        SpaceTooLargeError: the space has more strings than `max_strings`.
    """
    started = time.perf_counter()
    wanted = Objectives.wanted(objectives, target, rnn.config.d_vocab_out)
    deadline = Deadline.after(time_limit)
    try:
        strings = space.enumerate(tokens, limit=max_strings, deadline=deadline)
        found = run_all(Network.of(rnn), tokens, strings, wanted)
    except OutOfTime:  # before there was a first string
        found = Minimum(-math.inf, math.inf, tokens, False, {"strings_run": 0})
    done = found.stats["strings_run"]
    reason = f"the time limit of {time_limit} s was reached after {done:,} strings"
    return conclude(
        rnn,
        tokens,
        target,
        space,
        certifier="exhaustive",
        objectives=objectives,
        lower=found.lower,
        string=found.string,
        started=started,
        reason="" if found.in_time else reason,
        stats=found.stats,
        upper=found.upper,
    )
