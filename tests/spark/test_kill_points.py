"""kill -9 at many points of every job: begun again it ends right. And two runs of a job at once.

The driver is a process of its own (`tests.spark.pointed`). Where a worker is killed, Spark tries
its task again, or the job fails in one line; where the driver is, all that is left of it is files.
A driver costs more to start than all that it does here, so one is killed for all jobs at once:
each of them stands at a point of its own by then. Another one, which stays, runs them again.

Each commit has a point of every job, drawn from it; the long run has thirty.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import IO

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cqrepl.spark.jobs.archivefiles import checked_pieces, read_manifest
from cqrepl.spark.jobs.archiveplace import place_of
from cqrepl.spark.jobs.archivesweep import left_over
from cqrepl.spark.jobs.blocks import BLOCK_EXCERPTS
from tests.spark.cluster import cluster
from tests.spark.conftest import spark_missing
from tests.spark.pointed import JOBS, LOCAL, MANY, PARTITIONS
from tests.spark.points import WORK, Plan, counted, environment, set_plan
from tests.spark.queues import excerpts, make_queue
from tests.support.processes import children_of, send
from tests.support.requirements import require
from tests.support.schedules import commit

pytestmark = pytest.mark.timeout(900)

ROOT = Path(__file__).parents[2]
COUNTS = (300, 300, 300, 200)
LARGE = (300, BLOCK_EXCERPTS + 500)  # of which a cycle is made by two tasks
DELAYS_MS = (0, 1, 5, 20)
FEW, DRIVERS_ALL, WORKERS_ALL, PAUSES_ALL, EXECUTORS = 1, 10, 20, 8, 5
PATIENCE_S = 300


@dataclass
class Driver:
    """A process that runs jobs below a folder."""

    folder: Path
    process: subprocess.Popen[str]
    java: int

    def begin(self, *jobs: str) -> None:
        """Has jobs run, side by side."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{' '.join(jobs)}\n")
        self.process.stdin.flush()

    def ended(self) -> str | None:
        """The error that the job said at its end; None: nothing was wrong."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, (self.folder / "errors").read_text()[-2000:]
        [said] = json.loads(line)
        assert said is None or isinstance(said, str)
        return said

    def run(self, job: str) -> str | None:
        self.begin(job)
        return self.ended()

    def plan(self, job: str, what: str, at: int, delay_ms: float = 0) -> None:
        """Says what is to happen in the next run of a job; see `points`."""
        pids = (self.process.pid, self.java)
        set_plan(self.folder / job, Plan(what=what, at=at, pids=pids, delay_ms=delay_ms))

    def forget_plan(self, job: str) -> None:
        """Nothing is to happen any more."""
        (self.folder / job / "plan").unlink(missing_ok=True)

    def kill(self) -> set[int]:
        """The driver and its Java process, with signal 9. What they had started outlives them for a
        moment: these are its ids."""
        workers = descendants(self.java)
        for pid in (self.process.pid, self.java):
            send(pid, signal.SIGKILL)
        return workers


def descendants(pid: int) -> set[int]:
    """The processes below one."""
    children: set[int] = set()
    with suppress(OSError):  # it has ended meanwhile
        children.update(children_of(pid))
    return children.union(*map(descendants, children))


def have_ended(pids: Iterable[int]) -> bool:
    """True when none of these processes runs any more. A zombie runs no more."""
    states = []
    for pid in pids:
        with suppress(OSError):
            states.append(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0])
    return set(states) <= {"Z", "X"}


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
        self._totals: dict[tuple[str, str], int] = {}

    @property
    def one(self) -> Driver:
        if self._driver is None:
            self._driver = self._stack.enter_context(started(self.folder, self.master))
        return self._driver

    def buried(self) -> None:
        """Forgets the driver that was, which is gone or is going."""
        self._stack.close()
        self._driver = None

    def total(self, job: str, what: str) -> int:
        """The number of points at which this can happen to a job.

        One run, to which nothing happens, tells those of the driver and of workers.
        """
        if (job, what) not in self._totals:
            work = fresh(self.folder, job)
            self.one.plan(job, what if what == "kill executor" else "count", 0)
            assert self.one.run(job) is None
            CHECKS[job](work)
            folder = self.folder / job
            if what == "kill executor":
                self._totals[job, what] = counted(folder)
            else:
                self._totals[job, "pause"] = counted(folder)
                self._totals[job, "kill worker"] = counted(folder, of_driver=False)
        return self._totals[job, what]

    def points(self, job: str, what: str, count: int) -> list[int]:
        """The numbers of so many points of a job: one that is drawn, or some all over it."""
        total = self.total(job, what)
        if count == FEW:
            # not the last ones: a run is not quite like another one, and has to come by them
            return [random.Random(f"{commit()} {job} {what}").randint(1, max(1, total * 4 // 5))]
        return sorted({1 + (2 * nth + 1) * total // (2 * count) for nth in range(count)})


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with all that jobs read in `pristine`, but for an archive."""
    folder = tmp_path_factory.mktemp("points")
    pristine = folder / "pristine"
    queue = make_queue(pristine / "queue", COUNTS)
    shutil.copytree(queue, pristine / "same")
    make_queue(pristine / "less", (*COUNTS[:-1], COUNTS[-1] - 50))
    large = make_queue(pristine / "large", LARGE)
    sorted(shutil.copytree(large, pristine / "large1").glob("*.cq4"))[0].unlink()
    make_queue(pristine / "large2", (LARGE[0], LARGE[1] - 50))
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
    drivers = Drivers(folder)
    work = fresh(folder, "archive")
    shutil.rmtree(work / "queue")
    (work / "large").rename(work / "queue")
    assert drivers.one.run("archive") is None
    (work / "out").rename(folder / "pristine" / "archived")
    yield drivers
    drivers.buried()


