"""The closed forms of the hard-concrete distribution against a million draws."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from tl_dyck.ablation import gates

N = 1_000_000
ALPHAS = torch.tensor([-4.0, -2.5, -0.7, 0.0, 1.3, 3.0], dtype=torch.float64)


def drawn(log_alpha: float) -> np.ndarray:
    """Gates drawn with numpy, step by step as the paper has it."""
    u = np.random.default_rng(1).uniform(size=N)
    s = 1 / (1 + np.exp(-(np.log(u) - np.log(1 - u) + log_alpha) / (2 / 3)))
    return np.minimum(1, np.maximum(0, s * 1.2 - 0.1))


@pytest.mark.parametrize("log_alpha", ALPHAS.tolist())
def test_probability_and_mean(log_alpha):
    sample, alpha = drawn(log_alpha), torch.tensor(log_alpha, dtype=torch.float64)
    for found, values in ((gates.p_open(alpha), sample > 0), (gates.expected_gate(alpha), sample)):
        assert abs(float(found) - values.mean()) < 5 * values.std() / math.sqrt(
            N
        )  # five standard errors


def test_samples():
    """The same uniform numbers give the same gates."""
    u = torch.as_tensor(np.random.default_rng(1).uniform(size=N))
    for alpha in ALPHAS[:3]:
        np.testing.assert_allclose(gates.sample_gate(alpha, u), drawn(float(alpha)), atol=1e-12)
    ends = gates.sample_gate(
        ALPHAS[:2], torch.tensor([[0.0, 0.0], [1.0, 1.0]], dtype=torch.float64)
    )
    assert ends.tolist() == [[0, 0], [1, 1]]  # not NaN


def test_at_test_time():
    exact = [min(1.0, max(0.0, 1.2 / (1 + math.exp(-alpha)) - 0.1)) for alpha in ALPHAS.tolist()]
    np.testing.assert_allclose(gates.final_gate(ALPHAS), exact, atol=1e-12)
    edge = torch.tensor(math.log(-gates.GAMMA / gates.ZETA), dtype=torch.float64)
    assert float(gates.final_gate(edge - 1e-9)) == 0 < float(gates.final_gate(edge + 1e-9))


def test_gradients_flow_where_the_gate_is_neither_0_nor_1():
    alpha = torch.zeros(3, dtype=torch.float64, requires_grad=True)
    gates.sample_gate(
        alpha, torch.tensor([0.001, 0.5, 0.999], dtype=torch.float64)
    ).sum().backward()
    assert alpha.grad.tolist()[0] == alpha.grad.tolist()[2] == 0 < alpha.grad[1]
