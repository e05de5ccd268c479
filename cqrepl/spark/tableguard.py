"""Keeps a session over Spark Connect from a table whose `DROP` deletes a queue.

Theory of operation. A table that is made without a path is Spark's own: its directory goes with it,
also one that it got later, by `ALTER TABLE ... SET LOCATION`. In a session with Java `tablekeeper`
makes such a table its user's. A client of Spark Connect cannot listen at the catalog, which is in
the server, and Spark asks the data source for nothing where a table's columns are listed. But each
statement passes the client's session. So it looks at statements of these kinds before they go:

    CREATE, REPLACE TABLE ... USING chronicle      refused without a path of its own
    ALTER TABLE ... SET LOCATION                   refused where the table is Spark's own
    DROP TABLE, DROP DATABASE ... CASCADE          so, too

What other clients of the server send is not seen here.
"""

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from cqrepl.spark.tableoptions import OptionError, TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_COMMENT: Final = re.compile(r"/\*.*?\*/|--[^\n]*", re.DOTALL)
_PART: Final = r"(?:`(?:[^`]|``)+`|\w+)"
_NAME: Final = rf"(?P<name>{_PART}(?:\s*\.\s*{_PART})*)"
_SOME: Final = r"(?:IF\s+EXISTS\s+)?"
_MAKES: Final = (
    r"\s*(?:CREATE(?:\s+OR\s+REPLACE)?|REPLACE)\s+(?:EXTERNAL\s+)?TABLE\b.*\bUSING\s+`?{}\b"
)
_PLACED: Final = re.compile(r"\bLOCATION\s*['\"]|[(,\s'\"`]path['\"`]?\s*=?\s*['\"]", re.I)
_MOVES: Final = re.compile(rf"\s*ALTER\s+TABLE\s+{_NAME}\s+SET\s+LOCATION\b", re.I)
_DROPS: Final = re.compile(rf"\s*DROP\s+TABLE\s+{_SOME}{_NAME}", re.I)
_DROPS_ALL: Final = re.compile(rf"\s*DROP\s+(?:DATABASE|SCHEMA)\s+{_SOME}{_NAME}\s+CASCADE\b", re.I)
_GUARDED: Final = "guards_queues"


def guard_tables(spark: "SparkSession", provider: str) -> None:
    """Has a session over Spark Connect look at each statement before it goes; once for each."""
    if not hasattr(spark, _GUARDED):
        guard = _StatementGuard(spark, provider)
        setattr(spark, _GUARDED, guard)
        session, catalog = _replaceable(spark), _replaceable(spark.catalog)
        session.sql = guard.before(spark.sql, guard.check)
        for name, check in (
            ("dropTable", guard.check_drop),
            ("dropDatabase", guard.check_drop_all),
        ):
            if hasattr(catalog, name):  # since Spark 4.2
                setattr(catalog, name, guard.before(getattr(catalog, name), check))


def _replaceable(target: Any) -> Any:
    return target  # a method of one object is replaced, which types do not foresee


class _StatementGuard:
    """A guard that looks at the statements of one session."""

    def __init__(self, spark: "SparkSession", provider: str) -> None:
        self._ask = spark.sql
        self._provider = provider
        self._makes = re.compile(_MAKES.format(provider), re.I | re.DOTALL)

    def before(self, call: Callable[..., Any], check: Callable[[str], None]) -> Callable[..., Any]:
        """The same call, which is made when a look at its first argument has raised nothing."""

        def checked(first: str, *rest: Any, **named: Any) -> Any:
            check(first)
            return call(first, *rest, **named)

        return checked

    def check(self, statement: str) -> None:
        """Does nothing where a statement leads to no table whose `DROP` deletes a queue.

        Raises:
            TableError: it does.
        """
        text = _COMMENT.sub(" ", statement)
        if self._makes.match(text) and not _PLACED.search(text):
            found = "a table without one, which DROP TABLE deletes with its directory"
            raise OptionError("path", "the directory of a queue", found)
        if (moves := _MOVES.match(text)) is not None and self._is_sparks_own(moves["name"]):
            raise TableError(
                f"table {moves['name']}: expected one that was made with a path, found one of"
                " Spark's own, which DROP TABLE deletes with its directory; make it anew with"
                " OPTIONS (path '...')"
            )
        if (drops := _DROPS.match(text)) is not None:
            self.check_drop(drops["name"])
        if (drops := _DROPS_ALL.match(text)) is not None:
            self.check_drop_all(drops["name"])

    def check_drop_all(self, database: str) -> None:
        """As `check`, for all tables of a database.

        Raises:
            TableError: one of them is a queue.
        """
        try:
            names = [row["tableName"] for row in self._ask(f"SHOW TABLES IN {database}").collect()]
        except AnalysisException:  # there is none
            return
        for name in names:
            self.check_drop(f"{database}.`{name}`")

    def check_drop(self, name: str) -> None:
        """As `check`, for the table of this name.

        Raises:
            TableError: its directory may be a queue.
        """
        if self._is_sparks_own(name):
            raise TableError(
                f"table {name}: expected one that was made with a path, found one of Spark's own,"
                " whose directory DROP deletes, and which may be a queue by now"
            )

    def _is_sparks_own(self, name: str) -> bool:
        """True for a table of our provider whose directory is Spark's."""
        *database, table = re.findall(_PART, name)
        place = f" IN {'.'.join(database)}" if database else ""
        pattern = table.strip("`").replace("'", "?")
        try:
            rows = self._ask(f"SHOW TABLE EXTENDED{place} LIKE '{pattern}'").collect()
        except AnalysisException:  # there is no such database: the statement itself tells
            return False
        wanted = {"Type: MANAGED", f"Provider: {self._provider}"}
        return any(wanted <= set(row["information"].splitlines()) for row in rows)
