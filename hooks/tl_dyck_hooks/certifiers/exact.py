"""The exact certifier: shortest paths, then branch and bound with linear bounds that are minimised exactly.

**Question.** Given a string x, a space S(x) of strings around it (x itself included), and functions g_1 … g_K of the
logits after the last token (for a verdict on target c: logit_c - logit_j for j ≠ c), find m = min over k and y in
S(x) of g_k(y), or only its sign. The network is the two-layer RNN that equals the transformer; its weights, float32
or float64, are real numbers here, and the arithmetic is exact but for rounding, which is bounded below.

**Additivity** (`tl_dyck.certify.graph`, `_attention`). Group the strings by their last *symbol* (token and state). In
a group the query is fixed, so symbol s has a fixed weight E_s > 0 per head, and head h returns o^h(y) = N^h / Z^h,
N^h = Σ_{s in y} E^h_s v^h_s, Z^h = Σ_{s in y} E^h_s. A string is a path in a graph whose nodes are (place in x,
budget spent, state), and sums over symbols add up along it. So min over y of Σ_h Σ_s E^h_s (D^h·v^h_s + τ^h) is *one
shortest path*, exact, and its argmin is a string; K objectives are K columns of one sweep.

**One head, linear readout** (`_linear`). There g_k = D_k·N/Z + c_k. As Z > 0, g_k(y) < t iff Σ E_s (D_k·v_s + c_k -
t) < 0: a shortest path tells whether m < t, for any t. Dinkelbach's iteration (t := value of the best path) ends at
m: sound and complete without search.

**Other readouts** (`_search`). A *part* is a group with a set of allowed emissions. For a part:

1. *Ranges* (`_region`). For a direction D and t = D·o(centre): D·o - t = Σ E (D·v - t) / Z lies between r_min/Z and
   r_max/Z, r_min and r_max shortest paths, Z in its exact range.
2. *Linear lower bound* (`_stages`, `_lines`, `_readout`). On these ranges every non-linear step is replaced by a
   linear function that is nowhere above it: an activation by a chord or tangent (for a ReLU, CROWN's), a norm by a
   tangent of the convex function that it multiplies (both sides of g ≥ t are multiplied by the positive σ, so no
   division is bounded). Composed: scale(y)·(g_k(y) - t) ≥ Σ_h D^h·o^h(y) + const, for all y of the part.
3. *Minimise it exactly* (`_columns`). One head: its sign is that of an additive functional, one path. H heads: a sum
   of ratios r^h/Z^h with Z^h in [low, high]; r/Z ≥ min(r/low, r/high), so the least of 2^H paths bounds it; tight
   where r^h = 0, which is where the reference string is put.
4. The argmin string is run through the network (`_incumbent`): it may be a counterexample; it tells how loose the
   bound is; and it is the reference of the next round.
5. If the bound is still below what is wanted, the strings on which the *linear bound* is below it are listed, if
   there are few (they are the only candidates), and run. Otherwise the part is *split* (`_branch`): some step of x is
   rewritten by one set of options in one half and by the rest in the other.

With one head and LN_C (Eq. 6 models) a projective view of o is used as well: where |P x| ≥ C only the direction of Σ
E P(W_O v + b_O) counts, to which a balanced pair adds nothing (Wen et al. 2023, Theorem 1).

**Soundness.** Let "closed" be the least bound or value of all parts that were given up as settled. *Invariant*: every
y in S(x) is in an open part, with g(y) ≥ that part's bound, or g(y) ≥ closed. Initially all groups are open, with
bound -∞. A part is closed only with a proved bound (1-3, each inequality holding for all y of the part) or by running
every string on which that bound does not suffice (5). A split covers: each path passes a step of x inside exactly one
option, so each y of the part is in one of the halves (`tl_dyck.certify.lattice`), and both inherit its bound. So at
any time, `lower` = min(closed, bounds of open parts) ≤ m ≤ `upper` = least value seen, also when time runs out in the
middle. "certified" is said only if lower > 0, "falsified" only if a string of the space was run and lost.

**Completeness.** A split leaves both halves with fewer live options, parts with a single path are run, and S(x)
is finite: the search ends for any tolerance. It ends early as bounds tighten: as a part shrinks to a string, the
ranges shrink to points, where 2 and 3 are equalities. So without a time limit the verdict is that of enumeration,
unless |m| is below rounding: then "unknown", and so are ties.

**Complexity.** n tokens, budgets b_i, s options per place (synonyms), at most c states per place (1 without positions
or depths; the number of lengths a prefix can take with positions, of depths with depths): B = Π (b_i + 1) codes; the
graph has O(n B c) nodes, O(n B c i) arcs for i kinds of edit, O(n s c) emissions. A column costs O(n c (s + B i))
additions: linear in the length, in the synonyms and in Π (b_i + 1), while the space grows like (n s)^Σb. A verdict of
the linear case takes 4-9 columns per logit and group. Else a part takes O((d_mlp + d_model + K 2^min(H, 4)) d_head)
arithmetic per symbol and as many columns; beyond four heads those whose Z varies least pay a penalty instead of a
pattern. The number of parts is exponential in the worst case (the problem is a sum-of-ratios programme) and 1 to 9 on
the sentences of `tests/benchmarks/bench_certify.py`. Memory: (nodes + bundles + emissions) × columns, columns being
cut into pieces so that the largest array has at most 4·10⁶ numbers (32 MB).

**Rounding** (`tl_dyck.certify.balls`). All of the above holds for numbers as they are computed: every quantity is a
ball (value, proved radius; Higham's γ_n, 4 ulp for exp, erf, tanh), every bound is moved outwards by what its own
evaluation can have lost, and costs of symbols are lowered so that a computed path cost ≥ 0 proves the exact one ≥ 0
(`Attention.columns`). Where scores are so far apart that weights underflow, strings without any weight left are not
bounded but split off and run (`Region.sound`, `Region.even`); elsewhere what underflows is some 10⁻⁵⁰ of that slack.
What a string's value can be off by is in `upper`.
"""

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
    always_listed: int = 64,
) -> Certificate:
    """Decide exactly, by shortest paths and branch and bound; see the module's docstring.

    Args:
        rnn: the network, in float64.
        tokens: the string, without BOS.
        target: the logit that must stay largest.
        space: the perturbation space.
        time_limit: seconds, after which the best bound so far is returned.
        objectives: what to minimise instead of the margin.
        tight: find the least margin, not only its sign.
        tolerance: how far apart, relative to max(1, |margin|), the proved and the seen margin may stay if `tight`.
        max_listed: parts with fewer candidates than this are listed and run instead of being split.
        always_listed: parts with at most this many strings are run without being bounded first.

    Returns:
        A certificate whose `lower` is proved and whose `upper` was seen; `stats` counts nodes, emissions, parts, and
        strings run.
    """
    started = time.perf_counter()
    found = minimise(
        Network(rnn),
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
    )
