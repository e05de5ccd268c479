"""Loaders of SQL tables, by SQLAlchemy: tried with SQLite and PostgreSQL.

Theory of operation. A preload reads the rows of one partition in the order of their keys, a block
at a time, behind the last key that the RecoveryMap has; each block and that key are put by one
transaction. So a host that takes over goes on where the other one was.

A transaction of the grid is one of the database: `apply` writes rows, `commit` adds the row (map
set, partition, transaction) to the table `cq_tx`, whose key it is, and commits both. So a host that
runs a transaction again finds whether the database has it, and two hosts that try at the same time
cannot both commit it.
"""

import threading
from collections.abc import Callable, Sequence
from typing import Any, Final

import sqlalchemy as sa

from cqrepl.grid.errors import GridRefused
from cqrepl.grid.gridsettings import PreloadStatus
from cqrepl.grid.loaders import BackingMap, LoaderChange, LoaderTx, RecoveryMap
from cqrepl.grid.partition.gridsession import GridSession
from cqrepl.grid.partition.gridwords import MapOp
from cqrepl.grid.partitionsql import PARTITION_FUNCTION
from cqrepl.grid.sqlsettings import SqlLoaderSettings
from cqrepl.routing import partition_of

TX_TABLE: Final = "cq_tx"
_BUSY_SECONDS: Final = 30


class SqlDatabase:
    """A database, and the transactions that are open in it; a `TransactionCallback`.

    Args:
        url: as SQLAlchemy has it.
    """

    def __init__(self, url: str) -> None:
        is_sqlite = url.startswith("sqlite")
        arguments = {"timeout": _BUSY_SECONDS, "check_same_thread": False} if is_sqlite else {}
        self.engine = sa.create_engine(url, connect_args=arguments)
        if is_sqlite:
            sa.event.listen(self.engine, "connect", _add_function)
        self._metadata = sa.MetaData()
        self._tables: dict[str, sa.Table] = {}
        self._guard = threading.Lock()  # of both
        self._open: dict[LoaderTx, sa.Connection] = {}
        self._tx = sa.Table(
            TX_TABLE,
            self._metadata,
            sa.Column("map_set", sa.String(200), primary_key=True),
            sa.Column("partition", sa.Integer, primary_key=True, autoincrement=False),
            sa.Column("tx", sa.BigInteger, primary_key=True, autoincrement=False),
        )
        self._has_tx_table = False

    def table(self, name: str) -> sa.Table:
        """A table as the database has it.

        Raises:
            GridRefused: it has none of this name.
        """
        with self._guard:
            if name not in self._tables:
                try:
                    columns = sa.inspect(self.engine).get_columns(name)
                except sa.exc.NoSuchTableError:
                    where = self.engine.url.render_as_string(hide_password=True)
                    raise GridRefused(f"expected a table {name!r} in {where}, got none") from None
                made = [sa.Column(each["name"], each["type"]) for each in columns]
                self._tables[name] = sa.Table(name, self._metadata, *made)
            return self._tables[name]

    def connection(self, tx: LoaderTx) -> sa.Connection:
        """The connection in which a transaction is open."""
        return self._open[tx]

    def begin(self, tx: LoaderTx) -> None:
        """A transaction is about to be applied."""
        with self._guard:
            if not self._has_tx_table:
                self._tx.create(self.engine, checkfirst=True)
                self._has_tx_table = True
        self._open[tx] = self.engine.connect()

    def commit(self, tx: LoaderTx) -> None:
        """Commits it, with its row in `cq_tx`."""
        connection = self._open[tx]
        connection.execute(self._tx.insert().values(_named(tx)))
        connection.commit()
        del self._open[tx]
        connection.close()

    def rollback(self, tx: LoaderTx) -> None:
        """Takes it back."""
        connection = self._open.pop(tx, None)
        if connection is not None:
            connection.close()

    def was_committed(self, tx: LoaderTx) -> bool:
        """True where `cq_tx` has it."""
        columns = self._tx.c
        mine = sa.and_(*(columns[name] == value for name, value in _named(tx).items()))
        with self.engine.connect() as connection:
            if not sa.inspect(connection).has_table(TX_TABLE):
                return False
            return connection.execute(sa.select(columns.tx).where(mine)).first() is not None


def _named(tx: LoaderTx) -> dict[str, str | int]:
    return {"map_set": tx.map_set, "partition": tx.partition, "tx": tx.tx}


def _add_function(connection: Any, _record: object) -> None:
    connection.create_function(PARTITION_FUNCTION, 2, partition_of, deterministic=True)


