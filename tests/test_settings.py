"""What .ci/test-cpus sets is what these tests then run with."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest
import torch


@pytest.mark.bits
def test_threads() -> None:
    expected = 1
    if os.environ.get("TL_DYCK_TEST_THREADS") == "default":
        assert not {"OMP_NUM_THREADS", "MKL_NUM_THREADS"} & set(os.environ)
        alone = subprocess.run(
            [sys.executable, "-c", "import torch; print(torch.get_num_threads())"],
            capture_output=True,
        )
        expected = int(alone.stdout)
    assert torch.get_num_threads() == expected


@pytest.mark.bits
def test_instructions() -> None:
    """A setting that the processor cannot follow leaves it with less, never with more."""
    most = {"default": {"DEFAULT"}, "avx2": {"DEFAULT", "AVX2"}}.get(
        os.environ.get("ATEN_CPU_CAPABILITY", "")
    )
    assert most is None or torch.backends.cpu.get_cpu_capability() in most
