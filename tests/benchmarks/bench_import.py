"""How much `import tl_dyck` adds to `import transformer_lens`: fresh interpreters, taken in turn.

Run with ``python tests/benchmarks/bench_import.py --runs 5``. Exit status 1 if the target is
missed.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys

TARGET = 1.10  # (transformer_lens and tl_dyck) / (transformer_lens alone)

CASES = {
    "transformer_lens": "import transformer_lens",
    "transformer_lens, tl_dyck": "import transformer_lens, tl_dyck",
    "transformer_lens, every public name of tl_dyck": "import transformer_lens\nfrom tl_dyck "
    "import *",
    "tl_dyck": "import tl_dyck",
}


def seconds(code: str) -> float:
    """Seconds that a fresh interpreter spends in `code`, without its own start-up."""
    timed = f"from time import perf_counter as now\nstart = now()\n{code}\nprint(now() - start)"
    run = subprocess.run([sys.executable, "-c", timed], capture_output=True, text=True, check=True)
    return float(run.stdout.splitlines()[-1])


def main() -> int:
    """Print a table of medians and the ratio that counts."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="fresh interpreters for each case")
    runs = parser.parse_args().runs
    for code in CASES.values():  # once each, so that byte code and disk cache are warm for all
        seconds(code)
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(runs):  # in turn, so that a slow spell of the machine falls on all
        for name, code in CASES.items():
            times[name].append(seconds(code))
    median = {name: statistics.median(values) for name, values in times.items()}
    base = median["transformer_lens"]
    print(f"{'import':<50}{'median s':>10}{'min s':>10}{'ratio':>8}")
    for name, values in times.items():
        print(f"{name:<50}{median[name]:>10.3f}{min(values):>10.3f}{median[name] / base:>8.3f}")
    ratio = median["transformer_lens, tl_dyck"] / base
    print(
        f"ratio {ratio:.3f}, target at most {TARGET:.2f}: {'met' if ratio <= TARGET else 'missed'}"
    )
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())
