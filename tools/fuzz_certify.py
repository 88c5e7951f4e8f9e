"""Tens of thousands of random networks, spaces and strings: `exact` against running every string.

For the night.

    python tools/fuzz_certify.py --cases 20000 --jobs 2

Each case is made from its number alone, so one that fails is found again with
``--first NUMBER --cases 1``. The test suite runs a few hundred such cases by Hypothesis; these
reach further: scores of ±100 and more, up to four heads, every readout, every transformation,
thousands of strings a space.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import traceback
from pathlib import Path
from typing import NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import joblib
import torch
from rich.progress import track

from tests.certify.oracles import MAKERS, READOUTS, STATES, SpaceRecipe, random_rnn
from tests.hooks.certifiers.test_exact import check, readable
from tl_dyck.certify import PerturbationSpace

_PARCEL = 20


def random_space(rng: random.Random, string: tuple[int, ...]) -> PerturbationSpace:
    """Two kinds of edits of the string's own words, with budgets that sum to 2 or 3."""

    def word() -> int:
        return rng.randrange(6)

    own = sorted(set(string))
    arguments = dict.fromkeys(MAKERS) | {
        "sub": {key: [word() for _ in range(rng.randrange(1, 4))] for key in rng.choices(own, k=4)},
        "del": rng.choice([None, frozenset(rng.choices(own, k=3))]),
        "ins": [tuple(word() for _ in range(rng.randrange(1, 3))) for _ in range(2)],
    }
    budgets = rng.choice([(1, 1), (1, 2), (2, 1)])
    names = rng.sample(sorted(arguments), 2)
    return SpaceRecipe(
        tuple((name, arguments[name], budget) for name, budget in zip(names, budgets, strict=True))
    ).build()


class Outcome(NamedTuple):
    """What came of a case: how many strings it had (0: nothing to check) and what went wrong."""

    strings: int
    failure: str = ""


def run_case(number: int) -> Outcome:
    """One case, made from its number."""
    torch.set_num_threads(1)
    rng = random.Random(number)
    fields = {
        "sharpness": rng.choice([0.0, 1.0, 1.0, 5.0, 60.0, 1000.0]),
        "scale": rng.choice([0.3, 0.6, 1.2]),
        "d_vocab_out": rng.randrange(2, 5),
        "n_heads": rng.randrange(1, 5),
        "state": rng.choice(STATES),
        "bos_token": rng.choice([None, 6]),
    }
    fields |= rng.choice(READOUTS)
    string = tuple(rng.randrange(6) for _ in range(rng.randrange(5, 9)))
    rnn, space = random_rnn(number, **fields), random_space(rng, string)
    tight, few, small, target = (
        rng.random() < 0.5,
        rng.choice([16, 2048]),
        rng.choice([1, 8, 64]),
        rng.randrange(2),
    )
    if not readable(rnn, space, string):
        return Outcome(0)
    strings = space.size(string)
    try:
        check(rnn, string, target, space, tight=tight, max_listed=few, always_listed=small)
    except Exception:
        told = (
            f"case {number}: {fields}, {space}, {string}, tight={tight}, "
            f"max_listed={few}, always_listed={small}"
        )
        return Outcome(strings, f"{told}\n{traceback.format_exc(limit=-2)}")
    return Outcome(strings)


def run_cases(first: int, last: int) -> list[Outcome]:
    """Some cases in one process."""
    return [run_case(number) for number in range(first, last)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    arguments = parser.parse_args()
    last = arguments.first + arguments.cases
    parcels = [
        (start, min(start + _PARCEL, last)) for start in range(arguments.first, last, _PARCEL)
    ]
    workers = joblib.Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")
    done: list[Outcome] = []
    for outcomes in track(
        workers(joblib.delayed(run_cases)(*parcel) for parcel in parcels), total=len(parcels)
    ):
        done += outcomes
        for outcome in outcomes:
            if outcome.failure:
                print(outcome.failure, flush=True)
    failed = sum(bool(outcome.failure) for outcome in done)
    shares = ", ".join(
        f"{sum(o.strings > size for o in done):,} of more than {size:,}" for size in (1, 64, 1000)
    )
    print(f"{failed} of {len(done):,} cases failed; spaces of strings: {shares}")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
