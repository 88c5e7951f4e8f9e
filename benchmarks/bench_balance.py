"""The exact denominator of the balance violation.

``python benchmarks/bench_balance.py [--trained]``.

CPU seconds for one model, all depths and types, on one thread, with the number of open prefixes of
the largest query. At most 3 seconds for eight types and depth ten, new or trained; 6 where
sums tie by construction.
"""

from __future__ import annotations

from functools import partial

from harness import heading, in_turns, options, row

from tl_dyck.models import build_model, construct, get_config
from tl_dyck.probes.balance import balance_violation
from tl_dyck.tasks import DyckTask
from tl_dyck.training import TrainConfig, train


def main() -> None:
    """Print a row for each model."""
    trained = options(__doc__, trained=False).trained
    training = TrainConfig(steps=300, target=None, check_every=300)
    heading("model", "types", "depth", "prefixes", "seconds")
    for k, depth in ((2, 4), (3, 8), (4, 8), (8, 10)):
        task = DyckTask(name="bench", n_types=k, max_depth=depth)
        configs = {
            family: get_config(family, task)
            for family in ("minimal-onehot", "minimal-split", "minimal-yao", "figure2-split")
        }
        configs["minimal-onehot, d_head 2"] = get_config("minimal-onehot", task, d_head=2)
        models = {f"{name}, new": build_model(config) for name, config in configs.items()}
        models["balanced construction"] = construct.balanced(task.language, n_ctx=64)
        models["uniform construction"] = construct.uniform_attention(task.language, n_ctx=64)
        if trained and k == 8:
            models |= {
                f"{name}, trained": train(config, task, options=training, progress=False).model
                for name, config in configs.items()
            }
        ways = {name: partial(balance_violation, model) for name, model in models.items()}
        for name, times in in_turns(ways, 3).items():
            row(name, k, depth, f"{k ** (depth - 1):,}", f"{min(times):.2f}")


if __name__ == "__main__":
    main()
