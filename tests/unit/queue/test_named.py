"""Named tailers: where they stop and go on, and what of it stands in the table store."""

import os
from contextlib import closing
from pathlib import Path

import pytest

from cqrepl.queue import IndexGap, NotAQueue, QueueError, QueueLocked
from cqrepl.queue.files.locks import APPEND_LOCK_KEY, UNLOCKED
from cqrepl.queue.files.tablestore import FILE_NAME, TableStore
from cqrepl.queue.read.namedtailer import NamedPosition, NamedTailer, named_tailers
from cqrepl.queue.read.registration import Readers
from tests.support.goldens import unpack
from tests.support.reading import cycles_of, some_of
from tests.support.samples import fill, noon_index, noon_path
from tests.support.tables import keys_of, set_word


def named_of(path: Path) -> dict[str, int]:
    table = TableStore(path / FILE_NAME, writable=False)
    named = named_tailers(table)
    table.close()
    return named


def test_looking_changes_nothing(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5})
    before = (path / FILE_NAME).read_bytes()
    tailer = NamedTailer(cycles_of(path), "alpha")
    assert tailer.name == "alpha"
    assert tailer.next_excerpt() is not None
    assert tailer.stalled is None
    assert tailer.stored_index == 0
    tailer.close()
    assert (path / FILE_NAME).read_bytes() == before


def test_positions_of_java_are_taken_up(tmp_path: Path) -> None:
    path = unpack("named_tailers", tmp_path)
    assert named_of(path) == {
        "alpha": 0x4D4B00000004, "beta": 0, "replicated:gamma": 0x4D4B00000007,
    }  # fmt: skip
    for name, first in [("alpha", 4), ("beta", 0), ("replicated:gamma", 7), ("ALPHA", 4)]:
        tailer = NamedTailer(cycles_of(path), name)
        excerpt = tailer.next_excerpt()
        assert excerpt is not None
        assert excerpt.index == 0x4D4B00000000 + first
        tailer.close()


def test_names_are_shown_as_they_were_written(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    for name in ("MixedCase", "mixedCASE", "plain.lock"):
        position = NamedPosition(cycles_of(path), name)
        position.move(7)
        position.close()
    assert named_of(path) == {"MixedCase": 7, "plain.lock": 7}
    position = NamedPosition(cycles_of(path), "replicated:Other")
    position.move(9)
    position.close()
    assert named_of(path) == {"MixedCase": 7, "plain.lock": 7, "replicated:Other": 9}


def test_replicated_names_have_a_version_and_a_lock(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 5})
    name = "replicated:gamma"
    position = NamedPosition(cycles_of(path), name)
    assert (position.load(), position.version()) == (0, -1)
    position.move(written[2][0])
    position.move(written[3][0])
    assert (position.load(), position.version()) == (written[3][0], 1)
    position.close()
    keys = keys_of(path)
    assert keys[f"index.{name}"] == written[3][0]
    assert keys[f"index.{name}.version"] == 1
    assert keys[f"index.{name}.lock"] == UNLOCKED
    plain = NamedPosition(cycles_of(path), "plain")
    plain.move(1)
    assert plain.version() == -1
    plain.close()
    assert "index.plain.version" not in keys_of(path)


def test_replicated_names_are_refused_on_a_replica(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 5})
    set_word(path, APPEND_LOCK_KEY, os.getppid())
    with pytest.raises(QueueLocked, match="no replica") as locked:
        NamedTailer(cycles_of(path), "replicated:gamma")
    assert locked.value.holder == os.getppid()
    NamedTailer(cycles_of(path), "gamma").close()


def test_a_move_to_what_is_not_there_is_not_stored(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3})
    tailer = NamedTailer(cycles_of(path), "alpha")
    tailer.move(written[1][0])
    with pytest.raises(IndexGap):
        tailer.move(noon_index(sequence=9))
    assert tailer.stored_index == written[1][0]
    assert some_of(tailer, 1) == written[1:2]
    tailer.close()


