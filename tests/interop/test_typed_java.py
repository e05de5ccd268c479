"""Typed documents with real Java: its method writer writes, its method reader is called.

The example of docs/typed.md is run as it stands there.
"""

import datetime
import json
import re
import subprocess
import sys
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar

import pytest

import wire
from cqrepl.queue import Queue
from tests.support.java import JavaQueue
from tests.support.javabuild import BUILD_TIMEOUT_S, queue_jar
from tests.support.requirements import require
from wire.codec import NATIVE
from wire.objects.nativeforms import message_reader

pytestmark = [pytest.mark.java, pytest.mark.timeout(BUILD_TIMEOUT_S + 300)]
PAGE = Path(__file__).resolve().parents[2] / "docs" / "typed.md"


class Side(Enum):
    BUY = 1
    SELL = 2


@dataclass
class Leg:
    sym: str
    ratio: wire.Int32


@dataclass
class Order:
    """As that of `Calls.java`; Java writes each of its fields."""

    wire_event: ClassVar[str] = "order"
    sym: str
    px: float
    qty: wire.Int64
    live: bool
    side: Side
    exact: Decimal | None
    big: int | None
    day: datetime.date
    id: object
    leg: Leg | None
    legs: list[Leg] = field(default_factory=list)
    tags: list[str] = field(default_factory=list)
    counts: dict[str, int] | None = None
    data: bytes | None = None


def written(at: int) -> Order:
    """The order that `Orders.java` writes as number `at`."""
    exact = None if at % 5 == 0 else Decimal("1.10") + at
    return Order(
        ("EURUSD", "GBPUSD", "grün€")[at % 3], 100 + at / 4, wire.Int64(at * 1_000_000),
        at % 2 == 0, Side.BUY if at % 3 == 0 else Side.SELL, exact, None,
        datetime.date(2024, 3, 1) + datetime.timedelta(days=at % 28), None, None,
        [Leg(f"leg{at}", wire.Int32(at))], ["a", "b"],
    )  # fmt: skip


@pytest.fixture
def orders(java: JavaQueue, tmp_path: Path) -> Path:
    assert java.call("orders", tmp_path / "orders", "FAST_DAILY", 90).exit == 0
    return tmp_path / "orders"


def test_objects_that_java_wrote_are_read_and_written_byte_for_byte(orders: Path) -> None:
    with Queue.open(orders) as queue:
        assert list(queue.documents(Order)) == [written(at) for at in range(90)]
        for excerpt in queue.tailer():
            data = bytes(excerpt)
            assert wire.encode(wire.decode(data, Order)) == data
            if NATIVE is not None:
                read = message_reader(Order)
                assert read is not None
                assert read(data) is not NotImplemented


def test_the_example_of_the_page(java: JavaQueue, orders: Path, tmp_path: Path) -> None:
    try:
        import polars
    except ImportError:
        require("polars", "polars is not installed")
    assert polars.__version__
    found = re.search(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    names: dict[str, Any] = {"__name__": "example"}
    exec(compile(found[1], "docs/typed.md", "exec", dont_inherit=True), names)
    assert names["answer"](orders, tmp_path / "signals") == 3
    answer = java.call("calls", tmp_path / "signals")
    dear = [written(at) for at in range(90) if written(at).px > 110]
    for line, sym in zip(answer.lines, ("EURUSD", "GBPUSD", "grün€"), strict=True):
        mine = [order for order in dear if order.sym == sym]
        ((method, shown),) = line["calls"]
        assert (method, line.get("error")) == ("signal", None)
        assert f"px: {max(order.px for order in mine)}" in shown
        assert f"qty: {sum(order.qty for order in mine)}" in shown


def test_what_python_writes_java_takes_as_objects(java: JavaQueue, tmp_path: Path) -> None:
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_documents([written(at) for at in range(5)])
    with_orders = java.call("calls", tmp_path / "q").lines
    assert java.call("orders", tmp_path / "java", "FAST_DAILY", 5).exit == 0
    by_java = java.call("calls", tmp_path / "java").lines
    assert [line["calls"] for line in with_orders] == [line["calls"] for line in by_java]
    assert all(line.get("error") is None for line in with_orders)


def test_bytes_that_java_has_compressed(java: JavaQueue, tmp_path: Path) -> None:
    assert java.call("orders", tmp_path / "q", "FAST_DAILY", 3, "--compressed").exit == 0
    with Queue.open(tmp_path / "q") as queue:
        found = [wire.decode(excerpt.data, unpack=True) for excerpt in queue.tailer()]
    text = [b"x" * (200 + at) for at in range(3)]
    assert found == [{"lzw": each, "gzip": each} for each in text]


@pytest.mark.usefixtures("java")
def test_the_demonstration_with_a_real_service_and_a_real_method_reader() -> None:
    words = ["demo", "--typed", "--json", "--rows", "2000", "--jars", str(queue_jar().parent)]
    command = [sys.executable, "-P", "-m", "cqrepl", *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert (found["orders"], found["misfits"], found["signals"]) == (2000, 0, 3)
    assert (found["called_by"], found["is_right"]) == ("Java", True)
