"""Check a proof that a one-layer transformer is right on every prefix of a bounded Dyck language.

One file, numpy and the standard library only; nothing is searched. Copy it out, read it, run it:
``python check_proof.py FILE [--model FOLDER]``. Exit status 0: proved; 1: not.

*What is proved.* Dyck(k, D) has brackets 2a (opens) and 2a + 1 (closes) of types a < k, nested at
most D deep; BOS is token 2k. After every prefix of up to N brackets of which the claim speaks, for
every token that must not win, some token that may win has a larger logit: see `CLAIMS`.

*The model.* One layer of attention, one head, no positions. A symbol is a bracket with the depth
after it. With x_s = ln1(r_s) for the embedding r_s, q of the last symbol, E_s = exp(q·k_s) up to a
common factor, and n_s how often symbol s occurs, let

    u = Σ_s n_s E_s a_s,   Z = Σ_s n_s E_s,   a_s = W_O v_s + b_O (+ r_q, if it is added before the
    norm or there is none).

The layer computes u / Z, or P u / max(|P u|, C Z) with LN_C (Wen et al. 2023, Eq. 7; P subtracts
the mean), then an MLP with ReLU and the unembedding. Let ρ be the divisor. All is homogeneous: ρ
times a difference of logits is F = α(n) + c ρ + Σ_j V_j relu(β_j(n) + s_j ρ) with α, β linear, so
two logits compare as the sign of F says.

*Theorem.* A prefix consists of its stack t_1 … t_d, its last bracket, and m_i ≥ 0 matched pairs of
each level 1..D and type; n is linear in (1, m), and the length is d + 2 Σ m. So all prefixes of an
ending (a stack and a last bracket) are integer points of a box with Σ m ≤ M = (N - d) / 2. The file
has for each ending a tree in preorder, one byte a node: i < 64 halves the box along axis i, 255
says that the bound below settles it, 254 that its points are to be looked at. What is beyond
Σ m ≤ M is cut off, by the same rule for all. So whatever a tree says, each prefix is in some leaf.

*Bound.* On a box with centre c and radii r, |u(m)| ≥ w·u(m) for any |w| ≤ 1 (Cauchy, Schwarz), and
|u| ≤ (|u|² + R²) / 2R for any R > 0. With R ≈ |u(c)| and w ≈ u(c) / R: ρ is between a linear
function and that plus e = Σ_ij r_i r_j |u_i·u_j| / 2R, but for rounding. A ReLU whose sign is not
settled is replaced by 0 or its argument where V_j > 0 (from below), by its chord where V_j < 0.

*Arithmetic.* Numbers are balls: a float64 and a radius. Sums, products, quotients and roots are
rounded correctly (IEEE 754); a sum of n products, in any order, fused or not, is off by at most
n u / (1 - n u) times the sum of their sizes, u = 2^-53. Exponentials are `decimal`'s, which rounds
correctly. Radii grow by 1e-9 for their own rounding, and by 1e-300 for what underflows.
"""

from __future__ import annotations

import argparse
import hashlib
import itertools
import json
import math
import sys
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np

FORMAT = "tl_dyck.proof/1"
BOUND, POINTS = 255, 254
U, GROW, TINY = 2.0**-53, 1 + 1e-9, 1e-300
MOST_BYTES, MOST_POINTS, LARGEST = 2**28, 10**6, 4096
CLAIMS = {
    "any_token": "the bracket that closes the top of the stack has the largest logit of all tokens",
    "closing_only": "that bracket has the largest logit of all closing brackets",
    "valid_token": "the largest logit is that of a token that may follow",
}


class ProofError(ValueError):
    """The file is no proof, or proves nothing; the message is one line and says why."""


