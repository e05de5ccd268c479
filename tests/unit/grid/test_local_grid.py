"""Sessions over a grid in one process: what they see, what they change, what a loader is told."""

import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

import cqrepl.grid
from cqrepl.grid.errors import (
    Conflict,
    CrossPartition,
    GridError,
    GridRefused,
    LoaderError,
    LockTimeout,
)
from cqrepl.grid.gridsettings import (
    GridSettings,
    Locks,
    MapSettings,
    PreloadStatus,
    ReplicaSettings,
)
from cqrepl.grid.loaders import BackingMap, LoaderChange, LoaderTx, RecoveryMap
from cqrepl.grid.localgrid import CLOSING_RECORDS
from cqrepl.grid.partition.gridsession import GridSession


def test_two_lines_are_enough() -> None:
    with cqrepl.grid.local() as grid, grid.session() as s:
        s.map("orders").put("k", ("v", 1))
        assert s.map("orders").get("k") == ("v", 1)


def test_a_transaction_is_seen_whole_or_not_at_all(tmp_path: Path) -> None:
    with cqrepl.grid.local(tmp_path / "log", maps=["a", "b"]) as grid:
        with grid.session() as s:
            s.map("a").put(1, "x")
            s.map("b").insert(1, "y")
            assert grid.session().map("a").get(1) is None
        with suppress(ZeroDivisionError), grid.session() as s:
            s.map("a").remove(1)
            assert s.map("a").get(1) is None
            raise ZeroDivisionError
        assert (grid.session().map("a").get(1), grid.session().map("b").get(1)) == ("x", "y")
        grid.session().map("b").clear()
    with cqrepl.grid.local(tmp_path / "log", maps=["a", "b"]) as grid:
        assert grid.session().map("a").get(1) == "x"
        assert list(grid.session().map("b").scan(0)) == []
    with pytest.raises(GridRefused, match="expected 1 partitions in 1 groups"):
        cqrepl.grid.local(tmp_path / "log", maps=["a"], partitions=2)


def test_a_log_is_read_from_its_last_checkpoint_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    with cqrepl.grid.local(log, maps=["m"]) as grid:
        for nth in range(CLOSING_RECORDS):
            grid.session().map("m").put(nth % 7, nth)
    with cqrepl.grid.local(log, maps=["m"]) as grid:
        assert grid.replayed == 0
        assert dict(grid.session().map("m").scan(0)) == {n % 7: n for n in range(993, 1000)}
        grid.session().map("m").put("k", 1)
    with cqrepl.grid.local(log, maps=["m"]) as grid:
        assert grid.replayed == 2  # it was opened, and a transaction
        assert grid.session().map("m").get("k") == 1
        assert grid.session().map("m").get(6) == 993
    for each in (log / "snapshots").iterdir():
        each.write_bytes(each.read_bytes()[:-9])
    with cqrepl.grid.local(log, maps=["m"]) as grid:
        assert grid.replayed == CLOSING_RECORDS + 4  # a damaged one is put aside
        assert grid.session().map("m").get("k") == 1


def test_what_was_read_has_to_be_there_at_commit() -> None:
    with cqrepl.grid.local() as grid:
        grid.session().map("m").put("k", 1)
        late, early = grid.session(), grid.session()
        late.begin()
        assert late.map("m").get("k") == 1
        with early as s:
            s.map("m").update("k", 2)
        late.map("m").put("k", 9)
        with pytest.raises(Conflict) as caught:
            late.commit()
        assert (caught.value.map, caught.value.key) == ("m", b"sk")
        assert grid.session().map("m").get("k") == 2
        with pytest.raises(Conflict, match="expected no entry of a key, got one"):
            grid.session().map("m").insert("k", 1)
        with pytest.raises(Conflict, match="expected an entry of a key, got none"):
            grid.session().map("m").update("other", 1)


def test_a_transaction_keeps_to_one_partition() -> None:
    with cqrepl.grid.local(partitions=2) as grid:
        keys = {grid.settings.partition("m", n): n for n in range(20)}
        s = grid.session()
        s.begin()
        s.map("m").put(keys[0], 1)
        with pytest.raises(CrossPartition, match="got partition 0, and partition 1 with map 'n'"):
            s.map("n").put(keys[1], 1)
        s.rollback()
        with grid.session() as s:  # one that only reads may
            assert (s.map("m").get(keys[0]), s.map("m").get(keys[1])) == (None, None)


def test_pessimistic_reads_lock_and_time_out() -> None:
    maps = {"m": MapSettings(locks=Locks.PESSIMISTIC)}
    settings = GridSettings(name="s", maps=maps, lock_seconds=0.05)
    with cqrepl.grid.local(settings=settings) as grid:
        one, two = grid.session(), grid.session()
        one.begin()
        assert one.map("m").get("k") is None
        two.begin()
        with pytest.raises(LockTimeout, match="got another owner"):
            two.map("m").get("k")
        with pytest.raises(LockTimeout), grid.session() as s:
            s.map("m").clear(0)
        one.map("m").put("k", 1)
        one.commit()
        assert two.map("m").get("k") == 1
        two.rollback()


def test_a_policy_of_copies_has_no_effect_here() -> None:
    """E-04."""
    settings = GridSettings(name="s", replicas=ReplicaSettings(sync=2), maps={"m": MapSettings()})
    with cqrepl.grid.local(settings=settings) as grid, grid.session() as s:
        s.map("m").put(1, 1)


