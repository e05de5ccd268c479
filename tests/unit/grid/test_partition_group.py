"""A replica sees each committed transaction whole, and nothing else, whatever it is told when."""

import io
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cqrepl.grid.errors import Conflict, GridFull, GridRefused
from cqrepl.grid.partition.gridwords import (
    ABSENT,
    Change,
    MapOp,
    Read,
    decode_words,
    grid_words,
    pack_numbers,
    unpack_rows,
)
from cqrepl.grid.partition.partitiongroup import PartitionGroup
from cqrepl.grid.partition.primary import Primary, TxRequest, opened_record
from cqrepl.service.fieldwords import FieldWords

KEYS = [b"sa", b"sb", b"sc"]


@dataclass
class Log:
    """A primary, the records that it has written, and what is to be seen in the end."""

    state: PartitionGroup = field(default_factory=PartitionGroup)
    records: list[bytes] = field(default_factory=list)
    model: dict[tuple[str, bytes], bytes] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.write(opened_record(self.state, 1, 7, (1, 1), "grid"))
        self.primary = Primary(self.state, 1)

    def write(self, words: FieldWords) -> int:
        self.records.append(words.encoded())
        index = len(self.records)
        self.state.apply(index, decode_words(self.records[-1]))
        return index

    def commit(self, changes: list[Change], loader: bool | None, *, answered: bool = True) -> int:
        """Args: loader: None for no loader; else whether it commits."""
        request = TxRequest(0, changes)
        assert self.primary.locks.take(1, request.places) is None
        written = self.primary.record(request, is_final=loader is None)
        index = self.write(written.words)
        if answered:
            self.primary.answered(written)
        found = self.state.open[written.tx]
        self.primary.settle(index)
        if loader is not None:
            self.primary.decide(found, is_committed=loader)
        self.primary.locks.release(1)
        if loader is not False:
            for op, name, key, value in changes:
                if op is MapOp.CLEAR:
                    self.model = {at: each for at, each in self.model.items() if at[0] != name}
                elif op is MapOp.PUT:
                    self.model[name, key] = value
                else:
                    self.model.pop((name, key), None)
        return index


def seen(state: PartitionGroup) -> dict[tuple[str, bytes], bytes]:
    maps = state.partitions.get(0, {})
    return {(name, key): e.value for name, rows in maps.items() for key, e in rows.items()}


def replica(log: Log, upto: int, safe: int) -> PartitionGroup:
    state = PartitionGroup()
    for nth, record in enumerate(log.records[:upto], 1):
        state.apply(nth, decode_words(record))
    state.settle(min(upto, safe))
    return state


def put(key: bytes, value: bytes, name: str = "m") -> Change:
    return Change(MapOp.PUT, name, key, value)


CHANGES = st.lists(
    st.one_of(
        st.builds(put, st.sampled_from(KEYS), st.binary(max_size=3), st.sampled_from("mn")),
        st.builds(Change, st.just(MapOp.REMOVE), st.sampled_from("mn"), st.sampled_from(KEYS)),
        st.builds(Change, st.just(MapOp.CLEAR), st.sampled_from("mn")),
    ),
    min_size=1,
    max_size=4,
)


@given(
    steps=st.lists(st.tuples(CHANGES, st.sampled_from([None, True, False]), st.booleans())),
    data=st.data(),
)
@settings(deadline=None)
def test_a_replica_is_at_one_of_the_primary_s_states(
    steps: list[tuple[list[Change], bool | None, bool]], data: st.DataObject
) -> None:
    """At each index and each safe mark, through a snapshot or not; at the end at the last one."""
    log = Log()
    models = [dict(log.model)]
    for changes, loader, answered in steps:
        log.commit(changes, loader, answered=answered)
        models.append(dict(log.model))
        rows = {
            (name, key): entry.value
            for name in "mn"
            for key, entry in log.primary.rows(0, name).items()
        }
        assert rows == log.model
        got = ((n, k, log.primary.get(0, n, k)) for n in "mn" for k in KEYS)
        assert {(n, k): entry.value for n, k, entry in got if entry is not None} == log.model
    if (told := log.primary.outcome()) is not None:
        log.write(told.words)
    upto = data.draw(st.integers(0, len(log.records)))
    safe = data.draw(st.integers(0, upto))
    follower = replica(log, upto, safe)
    assert seen(follower) in models
    saved = io.BytesIO()
    follower.snapshot(saved)
    follower = PartitionGroup.restored(io.BytesIO(saved.getvalue()))
    for nth in range(upto + 1, len(log.records) + 1):
        follower.apply(nth, decode_words(log.records[nth - 1]))
    follower.settle(len(log.records))
    assert seen(follower) == log.model
    assert not follower.open
    log.state.settle(len(log.records))
    assert follower.size == log.state.size == replica(log, len(log.records), 1 << 40).size


