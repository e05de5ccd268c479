"""Faults of one storage, one item, one program or one guest stay its own."""

import io
import struct
import threading
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio

from cqrepl.net.threads import in_thread
from cqrepl.persist.errors import NotLeader
from cqrepl.persist.fix import FixSessionStore, Sent
from cqrepl.persist.persistdesk import (
    CSP_PREFIX,
    DECODER,
    Conversation,
    SyncFailed,
    SyncHalf,
)
from cqrepl.persist.storage import storageservice
from cqrepl.persist.storage.compaction import _keep
from cqrepl.persist.storage.records import ITEM_MAX, Op, StorageRecord, correlation_id
from cqrepl.persist.storage.storages import BytesSerializer, PersistentSequence
from cqrepl.persist.storage.storageservice import StorageService
from cqrepl.persist.storage.storagetable import Storage, StorageTable
from cqrepl.persist.storage.syncwords import SyncAnswer
from cqrepl.protocol import LinkView
from cqrepl.queue import ExcerptBatch, Queue, QueueError
from cqrepl.queue.files.checkpointfile import open_checkpoint
from cqrepl.service.fieldwords import FieldWords
from tests.support.persisted import Persisted, persisted
from tests.support.replicas import eventually

BAD = correlation_id("bad")


async def sequence(made: Persisted, name: str) -> PersistentSequence[bytes]:
    factory = await made.factory(1)
    return await in_thread(lambda: factory.get_or_create_sequence(name, None, BytesSerializer()))


def storage(service: StorageService) -> Storage | None:
    return service.table.storages.get(BAD)


def is_damaged(service: StorageService) -> bool:
    found = storage(service)
    return found is not None and bool(found.damage)


