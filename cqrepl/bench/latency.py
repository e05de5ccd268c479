"""How long an excerpt takes from its append at the source to where the sink's readers see it.

Four processes: a writer at a fixed pace (`pacing`), source, sink, and this one, which polls the
sink's file for the next header word and takes the time as soon as it is there. All is on one
machine, whose monotonic clock they share. What a tailer would cost on top is not in it: the word is
looked at directly, the excerpts behind it are found as a tailer finds them.

The polling goes on in the time that no other thread wants: the sink is never kept from its core,
but a busy machine keeps the reader from seeing what is there.
"""

import gc
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from cqrepl.bench.pacing import MODULE as WRITER
from cqrepl.bench.pacing import STAMPS, Pace
from cqrepl.bench.percentiles import SHOWN, percentile, percentile_name
from cqrepl.bench.processes import LOOK_SECONDS, Running, running, source_options
from cqrepl.bench.replication import MODULE, NAME
from cqrepl.bench.sample import Sample
from cqrepl.queue import Queue, QueueError
from cqrepl.queue.index import cycle_of
from cqrepl.queue.storefile import StoreFile
from wire.header import is_ready

ROLL_CYCLE: Final = "FAST_DAILY"
SIZE_MIN: Final = STAMPS.size
_CONNECT_SECONDS: Final = 60
_SILENCE_NS: Final = 15_000_000_000
_BATCH_PAUSE_S: Final = 0.000_1
_SKIPPED_SHARE: Final = 4  # the first quarter warms everything up
_CURVE: Final = (*range(100), 99.5, 99.8, 99.9, 99.95, 99.99, 100)


@dataclass(frozen=True, slots=True)
class Seen:
    """One batch: when it was due, sent, and seen at the sink."""

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
    pace = Pace(size, batches, batch, interval_ns, now_ms=time.time_ns() // 1_000_000)
    path, copy = folder / "source", folder / "copy"
    with Queue.open(path, create=ROLL_CYCLE) as queue:
        first = queue.append(bytes(size), now_ms=pace.now_ms)
        cycle = cycle_of(first, queue.cycles.shift)
        store_name = queue.cycles.path_of(cycle).name
    ends = source_options(pauser)
    with (
        running(folder, MODULE, "sink", f"{NAME}={copy}", "--listen", "127.0.0.1:0") as sink,
        running(
            folder, MODULE, "source", f"{NAME}={path}", "--connect", f"127.0.0.1:{sink.port()}",
            *ends,
        ) as source,
    ):  # fmt: skip
        store = _opened(copy / store_name, cycle, sink, source)
        with running(folder, WRITER, path, *pace) as writer:
            try:
                seen, last_ns = _watched(store, pace, (writer, sink, source))
            finally:
                store.close()
            writer.wait()
    return _sample(seen, last_ns, pace)


def _watched(store: StoreFile, pace: Pace, needed: tuple[Running, ...]) -> tuple[list[Seen], int]:
    """What `_watch` finds, in a thread of the lowest priority.

    It polls without a pause, and must not take a core from those that it waits for. Priorities
    belong to threads, and may be lowered by everyone, but not raised again: so this one ends.
    """
    over = threading.Event()

    def work() -> tuple[list[Seen], int]:
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
        return _watch(store, pace, needed, over)

    was_enabled = gc.isenabled()
    gc.disable()
    try:
        with ThreadPoolExecutor(1) as pool:
            future = pool.submit(work)
            try:
                return future.result()
            finally:
                over.set()
    finally:
        if was_enabled:
            gc.enable()


def _opened(path: Path, cycle: int, *needed: Running) -> StoreFile:
    """The sink's store file, as soon as the first excerpt is in it."""
    deadline = time.monotonic() + _CONNECT_SECONDS
    while time.monotonic() < deadline:
        for process in needed:
            process.check()
        store = StoreFile.open(path, cycle, writable=False) if path.exists() else None
        if store is not None:
            if store.write_position():
                return store
            store.close()
        time.sleep(LOOK_SECONDS)
    raise QueueError(f"the first excerpt did not arrive within {_CONNECT_SECONDS} s", path=path)


def _watch(
    store: StoreFile, pace: Pace, needed: tuple[Running, ...], over: threading.Event
) -> tuple[list[Seen], int]:
    """Takes the time of every batch; also that of the last excerpt. Ends early when it is over."""
    seen: list[Seen] = []
    position, left, number = store.find(0, count_max=1).position, pace.batches * pace.batch, 0
    pause_s = 0.0 if pace.batch == 1 else _BATCH_PAUSE_S
    now_ns = silent_since = time.monotonic_ns()
    while left and not over.is_set():
        while not over.is_set() and not is_ready(store.word_at(position)):
            _let_others_run(pause_s)
            if time.monotonic_ns() - silent_since > _SILENCE_NS:
                for process in needed:
                    process.check()
                raise QueueError(f"{left} excerpts did not arrive at the sink")
        silent_since = now_ns = time.monotonic_ns()
        found = store.find(position)
        position, left = found.position, left - len(found.offsets)
        for offset in found.offsets[-number % pace.batch :: pace.batch]:
            due_ns, sent_ns = STAMPS.unpack_from(store.mapping.data, offset)
            seen.append(Seen(due_ns, sent_ns, now_ns))
        number += len(found.offsets)
    return seen, now_ns


def _let_others_run(pause_s: float) -> None:
    """This process polls, and must not keep a core from those that it waits for."""
    if pause_s:
        time.sleep(pause_s)
    else:
        os.sched_yield()


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
