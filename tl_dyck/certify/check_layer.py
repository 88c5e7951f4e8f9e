"""What proofs about one-layer decoders know of the network: its weights, symbols and activations.

Copied with ``check_edits.py``, ``check_automaton.py`` or ``check_two_layers.py``.

*The network* (Zhang et al., arXiv 2405.17361). A symbol s is a token with its position, its depth
of brackets, both or neither. After symbols that end with s' head h returns o_h = Σ E_hs v_hs / Z_h,
Z_h = Σ E_hs, E_hs = exp(q_h(s')·k_hs) up to a common factor. Then W_O, LN_C (Eq. 7 of Wen et al.
2023) or none, the residual or not, LN_C or none, an MLP (ReLU, GELU, its form with tanh, SiLU)
behind a norm or none, a norm or none, the unembedding. Queries and keys may be divided by the root
of their mean square, and turned by tables of their places; an MLP may be gated: the activation of
x W_gate + b_gate, times x W_in + b_in, plus b_post.
"""

import math
from decimal import Decimal, localcontext

import numpy as np

if __package__:
    from tl_dyck.certify import check_language as base
else:  # copied out
    import check_language as base

Enclosure, need, dot, GROW, U = base.Enclosure, base.need, base.dot, base.GROW, base.U
# GELU: what one number costs by series in `decimal`, in nanoseconds or so
WORK, GELU = base.WORK, 120_000
AXES = {"W_O": "ned", "b_O": "d", "W_U": "do", "b_U": "o"}
AXES |= {f"W_{x}": "nde" for x in "QKV"} | {f"b_{x}": "ne" for x in "QKV"}
NORMS = ("ln1", "ln2", "ln_final")
CONFIG = ("state", "act_fn", "ln_c", "ln_mid", "residual", "attn_scale", "eps", "n_types")
CONFIG += ("max_depth", "bos_token", "n_ctx", "separator", *NORMS)
# what a file says only if it is otherwise
PLAIN = {"positions": "standard", "qk_norm": False, "gated": False}
POSITIONS = ("standard", "rotary", "standard+rotary")
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
        self.c = config = PLAIN | config
        self.rows = {token: i for i, token in enumerate(tokens)}
        axes = dict(AXES) | {"W_E": "tld" if config["max_depth"] else "td"}
        if "position" in config["state"]:
            axes |= {"W_pos": "pd"} if config["positions"] != "rotary" else {}
            turned = config["positions"] != "standard"
            axes |= {"rotary_cos": "pe", "rotary_sin": "pe"} if turned else {}
        if config["act_fn"]:
            axes |= {"W_in": "dh", "b_in": "h", "W_out": "hd", "b_out": "d"}
            axes |= {"W_gate": "dh", "b_gate": "h", "b_post": "h"} if config["gated"] else {}
        axes |= {"q_norm_w": "e", "k_norm_w": "e"} if config["qk_norm"] else {}
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
        known &= config["positions"] in POSITIONS and type(config["qk_norm"]) is bool
        known &= type(config["gated"]) is bool
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
            x = self.normed(x[:, None])[:, 0]
            x = x * w["ln1_w"] + w["ln1_b"] if self.c["ln1"] == "ln" else x
        q, k, self.v = (dot("sd,nde->sne", x, w[f"W_{y}"]) + w[f"b_{y}"] for y in "QKV")
        q, self.k = self.placed(q, "q", positions), self.placed(k, "k", positions)
        # scores are q·k / attn_scale; dividing q once spares every pair
        self.q = q * inverse(Enclosure(self.c["attn_scale"]))
        self.rays = None

    def normed(self, x):
        """X / √(mean x² + eps), over the last of three axes."""
        square = dot("sne,sne->sn", x, x) * inverse(Enclosure(float(x.mid.shape[2])))
        return x * inverse(root(square + Enclosure(self.c["eps"])))[:, :, None]

    def placed(self, x, name, positions):
        """Queries or keys, ``[S, n, e]``, divided by their root mean square, and turned."""
        w, n = self.w, x.mid.shape[2]
        x = self.normed(x) * w[f"{name}_norm_w"] if self.c["qk_norm"] else x
        if "rotary_cos" in w:
            # each of a pair of neighbours has the other's sine, with its sign; the last of an odd
            # number stays itself
            other = np.minimum(np.arange(n) ^ 1, n - 1)
            cos, sin = (w[f"rotary_{y}"][positions][:, None] for y in ("cos", "sin"))
            x = x * cos + x[:, :, other] * sin
        return x
