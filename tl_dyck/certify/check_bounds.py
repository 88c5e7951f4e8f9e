"""Bounds of what a one-layer decoder computes on all paths of a part, and on strings one by one.

Copied with ``check_edits.py``, ``check_automaton.py`` or ``check_two_layers.py``. Knows nothing of
what the paths are: whoever has them tells the least sum of costs on a path.

*Bound.* A sum of costs of symbols is least on some path, found by going through the levels. With t
any number and D any vector, D·o_h = t + r / Z_h with r = Σ E_hs (D·v_hs - t), and r / Z is at least
the smaller of r / Z_low and r / Z_high. So a linear functional of all heads is at least its least
over 2^H choices of Z's, each the least of a sum of costs. Every number behind the heads is written
as a linear functional of o and a constant that is known up to a radius. Sums of such are such. With
y = a + δ, |δ| ≤ m, of the products, roots and activations that are taken of such numbers the linear
part at a is kept, the rest bounded: δδ' by m m'; |u| by what lies between w·u and that plus
|δ|² / 2R for w = u(a) / R, |w| ≤ 1; 1 / σ by tangents; GELU by m² max |GELU''| / 2, SiLU and GELU's
form with tanh, x / (1 + exp(-z)) for z = √(8/π) (x + 0.044715 x³), alike; ReLU by its chord. Before
the unembedding a norm's divisor is not divided by: logits compare as they do times σ.

*Rays.* One head before LN_C: with x = W_O o + b_O it gives P x / max(|P x|, C). Let y = P (W_O v +
b_O), so P x = Σ E y / Z, and |u| ≤ 1. If Σ E (u·y - C) ≥ 0 on all paths of a part, then |P x| ≥ u·P
x ≥ C > 0 there, so Z cancels: LN_C gives Σ E y over its length. Of o' = Σ E y / Σ E (u·y) that is
o' / |o'|, the divisor is positive, and the bound above holds of o' with y for v, Σ E (u·y) for Z,
and r = Σ E (D·y - t u·y). Edits that change what is attended to, but not its direction, change o'
little, or not at all. A leaf of the file says whether its bound is of o or of o'.

*Lists.* A leaf may say that its strings are run one by one, at most `LISTED` of them. Then Z, o_h
and all behind them are numbers known up to rounding, and a margin within that is refused. No choice
of Z's is made: so the heads may be more than `HEADS`, of which 2^H choices are too many.

*Arithmetic.* As in `check_language`: every number is a float64 and a radius. Costs are lowered by
what sums of so many of them can be off by.
"""

import collections
import itertools
import math

import numpy as np

if __package__:
    from tl_dyck.certify import check_language as base
    from tl_dyck.certify import check_layer as layer
else:  # copied out
    import check_language as base
    import check_layer as layer

Enclosure, need, dot, GROW, U = base.Enclosure, base.need, base.dot, base.GROW, base.U
WORK, CURVES, centre, inverse = base.WORK, layer.CURVES, layer.centre, layer.inverse
root, smooth = layer.root, layer.smooth
MOST = 2**22  # numbers held at once: 32 MiB of float64
CACHE = 2**16  # numbers that are worked on at once, 0.5 MB
HEADS = 8  # 2^heads choices of the divisors Z are tried in each bound: with eight heads 256
# trees are 16-bit words: the three largest are no node, but leaves whose bounds are of outputs, of
# rays, or of each string by itself; at most so many strings
BOUND, RAYS, LIST, LISTED = 2**16 - 1, 2**16 - 2, 2**16 - 3, 10_000


def wins(target, n):
    """What is positive if a logit of n is the largest: rows of factors of logits, and constants."""
    WORK.spend(0, n * n)
    # [rival, logit]: +1 at the target, -1 at the rival
    rows = np.delete((np.arange(n) == target) - np.eye(n), target, axis=0)
    return rows, np.zeros(len(rows))


class Affine:
    """Numbers linear in the heads' outputs, n of each part.

    ``slope`` is [part, n, heads, d_head], ``rest`` [part, n].
    """

    def __init__(self, slope, rest):
        self.slope, self.rest = slope, rest

    def __add__(self, other):
        return Affine(self.slope + other.slope, self.rest + other.rest)

    def plus(self, rest):
        """The numbers plus others that are known up to a radius."""
        return Affine(self.slope, self.rest + rest)

    def times(self, factors):
        """Each number times one of its own."""
        return Affine(self.slope * factors[..., None, None], self.rest * factors)

    def into(self, weights):
        """The numbers of a part, as a row, times a matrix, for all or for each."""
        how = "dk" if weights.mid.ndim == 2 else "bdk"
        slope = dot(f"bdne,{how}->bkne", self.slope, weights)
        return Affine(slope, dot(f"bd,{how}->bk", self.rest, weights))


