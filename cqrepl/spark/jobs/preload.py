"""Fills queues from a table: a queue for each partition of the keys, restartable by block.

Theory of operation. Each row becomes a key and a payload. Rows go to the partition of their key
(`partitionhash`) and are sorted there by key and by the column that was chosen; where none was, by
the column `index` of a queue, if the table has it; then by payload. So each queue is a function of
the table alone, and of a key's excerpts the newest comes last where they have an order;
`queuefiller` tells what that gives. A file beside the queues keeps what they were made with, so
that a second run with another key or number of partitions cannot mix them up.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import wire
from cqrepl.console.exitcodes import BadArguments
from cqrepl.queue import QueueLayout
from cqrepl.spark.failures import one_line
from cqrepl.spark.jobs.partitionhash import key_bytes, partition_of, plain
from cqrepl.spark.jobs.queuefiller import Filled, fill
from cqrepl.spark.jobs.tasks import progress
from cqrepl.spark.taskreader import settle_worker

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

SETTINGS: Final = "_partitions.json"
BLOCK: Final = 10_000
_INDEX: Final = "index"
_ORDERED: Final = (
    "bigint", "int", "smallint", "tinyint", "double", "float", "decimal", "string", "binary",
    "date", "timestamp", "timestamp_ntz", "boolean",
)  # fmt: skip
_WHOLE_NUMBERS: Final = ("bigint", "int", "smallint", "tinyint")
_Place = tuple[bool, Any]  # whether it has a value, and the value
_Keyed = tuple[tuple[int, bytes, _Place, bytes], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class PreloadSettings:
    """What the queues are made of.

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
        JobFailed: a row cannot be put into a queue; the message is one line.
    """
    out = Path(out).absolute()
    _check_columns(frame, settings)
    _keep_settings(out, settings)
    cycle = layout.roll_cycle.cycle_at(now_ms, layout.epoch)

    has_index = dict(frame.dtypes).get(_INDEX) in _WHOLE_NUMBERS
    order = settings.order or (_INDEX if has_index else None)

    def keyed(row: "Row") -> _Keyed:
        key, value = row[settings.key], None if order is None else row[order]
        has_value = value is not None and value == value  # not a number is not equal to itself
        place = (has_value, value if has_value else None)
        partition = partition_of(key, settings.partitions)
        return (partition, key_bytes(key), place, _payload(row, settings)), None

    def write(number: int, rows: Iterable[_Keyed]) -> Iterator[str]:
        settle_worker()
        payloads = (payload for (_, _, _, payload), _ in rows)
        yield json.dumps(asdict(fill(queue_path(out, number), layout, cycle, payloads, block)))

    with progress(frame.sparkSession, "filled"), one_line():
        texts = (
            frame.rdd.map(keyed)
            .repartitionAndSortWithinPartitions(settings.partitions, lambda key: key[0])
            .mapPartitionsWithIndex(write)
            .collect()
        )
    return [Filled(**json.loads(text)) for text in texts]


def queue_path(out: Path, partition: int) -> Path:
    """The queue of a partition."""
    return out / f"partition-{partition:05}"


def partition_column(column: "Column", partitions: int) -> "Column":
    """The partition of each key of a column, for a query that has to find a key's queue again."""
    from pyspark.sql.functions import udf

    # Arrow would ask for pandas
    return udf(lambda key: partition_of(key, partitions), "int", useArrow=False)(column)


def _payload(row: "Row", settings: PreloadSettings) -> bytes:
    if settings.payload is None:
        return wire.encode(plain(row.asDict(recursive=True)))
    value = row[settings.payload]
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes | bytearray):
        raise BadArguments(
            f"expected bytes or text in column {settings.payload}, found {value!r} in row {row!r}"
        )
    return bytes(value)


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


def _keep_settings(out: Path, settings: PreloadSettings) -> None:
    """Keeps the settings of the first run.

    Raises:
        BadArguments: the first run had other settings.
    """
    wanted: dict[str, Any] = {"v": 1, **asdict(settings)}
    if settings.order is None:
        del wanted["order"]  # as before there was one
    path = out / SETTINGS
    out.mkdir(parents=True, exist_ok=True)
    if not path.exists():
        if any(out.iterdir()):
            raise BadArguments(f"{out}: expected an empty directory, or one with {SETTINGS}")
        path.write_text(json.dumps(wanted) + "\n")
    try:
        found = json.loads(path.read_text())
    except ValueError as error:
        raise BadArguments(f"{path}: expected JSON: {error}") from error
    if found != wanted:
        raise BadArguments(f"{path}: expected {json.dumps(wanted)}, found {json.dumps(found)}")
