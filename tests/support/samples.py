"""Queues to test with: how to fill, read, check and damage one."""

import hashlib
import struct
from pathlib import Path

from cqrepl.queue import ExcerptBatch, Queue, QueueLayout, Tailer, index_of
from cqrepl.queue.files.indextable import Indexing
from cqrepl.queue.files.storefile import START, StoreFile
from cqrepl.queue.format.index import Cycle, Index, Sequence
from cqrepl.queue.format.rollcycle import by_name
from cqrepl.queue.format.storeimage import ARRAY_HEAD_BYTES
from cqrepl.queue.write.retention import Policy, plan
from tests.support.goldens import Manifest

NOON_MS = 1_709_640_000_000  # 2024-03-05, 12:00 UTC
Excerpts = list[tuple[int, bytes]]


def layout(name: str = "FAST_DAILY") -> QueueLayout:
    """The usual layout of a roll cycle."""
    return QueueLayout.of(by_name(name))


def noon_index(name: str = "FAST_DAILY", *, ahead: int = 0, sequence: int = 0) -> Index:
    roll_cycle = by_name(name)
    cycle = Cycle(roll_cycle.cycle_at(NOON_MS, 0) + ahead)
    return index_of(cycle, Sequence(sequence), roll_cycle.shift)


def noon_batch(name: str, count: int) -> ExcerptBatch:
    return ExcerptBatch.of(noon_index(name), payloads(count))


def noon_path(path: Path, name: str = "FAST_DAILY", *, ahead: int = 0) -> Path:
    roll_cycle = by_name(name)
    return path / (roll_cycle.file_name(roll_cycle.cycle_at(NOON_MS, 0) + ahead, 0) + ".cq4")


def rest_of(tailer: Tailer) -> Excerpts:
    """Everything the tailer gives now."""
    found: Excerpts = []
    while (batch := tailer.next_batch()) is not None:
        found += [(index, bytes(data)) for index, data in batch]
    return found


def read(path: Path, index: int = 0) -> Excerpts:
    with Queue.open(path) as queue:
        return rest_of(queue.tailer(index))


def digests(excerpts: Excerpts) -> list[tuple[int, str]]:
    """The excerpts as manifests show them."""
    return [(index, hashlib.sha256(data).hexdigest()) for index, data in excerpts]


def payloads(count: int, seed: int = 1) -> list[bytes]:
    return [
        hashlib.sha512(b"%d %d" % (seed, i)).digest()[: (i * 7 + seed) % 41] for i in range(count)
    ]


def stored(batch: ExcerptBatch) -> Excerpts:
    """The excerpts that must be read back. One without bytes lies in the file as 8F."""
    return [(index, bytes(data) or b"\x8f") for index, data in batch]


def fill(path: Path, name: str, counts: dict[int, int], *, per_batch: int = 50) -> Excerpts:
    """Makes a queue with so many excerpts in the cycles ahead of noon; what is in it then."""
    written: Excerpts = []
    with Queue.open_for_append(path, create=layout(name)) as queue:
        appender = queue.appender()
        for ahead, count in counts.items():
            data = payloads(count, seed=ahead + 1)
            for start in range(0, count, per_batch):
                index = noon_index(name, ahead=ahead, sequence=start)
                batch = ExcerptBatch.of(index, data[start : start + per_batch])
                appender.append_at(batch)
                written += stored(batch)
    return written


def check_marks(path: Path, *, holes: bool = False) -> None:
    """Write position, sequence word and every index slot of every store file are right.

    Args:
        holes: slots may be 0 (a writer died), but none may be wrong.
    """
    with Queue.open(path) as queue:
        cycles = queue._cycles
        for cycle in cycles.listing():
            store = StoreFile.open(cycles.path_of(cycle), cycle, writable=False)
            assert store is not None
            _check_store(store, holes)
            store.close()


