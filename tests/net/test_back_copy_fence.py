"""A back copy holds the append lock all the time, and the write lock for a batch at a time.

A writer of another process that looked at the append lock before it was taken may append once more,
as Java's do. It is a real process here, which takes no second look.
"""

import hashlib
import logging
import os
import subprocess
import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import pytest
import trio

from cqrepl.protocol import StopReason
from cqrepl.queue import format_index
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED, WRITE_LOCK_KEY, free_lock
from cqrepl.queue.files.tablestore import FILE_NAME
from cqrepl.queue.write import appender as appender_module
from cqrepl.replicator.outgoing import backcopy
from cqrepl.replicator.source import Source
from tests.support import peer
from tests.support.replicas import eventually, live_source, stopped
from tests.support.samples import NOON_MS, fill, noon_index, read
from tests.support.scripted import Scripted, scripted
from tests.support.tables import is_fenced, is_free, keys_of, set_word

DAY_MS = 86_400_000
# opens the queue, and appends each line that it is told once it has seen the append lock free
OVERTAKEN = """
import sys
from cqrepl.queue import Queue
appender = Queue.open_for_append(sys.argv[1]).appender()
appender._append_lock.holder = lambda: None
print(flush=True)
for line in sys.stdin:
    appender.append([line.strip().encode()], int(sys.argv[2]))
    print(flush=True)
"""
# is in the middle of an append until it is told the line that it appends
IN_ITS_APPEND = """
import sys
from cqrepl.queue import Queue
queue = Queue.open_for_append(sys.argv[1])
appender = queue.appender()
with queue._for_writing().write_lock.held(60.0):
    appender._is_exclusive = True
    print(flush=True)
    appender.append([sys.stdin.readline().strip().encode()], int(sys.argv[2]))
print(flush=True)
sys.stdin.read()
"""


