"""Adders of few digits against every sum: ``python -m tests.papers.every_sum --digits 4``.

The verdict, the least margin and the number of wrong sums of each answer are held to all
10^(2 digits) sums. The adder is written by hand, with noise on its weights, so that some sums are
wrong. What attention adds up is a sum over places: of all digits of a one number, of all of b
another, of the digits that were written a third. So each is a table, and a sum takes three looks
into them, then the layer's norm, MLP and logits in float64. Nothing of the engine is used.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from numpy.typing import NDArray

from tl_dyck import certify_language
from tl_dyck.rnn import TwoLayerRNN
from tl_dyck.tasks import addition_task
from tl_dyck_papers.by_hand import adder

Array = NDArray[np.float64]


def spoiled(rnn: TwoLayerRNN, noise: float, seed: int) -> TwoLayerRNN:
    """The same with noise on every weight of the MLP and the readout."""
    generator = torch.Generator().manual_seed(seed)
    weights = dict(rnn.weights)
    for name in ("W_in", "b_in", "W_out", "W_U"):
        draw = torch.randn(weights[name].shape, generator=generator, dtype=torch.float64)
        weights[name] = weights[name] * (1 + noise * draw)
    return TwoLayerRNN(rnn.config, weights)


def margins(rnn: TwoLayerRNN, digits: int, answer: int) -> tuple[int, float]:
    """How many of all sums get digit `answer` of the sum wrong, and the least margin.

    Args:
        rnn: of one head, with learned positions and no norm, that writes "a+b=s", s from its end.
        digits: of a and of b.
        answer: which digit of s, the least first.
    """
    w = {name: weight.numpy() for name, weight in rnn.weights.items()}
    n, place = 10**digits, 2 * digits + 1 + answer
    numbers, plus, equals = np.arange(n), 10, 11
    figures = numbers[:, None] // 10 ** np.arange(digits) % 10
    residual = w["W_E"][:, None] + w["W_pos"][None]  # [token, place, d]
    value = residual @ w["W_V"][0] @ w["W_O"][0]
    key = residual @ w["W_K"][0] + w["b_K"][0]
    # the query's token: "=" before the first digit, then the digit before
    queries = np.array([equals]) if answer == 0 else np.arange(10)
    query = residual[queries, place] @ w["W_Q"][0] + w["b_Q"][0]
    score = np.einsum("qe,tpe->qtp", query, key) / rnn.config.attn_scale
    weight = np.exp(score - score[..., : place + 1].max((1, 2), keepdims=True))  # [q, token, place]

    def sums(tokens: NDArray[np.int64], places: list[int]) -> tuple[Array, Array]:
        """What some places add to numerator and denominator, [q, rows, d] and [q, rows]."""
        seen = weight[:, tokens, places]  # [q, rows, places]
        return np.einsum("qrp,rpd->qrd", seen, value[tokens, places]), seen.sum(-1)

    of_a = sums(figures[:, ::-1], [*range(digits)])
    of_b = sums(figures[:, ::-1], [*range(digits + 1, 2 * digits + 1)])
    signs = sums(np.array([[plus, equals]]), [digits, 2 * digits + 1])
    written = np.arange(10**answer)
    low = written[:, None] // 10 ** np.arange(answer) % 10
    of_s = sums(low, [*range(2 * digits + 2, place + 1)])
    bias = w["b_V"][0] @ w["W_O"][0] + w["b_O"]
    wrong, least, tables = 0, np.inf, (of_a, of_b, signs, of_s)
    for a in range(n):
        total = a + numbers
        s, q = total % 10**answer, total // 10 ** max(answer - 1, 0) % 10 if answer else 0 * total
        at = [(q, a), (q, numbers), (q, 0), (q, s)]
        top, bottom = (
            sum(each[part][index] for each, index in zip(tables, at, strict=True))
            for part in (0, 1)
        )
        x = residual[queries[q], place] + top / bottom[:, None] + bias
        hidden = np.maximum(x @ w["W_in"] + w["b_in"], 0)
        logits = (x + hidden @ w["W_out"] + w["b_out"]) @ w["W_U"] + w["b_U"]
        right = (total // 10**answer % 10)[:, None]
        said = np.take_along_axis(logits, right, 1)[:, 0]
        np.put_along_axis(logits, right, -np.inf, 1)
        margin = said - logits.max(1)
        wrong, least = wrong + int((margin < 0).sum()), min(least, float(margin.min()))
    return wrong, least


def main() -> None:
    """Compare each answer; fail where one differs."""
    parser = argparse.ArgumentParser(description="Hold an adder's certificate to every sum.")
    parser.add_argument("--digits", type=int, default=4)
    parser.add_argument("--noise", type=float, default=0.01, help="relative, on MLP and readout")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--time-limit", type=float, default=600.0, help="seconds for the engine")
    said = parser.parse_args()
    rnn = spoiled(adder(said.digits, 10), said.noise, said.seed)
    started = time.process_time()
    found = certify_language(
        rnn, addition_task(said.digits), until="counted", time_limit=said.time_limit
    )
    print(f"{found.status}, {time.process_time() - started:.1f} CPU seconds", flush=True)
    differ = 0
    for answer, row in enumerate(found.by_length):
        started = time.process_time()
        wrong, least = margins(rnn, said.digits, answer)
        assert row.margin is not None
        off = 1e-9 * max(1.0, abs(least))
        same = row.margin.low - off <= least <= row.margin.high + off
        same &= (row.wrong > 0) <= (wrong > 0) and row.wrong <= wrong
        same &= not row.decided or row.wrong == wrong
        differ += not same
        print(
            f"answer {answer}: {row.wrong:,} wrong, {'all' if row.decided else 'at least'}, least "
            f"margin {row.margin.low:.9g} to {row.margin.high:.9g}; run: {wrong:,}, {least:.9g}, "
            f"{time.process_time() - started:.1f} CPU seconds{'' if same else ': DIFFERS'}",
            flush=True,
        )
    raise SystemExit(differ > 0)


if __name__ == "__main__":
    main()
