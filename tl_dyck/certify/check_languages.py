"""Check what is claimed of a one-layer transformer on every prefix of a bounded Dyck language.

With numpy and the standard library; nothing is searched. `check_proof` beside it reads the files.

*What is proved.* Dyck(k, D) has brackets 2a (opens) and 2a + 1 (closes) of types a < k, nested at
most D deep; BOS is token 2k. One of `CLAIMS` holds after every prefix of up to N brackets that it
speaks of: a token that may win has a larger logit than all that must not; the same in both models.

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
T + θ there with T linear and θ in [0, e], one more axis. A ReLU whose sign is not settled is
replaced by 0 or its argument where V_j > 0, by its chord where V_j < 0. The rest is linear in x =
(1, m, θ).

*Arithmetic.* Numbers are enclosed: a float64 and a radius; a box is its centre and radii. Sums,
products and roots are rounded correctly (IEEE 754); a sum of n products, in any order, fused or
not, is off by at most n u / (1 - n u) times the sum of their sizes, u = 2^-53. Exponentials are
`decimal`'s, rounded correctly. Radii grow by 1e-9 for their rounding, by 1e-300 for underflow.
"""

import itertools
import math
from decimal import Decimal, localcontext

import numpy as np

FORMAT, LEAF, LARGEST = "tl_dyck.proof/3", 64, 4096
U, GROW, TINY = 2.0**-53, 1 + 1e-9, 1e-300
CLAIMS = {
    "any_token": "the bracket that closes the top of the stack has the largest logit of all tokens",
    "closing_only": "that bracket has the largest logit of all closing brackets",
    "valid_token": "the largest logit is that of a token that may follow",
    "agree": "two models predict the same token",
    "head": "the prediction stays the same when the head attends uniformly",
}
OPEN = ("any_token", "closing_only")  # speak of prefixes that leave a bracket open
RANGES = {"n_types": (1, 63), "max_depth": (1, 63), "length": (0, 10**4), "floor": (0, 1e9)}
RANGES["attn_scale"] = (1e-9, 1e9)
# axes of weights: symbols (BOS, two of each level and type), d_model, head, MLP, output
AXES = {"W_E": "sd", "W_O": "ed", "b_O": "d", "W_in": "dh", "b_in": "h", "W_out": "hd"}
AXES |= {"b_out": "d", "W_U": "do", "b_U": "o"}
AXES |= {f"W_{x}": "de" for x in "QKV"} | {f"b_{x}": "e" for x in "QKV"}


class ProofError(ValueError):
    """The file is no proof, or proves nothing; the message is one line and says why."""


class Enclosure:
    """Numbers known up to a radius."""

    def __init__(self, mid, rad=0.0):
        self.mid = np.asarray(mid, dtype=np.float64)
        self.rad = np.zeros(self.mid.shape) + rad  # of the same shape
        self.size = (abs(self.mid) + self.rad) * GROW  # an upper bound of the absolute value
        self.low = self.mid - self.rad * GROW - 2 * U * self.size - TINY
        self.high = self.mid + self.rad * GROW + 2 * U * self.size + TINY

    def __getitem__(self, index):
        return Enclosure(self.mid[index], self.rad[index])

    def __add__(self, other):
        mid = self.mid + other.mid
        return Enclosure(mid, (self.rad + other.rad + U * abs(mid)) * GROW + TINY)

    def __sub__(self, other):
        return self + Enclosure(-other.mid, other.rad)

    def __mul__(self, other):
        mid = self.mid * other.mid
        rad = abs(self.mid) * other.rad + self.rad * other.size + U * abs(mid)
        return Enclosure(mid, rad * GROW + TINY)


def dot(how, a, b):
    """An einsum of enclosures or arrays that sums over what they share and the result lacks."""
    a, b = (x if isinstance(x, Enclosure) else Enclosure(x) for x in (a, b))
    left, right, out = how.replace("->", ",").split(",")
    n = 2 + math.prod(a.mid.shape[left.index(i)] for i in set(left + right) - set(out))
    gamma, size = n * U / (1 - n * U), abs(b.mid)
    rad = np.einsum(how, abs(a.mid), b.rad + gamma * size) + np.einsum(how, a.rad, b.size)
    return Enclosure(np.einsum(how, a.mid, b.mid), rad * GROW + TINY)


def centred(x):
    """P x along the last axis: the mean taken away."""
    n = x.mid.shape[-1]
    return x - dot("ij,jk->ik", x, Enclosure(np.full((n, n), 1 / n), U / n))


def exponential(x, top=None):
    """exp(x - top), each correctly rounded; the top is the largest if it is not given."""
    if not (x.rad < 1e-3).all():
        raise ProofError("scores are too large to be known")
    with localcontext() as context:
        context.prec = 40
        top = Decimal(float(x.mid.max() if top is None else top))
        mid = [float(min(Decimal(each) - top, Decimal(1000)).exp()) for each in x.mid.tolist()]
    return Enclosure(mid, mid * (1.002 * x.rad + 4 * U) * GROW + TINY)