class Writer:
    """Another process that has a queue open for appending."""

    def __init__(self, process: "subprocess.Popen[bytes]") -> None:
        self.pid = process.pid
        self._process = process

    async def append(self, payload: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(payload + b"\n")
        self._process.stdin.flush()
        await trio.to_thread.run_sync(self.wait)

    def wait(self) -> None:
        assert self._process.stdout is not None
        assert self._process.stdout.readline()


@contextmanager
def writer(path: Path, program: str = OVERTAKEN, now_ms: int = NOON_MS) -> Iterator[Writer]:
    command = [sys.executable, "-P", "-c", program, str(path), str(now_ms)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        try:
            found = Writer(process)
            found.wait()
            yield found
        finally:
            process.kill()


@asynccontextmanager
async def half_way(path: Path) -> AsyncIterator[tuple[Source, Scripted, int]]:
    """A source of 5 excerpts that has got back two of what its sink has more, and its cid."""
    async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
        _, cid = await sink.answer(noon_index(ahead=1, sequence=1))
        await sink.send(peer.excerpts(noon_index(sequence=5), b"5", b"6", cid=cid))
        await eventually(lambda: len(read(path)) == 7)
        await eventually(lambda: is_fenced(path))
        yield source, sink, cid


@pytest.fixture
def path(tmp_path: Path) -> Path:
    fill(tmp_path / "q", "FAST_DAILY", {0: 5})
    return tmp_path / "q"


def added(path: Path) -> list[bytes]:
    return [bytes(data) for _, data in read(path)[5:]]


async def test_the_write_lock_is_free_while_the_sink_takes_its_time(path: Path) -> None:
    """The append lock is not, nor the lock that says why it is held; in the end all are."""
    async with half_way(path) as (_, sink, cid):
        words = keys_of(path)
        assert words[WRITE_LOCK_KEY.lower()] == UNLOCKED
        assert words[APPEND_LOCK_KEY.lower()] == os.getpid()
        assert words["cqrepl.backcopy.lock"] == os.getpid()
        await sink.send(
            peer.excerpts(noon_index(sequence=7), b"7", cid=cid),
            peer.excerpts(noon_index(ahead=1), b"8", cid=cid),
            peer.end_of_stream(cid),
        )
        await eventually(lambda: is_free(path))
    assert added(path) == [b"5", b"6", b"7", b"8"]
    assert keys_of(path)["cqrepl.backcopy.lock"] == UNLOCKED


async def test_what_was_appended_between_and_comes_back_too(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with writer(path) as other:
        async with half_way(path) as (source, sink, cid):
            await other.append(b"7")
            with caplog.at_level(logging.WARNING):
                await sink.send(
                    peer.excerpts(noon_index(sequence=7), b"7", b"8", cid=cid),
                    peer.excerpts(noon_index(ahead=1), b"9", cid=cid),
                    peer.end_of_stream(cid),
                )
                await eventually(lambda: is_free(path) and len(read(path)) == 10)
            assert not source.stops
    assert added(path) == [b"5", b"6", b"7", b"8", b"9"]
    assert str(other.pid) in caplog.text


async def test_something_else_appended_between_diverges(path: Path) -> None:
    """The stop names the process with the queue open, and both digests; nothing is overwritten."""
    with writer(path) as other:
        async with half_way(path) as (source, sink, cid):
            await other.append(b"mine")
            await sink.send(peer.excerpts(noon_index(sequence=7), b"7", b"8", cid=cid))
            await stopped(source)
            await eventually(lambda: is_free(path))
            (stop,) = source.stops
    assert stop.reason is StopReason.DIVERGED
    digests = [hashlib.sha256(data).hexdigest() for data in (b"mine", b"7")]
    for text in (format_index(noon_index(sequence=7)), str(other.pid), *digests):
        assert text in stop.message
    assert added(path) == [b"5", b"6", b"mine"]


async def test_a_later_cycle_begun_between(path: Path) -> None:
    """Its clock says so: the cycle that the sink goes on in is closed."""
    with writer(path, now_ms=NOON_MS + DAY_MS) as other:
        async with half_way(path) as (source, sink, cid):
            await other.append(b"tomorrow")
            await sink.send(peer.excerpts(noon_index(sequence=7), b"7", cid=cid))
            await stopped(source)
            (stop,) = source.stops
    assert stop.reason is StopReason.DIVERGED
    assert format_index(noon_index(sequence=7)) in stop.message
    assert str(other.pid) in stop.message
    assert read(path)[7:] == [(noon_index(ahead=1), b"tomorrow")]


async def test_a_writer_in_the_middle_of_its_append_ends_it_first(
    path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(backcopy, "LOCK_SECONDS", 60.0)
    with caplog.at_level(logging.INFO), writer(path, IN_ITS_APPEND) as other:
        async with live_source(path) as source, scripted(source.port, 2, 1) as sink:
            _, cid = await sink.answer(noon_index(sequence=7))
            await eventually(lambda: "back copy" in caplog.text)
            await other.append(b"mine")
            await eventually(lambda: is_fenced(path))
            await sink.send(peer.excerpts(noon_index(sequence=5), b"5", b"6", cid=cid))
            await stopped(source)
            (stop,) = source.stops
    assert stop.reason is StopReason.DIVERGED
    assert added(path) == [b"mine"]


async def test_an_append_lock_that_is_taken_away_by_force(path: Path) -> None:
    """As Java's UnlockMain does: nothing more is appended, for writers are about."""
    async with half_way(path) as (source, sink, cid):
        assert free_lock(path / FILE_NAME, APPEND_LOCK_KEY, os.getpid())
        await sink.send(peer.excerpts(noon_index(sequence=7), b"7", cid=cid))
        await stopped(source)
        (stop,) = source.stops
    assert APPEND_LOCK_KEY in stop.message
    assert "by force" in stop.message
    assert added(path) == [b"5", b"6"]
    assert is_free(path)


async def test_a_writer_that_keeps_the_write_lock_between(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue stops and names it; the connection lives meanwhile."""
    with writer(path) as other:
        async with half_way(path) as (source, sink, cid):
            monkeypatch.setattr(appender_module, "WRITE_LOCK_TIMEOUT_S", 0.05)
            set_word(path, WRITE_LOCK_KEY, other.pid)
            await sink.send(peer.excerpts(noon_index(sequence=7), b"7", cid=cid))
            await stopped(source)
            (stop,) = source.stops
    assert stop.reason is StopReason.REFUSED
    assert f"process {other.pid} holds it" in stop.message
    assert added(path) == [b"5", b"6"]
