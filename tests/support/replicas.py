"""Sources and sinks in this process, on loopback, and waiting for what they do."""

import subprocess
import sys
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Set
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    asynccontextmanager,
    contextmanager,
)
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import trio

from cqrepl import Host
from cqrepl.demo import difference
from cqrepl.queue import ExcerptBatch, Queue
from cqrepl.replicator.disk import syncer
from cqrepl.replicator.disk.diskend import DiskEnd
from cqrepl.replicator.queuestate.queues import until
from cqrepl.replicator.sink import Sink, serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.support.copies import assert_same
from tests.support.samples import Excerpts, noon_index, payloads, stored

LOOPBACK: Final = "127.0.0.1:0"
# beats are quick; no stop of a busy machine is a silence, which the tests of silence set themselves
BEATS: Final[dict[str, Any]] = {"heartbeat_interval_ms": 500, "heartbeat_timeout_ms": 60_000}
# whose return a source takes is the matter of one test file; in others it takes each sink's
TAKEN: Final[dict[str, Any]] = {"accept_returns": (2, 3)}
SECONDS: Final = 60.0  # a wait that takes longer has failed


def at(port: int | None) -> str:
    """The address on loopback."""
    assert port is not None
    return f"127.0.0.1:{port}"


def live_source(path: Path, **more: Any) -> AbstractAsyncContextManager[Source]:
    return serve_source({"q": path}, **({"listen": LOOPBACK} | BEATS | TAKEN | more))


def live_sink(path: Path, port: int | None, **more: Any) -> AbstractAsyncContextManager[Sink]:
    """A sink of the queue "q" that dials."""
    return serve_sink({"q": path}, **({"connect": at(port)} | BEATS | more))


@asynccontextmanager
async def joined(
    original: Path, copy: Path, *, source_dials: bool = False, **more: Any
) -> AsyncIterator[tuple[Source, Sink]]:
    """A source and a sink of one queue "q", connected in either direction."""
    if source_dials:
        async with serve_sink({"q": copy}, listen=LOOPBACK, **(BEATS | more)) as sink:
            dialled: dict[str, Any] = {"connect": at(sink.port)} | BEATS | TAKEN
            async with serve_source({"q": original}, **dialled) as source:
                yield source, sink
    else:
        async with live_source(original) as source:
            async with live_sink(copy, source.port, **more) as sink:
                yield source, sink


async def acked(source: Source, index: int, queue: str | None = None) -> None:
    """Waits for an acknowledgement, not for ever."""
    with trio.fail_after(SECONDS):
        await source.wait_acked(index, queue)


async def received(sink: Sink, count: int, queue: str = "q") -> None:
    """Waits until a sink has taken in so many excerpts."""
    await eventually(lambda: sink.queues[queue].received_excerpts >= count)


async def stopped(replicator: Source | Sink) -> None:
    """Waits until all queues of one side have stopped."""
    with trio.fail_after(SECONDS):
        await replicator.wait_stopped()


async def sink_stopped(sink: Sink, queue: str) -> None:
    with trio.fail_after(SECONDS):
        await until(lambda: sink.queues[queue].life.stop is not None, sink.changed)


async def eventually(is_so: Callable[[], bool], seconds: float = SECONDS) -> None:
    """Waits until something comes true that no event announces."""
    with trio.fail_after(seconds):
        while not is_so():
            await trio.sleep(0.002)


def gated_audits(monkeypatch: pytest.MonkeyPatch) -> trio.Event:
    """Holds the audits of stored excerpts back until this event is set; from then on they come
    soon.

    An audit reads each stored excerpt once more, and only once. So a test must alter excerpts
    before it sets the event. Nor do hosts note meanwhile what closed store files hold.
    """
    gate, look_at = trio.Event(), DiskEnd.look

    async def until_open(seconds: float) -> None:
        await gate.wait()
        await trio.sleep(seconds)

    async def look(end: DiskEnd, *given: Any, **more: Any) -> None:
        await gate.wait()
        await look_at(end, *given, **more)

    monkeypatch.setattr(syncer, "AUDIT_SECONDS", 0.1)
    monkeypatch.setattr(syncer, "until_tick", until_open)
    monkeypatch.setattr(DiskEnd, "look", look)
    return gate


async def copied(original: Path, copy: Path) -> None:
    """Waits until a copy holds what the original holds now. Other excerpts, which are to go from
    it first, may end at the same index."""
    last = last_of(original)
    await eventually(lambda: last_of(copy) == last)
    with trio.move_on_after(SECONDS):
        while difference(original, copy) is not None:
            await trio.sleep(0.05)
    assert_same(original, copy)


async def connected(hosts: Mapping[int, Host]) -> None:
    """Waits until all of these are connected with each other."""
    for host_id, host in hosts.items():
        await eventually(partial(_reaches, host, hosts.keys() - {host_id}))


def _reaches(host: Host, others: Set[int]) -> bool:
    return host.endpoint.connections.keys() >= others


def last_of(path: Path) -> int | None:
    if not any(path.glob("*.cq4")):
        return None
    with Queue.open(path) as queue:
        return queue.last_index()


def more_excerpts(path: Path, first: int, count: int, *, seed: int = 9) -> Excerpts:
    """Appends to a queue that no other process writes; what was appended, as it is read back."""
    batch = ExcerptBatch.of(noon_index(sequence=first), payloads(count, seed=seed))
    with Queue.open_for_append(path) as queue:
        queue.appender().append_at(batch)
    return stored(batch)


def held_by_another_process(path: Path) -> AbstractContextManager[int]:
    return opened_by_another_process(path, "queue.append_lock.acquire()")


@contextmanager
def opened_by_another_process(path: Path, then: str = "") -> Iterator[int]:
    program = (
        "import sys; from cqrepl.queue import Queue; queue = Queue.open_for_append(sys.argv[1]);"
        f"{then or None}; print(flush=True); sys.stdin.read()"
    )
    command = [sys.executable, "-P", "-c", program, str(path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        yield holder.pid
        holder.kill()


async def in_thread(wait: Callable[[], None]) -> None:
    """A wait of a plain thread, with a time limit of its own."""
    await trio.to_thread.run_sync(wait)
