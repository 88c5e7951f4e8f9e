"""Two workers, without end; each says which process it is, in a folder that it has locked."""

import os
import sys
import time
from pathlib import Path

from joblib import Parallel, delayed

from tl_dyck.processes import FolderLock, Watched


def work_for_ever(folder):
    """Called in a worker."""
    folder.mkdir()
    lock = FolderLock(folder)
    unfinished = folder / "worker.unfinished"
    unfinished.write_text(str(os.getpid()))
    unfinished.rename(folder / "worker")
    while True:
        time.sleep(1)
        assert lock


if __name__ == "__main__":
    work = Watched.by_this_process(work_for_ever)
    Parallel(n_jobs=2, backend="loky")(
        delayed(work)(Path(sys.argv[1]) / f"folder-{i}") for i in range(2)
    )