class Model:
    """A model of the kind above: checked, and tabulated by symbol."""

    def __init__(self, facts, weights):
        for name, (least, most) in RANGES.items():  # a float for an integer cannot be counted with
            if type(facts[name]) not in (int, float) or not least <= facts[name] <= most:
                raise ProofError(f"{name} must be in {least}..{most}, not {str(facts[name])[:40]}")
        k, depth, scale = facts["n_types"], facts["max_depth"], facts["attn_scale"]
        if facts["claim"] not in CLAIMS or k * depth >= LEAF or k**depth > LARGEST:
            raise ProofError("its claim is unknown, or its language too large")
        sizes = {"s": 1 + 2 * k * depth}
        if weights.keys() != AXES.keys() or not all(
            sizes.setdefault(x, n) == n <= LARGEST
            for name, axes in AXES.items()
            for x, n in zip(axes, weights[name].shape, strict=True)
        ):
            raise ProofError("its weights do not fit together, or are too large")
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise ProofError("a weight is not finite")
        self.w = w = {name: Enclosure(array) for name, array in weights.items()}
        self.norm, self.added, self.n_logits = facts["norm"], facts["added"], sizes["o"]
        self.floor = Enclosure(facts["floor"] if self.norm else 1.0)
        q, self.key, v = (dot("ij,je->ie", w["W_E"], w[f"W_{y}"]) + w[f"b_{y}"] for y in "QKV")
        self.q = q * Enclosure(1 / scale, 2 * U / scale)
        self.adds = dot("ie,ed->id", v, w["W_O"]) + w["b_O"]


def networks(facts, arrays):
    """The network of a proof, and the one that it is said to agree with, if there is one."""
    own = {name: array for name, array in arrays.items() if name != "trees"}
    if facts["claim"] == "agree":
        other = {name[6:]: own.pop(name) for name in list(own) if name[:6] == "other."}
        its = {name: facts["other"][name] for name in ("attn_scale", "norm", "floor", "added")}
        yield Model(facts | its, other)
    if facts["claim"] == "head":  # which attends uniformly without queries
        yield Model(facts, own | {name: 0 * own[name] for name in ("W_Q", "b_Q")})
    yield Model(facts, own)


class Prefixes:
    """All prefixes of an ending, as integer points of a box."""

    def __init__(self, facts, stack, closes):
        self.k, self.depth = facts["n_types"], facts["max_depth"]
        self.stack, self.closes = stack, closes
        opens = [1 + 2 * (level * self.k + a) for level, a in enumerate(stack)]
        pair = 1 + 2 * (len(stack) * self.k + (closes or 0))
        self.symbols = [0, *opens, *((pair, pair + 1) if closes is not None else ())]  # of all
        n = len(self.symbols) - 1
        self.most = (facts["length"] - n) // 2 if n else 0  # M: where no bracket is, no pair was
        self.around = max(n, 1)  # levels of pairs that have a bracket around them in any case
        zero = np.zeros(self.k * self.depth, dtype=np.int64)
        self.box = self.cut(zero, zero + self.most)

    def cut(self, low, high):
        """A box without what no prefix has; None if nothing is left."""
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
    """All of which a claim speaks, by stack and the type of the last pair, if there is one."""
    k, depth = facts["n_types"], facts["max_depth"]
    for d in range(facts["claim"] in OPEN, depth + 1):
        for stack in itertools.product(range(k), repeat=d):
            for closes in (None, *(range(k) if d < depth else ())):
                ending = Prefixes(facts, stack, closes)
                if ending.box is not None:
                    yield ending


def losers(facts, ending, winner, network):
    """The tokens that must not win; refuses a winner that may not."""
    claim, brackets, n_logits = facts["claim"], 2 * ending.k, network.n_logits
    may = [2 * a + 1 for a in ending.stack[-1:]]
    if claim == "valid_token" and len(ending.stack) < ending.depth:
        may += range(0, brackets, 2)
    may = [winner] if claim in ("agree", "head") else may
    if winner not in may or max(winner, brackets) >= n_logits:
        raise ProofError(f"token {winner} cannot win after the stack {ending.stack}")
    rivals = range(1, brackets, 2) if claim == "closing_only" else range(n_logits)
    return [token for token in rivals if token not in may]


