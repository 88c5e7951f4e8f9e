"""The oracle: run the network on every distinct string of the space."""

from __future__ import annotations

import itertools
import math
import time

import numpy as np

from tl_dyck.certify import Certificate, PerturbationSpace, conclude
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN

_BATCH = 4096


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
    network = Network(rnn)
    wanted = Objectives.wanted(objectives, target, rnn.config.d_vocab_out)
    deadline = Deadline.after(time_limit)
    lower, upper, worst, done, reason = math.inf, math.inf, tokens, 0, ""
    try:
        strings = space.enumerate(tokens, limit=max_strings, deadline=deadline)
        while batch := list(itertools.islice(strings, _BATCH)):
            least = network.least_of(batch, wanted)
            lower, best = min(lower, float(least.lower.min())), int(np.argmin(least.upper))
            if least.upper[best] < upper:
                upper, worst = float(least.upper[best]), batch[best]
            done += len(batch)
    except OutOfTime:
        lower, reason = (
            -math.inf,
            f"the time limit of {time_limit} s was reached after {done:,} strings",
        )
    return conclude(
        rnn,
        tokens,
        target,
        space,
        certifier="exhaustive",
        objectives=objectives,
        lower=lower,
        string=worst,
        started=started,
        reason=reason,
        stats={"strings_run": done},
    )
