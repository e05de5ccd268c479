"""Fills queues from a table: a queue for each partition of the keys, restartable by block.

Theory of operation. Each row becomes a key and a payload. Rows go to the partition of their key
(`routing`, `keycolumns`) and are sorted there by key and by the column that was chosen; where none
was, by the column `index` of a queue, if the table has it; then by payload. Spark's Java does
that, and Python gets columns (`fillsource`). So each queue is a function of the table
alone, and of a key's excerpts the newest comes last where they have an order; `queuefiller` tells
what that gives. A file beside the queues keeps what they were made with, so
that a second run with another key or number of partitions cannot mix them up. By the same file a
task tells whether it sees the driver's directory, before it fills a queue.
"""

import json
import tempfile
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from uuid import uuid4

import wire
from cqrepl.console.exitcodes import BadArguments
from cqrepl.queue import QueueLayout
from cqrepl.queue.files.maker import put_in_place
from cqrepl.routing import partition_of, plain
from cqrepl.spark.activesession import active, java_of
from cqrepl.spark.failures import one_line
from cqrepl.spark.jobs.fillsource import FORMAT, PARTITION, PAYLOAD, Filling, FillSource
from cqrepl.spark.jobs.keycolumns import (
    WHOLE_NUMBERS,
    column,
    java_charsets,
    key_column,
    order_columns,
    partition_column_of,
)
from cqrepl.spark.jobs.queuefiller import Filled
from cqrepl.spark.jobs.tasks import progress
from cqrepl.spark.witness import file_state
from cqrepl.surroundings import make_synced, sync_path

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

SETTINGS: Final = "_partitions.json"
_DRAFT: Final = f"{SETTINGS}.draft-"
BLOCK: Final = 10_000
_INDEX: Final = "index"
_ORDERED: Final = (
    "bigint", "int", "smallint", "tinyint", "double", "float", "decimal", "string", "binary",
    "date", "timestamp", "timestamp_ntz", "boolean",
)  # fmt: skip
_KEY, _PLACE = "key", "place"


@dataclass(frozen=True, slots=True, kw_only=True)
class PreloadSettings:
    """The settings that rows become queues by.

    Args:
        key: the column that decides the partition.
        payload: the column that is the excerpt, bytes or text; None: the whole row, as fields of
            binary wire.
        order: the column by which the rows of a key are ordered, those without a value first; None:
            by `index`, where the table has one, else by payload.
    """

    key: str
    partitions: int
    payload: str | None = None
    order: str | None = None


def preload(
    frame: "DataFrame",
    out: Path | str,
    settings: PreloadSettings,
    *,
    layout: QueueLayout,
    now_ms: int,
    block: int = BLOCK,
) -> list[Filled]:
    """Makes a queue for each partition, as far as they are not there; in their order.

    Args:
        now_ms: decides the cycle of what is new.
        block: how many excerpts are appended in one step.

    Raises:
        BadArguments: the table has no such columns; or the queues were made in another way.
        JobFailed: a row cannot be put into a queue, or a task sees another directory; the message
            is one line.
    """
    out = Path(out).absolute()
    _check_columns(frame, settings)
    _keep_settings(out, settings)
    cycle = layout.roll_cycle.cycle_at(now_ms, layout.epoch)

    seen = file_state(out / SETTINGS)
    if seen is None:
        raise BadArguments(f"{out / SETTINGS}: expected a file that can be read")
    filling = Filling(
        out=out, layout=layout, cycle=cycle, block=block, column=settings.payload,
        seen=(SETTINGS, *seen),
    )  # fmt: skip
    frame.sparkSession.dataSource.register(FillSource)
    with tempfile.TemporaryDirectory(prefix="cqrepl-preload-") as folder:
        report = Path(folder) / "report"
        spark = frame.sparkSession
        with (
            active(spark),
            progress(spark, "filled"),
            one_line(),
            ExitStack() as planning,
        ):
            planning.enter_context(java_charsets(spark))
            spread = _spread(frame, settings)
            if java_of(spark) is not None:  # else the plan is made by the action itself
                planning.close()
            writer = spread.write.format(FORMAT).mode("append")
            writer.option("filling", filling.to_text()).option("report", str(report)).save()
        told = [json.loads(line) for line in report.read_text().splitlines()]
    filled = {partition: Filled(**fields) for partition, fields in told}
    for partition in range(settings.partitions):
        if partition not in filled:  # it has no rows, and its queue is to say so
            filled[partition] = filling.fill(partition, iter(()))
    return [filled[partition] for partition in range(settings.partitions)]


