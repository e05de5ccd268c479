"""The settings of a loader that reads and writes a table of SQL."""

from dataclasses import dataclass
from typing import Final

BLOCK_ROWS: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlLoaderSettings:
    """One loader.

    Args:
        url: of the database, as SQLAlchemy has it.
        key: name of the column with the key.
        partition_column: name of one that has the partition of each row; empty: it is reckoned from
            the key, by the function `cq_partition` of the database.
        block: so many rows are put by one transaction.
    """

    url: str
    table: str
    key: str
    partition_column: str = ""
    block: int = BLOCK_ROWS
