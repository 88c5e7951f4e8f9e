"""What users pass by mistake is refused in one line of ours: see `tests.wrong_arguments`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.patience import PATIENCE


def test_wrong_types_and_sizes_are_refused_in_one_line():
    """In a process of its own: this one checks annotations at every call, users' do not."""
    run = subprocess.run(
        [sys.executable, "-m", "tests.wrong_arguments"],
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        cwd=Path(__file__).resolve().parent.parent,
    )
    assert run.stdout == "done\n", run.stdout + run.stderr
