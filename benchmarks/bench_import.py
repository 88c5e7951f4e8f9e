"""How much `import tl_dyck` adds to `import transformer_lens`: fresh interpreters, taken in turn.

``python benchmarks/bench_import.py [--runs 5]``. Exit status 1 if the target is missed.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time

from harness import heading, in_turns, options, row

TARGET = 1.10  # (transformer_lens and tl_dyck) / (transformer_lens alone)

CASES = {
    "nothing": "pass",
    "transformer_lens": "import transformer_lens",
    "transformer_lens, tl_dyck": "import transformer_lens, tl_dyck",
    "transformer_lens, every public name of tl_dyck": "import transformer_lens\nfrom tl_dyck "
    "import *",
    "tl_dyck": "import tl_dyck",
}


def main() -> int:
    """Print a table of medians and the ratio that counts."""
    ways = {
        name: lambda code=code: subprocess.run([sys.executable, "-c", code], check=True)
        for name, code in CASES.items()
    }
    times = in_turns(ways, options(__doc__, runs=5).runs, time.perf_counter)
    start = statistics.median(times.pop("nothing"))
    median = {name: statistics.median(values) - start for name, values in times.items()}
    base = median["transformer_lens"]
    heading("import", "median s", "min s", "ratio")
    for name, values in times.items():
        seconds = f"{median[name]:.3f}", f"{min(values) - start:.3f}"
        row(name, *seconds, f"{median[name] / base:.3f}")
    ratio = median["transformer_lens, tl_dyck"] / base
    said = "met" if ratio <= TARGET else "missed"
    print(f"ratio {ratio:.3f}, target at most {TARGET:.2f}: {said}")
    return int(ratio > TARGET)


if __name__ == "__main__":
    sys.exit(main())
