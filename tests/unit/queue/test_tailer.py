from pathlib import Path

import pytest

from cqrepl.queue import (
    ExcerptBatch,
    ExcerptTooLarge,
    IndexGap,
    Queue,
    QueueDamaged,
    QueueError,
    Tailer,
)
from tests.support.reading import Clock, cycles_of
from tests.support.samples import (
    NOON_MS,
    fill,
    layout,
    noon_index,
    noon_path,
    read,
    rest_of,
)


def test_waits_at_the_end_and_goes_on_with_what_comes(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        tailer, appender = queue.tailer(), queue.appender()
        assert tailer.next_batch() is None
        assert tailer.next_index == 0
        tailer = queue.tailer()  # the directory is listed only every 100 ms
        for i in range(5):
            appender.append([b"%d" % i], NOON_MS)
            assert rest_of(tailer) == [(noon_index(sequence=i), b"%d" % i)]
            assert tailer.next_index == noon_index(sequence=i + 1)


def test_goes_over_skipped_cycles_and_empty_files(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 1: 2, 9: 4})
    assert read(path) == written
    assert read(path, noon_index(ahead=1)) == written[3:]
    assert read(path, noon_index(ahead=2)) == written[5:]
    assert read(path, noon_index(ahead=-9)) == written


def test_one_past_the_end_of_a_closed_cycle_is_the_next_cycle(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 4: 2})
    assert read(path, noon_index(sequence=3)) == written[3:]
    assert read(path, noon_index(ahead=4, sequence=2)) == []


@pytest.mark.parametrize(("ahead", "sequence", "found"), [(0, 4, (0, 3)), (1, 1, (4, 0))])
def test_an_index_that_is_not_reached_is_a_gap(
    path: Path, ahead: int, sequence: int, found: tuple[int, int]
) -> None:
    fill(path, "FAST_DAILY", {0: 3, 4: 2})
    wanted = noon_index(ahead=ahead, sequence=sequence)
    with Queue.open(path) as queue, pytest.raises(IndexGap) as gap:
        queue.tailer(wanted)
    assert gap.value.expected == wanted
    assert gap.value.found == noon_index(ahead=found[0], sequence=found[1])
    assert f"{wanted:#x}" in str(gap.value)


