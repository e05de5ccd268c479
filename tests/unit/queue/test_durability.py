"""Synced appends: what a power cut has left, group commit, and syncs that fail."""

import errno
import os
import threading
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from cqrepl.queue import (
    Durability,
    DurabilityLost,
    ExcerptBatch,
    Queue,
    QueueDamaged,
    QueueError,
)
from cqrepl.queue.files import syncedmark
from cqrepl.queue.files.chroniclemarks import OWN_SYNCED_KEY, SYNCED_KEY
from cqrepl.queue.files.listing import Listing
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.storefile import StoreFile
from cqrepl.queue.files.syncedmark import load_synced, store_synced
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.write.groupcommit import Pending
from tests.support.samples import (
    NOON_MS,
    check_marks,
    fill,
    layout,
    noon_index,
    noon_path,
    read,
)
from tests.support.tables import keys_of, set_word


def synced(path: Path, name: str = "FAST_DAILY") -> Queue:
    return Queue.open(path, create=layout(name), durability=Durability.SYNCED)


# ---------------------------------------------------------------- after a power cut


def restarted(path: Path) -> None:
    """Makes it look as if the machine was started since the queue was written."""
    set_word(path, "cqrepl.boot", 1)


@pytest.mark.parametrize("nth", [0, 5, 18, 19])
def test_marks_ahead_of_the_documents_are_damage_unless_the_machine_was_restarted(
    path: Path, nth: int
) -> None:
    """A power cut took the page with one excerpt, and left the marks and the pages behind."""
    name = "TEST_DAILY"
    written = fill(path, name, {0: 20})
    file = noon_path(path, name)
    store = StoreFile.open(file, 0, writable=True)
    assert store is not None
    at = store.find(0).offsets[nth] - 4
    store.mapping.data[at : at + 8] = bytes(8)
    store.close()
    if nth >= 18:  # an appender does not look further back, as all of that was there before
        with Queue.open(path) as queue, pytest.raises(QueueDamaged, match="documents end before"):
            queue.append(b"x", now_ms=NOON_MS)
    restarted(path)
    before = file.read_bytes()
    with Queue.open(path) as queue:
        assert queue.append(b"new", now_ms=NOON_MS) == noon_index(name, sequence=nth)
    assert read(path) == [*written[:nth], (noon_index(name, sequence=nth), b"new")]
    check_marks(path, holes=True)
    [kept] = path.glob("*.discard")
    aside, page = kept.read_bytes(), at // 4096 * 4096
    assert aside[page:] == before[page:]
    assert not any(aside[:page])


def test_an_index_page_that_was_lost_is_made_again(path: Path) -> None:
    """The third page is there no more, and nothing behind it: its excerpts are found by walking."""
    name = "TEST_DAILY"  # a page for 8 excerpts
    written = fill(path, name, {0: 20})
    store = StoreFile.open(noon_path(path, name), 0, writable=True)
    assert store is not None
    at = store.mapping.data.tobytes().rindex(b"\xb9\x05index")
    store.mapping.data[at : at + 24] = bytes(24)  # name, capacity and `used`; the length is right
    store.close()
    restarted(path)
    with Queue.open(path) as queue:
        for nth in range(20, 30):
            assert queue.append(b"new", now_ms=NOON_MS) == noon_index(name, sequence=nth)
    assert read(path)[:20] == written
    for nth in range(30):
        assert read(path, noon_index(name, sequence=nth))[0][0] == noon_index(name, sequence=nth)
    assert not list(path.glob("*.discard"))


def test_a_document_behind_the_end_of_the_file_is_given_up(path: Path) -> None:
    """The file's new size was lost, and the header word of what made it grow was not."""
    written = fill(path, "FAST_DAILY", {0: 5})
    file = noon_path(path)
    store = StoreFile.open(file, 0, writable=True)
    assert store is not None
    at = store.find(0).offsets[3] - 4
    store.mapping.words.store_4(at, 1 << 29)
    store.close()
    with Queue.open(path) as queue, pytest.raises(QueueDamaged, match="within the file's"):
        queue.append(b"x", now_ms=NOON_MS)
    restarted(path)
    with Queue.open(path) as queue:
        queue.append(b"new", now_ms=NOON_MS)
    assert read(path) == [*written[:3], (noon_index(sequence=3), b"new")]
    check_marks(path)
    assert len(list(path.glob("*.discard"))) == 1