async def test_an_item_that_no_excerpt_holds_leaves_the_lead_as_it_is(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        items = await sequence(made, "items")
        for length in (ITEM_MAX + 1, 16 << 20):
            with pytest.raises(ValueError, match="expected an item of at most"):
                await items.append_task(bytes(length))
            assert await items.append_task(b"on") == len(items)
        wide = StorageRecord(op=Op.APPEND, id=items._at.id, index=3, item=bytes(16 << 20))
        with pytest.raises(ValueError, match="expected at most"):
            await in_thread(lambda: made.service(1).write(lambda _: wide))
        index: Any = 1.5
        half = StorageRecord(op=Op.APPEND, id=items._at.id, index=index, item=b"")
        with pytest.raises(struct.error, match="integer"):
            await in_thread(lambda: made.service(1).write(lambda _: half))
        stored = await items.append_task(b"on")
        assert (stored, stored.is_acked) == (3, True)


async def test_one_damaged_storage_keeps_no_host_out_and_no_file_goes(tmp_path: Path) -> None:
    """A host that has neither the start of the log nor a state gets the others."""
    async with persisted(tmp_path, 2) as made:
        bad, other = await sequence(made, "bad"), await sequence(made, "other")
        for each in (bad, other):
            await each.append_task(b"1")
        jump = StorageRecord(op=Op.APPEND, id=BAD, index=9, item=b"")
        await made.hosts.hosts[1].queue("a").append(jump.encoded())
        for host in (1, 2):
            await eventually(partial(is_damaged, made.service(host)))
        part = await made.desks[2].join("a", tmp_path / "joined", 1)
        table = StorageTable()
        with open_checkpoint(part)[1] as body:
            table.restore(body)
        assert table.storages[correlation_id("other")].next == 2
        assert "expected index 2, got 9" in table.storages[BAD].damage
        service = made.service(2)
        floors = list(service._floors)
        service.table.storages[BAD].asked = False
        service.snapshot(io.BytesIO())  # items of the damaged one may stand in any file
        assert list(service._floors) == floors
        service.table.storages[BAD].asked = True
        service.snapshot(io.BytesIO())  # it is known that there are none
        assert len(service._floors) == min(len(floors) + 1, 3)


class Slow:
    """A conversation whose answer comes late: the storage was reset meanwhile."""

    def __init__(self, conversation: Conversation, made: Persisted) -> None:
        self._conversation = conversation
        self._made = made

    async def sync(self, id_: int, own: Storage | None, pos: int) -> SyncAnswer:
        got = await self._conversation.sync(id_, own, pos)
        await in_thread(lambda: self._made.service(1).write(lambda n: n.reset(BAD, 1, 1)))
        await eventually(lambda: not is_damaged(self._made.service(2)))
        return got


async def test_an_answer_from_before_a_reset_is_not_taken(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        bad = await sequence(made, "bad")
        await bad.append_task(b"1")
        service, desk = made.service(2), made.desks[2]
        own = service.table.storages[BAD]
        with service.guard:
            service.table.damage(own, "it was damaged", service.position)
            own.asked = True  # the host itself asks not
        async with desk.asking(desk._links[1], "a") as conversation:
            await conversation.list_all()
            slow: Any = Slow(conversation, made)
            await desk._repair_one(service, slow, own)
        found = service.table.storages[BAD]
        assert (found.gen, len(found), found.damage) == (1, 0, "")


def half(link: LinkView, made: Persisted, part: str) -> SyncHalf:
    found = SyncHalf(f"{CSP_PREFIX}a/{part}", link, DECODER)
    found.cid = link.register(found.csp, made.desks[2].kinds[0], None, found)
    return found


async def test_a_guest_that_takes_no_answer_asks_no_more(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        await (await sequence(made, "bad")).append_task(b"1")
        link = made.desks[2]._links[1]
        control, data = half(link, made, "control"), half(link, made, "data")
        control.say(FieldWords("GET_ALL_RESOURCES", {"whole": 1}))
        data.say(FieldWords("DATA"))
        with trio.fail_after(20):
            while not data.is_over:
                for _ in range(100):
                    control.say(FieldWords("SYNC_REQ", {"id": BAD}))
                await trio.sleep(0)
        assert "expected one SYNC_REQ at a time" in data.why
        control.end("it is over")
        lone = half(link, made, "control")  # has no data
        lone.say(FieldWords("GET_ALL_RESOURCES", {"whole": 1}))
        await eventually(lambda: len(made.desks[1]._visits) == 1)
        lone.end("it is over")
        async with made.desks[2].asking(link, "a") as conversation:
            await conversation.list_all()
            assert len(made.desks[1]._visits) == 1  # nothing is kept of those before


async def test_an_item_that_is_not_there_any_more_is_not_kept(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        await (await sequence(made, "bad")).append_task(b"1")
        service = made.service(1)
        (ref,) = (await eventually_one(service)).refs(1, 1)
        with Queue.open(service.led.feed.path) as queue:
            assert not _keep(service, queue, ref + 1, (BAD, 0, 1))
            with pytest.raises(QueueError, match=r"expected item 2 of .*, got SEQUENCE_APPEND 1"):
                _keep(service, queue, ref, (BAD, 0, 2))
            assert await in_thread(lambda: _keep(service, queue, ref, (BAD, 0, 1)))


def has_items(service: StorageService, count: int) -> bool:
    found = storage(service)
    return found is not None and len(found) == count


def damage_end(service: StorageService) -> None:
    """The last item of the storage is lost to the state."""
    with service.guard:
        found = service.table.storages[BAD]
        lost = found._refs.pop()
        service.table.damage(found, "its end is lost", lost)


async def test_two_that_are_damaged_are_mended_once_a_host_is_back_that_has_it_whole(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The two ask each other meanwhile, and neither gives up; that the third is away is said once
    by each."""
    async with persisted(tmp_path, 3) as made:
        bad = await sequence(made, "bad")
        for number in (1, 2, 3):
            await bad.append_task(b"%d" % number)
        for host in (1, 2):  # one backup has it so far
            await eventually(partial(has_items, made.service(host), 3))
        await made.kill(3)
        for host in (1, 2):
            damage_end(made.service(host))
        await trio.sleep(0.4)  # some rounds
        assert is_damaged(made.service(1))
        assert is_damaged(made.service(2))
        assert caplog.text.count("says nothing of damaged storages") <= 2
        assert "stays damaged" not in caplog.text
        await made.begin(3)
        await eventually(lambda: not any(is_damaged(made.service(host)) for host in (1, 2)))
        assert await bad.append_task(b"4") == 4
        assert await bad.read_task(1, 4) == [b"1", b"2", b"3", b"4"]


async def eventually_one(service: StorageService) -> Storage:
    await eventually(lambda: len(storage(service) or ()) == 1)
    found = storage(service)
    assert found is not None
    return found


async def test_two_stores_of_one_session_miss_nothing_of_each_other(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        factory = await made.factory(1)

        def write() -> None:
            one, two = FixSessionStore(factory, "S"), FixSessionStore(factory, "S")
            one.set_message(1, b"one")
            append = two._out.append

            def meanwhile(item: bytes) -> object:  # the other one writes in between
                del vars(two._out)["append"]
                one.set_message(2, b"two")
                return append(item)

            assert one._out is two._out
            vars(two._out)["append"] = meanwhile
            two.set_message(3, b"three")
            assert two.messages(1) == [Sent(1, b"one"), Sent(2, b"two"), Sent(3, b"three")]

        await in_thread(write)


async def test_a_program_that_reports_under_a_lock_does_not_stop_the_host(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        factory = await made.factory(1)
        told: list[int] = []

        def write() -> None:
            numbers = factory.get_or_create_sequence(
                "n",
                int,
                BytesSerializer(),
                on_gap="report",
                on_report=lambda expected, got: told.append(numbers.next_index),
            )
            assert numbers.append(b"7").is_acked

        with trio.fail_after(20):
            await trio.to_thread.run_sync(write, abandon_on_cancel=True)
        assert told == [2]
        with pytest.raises(NotLeader):
            await in_thread(lambda: made.service(2).write(lambda n: n.reset(1, 1, 1)))


async def test_a_state_that_is_late_passes_over_no_item(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with persisted(tmp_path, 1, policy="from=none") as made:
        factory, service = await made.factory(1, 0.0), made.service(1)
        orders = await in_thread(lambda: factory.get_or_create_queue("o", BytesSerializer()))
        gate, take = threading.Event(), service.apply

        def late(batch: ExcerptBatch, committed: int) -> None:
            gate.wait()
            take(batch, committed)

        await eventually(lambda: service.position > 0)
        monkeypatch.setattr(storageservice, "_READ_SECONDS", 0.05)
        monkeypatch.setattr(service, "apply", late)
        try:
            await orders.append_task(b"there")
            with pytest.raises(QueueError, match="expected a state with excerpt"):
                await in_thread(lambda: list(orders))
        finally:
            gate.set()
        monkeypatch.setattr(storageservice, "_READ_SECONDS", 10.0)
        assert await in_thread(lambda: list(orders)) == [(1, b"there")]


async def test_two_conversations_of_one_connection_get_their_own_answers(tmp_path: Path) -> None:
    async with persisted(tmp_path, 2) as made:
        await (await sequence(made, "bad")).append_task(b"1")
        await eventually_one(made.service(1))
        desk = made.desks[2]
        async with desk.asking(desk._links[1], "a") as one:
            await one.list_all(whole=True)
            async with desk.asking(desk._links[1], "a") as two:
                await two.list_all()
                with trio.fail_after(20):
                    for each in (one, two):
                        got = await each.sync(BAD, None, 0)
                        assert got.storage is not None
                        assert got.storage.next == 2
            got = await one.sync(BAD, None, 0)
            assert got.storage is not None


@pytest.mark.parametrize("lacks", ["_has_begun", "has_start"])
async def test_a_host_without_a_state_yet_gives_no_whole_one(tmp_path: Path, lacks: str) -> None:
    """It would be that of an empty log, and the host that asks lacks the start of its own."""
    async with persisted(tmp_path, 2) as made:
        await (await sequence(made, "bad")).append_task(b"1")
        feed = made.service(2).led.feed
        assert feed.has_start
        setattr(feed, lacks, False)  # as at its start
        desk = made.desks[1]
        with pytest.raises(SyncFailed, match="has a state of 'a', got one that has none yet"):
            async with desk.asking(desk._links[2], "a") as conversation:
                await conversation.list_all(whole=True)