def together(each):
    """Enclosures of one shape as one."""
    return Enclosure(*(np.stack([getattr(x, side) for x in each]) for side in ("mid", "rad")))


class SameEnd:
    """The strings that end with one symbol."""

    def __init__(self, space, net, last):
        self.space, self.net, self.last, self.r = space, net, last, net.r[last]
        # [head, symbol]
        self.scores, self.known = dot("ne,sne->ns", net.q[last], net.k), {}

    def weights(self, path):
        """E of every symbol, ``[S, heads]``, up to a factor for each head."""
        tops, near = self.scores.mid.max(1), self.scores.mid[:, path].max(1)
        # a path's largest is 1, or at least 1e-87: then all paths have the same, found once
        tops = tuple(np.where(tops - near < 200, tops, near).tolist())
        if tops not in self.known:
            # exp(1000) is ∞ as a float64 anyhow: then nothing is settled. `decimal` would take long
            # for more
            clipped = np.minimum(self.scores.mid, np.add(tops, 1000)[:, None])
            scores = Enclosure(clipped, self.scores.rad)
            found = [base.exponential(scores[h], top) for h, top in enumerate(tops)]
            sides = (np.stack([getattr(e, side) for e in found], 1) for side in ("mid", "rad"))
            self.known[tops] = Enclosure(*sides)
        return self.known[tops]


# strings with one end: what is asked of them, the options that they may take, where they end, and a
# path, near which bounds are taken
Part = collections.namedtuple("Part", "group asked allowed finals path")


