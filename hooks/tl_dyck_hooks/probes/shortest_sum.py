"""The denominator of the balance violation, exactly, where there are too many open prefixes to try.

Eq. 16 and 17 of Wen et al. 2023 minimise ‖base + Σ_m x_m‖ over one vector x_m from each of d levels
(what an opening bracket at depth m contributes) with k choices a level (its type), d ≤ D − 1: k^d
sums. Greedy choices, depth by depth, do not find the minimum, since vectors cancel each other. Few
sums are all tried. Otherwise: branch and bound over the levels that vary most (the head), then near
neighbours among the sums of the others (the tail, up to 4096 sums).

*Head.* The squared norm is a sum of terms of one and of two levels,

    ‖base + Σ_m x_m‖² = constant + Σ_m single_m(t_m) + Σ_{m<n} pair_mn(t_m, t_n),

so taking the least of every term by itself bounds it from below. Before the search, what is certain
to be paid is moved from pairs to single levels and spread evenly (min-sum diffusion, a
reparametrisation that changes no sum; see Cooper et al. 2010, "Soft arc consistency revisited"),
which tightens the bound. That leaves little to try where vectors point in many directions, but
nearly everything where they span few dimensions or types are almost interchangeable.

*Tail.* There, sums lie in few dimensions and close together. Vectors are projected onto the axes
that matter, which lengthens none: principal axes along which sums differ, and one for everything
that no choice can turn round. Sums of the tail are put into groups of about eight near ones, and
one matrix product in single precision tells for which nodes of the head and which groups there may
be a sum that is short enough. These sums are computed in double precision, projected first, whole
if need be, and from the vectors themselves if they are to be remembered.

*Exact.* What is passed over is so because of a lower bound, with rounding on the safe side: that of
bounds is limited by the largest partial sum, that of single precision by the lengths multiplied.
Only ties are given up, where a sum is not shorter by more than one part in 10⁹; and once two last
choices have sums that are zero as far as double precision can tell, 3 (d + 1) · 2.2·10⁻¹⁶ times the
lengths that were added, nothing shorter is looked for. Numbers are scaled by a power of two first,
so that no square is too large or too small.

*Cost.* With 8⁹ sums, 20 to 80 milliseconds, of which half are spent on the 8⁵ nodes of the head if
none can be passed over; that grows as k^(d − 4). The worst case are near ties in many dimensions:
all k^d sums are then computed in single precision, a nanosecond or two each. Nodes are expanded
1024 at a time, depth first, and a table has 2²¹ entries at most, so memory is bounded: about ten
megabytes, for any number of sums.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
from jaxtyping import Float, Int

from tl_dyck.registry import unknown_name
from tl_dyck_hooks.probes.sums import Groups, Nodes, add_up, all_sums, least_of, row_norms, try_all

__all__ = ["second_smallest_norm"]

_FEW = 4096  # sums that are all tried
_FLAT = 12  # coordinates up to which it pays to group sums of the tail
_TAIL = 4096  # sums of the last levels, at most
_BLOCK = 512  # likewise, in more coordinates
_STRETCH = 1e3  # of the last coordinate, at most
_MEMBERS = 8  # of a group of such sums, on average
_MANY = 2048  # nodes for which it pays to group
_CROWDED = 1 / 16  # share of all sums from which on groups do not pay
_GUESS = 64  # nodes a level that are looked at first, for a good guess
_CHUNK = 1024  # nodes that are expanded at once
_ENTRIES = 2**19  # of a table, which bounds the memory
_DIFFUSION = 8  # rounds; more do not tighten the bound noticeably
_FAINT = 1e-6  # relative to the axis along which sums differ most; single precision sees no less
_NO_MATTER = (
    1e-9  # relative to the squared norm that is sought: differences below it may be rounding
)


def second_smallest_norm(
    base: Float[np.ndarray, " dim"],
    choices: Float[np.ndarray, "level choice dim"],
    *,
    method: str = "auto",
) -> float:
    """P of Eq. 17: the least ‖base + Σ_m choices[m, t_m]‖ over t with another end than the best t.

    Equally: of the least norms for each choice at the last level, the second smallest.

    Args:
        base: what is in every sum.
        choices: one of which is added per level; at least two choices.
        method: "all" or "branch" to have it found in that way; "auto" for all if they are few.

    Returns:
        The norm of that sum, computed from the vectors themselves. It is the true one up to
        rounding: a sum is passed over only if it is larger than the result by bounds of rounding,
        or smaller by less than one part in 10⁹, or if the result is zero as far as double precision
        can tell.

    Raises:
        ValueError: fewer than two choices, no level, numbers that are not finite, or an unknown
            method.
    """
    levels, k, _ = choices.shape
    if levels < 1 or k < 2:
        raise ValueError(
            f"a second smallest norm needs a level and two choices, not {levels} and {k}"
        )
    if not (np.isfinite(base).all() and np.isfinite(choices).all()):
        raise ValueError("there are numbers that are not finite among the vectors to add up")
    if method not in ("auto", "all", "branch"):
        raise unknown_name("method", method, ("auto", "all", "branch"))
    exponent = int(np.frexp(max(np.abs(base).max(initial=0), np.abs(choices).max(initial=0)))[1])
    base, choices = np.ldexp(base, -exponent), np.ldexp(choices, -exponent)
    every = levels == 1 or method == "all" or (method == "auto" and k**levels <= _FEW)
    found = try_all(base, choices) if every else _Search(base, choices).run()
    return float(np.ldexp(np.partition(found, 1)[1], exponent))


# --- branch and bound -----------------------------------------------------------------------------


@dataclass
class _Search:
    """Branch and bound; the level at which the result asks for two choices is decided last.

    Attributes:
        base: as in `second_smallest_norm`.
        choices: likewise.
        least: the least norm found so far for each choice at the last level.
    """

    base: Float[np.ndarray, " dim"]
    choices: Float[np.ndarray, "level choice dim"]
    least: Float[np.ndarray, " choice"] = field(init=False)

    def __post_init__(self) -> None:
        levels, k, dim = self.choices.shape
        mean = self.choices.mean(1, keepdims=True)
        varies = ((self.choices - mean) ** 2).sum((1, 2))
        self.choices = self.choices[np.append(np.argsort(-varies[:-1], kind="stable"), levels - 1)]
        # each level's mean is moved to the base: smaller terms, tighter bounds
        rest = self.choices - self.choices.mean(1, keepdims=True)
        base = self.base + self.choices.mean(1).sum(0)
        # of the vectors as they came, since means may cancel; less their means they are at most
        # three times as long
        size = float(
            np.linalg.norm(self.base) + 3 * np.linalg.norm(self.choices, axis=-1).max(1).sum()
        )
        unseen = self._choose_axes(base, rest)
        most = _TAIL if self.lead.shape[-1] <= _FLAT else _BLOCK
        self.tail = 1
        while self.tail < levels - 1 and k ** (self.tail + 1) <= most:
            self.tail += 1
        self.head = levels - self.tail
        self.ends = all_sums(np.zeros_like(self.lead_start), self.lead[self.head :])
        largest = self._diffuse(base, rest)
        eps = float(np.finfo(np.float64).eps)
        terms = int(4 * dim + levels * (levels + 2 * _DIFFUSION))
        #: no computed norm is farther from the true one
        self.blur = terms * eps * size + unseen
        #: no bound is: no partial sum of terms is larger than this, each is a rounding error away,
        #: and so is a term
        self.rounding = terms * eps * (size * size + largest)
        #: a sum that is shorter than this is zero, as far as double precision can tell
        self.nothing = float((levels + 1) * eps * size)
        self.least = np.full(k, np.inf)

    def _choose_axes(
        self, base: Float[np.ndarray, " dim"], rest: Float[np.ndarray, "level choice dim"]
    ) -> float:
        """Coordinates: `place` on all axes in which sums differ; `lead`, fewer, lengthens no sum.

        The last coordinate of `lead` is never negative: it stands for all axes along which no
        choice can turn the base round, and for what is the same in all sums. The others are the
        axes that are left, but for those along which sums differ by less than single precision
        sees. Returns what the coordinates leave out of a sum, which is rounding.
        """
        flat = rest.reshape(-1, rest.shape[-1])
        _, strength, axes = np.linalg.svd(flat, full_matrices=False)
        seen = strength > max(flat.shape) * np.finfo(np.float64).eps * strength[0]
        strength, axes = strength[seen], axes[seen]
        self.place, self.start = rest @ axes.T, axes @ base
        self.outside = float(np.linalg.norm(base - self.start @ axes))
        steady = np.abs(self.start) >= np.abs(self.place).max(1).sum(0)
        towards = np.where(steady, self.start, 0.0)
        length = float(np.hypot(np.linalg.norm(towards), self.outside)) or 1.0
        free = np.eye(len(axes))[:, ~steady & (strength > _FAINT * strength.max(initial=0))]
        turn = np.column_stack([free, towards / length])
        self.lead, self.lead_start = self.place @ turn, self.start @ turn
        self.lead_start[-1] += self.outside**2 / length
        return float(np.linalg.norm(rest - self.place @ axes, axis=-1).max(1).sum())

    def _diffuse(
        self, base: Float[np.ndarray, " dim"], rest: Float[np.ndarray, "level choice dim"]
    ) -> float:
        """Terms of one and of two levels, spread; returns a bound of all partial sums of terms."""
        levels, k, dim = rest.shape
        flat = rest.reshape(levels * k, dim)
        pair = 2 * (flat @ flat.T).reshape(levels, k, levels, k).transpose(0, 2, 1, 3).copy()
        pair[np.arange(levels), np.arange(levels)] = 0
        single = 2 * rest @ base + (rest**2).sum(-1)
        self.constant = float(base @ base)
        for _ in range(_DIFFUSION):
            for m in range(levels):
                certain = pair[m].min(2)  # other level, choice at m
                certain[m] = 0
                share = (single[m] + certain.sum(0)) / levels
                moved = share - certain
                moved[m] = 0
                pair[m] += moved[:, :, None]
                pair[:, m] += moved[:, None, :]
                single[m] = share
        self.single, self.pair = single, pair
        #: the least that a choice costs together with the levels after it
        self.alone = np.stack([single[m] + pair[m, m + 1 :].min(2).sum(0) for m in range(levels)])
        return self.constant + float(np.abs(single).max(1).sum() + np.abs(pair).max((2, 3)).sum())

    @cached_property
    def fine(self) -> Groups:
        """Every sum of the tail by itself."""
        n = len(self.ends)
        return Groups(self.ends, np.zeros(n), np.arange(n + 1), np.arange(n))

    @cached_property
    def coarse(self) -> Groups:
        """Groups of near sums; the next centre is the sum farthest from all so far (Gonzalez 1985).

        The last coordinate is stretched: it is the one that lengthens a sum directly.
        """
        across = math.sqrt(max(self.best**2 - float(self.lead_start[-1]) ** 2, 0.0))
        ends = self.ends.copy()
        ends[:, -1] *= min(self.best / across, _STRETCH) if across > 0 else 1
        square = (ends**2).sum(1)
        away = np.full(len(ends), np.inf)
        group = np.zeros(len(ends), int)
        centres: list[int] = []
        for number in range(-(-len(ends) // _MEMBERS)):
            centres.append(int(away.argmax()))
            distance = square + (square[centres[-1]] - 2 * (ends @ ends[centres[-1]]))
            nearer = distance < away
            away[nearer] = distance[nearer]
            group[nearer] = number
        near = self.ends[centres]
        np.minimum.at(near[:, -1], group, self.ends[:, -1])
        radius = np.zeros(len(centres))
        np.maximum.at(radius, group, np.linalg.norm((self.ends - near[group])[:, :-1], axis=1))
        first = np.append(0, np.cumsum(np.bincount(group, minlength=len(centres))))
        return Groups(near, radius, first, np.argsort(group, kind="stable"))

    @property
    def best(self) -> float:
        """The second smallest norm so far."""
        return float(np.partition(self.least, 1)[1])

    def run(self) -> Float[np.ndarray, " choice"]:
        """The least norm for each choice at the last level, exact up to the second smallest."""
        levels, k, _ = self.choices.shape
        root = Nodes(
            np.zeros((1, 0), int), np.zeros(1), np.zeros((1, levels, k)), np.array([-np.inf])
        )
        nodes = root
        for _ in range(self.head):
            nodes = self._children(nodes, np.inf)[:_GUESS]
        self._guess(nodes)
        stack = [root]
        while stack:
            nodes = stack.pop()
            nodes = nodes[: int(np.searchsorted(nodes.bound, self._limit()))]
            if len(nodes) and nodes.types.shape[1] == self.head:
                self._finish(nodes)
                continue
            if len(nodes) > _CHUNK:
                stack.append(nodes[_CHUNK:])
                nodes = nodes[:_CHUNK]
            if len(nodes):
                stack.append(self._children(nodes, self._limit()))
        return self.least

    def _limit(self) -> float:
        """Nodes whose bounds are from here on are of no interest.

        Ties are usual, by symmetry of the types, so what cannot be told from a tie is given up.
        Only where the result is so small beside the vectors that squared norms cannot tell it from
        zero is everything kept that might matter.
        """
        square = self.best * self.best
        if self.best <= self.nothing:
            return -math.inf
        return square + (-1 if self.rounding <= _NO_MATTER * square else 1) * self.rounding

    def _longest(self) -> float:
        """Likewise for norms that are computed from coordinates."""
        if self.best <= self.nothing:
            return -math.inf
        return self.best + (-1 if self.blur <= _NO_MATTER / 2 * self.best else 1) * self.blur

    def _children(self, nodes: Nodes, limit: float) -> Nodes:
        """Decide one more level, and keep what is below the limit, sorted by bound."""
        s = nodes.types.shape[1]
        cost = nodes.cost[:, None] + nodes.fields[:, 0] + self.single[s]
        fields = nodes.fields[:, None, 1:] + self.pair[s, s + 1 :].transpose(1, 0, 2)
        bound = self.constant + cost + least_of(fields + self.alone[s + 1 :]).sum(-1)
        node, chosen = np.nonzero(bound < limit)
        order = np.argsort(bound[node, chosen], kind="stable")
        node, chosen = node[order], chosen[order]
        types = np.concatenate([nodes.types[node], chosen[:, None]], axis=1)
        return Nodes(types, cost[node, chosen], fields[node, chosen], bound[node, chosen])

    def _guess(self, nodes: Nodes) -> None:
        """Remember what looks like the best sum of these nodes per choice at the last level."""
        places = self._places(nodes)
        square = (places**2).sum(1)[:, None] + 2 * (places @ self.ends.T) + (self.ends**2).sum(1)
        k = len(self.least)
        best = square.reshape(-1, k).argmin(0) * k + np.arange(k)
        node, end = np.divmod(best, len(self.ends))
        self._remember(self._types(nodes, node, end))

    def _finish(self, nodes: Nodes) -> None:
        """Look at all choices at the remaining levels, and remember the least norms."""
        places = self._places(nodes)
        todo = [(slice(0, len(nodes)), len(nodes) >= _MANY)]
        while todo:
            rows, grouped = todo.pop()
            groups = self.coarse if grouped else self.fine
            most = max(1, _ENTRIES // len(groups.radius))
            if rows.stop - rows.start > most:
                todo.append((slice(rows.start + most, rows.stop), grouped))
                rows = slice(rows.start, rows.start + most)
            node, group = self._near(places[rows], groups)
            if grouped and groups.size(group).sum() > _CROWDED * (rows.stop - rows.start) * len(
                self.ends
            ):
                todo.append((rows, False))
                continue
            node, end = groups.members(node + rows.start, group)
            step = max(1, 4 * _ENTRIES // len(self.base))
            for at in range(0, len(node), step):
                self._try(nodes, places, node[at : at + step], end[at : at + step])

    def _places(self, nodes: Nodes) -> Float[np.ndarray, "node axis"]:
        """Add up the choices made so far, base included, in the coordinates of `lead`."""
        return add_up(self.lead_start, self.lead, nodes.types)

    def _near(
        self, places: Float[np.ndarray, "node axis"], groups: Groups
    ) -> tuple[Int[np.ndarray, " pair"], Int[np.ndarray, " pair"]]:
        """Pairs of a node and a group in which there may be a sum that is not too long.

        Let a sum be (v, a), with a ≥ 0 its last coordinate, and let (w, b) be the node plus `near`
        of its group, so that ‖v − w‖ ≤ r and 0 ≤ b ≤ a. If ‖(v, a)‖ < L, then ‖v‖² < L² − a₀² =:
        s², a₀ being the least last coordinate that there is, and ‖(w, b)‖² ≤ (‖v‖ + r)² + a² <
        L² + 2 s r + r².
        """
        longest = max(self._longest(), 0.0)
        least = max(float(places[:, -1].min() + groups.near[:, -1].min()), 0.0)
        across = math.sqrt(max(longest**2 - least**2, 0.0))
        square, other = (places**2).sum(1), (groups.near**2).sum(1)
        reach = longest**2 + 2 * across * groups.radius + groups.radius**2
        row = np.column_stack([places, square, np.ones(len(places))])
        column = np.vstack([2 * groups.near.T, np.ones(len(other)), other - reach])
        rough = row.astype(np.float32) @ column.astype(np.float32)
        largest = (np.sqrt(square.max()) + np.sqrt(other.max())) ** 2 + reach.max()
        single = np.finfo(np.float32)
        error = (len(column) + 4) * (float(single.eps) * largest + float(single.tiny))
        node, group = np.divmod(np.flatnonzero(rough <= error), len(other))
        return node, group

    def _try(
        self,
        nodes: Nodes,
        places: Float[np.ndarray, "node axis"],
        node: Int[np.ndarray, " pair"],
        end: Int[np.ndarray, " pair"],
    ) -> None:
        """Compute these sums, each of a node and a tail's sum, and remember the least norms."""
        longest = self._longest()
        total = places.take(node, axis=0)
        total += self.ends.take(end, axis=0)
        below = np.flatnonzero(row_norms(total) < longest)
        if not len(below):
            return
        types = self._types(nodes, node[below], end[below])
        total = add_up(self.start, self.place, types)
        norm = np.hypot(row_norms(total), self.outside)
        below = np.flatnonzero(norm < longest)
        types, norm = types[below], norm[below]
        least = np.full(len(self.least), np.inf)
        np.minimum.at(least, types[:, -1], norm)
        self._remember(types[norm <= least[types[:, -1]] + 2 * self.blur])

    def _types(
        self, nodes: Nodes, node: Int[np.ndarray, " pair"], end: Int[np.ndarray, " pair"]
    ) -> Int[np.ndarray, "pair level"]:
        """The choices that make up these sums."""
        tail = np.stack(np.unravel_index(end, (len(self.least),) * self.tail), axis=1)
        return np.concatenate([nodes.types[node], tail], axis=1)

    def _remember(self, types: Int[np.ndarray, "pair level"]) -> None:
        """Norms of these sums, from the vectors themselves."""
        norm = np.linalg.norm(add_up(self.base, self.choices, types), axis=-1)
        np.minimum.at(self.least, types[:, -1], norm)
