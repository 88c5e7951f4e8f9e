"""What holds for every test: offline, one thread, reproducible, no global RNG."""

from __future__ import annotations

import faulthandler
import gc
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

# Before anything imports these libraries: tests never reach for the network, and two workers share
# two cores (TL_DYCK_TEST_THREADS=default leaves torch as many threads as it takes by itself).
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "disabled")
os.environ.setdefault("TL_DYCK_TEST_THREADS", "1")
# files of suites: a folder that is made by the first command that keeps one, as none here does
os.environ.setdefault("TL_DYCK_CACHE", os.path.join(tempfile.gettempdir(), "tl_dyck-tests"))
os.environ.update(
    {"OMP_NUM_THREADS": "1", **os.environ} if os.environ["TL_DYCK_TEST_THREADS"] == "1" else {}
)

import pytest
from _pytest.faulthandler import fault_handler_stderr_fd_key
from hypothesis import HealthCheck, Phase, settings
from jaxtyping import install_import_hook

# Torch and what needs it are imported where they are used: the process that hands tests out to
# workers reads this file, too, and they wait for it.
if TYPE_CHECKING:
    from tl_dyck.studies import Study

# while tests are imported: that leaves hardly any garbage, and to look for it takes seconds
gc.disable()

# Shells start what runs in the background with Ctrl-C ignored, and children inherit that; some
# tests press it.
if threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)

# `make test-types` checks annotations at every call, in every module that has shapes; the types of
# the others are mypy's. It takes up to 30 % more time, so `make test` does not. (Not by the
# option --jaxtyping-packages: older releases of jaxtyping read it after the conftest.py of the
# folders that the command line names.)
ROOT = Path(__file__).parents[1]
SHAPED = [
    ".".join(path.relative_to(root).with_suffix("").parts)
    for root in (ROOT, ROOT / "hooks")
    for path in root.glob("tl_dyck*/**/*.py")
    if path.stem != "__init__" and "jaxtyping" in path.read_text(encoding="utf-8")
]
if os.environ.get("TL_DYCK_TEST_TYPES") == "1":
    install_import_hook(SHAPED, "beartype.beartype")

# The same examples on every run; HYPOTHESIS_PROFILE=explore looks at others (and so, for longer, do
# the fuzz scripts). No health check of speed: how fast an example is drawn depends on what else the
# machine does.
_common = {"deadline": None, "print_blob": True, "suppress_health_check": [HealthCheck.too_slow]}
settings.register_profile("same", derandomize=True, database=None, max_examples=30, **_common)
settings.register_profile("explore", **_common)
settings.register_profile(  # for mutants, of which no small failure is wanted
    "fail", parent=settings.get_profile("same"), phases=(Phase.explicit, Phase.generate)
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE") or "same")


def pytest_collection_finish() -> None:
    """What is set in every process that runs tests, once their modules are imported."""
    import torch

    from tl_dyck.kit import screen

    if os.environ["TL_DYCK_TEST_THREADS"] == "1":
        torch.set_num_threads(1)
    # bars print a line into logs after so many seconds; here never, for a machine may be slow
    screen._FIRST_AFTER = screen._LINE_EVERY = 1e9


@pytest.hookimpl(tryfirst=True)  # a worker of xdist runs its own, and no other
def pytest_runtestloop() -> None:
    """Collect garbage again, but seldom: to look through all that tests have imported takes long.

    (Not gc.freeze: Hypothesis asks who refers to random generators.)
    """
    gc.set_threshold(50_000, 20, 20)
    gc.enable()


#: Where torch's global random generator was before a test and its fixtures.
BEFORE = pytest.StashKey[Any]()
#: A test that hangs for so many seconds shows where all its threads are. The timer is a thread, so
#: it is set anew once a minute, not for every test.
HANGS, MINUTE = 400, 60
timer: dict[str, float] = {"set": -MINUTE}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Note where torch's global random generator is, and when this was."""
    import torch

    item.stash[BEFORE] = torch.random.get_rng_state()
    if time.monotonic() > timer["set"] + MINUTE:
        timer["set"] = time.monotonic()
        file = item.config.stash[fault_handler_stderr_fd_key]
        faulthandler.dump_traceback_later(HANGS, file=file)


def pytest_exception_interact() -> None:
    """Pytest stops the timer when a test fails: the next one sets it."""
    timer["set"] = -MINUTE


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Fail a test if torch's global random generator moved while it, or a fixture of its, ran."""
    import torch

    result = yield
    if item.get_closest_marker("global_rng") is None and not torch.equal(
        item.stash[BEFORE], torch.random.get_rng_state()
    ):
        pytest.fail(
            "this test, or what it calls, seeded or drew from torch's global random generator. "
            "Pass a torch.Generator; if a third-party function leaves no choice, mark the test "
            "with @pytest.mark.global_rng.",
            pytrace=False,
        )
    return result


@pytest.fixture
def forked_workers(
    monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest
) -> Iterator[None]:
    """Worker processes are forks of this one, and need not import everything again.

    Where workers are not what is tested: they know all that this process does.
    """
    from tl_dyck.kit import workers

    request.node.add_marker(pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning"))
    context = multiprocessing.get_context("fork")
    loky = "joblib.externals.loky.process_executor"
    monkeypatch.setattr(f"{loky}.get_context", lambda: context)
    # to ask how much memory one holds is to look for garbage in all that this process imported
    monkeypatch.setattr(f"{loky}._get_memory_usage", lambda *_, **__: 0, raising=False)
    monkeypatch.setattr(workers, "_idle", pools := {})
    yield
    for pool in pools.values():
        pool.shutdown(wait=True, kill_workers=True)


@pytest.fixture(scope="session")
def tiny_study(tmp_path_factory: pytest.TempPathFactory) -> Study:
    """A real study that takes a second or two: for who needs one, not for its numbers.

    Leave its folder as it is.
    """
    from tl_dyck.studies import Measurement, StudyConfig, run_study
    from tl_dyck.training import TrainConfig

    config = StudyConfig(
        families=("gpt", "minimal-onehot"),
        seeds=(0, 1, 4),
        # so low a target is reached in the first steps
        training=TrainConfig(
            steps=20, batch_size=16, check_every=5, check_size=50, min_steps=10, target=0.01
        ),
        measurement=Measurement(
            n_accuracy=100, n_long=10, n_strings=50, n_certified=3, n_inserted=1, decided_length=6
        ),
        n_bootstrap=50,
    )
    return run_study(config, tmp_path_factory.mktemp("tiny") / "study", n_jobs=1, progress=False)
