import os
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from cqrepl.protocol import PAYLOAD_MAX
from cqrepl.queue import (
    Appender,
    Diverged,
    Durability,
    ExcerptBatch,
    ExcerptTooLarge,
    IndexGap,
    Queue,
    QueueDamaged,
    QueueError,
    QueueLocked,
)
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.storefile import StoreFile
from cqrepl.queue.format.block import BLOCK_BYTES, longest_payload
from cqrepl.queue.format.storeimage import store_image
from cqrepl.queue.read.tailer import PAYLOAD_MAX as TAILER_PAYLOAD_MAX
from cqrepl.queue.write import appender as appender_module
from cqrepl.surroundings import Surroundings
from tests.support.samples import (
    NOON_MS,
    check_marks,
    fill,
    layout,
    noon_index,
    noon_path,
    payloads,
    read,
)

ONE_BEFORE = 1  # a process id that is alive and not ours: the first process


def batch(ahead: int, sequence: int, *data: bytes) -> ExcerptBatch:
    return ExcerptBatch.of(noon_index(ahead=ahead, sequence=sequence), data)


def snapshot(path: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in path.glob("*.cq4")}


# ---------------------------------------------------------------- index-exact


@pytest.mark.parametrize("name", ["TEST_DAILY", "TEST2_DAILY", "TEST4_SECONDLY", "MINUTELY"])
@pytest.mark.parametrize("per_batch", [1, 3, 64])
def test_index_pages_and_marks_are_right(path: Path, name: str, per_batch: int) -> None:
    written = fill(path, name, {0: 64, 1: 0, 2: 63, 7: 1}, per_batch=per_batch)
    assert read(path) == written
    check_marks(path)


