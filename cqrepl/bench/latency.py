"""Measures the time from the append of an excerpt at the source until readers of the sink can see
it.

There are three processes: a writer at a fixed pace (`pacer`), source, and sink. The sink itself
takes the time of each batch, just after it has published it (`cqrepl sink --append-log`). All run
on one machine and share its monotonic clock. The time that a reader takes to notice an excerpt is
not in it.
"""

import time
from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import Final

from cqrepl.bench.catchup import MODULE, NAME, BenchLogEntry, log_entries
from cqrepl.bench.pacer import MODULE as WRITER
from cqrepl.bench.pacer import POLLED_NS, STAMPS, Pace
from cqrepl.bench.percentiles import SHOWN, percentile, percentile_name
from cqrepl.bench.processes import (
    LOOK_SECONDS,
    WAIT_SECONDS,
    Running,
    running,
    source_options,
)
from cqrepl.bench.sample import Sample
from cqrepl.queue import Queue, QueueError

ROLL_CYCLE: Final = "FAST_DAILY"
SIZE_MIN: Final = STAMPS.size
_ARRIVAL_SECONDS: Final = 60
_LOOK_SECONDS: Final = 10 * LOOK_SECONDS
_REST_SECONDS: Final = 0.5  # while it is measured: each look holds up an excerpt
_SKIPPED_SHARE: Final = 4  # the first quarter warms everything up
_CURVE: Final = (*range(100), 99.5, 99.8, 99.9, 99.95, 99.99, 100)


@dataclass(frozen=True, slots=True)
class Seen:
    """One batch: when it was due, sent, and published at the sink."""

    due_ns: int
    sent_ns: int
    seen_ns: int


def latency_round(
    folder: Path,
    *,
    size: int,
    batches: int,
    interval_ns: int,
    batch: int = 1,
    pauser: str | None = None,
) -> Sample:
    """One run at a fixed pace; the first quarter of what is seen is left out."""
    assert size >= SIZE_MIN
    polled_ns = interval_ns if pauser == "busy" else POLLED_NS  # busy: the writer polls, too
    now_ms = time.time_ns() // 1_000_000
    pace = Pace(size, batches, batch, interval_ns, now_ms, polled_ns)
    path, copy, log = folder / "source", folder / "copy", folder / "appended"
    with Queue.open(path, create=ROLL_CYCLE) as queue:
        first = queue.append(bytes(size), now_ms=pace.now_ms)
    ends = source_options(pauser)
    with (
        running(
            folder, MODULE, "sink", f"{NAME}={copy}", "--listen", "127.0.0.1:0",
            "--append-log", log,
        ) as sink,
        running(
            folder, MODULE, "source", f"{NAME}={path}", "--connect", f"127.0.0.1:{sink.port()}",
            *ends,
        ) as source,
    ):  # fmt: skip
        _await_appended(log, first, sink, source)
        with running(folder, WRITER, path, *pace) as writer:
            seconds = batches * interval_ns / 1e9
            writer.wait(seconds + WAIT_SECONDS, look_seconds=_REST_SECONDS)
        _await_appended(log, first + batches * batch, sink, source)
    entries = list(log_entries(log))
    return _sample(list(_seen(path, first + 1, pace, entries)), entries[-1].noted_ns, pace)


def _await_appended(log: Path, index: int, *needed: Running) -> None:
    """Waits until a sink has noted that it has this excerpt."""
    deadline = time.monotonic() + _ARRIVAL_SECONDS
    with Queue.open(log) as queue:
        tailer = queue.tailer()
        while True:
            for process in needed:
                process.check()
            while (batch := tailer.next_batch()) is not None:
                if BenchLogEntry.of(batch.payload(len(batch) - 1)).index_last >= index:
                    return
            if time.monotonic() > deadline:
                raise QueueError(f"not everything arrived at the sink within {_ARRIVAL_SECONDS} s")
            time.sleep(_LOOK_SECONDS)


def _seen(path: Path, first: int, pace: Pace, entries: list[BenchLogEntry]) -> Iterator[Seen]:
    """The batches of a paced writer, each with the time at which its first excerpt was there."""
    with Queue.open(path) as queue:
        tailer = queue.tailer(first)
        while (found := tailer.next_batch()) is not None:
            skipped = (first - found.index_first) % pace.batch
            for nth in range(skipped, len(found), pace.batch):
                due_ns, sent_ns = STAMPS.unpack_from(found.payload(nth))
                index = found.index_first + nth
                entry = entries[bisect_left(entries, index, key=attrgetter("index_last"))]
                yield Seen(due_ns, sent_ns, entry.noted_ns)


def _sample(seen: list[Seen], last_ns: int, pace: Pace) -> Sample:
    kept = seen[len(seen) // _SKIPPED_SHARE :]
    delays = sorted((each.seen_ns - each.due_ns) / 1e3 for each in kept)
    since_sent = sorted((each.seen_ns - each.sent_ns) / 1e3 for each in kept)
    late = sorted((each.sent_ns - each.due_ns) / 1e3 for each in kept)
    values = {f"{percentile_name(each)}_us": percentile(delays, each) for each in SHOWN}
    values |= {
        "sent_p50_us": percentile(since_sent, 50),
        "sent_p99_us": percentile(since_sent, 99),
        "late_p99_us": percentile(late, 99),
        "excerpts_per_s": pace.batches * pace.batch / (last_ns - seen[0].due_ns) * 1e9,
    }
    case = f"every {pace.interval_ns / 1e3:g} us"
    if pace.batch > 1:
        case += f", {pace.batch} at once"
    curve = [(float(each), percentile(delays, each)) for each in _CURVE]
    return Sample(case=case, size=pace.size, values=values, points=curve)
