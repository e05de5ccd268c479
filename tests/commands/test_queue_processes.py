"""Several processes on one queue: words, the write lock, the append lock."""

import os
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueLocked
from cqrepl.queue.files.tablestore import TableStore
from tests.support import forks
from tests.support.samples import NOON_MS, check_marks, layout, read


def test_three_processes_exchange_one_long(tmp_path: Path) -> None:
    path = tmp_path / "metadata.cq4t"
    TableStore.create(path, layout()).close()

    def work() -> None:
        table = TableStore(path, writable=True)
        value = table.value("counter", 0)
        for _ in range(3000):
            value.add(1)

    pids = [forks.start(work) for _ in range(3)]
    assert [forks.finish(pid) for pid in pids] == [0, 0, 0]
    table = TableStore(path, writable=False)
    found = table.find("counter")
    assert found is not None
    assert found.load() == 9000
    table.close()


def test_keys_added_at_once_are_added_once(tmp_path: Path) -> None:
    path = tmp_path / "metadata.cq4t"

    def work() -> None:
        table = TableStore.create(path, layout())
        for i in range(60):
            table.value(f"key.{i}", i)

    pids = [forks.start(work) for _ in range(3)]
    assert [forks.finish(pid) for pid in pids] == [0, 0, 0]
    table = TableStore(path, writable=False)
    assert table.keys() == {f"key.{i}": i for i in range(60)}
    table.close()


@pytest.mark.parametrize("writers", [2, 3])
@pytest.mark.parametrize("name", ["FAST_DAILY", "TEST4_SECONDLY"])
def test_processes_append_at_once_and_nothing_is_lost(
    tmp_path: Path, writers: int, name: str
) -> None:
    """They roll on the way, each when its own clock says so."""
    path, count = tmp_path / "queue", 400
    Queue.open_for_append(path, create=layout(name)).close()
    roll_cycle = layout(name).roll_cycle

    def work(writer: int) -> None:
        with Queue.open_for_append(path) as queue:
            appender = queue.appender()
            for i in range(count):
                now = NOON_MS + i // 100 * 3 * roll_cycle.length_ms
                appender.append([b"%d %d" % (writer, i)] * (1 + i % 2), now)

    pids = [forks.start(partial(work, writer)) for writer in range(writers)]
    assert [forks.finish(pid) for pid in pids] == [0] * writers
    found = [data for _, data in read(path)]
    for writer in range(writers):
        head = b"%d " % writer
        wanted = [head + b"%d" % i for i in range(count) for _ in range(1 + i % 2)]
        assert [data for data in found if data.startswith(head)] == wanted
    check_marks(path)


def test_a_tailer_follows_a_process_that_appends_and_rolls(tmp_path: Path) -> None:
    path, count = tmp_path / "queue", 3000
    Queue.open_for_append(path, create=layout("TEST4_SECONDLY")).close()

    def work() -> None:
        with Queue.open_for_append(path) as queue:
            appender = queue.appender()
            for i in range(count):
                appender.append([b"%d" % i], NOON_MS + i // 40 * 1000)

    with Queue.open(path) as queue:
        tailer = queue.tailer()
        found: list[bytes] = []
        pid = forks.start(work)
        while len(found) < count:
            batch = tailer.next_batch()
            if batch is not None:
                found += [bytes(data) for _, data in batch]
        assert forks.finish(pid) == 0
    assert found == [b"%d" % i for i in range(count)]


def test_an_append_lock_of_a_dead_process_is_taken_over_at_once(tmp_path: Path) -> None:
    path = tmp_path / "queue"

    def work() -> None:
        queue = Queue.open_for_append(path, create=layout())
        queue.append_lock.acquire()
        os._exit(0)

    assert forks.run(work) == 0
    with Queue.open_for_append(path) as queue:
        assert queue.append_lock.holder() is not None
        queue.append_lock.acquire()
        assert queue.append_lock.holder() == os.getpid()


def test_an_append_lock_of_a_living_process_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    ready, done = os.pipe(), os.pipe()

    def work() -> None:
        with Queue.open_for_append(path, create=layout()) as queue:
            queue.append_lock.acquire()
            os.write(ready[1], b"!")
            os.read(done[0], 1)

    pid = forks.start(work)
    os.read(ready[0], 1)
    with Queue.open_for_append(path) as queue:
        with pytest.raises(QueueLocked) as locked:
            queue.append_lock.acquire(0.01)
        assert locked.value.holder == pid
        os.write(done[1], b"!")
        assert forks.finish(pid) == 0
        assert queue.append_lock.try_acquire()
    for descriptor in (*ready, *done):
        os.close(descriptor)


def test_a_killed_process_that_nobody_waited_for_is_dead(tmp_path: Path) -> None:
    """It still has an entry in the process table, as a zombie."""
    path = tmp_path / "queue"
    ready = os.pipe()

    def work() -> None:
        Queue.open_for_append(path, create=layout()).append_lock.acquire()
        os.write(ready[1], b"!")
        os._exit(0)

    pid = forks.start(work)
    os.read(ready[0], 1)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    with Queue.open_for_append(path) as queue:
        assert queue.append_lock.holder() == pid
        assert queue.append_lock.try_acquire()
    forks.finish(pid)
    for descriptor in ready:
        os.close(descriptor)