def fresh(folder: Path, job: str) -> Path:
    work = folder / job / WORK
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


def is_queue_at(name: str, like: str) -> Callable[[Path], None]:
    """The check that a queue has come to hold the same as another one."""

    def check(work: Path) -> None:
        assert excerpts(work / name) == excerpts(work / like)
        assert not list(work.glob("*.building"))

    return check


def is_audited(work: Path) -> None:
    same, less = json.loads((work.parent / "told").read_text())
    assert same == [True, sum(COUNTS), []]
    assert less[:2] == [False, sum(COUNTS)]
    assert len(less[2]) == 1
    for name in ("queue", "same", "less"):
        before = sorted((work.parents[1] / "pristine" / name).iterdir())
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


def are_written(work: Path) -> None:
    for name in MANY:
        assert excerpts(work / "many" / name) == excerpts(work / name)


def is_manifest_made(work: Path) -> None:
    """Checks that the manifest says what it did, but for what only a run of the archive knows of
    store files."""
    was, made = (
        read_manifest(place_of(folder / "archived"))
        for folder in (work.parents[1] / "pristine", work)
    )
    assert made.cycles == tuple(replace(cycle, state=None) for cycle in was.cycles)


CHECKS: dict[str, Callable[[Path], None]] = {
    "archive": is_archived,
    "restore": is_queue_at("back", "large"),
    "rebuild": is_queue_at("new", "large"),
    "audit": is_audited,
    "preload": is_filled,
    "write": is_queue_at("written", "queue"),
    "write_many": are_written,
    "rebuild_manifest": is_manifest_made,
}


# jobs with points in tasks: that of manifests only reads there, by Arrow, unseen by audit hooks
IN_TASKS = [job for job in JOBS if job != "rebuild_manifest"]
MADE = {"restore": "back", "rebuild": "new"}  # whose store files come whole, or not at all


def sweep_drivers(drivers: Drivers, other: Driver, jobs: Sequence[str], count: int) -> None:
    """Each time one driver is killed, at one point of each job; another one runs them again."""
    points = {job: drivers.points(job, "pause", count) for job in jobs}
    for nth in range(count):
        at = {job: points[job][min(nth, len(points[job]) - 1)] for job in jobs}
        driver = drivers.one
        works = {job: fresh(drivers.folder, job) for job in jobs}
        for job in jobs:
            driver.plan(job, "pause", at[job])
        driver.begin(*jobs)
        for job in jobs:
            wait_until_paused(drivers.folder / job)
        delay_ms = random.Random(f"{commit()} {nth}").choice(DELAYS_MS)
        if delay_ms:  # for what the kernel does without asking Python
            go_on(drivers, jobs)
            time.sleep(delay_ms / 1000)
        workers = driver.kill()
        go_on(drivers, jobs)  # tasks outlive their driver for a moment
        drivers.buried()
        wait_until(partial(have_ended, workers), "its workers go on")
        for job in jobs:
            whole = store_files(works[job] / MADE[job]) if job in MADE else {}
            other.forget_plan(job)
            assert other.run(job) is None, f"{job} after point {at[job]}"
            CHECKS[job](works[job])
            assert not whole or whole.items() <= store_files(works[job] / MADE[job]).items()


