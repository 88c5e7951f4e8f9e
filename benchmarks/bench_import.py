"""How much `import tl_dyck` adds to `import transformer_lens`: fresh interpreters, taken in turn.

``python benchmarks/bench_import.py [--runs 5]``. Exit status 1 if the target is missed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys

from harness import heading, options, row

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
    times: dict[str, list[float]] = {name: [] for name in CASES}
    for _ in range(1 + options(__doc__, runs=5).runs):  # the first, which fills caches, is dropped
        for name, code in CASES.items():
            times[name].append(seconds(code))
    median = {name: statistics.median(values[1:]) for name, values in times.items()}
    base = median["transformer_lens"]
    heading("import", "median s", "min s", "ratio")
    for name, values in times.items():
        said = f"{median[name]:.3f}", f"{min(values[1:]):.3f}"
        row(name, *said, f"{median[name] / base:.3f}")
    ratio = median["transformer_lens, tl_dyck"] / base
    met = "met" if ratio <= TARGET else "missed"
    print(f"ratio {ratio:.3f}, target at most {TARGET:.2f}: {met}")
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())
