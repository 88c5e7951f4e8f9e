"""Adders whose weights are written down, decided on all sums: ``python -m tl_dyck_papers.by_hand``.

Some of AdderBoard's are made so. These have one layer. Where digit k of the sum is asked for, the
query is the digit before, s_{k-1}. Attention sees a_k and b_k, and those before, which count
c = 1 / 2 base times as much. Let y = a_k + b_k, and x = a_{k-1} + b_{k-1} - s_{k-1}, which is -1 or
0 without a carry and base - 1 or base with one. Then z = y + c x is at most y without a carry, and
at least y + 1/2 - c with one. So the digit is a sum of steps in between, at each y, of two neurons
each: up by 1, at y = base - 1 down by base - 1. Logit d is 2 d r - d², largest at the digit r.

Knows: two ways to see the right digits, by learned positions and by rotary ones.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tl_dyck.rnn import RNNConfig, TwoLayerRNN, weight_shapes
from tl_dyck.tasks import AutomatonTask, addition_task
from tl_dyck_papers.adders import Adder, decide, table
from tl_dyck_papers.board import of_others
from tl_dyck_papers.published import leave

_UNSEEN = 30.0
"""Scores of what is not seen are less by so much: it has e^-30 of the weight."""

_TURNS = 6
"""Pairs of coordinates that are turned, and `_BASE`: of the usual frequencies base^(-j / pairs)."""
_BASE = 30.0

Weights = dict[str, NDArray[np.float64]]


def adder(digits: int, base: int, ln_final: str | None = None) -> TwoLayerRNN:
    """One that writes "a+b=s", the sum's least digit first, by a score for each pair of places.

    A norm at the end divides all logits of a place alike, which leaves the largest.
    """
    places, c = 3 * digits + 3, 1 / (2 * base)
    digit, one, seen, answer, nothing = range(
        places, places + 5
    )  # behind a dimension for each place
    weight = np.zeros((places, places))
    for k in range(digits + 1):
        # a and b have their least digit last, behind them come + and =
        for k_seen, counts in ((k, 1.0), (k - 1, c)):
            if 0 <= k_seen < digits:
                weight[2 * digits + 1 + k, [digits - 1 - k_seen, 2 * digits - k_seen]] = counts
    # + is worth nothing, and makes weights the same, 3, at all places; the others have e^-30
    weight[:, digits] = 3 - weight.sum(1)
    config = _config(
        base, 2, d_model=places + 5, d_head=places, n_heads=1, n_ctx=places, ln_final=ln_final
    )
    w = _empty(config)
    w["W_pos"] = np.eye(places, places + 5)
    w["W_Q"][0, :places] = np.log(np.maximum(weight, np.exp(-_UNSEEN)))
    w["W_K"][0, :places] = np.eye(places)
    w["W_V"][0, digit, 0], w["W_O"][0, 0, seen] = 1, 3
    _write_digits(w, base, digit, one, seen, answer)
    w["W_U"][nothing] = -w["W_U"].sum(0)  # so that a mean that is taken away changes nothing
    return _made(config, w)


def rotary_adder(digits: int, base: int = 10) -> tuple[TwoLayerRNN, AutomatonTask]:
    """One that writes "<a+b=s", all least digit first, by rotary positions; and its task.

    Then a_k and b_k are always as far from the query: 2 digits + 1 places, and digits. A head's
    score at a distance t from its centre is A Σ cos(θ_j t). The centre lies between the two places
    that it sees, nearer to the one that counts more. What stands before a_0 and b_0, and behind the
    last digits, is "<", "+" or "=", whose digit is 0.
    """
    places, c = 3 * digits + 4, 1 / (2 * base)
    digit, one, seen, answer = range(4)
    angles = _BASE ** (-np.arange(_TURNS) / _TURNS)
    size, off = _centre(angles, places, c)
    config = _config(
        base, 3, d_model=4, d_head=2 * _TURNS, n_heads=2, n_ctx=places, positions="rotary"
    )
    w = _empty(config)
    turned = np.repeat(np.arange(places)[:, None] * angles, 2, axis=1)
    w["rotary_cos"], w["rotary_sin"] = np.cos(turned), np.sin(turned) * np.tile([-1, 1], _TURNS)
    for head, distance in enumerate((2 * digits + 1, digits)):
        at = angles * (distance + off)
        w["W_Q"][head, one, 0::2], w["W_Q"][head, one, 1::2] = size * np.cos(at), -size * np.sin(at)
        w["W_K"][head, one, 0::2] = 1
        w["W_V"][head, digit, 0], w["W_O"][head, 0, seen] = 1, 1 + c
    _write_digits(w, base, digit, one, seen, answer)
    task = addition_task(digits, "<a+b=s", least_first="abs", base=base)
    symbols = [*map(str, range(base)), "<", "+", "="]
    assert [*task.symbols] == symbols
    return _made(config, w), task


def _centre(angles: NDArray[np.float64], places: int, c: float) -> tuple[float, float]:
    """How large scores must be, and where their centre is: behind the place that counts more."""

    def score(t: Any) -> Any:
        return np.cos(np.multiply.outer(t, angles)).sum(-1)

    far = np.concatenate([np.arange(-places, 0), np.arange(2, places)])
    size, off = 1.0, 0.5
    for _ in range(100):  # each hangs on the other; both settle
        # what is not seen is below the second place, too
        size = _UNSEEN / (score(1 - off) - score(far - off).max())
        low, high = 0.0, 0.5
        for _ in range(60):
            off = (low + high) / 2
            low, high = (
                (off, high) if size * (score(off) - score(1 - off)) > -np.log(c) else (low, off)
            )
    return float(size), float(off)


def _config(base: int, n_others: int, **options: Any) -> RNNConfig:
    tokens = base + n_others
    return RNNConfig(
        d_vocab=tokens, d_vocab_out=tokens, state="position", d_mlp=4 * base - 2, act_fn="relu",
        attn_scale=1.0, residual=True, **options,
    )  # fmt: skip


def _empty(config: RNNConfig) -> Weights:
    return {name: np.zeros(shape) for name, shape in weight_shapes(config).items()}


def _made(config: RNNConfig, weights: Weights) -> TwoLayerRNN:
    return TwoLayerRNN(config, {name: torch.from_numpy(each) for name, each in weights.items()})


def _write_digits(w: Weights, base: int, digit: int, one: int, seen: int, answer: int) -> None:
    """From y + c (x + s) in `seen`, and s in `digit`, to logits of digits."""
    c, rise = 1 / (2 * base), 1 / 2 - 1 / (2 * base)
    w["W_E"][:base, digit], w["W_E"][:, one] = np.arange(base), 1
    for y in range(2 * base - 1):
        ramp = slice(2 * y, 2 * y + 2)  # from 0 to 1 between a quarter of the rise and another
        w["W_in"][seen, ramp], w["W_in"][digit, ramp] = 1, -c
        w["b_in"][ramp] = -y - rise * np.array([0.25, 0.75])
        up = 1 - base * (y == base - 1)
        w["W_out"][ramp, answer] = up / (rise / 2) * np.array([1, -1])
    d = np.arange(base)
    w["W_U"][answer, :base], w["W_U"][one] = 2 * d, -4.0 * base**2
    w["W_U"][one, :base] = -(d**2)


def written(digits: int) -> list[Adder]:
    """Both, with the numbers in them that are not 0; and of ten digits those of others."""
    rotary, its_task = rotary_adder(digits)
    made = {
        "by hand, a score for each pair of places": (adder(digits, 10), addition_task(digits)),
        "by hand, rotary positions": (rotary, its_task),
    }
    ours = [
        Adder(
            name=name,
            # tables of sines are no weights
            n_parameters=sum(
                int(weight.count_nonzero())
                for part, weight in rnn.weights.items()
                if not part.startswith("rotary")
            ),
            runs=rnn,
            rnn=rnn,
            task=task,
        )
        for name, (rnn, task) in made.items()
    ]
    return ours + of_others() if digits == 10 else ours


def main() -> None:
    """Decide both on all sums of ten digits; leave a table."""
    parser = argparse.ArgumentParser(description="Decide adders that are written by hand.")
    parser.add_argument("--digits", type=int, default=10)
    parser.add_argument("--out", type=Path, default=Path("results/by_hand"))
    parser.add_argument("--time-limit", type=float, help="seconds for each")
    options = parser.parse_args()
    found = (decide(each, "signs", options.time_limit) for each in written(options.digits))
    leave(options.out, found, table)


if __name__ == "__main__":
    main()
