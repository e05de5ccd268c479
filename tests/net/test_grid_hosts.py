"""A grid on several hosts: what is acknowledged stays, what is read is not older than it says."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import trio

import cqrepl.grid
from cqrepl.grid.errors import (
    Conflict,
    GridRefused,
    LoaderError,
    NotServing,
    OutcomeUnknown,
    TokenLost,
    TokenTimeout,
)
from cqrepl.grid.gridclient import GridClient
from cqrepl.grid.gridgroup import GridGroup
from cqrepl.grid.gridsettings import Locks, MapSettings, Reads, ReplicaSettings
from cqrepl.grid.loaders import LoaderChange, LoaderTx
from cqrepl.grid.partition.gridwords import Change, MapOp
from cqrepl.grid.partition.primary import TxRequest
from cqrepl.grid.partition.token import Token
from cqrepl.service.fieldwords import Value
from tests.support.grids import MAPS, SETTINGS, grids
from tests.support.replicas import SECONDS, eventually


def ids_in(group: GridGroup, name: str) -> list[int]:
    found = group.fields()[name]
    assert isinstance(found, list)
    return found


async def test_a_program_puts_and_gets(tmp_path: Path) -> None:
    def work(grid: cqrepl.grid.RemoteGrid) -> Token | None:
        with grid.session() as s:
            s.map("m").put("k", ("v", 1))
            s.map("n").put("k", 2.5)
        assert s.token is not None
        with grid.session(at=str(s.token)) as late:
            assert (late.map("m").get("k"), late.map("n").get("k")) == (("v", 1), 2.5)
        with pytest.raises(Conflict, match="expected no entry of a key, got one"):
            grid.session().map("m").insert("k", 1)
        for each in range(50):
            grid.session().map("m").put(each, each)
        found = [key for part in range(2) for key, _ in grid.session().map("m").scan(part)]
        assert len(found) == 51
        with pytest.raises(GridRefused, match=r"expected a map of map set 's' \(m, n\), got 'x'"):
            grid.session().map("x")
        return s.token

    async with grids(tmp_path) as made:
        token = await made.use(work)
        assert token is not None
        assert made.group(1).led.is_serving
        await eventually(lambda: made.group(3).state.safe >= token.index)


async def test_what_was_acknowledged_is_there_after_a_fail_over(tmp_path: Path) -> None:
    def write(grid: cqrepl.grid.RemoteGrid) -> Token | None:
        for each in range(20):
            with grid.session() as s:
                s.map("m").put(each, each)
                s.map("n").put(each, -each)
        return s.token

    def read(grid: cqrepl.grid.RemoteGrid) -> int:
        s = grid.session()
        for each in range(20):
            assert (s.map("m").get(each), s.map("n").get(each)) == (each, -each)
        with grid.session() as s:
            s.map("m").put("more", 1)
        assert s.token is not None
        return s.token.epoch

    async with grids(tmp_path) as made:
        token = await made.use(write)
        await made.kill(1)
        await made.hosts.hosts[2].leaders.promote("a")
        epoch = await made.use(read, 2, 3)
        assert token is not None
        assert epoch > token.epoch
        lost = replace(token, index=token.index + 100)  # of the old epoch, and never written
        with pytest.raises(TokenLost, match="its transaction is not committed"):
            await made.group(3).wait_token(lost, 1.0)
        with pytest.raises(GridRefused, match="got one of map set 's', log beef"):
            await made.group(3).wait_token(replace(token, grid="beef"), 1.0)
        late = replace(token, index=token.index + 100, epoch=epoch)
        with pytest.raises(TokenTimeout, match="expected host 3 to have s/0/"):
            await made.group(3).wait_token(late, 0.05)


async def test_writes_wait_for_the_synchronous_replica(tmp_path: Path) -> None:
    """And the status names whom for; one that is silent for a lease is waited for no more."""
    settings = replace(SETTINGS, replicas=ReplicaSettings(sync=1, others=1))
    async with grids(tmp_path, settings=settings) as made:
        group = made.group(1)
        request = TxRequest(0, [Change(MapOp.PUT, "m", b"sk", b"T")])
        # a field of a status
        await eventually(lambda: len(ids_in(group, "peers")) == 2)
        first = ids_in(group, "peers")[0]  # as before
        await made.kill(first)
        with trio.fail_after(10.0):
            await group.commit(1, request)  # the asynchronous one has moved up
        assert ids_in(group, "peers") == [({2, 3} - {first}).pop()]
        await made.kill(({2, 3} - {first}).pop())
        with trio.move_on_after(1.5) as scope:
            await group.commit(2, request)
        assert scope.cancelled_caught
        assert set(ids_in(group, "waitsFor")) == {2, 3}  # as before


async def test_a_first_start_waits_for_the_initial_members(tmp_path: Path) -> None:
    """And a later one for no host: what is there is served."""
    replicas = ReplicaSettings(sync=1, others=1)
    settings = replace(SETTINGS, replicas=replicas, initial_members=3)
    request = TxRequest(0, [Change(MapOp.PUT, "m", b"sk", b"T")])
    async with grids(tmp_path, settings=settings, begin=2) as made:
        group = made.group(1)
        await eventually(lambda: group.why_starting != "")
        with pytest.raises(NotServing, match="waits for 1 more of the hosts that have a copy"):
            group.check_serves(0)
        await made.begin(3)
        await eventually(lambda: group.fields()["started"] == 2)
        await group.commit(1, request)
        await made.kill(3)
        await made.kill(1)
        await made.begin(1)
        await eventually(lambda: made.group(1).fields()["started"] == 2)


async def test_a_replica_answers_reads_with_a_token(tmp_path: Path) -> None:
    def work(grid: cqrepl.grid.RemoteGrid) -> list[object]:
        found = []
        for each in range(30):
            with grid.session() as s:
                s.map("m").put("k", each)
            found.append(grid.session(at=s.token).map("m").get("k"))
        return found

    async with grids(tmp_path) as made:
        assert await made.use(work) == list(range(30))


async def test_a_token_of_no_transaction_is_refused(tmp_path: Path) -> None:
    def work(grid: cqrepl.grid.RemoteGrid) -> None:
        with grid.session() as s:
            s.map("m").put("k", 1)
        token = s.token
        assert token is not None
        later = replace(token, epoch=token.epoch + 1)
        with pytest.raises(cqrepl.grid.TokenLost, match="got one of epoch"):
            grid.session(at=later).map("m").get("k")
        for other in (replace(token, group=1), replace(token, map_set="t")):
            with pytest.raises(cqrepl.grid.GridRefused, match="expected a token of map set 's'"):
                grid.session(at=other)

    async with grids(tmp_path) as made:
        await made.use(work)


async def test_reads_that_any_copy_answers(tmp_path: Path) -> None:
    """E-61: off by default; where one has no entry the primary is asked."""

    def work(grid: cqrepl.grid.RemoteGrid) -> None:
        grid.session().map("m").put("k", 1)
        before = grid.asks()
        for _ in range(12):
            assert grid.session(reads="any").map("m").get("k") == 1
        after = grid.asks()
        assert sum(after[each] > before.get(each, 0) for each in after) >= 2
        before = grid.asks()
        for _ in range(12):
            assert grid.session(reads="off").map("m").get("k") == 1
        after = grid.asks()
        assert sum(after[each] > before.get(each, 0) for each in after) == 1

    async with grids(tmp_path) as made:
        await made.use(work)


async def test_pessimistic_locks_are_held_at_the_primary(tmp_path: Path) -> None:
    maps = MAPS | {"locked": MapSettings(locks=Locks.PESSIMISTIC)}

    def work(grid: cqrepl.grid.RemoteGrid) -> None:
        one, two = grid.session(), grid.session()
        one.begin()
        assert one.map("locked").get("k") is None
        two.begin()
        with pytest.raises(cqrepl.grid.errors.LockTimeout, match="map 'locked' in partition"):
            two.map("locked").get("k")
        two.rollback()
        one.map("locked").put("k", 1)
        one.commit()
        with grid.session() as s:
            assert s.map("locked").get("k") == 1
        one.begin()
        one.map("locked").get("k")  # its connection ends

    async with grids(tmp_path, settings=replace(SETTINGS, maps=maps, lock_seconds=0.3)) as made:
        await made.use(work)
        primary = made.group(1).primary
        assert primary is not None
        locks = primary.locks
        await eventually(lambda: not locks)


class Calls:
    """A loader and its callback; `shared` is the back end, which outlives hosts."""

    def __init__(self, shared: dict[str, object], host_id: int) -> None:
        self.shared = shared
        self.host_id = host_id
        self.calls: list[str] = []
        self.fails = ""
        self.fail: Callable[[], None] = lambda: None
        self.stops = ""
        # one dict has all
        committed = shared.setdefault("committed", set())
        assert isinstance(committed, set)
        self.committed: set[int] = committed

    def preload_map(self, session: cqrepl.grid.GridSession, backing_map: object) -> None:
        self.calls.append("preload")

    def check_preload_status(
        self, session: cqrepl.grid.GridSession, backing_map: object
    ) -> cqrepl.grid.Status:
        self.calls.append("check")
        return cqrepl.grid.Status.PRELOADED_ALREADY

    def begin(self, tx: LoaderTx) -> None:
        """Nothing to begin."""

    def apply(self, tx: LoaderTx, changes: Sequence[LoaderChange]) -> None:
        self.calls.append(f"apply {changes[0].value}")
        if self.fails == f"apply {changes[0].value}":
            raise OSError("refused")

    def commit(self, tx: LoaderTx) -> None:
        self.calls.append("commit")
        if self.fails == "commit":
            self.fail()
            raise OSError("no")
        self.committed.add(tx.tx)

    def rollback(self, tx: LoaderTx) -> None:
        self.calls.append("rollback")

    def was_committed(self, tx: LoaderTx) -> bool:
        return tx.tx in self.committed


LOADED = replace(SETTINGS, maps={"m": MapSettings(loader="db"), "n": MapSettings()})


async def test_an_outcome_is_told_to_who_waits_for_it(tmp_path: Path) -> None:
    """With a loader a transaction is open at replicas until its outcome was told (E-52); a reader
    with its token has it told at once. One that the loader does not commit is never seen (E-46)."""
    shared: dict[str, object] = {}
    desks = {each: Calls(shared, each) for each in (1, 2, 3)}

    def work(grid: cqrepl.grid.RemoteGrid) -> tuple[Token, object]:
        with grid.session() as s:
            s.map("m").put("k", 1)
        assert s.token is not None
        return s.token, grid.session(at=s.token).map("m").get("k")

    def fail(grid: cqrepl.grid.RemoteGrid) -> None:
        desks[1].fails = "commit"
        with pytest.raises(LoaderError, match="has not committed"):
            grid.session().map("m").put("k", 2)
        desks[1].fails = ""
        assert grid.session().map("m").get("k") == 1
        with grid.session() as s:
            s.map("m").put("other", 3)
        late = grid.session(at=s.token).map("m")
        assert (late.get("k"), late.get("other")) == (1, 3)

    async with grids(
        tmp_path, settings=LOADED, loaders=lambda each: ({"db": desks[each]}, desks[each])
    ) as made:
        token, seen = await made.use(work)
        assert seen == 1
        part = SETTINGS.partition("m", "k")
        await eventually(lambda: made.group(2).get_here(part, "m", b"sk") is not None)
        assert not made.group(2).state.is_open(token.index)
        await made.use(fail)
    assert desks[1].calls[:3] == ["check", "check", "apply 1"]
    assert desks[2].calls == desks[3].calls == []  # E-51


async def test_a_new_primary_runs_open_transactions_again(tmp_path: Path) -> None:
    """E-55 to E-59: first in first out, each on its own; what the old one has committed in the
    back end is not given to it again."""
    shared: dict[str, object] = {}
    desks = {each: Calls(shared, each) for each in (1, 2, 3)}

    def write(grid: cqrepl.grid.RemoteGrid) -> None:
        for key in ("a", "b", "c"):
            with grid.session() as s:
                s.map("m").put(key, key)

    def read(grid: cqrepl.grid.RemoteGrid) -> list[object]:
        return [grid.session().map("m").get(key) for key in ("a", "b", "c")]

    async with grids(
        tmp_path, settings=LOADED, loaders=lambda each: ({"db": desks[each]}, desks[each])
    ) as made:
        await made.use(write)
        # the outcome of `c` was not told
        await eventually(lambda: len(made.group(2).state.undecided()) == 1)
        await made.kill(1)
        desks[2].fails = "apply b"
        await made.hosts.hosts[2].leaders.promote("a")
        assert await made.use(read, 2, 3) == ["a", "b", "c"]
        assert desks[2].calls == ["check", "check"]


async def test_what_a_loader_has_not_committed_stays_so_at_the_next_primary(
    tmp_path: Path,
) -> None:
    """Its client was told that it is not committed, and may have put it again."""
    shared: dict[str, object] = {}
    desks = {each: Calls(shared, each) for each in (1, 2, 3)}
    desks[1].fails = "commit"

    def fail(grid: cqrepl.grid.RemoteGrid) -> None:
        with pytest.raises(LoaderError, match="has not committed"):
            grid.session().map("m").put("k", 1)

    async with grids(
        tmp_path, settings=LOADED, loaders=lambda each: ({"db": desks[each]}, desks[each])
    ) as made:
        await made.use(fail)
        await made.kill(1)
        await made.hosts.hosts[2].leaders.promote("a")
        assert await made.use(lambda grid: grid.session().map("m").get("k"), 2, 3) is None
        assert not any("apply" in each for each in desks[2].calls)
    assert not desks[2].committed


async def test_a_loader_that_fails_at_a_primary_that_leads_no_longer_is_not_told_as_refused(
    tmp_path: Path,
) -> None:
    """The next one may commit it: it runs what is open again."""
    shared: dict[str, object] = {}
    desks = {each: Calls(shared, each) for each in (1, 2, 3)}
    desks[1].fails = "commit"
    async with grids(
        tmp_path, settings=LOADED, loaders=lambda each: ({"db": desks[each]}, desks[each])
    ) as made:
        group = made.group(1)
        await eventually(lambda: len(ids_in(group, "peers")) == 2)
        # as where it finds that it leads no longer
        desks[1].fail = partial(trio.from_thread.run_sync, group.stop_serving)
        with pytest.raises(OutcomeUnknown) as told:
            await group.commit(1, TxRequest(0, [Change(MapOp.PUT, "m", b"sk", b"T")]))
        assert told.value.token is not None


async def test_reads_are_refused_where_replica_reads_are_off(tmp_path: Path) -> None:
    settings = replace(SETTINGS, reads=Reads.OFF)

    def work(grid: cqrepl.grid.RemoteGrid) -> None:
        with grid.session() as s:
            s.map("m").put("k", 1)
        before = grid.asks()
        for _ in range(9):
            assert grid.session().map("m").get("k") == 1
        after = grid.asks()
        assert [after[each] - before.get(each, 0) for each in after if after[each] > 2].count(
            9
        ) == 1
        assert sum(after.values()) == sum(before.values()) + 9  # E-60

    async with grids(tmp_path, settings=settings) as made:
        await made.use(work)


async def test_a_near_cache_forgets_what_was_changed(tmp_path: Path) -> None:
    """Its own changes at once, others' as they are told; none under pessimistic locks (E-64)."""
    maps = MAPS | {"locked": MapSettings(locks=Locks.PESSIMISTIC)}

    def near(grid: cqrepl.grid.RemoteGrid) -> None:
        cache = grid.near["m"]
        grid.session().map("m").put("k", 1)
        for _ in range(3):
            assert grid.session().map("m").get("k") == 1
        assert (len(cache), cache.hits) == (1, 2)
        grid.session().map("m").put("k", 2)
        assert grid.session().map("m").get("k") == 2
        with cqrepl.grid.connect(hosts, "s") as other:
            other.session().map("m").put("k", 3)
            until = time.monotonic() + 20.0
            while grid.session().map("m").get("k") != 3 and time.monotonic() < until:
                time.sleep(0.01)
            assert grid.session().map("m").get("k") == 3
            assert other.session().map("m").get("k") == 3
            grid.session().map("m").clear(SETTINGS.partition("m", "k"))
            assert grid.session().map("m").get("k") is None

    def use() -> None:
        with cqrepl.grid.connect(hosts, "s", near=["m"]) as grid:
            near(grid)
        with pytest.raises(GridRefused, match="optimistic locks for a near cache"):
            cqrepl.grid.connect(hosts, "s", near=["locked"])

    async with grids(tmp_path, settings=replace(SETTINGS, maps=maps)) as made:
        hosts = ",".join(made.addresses().values())
        await trio.to_thread.run_sync(use)


