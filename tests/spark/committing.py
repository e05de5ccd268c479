"""Stages excerpts and commits them, as a process of its own that can be killed.

python -m tests.spark.committing TARGET STAGING COUNT [QUEUE ...]

With names of queues it stages the same for each of these, which are below the target.
"""

import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import pyarrow as pa

from cqrepl.queue import QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.manyqueues import Parts, QueueSet, commit_many, stage_many
from cqrepl.spark.staging import StagedPart, Target, begin, commit, stage
from tests.support.samples import Excerpts, noon_index

ROLL_CYCLE = "FAST_DAILY"
CYCLES = 4
SHIFT = by_name(ROLL_CYCLE).shift
BATCH = 200


def excerpts(count: int) -> Excerpts:
    """So many excerpts in each of some cycles."""
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
    """The parts of several queues that so many tasks stage. A task ends in the middle of any."""
    begin(folder)
    given = [(name, *row) for name, some in rows.items() for row in some]
    size = max(1, -(-len(given) // tasks))
    return [
        stage_many(folder, queues, named_batches(given[at : at + size]))
        for at in range(0, len(given), size)
    ]


def commit_by_names(folder: Path, staging: Path, rows: Excerpts, names: list[str]) -> None:
    """Does all of it with several queues."""
    queues = QueueSet(folder=folder, column="to", roll_cycle=ROLL_CYCLE, is_synced=False)
    parts = many_staged(staging, queues, dict.fromkeys(names, rows))
    print("staged", flush=True)
    commit_many(queues, parts)


def commit_one(path: Path, staging: Path, rows: Excerpts) -> None:
    """Does all of it with one queue."""
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
