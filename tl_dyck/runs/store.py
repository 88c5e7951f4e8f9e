"""A sweep on disk: who may run what, and what came of it, whole or absent, whoever dies when.

    sweep.json             the sweep, and the version of this layout
    locks                  empty; a run is claimed by locking one byte of it
    points/<id>.json       parameters of a point, and all that defines it
    runs/ab/<id>.json      what came of a run; written once, by rename, never changed
    runs/ab/<id>.failed.json   that it raised, with the traceback
    runs/ab/<id>/          what the experiment keeps; there from the moment that a run is started

*Nothing is done twice.* A run is done under an exclusive lock (POSIX record lock) on the byte of
`locks` that its id names. The kernel takes it back when the process dies, however it dies, so there
are no leases to expire, nothing to clean up, and no clock in it. Once it has the lock, a process
looks again whether the run has been done.

*Nothing half-written is read.* Records appear under their name by rename, and carry a digest of
their content. One that does not match (the disk failed, someone edited it) is moved aside, and its
run counts as not done.

*Nothing is lost.* A record is flushed to the disk before it is renamed, unless the run took less
time than that takes; after a power failure, such a run may have to be done again.

Locks need a file system that has them across machines: NFS 4, Lustre mounted with ``flock``, BeeGFS
with locks enabled. Where the operating system has none (Windows), one command at a time may work on
a folder.

Looked at instead: hydra, which keeps no store; submitit, which claims no runs; optuna, whose
studies are searches. None says of a run, whoever died, whether it is done.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import traceback
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any, final

from tl_dyck.kit.files import (
    CorruptFileError,
    ensure_folder,
    read_json,
    remove_leftovers,
    sha256,
    write_bytes,
    write_json,
)
from tl_dyck.kit.records import read_sealed, sealed
from tl_dyck.kit.verdicts import read_metrics
from tl_dyck.runs.locks import guard, lock, unlock
from tl_dyck.runs.spec import Sweep, SweepError

FORMAT = "tl_dyck.runs/1"

#: What can be wrong with a disk and is no fault of a run: with these, a sweep stops, and no run
#: counts as failed.
STOPPERS = (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.ESTALE)

#: Columns of the table of results that are not the experiment's.
RESERVED = (
    "id",
    "point",
    "experiment",
    "seed",
    "status",
    "error",
    "seconds",
    "started",
    "host",
    "cpu_cores",
    "gpu",
    "python",
    "platform",
    "tl_dyck",
    "torch",
    "transformer_lens",
)

_DAY = 24 * 3600.0  # seconds: no file takes as long to write

#: What a run's record is called, by what came of it.
ENDINGS = {"done": ".json", "failed": ".failed.json"}

_FLUSH = 0.05  # seconds; a run that took less is as soon done again as flushed to a slow disk


def point_id(experiment: str, identity: Mapping[str, Any]) -> str:
    """Identity of a point: 20 hexadecimal digits of the SHA-256 of everything that defines it."""
    # 80 bits: a million runs have two of one id with a chance below 1e-12
    return sha256({"experiment": experiment, "identity": identity})[:20]


def run_id(point: str, seed: int) -> str:
    """Identity of a run: 20 hexadecimal digits of the SHA-256 of its point and seed."""
    return hashlib.sha256(f"{point}/{seed}".encode()).hexdigest()[:20]


@final
@dataclass(frozen=True)
class Store:
    """A sweep's folder. Cheap to make, and safe to hand to another process.

    Attributes:
        folder: of the sweep.
    """

    folder: Path

    # --- the sweep --------------------------------------------------------------------------------

    @classmethod
    def create(
        cls,
        folder: str | Path,
        sweep: Mapping[str, Any],
        points: Sequence[str],
        notes: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
    ) -> Store:
        """Take a folder into use, or go on with one; what it holds of another sweep stays.

        Args:
            folder: of the sweep.
            sweep: as `Sweep.to_dict` gives it.
            points: ids, in the order of the sweep.
            notes: what is written down of a point, by its id.

        Raises:
            CorruptFileError: the folder holds a sweep of another version.
            OSError: it cannot be written.
        """
        store = cls(ensure_folder(folder).resolve())
        path = store.folder / "sweep.json"
        asked = {"format": FORMAT, "sweep": sweep, "points": [*points]}
        # `repr`: 1, 1.0 and True are equal, and mean different things
        new = not path.exists() or repr(store._saved()) != repr(asked)
        if new:
            with guard:  # to close it would drop the locks that this process has
                if not (store.folder / "locks").exists():
                    (store.folder / "locks").touch()
            for name in ("points", "runs"):
                (store.folder / name).mkdir(exist_ok=True)
        for point, note in notes.items():
            noted = store.folder / "points" / f"{point}.json"
            if not noted.exists():
                write_json(noted, note)
        if new:
            write_json(path, asked)
        return store

    @classmethod
    def at(cls, folder: str | Path) -> Store:
        """A folder; whether it holds a sweep, `plan` says."""
        return cls(Path(folder).resolve())

    def plan(self) -> tuple[Sweep, tuple[str, ...]]:
        """The sweep that was last asked for here, and the ids of its points, in their order.

        Raises:
            CorruptFileError: there is none, or it is of another version.
        """
        path, saved = self.folder / "sweep.json", self._saved()
        try:
            sweep, points = Sweep.from_dict(saved["sweep"]), tuple(map(str, saved["points"]))
        except (KeyError, TypeError, SweepError) as error:
            raise CorruptFileError(f"{str(path)!r} does not hold a sweep: {error}") from error
        if len(points) != sweep.n_points:
            raise CorruptFileError(
                f"{str(path)!r} names {len(points)} points, but the sweep has {sweep.n_points}"
            )
        return sweep, points

    def _saved(self) -> dict[str, Any]:
        """What sweep.json holds."""
        path = self.folder / "sweep.json"
        if not path.exists():
            raise CorruptFileError(f"{str(self.folder)!r} holds no sweep: there is no sweep.json")
        saved = read_json(path)
        found = saved.get("format") if isinstance(saved, dict) else None
        if found != FORMAT:
            raise CorruptFileError(
                f"{str(self.folder)!r} holds a sweep of format {found!r}, and this version of "
                f"tl_dyck reads {FORMAT!r}: use the version that wrote it, or another folder"
            )
        return dict(saved)

    # --- a run ------------------------------------------------------------------------------------

    def path(self, run: str, ending: str = "") -> Path:
        """The run's own folder, or with an ending the file beside it."""
        return self.folder / "runs" / run[:2] / f"{run}{ending}"

    def is_done(self, run: str) -> bool:
        """Whether a run is done: its record is on disk."""
        return os.path.exists(f"{self.folder}/runs/{run[:2]}/{run}.json")

    def is_started(self, run: str) -> bool:
        """Whether someone began it, who may be at it still."""
        return os.path.exists(f"{self.folder}/runs/{run[:2]}/{run}")

    def start(self, run: str) -> Path:
        """Make the run's folder."""
        path = self.path(run)
        path.mkdir(parents=True, exist_ok=True)
        return path

    @contextlib.contextmanager
    def claim(self, run: str) -> Iterator[bool]:
        """Hold the run's lock.

        Yields:
            False if someone else has it, in this process or any other.
        """
        held = lock(self.folder, run)
        try:
            yield held
        finally:
            if held:
                unlock(self.folder, run)

    def is_claimed(self, run: str) -> bool:
        """Whether some process is at it now; False where that cannot be known."""
        if not (self.folder / "locks").exists():
            return False
        try:
            with self.claim(run) as mine:
                return not mine
        except OSError:
            return False

    def write_record(self, run: str, record: Mapping[str, Any], *, took: float) -> None:
        """Write what came of a run; from then on it is done.

        The failure before it, if any, is forgotten.
        """
        write_bytes(self.path(run, ".json"), sealed(record, run), flush=took > _FLUSH)
        self.forget_failure(run)

    def write_failure(
        self, run: str, record: Mapping[str, Any], error: str, trace: str, *, took: float
    ) -> None:
        """Write down that a run raised."""
        self.path(run).parent.mkdir(parents=True, exist_ok=True)
        data = sealed({**record, "error": error, "traceback": trace}, run)
        write_bytes(self.path(run, ".failed.json"), data, flush=took > _FLUSH)

    def forget_failure(self, run: str) -> None:
        """Let a run that failed be tried again."""
        self.path(run, ".failed.json").unlink(missing_ok=True)

    def drop_files(self, run: str) -> None:
        """Remove what the experiment kept."""
        shutil.rmtree(self.path(run), ignore_errors=True)

    def read(self, path: Path) -> dict[str, Any]:
        """Read a record, or a failure; metrics have today's names.

        Raises:
            CorruptFileError: truncated, altered, or of another run.
        """
        found = read_sealed(path, path.name.split(".")[0])
        if "metrics" in found:
            found["metrics"] = read_metrics(found["metrics"], str(found["experiment"]))
        return found

    def ended(self, run: str, *, aside: bool = False) -> str:
        """Return the outcome of a run: "done", "failed", or "" if no record of it can be read.

        Args:
            run: its id.
            aside: whether to rename records that cannot be read, so that nothing is destroyed when
                it is done again. Only for who holds its lock: another process may have done it
                again in the meantime.
        """
        for status, ending in ENDINGS.items():
            path = self.path(run, ending)
            if not os.path.exists(path):
                continue
            try:
                self.read(path)
                return status
            except CorruptFileError:
                if aside:
                    # a name of its own: a second damaged file must not replace the first
                    os.replace(path, f"{path}.{os.urandom(4).hex()}.corrupt")
        return ""

    # --- all runs ---------------------------------------------------------------------------------

    def names(self) -> Iterator[tuple[str, str]]:
        """Every run that was started: its id, and "done", "failed" or "started"."""
        for shelf in self._shelves():
            yield from sorted(_statuses(shelf).items())

    def tidy(self) -> None:
        """Remove what processes that were killed had begun to write, a day ago or more."""
        for folder in (self.folder, self.folder / "points", *map(Path, self._shelves())):
            remove_leftovers(folder, older=_DAY)

    def _shelves(self) -> list[str]:
        try:
            with os.scandir(self.folder / "runs") as entries:
                return sorted(entry.path for entry in entries if entry.is_dir())
        except FileNotFoundError:
            return []


