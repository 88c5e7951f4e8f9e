"""A gated MLP as a stage: of each hidden unit a product of an activation and an affine function."""

from __future__ import annotations

from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import UNIT, Array, apply_activation, gamma
from tl_dyck.certify.exact.functional import Functional, ulp
from tl_dyck.certify.exact.mlp import Mlp, activation_lines, below_lines


@final
class Gated(Mlp):
    """out = m + (φ(p) u + b_post) W_out + b_out, p = n W_gate + b_gate, u = n W_in + b_in.

    With c and d the middles of the ranges of φ(p) and u, r and s half their widths,

        φ u = d φ + c u - c d + (φ - c)(u - d),   |(φ - c)(u - d)| ≤ r s,

    which is linear in u and φ(p) but for r s, of second order in the size of the region. φ(p) is
    then bounded by lines, as in a plain MLP.
    """

    def _hidden(self) -> tuple[Array, Array, Array]:
        """See `Mlp`."""
        low, high, at_gate = self._pre("gate")
        self.lines = activation_lines(self.name, low, high, at_gate)
        self.pre_size = np.maximum(abs(low), abs(high))[:, None]
        up_low, up_high, at_up = self._pre("in")
        self.up_size = np.maximum(abs(up_low), abs(up_high))[:, None]
        # as middles any numbers are right, since r and s are taken from those that are computed
        phi, self.d = (self.lines.low + self.lines.high) / 2, (up_low + up_high) / 2
        self.c = phi
        self.r = np.maximum(self.lines.high - phi, phi - self.lines.low)
        self.s = np.maximum(up_high - self.d, self.d - up_low)
        phi_size = np.maximum(abs(self.lines.low), abs(self.lines.high))
        self.phi_size = phi_size[:, None]
        ends = (self.lines.low, self.lines.high)
        # a product of two ranges is least and largest at a corner
        corners = np.stack([end * other for end in ends for other in (up_low, up_high)])
        post = self.network.weight("b_post").mid
        # the product, the sum with b_post, and this difference: 3 u
        slack = 4 * UNIT * (phi_size * self.up_size[:, 0] + abs(post)) + 1e-300
        centre = apply_activation(self.name, at_gate) * at_up + post
        return corners.min(0) + post - slack, corners.max(0) + post + slack, centre

    def _below(self, hidden: Functional) -> Functional:
        """See `Mlp`."""
        post, a = self.network.weight("b_post").mid, hidden.coef
        phi = hidden.times(self.d[:, None], self.phi_size)  # a d φ
        up = hidden.times(self.c[:, None], self.up_size)  # a c u
        fixed = a * (post - self.c * self.d)[:, None]  # a (b_post - c d)
        # r and s are rounded differences, then two products: 4 u
        lost = abs(a) * (self.r * self.s * (1 + 8 * UNIT))[:, None]
        # of a few products each, and of adding them up
        size = abs(a) * (abs(post) + abs(self.c * self.d) + self.r * self.s)[:, None]
        # c d, b_post - c d, times a; r s, times 1 + 8 u, times |a|: 3 each; then m sums of both
        error = gamma(a.shape[-1] + 12) * size.sum(-1)
        const = hidden.const + fixed.sum(-1) - lost.sum(-1)
        slack = hidden.slack + phi.slack + up.slack + error
        slack = slack + ulp(hidden.const, fixed.sum(-1), lost.sum(-1))
        by_gate = below_lines(Functional(phi.coef, const, slack), self.lines, self.pre_size)
        by_up = self._of_n(Functional(up.coef, 0 * const, 0 * slack), "in")
        return self._of_n(by_gate, "gate").plus(by_up, self.n.size)
