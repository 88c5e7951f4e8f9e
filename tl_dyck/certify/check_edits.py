"""Check a proof that a one-layer decoder keeps its prediction on every edit of a string.

Numpy, the standard library and `check_languages` beside it; nothing is searched. `check_proof`
reads the files.

*What is proved.* The file has a string x, a list of rewritings (what becomes of the ``span`` tokens
at a place; span 0 inserts there) of some kinds, and how many of each kind are allowed. Of disjoint
spans, and with at most one insertion at a gap, which must not lie inside a rewritten span, each
choice makes a string, after BOS if there is one. On all of them the target has the largest logit.

*The network* (Zhang et al., arXiv 2405.17361). A symbol s is a token with its position, its depth
of brackets, both or neither. After symbols that end with s' head h returns o_h = Σ E_hs v_hs / Z_h,
Z_h = Σ E_hs, E_hs = exp(q_h(s')·k_hs) up to a common factor. Then W_O, LN_C (Eq. 7 of Wen et al.
2023) or none, the residual or not, LN_C or none, an MLP with ReLU or GELU behind a norm or none,
a norm or none, the unembedding.

*Covering.* Cut x into levels, two a token: before its gap, behind it. An option (keep a token,
leave a gap, rewrite) leads from a level to a later one. Strings are paths of options. Each passes
every step from a level to the next inside exactly one option. So if the options over a step are
parted in two, each path is in one part. The file has for each last symbol a tree in preorder: the
pair (step, j) parts the options over that step into those before the j-th and the rest; a leaf says
that the bound settles its part, and names the rewritings of a string near whose values it is taken.

*Bound.* A sum of costs of symbols is least on some path, found by going through the levels. With t
any number and D any vector, D·o_h = t + r / Z_h with r = Σ E_hs (D·v_hs - t), and r / Z is at least
the smaller of r / Z_low and r / Z_high. So a linear functional of all heads is at least its least
over 2^H choices of Z's, each the least of a sum of costs. Every number behind the heads is written
as a linear functional of o and a constant that is known up to a radius. Sums of such are such. With
y = a + δ, |δ| ≤ m, of the products, roots and activations that are taken of such numbers the linear
part at a is kept, the rest bounded: δδ' by m m'; |u| by what lies between w·u and that plus
|δ|² / 2R for w = u(a) / R, |w| ≤ 1; 1 / σ by tangents; GELU by m² max |GELU''| / 2; ReLU by its
chord. Before the unembedding a norm's divisor is not divided by: logits compare as they do times σ.

*Arithmetic.* As in `check_languages`: every number is a float64 and a radius. Costs are lowered by
what sums of so many of them can be off by.
"""

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np

if __package__:
    from tl_dyck.certify import check_languages as base
else:  # copied out
    import check_languages as base

Enclosure, ProofError, dot, GROW, U = base.Enclosure, base.ProofError, base.dot, base.GROW, base.U
FORMAT, BOUND, MOST = "tl_dyck.edits/1", 2**16 - 1, 2**22
AXES = {"W_O": "ned", "b_O": "d", "W_U": "do", "b_U": "o"}
AXES |= {f"W_{x}": "nde" for x in "QKV"} | {f"b_{x}": "ne" for x in "QKV"}
NORMS, HEADS, ACTIVATIONS = ("ln1", "ln2", "ln_final"), 4, (None, "relu", "gelu")
CONFIG = ("state", "act_fn", "ln_c", "ln_mid", "residual", "attn_scale", "eps", "n_types")
CONFIG += ("max_depth", "bos_token", "n_ctx", "separator", *NORMS)
NUMBERS = dict.fromkeys(("attn_scale", "ln_c", "ln_mid"), (1e-300, (int, float)))
NUMBERS |= dict.fromkeys(("n_types", "max_depth", "n_ctx"), (1, (int,)))
NUMBERS |= {"bos_token": (0, (int,)), "eps": (0, (int, float))}
ROOT = Decimal("0.39894228040143267793994605993438186847585863116493")  # 1 / √(2π)


def root(x):
    """√x, where x is not negative."""
    low, high = np.sqrt(np.maximum(x.low, 0)), np.sqrt(x.high)
    return Enclosure((low + high) / 2, (high - low) / 2 * GROW + 4 * U * high)


def inverse(x):
    """1 / x, not finite where x may be 0."""
    low, high = 1 / x.high, 1 / np.where(x.low > 0, x.low, math.nan)
    return Enclosure((low + high) / 2, (high - low) / 2 * GROW + 4 * U * high)