def test_what_was_synced_is_never_given_up(path: Path) -> None:
    with synced(path) as queue:
        queue.append_many([b"a", b"b", b"c"], now_ms=NOON_MS)
    store = StoreFile.open(noon_path(path), 0, writable=True)
    assert store is not None
    at = store.find(0, count_max=2).offsets[1] - 4
    store.mapping.data[at : at + 4] = bytes(4)
    store.close()
    restarted(path)
    with Queue.open(path) as queue, pytest.raises(QueueDamaged, match="with 1 excerpts"):
        queue.append(b"x", now_ms=NOON_MS)


# ---------------------------------------------------------------- what is synced, and when


class Calls:
    """The names of the files and directories that are synced, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made: list[str] = []
        self.fails_at = -1
        for name in ("fsync", "fdatasync"):
            self._watch(name, monkeypatch)

    def _watch(self, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
        sync = getattr(os, name)

        def noted(descriptor: int) -> None:
            self.made.append(Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
            if self.fails_at == len(self.made):
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            sync(descriptor)

        monkeypatch.setattr(os, name, noted)


def test_new_files_their_names_and_the_marks_that_close_old_ones_are_synced(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = noon_path(path).name, noon_path(path, ahead=1).name
    table = "metadata.cq4t"
    unfinished = [f"{name[:-4]}.precreated.{os.getpid()}" for name in (first, second)]
    with synced(path) as queue:
        calls = Calls(monkeypatch)
        appender = queue.appender()
        appender.append([b"a"], NOON_MS)
        # names, the new file's image and what opening it looked at, its name, run
        made = [name for name in calls.made if name != table]
        assert made[:2] == ["queue", path.parent.name]
        assert made[2:] == [unfinished[0], first, "queue", first, first]
        calls.made.clear()
        appender.append([b"b"], NOON_MS)
        assert calls.made == [first, first]
        calls.made.clear()
        appender.append([b"c"], NOON_MS + 86_400_000)
        assert [name for name in calls.made if name != table] == [
            unfinished[1], second, "queue", first, second, second,
        ]  # fmt: skip
        assert calls.made.index(table) == calls.made.index("queue") + 1
    assert keys_of(path)[SYNCED_KEY.lower()] == noon_index(ahead=1)


def test_what_java_calls_synced_is_not_believed(path: Path) -> None:
    """Java raises that mark for what it has only passed to the system."""
    last = noon_index(sequence=2)
    with synced(path) as queue:
        for _ in range(3):
            queue.append(b"a", now_ms=NOON_MS)
    set_word(path, SYNCED_KEY, last + 100)
    table = TableStore(path / FILE_NAME, writable=True)
    assert Listing(table).synced() == last
    table.close()
    set_word(path, OWN_SYNCED_KEY, -1)
    table = TableStore(path / FILE_NAME, writable=True)
    assert Listing(table).synced() == -1
    table.close()


def test_without_a_promise_nothing_is_synced(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with Queue.open(path, create=layout()) as queue:
        queue.append(b"a", now_ms=NOON_MS)
        calls = Calls(monkeypatch)
        queue.append(b"b", now_ms=NOON_MS)
        assert calls.made == []
    assert keys_of(path)[SYNCED_KEY.lower()] == -1


def test_what_others_left_unsynced_is_synced_with_ours(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = 86_400_000
    with synced(path) as queue, Queue.open(path) as other:
        queue.append(b"a", now_ms=NOON_MS)
        for ahead in (0, 1, 2, 3):
            other.append(b"b", now_ms=NOON_MS + ahead * day)
        calls = Calls(monkeypatch)
        queue.append(b"c", now_ms=NOON_MS)
        files = {noon_path(path, ahead=ahead).name for ahead in range(4)}
        assert files <= set(calls.made)
    assert len(read(path)) == 6


# ---------------------------------------------------------------- failed syncs


@pytest.mark.parametrize("nth", [1, 2])
def test_a_failed_sync_is_final_for_the_queue(
    path: Path, monkeypatch: pytest.MonkeyPatch, nth: int
) -> None:
    """The first of an append comes before its excerpt can be seen, the second after."""
    with synced(path) as queue:
        queue.append(b"a", now_ms=NOON_MS)
        appender, other = queue.appender(), queue.appender()
        calls = Calls(monkeypatch)
        calls.fails_at = nth
        with pytest.raises(DurabilityLost, match=r"the sync failed: EIO") as lost:
            appender.append([b"b"], NOON_MS)
        assert lost.value.path == noon_path(path)
        assert isinstance(lost.value.__cause__, OSError)
        assert len(read(path)) == nth
        for each in (appender, other):
            with pytest.raises(DurabilityLost):
                each.append([b"c"], NOON_MS)
            with pytest.raises(DurabilityLost):
                each.append_at(ExcerptBatch.of(noon_index(sequence=nth), [b"c"]))
        with pytest.raises(DurabilityLost):
            queue.append(b"c", now_ms=NOON_MS)
        with pytest.raises(DurabilityLost):
            queue.appender()
        assert len(calls.made) == nth  # nothing was tried again
        assert len(read(path)) == nth
    with Queue.open(path) as queue:  # the write lock was given back
        queue.append(b"d", now_ms=NOON_MS)


def test_a_directory_that_cannot_be_synced_is_the_same(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with synced(path) as queue:
        Calls(monkeypatch).fails_at = 1
        for _ in range(2):
            with pytest.raises(DurabilityLost) as lost:
                queue.append(b"a", now_ms=NOON_MS)
            assert lost.value.path == path
    assert not list(path.glob("*.cq4"))


def test_a_failed_sync_is_final_for_the_next_process(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The system tells it nothing: the synced mark does, before the machine is started again."""
    with synced(path) as queue:
        queue.append_many([b"a", b"b"], now_ms=NOON_MS)
        with monkeypatch.context() as failing:
            Calls(failing).fails_at = 1
            with pytest.raises(DurabilityLost):
                queue.append(b"c", now_ms=NOON_MS)
    mark = load_synced(path)
    assert mark is not None
    assert (mark.end, mark.has_failed) == (noon_index(sequence=2), True)
    with synced(path) as queue:
        for _ in range(2):
            with pytest.raises(DurabilityLost, match="started again"):
                queue.append(b"c", now_ms=NOON_MS)
    monkeypatch.setattr(syncedmark, "this_boot", lambda: bytes(16))
    with synced(path) as queue:
        assert queue.append(b"c", now_ms=NOON_MS) == noon_index(sequence=2)


