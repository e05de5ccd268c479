"""Storages of a group whose leader changes, and whose backups lack something."""

import logging
from functools import partial
from pathlib import Path

import pytest
import trio

from cqrepl.cluster.checkpoints import Checkpointer, CheckpointSettings, Keeping
from cqrepl.net.threads import in_thread
from cqrepl.persist.errors import Gone, NotLeader, NotNext, OtherKind, StorageDamaged
from cqrepl.persist.persistdesk import SyncJoining
from cqrepl.persist.storage.records import (
    Op,
    StorageKind,
    StorageRecord,
    correlation_id,
)
from cqrepl.persist.storage.storages import (
    BytesSerializer,
    JsonSerializer,
    PersistentSequence,
    StringSerializer,
)
from cqrepl.persist.storage.storageservice import StorageService, StorageSettings
from cqrepl.persist.storage.storagetable import Storage
from tests.support.persisted import Persisted, persisted
from tests.support.replicas import eventually
from wire import Writer


async def test_an_item_is_at_a_backup_when_append_returns(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        factory = await made.factory(1)

        def write() -> None:
            sequence = factory.get_or_create_sequence("numbers", int, StringSerializer())
            for number in range(1, 6):
                stored = sequence.append(str(number))
                assert (stored, stored.is_acked) == (number, True)
                backup = made.service(2).table.storages[correlation_id("numbers")]
                assert backup.next == number + 1
            with pytest.raises(NotNext, match="expected an item with index 6, got 8"):
                sequence.append("8")
            assert sequence.read(2) == "2"
            assert sequence.read_range(2, 4) == ["2", "3", "4"]
            with pytest.raises(Gone, match="1 to 5 are there"):
                sequence.read(6)
            assert sequence.reset()
            assert (sequence.next_index, len(sequence), sequence.generation) == (1, 0, 1)

        await in_thread(write)


async def test_a_queue_is_added_to_and_removed_from(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        factory = await made.factory(1)

        def write() -> None:
            orders = factory.get_or_create_queue("orders", JsonSerializer())
            for number in range(10):
                orders.append({"order": number})
            assert orders.remove(4).is_acked
            assert len(orders) == 6
            assert orders.peek() == (5, {"order": 4})
            assert list(orders) == [(each + 1, {"order": each}) for each in range(4, 10)]
            assert not orders.remove(3).is_acked  # they are gone
            with pytest.raises(Gone):
                orders.remove(11)
            with pytest.raises(OtherKind, match="expected a sequence 'orders', got the queue"):
                factory.get_or_create_sequence("orders", None, JsonSerializer())

        await in_thread(write)


async def test_the_next_leader_goes_on_with_the_right_number(tmp_path: Path) -> None:
    async with persisted(tmp_path, 3) as made:
        one = await made.factory(1)
        sequence = await in_thread(lambda: one.get_or_create_sequence("s", None, BytesSerializer()))
        for number in range(5):
            await sequence.append_task(b"%d" % number)
        await made.kill(1)
        await made.promote(2)
        two = await made.factory(2)
        again = await in_thread(lambda: two.get_or_create_sequence("s", None, BytesSerializer()))
        assert again.next_index == 6
        stored = await again.append_task(b"five")
        assert (stored, stored.is_acked) == (6, True)
        assert await again.read_task(1, 6) == [b"0", b"1", b"2", b"3", b"4", b"five"]
        three = made.service(3).table.storages[correlation_id("s")]
        assert (three.next, three.epoch) == (7, 1)


async def test_a_storage_whose_queue_is_removed_takes_nothing(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        one, service = await made.factory(1), made.service(1)
        sequence = await in_thread(lambda: one.get_or_create_sequence("s", None, BytesSerializer()))
        assert await sequence.append_task(b"1") == 1
        await made.hosts.remove(1)
        with pytest.raises(NotLeader):
            await sequence.append_task(b"2")
        await eventually(lambda: not service.leads())
        assert not made.hosts.hosts[1].has_ended


async def test_a_host_that_leads_again_numbers_by_its_log(tmp_path: Path) -> None:
    """Not by what it remembers of the time when it led before."""
    async with persisted(tmp_path, 2) as made:
        one, two = await made.factory(1), await made.factory(2)
        first = await in_thread(lambda: one.get_or_create_sequence("s", None, BytesSerializer()))
        for number in (1, 2):
            assert await first.append_task(b"1") == number
        await made.promote(2)
        await eventually(lambda: not made.service(1).leads())
        with pytest.raises(NotLeader):
            await first.append_task(b"no")
        second = await in_thread(lambda: two.get_or_create_sequence("s", None, BytesSerializer()))
        for number in (3, 4, 5):
            assert await second.append_task(b"2") == number
        await made.promote(1)
        stored = await first.append_task(b"1")
        assert (stored, stored.is_acked) == (6, True)
        assert await first.read_task(1, 6) == [b"1", b"1", b"2", b"2", b"2", b"1"]


async def test_a_backup_takes_no_append_and_names_the_leader(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        factory = await made.factory(2)
        make = partial(factory.get_or_create_queue, "orders", BytesSerializer())
        with pytest.raises(NotLeader, match="host 2 does not serve persist 'a': host 1 leads it"):
            await in_thread(make)


async def test_a_write_without_a_backup_warns_once_and_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Each storage waits for its own time; an asynchronous one beside it does not."""
    async with persisted(tmp_path, 2) as made:
        await made.kill(2)
        factory = await made.factory(1)

        def write() -> None:
            quick = factory.get_or_create_queue("quick", BytesSerializer(), timeout=0.01)
            slow = factory.get_or_create_queue("slow", BytesSerializer(), timeout=0.05)
            none = factory.get_or_create_queue("none", BytesSerializer(), timeout=0.0)
            for each in (quick, slow, none):
                assert not each.append(b"there").is_acked
                assert each.peek() == (1, b"there")

        with caplog.at_level(logging.WARNING):
            await in_thread(write)
        told = [each.getMessage() for each in caplog.records if "no backup" in each.getMessage()]
        assert told == [
            "persist 'a': no backup is known to have index 1 of storage 'quick' after 10 ms",
            "persist 'a': no backup is known to have index 1 of storage 'slow' after 50 ms",
        ]


async def test_damage_in_the_state_of_a_backup_asks_for_one_storage_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """And a storage that the leader does not know is told, and stays."""
    async with persisted(tmp_path, 2) as made:
        factory = await made.factory(1)

        def make(name: str) -> PersistentSequence[bytes]:
            return factory.get_or_create_sequence(name, None, BytesSerializer())

        damaged, other = [await in_thread(partial(make, each)) for each in ("damaged", "other")]
        for each in (damaged, other):
            for number in range(10):
                await each.append_task(b"%d" % number)
        backup = made.service(2)
        with backup.guard:  # the last of its items is lost there
            table = backup.table.storages
            lost = table[correlation_id("damaged")]
            table[lost.id] = lost.copy()
            table[lost.id]._refs.pop()
            table[9] = Storage(9, StorageKind.QUEUE, "extra")
        untouched = table[correlation_id("other")]
        await damaged.append_task(b"more")
        await damaged.append_task(b"more yet")
        await eventually(lambda: made.desks[2].requests == 1)
        await eventually(lambda: not backup.unasked())
        await damaged.append_task(b"after")
        leaders = made.service(1).table.storages[lost.id]
        await eventually(lambda: leaders.next == 14 and not table[lost.id].damage)
        whole = table[lost.id]
        assert whole.refs(1, 13) == leaders.refs(1, 13)
        assert table[correlation_id("other")] is untouched
        assert made.desks[2].requests == 1
        await eventually(lambda: "host 1 does not know storage 'extra'" in caplog.text)
        assert 9 in table
        leader = made.service(1)
        with leader.guard:  # a host that leads asks another one
            lead_table = leader.table.storages
            lead_table[lost.id] = lead_table[lost.id].copy()
            lead_table[lost.id].damage = "it was damaged"
        await eventually(lambda: not lead_table[lost.id].damage)
        assert await damaged.append_task(b"on") == 14


def is_damaged(service: StorageService) -> bool:
    storage = service.table.storages.get(correlation_id("bad"))
    return storage is not None and bool(storage.damage)


async def test_a_record_that_cannot_be_read_stops_its_storage_alone(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Until a reset, as the log of each host says the same."""
    async with persisted(tmp_path, 2) as made:
        factory = await made.factory(1)

        def make(name: str) -> PersistentSequence[bytes]:
            return factory.get_or_create_sequence(name, None, BytesSerializer())

        bad, other = [await in_thread(partial(make, each)) for each in ("bad", "other")]
        assert await bad.append_task(b"1") == 1
        writer = Writer()
        writer.event("SEQUENCE_APPEND")
        with writer.block():
            writer.name("id")
            writer.integer(correlation_id("bad"))
        await made.hosts.hosts[1].queue("a").append(bytes(writer.data))
        await made.hosts.hosts[1].queue("a").append(b"\xff of no storage")
        for host in (1, 2):
            await eventually(partial(is_damaged, made.service(host)))
        assert "a record of 'bad', id 0x" in caplog.text
        assert await other.append_task(b"on") == 1
        factory = await made.factory(1)  # whose program has opened nothing yet
        again = await in_thread(partial(make, "bad"))
        with pytest.raises(StorageDamaged, match="expected the field 'gen'"):
            await again.append_task(b"no")
        assert await again.reset_task() == 1
        assert (await again.append_task(b"new")).is_acked
        assert await again.read_task(1, 1) == [b"new"]
        assert not made.service(2).table.storages[correlation_id("bad")].damage


async def test_into_the_log_of_an_engine_nothing_is_written(tmp_path: Path) -> None:
    settings = StorageSettings(group="a", own_log=True)
    async with persisted(tmp_path, 2, settings=settings, waits=False) as made:
        await eventually(lambda: made.service(1).led.is_serving)
        engine = made.hosts.hosts[1].queue("a")
        id_ = correlation_id("x.out")
        create = StorageRecord(op=Op.CREATE, id=id_, kind=StorageKind.SEQUENCE, name="x.out")
        item = StorageRecord(op=Op.APPEND, id=id_, index=1, item=b"logon")
        for record in (create, item):
            await engine.append(record.encoded())
        await eventually(lambda: made.service(2).position > made.service(2).led.feed.records > 1)
        assert made.service(2).read_here(id_, 1, 1) == [b"logon"]
        factory = await made.factory(1)
        with pytest.raises(NotLeader, match="an engine writes this log itself"):
            await in_thread(lambda: factory.get_or_create_queue("q", BytesSerializer()))


KEPT = CheckpointSettings(age_min_ms=None)


class Saves:
    """The checkpoints of each host."""

    def __init__(self, folder: Path, settings: CheckpointSettings = KEPT) -> None:
        self.made: dict[int, Checkpointer] = {}
        self.hosts: Persisted
        self._folder = folder
        self._settings = settings

    def __call__(self, host: int, service: StorageService) -> Checkpointer:
        path = self._folder / str(host) / "a"
        others = frozenset(self.hosts.snapshots) - {host} if hasattr(self, "hosts") else frozenset()

        def keeping() -> Keeping:
            return Keeping(members=others if service.leads() else None)

        joining = (
            SyncJoining(self.hosts.desks[host], self.hosts.snapshots[host])
            if hasattr(self, "hosts")
            else None
        )
        self.made[host] = saver = Checkpointer("a", path, self._settings, joining, keeping)
        return saver

    def index(self, host: int) -> int:
        latest = self.made[host].latest
        return 0 if latest is None else latest.pos.index


async def test_a_host_that_starts_again_reads_what_is_live(tmp_path: Path) -> None:
    """After 1,000 appends and 900 removes it reads fewer than 200 records."""
    saves = Saves(tmp_path)
    async with persisted(tmp_path, 2, checkpoints=saves) as made:
        factory = await made.factory(1, 0.0)
        orders = await in_thread(lambda: factory.get_or_create_queue("orders", BytesSerializer()))

        def write() -> None:
            for number in range(1000):
                orders.append(b"%d" % number)
            for number in range(1, 901):
                orders.remove(number)

        await in_thread(write)
        await eventually(lambda: made.service(2).led.feed.records == 1901)
        last = made.service(2).position
        await eventually(lambda: saves.index(2) > last - 200)
        await made.kill(2)
        await made.begin(2)
        await eventually(lambda: len(made.service(2).table.storages) == 1)
        (held,) = made.service(2).table.storages.values()
        await eventually(lambda: (held.first, held.next) == (901, 1001))
        assert made.service(2).led.feed.records < 200


async def test_items_of_old_files_are_kept_and_a_host_joins_without_these_files(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """They are written again where few are live; the files go behind saved states. A host that has
    neither them nor a state asks for all storages as of one position."""
    settings = StorageSettings(group="a", compact_seconds=0.3, age_min_ms=0)
    saves = Saves(tmp_path, CheckpointSettings(interval_seconds=0.5, age_min_ms=0))
    caplog.set_level(logging.INFO)
    async with persisted(
        tmp_path, 3, settings=settings, checkpoints=saves, roll_cycle="TEST_SECONDLY", begin=2
    ) as made:
        factory = await made.factory(1, 0.0)
        orders = await in_thread(lambda: factory.get_or_create_queue("orders", BytesSerializer()))
        sequence = await in_thread(
            lambda: factory.get_or_create_sequence("numbers", None, BytesSerializer())
        )

        def write() -> None:
            for number in range(1, 101):
                orders.append(b"%d" % number)
            orders.remove(95)
            sequence.append(b"one")
            sequence.reset(7)
            sequence.append(b"seven")

        await in_thread(write)
        files = made.hosts.path(1)
        first = min(files.glob("*.cq4"))
        with trio.fail_after(30):
            while first.exists():
                await orders.append_task(b"more")  # the last file ends once there is another one
                await orders.remove_task(orders._at.head().next - 6)
                await trio.sleep(0.2)
        held = await in_thread(lambda: list(orders))
        assert (held[-1][0] - held[0][0], len(held)) == (4, 5)
        assert await sequence.read_task(7, 7) == [b"seven"]
        saves.hosts = made
        await made.begin(3)

        def states() -> list[dict[int, Storage]]:
            return [{each.id: each for each in made.service(n).heads()} for n in (1, 3)]

        with trio.fail_after(30):  # items are kept elsewhere meanwhile
            while len((found := states())[0]) != 2 or found[0] != found[1]:
                await trio.sleep(0.05)
        assert made.service(3).read_here(correlation_id("numbers"), 7, 7) == [b"seven"]
        assert "persist 'a': the state of 2 storages came from host 1" in caplog.text