def test_a_stored_position_that_is_gone_is_a_gap_until_it_is_moved(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3, 1: 3})
    cycles = cycles_of(path)
    position = NamedPosition(cycles, "alpha")
    position.move(written[1][0])
    noon_path(path).unlink()
    with pytest.raises(IndexGap) as gap:
        NamedTailer(cycles, "alpha")
    position.move(gap.value.found)
    position.close()
    tailer = NamedTailer(cycles, "alpha")
    assert some_of(tailer, 9) == written[3:]
    tailer.close()


@pytest.mark.parametrize("name", ["replicated:a.lock", "replicated:a.version"])
def test_what_belongs_to_a_name_is_none_itself(path: Path, name: str) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    with pytest.raises(QueueError, match="belongs to one"):
        NamedPosition(cycles_of(path), name)


@pytest.mark.parametrize("name", ["", "x" * 257])
def test_names_have_a_size(path: Path, name: str) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    with pytest.raises(QueueError, match="1 to 256 bytes"):
        NamedPosition(cycles_of(path), name)


def test_without_a_table_store_it_reads_and_cannot_move(path: Path) -> None:
    written = fill(path, "FAST_DAILY", {0: 3})
    (path / FILE_NAME).unlink()
    tailer = NamedTailer(cycles_of(path), "alpha")
    assert tailer.next_excerpt() is not None
    with pytest.raises(NotAQueue, match="to keep the position of alpha in"):
        tailer.commit()
    assert tailer.next_index == written[1][0]
    tailer.close()


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("grün", "grün"),
        ("grün€", "grün¬"),
        ("\u8ba2\u5355", "¢U"),
        ("\U0001f600", "=\x00"),
        ("\u010a\u010b", "\n\x0b"),
        ("\udcff", "ÿ"),
        ("replicated:€", "replicated:¬"),
        ("\u0272eplicated:x", "replicated:x"),
    ],
)
def test_a_name_is_kept_as_java_keeps_it(path: Path, name: str, kept: str) -> None:
    """The key keeps the lower half of each UTF-16 unit. The tailer goes on there, and adds no key
    again."""
    written = fill(path, "FAST_DAILY", {0: 5})
    ends = set()
    for nth in range(4):
        tailer = NamedTailer(cycles_of(path), name)
        assert some_of(tailer, 1) == written[nth : nth + 1]
        tailer.commit()
        tailer.close()
        assert named_of(path) == {kept: written[nth + 1][0]}
        table = TableStore(path / FILE_NAME, writable=False)
        ends.add(table.keys_end())
        table.close()
    assert len(ends) == 1
    assert (f"index.{kept}.version" in keys_of(path)) == kept.startswith("replicated:")


def test_a_key_is_found_by_what_is_read_back_of_it(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    with closing(TableStore(path / FILE_NAME, writable=True)) as table:
        table.value("some.grün€", 7)
        end = table.keys_end()
        for key in ("some.grün€", "SOME.grün¬"):
            assert table.value(key, 9).load() == 7
        assert table.keys_end() == end


def test_a_name_that_is_kept_as_the_lock_of_another_is_refused(path: Path) -> None:
    fill(path, "FAST_DAILY", {0: 1})
    with pytest.raises(QueueError, match="found what belongs to one"):
        NamedPosition(cycles_of(path), "replicated:x.loc\u016b")


def test_readers_whose_names_have_the_same_lower_halves_are_two(path: Path) -> None:
    """Retention waits for both: no other program reads these keys, so nothing need be lost."""
    fill(path, "FAST_DAILY", {0: 5})
    readers = Readers(cycles_of(path))
    for name, index in (("grün€", 3), ("grün¬", 7), ("\udcff", 9)):
        assert readers.register(name, index) == index
    readers.advance("grün€", 4)
    assert readers.register("grün€", 9) == 4
    assert readers.register("grün¬", 9) == 7
    assert readers.unregister("grün€")
    assert not readers.unregister("grün€")
    with pytest.raises(QueueError, match="a name of 1 to 256 bytes"):
        readers.register("€" * 100)
