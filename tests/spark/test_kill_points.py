"""kill -9 at many points of every job: begun again it ends right. And two runs of a job at once.

The driver is a process of its own (`tests.spark.pointed`). Where a worker is killed, Spark tries
its task again, or the job fails in one line; where the driver is, all that is left of it is files.
"""

import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from tests.spark.cluster import cluster
from tests.spark.conftest import spark_missing
from tests.spark.points import Plan, counted, environment, set_plan
from tests.spark.queues import excerpts, make_queue
from tests.support.requirements import require

try:
    import pyarrow as pa
    import pyarrow.parquet as pq

    from cqrepl.spark.jobs.archivefiles import checked_pieces, read_manifest
    from cqrepl.spark.jobs.archiveplace import place_of
    from cqrepl.spark.jobs.archivesweep import left_over
    from tests.spark.pointed import JOBS, LOCAL, PARTITIONS
except ImportError:
    require("spark", "pyspark or pyarrow is not installed")

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
COUNTS = (300, 300, 300, 200)
DELAYS_MS = (0, 1, 5, 20)
WORKERS_FEW, DRIVERS_ALL, WORKERS_ALL, PAUSES_ALL, EXECUTORS = 2, 10, 20, 8, 5
PATIENCE_S = 300


@dataclass
class Driver:
    """A process that runs jobs below a folder."""

    folder: Path
    process: "subprocess.Popen[str]"
    java: int

    def begin(self, job: str) -> None:
        """Has a job run."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{job}\n")
        self.process.stdin.flush()

    def ended(self) -> str | None:
        """What the job said at its end; None: nothing was wrong.

        Raises:
            EOFError: the driver is gone.
        """
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            raise EOFError
        said = json.loads(line)
        assert said is None or isinstance(said, str)
        return said

    def run(self, job: str) -> str | None:
        """Both."""
        self.begin(job)
        return self.ended()

    def plan(self, what: str, at: int, delay_ms: float = 0) -> None:
        """Says what is to happen in the next run; see `points`."""
        pids = (self.process.pid, self.java)
        set_plan(self.folder, Plan(what=what, at=at, pids=pids, delay_ms=delay_ms))

    def forget_plan(self) -> None:
        """Nothing is to happen any more."""
        (self.folder / "plan").unlink(missing_ok=True)


@contextmanager
def started(folder: Path, master: str = LOCAL) -> Iterator[Driver]:
    """A driver for the length of a block, which may kill it."""
    reason = spark_missing()
    if reason is not None:
        require("spark", reason)
    with ExitStack() as stack:
        errors: IO[bytes] = stack.enter_context((folder / "errors").open("ab"))
        process = stack.enter_context(
            subprocess.Popen(
                [sys.executable, "-P", "-m", "tests.spark.pointed", str(folder), master],
                cwd=ROOT, env={**os.environ, **environment(folder)},
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=errors, text=True,
            )
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        line = process.stdout.readline()
        assert line, (folder / "errors").read_text()[-2000:]
        try:
            yield Driver(folder=folder, process=process, java=json.loads(line))
        finally:
            with suppress(BrokenPipeError):  # it is gone already
                process.stdin.close()


class Drivers:
    """One driver at a time, and the next one when it was killed."""

    def __init__(self, folder: Path, master: str = LOCAL) -> None:
        self.folder = folder
        self.master = master
        self._stack = ExitStack()
        self._driver: Driver | None = None

    @property
    def one(self) -> Driver:
        """One that lives."""
        if self._driver is None:
            self._driver = self._stack.enter_context(started(self.folder, self.master))
        return self._driver

    def buried(self) -> None:
        """The one that was is gone, or is going."""
        self._stack.close()
        self._driver = None


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """With all that jobs read in `pristine`, but for an archive."""
    folder = tmp_path_factory.mktemp("points")
    pristine = folder / "pristine"
    queue = make_queue(pristine / "queue", COUNTS)
    shutil.copytree(queue, pristine / "same")
    sorted(shutil.copytree(queue, pristine / "copy1").glob("*.cq4"))[0].unlink()
    make_queue(pristine / "copy2", (*COUNTS[:-1], COUNTS[-1] - 50))
    numbers = range(900)
    table = {
        "id": list(numbers),
        "symbol": [f"symbol-{number % 17}" for number in numbers],
        "text": [f"order {number}" for number in numbers],
    }
    pq.write_table(pa.table(table), pristine / "table")
    return folder


@pytest.fixture(scope="module")
def drivers(folder: Path) -> Iterator[Drivers]:
    """With an archive to restore, too."""
    drivers = Drivers(folder)
    fresh(folder)
    assert drivers.one.run("archive") is None
    (folder / "work" / "out").rename(folder / "pristine" / "archived")
    yield drivers
    drivers.buried()


def fresh(folder: Path) -> Path:
    """What jobs work on, as it was at first."""
    work = folder / "work"
    shutil.rmtree(work, ignore_errors=True)
    shutil.copytree(folder / "pristine", work)
    return work


def is_archived(work: Path) -> None:
    out = place_of(work / "out")
    manifest = read_manifest(out)
    held = [
        (piece.index_first + nth, length)
        for cycle in manifest.cycles
        for part in cycle.parts
        for piece in checked_pieces(out, part)
        for nth, length in enumerate(piece.lengths)
    ]
    assert held == [(index, len(data)) for index, data in excerpts(work / "queue")]
    assert left_over(out, manifest) == []


def is_queue_at(name: str) -> Callable[[Path], None]:
    """The check that a queue has come to hold the same as `queue`."""

    def check(work: Path) -> None:
        assert excerpts(work / name) == excerpts(work / "queue")
        assert not list(work.glob("*.building"))

    return check


def is_audited(work: Path) -> None:
    same, less = json.loads((work.parent / "told").read_text())
    assert same == [True, sum(COUNTS), []]
    assert less[:2] == [False, sum(COUNTS)]
    assert len(less[2]) == 1
    for name in ("queue", "same", "copy2"):
        before = sorted((work.parent / "pristine" / name).iterdir())
        assert [each.name for each in sorted((work / name).iterdir())] == [
            each.name for each in before
        ]
        for each in before:
            assert (work / name / each.name).read_bytes() == each.read_bytes()


def is_filled(work: Path) -> None:
    """Each key's rows are in one queue, in their order; none twice."""
    seen = []
    for number in range(PARTITIONS):
        held = [
            int(data.split()[1]) for _, data in excerpts(work / f"filled/partition-{number:05}")
        ]
        for key in range(17):
            rows = [row for row in held if row % 17 == key]
            assert rows in ([], list(range(key, 900, 17)))
        seen += held
    assert sorted(seen) == list(range(900))