class PartBounds:
    """PartBounds on parts, side by side: of the heads' outputs or, if told to, of rays."""

    def __init__(self, parts, rays=False):
        (first, *_), groups = parts, [part.group for part in parts]
        # of a head with its divisor's two ends each: 2^heads choices
        need(first.group.net.v.mid.shape[1] <= HEADS, f"it bounds more than {HEADS} heads at once")
        self.space, self.net, self.parts = first.group.space, first.group.net, parts
        self.walks, self.r = self.space.walks(parts), together([group.r for group in groups])
        # [part, symbol, head]
        self.e = together([part.group.weights(part.path) for part in parts])
        self.v, self.u = self.seen() if rays else self.net.v, None
        # attention on the path, only to aim by
        near = []
        for e, part in zip(self.e.mid, parts, strict=True):
            share = e[part.path] / e[part.path].sum(0)
            near.append(np.einsum("sn,sne->ne", share, self.v.mid[part.path]))
        self.near, self.known, total = np.array(near), np.ones(len(parts), dtype=bool), self.e
        if rays:
            # rounding must not make it longer than 1, or u·Px could be larger than |Px|
            size = np.sqrt((self.near**2).sum((1, 2), keepdims=True))
            u = self.near / size * (1 - 1e-12)  # no longer than 1
            self.u, self.near = Enclosure(u), u / (u**2).sum((1, 2), keepdims=True)
            along = dot("sne,bne->bsn", self.v, self.u)
            above = self.e * (along + Enclosure(-self.net.c["ln_c"]))
            # elsewhere |P x| may be below the constant
            self.known = self.least(above.mid, above.rad)[:, 0] >= 0
            total = self.e * along
        # the largest sum is minus the least of what is negated
        low, high = self.least(total.mid, total.rad), -self.least(-total.mid, total.rad)
        self.empty = low[:, 0] == math.inf  # there is no string
        # [part, head, (least, largest)] of 1 / Z, rounded outwards
        ends = [(1 - 4 * U) / high, (1 + 4 * U) / np.where(low > 0, low, math.nan)]
        which = np.array(list(itertools.product((0, 1), repeat=low.shape[1])))
        # [part, 2^heads, heads] of 1 / Z
        self.ends = np.stack(ends, 2)[:, np.arange(low.shape[1]), which]

    def settled(self):
        """Whether bounds show what is asked on all strings of each part."""
        asked = [part.asked for part in self.parts]
        self.wanted = self.margins(*(np.stack(each) for each in zip(*asked, strict=True)))
        shown = (self.below(self.wanted, sign=True) > 0).all(1)
        return self.known & (self.empty | shown)

    def seen(self):
        """P (W_O v + b_O) of symbols: of one head all that LN_C shows where it divides by |P x|."""
        net, w = self.net, self.net.w
        need(net.c["ln_c"] and w["W_O"].mid.shape[0] == 1, "it has no single head before LN_C")
        if net.rays is None:
            x = dot("sne,ned->snd", net.v, w["W_O"]) + w["b_O"]
            net.rays = dot("snd,de->sne", x, centre(x.mid.shape[2]))
        return net.rays

    def least(self, mid, rad):
        """No more than the least sum of costs on a path, ``[part, n]``; -∞ if one is not known."""
        # γ of as many operations
        off = self.space.additions * U / (1 - self.space.additions * U)
        # each term is lowered by its share of what the sum's rounding can be, so that the sum is
        # too low
        low = mid - (rad + (abs(mid) + rad) * (off + 4 * U)) * GROW - base.TINY
        # finite, so that ∞ - ∞ is not met on the way; a sum of at most 1e9 others stays above
        # -1e249
        low = np.where(abs(low) < 1e240, low, -1e250)  # of what nothing is known
        # what overflowed is -1e250, and stays below -1e249 whatever is added to it
        found = self.walks.least(low)
        return np.where(found > -1e249, found, -math.inf)

    def below(self, y, sign=False):
        """A bound of each number from below, of which only the sign may be asked for."""
        # t of the theorem, [part, number, head]: the value near the string that is named
        at = np.einsum("bkne,bne->bkn", y.slope.mid, self.near)
        if sign and at.shape[2] == 1:
            # of one head the sign can be had without a gap: with t = -rest no constant is left over
            at = -y.rest.mid[:, :, None]
        (n_parts, n_symbols, heads), found = self.e.mid.shape, []
        # numbers for each row of all parts; so few at once that they stay in a processor's cache
        # with one head no choice of ends is made before the sum, see `divided_sum`
        room = n_parts * (n_symbols * heads * (1 if heads == 1 else 2**heads) + 1)
        step = max(1, CACHE // room)
        for first in range(0, at.shape[1], step):
            here = slice(first, first + step)
            slope, t = y.slope[:, here], Enclosure(-at[:, here])
            if self.u:  # of rays t is a multiple of u·y, else of 1
                slope, t = slope + t[..., None] * self.u[:, None], None
            r = dot("sne,bkne->bskn", self.v, slope)
            r = (r + t[:, None] if t else r) * self.e[:, :, None]
            found.append(self.divided_sum(r))
        middle = y.rest + dot("bkn,n->bk", at, np.ones(heads))
        return (middle + Enclosure(np.concatenate(found, axis=1))).low

    def divided_sum(self, r):
        """The least of Σ_h r_h / Z_h on a path, at the worst of all ends of Z."""
        if r.mid.shape[3] == 1:  # a sum over one Z is worst where Z is, whatever the path
            least = self.least(r.mid[..., 0], r.rad[..., 0])
            ends = least[:, :, None] * self.ends[:, None, :, 0]
            return (ends - 2 * U * abs(ends) - base.TINY).min(2)
        costs = dot("bskn,bpn->bskp", r, self.ends)
        shape = (*costs.mid.shape[:2], -1)
        # [part, row × choice of ends]
        least = self.least(costs.mid.reshape(shape), costs.rad.reshape(shape))
        return least.reshape(len(least), -1, self.ends.shape[1]).min(2)

    def range(self, y):
        """PartBounds of numbers, and what they are near the string that is named."""
        at = np.einsum("bkne,bne->bk", y.slope.mid, self.near) + y.rest.mid
        return self.below(y), -self.below(y.times(Enclosure(-np.ones(at.shape)))), at

    def norm(self, x, more):
        """For u = P x: u, what it is near, how far from there it is at most; √(|u|² + more)."""
        u = x.into(centre(x.rest.mid.shape[1]))
        low, high, at = self.range(u)
        # 1e-12: no shorter than the vector, though the root of 4096 squares is off by 2.3e-13
        size = np.sqrt((at**2).sum(1, keepdims=True) + more) * (1 + 1e-12)
        moved = np.maximum(high - at, at - low)
        # |u - a|² / 2R; the 1e-11 covers that R is only rounded and made larger by 1e-12
        gap = ((moved**2).sum(1, keepdims=True) + 1e-11 * size**2) / (2 * size) * GROW
        # a·u / R, and more·1 / R: √more is as it were one coordinate more, which never moves
        tangent = u.into(Enclosure((at / size)[:, :, None])).plus(Enclosure(more / size))
        return u, at, moved, tangent.plus(Enclosure(gap / 2, gap / 2))

    def divided(self, x, more, floor=0.0):
        """P x / √(|P x|² + more), or over the floor if that is larger."""
        u, at, moved, size = self.norm(x, more)
        low, high, near = self.range(size)  # [part, 1]
        # below the floor C 1 / max(size, C) is flat, and a tangent of 1 / size above it
        slope = np.where(low > floor, -1 / near**2, 0.0)  # of a tangent of 1 / size
        low, high = np.maximum((low, high), floor)
        # 1 / s - slope·s is least where its derivative is 0, at s = 1 / √-slope: 2 √-slope; it is
        # convex,
        # hence largest at an end
        least = np.where(slope < 0, 2 * np.sqrt(-slope), 1 / high)
        most = np.maximum(1 / low - slope * low, 1 / high - slope * high)
        # two quotients, a product and a difference in each of them: 4 u
        off = (most - least) / 2 * GROW + 8 * U * most
        over = size.times(Enclosure(slope)).plus(Enclosure((most + least) / 2, off))
        # u / σ = u y + a (1/σ - y) + (u - a)(1/σ - y): linear, linear in 1/σ, and what is bounded
        # below
        y = 2 / (low + high)
        # 1 / s lies between the ends' inverses, each rounded by u, and so are the differences
        off = np.maximum(1 / low - y, y - 1 / high) * GROW + 4 * U / low
        rest = Enclosure(at) * Enclosure(-y) + Enclosure(0 * at, moved * off)
        return (u.times(Enclosure(y + 0 * at)) + over.into(Enclosure(at[:, None]))).plus(rest)

    def activated(self, p):
        """ReLU, GELU or SiLU of numbers."""
        low, high, at = self.range(p)
        if self.net.c["act_fn"] == "relu":
            slope, most = base.relu(low, high)
            return p.times(Enclosure(slope)).plus(Enclosure(most / 2, most / 2 * GROW))
        # one of few numbers, so that other parts may know its value: so many of a power of 2 that
        # is about a 50th of the range
        step = 2.0 ** np.floor(np.log2(high - low) - 5)
        at = np.where(step > 0, np.rint(at / step) * step, at)
        # where the range is nan, any point: the rest becomes nan and settles nothing
        at = np.nan_to_num(np.clip(at, low, high))
        nearest = np.where(low * high > 0, np.minimum(abs(low), abs(high)), 0.0)
        bend = CURVES[self.net.c["act_fn"]][1](nearest) * GROW
        moved = np.maximum(high - at, at - low)
        place = np.arange(at.size).reshape(at.shape)
        found = smooth(at.ravel(), self.net.curve, self.net.c["act_fn"])
        value, slope = (each[place] for each in found)
        rest = value + slope * Enclosure(-at) + Enclosure(0 * at, bend * moved**2 / 2 * GROW)
        return p.times(slope).plus(rest)

    def product(self, x, y):
        """Products of numbers: linear near where both are, and what they move by, multiplied."""
        (low, high, _), (least, most, _) = self.range(x), self.range(y)
        # in the middle, so that either moves by as little as can be
        at, near = (low + high) / 2, (least + most) / 2
        moved = np.maximum(high - at, at - low) * np.maximum(most - near, near - least)
        # differences and their product are rounded: 3 u
        rest = Enclosure(at) * Enclosure(-near) + Enclosure(0 * at, moved * GROW)
        return (x.times(Enclosure(near)) + y.times(Enclosure(at))).plus(rest)

    def attended(self):
        """W_O o + b_O; of rays o' itself, [n, one head, n], stands for it."""
        w, n, parts = self.net.w, self.r.mid.shape[1], len(self.parts)
        nothing = Enclosure(np.zeros((parts, n)))
        if self.u:
            return Affine(Enclosure(np.repeat(np.eye(n)[None, :, None], parts, axis=0)), nothing)
        w_o = (np.moveaxis(side, 2, 0)[None] for side in (w["W_O"].mid, w["W_O"].rad))
        w_o = (np.repeat(side, parts, axis=0) for side in w_o)
        return Affine(Enclosure(*w_o), nothing + w["b_O"])

    def margins(self, rows, constants):
        """Rows of factors of logits, and a constant for each, times a positive number."""
        c, w, n, x = self.net.c, self.net.w, self.r.mid.shape[1], self.attended()
        # a norm divides by √(|P x|² / n + eps) = √(|P x|² + n eps) / √n: √n is multiplied back
        wide = root(Enclosure(float(n))) * Enclosure(np.ones((1, n)))
        # of a ray |P x| > C was shown, so that the constant plays no part
        x = self.divided(x, 0.0, 0.0 if self.u else c["ln_c"]) if c["ln_c"] else x
        x = x.plus(self.r) if c["residual"] else x
        x = self.divided(x, 0.0, c["ln_mid"]) if c["ln_mid"] else x
        if c["act_fn"]:
            y = self.divided(x, n * c["eps"]).times(wide) if c["ln2"] else x
            y = y.times(w["ln2_w"]).plus(w["ln2_b"]) if c["ln2"] == "ln" else y
            into = y.into(w["W_in"]).plus(w["b_in"])
            if c["gated"]:
                gate = self.activated(y.into(w["W_gate"]).plus(w["b_gate"]))
                y = self.product(gate, into).plus(w["b_post"])
            else:
                y = self.activated(into)
            x = x + y.into(w["W_out"]).plus(w["b_out"])
        towards = dot("do,bko->bdk", w["W_U"], rows)
        bias = dot("o,bko->bk", w["b_U"], rows) + Enclosure(constants)
        if not c["ln_final"]:
            return x.into(towards).plus(bias)
        u, _, _, size = self.norm(x, n * c["eps"])
        u = u.times(wide)
        if c["ln_final"] == "ln":
            u, bias = u.times(w["ln_final_w"]), bias + dot("d,bdk->bk", w["ln_final_b"], towards)
        # the margin times σ > 0: (u / σ) W + bias has the sign of u W + σ bias
        return u.into(towards) + size.into(bias[:, None])


class Listed(PartBounds):
    """Strings of a part, run one by one: nothing is linear in outputs, which are numbers."""

    def __init__(self, part, strings, step):
        n, net, self.step, self.u = len(strings), part.group.net, step, None
        self.net, self.parts, self.r = net, [part] * n, together([part.group.r] * n)
        self.known, self.empty = np.ones(n, dtype=bool), np.zeros(n, dtype=bool)
        times = np.zeros((n, len(net.v.mid), 1))  # of each symbol in each string
        for row, path in zip(times, strings, strict=True):
            np.add.at(row, path, 1)
        e = together([part.group.weights(path) for path in strings]) * Enclosure(times)
        total = inverse(dot("bsn,s->bn", e, np.ones(times.shape[1])))
        o = dot("bsn,sne->bne", e, net.v) * total[:, :, None]
        self.o = dot("bne,ned->bd", o, net.w["W_O"]) + net.w["b_O"]

    def attended(self):
        """W_O o + b_O, without a slope: as of no head."""
        return Affine(Enclosure(np.zeros((*self.o.mid.shape, 0, 1))), self.o)

    def below(self, y, sign=False):
        """A bound of each number from below."""
        return y.rest.low

    def range(self, y):
        """Bounds of numbers, and what they are about."""
        return y.rest.low, y.rest.high, y.rest.mid

    def activated(self, p):
        """The activation of numbers; of a curve at one of few numbers near each, if told to."""
        x = p.rest
        if self.net.c["act_fn"] == "relu":
            # |relu(x) - relu(y)| ≤ |x - y|
            return Affine(p.slope, Enclosure(np.maximum(x.mid, 0), x.rad))
        at = np.nan_to_num(np.rint(x.mid / self.step) * self.step if self.step else x.mid)
        found = smooth(at.ravel(), self.net.curve, self.net.c["act_fn"])
        value, slope = (each[np.arange(at.size).reshape(at.shape)] for each in found)
        off = x + Enclosure(-at)
        # wherever it lies, |φ''| is at most what it is from 0 on
        bend = CURVES[self.net.c["act_fn"]][1](0.0) * GROW
        more = bend * off.size**2 / 2 * GROW
        return Affine(p.slope, value + slope * off + Enclosure(0 * at, more))


def open_strings(part, pause=lambda: None):
    """Those strings of a part on which what is asked is not shown, each run by itself."""
    space, net = part.group.space, part.group.net
    strings = space.walks([part]).strings(LISTED)
    held = net.v.mid.size + part.asked[0].size + len(part.asked[0]) * len(net.w["W_U"].mid)
    at_once = max(1, MOST // 16 // held)
    # a curve is known at numbers that are 2^-12 apart, so that strings share them; then anew
    for step in (2.0**-12, 0.0):
        left = []
        for first in range(0, len(strings), at_once):
            some = strings[first : first + at_once]
            pause()
            shown = Listed(part, some, step).settled()
            left += [path for path, true in zip(some, shown, strict=True) if not true]
        strings = left
    return strings