def gelu(x):
    """GELU and its slope at numbers: x Φ(x), Φ(x) + x φ(x); Φ - 1/2 = φ (x + x³/3 + x⁵/15 + …)."""
    value, slope = [], []
    with localcontext() as context:
        context.prec = 50
        for each in map(Decimal, x.tolist()):
            density = (-each * each / 2).exp() * ROOT
            term, total, n = each, Decimal(0), 1
            while abs(each) < 13 and abs(term) > Decimal("1e-45"):
                total, n = total + term, n + 2
                term = term * each * each / n
            below = Decimal("0.5") + density * total if abs(each) < 13 else Decimal(int(each > 0))
            value.append(float(each * below))
            slope.append(float(below + each * density))
    error = 1e-30 * (1 + abs(x))
    return [Enclosure(y, 2 * U * abs(np.array(y)) + error) for y in (value, slope)]


class OneLayer:
    """A network of the kind above, checked."""

    def __init__(self, config, weights, tokens):
        self.c, self.rows = config, {token: i for i, token in enumerate(tokens)}
        axes = dict(AXES) | {"W_E": "tld" if config["max_depth"] else "td"}
        if "position" in config["state"]:
            axes["W_pos"] = "pd"
        if config["act_fn"]:
            axes |= {"W_in": "dh", "b_in": "h", "W_out": "hd", "b_out": "d"}
        for name in NORMS:
            axes |= {f"{name}_w": "d", f"{name}_b": "d"} if config[name] == "ln" else {}
        if axes.keys() != weights.keys():
            raise ProofError("its weights are not those of its network")
        sizes = {x: n for y in axes for x, n in zip(axes[y], weights[y].shape, strict=True)}
        fits = all(weights[y].shape == tuple(sizes[x] for x in axes[y]) for y in axes)
        depths = sizes.get("l", 1) == (config["max_depth"] or 0) + 1
        fits &= sizes["t"] == len(self.rows) == len(tokens)
        if (
            not fits
            or not depths
            or sizes["n"] > HEADS
            or max(sizes[x] for x in "de") > base.LARGEST
        ):
            raise ProofError("its weights do not fit together, or are too many")
        depth = "depth" in config["state"]
        known = config["state"] in ("none", "position", "depth", "position+depth")
        known &= all(config[name] in (None, "ln", "lnpre") for name in NORMS)
        known &= config["act_fn"] in ACTIVATIONS and type(config["residual"]) is bool
        known &= depth == bool(config["n_types"]) == bool(config["max_depth"])
        for name, (least, kinds) in NUMBERS.items():
            value = config[name]
            known &= value is None or (type(value) in kinds and least <= value < 1e9)
        if not known:
            raise ProofError("its network is of another kind")
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise ProofError("a weight is not finite")
        self.w = {name: Enclosure(array) for name, array in weights.items()}
        self.n_logits = sizes["o"]

    def tabulate(self, tokens, positions, depths):
        """Queries, keys, values and residual streams of symbols."""
        w, rows = self.w, np.array([self.rows[token] for token in tokens.tolist()])
        self.r = w["W_E"][(rows, depths) if "depth" in self.c["state"] else rows]
        if "W_pos" in w:
            self.r = self.r + w["W_pos"][positions]
        x = self.r
        if self.c["ln1"]:
            x = base.centred(x)
            square = dot("sd,sd->s", x, x) * inverse(Enclosure(float(x.mid.shape[1])))
            x = x * inverse(root(square + Enclosure(self.c["eps"])))[:, None]
            x = x * w["ln1_w"] + w["ln1_b"] if self.c["ln1"] == "ln" else x
        q, self.k, self.v = (dot("sd,nde->sne", x, w[f"W_{y}"]) + w[f"b_{y}"] for y in "QKV")
        self.q = q * inverse(Enclosure(self.c["attn_scale"]))


