"""Catching up: a real source and a real sink on loopback, from the first excerpt to the last.

The time is that from the first excerpt sent to the last one acknowledged, both on the source's
clock, as its log of acknowledgements has them. An acknowledgement says that the excerpts are
published in the sink's file. Starting the processes and connecting them is not in it.
"""

import os
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Self

from cqrepl.bench.processes import WAIT_SECONDS, Running, running, source_options
from cqrepl.bench.sample import Point, Sample
from cqrepl.protocol import PAYLOAD_MAX
from cqrepl.queue import Queue, QueueError
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.samplequeue import make_queue

MODULE: Final = "cqrepl"
NAME: Final = "bench"
_ZEROS: Final = bytes(1 << 20)
_MEMORY_LOOK_SECONDS: Final = 0.05
_POINTS_MAX: Final = 500
_RUNS: Final = {None: (), True: ("--runs",), False: ("--frames",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """A queue to be replicated, with the size in bytes and the count of its excerpts."""

    queue: Path
    size: int
    count: int


@dataclass(frozen=True, slots=True)
class BenchLogEntry:
    """One entry of a log of acknowledgements or of appends, as `queuestate/logs.py` has it."""

    index_last: int
    sent_ns: int
    noted_ns: int
    excerpts: int
    payload_bytes: int

    @classmethod
    def of(cls, payload: memoryview) -> Self:
        """The entry that an excerpt of the log holds."""
        return cls(*ENTRY.unpack(payload))


def prepared(folder: Path, size: int, count: int) -> Work:
    """A queue of so many excerpts; made at the first call for a folder, size and count."""
    path = folder / f"source-{size}-{count}"
    if not path.exists():
        make_queue(path, count, size)
        os.sync()  # or the system writes it back while it is read
    return Work(queue=path, size=size, count=count)


def catch_up_round(
    folder: Path,
    work: Work,
    *,
    touched: bool = False,
    pauser: str | None = None,
    runs: bool | None = None,
) -> Sample:
    """One catch-up into a fresh directory.

    Args:
        touched: the sink finds a file whose pages are in memory already.
        runs: with runs, or with frames alone; None as both sides do by themselves.
    """
    copy, log = folder / "copy", folder / "acks"
    if touched:
        touch_ahead(work.queue, copy)
    both = ("--max-excerpt", max(work.size, PAYLOAD_MAX), *_RUNS[runs])
    with running(
        folder, MODULE, "sink", f"{NAME}={copy}", "--listen", "127.0.0.1:0", "--once", *both
    ) as sink:  # fmt: skip
        address = f"127.0.0.1:{sink.port()}"
        before_s = sink.cpu_s()
        with running(
            folder, MODULE, "source", f"{NAME}={work.queue}", "--connect", address,
            "--until-caught-up", "--ack-log", log, *both, *source_options(pauser),
        ) as source:  # fmt: skip
            memory = _watched(source, sink)
            source_cpu_s = source.wait()
            sink_cpu_s = sink.wait() - before_s
    entries = list(log_entries(log))
    case = ", ".join(["touched ahead" if touched else "fresh", *_RUNS[runs]]).replace("--", "")
    cpu = {
        "source_cpu_ns": source_cpu_s / work.count * 1e9,
        "sink_cpu_ns": sink_cpu_s / work.count * 1e9,
    }
    values = _rates(entries, work) | cpu | memory
    return Sample(case=case, size=work.size, values=values, points=_curve(entries))


def touch_ahead(queue: Path, copy: Path) -> None:
    """Makes the files of a copy ahead of time, with every page written.

    A writer that begins a cycle takes a file of this name instead of making one. The pages are in
    the page cache then, and zero, as those of a new file are.
    """
    with Queue.open(queue) as source:
        layout = source.layout
    Queue.open(copy, create=layout).close()
    for store in queue.glob("*.cq4"):
        with (copy / f"{store.stem}.precreated").open("wb", buffering=0) as file:
            for start in range(0, store.stat().st_size, len(_ZEROS)):
                os.pwrite(file.fileno(), _ZEROS, start)


def log_entries(log: Path) -> Iterator[BenchLogEntry]:
    """The entries that a source or a sink has noted in its log, in order."""
    with Queue.open(log) as noted:
        tailer = noted.tailer()
        while (batch := tailer.next_batch()) is not None:
            for _, payload in batch:
                yield BenchLogEntry.of(payload)


def _watched(source: Running, sink: Running) -> dict[str, float]:
    """Greatest private memory of both until the source has ended, and how it grew at the end."""
    looks: list[tuple[float, float]] = []
    deadline = time.monotonic() + WAIT_SECONDS
    while not source.has_ended():
        if time.monotonic() > deadline:
            raise QueueError(f"the source was not done within {WAIT_SECONDS:g} s")
        looks.append((source.private_mib(), sink.private_mib()))
        time.sleep(_MEMORY_LOOK_SECONDS)
    found = {}
    for name, of in zip(("source", "sink"), zip(*looks, strict=True), strict=True):
        half = len(of) // 2
        found[f"{name}_mib"] = max(of)
        found[f"{name}_growth_mib"] = max(of[half:]) - max(of[:half], default=0.0)
    return found


def _rates(entries: Sequence[BenchLogEntry], work: Work) -> dict[str, float]:
    acknowledged = sum(entry.excerpts for entry in entries)
    if acknowledged != work.count:
        raise QueueError(f"expected {work.count} excerpts acknowledged, found {acknowledged}")
    rate = work.count / (entries[-1].noted_ns - entries[0].sent_ns) * 1e9
    return {"excerpts_per_s": rate, "mb_per_s": rate * work.size / 1e6}


def _curve(entries: Sequence[BenchLogEntry]) -> list[Point]:
    """Excerpts still missing at the sink, over the seconds since the first was sent."""
    missing = sum(entry.excerpts for entry in entries)
    points: list[Point] = [(0.0, float(missing))]
    for entry in entries:
        missing -= entry.excerpts
        points.append(((entry.noted_ns - entries[0].sent_ns) / 1e9, float(missing)))
    step = max(1, len(points) // _POINTS_MAX)
    return [*points[:-1:step], points[-1]]
