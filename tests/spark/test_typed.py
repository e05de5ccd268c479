"""Fields of documents as columns: in batches and streams, in tables, and by functions."""

import dataclasses
import datetime
import json
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import wire
from cqrepl import typeddemo
from cqrepl.arrow import to_arrow
from cqrepl.queue import Queue
from cqrepl.spark import from_wire, schema_text, to_wire
from tests.spark.queries import drained
from tests.spark.queues import CYCLE, DAY_MS, FIRST
from wire.objects.values import Float32, Int8, UInt16

NOON = datetime.datetime(2023, 11, 14, 12, tzinfo=datetime.UTC)


class Side(Enum):
    BUY = 1
    SELL = 2


@dataclass
class Leg:
    sym: str
    qty: int


NO_INT8, NO_UINT16, HALF = Int8(0), UInt16(0), Float32(0.5)


@dataclass
class Order:
    wire_event: ClassVar[str] = "order"
    sym: str
    px: float
    qty: int
    at: datetime.datetime
    side: Side = Side.BUY
    fee: Decimal | None = None
    small: Int8 = NO_INT8
    port: UInt16 = NO_UINT16
    ratio: Float32 = HALF
    opens: datetime.time | None = None
    day: datetime.date | None = None
    raw: bytes | None = None
    legs: list[Leg] = field(default_factory=list)
    timestamp: int | None = None


@dataclass
class Cancel:
    wire_event: ClassVar[str] = "cancel"
    sym: str


def order(number: int, **more: Any) -> Order:
    at = NOON + datetime.timedelta(minutes=number)
    return Order(f"S{number % 3}", number / 2, number, at, timestamp=number * 7, **more)


def make(path: Path, bodies: list[bytes], cycle: int = CYCLE) -> Path:
    with Queue.open(path, create="FAST_DAILY") as queue:
        queue.append_many(bodies, now_ms=cycle * DAY_MS)
    return path


@pytest.fixture
def queue(tmp_path: Path) -> Path:
    """Orders, a cancel among them, and what does not fit."""
    bodies = [wire.encode(order(number)) for number in range(100)]
    bodies[10] = wire.encode(Cancel("S1"))
    bodies[20] = wire.encode_call("order", {"sym": "S2", "px": "dear", "qty": 1, "at": NOON})
    bodies[30] = b"\xffno document"
    return make(tmp_path / "orders", bodies)


def typed(spark: SparkSession, path: Path, **options: str) -> Any:
    reading = spark.read.format("chronicle").option("schema", schema_text(Order))
    return reading.options(**options).load(str(path))


def test_fields_are_columns(spark: SparkSession, tmp_path: Path) -> None:
    whole = order(
        1, side=Side.SELL, fee=Decimal("1.25"), small=Int8(-3), port=UInt16(65_535),
        opens=datetime.time(9, 30), day=NOON.date(), raw=b"\0\xff", legs=[Leg("A", 1), Leg("é", 2)],
    )  # fmt: skip
    path = make(tmp_path / "q", [wire.encode(each) for each in (order(0), whole)])
    frame = typed(spark, path)
    assert frame.schema.simpleString() == (
        "struct<queue:string,index:bigint,sym:string,px:double,qty:bigint,at:timestamp,side:string"
        ",fee:decimal(38,18),small:tinyint,port:int,ratio:float,opens:string,day:date,raw:binary"
        ",legs:array<struct<sym:string,qty:bigint>>,timestamp:bigint,_misfit:binary,_error:string>"
    )
    first, second = (row.asDict(recursive=True) for row in frame.orderBy("index").collect())
    assert (first["queue"], first["index"], first["sym"], first["px"]) == ("q", FIRST, "S0", 0.0)
    assert (first["legs"], first["fee"], first["_misfit"]) == ([], None, None)
    assert second == {
        "queue": "q", "index": FIRST + 1, "sym": "S1", "px": 0.5, "qty": 1, "side": "SELL",
        "at": datetime.datetime.fromtimestamp(NOON.timestamp() + 60),
        "fee": Decimal("1.25"), "small": -3, "port": 65_535, "ratio": 0.5,
        "opens": "09:30:00.000000",
        "day": NOON.date(), "raw": b"\0\xff", "timestamp": 7, "_misfit": None, "_error": None,
        "legs": [{"sym": "A", "qty": 1}, {"sym": "é", "qty": 2}],
    }  # fmt: skip


