"""Storages in one directory."""

from pathlib import Path

import pytest

from cqrepl.persist.errors import Gone, NoRole, PersistError
from cqrepl.persist.factory import PersistenceFactory, ReplicatedPersistenceFactoryHolder
from cqrepl.persist.localfactory import LocalPersistenceFactory
from cqrepl.persist.storage.storages import BytesSerializer, JsonSerializer, StringSerializer


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
