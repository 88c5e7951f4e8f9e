"""The two-layer RNN against the model it was exported from: time and memory as strings grow.

Every way of running is timed in turn within one process, so only the ratios mean something. Memory
is the growth of a fresh process's peak resident size while it reads one string, and the size of
what a stream carries between tokens.

Run with ``python tests/benchmarks/bench_rnn.py --runs 5``.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from time import perf_counter

os.environ.setdefault("OMP_NUM_THREADS", "1")

import torch

from tl_dyck.models import DyckTransformer, build_model, get_config
from tl_dyck.rnn import HistoryCarry, QueryCarry, TwoLayerRNN, export_rnn

LENGTHS = (28, 500, 2000)
FAMILIES = ("gpt", "gpt-linear", "minimal-onehot")  # no positions, positions, depth
BATCH = 8

Run = Callable[[], object]


def build(family: str) -> tuple[DyckTransformer, TwoLayerRNN]:
    """A freshly initialised one-layer model for strings of the greatest length, and its RNN."""
    model = build_model(get_config(family, "dyck-2-4", n_layers=1, n_ctx=max(LENGTHS)))
    return model, export_rnn(model)


def strings(length: int, batch: int = BATCH) -> torch.Tensor:
    return torch.randint(5, (batch, length), generator=torch.Generator().manual_seed(0))


def stream(rnn: TwoLayerRNN, tokens: torch.Tensor) -> QueryCarry | HistoryCarry:
    carry = rnn.initial(len(tokens))
    for token in tokens.T:
        carry, _ = rnn.step(carry, token)
    return carry


def ways(model: DyckTransformer, rnn: TwoLayerRNN, tokens: torch.Tensor) -> dict[str, Run]:
    """Everything that is timed, by name; the others are divided by the model's forward pass."""
    return {
        "model": lambda: model(tokens),
        "whole": lambda: rnn(tokens),
        "last": lambda: rnn.last_logits(tokens),
        "stream": lambda: stream(rnn, tokens),
    }


def times(runs: int) -> None:
    print(
        f"seconds for {BATCH} strings: the model's forward pass (median), "
        "the others as multiples of it\n"
    )
    names = ("whole", "last", "stream")
    print(f"{'family':<16}{'length':>7}{'model s':>10}" + "".join(f"{name:>10}" for name in names))
    for family in FAMILIES:
        model, rnn = build(family)
        for length in LENGTHS:
            timed = ways(model, rnn, strings(length))
            taken: dict[str, list[float]] = {name: [] for name in timed}
            for turn in range(runs + 1):
                for name, run in timed.items():
                    start = perf_counter()
                    run()
                    if turn:  # the first turn warms up
                        taken[name].append(perf_counter() - start)
            median = {name: statistics.median(values) for name, values in taken.items()}
            ratios = (f"{median[n] / median['model']:>10.2f}" for n in names)
            print(f"{family:<16}{length:>7}{median['model']:>10.4f}" + "".join(ratios))
    print("\nwhole: every position; last: the last position only; stream: one token at a time\n")


def peak_megabytes() -> float:
    """Peak resident size of this program.

    Not ru_maxrss, which a child process inherits from its parent.
    """
    status = Path("/proc/self/status").read_text()
    return int(status.split("VmHWM:")[1].split()[0]) / 1024


def grown_memory(family: str, way: str, length: int) -> float:
    """Run in a fresh process: by how many MB its peak grows while it reads one string."""
    model, rnn = build(family)
    ways(model, rnn, strings(LENGTHS[0], 1))[way]()
    before = peak_megabytes()
    ways(model, rnn, strings(length, 1))[way]()
    return peak_megabytes() - before


def memory() -> None:
    """Growth of the peak, where the system tells (Linux), and the size of the carries."""
    if Path("/proc/self/status").exists():
        growth()
    carried()


def growth() -> None:
    names = ("model", "whole", "last", "stream")
    print("growth of the peak while reading one string, MB\n")
    print(f"{'family':<16}{'length':>7}" + "".join(f"{name:>10}" for name in names))
    for family in FAMILIES[:2]:
        for length in LENGTHS[1:]:
            cells = []
            for name in names:
                command = [sys.executable, __file__, "--grown", family, name, str(length)]
                out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                cells.append(f"{float(out.split()[-1]):>10.1f}")
            print(f"{family:<16}{length:>7}" + "".join(cells))


def carried() -> None:
    print("\nnumbers carried between two tokens of one string\n")
    for family in FAMILIES:
        _, rnn = build(family)
        for length in LENGTHS:
            carry = stream(rnn, strings(length, 1))
            parts = [*carry.sums] if isinstance(carry, QueryCarry) else [carry.keys, carry.values]
            print(f"{family:<16}{length:>7}{sum(part.numel() for part in parts):>10}")


def main() -> None:
    """Print two tables."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=5, help="timed turns")
    parser.add_argument("--grown", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    with torch.no_grad():
        if arguments.grown:
            family, way, length = arguments.grown
            print(grown_memory(family, way, int(length)))
            return
        times(arguments.runs)
        memory()


if __name__ == "__main__":
    main()