def test_what_a_failed_sync_leaves_of_a_mark(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The mark keeps its end and its doubtful range: both were true of the disk."""
    doubtful = range(noon_index(sequence=1), noon_index(sequence=2))
    with synced(path) as queue:
        queue.append_many([b"a", b"b", b"c"], now_ms=NOON_MS)
        store_synced(path, noon_index(sequence=2), doubtful)
        Calls(monkeypatch).fails_at = 2
        with pytest.raises(DurabilityLost):
            queue.append(b"d", now_ms=NOON_MS)
    mark = load_synced(path)
    assert mark is not None
    assert (mark.end, mark.has_failed, mark.doubtful) == (noon_index(sequence=2), True, doubtful)
    with pytest.raises(DurabilityLost, match="started again"):
        store_synced(path, noon_index(sequence=4))
    assert load_synced(path) == mark
    store_synced(path, noon_index(sequence=1), boot=mark.boot)
    mark = load_synced(path)
    assert mark is not None
    assert (mark.end, mark.has_failed) == (noon_index(sequence=1), True)


def test_a_directory_that_is_not_opened_is_no_failed_sync(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A directory that cannot be opened takes nothing from the files."""

    def none_left(directory: Path) -> None:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), str(directory))

    with synced(path) as queue, monkeypatch.context() as failing:
        failing.setattr(Mapping, "sync_directory", none_left)
        with pytest.raises(DurabilityLost):
            queue.append(b"a", now_ms=NOON_MS)
    assert load_synced(path) is None
    with synced(path) as queue:
        queue.append(b"a", now_ms=NOON_MS)


# ---------------------------------------------------------------- group commit


