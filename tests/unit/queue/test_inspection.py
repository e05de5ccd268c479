"""The answers of `inspect_queue` for good queues, for queues that lag, and for damaged ones."""

import os
import struct
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import NotAQueue, Queue
from cqrepl.queue.files.storefile import StoreFile
from cqrepl.queue.format.index import Position
from cqrepl.queue.inspection.documentwalk import CHUNK_BYTES, DocumentWalk, Stretch
from cqrepl.queue.inspection.findings import FindingKind
from cqrepl.queue.inspection.overview import QueueInfo, inspect_queue
from cqrepl.queue.inspection.pagescan import PageScan
from cqrepl.queue.inspection.tablescan import scan_table
from tests.support.goldens import READABLE, manifest, unpack
from tests.support.samples import fill, layout, noon_index, noon_path

NAME = "TEST4_SECONDLY"
# goldens in which something is left undone, and what that is
UNDONE = {
    "backfilled_no_eof": FindingKind.END,
    "eof_in_last": FindingKind.LISTING,
    "first_cycle_deleted": FindingKind.LISTING,
    "killed_after_roll": FindingKind.LOCK,
    "killed_mid_message": FindingKind.LOCK,
    "misplaced_eof": FindingKind.END,
    "missing_eof_middle": FindingKind.END,
    "not_complete_header": FindingKind.UNFINISHED,
}


def kinds(info: QueueInfo) -> list[FindingKind]:
    return [finding.kind for finding in info.findings]


@pytest.mark.parametrize("name", READABLE)
@pytest.mark.parametrize("deep", [False, True])
def test_golden_queues_are_counted_and_what_is_undone_is_found(
    tmp_path: Path, name: str, deep: bool
) -> None:
    path, expected = unpack(name, tmp_path), manifest(name)
    before = {file.name: file.read_bytes() for file in path.iterdir()}
    info = inspect_queue(path, deep=deep)
    assert info.count == len(expected.digests)
    assert info.first_index == expected.digests[0][0]
    assert info.last_index == expected.digests[-1][0]
    assert info.layout.roll_cycle.name == expected.roll_cycle_name
    assert info.layout.index_count == expected.index_count
    assert info.has_table == expected.has_metadata
    hints = [] if expected.has_metadata else [FindingKind.HINT]
    assert kinds(info) == hints + ([UNDONE[name]] if name in UNDONE else [])
    assert {file.name: file.read_bytes() for file in path.iterdir()} == before


def test_metadata_documents_of_an_application_are_listed(tmp_path: Path) -> None:
    info = inspect_queue(unpack("metadata_docs", tmp_path), deep=True)
    [file] = info.files
    assert file.metadata_count == len(file.metadata) == 9
    assert (file.metadata[0].after_excerpts, file.metadata[-1].after_excerpts) == (0, 20)
    positions = [each.position for each in file.metadata]
    assert positions == sorted(positions)


def test_named_tailers_marks_and_locks_are_shown(tmp_path: Path) -> None:
    info = inspect_queue(unpack("named_tailers", tmp_path))
    assert info.first_index is not None
    positions = {tailer.name: tailer.next_index for tailer in info.tailers}
    assert positions == {
        "alpha": info.first_index + 4,
        "beta": 0,
        "replicated:gamma": info.first_index + 7,
    }
    assert info.marks["chronicle.lastIndexReplicated"] == info.last_index
    assert [lock.holder for lock in info.locks] == [None] * 3
    assert info.layout.source_id == 7
    assert info.free_bytes > 0


def test_a_held_lock_shows_its_holder(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 3})
    with Queue.open_for_append(path) as queue, queue.append_lock.held(1.0):
        info = inspect_queue(path)
    [held] = [lock for lock in info.locks if lock.holder is not None]
    assert (held.name, held.holder, held.is_alive) == ("chronicle.append.lock", os.getpid(), True)
    assert held.held_s_max is not None
    assert held.held_s_max > 0
    assert kinds(info) == []


def test_a_dead_writers_lock_is_found(tmp_path: Path) -> None:
    info = inspect_queue(unpack("killed_mid_message", tmp_path))
    [finding] = info.findings
    assert finding.repair is not None
    assert "999999999, which is dead" in str(finding)
    assert not info.is_damaged


def test_digests_depend_on_indexes_and_bytes_and_on_nothing_else(tmp_path: Path) -> None:
    fill(tmp_path / "one", NAME, {0: 300, 1: 40})
    fill(tmp_path / "other", NAME, {0: 300, 1: 40}, per_batch=7)
    fill(tmp_path / "shorter", NAME, {0: 299, 1: 40})
    found = [
        [file.digest for file in inspect_queue(tmp_path / name, deep=True).files]
        for name in ("one", "other", "shorter")
    ]
    assert found[0] == found[1]
    assert found[0][0] != found[2][0]
    assert found[0][1] == found[2][1]
    assert found[0][0] != found[0][1]


