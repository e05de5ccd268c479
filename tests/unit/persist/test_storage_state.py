"""The state of storages, and what one host tells another of it. No I/O."""

import io
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cqrepl.commands.statuspage import page
from cqrepl.persist.errors import Gone, NotNext, OtherKind
from cqrepl.persist.storage.records import (
    Op,
    StorageKind,
    StorageRecord,
    correlation_id,
    decode_record,
)
from cqrepl.persist.storage.storagenumbers import Numberer
from cqrepl.persist.storage.storagetable import Storage, StorageTable
from cqrepl.persist.storage.syncwords import (
    FRAME_MAX,
    MESSAGE_MAX,
    SyncAnswer,
    answer,
    decode_sync,
    listed,
    request,
    rows_of,
)
from wire import WireError

ID = correlation_id("s")
SEQUENCE = StorageKind.SEQUENCE


def written(steps: Sequence[int], kind: StorageKind = SEQUENCE) -> list[StorageRecord]:
    """The records of a leader: an item for 0, a reset (or removal) for all else. The time of the
    resets goes back."""
    table = StorageTable()
    numbering = Numberer(table.storages.get, 1)
    records: list[StorageRecord] = []

    def write(record: StorageRecord | None) -> None:
        if record is not None:
            numbering.take(record, len(records))
            records.append(record)

    write(numbering.create(kind, "s"))
    for nth, step in enumerate(steps):
        head = numbering.head(ID)
        assert head is not None
        if not step:
            write(numbering.append(ID, b"%d" % nth))
        elif kind is SEQUENCE:
            write(numbering.reset(ID, step, 1000 - nth))
        elif len(head):
            write(numbering.remove(ID, head.first + (step - 1) % len(head)))
    return records


def applied(records: Sequence[StorageRecord], start: int = 0) -> StorageTable:
    table = StorageTable()
    for ref, record in enumerate(records, start):
        table.apply(ref, record)
    return table


def state(table: StorageTable) -> bytes:
    out = io.BytesIO()
    table.snapshot(out)
    return out.getvalue()


STEPS = st.lists(st.sampled_from([0, 0, 0, 1, 2, 5]), max_size=40)
KINDS = st.sampled_from(list(StorageKind))


SIZES = st.sampled_from([8, 23, FRAME_MAX])


@given(steps=STEPS, kind=KINDS, cut=st.integers(0, 41), pos=st.integers(0, 41), size=SIZES)
def test_a_backup_that_is_anywhere_comes_to_what_the_leader_has(
    steps: list[int], kind: StorageKind, cut: int, pos: int, size: int
) -> None:
    """At every index and in every generation; and what is written meanwhile is applied once."""
    records = written(steps, kind)
    pos = max(min(pos, len(records)), 1)
    cut = min(cut, pos)  # the leader waits until it is as far
    own = applied(records[:cut]).storages.get(ID)
    leader = applied(records[:pos]).storages[ID]
    got = SyncAnswer(own)
    words = list(answer(leader.copy(), request(ID, own, 0), pos, size))
    for each in words:
        assert not got.is_over  # nothing counts before SYNC_FINISHED
        assert len(each.encoded()) <= MESSAGE_MAX
        got.take(decode_sync(each.encoded()))
    assert got.storage is not None
    backup = applied(records[:cut])
    backup.repair(got.storage, got.pos)
    for ref in range(pos, len(records)):
        backup.apply(ref, records[ref])
    assert state(backup) == state(applied(records))
    names = [each.name for each in words]
    assert names[0] == "SYNC_REQ_ACCEPTED"
    assert names[-1] == "SYNC_FINISHED"
    assert ("SEQUENCE_RESET" in names) == (leader.gen != (0 if own is None else own.gen))
    if own is not None and own.gen == leader.gen and own.next <= leader.next:
        refs = sum(len(each.data("refs")) for each in words)
        assert refs == 8 * (leader.next - max(own.next, leader.first))


@given(steps=STEPS, kind=KINDS, data=st.data())
def test_records_once_more_have_no_effect(
    steps: list[int], kind: StorageKind, data: st.DataObject
) -> None:
    records = written(steps, kind)
    table = applied(records)
    was = state(table)
    begin = data.draw(st.integers(0, len(records)))
    for ref, record in enumerate(records[begin:], begin):
        applied_ = table.apply(ref, record)
        assert not applied_.is_news
    assert state(table) == was


