"""The parts below a queue: mappings, store files, index pages."""

from pathlib import Path

import pytest

from cqrepl.queue import NotAQueue, Queue, QueueDamaged
from cqrepl.queue.files import indextable
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.mapping import Mapping
from cqrepl.queue.files.storefile import START, StoreFile
from cqrepl.queue.format.storeimage import store_image
from tests.support.samples import (
    NOON_MS,
    check_marks,
    fill,
    layout,
    noon_index,
    noon_path,
    read,
)

# ---------------------------------------------------------------- mappings


def test_a_mapping_knows_whether_the_path_still_means_it(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    mapping = Mapping(path, writable=False)
    assert mapping.is_current()
    path.unlink()
    assert not mapping.is_current()
    path.write_bytes(b"x" * 100)
    assert not mapping.is_current()
    mapping.close()


# ---------------------------------------------------------------- store files


@pytest.fixture
def store_path(tmp_path: Path) -> Path:
    fill(tmp_path / "queue", "TEST4_SECONDLY", {0: 300})
    return noon_path(tmp_path / "queue", "TEST4_SECONDLY")


def change(path: Path, old: bytes, new: bytes) -> None:
    raw = path.read_bytes()
    assert old in raw
    path.write_bytes(raw.replace(old, new, 1))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (b"\xb9\x06header", b"\xb9\x06hoader", "header of a store file"),
        (b"\xc8indexing", b"\xc8indoxing", "header of a store file"),
        (b"\xcdwritePosition", b"\xcdwratePosition", "header of a store file"),
        (b"\xcaindexCount\xa1\x20", b"\xcaindexCount\xa1\x21", "powers of 2"),
        (b"\xccindexSpacing\xa1\x04", b"\xccindexSpacing\xa1\x00", "powers of 2"),
        (b"\xcaindexCount\xa1\x20", b"\xcaindexCount\xe1\x20", "header of a store file"),
        (b"\x8e\x01\0\0\0\0\x8d\x02\0\0", b"\x8e\x01\0\0\0\0\x8d\x01\0\0", "header of a store"),
        (b"\x8e\x01\0\0\0\0\x8d\x02\0\0", b"\x8e\0\0\0\0\x8d\x02\0\0\0", "header of a store|align"),
    ],
)
def test_a_broken_store_header_is_damage(
    store_path: Path, old: bytes, new: bytes, message: str
) -> None:
    change(store_path, old, new)
    with pytest.raises(QueueDamaged, match=message) as damaged:
        Queue.open(store_path.parent)
    assert damaged.value.path == store_path


def test_a_long_off_its_alignment_is_damage(store_path: Path) -> None:
    value = (300).to_bytes(8, "little")
    change(
        store_path,
        b"\xc9lastIndex\x8e\0\0\0\0\xa7" + value,
        b"\xc9lastIndex\x8f\x8f\x8f\x8f\xa7" + value + b"\x8f",
    )
    with pytest.raises(QueueDamaged, match="aligned to 8"):
        Queue.open(store_path.parent)


def test_another_data_format_is_not_supported(store_path: Path) -> None:
    change(store_path, b"\xcadataFormat\xa1\x01", b"\xcadataFormat\xa1\x02")
    with pytest.raises(NotAQueue, match="found 2: not supported"):
        Queue.open(store_path.parent)


def test_integers_of_every_width_are_read(tmp_path: Path) -> None:
    """Older writers spell the numbers in other codes; the block is found by name all the same."""
    image = bytearray(store_image(32, 4))
    at = image.index(b"\xcaindexCount\xa1\x20") + 11
    image[at : at + 2] = b"\x8f\x20"  # one byte is the number itself, with padding before it
    path = tmp_path / "20240305-120000T4.cq4"
    path.write_bytes(image)
    store = StoreFile.open(path, 0, writable=False)
    assert store is not None
    assert store.header.index_count == 32
    store.close()


