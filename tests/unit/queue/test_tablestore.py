import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from cqrepl.queue import NotAQueue, QueueDamaged, QueueError
from cqrepl.queue.files import tablestore
from cqrepl.queue.files.tablestore import TableStore
from tests.support.goldens import unpack
from tests.support.samples import layout
from tests.support.tables import grown_by_another

FILE = "metadata.cq4t"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / FILE


@pytest.fixture
def table(path: Path) -> Iterator[TableStore]:
    table = TableStore.create(path, layout())
    yield table
    table.close()


def test_keys_are_found_whatever_their_case(table: TableStore, path: Path) -> None:
    assert table.find("listing.highestCycle") is None
    table.value("listing.highestCycle", 5).store(-7)
    found = table.find("LISTING.highestcycle")
    assert found is not None
    assert found.load() == -7
    assert table.value("Listing.HIGHESTCYCLE", 5).load() == -7
    other = TableStore(path, writable=False)
    assert other.keys() == {"listing.highestcycle": -7}
    other.close()


def test_a_look_at_one_word_tells_whether_keys_were_added(table: TableStore, path: Path) -> None:
    other = TableStore(path, writable=True)
    for store, key in ((table, "a"), (other, "b")):
        end = table.keys_end()
        assert table.ends_at(end)
        store.value(key, 0)
        assert not table.ends_at(end)
        assert table.keys_end() > end
    assert table.ends_at(table.keys_end())
    other.close()


def test_values_rise_fall_and_count(table: TableStore) -> None:
    value = table.value("x", 10)
    value.raise_to(5)
    assert value.load() == 10
    value.raise_to(15)
    value.lower_to(20)
    assert value.load() == 15
    value.lower_to(-3)
    value.add(-4)
    assert value.load() == -7
    assert not value.exchange(0, 1)
    assert value.exchange(-7, 1)


def test_bytes_of_keys_are_those_of_java(tmp_path: Path) -> None:
    golden = unpack("fast_daily_basic", tmp_path) / FILE
    theirs = TableStore(golden, writable=False)
    names = theirs.keys()
    theirs.close()
    raw = golden.read_bytes()
    ours = TableStore.create(tmp_path / "ours", layout())
    for name, value in names.items():
        at = raw.lower().index(name.encode())
        ours.value(raw[at : at + len(name)].decode(), value)
    ours.close()
    assert (tmp_path / "ours").read_bytes() == raw


def test_a_key_that_does_not_fit_is_refused(table: TableStore) -> None:
    for i in range(500):
        table.value(f"key.{i:0200}", i)
    with pytest.raises(QueueError, match="room for the key") as full:
        table.value("x" * 50_000, 0)
    assert full.value.position is not None
    assert table.value("small", 7).load() == 7


def test_a_creator_that_died_half_way_is_finished(path: Path) -> None:
    for left in (b"", bytes(1000), b"\0\0\0\x80" + b"\xb9\x06hea" + bytes(1000)):
        path.write_bytes(left)
        table = TableStore.create(path, layout())
        assert table.layout == layout()
        table.value("key", 3)
        table.close()


def test_a_key_whose_writer_died_is_overwritten(table: TableStore, path: Path) -> None:
    table.value("one", 1)
    end = table._walked
    with path.open("r+b") as file:
        file.seek(end)
        file.write(b"\x30\0\0\x80" + b"garbage" * 20)
    table.value("two", 2)
    table.value("three", 3)
    other = TableStore(path, writable=False)
    assert other.keys() == {"one": 1, "two": 2, "three": 3}
    other.close()


def test_values_that_are_no_longs_are_left_alone(table: TableStore, path: Path) -> None:
    text = b"\xb9\x04text\xe2hi"
    with path.open("r+b") as file:
        file.seek(table._walked)
        file.write(len(text).to_bytes(4, "little") + text)
    assert table.find("text") is None
    assert table.value("next", 4).load() == 4


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b"\xb9\x7fx", "expected a key"),
        (b"\xb9\x02xy\xa7" + bytes(8), "aligned to 8"),
    ],
)
def test_a_broken_key_is_damage(table: TableStore, path: Path, body: bytes, message: str) -> None:
    with path.open("r+b") as file:
        file.seek(table._walked)
        file.write(len(body).to_bytes(4, "little") + body)
    with pytest.raises(QueueDamaged, match=message):
        table.find("x")


