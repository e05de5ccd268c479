"""A queue of a host, opened for code that takes a `cqrepl.Queue`: what it appends waits."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Final, TypeVar

import pytest
import trio

import cqrepl
import cqrepl.aio
import cqrepl.blocking
from cqrepl import AckLevel, AckPolicy, AckUnknown, From, Host, HostSettings, OnTimeout, Queue
from cqrepl.replicator.settings import SourceSettings
from tests.support.replicas import LOOPBACK, SECONDS, at
from tests.support.samples import NOON_MS

T = TypeVar("T")
OWN: Final = AckPolicy(
    level=AckLevel.SYNCED, hosts=[2], timeout_seconds=0.01, on_timeout=OnTimeout.FAIL
)
SYNCED: Final = replace(OWN, timeout_seconds=SECONDS)
NOBODY: Final = AckPolicy(from_=From.NONE)


def source_of(path: Path, own: AckPolicy | None = None) -> HostSettings:
    """Of a host that listens and streams "q", to which a policy may be given."""
    Queue.open_for_append(path, create="FAST_DAILY").close()
    source = SourceSettings(policies={} if own is None else {"q": own})
    return HostSettings.of(listen=LOOPBACK, host_id=1, sources={"q": path}, source=source)


def sink_of(port: int | None, path: Path) -> HostSettings:
    return HostSettings.of(connect=at(port), sinks={"q": path})


def held(queue: Queue) -> list[bytes]:
    return [bytes(excerpt) for excerpt in queue.tailer()]


async def in_thread(work: Callable[[], T]) -> T:
    return await trio.to_thread.run_sync(work)


def of_some_code(queue: Queue, payload: bytes) -> int:
    """Append as code does that knows of no host and of no policy."""
    return queue.append(payload, now_ms=NOON_MS)


def test_a_queue_that_knows_of_no_host_takes_no_policy(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        said = r"/q: a queue of the host .* expected for a policy.*: host\.queue\(name\)\.open\(\)"
        with pytest.raises(ValueError, match=said):
            queue.append(b"no", policy=SYNCED)  # type: ignore[arg-type]  # it is refused
        with pytest.raises(ValueError, match=said):
            queue.append_many([b"no"], policy=SYNCED)  # type: ignore[arg-type]  # refused too
        assert held(queue) == []


async def test_what_other_code_appends_waits_for_the_policy_of_the_queue(tmp_path: Path) -> None:
    async with Host(source_of(tmp_path / "q", OWN)) as host:
        queue = host.queue().open()

        def alone() -> None:
            with pytest.raises(AckUnknown, match="'q': it is not known whether hosts have"):
                of_some_code(queue, b"a")
            queue.append(b"b", now_ms=NOON_MS, policy=NOBODY)

        def with_a_sink() -> None:
            last = queue.append_many([b"c", b"d"], now_ms=NOON_MS, policy=SYNCED)
            marks = host.queue().leading.marks()[2]
            assert marks[AckLevel.SYNCED] == last
            assert held(queue) == [b"a", b"b", b"c", b"d"]

        await in_thread(alone)
        async with Host(sink_of(host.port, tmp_path / "copy")):
            await in_thread(with_a_sink)
            with pytest.raises(RuntimeError, match="a task of the event loop waits with"):
                of_some_code(queue, b"is not written")
    with queue, pytest.raises(cqrepl.HostEnded):
        queue.append(b"is not written", policy=NOBODY)
    with Queue.open(tmp_path / "copy") as copy:
        assert held(copy) == [b"a", b"b", b"c", b"d"]


async def test_where_the_queue_was_given_no_policy_nobody_is_waited_for(tmp_path: Path) -> None:
    async with Host(source_of(tmp_path / "q")) as host:
        with host.queue().open() as queue:
            assert of_some_code(queue, b"a") == queue.last_index()
            assert held(queue) == [b"a"]
        with pytest.raises(cqrepl.QueueError, match="expected an open queue, it was closed"):
            of_some_code(queue, b"is not written")
        with Queue.open(tmp_path / "q") as plain:
            assert held(plain) == [b"a"]


async def test_what_is_taken_in_is_opened_to_be_read(tmp_path: Path) -> None:
    async with Host(source_of(tmp_path / "q")) as host:
        async with Host(sink_of(host.port, tmp_path / "copy")) as other:
            await host.queue().append(b"a", policy=replace(SYNCED, level=AckLevel.APPENDED))
            with other.queue().open() as queue:
                assert held(queue) == [b"a"]
                with pytest.raises(cqrepl.Refused, match="'q' is taken in here"):
                    of_some_code(queue, b"no")


def test_of_a_host_in_a_thread(tmp_path: Path) -> None:
    with cqrepl.blocking.Host(source_of(tmp_path / "q", OWN)) as host:
        with host.queue().open() as queue:
            with pytest.raises(AckUnknown):
                of_some_code(queue, b"a")
            with cqrepl.blocking.Host(sink_of(host.port, tmp_path / "copy")):
                last = queue.append(b"b", policy=SYNCED)
                assert host.queue().leading.commit_index() == last
    with pytest.raises(cqrepl.HostEnded):
        host.queue().open()


def test_of_a_host_in_asyncio(tmp_path: Path) -> None:
    async def main() -> None:
        async with cqrepl.aio.Host(source_of(tmp_path / "q", OWN)) as host:
            async with cqrepl.aio.Host(sink_of(host.port, tmp_path / "copy")):
                with host.queue().open() as queue:
                    last = await asyncio.to_thread(queue.append, b"a", policy=SYNCED)
                    assert host.queue().leading.commit_index() == last
                    with pytest.raises(RuntimeError, match=r"cqrepl\.aio\.Host\.queue"):
                        of_some_code(queue, b"is not written")
                    assert held(queue) == [b"a"]

    asyncio.run(main())