class Ball:
    """Numbers known up to a radius."""

    def __init__(self, mid, rad=0.0):
        self.mid = np.asarray(mid, dtype=np.float64)
        self.rad = np.broadcast_to(np.asarray(rad, dtype=np.float64), self.mid.shape)
        self.size = (abs(self.mid) + self.rad) * GROW  # an upper bound of the absolute value
        self.low = self.mid - self.rad * GROW - 2 * U * self.size - TINY
        self.high = self.mid + self.rad * GROW + 2 * U * self.size + TINY

    @staticmethod
    def between(low, high):
        """A ball that holds [low, high]."""
        return Ball((low + high) / 2, ((high - low) / 2 + 2 * U * (abs(low) + abs(high))) * GROW)

    def __getitem__(self, index):
        return Ball(self.mid[index], self.rad[index])

    def __add__(self, other):
        mid = self.mid + other.mid
        return Ball(mid, (self.rad + other.rad + U * abs(mid)) * GROW + TINY)

    def __neg__(self):
        return Ball(-self.mid, self.rad)

    def __mul__(self, other):
        mid = self.mid * other.mid
        rad = abs(self.mid) * other.rad + self.rad * other.size + U * abs(mid)
        return Ball(mid, rad * GROW + TINY)

    def __truediv__(self, other):  # by what is positive; unknown where it may not be
        mid = self.mid / other.mid
        rad = (self.rad + abs(mid) * other.rad) / other.low + 4 * U * abs(mid)
        return Ball(mid, np.where(other.low > 0, rad * GROW + TINY, np.inf))


def dot(how, a, b):
    """An einsum of two balls that sums over the indices that they share and the result lacks."""
    left, right, out = how.replace("->", ",").split(",")
    n = 2 + math.prod(a.mid.shape[left.index(i)] for i in set(left + right) - set(out))
    gamma, size = n * U / (1 - n * U), abs(b.mid)
    rad = np.einsum(how, abs(a.mid), b.rad + gamma * size) + np.einsum(how, a.rad, b.size)
    return Ball(np.einsum(how, a.mid, b.mid), rad * GROW + TINY)


def root(x):
    """Square root, of 0 where it might be negative."""
    low, high = (np.sqrt(np.maximum(end, 0)) for end in (x.low, x.high))
    return Ball.between(low * (1 - 4 * U), high * (1 + 4 * U))


def relu(x):
    """The larger of x and 0."""
    return Ball.between(np.maximum(x.low, 0), np.maximum(x.high, 0))


def centred(x):
    """P x along the last axis: the mean taken away."""
    n = x.mid.shape[-1]
    return x + -dot("ij,jk->ik", x, Ball(np.full((n, n), 1 / n), U / n))


def exponential(x):
    """exp(x - the largest), each correctly rounded."""
    if not (x.rad < 1e-3).all():
        raise ProofError("scores are too large to be known")
    with localcontext() as context:
        context.prec = 40
        top = Decimal(float(x.mid.max()))
        mid = np.array([float((Decimal(float(each)) - top).exp()) for each in x.mid])
    return Ball(mid, mid * (1.002 * x.rad + 4 * U) * GROW + TINY)


def pack(facts, arrays):
    """A proof's file: the digest of the rest, a line of JSON, numbers."""
    facts = {**facts, "arrays": {name: [a.dtype.str, list(a.shape)] for name, a in arrays.items()}}
    rest = json.dumps(facts).encode() + b"\n" + b"".join(a.tobytes() for a in arrays.values())
    return hashlib.sha256(rest).hexdigest().encode() + b"\n" + rest


def read(path):
    """Facts and arrays of a proof's file, if it is whole."""
    if Path(path).stat().st_size > MOST_BYTES:
        raise ProofError(f"larger than {MOST_BYTES:,} bytes")
    sha256, _, rest = Path(path).read_bytes().partition(b"\n")
    if sha256 != hashlib.sha256(rest).hexdigest().encode():
        raise ProofError("altered or truncated: its digest does not match")
    line, _, numbers = rest.partition(b"\n")
    facts, arrays, end = json.loads(line), {}, 0
    if facts["format"] != FORMAT:
        raise ProofError(f"of format {str(facts['format'])[:40]!r}, not {FORMAT!r}")
    for name, (kind, shape) in facts["arrays"].items():
        if kind not in ("<f8", "<f4", "|u1") or not all(type(n) is int and n >= 0 for n in shape):
            raise ProofError(f"{name[:40]!r} is no array of numbers")
        arrays[name] = np.frombuffer(numbers, kind, math.prod(shape), end).reshape(shape)
        end += arrays[name].nbytes
    if end != len(numbers):
        raise ProofError("it has numbers without a name")
    return facts, arrays


