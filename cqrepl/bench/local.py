"""Appending to and reading from a queue on this host, through the public API.

Every round has a queue of its own, so what it costs to get fresh pages from the system is in the
numbers of appending, as it is for every program that writes a queue.
"""

import time
from pathlib import Path
from typing import Final

from cqrepl.bench.sample import Sample
from cqrepl.queue import Queue

BATCH: Final = 100
ROLL_CYCLE: Final = "FAST_DAILY"
_SINGLE_SHARE: Final = 10  # single calls cost more: there are fewer of them
_NO_LIMIT: Final = (1 << 63) - 1


def append_round(folder: Path, size: int, count: int, batch: int = BATCH) -> list[Sample]:
    """Appends in batches, then one by one, each to a new queue."""
    payload = bytes(size)
    payloads = [payload] * batch
    batches = max(1, count // batch)
    singles = max(1, count // _SINGLE_SHARE)
    with Queue.open(folder / "batches", create=ROLL_CYCLE) as queue:
        queue.append(payload)  # makes the file
        began = time.perf_counter_ns()
        for _ in range(batches):
            queue.append_many(payloads)
        batches_ns = time.perf_counter_ns() - began
    with Queue.open(folder / "singles", create=ROLL_CYCLE) as queue:
        queue.append(payload)
        began = time.perf_counter_ns()
        for _ in range(singles):
            queue.append(payload)
        singles_ns = time.perf_counter_ns() - began
    return [
        _sample(f"batches of {batch}", size, batches * batch, batches_ns),
        _sample("single", size, singles, singles_ns),
    ]


def tail_round(queue_path: Path, size: int, count: int) -> list[Sample]:
    """Reads a queue from its start: copied into columns, as views in batches, and one by one."""
    return [
        _sample("columns (a copy)", size, count, _read_columns(queue_path, count)),
        _sample("batches (views)", size, count, _read_batches(queue_path, count)),
        _sample("single", size, count, _read_single(queue_path, count)),
    ]


def _read_columns(path: Path, count: int) -> int:
    with Queue.open(path) as queue:
        began = time.perf_counter_ns()
        found, index = 0, 0
        while (columns := queue.read_columns(index, _NO_LIMIT)).rows:
            found += columns.rows
            index = columns.next_index
        taken = time.perf_counter_ns() - began
    assert found == count
    return taken


def _read_batches(path: Path, count: int) -> int:
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        began = time.perf_counter_ns()
        found = 0
        while (batch := tailer.next_batch()) is not None:
            found += len(batch)
        taken = time.perf_counter_ns() - began
    assert found == count
    return taken


def _read_single(path: Path, count: int) -> int:
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        began = time.perf_counter_ns()
        found = 0
        while tailer.next_excerpt() is not None:
            found += 1
        taken = time.perf_counter_ns() - began
    assert found == count
    return taken


def _sample(case: str, size: int, count: int, taken_ns: int) -> Sample:
    return Sample(
        case=case,
        size=size,
        values={
            "ns_per_excerpt": taken_ns / count,
            "excerpts_per_s": count / taken_ns * 1e9,
            "mb_per_s": count * size / taken_ns * 1e3,
        },
    )
