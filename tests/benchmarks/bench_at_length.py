"""Accuracy at length: predicted from two moments, and measured on strings that are read.

Of an untrained model, whose answers depend on all that it sees. "Equal error": how much longer
measuring would take with as many strings as bring its standard error down to that of the draws.
The floor of a prediction is the model reading its draws, 24,000 strings of up to seven tokens; the
rest is the recursion over the length. One thread.

Run with ``python tests/benchmarks/bench_at_length.py``.
"""

from __future__ import annotations

import argparse
import os
from time import perf_counter

os.environ.setdefault("OMP_NUM_THREADS", "1")

import numpy as np

from tl_dyck import accuracy_at_length, build_model, get_config, load_task
from tl_dyck.environment import one_thread
from tl_dyck.language.pairs import pair_counts
from tl_dyck.tasks import DyckTask


@one_thread()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 450, 5000, 50_000])
    parser.add_argument("--longest", type=int, default=500, help="that is also measured")
    options = parser.parse_args()
    task = load_task("dyck-2-4")
    model = build_model(get_config("minimal-onehot", task, initializer_range=0.3), seed=0)
    print("medians of seconds, and of their ratio in turns")
    for length in options.lengths:
        around = length * 8 // 9, length * 10 // 9  # 400 to 500, around 450
        asked = DyckTask(name="asked", n_types=2, max_depth=4, long_lengths=around)
        lengths, turns = asked.closing_lengths(long=True), []
        for _ in range(options.repeats):
            start = perf_counter()
            found = accuracy_at_length(model, lengths)
            predicted = perf_counter() - start
            start = perf_counter()
            pair_counts(asked.distribution, lengths)
            turns.append([predicted, perf_counter() - start])
            if length > options.longest:
                continue
            start = perf_counter()
            measured = asked.closing_accuracy(model, n=300, long=True)
            seconds, error = perf_counter() - start, measured.after_close_error or np.nan
            ratio = seconds / predicted
            turns[-1] += [seconds, ratio, ratio * (error / found.error) ** 2]
        middle = np.median(turns, axis=0)
        print(f"around {length:>6}: predicted {found.after_close:.3f} ± {found.error:.3f}", end="")
        print(f" in {middle[0]:.3f} s, the recursion alone {middle[1]:.3f} s")
        if length <= options.longest:
            print(f"{'':15} measured {measured.after_close:.3f} ± {error:.3f}", end="")
            print(f" on 300 strings in {middle[2]:.3f} s: {middle[3]:.1f}×", end="")
            print(f", at equal error {middle[4]:.0f}×")


if __name__ == "__main__":
    main()
