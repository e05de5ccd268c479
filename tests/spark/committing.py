"""Stages excerpts and commits them, as a process of its own that can be killed.

python -m tests.spark.committing TARGET STAGING COUNT
"""

import sys
from pathlib import Path

import pyarrow as pa

from cqrepl.queue import QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.spark.staging import StagedPart, Target, begin, commit, stage
from tests.support.samples import Excerpts, noon_index

ROLL_CYCLE = "FAST_DAILY"
CYCLES = 4
SHIFT = by_name(ROLL_CYCLE).shift
BATCH = 200


def excerpts(count: int) -> Excerpts:
    """So many in each of some cycles."""
    return [
        (noon_index(ROLL_CYCLE, ahead=ahead, sequence=number), b"%d %d" % (ahead, number) * 20)
        for ahead in range(CYCLES)
        for number in range(count)
    ]


def target(path: Path) -> Target:
    return Target(path=path, layout=QueueLayout.of(by_name(ROLL_CYCLE)), is_synced=False)


def record_batches(rows: Excerpts, size: int = BATCH) -> list["pa.RecordBatch"]:
    """As Spark hands rows to a task."""
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
    """What so many tasks stage; they end in the middle of cycles."""
    begin(folder)
    size = -(-len(rows) // tasks)
    return [
        stage(folder, SHIFT, record_batches(rows[at : at + size]))
        for at in range(0, len(rows), size)
    ]


if __name__ == "__main__":
    path, staging, number = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
    parts = staged(staging, excerpts(number))
    print("staged", flush=True)
    commit(target(path), parts)
    print("committed", flush=True)