def test_what_does_not_fit_is_kept_with_its_bytes(spark: SparkSession, queue: Path) -> None:
    frame = typed(spark, queue, splitExcerpts="16", splitBytes="1")
    assert frame.count() == 99  # a cancel is another method's call
    odd = frame.where("_error is not null").orderBy("index").collect()
    assert [(row["index"] - FIRST, row.px) for row in odd] == [(20, None), (30, None)]
    assert odd[1]._misfit == b"\xffno document"
    assert "px" in odd[0]._error
    assert typed(spark, queue, misfits="drop").count() == 97
    with pytest.raises(PySparkException, match=r"orders: .*px"):
        typed(spark, queue, misfits="fail").count()


def test_only_what_is_asked_for_comes(spark: SparkSession, queue: Path) -> None:
    names = ["qty", "_timestamp", "timestamp", "position", "payload", "sequence"]
    frame = typed(spark, queue, columns=",".join(names))
    assert frame.columns == names
    plain = spark.read.format("chronicle").option("columns", ",".join(["sequence", "timestamp",
        "position", "payload"])).load(str(queue)).collect()  # fmt: skip
    rows = {row.sequence: row for row in frame.collect()}
    assert len(rows) == 99
    assert 10 not in rows
    for each in plain:
        if each.sequence != 10:
            row = rows[each.sequence]
            assert (row._timestamp, row.position) == (each.timestamp, each.position)
            assert bytes(row.payload) == bytes(each.payload)
    assert rows[40].timestamp == 280
    own = spark.read.format("chronicle").schema("qty bigint, index bigint").option("schema",
        schema_text(Order)).load(str(queue)).where("qty = 7").collect()  # fmt: skip
    assert [(row.qty, row["index"]) for row in own] == [(7, FIRST + 7)]


def test_methods_are_told_apart_by_event(spark: SparkSession, queue: Path) -> None:
    both = schema_text(Order, Cancel)
    reading = spark.read.format("chronicle").option("schema", both)
    cancels = reading.option("event", "cancel").load(str(queue)).where("_error is null").collect()
    assert [(row["index"], row.sym) for row in cancels] == [(FIRST + 10, "S1")]
    with pytest.raises(PySparkException, match="one method of the schema expected"):
        spark.read.format("chronicle").option("schema", both).load(str(queue))


def test_documents_of_a_java_service_are_read_as_arrow_has_them(
    spark: SparkSession, tmp_path: Path
) -> None:
    typeddemo.unpack_sample(tmp_path)
    (path,) = {each.parent for each in tmp_path.rglob("metadata.cq4t")}
    kind = typeddemo.Order
    wanted = to_arrow(path, kind).read_all().to_pylist()
    assert len(wanted) > 10
    frame = spark.read.format("chronicle").option("schema", schema_text(kind)).load(str(path))
    names = ["index", "sym", "px", "qty", "side"]
    found = frame.where("_error is null").select(*names).orderBy("index").collect()
    assert [row.asDict() for row in found] == wanted
    assert frame.where("_error is not null").count() == 0


def test_a_file_and_the_schema_that_a_queue_keeps(
    spark: SparkSession, queue: Path, tmp_path: Path
) -> None:
    (tmp_path / "order.json").write_text(schema_text(Order))
    told = spark.read.format("chronicle").option("schema", str(tmp_path / "order.json"))
    wanted = sorted(told.load(str(queue)).select("index", "px").collect())
    plain = spark.read.format("chronicle").load(str(queue))
    assert "payload" in plain.columns
    (queue / "schema.json").write_text(schema_text(Order))
    unasked = spark.read.format("chronicle").load(str(queue))
    assert sorted(unasked.select("index", "px").collect()) == wanted
    own = spark.read.format("chronicle").schema("index bigint, px double").load(str(queue))
    assert sorted(own.collect()) == wanted
    chosen = spark.read.format("chronicle").option("columns", "index,px").load(str(queue))
    assert sorted(chosen.collect()) == wanted
    for options in ({"schema": "none"}, {"payload": "raw"}, {"columns": "index,payload"}):
        bare = spark.read.format("chronicle").options(**options).load(str(queue))
        assert "px" not in bare.columns
        assert bare.count() == 100
    other = make(tmp_path / "other", [b"x"])
    with pytest.raises(PySparkException, match=f"one schema.json for all queues.*{other}"):
        spark.read.format("chronicle").load(f"{tmp_path}/o*er*")