class Gate:
    """Holds back the first sync from when it is armed until it is opened."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_armed = False
        self.syncs = 0
        self.reached, self.opened = threading.Event(), threading.Event()
        self.error: OSError | None = None
        sync = Mapping.sync

        def gated(mapping: Mapping, start: int, end: int) -> None:
            self.syncs += 1
            if self.is_armed:
                self.is_armed = False
                self.reached.set()
                assert self.opened.wait(60)
                if self.error is not None:
                    raise self.error
            sync(mapping, start, end)

        monkeypatch.setattr(Mapping, "sync", gated)


class Waiting(list[Pending]):
    """Stands for the callers that wait for a sync; tells when so many do."""

    def __init__(self, queue: Queue) -> None:
        super().__init__()
        self._changed = threading.Condition()
        commits = queue._commits
        assert commits is not None
        assert commits._is_led
        commits._waiting = self

    def append(self, pending: Pending) -> None:
        with self._changed:
            super().append(pending)
            self._changed.notify_all()

    def are(self, count: int) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: len(self) == count, 60)


def start_all(works: list[Callable[[], None]]) -> list[threading.Thread]:
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    return threads


def test_callers_that_wait_for_a_sync_share_the_next_ones(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found: dict[int, bytes] = {}
    with synced(path) as queue:
        gate = Gate(monkeypatch)

        found[queue.append(b"a", now_ms=NOON_MS)] = b"a"
        appenders = [queue.appender() for _ in range(12)]
        gate.is_armed = True
        syncs = gate.syncs

        def work_with(nth: int) -> None:
            last = appenders[nth].append([b"<%d" % nth, b"%d>" % nth], NOON_MS)
            found[last - 1], found[last] = b"<%d" % nth, b"%d>" % nth
            assert appenders[nth].next_index > last

        first = start_all([partial(work_with, 0)])
        assert gate.reached.wait(60)
        waiting = Waiting(queue)
        rest = start_all([partial(work_with, nth) for nth in range(1, 12)])
        waiting.are(11)
        gate.opened.set()
        for thread in (*first, *rest):
            thread.join()
        assert gate.syncs - syncs == 4
    assert read(path) == [(index, data or b"\x8f") for index, data in sorted(found.items())]
    check_marks(path)


def test_in_a_group_each_is_refused_for_itself(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One is too long, and one is for a later cycle."""
    name = "TEST_DAILY"
    ended: dict[str, object] = {}
    with Queue.open(
        path, create=layout(name), durability=Durability.SYNCED, block_bytes=1
    ) as queue:
        gate = Gate(monkeypatch)
        works = {
            "first": ([b"a"], 0), "long": ([bytes(4097)], 0), "good": ([b"b"] * 60, 0),
            "full": ([b"c"] * 4, 0), "later": ([b"d"] * 3, 1),
        }  # fmt: skip
        appenders = {key: queue.appender() for key in works}

        def work(key: str) -> None:
            data, days = works[key]
            try:
                ended[key] = appenders[key].append(data, NOON_MS + days * 86_400_000)
            except QueueError as error:
                ended[key] = str(error)

        gate.is_armed = True
        threads = start_all([partial(work, "first")])
        assert gate.reached.wait(60)
        waiting = Waiting(queue)
        for count, key in enumerate(["long", "good", "full", "later"], 1):
            threads += start_all([partial(work, key)])
            waiting.are(count)
        gate.opened.set()
        for thread in threads:
            thread.join()
    assert ended["first"] == noon_index(name)
    assert "has 4097 bytes, expected at most 4096" in str(ended["long"])
    assert ended["good"] == noon_index(name, sequence=60)
    assert "expected at most 64 excerpts in a cycle, there are 61 and 4 more" in str(ended["full"])
    assert ended["later"] == noon_index(name, ahead=1, sequence=2)
    assert len(read(path)) == 64


def test_waiting_callers_get_the_failure(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    failures = []
    with synced(path) as queue:
        queue.append(b"a", now_ms=NOON_MS)
        appenders = [queue.appender() for _ in range(4)]
        gate = Gate(monkeypatch)
        gate.error = OSError(errno.EIO, os.strerror(errno.EIO))

        def work(nth: int) -> None:
            try:
                appenders[nth].append([b"%d" % nth], NOON_MS)
            except DurabilityLost as error:
                failures.append(error)

        gate.is_armed = True
        threads = start_all([partial(work, 0)])
        assert gate.reached.wait(60)
        waiting = Waiting(queue)
        threads += start_all([partial(work, nth) for nth in (1, 2, 3)])
        waiting.are(3)
        gate.opened.set()
        for thread in threads:
            thread.join()
    assert len(failures) == 4
    assert len(read(path)) == 1
