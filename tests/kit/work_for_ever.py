"""Two workers, without end; each says which process it is, in a folder that it has locked."""

import os
import sys
import time
from pathlib import Path

from tl_dyck.kit.processes import FolderLock
from tl_dyck.kit.workers import spread


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
    list(spread(work_for_ever, [(Path(sys.argv[1]) / f"folder-{i}",) for i in range(2)], 2))