class Model:
    """A model of the kind above: checked, and tabulated by symbol."""

    def __init__(self, facts, weights):
        def number(name, least, most, kinds=(int,)):
            value = facts[name]
            if type(value) not in kinds or not least <= value <= most:
                raise ProofError(f"{name} must be in {least}..{most:g}, not {str(value)[:40]}")
            return value

        self.facts, self.k, self.depth = facts, number("n_types", 1, 63), number("max_depth", 1, 63)
        self.length, self.kinds = number("length", 0, 10**6), self.k * self.depth
        norms = [
            number(n, 0, 1e9, (int, float)) for n in ("ln_c", "ln_mid") if facts[n] is not None
        ]
        eps, scale = (
            number("eps", 0, 1e9, (int, float)),
            number("attn_scale", 1e-9, 1e9, (int, float)),
        )
        known = facts["act_fn"] in (None, "relu") and facts["ln1"] in (None, "ln", "lnpre")
        if not known or len(norms) > 1 or type(facts["residual"]) is not bool:
            raise ProofError("it is of a model of another kind")
        if facts["claim"] not in CLAIMS or self.kinds > 63 or self.k**self.depth > LARGEST:
            raise ProofError("its claim is unknown, or its language too large")
        self.floor = Ball(norms[0]) if norms else None
        table, (d, e), h = weights["W_E"], weights["W_Q"].shape, len(weights.get("b_in", ()))
        depths, vocab, out = table.shape[1:-1], 2 * self.k + 1, len(weights["b_U"])
        shapes = {"W_E": (max(len(table), vocab), *depths, d), "W_O": (e, d), "b_O": (d,)}
        shapes |= {f"W_{x}": (d, e) for x in "QKV"} | {f"b_{x}": (e,) for x in "QKV"}
        if facts["act_fn"]:
            shapes |= {"W_in": (d, h), "b_in": (h,), "W_out": (h, d), "b_out": (d,)}
        if facts["ln1"] == "ln":
            shapes |= {"ln1_w": (d,), "ln1_b": (d,)}
        shapes |= {"W_U": (d, max(out, vocab)), "b_U": (max(out, vocab),)}
        if {name: array.shape for name, array in weights.items()} != shapes:
            raise ProofError("its weights do not fit together")
        if depths not in ((), (self.depth + 1,)) or max(d, e, h, out) > LARGEST:
            raise ProofError("its weights are of an odd size")
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise ProofError("a weight is not finite")
        self.w = w = {name: Ball(array) for name, array in weights.items()}
        tokens, levels = [2 * self.k], [0]  # BOS, then of each type and level the two brackets
        for a, level, closes in itertools.product(range(self.k), range(self.depth), (0, 1)):
            tokens.append(2 * a + closes)
            levels.append(level + 1 - closes)
        self.r = x = w["W_E"][(tokens, levels) if depths else tokens]
        if facts["ln1"] is not None:
            x = centred(x)
            square = dot("ij,ij->i", x, x) * Ball(1 / d, U / d) + Ball(eps)
            x = x / root(Ball(square.mid[:, None], square.rad[:, None]))
            x = x * w["ln1_w"] + w["ln1_b"] if facts["ln1"] == "ln" else x
        q, self.key, v = (dot("ij,je->ie", x, w[f"W_{y}"]) + w[f"b_{y}"] for y in "QKV")
        self.q, self.adds = q / Ball(scale), dot("ie,ed->id", v, w["W_O"]) + w["b_O"]

    def symbol(self, a, level, closes):
        """Index of one bracket of a pair of a type and a level 1..D."""
        return 1 + 2 * (a * self.depth + level - 1) + closes

    def endings(self):
        """Each stack with the type that the last bracket closes, or None if it opens."""
        for d in range(self.facts["claim"] != "valid_token", self.depth + 1):
            for stack in itertools.product(range(self.k), repeat=d):
                for closes in (None, *(range(self.k) if d < self.depth else ())):
                    form = Form(self, stack, closes)
                    if form.losers and form.root() is not None:
                        yield form

    def n_prefixes(self):
        """How many prefixes the claim is about."""
        ways, total = [1] + [0] * self.depth, 0
        for _ in range(self.length + 1):
            total += sum(ways[self.facts["claim"] != "valid_token" :])
            up = [0, *(self.k * number for number in ways[:-1])]
            ways = [a + b for a, b in zip(up, [*ways[1:], 0], strict=True)]
        return total

    def says(self):
        """What a proof about the model proves, as a sentence."""
        return (
            f"{CLAIMS[self.facts['claim']]}, after each of {self.n_prefixes():,} prefixes of "
            f"Dyck({self.k}, {self.depth}) of up to {self.length} brackets"
        )