def test_an_outcome_travels_with_the_next_transaction() -> None:
    """E-48, E-52; and it is sent again until a record with it was answered for."""
    log = Log()
    log.commit([put(b"sa", b"1")], True)
    assert seen(replica(log, 2, 2)) == {}
    log.commit([put(b"sb", b"2")], True, answered=False)
    assert seen(replica(log, 3, 3)) == {("m", b"sa"): b"1"}
    log.commit([put(b"sc", b"3")], False)
    first, second = (decode_words(each).data("committed") for each in log.records[2:4])
    assert len(first) == 8
    assert second[:8] == first
    assert len(second) == 16
    told = log.primary.outcome()
    assert told is not None
    assert told.words.data("committed") == b""
    assert len(told.words.data("rolled")) == 8


def test_without_a_loader_a_transaction_is_final_once_it_is_safe() -> None:
    """E-49: nothing is pending, and neither list has it."""
    log = Log()
    index = log.commit([put(b"sa", b"1")], None)
    assert seen(replica(log, index, index - 1)) == {}
    assert seen(replica(log, index, index)) == {("m", b"sa"): b"1"}
    assert log.primary.outcome() is None


def test_of_three_open_transactions_each_ends_on_its_own() -> None:
    """E-58: A commits, B rolls back, C commits."""
    log = Log()
    for key in KEYS:
        log.primary.locks.release(1)
        request = TxRequest(0, [put(key, b"v")])
        log.write(log.primary.record(request, is_final=False).words)
    taken_over = Primary(log.state, 2)
    for each, is_committed in zip(log.state.undecided(), (True, False, True), strict=True):
        taken_over.decide(each, is_committed=is_committed)
    told = taken_over.outcome()
    assert told is not None
    log.write(told.words)
    assert set(seen(replica(log, 5, 5))) == {("m", b"sa"), ("m", b"sc")}


def test_outcomes_that_are_not_safe_are_not_seen() -> None:
    log = Log()
    log.commit([put(b"sa", b"1")], True)
    log.commit([put(b"sb", b"1")], None)
    assert seen(replica(log, 3, 2)) == {}


def test_versions_are_compared_at_commit() -> None:
    log = Log()
    index = log.commit([put(b"sa", b"1")], None)
    log.primary.check(TxRequest(0, [], [Read("m", b"sa", index), Read("m", b"sb", ABSENT)]))
    log.commit([put(b"sa", b"2")], None)
    with pytest.raises(Conflict, match="expected the entry that was read"):
        log.primary.check(TxRequest(0, [], [Read("m", b"sa", index)]))
    with pytest.raises(Conflict, match="expected no entry of a key, got one"):
        log.primary.check(TxRequest(0, [], [Read("m", b"sa", ABSENT)]))


def test_other_counts_than_those_of_the_first_record_are_refused() -> None:
    """E-13."""
    log = Log()
    with pytest.raises(GridRefused, match="expected 1 partitions in 1 groups"):
        opened_record(log.state, 2, 7, (2, 1), "other")
    with pytest.raises(GridRefused, match="got 1 in 2"):
        log.state.apply(9, grid_words("opened", {"partitions": 1, "groups": 2}))
    assert opened_record(log.state, 2, 7, (1, 1), "other").text("grid") == "grid"


def test_a_map_set_that_is_full_takes_no_more() -> None:
    log = Log()
    full = Primary(log.state, 1, bytes_max=500)
    full.check(TxRequest(0, [put(b"sa", b"1")]))
    with pytest.raises(GridFull, match="expected room for 1121 bytes in partition 0, got 500"):
        full.check(TxRequest(0, [put(b"s", bytes(1000))]))
    full.check(TxRequest(0, [Change(MapOp.REMOVE, "m", b"sa")]))


def test_the_epoch_of_an_index_is_known() -> None:
    log = Log()
    log.commit([put(b"sa", b"1")], None)
    log.write(grid_words("opened", {"epoch": 4, "partitions": 1, "groups": 1}))
    assert [log.state.epoch_at(each) for each in (0, 1, 2, 3, 9)] == [None, 1, 1, 4, 4]


def test_lists_name_whatever_they_like() -> None:
    """A transaction that is not known, or whose outcome is known, is passed over."""
    log = Log()
    log.commit([put(b"sa", b"1")], True)
    tx = next(iter(log.state.open))
    log.write(grid_words("outcome", {"committed": pack_numbers([tx, 5])}))
    log.write(grid_words("outcome", {"rolled": pack_numbers([tx])}))
    assert seen(replica(log, 4, 4)) == {("m", b"sa"): b"1"}
    assert list(unpack_rows(b"")) == []
