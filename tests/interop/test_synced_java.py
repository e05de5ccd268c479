"""Synced appends beside Java: the order of stores is another one, the files are the same."""

from pathlib import Path

import pytest

from cqrepl.queue import Durability, Queue, QueueLayout
from cqrepl.queue.format.rollcycle import by_name
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S
from tests.support.javapayloads import payload, payloads
from tests.support.samples import NOON_MS, check_marks, read

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 600)]


@pytest.mark.parametrize("name", ["FAST_DAILY", "TEST2_DAILY"])
def test_java_verifies_a_synced_queue(java: JavaQueue, tmp_path: Path, name: str) -> None:
    path = tmp_path / "queue"
    day = by_name(name).length_ms
    layout = QueueLayout.of(by_name(name))
    with Queue.open(path, create=layout, durability=Durability.SYNCED) as queue:
        appender = queue.appender()
        for turn in range(20):
            appender.append(
                [payload(turn, i, i % 50) for i in range(10)], NOON_MS + turn // 8 * day
            )
    answer = java.call("verify", path, 1000)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == 200
    check_marks(path)


def test_java_appends_while_we_append_synced(java: JavaQueue, tmp_path: Path) -> None:
    """Java finds the end by what is recorded, and a synced writer records that late."""
    path = tmp_path / "queue"
    name = "TEST4_SECONDLY"
    layout = QueueLayout.of(by_name(name))
    with Queue.open(path, create=layout, durability=Durability.SYNCED) as queue:
        appender = queue.appender()
        for seed, first in ((5, 0), (6, 75)):
            now_ms = NOON_MS + first // 75 * 1000
            props = {"interop.time": now_ms}
            running = java.start("append", path, name, 1500, "0-90", seed, props=props)
            for i in range(first, first + 75):
                appender.append([payload(9, i, 25)], now_ms)
            assert running.result(300).exit == 0
        appender.append([payload(9, 150, 25)], NOON_MS)
    found = [data for _, data in read(path)]
    ours = [payload(9, i, 25) for i in range(151)]
    assert [data for data in found if data in set(ours)] == ours
    for seed in (5, 6):
        theirs = [data or b"\x8f" for data in payloads(seed, 1500, 0, 90)]
        assert sorted(set(theirs) - set(found)) == []
    answer = java.call("verify", path, 2000)
    assert answer.exit == 0, answer
    assert answer.lines[0]["count"] == 3151