def _spread(frame: "DataFrame", settings: PreloadSettings) -> "DataFrame":
    """Rows of (partition, payload): each partition in one task, sorted. To be called, and planned,
    within `java_charsets`.

    What they are sorted by are the same bytes as texts: Spark compares texts where they lie, and
    copies binary values out of both rows for each comparison.
    """
    kinds = dict(frame.dtypes)
    order = settings.order or (_INDEX if kinds.get(_INDEX) in WHOLE_NUMBERS else None)
    place = order_columns(None if order is None else column(order), kinds.get(order or "", ""))
    rows = frame.select(
        key_column(column(settings.key), kinds[settings.key]).alias(_KEY),
        *(value.alias(_PLACE) for value in place),
        _payload(frame, settings).cast("string").alias(PAYLOAD),
    )
    rows = rows.withColumn(PARTITION, partition_column_of(column(_KEY), settings.partitions))
    rows = rows.withColumn(_KEY, column(_KEY).cast("string"))
    by = [column(name).asc_nulls_first() for name in (_KEY, *([_PLACE] if place else []), PAYLOAD)]
    rows = rows.repartitionById(settings.partitions, column(PARTITION))
    rows = rows.sortWithinPartitions(*by)
    return rows.select(PARTITION, column(PAYLOAD).cast("binary").alias(PAYLOAD))


def partition_column(column: "Column", partitions: int) -> "Column":
    """The partition of each key of a column, for a query that has to find a key's queue again."""
    from pyspark.sql.functions import udf

    # Arrow would ask for pandas
    return udf(lambda key: partition_of(key, partitions), "int", useArrow=False)(column)


def _payload(frame: "DataFrame", settings: PreloadSettings) -> "Column":
    from pyspark.sql.functions import struct, udf

    if settings.payload is not None:
        return column(settings.payload).cast("binary")  # of a text the bytes of UTF-8
    # Arrow would ask for pandas
    whole = udf(_encoded, "binary", useArrow=False)
    return whole(struct(*map(column, frame.columns)))


def _encoded(row: "Row") -> bytes:
    return wire.encode(plain(row.asDict(recursive=True)))


def _check_columns(frame: "DataFrame", settings: PreloadSettings) -> None:
    for name in (settings.key, settings.payload, settings.order):
        if name is not None and name not in frame.columns:
            known = ", ".join(frame.columns)
            raise BadArguments(f"expected one of the columns {known}, found {name!r}")
    if settings.order is not None:
        found = dict(frame.dtypes)[settings.order]
        if found.partition("(")[0] not in _ORDERED:
            raise BadArguments(f"expected a column that has an order, found {found}")
    if settings.payload is not None:
        found = dict(frame.dtypes)[settings.payload]
        if found not in ("binary", "string"):
            raise BadArguments(f"expected binary or string in {settings.payload}, found {found}")


def _put_in_place(path: Path, text: str) -> None:
    """Makes a file that is whole as soon as it is there; one that is there already stays."""
    draft = path.with_name(f"{_DRAFT}{uuid4().hex}")
    try:
        draft.write_text(text)
        sync_path(draft)
        put_in_place(draft, path)
        sync_path(path.parent)
    finally:
        draft.unlink(missing_ok=True)


def _keep_settings(out: Path, settings: PreloadSettings) -> None:
    """Keeps the settings of the first run.

    Raises:
        BadArguments: the first run had other settings.
    """
    wanted: dict[str, Any] = {"v": 1, **asdict(settings)}
    if settings.order is None:
        del wanted["order"]  # as before there was one
    path = out / SETTINGS
    make_synced(out)
    if not path.exists():
        if any(not each.name.startswith(_DRAFT) for each in out.iterdir()):
            raise BadArguments(f"{out}: expected an empty directory, or one with {SETTINGS}")
        _put_in_place(path, json.dumps(wanted) + "\n")
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise BadArguments(f"{path}: expected JSON: {error}") from error
    if found != wanted:
        raise BadArguments(f"{path}: expected {json.dumps(wanted)}, found {json.dumps(found)}")
