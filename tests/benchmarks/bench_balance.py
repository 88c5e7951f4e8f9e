"""The exact denominator of the balance violation.

``python tests/benchmarks/bench_balance.py [--trained]``.

CPU seconds for one model, all depths and types, on one thread, with the number of open prefixes of
the largest query. At most 3 seconds for eight types and depth ten, new or trained; 6 where
sums tie by construction.
"""

from __future__ import annotations

import argparse
import time

import torch

from tl_dyck.models import build_model, construct, get_config
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainConfig, train
from tl_dyck_hooks.probes import balance_violation


def seconds(model) -> float:
    times = []
    for _ in range(3):
        started = time.process_time()
        balance_violation(model)
        times.append(time.process_time() - started)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--trained", action="store_true", help="also models after 300 steps of training"
    )
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    print("| model | types | depth | prefixes | seconds |\n|---|---|---|---|---|")
    for k, depth in ((2, 4), (3, 8), (4, 8), (8, 10)):
        task = DyckTask(name="bench", n_types=k, max_depth=depth)
        models = {
            f"{family}, new": build_model(get_config(family, task))
            for family in ("minimal-onehot", "minimal-split", "minimal-yao", "figure2-split")
        }
        models["minimal-onehot, d_head 2"] = build_model(
            get_config("minimal-onehot", task, d_head=2)
        )
        models["balanced construction"] = construct.balanced(task.language, n_ctx=64)
        models["uniform construction"] = construct.uniform_attention(task.language, n_ctx=64)
        if arguments.trained and k == 8:
            options = TrainConfig(steps=300, target=None, check_every=300)
            for family in ("minimal-onehot", "minimal-split", "minimal-yao", "figure2-split"):
                trained = train(get_config(family, task), task, options=options, progress=False)
                models[f"{family}, trained"] = trained.model
            trained = train(
                get_config("minimal-onehot", task, d_head=2), task, options=options, progress=False
            )
            models["minimal-onehot, d_head 2, trained"] = trained.model
        for name, model in models.items():
            found = f"{seconds(model):.2f}"
            print(f"| {name} | {k} | {depth} | {k ** (depth - 1):,} | {found} |", flush=True)


if __name__ == "__main__":
    main()
