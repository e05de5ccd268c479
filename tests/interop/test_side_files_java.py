"""Java passes over what we keep beside its files: marks, notes, chains, what is in quarantine."""

from pathlib import Path

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.files.chainfile import CHAIN_SUFFIX
from cqrepl.queue.files.closedcycles import CLOSED_FILE_NAME
from cqrepl.queue.files.cutreports import FOLDER_NAME as QUARANTINE
from cqrepl.queue.files.syncedmark import SYNCED_FILE_NAME
from cqrepl.queue.quarantine import quarantine
from cqrepl.queue.read.count import count
from cqrepl.replicator.lostcycles.fetcher import FOLDER_PREFIX as FETCHED
from tests.support.copies import assert_same
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javapayloads import payload
from tests.support.replicas import acked, eventually, joined
from tests.support.samples import NOON_MS, layout

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]

NAME = "TEST4_SECONDLY"


def excerpts(path: Path) -> int:
    with Queue.open(path) as queue:
        last = queue.last_index()
        return 0 if last is None else count(queue.cycles, 0, last)


async def replicated(path: Path, copy: Path) -> None:
    """Until both sides have noted what is closed, and have read what they stored."""
    with Queue.open(path) as queue:
        last = queue.last_index()
        assert last is not None
        closed = len(queue.cycles.listing()) - 1
    async with joined(path, copy) as (source, sink):
        await acked(source, last)
        for side in (path, copy):
            noted = side / CLOSED_FILE_NAME
            await eventually(noted.exists)
        await eventually(lambda: sink.queues["q"].disk.audited > last)
    assert closed
    for side in (path, copy):
        assert (side / SYNCED_FILE_NAME).exists()
        assert any(side.glob(f"*{CHAIN_SUFFIX}"))


async def test_java_reads_and_writes_beside_all_of_them(java: JavaQueue, tmp_path: Path) -> None:
    path, copy = tmp_path / "queue", tmp_path / "copy" / "queue"
    with Queue.open_for_append(path, create=layout(NAME)) as queue:
        appender = queue.appender()
        for turn in range(40):
            data = [payload(turn, i, i % 50) for i in range(10)]
            last = appender.append(data, NOON_MS + turn // 8 * 1000)
    quarantine(path, last - 3)  # and what is below its directory is no cycle of it
    assert any((path / QUARANTINE).glob("*/*.cq4"))
    (path / f"{FETCHED}1").mkdir()
    await replicated(path, copy)
    for side in (path, copy):
        answer = java.call("verify", side, 1000)
        assert answer.exit == 0, answer
        assert answer.lines[0]["count"] == excerpts(side) == 396
    answer = java.call("append", path, NAME, 300, "0-90", 5, props={"interop.time": NOON_MS + 6000})
    assert answer.exit == 0, answer
    await replicated(path, copy)
    assert_same(path, copy)
    answer = java.call("verify", copy, 1000)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == excerpts(path) == 696
