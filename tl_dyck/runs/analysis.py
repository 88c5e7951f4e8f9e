"""What makes a sweep's folder more than a sweep: an analysis, as a view of the records of its runs.

Knows: that an analysis (a study, an ablation, a reproduction, a judgement) is a file that says what
was asked and which runs are its own; everything else is read from what these runs left.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar, final

import pandas as pd

from tl_dyck.kit.environment import environment
from tl_dyck.kit.files import CorruptFileError, write_json
from tl_dyck.kit.records import TableColumns, read_object, read_table, write_tables
from tl_dyck.runs.results import load_results, load_runs
from tl_dyck.runs.store import Store

T = TypeVar("T")


@final
@dataclass(frozen=True)
class Analysis:
    """A kind of analysis.

    Attributes:
        file: in the sweep's folder, which says what was asked.
        form: its format.
        what: it is, with its article, for messages.
        again: what to do where it is damaged.
    """

    file: str
    form: str
    what: str
    again: str = "run it again"

    def write(self, folder: str | Path, **asked: Any) -> None:
        """Note what was asked, with the runs of the sweep that was last asked for in a folder.

        Raises:
            FailedRunsError: runs failed, or are not done.
        """
        facts = {"runs": load_runs(folder)["id"].tolist(), "environment": environment()}
        write_json(Path(folder) / self.file, {"format": self.form, **asked, **facts})

    @contextlib.contextmanager
    def read(self, folder: str | Path) -> Iterator[tuple[dict[str, Any], pd.DataFrame]]:
        """What was asked, and the rows of its runs, with their folders; to be taken apart within.

        Raises:
            CorruptFileError: it is missing, damaged or of another version; a run has no record; or
                what is read of it within lacks something.
        """
        path = Path(folder)
        saved = read_object(path / self.file, (self.form,), self.what)
        try:
            yield saved, _runs(path, [*saved["runs"]])
        except CorruptFileError as error:
            raise CorruptFileError(f"{error}; {self.again}") from error
        except (KeyError, TypeError, ValueError, AttributeError, OSError) as error:
            raise CorruptFileError(
                f"{str(path)!r} does not hold {self.what} as a whole: {error!r}; {self.again}"
            ) from error

    def kept(
        self,
        folder: str | Path,
        name: str,
        compute: Callable[[], pd.DataFrame],
        columns: TableColumns | None = None,
    ) -> pd.DataFrame:
        """A table that takes time: kept as a Parquet file, made again when it is older than `file`.

        Where the folder cannot be written, it is made without being kept.
        """
        path = Path(folder) / f"{name}.parquet"
        asked = (Path(folder) / self.file).stat().st_mtime_ns
        with contextlib.suppress(OSError, CorruptFileError):
            # nanoseconds: both are often written within the same second
            if path.stat().st_mtime_ns >= asked:
                return read_table(path, columns)
        table = compute()
        with contextlib.suppress(OSError):
            write_tables(folder, {name: table})
            return read_table(path)
        return table


def of_each(runs: pd.DataFrame, read: Callable[[dict[str, Any], Path], T]) -> list[T]:
    """What is read of every run: of its row, and of its folder.

    Raises:
        CorruptFileError: a file that a run's record says is there is not; it says how to repeat the
            run.
    """
    found = []
    for row in runs.to_dict("records"):
        folder = Path(row["folder"])
        try:
            found.append(read(row, folder))
        except CorruptFileError as error:
            record = folder.with_suffix(".json")
            raise CorruptFileError(
                f"{error}; delete '{folder}' and '{record}' to do this run again"
            ) from error
    return found


def _runs(folder: Path, ids: list[str]) -> pd.DataFrame:
    """The rows of `load_results` of some runs, in the order of their ids, and their folders."""
    every = load_results(folder).set_index("id", drop=False)
    missing = [run for run in ids if run not in every.index]
    if missing or not ids:
        what = f"has no record of its run {missing[0]!r:.40}" if missing else "names no runs"
        raise CorruptFileError(f"{str(folder)!r} {what}")
    places = [Store(folder).path(run) for run in ids]
    return every.loc[ids].assign(folder=places).reset_index(drop=True)
