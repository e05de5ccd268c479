"""`cqrepl demo --typed`: orders of a Java service, typed columns, and signals that are called."""

import json
import sys
from pathlib import Path

import pytest

import wire
from cqrepl import typeddemo
from cqrepl.queue import Queue
from cqrepl.typeddemo import Order, OrderSignal
from tests.support.invoke import Invoke
from tests.support.requirements import require

SIGNALS = [
    OrderSignal("EURUSD", 121.75, 1_032_000_000),
    OrderSignal("GBPUSD", 122.0, 1_048_000_000),
    OrderSignal("grün€", 122.25, 1_105_000_000),
]


def test_the_orders_that_the_package_brings(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("demo", "--typed", "--keep", tmp_path / "kept")
    assert result.exit_code == 0, result.output
    first, second, third = result.stdout.splitlines()
    assert first.startswith("90 orders of a Java service, out of the package, read as ")
    assert second == (
        "3 signals, for which Python's method reader was called; as the plain values say"
    )
    assert third == f"queues: {tmp_path / 'kept'}"
    assert typeddemo.python_calls(tmp_path / "kept" / "signals") == SIGNALS


def test_without_polars_they_are_read_as_objects(
    monkeypatch: pytest.MonkeyPatch, invoke: Invoke
) -> None:
    monkeypatch.setitem(sys.modules, "polars", None)
    result = invoke("demo", "--typed", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["read_as"], found["orders"], found["place"]) == ("objects", 90, None)


@pytest.mark.parametrize("name", ["polars", "no polars"])
def test_an_order_that_does_not_fit_is_counted(
    name: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    try:
        import polars
    except ImportError:
        require("polars", "polars is not installed")
    assert polars.__version__
    if name == "no polars":
        monkeypatch.setitem(sys.modules, "polars", None)
    with Queue.open(tmp_path / "q", create="FAST_DAILY") as queue:
        queue.append_documents([Order("A", 120.0, 1), Order("A", 100.0, 2)])
        queue.append(wire.encode({"order": {"sym": "A", "px": "dear", "qty": 1}}))
    count, misfits, _, signals = typeddemo.answered(tmp_path / "q")
    assert (count, misfits, signals) == (3, 1, [OrderSignal("A", 120.0, 1)])


def test_other_calls_than_those_that_should_come_end_with_1(
    monkeypatch: pytest.MonkeyPatch, invoke: Invoke
) -> None:
    wrong = [SIGNALS[0], SIGNALS[1], OrderSignal("grün€", 122.25, 1)]
    monkeypatch.setattr(typeddemo, "answered", lambda _: (90, 0, "columns", wrong))
    result = invoke("demo", "--typed")
    assert result.exit_code == 1
    assert "not as the plain values say" in result.stdout


def test_bad_arguments_are_said_in_one_line(invoke: Invoke, tmp_path: Path) -> None:
    result = invoke("demo", "--typed", "--jars", tmp_path)
    assert result.exit_code == 2
    jar = tmp_path / "queue-interop.jar"
    said = f"cqrepl demo: expected the Java service, {jar} (tools/java), got none\n"
    assert result.stderr == said
    result = invoke("demo", "--jars", tmp_path)
    assert result.exit_code == 2
    assert "expected --typed with --jars, got --jars alone" in result.stderr