def test_a_gap_changes_nothing(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        before = snapshot(path)
        for ahead, sequence in [(0, 4), (0, 2), (0, 0), (-1, 0), (-1, 3), (2, 1), (1, 3)]:
            with pytest.raises(IndexGap) as gap:
                appender.append_at(batch(ahead, sequence, b"no"))
            assert gap.value.expected == noon_index(sequence=3)
            assert gap.value.found == noon_index(ahead=ahead, sequence=sequence)
        assert snapshot(path) == before
        appender.append_at(batch(0, 3, b"yes"))


def test_going_up_closes_the_file_that_is_left(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        appender.append_at(batch(0, 0, b"a"))
        appender.append_at(batch(3, 0, b"b"))
        assert appender.next_index == noon_index(ahead=3, sequence=1)
        with pytest.raises(IndexGap):
            appender.append_at(batch(0, 1, b"late"))
    store = StoreFile.open(noon_path(path), 0, writable=False)
    assert store is not None
    assert store.has_end_mark()
    end = bytes(store.mapping.data).rstrip(b"\0")[-8:]
    store.close()
    assert end == b"\0\0\0\xc0\xc3EOF"


def test_a_closed_last_cycle_takes_no_more(path: Path) -> None:
    """Golden eof_in_last: the queue rolled, and the newer file was removed."""
    fill(path, "FAST_DAILY", {0: 2, 1: 1})
    noon_path(path, ahead=1).unlink()
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        assert appender.next_index == noon_index(sequence=2)
        with pytest.raises(IndexGap) as gap:
            appender.append_at(batch(0, 2, b"no"))
        assert gap.value.expected == noon_index(ahead=1)
        assert appender.append([b"x"], NOON_MS) == noon_index(ahead=1)


def test_an_empty_file_above_is_used_or_closed(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append_at(batch(0, 0, b"a"))
        for ahead in (2, 4, 6):
            noon_path(path, ahead=ahead).write_bytes(store_image(4096, 256))
        appender = queue.appender()
        assert appender.next_index == noon_index(sequence=1)
        appender.append_at(batch(4, 0, b"b"))
        assert read(path) == [(noon_index(), b"a"), (noon_index(ahead=4), b"b")]
        # the plain append goes to the empty file above, never below it
        assert appender.append([b"c"], NOON_MS) == noon_index(ahead=6)


def test_a_full_cycle_is_refused_before_anything_is_written(path: Path) -> None:
    name = "TEST_DAILY"  # 64 excerpts a cycle
    fill(path, name, {0: 60})
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        before = snapshot(path)
        with pytest.raises(QueueError, match="at most 64 excerpts"):
            appender.append_at(ExcerptBatch.of(noon_index(name, sequence=60), payloads(5)))
        assert snapshot(path) == before
        appender.append_at(ExcerptBatch.of(noon_index(name, sequence=60), payloads(4)))
        with pytest.raises(QueueError, match="at most 64 excerpts"):
            appender.append([b"x"], NOON_MS)
        before = snapshot(path)
        for count in (65, 200):  # nor is a cycle begun
            with pytest.raises(QueueError, match=f"there are 0 and {count} more"):
                appender.append_at(ExcerptBatch.of(noon_index(name, ahead=1), payloads(count)))
        assert snapshot(path) == before
        appender.append_at(ExcerptBatch.of(noon_index(name, ahead=1), payloads(4)))
    check_marks(path)


def allocated(path: Path) -> int:
    """Bytes of the first cycle's file that are no hole."""
    return noon_path(path).stat().st_blocks * 512


def test_space_is_reserved_ahead(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        small, large = batch(0, 0, b"x"), batch(0, 1, bytes(3 << 20))
        assert appender.space_needed(small)
        appender.reserve(small)
        assert not appender.space_needed(small)
        assert read(path) == []
        size = allocated(path)
        appender.append_at(small)
        assert allocated(path) == size
        assert appender.space_needed(large)
        assert not appender.append_soon(large)
        assert appender.append_soon(batch(0, 1, b"y"))
        large = batch(0, 2, bytes(3 << 20))
        appender.append_at(large)
        assert allocated(path) >= size + (4 << 20)
        assert appender.space_needed(batch(1, 0, b"x"))
        with pytest.raises(IndexGap):
            appender.reserve(batch(1, 1, b"x"))
        appender.reserve(batch(1, 0, b"x"))
        assert appender.append_soon(batch(1, 0, b"x"))
        assert appender.next_index == noon_index(ahead=1, sequence=1)


# ---------------------------------------------------------------- the longest excerpt


@pytest.mark.parametrize(
    ("block_bytes", "index_count", "longest"),
    [
        (1, 8, 4096),  # a page at least
        (5000, 8, 5000),
        (65_535, 8, 65_535),
        (65_536, 8, 65_536),
        (262_143, 8, 65_536),
        (262_144, 8, 65_536),
        (1 << 20, 4096, 262_144),
        (1, 4096, 65_536),  # 32 * 4096 bytes at least
        (1, 32_768, 262_144),
        (BLOCK_BYTES, 4096, 16 << 20),
        (100_000_000, 4096, 25_000_000),
        (1 << 40, 4096, (1 << 30) - 1),  # what a header word can say
    ],
)
def test_the_longest_excerpt_follows_from_the_block(
    block_bytes: int, index_count: int, longest: int
) -> None:
    assert longest_payload(block_bytes, index_count) == longest


def test_a_longer_excerpt_is_refused_before_anything_is_written(path: Path) -> None:
    with Queue.open(path, create=layout(), block_bytes=262_144) as queue:
        appender = queue.appender()
        assert appender.payload_max == 65_536
        appender.append([b"a", bytes(65_536)], NOON_MS)
        before = snapshot(path)
        for ahead, sequence in ((0, 2), (1, 0)):
            long = batch(ahead, sequence, b"b", bytes(65_537), b"c")
            for call in (appender.append_at, appender.reserve):
                with pytest.raises(ExcerptTooLarge) as error:
                    call(long)
                index = noon_index(ahead=ahead, sequence=sequence + 1)
                assert error.value.index == index
                assert (error.value.length, error.value.limit) == (65_537, 65_536)
        with pytest.raises(ExcerptTooLarge) as error:
            appender.append([b"b", bytes(65_537)], NOON_MS)
        assert error.value.index == noon_index(sequence=3)
        with pytest.raises(ExcerptTooLarge):
            queue.append(bytes(65_537), now_ms=NOON_MS + 86_400_000)
        assert snapshot(path) == before
        # where the caller has a limit of its own
        queue.appender(payload_max=65_537).append_at(batch(0, 2, bytes(65_537)))
    assert [len(data) for _, data in read(path)] == [1, 65_536, 65_537]


def test_the_usual_limit_is_that_of_a_connection() -> None:
    assert longest_payload(BLOCK_BYTES, 4096) == PAYLOAD_MAX == TAILER_PAYLOAD_MAX


# ---------------------------------------------------------------- older files


def opened_files(path: Path, monkeypatch: pytest.MonkeyPatch, now_ms: int) -> list[str]:
    """The store files that a new appender looks at when it appends."""
    opened: list[str] = []
    init = Mapping.__init__

    def noted(mapping: Mapping, path: Path, *, writable: bool) -> None:
        if path.suffix == ".cq4":
            opened.append(path.name)
        init(mapping, path, writable=writable)

    with Queue.open_for_append(path) as queue, monkeypatch.context() as patch:
        patch.setattr(Mapping, "__init__", noted)
        queue.appender().append([b"x"], now_ms)
    return opened


def test_an_appender_looks_at_each_older_file_once(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    day = 86_400_000
    fill(path, "FAST_DAILY", dict.fromkeys(range(12), 2))
    last_ms = NOON_MS + 11 * day
    assert opened_files(path, monkeypatch, last_ms) == [noon_path(path, ahead=11).name]
    rolled = opened_files(path, monkeypatch, last_ms + day)
    assert set(rolled) == {noon_path(path, ahead=ahead).name for ahead in (11, 12)}
    # a cycle that was filled in later, as only Java does it: without an end-of-file mark
    other = path.with_name("other")
    fill(other, "FAST_DAILY", {-3: 2})
    noon_path(other, ahead=-3).rename(noon_path(path, ahead=-3))
    assert noon_path(path, ahead=-3).name in opened_files(path, monkeypatch, last_ms)
    assert len(read(path)) == 2 + 24 + 3
    last = [noon_path(path, ahead=12).name]
    assert opened_files(path, monkeypatch, last_ms) == last
    # one that is removed
    noon_path(path, ahead=-3).unlink()
    assert len(opened_files(path, monkeypatch, last_ms)) > 12
    assert opened_files(path, monkeypatch, last_ms) == last


def test_after_a_restart_of_the_machine_all_files_are_looked_at_again(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut may have taken an end-of-file mark."""
    fill(path, "FAST_DAILY", dict.fromkeys(range(4), 2))
    file = noon_path(path, ahead=1)
    raw = file.read_bytes()
    file.write_bytes(raw.replace(b"\0\0\0\xc0\xc3EOF", bytes(8)))
    assert len(read(path)) == 4
    opened_files(path, monkeypatch, 0)
    assert len(read(path)) == 4
    monkeypatch.setattr(Surroundings, "boot_id", lambda _: b"another start")
    opened_files(path, monkeypatch, 0)
    assert len(read(path)) == 8 + 2
    check_marks(path)
    assert opened_files(path, monkeypatch, 0) == [noon_path(path, ahead=3).name]
    monkeypatch.setattr(Surroundings, "boot_id", lambda _: b"")
    assert len(opened_files(path, monkeypatch, 0)) > 3


# ---------------------------------------------------------------- plain append


def test_nothing_to_append_is_refused(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue, pytest.raises(ValueError):
        queue.appender().append([], NOON_MS)


def test_plain_append_follows_the_clock_but_never_back(path: Path) -> None:
    day = 86_400_000
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        assert appender.append([b"a", b"b"], NOON_MS) == noon_index(sequence=1)
        assert appender.append([b"c"], NOON_MS + 2 * day) == noon_index(ahead=2)
        assert appender.append([b"d"], NOON_MS) == noon_index(ahead=2, sequence=1)
        assert appender.append([b"e"], 0) == noon_index(ahead=2, sequence=2)
    assert [data for _, data in read(path)] == [b"a", b"b", b"c", b"d", b"e"]


def moved_away(file: Path) -> None:
    file.rename(file.with_suffix(".old"))


def replaced(file: Path) -> None:
    moved_away(file)
    shutil.copy(file.with_suffix(".old"), file)


def written_over(file: Path) -> None:
    """An older one, with two excerpts, is copied into this file."""
    file.write_bytes(file.with_suffix(".older").read_bytes())


@pytest.mark.parametrize("durability", list(Durability))
def test_a_file_that_an_older_one_was_written_over_is_not_written_on(
    path: Path, durability: Durability, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The appender refuses the file. Otherwise excerpts that were acknowledged in it would be
    appended once more, behind a hole."""
    monkeypatch.setattr(appender_module, "LOOK_MS", 0)
    with Queue.open(path, create=layout(), durability=durability) as queue:
        for payload in (b"one", b"two"):
            queue.append(payload, now_ms=NOON_MS)
        [file] = path.glob("*.cq4")
        shutil.copy(file, file.with_suffix(".older"))
        queue.append(b"three", now_ms=NOON_MS)
        written_over(file)
        before = file.read_bytes()
        for _ in range(2):
            with pytest.raises(QueueDamaged, match="another file was written over this one"):
                queue.append(b"behind", now_ms=NOON_MS)
        assert file.read_bytes() == before
    assert [data for _, data in read(path)] == [b"one", b"two"]


def test_the_clock_that_is_given_says_when_to_look(path: Path) -> None:
    """The name of the file, and what is in it, are looked at as its time goes."""
    with Queue.open(path, create=layout("FAST_DAILY")) as queue:
        queue.append(b"before", now_ms=NOON_MS)
        [file] = path.glob("*.cq4")
        moved_away(file)
        with pytest.raises(QueueDamaged, match="expected the file that is open here"):
            queue.append(b"behind", now_ms=NOON_MS + appender_module.LOOK_MS)


@pytest.mark.parametrize("change", [moved_away, replaced])
@pytest.mark.parametrize("durability", list(Durability))
def test_a_file_that_has_lost_its_name_is_not_written_on(
    path: Path,
    change: Callable[[Path], None],
    durability: Durability,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The appender refuses the file even if it has another name, and so was not removed. It finds
    that when its clock says so, while nothing else has it look."""
    monkeypatch.setattr(appender_module, "LOOK_MS", 0)
    with Queue.open(path, create=layout(), durability=durability) as queue:
        for _ in range(3):
            last = queue.append(b"before")
        [file] = path.glob("*.cq4")
        change(file)
        for _ in range(2):
            with pytest.raises(QueueDamaged, match="expected the file that is open here"):
                queue.append(b"behind")
        found = [index for index, _ in read(path)]
        assert found == ([] if change is moved_away else [last - 2, last - 1, last])


def test_a_queue_that_is_moved_as_a_whole_is_written_on(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The appender goes on until its next store file is due."""
    monkeypatch.setattr(appender_module, "LOOK_MS", 0)
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.append(b"before")
        path.rename(path.with_name("elsewhere"))
        queue.append(b"behind")
    assert [data for _, data in read(path.with_name("elsewhere"))] == [b"before", b"behind"]


def test_two_appenders_take_turns(path: Path) -> None:
    day = 86_400_000
    with (
        Queue.open_for_append(path, create=layout()) as one,
        Queue.open_for_append(path, create=layout()) as other,
    ):
        appenders = [one.appender(), other.appender()]
        for i in range(40):
            appenders[i * 7 % 3 % 2].append([b"%d" % i], NOON_MS + i // 6 * day)
        appenders[0].append([b"40"], NOON_MS)
    assert [data for _, data in read(path)] == [b"%d" % i for i in range(41)]
    check_marks(path)


# ---------------------------------------------------------------- compare


def test_compare_passes_what_is_there(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 200, 3: 80})
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        appender.compare(ExcerptBatch.of(noon_index(), payloads(200, seed=1)))
        appender.compare(ExcerptBatch.of(noon_index(sequence=50), payloads(200, seed=1)[50:60]))
        appender.compare(ExcerptBatch.of(noon_index(sequence=60), payloads(200, seed=1)[60:]))
        appender.compare(ExcerptBatch.of(noon_index(ahead=3), payloads(80, seed=4)))


def test_other_bytes_are_diverged_and_named(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 20})
    data = payloads(20, seed=1)
    data[13] = data[13] + b"x"
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        with pytest.raises(Diverged) as diverged:
            appender.compare(ExcerptBatch.of(noon_index(), data))
        assert diverged.value.index == noon_index(sequence=13)
        assert diverged.value.stored != diverged.value.received
        assert diverged.value.received in str(diverged.value)


def test_an_empty_excerpt_equals_its_stored_form(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        appender.append([b"", b"\x8f"], NOON_MS)
        appender.compare(batch(0, 0, b"", b""))
        appender.compare(batch(0, 0, b"\x8f", b"\x8f"))
        with pytest.raises(Diverged):
            appender.compare(batch(0, 0, b"\x8e"))


@pytest.mark.parametrize(("ahead", "sequence"), [(0, 19), (0, 20), (0, 25), (1, 0), (-1, 0)])
def test_comparing_what_is_not_there_is_a_gap(path: Path, ahead: int, sequence: int) -> None:
    fill(path, "FAST_DAILY", {0: 20})
    with Queue.open_for_append(path) as queue, pytest.raises(IndexGap):
        queue.appender().compare(
            ExcerptBatch.of(
                noon_index(ahead=ahead, sequence=sequence), [*payloads(20, seed=1)[19:], b"new"]
            )
        )


# ---------------------------------------------------------------- locks


def hold(queue: Queue, lock_name: str, pid: int) -> None:
    queue._for_writing().table.value(f"chronicle.{lock_name}.lock", 0).store(pid)


def test_a_foreign_append_lock_refuses(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        hold(queue, "append", ONE_BEFORE)
        with pytest.raises(QueueLocked) as locked:
            appender.append([b"x"], NOON_MS)
        assert locked.value.holder == ONE_BEFORE
        with pytest.raises(QueueLocked):
            appender.append_at(batch(0, 0, b"x"))
        with pytest.raises(QueueLocked), appender.exclusive(0.0):
            pass
        hold(queue, "append", os.getpid())
        appender.append([b"x"], NOON_MS)


def test_a_foreign_write_lock_is_waited_for_and_never_robbed(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(appender_module, "WRITE_LOCK_TIMEOUT_S", 0.02)
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        hold(queue, "write", ONE_BEFORE)
        with pytest.raises(QueueLocked):
            appender.append([b"x"], NOON_MS)
        write_lock = queue._for_writing().write_lock
        assert write_lock.holder() == ONE_BEFORE
        hold(queue, "write", 0x1234_5678_0000_0000 + 999_999_999)  # thread id above a dead process
        appender.append([b"x"], NOON_MS)
        assert write_lock.holder() is None


def test_exclusive_keeps_other_writers_out_and_knows_the_end(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second writer is a thread here, and a process in the interop tests."""
    monkeypatch.setattr(appender_module, "WRITE_LOCK_TIMEOUT_S", 0.02)
    with (
        Queue.open_for_append(path, create=layout()) as queue,
        Queue.open_for_append(path) as other,
    ):
        appender, rival = queue.appender(), other.appender()
        rival.append([b"a"], NOON_MS)
        with appender.exclusive(1.0):
            assert appender.next_index == noon_index(sequence=1)
            assert queue.append_lock.is_held
            refused: list[str] = []
            thread = threading.Thread(target=_append_in_vain, args=(rival, refused))
            thread.start()
            appender.append_at(batch(0, 1, b"b"))
            thread.join()
            appender.append_at(batch(1, 0, b"c"))
        assert len(refused) == 1
        assert queue.append_lock.holder() is None
        rival.append([b"d"], NOON_MS)
    assert [data for _, data in read(path)] == [b"a", b"b", b"c", b"d"]
    check_marks(path)


def _append_in_vain(rival: Appender, refused: list[str]) -> None:
    try:
        rival.append([b"never"], NOON_MS)
    except QueueLocked as error:
        refused.append(str(error))


def test_a_sink_that_holds_the_append_lock_keeps_it_through_exclusive(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.append_lock.acquire()
        appender = queue.appender()
        with appender.exclusive(0.0):
            appender.append([b"a"], NOON_MS)
        assert queue.append_lock.is_held
        assert queue.append_lock.holder() == os.getpid()
    with Queue.open_for_append(path) as queue:
        assert queue.append_lock.holder() is None
