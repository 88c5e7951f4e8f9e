"""What is known of the attention's output on an item's strings: exact ranges, any direction."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from typing import final

import numpy as np
from einops import einsum, rearrange

from tl_dyck.certify.exact.attention import AttentionWeights, Items, View
from tl_dyck.certify.exact.balls import UNIT, Array, Ball, BoolArray, IntArray
from tl_dyck.certify.exact.narrow import Strings, narrowed
from tl_dyck.certify.exact.paths import extremes

_MOST_NUMBERS = 200_000
"""Costs of emissions are computed this many at a time (1.6 MB): they stay in the cache."""


@final
@dataclass(frozen=True)
class Region:
    """The outputs o^h = Σ E x / Σ E ω of all strings of I items, where ω_s = base · x_s + unit.

    For the values themselves ω = 1 (base 0, unit 1), and o is what the attention returns. The other
    case (unit 0) is a projective view, in which only the direction of o matters; the denominators
    must then be positive on every string.

    Attributes:
        attention: the weights.
        view: the vectors x.
        items: the items.
        base: [I, H, width].
        unit: 1.0 or 0.0.
        centre: [I, H, width] the output for some string of the item.
        low: [I, H] lower bounds of the denominators.
        high: [I, H] upper bounds.
        total_high: [I, H] upper bounds of Σ E.
    """

    attention: AttentionWeights
    view: View
    items: Items
    base: Array
    unit: float
    centre: Array
    low: Array
    high: Array
    total_high: Array

    @classmethod
    def build(
        cls,
        attention: AttentionWeights,
        view: View,
        items: Items,
        base: Array,
        unit: float,
        centre: Array,
    ) -> Region:
        """Compute the ranges of the denominators."""
        heads = base.shape[1]
        low, high, total_high = np.empty((3, len(items), heads))
        for head in range(heads):  # the other heads count nothing
            d, t = np.zeros_like(base), np.zeros(base.shape[:2])
            d[:, head], t[:, head] = (
                base[:, head],
                unit,
            )  # Σ E (base · x + unit): the head's own denominator
            low[:, head] = attention.sweep(view, items, d, t).least
            high[:, head] = -attention.sweep(view, items, -d, -t).least
            total_high[:, head] = (
                high[:, head] if unit else -attention.sweep(view, items, 0 * d, t - 1).least
            )
        return cls(attention, view, items, base, unit, centre, low, high, total_high)

    @classmethod
    def of_values(cls, attention: AttentionWeights, items: Items, centre: Array) -> Region:
        """The attention's own outputs on the items' strings."""
        return cls.build(attention, attention.values, items, np.zeros_like(centre), 1.0, centre)

    def views(self) -> Iterator[tuple[IntArray, Region]]:
        """The region in the view that shows most, item by item: (which items, the region of these).

        With one head and LN_C nowhere below its constant C, only the direction of P x matters,
        x = W_O o + b_O. That is the direction of Σ E P(W_O v + b_O), without the denominator: a sum
        that edits change little, or not at all if they insert balanced pairs into a balanced model
        (Wen et al. 2023, Theorem 1).
        """
        attention, everything = self.attention, np.arange(len(self.items))
        c = attention.network.config.ln_c
        if c is None or self.n_heads > 1:
            yield everything, self
            return
        at = attention.network.attention_output(Ball.exact(self.centre[:, 0])).mid
        at = at - at.mean(-1, keepdims=True)  # P x at the centre, [I, d]
        length = np.linalg.norm(at, axis=-1, keepdims=True)
        base = (at / np.maximum(length, 1e-300) * (1 - 1e-13))[
            :, None
        ]  # a vector u no longer than 1, [I, 1, d]
        # |P x| ≥ u · P x = Σ E (u · P(W_O v + b_O)) / Z, which is at least C if Σ E
        # (u · P(…) - C) ≥ 0: one path
        taus = np.full((len(at), 1), -c * (1 + 1e-13))
        clear = attention.sweep(attention.projected, self.items, base, taus).least >= 0
        chosen = np.flatnonzero(clear & (length[:, 0] > c))
        if len(chosen):
            # centre and base are the same direction u: o = Σ E x / Σ E (u · x), the direction
            # scaled to u · o = 1
            base = base[chosen]
            projective = Region.build(
                attention, attention.projected, self.items.take(chosen), base, 0.0, base
            )
            # strings whose directions are nearly opposite would make it useless
            good = np.flatnonzero((projective.low > 0.05 * projective.high).all(1))
            yield chosen[good], projective.take(good)
            chosen = chosen[good]
        rest = np.setdiff1d(everything, chosen)
        if len(rest):
            yield rest, self.take(rest)

    @property
    def n_heads(self) -> int:
        """H."""
        return int(self.base.shape[1])

    def take(self, index: IntArray) -> Region:
        """Some of the items."""
        parts = {
            name: getattr(self, name)[index]
            for name in ("base", "centre", "low", "high", "total_high")
        }
        return replace(self, items=self.items.take(index), **parts)

    @property
    def sound(self) -> BoolArray:
        """[I] whether each denominator is safely above 0; nothing else is asked of other items."""
        return np.asarray((self.low > 1e-250).all(1))

    @property
    def even(self) -> BoolArray:
        """[I] whether dividing by the least denominator leaves something to be seen.

        For that, denominators must vary little.

        They vary by orders of magnitude where scores are saturated and some strings lack the token
        of the largest one.
        """
        return np.asarray(self.sound & (self.high < 1e6 * self.low).all(1))

    @cached_property
    def output_size(self) -> Array:
        """[I, H, width] or [1, H, width]: the largest |o|.

        A weighted mean is no larger than its largest term.
        """
        if self.unit:
            return self.view.largest[None]
        size: Array = self.view.largest * (self.total_high / self.low)[..., None]
        return size

    def _moves(self, item: int) -> tuple[Array, Array]:
        """A symbol of weight E / Z moves o by about E / Z (x - o): [S, H], [S, H, width]."""
        low = np.maximum(self.low[item], 1e-290)
        weight: Array = self.attention.weights[self.items.groups[item]] / low
        return weight, self.view.x.mid - self.centre[item]

    def impact(self, item: int) -> Array:
        """[E] how far an emission moves an item's output, roughly."""
        weight, moved = self._moves(item)
        away = np.linalg.norm(moved, axis=-1)  # [S, H]
        symbols = np.append((weight * (away + away.mean(0))).sum(1), 0.0)  # the last is padding
        impact: Array = symbols[self.attention.graph.emits].sum(1)
        return impact

    def pull(self, item: int) -> Array:
        """[E, H width] where to it does."""
        weight, moved = self._moves(item)
        symbols = rearrange(weight[..., None] * moved, "symbol head e -> symbol (head e)")
        padded = np.append(symbols, np.zeros((1, symbols.shape[1])), axis=0)
        pull: Array = padded[self.attention.graph.emits].sum(1)
        return pull

    def at_centre(self, directions: Array) -> Array:
        """Σ_h D^h · o^h at the centre, [I, K]."""
        every = np.broadcast_to(directions, (len(self.items), *directions.shape[1:]))
        value: Array = einsum(every, self.centre, "item k head e, item head e -> item k")
        return value

    def ranges(self, directions: Array) -> tuple[Array, Array]:
        """Bounds of Σ_h D^h · o^h for K directions per item, [I, K, H, width] or [1, K, H, width].

        Per head: with t the value at the centre, Σ E (D · x - t ω) is additive, so its least value
        r is one shortest path, and D · o ≥ t + r / Σ E ω for every string, with the denominator at
        whichever end is worse. Exact for r = 0; off by at most |r| (1/low - 1/high) otherwise. The
        sum over heads ignores that they share the string.

        Returns:
            low and high, [I, K].
        """
        n, k = len(self.items), directions.shape[1]
        low, high = np.empty((n, k)), np.empty((n, k))
        shared = directions.shape[0] == 1
        step = max(1, _MOST_NUMBERS // max(len(each.graph.option) for each in self.strings))
        for start in range(0, k, step):
            piece = slice(start, min(k, start + step))
            d = directions[:, piece]
            seen = self._seen(d[0]) if shared else None
            for i in range(n):
                self.attention.deadline.check()
                low[i, piece], high[i, piece] = self._ranges_of(i, d[0 if shared else i], seen)
        return low, high

    @cached_property
    def strings(self) -> list[Strings]:
        """The strings of each item."""
        graph, groups, allowed = self.attention.graph, self.items.groups, self.items.allowed
        return [
            narrowed(graph, int(group), None if allowed is None else allowed[:, item])
            for item, group in enumerate(groups)
        ]

    def _seen(self, directions: Array) -> list[Array]:
        """D^h · x^h_s for directions [K, H, width]: per head [S, K]."""
        x = self.view.x.mid
        return [x[:, head] @ directions[:, head].T for head in range(self.n_heads)]

    def _ranges_of(
        self, item: int, directions: Array, seen: list[Array] | None
    ) -> tuple[Array, Array]:
        """Ranges on one item."""
        attention, strings = self.attention, self.strings[item]
        symbols = strings.symbols
        weights = attention.weights[self.items.groups[item], symbols]
        low = high = slack = np.full(len(directions), 0.0)
        for head, dx in enumerate(seen or self._seen(directions)):
            d, centre = directions[:, head], self.centre[item, head]  # [K, width], [width]
            t = d @ centre  # [K]
            # costs of symbols, [S, K]: E (D · x - t ω)
            costs = dx[symbols]  # a view where they are all
            if self.unit:  # ω is 1
                costs = costs - t
            else:
                omega = self.view.x.mid[symbols, head] @ self.base[item, head]
                costs = costs - np.outer(omega, t)
            costs *= weights[:, head, None]
            least, most = extremes(strings.graph, costs, strings.group, strings.allowed)
            bottom, top = self.low[item, head], self.high[item, head]
            # D · o - t = r / Σ E ω lies between these: a negative r is worst over the least
            # denominator
            down = least / np.where(least < 0, bottom, top)
            up = most / np.where(most > 0, bottom, top)
            # rounding is bounded relative to the string's Σ E, which may be larger than its
            # denominator
            ratio = 1.0 if self.unit else self.total_high[item, head] / bottom
            # |D · x - t ω| ≤ size for every symbol, and its own error is at most |D| · error + |t|
            # |base| · error
            base, largest, error = (
                abs(self.base[item, head]),
                self.view.largest[head],
                self.view.error[head],
            )
            size = abs(d) @ largest + abs(t) * (base @ largest + self.unit)
            lost = (
                attention.relative_error(self.items.groups[[item]], head) * size
                + abs(d) @ error
                + abs(t) * (base @ error)
            )
            lost = ratio * lost
            low, high = low + t + down, high + t + up
            slack = slack + lost * (1 + 1e-6) + 16 * UNIT * (abs(t) + abs(down) + abs(up)) + 1e-300
        return low - slack, high + slack