def test_transfers_by_threads_lose_nothing() -> None:
    with cqrepl.grid.local() as grid:
        with grid.session() as s:
            for each in range(4):
                s.map("m").put(each, 100)

        def move(nth: int) -> None:
            for n in range(50):
                while True:
                    try:
                        with grid.session() as s:
                            a, b = (nth + n) % 4, (nth + n * 3 + 1) % 4
                            if a == b:
                                break
                            m = s.map("m")
                            m.put(a, int(str(m.get(a))) - 1)
                            m.put(b, int(str(m.get(b))) + 1)
                        break
                    except Conflict:
                        continue

        threads = [threading.Thread(target=move, args=(n,)) for n in range(3)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(int(str(v)) for _, v in grid.session().map("m").scan(0)) == 400


class Rows:
    """A back end in memory: its loader, its controller and its callback, with all calls."""

    def __init__(self, rows: int, fails_at: int = -1, controls: bool = True) -> None:
        self.calls: list[object] = []
        self.rows = rows
        self.fails_at = fails_at
        self.controls = controls
        self.read = 0
        self.fails: set[str] = set()
        self.committed: set[int] = set()

    def check_preload_status(self, session: GridSession, backing_map: BackingMap) -> PreloadStatus:
        self.calls.append(("check", backing_map.partition_id))
        if not self.controls:
            return PreloadStatus.FULL_PRELOAD_NEEDED
        return RecoveryMap(session).status(backing_map)

    def preload_map(self, session: GridSession, backing_map: BackingMap) -> None:
        self.calls.append(("preload", backing_map.partition_id))
        recovery = RecoveryMap(session)
        done = recovery.progress(backing_map) if self.controls else None
        part, count = backing_map.partition_id, backing_map.get_partition_manager()
        mine = [n for n in range(self.rows) if n % count.num_of_partitions == part]
        for n in mine[int(str(done or 0)) :]:
            if n == self.fails_at:
                raise OSError("the back end is gone")
            self.read += 1
            with session:
                session.map("m").put(("row", n), n, partition=part)
                recovery.advance(backing_map, mine.index(n) + 1)
        with session:
            recovery.complete(backing_map)

    def apply(self, tx: LoaderTx, changes: Sequence[LoaderChange]) -> None:
        self.calls.append(("apply", [(op.name, key, value) for op, key, value in changes]))
        if "apply" in self.fails:
            raise OSError("refused")

    def begin(self, tx: LoaderTx) -> None:
        self.calls.append("begin")

    def commit(self, tx: LoaderTx) -> None:
        self.calls.append("commit")
        if "commit" in self.fails:
            raise OSError("no")
        self.committed.add(tx.tx)

    def rollback(self, tx: LoaderTx) -> None:
        self.calls.append("rollback")

    def was_committed(self, tx: LoaderTx) -> bool:
        return tx.tx in self.committed


def grid_of(rows: Rows, path: Path | None = None, partitions: int = 1) -> cqrepl.grid.LocalGrid:
    maps = {"m": MapSettings(loader="db")}
    settings = GridSettings(name="s", maps=maps, partitions=partitions)
    return cqrepl.grid.local(path, settings=settings, loaders={"db": rows}, callback=rows)


def test_a_loader_is_told_in_the_order_of_the_table(tmp_path: Path) -> None:
    """E-44; and what it refuses, before or after the record, is never seen (E-46)."""
    rows = Rows(0)
    with grid_of(rows, tmp_path / "log") as grid:
        rows.calls.clear()
        grid.session().map("m").put("k", 1)
        assert rows.calls == ["begin", ("apply", [("PUT", "k", 1)]), "commit"]
        rows.fails = {"commit"}
        with pytest.raises(LoaderError, match="has not committed: OSError"):
            grid.session().map("m").put("k", 2)
        rows.fails = {"apply"}
        with pytest.raises(LoaderError, match="has not taken a transaction"):
            grid.session().map("m").put("k", 3)
        assert grid.session().map("m").get("k") == 1
    rows.fails = set()
    with grid_of(rows, tmp_path / "log") as grid:
        assert grid.session().map("m").get("k") == 1


@pytest.mark.parametrize("partitions", [1, 7])
def test_a_preload_goes_on_where_it_stopped(tmp_path: Path, partitions: int) -> None:
    """E-15, E-23, E-26, E-28: each row is read once, whatever the number of partitions."""
    rows = Rows(100, fails_at=80)
    with grid_of(rows, tmp_path / "log", partitions) as grid:
        assert set(grid.faults) == {80 % partitions}
        with pytest.raises(GridError, match="has not started: map 'm', partition"):
            grid.session().map("m").get(("row", 80), partition=80 % partitions)
    rows.fails_at = -1
    with grid_of(rows, tmp_path / "log", partitions) as grid:
        found = [v for p in range(partitions) for _, v in grid.session().map("m").scan(p)]
    assert set(found) == set(range(100))
    assert len(found) == 100
    assert rows.read == 100
    rows.calls.clear()
    with grid_of(rows, tmp_path / "log", partitions):
        assert rows.calls == [("check", p) for p in range(partitions)]


def test_a_full_preload_clears_first(tmp_path: Path) -> None:
    """E-27: no key that the back end has no more survives."""
    rows = Rows(10, controls=False)
    grid_of(rows, tmp_path / "log").close()
    rows.rows = 5
    with grid_of(rows, tmp_path / "log") as grid:
        assert len(list(grid.session().map("m").scan(0))) == 5
    assert rows.read == 15


def test_a_recovery_map_elsewhere_is_refused() -> None:
    """E-29."""
    settings = GridSettings(name="s", maps={"m": MapSettings()})
    with cqrepl.grid.local(settings=settings) as grid:
        with pytest.raises(
            GridRefused, match=r"expected a map of map set 's' \(m\), got 'progress'"
        ):
            RecoveryMap(grid.session(), "progress")
