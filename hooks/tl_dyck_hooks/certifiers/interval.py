"""Intervals, as ARC propagates them through a recurrent network: the baseline that others publish.

ARC (Zhang et al., arXiv 2102.07818; for one-layer transformers read as RNNs, arXiv 2405.17361) runs
an RNN once per abstract state (input position, edits used) on boxes, and joins the boxes of all
edits that lead to the same state. Here the hidden state is layer 2's (Z, N): sums of exp(a) and
exp(a) v. An edge adds its tokens' terms, the join is the smallest box around all incoming ones, so
each bound of the final box is a shortest or longest path, coordinate by coordinate: the path that
minimises one coordinate need not be the one that minimises another, which is what is lost. Then
N / Z and the readout are computed in interval arithmetic, rounded outwards.

Soundness of the softmax: N and Z are positive-weighted sums over *all* tokens of the string, scaled
by the largest score that any string can have, so nothing overflows; and no epsilon is added to Z.
Where its lower end is 0 after underflow, N / Z is bounded by the values alone: it is a weighted
mean of them.
"""

from __future__ import annotations

import math
import time

import numpy as np

from tl_dyck.certify import Certificate, PerturbationSpace, conclude
from tl_dyck.certify.deadline import Deadline, OutOfTime
from tl_dyck.certify.exact.attention import AttentionWeights
from tl_dyck.certify.exact.balls import Array, Ball, activation
from tl_dyck.certify.exact.graph import StringGraph
from tl_dyck.certify.exact.layout import build_graph
from tl_dyck.certify.exact.network import Network
from tl_dyck.certify.exact.paths import count_paths, extremes
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import TwoLayerRNN


def interval(
    rnn: TwoLayerRNN,
    tokens: tuple[int, ...],
    target: int,
    space: PerturbationSpace,
    *,
    time_limit: float | None = None,
    objectives: Objectives | None = None,
    tight: bool = False,
) -> Certificate:
    """Bound the margin by intervals, a `tl_dyck.certify.Certifier`; sound and fast, not complete.

    It never says "refuted" but of the original string; `tight` has no effect.
    """
    started = time.perf_counter()
    network = Network.of(rnn)
    wanted = Objectives.wanted(objectives, target, rnn.config.d_vocab_out)
    deadline = Deadline.after(time_limit)
    lower, reason, stats = -math.inf, "intervals are too wide to tell", {}
    try:
        graph = build_graph(network, space.lattice(tokens), deadline)
        stats = {"nodes": graph.n_nodes}
        with np.errstate(over="ignore", invalid="ignore", divide="ignore"):
            lower = _bound(network, graph, wanted, deadline)
    except OutOfTime:
        reason = f"the time limit of {time_limit} s was reached"
    return conclude(
        rnn,
        tokens,
        target,
        space,
        certifier="interval",
        objectives=objectives,
        lower=lower,
        string=tokens,
        started=started,
        reason=reason,
        stats=stats,
    )


def _bound(network: Network, graph: StringGraph, wanted: Objectives, deadline: Deadline) -> float:
    """A lower bound of the objectives on all strings; -inf where something overflows."""
    attention = AttentionWeights(network, graph, deadline)
    weights, bias = network.unembedding(wanted).differences
    groups = np.arange(len(graph.groups))
    lower = [math.inf]
    for group in groups[count_paths(graph, groups) > 0].tolist():
        r = graph.symbols.r.at(graph.groups[group : group + 1])
        found = _margins(network, r, _attention_box(attention, group), weights, bias)
        lower.append(float(found.low.min()))
    return -math.inf if np.isnan(lower).any() else min(lower)


def _margins(network: Network, r: Ball, z: Ball, weights: Ball, bias: Ball) -> Ball:
    """The objectives on a box of attention outputs, [1, K].

    Linear maps in a row are composed before they meet it.
    """
    config = network.config
    norms = (config.ln_c, config.ln_mid, config.ln2, config.ln_final)
    if config.gated or norms != (None, None, None, None):
        return network.readout(r, z).matmul(weights).plus(bias)
    w_o, b_o = network.w_o.reshape(-1, config.d_model), network.weight("b_O")
    fixed = r.plus(b_o) if config.residual else Ball(b_o.mid[None], b_o.rad[None])
    margins = z.matmul(w_o.matmul(weights)).plus(fixed.matmul(weights)).plus(bias)
    if config.act_fn is None:
        return margins
    w_in, w_out = network.weight("W_in"), network.weight("W_out")
    pre = z.matmul(w_o.matmul(w_in)).plus(fixed.matmul(w_in)).plus(network.weight("b_in"))
    hidden = activation(pre, config.act_fn)
    return margins.plus(hidden.matmul(w_out.matmul(weights))).plus(
        network.weight("b_out").matmul(weights)
    )


def _attention_box(attention: AttentionWeights, group: int) -> Ball:
    """A box around N / Z for all strings of a group, [1, H * d_head]."""
    value, graph = attention.graph.symbols.value, attention.graph
    low: list[Array] = []
    high: list[Array] = []
    for head in range(value.mid.shape[1]):
        attention.deadline.check()
        weight = attention.weights[group, :, head, None]
        lost = float(attention.relative_error(np.array([group]), head)[0])
        middle, radius = value.mid[:, head], value.rad[:, head]
        v_low, v_high = middle - radius, middle + radius
        n_low, _ = extremes(graph, weight * (v_low - lost * abs(v_low)), group)
        _, n_high = extremes(graph, weight * (v_high + lost * abs(v_high)), group)
        (least,), (most,) = extremes(graph, weight, group)
        z_low, z_high = least * (1 - lost), most * (1 + lost)
        with np.errstate(divide="ignore", invalid="ignore"):
            ends = (
                np.where(n_low >= 0, n_low / z_high, n_low / z_low),
                np.where(n_high >= 0, n_high / z_low, n_high / z_high),
            )
        # a weighted mean of values lies between the least and the greatest of them
        low.append(np.fmax(ends[0] - 1e-15 * abs(ends[0]), v_low.min(0)))
        high.append(np.fmin(ends[1] + 1e-15 * abs(ends[1]), v_high.max(0)))
    return Ball.between(np.concatenate(low)[None], np.concatenate(high)[None])