def test_a_very_old_write_position_has_no_sequence_word(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    with Queue.open_for_append(path, create=layout("TEST4_SECONDLY")) as queue:
        queue.appender().append([b"first"], NOON_MS)
        store = noon_path(path, "TEST4_SECONDLY")
        # the array of two longs becomes padding and one long
        raw = bytearray(store.read_bytes())
        at = raw.index(b"\x8d\x02\0\0\0\0\0\0\0")
        last = raw[at + 17 : at + 25]
        raw[at : at + 33] = (
            b"\x8e" + (18).to_bytes(4, "little") + bytes(18) + b"\x8f" + b"\xa7" + last
        )
        store.write_bytes(raw)
    with Queue.open_for_append(path) as queue:
        queue.appender().append([b"second"], NOON_MS)
    assert [data for _, data in read(path)] == [b"first", b"second"]
    opened = StoreFile.open(store, 0, writable=False)
    assert opened is not None
    assert opened.header.sequence is None
    assert opened.write_position() == opened.walk(START).position_last
    opened.close()


def test_a_write_position_behind_the_end_stops_an_appender(store_path: Path) -> None:
    """Documents were lost: appending over the hole would lose what may lie behind it."""
    store = StoreFile.open(store_path, 0, writable=True)
    assert store is not None
    store.mapping.words.store_4(store.walk(START, 298).place.position, 0)
    store.close()
    with (
        Queue.open_for_append(store_path.parent) as queue,
        pytest.raises(QueueDamaged, match="the documents end before"),
    ):
        queue.appender()


@pytest.mark.parametrize("wrong", [0, 8, 3, 1 << 40, -8])
def test_a_write_position_that_lags_is_repaired(store_path: Path, wrong: int) -> None:
    store = StoreFile.open(store_path, 0, writable=True)
    assert store is not None
    store.mapping.words.store_8(store.header.write_position, wrong)
    assert not store.has_end_mark()
    if wrong >= 1 << 40:
        store.close()
        with Queue.open_for_append(store_path.parent) as queue, pytest.raises(QueueDamaged):
            queue.appender()
        return
    store.close()
    with Queue.open_for_append(store_path.parent) as queue:
        queue.appender()
    check_marks(store_path.parent)


# ---------------------------------------------------------------- index pages


def test_holes_are_walked_over_and_filled_by_the_next_writer(store_path: Path) -> None:
    store = StoreFile.open(store_path, 0, writable=True)
    assert store is not None
    indexing = Indexing(store)
    arrays = [indexing.array_of(page) for page in range(3)]
    words = store.mapping.words
    for page, slot in ((2, 5), (2, 7), (2, 8), (2, 9), (2, 10), (0, 0)):
        array = arrays[page]
        assert array is not None
        words.store_8(array + 16 + slot * 8, 0)
    assert indexing.place_before(2 * 128 + 21).sequence == 2 * 128 + 16
    assert indexing.place_before(2).sequence == 0
    store.close()
    written = read(store_path.parent)
    assert len(written) == 300
    with Queue.open_for_append(store_path.parent) as queue:
        queue.appender().append([b"more"] * 300, NOON_MS)
    assert len(read(store_path.parent)) == 600
    check_marks(store_path.parent, holes=True)
    assert read(store_path.parent, written[277][0])[:23] == written[277:]


def test_a_missing_page_is_added_by_the_next_writer(store_path: Path) -> None:
    """A writer died after the first excerpt of a new page, before it wrote the page."""
    path = store_path.parent
    with Queue.open_for_append(path) as queue:
        appender = queue.appender()
        appender.append([b"x"] * (384 - 300), NOON_MS)
        writer = appender._end.writer
        assert writer is not None
        writer.indexing.array_of = lambda page: None  # type: ignore[method-assign]  # a death
        writer.indexing._pages_array = 1
        end = writer.place
        writer.store.mapping.data[end.position + 4 : end.position + 8] = b"last"
        writer.store.publish(end.position, 4)
    with Queue.open_for_append(path) as queue:
        assert queue.appender().next_index == noon_index("TEST4_SECONDLY", sequence=385)
    check_marks(path)


def test_what_a_power_cut_left_of_a_page_is_in_use(store_path: Path) -> None:
    """The sector of `used` may be older than those of the slots."""
    store = StoreFile.open(store_path, 0, writable=True)
    assert store is not None
    indexing, words = Indexing(store), store.mapping.words
    array = indexing.array_of(0)
    assert array is not None
    used = words.load_8(array + 8)
    assert used > 1
    words.store_8(array + 8, 1)
    indexing.forget_from(store.walk(START).place)
    assert words.load_8(array + 8) == used
    store.close()


def test_a_page_that_differs_from_one_that_was_read_is_parsed(store_path: Path) -> None:
    """A page that was kept stands for another one only if both begin the same."""
    store = StoreFile.open(store_path, 0, writable=False)
    assert store is not None
    page = store.mapping.words.load_8(store.header.pages)
    store.close()
    good = store_path.read_bytes()

    def said() -> object:
        store = StoreFile.open(store_path, 0, writable=False)
        assert store is not None
        try:
            return Indexing(store).array_of(0)
        except QueueDamaged as error:
            return error.reason
        finally:
            store.close()

    array = said()
    assert isinstance(array, int)
    length = good.index(b"index2index", page) + len(b"index2index") - page + 40
    differ = 0
    for position in range(page, page + length):
        data = bytearray(good)
        data[position] ^= 0xFF
        store_path.write_bytes(data)
        warm = said()
        indextable._known_heads.clear()
        assert warm == said(), position
        differ += warm != array
        store_path.write_bytes(good)
        assert said() == array
    assert differ > 20