CHECKS: dict[str, Callable[[Path], None]] = {
    "archive": is_archived,
    "restore": is_queue_at("back"),
    "rebuild": is_queue_at("new"),
    "audit": is_audited,
    "preload": is_filled,
    "write": is_queue_at("written"),
}


def spread(total: int, count: int) -> list[int]:
    """So many points of all: in the middle of so many equal parts."""
    return sorted({1 + (2 * nth + 1) * total // (2 * count) for nth in range(count)})


def points_of(drivers: Drivers, job: str, what: str, count: int) -> list[int]:
    """Some points of a job that nothing happens to."""
    work = fresh(drivers.folder)
    drivers.one.plan(what, 0)
    assert drivers.one.run(job) is None
    CHECKS[job](work)
    return spread(counted(drivers.folder), count)


def sweep_drivers(drivers: Drivers, job: str, count: int) -> None:
    killed = 0
    for nth, at in enumerate(points_of(drivers, job, "kill driver", count)):
        work = fresh(drivers.folder)
        drivers.one.plan("kill driver", at, DELAYS_MS[nth % len(DELAYS_MS)])
        with suppress(EOFError):
            drivers.one.run(job)
        if (drivers.folder / "done").exists():  # perhaps after the job's end
            killed += 1
            drivers.buried()
        drivers.one.forget_plan()
        assert drivers.one.run(job) is None, f"after point {at}"
        CHECKS[job](work)
    assert 2 * killed >= count


def sweep_workers(drivers: Drivers, job: str, count: int, what: str = "kill worker") -> None:
    killed = 0
    for nth, at in enumerate(points_of(drivers, job, what, count)):
        work = fresh(drivers.folder)
        drivers.one.plan(what, at, DELAYS_MS[nth % len(DELAYS_MS)])
        said = drivers.one.run(job)
        killed += (drivers.folder / "done").exists()
        drivers.one.forget_plan()
        if said is None:
            CHECKS[job](work)
        assert drivers.one.run(job) is None, f"after point {at}"
        CHECKS[job](work)
    assert 2 * killed >= count


@pytest.mark.parametrize("job", JOBS)
def test_a_driver_that_is_killed(drivers: Drivers, job: str) -> None:
    sweep_drivers(drivers, job, 1)


@pytest.mark.parametrize("job", JOBS)
def test_a_worker_that_is_killed(drivers: Drivers, job: str) -> None:
    sweep_workers(drivers, job, WORKERS_FEW)


def wait_until_paused(folder: Path) -> None:
    """The run has got to its point: an early one of all that it has, so it does."""
    deadline = time.monotonic() + PATIENCE_S
    while not (folder / "paused").exists():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def run_both(drivers: Drivers, other: Driver, job: str, count: int) -> None:
    """A second run, from beginning to end, while the first one stands still at a point.

    It ends right, or is refused in a line; so does the first one then, and one of them is right.
    """
    for at in points_of(drivers, job, "pause", count):
        work = fresh(drivers.folder)
        drivers.one.plan("pause", at)
        drivers.one.begin(job)
        wait_until_paused(drivers.folder)
        second = other.run(job)
        (drivers.folder / "go").touch()
        first = drivers.one.ended()
        assert None in (first, second), f"at point {at}"
        for said in (first, second):
            assert said is None or said.startswith(("QueueLocked", "QueueError", "JobFailed")), said
            assert said is None or "\n" not in said
        CHECKS[job](work)
        drivers.one.forget_plan()
        assert drivers.one.run(job) is None, f"after point {at}"
        CHECKS[job](work)


@pytest.fixture(scope="module")
def other(drivers: Drivers) -> Iterator[Driver]:
    """A second driver in the same folder, which nothing happens to."""
    with started(drivers.folder) as driver:
        yield driver


@pytest.mark.parametrize("job", JOBS)
def test_two_runs_at_once(drivers: Drivers, other: Driver, job: str) -> None:
    run_both(drivers, other, job, 2)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", JOBS)
def test_thirty_points(drivers: Drivers, job: str) -> None:
    sweep_drivers(drivers, job, DRIVERS_ALL)
    sweep_workers(drivers, job, WORKERS_ALL)


@pytest.fixture(scope="module")
def far(drivers: Drivers, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Drivers]:
    """Drivers whose tasks run in executors of a cluster, in a folder of their own."""
    folder = tmp_path_factory.mktemp("far")
    shutil.copytree(drivers.folder / "pristine", folder / "pristine")
    (folder / "cluster").mkdir()
    with cluster(folder / "cluster") as running:
        far = Drivers(folder, running.master)
        yield far
        far.buried()


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", JOBS)
def test_an_executor_that_is_killed(far: Drivers, job: str) -> None:
    """Java and all that runs below it: the cluster starts another one."""
    sweep_workers(far, job, EXECUTORS, "kill executor")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", JOBS)
def test_two_runs_at_many_points(drivers: Drivers, other: Driver, job: str) -> None:
    run_both(drivers, other, job, PAUSES_ALL)
