"""Lower bounds of a form on boxes of pairs: many profiles decided at once.

F is piecewise linear in (m, ρ(m)), see `forms`. On a box with centre c and radii r, with δ = m - c,

    ρ(c) + τ·δ ≤ ρ(m) ≤ ρ(c) + τ·δ + e,   τ = ∇|u|(c),   e = Σ_ij r_i r_j |u_i · u_j| / 2ρ(c):

the norm is convex, and ρ ≤ (ρ² + ρ(c)²) / 2ρ(c), whose square is a polynomial in δ. (A floor C Z
that could matter on the box leaves it undecided.) So every β_j + s_j ρ lies between two parallel
linear functions of δ. A ReLU whose sign is not settled on the box is replaced by a line below
V_j relu: for V_j > 0 one through 0, of slope 0 or 1; for V_j < 0 the chord. What is left is linear
in δ, up to a multiple of something in [0, e]; its least value on the box is read off.
"""

from __future__ import annotations

from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import Array
from tl_dyck.certify.language.forms import Form


@final
class Boxes:
    """Bounds of the objectives of a form on boxes.

    Args:
        form: the form.
    """

    def __init__(self, form: Form) -> None:
        self._form = form
        # without row 0, that of BOS and stack, which no box changes
        self._root, self._z = form.root[1:], form.z[1:]
        self._beta = form.beta[1:]  # [kinds, H]
        self._alpha = form.alpha[1:].T  # [K, kinds]
        # |u_i · u_j|, rounded up
        norms = np.sqrt((self._root**2).sum(1))
        # 1e-12 of the lengths: more than a product of so few numbers is rounded by
        self._products = abs(self._root @ self._root.T) + 1e-12 * np.outer(norms, norms)
        self._apart = _apart(form.root)
        self._up, self._down = np.maximum(form.v, 0), np.minimum(form.v, 0)
        # V_jk (β_j, s_j), [H, K (kinds + 1)]: what a unit of slope 1 adds to each coefficient
        lines = np.concatenate([self._beta, form.s[None]])
        self._raised, self._lowered = (
            (sides[:, :, None] * lines.T[:, None]).reshape(
                form.n_hidden, sides.shape[1] * len(lines)
            )
            for sides in (self._up, self._down)
        )
        self._weight = abs(form.v).max(1, initial=0.0)  # of a hidden unit

    def lower(self, low: Array, high: Array) -> tuple[Array, Array, Array]:
        """Bound the objectives, times ρ, from below.

        Args:
            low: least number of pairs of each kind, ``[n, kinds]``.
            high: greatest number.

        Returns:
            The bounds, ``[n, K]``, -inf where nothing is known; an upper bound of ρ, ``[n]``, where
            something is; and how much each kind loosens the bounds, ``[n, kinds]``.
        """
        one = np.ones((len(low), 1))
        # (1, centre), [n, 1 + kinds]
        rows = np.concatenate([one, (low + high) / 2], axis=1)
        radius, top = (high - low) / 2, np.concatenate([one, high], axis=1)
        form = self._form
        rho, slope, excess, rounding = self._tangent(rows, radius, top)
        extended = np.concatenate([rows, rho[:, None]], axis=1)
        # β_j + s_j ρ at the centre, [n, H]
        pre = extended @ form.hidden
        # kinds first, so that units, of which there are more, are side by side in memory
        tilted = slope.T[:, :, None] * form.s  # [kinds, n, H]
        tilted += self._beta[:, None]
        np.abs(tilted, out=tilted)
        spread = np.einsum("inh,ni->nh", tilted, radius)
        # ρ may exceed its tangent by e: that lowers a unit only if s_j < 0, and raises it if s_j >
        # 0
        bottom = pre - spread + np.minimum(form.s, 0) * excess[:, None]
        ceiling = pre + spread + np.maximum(form.s, 0) * excess[:, None]
        unsettled = (bottom < 0) & (ceiling > 0)
        # slope 1 of units that are on all over the box; of the rest 0, and the
        # unsettled are overwritten
        on = (bottom >= 0).astype(float)
        # settled units are linear: slope 1 if on, 0 if off
        chord = np.divide(ceiling, ceiling - bottom, out=on.copy(), where=unsettled)
        # of the lines through 0 below relu the one that is nearer on most of the range
        below = np.where(unsettled & (ceiling > -bottom), 1.0, on)
        # the chord is 0 at `bottom`
        offset = np.where(unsettled, -chord * bottom, 0.0)
        # V > 0: below the ReLU lies a line through 0, which has no offset
        constant = extended @ form.direct + (below * pre) @ self._up
        # where V < 0, V relu ≥ V chord
        constant += (chord * pre + offset) @ self._down
        slopes = below @ self._raised + chord @ self._lowered
        slopes = slopes.reshape(len(rows), form.n_objectives, -1)  # [n, K, kinds + 1]
        per_rho = form.c + slopes[:, :, -1]
        # α itself, and what moves with ρ along its tangent
        linear = slopes[:, :, :-1] + self._alpha + per_rho[:, :, None] * slope[:, None, :]
        parts = abs(linear) * radius[:, None, :]
        # a linear function is least at a corner: minus |slope| · radius of each kind
        # ρ exceeds its tangent by a number in [0, e]: only a negative factor lowers the bound by it
        bound = constant - parts.sum(2) + np.minimum(per_rho, 0) * excess[:, None]
        bound -= rounding[:, None]
        loose = np.where(unsettled, self._weight, 0.0)
        # 1e-6 is far more than rounding; a margin is a bound divided by it, so that it must not be
        # small
        longest = (rho + np.einsum("ni,ni->n", abs(slope), radius) + excess) * (1 + 1e-6)
        # a guess at what halving a kind would gain: nothing depends on it but the number of boxes
        width = parts.max(1) + radius * np.einsum("nh,inh->ni", loose, tilted)
        return bound, longest, width

    def _tangent(self, rows: Array, radius: Array, top: Array) -> tuple[Array, Array, Array, Array]:
        """ρ at the centre, its gradient, e, and what rounding takes from a bound.

        The latter is infinite where the floor is not out of play, or ρ hardly known.
        """
        form = self._form
        if not form.has_norm:
            z = rows @ form.z
            slope = np.broadcast_to(self._z, radius.shape)
            # 8: a bound takes a few times the operations of one value, of which `worst_error`
            # speaks
            return z, slope, 0 * z, 8 * form.worst_error(top, z)[0]
        u = rows @ form.root
        rho = np.sqrt(np.einsum("ni,ni->n", u, u))
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            slope = (u @ self._root.T) / rho[:, None]
            # |Σ δ_i u_i|², at most; e is that over 2 ρ(c)
            excess = np.einsum("ni,ni->n", radius @ self._products, radius)
            # rounded up, as `least` is rounded down: 1e-6 and 1e-7 are room, and make no box
            # undecided
            excess = excess / (2 * rho) * (1 + 1e-6)
            least = rho * (1 - 1e-7) - np.einsum("ni,ni->n", abs(slope), radius)
            # two lower bounds of |u|: the tangent's, which is poor on large boxes, and the stack's
            # own
            least = np.maximum(least, top @ self._apart)
            error, rho_error = form.worst_error(top, least)
            # what is lost grows with the numbers that are added: those of F, and e
            rounding = 8 * error + 1e-12 * form.per_error * excess
        # the floor C Z is largest at the top
        known = (least > form.floor * (top @ form.z) * (1 + 1e-6)) & np.isfinite(rounding)
        # the 1e-7 and 1e-6 above hold if ρ is known as well as this
        known &= (rho > 0) & (rho_error < 1e-7 * least)
        slope, excess = np.where(known[:, None], slope, 0.0), np.where(known, excess, 0.0)
        return rho, slope, excess, np.where(known, rounding, np.inf)


