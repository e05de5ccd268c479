"""Lanes that one live pump after the other goes on with: which are kept, and how they go."""

import fcntl
import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import trio

from cqrepl.kernel import live
from cqrepl.queue import Queue, Tailer
from cqrepl.queue.files.mapping import RECORD_LOCK_GUARD
from cqrepl.replicator.outgoing.outgoingqueue import KeptLane, Outgoing
from cqrepl.replicator.outgoing.sourcesession import SourceSession
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import Source, serve_source
from tests.net.live_pumps import (
    LONG_MS,
    Ends,
    Running,
    received,
    source_lane,
)
from tests.support.replicas import LOOPBACK, acked, copied, eventually

NOON_MS = 1_709_640_000_000
MINUTE_MS = 60_000
WAIT_S = 30.0
pytestmark = pytest.mark.skipif(not live.AVAILABLE, reason="the plain kernel has no live pumps")


def kept(tailer: Tailer) -> KeptLane:
    """A lane from where a tailer stands."""
    lane = source_lane(tailer)
    stand = tailer.stand()
    assert stand is not None
    return KeptLane(lane, stand)


def mapped_below(folder: Path) -> list[str]:
    """The files below a folder that this process maps."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return [line.split(maxsplit=5)[5] for line in lines if f" {folder}/" in line]


def may_lock(file: Path) -> bool:
    """True when another process gets a record lock on a file."""
    code = (
        "import fcntl, sys\nfile = open(sys.argv[1], 'r+b')\n"
        "try: fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)\n"
        "except OSError: sys.exit(7)"
    )
    ended = subprocess.run([sys.executable, "-S", "-c", code, str(file)], timeout=WAIT_S)
    assert ended.returncode in (0, 7)
    return ended.returncode == 0


def test_it_goes_on_no_more_where_its_file_ends_or_its_tailer_went_on(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path, create="MINUTELY") as queue:
        appender, tailer = queue.appender(), queue.tailer()
        appender.append([b"one"], NOON_MS)
        each = kept(tailer)
        assert each.suits(tailer)
        assert tailer.next_batch() is not None
        assert not each.suits(tailer), "the tailer has passed what the lane would send"
        each.let_go()
        each = kept(tailer)
        assert each.suits(tailer)
        appender.append([b"two"], NOON_MS + MINUTE_MS)
        assert not each.suits(tailer), "the file is closed"
        assert tailer.next_batch() is not None
        assert not each.suits(tailer), "the tailer is in another file"
        each.let_go()


def test_one_that_a_pump_has_is_let_go_of_when_that_is_back(tmp_path: Path) -> None:
    with Ends.connected() as ends:
        with Queue.open(tmp_path, create="FAST_DAILY") as queue:
            queue.append(b"one")
            tailer = queue.tailer()
            each = kept(tailer)
            running = Running(lambda: ends.stream(each.lane, slice_ms=LONG_MS))
            frame = received(ends.far, 4)
            each.let_go()  # by its queue, which is closed
            with pytest.raises(ValueError, match="no other pump"):
                Ends(ends.near, ends.far, live.LiveControl()).stream(each.lane)
        assert len(frame) == 4
        assert mapped_below(tmp_path), "the pump reads there"
        ends.control.interrupt()
        running.ended()
        assert mapped_below(tmp_path)
        each.let_go()
        assert not mapped_below(tmp_path)


def test_no_record_lock_goes_with_it(tmp_path: Path) -> None:
    """A thread of this process holds one on the file whose last mapping the lane has."""
    with Queue.open(tmp_path, create="FAST_DAILY") as queue:
        queue.append(b"one")
        each = kept(queue.tailer())
    (file,) = tmp_path.glob("*.cq4")
    assert mapped_below(tmp_path)
    going = threading.Thread(target=each.let_go)
    with RECORD_LOCK_GUARD:
        descriptor = os.open(file, os.O_RDWR)
        try:
            fcntl.lockf(descriptor, fcntl.LOCK_EX)
            going.start()
            assert not may_lock(file)
            assert mapped_below(tmp_path), "it waits for the lock"
        finally:
            os.close(descriptor)
    going.join(WAIT_S)
    assert not mapped_below(tmp_path)


def outgoing_of(source: Source, name: str) -> Outgoing:
    (session,) = source.queues[name].sessions
    assert isinstance(session, SourceSession)
    (each,) = (each for each in session.outgoing.values() if each.queue.name == name)
    return each


async def lent(source: Source, name: str) -> KeptLane:
    """The lane of a queue that a pump has."""
    await eventually(lambda: outgoing_of(source, name).lane is not None)
    each = outgoing_of(source, name).kept
    assert each is not None
    return each


async def test_a_source_keeps_lanes_and_leaves_none(tmp_path: Path) -> None:
    """One rolls, one stops while a pump has it, one goes on; then the connection ends."""
    names = ("rolls", "stops", "stays")
    paths = {name: tmp_path / "from" / name for name in names}
    copies = {name: tmp_path / "to" / name for name in names}
    queues = {name: Queue.open_for_append(path, create="MINUTELY") for name, path in paths.items()}
    try:
        appenders = {name: queue.appender() for name, queue in queues.items()}
        for appender in appenders.values():
            appender.append([b"first"], NOON_MS)
        async with (
            serve_sink(copies, listen=LOOPBACK) as sink,
            serve_source(paths, connect=f"127.0.0.1:{sink.port}") as source,
        ):
            for name in names:
                await copied(paths[name], copies[name])
            for minute in range(1, 4):
                for name in names:
                    now_ms = NOON_MS + (MINUTE_MS * minute if name == "rolls" else 0)
                    appenders[name].append([b"more"] * 10, now_ms)
                    await copied(paths[name], copies[name])
            await acked(source, queues["stays"].next_index() - 1, "stays")
            stays, stops = await lent(source, "stays"), outgoing_of(source, "stops")
            with trio.fail_after(WAIT_S):
                await source.pause("stops")
            assert stops.kept is None
            appenders["stays"].append([b"last"], NOON_MS)
            await copied(paths["stays"], copies["stays"])
            assert await lent(source, "stays") is stays
            appenders["stops"].append([b"kept back"], NOON_MS)
            source.resume("stops")
            await copied(paths["stops"], copies["stops"])
    finally:
        for queue in queues.values():
            queue.close()
    assert not mapped_below(tmp_path)