class Space:
    """The strings, as paths of options, and their symbols."""

    def __init__(self, facts, network):
        self.x, self.budgets = facts["string"], facts["budgets"]
        self.network, self.c = network, network.c
        self.options = sorted(self.listed(facts["rewrites"]), key=lambda option: option[0])
        self.source, self.target = np.array([option[:2] for option in self.options]).T
        self.all = np.ones(len(self.options), dtype=bool)
        self.additions = 4 * sum(len(emits) + 1 for *_, emits in self.options)
        # position and depth in x; how far from there each option moves, and all together can
        counts = self.places, self.depths
        self.at = [[count(self.x[:i]) for i in range(len(self.x) + 1)] for count in counts]
        pairs = list(zip(counts, self.at, strict=True))
        self.moves = [
            [count(emits) - at[end // 2] + at[start // 2] for count, at in pairs]
            for start, end, _, emits in self.options
        ]
        self.zero, shape = [], [budget + 1 for budget in self.budgets]
        for moves in zip(*self.moves, strict=True):
            most = np.zeros((2, len(self.budgets)), dtype=int)
            for move, (_, _, kind, _) in zip(moves, self.options, strict=True):
                most[int(move > 0), kind] = max(most[int(move > 0), kind], abs(move))
            down, up = (sum(map(int.__mul__, each, self.budgets)) for each in most.tolist())
            self.zero.append(down)
            shape.append(down + up + 1)
        self.shape, self.size = (*shape, 2), math.prod(shape) * 4 * (len(self.x) + 1)
        longest = len(self.x) + (self.c["bos_token"] is not None) + shape[-2] - 1 - self.zero[0]
        if self.size > MOST or ("position" in self.c["state"] and longest > self.c["n_ctx"]):
            raise ProofError("its space is too large, or its strings are too long")
        rows = {}
        self.index = [self.symbols_of(option, rows) for option in self.options]
        self.slices = [self.slices_of(*each) for each in zip(self.options, self.moves, strict=True)]
        bos = self.c["bos_token"]
        self.start = None if bos is None else rows.setdefault((bos, 0, 0), len(rows))
        self.symbols = np.array(list(rows), dtype=int).reshape(-1, 3).T

    def listed(self, rewrites):
        """Options: the level that each starts from, the one it leads to, its kind, its tokens."""
        n, kinds = len(self.x), range(len(self.budgets))
        words = [*self.x, *itertools.chain(*(emits for *_, emits in rewrites))]
        if max(n, len(rewrites), len(words)) > BOUND // 4 or len(self.budgets) > 8:
            raise ProofError("it has too many rewritings")
        if not all(type(y) is int and y in self.network.rows for y in words):
            raise ProofError("a token is none of the network's")
        if not all(type(y) is int and 0 <= y <= n + 1 for y in self.budgets):
            raise ProofError("a budget is no number of edits")
        yield from ((2 * i, 2 * i + 1, -1, ()) for i in range(n + 1))
        yield from ((2 * i + 1, 2 * i + 2, -1, (token,)) for i, token in enumerate(self.x))
        for kind, start, span, emits in rewrites:
            if kind not in kinds or not 0 <= start <= start + span <= n:
                raise ProofError("a rewriting is of no kind or place")
            yield 2 * start + (span > 0), 2 * (start + span) + (span == 0), kind, (*emits,)

    def places(self, tokens):
        """What tokens add to the position, if the network counts it."""
        return len(tokens) * ("position" in self.c["state"])

    def depths(self, tokens):
        """What tokens add to the depth, if the network counts it."""
        brackets = 2 * (self.c["n_types"] or 0)
        return sum(1 - 2 * (token % 2) for token in tokens if token < brackets)

    def symbols_of(self, option, rows):
        """Rows of an option's symbols, [tokens, moved positions, moved depths]."""
        source, _, _, emits = option
        before, index = int(self.c["bos_token"] is not None), []
        p, q = (np.arange(n) - z for n, z in zip(self.shape[-3:-1], self.zero, strict=True))
        for j, token in enumerate(emits):
            place, depth = self.at[0][source // 2] + j + before + p, 0 * q
            place = np.clip(place, 0, self.c["n_ctx"] - 1)  # what is clipped no string reaches
            if self.depths(
                [token]
            ):  # of an opening bracket from 1 to D on, of a closing one one less
                depth = self.at[1][source // 2] + self.depths(emits[: j + 1]) + q
                depth = np.clip(depth, 1 - token % 2, self.c["max_depth"] - token % 2)
            place = place if "position" in self.c["state"] else 0 * p
            pairs = itertools.product(place.tolist(), depth.tolist())
            index.append([rows.setdefault((token, *pair), len(rows)) for pair in pairs])
        return np.array(index, dtype=int).reshape(len(emits), len(p), len(q))

    def slices_of(self, option, moves):
        """Where in the table of a level an option starts, and where it leads to in the next."""
        shifts = [int(i == option[2]) for i in range(len(self.budgets))] + moves
        pairs = list(zip(shifts, self.shape[:-1], strict=True))
        start = tuple(slice(max(0, -s), n - max(0, s)) for s, n in pairs)
        return start, tuple(slice(max(0, s), n + min(0, s)) for s, n in pairs)

    def walk(self, costs, last, allowed, join=np.minimum, zero=0.0, none=math.inf):
        """The least sum of costs, ``[S, n]``, on a path whose end has ``last`` 0, not ∞."""
        shape = *self.shape, max(costs.shape[1], last.shape[1])
        kind = float if join is np.minimum else object  # numbers of strings can be large
        levels = [np.full(shape, none, kind) for _ in range(2 * len(self.x) + 2)]
        origin = levels[0][(*[0] * len(self.budgets), *self.zero)]
        origin[0] = zero
        if self.start is not None:
            origin[0] += costs[self.start]
            origin[1] = origin[0] + last[self.start]
        for i in np.flatnonzero(allowed):
            (source, target, _, emits), (start, end) = self.options[i], self.slices[i]
            new = levels[source][start]
            if emits:
                at = self.index[i][:, start[-2], start[-1]]
                going = new[..., 0, :] + costs[at].sum(0)
                new = np.stack([going, going + last[at[-1]]], axis=-2)
            levels[target][end] = join(levels[target][end], new)
        self.levels = levels
        return join.reduce(levels[-1][..., 1, :].reshape(-1, shape[-1]), axis=0)

    def ends(self):
        """Symbols that a string may end with."""
        n, step = len(self.symbols[0]), max(1, MOST // self.size)
        for first in range(0, n, step):
            last = np.where(np.eye(n)[:, first : first + step], 0.0, math.inf)
            found = self.walk(np.zeros((n, 1)), last, self.all)
            yield from (first + np.flatnonzero(found < math.inf)).tolist()

    def parted(self, allowed, step, j):
        """Allowed options in two: of those over a step the ones before the j-th, and the others."""
        over = (self.source <= step) & (step < self.target)
        before = np.arange(len(over)) < j
        return [allowed & ~(over & ~before), allowed & ~(over & before)]

    def path(self, edits):
        """Symbols of the string that some options make, where others keep what there is."""
        level, moved, found = 0, list(self.zero), [] if self.start is None else [self.start]
        while level <= 2 * len(self.x):
            here = np.flatnonzero(self.source == level)
            i = next((i for i in here if i in edits), here[0])
            found += [index[tuple(moved)] for index in self.index[i]]
            level = self.target[i]
            moved = [a + b for a, b in zip(moved, self.moves[i], strict=True)]
        return found


class Affine:
    """Numbers linear in the heads' outputs: ``slope``, [n, heads, d_head], and ``rest``, [n]."""

    def __init__(self, slope, rest):
        self.slope, self.rest = slope, rest

    def __add__(self, other):
        return Affine(self.slope + other.slope, self.rest + other.rest)

    def plus(self, rest):
        """The numbers plus others that are known up to a radius."""
        return Affine(self.slope, self.rest + rest)

    def times(self, factors):
        """Each number times one of its own."""
        return Affine(self.slope * factors[:, None, None], self.rest * factors)

    def into(self, weights):
        """The numbers, as a row, times a matrix."""
        return Affine(dot("dne,dk->kne", self.slope, weights), dot("d,dk->k", self.rest, weights))


class SameEnd:
    """The strings that end with one symbol, and bounds on a part of them."""

    def __init__(self, space, net, last):
        self.space, self.net, self.r = space, net, net.r[last]
        self.last = np.where(np.arange(len(space.symbols[0])) == last, 0.0, math.inf)[:, None]
        self.scores, self.known = dot("ne,sne->ns", net.q[last], net.k), {}

    def weights(self, path):
        """E of every symbol, ``[S, heads]``, where the largest on a path is 1."""
        tops = tuple(self.scores.mid[:, path].max(1).tolist())
        if tops not in self.known:
            found = [base.exponential(self.scores[h], top) for h, top in enumerate(tops)]
            sides = (np.stack([getattr(e, side) for e in found], 1) for side in ("mid", "rad"))
            self.known[tops] = Enclosure(*sides)
        return self.known[tops]

    def settled(self, target, allowed, edits):
        """Whether bounds show that the target wins on all strings that the allowed options make."""
        path, self.allowed = self.space.path(edits), allowed
        self.e = self.weights(path)
        share = self.e.mid[path] / self.e.mid[path].sum(0)
        self.near = np.einsum("sn,sne->ne", share, self.net.v.mid[path])
        low, high = self.least(self.e.mid, self.e.rad), -self.least(-self.e.mid, self.e.rad)
        if low[0] == math.inf:
            return True  # there is no string
        ends = np.transpose([(1 - 4 * U) / high, (1 + 4 * U) / np.where(low > 0, low, math.nan)])
        self.ends = np.array(list(itertools.product(*ends)))  # [2^heads, heads] of 1 / Z
        self.wanted = self.margins(target)
        return bool((self.below(self.wanted, sign=True) > 0).all())

    def least(self, mid, rad):
        """No more than the least sum of costs on a path, ``[n]``; -∞ if a cost is not known."""
        off = self.space.additions * U / (1 - self.space.additions * U)
        low = mid - (rad + (abs(mid) + rad) * (off + 4 * U)) * GROW - base.TINY
        low = np.where(abs(low) < 1e240, low, -1e250)  # of what nothing is known
        found = self.space.walk(low, self.last, self.allowed)
        return np.where(found > -1e249, found, -math.inf)

    def below(self, y, sign=False):
        """A bound of each number from below, of which only the sign may be asked for."""
        at = np.einsum("kne,ne->kn", y.slope.mid, self.near)
        if sign and at.shape[1] == 1:
            at = -y.rest.mid[:, None]
        (n_symbols, heads), found = self.e.mid.shape, []
        step = max(1, MOST // (len(self.ends) * (n_symbols * heads + self.space.size)))
        for first in range(0, len(at), step):
            here = slice(first, first + step)
            r = dot("sne,kne->skn", self.net.v, y.slope[here]) + Enclosure(-at[here])
            costs = dot("skn,pn->skp", r * self.e[:, None], self.ends)
            least = self.least(*(x.reshape(n_symbols, -1) for x in (costs.mid, costs.rad)))
            found.append(least.reshape(-1, len(self.ends)).min(1))
        middle = y.rest + dot("kn,n->k", at, np.ones(heads))
        return (middle + Enclosure(np.concatenate(found))).low

    def range(self, y):
        """Bounds of numbers, and what they are near the string that is named."""
        at = np.einsum("kne,ne->k", y.slope.mid, self.near) + y.rest.mid
        return self.below(y), -self.below(y.times(Enclosure(np.full(len(at), -1.0)))), at

    def norm(self, x, more):
        """For u = P x: u, what it is near, how far from there it is at most; √(|u|² + more)."""
        u = x.into(base.centred(Enclosure(np.eye(len(x.rest.mid)))))
        low, high, at = self.range(u)
        moved, size = np.maximum(high - at, at - low), np.sqrt((at**2).sum() + more) * (1 + 1e-12)
        gap = ((moved**2).sum() + 1e-11 * size**2) / (2 * size) * GROW
        tangent = u.into(at[:, None] / size).plus(Enclosure([more / size]))
        return u, at, moved, tangent.plus(Enclosure(gap / 2, gap / 2))

    def divided(self, x, more, floor=0.0):
        """P x / √(|P x|² + more), or over the floor if that is larger."""
        u, at, moved, size = self.norm(x, more)
        (low,), (high,), (near,) = self.range(size)
        slope = -1 / near**2 if low > floor else 0.0  # of a tangent of 1 / size
        low, high = np.maximum((low, high), floor)
        least = 2 * np.sqrt(-slope) if slope else 1 / high
        most = max(1 / low - slope * low, 1 / high - slope * high)
        off = (most - least) / 2 * GROW + 8 * U * most
        over = size.times(Enclosure([slope])).plus(Enclosure((most + least) / 2, off))
        y = 2 / (low + high)
        off = max(1 / low - y, y - 1 / high) * GROW + 4 * U / low
        rest = Enclosure(at) * Enclosure(-y) + Enclosure(0 * at, moved * off)
        return (u.times(Enclosure(np.full(len(at), y))) + over.into(at[None])).plus(rest)

    def activated(self, p):
        """ReLU or GELU of numbers."""
        low, high, at = self.range(p)
        if self.net.c["act_fn"] == "relu":
            slope = np.where(low >= 0, 1.0, np.clip(high / (high - low), 0, 1) * (high > 0))
            most = np.maximum(-slope * low, (1 - slope) * high) * (1 + 8 * U)
            return p.times(Enclosure(slope)).plus(Enclosure(most / 2, most / 2 * GROW))
        at = np.nan_to_num(np.clip(at, low, high))
        nearest = np.where(low * high > 0, np.minimum(abs(low), abs(high)), 0.0)
        bend = np.exp(-(nearest**2) / 2) * float(ROOT) * abs(2 - nearest**2)
        bend = np.where(nearest < 2, np.maximum(bend, 0.108), bend) * GROW  # |GELU''| from there on
        moved = np.maximum(high - at, at - low)
        value, slope = gelu(at)
        rest = value + slope * Enclosure(-at) + Enclosure(0 * at, bend * moved**2 / 2 * GROW)
        return p.times(slope).plus(rest)

    def margins(self, target):
        """The target's logit minus each other, times a positive number."""
        c, w, n = self.net.c, self.net.w, len(self.r.mid)
        w_o = (np.moveaxis(side, 2, 0) for side in (w["W_O"].mid, w["W_O"].rad))
        x = Affine(Enclosure(*w_o), w["b_O"])
        wide = root(Enclosure(float(n))) * Enclosure(np.ones(n))
        x = self.divided(x, 0.0, c["ln_c"]) if c["ln_c"] else x
        x = x.plus(self.r) if c["residual"] else x
        x = self.divided(x, 0.0, c["ln_mid"]) if c["ln_mid"] else x
        if c["act_fn"]:
            y = self.divided(x, n * c["eps"]).times(wide) if c["ln2"] else x
            y = y.times(w["ln2_w"]).plus(w["ln2_b"]) if c["ln2"] == "ln" else y
            y = self.activated(y.into(w["W_in"]).plus(w["b_in"]))
            x = x + y.into(w["W_out"]).plus(w["b_out"])
        others = np.arange(len(w["b_U"].mid)) != target
        towards = w["W_U"][:, [target]] - w["W_U"][:, others]
        bias = w["b_U"][[target]] - w["b_U"][others]
        if not c["ln_final"]:
            return x.into(towards).plus(bias)
        u, _, _, size = self.norm(x, n * c["eps"])
        u = u.times(wide)
        if c["ln_final"] == "ln":
            u, bias = u.times(w["ln_final_w"]), bias + dot("d,dk->k", w["ln_final_b"], towards)
        return u.into(towards) + size.into(bias[None])


def says(facts, space):
    """What a proof proves, as a sentence."""
    zero = np.zeros((len(space.symbols[0]), 1), dtype=object)
    (n,) = space.walk(zero, zero, space.all, np.add, 1, 0)
    kinds = [kind for kind, *_ in facts["rewrites"]]
    edits = ", ".join(
        f"{name} {budget} of {kinds.count(kind)}"
        for kind, (name, budget) in enumerate(zip(facts["names"], facts["budgets"], strict=True))
    )
    texts = dict(zip(facts["tokens"], facts["texts"] or map(str, facts["tokens"]), strict=True))
    between = facts["config"]["separator"]
    text = (" " if between is None else between).join(texts[token] for token in facts["string"])
    logit = str(facts["target"])
    if facts["texts"] and facts["names_logits"]:
        logit += f" ({texts[facts['target']]!r})"
    ways = f"{n:,} ways of editing {text!r} ({edits} at most)"
    return f"logit {logit} is the largest after each of {ways}"


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    trees, weights = arrays.pop("trees"), arrays
    net, target = OneLayer(facts["config"], weights, facts["tokens"]), facts["target"]
    space = Space(facts, net)
    if type(target) is not int or not 0 <= target < net.n_logits:
        raise ProofError("its target is no logit")
    net.tabulate(*space.symbols)
    nodes = iter(trees.ravel().tolist())
    for last in space.ends():
        group, todo = SameEnd(space, net, last), [space.all]
        while todo:
            allowed, step = todo.pop(), next(nodes)
            if step == BOUND:
                edits = [next(nodes) for _ in range(next(nodes))]
                if not group.settled(target, allowed, edits):
                    raise ProofError(f"not settled: strings that end with symbol {last}")
            else:
                todo += space.parted(allowed, step, next(nodes))[::-1]
    if next(nodes, None) is not None:
        raise ProofError("it has trees of no group")
    return says(facts, space)
