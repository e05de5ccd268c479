"""The share of a core that reading behind the stream takes during a catch-up, and when it ends.

Source and sink are the usual commands, in processes that note each reading of theirs (`note`
below). The share of each is its processor time over the time from the first excerpt sent to the
last one acknowledged. How long it takes from there until all was read is told beside that time.

    python -m tests.bench.audits note LOG WORD...     one of these processes
"""

import os
import struct
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from cqrepl.bench.catchup import log_entries
from cqrepl.bench.processes import WAIT_SECONDS, running
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.files.chainfile import Point
from cqrepl.queue.format.index import Cycle, index_of
from cqrepl.queue.read.chains import Chains
from cqrepl.queue.read.closeddigest import ClosedDigest

ROOT = str(Path(__file__).resolve().parents[2])
MODULE = "tests.bench.audits"
NOTE = struct.Struct("<4q")  # when it began and ended, monotonic; processor time; the next index
ROLL_CYCLE, CYCLE_MS = "FAST_HOURLY", 3_600_000
BATCH_BYTES = 1 << 20
T = TypeVar("T")
LOOK_SECONDS = 0.05


@dataclass(frozen=True, slots=True)
class Noted:
    began_ns: int
    ended_ns: int
    ran_ns: int
    at: int


def note(log: Path, words: list[str]) -> None:
    """Runs the command line of `cqrepl` with these words, and notes each reading."""
    from cqrepl.__main__ import main as command

    out = log.open("ab", buffering=0)
    extended, read_on = Chains._extended, ClosedDigest.read_on

    def noting(read: Callable[[], T], at: Callable[[T], int]) -> T:
        began_ns, ran_ns = time.monotonic_ns(), time.thread_time_ns()
        found = read()
        ended_ns, ran_ns = time.monotonic_ns(), time.thread_time_ns() - ran_ns
        out.write(NOTE.pack(began_ns, ended_ns, ran_ns, at(found)))
        return found

    def noting_chain(chains: Chains, cycle: Cycle, *words: Any) -> Point:
        def at(point: Point) -> int:
            return index_of(cycle, point[0], chains._cycles.shift)

        return noting(partial(extended, chains, cycle, *words), at)

    def noting_digest(digest: ClosedDigest, seconds: float) -> int:
        return noting(partial(read_on, digest, seconds), lambda _: 0)

    setattr(Chains, "_extended", noting_chain)  # noqa: B010  types let no method be assigned
    setattr(ClosedDigest, "read_on", noting_digest)  # noqa: B010  the same
    sys.argv = ["cqrepl", *words]
    command()


def noted(log: Path) -> list[Noted]:
    """All readings so far."""
    data = log.read_bytes() if log.exists() else b""
    return [Noted(*each) for each in NOTE.iter_unpack(data[: len(data) // NOTE.size * NOTE.size])]


def made(path: Path, size: int, count: int, cycles: int) -> int:
    """A queue of so many cycles, of which the last is the present one; its last index."""
    with Queue.open(path, create=ROLL_CYCLE) as queue:
        appender = queue.appender()
        now_ms, per_batch = time.time_ns() // 1_000_000, max(1, BATCH_BYTES // size)
        seed = os.urandom(size)
        for nth in range(cycles):
            when_ms = now_ms - (cycles - 1 - nth) * CYCLE_MS
            numbers = range(count * nth // cycles, count * (nth + 1) // cycles)
            for start in range(0, len(numbers), per_batch):
                part = numbers[start : start + per_batch]
                payloads = [(each.to_bytes(8, "little") + seed)[:size] for each in part]
                appender.append(payloads, when_ms)
        last = queue.last_index()
    assert last is not None
    os.sync()  # or the system writes it back while it is read
    return last


def measure(folder: Path, size: int, count: int, cycles: int) -> dict[str, float]:
    """One catch-up: for `source` and `sink` the share, and the time until all is read in parts of
    the time that it took; and the rate."""
    path, acks = folder / "q", folder / "acks"
    last = made(path, size, count, cycles)
    logs = {name: folder / f"{name}.notes" for name in ("source", "sink")}
    os.environ["PYTHONPATH"] = ROOT  # they are started apart from the working directory's modules
    listens = (logs["sink"], "sink", f"q={folder / 'copy'}", "--listen", "127.0.0.1:0")
    with running(folder, MODULE, "note", *listens) as sink:
        to = ("--connect", f"127.0.0.1:{sink.port()}", "--ack-log", acks)
        with running(folder, MODULE, "note", logs["source"], "source", f"q={path}", *to) as source:
            deadline = time.monotonic() + WAIT_SECONDS
            while not all(_is_read(log, last) for log in logs.values()) or not _has_all(acks, last):
                sink.check()
                source.check()
                if time.monotonic() > deadline:
                    raise QueueError(f"not all was read within {WAIT_SECONDS:g} s", path=path)
                time.sleep(LOOK_SECONDS)
            entries = list(log_entries(acks))
    began_ns, ended_ns = entries[0].sent_ns, entries[-1].noted_ns
    found = {"excerpts_per_s": count / (ended_ns - began_ns) * 1e9}
    for name, log in logs.items():
        readings = noted(log)
        ran_ns = sum(_within(each, began_ns, ended_ns) for each in readings)
        read_ns = min(each.ended_ns for each in readings if each.at > last)
        found[f"{name}_share"] = ran_ns / (ended_ns - began_ns)
        found[f"{name}_after"] = max(read_ns - ended_ns, 0) / (ended_ns - began_ns)
    return found


def _within(reading: Noted, began_ns: int, ended_ns: int) -> float:
    """The processor time that it took within a time."""
    took_ns = max(reading.ended_ns - reading.began_ns, 1)
    common_ns = min(reading.ended_ns, ended_ns) - max(reading.began_ns, began_ns)
    return reading.ran_ns * max(common_ns, 0) / took_ns


def _is_read(log: Path, last: int) -> bool:
    return any(each.at > last for each in noted(log))


def _has_all(acks: Path, last: int) -> bool:
    try:
        return any(entry.index_last == last for entry in log_entries(acks))
    except QueueError:
        return False  # it is not there yet


if __name__ == "__main__":
    note(Path(sys.argv[2]), sys.argv[3:])
