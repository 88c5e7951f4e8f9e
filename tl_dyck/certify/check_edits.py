"""Check a proof that a one-layer decoder keeps its prediction on every edit of a string.

Copy two files, this one and ``check_language.py``; they need numpy and search nothing: ``python
check_edits.py FILE …``. What it knows of paths `check_automaton` uses, too.

*What is proved.* The file has a string x, a list of rewritings (what becomes of the ``span`` tokens
at a place; span 0 inserts there) of some kinds, and how many of each kind are allowed. Of disjoint
spans, and with at most one insertion at a gap, which must not lie inside a rewritten span, each
choice makes a string, after BOS if there is one. On all of them the target has the largest logit.

*The network* (Zhang et al., arXiv 2405.17361). A symbol s is a token with its position, its depth
of brackets, both or neither. After symbols that end with s' head h returns o_h = Σ E_hs v_hs / Z_h,
Z_h = Σ E_hs, E_hs = exp(q_h(s')·k_hs) up to a common factor. Then W_O, LN_C (Eq. 7 of Wen et al.
2023) or none, the residual or not, LN_C or none, an MLP (ReLU, GELU, its form with tanh, SiLU)
behind a norm or none, a norm or none, the unembedding.

*Covering.* Cut x into levels, two a token: before its gap, behind it. An option (keep a token,
leave a gap, rewrite) leads from a level to a later one, and from states to states: what is spent,
how far places and depths have moved. Strings are paths of options. Each passes every step from a
level to the next inside exactly one option. So if the options over a step are parted in two, each
path is in one part. The file has for each last symbol a tree in preorder: the pair (step, j) parts
the options over that step into those before the j-th and the rest; a leaf says that the bound
settles its part, and names options of a string near whose values it is taken.

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
import sys
from decimal import Decimal, localcontext

import numpy as np

if __package__:
    from tl_dyck.certify import check_language as base
else:  # copied out
    import check_language as base

Enclosure, need, dot, GROW, U = base.Enclosure, base.need, base.dot, base.GROW, base.U
# CALL is a step of numpy; GELU what one number costs by series in `decimal`, in nanoseconds or so
WORK, CALL, GELU = base.WORK, base.CALL, 120_000  # of `decimal`
# the two before: without leaves of lists; without leaves of rays
FORMAT, BEFORE = "tl_dyck.edits/4", ("tl_dyck.edits/3", "tl_dyck.edits/2")
# trees are 16-bit words: the three largest are no node, but leaves whose bounds are of outputs, of
# rays, or of each string by itself; at most so many strings
BOUND, RAYS, LIST, LISTED = 2**16 - 1, 2**16 - 2, 2**16 - 3, 10_000
MOST = 2**22  # numbers held at once: 32 MiB of float64
# leaves side by side, so that they share calls of numpy; numbers that are worked on at once, 0.5 MB
PARTS, CACHE = 16, 2**16
AXES = {"W_O": "ned", "b_O": "d", "W_U": "do", "b_U": "o"}
AXES |= {f"W_{x}": "nde" for x in "QKV"} | {f"b_{x}": "ne" for x in "QKV"}
# 2^heads choices of the divisors Z are tried in each bound: with eight heads 256
NORMS, HEADS = ("ln1", "ln2", "ln_final"), 8
CONFIG = ("state", "act_fn", "ln_c", "ln_mid", "residual", "attn_scale", "eps", "n_types")
CONFIG += ("max_depth", "bos_token", "n_ctx", "separator", *NORMS)
# the least of each, and its types; 1e-300 for "positive", since a divisor of 0 bounds nothing
NUMBERS = dict.fromkeys(("attn_scale", "ln_c", "ln_mid"), (1e-300, (int, float)))
NUMBERS |= dict.fromkeys(("n_types", "max_depth", "n_ctx"), (1, (int,)))
NUMBERS |= {"bos_token": (0, (int,)), "eps": (0, (int, float))}
ROOT = Decimal("0.39894228040143267793994605993438186847585863116493")  # 1 / √(2π)
CUBIC = Decimal("0.044715")  # of the form with tanh, whose z is 4 ROOT (x + CUBIC x³)


def root(x):
    """√x, where x is not negative."""
    # what is squared is not negative, so that an enclosure that reaches below 0 may be cut there
    low, high = np.sqrt(np.maximum(x.low, 0)), np.sqrt(x.high)
    # 4 u: the two roots are rounded, and so are the middle and half the width
    return Enclosure((low + high) / 2, (high - low) / 2 * GROW + 4 * U * high)


def centre(n):
    """P: the mean taken away, ``[n, n]``."""
    WORK.spend(0, n * n)
    # 1 / n and its difference from 1 are both rounded, each by at most u
    return Enclosure(np.eye(n) - 1 / n, 2 * U)


def inverse(x):
    """1 / x, not finite where x may be 0."""
    # nan, not inf: no comparison with it is true, so that nothing is settled by it
    low, high = 1 / x.high, 1 / np.where(x.low > 0, x.low, math.nan)
    return Enclosure((low + high) / 2, (high - low) / 2 * GROW + 4 * U * high)


def gelu(x):
    """GELU and its slope: x Φ(x), Φ(x) + x φ(x); Φ - 1/2 = φ (x + x³/3 + x⁵/15 + …)."""
    density = (-x * x / 2).exp() * ROOT
    term, total, n = x, Decimal(0), 1
    # terms are of one sign and shrink once n > x²: those below 1e-45 are lost in the error below
    while abs(x) < 13 and abs(term) > Decimal("1e-45"):
        total, n = total + term, n + 2
        term = term * x * x / n
    # 1 - Φ(13) = 6e-39: beyond, x Φ(x) is x or 0 up to less than that error
    below = Decimal("0.5") + density * total if abs(x) < 13 else Decimal(int(x > 0))
    return float(x * below), float(below + x * density)


def gated(x, z, slope):
    """Of x / (1 + exp(-z)) the value and the slope: s + x s (1 - s) z', s = 1 / (1 + exp(-z))."""
    # exp(-100) = 4e-44: beyond, s is 1 or 0 up to less than the error below
    share = 1 / (1 + (-z).exp()) if abs(z) < 100 else Decimal(int(z > 0))
    return float(x * share), float(share + x * share * (1 - share) * slope)


