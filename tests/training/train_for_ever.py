"""Two seeds in two workers, without end; each says which process trains it, in its folder."""

import os
import sys
from pathlib import Path

from tl_dyck.models import get_config
from tl_dyck.tasks import load_task
from tl_dyck.training import TrainConfig, train_seeds


def name_the_worker(step, model, folder):
    """Called in the worker."""
    unfinished = folder / "worker.unfinished"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(folder / "worker")


if __name__ == "__main__":
    task = load_task("dyck-2-4")
    config = get_config("minimal-onehot", task)
    options = TrainConfig(steps=10**9, batch_size=4, check_every=5, check_size=10, checkpoint_every=5, target=None)
    train_seeds(
        config,
        task,
        seeds=range(2),
        options=options,
        folder=Path(sys.argv[1]),
        on_model=name_the_worker,
        n_jobs=2,
        progress=False,
    )
