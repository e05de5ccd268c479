"""A queue as a lazy frame: the same rows as all of it, and only what is asked for is read."""

import json
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue import Queue
from cqrepl.queue.format.index import INDEX_MAX
from cqrepl.typed.schemafile import SchemaError, json_schema
from tests.support.requirements import require
from tests.support.samples import NOON_MS, noon_index

try:
    import polars

    import cqrepl.frames
    from cqrepl.arrow import typedstream
    from tests.unit.test_typed_arrow import Order, Placed
except ImportError:
    require("polars", "polars or pyarrow is not installed")

FIRST = noon_index()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    orders = [Order(f"S{at % 7}", at / 4, at) for at in range(200)]
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_documents(orders, now_ms=NOON_MS)
    return tmp_path / "q"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """The options of each stream that a query reads."""
    found: list[dict[str, Any]] = []
    whole = typedstream.to_arrow

    def to_arrow(*arguments: Any, **options: Any) -> Any:
        found.append(options)
        return whole(*arguments, **options)

    monkeypatch.setattr(cqrepl.frames, "to_arrow", to_arrow)
    return found


def test_a_query_gives_the_rows_of_the_whole(path: Path, asked: list[dict[str, Any]]) -> None:
    whole = polars.DataFrame(typedstream.to_arrow(path, Order))
    lazy = cqrepl.frames.scan(path, Order)
    assert lazy.collect().equals(whole)
    column = polars.col
    conditions = [
        column("index") >= FIRST + 100,
        (column("index") > FIRST + 100) & (column("px") < 40) & (column("index") <= FIRST + 150),
        (column("index") == FIRST + 5) | (column("px") > 49),
        column("sym").str.ends_with("3"),
        column("index") < 0,
        ~(column("index") < FIRST + 190),
    ]
    for condition in conditions:
        assert lazy.filter(condition).collect().equals(whole.filter(condition)), condition
        chosen = lazy.filter(condition).select("qty", "sym").collect()
        assert chosen.equals(whole.filter(condition).select("qty", "sym"))
    assert lazy.select(polars.len()).collect().item() == 200
    ranges = [(each["index_first"], each["index_last"]) for each in asked[1:] if each]
    assert (FIRST + 100, INDEX_MAX) in ranges
    assert (FIRST + 101, FIRST + 150) in ranges


def test_only_the_columns_that_are_asked_for_are_made(
    path: Path, asked: list[dict[str, Any]]
) -> None:
    lazy = cqrepl.frames.scan(path, Order)
    found = lazy.filter(polars.col("px") > 49).select("sym").collect()
    assert found["sym"].to_list() == ["S1", "S2", "S3"]
    assert sorted(asked[-1]["columns"]) == ["px", "sym"]


def test_a_slice_ends_the_reading(path: Path, asked: list[dict[str, Any]]) -> None:
    lazy = cqrepl.frames.scan(path, Order)
    assert lazy.head(5).collect()["qty"].to_list() == [0, 1, 2, 3, 4]
    assert asked[-1]["batch_rows"] == 5
    assert lazy.slice(10, 3).collect()["qty"].to_list() == [10, 11, 12]


def test_calls(tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_documents([Placed("A", 1.5), Placed("B")], now_ms=NOON_MS)
    frame = cqrepl.frames.scan(tmp_path / "q", Placed).collect()
    assert frame.rows() == [(FIRST, "A", 1.5), (FIRST + 1, "B", 0.0)]


def test_without_a_class_the_schema_of_the_queue_says_the_columns(path: Path) -> None:
    with pytest.raises(ValueError) as caught:
        cqrepl.frames.scan(path)
    said = f"a class, or one in {path / 'schema.json'}, was expected, no schema came"
    assert str(caught.value) == said
    schema = json_schema(Order)
    (path / "schema.json").write_text(json.dumps(schema))
    assert cqrepl.frames.scan(path).collect().equals(cqrepl.frames.scan(path, Order).collect())
    (path / "schema.json").write_text(json.dumps(json_schema(Order, Placed)))
    with pytest.raises(ValueError, match="was expected, Order, order came"):
        typedstream.to_arrow(path)
    (path / "schema.json").write_text("{")
    with pytest.raises(SchemaError, match=r"schema\.json: Expecting property name"):
        typedstream.to_arrow(path)
