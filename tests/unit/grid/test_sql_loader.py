"""A loader of SQL reads each row once, and a transaction is in the database and in the map, or in
neither."""

import sqlite3
from pathlib import Path

import pytest

import cqrepl.grid
from cqrepl.grid.errors import GridError, LoaderError
from cqrepl.grid.gridsettings import GridSettings, MapSettings
from cqrepl.grid.loaderchoice import sql_loaders
from cqrepl.grid.loaders import BackingMap, LoaderTx
from cqrepl.grid.sqlloader import SqlDatabase, SqlLoader
from cqrepl.grid.sqlsettings import SqlLoaderSettings
from cqrepl.routing import partition_of
from tests.support.partitionkeys import byte_keys, texts, whole_numbers

PARTITIONS = 7


def filled(folder: Path, rows: int = 500) -> Path:
    path = folder / "rows.db"
    with sqlite3.connect(path) as db:
        db.create_function("cq_partition", 2, partition_of, deterministic=True)
        db.execute("create table orders (id integer primary key, customer text, count integer)")
        db.execute("create table parts (name text primary key, weight real, p integer)")
        values = [(n, f"customer {n}", n * 2) for n in range(rows)]
        db.executemany("insert into orders values (?, ?, ?)", values)
        names = [(f"n{n}", n / 4, partition_of(f"n{n}", PARTITIONS)) for n in range(rows)]
        db.executemany("insert into parts values (?, ?, ?)", names)
        db.execute(f"create index o on orders (cq_partition(id, {PARTITIONS}), id)")
        plan = db.execute(
            f"explain query plan select * from orders where cq_partition(id, {PARTITIONS}) = 3"
        ).fetchall()
    assert "USING INDEX o" in str(plan)
    db.close()
    return path


def grid_of(
    path: Path, log: Path | None = None, table: str = "orders"
) -> tuple[cqrepl.grid.LocalGrid, dict[str, SqlLoader]]:
    url = f"sqlite:///{path}"
    sql = {
        "orders": SqlLoaderSettings(url=url, table=table, key="id", block=20),
        "parts": SqlLoaderSettings(url=url, table="parts", key="name", partition_column="p"),
    }
    maps = {name: MapSettings(loader=name) for name in sql}
    loaders, callback = sql_loaders("s", sql)
    settings = GridSettings(name="s", maps=maps, partitions=PARTITIONS)
    grid = cqrepl.grid.local(log, settings=settings, loaders=loaders, callback=callback)
    return grid, loaders  # type: ignore[return-value]  # the loaders are of SQL


def test_all_rows_come_once_and_not_again(tmp_path: Path) -> None:
    path, log = filled(tmp_path), tmp_path / "log"
    grid, loaders = grid_of(path, log)
    with grid:
        s = grid.session()
        assert s.map("orders").get(77) == ("customer 77", 154)
        assert s.map("parts").get("n8") == 2.0
        rows = [key for p in range(PARTITIONS) for key, _ in s.map("orders").scan(p)]
        assert (len(rows), set(rows)) == (500, set(range(500)))
        assert [each.rows_read for each in loaders.values()] == [500, 500]
    grid, loaders = grid_of(path, log)
    with grid:
        assert [each.rows_read for each in loaders.values()] == [0, 0]
        assert grid.session().map("orders").get(499) == ("customer 499", 998)


def test_changes_are_written_through(tmp_path: Path) -> None:
    path = filled(tmp_path, 10)
    grid, _ = grid_of(path)
    with grid:
        with grid.session() as s:
            s.map("orders").put(3, ("Ann", 1))
        grid.session().map("orders").remove(4)
        grid.session().map("parts").put("new", 1.5)
        with pytest.raises(LoaderError, match="expected a tuple of 2 values for customer, count"):
            grid.session().map("orders").put(3, "x")
        assert grid.session().map("orders").get(3) == ("Ann", 1)
    with sqlite3.connect(path) as db:
        assert db.execute("select * from orders where id in (3, 4)").fetchall() == [(3, "Ann", 1)]
        found = db.execute("select * from parts where name = 'new'").fetchone()
        assert found == ("new", 1.5, partition_of("new", PARTITIONS))
        assert db.execute("select count(*) from cq_tx").fetchone() == (3,)
    db.close()


