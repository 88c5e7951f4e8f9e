"""Check a proof that a one-layer transformer is right on every prefix of a bounded Dyck language.

One file, numpy and the standard library only; nothing is searched. Copy it out, read it, run it:
``python check_proof.py FILE [--model FOLDER | --beside]``. Exit status 0: proved; 1: not.

*What is proved.* Dyck(k, D) has brackets 2a (opens) and 2a + 1 (closes) of types a < k, nested at
most D deep; BOS is token 2k. After every prefix of up to N brackets of which the claim speaks, for
every token that must not win, some token that may win has a larger logit: see `CLAIMS`.

*The model.* One layer, one head, no positions, no norm but LN_C. A symbol is a bracket with the
depth after it. With n_s how often symbol s occurs, E_s = exp(q·k_s) up to a common factor, q of the
last symbol, and r its embedding, attention sums u = Σ_s n_s E_s (W_O v_s + b_O) and Z = Σ_s n_s E_s
(with r in each term, if it is added before the norm), and gives u / Z, or P u / max(|P u|, C Z)
with LN_C (Wen et al. 2023, Eq. 7; P subtracts the mean). Then come r, if it is added after the
norm, an MLP with ReLU, the unembedding. Let ρ be the divisor. ρ times a difference of logits is
F = α(n) + c ρ + Σ_j V_j relu(β_j(n) + s_j ρ) with α, β linear: logits compare as its sign says.

*Theorem.* A prefix consists of its stack t_1 … t_d, its last bracket, and m_i ≥ 0 matched pairs of
each level and type, i = k (level - 1) + type; n is linear in (1, m), and the length is d + 2 Σ m.
So all prefixes of an ending (a stack and a last bracket) are integer points of a box with Σ m ≤ M =
(N - d) / 2. The file has for each ending a tree in preorder, one byte a node: i < 64 halves the box
along axis i, 255 says that the bound settles it. What no prefix has (Σ m > M, pairs without a
bracket around them) is cut off by one rule. So whatever a tree says, each prefix is in some leaf.

*Bound.* For |w| ≤ 1 and R > 0, w·u ≤ |u| ≤ (|u|² + R²) / 2R. On a box with centre c and radii r
take R ≈ |u(c)|, w ≈ u(c) / R: |u| is between w·u and that plus Σ_ij r_i r_j |u_i·u_j| / 2R, but for
rounding. So ρ = T(m) + θ with T linear and θ in [0, e], one more axis. A ReLU whose sign is not
settled is replaced by 0 or its argument where V_j > 0 (from below), by its chord where V_j < 0.
What is left is linear in x = (1, m, θ), and its least value on the box is read off.

*Arithmetic.* Numbers are enclosed: a float64 and a radius. Sums, products and roots are rounded
correctly (IEEE 754); a sum of n products, in any order, fused or not, is off by at most
n u / (1 - n u) times the sum of their sizes, u = 2^-53. Exponentials are `decimal`'s, which rounds
correctly. Radii grow by 1e-9 for their own rounding, and by 1e-300 for what underflows.
"""

import argparse
import hashlib
import itertools
import json
import math
import sys
from decimal import Decimal, localcontext
from pathlib import Path

import numpy as np

FORMAT, BOUND = "tl_dyck.proof/2", 255
U, GROW, TINY = 2.0**-53, 1 + 1e-9, 1e-300
MOST_BYTES, LARGEST = 2**28, 4096
CLAIMS = {
    "any_token": "the bracket that closes the top of the stack has the largest logit of all tokens",
    "closing_only": "that bracket has the largest logit of all closing brackets",
    "valid_token": "the largest logit is that of a token that may follow",
}
RANGES = {"n_types": (1, 63), "max_depth": (1, 63), "length": (0, 10**4), "floor": (0, 1e9)}
RANGES["attn_scale"] = (1e-9, 1e9)
# axes of weights: tokens, depths, d_model, head, MLP, output
AXES = {"W_E": "tld", "W_O": "ed", "b_O": "d", "W_in": "dh", "b_in": "h", "W_out": "hd"}
AXES |= {"b_out": "d", "W_U": "do", "b_U": "o"}
AXES |= {f"W_{x}": "de" for x in "QKV"} | {f"b_{x}": "e" for x in "QKV"}


class ProofError(ValueError):
    """The file is no proof, or proves nothing; the message is one line and says why."""