def _statuses(shelf: str) -> dict[str, str]:
    """Run to status for one of the 256 folders; done before failed before started."""
    known = {"": "started", **{ending: status for status, ending in ENDINGS.items()}}
    found: dict[str, str] = {}
    for entry in os.listdir(shelf):
        # 20 digits of the id, then the ending
        run, status = entry[:20], known.get(entry[20:])
        if status is None or len(run) < 20 or "." in run:
            continue  # a file that is being written, or was set aside
        if run not in found or status == "done" or found[run] == "started":
            found[run] = status
    return found


def describe(error: BaseException) -> tuple[str, str]:
    """One line on an error, and its traceback; what is not Unicode (as in names) is escaped."""
    found = traceback.TracebackException.from_exception(error)
    trace = "".join(found.format())
    vars(found)["__notes__"] = None  # else they come last
    lines = (list(found.format_exception_only())[-1].strip() or type(error).__name__).splitlines()
    line, trace = (
        text.encode(errors="backslashreplace").decode()
        # a line for tables; of a long traceback the end, where the error is
        for text in (lines[0][:500], trace[-20_000:])
    )
    return line, trace


def row_of(record: Mapping[str, Any], status: str) -> dict[str, Any]:
    """A record as a row of the table of results."""
    return {
        "id": record["id"],
        "point": record["point"],
        "experiment": record["experiment"],
        **record["parameters"],
        "seed": record["seed"],
        "status": status,
        **record.get("metrics", {}),
        "error": record.get("error"),
        "seconds": record["seconds"],
        "started": record["started"],
        **record["environment"],
    }
