"""What sweeps cost.

``python benchmarks/bench_sweep.py [--runs 1000000] [--train 64] [--rows 100000]``.

- no-op: a sweep of runs that do nothing, in this process and in workers: milliseconds a run,
  memory, files and bytes, at growing sizes (is the cost a run flat?);
- the floor: making a folder, and a file by rename, with nothing around it;
- start again: how long it takes to find that everything is done;
- table: loading, filtering and averaging it;
- throughput: short training runs on all cores, against the sum of the times of single runs divided
  by the workers.
"""

from __future__ import annotations

import os
import resource
import tempfile
import time
from pathlib import Path
from typing import Any

from harness import heading, options, row
from joblib import cpu_count

from tl_dyck.kit.files import write_bytes
from tl_dyck.runs import aggregate, load_results, run_sweep


def nothing(point: dict[str, Any], seed: int, folder: Path) -> dict[str, Any]:
    """An experiment that costs nothing."""
    return {"score": point["x"] + seed / 7}


def sweep_of(n_runs: int) -> dict[str, Any]:
    n_points = max(1, n_runs // 1000)
    return {"grid": {"x": list(range(n_points))}, "seeds": min(n_runs, 1000)}


def peak_mb() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


def floor(root: Path, n_runs: int = 5000) -> float:
    """Milliseconds for a folder and a file of 600 bytes by rename."""
    started = time.perf_counter()
    for index in range(n_runs):
        folder = root / f"{index % 256:02x}" / str(index)
        folder.mkdir(parents=True)
        write_bytes(folder.with_suffix(".json"), b"x" * 600, flush=False)
    return (time.perf_counter() - started) / n_runs * 1e3


def no_ops(root: Path, sizes: list[int], workers: list[int]) -> None:
    print(f"floor, a folder and a file by rename: {floor(root / 'floor'):.3f} ms\n")
    again = "starting again, ms a run"
    heading("runs", "workers", "ms a run", again, "peak memory, MB", "files", "bytes a run")
    for size in sizes:
        for jobs in workers:
            folder = root / f"{size}-{jobs}"
            how: Any = {"experiment": nothing, "n_jobs": jobs, "progress": False}
            done = run_sweep(sweep_of(size), folder, **how)
            again = run_sweep(sweep_of(size), folder, **how)
            assert done.made == again.done == done.total
            assert again.made == 0
            n_files = sum(len(names) for _, _, names in os.walk(folder))
            records = (folder / "runs" / "00").glob("*.json")
            n_bytes = max((path.stat().st_size for path in records), default=0)
            costs = [f"{each.seconds / done.total * 1e3:.3f}" for each in (done, again)]
            row(f"{done.total:,}", jobs, *costs, f"{peak_mb():.0f}", f"{n_files:,}", n_bytes)


def table(root: Path, n_rows: int) -> None:
    folder = root / "table"
    run_sweep(
        sweep_of(n_rows), folder, experiment=nothing, n_jobs=1, keep_files=False, progress=False
    )
    started = time.perf_counter()
    results = load_results(folder)
    loaded = time.perf_counter() - started
    started = time.perf_counter()
    chosen = results[(results["x"] < 50) & (results["seed"] % 2 == 0)]
    aggregate(chosen)
    queried = time.perf_counter() - started
    print(
        f"\ntable of {n_rows:,} runs: read from the records in {loaded:.2f} s; filtered and "
        f"averaged in {queried:.2f} s"
    )


def throughput(root: Path, n_runs: int, steps: int) -> None:
    jobs = cpu_count()
    sweep = {
        "grid": {"model": ["minimal-onehot", "gpt"], "training.learning_rate": [3e-3, 6e-3]},
        "common": {
            "task": "dyck-2-4",
            "training": {"steps": steps, "target": None},
            "measure": {"n_accuracy": 500, "n_long": 50, "n_strings": 200},
        },
        "seeds": n_runs // 4,
    }
    done = run_sweep(sweep, root / "train", n_jobs=jobs, progress=False)
    own = float(load_results(root / "train")["seconds"].sum())
    for seed in range(1000, 1003):  # one at a time, and the first to warm up
        run_sweep({**sweep, "seeds": [seed]}, root / "alone", n_jobs=1, progress=False)
    alone = load_results(root / "alone")
    single = float(alone["seconds"][alone["seed"] > 1000].mean()) * done.total
    print(
        f"\n{done.total} training runs of {steps} steps, {jobs} workers: {done.seconds:.1f} s, the "
        f"workers' start included. Times of single runs add up to {single:.1f} s: "
        f"{single / jobs / done.seconds:.0%} of the ideal throughput; as they were done here, "
        f"several seeds together, they took {own:.1f} s: "
        f"{own / jobs / done.seconds:.0%} of what that allows"
    )


def main() -> None:
    said = options(
        __doc__, runs=100_000, smallest=1_000, workers=[1, cpu_count()], rows=100_000, train=64,
        steps=600, folder=tempfile.gettempdir(),
    )  # fmt: skip
    with tempfile.TemporaryDirectory(dir=said.folder) as folder:
        root = Path(folder)
        sizes = [10**n for n in range(3, 7) if said.smallest <= 10**n <= said.runs]
        if sizes:
            no_ops(root, sizes, said.workers)
        if said.rows:
            table(root, said.rows)
        if said.train:
            throughput(root, said.train, said.steps)


if __name__ == "__main__":
    main()
