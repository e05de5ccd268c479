"""A loader of PostgreSQL: the same partitions as everywhere, and a preload that goes on where it
was killed."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
import sqlalchemy as sa

import cqrepl.grid
from cqrepl.grid.gridsettings import GridSettings, MapSettings
from cqrepl.grid.loaderchoice import sql_loaders
from cqrepl.grid.loaders import BackingMap
from cqrepl.grid.partitionsql import partition_sql
from cqrepl.grid.sqlloader import SqlDatabase, SqlLoader
from cqrepl.grid.sqlsettings import SqlLoaderSettings
from cqrepl.routing import key_bytes, partition_of
from tests.support.partitionkeys import COUNT, byte_keys, texts, whole_numbers
from tests.support.postgres import postgres

ROWS = 50_000
PARTITIONS = 16


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    with postgres() as found:
        engine = sa.create_engine(found)
        with engine.begin() as connection:
            connection.exec_driver_sql("create table items (id bigint primary key, count int)")
            connection.exec_driver_sql(
                f"insert into items select n, n * 2 from generate_series(0, {ROWS - 1}) n"
            )
            connection.exec_driver_sql(partition_sql("items", "id", PARTITIONS))
        engine.dispose()
        yield found


def settings_of(url: str) -> tuple[GridSettings, SqlLoaderSettings]:
    loader = SqlLoaderSettings(url=url, table="items", key="id", block=100)
    maps = {"items": MapSettings(loader="items")}
    return GridSettings(name="s", maps=maps, partitions=PARTITIONS), loader


@contextmanager
def grid_of(url: str, log: Path | None) -> Iterator[tuple[cqrepl.grid.LocalGrid, SqlLoader]]:
    settings, sql = settings_of(url)
    with loader_of(sql) as (loader, database):
        given = {"items": loader}
        with cqrepl.grid.local(log, settings=settings, loaders=given, callback=database) as grid:
            yield grid, loader


@contextmanager
def loader_of(sql: SqlLoaderSettings) -> Iterator[tuple[SqlLoader, SqlDatabase]]:
    loaders, database = sql_loaders("s", {"items": sql})
    loader = loaders["items"]
    assert isinstance(loader, SqlLoader)
    assert isinstance(database, SqlDatabase)
    try:
        yield loader, database
    finally:
        database.engine.dispose()


@pytest.mark.parametrize("kind", ["bigint", "text", "bytea"])
def test_a_key_has_the_same_partition_there(url: str, kind: str) -> None:
    kinds: dict[str, Sequence[object]] = {"bigint": whole_numbers(), "text": texts()}
    keys = list(kinds.get(kind, byte_keys()))
    assert len(keys) == COUNT
    asked = (
        f"select cq_wire(key), cq_partition(key, 1009) from unnest(%s::{kind}[])"
        " with ordinality each(key, nth) order by nth"
    )
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql(asked, (keys,)).all()
    engine.dispose()
    for key, (data, partition) in zip(keys, found, strict=True):
        assert bytes(data) == key_bytes(key)
        assert partition == partition_of(key, 1009)


def test_the_index_is_taken(url: str) -> None:
    with loader_of(settings_of(url)[1]) as (loader, database):
        chosen = loader._next(BackingMap("items", "s", 3, PARTITIONS), 7)
        text = str(chosen.compile(database.engine, compile_kwargs={"literal_binds": True}))
        with database.engine.connect() as connection:
            plan = connection.exec_driver_sql(f"explain {text}").all()
    assert "Index Scan using items_cq_partition_16" in str(plan)


def test_changes_are_written_and_a_clear_takes_one_partition(url: str) -> None:
    with grid_of(url, None) as (grid, _):
        with grid.session() as s:
            s.map("items").put(17, 5)
        gone = partition_of(18, PARTITIONS)
        assert gone != partition_of(17, PARTITIONS)
        grid.session().map("items").clear(gone)
        assert grid.session().map("items").get(18) is None
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        found = connection.exec_driver_sql("select id, count c from items").all()
        rows = {int(row.id): int(row.c) for row in found}
        lost = {n: 2 * n for n in range(ROWS) if partition_of(n, PARTITIONS) == gone}
        assert rows == {n: 2 * n for n in range(ROWS) if n not in lost} | {17: 5}
        assert connection.exec_driver_sql("select count(*) from cq_tx").scalar() == 2
        connection.exec_driver_sql("update items set count = 34 where id = 17")
        many = sa.text("insert into items values (:id, :count)")
        connection.execute(many, [{"id": n, "count": c} for n, c in lost.items()])
    engine.dispose()


def test_a_preload_that_was_killed_goes_on_where_it_was(url: str, tmp_path: Path) -> None:
    """Killed at 80 %: the restart reads the last 20 %, and the one block that was under way."""
    log, told = tmp_path / "log", 0
    command = [sys.executable, "-m", __name__, url, str(log)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while told < 0.8 * ROWS:
            told += int(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGKILL)
        told += sum(int(json.loads(line)) for line in process.stdout if line.endswith("\n"))
    with grid_of(url, log) as (grid, loader):
        assert ROWS - told <= loader.rows_read <= ROWS - told + 100
        found = [
            row for each in range(PARTITIONS) for row in grid.session().map("items").scan(each)
        ]
    assert dict(found) == {n: 2 * n for n in range(ROWS)}
    assert len(found) == ROWS
    with grid_of(url, None) as (_, loader):  # without what it had written all of it is read
        assert loader.rows_read == ROWS


def load_and_tell(url: str, log: Path) -> None:
    """In a process of its own: says how many rows each block has."""
    settings, sql = settings_of(url)
    with loader_of(sql) as (loader, database):
        loader.on_block = lambda name, partition, rows: print(rows, flush=True)
        given = {"items": loader}
        cqrepl.grid.local(log, settings=settings, loaders=given, callback=database).close()


if __name__ == "__main__":
    load_and_tell(sys.argv[1], Path(sys.argv[2]))