def store_files(queue: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in queue.glob("*.cq4")}


def sweep_workers(drivers: Drivers, job: str, count: int, what: str = "kill worker") -> None:
    killed = 0
    for nth, at in enumerate(drivers.points(job, what, count)):
        work = fresh(drivers.folder, job)
        drivers.one.plan(job, what, at, DELAYS_MS[nth % len(DELAYS_MS)])
        said = drivers.one.run(job)
        killed += (drivers.folder / job / "done").exists()
        drivers.one.forget_plan(job)
        if said is None:
            CHECKS[job](work)
        assert drivers.one.run(job) is None, f"after point {at}"
        CHECKS[job](work)
    assert 2 * killed >= count


def go_on(drivers: Drivers, jobs: Sequence[str]) -> None:
    """Lets the jobs go on that stand at a point."""
    for job in jobs:
        (drivers.folder / job / "go").touch()


def wait_until(is_so: Callable[[], bool], else_told: str) -> None:
    """Returns as soon as something is so."""
    deadline = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < deadline, else_told
        time.sleep(0.01)


def wait_until_paused(folder: Path) -> None:
    """A job has got to its point: one that a run has, so it does."""
    paused, ended = folder / "paused", folder / "ended"
    wait_until(lambda: paused.exists() or ended.exists(), f"{folder.name} does not go on")
    assert paused.exists(), f"{folder.name} did not come to its point"


def run_both(drivers: Drivers, other: Driver, job: str, count: int) -> None:
    """A second run, from beginning to end, while the first one stands still at a point.

    It ends right, or is refused in a line; so does the first one then, and one of them is right.
    """
    for at in drivers.points(job, "pause", count):
        work = fresh(drivers.folder, job)
        drivers.one.plan(job, "pause", at)
        drivers.one.begin(job)
        wait_until_paused(drivers.folder / job)
        second = other.run(job)
        go_on(drivers, [job])
        first = drivers.one.ended()
        assert None in (first, second), f"at point {at}"
        for said in (first, second):
            assert said is None or said.startswith(("QueueLocked", "QueueError", "JobFailed")), said
            assert said is None or "\n" not in said
        CHECKS[job](work)
        drivers.one.forget_plan(job)
        assert drivers.one.run(job) is None, f"after point {at}"
        CHECKS[job](work)


@pytest.fixture(scope="module")
def other(drivers: Drivers) -> Iterator[Driver]:
    """A second driver in the same folder, which nothing happens to."""
    with started(drivers.folder) as driver:
        yield driver


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_workers_and_drivers_that_are_killed_and_two_runs_at_once(
    drivers: Drivers, other: Driver
) -> None:
    """One test, as two processes of a run of tests would each start drivers for theirs."""
    for job in JOBS:
        if job in IN_TASKS:
            sweep_workers(drivers, job, FEW)
        run_both(drivers, other, job, FEW)
    sweep_drivers(drivers, other, list(JOBS), FEW)


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", IN_TASKS)
def test_workers_at_twenty_points(drivers: Drivers, job: str) -> None:
    sweep_workers(drivers, job, WORKERS_ALL)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_drivers_at_ten_points(drivers: Drivers, other: Driver) -> None:
    sweep_drivers(drivers, other, list(JOBS), DRIVERS_ALL)


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
@pytest.mark.parametrize("job", IN_TASKS)
def test_an_executor_that_is_killed(far: Drivers, job: str) -> None:
    """The executor dies with Java and all that runs below it, and the cluster starts another
    one."""
    sweep_workers(far, job, EXECUTORS, "kill executor")


@pytest.mark.long
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("job", JOBS)
def test_two_runs_at_many_points(drivers: Drivers, other: Driver, job: str) -> None:
    run_both(drivers, other, job, PAUSES_ALL)
