"""Storages in one directory."""

import os
from pathlib import Path

import pytest

from cqrepl.persist.errors import Gone, NoRole, PersistError, StorageDamaged
from cqrepl.persist.factory import PersistenceFactory, ReplicatedPersistenceFactoryHolder
from cqrepl.persist.localfactory import LocalPersistenceFactory
from cqrepl.persist.storage.records import ITEM_MAX, NAME_MAX, Op, StorageRecord, correlation_id
from cqrepl.persist.storage.storages import BytesSerializer, JsonSerializer, StringSerializer
from cqrepl.queue import Queue, QueueError
from wire import Writer


def test_three_lines_are_enough_and_all_is_there_again(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        orders = factory.get_or_create_queue("orders", StringSerializer())
        for name in ("a", "b", "c"):
            orders.append(name)
        orders.remove(1)
        numbers = factory.build_sequence("numbers", None, JsonSerializer())
        numbers.append([1])
        numbers.reset(7)
        assert numbers.append({"seven": 7}) == 7
        assert factory.build_queue("orders", StringSerializer()) is orders
    with LocalPersistenceFactory(tmp_path) as factory:
        orders = factory.get_or_create_queue("orders", StringSerializer())
        assert list(orders) == [(2, "b"), (3, "c")]
        numbers = factory.build_sequence("numbers", None, JsonSerializer())
        assert (numbers.next_index, numbers.read(7)) == (8, {"seven": 7})
        with pytest.raises(Gone) as gone:
            numbers.read(1)
        assert gone.value.first == 7


def test_a_second_process_is_kept_out(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path):
        with pytest.raises(PersistError, match="another process has these storages open"):
            LocalPersistenceFactory(tmp_path)


def test_a_serializer_that_gives_no_bytes_is_refused(tmp_path: Path) -> None:
    class Bad:
        def encode(self, item: str, /) -> bytes:
            return item  # type: ignore[return-value]  # that is the mistake

        def decode(self, data: bytes, /) -> str:
            return ""

    with LocalPersistenceFactory(tmp_path) as factory:
        queue = factory.build_queue("q", Bad())
        with pytest.raises(TypeError, match="storage 'q': expected bytes of its serializer"):
            queue.append("text")
        assert len(queue) == 0


def test_storages_that_were_made_keep_their_mode(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        before = factory.build_queue("before", BytesSerializer())
        factory.set_sync_mode(0.01)
        later = factory.build_queue("later", BytesSerializer())
        own = factory.get_or_create_queue("own", BytesSerializer(), timeout=0.2)
        assert [each.timeout_s for each in (before, later, own)] == [0.0, 0.01, 0.2]
        with pytest.raises(ValueError, match="expected 0 to 3600 seconds, got -1"):
            factory.set_sync_mode(-1)


def test_an_item_with_another_index_can_be_reported(tmp_path: Path) -> None:
    reports: list[tuple[int, int]] = []
    with LocalPersistenceFactory(tmp_path) as factory:
        numbers = factory.get_or_create_sequence(
            "n",
            int,
            StringSerializer(),
            on_gap="report",
            on_report=lambda expected, got: reports.append((expected, got)),
        )
        assert numbers.append("1") == 1
        assert numbers.append("5") == 2
    assert reports == [(2, 5)]


def test_a_report_comes_once_the_item_is_there_and_may_use_its_storage(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Under no lock; and one that raises is logged."""

    def report(expected: int, got: int) -> None:
        assert numbers.next_index == expected + 1
        assert numbers.append(str(expected + 1)) == expected + 1  # it says the next index itself
        raise RuntimeError(f"got {got}")

    with LocalPersistenceFactory(tmp_path) as factory:
        numbers = factory.get_or_create_sequence(
            "n", int, StringSerializer(), on_gap="report", on_report=report
        )
        assert numbers.append("9") == 1
        assert numbers.read_range(1, 2) == ["9", "2"]
        assert numbers.append("3") == 3
    assert "storage 'n': its on_report has failed: RuntimeError('got 9')" in caplog.text


def test_a_directory_that_cannot_be_opened_says_so_each_time(tmp_path: Path) -> None:
    (tmp_path / "metadata.cq4t").write_bytes(b"rubbish" * 100)
    for _ in range(2):
        with pytest.raises(QueueError, match="expected a document of the table store"):
            LocalPersistenceFactory(tmp_path)


def test_closing_twice_closes_no_file_of_another(tmp_path: Path) -> None:
    factory = LocalPersistenceFactory(tmp_path)
    factory.close()
    other = os.open(tmp_path / "other", os.O_CREAT | os.O_RDWR)  # gets the number of the lock
    factory.close()
    os.close(other)


def test_an_item_is_refused_that_an_excerpt_cannot_hold(tmp_path: Path) -> None:
    with LocalPersistenceFactory(tmp_path) as factory:
        queue = factory.build_queue("q" * NAME_MAX, BytesSerializer())
        with pytest.raises(ValueError, match="expected an item of at most"):
            queue.append(bytes(ITEM_MAX + 1))
        assert queue.append(bytes(ITEM_MAX)) == 1


def test_a_record_that_cannot_be_read_stops_its_storage_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    bad, other = "bad", "other"
    with LocalPersistenceFactory(tmp_path) as factory:
        for name in (bad, other):
            factory.build_sequence(name, None, StringSerializer()).append("1")
    writer = Writer()
    writer.event("SEQUENCE_APPEND")
    with writer.block():
        writer.name("id")
        writer.integer(correlation_id(bad))
    jump = StorageRecord(op=Op.APPEND, id=correlation_id("jump"), index=3, item=b"")
    with Queue.open_for_append(tmp_path) as queue:
        for data in (bytes(writer.data), b"\xff of no storage", jump.encoded()):
            queue.append(data)
    with LocalPersistenceFactory(tmp_path) as factory:
        assert factory.build_sequence(other, None, StringSerializer()).append("2") == 2
        again = factory.build_sequence(bad, None, StringSerializer())
        with pytest.raises(StorageDamaged, match="expected the field 'gen'"):
            again.append("no")
        again.reset()
        assert again.append("new") == 1
        assert again.read(1) == "new"
    assert "a record of 'bad' cannot be taken" in caplog.text
    assert "expected its CREATE, got SEQUENCE_APPEND" in caplog.text


def test_the_log_of_something_else_is_refused(tmp_path: Path) -> None:
    with Queue.open_for_append(tmp_path, create="FAST_DAILY") as queue:
        queue.append(b"\xff no record")
    with LocalPersistenceFactory(tmp_path) as factory:
        with pytest.raises(PersistError, match=r"excerpt .*: expected a record of a storage"):
            factory.build_queue("q", StringSerializer())


def test_the_holder_is_empty_before_a_role_is_up(tmp_path: Path) -> None:
    holder = ReplicatedPersistenceFactoryHolder
    with pytest.raises(NoRole, match="expected one group with storages in this process, got none"):
        holder.get_factory()
    with LocalPersistenceFactory(tmp_path) as factory:
        holder.put("g", factory)
        try:
            found: PersistenceFactory = holder.get_factory()
            assert found is factory
            with pytest.raises(ValueError, match="expected one host of it in a process, got two"):
                holder.put("g", factory)
        finally:
            holder.take_back("g")
    with pytest.raises(NoRole, match="group 'g'"):
        holder.get_factory("g")