def test_a_key_that_ends_behind_the_file_is_damage(table: TableStore, path: Path) -> None:
    with path.open("r+b") as file:
        file.seek(table._walked)
        file.write((1 << 29).to_bytes(4, "little"))
    with pytest.raises(QueueDamaged, match="expected a document of the table store"):
        table.keys()


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (b"\xb9\x06header", b"\xb9\x06hoader", QueueDamaged, "header of a table store"),
        (b"\xc4roll", b"\xc4rull", QueueDamaged, "header of a table store"),
        (b"yyyyMMdd'F'", b"yyyyMMdd'Q'", NotAQueue, "format of a roll cycle"),
        (b"\xa6\x00\x5c\x26\x05", b"\xa6\x00\x5c\x26\x06", QueueDamaged, "86400000 ms"),
    ],
)
def test_a_broken_header_is_refused(
    table: TableStore, path: Path, old: bytes, new: bytes, error: type[Exception], message: str
) -> None:
    path.write_bytes(path.read_bytes().replace(old, new))
    with pytest.raises(error, match=message):
        TableStore(path, writable=False)


def test_a_file_without_a_header_is_no_table_store(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tablestore, "_READY_TIMEOUT_S", 0.01)
    for left in (b"", bytes(2), bytes(100)):
        path.write_bytes(left)
        with pytest.raises(QueueDamaged, match="found no header"):
            TableStore(path, writable=False)


def test_threads_add_keys_at_once(path: Path) -> None:
    TableStore.create(path, layout()).close()

    def work() -> None:
        table = TableStore(path, writable=True)
        for i in range(40):
            table.value(f"key.{i}", i)
        table.close()

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    table = TableStore(path, writable=False)
    assert len(table.keys()) == 40
    table.close()


@pytest.mark.parametrize("writable", [False, True])
def test_keys_behind_what_was_mapped_are_found(
    table: TableStore, path: Path, writable: bool
) -> None:
    first = table.value("chronicle.write.lock", 7)
    reader = TableStore(path, writable=writable)
    view = reader.view()
    early = reader.find("chronicle.write.lock")
    assert early is not None
    words = reader._mapping.words
    added = grown_by_another(path)
    for name in reversed(added):
        found = reader.find(name)
        assert found is not None
        assert found.load() == added[name]
    assert len(reader.keys()) == len(added) + 1
    # what was taken before the file was mapped anew is that of the same file
    first.store(9)
    assert early.load() == words.load_8(early.position) == 9
    assert int.from_bytes(view[early.position : early.position + 8], "little") == 9
    view.release()
    reader.close()


def test_a_key_is_added_behind_what_another_process_has_added(
    table: TableStore, path: Path
) -> None:
    added = grown_by_another(path)
    table.value("ours", 42)
    assert table.keys() == {name.lower(): number for name, number in added.items()} | {"ours": 42}
    other = TableStore(path, writable=False)
    assert other.keys() == table.keys()
    other.close()


def test_threads_use_values_while_the_file_is_mapped_anew(table: TableStore, path: Path) -> None:
    value = table.value("chronicle.write.lock", 0)
    failures: list[Exception] = []
    ends = threading.Event()

    def count() -> None:
        try:
            while not ends.is_set():
                value.add(1)
        except (AssertionError, ValueError) as error:
            failures.append(error)

    threads = [threading.Thread(target=count) for _ in range(2)]
    for thread in threads:
        thread.start()
    added = grown_by_another(path)
    assert all(table.find(name) is not None for name in added)
    ends.set()
    for thread in threads:
        thread.join()
    assert not failures
