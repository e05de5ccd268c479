"""One length word is wrong: nothing is given out on the strength of a walk alone."""

import random
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from cqrepl.queue import Queue, QueueDamaged
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.storefile import StoreFile
from cqrepl.queue.format.index import Position, Sequence
from cqrepl.queue.format.storeimage import ARRAY_HEAD_BYTES
from cqrepl.queue.read.backward import BackwardTailer
from cqrepl.queue.read.tailer import Tailer
from tests.support.reading import cycles_of
from tests.support.samples import fill, noon_index, noon_path, read, stored

SPACING: Final = 256  # of FAST_DAILY
Excerpts = list[tuple[int, bytes]]


def headers_of(path: Path, name: str = "FAST_DAILY") -> list[int]:
    """The positions of all excerpts' headers."""
    store = StoreFile.open(noon_path(path, name), 0, writable=False)
    assert store is not None
    try:
        return [offset - 4 for offset in store.find(0).offsets]
    finally:
        store.close()


def unset_slots(path: Path, name: str = "FAST_DAILY") -> None:
    """Empties all slots but the first, as writers do that die before they set them."""
    store = StoreFile.open(noon_path(path, name), 0, writable=True)
    assert store is not None
    array = Indexing(store).array_of(0)
    assert array is not None
    for slot in range(1, store.header.index_count):
        store.mapping.words.store_8(array + ARRAY_HEAD_BYTES + slot * 8, 0)
    store.close()


def padded(length: int) -> int:
    """The length of an excerpt with its padding: no position tells of a change within that."""
    return (length + 3) & ~3


def change_length(file: Path, header: int, length: int) -> None:
    with file.open("r+b") as store:
        store.seek(header)
        store.write(struct.pack("<I", length & 0x3FFF_FFFF))


def given_before_damage(path: Path, index: int = 0, count_max: int | None = None) -> Excerpts:
    """The excerpts that a tailer gives before it reports damage. It must report damage."""
    given: Excerpts = []
    with Queue.open(path) as queue, pytest.raises(QueueDamaged) as raised:
        given.extend(excerpts_of(queue.tailer(index), count_max))
    assert str(path) in str(raised.value)
    return given


def excerpts_of(tailer: Tailer, count_max: int | None) -> Iterator[tuple[int, bytes]]:
    """The excerpts that a tailer gives, one by one or in batches."""
    if count_max is None:
        yield from ((excerpt.index, bytes(excerpt)) for excerpt in tailer)
        return
    while (batch := tailer.next_batch(count_max=count_max)) is not None:
        yield from stored(batch)


@pytest.mark.parametrize("count_max", [None, 1, 7, 300])
@pytest.mark.parametrize("nth", [0, 1, 90, 171])
def test_every_wrong_length_in_a_file_without_slots_is_told_before_anything_is_given(
    path: Path, nth: int, count_max: int | None
) -> None:
    """It swallows neighbours, ends within one, or goes on far behind the end of the file."""
    fill(path, "FAST_DAILY", {0: 174})
    file, headers = noon_path(path, "FAST_DAILY"), headers_of(path)
    whole = file.read_bytes()
    behind = [at - headers[nth] - 4 for at in headers[nth + 2 :: 17]]  # in step again, one too few
    right = struct.unpack_from("<I", whole, headers[nth])[0]
    lengths = {*behind, 1, 4, right + 4, right + 8, right + 1000, 0x3FFF_FFFF}
    for length in {each for each in lengths if padded(each) != padded(right)}:
        change_length(file, headers[nth], length)
        assert given_before_damage(path, count_max=count_max) == [], length
        file.write_bytes(whole)
    assert len(read(path)) == 174


@pytest.mark.parametrize("is_unset", [True, False])
@pytest.mark.parametrize("count_max", [None, 100, SPACING])
def test_what_slots_prove_is_given_and_no_more(
    path: Path, count_max: int | None, is_unset: bool
) -> None:
    written = fill(path, "FAST_DAILY", {0: 5 * SPACING + 30})
    file, headers = noon_path(path, "FAST_DAILY"), headers_of(path)
    nth = 3 * SPACING + 9
    if is_unset:
        unset_slots(path)
    change_length(file, headers[nth], headers[nth + 2] - headers[nth] - 4)
    given = given_before_damage(path, count_max=count_max)
    assert given == ([] if is_unset else written[: 3 * SPACING])


@pytest.mark.parametrize("start", [9, 40, 97])
def test_a_reader_backwards_gives_nothing_from_an_index_on(path: Path, start: int) -> None:
    fill(path, "FAST_DAILY", {0: 100})
    headers = headers_of(path)
    change_length(noon_path(path, "FAST_DAILY"), headers[8], headers[10] - headers[8] - 4)
    for index in (None, noon_index(sequence=start)):
        with pytest.raises(QueueDamaged):
            BackwardTailer(cycles_of(path), index).next_batch()


def test_unset_slots_of_a_whole_file_cost_nothing_but_time(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 5 * SPACING + 30})
    unset_slots(path)
    assert read(path) == written
    for start in (0, 1, SPACING, 3 * SPACING - 1, len(written) - 1):
        assert read(path, written[start][0]) == written[start:]


def test_what_is_recorded_late_is_given_all_the_same(path: Path) -> None:
    """A writer died between an excerpt and its record; the end agrees with what it left."""
    written = fill(path, "FAST_DAILY", {0: 60}, per_batch=1)
    store = StoreFile.open(noon_path(path, "FAST_DAILY"), 0, writable=True)
    assert store is not None
    headers = headers_of(path)
    for recorded in (58, 30, 0):
        store.set_back_last(Position(headers[recorded]), Sequence(recorded))
        assert read(path) == written
    store.set_back_last(Position(headers[30] + 4), Sequence(30))  # no header stands there
    store.close()
    assert given_before_damage(path) == []


@pytest.mark.parametrize("seed", range(6))
def test_whatever_length_changes_what_is_given_was_written(path: Path, seed: int) -> None:
    chance = random.Random(seed)
    name = chance.choice(["FAST_DAILY", "SMALL_DAILY", "TEST_DAILY"])
    written = fill(path, name, {0: 60 if name == "TEST_DAILY" else 700})
    file, headers = noon_path(path, name), headers_of(path, name)
    whole = file.read_bytes()
    for _ in range(40):
        nth = chance.randrange(len(headers) - 1)
        ahead = chance.choice([chance.randrange(1, 400), chance.choice(headers) - headers[nth]])
        if padded(ahead) == headers[nth + 1] - headers[nth] - 4 or ahead <= 0:
            continue
        change_length(file, headers[nth], ahead)
        given: Excerpts = []
        with Queue.open(path) as queue:
            with pytest.raises(QueueDamaged):
                given.extend((excerpt.index, bytes(excerpt)) for excerpt in queue.tailer())
        assert given == written[: len(given)]
        assert len(given) <= nth
        file.write_bytes(whole)
