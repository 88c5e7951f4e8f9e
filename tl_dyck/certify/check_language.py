"""Check what is claimed of a one-layer transformer on every prefix of a bounded Dyck language.

Copy this file alone; it needs numpy and searches nothing: ``python check_language.py FILE …``.

*What is proved.* Dyck(k, D) has brackets 2a (opens) and 2a + 1 (closes) of types a < k, nested at
most D deep; BOS is token 2k. One of `CLAIMS` holds after every prefix of up to N brackets that it
speaks of: a token that may win has a larger logit than all that must not.

*The model.* One layer, one head, no positions, no norm but LN_C. A symbol is a bracket with the
depth after it. With n_s how often symbol s occurs, E_s = exp(q·k_s) up to a common factor, q of the
last symbol, and r its embedding, attention sums u = Σ_s n_s E_s (W_O v_s + b_O) and Z = Σ_s n_s E_s
(with r in each term, if it is added before the norm), and gives u / Z, or P u / max(|P u|, C Z)
with LN_C (Wen et al. 2023, Eq. 7; P subtracts the mean). Then come r, if it is added after the
norm, an MLP with ReLU, the unembedding. Let ρ be the divisor. ρ times a difference of logits is
F = α(n) + c ρ + Σ_j V_j relu(β_j(n) + s_j ρ) with α, β linear: logits compare as its sign says.

*Theorem.* A prefix has a stack, perhaps a pair that its last bracket closes, and m_i ≥ 0 other
pairs of each level and type, i = k (level - 1) + type; n is linear in (1, m). So all prefixes of an
ending (a stack and a last pair, of n brackets together) are integer points of a box with Σ m ≤ M =
(N - n) / 2. The proof has for each ending a tree in preorder: a node i < 64 halves the box along
axis i, a node 64 + w says that the bound shows w to win on all of it. What no prefix has (Σ m > M,
pairs without a bracket around them) is cut off by one rule. So each prefix is in some leaf.

*Bound.* For any vector a and R ≥ |a|, |u| is at least a·u / R, and at most (|u|² + R²) / 2R, which
is a·u / R + (|u - a|² + R² - |a|²) / 2R; take for a what u is about at the centre of a box. So ρ is
linear but for a number in [0, e]. On [l, h] relu(p) is in s p + [0, t], s the slope of its chord.

*Work.* What is to be done is counted before it is done, in nanoseconds or so, and refused if it is
too much or makes too many numbers at once: no file keeps a machine busy, or takes its memory.

*Arithmetic.* Numbers are enclosed: a float64 and a radius; a box is its centre and radii. Sums,
products and roots are rounded correctly (IEEE 754); a sum of n products, in any order, fused or
not, is off by at most n u / (1 - n u) times the sum of their sizes, u = 2^-53. Exponentials are
`decimal`'s, rounded correctly. Radii grow by 1e-9 for their rounding, by 1e-300 for underflow.
"""

import argparse
import hashlib
import itertools
import json
import math
import os
import stat
import sys
import threading
from decimal import Context, Decimal

import numpy as np

# LEAF: nodes below are axes, those from it on winners; LARGEST: of any axis of a weight
FORMAT, LEAF, LARGEST, MOST_BYTES, MOST_FACTS = "tl_dyck.proof/4", 64, 4096, 2**26, 2**23
MOST_WORK, ROOM = 6e10, 12_000  # about a minute; how much of it allows for a number that is held
WHOLE = 50_000  # bytes of a file that may ask for all of it: a smaller one may for less
CALL, EXP = 30_000, 13_000  # of numpy with a few numbers, of `decimal`
# GROW: of sums of up to 10⁶ numbers, which every radius is; 40 digits: a float64 has 17, and scores
# below 1e9 leave 30 behind the point
U, GROW, TINY, DIGITS = 2.0**-53, 1 + 1e-9, 1e-300, Context(prec=40)
CLAIMS = {
    "any_token": "the bracket that closes the top of the stack has the largest logit of all tokens",
    "closing_only": "that bracket has the largest logit of all closing brackets",
    "valid_token": "the largest logit is that of a token that may follow",
    "named": "the largest logit is that of the token that the proof names",
}
OPEN = ("any_token", "closing_only")  # speak of prefixes that leave a bracket open
# 63: k D < LEAF. 1e9 keeps a float away from overflow, and is beyond any model.
MOST = {"n_types": 63, "max_depth": 63, "length": 1000, "floor": 1e9, "attn_scale": 1e9}
# axes of weights: symbols (BOS, two of each level and type), d_model, head, MLP, output
AXES = {"W_E": "sd", "W_O": "ed", "b_O": "d", "W_in": "dh", "b_in": "h", "W_out": "hd"}
AXES |= {"b_out": "d", "W_U": "do", "b_U": "o"}
AXES |= {f"W_{x}": "de" for x in "QKV"} | {f"b_{x}": "e" for x in "QKV"}


