"""One head and one norm: objectives as piecewise linear functions of pairs and one length.

In a layer of Eq. 6 or Eq. 49 with one head, what LN_C reads is, times Z > 0, linear in how often
each symbol occurs:

    u(m) = Σ_s n_s E_s P(W_O v_s + b_O)            (Eq. 6; Eq. 49: P(r_q + W_O v_s + b_O)),
    ρ(m) = max(|u|, C Z),     LN_C = u / ρ.

With a ReLU, what follows is homogeneous: times ρ, an objective g = D · logits + d is

    F(m) = ρ g = α(m) + c ρ + Σ_j V_j relu(β_j(m) + s_j ρ),

where α and β_j are linear in (1, m), and c, s_j and V_j constants. So g > 0 iff F > 0, and all of
m enters through *linear functions and one convex one*, ρ. (No LN_C: the same with ρ = Z, linear.
Balanced pairs have u = 0: Wen et al. 2023, Theorem 1; then F moves by the floor C Z alone.)

Rounding. All constants are balls, made by ball arithmetic. |u(m)| is computed from a triangular L
with |(1, m) L| ≈ |u|; how far L Lᵀ is from the Gram matrix of the u_i is measured, not assumed.
Every error of an evaluation is at most linear in (1, m), ρ and the error of ρ; the coefficients are
computed once (`_slack`), with γ of more operations than any number goes through, and doubled.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, centre, gamma
from tl_dyck.certify.language.counted import NetworkSymbols
from tl_dyck.certify.language.profiles import Ending
from tl_dyck.certify.objectives import Objectives
from tl_dyck.rnn import RNNConfig


def has_form(config: RNNConfig) -> bool:
    """Whether a network's objectives are of the form above."""
    plain = config.ln2 is None and config.ln_final is None and not config.gated
    one_norm = config.ln_c is None or config.ln_mid is None
    # one head has one Z; GELU is not homogeneous: ρ gelu(p) is no gelu(ρ p)
    return config.n_heads == 1 and plain and one_norm and config.act_fn in (None, "relu")


@final
@dataclass(frozen=True)
class _Constants:
    """The constants, as balls; rows are (1, m)."""

    u: Ball
    """[1 + I, d]"""
    z: Ball
    """[1 + I]"""
    alpha: Ball
    """[1 + I, K]"""
    c: Ball
    """[K]"""
    beta: Ball
    """[1 + I, H]"""
    s: Ball
    """[H]"""
    v: Ball
    """[H, K]"""