class Margin:
    """F after the prefixes of an ending, for a winner and each loser, k; x is (1, m, θ)."""

    def __init__(self, network, ending, winner, losers):
        w, last = network.w, ending.symbols[-1]
        counts = np.repeat(np.eye(ending.k * ending.depth), 2, axis=1)
        counts = np.pad(counts, ((1, 1), (1, 0)))  # the row of θ stays 0
        counts[0, ending.symbols] = 1
        weight, own = exponential(dot("e,ie->i", network.q[last], network.key)), w["W_E"][last]
        adds = network.adds + own if network.added == "before" else network.adds
        adds = centred(adds) if network.norm else adds
        after = own * Enclosure(float(network.added == "after"))
        u = dot("xi,id->xd", counts, weight[:, None] * adds)
        towards = w["W_U"][:, [winner]] - w["W_U"][:, losers]
        bias = w["b_U"][[winner]] - w["b_U"][losers]
        self.alpha = dot("xd,dk->kx", u, towards)
        self.c = dot("d,dk->k", after + w["b_out"], towards) + bias
        self.beta = dot("xd,dh->hx", u, w["W_in"])
        self.s = dot("d,dh->h", after, w["W_in"]) + w["b_in"]
        self.v = dot("hd,dk->hk", w["W_out"], towards).low  # what relu gives is not negative
        self.u = u * Enclosure(float(bool(network.norm)))  # ρ = max(|u|, floor)
        self.floor = dot("xi,i->x", counts, weight) * network.floor

    def settles(self, low, high):
        """Whether F > 0 on all of each box, ``[n]``; how much each axis widens it, ``[n, i]``."""
        x, r = (np.pad(each, ((0, 0), (1, 1))) for each in ((low + high) / 2, (high - low) / 2))
        x[:, 0] = 1
        rho, e = self.divisor(Enclosure(x, r))
        x[:, -1] = r[:, -1] = e / 2
        box = Enclosure(x, r)
        hidden = self.beta[None] + self.s[None, :, None] * rho[:, None]  # [n, h, x]
        p = dot("nx,nhx->nh", box, hidden)
        unsure = (p.low < 0) & (p.high > 0)
        below = np.where(unsure, p.high > -p.low, p.low >= 0).astype(float)
        chord = np.minimum(p.high / (p.high - p.low) * (1 + 8 * U), 1.0)
        above, lift = np.where(unsure, [chord, -chord * p.low * (1 + 8 * U)], [below, 0 * below])
        up, down = Enclosure(np.maximum(self.v, 0)), Enclosure(np.minimum(self.v, 0))
        slopes = Enclosure(below[:, :, None]) * up + Enclosure(above[:, :, None]) * down
        linear = dot("nhk,nhx->nkx", slopes, hidden) + self.alpha[None]
        linear = linear + self.c[None, :, None] * rho[:, None]
        least = (dot("nx,nkx->nk", box, linear) + dot("nh,hk->nk", lift, down)).low
        return (least > 0).all(1) & np.isfinite(e), linear.size.sum(1)[:, 1:-1] * r[:, 1:-1]

    def divisor(self, box):
        """ρ on boxes: T as a linear function of x, plus θ, ``[n, x]``; the largest θ, ``[n]``."""
        u = dot("nx,xd->nd", box, self.u)
        size = np.sqrt((u.mid**2).sum(1)) * (1 + 1e-12) + 1e-149  # R
        tangent = dot("nd,xd->nx", u.mid / size[:, None], self.u)
        e = (u.rad**2).sum(1) / size / 2 * GROW + 4e-12 * size + 1e-149
        floor = Enclosure(np.ones((len(size), 1))) * self.floor
        apart = tangent - floor
        gap = dot("nx,nx->n", box, apart)  # T is the larger at the centre; θ makes up for the other
        first = gap.mid >= 0
        e = np.where(first, np.maximum(e, -gap.low), np.maximum(e + gap.high, 0)) * GROW
        theta = Enclosure(np.arange(len(self.floor.mid)) == len(self.floor.mid) - 1)
        return floor + Enclosure(first[:, None]) * apart + theta, e


def says(facts):
    """What a proof proves, as a sentence."""
    k, ways, n = facts["n_types"], [1] + [0] * facts["max_depth"], 0  # ways to get to each depth
    for _ in range(facts["length"] + 1):
        n += sum(ways[facts["claim"] in OPEN :])
        ways = [k * a + b for a, b in zip([0, *ways[:-1]], [*ways[1:], 0], strict=True)]
    number = f"{n:,}" if n < 10**100 else f"{Decimal(n):.3e}"
    where = f"Dyck({k}, {facts['max_depth']}) of up to {facts['length']} brackets"
    return f"{CLAIMS[facts['claim']]}, after each of {number} prefixes of {where}"


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    models, nodes = list(networks(facts, arrays)), iter(arrays["trees"].ravel().tolist())
    for ending in endings(facts):
        leaves, todo = {}, [ending.box]
        while todo:
            (low, high), node = todo.pop(), next(nodes, -1)
            if node >= LEAF:
                leaves.setdefault(node - LEAF, []).append((low, high))
            elif 0 <= node < len(low) and low[node] < high[node]:
                todo += ending.halves(low, high, node)[::-1]
            else:
                raise ProofError(f"node {node} cannot stand where it does")
        for (winner, boxes), network in itertools.product(leaves.items(), models):
            form = Margin(network, ending, winner, losers(facts, ending, winner, network))
            n_parts = 1 + len(boxes) * (sum(form.v.shape) + form.v.size) // 2**20
            for part in np.array_split(np.array(boxes, dtype=float), n_parts):
                if not form.settles(part[:, 0], part[:, 1])[0].all():
                    raise ProofError(f"not settled: stack {ending.stack}, {ending.closes} closed")
    if next(nodes, None) is not None:
        raise ProofError("it has trees of no ending")
    return says(facts)
