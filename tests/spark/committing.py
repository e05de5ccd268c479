"""Stages excerpts and commits them, as a process of its own that can be killed.

python -m tests.spark.committing TARGET STAGING COUNT [QUEUE ...]

With names of queues it stages the same for each of these, which are below the target.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa

from cqrepl.queue import Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.manyqueues import Parts, QueueSet, commit_many, stage_many
from cqrepl.spark.staging import StagedPart, Target, begin, commit, stage
from tests.support.samples import Excerpts, noon_index

ROLL_CYCLE = "FAST_DAILY"
ROOT = Path(__file__).parents[2]
CYCLES = 4
SHIFT = by_name(ROLL_CYCLE).shift
BATCH = 200


def excerpts(count: int) -> Excerpts:
    return [
        (noon_index(ROLL_CYCLE, ahead=ahead, sequence=number), b"%d %d" % (ahead, number) * 20)
        for ahead in range(CYCLES)
        for number in range(count)
    ]


def target(path: Path) -> Target:
    return Target(path=path, layout=QueueLayout.of(by_name(ROLL_CYCLE)), is_synced=False)


def record_batches(rows: Excerpts, size: int = BATCH) -> list["pa.RecordBatch"]:
    """The rows in batches, as Spark hands them to a task."""
    return [
        pa.RecordBatch.from_pydict(
            {
                "index": pa.array([index for index, _ in part], pa.int64()),
                "payload": pa.array([data for _, data in part], pa.binary()),
            }
        )
        for part in (rows[at : at + size] for at in range(0, len(rows), size))
    ]


def staged(folder: Path, rows: Excerpts, tasks: int = 3) -> list[StagedPart]:
    """The parts that so many tasks stage. A part ends in the middle of a cycle."""
    begin(folder)
    size = -(-len(rows) // tasks)
    return [
        stage(folder, SHIFT, record_batches(rows[at : at + size]))
        for at in range(0, len(rows), size)
    ]


def named_batches(
    rows: Sequence[tuple[str | None, int, bytes]], size: int = BATCH
) -> list["pa.RecordBatch"]:
    """Rows of several queues, as Spark hands them to a task."""
    return [
        pa.RecordBatch.from_pydict(
            {
                "index": pa.array([index for _, index, _ in part], pa.int64()),
                "to": pa.array([name for name, _, _ in part], pa.string()),
                "payload": pa.array([data for _, _, data in part], pa.binary()),
            }
        )
        for part in (rows[at : at + size] for at in range(0, len(rows), size))
    ]


def many_staged(
    folder: Path, queues: QueueSet, rows: Mapping[str, Excerpts], tasks: int = 3
) -> list[Parts]:
    begin(folder)
    given = [(name, *row) for name, some in rows.items() for row in some]
    size = max(1, -(-len(given) // tasks))
    return [
        stage_many(folder, queues, named_batches(given[at : at + size]))
        for at in range(0, len(given), size)
    ]


def kill_when_reached(queue: Path, length: int, *words: object) -> bool:
    """Kills a process of this module once a queue is so long; true if it was in time."""
    command = [sys.executable, "-m", "tests.spark.committing", *map(str, words)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == b"staged\n"
        while child.poll() is None:
            if queue.is_dir() and any(queue.glob("*.cq4")):
                with Queue.open(queue) as found:
                    if found.count() >= length:
                        child.kill()
                        break
    return child.returncode == -signal.SIGKILL


@contextmanager
def written_elsewhere(path: Path) -> Iterator[None]:
    """Has another process hold a queue's append lock for the length of a block."""
    holding = (
        "import sys, cqrepl.queue as q; w = q.Queue.open_for_append(sys.argv[1]);"
        "w.append_lock.acquire(); print('held', flush=True); sys.stdin.read()"
    )
    words = [sys.executable, "-c", holding, str(path)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"held\n"
        yield
        other.communicate()


def commit_by_names(folder: Path, staging: Path, rows: Excerpts, names: list[str]) -> None:
    """Does all of it with several queues."""
    queues = QueueSet(folder=folder, column="to", roll_cycle=ROLL_CYCLE, is_synced=False)
    parts = many_staged(staging, queues, dict.fromkeys(names, rows))
    print("staged", flush=True)
    commit_many(queues, parts)


def commit_one(path: Path, staging: Path, rows: Excerpts) -> None:
    parts = staged(staging, rows)
    print("staged", flush=True)
    commit(target(path), parts)


if __name__ == "__main__":
    place, staging, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    if sys.argv[4:]:
        commit_by_names(place, staging, excerpts(number), sys.argv[4:])
    else:
        commit_one(place, staging, excerpts(number))
    print("committed", flush=True)
