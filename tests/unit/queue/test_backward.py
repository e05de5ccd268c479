"""Reading backwards, counting, and the ends of a queue, on golden and on made queues."""

from pathlib import Path

import pytest

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.cycles import Cycles
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.storefile import Place, StoreFile, Walked
from cqrepl.queue.format.storeimage import ARRAY_HEAD_BYTES
from cqrepl.queue.read import count as counting
from cqrepl.queue.read.backward import BackwardTailer
from tests.support.goldens import manifest, unpack
from tests.support.reading import cycles_of, down_of
from tests.support.samples import NOON_MS, digests, fill, noon_index, noon_path


def golden(name: str, tmp_path: Path) -> Cycles:
    path = unpack(name, tmp_path)
    found = manifest(name)
    return cycles_of(path, found.roll_cycle_name, found.epoch)


def test_cycles_of_a_second_have_great_indexes(path: Path) -> None:
    """From 2004 on they lie beyond half of what an index may be."""
    written = fill(path, "TEST4_SECONDLY", {0: 3, 4: 5})
    assert written[0][0] >= 1 << 62
    with Queue.open(path) as queue:
        assert queue.count() == queue.count(written[0][0]) == 8
        assert queue.count(written[2][0], written[4][0]) == 3
        assert digests(down_of(queue.backward()))[::-1] == digests(written)


def test_bounds_of_a_count_need_not_be_there(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3, 4: 5})
    cycles = cycles_of(path)
    for first, last, expected in [
        (noon_index(ahead=-3), noon_index(ahead=9), 8),
        (noon_index(sequence=2), noon_index(sequence=900), 1),
        (noon_index(sequence=3), noon_index(ahead=4, sequence=0), 1),
        (noon_index(ahead=1), noon_index(ahead=3, sequence=77), 0),
        (noon_index(ahead=4), noon_index(), 0),
        (-5, noon_index(), 1),
    ]:
        assert counting.count(cycles, first, last) == expected


def test_from_an_index_that_is_not_there(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 4: 2})
    cycles = cycles_of(path)
    for index, count in [
        (noon_index(sequence=77), 3),
        (noon_index(ahead=3, sequence=5), 3),
        (noon_index(ahead=4, sequence=5), 5),
        (noon_index(ahead=9), 5),
        (noon_index(ahead=-1, sequence=8), 0),
        (0, 0),
        (-1, 0),
    ]:
        assert down_of(BackwardTailer(cycles, index))[::-1] == written[:count]


def test_singles_and_batches_take_turns(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 300, 1: 300})
    tailer = BackwardTailer(cycles_of(path))
    found = [(one.index, bytes(one)) for _, one in zip(range(10), tailer, strict=False)]
    batch = tailer.next_batch(count_max=5)
    assert batch is not None
    found += reversed([(index, bytes(data)) for index, data in batch])
    found += [(one.index, bytes(one)) for one in tailer]
    assert found[::-1] == written
    assert tailer.next_excerpt() is None
    assert tailer.next_batch() is None
    tailer.close()


def test_what_is_appended_meanwhile_lies_above(path: Path) -> None:
    written = fill(path, "TEST4_SECONDLY", {0: 128})
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        tailer = BackwardTailer(cycles_of(path, "TEST4_SECONDLY"))
        assert tailer._enter_below()
        appender.append([b"more"] * 300, NOON_MS)  # an index page comes first
        assert down_of(tailer)[::-1] == written


def test_lower_files_that_go_meanwhile_end_it(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 1: 3, 2: 3})
    tailer = BackwardTailer(cycles_of(path))
    assert tailer.next_excerpt() is not None
    noon_path(path, ahead=0).unlink()
    noon_path(path, ahead=1).unlink()
    assert down_of(tailer)[::-1] == written[6:8]


def wrong_slots(path: Path, name: str, wrong: int | None) -> None:
    """Puts a number into every slot of the index but the first."""
    store = StoreFile.open(noon_path(path, name), 0, writable=True)
    assert store is not None
    array = Indexing(store).array_of(0)
    assert array is not None
    for slot in range(1, store.header.index_count):
        at = array + ARRAY_HEAD_BYTES + slot * 8
        if store.mapping.words.load_8(at):
            store.mapping.words.store_8(at, 0 if wrong is None else wrong)
    store.close()


@pytest.mark.parametrize("wrong", [None, 0x318 + 8, 3, 1 << 50, -8])
def test_a_wrong_index_costs_time_and_nothing_else(path: Path, wrong: int | None) -> None:
    written = fill(path, "SMALL_DAILY", {0: 5000}, per_batch=5000)
    wrong_slots(path, "SMALL_DAILY", wrong)
    cycles = cycles_of(path, "SMALL_DAILY")
    assert down_of(BackwardTailer(cycles))[::-1] == written
    assert counting.count(cycles, 0, 1 << 62) == 5000


def test_steps_and_counts_walk_runs_not_files(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end is found within two index spacings of excerpts, and each step down walks over one
    run."""
    fill(path, "FAST_DAILY", {0: 50_000}, per_batch=50_000)
    walked = 0
    walk = StoreFile.walk

    def counted(store: StoreFile, start: Place, sequence_max: int = 1 << 62) -> Walked:
        nonlocal walked
        found = walk(store, start, sequence_max)
        walked += found.place.sequence - start.sequence
        return found

    monkeypatch.setattr(StoreFile, "walk", counted)
    cycles = cycles_of(path)
    assert counting.count(cycles, 0, 1 << 62) == 50_000
    assert counting.last_index(cycles) == noon_index(sequence=49_999)
    assert walked <= 4 * 256
    walked = 0
    tailer = BackwardTailer(cycles)
    for _ in range(1000):
        assert tailer.next_excerpt() is not None
    tailer.close()
    assert walked <= 2 * 256


def test_an_empty_queue_has_no_ends(path: Path) -> None:
    fill(path, "FAST_DAILY", {})
    cycles = cycles_of(path)
    assert counting.first_index(cycles) is None
    assert counting.nth_last_index(cycles, 1) is None
    assert down_of(BackwardTailer(cycles)) == []


def test_files_that_are_not_ready_hold_nothing(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 2: 3})
    for ahead in (-1, 1, 3):
        noon_path(path, ahead=ahead).write_bytes(b"\0\0\0\x80" + bytes(4092))
    cycles = cycles_of(path)
    assert down_of(BackwardTailer(cycles))[::-1] == written
    assert counting.first_index(cycles) == written[0][0]
    assert counting.last_index(cycles) == written[-1][0]
    assert counting.count(cycles, 0, written[-1][0]) == 6


@pytest.mark.parametrize("word", [0, 0x3FFFFFFF, 4, 1])
def test_damage_below_is_reported_and_nothing_wrong_is_given(path: Path, word: int) -> None:
    """The file is written to while it is read."""
    written = fill(path, "SMALL_DAILY", {0: 3000}, per_batch=3000)
    with Queue.open(path) as queue:
        batch = queue.tailer().next_batch(count_max=900)
        assert batch is not None
        at = batch.offsets[700] - 4
    tailer = BackwardTailer(cycles_of(path, "SMALL_DAILY"))
    found = [(one.index, bytes(one)) for _, one in zip(range(1000), tailer, strict=False)]
    with noon_path(path, "SMALL_DAILY").open("r+b") as file:
        file.seek(at)
        file.write(word.to_bytes(4, "little"))
    with pytest.raises(QueueDamaged):
        found.extend((one.index, bytes(one)) for one in tailer)
    assert found[::-1] == written[-len(found) :]
    assert len(found) >= 2000
    tailer.close()