def silu(x):
    """SiLU and its slope."""
    return gated(x, x, 1)


def gelu_new(x):
    """GELU's form with tanh, and its slope."""
    return gated(x, 4 * ROOT * (x + CUBIC * x**3), 4 * ROOT * (1 + 3 * CUBIC * x * x))


def smooth(x, known, act_fn):
    """A curve and its slope at numbers; what is found is known from then on."""
    new = {*x.tolist()} - known.keys()
    WORK.spend(GELU * len(new), len(known) + len(new))
    with localcontext() as context:
        # digits: far more than a float64's 17, since 1/2 + φ · series cancels where x is negative
        context.prec = 50
        for number in new:
            known[number] = CURVES[act_fn][0](Decimal(number))
    # of the series and of the tail; the 2 u is the rounding from decimals to float64
    error = 1e-30 * (1 + abs(x))
    found = np.array([known[each] for each in x.tolist()]).reshape(-1, 2).T
    return [Enclosure(y, 2 * U * abs(y) + error) for y in found]


def gelu_bends(x):
    """The most of |GELU''| at numbers whose absolute value is x or more."""
    # φ(x) (2 - x²): falls in |x| to 0 at √2, is negative beyond, and least at |x| = 2
    bend = np.exp(-(x**2) / 2) * float(ROOT) * abs(2 - x**2)
    # 0.108 ≥ |GELU''(2)| = 2 φ(2) = 0.10798…, the height of that second hill
    return np.where(x < 2, np.maximum(bend, 0.108), bend)


def gated_bends(x, z, first, second):
    """Of x / (1 + exp(-z)) the size of the second derivative, of z' and z''."""
    # s (1 - s) (2 z' + x z'' - x z'² (2 s - 1))
    e = np.exp(-z)
    return e / (1 + e) ** 2 * abs(2 * first + x * second - x * first**2 * (1 - e) / (1 + e))


def gelu_new_bends(x):
    """The same of its form with tanh."""
    c, cubic = 4 * float(ROOT), float(CUBIC)
    z, first, second = c * (x + cubic * x**3), c * (1 + 3 * cubic * x**2), 6 * c * cubic * x
    bend = gated_bends(x, z, first, second)
    # falls to 0 at 1.42, is negative beyond, least at 2.0135…: 0.108 ≥ 0.107913…
    return np.where(x < 2.02, np.maximum(bend, 0.108), bend)