@final
class Form:
    """Objectives of the logits after the prefixes of an ending, times ρ.

    Args:
        symbols: of a network that `has_form`.
        ending: of the prefixes.
        objectives: K functions of the logits.
    """

    _size: Array
    _off: Array
    _per_pair: Array
    _per_rho: float
    per_error: float
    """Of F, per error of ρ."""

    def __init__(self, symbols: NetworkSymbols, ending: Ending, objectives: Objectives) -> None:
        config = symbols.network.config
        parts = _parts(symbols, ending, objectives)
        self.has_norm = config.ln_c is not None or config.ln_mid is not None
        self.floor = config.ln_c or config.ln_mid or 0.0
        self.n_kinds, self.n_objectives = len(parts.u.mid) - 1, parts.c.mid.shape[0]
        self.z, self.alpha, self.c = parts.z.mid, parts.alpha.mid, parts.c.mid
        self.beta, self.s, self.v = parts.beta.mid, parts.s.mid, parts.v.mid
        self.n_hidden = len(self.s)
        self.root = _root(parts.u.mid)
        self._slack(parts)
        # columns that one product with (1, m) gives: L, then the error of ρ, then Z
        self._sizes = np.concatenate(
            [self.root, self._size[:, None], self._off[:, None], self.z[:, None]], axis=1
        )
        self.hidden = np.concatenate([self.beta, self.s[None]])
        self.direct = np.concatenate([self.alpha, self.c[None]])
        self._error = np.append(self._per_pair, self._per_rho)

    def values(self, rows: Array) -> tuple[Array, Array, Array]:
        """Evaluate profiles.

        Args:
            rows: (1, m), ``[n, 1 + kinds]``.

        Returns:
            F = ρ g, ``[n, K]``, a bound of its errors, ``[n, 1]``; ρ and a bound of its error,
            ``[n, 2]``.
        """
        rho, rho_error = self._rho(rows)
        extended = np.concatenate([rows, rho[:, None]], axis=1)
        result = extended @ self.direct
        if self.n_hidden:
            hidden = extended @ self.hidden
            np.maximum(hidden, 0.0, out=hidden)
            result += hidden @ self.v
        error = extended @ self._error + rho_error * self.per_error
        # whoever divides by ρ rounds the quotient, too
        return result, error[:, None], np.stack([rho, rho_error + 2 * UNIT * rho], axis=1)

    def worst_error(self, top: Array, least: Array) -> tuple[Array, Array]:
        """Bounds of the errors of F and ρ wherever m is at most that of `top`, and |u| ≥ `least`.

        With a norm, `least` must be above the floor C Z that `top` has: ρ is taken to be |u|.
        That of F holds for whatever is computed from the constants with no more operations.
        """
        if self.has_norm:
            largest = top @ self._size
            rho_error = self._defect * largest**2 / least + top @ self._off
        else:
            largest = top @ self.z
            rho_error = largest * self._z_error
        error = top @ self._per_pair + largest * self._per_rho + rho_error * self.per_error
        return error, rho_error

    def _rho(self, rows: Array) -> tuple[Array, Array]:
        """ρ and a bound of its error."""
        sizes = rows @ self._sizes
        z = sizes[:, -1]
        if not self.has_norm:
            return z, z * self._z_error
        # all columns but the last three, see `_sizes`
        square = np.einsum("ni,ni->n", sizes[:, :-3], sizes[:, :-3])
        rho = np.sqrt(square)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            # |√a - √b| ≤ |a - b| / √b
            error = self._defect * sizes[:, -3] ** 2 / rho + sizes[:, -2]
        floor = self.floor * z
        # a maximum is off by no more than one of the two
        error = np.where(rho > 0, np.maximum(error, floor * self._z_error), np.inf)
        return np.maximum(rho, floor), error

    def _slack(self, parts: _Constants) -> None:
        """The coefficients of the rounding errors, see the module's docstring."""
        # What a number goes through, with R = 1 + kinds rows, d the width, H hidden units:
        #   (1, m) L, then |·|², a root: 2 R + 1 (`_rho`)     u uᵀ and L Lᵀ below: d, and R
        #   (1, m, ρ) · α or β: R + 1, then ReLU · V and the sum: H + 1 (`values`)
        # So at most R + H + 3, or d: γ of d + H + 3 R covers both, and is doubled.
        u, g = parts.u.mid, 2 * gamma(parts.u.mid.shape[1] + self.n_hidden + 3 * len(parts.u.mid))
        norms = np.sqrt((u**2).sum(1))
        # |ρ² - |(1, m) L|²| ≤ Σ m_i m_j defect_ij ≤ (largest defect_ij / |u_i||u_j|) (Σ m_i |u_i|)²
        products = np.outer(norms, norms)
        # both products are rounded themselves: 2 g of the lengths
        defect = abs(u @ u.T - self.root @ self.root.T) + 2 * g * products
        with np.errstate(divide="ignore", invalid="ignore"):
            ratio = np.where(defect > 0, defect / products, 0.0)
        # doubled, here and below: `ratio`, too, is computed in floating point
        self._defect = 2 * float(ratio.max())
        # a length is off by (d + 3) / 2 roundings
        self._size = norms * (1 + 1e-9)
        # 1e-290 is more than all that can underflow
        # |u| moves by no more than u does: its radius; (1, m) L, and its length, by g Σ m |u_i|
        self._off = 2 * np.sqrt((parts.u.rad**2).sum(1)) + 2 * g * norms + 1e-290
        with np.errstate(divide="ignore", invalid="ignore"):
            relative = np.where(self.z > 0, parts.z.rad / self.z, 0.0)
        # Z is a sum of positive terms, so that what each is off by, relatively, bounds the whole
        self._z_error = 2 * (float(relative.max()) + g)
        # pre-activations: error per pair, per ρ, and per error of ρ
        pre = parts.beta.rad + g * abs(self.beta)
        pre_rho = parts.s.rad + g * abs(self.s)
        # a pre-activation is β + s ρ, and a ReLU is no steeper than 1
        pre_error = abs(self.s) + parts.s.rad
        # |ab - a'b'| ≤ |a - a'| |b| + |a'| |b - b'|: the errors of pre-activations, then those of V
        v, v_off = abs(self.v) + parts.v.rad, parts.v.rad + g * abs(self.v)
        per_pair = parts.alpha.rad + g * abs(self.alpha) + pre @ v + abs(self.beta) @ v_off
        per_rho = parts.c.rad + g * abs(self.c) + pre_rho @ v + abs(self.s) @ v_off
        per_error = abs(self.c) + parts.c.rad + pre_error @ v
        self._per_pair = 2 * per_pair.max(1) + 1e-290
        self._per_rho, self.per_error = 2 * float(per_rho.max()), 2 * float(per_error.max())


def _parts(symbols: NetworkSymbols, ending: Ending, objectives: Objectives) -> _Constants:
    network, table, config = symbols.network, symbols.table, symbols.network.config
    query, counts = symbols.last(ending), Ball.exact(symbols.of_ending(ending))
    weight = symbols.weights(query)
    seen = network.attention_output(table.value.reshape(symbols.size, -1))
    own = table.r.at(query) if config.residual else Ball.exact(np.zeros(config.d_model))
    if config.ln_c is None:  # what is normed, or nothing is: the residual stream with the attention
        seen, own = seen.plus(own), Ball.exact(np.zeros(config.d_model))
    if config.ln_c is not None or config.ln_mid is not None:
        seen = centre(seen)
    u = counts.matmul(seen.times(weight))
    directions, bias = network.unembedding(objectives).differences
    if config.act_fn is None:
        beta, s = Ball.exact(np.zeros((len(u.mid), 0))), Ball.exact(np.zeros(0))
        v = Ball.exact(np.zeros((0, bias.mid.shape[0])))
        c = own.matmul(directions).plus(bias)
    else:
        w_in, w_out = network.weight("W_in"), network.weight("W_out")
        beta, s = u.matmul(w_in), own.matmul(w_in).plus(network.weight("b_in"))
        v = w_out.matmul(directions)
        c = own.plus(network.weight("b_out")).matmul(directions).plus(bias)
    return _Constants(
        u=u,
        z=counts.matmul(weight).reshape(-1),
        alpha=u.matmul(directions),
        c=c,
        beta=beta,
        s=s,
        v=v,
    )


def _root(u: Array) -> Array:
    """L with L Lᵀ ≈ u uᵀ, and no more columns than u has rows."""
    # uᵀ = Q R: u uᵀ = Rᵀ R, so L = Rᵀ; how far off that is, `_slack` measures
    upper: Array = np.asarray(np.linalg.qr(u.T, mode="r"))
    return np.ascontiguousarray(upper.T)
