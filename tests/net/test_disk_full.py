"""A sink without space: nothing acknowledged is lost, and it goes on when there is space again.

The sink is a process of its own: the limit on the size of its files, or its small file system, is
lowered and raised from outside while it runs.
"""

import re
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.queue import Queue
from cqrepl.queue.write.retention import Policy, plan
from cqrepl.replicator.incoming.sinkqueue import SinkQueue
from cqrepl.replicator.queuestate.logs import ENTRY
from cqrepl.replicator.queuestate.pause import PAUSE_SECONDS
from cqrepl.replicator.sink import serve_sink
from cqrepl.replicator.source import serve_source
from tests.support.commands import Command, commands
from tests.support.copies import assert_same
from tests.support.ports import reserved_port
from tests.support.replicas import (
    BEATS,
    acked,
    at,
    copied,
    eventually,
    live_sink,
    live_source,
)
from tests.support.requirements import require
from tests.support.samples import NOON_MS, fill, layout, read

MIB = 1 << 20


@contextmanager
def small_file_system(path: Path, size: str = "4m") -> Iterator[Callable[[], None]]:
    """A file system of 4 MiB, or of another size; what is yielded makes it larger."""
    path.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(path)]
    done = subprocess.run(mount, capture_output=True, text=True)
    if done.returncode:
        require("root", f"no file system can be mounted here: {done.stderr.strip()}")
    larger = ["mount", "-o", "remount,size=64m", str(path)]

    def enlarge() -> None:
        subprocess.run(larger, check=True)

    try:
        yield enlarge
    finally:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def make_queue(path: Path) -> int:
    """A queue of 12 MiB; its last index."""
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        for nth in range(12):
            last = appender.append([bytes([nth]) * 1024] * 1024, NOON_MS)
        return last


async def fill_up_and_go_on(
    original: Path, copy: Path, pattern: str, limit: Callable[[Command], Callable[[], None]]
) -> None:
    last = make_queue(original)
    port = reserved_port()
    async with commands(300) as start:
        sink = await start("sink", f"q={copy}", "--connect", at(port))
        more_space = limit(sink)
        async with live_source(original, listen=at(port)) as source:
            await sink.says(re.compile(pattern))
            queue = source.queues["q"]
            acknowledged, stored = queue.acknowledged, read(copy)
            assert acknowledged <= stored[-1][0]
            assert stored == read(original)[: len(stored)]
            # it tries again and again, and does not end; what is stored becomes acknowledged, if
            # not at once, since the connection that failed may have taken that with it
            await eventually(lambda: queue.acknowledged >= stored[-1][0])
            # an attempt may still find a little room, as long as there is any
            assert sum(len(data) for _, data in read(copy)) < 4 * MIB
            more_space()
            await acked(source, last)
            await sink.terminate()
            assert "Traceback" not in sink.said
    assert_same(original, copy)


async def test_not_even_room_for_the_first_excerpt(tmp_path: Path) -> None:
    """Its store file was made, and is tried again; what the sink lacks is not deleted meanwhile."""
    counts = {0: 3, 1: 2, 2: 4}
    fill(tmp_path / "q", "TEST_SECONDLY", counts)
    with small_file_system(tmp_path / "disk", "1m") as enlarge:
        copy = tmp_path / "disk" / "copy"
        async with live_source(tmp_path / "q") as source, live_sink(copy, source.port) as sink:
            await eventually(lambda: is_tried_less_often(sink.queues["q"]))
            assert sink.stops == source.stops == []
            with Queue.open(tmp_path / "q") as queue:
                assert not [each for each in plan(queue.cycles, Policy()) if each.is_removable]
            enlarge()
            await copied(tmp_path / "q", copy)


def is_tried_less_often(queue: SinkQueue) -> bool:
    """True in a third pause, or a later one, after which nothing had got through."""
    return queue.pause.until - trio.current_time() > 2.5 * PAUSE_SECONDS


async def test_t15_a_full_disk_is_of_one_queue(tmp_path: Path) -> None:
    """The other queue of the connection goes on, on the same connection."""
    last = make_queue(tmp_path / "full")
    with (
        small_file_system(tmp_path / "small") as larger,
        Queue.open_for_append(tmp_path / "good", create=layout()) as good,
    ):
        sources = {"full": tmp_path / "full", "good": tmp_path / "good"}
        sinks = {"full": tmp_path / "small" / "copy", "good": tmp_path / "copy"}
        good.append(b"before", now_ms=NOON_MS)
        async with (
            serve_source(sources, listen="127.0.0.1:0", **BEATS) as source,
            serve_sink(sinks, connect=at(source.port), **BEATS) as sink,
        ):
            full = sink.queues["full"]
            await eventually(lambda: full.life.trouble is not None)
            sessions = list(source.endpoint.sessions)
            for _ in range(20):
                await source.wait_acked(good.append(b"x" * 1000, now_ms=NOON_MS), "good")
            trouble = full.life.trouble
            assert trouble is not None
            assert "No space left" in trouble.message
            assert not source.stops + sink.stops
            larger()
            await source.wait_acked(last, "full")
            assert list(source.endpoint.sessions) == sessions
        assert_same(sources["full"], sinks["full"])
        assert_same(sources["good"], sinks["good"])


