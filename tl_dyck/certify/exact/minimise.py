"""The least value of some objectives over a space: the driver behind `exact`."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.automaton import StringAutomaton
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.exact.attention import AttentionWeights
from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.linear import is_linear, linear_minimum
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.search import Search
from tl_dyck.certify.exact.work import worth_running
from tl_dyck.certify.lattice import Lattice
from tl_dyck.certify.objectives import Objectives

# strings run at once: enough that numpy's calls cost little, few enough to look at the clock
_BATCH = 4096


@final
@dataclass(frozen=True)
class Minimum:
    """Bounds on the least value of some objectives, with the string that comes nearest.

    Attributes:
        lower: proved: it is at least this.
        upper: seen: it is at most this.
        string: where it was seen.
        in_time: whether the search ended before its time limit.
        stats: counts.
    """

    lower: float
    upper: float
    string: tuple[int, ...]
    in_time: bool
    stats: Mapping[str, int]


# what overflows is found by looking at the results (`LinearBound.finite`, `Region.sound`), not by
# warnings
@np.errstate(over="ignore", invalid="ignore", divide="ignore")
def minimise(
    network: Network,
    lattice: Lattice,
    objectives: Objectives,
    *,
    decide: bool,
    time_limit: float | None = None,
    tolerance: float = 1e-9,
    max_listed: int = 2048,
    always_listed: int | None = None,
) -> Minimum:
    """Find, and prove, the least value of any objective on any string of a lattice.

    Args:
        network: the network.
        lattice: the strings.
        objectives: what to minimise.
        decide: stop once the sign of the minimum is proved. (With one head and a linear readout the
            minimum comes with the sign, and `decide` makes no difference.)
        time_limit: seconds.
        tolerance: how far apart, relative to max(1, |minimum|), the proved and the seen minimum may
            stay.
        max_listed: a part of the space with at most this many candidates is listed instead of being
            split.
        always_listed: a part with at most this many strings is run without being bounded first;
            None for as many as it takes less work to run, all of them included.
    """
    deadline = Deadline.after(time_limit)
    if always_listed is None and worth_running(network, lattice, len(objectives.offsets)):
        strings = StringAutomaton(lattice).strings(deadline)
        return run_all(network, lattice.tokens, strings, objectives)
    try:
        graph = build_graph(network, lattice, deadline)
    except OutOfTime:
        # nothing was run, so that nothing is known at all
        return Minimum(-math.inf, math.inf, lattice.tokens, False, {})
    attention = AttentionWeights(network, graph, deadline)
    incumbent = Incumbent(network, graph, objectives)
    output = incumbent.run_string(lattice.tokens)
    stats = {"nodes": graph.n_nodes, "emissions": len(graph.option)}
    if (
        incumbent.string is None
    ):  # numbers overflow: nothing is known of this string, and so nothing of the least
        return Minimum(-math.inf, math.inf, lattice.tokens, True, stats)
    search = Search(
        attention,
        incumbent,
        decide=decide,
        tolerance=tolerance,
        most_listed=max_listed,
        always_listed=always_listed,
    )
    lower = lower_bound(search, output)
    # a minimum that is known was found in time, whatever the clock says now
    in_time = not deadline.passed or lower >= incumbent.upper
    stats |= {**search.stats, "strings_run": incumbent.strings_run}
    return Minimum(lower, incumbent.upper, incumbent.string, in_time, stats)


def run_all(
    network: Network,
    original: tuple[int, ...],
    strings: Iterator[tuple[int, ...]],
    objectives: Objectives,
) -> Minimum:
    """Run every string, some thousands at a time.

    Args:
        network: the network.
        original: what is named where no string was run in time.
        strings: each once, at least one; `OutOfTime` where there is no time for more.
        objectives: what to minimise.
    """
    lower, upper, worst, done, in_time = math.inf, math.inf, original, 0, True
    try:
        while batch := list(itertools.islice(strings, _BATCH)):
            least = network.least_of(batch, objectives)
            lower, best = min(lower, float(least.lower.min())), int(least.upper.argmin())
            if least.upper[best] < upper:
                upper, worst = float(least.upper[best]), batch[best]
            done += len(batch)
    except OutOfTime:
        # the strings not run may be anything
        lower, in_time = -math.inf, False
    return Minimum(lower, upper, worst, in_time, {"strings_run": done})


def lower_bound(search: Search, output: Array) -> float:
    """A proved lower bound of the objectives on all strings of a graph; the least seen is noted.

    Args:
        search: what is to be minimised, with at least one string run, and when to stop; it is run
            if there is no quicker way.
        output: [H, d_head] the attention's output on some string.
    """
    lower = None
    if is_linear(search.network):
        with contextlib.suppress(OutOfTime):
            lower = linear_minimum(search.attention, search.incumbent, output)
    if lower is not None:
        return lower
    search.run()
    return search.lower