class Events:
    """A listener that keeps what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[object, ...]] = []

    def snapshot_begin(self, partition: int) -> None:
        self.told.append(("begin", partition))

    def entry(self, partition: int, key: object, value: object) -> None:
        self.told.append(("entry", key, value))

    def snapshot_end(self, partition: int, token: Token) -> None:
        self.told.append(("end", partition))

    def update(self, partition: int, key: object, value: object, *, is_there: bool) -> None:
        self.told.append(("update", key, value if is_there else "gone"))

    def disconnect(self, partition: int) -> None:
        self.told.append(("disconnect", partition))

    def resume(self, partition: int) -> None:
        self.told.append(("resume", partition))


def until(is_so: Callable[[], bool]) -> None:
    end = time.monotonic() + 30.0
    while not is_so():
        assert time.monotonic() < end, "it has not come true"
        time.sleep(0.01)


async def test_a_client_has_a_copy_that_follows_and_goes_on_after_a_cut(tmp_path: Path) -> None:
    """E-70 to E-74: events in order, none twice; writes are refused."""
    part = SETTINGS.partition("m", "k")
    events = Events()

    def use() -> None:
        with cqrepl.grid.connect(hosts, "s") as grid:
            grid.session().map("m").put("k", 1)
            copy = grid.enable_client_replication("m", partitions=[part], listener=events)
            taken = grid.enable_client_replication("m", cqrepl.grid.Mode.SNAPSHOT)
            with pytest.raises(GridRefused, match="expected a read of a client's copy"):
                copy.put("k", 2)
            until(lambda: copy.get("k") == 1)
            grid.session().map("m").put("k", 2)
            until(lambda: copy.get("k") == 2)
            until(lambda: grid.lag(copy) == 0)
            assert (taken.get("k"), grid.lag(taken)) == (1, 1)  # it follows nothing
            with grid.session() as s:
                s.map("n").put("k", 2)
            assert grid.lag(taken) == 1  # another map
            trio.from_thread.run(cut)
            until(lambda: ("disconnect", part) in events.told)
            with suppress(OutcomeUnknown):  # its connection may be about to end
                grid.session().map("m").put("k", 3)
            if grid.session().map("m").get("k") != 3:
                grid.session().map("m").put("k", 3)
            until(lambda: copy.get("k") == 3)
            grid.session().map("m").remove("k")
            until(lambda: len(copy) == 0)
            grid.disable_client_replication(copy)
            assert copy.get_replication_mode() is cqrepl.grid.Mode.NONE
            grid.session().map("m").put("k", 4)
            following = grid.enable_client_replication("m", partitions=[part])
            grid.session().map("m").put("k", 5)
            until(lambda: following.get("k") == 5)
            assert len(copy) == 0
            assert len(taken) <= 1  # it was taken once, and follows nothing

    async with grids(tmp_path) as made:
        hosts = ",".join(made.addresses().values())

        async def cut() -> None:
            for each in (1, 2, 3):
                for half in list(made.desks[each]._watched):
                    half.end("the test ends it")

        await trio.to_thread.run_sync(use)
    kept = [each for each in events.told if each[0] != "entry"]
    assert kept[:2] == [("begin", part), ("end", part)]
    updates = [each for each in events.told if each[0] == "update"]
    assert updates[-3:] == [("update", "k", 2), ("update", "k", 3), ("update", "k", "gone")]
    assert len(updates) <= 4
    assert ("disconnect", part) in kept
    assert ("resume", part) in kept


async def test_bad_requests_are_told_and_the_host_goes_on(tmp_path: Path) -> None:
    """Bytes that are no changes, a token that is none, a partition that is not there."""
    async with grids(tmp_path) as made:
        await made.use(lambda grid: grid.session().map("m").put("k", 1))
        addresses = [made.hosts.address(1)]
        async with GridClient(addresses, "s", 10.0).running() as client:
            asked: list[tuple[str, dict[str, Value], str]] = [
                ("commit", {"part": 0, "changes": b"xx"}, "expected changes, got other"),
                ("commit", {"part": 0, "maps": "x", "changes": bytes(10)}, "expected changes"),
                ("get", {"part": 0, "map": "m", "mode": "token", "at": "x"}, "expected a token"),
                ("get", {"part": 0, "map": "none"}, "expected a map of map set 's'"),
                ("get", {"part": 9, "map": "m"}, "expected a partition from 0 to 1, got 9"),
                ("dance", {"part": 0}, "expected a request of a grid, got 'dance'"),
            ]
            for name, values, problem in asked:
                found = await client._ask_at(addresses[0], name, values)
                assert found is not None
                assert found[1].text("outcome") == "refused"
                assert problem in found[1].text("why")
        assert await made.use(lambda grid: grid.session().map("m").get("k")) == 1


async def test_a_commit_whose_queue_is_removed_is_not_known(tmp_path: Path) -> None:
    """It waits for a replica, and its host goes on without the grid."""
    async with grids(tmp_path) as made, trio.open_nursery() as nursery:
        group, told = made.group(1), list[OutcomeUnknown]()
        await made.use(lambda grid: grid.session().map("m").put("k", 1))
        await made.kill(2)
        await made.kill(3)

        async def commit() -> None:
            try:
                await group.commit(1, TxRequest(0, [Change(MapOp.PUT, "m", b"sk", b"T")]))
            except OutcomeUnknown as error:
                told.append(error)

        nursery.start_soon(commit)
        await eventually(lambda: any(each.index >= 0 for each in group._on_way))
        with trio.fail_after(SECONDS):
            await made.hosts.remove(1)
            await eventually(lambda: bool(told))
        await eventually(lambda: not group.led.is_serving)
        with pytest.raises(NotServing):
            await group.get(0, "m", b"sk")
        assert not made.hosts.hosts[1].has_ended


async def test_a_host_whose_lead_ends_while_it_tells_an_outcome_goes_on(tmp_path: Path) -> None:
    shared: dict[str, object] = {}
    desks = {each: Calls(shared, each) for each in (1, 2, 3)}
    settings = replace(LOADED, outcome_seconds=0.1)
    async with grids(
        tmp_path, settings=settings, loaders=lambda each: ({"db": desks[each]}, desks[each])
    ) as made:
        await made.use(lambda grid: grid.session().map("m").put("k", 1))
        group = made.group(1)
        await eventually(lambda: len(ids_in(group, "peers")) == 2)
        await made.kill(2)
        await made.kill(3)
        primary = group.primary
        assert primary is not None
        primary.rolled.append(99)  # an outcome that no record has carried
        await eventually(lambda: bool(group._on_way))  # to no replica
        group.stop_serving()  # as where it finds that it leads no longer
        await eventually(lambda: not group.led.is_serving)
        assert group.led.fault is None
        assert not made.hosts.hosts[1].has_ended