class SqlLoader:
    """A loader of one table; it knows how far its preload has come.

    The value of a row is that of its one other column, or a tuple of them in their order.

    Attributes:
        rows_read: rows that preloads have read in this process.
        on_block: is told of each block that was read: map, partition, rows.
    """

    def __init__(self, database: SqlDatabase, settings: SqlLoaderSettings) -> None:
        self.rows_read = 0
        self.on_block: Callable[[str, int, int], None] = lambda name, partition, rows: None
        self._database = database
        self._settings = settings

    def check_preload_status(self, session: GridSession, backing_map: BackingMap) -> PreloadStatus:
        """As the RecoveryMap has it."""
        return RecoveryMap(session).status(backing_map)

    def preload_map(self, session: GridSession, backing_map: BackingMap) -> None:
        """Puts the rows of a partition, from where the last preload of it has stopped."""
        recovery = RecoveryMap(session)
        progress = recovery.progress(backing_map)
        count, last = progress if isinstance(progress, tuple) else (0, None)
        partition, grid_map = backing_map.partition_id, session.map(backing_map.name)
        with self._database.engine.connect() as connection:
            while rows := connection.execute(self._next(backing_map, last)).all():
                self.rows_read += len(rows)
                self.on_block(backing_map.name, partition, len(rows))
                count, last = count + len(rows), rows[-1][0]
                with session:
                    for key, *values in rows:
                        value = values[0] if len(values) == 1 else tuple(values)
                        _check_partition(session, backing_map, key)
                        grid_map.put(key, value, partition=partition)
                    recovery.advance(backing_map, (count, last))
        with session:
            recovery.complete(backing_map)

    def _next(self, backing_map: BackingMap, last: object) -> sa.Select[Any]:
        """The next block of rows behind a key; the key first."""
        table = self._table()
        key = table.c[self._settings.key]
        mine = self._mine(backing_map.partition_id, backing_map.num_of_partitions)
        chosen = sa.select(key, *self._values()).where(mine)
        chosen = chosen if last is None else chosen.where(key > last)
        return chosen.order_by(key).limit(self._settings.block)

    def _mine(self, partition: int, partitions: int) -> sa.ColumnElement[bool]:
        """The rows of one partition."""
        table = self._table()
        if self._settings.partition_column:
            return table.c[self._settings.partition_column] == partition
        # written out: the index of an expression is taken for what is the same, to the letter
        count: sa.ColumnElement[int] = sa.literal_column(str(partitions))
        return sa.Function(PARTITION_FUNCTION, table.c[self._settings.key], count) == partition

    def _table(self) -> sa.Table:
        table, settings = self._database.table(self._settings.table), self._settings
        for name in filter(None, (settings.key, settings.partition_column)):
            if name not in table.c:
                known = ", ".join(table.c.keys())
                wanted = f"expected a column of table {settings.table!r} ({known})"
                raise GridRefused(f"{wanted}, got {name!r}")
        return table

    def _values(self) -> list[sa.Column[Any]]:
        apart = (self._settings.key, self._settings.partition_column)
        return [each for each in self._table().c if each.name not in apart]

    def apply(self, tx: LoaderTx, changes: Sequence[LoaderChange]) -> None:
        """Writes rows, which are seen once they are committed."""
        connection, table = self._database.connection(tx), self._table()
        key = table.c[self._settings.key]
        for op, name, value in changes:
            if op is MapOp.CLEAR:
                mine = self._mine(tx.partition, tx.num_of_partitions)
                connection.execute(table.delete().where(mine))
                continue
            connection.execute(table.delete().where(key == name))
            if op is MapOp.PUT:
                connection.execute(table.insert().values(self._row(tx, name, value)))

    def _row(self, tx: LoaderTx, key: object, value: object) -> dict[str, object]:
        columns = [each.name for each in self._values()]
        values = (value,) if len(columns) == 1 else value
        if not isinstance(values, tuple) or len(values) != len(columns):
            wanted = f"expected a tuple of {len(columns)} values for {', '.join(columns)}"
            raise GridRefused(f"{wanted}, got {value!r}")
        row = dict(zip(columns, values, strict=True)) | {self._settings.key: key}
        if self._settings.partition_column:
            row[self._settings.partition_column] = tx.partition
        return row


def _check_partition(session: GridSession, backing_map: BackingMap, key: object) -> None:
    """Does nothing for a key of a partition.

    Raises:
        GridRefused: it is of another one, where no reader would look for it.
    """
    found = session.store.settings.partition(backing_map.name, key)
    if found != backing_map.partition_id:
        wanted = f"expected rows of partition {backing_map.partition_id} of {backing_map.name!r}"
        raise GridRefused(f"{wanted}, got the key {key!r}, which is of partition {found}")
