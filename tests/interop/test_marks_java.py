"""Java on a queue whose table store has the marks of many hosts of ours, while we hold them.

Java of this release fails to add a key behind 65,536 bytes, and was not seen to make a table store
longer than 131,072; so that is played, by making the file longer under both.
"""

import os
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.queue import Queue
from cqrepl.queue.files.keptidentity import HIGH_KEY, LOW_KEY, KeptIdentity, new_identity
from cqrepl.queue.files.keptmarks import KEY_END_MAX
from cqrepl.queue.files.markslots import HOSTS, SLOTS_FILE_NAME, MarkLevel
from cqrepl.queue.files.tablestore import FILE_BYTES, FILE_NAME
from cqrepl.queue.format.identity import longs_of
from cqrepl.replicator.source import serve_source
from tests.support.java import JavaQueue, Line
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javapayloads import payloads
from tests.support.replicas import LOOPBACK, acked, eventually, live_sink
from tests.support.samples import NOON_MS, read
from tests.support.tables import fill_keys, keys_of

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 300)]

COUNT = 40
NAMES = ("first", "second", "replicated:third")


@pytest.fixture
def path(java: JavaQueue, tmp_path: Path) -> Path:
    append(java, tmp_path / "q", seed=1)
    return tmp_path / "q"


def append(java: JavaQueue, path: Path, *, seed: int) -> None:
    props = {"interop.time": NOON_MS}
    answer = java.call("append", path, "FAST_DAILY", COUNT, "0-60", seed, props=props)
    assert answer.exit == 0, answer


def tailed(java: JavaQueue, path: Path, name: str, count: int) -> list[Line]:
    answer = java.call("tail", path, count, 60, "--name", name)
    assert answer.exit == 0, answer
    return [line for line in answer.lines if "payload" in line]


def raise_all(queue: Queue, first: int) -> dict[int, dict[MarkLevel, int]]:
    wanted = {}
    for host in HOSTS:
        marks = {level: first + host - nth for nth, level in enumerate(MarkLevel)}
        for level, index in marks.items():
            assert queue.host_marks.raise_to(host, level, index)
        wanted[host] = marks
    return wanted


@pytest.mark.parametrize("filled", [0, KEY_END_MAX - 320, KEY_END_MAX, 60_000])
def test_java_goes_on_beside_the_marks_of_all_hosts(
    java: JavaQueue, path: Path, filled: int
) -> None:
    """In keys, in both, or in the side file alone: Java reads, appends, and adds its own keys."""
    fill_keys(path, filled)
    with Queue.open(path) as queue:
        wanted = raise_all(queue, 1000)
        for name in NAMES:
            assert len(tailed(java, path, name, 5)) == 5
        append(java, path, seed=2)
        assert queue.host_marks.load() == wanted
        wanted = raise_all(queue, 2000)
        assert queue.host_marks.load() == wanted
        for name in NAMES:  # each where it was
            assert len(tailed(java, path, name, 2 * COUNT - 5)) == 2 * COUNT - 5
        assert (path / SLOTS_FILE_NAME).exists() == bool(filled)
    answer = java.call("verify", path, 500)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == 2 * COUNT
    expected = [data or b"\x8f" for seed in (1, 2) for data in payloads(seed, COUNT, 0, 60)]
    assert [data for _, data in read(path)] == expected
    with Queue.open(path) as queue:
        assert queue.host_marks.load() == wanted


def test_the_file_is_made_longer_while_both_use_it(java: JavaQueue, path: Path) -> None:
    with Queue.open(path) as queue:
        raise_all(queue, 1000)
        assert len(tailed(java, path, "before", 3)) == 3
        os.truncate(path / FILE_NAME, 2 * FILE_BYTES)
        assert len(tailed(java, path, "after", 3)) == 3
        append(java, path, seed=2)
        wanted = raise_all(queue, 2000)
        assert queue.host_marks.load() == wanted
        assert len(tailed(java, path, "before", 2 * COUNT - 3)) == 2 * COUNT - 3
    assert (path / FILE_NAME).stat().st_size == 2 * FILE_BYTES
    assert keys_of(path)["index.after"] > 0


async def test_a_source_marks_a_queue_that_java_appends_to(java: JavaQueue, path: Path) -> None:
    async with serve_source({"q": path}, listen=LOOPBACK) as source:
        async with live_sink(path.with_name("copy"), source.port, host_id=9):
            await trio.to_thread.run_sync(lambda: append(java, path, seed=2))
            last = last_of(source.queues["q"].queue)
            await acked(source, last)
            marks = source.queues["q"].marks[9]
            assert (marks.sent, marks.acknowledged) == (last, last)
    keys = {line["key"].lower(): line["value"] for line in java.call("meta", path).lines}
    assert keys["cqrepl.9.snt"] == keys["cqrepl.9.idx"] == last
    assert keys["chronicle.lastindexreplicated"] == last


async def test_readers_of_java_wait_for_what_a_sink_has_acknowledged(
    java: JavaQueue, path: Path
) -> None:
    async def seen() -> int:
        """The number of excerpts that Java reads up to the acknowledged mark. It stops when it has
        waited for a second."""
        tail = partial(java.call, "tail", path, 3 * COUNT, 1, "--acknowledged")
        lines = (await trio.to_thread.run_sync(tail)).lines
        return int(lines[-1]["seen"])

    async with serve_source({"q": path}, listen=LOOPBACK) as source:
        queue = source.queues["q"].queue
        assert await seen() == 0
        async with live_sink(path.with_name("copy"), source.port) as sink:
            await acked(source, last_of(queue))
            assert await seen() == COUNT
            await sink.pause("q")
            await trio.to_thread.run_sync(partial(append, java, path, seed=2))
            assert await seen() == COUNT
            await sink.resume("q")
            await acked(source, last_of(queue))
            assert await seen() == 2 * COUNT


def last_of(queue: Queue) -> int:
    last = queue.last_index()
    assert last is not None
    return last


@pytest.mark.parametrize("filled", [0, KEY_END_MAX - 64])
def test_java_passes_over_an_identity(java: JavaQueue, path: Path, filled: int) -> None:
    """It reads, appends, adds keys of its own behind, and rolls; the identity stays as it is."""
    fill_keys(path, filled)
    identity = new_identity()
    with Queue.open(path) as queue:
        is_kept = queue.identity.replace(identity)
        assert is_kept == (not filled)
        wanted = identity if is_kept else None
        for name in NAMES:
            assert len(tailed(java, path, name, 5)) == 5
        append(java, path, seed=2)
        assert queue.identity.load() == wanted
    answer = java.call("verify", path, 500)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == 2 * COUNT
    keys = {line["key"].lower(): line["value"] for line in java.call("meta", path).lines}
    if is_kept:
        assert (keys[HIGH_KEY], keys[LOW_KEY]) == longs_of(identity)


async def test_a_source_of_ours_gives_a_queue_of_java_an_identity(
    java: JavaQueue, path: Path
) -> None:
    copy = path.with_name("copy")
    async with serve_source({"q": path}, listen=LOOPBACK) as source:
        async with live_sink(copy, source.port):
            await trio.to_thread.run_sync(lambda: append(java, path, seed=2))
            last = last_of(source.queues["q"].queue)
            await acked(source, last)
            await eventually(lambda: KeptIdentity(copy / FILE_NAME).load() is not None)
    assert KeptIdentity(copy / FILE_NAME).load() == KeptIdentity(path / FILE_NAME).load()
    append(java, path, seed=3)
    assert java.call("verify", path, 500).lines[0]["count"] == 3 * COUNT