def _check_store(store: StoreFile, holes: bool) -> None:
    walked = store.walk(START)
    words, header = store.mapping.words, store.header
    count = walked.place.sequence
    assert store.write_position() == walked.position_last
    if count and header.sequence is not None:
        word = words.load_8(header.sequence) % (1 << 64)
        assert word == ((walked.position_last << store.sequence_bits) + count - 1) % (1 << 64)
    indexing = Indexing(store)
    marks = dict(walked.marks)
    if not holes:
        assert words.load_8(header.last_index) == len(marks) * header.index_spacing
    for page in range(-(-max(len(marks), 1) // header.index_count)):
        array = indexing.array_of(page)
        if array is None:
            assert holes
            continue
        used = words.load_8(array + 8)
        for slot in range(header.index_count):
            sequence = (page * header.index_count + slot) * header.index_spacing
            position = words.load_8(array + ARRAY_HEAD_BYTES + slot * 8)
            assert position == marks.get(sequence, 0) or (holes and position == 0)
            assert position == 0 or slot < used


def wipe_hints(path: Path) -> int:
    """Zeroes write position, sequence word, `lastIndex`, and all that index pages hold."""
    wiped = 0
    for file in path.glob("*.cq4"):
        raw = bytearray(file.read_bytes())
        for name, width in ((b"writePosition", 16), (b"lastIndex", 8)):
            at = raw.index(name) + len(name)
            code = raw.index(b"\x8d" if width == 16 else b"\xa7", at) + 1
            start = code + 16 if width == 16 else code
            raw[start : start + width] = bytes(width)
        at = -1
        while (at := raw.find(b"\xb9\x05index", at + 1)) > 0:
            array = raw.index(b"\x8d", at) + 1
            (count,) = struct.unpack_from("<q", raw, array)
            raw[array + 8 : array + 16 + 8 * count] = bytes(8 + 8 * count)
        at = raw.index(b"index2index") + 11
        array = raw.index(b"\x8d", at) + 1
        (count,) = struct.unpack_from("<q", raw, array)
        raw[array + 8 : array + 16 + 8 * count] = bytes(8 + 8 * count)
        file.write_bytes(raw)
        wiped += 1
    return wiped


def flip_byte(path: Path, held: bytes, at: int) -> None:
    """Flips a bit in byte `at` of the only place of a store file that holds these bytes."""
    data = path.read_bytes()
    assert data.count(held) == 1
    position = data.index(held) + at
    with path.open("r+b") as file:
        file.seek(position)
        file.write(bytes([data[position] ^ 1]))


def fill_up(path: Path) -> int:
    """Appends until there is no space; how many excerpts were taken."""
    with Queue.open_for_append(path, create=layout()) as queue:
        appender = queue.appender()
        for i in range(1000):
            batch = ExcerptBatch.of(noon_index(sequence=2 * i), [bytes(50_000), b"%d" % i])
            try:
                appender.append_at(batch)
            except OSError:
                assert appender.next_index == noon_index(sequence=2 * i)
                return 2 * i
    raise AssertionError("there was no limit")


def without_end_mark(path: Path, ahead: int = 0) -> None:
    """Takes the end-of-file mark out of a store file."""
    name = noon_path(path, ahead=ahead)
    image = bytearray(name.read_bytes())
    at = image.index(b"\0\0\0\xc0\xc3EOF")
    image[at : at + 8] = bytes(8)
    name.write_bytes(image)


def assert_made_like(path: Path, golden: Manifest) -> None:
    """The queue has the roll cycle, the epoch and the index numbers of a golden one."""
    with Queue.open(path) as queue:
        layout = queue.layout
    assert layout.roll_cycle.name == golden.roll_cycle_name
    assert layout.epoch == golden.epoch
    assert layout.index_count == golden.index_count
    assert layout.index_spacing == golden.index_spacing


def with_number_of(path: Path, data: bytes) -> bool:
    """Puts another file in the place of one that is removed, with its number in the file system;
    False where a file system gives no number twice."""
    number = path.stat().st_ino
    path.unlink()
    path.write_bytes(data)
    return path.stat().st_ino == number


def may_go(path: Path) -> list[bool]:
    """For each store file, true when `cqrepl gc` would delete it."""
    with Queue.open(path) as queue:
        return [one.is_removable for one in plan(queue.cycles, Policy())]


def held(path: Path) -> list[bytes]:
    with Queue.open(path) as queue:
        return [bytes(excerpt) for excerpt in queue.tailer()]
