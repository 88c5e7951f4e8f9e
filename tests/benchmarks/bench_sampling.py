"""Tokens per second of `DyckDistribution.sample`, beside a plain per-string generator.

Run with ``python tests/benchmarks/bench_sampling.py [--device cuda] [--rounds 5] [--types 2]
[--depth 4]``.

Both draw from the same conditional distribution with the same tables; before anything is timed, the
statistics of both are compared. The floor is what no sampler of this kind can do without: one
uniform number a token, and writing the tokens as int64. Exit status 1 if the statistics disagree or
the target is missed.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
from collections.abc import Callable
from time import perf_counter

import numpy as np
import torch

from tl_dyck.language import DyckDistribution, DyckLanguage
from tl_dyck.language.sampling import open_probability

# tokens per second over those of the plain generator, for more than one small batch at a time
TARGET = 5.0
SIZES = [(64, 28), (4096, 28), (64, 500), (1024, 500), (8, 10_000), (64, 10_000)]  # strings, length


def plain_python(
    distribution: DyckDistribution, n: int, length: int, mode: str, rng: random.Random
) -> torch.Tensor:
    """What one would write first: one string at a time, one token at a time, with a stack."""
    language, draw = distribution.language, rng.random
    end = "complete" if mode == "complete" else "anywhere"
    table = open_probability(distribution.q, language.max_depth, length, end).tolist()
    strings = []
    for _ in range(n):
        stack: list[int] = []
        string = []
        for left in range(length, 0, -1):
            if draw() < table[left][len(stack)]:
                kind = int(draw() * language.n_types)
                stack.append(kind)
                string.append(2 * kind)
            else:
                string.append(2 * stack.pop() + 1)
        strings.append(string)
    return torch.tensor(strings)


def floor(n: int, length: int, rng: np.random.Generator, device: torch.device) -> torch.Tensor:
    """Only draw the uniform numbers and write int64 tokens; on a GPU also the copy."""
    rng.random((length, n))
    tokens = np.empty((n, length), dtype=np.int64)
    tokens.fill(1)
    return torch.from_numpy(tokens).to(device)


def check_same_distribution(
    distribution: DyckDistribution, length: int, mode: str, device: torch.device
) -> float:
    """Greatest |z| between the two, over token frequencies by position and types of brackets."""
    n = max(200, 60_000 // length)
    language = distribution.language
    ours = distribution.sample(
        n, length, mode=mode, generator=torch.Generator().manual_seed(1), device=device
    ).cpu()
    plain = plain_python(distribution, n, length, mode, random.Random(1))
    for tokens in (ours, plain):
        valid = language.is_complete(tokens) if mode == "complete" else language.is_prefix(tokens)
        if not bool(valid.all()):
            raise SystemExit(f"invalid strings at length {length}, mode {mode}")
    worst = 0.0
    for measure in (lambda t: t, lambda t: 100 * language.depth(t) + language.bracket_type(t)):
        a, b = measure(ours), measure(plain)
        for value in torch.unique(torch.cat([a, b])):
            share_a, share_b = (a == value).double().mean(0), (b == value).double().mean(0)
            pooled = (share_a + share_b) / 2
            enough = pooled * n > 20
            spread = (2 * pooled * (1 - pooled) / n).sqrt().clamp(min=1e-12)
            z = ((share_a - share_b).abs() / spread)[enough & (pooled < 1)]
            worst = max(worst, float(z.max()) if len(z) else 0.0)
    return worst


def seconds(call: Callable[[], torch.Tensor], device: torch.device, at_least: float) -> float:
    """Seconds for one call, from as many calls as fill `at_least` seconds."""
    calls, start = 0, perf_counter()
    while calls == 0 or perf_counter() - start < at_least:
        call()
        if device.type == "cuda":
            torch.cuda.synchronize()
        calls += 1
    return (perf_counter() - start) / calls


def main() -> int:
    """Check, time, and print a markdown table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", default="cpu", help="where the tokens are to lie: cpu or cuda")
    parser.add_argument(
        "--rounds", type=int, default=5, help="rounds; the three are timed in turn in each"
    )
    parser.add_argument("--types", type=int, default=2, help="bracket types, k")
    parser.add_argument("--depth", type=int, default=4, help="greatest depth, D")
    options = parser.parse_args()
    device = torch.device(options.device)
    distribution = DyckDistribution(DyckLanguage(options.types, options.depth))

    for length in sorted({length for _, length in SIZES}):
        for mode in ("complete", "prefix"):
            worst = check_same_distribution(distribution, length, mode, device)
            # The greatest of up to 10^5 standard normal numbers exceeds 6 with probability about
            # 1e-4.
            print(f"length {length}, {mode}: greatest |z| between the two generators {worst:.1f}")
            if worst > 6:
                return 1

    print(
        f"\nDyck({options.types}, {options.depth}), q = 0.5, tokens on {device}; "
        "million tokens per second\n"
    )
    print("| length | strings | mode | plain Python | ours | ratio | floor | ours / floor |")
    print("| ---: | ---: | :-- | ---: | ---: | ---: | ---: | ---: |")
    missed = False
    for n, length in SIZES:
        for mode in ("complete", "prefix"):
            generator, rng, plain_rng = (
                torch.Generator().manual_seed(0),
                np.random.default_rng(0),
                random.Random(0),
            )
            calls = [
                lambda n=n, length=length, mode=mode, rng=plain_rng: plain_python(
                    distribution, n, length, mode, rng
                ),
                lambda n=n, length=length, mode=mode, generator=generator: distribution.sample(
                    n, length, mode=mode, generator=generator, device=device
                ),
                lambda n=n, length=length, rng=rng: floor(n, length, rng, device),
            ]
            for call in calls:  # tables, memory
                call()
            # In turn, so that a slow spell of the machine falls on all three; ratios within a
            # round, then the median.
            rounds = [
                [seconds(call, device, 0.05) for call in calls] for _ in range(options.rounds)
            ]
            rates = [
                n * length / statistics.median(times) / 1e6 for times in zip(*rounds, strict=True)
            ]
            ratio = statistics.median(plain / ours for plain, ours, _ in rounds)
            share = statistics.median(least / ours for _, ours, least in rounds)
            missed |= ratio < TARGET and n * length > 2_000
            print(
                f"| {length:,} | {n:,} | {mode} | {rates[0]:.2f} | {rates[1]:.1f} | {ratio:.0f}x | "
                f"{rates[2]:.0f} | {share:.2f} |"
            )
    print(f"\ntarget, at least {TARGET:.0f}x: {'missed' if missed else 'met'}")
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
