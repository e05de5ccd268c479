"""Several sinks of one source, and several queues on one connection.

With several sinks there are two questions. What does each of them cost the source: its processor
time from before the first sink connects until all have everything. And how much do all of them get
together in a second: from when the first excerpt was sent until the last sink has stored its last.
A Python process takes long to start, so a signal holds the source until all sinks have dialled.

With several queues it is whether they are together as fast as one: the same number of excerpts is
divided among them. Making and opening a queue takes milliseconds and is no matter of a rate: so the
sink has all queues already, with their first excerpt, and the time begins when something of each
queue has been sent.
"""

import os
import signal
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Final

from cqrepl.bench.catchup import MODULE, NAME, Work, log_entries, prepared
from cqrepl.bench.processes import (
    LOOK_SECONDS,
    WAIT_SECONDS,
    Running,
    running,
    source_options,
    wait_all,
)
from cqrepl.bench.sample import Sample
from cqrepl.queue import NotAQueue, Queue, QueueError
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.replicator.queuestate.logs import ROLL_CYCLE as LOG_ROLL_CYCLE

SINKS_MAX: Final = 100  # host ids end at 127
_GIB: Final = 1 << 30
_ESTABLISHED: Final = "01"  # a state in /proc/net/tcp
_LOOK_SECONDS: Final = 10 * LOOK_SECONDS
_FIRST_SINK_ID: Final = 2


def sinks_round(folder: Path, work: Work, sinks: int, pauser: str | None = None) -> Sample:
    """So many sinks catch up with one source at the same time."""
    ends = source_options(pauser)
    copies = [folder / f"copy-{number}" for number in range(sinks)]
    logs = [folder / f"stored-{number}" for number in range(sinks)]
    with Queue.open(work.queue) as queue:
        last = queue.last_index()
    with ExitStack() as stack:
        source = stack.enter_context(
            running(
                folder, MODULE, "source", f"{NAME}={work.queue}", "--listen", "127.0.0.1:0", *ends
            )
        )
        address = f"127.0.0.1:{source.port()}"
        before_s = source.cpu_s()
        os.kill(source.pid, signal.SIGSTOP)
        processes = [source]
        for number, (copy, log) in enumerate(zip(copies, logs, strict=True)):
            own = ("--host-id", _FIRST_SINK_ID + number, "--append-log", log)
            sink = running(folder, MODULE, "sink", f"{NAME}={copy}", "--connect", address, *own)
            processes.append(stack.enter_context(sink))
        _wait_until(lambda: _dialled(source.port()) >= sinks, processes, "all sinks have dialled")
        os.kill(source.pid, signal.SIGCONT)
        for copy in copies:
            _wait_for(copy, last, processes)
        source_cpu_s = source.cpu_s() - before_s
        _wait_until(
            lambda: {_last_logged(log) for log in logs} == {last}, processes, "all is logged"
        )
    entries = [entry for log in logs for entry in log_entries(log)]
    seconds = (max(each.noted_ns for each in entries) - min(each.sent_ns for each in entries)) / 1e9
    total = work.count * work.size * sinks
    return Sample(
        case=f"{sinks} sinks" if sinks > 1 else "1 sink",
        size=work.size,
        values={
            "source_cpu_s": source_cpu_s,
            "source_cpu_s_per_gib": source_cpu_s / total * _GIB,
            "seconds": seconds,
            "excerpts_per_s": work.count * sinks / seconds,
            "mb_per_s": total / seconds / 1e6,
        },
    )


def queues_round(
    folder: Path, sources: Path, size: int, count: int, queues: int, pauser: str | None = None
) -> Sample:
    """So many queues over one connection, with `count` excerpts in all."""
    ends = source_options(pauser)
    works = [prepared(sources / f"q{number}", size, count // queues) for number in range(queues)]
    given = [f"q{number}={work.queue}" for number, work in enumerate(works)]
    taken = [f"q{number}={folder / f'copy-{number}'}" for number in range(queues)]
    log = folder / "acks"
    logs = [log] if queues == 1 else [log / f"q{number}" for number in range(queues)]
    for number, work in enumerate(works):
        _begin(folder / f"copy-{number}", work, logs[number])
    with running(folder, MODULE, "sink", *taken, "--listen", "127.0.0.1:0", "--once") as sink:
        address = f"127.0.0.1:{sink.port()}"
        with running(
            folder, MODULE, "source", *given, "--connect", address,
            "--until-caught-up", "--ack-log", log, *ends,
        ) as source:  # fmt: skip
            wait_all([source, sink])
    entries = [[entry for entry in log_entries(each) if entry.excerpts] for each in logs]
    began_ns = max(each[0].sent_ns for each in entries)
    ended_ns = max(each[-1].noted_ns for each in entries)
    later = (entry for each in entries for entry in each if entry.sent_ns >= began_ns)
    rate = sum(entry.excerpts for entry in later) / (ended_ns - began_ns) * 1e9
    return Sample(
        case=f"{queues} queues" if queues > 1 else "1 queue",
        size=size,
        values={"excerpts_per_s": rate, "mb_per_s": rate * size / 1e6},
    )


def _begin(copy: Path, work: Work, log: Path) -> None:
    """Makes a copy that has the first excerpt, and a log that has an entry of nothing."""
    with Queue.open(log, create=LOG_ROLL_CYCLE) as noted:
        noted.append(bytes(ENTRY.size))
    with Queue.open(work.queue) as queue:
        first = queue.tailer().next_batch(count_max=1)
        assert first is not None
        with Queue.open_for_append(copy, create=queue.layout) as begun:
            begun.appender().append_at(first)


def _wait_for(copy: Path, last: int | None, needed: list[Running]) -> None:
    """Returns when a copy reaches to its source's last index."""
    _wait_until(lambda: _last_index(copy) == last, needed, f"the copy {copy} is complete")


def _wait_until(is_so: Callable[[], bool], needed: list[Running], what: str) -> None:
    """Returns when it is so, while all processes that it needs are running."""
    deadline = time.monotonic() + WAIT_SECONDS
    while time.monotonic() < deadline:
        for process in needed:
            process.check()
        if is_so():
            return
        time.sleep(_LOOK_SECONDS)
    raise QueueError(f"waited {WAIT_SECONDS:g} s until {what}")


def _dialled(port: int) -> int:
    """The number of connections to a port of this machine, accepted by its process or not yet."""
    lines = Path("/proc/net/tcp").read_text().splitlines()[1:]
    found = (line.split() for line in lines)
    ours = f":{port:04X}"
    return sum(words[1].endswith(ours) and words[3] == _ESTABLISHED for words in found)


def _last_index(queue: Path) -> int | None:
    """The last index of a queue; None while there is none, or it is just being made."""
    if not queue.exists():
        return None
    try:
        with Queue.open(queue) as opened:
            return opened.last_index()
    except NotAQueue:
        return None


def _last_logged(log: Path) -> int | None:
    """The last index that a log of appends has; None while it has none."""
    if _last_index(log) is None:
        return None
    *_, last = log_entries(log)
    return last.index_last
