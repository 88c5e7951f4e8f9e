"""Seeds of a point that an experiment does together, but claimed, recorded and failed singly."""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.runs.test_execute import go
from tl_dyck.runs import PackedJob, execute, load_results
from tl_dyck.runs.store import Store, run_id

SEEDS = 32


class Pack:
    """Notes which seeds it was given together."""

    def __init__(self, size: int = 4, **trouble: Any) -> None:
        self.size = size
        self.trouble = trouble
        self.given: list[list[int]] = []
        self.read = 0

    def prepare(self, point: dict[str, Any]) -> PackJob:
        self.read += 1
        return PackJob(self.size, self.trouble, self.given, point)


@dataclass
class PackJob:
    """A point of it."""

    size: int
    trouble: dict[str, Any]
    given: list[list[int]]
    point: dict[str, Any]

    def identity(self) -> dict[str, Any]:
        return self.point

    def run(self, seed: int, folder: Path) -> dict[str, Any]:
        self.given.append([seed])
        return {"score": self.point["x"] + seed}

    def pack(self) -> int:
        return self.size

    def run_together(
        self,
        folders: Mapping[int, Path],
        ended: Callable[[int, Mapping[str, Any] | BaseException, float], None],
    ) -> None:
        self.given.append(list(folders))
        assert all(folder.is_dir() for folder in folders.values())
        for seed in reversed(folders):  # in whatever order
            if seed in self.trouble.get("raises", ()):
                raise RuntimeError(f"all over at {seed}")
            if seed in self.trouble.get("silent", ()):
                continue
            fails = seed in self.trouble.get("fails", ())
            found: Any = self.trouble["error"] if fails else {"score": self.point["x"] + seed}
            ended(seed, found, 0.25)


def sweep(seeds: int = SEEDS, **more: Any) -> dict[str, Any]:
    return {"grid": {"x": [0, 100]}, "seeds": seeds, **more}


def test_seeds_of_a_point_are_given_together(tmp_path):
    pack = Pack(4)
    assert isinstance(pack.prepare({"x": 0}), PackedJob)
    pack.read = 0
    done = go(sweep(), tmp_path, pack)
    assert (done.done, done.made) == (2 * SEEDS, 2 * SEEDS)
    assert pack.given == [list(range(start, start + 4)) for start in range(0, SEEDS, 4)] * 2
    assert pack.read == 2 + len(
        pack.given
    )  # each point once here, and each parcel where it is done
    table = load_results(tmp_path)
    assert list(table["score"]) == [x + seed for x in (0, 100) for seed in range(SEEDS)]
    assert set(table["seconds"]) == {0.25}
    again = Pack(4)
    assert go(sweep(), tmp_path, again).made == 0
    assert again.given == []


def pretending(open_workers, number):
    @contextlib.contextmanager
    def pretend(*arguments):
        with open_workers(*arguments) as workers:
            workers.size = number
            yield workers

    return pretend


def test_few_runs_are_shared_out(tmp_path, monkeypatch):
    pack = Pack(100)
    monkeypatch.setattr(execute, "open_workers", pretending(execute.open_workers, 3))
    go(
        sweep(6), tmp_path / "few", pack
    )  # 12 runs, three workers: no more than four at a time, so that each has some
    assert [len(seeds) for seeds in pack.given] == [4, 2, 4, 2]
    alone = Pack(1)
    go(sweep(6), tmp_path / "alone", alone)
    assert [len(seeds) for seeds in alone.given] == [1] * 12


def test_what_is_done_claimed_or_begun_is_left_out(tmp_path):
    go({"common": {"x": 0}, "seeds": [1, 2]}, tmp_path, Pack(1))
    store = Store(tmp_path.resolve())
    (point,) = {record["point"] for record in map(store.read, tmp_path.glob("runs/*/*.json"))}
    store.start(run_id(point, 5))  # someone began it and is gone
    pack = Pack(4)
    with store.claim(run_id(point, 0)):
        done = go({"common": {"x": 0}, "seeds": 16}, tmp_path, pack, wait=False)
    assert (done.done, done.made, done.elsewhere) == (15, 13, 1)
    assert pack.given == [[3, 4, 6], [7, 8, 9, 10], [11, 12, 13, 14], [15], [5]]


@pytest.mark.parametrize("error", [ValueError("no good"), {"score": object()}, SystemExit(3)])
def test_a_seed_that_fails_leaves_the_others(tmp_path, error):
    done = go(sweep(8), tmp_path, Pack(4, fails=(2,), error=error))
    assert (done.done, done.failed) == (14, 2)
    table = load_results(tmp_path)
    assert list(table["seed"][table["status"] == "failed"]) == [2, 2]
    if isinstance(error, ValueError):
        assert set(table["error"].dropna()) == {"ValueError: no good"}
    mended = go(sweep(8), tmp_path, Pack(4), retry_failed=True)
    assert (mended.done, mended.failed, mended.made) == (16, 0, 2)


def test_an_experiment_that_raises_keeps_what_had_ended(tmp_path):
    done = go({"common": {"x": 0}, "seeds": 16}, tmp_path, Pack(4, raises=(1,)))
    assert (done.done, done.failed) == (14, 2)  # 3 and 2 had ended
    table = load_results(tmp_path).set_index("seed")
    assert set(table.index[table["status"] == "failed"]) == {0, 1}
    assert table["error"][0] == "RuntimeError: all over at 1"


def test_an_experiment_that_says_nothing_of_a_seed(tmp_path):
    done = go({"common": {"x": 0}, "seeds": 16}, tmp_path, Pack(4, silent=(1,)))
    assert (done.done, done.failed) == (15, 1)
    assert "said nothing" in load_results(tmp_path).set_index("seed")["error"][1]


def test_a_full_disk_in_the_middle_of_a_pack(tmp_path, monkeypatch):
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(OSError, match="No space left"):
        go({"common": {"x": 0}, "seeds": 16}, tmp_path / "own", Pack(4, fails=(2,), error=full))
    real = Store.write_record

    def write(self: Store, run: str, record: Mapping[str, Any], *, took: float) -> None:
        if record["seed"] == 2:
            raise full
        real(self, run, record, took=took)

    monkeypatch.setattr(Store, "write_record", write)
    with pytest.raises(OSError, match="No space left"):
        go({"common": {"x": 0}, "seeds": 16}, tmp_path / "records", Pack(4))
    monkeypatch.undo()
    for folder in ("own", "records"):
        table = load_results(tmp_path / folder)
        assert 2 not in set(table["seed"])
        assert set(table["status"]) == {"done"}
        done = go({"common": {"x": 0}, "seeds": 16}, tmp_path / folder, Pack(4))
        assert (done.done, done.made) == (16, 16 - len(table))