def silu_bends(x):
    """The same of SiLU."""
    bend = gated_bends(x, x, 1.0, 0.0)
    # falls to 0 at 2.4, is negative beyond, least at 3.4358…
    # 0.037 ≥ 0.036914…, the height of that second hill
    return np.where(x < 3.44, np.maximum(bend, 0.037), bend)


# what an activation is, how much it bends, and the most of its slope's size: |GELU'| is largest at
# √2: Φ(√2) + √2 φ(√2) = 1.1289; with tanh at 1.4185: 1.1290; |SiLU'| at 2.3994: 1.0998. No other
# is known, by whatever name
CURVES = {
    "gelu": (gelu, gelu_bends, 1.13),
    "gelu_new": (gelu_new, gelu_new_bends, 1.13),
    "silu": (silu, silu_bends, 1.13),
}
ACTIVATIONS = (None, "relu", *CURVES)


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
            # "lnpre" normalises without a scale and a bias of its own
            axes |= {f"{name}_w": "d", f"{name}_b": "d"} if config[name] == "ln" else {}
        WORK.spend(0, sum(array.size for array in weights.values()))
        need(axes.keys() == weights.keys(), "its weights are not those of its network")
        sizes = {x: n for y in axes for x, n in zip(axes[y], weights[y].shape, strict=True)}
        fits = all(weights[y].shape == tuple(sizes[x] for x in axes[y]) for y in axes)
        # W_E has a row for each depth from 0 to D
        fits &= sizes.get("l", 1) == (config["max_depth"] or 0) + 1
        fits &= sizes["t"] == len(self.rows) == len(tokens)
        fits &= max(sizes[x] for x in "nde") <= base.LARGEST
        need(fits, "its weights do not fit together, or are too many")
        depth = "depth" in config["state"]
        known = config["state"] in ("none", "position", "depth", "position+depth")
        known &= all(config[name] in (None, "ln", "lnpre") for name in NORMS)
        known &= config["act_fn"] in ACTIVATIONS and type(config["residual"]) is bool
        known &= depth == bool(config["n_types"]) == bool(config["max_depth"])
        for name, (least, kinds) in NUMBERS.items():
            value = config[name]
            # `type`, not `isinstance`: True is an int to the latter
            known &= value is None or (type(value) in kinds and least <= value < 1e9)
        bos, brackets = config["bos_token"], 2 * (config["n_types"] or 0)
        known = known and (bos is None or bos >= brackets)  # else BOS would be a bracket
        need(known, "its network is of another kind")
        need(all(np.isfinite(x).all() for x in weights.values()), "a weight is not finite")
        self.w = {name: Enclosure(array) for name, array in weights.items()}
        self.n_logits, self.n_heads, self.curve = sizes["o"], sizes["n"], {}

    def tabulate(self, tokens, positions, depths):
        """Queries, keys, values and residual streams of symbols."""
        w, rows = self.w, np.array([self.rows[token] for token in tokens.tolist()])
        self.r = w["W_E"][(rows, depths) if "depth" in self.c["state"] else rows]
        if "W_pos" in w:
            self.r = self.r + w["W_pos"][positions]
        x = self.r
        if self.c["ln1"]:
            x = dot("sd,de->se", x, centre(x.mid.shape[1]))
            square = dot("sd,sd->s", x, x) * inverse(Enclosure(float(x.mid.shape[1])))
            x = x * inverse(root(square + Enclosure(self.c["eps"])))[:, None]
            x = x * w["ln1_w"] + w["ln1_b"] if self.c["ln1"] == "ln" else x
        q, self.k, self.v = (dot("sd,nde->sne", x, w[f"W_{y}"]) + w[f"b_{y}"] for y in "QKV")
        # scores are q·k / attn_scale; dividing q once spares every pair
        self.q = q * inverse(Enclosure(self.c["attn_scale"]))
        self.rays = None


def wins(target, n):
    """What is positive if a logit of n is the largest: rows of factors of logits, and constants."""
    WORK.spend(0, n * n)
    # [rival, logit]: +1 at the target, -1 at the rival
    rows = np.delete((np.arange(n) == target) - np.eye(n), target, axis=0)
    return rows, np.zeros(len(rows))