def test_a_transaction_is_committed_once(tmp_path: Path) -> None:
    """By the first of two hosts: the other one finds that, and its own is taken back."""
    path = filled(tmp_path, 10)
    one, two = SqlDatabase(f"sqlite:///{path}"), SqlDatabase(f"sqlite:///{path}")
    tx = LoaderTx("s", 1, 7)
    assert not one.was_committed(tx)
    one.begin(tx)
    two.begin(tx)
    one.commit(tx)
    with pytest.raises(Exception, match="UNIQUE constraint failed: cq_tx"):
        two.commit(tx)
    two.rollback(tx)
    assert two.was_committed(tx)
    assert not two.was_committed(LoaderTx("s", 1, 8))


def test_a_table_that_is_not_there_is_told(tmp_path: Path) -> None:
    """E-10: with its cause, and the other partitions go on: here all need the table."""
    grid, _ = grid_of(filled(tmp_path, 10), table="none")
    with grid:
        with pytest.raises(GridError, match=r"has not started: map 'orders', partition .* 'none'"):
            grid.session().map("orders").get(1)


def test_rows_of_another_partition_are_refused(tmp_path: Path) -> None:
    path = filled(tmp_path, 10)
    with sqlite3.connect(path) as db:
        db.execute("update parts set p = (p + 1) % 7 where name = 'n5'")
    db.close()
    grid, _ = grid_of(path)
    with grid:
        assert list(grid.faults) == [(partition_of("n5", PARTITIONS) + 1) % PARTITIONS]


def test_a_clear_goes_to_the_table(tmp_path: Path) -> None:
    """E-27: of the rows of that partition, and in one transaction with what comes after it."""
    path = filled(tmp_path, 100)
    mine = {n for n in range(100) if partition_of(n, PARTITIONS) == 2}
    grid, _ = grid_of(path, tmp_path / "log")
    with grid:
        with grid.session() as s:
            s.map("orders").clear(2)
            s.map("orders").put(min(mine), ("kept", 1))
        grid.session().map("parts").clear()
        assert [key for key, _ in grid.session().map("orders").scan(2)] == [min(mine)]
    with sqlite3.connect(path) as db:
        rows = {key for (key,) in db.execute("select id from orders")}
        assert rows == set(range(100)) - mine | {min(mine)}
        assert db.execute("select count(*) from parts").fetchone() == (0,)
    db.close()


def test_a_preload_of_sqlite_takes_the_index(tmp_path: Path) -> None:
    """A parameter for the number of partitions would have it read all rows for each block."""
    path = filled(tmp_path)
    database = SqlDatabase(f"sqlite:///{path}")
    loader = SqlLoader(database, SqlLoaderSettings(url="", table="orders", key="id"))
    chosen = loader._next(BackingMap("orders", "s", 3, PARTITIONS), 5)
    made = chosen.compile(database.engine)
    values = tuple(made.params[name] for name in made.positiontup or ())
    with database.engine.connect() as connection:
        plan = connection.exec_driver_sql(f"explain query plan {made}", values).all()
    assert "INDEX o" in str(plan)


def test_a_key_has_the_same_partition_in_sqlite() -> None:
    database = SqlDatabase("sqlite://")
    keys: list[object] = [*whole_numbers()[::3], *texts()[::3], *byte_keys()[::3]]
    with database.engine.connect() as connection:
        for key in keys:
            (found,) = connection.exec_driver_sql("select cq_partition(?, 1009)", (key,)).one()
            assert found == partition_of(key, 1009)
