"""A Java appender goes on writing, and rolling every second, while the queue is replicated."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import Queue
from tests.support.commands import commands, until
from tests.support.copies import assert_same
from tests.support.java import JavaQueue, Line, require_java
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javachecks import MOVES

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

LOOPBACK = "127.0.0.1:0"
SOON = {"interop.timeoutMs": 200}
NOON = {"interop.time": 1_709_640_000_000}  # 2024-03-05, 12:00 UTC
CHECKED = ("-ea", "-Dqueue.check.index=true", "-XX:TieredStopAtLevel=4")


@pytest.fixture(scope="module")
def java() -> Iterator[JavaQueue]:
    """Verifies and tails; the appender is a process of its own."""
    require_java()
    with JavaQueue(java_options=CHECKED) as queue:
        yield queue


@pytest.fixture(scope="module")
def writer() -> Iterator[JavaQueue]:
    require_java()
    with JavaQueue(props={"interop.blockSize": 1 << 20}) as queue:
        yield queue


def mark_as_copy(path: Path) -> None:
    """As a sink does that has been compared; before, it does not know whose queue this is."""
    with Queue.open_for_append(path) as queue:
        queue.note_follower(is_follower=True)


def last_index(path: Path) -> int | None:
    with Queue.open(path) as queue:
        return queue.last_index()


@pytest.mark.parametrize(
    ("roll_cycle", "count", "rate"),
    [
        ("TEST_SECONDLY", 60_000, 15_000),
        ("TEST4_SECONDLY", 15_000, 3_500),
        pytest.param("TEST_SECONDLY", 3_000_000, 50_000, marks=pytest.mark.long),
        pytest.param("TEST4_SECONDLY", 400_000, 3_500, marks=pytest.mark.long),
    ],
)
async def test_replication_keeps_up_with_a_java_appender(
    java: JavaQueue, writer: JavaQueue, tmp_path: Path, roll_cycle: str, count: int, rate: int
) -> None:
    path, copy, out = tmp_path / "queue", tmp_path / "copy", tmp_path / "tail"
    limit = 300 + 2 * count / rate
    assert writer.call("append", path, roll_cycle, 0, 0, 0).exit == 0  # makes an empty queue
    async with commands(limit) as start:
        source = await start("source", f"q={path}", "--listen", LOOPBACK)
        address = f"127.0.0.1:{await source.port()}"
        sink = await start("sink", f"q={copy}", "--connect", address, "--once")
        appending = writer.start("append", path, roll_cycle, count, "0-200", 4, rate)
        await until(lambda: (copy / "metadata.cq4t").exists())
        tailing = java.start("tail", copy, count, int(limit), "--sha", out=out)
        await until(appending.done)
        assert appending.result().exit == 0, appending.result()
        last = last_index(path)
        await until(lambda: last_index(copy) == last)
        await until(tailing.done)
        await source.terminate()
        await sink.succeeds()
    assert_same(path, copy)
    verified = java.call("verify", copy, MOVES, timeout=limit)
    assert verified.exit == 0, verified
    assert verified.lines[0]["count"] == count
    assert len(verified.lines[0]["cycles"]) >= count / rate
    assert tailing.result().exit == 0, tailing.result()
    dumped = tmp_path / "dump"
    assert java.call("dump", path, "--sha", out=dumped, timeout=limit).exit == 0
    assert excerpt_lines(out) == excerpt_lines(dumped)


def excerpt_lines(out: Path) -> list[str]:
    """The lines of a dump or of a tail that show excerpts."""
    return [line for line in out.read_text().splitlines() if line.startswith('{"index"')]


async def test_a_sink_at_the_queue_of_a_java_appender(
    java: JavaQueue, writer: JavaQueue, tmp_path: Path
) -> None:
    """The appender goes on, whatever operators do: the sink stops, and has changed nothing."""
    path, copied, count = tmp_path / "queue", tmp_path / "copied", 4000
    with Queue.open_for_append(copied, create="FAST_DAILY") as other:
        other.append_many([b"another"] * 5, now_ms=NOON["interop.time"])
    assert writer.call("append", path, "FAST_DAILY", 10, 20, 1, props=NOON).exit == 0
    async with commands() as start:
        began = last_index(path)
        appending = writer.start("append", path, "FAST_DAILY", count, 20, 1, 1000, props=NOON)
        await until(lambda: last_index(path) != began)
        sink = await start("sink", f"q={path}", "--listen", LOOPBACK)
        address = f"127.0.0.1:{await sink.port()}"
        source = await start("source", f"q={copied}", "--connect", address)
        assert await source.exit_code() == 1
        await until(lambda: "diverged" in sink.said)
        await until(appending.done)
    assert appending.result().exit == 0, appending.result()
    verified = java.call("verify", path)
    assert verified.exit == 0, verified
    assert verified.lines[0]["count"] == count + 10


async def test_nobody_else_writes_a_queue_while_a_sink_runs(
    java: JavaQueue, writer: JavaQueue, tmp_path: Path
) -> None:
    """Neither before a source is there, nor while one streams, nor after the source has gone."""
    path, copy = tmp_path / "queue", tmp_path / "copy"
    for folder in (path, copy):
        assert writer.call("append", folder, "FAST_DAILY", 10, 20, 1, props=NOON).exit == 0
    mark_as_copy(copy)
    assert writer.call("append", path, "FAST_DAILY", 90, 20, 2, props=NOON).exit == 0

    def try_append() -> Line:
        [line] = java.call("tryappend", copy, "0102", props=SOON).lines
        return line

    async with commands() as start:
        sink = await start("sink", f"q={copy}", "--listen", LOOPBACK)
        address = f"127.0.0.1:{await sink.port()}"
        assert try_append()["status"] == "refused"
        source = await start("source", f"q={path}", "--connect", address, "--until-caught-up")
        await until(lambda: last_index(copy) == last_index(path))
        assert try_append()["status"] == "refused"
        await source.succeeds()
        assert str(sink.pid) in try_append()["error"]
        await sink.terminate()
    assert_same(path, copy)
    assert try_append()["status"] == "written"
    assert java.call("verify", copy).lines[0]["count"] == 101


async def test_a_killed_sink_leaves_its_lock_to_the_next_one(
    java: JavaQueue, tmp_path: Path
) -> None:
    copy = tmp_path / "copy"
    assert java.call("append", copy, "FAST_DAILY", 10, 20, 1, props=NOON).exit == 0
    mark_as_copy(copy)
    async with commands() as start:
        sink = await start("sink", copy, "--listen", LOOPBACK)
        await sink.port()
        second = await start("sink", copy, "--listen", LOOPBACK)
        assert await second.exit_code() == 5
        await sink.kill()
        [line] = java.call("tryappend", copy, "0102", props=SOON).lines
        assert line["status"] == "refused", "Java takes no append lock of a dead process"
        third = await start("sink", copy, "--listen", LOOPBACK)
        await third.port()
        await third.terminate()
    [line] = java.call("tryappend", copy, "0102", props=SOON).lines
    assert line["status"] == "written"
