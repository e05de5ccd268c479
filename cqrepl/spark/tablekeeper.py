"""Tables of Spark's catalog whose columns are listed, moved or copied: what each keeps is renewed.

    CREATE TABLE trades (index bigint, payload binary) USING chronicle OPTIONS (path '/data/trades')

Theory of operation. The options of a table travel in the metadata of its columns (`catalogtable`).
Spark asks a data source in Python for columns only where a table is made without any. Where columns
are listed, or where a table gets another place (`ALTER TABLE ... SET LOCATION`), Spark changes its
catalog and does not ask the data source. But it tells each change to the listeners of the catalog,
in the thread that makes the change and before the statement returns. So the listener here gives the
columns what they need, or renews it, before any query can read the table.

A table that is made without a path is Spark's own, with its directory, which goes with it when it
is dropped: also one that was set later, and that is a queue. So no such table stays Spark's own.
That directory is none of its queues where the option `paths` names these.

The listener is this Python, called by Java, as for `foreachBatch`; one serves all sessions of a
Java process. Where Spark Connect is between there is no such way: tables with a list that are made
there tell a query so.
"""

import json
import logging
import socket
from collections.abc import Callable, Mapping
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet

from py4j.protocol import Py4JError
from pyspark import SparkContext
from pyspark.errors import PySparkException
from pyspark.java_gateway import ensure_callback_server_started
from pyspark.sql.types import StructField, StructType

from cqrepl.spark.activesession import java_of
from cqrepl.spark.catalogtable import kept_of, metadata_of
from cqrepl.spark.failures import failure_of

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# without types in pyspark
_start_server: Final[Callable[[Any], None]] = ensure_callback_server_started
_OF_SPARK: Final = "MANAGED"
_OF_ITS_USER: Final = "EXTERNAL"
_CHANGES: Final = ("CreateTableEvent", "AlterTableEvent")
_served: "WeakSet[SparkContext]" = WeakSet()
_logger = logging.getLogger(__name__)


def keep_tables(spark: "SparkSession", provider: str) -> None:
    """Renews what tables of a provider keep, whenever the catalog of a session changes them.

    Where it cannot, as while the metastore is down, it says so: queues are read all the same.
    """
    java = java_of(spark)
    if java is None or spark.sparkContext in _served:
        return
    try:
        catalog = java.sharedState().externalCatalog()
        _start_callbacks(spark.sparkContext._gateway)
        catalog.addListener(_Listener(java, catalog, provider))
    except (Py4JError, PySparkException, OSError) as error:
        reason = error if isinstance(error, OSError) else failure_of(str(error))
        _logger.warning("tables whose columns are listed keep no options here: %s", reason)
        return
    _served.add(spark.sparkContext)


def _start_callbacks(gateway: Any) -> None:
    """Has Java call this Python.

    Raises:
        OSError: nothing can listen here. py4j would end the whole gateway.
    """
    if gateway.__dict__.get("_callback_server") is None:  # any other way asks Java for it
        address = gateway.callback_server_parameters.address
        family = socket.getaddrinfo(address, 0)[0][0]
        socket.create_server((address, 0), family=family).close()
    _start_server(gateway)


def kept_options(properties: Mapping[str, str], place: str | None) -> dict[str, str]:
    """The options of a table, of what the catalog tells of it."""
    options = {name: text for name, text in properties.items() if name.lower() != "path"}
    return options if place is None else {**options, "path": place}


def renewed(schema: StructType, options: Mapping[str, str]) -> StructType:
    """The columns of a table with its options; what else is noted of them stays, as the schema
    that its queue kept when the table was made."""
    schema_then = (kept_of(schema.fields) or {}).get("schema")
    if schema_then is not None:
        options = {**options, "schema": schema_then}
    return StructType(
        [
            StructField(
                each.name, each.dataType, each.nullable, {**each.metadata, **metadata_of(options)}
            )
            for each in schema.fields
        ]
    )


class _ForJava:
    """The names of the Java interfaces that the listener implements, as py4j asks for them."""

    implements = ("org.apache.spark.sql.catalyst.catalog.ExternalCatalogEventListener",)


class _Listener:
    """The listener that Java calls for each change of its catalog."""

    Java = _ForJava

    def __init__(self, java: Any, catalog: Any, provider: str) -> None:
        self._java = java
        self._catalog = catalog
        self._provider = provider

    def onEvent(self, event: Any) -> None:
        """Renews what the table keeps. Its own change comes back here, and is none any more."""
        if event.getClass().getSimpleName() not in _CHANGES:
            return
        database, name = event.database(), event.name()
        table = self._catalog.getTable(database, name)
        if str(table.provider().getOrElse(None)).lower() != self._provider:
            return
        is_of_spark = table.tableType().name() == _OF_SPARK
        before = StructType.fromJson(json.loads(table.schema().json()))
        properties, place = _properties_of(table), _place_of(table)
        kept = kept_of(before.fields)
        had_no_path = kept is not None and "path" not in kept
        if place is not None and (is_of_spark or had_no_path) and _has_paths(properties):
            around = PurePosixPath(self._catalog.getDatabase(database).locationUri().getPath())
            if PurePosixPath(place).parent == around:
                place = None  # Spark's own choice
        after = renewed(before, kept_options(properties, place))
        # each change comes back here, and what follows it is done there
        if after != before:
            self._catalog.alterTableSchema(database, name, self._java.parseDataType(after.json()))
        elif is_of_spark:
            self._catalog.alterTable(_of_its_user(table))


def _has_paths(properties: Mapping[str, str]) -> bool:
    return any(name.lower() == "paths" for name in properties)


def _properties_of(table: Any) -> dict[str, str]:
    found = {}
    each = table.storage().properties().iterator()
    while each.hasNext():
        pair = each.next()
        found[str(pair._1())] = str(pair._2())
    return found


def _place_of(table: Any) -> str | None:
    place = table.storage().locationUri()
    return None if place.isEmpty() else str(place.get().getPath())


def _of_its_user(table: Any) -> Any:
    """The same table, whose directory Spark leaves alone."""
    arity = range(table.productArity())
    values = {table.productElementName(nth): table.productElement(nth) for nth in arity}
    values["tableType"] = values["tableType"].copy(_OF_ITS_USER)
    return table.copy(*values.values())
