"""Tens of thousands of random networks, spaces and strings: `exact` against running every string. For the night.

    python tests/fuzz_certify.py --cases 20000 --jobs 2

Each case is made from its number alone, so one that fails is found again with ``--first NUMBER --cases 1``. The test
suite runs a few hundred such cases by Hypothesis; these reach further: scores of ±100 and more, up to four heads,
every readout, every transformation, thousands of strings a space.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
import traceback
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import joblib
import torch
from rich.progress import track

from tests.certify.oracles import READOUTS, STATES, SpaceRecipe, random_rnn, strings_of
from tests.hooks.certifiers.test_exact import check
from tl_dyck.certify import PerturbationSpace

_PARCEL = 50


def random_space(rng: random.Random) -> PerturbationSpace:
    """Up to three transformations with budgets of at most 2."""

    def word() -> int:
        return rng.randrange(6)

    arguments = {
        "dup": None,
        "swap": None,
        "sub": ({word(): [word() for _ in range(rng.randrange(1, 4))] for _ in range(3)}, rng.choice([None, 1])),
        "del": rng.choice([None, frozenset((word(), word()))]),
        "ins": ([tuple(word() for _ in range(rng.randrange(1, 3))) for _ in range(2)], rng.random() < 0.5),
        "pairs": (rng.choice([None, 1]), rng.random() < 0.5),
    }
    names = rng.sample(sorted(arguments), rng.randrange(4))
    return SpaceRecipe(tuple((name, arguments[name], rng.randrange(3)) for name in names)).build()


def run_case(number: int) -> str:
    """One case: "" if all is well or there is nothing to check, else what went wrong."""
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
    rnn, space = random_rnn(number, **fields), random_space(rng)
    string = tuple(rng.randrange(6) for _ in range(rng.randrange(1, 6)))
    tight, few, target = rng.random() < 0.5, rng.choice([16, 2048]), rng.randrange(2)
    if not strings_of(rnn, space, string) or (rnn.config.bos_token is None and space.contains(string, ())):
        return ""
    try:
        check(rnn, string, target, space, tight=tight, rounds=1e-2, max_listed=few)
    except Exception:
        return f"case {number}: {fields}, {space}, {string}\n{traceback.format_exc(limit=-2)}"
    return ""


def run_cases(first: int, last: int) -> list[str]:
    """Some cases in one process."""
    return [failure for number in range(first, last) if (failure := run_case(number))]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--cases", type=int, default=20_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first case")
    parser.add_argument("--jobs", type=int, default=2, help="worker processes")
    arguments = parser.parse_args()
    last = arguments.first + arguments.cases
    parcels = [(start, min(start + _PARCEL, last)) for start in range(arguments.first, last, _PARCEL)]
    workers = joblib.Parallel(n_jobs=arguments.jobs, return_as="generator_unordered")
    failed = 0
    for failures in track(workers(joblib.delayed(run_cases)(*parcel) for parcel in parcels), total=len(parcels)):
        for failure in failures:
            failed += 1
            print(failure, flush=True)
    print(f"{failed} of {arguments.cases:,} cases failed")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
