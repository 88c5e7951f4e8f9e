"""Break one formula after the other, and see the tests named beside it fail: `make mutants`.

Each entry of mutants.yaml replaces a text of a file, which must stand there once, by a wrong one.
Its tests must pass before. Exit status 1 if a mutant survives.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from queue import SimpleQueue
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COPIED = ("tl_dyck", "hooks", "tests", "tools", "pyproject.toml")
SECONDS = 600  # for the tests of one mutant; a mutant that never ends counts as killed


@cache
def load() -> list[dict[str, str]]:
    """The mutants: file, what stands there, what is put there, the tests that must fail."""
    found: list[dict[str, str]] = yaml.safe_load(
        (Path(__file__).parent / "mutants.yaml").read_text(encoding="utf-8")
    )
    return found


def copy(folder: Path) -> Path:
    """A working copy that can be broken."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(
                source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "results")
            )
        else:
            shutil.copy(source, folder / name)
    return folder


def passes(folder: Path, tests: str) -> bool:
    """Whether the tests pass in a copy."""
    environment = {
        **os.environ,
        "PYTHONPATH": f"{folder}{os.pathsep}{folder / 'hooks'}",
        "OMP_NUM_THREADS": "1",
        "PYTHONDONTWRITEBYTECODE": "1",
        "HYPOTHESIS_PROFILE": "fail",
    }
    command = [sys.executable, "-m", "pytest", "-qx", "-p", "no:cacheprovider", *tests.split()]
    try:
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, timeout=SECONDS
        )
    except subprocess.TimeoutExpired:
        return False
    if done.returncode not in (0, 1):  # no tests, a wrong path, …
        raise SystemExit(f"{' '.join(command)}\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.returncode == 0


def survives(folder: Path, mutant: dict[str, str]) -> bool:
    """Whether the tests of a mutant pass although it is wrong."""
    file = folder / mutant["file"]
    right = file.read_text(encoding="utf-8")
    if right.count(mutant["is"]) != 1:
        raise SystemExit(f"{mutant['file']} holds {right.count(mutant['is'])} of {mutant['is']!r}")
    file.write_text(right.replace(mutant["is"], mutant["becomes"]), encoding="utf-8")
    try:
        return passes(folder, mutant["tests"])
    finally:
        file.write_text(right, encoding="utf-8")


def main() -> int:
    """Print a line for each mutant."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--only", default="", help="part of a file's name")
    arguments = parser.parse_args()
    mutants = [mutant for mutant in load() if arguments.only in mutant["file"]]
    seconds: Counter[str] = Counter()
    with tempfile.TemporaryDirectory() as place, ThreadPoolExecutor(arguments.jobs) as pool:
        copies: SimpleQueue[Path] = SimpleQueue()
        for number in range(arguments.jobs):
            copies.put(copy(Path(place) / str(number)))

        def passed(tests: str) -> bool:
            folder = copies.get()
            try:
                return passes(folder, tests)
            finally:
                copies.put(folder)

        def tried(mutant: dict[str, Any]) -> bool:
            folder, begun = copies.get(), time.monotonic()
            try:
                alive = survives(folder, mutant)
            finally:
                copies.put(folder)
                seconds[mutant["file"].rpartition("/")[0]] += time.monotonic() - begun
            change = f"{mutant['is'].strip()}  →  {mutant['becomes'].strip()}"
            print(f"{'SURVIVES' if alive else 'dies':8}  {mutant['file']}: {change}", flush=True)
            return alive

        tests = sorted({mutant["tests"] for mutant in mutants})
        failing = [
            each for each, whole in zip(tests, pool.map(passed, tests), strict=True) if not whole
        ]
        if failing:
            raise SystemExit(f"these fail, or are too slow, with nothing broken: {failing}")
        alive = sum(pool.map(tried, mutants))
    for folder, spent in sorted(seconds.items()):
        print(f"{spent:8.0f} s  {folder}")
    print(f"{len(mutants) - alive} of {len(mutants)} mutants die")
    return int(alive > 0)


if __name__ == "__main__":
    sys.exit(main())
