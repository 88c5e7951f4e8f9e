"""Hard-concrete gates: random while trained, exactly 0 or 1 with positive probability.

Louizos et al. 2018, Section 3. With u uniform on (0, 1), temperature β and the interval (γ, ζ) ⊃
[0, 1]:

    s = σ((log u − log(1 − u) + log α) / β),   gate = min(1, max(0, s (ζ − γ) + γ)).
"""

from __future__ import annotations

import math

import numpy as np
import torch
from jaxtyping import Float
from torch import Tensor

BETA, GAMMA, ZETA = 2 / 3, -0.1, 1.1  #: as Louizos et al. 2018 chose them

# 64 points are exact for polynomials up to degree 127; on [-1, 1], moved to [0, 1] below.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)


def sample_gate(
    log_alpha: Float[Tensor, "*shape"], uniform: Float[Tensor, "*more"]
) -> Float[Tensor, "*more"]:
    """Gates from uniform numbers, Eq. 10 and 11; differentiable in log α."""
    tiny = torch.finfo(uniform.dtype).eps
    noise = torch.logit(uniform, eps=tiny)
    stretched = torch.sigmoid((noise + log_alpha) / BETA) * (ZETA - GAMMA) + GAMMA
    return stretched.clamp(0, 1)


def p_open(log_alpha: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """P(gate > 0) = σ(log α − β log(−γ/ζ)), Eq. 12: the expected L0 norm is the sum of these."""
    return torch.sigmoid(log_alpha - BETA * math.log(-GAMMA / ZETA))


def final_gate(log_alpha: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """The gate at test time, without noise, Eq. 13: min(1, max(0, σ(log α)(ζ − γ) + γ))."""
    return (torch.sigmoid(log_alpha) * (ZETA - GAMMA) + GAMMA).clamp(0, 1)


def expected_gate(log_alpha: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """E[gate] = ∫₀¹ P(gate > t) dt, in float64, by 64-point Gauss–Legendre quadrature.

    P(gate > t) = 1 − σ(β logit((t − γ)/(ζ − γ)) − log α), from the distribution function of s.
    """
    t = torch.as_tensor((_NODES + 1) / 2, device=log_alpha.device)
    weights = torch.as_tensor(_WEIGHTS / 2, device=log_alpha.device)
    at = BETA * torch.logit((t - GAMMA) / (ZETA - GAMMA))
    return (torch.sigmoid(log_alpha.double()[..., None] - at) * weights).sum(-1)