def test_a_table_keeps_its_schema(spark: SparkSession, queue: Path) -> None:
    (queue / "schema.json").write_text(schema_text(Order))
    spark.sql(f"CREATE TABLE typed_orders USING chronicle OPTIONS (path '{queue}')")
    try:
        (queue / "schema.json").unlink()
        assert spark.table("typed_orders").where("px = 8.5").select("sym").collect() == [("S2",)]
    finally:
        spark.sql("DROP TABLE typed_orders")


@pytest.mark.parametrize(("options", "match"), [
    ({"schema": "/nowhere.json"}, "option schema: expected a file of JSON Schema"),
    ({"schema": '{"type": "object"}'}, "properties expected"),
    ({"schema": "none", "misfits": "drop"}, "option misfits: expected a schema beside it"),
    ({"schema": json.dumps({"properties": {"a": {"type": "integer"}}}), "payload": "text"},
     "option payload: expected no schema beside it"),
    ({"schema": json.dumps({"properties": {"a": {"type": "integer"}}}), "columns": "b"},
     "option columns: expected some of a, queue"),
])  # fmt: skip
def test_what_is_wrong_with_a_schema_is_told_in_one_line(
    spark: SparkSession, queue: Path, options: dict[str, str], match: str
) -> None:
    with pytest.raises(PySparkException, match=match) as refused:
        spark.read.format("chronicle").options(**options).load(str(queue)).collect()
    assert "Traceback" not in str(refused.value)


def test_a_stream_has_event_time(spark: SparkSession, tmp_path: Path) -> None:
    """Windows close by the time in the documents, over two runs with one checkpoint."""
    path = make(tmp_path / "orders", [wire.encode(order(number)) for number in range(50)])

    def run() -> None:
        stream = spark.readStream.format("chronicle").option("schema", schema_text(Order))
        windows = (
            stream.load(str(path))
            .withWatermark("at", "1 minute")
            .groupBy(F.window("at", "10 minutes").alias("time"))
            .agg(F.sum("qty").alias("qty"), F.count("*").alias("count"))
            .selectExpr("time.start as start", "qty", "count")
        )
        drained(windows, tmp_path)

    run()
    make(path, [wire.encode(order(number)) for number in range(50, 90)], CYCLE + 1)
    run()
    found = spark.read.parquet(str(tmp_path / "out")).orderBy("start").collect()
    assert [row["count"] for row in found] == [10] * 8  # the last one is still open
    assert [row.qty for row in found] == [sum(range(n, n + 10)) for n in range(0, 80, 10)]


def test_documents_of_any_frame(spark: SparkSession, queue: Path) -> None:
    frame = spark.read.format("chronicle").load(str(queue))
    read = frame.select("index", from_wire("payload", Order).alias("order"))
    rows = {row["index"] - FIRST: row.order for row in read.collect()}
    assert (rows[7].px, rows[7].sym, rows[7]._error) == (3.5, "S1", None)
    assert rows[10] is None
    assert (rows[20].px, rows[20]._error.startswith("field px: expected float")) == (None, True)
    fields = [each.name for each in dataclasses.fields(Order)]
    named = F.struct(*[F.col(f"order.{each}") for each in fields])
    again = read.where("order._error is null and order is not null").select(
        "index", to_wire(named, Order).alias("payload")
    )
    documents = {row["index"] - FIRST: bytes(row.payload) for row in again.collect()}
    assert documents[7] == wire.encode(order(7))
    assert len(documents) == 97
    nothing = spark.sql("select cast(null as binary) as payload")
    assert nothing.select(from_wire("payload", Order).alias("o")).collect() == [(None,)]
    bad = spark.sql("select named_struct('sym', 'A') as o")
    with pytest.raises(PySparkException, match="px: float expected, none came"):
        bad.select(to_wire("o", Order)).collect()