def _apart(root: Array) -> Array:
    """Coefficients of (1, m) with |(1, m) L| ≥ their sum: what no pairs can take from the stack.

    For a unit w that is orthogonal to the pairs' rows, |(1, m) L| ≥ w · (1, m) L = w · L_0, but for
    what rounding leaves of the other products, which is subtracted.
    """
    stack, pairs = root[0], root[1:]
    rest = stack - pairs.T @ np.linalg.lstsq(pairs.T, stack, rcond=None)[0]
    # `lstsq` need not be exact: any w serves, `along` is computed from the one that is found
    size = float(np.sqrt(rest @ rest))
    # the stack lies in the span of the pairs, up to rounding: nothing is left that they cannot
    # cancel
    if not size > 1e-9 * float(np.sqrt(stack @ stack)):
        return np.zeros(len(root))
    # a vector that is no longer than 1 gives a lower bound; one that is longer does not
    along = root @ (rest / (size * (1 + 1e-12)))
    # a product of as many numbers as there are kinds, γ of 900 of them
    slack = 1e-13 * np.sqrt((root**2).sum(1))
    # row 0 is the stack, with its sign; of pairs, which are at least 0, the worse sign
    apart: Array = np.concatenate([along[:1], -abs(along[1:])]) - slack
    return apart