def test_excerpts_longer_than_a_chunk_are_read_in_pieces(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    sizes = [10, 3 * CHUNK_BYTES + 5, 0, CHUNK_BYTES, CHUNK_BYTES - 4, 7]
    with Queue.open_for_append(path, create=layout()) as queue:
        queue.appender().append([os.urandom(size) for size in sizes], 0)
    deep, quick = inspect_queue(path, deep=True), inspect_queue(path)
    assert deep.count == quick.count == len(sizes)
    assert deep.files[0].position_end == quick.files[0].position_end
    assert deep.findings == ()


def test_a_quick_inspection_does_not_read_the_excerpts(tmp_path: Path) -> None:
    """All but the last excerpt is overwritten with zeros, which only a walk would notice."""
    path = tmp_path / "queue"
    fill(path, NAME, {0: 500})
    file = noon_path(path, NAME)
    info = inspect_queue(path, deep=True)
    raw = bytearray(file.read_bytes())
    store = StoreFile.open(file, 0, writable=False)
    assert store is not None
    last = store.write_position()
    store.close()
    raw[0x400:last] = bytes(last - 0x400)
    file.write_bytes(raw)
    assert inspect_queue(path).count == info.count
    assert inspect_queue(path, deep=True).count < info.count


def test_marks_that_are_gone_do_not_matter(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 500})
    file = noon_path(path, NAME)
    raw = bytearray(file.read_bytes())
    raw[0x40:0x50] = bytes(16)  # write position and sequence word
    file.write_bytes(raw)
    assert inspect_queue(path).count == 500
    found = inspect_queue(path, deep=True)
    assert kinds(found) == [FindingKind.HINT, FindingKind.HINT]
    assert not found.is_damaged


@pytest.mark.parametrize("position", [0x18, 0x40, 0x48, 0x98, 0xB0, 0xE0, 0xE8, 0xF0])
def test_damaged_marks_are_damage_with_a_place(tmp_path: Path, position: int) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 200})
    file = noon_path(path, NAME)
    raw = bytearray(file.read_bytes())
    raw[position : position + 8] = struct.pack("<Q", 0x7BCDEF0123456789)
    file.write_bytes(raw)
    found = inspect_queue(path, deep=True)
    assert found.findings
    assert all(finding.path == file for finding in found.findings)
    assert any(finding.position is not None for finding in found.findings)


def test_a_lost_header_word_is_told_from_a_wrong_mark(tmp_path: Path) -> None:
    """The end is not what it seems: nothing of the file may be closed or set back."""
    path = tmp_path / "queue"
    written = fill(path, NAME, {0: 200, 1: 3})
    file = noon_path(path, NAME)
    raw = bytearray(file.read_bytes())
    at = raw.index(written[150][1]) - 4
    raw[at : at + 4] = bytes(4)
    file.write_bytes(raw)
    info = inspect_queue(path, deep=True)
    assert info.files[0].count == 150
    assert not info.files[0].is_whole
    assert info.is_damaged
    assert all(each.repair is None for each in info.findings if each.kind is not FindingKind.HINT)
    named = [each.index for each in info.findings if each.index is not None]
    assert noon_index(NAME, sequence=152) in named


def test_a_lost_header_of_a_file_is_damage_and_an_unfinished_file_is_none(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 200, 1: 5})
    file = noon_path(path, NAME)
    raw = bytearray(file.read_bytes())
    raw[:0x100] = bytes(0x100)
    file.write_bytes(raw)
    noon_path(path, NAME, ahead=2).write_bytes(bytes(512))
    first, _, last = inspect_queue(path, deep=True).files
    assert [each.kind for each in first.findings] == [FindingKind.DAMAGE]
    assert [each.kind for each in last.findings] == [FindingKind.UNFINISHED]


def test_a_name_of_another_roll_cycle_is_found(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 3})
    (path / "20240305F.cq4").write_bytes(noon_path(path, NAME).read_bytes())
    [finding] = inspect_queue(path).findings
    assert finding.path.name == "20240305F.cq4"
    assert finding.kind is FindingKind.UNSUPPORTED


def test_a_writer_at_work_is_no_damage(tmp_path: Path) -> None:
    """Inspected after every single append, between publication and marks too, nothing is wrong."""
    path = tmp_path / "queue"
    with Queue.open_for_append(path, create=layout(NAME)) as queue:
        appender = queue.appender()
        for number in range(300):
            appender.append([b"%d" % number], 0)
            if number % 10 == 0:
                info = inspect_queue(path, deep=True)
                assert info.findings == ()
                assert info.count == number + 1


def test_an_index_page_that_comes_behind_the_walk_is_no_damage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The excerpt was published when the walk passed, its index page is made behind it."""
    fill(tmp_path / "queue", NAME, {0: 129})  # the last one needs a second page
    stretches, page_position = DocumentWalk.stretches, PageScan._page_position
    asked: list[int] = []

    def before_the_page(self: DocumentWalk) -> Iterator[Stretch]:
        yield from stretches(self)
        page = self.pages.pop()
        self.place = self.place._replace(position=Position(page.position))

    def not_made_yet(self: PageScan, page: int) -> int:
        asked.append(page)
        return 0 if asked.count(1) == 1 and page == 1 else page_position(self, page)

    monkeypatch.setattr(DocumentWalk, "stretches", before_the_page)
    monkeypatch.setattr(PageScan, "_page_position", not_made_yet)
    assert inspect_queue(tmp_path / "queue", deep=True).findings == ()
    assert asked.count(1) > 1


def test_what_is_no_queue_is_refused(tmp_path: Path) -> None:
    with pytest.raises(NotAQueue):
        inspect_queue(tmp_path / "nothing")
    with pytest.raises(NotAQueue):
        inspect_queue(tmp_path)
    with pytest.raises(NotAQueue):
        inspect_queue(unpack("weekly", tmp_path))


def test_keys_before_a_damaged_one_are_read(tmp_path: Path) -> None:
    path = tmp_path / "queue"
    fill(path, NAME, {0: 3})
    table = path / "metadata.cq4t"
    whole = scan_table(table)
    raw = bytearray(table.read_bytes())
    keys = sorted(whole.keys.values(), key=lambda key: key.position)
    raw[keys[2].position + 8 : keys[2].position + 12] = b"\xff\xff\xff\x0f"
    table.write_bytes(raw)
    damaged = scan_table(table)
    assert set(damaged.keys) == {key.name.lower() for key in keys[:3]}
    [finding] = damaged.findings
    assert finding.position == keys[2].position + 8
    assert inspect_queue(path).count == 3