@given(steps=STEPS, kind=KINDS, at=st.integers(1, 40), how=st.sampled_from(["drop", "swap"]))
def test_a_record_that_is_missing_or_misplaced_is_damage_or_without_effect(
    steps: list[int], kind: StorageKind, at: int, how: str
) -> None:
    """Never a wrong state that is not known to be wrong, but for the end of the log, and where a
    reset has made the storage whole; held records and an answer make it right."""
    records = written(steps, kind)
    if at + 1 >= len(records):
        return
    rows = list(enumerate(records))
    if how == "drop":
        del rows[at]
    else:
        rows[at], rows[at + 1] = rows[at + 1], rows[at]
    table = StorageTable()
    for ref, record in rows:
        table.apply(ref, record)
    storage, right = table.storages[ID], applied(records).storages[ID]
    if not storage.damage:
        if (storage.gen, storage.next) == (right.gen, right.next):
            assert list(storage.refs(max(storage.first, right.first), right.next - 1)) == list(
                right.refs(max(storage.first, right.first), right.next - 1)
            )
        return
    pos = max(len(records) // 2 + 1, storage.held[0].ref)  # the leader is as far, or waits
    repair(table, applied(records[:pos]), pos)
    if how == "drop":
        assert state(table) == state(applied(records))


def repair(table: StorageTable, leader: StorageTable, pos: int) -> None:
    storage = table.storages[ID]
    got = SyncAnswer(storage)
    for each in answer(leader.storages[ID], request(ID, storage, 0), pos):
        got.take(decode_sync(each.encoded()))
    assert got.storage is not None
    table.repair(got.storage, pos)


@pytest.mark.parametrize("is_restored", [False, True])
def test_an_item_that_is_kept_while_a_storage_is_damaged_stands_where_the_leader_says(
    is_restored: bool,
) -> None:
    """Its old store file may go."""
    records = written([0, 0, 0, 0])
    keep = StorageRecord(op=Op.KEEP, id=ID, index=2, gen=0, epoch=1, item=b"1")
    table = StorageTable()
    for ref, record in enumerate(records):
        if ref != 3:  # an item is lost there, so the next one jumps
            table.apply(ref, record)
    assert table.storages[ID].damage
    leader = applied([*records, keep])
    table.apply(5, keep)
    if is_restored:
        table.restore(io.BytesIO(state(table)))
    repair(table, leader, 6)
    assert list(table.storages[ID].refs(1, 4)) == [1, 5, 3, 4]
    assert state(table) == state(leader)


def test_a_number_beyond_what_a_state_can_hold_is_no_record() -> None:
    record = StorageRecord(op=Op.APPEND, id=ID, index=(1 << 63) - 1, item=b"")
    with pytest.raises(WireError, match=r"expected a number from 0 to .* in the field 'index'"):
        decode_record(record.encoded())
    numbering = Numberer(applied(written([0])).storages.get, 1)
    with pytest.raises(ValueError, match="expected an index from 1 to"):
        numbering.reset(ID, (1 << 62) + 1, 0)


def test_the_list_says_a_long_damage_in_whole_characters() -> None:
    storage = Storage(ID, SEQUENCE, "s", damage="x" + "\N{EURO SIGN}" * 2000)
    (word,) = listed([storage], 1)
    (row,) = rows_of(decode_sync(word.encoded()))
    assert storage.damage.startswith(row.damage)
    assert row.damage.endswith("\N{EURO SIGN}")


@given(steps=STEPS, kind=KINDS)
def test_a_snapshot_gives_the_state_back(steps: list[int], kind: StorageKind) -> None:
    table = applied(written(steps, kind))
    again = StorageTable()
    again.restore(io.BytesIO(state(table)))
    assert state(again) == state(table)
    assert again.lowest() == table.lowest()


def test_an_item_that_is_kept_stands_elsewhere_and_moves_no_number() -> None:
    records = written([0, 0, 0])
    table = applied(records)
    keep = StorageRecord(op=Op.KEEP, id=ID, index=1, gen=0, epoch=1, item=b"0")
    table.apply(90, keep)
    storage = table.storages[ID]
    assert list(storage.refs(1, 3)) == [90, 2, 3]
    assert (storage.next, table.lowest()) == (4, 2)
    reset = StorageRecord(op=Op.RESET, id=ID, index=1, gen=1, at=1)
    table.apply(91, reset)
    table.apply(92, keep)  # of what a reset has taken
    assert (len(storage), storage.damage) == (0, "")


def test_a_reset_makes_a_damaged_storage_whole() -> None:
    table = applied(written([0]))
    jump = StorageRecord(op=Op.APPEND, id=ID, index=9, gen=0, item=b"")
    assert table.apply(5, jump).is_news
    assert not table.apply(6, jump).is_news
    table.apply(7, StorageRecord(op=Op.RESET, id=ID, index=4, gen=1, at=9))
    storage = table.storages[ID]
    assert (storage.damage, storage.next, storage.gen) == ("", 4, 1)


def test_the_list_of_ten_thousand_storages_goes_in_frames() -> None:
    storages = [
        Storage(correlation_id(f"storage {n}"), SEQUENCE, f"storage {n}") for n in range(10_000)
    ]
    words = [each.encoded() for each in listed(storages, 77)]
    assert max(map(len, words)) <= 65_536
    rows = [row for each in words for row in rows_of(decode_sync(each))]
    assert [row.name for row in rows] == [each.name for each in storages]
    assert len({row.id for row in rows}) == 10_000
    assert FRAME_MAX < 65_536


def test_numbers_are_refused_that_do_not_fit() -> None:
    table = applied(written([0, 0], StorageKind.QUEUE))
    numbering = Numberer(table.storages.get, 1)
    with pytest.raises(OtherKind, match="expected a sequence 's', got the queue 's'"):
        numbering.create(SEQUENCE, "s")
    with pytest.raises(OtherKind, match="expected a sequence, got the queue"):
        numbering.reset(ID, 1, 0)
    with pytest.raises(Gone, match="1 to 2 are there"):
        numbering.remove(ID, 3)
    assert numbering.remove(ID, 0) is None
    fresh = Numberer(table.storages.get, 2)  # which has written nothing to it
    fresh.take(fresh.keep(ID, 1, 0, b"0"), 9)
    assert fresh.append(ID, b"").index == 3
    assert str(NotNext("s", 1, 2)) == "storage 's': expected an item with index 1, got 2"


def test_the_status_of_a_host_has_a_line_for_each_group() -> None:
    """Also of services of other sorts than boards."""
    host: dict[str, Any] = {
        "host": 1,
        "process": 7,
        "listens": None,
        "tls": None,
        "peers": [],
        "queues": [],
        "services": {
            "p-fix": {
                "persist": "p-fix",
                "serves": True,
                "storages": 2,
                "items": 1,
                "fault": None,
                "checkpoint": None,
            }
        },
    }
    line = "queue p-fix: persist p-fix, served here: 2 storages, 1 item; checkpoint none yet"
    assert line in list(page(host))