def test_in_an_empty_queue_only_a_first_sequence_can_be_waited_for(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        with pytest.raises(IndexGap) as gap:
            queue.tailer(noon_index(sequence=1))
        assert gap.value.found == 0
        tailer = queue.tailer(noon_index())
        assert tailer.next_index == noon_index()
        queue.appender().append([b"one"], NOON_MS)
        assert rest_of(tailer) == [(noon_index(), b"one")]


@pytest.mark.parametrize("index", [-1, -(1 << 40), 1 << 62])
def test_an_index_of_no_possible_cycle_is_refused(path: Path, index: int) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    with Queue.open(path) as queue, pytest.raises(QueueError, match="year 10000"):
        queue.tailer(index)


def test_the_directory_is_listed_at_most_every_100_ms(path: Path) -> None:
    """The next cycle is looked for by its name each time, without a listing."""
    fill(path, "FAST_DAILY", {0: 1})
    clock = Clock()
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        tailer = Tailer(cycles_of(path), noon_index(), clock)
        assert len(rest_of(tailer)) == 1
        appender.append_at(ExcerptBatch.of(noon_index(ahead=1), [b"next day"]))
        assert rest_of(tailer) == [(noon_index(ahead=1), b"next day")]
        (path / "elsewhere").mkdir()
        appender.append_at(ExcerptBatch.of(noon_index(ahead=5), [b"later"]))
        assert rest_of(tailer) == [(noon_index(ahead=5), b"later")]
        writer = appender._end.writer
        assert writer is not None
        writer.end()
        assert tailer.next_batch() is None  # lists, and finds nothing
        appender.append_at(ExcerptBatch.of(noon_index(ahead=9), [b"last"]))
        assert tailer.next_batch() is None
        clock.now += 0.11
        assert rest_of(tailer) == [(noon_index(ahead=9), b"last")]


def test_a_file_that_is_listed_late_is_not_stepped_over(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A listing may show a later file and miss one that was made before it."""
    written = fill(path, "FAST_DAILY", {0: 2, 3: 2, 5: 2})
    cycles = cycles_of(path)
    listings = iter([[cycles.listing()[0], cycles.listing()[2]], cycles.listing()])
    monkeypatch.setattr(cycles, "listing", lambda: next(listings))
    tailer = Tailer(cycles, written[1][0])
    batches = [tailer.next_batch(), tailer.next_batch()]
    assert [batch.index_first for batch in batches if batch] == [written[1][0], written[2][0]]
    tailer.close()


def test_a_file_whose_header_is_not_ready_is_waited_for(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 2, 1: 2})
    later = noon_path(path, ahead=1)
    image = later.read_bytes()
    for prefix in (b"", bytes(4), b"\0\0\0\x80"):
        later.write_bytes(prefix)
        with Queue.open(path) as queue:
            tailer = queue.tailer()
            assert rest_of(tailer) == written[:2]
            later.write_bytes(image)
            assert rest_of(tailer) == written[2:]
        with Queue.open(path) as queue:
            assert queue.last_index() == written[-1][0]
    later.write_bytes(b"")
    with Queue.open(path) as queue:
        assert queue.last_index() == written[1][0]
        with pytest.raises(IndexGap):
            queue.tailer(noon_index(ahead=1, sequence=1))


def test_removed_files_that_were_not_read_are_a_gap(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 2, 1: 2, 2: 2})
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        assert tailer.next_batch(count_max=1) is not None
        for ahead in (0, 1):
            noon_path(path, ahead=ahead).unlink()
        assert tailer.next_batch() is not None  # what is mapped is still there
        with pytest.raises(IndexGap) as gap:
            tailer.next_batch()
        assert gap.value.found == written[4][0]


def test_a_removed_file_before_the_very_next_cycle_is_no_gap(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 2, 1: 2})
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        assert tailer.next_batch() is not None
        noon_path(path).unlink()
        assert rest_of(tailer) == written[2:]


def test_an_excerpt_over_the_limit_is_named_and_can_be_read_with_a_higher_one(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append([b"small", b"x" * 3000, b"end"], NOON_MS)
        tailer = queue.tailer()
        batch = tailer.next_batch(payload_max=2999)
        assert batch is not None
        assert len(batch) == 1
        with pytest.raises(ExcerptTooLarge) as large:
            tailer.next_batch(payload_max=2999)
        assert (large.value.index, large.value.length, large.value.limit) == (
            noon_index(sequence=1), 3000, 2999,
        )  # fmt: skip
        assert len(rest_of(tailer)) == 2


def test_the_file_is_mapped_anew_as_it_grows(path: Path) -> None:
    with Queue.open_for_append(path, create=layout()) as queue:
        appender, tailer = queue.appender(), queue.tailer()
        held = []
        for i in range(6):
            appender.append([bytes([i]) * 700_000], NOON_MS)
            batch = tailer.next_batch()
            assert batch is not None
            held.append(batch)
        # batches keep their memory even when the tailer has mapped the file anew
        assert [bytes(batch.payload(0)) for batch in held] == [
            bytes([i]) * 700_000 for i in range(6)
        ]
        assert held[0].payload(0).readonly


def test_a_file_that_is_cut_is_damaged(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 200})
    store = noon_path(path)
    with Queue.open(path) as queue:
        tailer = queue.tailer()
        tailer.next_batch(count_max=10)
        with store.open("r+b") as file:
            file.truncate(66_000)
        with pytest.raises(QueueDamaged, match="was cut to 66000") as damaged:
            tailer.next_batch()
        assert damaged.value.path == store
        with pytest.raises(QueueDamaged, match="expected a document within") as damaged:
            rest_of(queue.tailer())
        assert damaged.value.position is not None
        assert str(store) in str(damaged.value)


def test_an_absurd_length_is_damage_not_a_large_excerpt(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 3})
    with noon_path(path).open("r+b") as file:
        file.seek(65_808)
        file.write((0x3FFFFFFF).to_bytes(4, "little"))
    with Queue.open(path) as queue, pytest.raises(QueueDamaged, match="1073741823 bytes"):
        queue.tailer().next_batch()


def test_a_header_exactly_at_the_end_of_the_file_is_nothing_yet(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3})
    store = noon_path(path)
    end = len(store.read_bytes().rstrip(b"\0")) + 3 & ~3
    for size in (end, end + 2):
        with store.open("r+b") as file:
            file.truncate(size)
        assert read(path) == written