class Form:
    """F of an ending; rows are (1, m), columns pairs of a loser and a winner."""

    def __init__(self, model, stack, closes):
        self.model, self.stack, self.closes = model, stack, closes
        self.most = (model.length - len(stack)) // 2
        k, claim, n_out = model.k, model.facts["claim"], len(model.w["b_U"].mid)
        opens = range(0, 2 * k, 2) if claim == "valid_token" and len(stack) < model.depth else ()
        self.winners = [*opens, *(2 * a + 1 for a in stack[-1:])]
        rivals = range(1, 2 * k, 2) if claim == "closing_only" else range(n_out)
        self.losers = [token for token in rivals if token not in self.winners]

    def compute(self):
        """α, β, c, s, V and u, Z, from the model's tables."""
        model, stack, w, facts = self.model, self.stack, self.model.w, self.model.facts
        last = model.symbol(stack[-1], len(stack), 0) if stack else 0
        if self.closes is not None:
            last = model.symbol(self.closes, len(stack) + 1, 1)
        counts = np.zeros((1 + model.kinds, len(model.key.mid)))
        counts[0, [0, *(model.symbol(a, level, 0) for level, a in enumerate(stack, 1))]] = 1
        for i in range(model.kinds):
            for closes in (0, 1):
                counts[1 + i, model.symbol(i % model.k, i // model.k + 1, closes)] = 1
        weight = exponential(dot("e,ie->i", model.q[last], model.key))
        own = model.r[last] if facts["residual"] else Ball(np.zeros(model.r.mid.shape[1]))
        adds = model.adds
        if facts["ln_c"] is None:  # what is normed, or nothing is: the sum of both
            own, adds = Ball(np.zeros_like(own.mid)), adds + own
        adds = adds if model.floor is None else centred(adds)
        weighed = dot("mi,ij->mj", Ball(counts), Ball(np.diag(weight.mid), np.diag(weight.rad)))
        self.u = dot("mi,id->md", weighed, adds)
        self.z = dot("mi,i->m", Ball(counts), weight)
        pairs = [*itertools.product(self.losers, self.winners)]
        lose, win = ([pair[i] for pair in pairs] for i in (0, 1))
        towards = w["W_U"][:, win] + -w["W_U"][:, lose]
        self.alpha = dot("md,dk->mk", self.u, towards)
        self.c = dot("d,dk->k", own, towards) + w["b_U"][win] + -w["b_U"][lose]
        self.beta, self.s = Ball(np.zeros((1 + model.kinds, 0))), Ball(np.zeros(0))
        self.v = Ball(np.zeros((0, len(pairs))))
        if facts["act_fn"]:
            self.beta = dot("md,dh->mh", self.u, w["W_in"])
            self.s = dot("d,dh->h", own, w["W_in"]) + w["b_in"]
            self.v = dot("hd,dk->hk", w["W_out"], towards)
            self.c = self.c + dot("d,dk->k", w["b_out"], towards)
        self.across = dot("id,jd->ij", self.u[1:], self.u[1:]).size
        return self

    def holds(self, lower):
        """From lower bounds of F: whether against each loser some winner is sure to win."""
        shape = len(lower), len(self.losers), len(self.winners)
        return (np.nan_to_num(lower, nan=-1.0).reshape(shape).max(2) > 0).all(1)

    def bounds(self, low, high):
        """Whether the bound settles boxes, ``[n]``; how much each axis loosens it, ``[n, i]``."""
        rows, r = Ball(np.hstack([np.ones((len(low), 1)), (low + high) / 2])), (high - low) / 2
        tangent, e, known = self.divisor(rows, r)  # ρ is in [tangent, tangent + e]
        at_c = dot("nm,nm->n", rows, tangent)
        rho, slope = Ball(at_c.mid[:, None], at_c.rad[:, None]), tangent[:, None, 1:]
        p = dot("nm,mh->nh", rows, self.beta) + self.s * rho
        s = self.s[None, :, None]
        tilted = Ball(self.beta.mid[1:].T, self.beta.rad[1:].T)[None] + s * slope
        spread = np.einsum("nhi,ni->nh", tilted.size, r) * GROW
        bottom = (p.low - spread + np.minimum(self.s.low, 0) * e) - 8 * U * (p.size + spread)
        top = (p.high + spread + np.maximum(self.s.high, 0) * e) + 8 * U * (p.size + spread)
        bottom, top = bottom - 8 * U * self.s.size * e, top + 8 * U * self.s.size * e
        unsure = (bottom < 0) & (top > 0)
        below = np.where(unsure, top > -bottom, bottom >= 0).astype(float)
        chord = np.where(unsure, np.minimum(top / (top - bottom) * (1 + 8 * U), 1.0), below)
        lift = np.where(unsure, -chord * bottom * (1 + 8 * U), 0.0)
        up, down = np.maximum(self.v.mid, 0), np.minimum(self.v.mid, 0)
        slopes = Ball(below[:, :, None]) * Ball(up) + Ball(chord[:, :, None]) * Ball(down)
        per_rho = self.c[None] + dot("nhk,h->nk", slopes, self.s)
        value = dot("nm,mk->nk", rows, self.alpha) + self.c * rho
        value = value + dot("nhk,nh->nk", slopes, p) + dot("nh,hk->nk", Ball(lift), Ball(down))
        alpha = Ball(self.alpha.mid[1:].T, self.alpha.rad[1:].T)[None]
        linear = alpha + dot("nhk,ih->nki", slopes, self.beta[1:]) + per_rho[:, :, None] * slope
        lost = np.einsum("nki,ni->nk", linear.size, r) - np.minimum(per_rho.low, 0) * e
        lost = (lost + np.maximum(top, 0) @ self.v.rad) * GROW + 4 * U * value.size
        loose = np.where(unsure, abs(self.v.mid).max(1, initial=0.0), 0.0)
        width = linear.size.max(1) * r + r * np.einsum("nh,nhi->ni", loose, tilted.size)
        return self.holds(np.where(known, value.low - lost, -1.0)), width

    def divisor(self, rows, r):
        """A linear lower bound of ρ, ``[n, m]``; how far ρ can be above; where that is known."""
        if self.model.floor is None:
            z = Ball(np.tile(self.z.mid, (len(r), 1)), np.tile(self.z.rad, (len(r), 1)))
            return z, np.zeros((len(r), 1)), np.ones((len(r), 1), dtype=bool)
        u = dot("nm,md->nd", rows, self.u)
        size = np.sqrt((u.mid**2).sum(1))[:, None]
        tangent = dot("nd,md->nm", Ball(u.mid / size * (1 - 1e-12)), self.u)  # |w| ≤ 1
        moved = np.einsum("ni,ij,nj->n", r, self.across, r)[:, None] * GROW
        off = 2e-12 * size + np.sqrt((u.rad**2).sum(1))[:, None] * GROW  # ≥ |u(c) - R w|
        e = moved / (2 * size) + off * (1 + np.sqrt(moved) / size + off / size) + 4e-12 * size
        floor = tangent + -(self.model.floor * self.z)[None]  # C Z must be below
        least = dot("nm,nm->n", rows, floor).low
        least = least - np.einsum("ni,ni->n", floor.size[:, 1:], r) * GROW
        known = (size > 0) & (least[:, None] > 0) & np.isfinite(e)
        return tangent, np.where(known, e * GROW, 0.0), known

    def points(self, m):
        """Whether the prefixes of some numbers of pairs are right, if there are any, ``[n]``."""
        rows = Ball(np.hstack([np.ones((len(m), 1)), m]))
        rho = dot("nm,m->n", rows, self.z)
        if self.model.floor is not None:
            u, least = dot("nm,md->nd", rows, self.u), self.model.floor * rho
            norm = root(dot("nd,nd->n", u, u))
            rho = Ball.between(np.maximum(norm.low, least.low), np.maximum(norm.high, least.high))
        rho = Ball(rho.mid[:, None], rho.rad[:, None])
        hidden = relu(dot("nm,mh->nh", rows, self.beta) + self.s * rho)
        found = dot("nm,mk->nk", rows, self.alpha) + self.c * rho + dot("nh,hk->nk", hidden, self.v)
        depth, opens = len(self.stack), self.closes is None
        levels = m.reshape(len(m), self.model.depth, self.model.k).sum(2)
        there = levels.sum(1) <= (self.most if depth or not opens else 0)
        for level in range(depth + (not opens), self.model.depth):  # children need a parent
            there &= (levels[:, level] == 0) | (levels[:, max(level - 1, 0)] > 0) | (level == 0)
        return self.holds(found.low) | ~there

    def root(self):
        """The box of all prefixes of the ending; None if there is none."""
        low = np.zeros(self.model.kinds, dtype=np.int64)
        if self.closes is not None:
            low[len(self.stack) * self.model.k + self.closes] = 1
        return self.cut(low, low + max(self.most, 0))

    def cut(self, low, high):
        """A box without what Σ m ≤ M forbids; None if nothing is left."""
        left = self.most - low.sum()
        return None if left < 0 else (low, np.minimum(high, low + left))

    def halves(self, low, high, axis):
        """A box in two along an axis, each cut; what is empty left out."""
        middle, along = (low[axis] + high[axis]) // 2, np.arange(len(low)) == axis
        parts = (low, np.where(along, middle, high)), (np.where(along, middle + 1, low), high)
        return [box for part in parts if (box := self.cut(*part)) is not None]


def listed(low, high):
    """The integer points of a box."""
    return np.stack([g.ravel() for g in np.indices(high - low + 1)], axis=1) + low


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    weights = {name: array for name, array in arrays.items() if name != "trees"}
    model, trees = Model(facts, weights), arrays["trees"].ravel().tolist()
    at, n_points = 0, 0
    for form in model.endings():
        boxes, points, todo = [], [], [form.root()]
        while todo:
            low, high = todo.pop()
            if at == len(trees):
                raise ProofError("its trees end too soon")
            node, at = trees[at], at + 1
            if node == BOUND:
                boxes.append((low, high))
            elif node == POINTS:
                n_points += math.prod((high - low + 1).tolist())
                if n_points > MOST_POINTS:
                    raise ProofError(f"it has more than {MOST_POINTS:,} points")
                points.append(listed(low, high))
            elif node < model.kinds and low[node] < high[node]:
                todo += form.halves(low, high, node)[::-1]
            else:
                raise ProofError(f"node {node} cannot stand where it does")
        form.compute()
        fine = [form.points(some).all() for some in points]
        for first in range(0, len(boxes), 1024):
            low, high = np.array(boxes[first : first + 1024], dtype=float).swapaxes(0, 1)
            fine.append(form.bounds(low, high)[0].all())
        if not all(fine):
            closes = "" if form.closes is None else f" whose last bracket closes type {form.closes}"
            raise ProofError(f"it does not hold for prefixes with the stack {form.stack}{closes}")
    if at != len(trees):
        raise ProofError("it has trees of no ending")
    return model.says()


def compare(facts, arrays, folder):
    """Raise ProofError unless a saved model has the weights of a proof, number by number."""
    data = (Path(folder) / "model.safetensors").read_bytes()
    if hashlib.sha256(data).hexdigest() != facts["model"]:
        raise ProofError("the model's file is not the one that the proof names")
    size = 8 + int.from_bytes(data[:8], "little")
    saved = json.loads(data[8:size])
    for name, array in arrays.items():
        room = "mlp" if name[-2:] in ("in", "ut") else "ln1" if name[:3] == "ln1" else "attn"
        own = {"W_E": "embed.W_E", "W_U": "unembed.W_U", "b_U": "unembed.b_U"}
        entry = saved.get(own.get(name, f"blocks.0.{room}.{name.removeprefix('ln1_')}"))
        if entry is None and name in ("trees", "W_E", "W_Q", "W_K", "b_Q", "b_K"):
            continue  # constants of an architecture: depths as coordinates, uniform attention
        start, end = entry["data_offsets"]
        kind = {"F32": "<f4", "F64": "<f8"}[entry["dtype"]]
        if not np.array_equal(np.frombuffer(data[size + start : size + end], kind), array.ravel()):
            raise ProofError(f"{name} is not that of the model")


def check_file(path, folder=None):
    """What the proof in a file proves, as a sentence; raises ProofError if that is nothing."""
    try:
        with np.errstate(all="ignore"):
            facts, arrays = read(path)
            said = check(facts, arrays)
            if folder is not None:
                compare(facts, arrays, folder)
    except ProofError:
        raise
    except OSError as error:
        raise ProofError(f"{error.filename} cannot be read: {error.strerror}") from None
    except Exception as error:  # whatever a file can do wrong, it proves nothing
        raise ProofError(f"damaged ({type(error).__name__})") from None
    model = str(facts.get("model"))
    return f"proved: {said}; weights {model} {'compared' if folder else 'as the file has them'}"


def main(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(description="Check a proof about every prefix of a language.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    parser.add_argument("--model", metavar="FOLDER", help="of the saved model, to compare weights")
    options, failed = parser.parse_args(arguments), False
    for file in options.files:
        try:
            print(f"{file}: {check_file(file, options.model)}")
        except ProofError as error:
            print(f"{file}: not proved: {error}")
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
