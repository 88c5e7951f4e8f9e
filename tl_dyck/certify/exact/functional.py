"""Linear functionals of a layer's vector, carried backwards, their rounding accounted for.

A functional's coefficients are the float64 numbers they are; what may be wrong is only that they
stand for slightly different ones. That difference, times the largest size of the vector they act
on, is bounded at each step (γ_n times the sum of absolute values) and collected in `slack`.

`size`, wherever it is asked for, bounds |v| for the vector that the *result* acts on. Slacks are
added up in float64, to the nearest: `Readout` widens the last one by 1e-9, which covers that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import final

import numpy as np

from tl_dyck.certify.exact.balls import UNIT, Array, Ball, gamma


def ulp(*terms: Array) -> Array:
    """An upper bound of the rounding errors of adding these up, in any order."""
    error = abs(terms[0])
    for term in terms[1:]:
        error = error + abs(term)
    # n terms take n - 1 sums; twice as many and 4 more leave room for one product in each term, and
    # for what the callers add to the result
    return gamma(2 * len(terms) + 4) * error


@final
@dataclass(frozen=True)
class Functional:
    """K functionals coef · v + const of a vector v, for I items (1: for all); right up to ± slack.

    Attributes:
        coef: [I, K, d].
        const: [I, K].
        slack: [I, K].
    """

    coef: Array
    const: Array
    slack: Array

    @classmethod
    def of(cls, coef: Array) -> Functional:
        """The functionals with these coefficients, exactly."""
        zero = np.zeros(coef.shape[:2])
        return cls(coef, zero, zero)

    @classmethod
    def outputs(cls, weight: Ball, bias: Ball, size: Array) -> Functional:
        """The coordinates of v @ weight + bias, one by one; |v| ≤ size [I or 1, 1, d]."""
        coef = np.ascontiguousarray(weight.mid.T)[None]
        # the coefficients are the weights themselves, so that nothing is rounded here
        slack = (weight.rad.T[None] * size).sum(-1) + bias.rad
        return cls(coef, np.broadcast_to(bias.mid, slack.shape), slack)

    def through(self, weight: Ball, bias: Ball, size: Array) -> Functional:
        """As functionals of v', where v = v' @ weight + bias and |v'| ≤ size [I or 1, 1, d']."""
        # coef · v = (coef Wᵀ) · v' + coef · b; each entry of coef Wᵀ is off by |coef| (δW + γ |W|)ᵀ
        absolute = abs(self.coef)
        # shape[1]: how many products each new coefficient is a sum of
        lost = absolute @ (weight.rad.T + gamma(weight.mid.shape[1] + 2) * abs(weight.mid.T))
        const = self.coef @ bias.mid
        error = absolute @ (bias.rad + gamma(len(bias.mid) + 2) * abs(bias.mid))
        slack = self.slack + (lost * size).sum(-1) + error + ulp(const, self.const)
        return Functional(self.coef @ weight.mid.T, self.const + const, slack)

    def scaled(self, weight: Array, bias: Array, size: Array) -> Functional:
        """As functionals of v', where v = v' * weight + bias, elementwise, and |v'| ≤ size."""
        coef, const = self.coef * weight, self.coef @ bias
        # a coefficient is one product: u of it; the constant a sum of d products
        error = UNIT * (abs(coef) * size).sum(-1) + gamma(len(bias) + 2) * (
            abs(self.coef) @ abs(bias)
        )
        return Functional(coef, self.const + const, self.slack + error + ulp(const, self.const))

    def centred(self, size: Array) -> Functional:
        """As functionals of v', where v = P v' (P subtracts the mean) and |v'| ≤ size."""
        # coef · P v' = (P coef) · v', for P is symmetric
        # the mean takes d operations, the difference one: d + 1 of the d + 4 that are allowed for
        mean = self.coef.mean(-1, keepdims=True)
        error = gamma(self.coef.shape[-1] + 4) * (
            (abs(self.coef) + abs(self.coef).mean(-1, keepdims=True)) * size
        )
        return Functional(self.coef - mean, self.const, self.slack + error.sum(-1))

    def times(self, factor: Array, size: Array) -> Functional:
        """Coefficients multiplied by [I, K, d] or broadcast; |v| ≤ size.

        What was constant or slack is dropped.
        """
        coef = self.coef * factor
        # const and slack are multiplied by no one number, so that the caller has to add them
        return Functional(coef, np.zeros(coef.shape[:2]), UNIT * (abs(coef) * size).sum(-1))

    def plus(self, other: Functional, size: Array) -> Functional:
        """The sum of functionals of the same vector, |v| ≤ size."""
        coef, const = self.coef + other.coef, self.const + other.const
        # one sum a coefficient, off by u of the result
        error = UNIT * (abs(coef) * size).sum(-1) + ulp(self.const, other.const)
        return Functional(coef, const, self.slack + other.slack + error)

    def shifted(self, *consts: Array) -> Functional:
        """Constants added."""
        const = self.const + sum(consts)
        return Functional(self.coef, const, self.slack + ulp(self.const, *consts))

    def at(self, v: Array) -> Array:
        """The values at one vector per item, [I, d]; [I, K], rounded."""
        coef = np.broadcast_to(self.coef, (len(v), *self.coef.shape[1:]))
        value: Array = np.einsum("ikd,id->ik", coef, v) + self.const
        return value
