"""Several processes on one queue: words, locks, appends, what one moves and another deletes."""

import fcntl
import os
import subprocess
import sys
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import ExcerptBatch, Queue, QueueError, QueueLocked
from cqrepl.queue.files import tablestore
from cqrepl.queue.files.tablestore import TableStore
from cqrepl.queue.inspection.findings import FindingKind
from cqrepl.queue.inspection.overview import inspect_queue
from cqrepl.queue.read.namedtailer import NamedPosition, NamedTailer
from cqrepl.queue.write import appender as appender_module
from cqrepl.queue.write.retention import Policy, remove
from tests.support import forks
from tests.support.reading import cycles_of, some_of
from tests.support.samples import NOON_MS, Excerpts, check_marks, fill, layout, noon_index, read

ALL = Policy()
SERIOUS = (FindingKind.DAMAGE, FindingKind.END)


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
    tmp_path: Path, writers: int, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They roll on the way, each when its own clock says so."""
    monkeypatch.setattr(appender_module, "WRITE_LOCK_TIMEOUT_S", 60.0)  # each has its turn
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


def test_another_process_holds_the_table_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "metadata.cq4t"
    table = TableStore.create(path, layout())
    monkeypatch.setattr(tablestore, "_LOCK_TIMEOUT_S", 0.02)
    ready, done = os.pipe(), os.pipe()

    def work() -> None:
        descriptor = os.open(path, os.O_RDWR)
        fcntl.lockf(descriptor, fcntl.LOCK_EX, 1, 0x7FFFFFFFFFFFFFFE)
        os.write(ready[1], b"!")
        os.read(done[0], 1)

    pid = forks.start(work)
    os.read(ready[0], 1)
    with pytest.raises(QueueError, match="expected the table lock"):
        table.value("late", 1)
    os.write(done[1], b"!")
    assert forks.finish(pid) == 0
    assert table.value("late", 1).load() == 1
    table.close()
    for descriptor in (*ready, *done):
        os.close(descriptor)


def test_what_another_process_moves_is_taken_up(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    written = fill(path, "FAST_DAILY", {0: 9})
    tailer = NamedTailer(cycles_of(path), "alpha")
    assert some_of(tailer, 2) == written[:2]

    def move() -> None:
        other = NamedTailer(cycles_of(path), "alpha")
        other.move(written[6][0])
        other.close()

    assert forks.run(move) == 0
    assert some_of(tailer, 2) == written[6:8]
    tailer.commit()
    assert forks.run(lambda: NamedPosition(cycles_of(path), "alpha").move(0)) == 0
    assert tailer.wait(0)
    assert some_of(tailer, 9) == written
    tailer.close()


def test_a_named_tailer_never_misses_anything(tmp_path: Path) -> None:
    """Reading and deleting in turns, as different processes do it."""
    path = tmp_path / "queue"
    written = fill(path, "FAST_DAILY", dict.fromkeys(range(5), 3))
    cycles = cycles_of(path)
    found: Excerpts = []
    for _ in written:
        tailer = NamedTailer(cycles, "alpha")
        excerpt = tailer.next_excerpt()
        assert excerpt is not None
        found.append((excerpt.index, bytes(excerpt)))
        tailer.commit()
        tailer.close()
        assert forks.run(lambda: [remove(cycles_of(path), ALL)].clear()) == 0
    assert found == written
    assert len(list(path.glob("*.cq4"))) == 1


def test_a_writer_in_another_process_is_no_damage(tmp_path: Path) -> None:
    """It is looked at in the middle of its work; marks may lag, no more than that."""
    path, name = tmp_path / "queue", "TEST4_SECONDLY"
    fill(path, name, {0: 1})

    def work() -> None:
        with Queue.open_for_append(path) as queue:
            appender = queue.appender()
            for number in range(6000):
                ahead, sequence = divmod(number, 2000)
                if ahead or sequence:
                    index = noon_index(name, ahead=ahead, sequence=sequence)
                    appender.append_at(ExcerptBatch.of(index, [b"%d" % number]))

    writer = forks.start(work)
    try:
        infos = [inspect_queue(path, deep=True) for _ in range(40)]
        quick = [inspect_queue(path).count for _ in range(40)]
    finally:
        assert forks.finish(writer) == 0
    assert all(file.is_whole for info in infos for file in info.files if file.count is not None)
    assert not [each for info in infos for each in info.findings if each.kind in SERIOUS]
    counts = [info.count for info in infos]
    assert counts + quick == sorted(counts + quick)
    assert inspect_queue(path).count == 6000
    assert inspect_queue(path, deep=True).findings == ()


COUNT = """
import mmap, sys
from cqrepl.queue.files.atomics import Words
with open(sys.argv[1], "r+b") as file:
    words = Words(memoryview(mmap.mmap(file.fileno(), 8)))
for _ in range(int(sys.argv[2])):
    words.add_8(0, 1)
"""


def test_processes_that_add_lose_nothing(tmp_path: Path, each_kernel: str) -> None:
    path, times = tmp_path / "word", 20_000
    path.write_bytes(bytes(8))
    command = [sys.executable, "-P", "-c", COUNT, str(path), str(times)]
    others = [subprocess.Popen(command, env={"CQREPL_KERNEL": each_kernel}) for _ in range(2)]
    assert [other.wait(60) for other in others] == [0, 0]
    assert int.from_bytes(path.read_bytes(), sys.byteorder) == 2 * times
