"""Sweeps under kill -9: writers on one folder are killed at random moments, hundreds of times.

For the night.

    python tools/fuzz_sweep.py --kills 200

Every round starts one writer, or two at once, and kills them after 0 to 50 ms; a last one is left
alone. Then no record may be lost, none that was there may have been made again, every file must be
whole, and the table right. The test suite does this with a few dozen kills.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from tests.runs.toys import storm


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=200, help="rounds in a row on one folder")
    parser.add_argument("--seed", type=int, default=0, help="of the moments")
    given = parser.parse_args()
    points = -(-max(20, 4 * given.kills) // 20)  # four runs for each kill
    with tempfile.TemporaryDirectory() as root:
        for writers in (1, 2):
            folder = Path(root) / f"{writers}"
            found = storm(folder, kills=given.kills, n_points=points, n_seeds=20, writers=writers,
                          seed=given.seed)  # fmt: skip
            print(f"{writers} at once: {found} were killed", flush=True)


if __name__ == "__main__":
    main()
