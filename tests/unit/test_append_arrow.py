"""Rows of Arrow as documents: what `to_arrow` gives comes back as the same bytes."""

import dataclasses
import datetime
import uuid
from pathlib import Path
from typing import Any

import pytest

from cqrepl.queue import Queue
from tests.support.requirements import require
from wire.objects.documents import plainly_encoded

try:
    import polars
    import pyarrow as pa

    import cqrepl.arrow
    from cqrepl.arrow import rowmessages
    from tests.unit.test_typed_arrow import FULL, ORDERS, Odd, Order, Placed
except ImportError:
    require("arrow", "pyarrow or polars is not installed")


@pytest.fixture
def queues(tmp_path: Path) -> tuple[Queue, Queue]:
    one, other = (Queue.open(tmp_path / name, create="FAST_DAILY") for name in ("one", "other"))
    return one, other


def payloads(queue: Queue) -> list[bytes]:
    return [bytes(excerpt) for excerpt in queue.tailer()]


@pytest.mark.parametrize("block_rows", [1, 3, 4096])
def test_columns_come_back_as_the_same_documents(
    queues: tuple[Queue, Queue], block_rows: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rowmessages, "BLOCK_ROWS", block_rows)
    one, other = queues
    one.append_documents(ORDERS)
    count = cqrepl.arrow.append_arrow(other, cqrepl.arrow.to_arrow(one.path, Order), Order)
    assert count == len(ORDERS)
    # a column of decimals has one scale, so that zeros at the end of a decimal are lost
    wanted = [
        dataclasses.replace(each, exact=each.exact and each.exact.normalize()) for each in ORDERS
    ]
    assert payloads(other) == [plainly_encoded(order) for order in wanted]


def test_kinds_that_are_converted_one_by_one_and_calls(queues: tuple[Queue, Queue]) -> None:
    one, other = queues
    odd = Odd(uuid.UUID(int=7))
    odd = dataclasses.replace(odd, time=datetime.time(1, 2), counts={"a": 1}, any=None)
    one.append_documents([odd])
    cqrepl.arrow.append_arrow(other, cqrepl.arrow.to_arrow(one.path, Odd).reader().read_all(), Odd)
    frame = polars.DataFrame({"sym": ["A", "B"], "px": [1.5, 2.0], "more": [1, 2]})
    assert cqrepl.arrow.append_arrow(other, frame, Placed) == 2
    wanted = [plainly_encoded(each) for each in (odd, Placed("A", 1.5), Placed("B", 2.0))]
    assert payloads(other) == wanted


def test_a_field_without_a_column_has_its_default(queues: tuple[Queue, Queue]) -> None:
    _, queue = queues
    batch = pa.record_batch({"qty": [5], "sym": ["A"]})
    cqrepl.arrow.append_arrow(queue, batch, Order)
    assert payloads(queue) == [plainly_encoded(Order("A", qty=5))]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"sym": ["A", None]}, "row 2: sym: str expected, null came"),
        ({"sym": ["A", "B"], "narrow": [1, 70000]}, "row 2: narrow: Int16 expected, 70000 came"),
        ({"sym": ["A", "B"], "px": ["x", "y"]}, "row 1: px: float expected, 'x' came"),
        ({"sym": ["A", "B"], "side": ["BUY", "HOLD"]}, "row 2: side: Side expected, 'HOLD' came"),
        ({"px": [1.0]}, "sym: a column of str expected, none came"),
    ],
)
def test_a_row_that_does_not_fit_is_named_and_nothing_is_appended(
    queues: tuple[Queue, Queue], columns: dict[str, Any], said: str
) -> None:
    _, queue = queues
    with pytest.raises(ValueError) as caught:
        cqrepl.arrow.append_arrow(queue, pa.record_batch(columns), Order)
    assert str(caught.value) == said
    assert payloads(queue) == []


def test_a_batch_of_many_blocks_is_appended_whole_or_not_at_all(
    queues: tuple[Queue, Queue], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rowmessages, "BLOCK_ROWS", 2)
    _, queue = queues
    batch = pa.record_batch({"sym": ["A", "B", "C", "D", None]})
    with pytest.raises(ValueError, match="row 5: sym: str expected, null came"):
        cqrepl.arrow.append_arrow(queue, batch, Order)
    assert payloads(queue) == []


@dataclasses.dataclass(kw_only=True)
class Timed:
    sym: str
    at: datetime.datetime


@pytest.mark.parametrize("zone", ["UTC", "America/New_York", "+01:00", None])
def test_times_of_any_zone_are_written_in_utc(
    queues: tuple[Queue, Queue], zone: str | None
) -> None:
    at = datetime.datetime(2024, 1, 1, 12, tzinfo=datetime.UTC if zone else None)
    batch = pa.record_batch({"sym": ["A"], "at": pa.array([at], pa.timestamp("us", zone))})
    cqrepl.arrow.append_arrow(queues[1], batch, Timed)
    assert payloads(queues[1]) == [plainly_encoded(Timed(sym="A", at=at))]


def test_other_data_is_refused(queues: tuple[Queue, Queue]) -> None:
    with pytest.raises(TypeError, match="rows of Arrow were expected, a list came"):
        cqrepl.arrow.append_arrow(queues[1], [FULL], Order)


def test_two_columns_of_one_name_are_refused(queues: tuple[Queue, Queue]) -> None:
    one, _ = queues
    rows = pa.table([[1, 2], [3, 4]], names=["qty", "qty"])
    with pytest.raises(ValueError, match="qty: one column of this name expected, several came"):
        cqrepl.arrow.append_arrow(one, rows, Quantity)
    assert payloads(one) == []


@dataclasses.dataclass
class Quantity:
    qty: int
