"""The loaders that the file of a cluster names: those of SQL."""

from collections.abc import Mapping
from importlib.util import find_spec

from cqrepl.grid.errors import GridRefused
from cqrepl.grid.loaders import Loader, TransactionCallback
from cqrepl.grid.sqlsettings import SqlLoaderSettings


def sql_loaders(
    map_set: str, loaders: Mapping[str, SqlLoaderSettings]
) -> tuple[dict[str, Loader], TransactionCallback | None]:
    """The loaders of a map set, and what ends their transactions.

    Raises:
        GridRefused: SQLAlchemy is not installed; or they are of several databases, which no
            transaction spans.
    """
    if not loaders:
        return {}, None
    if find_spec("sqlalchemy") is None:
        wanted = "expected SQLAlchemy for loaders (pip install 'cqrepl[grid]')"
        raise GridRefused(f"map set {map_set!r}: {wanted}, got none")
    urls = sorted({each.url for each in loaders.values()})
    if len(urls) > 1:
        raise GridRefused(f"map set {map_set!r}: expected loaders of one url, got {len(urls)}")
    from cqrepl.grid.sqlloader import SqlDatabase, SqlLoader

    database = SqlDatabase(urls[0])
    return {name: SqlLoader(database, each) for name, each in loaders.items()}, database
