"""Keeps a session over Spark Connect from a table whose `DROP` deletes a queue.

Theory of operation. A table that is made without a path is Spark's own: its directory goes with it,
also one that it got later, by `ALTER TABLE ... SET LOCATION`. In a session with Java `tablekeeper`
makes such a table its user's. A client of Spark Connect cannot listen at the catalog, which is in
the server, and Spark asks the data source for nothing where a table's columns are listed. But only
a session in which the data source is registered makes, moves or drops such a table: any other one
does not find the source. And each statement passes the client's session. So it looks at statements
of these kinds before they go:

    CREATE, REPLACE TABLE ... USING chronicle      refused without a path of its own; so is LIKE
    ALTER TABLE ... SET LOCATION                   refused where the table is Spark's own
    DROP TABLE, DROP DATABASE ... CASCADE          so, too
    EXECUTE IMMEDIATE ...                          what the text is that it runs is asked of Spark
    BEGIN ... END                                  each statement in it

A text that a script makes and runs is known to nothing before it runs, so such a script is refused.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from pyspark.errors import AnalysisException

from cqrepl.spark.statements import Deed, Step, parts_of, steps_of
from cqrepl.spark.tableoptions import OptionError, TableError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Check = Callable[..., None]
_GUARDED: Final = "guards_queues"
_DEFAULT: Final = "spark.sql.sources.default"
_NESTING_MAX: Final = 5  # of texts that run texts; Spark takes none at all


def guard_tables(spark: "SparkSession", provider: str) -> None:
    """Has a session over Spark Connect look at each statement before it goes; once for each."""
    if not hasattr(spark, _GUARDED):
        guard = _StatementGuard(spark, provider)
        setattr(spark, _GUARDED, guard)
        session, catalog = _replaceable(spark), _replaceable(spark.catalog)
        session.sql = guard.before(spark.sql, guard.check)
        for name, check in (
            ("createTable", guard.check_making),
            ("createExternalTable", guard.check_making),
            ("dropTable", guard.check_drop),
            ("dropDatabase", guard.check_drop_all),
        ):
            if hasattr(catalog, name):  # the last two since Spark 4.2
                setattr(catalog, name, guard.before(getattr(catalog, name), check))


def _replaceable(target: Any) -> Any:
    return target  # a method of one object is replaced, which types do not foresee


class _StatementGuard:
    """A guard that looks at the statements of one session."""

    def __init__(self, spark: "SparkSession", provider: str) -> None:
        self._spark = spark
        self._ask = spark.sql
        self._provider = provider

    def before(self, call: Callable[..., Any], check: Check) -> Callable[..., Any]:
        """The same call, which is made when a look at its arguments has raised nothing."""

        def checked(*given: Any, **named: Any) -> Any:
            check(*given, **named)
            return call(*given, **named)

        return checked

    def check(self, sqlQuery: str, args: Any = None, **named: Any) -> None:
        """Does nothing where a statement leads to no table whose `DROP` deletes a queue.

        Args:
            sqlQuery: as all others, of `SparkSession.sql`.

        Raises:
            TableError: it does, or runs a text that cannot be known.
        """
        self._check(sqlQuery, lambda text: self._value_of(text, args, named), _NESTING_MAX)

    def _check(self, statement: str, value_of: Callable[[str], str], nesting: int) -> None:
        for step in steps_of(statement):
            if step.deed is Deed.RUNS:
                if step.is_in_script or not nesting:
                    raise TableError(
                        "EXECUTE IMMEDIATE: expected it outside of a script, where its text can be"
                        " looked at: it may drop a table whose directory is a queue; a session"
                        " without register(spark) runs it"
                    )
                self._check(value_of(step.expression), value_of, nesting - 1)
            else:
                name = step.name
                if step.expression:
                    name = parts_of(value_of(step.expression))
                self._check_step(step, ".".join(map(_quoted, name)))

    def _value_of(self, expression: str, args: Any, named: dict[str, Any]) -> str:
        """The text that an expression of a statement gives.

        Raises:
            TableError: Spark cannot tell before the statement runs.
        """
        try:
            [[found]] = self._ask(f"SELECT {expression}", args, **named).collect()
        except AnalysisException as error:
            why = str(error).splitlines()[0]
            raise TableError(
                f"{expression}: expected a text that can be looked at, as it may drop a table whose"
                f" directory is a queue: {why}"
            ) from None
        return str(found)

    def _check_step(self, step: Step, name: str) -> None:
        match step.deed:
            case Deed.MAKES:
                self._check_provider(step.provider)
            case Deed.MAKES_LIKE if self._is_ours(name):
                self._check_provider(self._provider)
            case Deed.MOVES if self._is_ours(name, "MANAGED"):
                raise TableError(
                    f"table {name}: expected one that was made with a path, found one of Spark's"
                    " own, which DROP TABLE deletes with its directory; make it anew with OPTIONS"
                    " (path '...')"
                )
            case Deed.DROPS:
                self.check_drop(name)
            case Deed.DROPS_ALL:
                self.check_drop_all(name)

    def check_making(
        self, tableName: str, path: Any = None, source: Any = None, *rest: Any, **named: Any
    ) -> None:
        """As `check`, for a table that `spark.catalog` is to make.

        Args:
            tableName: as all others, of `Catalog.createTable`.

        Raises:
            OptionError: it would be Spark's own.
        """
        if path is None and "path" not in map(str.lower, named):
            self._check_provider("" if source is None else str(source).lower())

    def _check_provider(self, provider: str) -> None:
        """Of a table that is made without a path; "": the session's default."""
        if (provider or str(self._spark.conf.get(_DEFAULT)).lower()) == self._provider:
            found = "a table without one, which DROP TABLE deletes with its directory"
            raise OptionError("path", "the directory of a queue", found)

    def check_drop_all(self, dbName: str, *rest: Any, **named: Any) -> None:
        """As `check`, for all tables of a database.

        Args:
            dbName: as all others, of `Catalog.dropDatabase`.

        Raises:
            TableError: one of them is a queue.
        """
        try:
            names = [row["tableName"] for row in self._ask(f"SHOW TABLES IN {dbName}").collect()]
        except AnalysisException:  # there is none
            return
        for name in names:
            self.check_drop(f"{dbName}.{_quoted(name)}")

    def check_drop(self, tableName: str, *rest: Any, **named: Any) -> None:
        """As `check`, for the table of this name.

        Args:
            tableName: as all others, of `Catalog.dropTable`.

        Raises:
            TableError: its directory may be a queue.
        """
        if self._is_ours(tableName, "MANAGED"):
            raise TableError(
                f"table {tableName}: expected one that was made with a path, found one of Spark's"
                " own, whose directory DROP deletes, and which may be a queue by now"
            )

    def _is_ours(self, name: str, kind: str = "") -> bool:
        """True for a table of our provider, and of this kind where one is given."""
        *database, table = parts_of(name) or ("",)
        place = f" IN {'.'.join(map(_quoted, database))}" if database else ""
        pattern = table.replace("\\", "?").replace("'", "?")
        try:
            rows = self._ask(f"SHOW TABLE EXTENDED{place} LIKE '{pattern}'").collect()
        except AnalysisException:  # there is no such database: the statement itself tells
            return False
        wanted = {f"Provider: {self._provider}"} | ({f"Type: {kind}"} if kind else set())
        return any(wanted <= set(row["information"].splitlines()) for row in rows)


def _quoted(part: str) -> str:
    return f"`{part.replace('`', '``')}`"
