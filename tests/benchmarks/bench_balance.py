"""The exact denominator of the balance violation.

``python tests/benchmarks/bench_balance.py [--trained]``.

CPU seconds for one model, all depths and types, on one thread, with the number of open prefixes of
the largest query. Brute force, where it can be waited for, in the same run.
"""

from __future__ import annotations

import argparse
import time

import torch

from tl_dyck.models import build_model, construct, get_config
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainConfig, train
from tl_dyck_hooks.probes import balance_violation, shortest_sum


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
    print(
        "| model | types | depth | prefixes | branch and bound, s | brute force, s |\n"
        "|---|---|---|---|---|---|"
    )
    for k, depth, brute in ((2, 4, True), (3, 8, True), (4, 8, True), (8, 10, False)):
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
            found, slow = seconds(model), "–"
            if brute:
                few, shortest_sum._FEW = shortest_sum._FEW, 10**9
                slow = f"{seconds(model):.2f}"
                shortest_sum._FEW = few
            print(
                f"| {name} | {k} | {depth} | {k ** (depth - 1):,} | {found:.2f} | {slow} |",
                flush=True,
            )


if __name__ == "__main__":
    main()