async def test_t15_a_sink_leaves_free_what_it_is_told_to(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Below that its queue pauses on both sides, and goes on by itself; others do not mind."""
    caplog.set_level("INFO")
    with (
        small_file_system(tmp_path / "small") as larger,
        Queue.open_for_append(tmp_path / "q", create=layout()) as queue,
        Queue.open_for_append(tmp_path / "good", create=layout()) as good,
    ):
        paths = {"q": tmp_path / "q", "good": tmp_path / "good"}
        copies = {"q": tmp_path / "small" / "copy", "good": tmp_path / "copy"}
        async with (
            serve_source(paths, listen="127.0.0.1:0", **BEATS) as source,
            serve_sink(copies, connect=at(source.port), min_free_bytes=2 * MIB, **BEATS) as sink,
        ):
            await source.wait_acked(queue.append(b"before", now_ms=NOON_MS), "q")
            (tmp_path / "small" / "rest").write_bytes(bytes(2 * MIB))
            held = sink.queues["q"]
            await eventually(lambda: held.life.trouble is not None)
            # until then a live pump that is called back may still send, and take, what comes
            await eventually(lambda: any("pauses: the peer" in line for line in caplog.messages))
            last = queue.append(b"behind", now_ms=NOON_MS)
            for _ in range(20):
                await source.wait_acked(good.append(b"x", now_ms=NOON_MS), "good")
            assert len(read(copies["q"])) == 1
            trouble = held.life.trouble
            assert trouble is not None
            assert trouble.is_disk_full
            larger()
            await source.wait_acked(last, "q")
            assert not source.stops + sink.stops
        assert_same(paths["q"], copies["q"])
    told = "expected 2 MiB that stay free on its disk, less is"
    lines = [line for line in caplog.messages if told in line]
    assert len(lines) == 2, lines
    assert any("queue 'q' pauses: the peer says: " in line for line in lines)


async def test_t15_a_sink_does_not_begin_below_that(tmp_path: Path) -> None:
    fill(tmp_path / "q", "FAST_DAILY", {0: 3})
    async with commands() as start:
        source = await start("source", tmp_path / "q", "--listen", at(0))
        words = ["--min-free", "900000GiB", "--once"]
        connected = "--connect", at(await source.port())
        sink = await start("sink", f"q={tmp_path / 'copy'}", *connected, *words)
        assert await sink.exit_code() == 6
        assert "that stay free on its disk, less is" in sink.said
        await source.terminate()
    assert not (tmp_path / "copy").exists()


@pytest.mark.parametrize("role", ["source", "sink"])
async def test_a_log_that_finds_no_space_comes_back(
    tmp_path: Path, role: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The queue goes on meanwhile; then the log has everything."""
    caplog.set_level("INFO")
    Queue.open(tmp_path / "q", create=layout()).close()
    with small_file_system(tmp_path / "small") as larger:
        log, rest = tmp_path / "small" / "log", tmp_path / "small" / "rest"
        logs: dict[str, Any] = {"source": {"ack_log": log}, "sink": {"append_log": log}}
        source_logs, sink_logs = (logs[each] if each == role else {} for each in ("source", "sink"))
        async with live_source(tmp_path / "q", **source_logs) as source:
            async with live_sink(tmp_path / "copy", source.port, **sink_logs) as sink:
                with pytest.raises(OSError, match="No space left"):
                    rest.write_bytes(bytes(5 * MIB))
                with Queue.open_for_append(tmp_path / "q") as queue:
                    await acked(source, queue.append_many([b"x"] * 3))
                await eventually(lambda: "are not logged for now: " in caplog.text)
                larger()
                await eventually(lambda: "are logged again" in caplog.text)
                assert not source.stops + sink.stops
        assert sum(ENTRY.unpack(data)[3] for _, data in read(log)) == 3


async def test_full_file_system(tmp_path: Path) -> None:
    with small_file_system(tmp_path / "small") as larger:
        await fill_up_and_go_on(
            tmp_path / "q", tmp_path / "small" / "copy", "No space left", lambda sink: larger
        )


@pytest.mark.parametrize("source_ends", [True, False])
async def test_a_queue_that_came_whole_hides_no_other_one(
    tmp_path: Path, source_ends: bool
) -> None:
    """The queue that is held up is told at the end, with its exit code: by the source, or by the
    sink once the source has ended in order."""
    make_queue(tmp_path / "q")
    with Queue.open_for_append(tmp_path / "good", create=layout()) as good:
        good.append(b"small", now_ms=NOON_MS)
    with small_file_system(tmp_path / "small"):
        async with commands(120) as start:
            until = ["--until-caught-up"] if source_ends else []
            queues = tmp_path / "q", tmp_path / "good"
            source = await start("source", *queues, "--listen", at(0), *until)
            copy, once = tmp_path / "small" / "copy", [] if source_ends else ["--once"]
            copies = f"q={copy}", f"good={tmp_path / 'copy'}"
            sink = await start("sink", *copies, "--connect", at(await source.port()), *once)
            if source_ends:
                assert await source.exit_code() == 5
                assert "queue 'q' stopped (refused)" in source.said
                await sink.terminate()
            else:
                await sink.says(re.compile("No space left"))
                await copied(tmp_path / "good", tmp_path / "copy")
                await source.terminate()
                assert await sink.exit_code() == 6
                assert f"queue 'q' stopped (failed): {copy}: No space left" in sink.said
        assert_same(tmp_path / "good", tmp_path / "copy")
