"""Sweeps under kill -9: writers on one folder are killed at random moments, hundreds of times.

For the night.

    python tests/fuzz_sweep.py --kills 200

Every round starts one writer, or two at once, and kills them after 0 to 50 ms; a last one is left
alone. Then no record may be lost, none that was there may have been made again, every file must be
whole, and the table right. The test suite does this with a few dozen kills.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import traceback
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.runs.toys import storm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="rounds in a row on one folder")
    parser.add_argument("--storms", type=int, default=1, help="folders, one after the other")
    parser.add_argument(
        "--writers", type=int, default=0, help="that are killed at once [default: one, then two]"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    parser.add_argument(
        "--runs-per-kill", type=float, default=4.0, help="runs of the sweep, times the kills"
    )
    arguments = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as root:
        for number in range(arguments.seed, arguments.seed + arguments.storms):
            for writers in [arguments.writers] if arguments.writers else [1, 2]:
                runs = max(20, round(arguments.kills * arguments.runs_per_kill))
                try:
                    found = storm(
                        Path(root) / f"{number}-{writers}",
                        kills=arguments.kills,
                        n_points=-(-runs // 20),
                        n_seeds=20,
                        writers=writers,
                        seed=number,
                    )
                    print(f"storm {number}, {writers} at once: {found}", flush=True)
                except Exception:
                    failed += 1
                    print(
                        f"storm {number}, {writers} at once: FAILED\n{traceback.format_exc()}",
                        flush=True,
                    )
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