class ProofError(ValueError):
    """The file is no proof, or proves nothing; the message is one line and says why."""


def need(true, why):
    """Raise ProofError unless something is true."""
    if not true:
        raise ProofError(why)


class Allowance(threading.local):
    """What a file asks for; nothing limits who searches for a proof."""

    done, most, share = 0, math.inf, 1

    def spend(self, work, numbers=0):
        """Count what is about to be done, and so many numbers held at once; refuse too much."""
        self.done += work
        self.need(max(self.done, numbers * ROOM))

    def repeat(self, times, since):
        """Refuse what is too much if what was done since then is to be done as often again."""
        self.need(self.done + times * (self.done - since))

    def need(self, work):
        """Refuse what needs more work than is allowed."""
        if not work / self.share <= self.most:
            said = f"work or memory of {work / self.share:.1e}, and {self.most:.1e} is allowed"
            raise ProofError(f"too large: it asks for {said} (--work allows more)")


WORK = Allowance()


class Enclosure:
    """Numbers known up to a radius."""

    def __init__(self, mid, rad=0.0):
        self.mid = np.asarray(mid, dtype=np.float64)
        # nanoseconds: some passes over the numbers
        WORK.spend(CALL // 4 + 20 * self.mid.size, self.mid.size)
        self.rad = np.zeros(self.mid.shape) + rad  # of the same shape

    # an upper bound of the absolute value; the ends, with 2 u of each line's two roundings
    size = property(lambda self: (abs(self.mid) + self.rad) * GROW)
    low = property(lambda self: self.mid - self.rad * GROW - 2 * U * self.size - TINY)
    high = property(lambda self: self.mid + self.rad * GROW + 2 * U * self.size + TINY)

    def __getitem__(self, index):
        return Enclosure(self.mid[index], self.rad[index])

    def __add__(self, other):
        mid = self.mid + other.mid
        return Enclosure(mid, (self.rad + other.rad + U * abs(mid)) * GROW + TINY)

    def __mul__(self, other):
        mid = self.mid * other.mid
        # |ab - a'b'| ≤ |a| s + r (|b| + s); `size` has the sum
        rad = abs(self.mid) * other.rad + self.rad * other.size + U * abs(mid)
        return Enclosure(mid, rad * GROW + TINY)


def dot(how, a, b):
    """An einsum of enclosures or arrays that sums over what they share and the result lacks."""
    a, b = (x if isinstance(x, Enclosure) else Enclosure(x) for x in (a, b))
    left, right, out = how.replace("->", ",").split(",")
    sizes = dict(zip(left + right, a.mid.shape + b.mid.shape, strict=True))
    WORK.spend(CALL + 4 * math.prod(sizes.values()), math.prod(sizes[i] for i in out))
    # products of matrices, which are quicker: one for all that both have and the result, too
    both, summed = ([i for i in left if i in right and (i in out) is x] for x in (True, False))
    rows, columns = ([i for i in x if i not in y] for x, y in ((left, right), (right, left)))

    def laid_out(x, axes, *parts):
        shape = [math.prod(sizes[i] for i in part) for part in (both, *parts)]
        return x.transpose([axes.index(i) for i in sum(parts, both)]).reshape(shape)

    x, dx = (laid_out(side, left, rows, summed) for side in (a.mid, a.rad))
    y, dy = (laid_out(side, right, summed, columns) for side in (b.mid, b.rad))
    # 2 more operations than the n products and their n - 1 sums have: those of the radius' factor
    n, axes = 2 + math.prod(sizes[i] for i in summed), both + rows + columns
    gamma, size = n * U / (1 - n * U), abs(y)  # Higham 2002, §3.1
    rad = (abs(x) @ (dy + gamma * size) + dx @ (size + dy)) * GROW + TINY
    found = (z.reshape([sizes[i] for i in axes]) for z in (x @ y, rad))
    return Enclosure(*(z.transpose([axes.index(i) for i in out]) for z in found))


def exponential(x, top=None):
    """exp(x - top), each correctly rounded; the top is the largest if it is not given."""
    WORK.spend(EXP * x.mid.size)
    need((x.rad < 1e-3).all(), "scores are too large to be known")  # else 1.002 below is no bound
    top = Decimal(float(x.mid.max() if top is None else top))
    mid = [float(DIGITS.exp(DIGITS.subtract(Decimal(each), top))) for each in x.mid.tolist()]
    # e^r - 1 ≤ 1.002 r, r < 1e-3
    # u is the rounding from 40 digits to a float64; 4 u are generous
    return Enclosure(mid, mid * (1.002 * x.rad + 4 * U) * GROW + TINY)


class Model:
    """A model of the kind above: checked, and tabulated by symbol."""

    def __init__(self, facts, weights):
        for name, most in MOST.items():  # a float for an integer cannot be counted with
            need(type(facts[name]) in (int, float) and 0 <= facts[name] <= most, f"absurd {name}")
        k, depth, scale = facts["n_types"], facts["max_depth"], facts["attn_scale"]
        # k^D stacks have a tree each
        need(0 < k * depth < LEAF and k**depth <= LARGEST, "its language is none, or too large")
        # BOS, and two brackets of each level and type
        sizes = {"s": 1 + 2 * k * depth}
        WORK.spend(0, sum(array.size for array in weights.values()))
        for name, axes in AXES.items():
            for x, n in zip(axes, weights[name].shape, strict=True):
                need(sizes.setdefault(x, n) == n <= LARGEST, f"{name} does not fit")
            need(np.isfinite(weights[name]).all(), "a weight is not finite")
        need(sizes["o"] >= 2 * k, "it has no logit for some bracket")
        self.rivals = range(1, 2 * k, 2) if facts["claim"] == "closing_only" else range(sizes["o"])
        self.w = w = {name: Enclosure(weights[name]) for name in AXES}
        self.norm, self.added, self.n_logits = bool(facts["norm"]), facts["added"], sizes["o"]
        self.floor = Enclosure(facts["floor"] if self.norm else 1.0)
        WORK.spend(0, sizes["d"] ** 2)
        self.centre = Enclosure(np.eye(sizes["d"]) - self.norm / sizes["d"], 2 * U)  # P, if any
        q, self.key, v = (dot("ij,je->ie", w["W_E"], w[f"W_{y}"]) + w[f"b_{y}"] for y in "QKV")
        # 1 / scale is off by u of itself; twice that, as the radius is rounded, too
        self.q = q * Enclosure(1 / scale, 2 * U / scale)
        self.adds = dot("ie,ed->id", v, w["W_O"]) + w["b_O"]


class Prefixes:
    """All prefixes of an ending, as integer points of a box."""

    def __init__(self, facts, stack, closes):
        WORK.spend(2 * CALL)
        self.k, self.depth = facts["n_types"], facts["max_depth"]
        self.stack, self.closes, self.may = stack, closes, [2 * a + 1 for a in stack[-1:]]
        if facts["claim"] == "valid_token" and len(stack) < self.depth:
            self.may += range(0, 2 * self.k, 2)
        # 1: BOS is symbol 0; a closing bracket stands behind its opening one
        opens = [1 + 2 * (level * self.k + a) for level, a in enumerate((*stack, *closes))]
        self.symbols = [0, *opens, *(opens[-1] + 1 for _ in closes)]  # of all
        n = len(self.symbols) - 1
        self.most = (facts["length"] - n) // 2 if n else 0  # M: where no bracket is, no pair was
        # n: brackets that are open, or were until the last; a pair of level 1 needs none around it
        self.around = max(n, 1)  # levels of pairs that have a bracket around them in any case
        zero = np.zeros(self.k * self.depth, dtype=np.int64)
        self.box = self.cut(zero, zero + self.most)

    def cut(self, low, high):
        """A box without what no prefix has; None if nothing is left."""
        # M pairs in all: what the others have at least is not left for this one
        k, high = self.k, np.minimum(high, low + self.most - low.sum())
        for level in range(self.around, self.depth):
            if not high[(level - 1) * k : level * k].any():  # a pair needs a bracket around it
                high[level * k : (level + 1) * k] = 0
        return None if (high < low).any() else (low, high)

    def halves(self, low, high, axis):
        """A box in two along an axis, each cut; what is empty left out."""
        middle, along = (low[axis] + high[axis]) // 2, np.arange(len(low)) == axis
        parts = (low, np.where(along, middle, high)), (np.where(along, middle + 1, low), high)
        return [box for part in parts if (box := self.cut(*part)) is not None]


def endings(facts):
    """All of which a claim speaks, by stack and the type of the last pair, () if there is none."""
    k, depth = facts["n_types"], facts["max_depth"]
    for d in range(facts["claim"] in OPEN, depth + 1):
        for stack in itertools.product(range(k), repeat=d):
            for closes in ((), *((a,) for a in range(k * (d < depth)))):
                ending = Prefixes(facts, stack, closes)
                if ending.box is not None:
                    yield ending


def relu(low, high):
    """The slope s, and t, such that the ReLU of each p between two numbers is in s p + [0, t]."""
    # any slope in [0, 1] is right, however rounded: t below is taken for the one that is used
    slope = np.where(low >= 0, 1.0, np.clip(high / (high - low), 0, 1) * (high > 0))
    # the two ends' distance from the line; a difference and a product are 2 u
    return slope, np.maximum(-slope * low, (1 - slope) * high) * (1 + 8 * U)


class Margin:
    """F after the prefixes of an ending, for a winner and each loser, k; x is (1, m)."""

    def __init__(self, network, ending, winner, may):
        w, last = network.w, ending.symbols[-1]
        losers = [token for token in network.rivals if token not in may]
        WORK.spend(0, network.n_logits**2)
        won = np.eye(network.n_logits)[[winner]] - np.eye(network.n_logits)[losers]  # [k, o]
        # [x, symbol]
        counts = np.pad(np.repeat(np.eye(ending.k * ending.depth), 2, axis=1), ((1, 0), (1, 0)))
        counts[0, ending.symbols] = 1  # a symbol occurs at most once
        weight, own = exponential(dot("e,ie->i", network.q[last], network.key)), w["W_E"][last]
        adds = network.adds + own if network.added == "before" else network.adds
        after = own * Enclosure(float(network.added == "after"))
        u = dot("xi,id->xd", counts, weight[:, None] * dot("id,de->ie", adds, network.centre))
        towards, bias = dot("do,ko->dk", w["W_U"], won), dot("o,ko->k", w["b_U"], won)
        self.alpha = dot("xd,dk->kx", u, towards)
        self.c = dot("d,dk->k", after + w["b_out"], towards) + bias
        self.beta = dot("xd,dh->hx", u, w["W_in"])
        self.s = dot("d,dh->h", after, w["W_in"]) + w["b_in"]
        self.v = dot("hd,dk->hk", w["W_out"], towards)
        self.u = u * Enclosure(float(network.norm))  # ρ = max(|u|, floor)
        self.floor = dot("xi,i->x", counts, weight) * network.floor

    def settles(self, low, high):
        """Whether F > 0 on all of each box, ``[n]``; how much each axis widens it, ``[n, i]``."""
        x = np.pad((low + high) / 2, ((0, 0), (1, 0)), constant_values=1)
        box = Enclosure(x, np.pad((high - low) / 2, ((0, 0), (1, 0))))
        rho = self.divisor(box)
        hidden = self.beta[None] + self.s[None, :, None] * rho[:, None]  # [n, h, x]
        p = dot("nx,nhx->nh", box, hidden)
        slope, lift = relu(p.low, p.high)
        linear = dot("nhk,nhx->nkx", self.v * Enclosure(slope[:, :, None]), hidden) + self.alpha
        linear = linear + self.c[None, :, None] * rho[:, None]
        lifts = dot("nh,hk->nk", lift, np.minimum(self.v.low, 0))  # V < 0: the lift takes away
        least = (dot("nx,nkx->nk", box, linear) + lifts).low
        return (least > 0).all(1), linear.size.sum(1)[:, 1:] * (high - low)

    def divisor(self, box):
        """ρ on boxes, linear in x but for θ, which is in the coefficient of 1, ``[n, x]``."""
        u = dot("nx,xd->nd", box, self.u)
        # the root of d ≤ 4096 squares is off by (d + 2) / 2 u = 2.3e-13: so R ≥ |a|. Squares
        # below 1e-308 are lost: 1e-149
        size = np.sqrt((u.mid**2).sum(1)) * (1 + 1e-12) + 1e-149  # R
        tangent = dot("nd,xd->nx", u.mid / size[:, None], self.u)
        # (R² - |a|²) / 2R ≤ 1.25e-12 R, as R is at most 1 + 1.23e-12 of |a|
        e = (u.rad**2).sum(1) / size / 2 * GROW + 4e-12 * size + 1e-149
        apart = tangent + self.floor * Enclosure(-1.0)
        gap = dot("nx,nx->n", box, apart)  # T is the larger at the centre; θ makes up for the other
        first = gap.mid >= 0
        e = np.where(first, np.maximum(e, -gap.low), np.maximum(e + gap.high, 0)) * GROW
        # [0, e] as e/2 ± e/2, in column 0, that of the constant 1
        theta = e[:, None] / 2 * (np.arange(len(self.floor.mid)) == 0)
        return self.floor + Enclosure(first[:, None]) * apart + Enclosure(theta, theta)


def prefixes(facts):
    """Of which prefixes a claim speaks, and how many they are, in words."""
    k, ways, n = facts["n_types"], [1] + [0] * facts["max_depth"], 0  # ways to get to each depth
    for _ in range(facts["length"] + 1):
        # a claim of OPEN does not speak of depth 0, which is the first
        n += sum(ways[facts["claim"] in OPEN :])
        ways = [k * a + b for a, b in zip([0, *ways[:-1]], [*ways[1:], 0], strict=True)]
    n *= k > 1 or facts["claim"] != "closing_only"  # one closing bracket alone has no rival
    where = f"of Dyck({k}, {facts['max_depth']}) of up to {facts['length']} brackets"
    need(n, f"nothing is asked: it speaks of no prefix {where}")
    return f"each of {n:,} prefixes {where}; weights called {str(facts['model'])[:64]!a}"


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    need(facts["format"] == FORMAT, f"not of format {FORMAT}")
    network, nodes = Model(facts, arrays), iter(arrays["trees"].ravel().tolist())
    for n, ending in enumerate(of := [*endings(facts)]):
        leaves, todo, since = {}, [ending.box], WORK.done
        while todo:
            WORK.spend(2 * CALL)
            (low, high), node = todo.pop(), next(nodes, -1)
            if node >= LEAF:
                leaves.setdefault(node - LEAF, []).append((low, high))
                continue
            need(0 <= node < len(low) and low[node] < high[node], f"node {node} cannot be here")
            todo += ending.halves(low, high, node)[::-1]
        for winner, boxes in leaves.items():
            may = [winner] if facts["claim"] == "named" else ending.may
            need(winner in may, f"token {winner} cannot win after the stack {ending.stack}")
            form = Margin(network, ending, winner, may)
            # 2^22 numbers, 32 MB: the largest array, [box, hidden, loser, x],
            # is made for so many boxes
            parts = 1 + len(boxes) * (1 + len(form.v.mid)) * form.alpha.mid.size // 2**22
            for part in np.array_split(np.array(boxes, dtype=float), parts):
                need(form.settles(*part.swapaxes(0, 1))[0].all(), f"not settled: {ending.symbols}")
        # the first ending says what all will cost about, before the others are begun
        WORK.repeat((len(of) - 1) * (n == 0), since)
    need(next(nodes, None) is None, "it has trees of no ending")
    return f"{CLAIMS[facts['claim']]}, after {prefixes(facts)}"


def contents(path, most=MOST_BYTES):
    """The bytes of an ordinary file of a sane size; no pipe is waited for, no device is read."""
    flags = getattr(os, "O_NONBLOCK", 0)
    with open(path, "rb", opener=lambda name, mode: os.open(name, mode | flags)) as file:
        found = os.fstat(file.fileno())
        fits = stat.S_ISREG(found.st_mode) and found.st_size <= most
        named = f"{most:,} bytes: {os.path.basename(path)!a:.80}"
        need(fits, f"not an ordinary file of at most {named}")
        return file.read(found.st_size)


def parsed(line):
    """JSON of a sane size; no name stands twice in an object."""
    need(len(line) <= MOST_FACTS, f"too large: it has {len(line):,} bytes of JSON")

    def distinct(pairs):
        need(len(pairs) == len(dict(pairs)), "a name stands twice in its JSON")
        return dict(pairs)

    return json.loads(line, object_pairs_hook=distinct)


def read(path):
    """What a file holds: the SHA-256 of the rest in a line, facts as JSON in a line, arrays."""
    digest, _, rest = contents(path).partition(b"\n")
    WORK.share = min(1, 0.05 + len(rest) / WHOLE)  # a twentieth for the smallest
    need(digest == hashlib.sha256(rest).hexdigest().encode(), "altered: it has another digest")
    facts, arrays, end = parsed(rest[: rest.find(b"\n") + 1]), {}, rest.find(b"\n") + 1
    for name, (kind, shape) in facts["arrays"].items():
        need(kind in ("<f8", "<f4", "|u1", "<u2"), f"{name[:40]!a} is no array of numbers")
        arrays[name] = np.frombuffer(rest, kind, math.prod(shape), end).reshape(shape)
        end += arrays[name].nbytes
    return facts, arrays


def line(text):
    """Text in a line: what a terminal would obey, or not show, as escapes."""
    return "".join(x if x.isprintable() else ascii(x)[1:-1] for x in str(text))


def verdict(path, how=check, work=MOST_WORK):
    """Whether a file proves something; what, or why not, in a line."""
    try:
        WORK.done, WORK.most, WORK.share = 0, work, 1
        with np.errstate(all="ignore"):
            return True, line(f"proved: {how(*read(path))}")
    except Exception as error:  # whatever a file can do wrong, it proves nothing
        why = error if isinstance(error, ProofError) else f"unreadable ({type(error).__name__})"
        return False, line(f"not proved: {why}")
    finally:
        WORK.most = math.inf


def command_line(about):
    """What all checkers are asked on the command line."""
    parser = argparse.ArgumentParser(description=about)
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--work", type=float, default=MOST_WORK, help="a file's; 1e9 is a second")
    return parser


def main(arguments=None, how=check):
    """Print what files prove; whether one proves nothing."""
    options, failed = command_line("Check proofs.").parse_args(arguments), False
    for file in options.files:
        proved, said = verdict(file, how, options.work)
        print(f"{line(file)}: {said}")
        failed |= not proved
    return failed


if __name__ == "__main__":
    sys.exit(main())
