"""One head and a linear readout: the exact minimum by Dinkelbach's method, in few shortest paths.

Every objective k on the strings of group g is a ratio: D · N/Z + c. For a number t, F(t) = min over
strings of Σ E (D · v + c - t) = min Z · (objective - t) is one shortest path; it is concave and
decreasing in t, and its root is the minimum. Newton's method from above (t = the value of a known
string) converges to the least root of all columns monotonically and superlinearly; a column whose
F(t) is not negative cannot improve on t and is dropped. F'(t) is -Z of the minimising string; it is
read off as the difference to F at a slightly smaller t, which costs another column instead of a
second pass. The last string is then run, and the bound proved by one more pass just below its
value.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np
from einops import rearrange

from tl_dyck.certify.exact.attention import AttentionWeights, Items
from tl_dyck.certify.exact.balls import Array, IntArray
from tl_dyck.certify.exact.columns import Columns
from tl_dyck.certify.exact.incumbent import Incumbent
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import count_paths
from tl_dyck.certify.exact.readout import LinearBound, Readout
from tl_dyck.certify.exact.region import Region
from tl_dyck.certify.exact.unembedding import MANY

_STEPS = 60  # far more than Newton takes; numbers that rounding keeps from settling end, too


def is_linear(network: Network) -> bool:
    """Whether objectives are linear in the output of a single head."""
    config = network.config
    norms = (config.ln_c, config.ln_mid, config.ln_final)
    # ln1 and ln2 do not matter: one is in what symbols are, the other before an MLP
    return config.n_heads == 1 and config.act_fn is None and norms == (None, None, None)


def linear_minimum(
    attention: AttentionWeights, incumbent: Incumbent, original: Array
) -> float | None:
    """A proved lower bound of the objectives; a string that attains it becomes the incumbent.

    Args:
        attention: weights and strings.
        incumbent: the strings run so far, at least one.
        original: [H, d_head] the attention's output on some string; nothing depends on which.

    Returns:
        The bound, or None if denominators underflow or numbers overflow, so that ratios say
        nothing.
    """
    network, graph = attention.network, attention.graph
    region = _region(attention, original, len(incumbent.unembedding))
    # a denominator may be 0: then no ratio follows from the sign of Z (ratio - t)
    if not region.sound.all():
        return None
    items = region.items
    r = graph.symbols.r.at(graph.groups[items.groups])
    readout, asked = Readout(network, region, r), incumbent.unembedding
    if len(asked) > MANY:  # what is nowhere below the least seen cannot improve on it
        # [item, objective]: what is bounded above the least seen on every item is left out
        below = readout.screen(asked) <= incumbent.upper
        asked = asked.take(np.flatnonzero(below.any(0)))
    bound = LinearBound.joined([readout.lower(piece, 0.0) for piece in asked.pieces()])
    # the readout overflowed, so costs would be infinite or NaN
    if not bound.finite.all():
        return None
    n, k = bound.constant.shape
    # the 1 is the only head
    directions = rearrange(bound.directions, "item k 1 e -> (item k) 1 e")
    constant = rearrange(bound.constant, "item k -> (item k) 1")
    # one column per item and objective: Z (D · o + c - t) = Σ E (D · v + c - t), so τ = c - t
    columns = Columns(region, np.repeat(np.arange(n), k), directions, constant)
    scale = (
        float((abs(directions[:, 0]) @ region.view.largest[0] + abs(constant[:, 0])).max()) + 1e-300
    )
    gap = 2 * incumbent.rounding + 1e-13 * scale
    # below this two values are one: what running a string is off by, and what sums of costs are
    lower, path = _descend(columns, incumbent.upper, scale, gap)
    if path is not None:
        incumbent.run(path)
    gap = 2 * incumbent.rounding + 1e-13 * scale
    # one gap is stepped down each time, and one more is rounding: nothing lies between
    # sound whatever the gap is: `lower` is proved by the columns, which are
    # lowered by their rounding
    if incumbent.upper - lower <= 2 * gap:
        return lower
    for _ in range(_STEPS):
        t = incumbent.upper - gap
        # a proof if there are none: no ratio is below t
        negative = _negative(columns, t)
        if not len(negative):
            return t
        seen = incumbent.upper
        # the most promising; one of them lowers t, and the others are asked again at the lower one
        incumbent.run(columns.take(negative[:64]).lowered(t).paths())
        if incumbent.upper > seen - gap:  # what is left is rounding: step over it
            # by factors, so that few steps suffice however much the rounding is
            gap *= 4
    return None


def _negative(columns: Columns, t: float) -> IntArray:
    """The columns whose ratio is below t on some string, most promising first."""
    values = columns.lowered(t).least()
    found = np.flatnonzero(values < 0)
    return found[np.argsort(values[found])]


# Each string is a line Z (ratio - t). F is the lowest of them, so it is concave and falls:
#
#        F |`-.
#          |   `-.              t begins at or right of m: at the ratio of a string that was run.
#        0 +------m------t---   The line that is lowest at t is 0 at its own string's ratio, which
#          |       `.    :      lies in [m, t]: the next t. Left of m no line is below 0, so that
#          |         `.  :      F(t) >= 0 proves m >= t.
#          |           `.:
#
# The slope is taken from F(t) and F(t - delta). By concavity that is at most too flat, so a step
# may end left of m; there F >= 0 is as good a proof, and the caller's loop closes what is between.


def _descend(columns: Columns, t: float, scale: float, gap: float) -> tuple[float, IntArray | None]:
    """Newton's method from a number that some ratio attains, each time from a little below.

    Returns:
        What no ratio is below (-inf if it was not seen); the string whose ratio was seen to be
        least, [1, steps], if any was below where it began.
    """
    # large against rounding (1e-13 of the scale); how small decides nothing but the steps
    delta = 1e-4 * scale
    active = np.arange(len(columns.item))
    sure, lower = True, -np.inf
    worst: Callable[[], IntArray] | None = None
    for _ in range(_STEPS):
        t -= gap
        # F(t) and F(t - δ) in one go; their difference quotient is F'(t) = -Z of the minimising
        # string
        twice = columns.take(np.concatenate([active, active]))
        twice = twice.lowered(np.repeat([t, t - delta], len(active))[:, None])
        both, paths = twice.least_and_paths()
        # the first half is F(t), the second F(t - δ), which is larger: so slopes are negative
        value, slope = both[: len(active)], (both[: len(active)] - both[len(active) :]) / delta
        negative = (value < 0) & (slope < 0)
        # below 0 without a slope: rounding; it is dropped without a proof
        sure &= bool(((value >= 0) | negative).all())  # of those that are dropped
        if not negative.any():
            lower = t if sure else -np.inf
            break
        # the next t is the least root of the tangents: t - max F(t) / F'(t)
        found, step = np.flatnonzero(negative), value[negative] / slope[negative]
        active, worst = active[found], partial(paths, found[[step.argmax()]])
        # no progress that could be told from rounding
        if step.max() <= 1e-13 * scale:
            break
        t -= float(step.max())
    return lower, None if worst is None else worst()


def _region(attention: AttentionWeights, original: Array, n_objectives: int) -> Region:
    """All strings, group by group.

    Of few objectives the denominators need only be safely above 0, which is mostly seen at once.
    """
    graph = attention.graph
    groups = np.arange(len(graph.groups))
    low, high = denominators(attention)
    # weights may have underflowed, or better bounds are worth two sweeps more
    # `Region.sound` asks for as much of denominators
    if n_objectives > MANY or not (low > 1e-250).all():
        groups = groups[count_paths(graph, groups) > 0]
        centre = np.repeat(original[None], len(groups), axis=0)
        return Region.of_values(attention, Items(groups), centre)
    centre = np.repeat(original[None], len(groups), axis=0)
    base = np.zeros_like(centre)
    # unit 1: o itself, whose denominator is Σ E, so that the last two are the same
    return Region(attention, attention.values, Items(groups), base, 1.0, centre, low, high, high)


def denominators(attention: AttentionWeights) -> tuple[Array, Array]:
    """Numbers between which Σ E lies on every string of each group, [G, H] twice, without a path.

    It is at least the weight of the last symbol, which all of a group's strings have, and at most
    the number of symbols, for no weight is above 1; with a factor of 2 for rounding.
    """
    graph = attention.graph
    # every string of a group has its last symbol, whose weight is in the sum
    last = attention.weights[np.arange(len(graph.groups)), graph.groups] / 2
    # longest emission × levels: no string has more symbols
    return last, np.full_like(last, 2 * graph.emits.shape[1] * len(graph.level_nodes))