class Step:
    """What may be done from a level to a later one, and to which state it leads from which."""

    def __init__(self, source, target, emits, came, to, kind=-1):
        WORK.spend(CALL + 500 * len(came))
        self.source, self.target, self.emits, self.kind = source, target, emits, kind
        order = np.argsort(to, kind="stable")
        self.came, self.to = (np.array(each, dtype=int)[order] for each in (came, to))


class Paths:
    """Strings as paths of options."""

    order = None  # in which places are read, if it is not their own
    lists = False  # whether its trees may have leaves that list strings

    @classmethod
    def parts(cls, facts, network):
        """What a file is about, one after the other."""
        yield cls(facts, network)

    def lay_out(self, options, size, origin, n_levels):
        """Number the symbols: token, position and depth."""
        self.options, self.size, self.origin, rows = options, size, origin, {}
        self.n_levels, self.all = n_levels, np.ones(len(options), dtype=bool)
        # options stand in order of their source: so those of a level stand together
        ends = [(each.source, each.target) for each in options]
        self.source, self.target = np.array(ends, dtype=int).reshape(-1, 2).T
        # no path adds up more numbers; what `least` allows for their rounding grows with it
        # each option once at most; 4 for the products and sums that a cost itself was made by
        self.additions = 4 * sum(len(each.emits) + 1 for each in options)
        bos, positions = self.c["bos_token"], "position" in self.c["state"]
        self.start = None if bos is None else rows.setdefault((bos, 0, 0), len(rows))
        for option in options:
            WORK.spend(CALL + 500 * len(option.came) * len(option.emits), len(rows))
            places, before = self.before(option)
            option.index = np.zeros((len(option.emits), len(places)), dtype=int)
            for j, token in enumerate(option.emits):
                # the position of the j-th token that is emitted; BOS has position 0, and shifts the
                # others
                p, q = places + j + (bos is not None), 0 * places
                if self.depth([token]):  # of opening brackets from 1 to D on, of others one less
                    q, closes = before + self.depth(option.emits[: j + 1]), token % 2
                    q = np.clip(q, 1 - closes, self.c["max_depth"] - closes)
                p = np.clip(p, 0, self.c["n_ctx"] - 1) * positions  # no string is longer
                seen = zip(p.tolist(), q.tolist(), strict=True)
                option.index[j] = [rows.setdefault((token, *each), len(rows)) for each in seen]
        # 3: token, position, depth
        self.symbols = np.array(list(rows), dtype=int).reshape(-1, 3).T
        self.arcs = self.by_level()

    def by_level(self):
        """Arcs to each level: whence, where, of what option, the last symbol or -1, symbols, runs.

        A node is 2 (level · size + state); 1 more where the string has ended, so that it emits
        nothing more. A run is of arcs to one node, and begins where it is said.
        """
        none, most = len(self.symbols[0]), max((len(x.emits) for x in self.options), default=0)
        n = 2 * sum(len(each.came) for each in self.options)
        WORK.spend(2 * CALL * len(self.options) + 200 * n * (5 + most), n * (5 + most))
        found = [np.zeros((4 + most, 0), dtype=int)]
        for i, option in enumerate(self.options):
            source = 2 * (option.source * self.size + option.came)
            target = 2 * (option.target * self.size + option.to)
            # symbols in rows, as many as the most that is emitted at once; `none` costs nothing
            table = np.full((4 + most, len(source)), none)
            table[:3], table[3] = [source, target, 0 * source + i], -1
            table[4 : 4 + len(option.emits)] = option.index
            ending = table.copy()
            ending[1] += 1
            if option.emits:  # what is emitted last decides with which symbol a string ends
                ending[3] = option.index[-1]
            else:
                ending[0] += 1
            found += [table, ending]
        table = np.concatenate(found, axis=1)
        table = table[:, np.argsort(table[1], kind="stable")]
        levels = np.arange(1, self.n_levels) * 2 * self.size
        parts = np.split(table, np.searchsorted(table[1], levels), axis=1)
        return [(*part[:4], part[4:], runs(part[1])) for part in parts]

    def depth(self, tokens):
        """What tokens add to the depth, if the network counts it."""
        brackets = 2 * (self.c["n_types"] or 0)
        return sum(1 - 2 * (token % 2) for token in tokens if token < brackets)

    def ends(self):
        """Symbols that a string may end with."""
        n = sum(len(source) for source, *_ in self.arcs)
        WORK.spend(CALL * len(self.arcs) + 50 * n, 2 * self.n_levels * self.size)
        live, found = np.zeros((self.n_levels, self.size, 2), dtype=bool), set()
        # 1: where the string has ended
        live[-1, :, 1] = self.finals
        live = live.ravel()
        # backwards, through what may follow the last token
        # arcs[0] are none: nothing leads to the first level
        for source, target, _, ended, *_ in self.arcs[self.n_levels - 1 : 0 : -1]:
            on = live[target]
            found.update(ended[on].tolist())
            live[source[on & (ended < 0)]] = True
        if self.start is not None and live[2 * self.origin + 1]:
            found.add(self.start)
        return sorted(found - {-1})

    def ways(self):
        """How many strings there are, as often as they are made."""
        counts = self.counts(self.all)
        return sum(counts[self.n_levels - 1][self.finals].sum() for _ in self.questions())

    def counts(self, allowed):
        """How many strings of allowed options end in each state of each level."""
        # integers of Python are slow, and grow by some bits a level
        levels, n = len(self.arcs), sum(len(source) for source, *_ in self.arcs)
        WORK.spend(CALL * levels + (200 + levels // 4) * n, 4 * levels * self.size)
        ways = np.zeros(2 * levels * self.size, dtype=object)
        ways[2 * self.origin] = 1
        # BOS alone is a string, too, that ends with BOS
        ways[2 * self.origin + 1] = int(self.start is not None)
        for source, target, option, _, _, first in self.arcs:
            if len(first):
                ways[target[first]] = np.add.reduceat(ways[source] * allowed[option], first)
        # odd nodes: the string has ended
        return ways[1::2].reshape(levels, self.size)

    def parted(self, allowed, step, j):
        """Allowed options in two: of those over a step the ones before the j-th, and the others."""
        over = (self.source <= step) & (step < self.target)
        before = np.arange(len(over)) < j
        # options not over the step stay in both parts: each path takes exactly one that is over it
        return [allowed & ~(over & ~before), allowed & ~(over & before)]

    def asks(self, target, n):
        """What is positive where a target, of n logits, is answered: rows and constants."""
        need(type(target) is int and 0 <= target < n, "its target is no logit")
        return wins(target, n)

    def path(self, named):
        """Symbols of a string of options that are named, or else first of their level."""
        WORK.spend(self.n_levels * (CALL + len(self.options)))
        level, state, found = 0, self.origin, [] if self.start is None else [self.start]
        first = np.searchsorted(self.source, np.arange(self.n_levels)).tolist()
        while level < self.n_levels - 1:
            here = range(*first[level : level + 2])
            # any string will do: the bound holds wherever it is taken, and is only less tight
            # elsewhere
            option = self.options[next((i for i in here if i in named), here[0])]
            (at,) = np.flatnonzero(option.came == state)
            found += option.index[:, at].tolist()
            level, state = option.target, option.to[at]
        return found

    def walks(self, parts):
        """The paths of parts."""
        return PartWalks(self, parts)

    def at_once(self):
        """How many leaves are checked side by side: few enough for the memory that they take."""
        width = 2 * self.size * self.n_levels + sum(len(source) for source, *_ in self.arcs)
        # a quarter: four arrays of that width are held at once
        return max(1, min(PARTS, MOST // 4 // width))


def runs(numbers):
    """Where runs of equal numbers begin."""
    return np.flatnonzero(np.diff(numbers, prepend=-1))


class PartWalks:
    """The paths of parts, side by side, through what is on some path of a part alone."""

    def __init__(self, space, parts):
        n, size, last = len(parts), space.size, np.array([[part.group.last] for part in parts])
        allowed, arcs = np.array([part.allowed for part in parts]), space.arcs[1 : space.n_levels]
        # 2: each state before and after the string's end
        nodes, width = 2 * size * space.n_levels, sum(len(source) for source, *_ in arcs)
        WORK.spend(CALL * len(arcs) + 20 * n * (nodes + width), n * (nodes + width))
        # [part, node]: what a path comes to, then what of that it also leads on from to the end
        reached = np.zeros((n, nodes), dtype=bool)
        start = 2 * space.origin + np.arange(2)
        # BOS alone is a string, too, that ends with BOS
        reached[:, start] = np.concatenate([last == last, last == space.start], axis=1)
        may = []
        for source, target, option, ended, _, first in arcs:
            may.append(reached[:, source] & allowed[:, option] & ((ended < 0) | (ended == last)))
            if len(first):
                reached[:, target[first]] = np.logical_or.reduceat(may[-1], first, axis=1)
        # of the last level the odd ones
        ends = nodes - 2 * size + 2 * np.arange(size) + 1
        live = np.zeros_like(reached)
        live[:, ends] = reached[:, ends] & [part.finals for part in parts]
        on = []
        for (source, target, *_), each in zip(arcs[::-1], may[::-1], strict=True):
            part, arc = np.nonzero(each & live[:, target])
            live[part, source[arc]] = True
            on.append((part, arc))
        # nodes are numbered in the order in which paths come to them
        number = np.zeros(reached.shape, dtype=int)
        part, at = np.nonzero(live[:, start])
        number[part, start[at]] = np.arange(len(part))
        # a row of costs for each part and symbol, and for each part one more, of 0
        self.rows = 1 + len(space.symbols[0])
        self.origins = part * self.rows + (self.rows - 1 if space.start is None else space.start)
        self.steps, self.size = [], len(part)
        steps = zip(arcs, on[::-1], strict=True)
        for (source, target, option, _, symbols, _), (part, arc) in steps:
            if len(arc):
                first = runs(part * nodes + target[arc])
                number[part[first], target[arc[first]]] = self.size + np.arange(len(first))
                rows = part * self.rows + symbols[:, arc]
                came = number[part, source[arc]]
                self.steps.append((self.size, came, rows, first, part, option[arc]))
                self.size += len(first)
        self.part, at = np.nonzero(live[:, ends])
        self.ends = number[self.part, ends[at]]

    def least(self, costs):
        """The least sum of costs of symbols, ``[part, symbol, n]``, on a path of each part."""
        parts, _, n = costs.shape
        most = max((len(came) for _, came, *_ in self.steps), default=0)
        # a step takes what came, and adds a cost for each token that an option emits
        moves = sum((1 + len(rows)) * len(came) for _, came, rows, *_ in self.steps)
        WORK.spend(CALL * len(self.steps) + 4 * n * moves, n * (self.size + 2 * most))
        # the last row of a part is 0: what is emitted where nothing is
        self.costs = np.concatenate([costs, np.zeros((parts, 1, n))], axis=1).reshape(-1, n)
        self.sums, room = np.empty((self.size, n)), np.empty((2, most, n))
        self.sums[: len(self.origins)] = self.costs[self.origins]
        for at, came, rows, first, *_ in self.steps:
            # "clip" looks at no index: all are there; so it is quicker into room that is there, too
            going, more = room[:, : len(came)]
            self.sums.take(came, 0, going, "clip")
            for row in rows:
                going += self.costs.take(row, 0, more, "clip")
            np.minimum.reduceat(going, first, out=self.sums[at : at + len(first)])
        found, first = np.full((parts, n), math.inf), runs(self.part)
        if len(first):
            found[self.part[first]] = np.minimum.reduceat(self.sums[self.ends], first)
        return found

    def strings(self, most):
        """Every path of the only part, as symbols; ProofError if there are more."""
        # how many come to each node; from every node some lead on to the end, so that none has more
        counts = np.ones(self.size)
        for at, came, _, first, *_ in self.steps:
            counts[at : at + len(first)] = np.add.reduceat(counts[came], first)
        n = counts[self.ends].sum()
        need(n <= most, f"it lists more than {most:,} strings")
        WORK.spend(n * (CALL + 500 * len(self.steps)), n * len(self.steps) * len(self.steps))
        # nodes that are origins, then those of each step: what paths come to them emitted
        found = [[() if row == self.rows - 1 else (row,)] for row in self.origins.tolist()]
        for _, came, rows, first, *_ in self.steps:
            for start, end in itertools.pairwise([*first.tolist(), len(came)]):
                emitted = [(i, tuple(rows[:, i].tolist())) for i in range(start, end)]
                found.append([(*path, *new) for i, new in emitted for path in found[came[i]]])
        every = [path for end in self.ends.tolist() for path in found[end]]
        return [[each for each in path if each < self.rows - 1] for path in every]


class Edits(Paths):
    """The edits of a string; a state is the budget spent, and how far places and depths moved."""

    formats = FORMAT, *BEFORE
    lists = True

    def __init__(self, facts, network):
        self.x, self.budgets, kinds = facts["string"], facts["budgets"], len(facts["budgets"])
        self.network, self.c, self.asked = network, network.c, facts["target"]
        listed = sorted(self.listed(facts["rewrites"]), key=lambda option: option[0])
        counted = np.array(["position" in self.c["state"], 1])
        depths = itertools.accumulate([self.depth([token]) for token in self.x], initial=0)
        # [gap, (place, depth)] in the original string; places count only where positions do
        self.at = np.array([*enumerate(depths)]) * counted
        moves = [
            # how far an edit moves all behind it: what it emits less what it replaces
            (len(emits), self.depth(emits)) * counted + self.at[start // 2] - self.at[end // 2]
            for start, end, _, emits in listed
        ]
        # the last of kinds + 1 is that of keeping, -1 by index, which moves nothing
        most = np.zeros((2, kinds + 1, 2), dtype=int)  # down and up, by an edit of each kind
        for move, (_, _, kind, _) in zip(moves, listed, strict=True):
            most[:, kind] = np.maximum(most[:, kind], [-move, move])
        # as if each edit of the budget moved most: states beyond cannot be reached
        down, up = np.einsum("wkm,k->wm", most, [*self.budgets, 0])
        shape = (*(budget + 1 for budget in self.budgets), *(down + up + 1).tolist())
        # the state of no edit: nothing spent; moves are counted from `down`, so that none is
        # negative
        self.zero, size = (*[0] * kinds, *down.tolist()), math.prod(shape)
        longest = len(self.x) + (self.c["bos_token"] is not None) + up[0]
        # arcs of edits, or nodes: two levels a token, each before and after the end
        fits = size * max(len(listed), 4 * (len(self.x) + 1)) <= MOST
        fits &= not counted[0] or longest <= self.c["n_ctx"]
        need(fits, "its space is too large, or its strings are too long")
        WORK.spend(len(listed) * (2 * CALL + 60 * size), len(shape) * size)
        self.states, options = np.indices(shape).reshape(len(shape), -1).T, []
        for (source, target, kind, emits), move in zip(listed, moves, strict=True):
            spent = [int(each == kind) for each in range(kinds)]
            to = self.states + np.array([*spent, *move])
            # what leaves the grid spends more than its budget, or starts where no path comes
            here = np.flatnonzero(((to >= 0) & (to < shape)).all(1))
            to = np.ravel_multi_index(to[here].T, shape)
            options.append(Step(source, target, emits, here, to, kind))
        # 2 i before gap i, 2 i + 1 behind it, for the n + 1 gaps
        levels = 2 * len(self.x) + 2
        self.lay_out(options, size, int(np.ravel_multi_index(self.zero, shape)), levels)
        self.finals = np.ones(size, dtype=bool)

    def questions(self):
        """The target."""
        yield self.asked

    def before(self, option):
        """How many tokens stand before an option, and the depth there, from each state."""
        return (self.at[option.source // 2] + self.states[option.came, -2:] - self.zero[-2:]).T

    def says(self, facts, ways):
        """What a proof proves, as a sentence."""
        kinds = [kind for kind, *_ in facts["rewrites"]]
        edits = ", ".join(
            f"{budget} of {kinds.count(kind)} called {name!r:.40}"
            for kind, (name, budget) in enumerate(zip(facts["names"], self.budgets, strict=True))
        )
        texts = dict(zip(facts["tokens"], facts["texts"] or map(str, facts["tokens"]), strict=True))
        between = facts["config"]["separator"]
        text = (" " if between is None else between).join(texts[token] for token in self.x)
        logit = str(self.asked)
        if facts["texts"] and facts["names_logits"]:
            logit += f" ({texts[self.asked]!r})"
        called = f"a string {'called ' * bool(facts['texts'])}{text!r} (at most {edits})"
        return f"logit {logit} is the largest after each of {ways:,} ways of editing {called}"

    def listed(self, rewrites):
        """Options: the level that each starts from, the one it leads to, its kind, its tokens."""
        n, kinds = len(self.x), range(len(self.budgets))
        words = [*self.x, *itertools.chain(*(emits for *_, emits in rewrites))]
        # a node's number, and an option's, has to stay below BOUND: there are 2 n + 1 options
        # beside edits
        # 8 kinds: the grid of states has an axis for each
        few = max(n, len(rewrites), len(words)) <= BOUND // 4 and len(self.budgets) <= 8
        need(few, "it has too many rewritings")
        known = all(type(y) is int and y in self.network.rows for y in words)
        need(known, "a token is none of the network's")
        numbers = all(type(y) is int and 0 <= y <= n + 1 for y in self.budgets)
        need(numbers, "a budget is no number of edits")
        # leave gap i; then keep token i
        yield from ((2 * i, 2 * i + 1, -1, ()) for i in range(n + 1))
        yield from ((2 * i + 1, 2 * i + 2, -1, (token,)) for i, token in enumerate(self.x))
        for kind, start, span, emits in rewrites:
            stands = kind in kinds and 0 <= start <= start + span <= n
            need(stands, "a rewriting is of no kind or place")
            # an insertion leads from before its gap (2 s) to behind it (2 s + 1); a span from
            # behind its gap to
            # before the gap at its end, where something may still be inserted
            yield 2 * start + (span > 0), 2 * (start + span) + (span == 0), kind, (*emits,)


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
            y = self.activated(y.into(w["W_in"]).plus(w["b_in"]))
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


def check(facts, arrays, kind=Edits):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    need(facts["format"] in kind.formats, f"not of format {kind.formats[0]}")
    weights = {name: array for name, array in arrays.items() if name != "trees"}
    net, nodes = OneLayer(facts["config"], weights, facts["tokens"]), iter(arrays["trees"].tolist())
    ways, leaves = 0, (arrays["trees"] >= LIST).sum()
    for space in kind.parts(facts, net):
        net.tabulate(*space.symbols)
        leaves = forest(space, nodes, leaves)
        ways += space.ways()
    need(next(nodes, None) is None, "it has trees of no group")
    return space.says(facts, ways)


def forest(space, nodes, leaves):
    """Check the trees of a space, which are next; how many leaves are still to be reckoned with."""
    net, groups, batch = space.network, {}, []
    for target in space.questions():
        asked = space.asks(target, net.n_logits)
        need(len(asked[0]), "nothing is asked: it has one logit, which has no rival")
        for last in space.ends():
            if last not in groups:
                WORK.spend(0, (len(groups) + 1) * len(space.symbols[0]) * net.n_heads)
                groups[last] = SameEnd(space, net, last)
            todo = [space.all]
            while todo:
                allowed, step = todo.pop(), next(nodes)
                WORK.spend(CALL)
                if step in (BOUND, RAYS) or (step == LIST and space.lists):
                    # a leaf: how many options it names, then these
                    named = {next(nodes) for _ in range(next(nodes))}
                    part = Part(groups[last], asked, allowed, space.finals, space.path(named))
                    batch.append((part, step))
                    if len(batch) >= space.at_once():
                        leaves, batch = settle(batch, leaves), []
                else:
                    # reversed, since the last is taken first: trees stand in preorder
                    todo += space.parted(allowed, step, next(nodes))[::-1]
        # the strings of the next question may have another length
        leaves, batch = settle(batch, leaves), []
    return leaves


def settle(batch, leaves):
    """Check leaves; how many are still to be reckoned with."""
    since = WORK.done
    for leaf in {leaf for _, leaf in batch}:
        parts = [part for part, its in batch if its == leaf]
        if leaf == LIST:
            settled = [not open_strings(part) for part in parts]
        else:
            settled = PartBounds(parts, leaf == RAYS).settled()
        for part, shown in zip(parts, settled, strict=True):
            need(bool(shown), f"not settled: strings that end with symbol {part.group.last}")
    if not batch:
        return leaves
    # the first ones say what all will cost about, before the others are begun; then no more
    WORK.repeat(max(0, leaves / len(batch) - 1), since)
    return 0


if __name__ == "__main__":
    sys.exit(base.main(how=check))