class Enclosure:
    """Numbers known up to a radius."""

    def __init__(self, mid, rad=0.0):
        self.mid = np.asarray(mid, dtype=np.float64)
        self.rad = np.broadcast_to(np.asarray(rad, dtype=np.float64), self.mid.shape)
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
        mid = np.array(
            [float(min(Decimal(float(each)) - top, Decimal(1000)).exp()) for each in x.mid]
        )
    return Enclosure(mid, mid * (1.002 * x.rad + 4 * U) * GROW + TINY)


class Model:
    """A model of the kind above: checked, and tabulated by symbol: BOS, those of each pair."""

    def __init__(self, facts, weights):
        for name, (least, most) in RANGES.items():  # a float for an integer cannot be counted with
            if type(facts[name]) not in (int, float) or not least <= facts[name] <= most:
                raise ProofError(f"{name} must be in {least}..{most}, not {str(facts[name])[:40]}")
        self.facts, self.k, self.depth = facts, facts["n_types"], facts["max_depth"]
        self.pairs, bos = self.k * self.depth, 2 * self.k
        if facts["claim"] not in CLAIMS or self.pairs > 63 or self.k**self.depth > LARGEST:
            raise ProofError("its claim is unknown, or its language too large")
        sizes = {x: n for y in AXES for x, n in zip(AXES[y], weights[y].shape, strict=True)}
        shapes = {name: tuple(sizes[x] for x in axes) for name, axes in AXES.items()}
        fits = {name: array.shape for name, array in weights.items()} == shapes
        known = sizes["l"] in (1, self.depth + 1) and bos < min(sizes["t"], sizes["o"])
        if not fits or not known or max(sizes[x] for x in "deho") > LARGEST:
            raise ProofError("its weights do not fit together, or are too large")
        if not all(np.isfinite(array).all() for array in weights.values()):
            raise ProofError("a weight is not finite")
        self.w = w = {name: Enclosure(array) for name, array in weights.items()}
        both = list(itertools.product(range(self.pairs), (0, 1)))
        tokens = [bos, *(2 * (i % self.k) + closes for i, closes in both)]
        levels = [0, *(i // self.k + 1 - closes for i, closes in both)]
        self.r = w["W_E"][tokens, levels if sizes["l"] > 1 else 0]
        q, self.key, v = (dot("ij,je->ie", self.r, w[f"W_{y}"]) + w[f"b_{y}"] for y in "QKV")
        self.q = q * Enclosure(1 / facts["attn_scale"], 2 * U / facts["attn_scale"])
        self.adds = dot("ie,ed->id", v, w["W_O"]) + w["b_O"]

    def endings(self):
        """All prefixes, by their stack and the type that the last bracket closes, if it closes."""
        for d in range(self.facts["claim"] != "valid_token", self.depth + 1):
            for stack in itertools.product(range(self.k), repeat=d):
                for closes in (None, *(range(self.k) if d < self.depth else ())):
                    ending = Prefixes(self, stack, closes)
                    if ending.losers and ending.box is not None:
                        yield ending

    def says(self):
        """What a proof about the model proves, as a sentence."""
        claim, length, n = self.facts["claim"], self.facts["length"], 0
        ways = [1] + [0] * self.depth  # to get to each depth
        for _ in range(length + 1):
            n += sum(ways[claim != "valid_token" :])
            up, down = [0, *(self.k * number for number in ways[:-1])], [*ways[1:], 0]
            ways = [a + b for a, b in zip(up, down, strict=True)]
        number = f"{n:,}" if n < 10**100 else f"{Decimal(n):.3e}"
        where = f"Dyck({self.k}, {self.depth}) of up to {length} brackets"
        return f"{CLAIMS[claim]}, after each of {number} prefixes of {where}"


class Prefixes:
    """The prefixes of an ending: their box, and F there, for each loser and winner."""

    def __init__(self, model, stack, closes):
        self.model, self.stack, self.closes, k = model, stack, closes, model.k
        claim, left = model.facts["claim"], model.facts["length"] - len(stack)
        opens = range(0, 2 * k, 2) if claim == "valid_token" and len(stack) < model.depth else ()
        self.winners = [*opens, *(2 * a + 1 for a in stack[-1:])]
        rivals = range(1, 2 * k, 2) if claim == "closing_only" else range(len(model.w["b_U"].mid))
        self.losers = [token for token in rivals if token not in self.winners]
        self.most = left // 2 if stack or closes is not None else 0  # M; no pairs, no bracket
        low = np.zeros(model.pairs, dtype=np.int64)
        if closes is not None:
            low[len(stack) * k + closes] = 1
        self.box = self.cut(low, low + max(self.most, 0))

    def cut(self, low, high):
        """A box without what no prefix has; None if nothing is left."""
        k, high = self.model.k, np.minimum(high, low + self.most - low.sum())
        for level in range(max(len(self.stack) + (self.closes is not None), 1), self.model.depth):
            if not high[(level - 1) * k : level * k].any():  # a pair needs a bracket around it
                high[level * k : (level + 1) * k] = 0
        return None if (high < low).any() else (low, high)

    def halves(self, low, high, axis):
        """A box in two along an axis, each cut; what is empty left out."""
        middle, along = (low[axis] + high[axis]) // 2, np.arange(len(low)) == axis
        parts = (low, np.where(along, middle, high)), (np.where(along, middle + 1, low), high)
        return [box for part in parts if (box := self.cut(*part)) is not None]

    def compute(self):
        """α, β, c, s, V and u, Z, from the model's tables; the last row of x, θ, is 0 in all."""
        model, w = self.model, self.model.w
        opens = [1 + 2 * (level * model.k + a) for level, a in enumerate(self.stack)]
        closing = [] if self.closes is None else [2 + 2 * (len(opens) * model.k + self.closes)]
        last = [0, *opens, *closing][-1]
        counts = np.zeros((model.pairs + 2, 1 + 2 * model.pairs))
        counts[0, [0, *opens]] = 1
        counts[1:-1, 1:] = np.repeat(np.eye(model.pairs), 2, axis=1)
        weight, own = exponential(dot("e,ie->i", model.q[last], model.key)), model.r[last]
        adds = model.adds + own if model.facts["added"] == "before" else model.adds
        adds = centred(adds) if model.facts["norm"] else adds
        after = own * Enclosure(float(model.facts["added"] == "after"))
        self.u = dot("xi,id->xd", counts, weight[:, None] * adds)
        self.z = dot("xi,i->x", counts, weight)
        self.across = dot("xd,yd->xy", self.u, self.u).size
        lose, win = map(list, zip(*itertools.product(self.losers, self.winners), strict=True))
        towards = w["W_U"][:, win] - w["W_U"][:, lose]
        self.alpha = dot("xd,dk->kx", self.u, towards)
        self.c = dot("d,dk->k", after + w["b_out"], towards) + w["b_U"][win] - w["b_U"][lose]
        self.beta = dot("xd,dh->hx", self.u, w["W_in"])
        self.s = dot("d,dh->h", after, w["W_in"]) + w["b_in"]
        self.v = dot("hd,dk->hk", w["W_out"], towards)
        return self

    def bounds(self, low, high):
        """Whether the bound settles boxes, ``[n]``; how much each axis loosens it, ``[n, i]``."""
        one, zero = np.ones((len(low), 1)), np.zeros((len(low), 1))
        x = np.hstack([one, (low + high) / 2, zero])
        r = np.hstack([zero, (high - low) / 2, zero])
        rho, e = self.divisor(x, r)
        x[:, -1] = r[:, -1] = e / 2
        hidden = self.beta[None] + self.s[None, :, None] * rho[:, None]  # [n, h, x]
        p = dot("nx,nhx->nh", x, hidden)
        p = Enclosure(p.mid, (p.rad + np.einsum("nhx,nx->nh", hidden.size, r)) * GROW)
        unsure = (p.low < 0) & (p.high > 0)
        below = np.where(unsure, p.high > -p.low, p.low >= 0).astype(float)
        chord = np.minimum(p.high / (p.high - p.low) * (1 + 8 * U), 1.0)
        above, lift = np.where(unsure, [chord, -chord * p.low * (1 + 8 * U)], [below, 0 * below])
        up, down = Enclosure(np.maximum(self.v.mid, 0)), Enclosure(np.minimum(self.v.mid, 0))
        slopes = Enclosure(below[:, :, None]) * up + Enclosure(above[:, :, None]) * down
        linear = dot("nhk,nhx->nkx", slopes, hidden) + self.alpha[None]
        linear = linear + self.c[None, :, None] * rho[:, None]
        value = dot("nx,nkx->nk", x, linear) + dot("nh,hk->nk", lift, down)
        lost = np.einsum("nkx,nx->nk", linear.size, r) + np.maximum(p.high, 0) @ self.v.rad
        least = Enclosure(value.mid, (value.rad + lost) * GROW).low
        shape = len(low), len(self.losers), len(self.winners)
        fine = (np.nan_to_num(least, nan=-1.0).reshape(shape).max(2) > 0).all(1)
        width = linear.size.max(1) * r
        return fine & np.isfinite(e), width[:, 1:-1]

    def divisor(self, x, r):
        """ρ as a linear function of x, ``[n, x]``, and the largest θ, ``[n]``, on boxes."""
        theta, ones = Enclosure(np.eye(len(self.z.mid))[-1]), Enclosure(np.ones((len(x), 1)))
        if not self.model.facts["norm"]:
            return ones * self.z + theta, np.zeros(len(x))
        u, low = dot("nx,xd->nd", x, self.u), self.z * Enclosure(self.model.facts["floor"])
        size = np.sqrt((u.mid**2).sum(1))  # R
        tangent = dot("nd,xd->nx", u.mid / size[:, None] * (1 - 1e-12), self.u)  # |w| ≤ 1
        moved = np.einsum("nx,xy,ny->n", r, self.across, r) * GROW
        off = 2e-12 * size + np.sqrt((u.rad**2).sum(1)) * GROW  # ≥ |u(c) - R w|
        e = moved / (2 * size) + off * (1 + np.sqrt(moved) / size + off / size) + 4e-12 * size
        # the larger at c of w·u and C Z is T; θ makes up for the other as well
        apart = tangent - ones * low
        at_c, spread = dot("nx,nx->n", x, apart), np.einsum("nx,nx->n", apart.size, r) * GROW
        first = at_c.mid >= 0
        e = np.where(first, np.maximum(e, spread - at_c.low), e + spread + at_c.high)
        use = Enclosure(first[:, None])
        return low + use * apart + theta, np.maximum(e, 0) * GROW


def read(path):
    """Facts and arrays of a proof's file, if it is whole."""
    if Path(path).stat().st_size > MOST_BYTES:
        raise ProofError(f"larger than {MOST_BYTES:,} bytes")
    sha256, _, rest = Path(path).read_bytes().partition(b"\n")
    if sha256 != hashlib.sha256(rest).hexdigest().encode():
        raise ProofError("altered or truncated: its digest does not match")
    line, _, numbers = rest.partition(b"\n")
    facts, arrays, end = json.loads(line), {}, 0
    if facts["format"] not in KINDS:
        raise ProofError(f"of format {str(facts['format'])[:40]!r}, not of {', '.join(KINDS)}")
    for name, (kind, shape) in facts["arrays"].items():
        if kind not in ("<f8", "<f4", "|u1", "<u2"):
            raise ProofError(f"{name[:40]!r} is no array of numbers")
        arrays[name] = np.frombuffer(numbers, kind, math.prod(shape), end).reshape(shape)
        end += arrays[name].nbytes
    return facts, arrays


def check(facts, arrays):
    """Check a proof; what it proves, as a sentence. Raises ProofError if it proves nothing."""
    model = Model(facts, {name: array for name, array in arrays.items() if name != "trees"})
    nodes = iter(arrays["trees"].ravel().tolist())
    for ending in model.endings():
        boxes, todo = [], [ending.box]
        while todo:
            (low, high), node = todo.pop(), next(nodes, None)
            if node == BOUND:
                boxes.append((low, high))
            elif node is not None and node < model.pairs and low[node] < high[node]:
                todo += ending.halves(low, high, node)[::-1]
            else:
                raise ProofError(f"node {node} cannot stand where it does")
        ending.compute()
        for first in range(0, len(boxes), 1024):
            low, high = np.array(boxes[first : first + 1024], dtype=float).swapaxes(0, 1)
            if not ending.bounds(low, high)[0].all():
                raise ProofError(f"not settled: stack {ending.stack}, closed last {ending.closes}")
    if next(nodes, None) is not None:
        raise ProofError("it has trees of no ending")
    return model.says()


def tensors(data):
    """The arrays of a safetensors file."""
    kinds, size = {"F32": "<f4", "F64": "<f8"}, 8 + int.from_bytes(data[:8], "little")
    head, found = json.loads(data[8:size]), {}
    for name in head.keys() - {"__metadata__"}:
        start, end = head[name]["data_offsets"]
        array = np.frombuffer(data[size + start : size + end], kinds[head[name]["dtype"]])
        found[name] = array.reshape(head[name]["shape"])
    return found


def depth_table(kind, shape):
    """Embeddings by token and depth (Wen et al. 2023, Eq. 19-21), which no saved model repeats."""
    table, bos, levels = np.zeros(shape), shape[0] - 1, shape[1] - 1
    for token, level in itertools.product(range(bos), range(levels)):
        depth = level + 1 - token % 2  # of an opening bracket from 1 on, of a closing one from 0
        angle = math.atan2(depth, levels + 2 - depth)
        row = {"onehot": {token * levels + level: 1}, "split": {token: 1, bos + depth: 1}}
        row["yao"] = {token: 1, bos: math.cos(angle), bos + 1: math.sin(angle)}
        table[token, depth, list(row[kind])] = list(row[kind].values())
    table[bos, 0, {"onehot": bos * levels, "split": bos + levels + 1, "yao": bos + 2}[kind]] = 1
    return table


def compare(facts, arrays, folder):
    """Raise ProofError unless a saved model has the options and the weights of a proof."""
    options = json.loads((Path(folder) / "config.json").read_bytes())["config"]
    block, scale = options["block"], math.sqrt(options["d_head"])
    added = {"eq6": "after", "eq49": "before", "gpt": "before", "bare": "never"}[block]
    norm = block in ("eq6", "eq49")
    theirs = {"norm": norm, "floor": options["ln_c"] * norm, "added": added, "attn_scale": scale}
    theirs = {"layer_norm": block == "gpt", **options, **theirs}
    whole = {"n_layers": 1, "n_heads": 1, "position": "none", "layer_norm": False}
    for name in ("n_types", "max_depth", "norm", "floor", "added", "attn_scale", *whole):
        if theirs[name] != (mine := (facts | whole)[name]):
            raise ProofError(
                f"{name} is {theirs[name]} in the model, {str(mine)[:40]} in the proof"
            )
    data = (Path(folder) / "model.safetensors").read_bytes()
    if hashlib.sha256(data).hexdigest() != facts["model"]:
        raise ProofError("the model's file is not the one that the proof names")
    saved = tensors(data)
    own = {"W_E": "embed.W_E", "W_U": "unembed.W_U", "b_U": "unembed.b_U"}
    for name in AXES:
        room = "mlp" if name[-2:] in ("in", "ut") else "attn"
        theirs, mine = saved.get(own.get(name, f"blocks.0.{room}.{name}")), arrays[name]
        if theirs is not None:
            same = np.array_equal(theirs.ravel(), mine.ravel())
        elif name == "W_E":  # by libraries that round cosines differently
            same = np.allclose(depth_table(options["embedding"], mine.shape), mine, 0, 1e-6)
        else:
            same = not mine.any()
        if not same:
            raise ProofError(f"{name} is not that of the model")


KINDS = {FORMAT: (check, compare)}  # check_edits has another


def check_file(path, folder=None):
    """What the proof in a file proves, as a sentence; raises ProofError if that is nothing."""
    try:
        with np.errstate(all="ignore"):
            facts, arrays = read(path)
            check, compare = KINDS[facts["format"]]
            said = check(facts, arrays)
            if folder is not None:
                compare(facts, arrays, folder)
            named = ("weights", facts["model"]) if facts.get("model") else ("weights",)
            how = "compared with the model" if folder else "as the file has them"
            said = f"proved: {said}; {' '.join((*named, how))}"
            if not said.isprintable():  # nor can it be two lines, the second of another's words
                raise ProofError("it has names that are no text")
            return said
    except ProofError:
        raise
    except OSError as error:
        raise ProofError(f"{error.filename} cannot be read: {error.strerror}") from None
    except Exception as error:  # whatever a file can do wrong, it proves nothing
        raise ProofError(f"damaged ({type(error).__name__})") from None


def main(arguments=None):
    """The command line."""
    parser = argparse.ArgumentParser(description="Check proofs.")
    parser.add_argument("files", nargs="+", metavar="FILE")
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--model", metavar="FOLDER", help="compare with the model saved there")
    which.add_argument("--beside", action="store_true", help="with the one in each file's folder")
    options, failed = parser.parse_args(arguments), 0
    for file in options.files:
        folder = Path(file).parent if options.beside else options.model
        try:
            print(f"{file}: {check_file(file, folder)}")
        except ProofError as error:
            print(f"{file}: not proved: {error}")
            failed = 1
    return failed


if __name__ == "__main__":
    sys.exit(main())
