"""The trading example of docs/typed.md as a demonstration: a Java service's orders, and signals.

The orders are those of a real Java service, which runs here where its jar is given; without one the
package brings a queue that the service has written. Python reads the orders as typed columns where
polars is there, else as objects, and writes a signal for the dear orders of each symbol. Then a
method reader is called for the signals, that of Java where there is Java. It has to be called once
for each symbol, with what adding up the plain values of the documents gives.
"""

import json
import shutil
import subprocess
import tarfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from importlib import resources
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import trio

import wire
from cqrepl.console.exitcodes import BadArguments
from cqrepl.console.output import flush, json_line, write_text
from cqrepl.demofolder import demo_folder
from cqrepl.queue import Queue, QueueError
from wire.text.parse_documents import encode_text

DEAR: Final = 110.0  # an order is dear above this price
_JAR: Final = "queue-interop.jar"
_SAMPLE: Final = "java-orders.tar.gz"
_ROLL_CYCLE: Final = "FAST_DAILY"
_JAVA: Final = (
    *("java", "-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-Dchronicle.analytics.disable=true", "-Dinterop.blockSize=65536", "-jar"),
)
_PATIENCE_S: Final = 300
_SAID_CHARS: Final = 300  # of the last line that Java has printed
_HEADER_BYTES: Final = 4


@dataclass
class Order:
    """An order, as far as the example looks at it."""

    wire_event: ClassVar[str] = "order"
    sym: str
    px: float
    qty: int
    side: str | None = None


@dataclass
class OrderSignal:
    """The answer: the greatest price and all quantities of the dear orders of a symbol."""

    sym: str
    px: float
    qty: int


class OrderSignals(Protocol):
    """The interface of Java's method reader."""

    def signal(self, signal: OrderSignal) -> int: ...


@dataclass(slots=True)
class TypedResult:
    """The findings of a demonstration.

    Args:
        orders: that were read.
        misfits: orders that do not fit the class.
        read_as: columns or objects.
        signals: calls of the method reader.
        wanted: calls that should come of the plain values.
        called_by: Java or Python.
        is_right: true where the calls are those that should come.
        place: of the queues; None where they are not kept.
    """

    orders: int
    misfits: int
    read_as: str
    signals: int
    wanted: int
    called_by: str
    is_right: bool
    place: str | None


def run_typed(rows: int, jars: Path | None, keep: Path | None, *, as_json: bool) -> bool:
    """Runs it and prints what was found; true where the right calls have come.

    Args:
        rows: orders that the Java service writes.
        jars: the directory of its jar, with its libraries in `lib`; None: without Java.

    Raises:
        BadArguments: there is no such jar, or no Java.
        QueueError: the Java service has failed.
    """
    java = None if jars is None else JavaProgram(jars)
    with demo_folder(keep and keep.absolute()) as folder:
        result = _demonstrate(folder, rows, java)
    result.place = None if keep is None else str(folder)
    if as_json:
        write_text(json_line({"v": 1, **asdict(result)}))
    else:
        by = "a Java service" if java else "a Java service, out of the package"
        verdict = "as the plain values say" if result.is_right else "not as the plain values say"
        write_text(
            f"{result.orders:,} orders of {by}, read as {result.read_as}; {result.misfits} do not"
            f" fit\n{result.signals} signals, for which {result.called_by}'s method reader was"
            f" called; {verdict}\n"
        )
        if result.place is not None:
            write_text(f"queues: {result.place}\n")
    flush()
    return result.is_right


class JavaProgram:
    """The Java service and the Java method reader.

    Raises:
        BadArguments: there is no such jar, or no Java.
    """

    def __init__(self, jars: Path) -> None:
        self._jar = jars.resolve() / _JAR
        if not self._jar.exists():
            raise BadArguments(f"expected the Java service, {self._jar} (tools/java), got none")
        if shutil.which("java") is None:
            raise BadArguments("expected a java on the path for the Java service, got none")

    def call(self, *words: object) -> list[dict[str, Any]]:
        """The lines that a command of the program prints.

        Raises:
            QueueError: it has failed.
        """
        try:
            done = trio.run(_run_java, [*_JAVA, str(self._jar), *map(str, words)])
        except trio.TooSlowError as error:
            raise QueueError(f"Java's {words[0]} has not ended in {_PATIENCE_S} s") from error
        output, errors = (each.decode(errors="replace") for each in (done.stdout, done.stderr))
        if done.returncode:
            last = (errors.strip() or output.strip() or "nothing").splitlines()[-1]
            raise QueueError(
                f"Java's {words[0]} ended with exit code {done.returncode}: {last[:_SAID_CHARS]}"
            )
        return [json.loads(line) for line in output.splitlines()]


async def _run_java(command: list[str]) -> "subprocess.CompletedProcess[bytes]":
    with trio.fail_after(_PATIENCE_S):
        return await trio.run_process(
            command, capture_stdout=True, capture_stderr=True, check=False
        )


def _demonstrate(folder: Path, rows: int, java: JavaProgram | None) -> TypedResult:
    orders, signals = folder / "orders", folder / "signals"
    if java is None:
        unpack_sample(folder)
    else:
        java.call("Orders", orders, _ROLL_CYCLE, rows)
    count, misfits, read_as, answers = answered(orders)
    write_signals(signals, answers)
    called = python_calls(signals) if java is None else _java_calls(java, signals)
    wanted = plainly_answered(orders)
    return TypedResult(
        orders=count,
        misfits=misfits,
        read_as=read_as,
        signals=len(called),
        wanted=len(wanted),
        called_by="Python" if java is None else "Java",
        is_right=called == wanted and bool(wanted),
        place=None,
    )


def unpack_sample(folder: Path) -> None:
    """Puts the queue `orders` of the package into a directory."""
    packed = resources.files("cqrepl").joinpath("samples", _SAMPLE)
    with packed.open("rb") as file, tarfile.open(fileobj=file, mode="r:gz") as archive:
        archive.extractall(folder, filter="data")


def answered(orders: Path) -> tuple[int, int, str, list[OrderSignal]]:
    """The number of orders, and of those that do not fit; columns or objects; and the signals."""
    try:
        import polars

        from cqrepl.arrow import to_arrow
    except ImportError:
        return _answered_by_objects(orders)
    stream = to_arrow(orders, Order)
    frame = polars.DataFrame(stream)
    dear = (
        frame.filter(polars.col("px") > DEAR)
        .group_by("sym")
        .agg(polars.col("px").max(), polars.col("qty").sum())
        .sort("sym")
    )
    signals = [OrderSignal(sym, px, qty) for sym, px, qty in dear.iter_rows()]
    return len(frame) + stream.misfits, stream.misfits, "columns", signals


def _answered_by_objects(orders: Path) -> tuple[int, int, str, list[OrderSignal]]:
    count, misfits, found = 0, 0, dict[str, OrderSignal]()

    def count_misfit(_: object) -> None:
        nonlocal misfits
        misfits += 1

    with Queue.open(orders) as queue:
        for order in queue.documents(Order, on_misfit=count_misfit):
            count += 1
            if order.px > DEAR:
                _add(found, order.sym, order.px, order.qty)
    signals = [found[sym] for sym in sorted(found)]
    return count + misfits, misfits, "objects", signals


def plainly_answered(orders: Path) -> list[OrderSignal]:
    """The signals once more, by the values of the documents alone: the class has no part in it."""
    found: dict[str, OrderSignal] = {}
    with Queue.open(orders) as queue:
        for excerpt in queue.tailer():
            document = wire.decode(bytes(excerpt))
            order = document["order"] if isinstance(document, dict) else None
            if isinstance(order, dict) and order["px"] > DEAR:
                _add(found, order["sym"], order["px"], order["qty"])
    return [found[sym] for sym in sorted(found)]


def _add(found: dict[str, OrderSignal], sym: str, px: float, qty: int) -> None:
    signal = found.setdefault(sym, OrderSignal(sym, px, 0))
    signal.px, signal.qty = max(signal.px, px), signal.qty + qty


def write_signals(path: Path, signals: Sequence[OrderSignal]) -> None:
    """Writes each signal as the call of a method."""
    with Queue.open(path, create=_ROLL_CYCLE) as queue:
        send: Callable[[OrderSignal], object] = queue.method_writer(OrderSignals).signal
        for signal in signals:
            send(signal)


def python_calls(path: Path) -> list[OrderSignal]:
    """The signals that Python's method reader is called for."""
    called: list[OrderSignal] = []

    class Desk:
        def signal(self, signal: OrderSignal) -> None:
            called.append(signal)

    with Queue.open(path) as queue:
        queue.method_reader(Desk()).read_all()
    return called


def _java_calls(java: JavaProgram, path: Path) -> list[OrderSignal]:
    """The signals that Java's method reader is called for, each as Java shows it."""
    called = []
    for line in java.call("Calls", path):
        for method, shown in line["calls"]:
            # the class, then the object as text of documents
            document = encode_text(f"--- !!data #binary\n{method}: {shown.partition(': ')[2]}")
            fields = wire.decode(document[_HEADER_BYTES:])
            typed = fields["signal"] if isinstance(fields, dict) else None
            if not isinstance(typed, wire.Typed) or not isinstance(typed.value, dict):
                raise QueueError(f"a signal was expected from Java, {shown[:_SAID_CHARS]!r} came")
            called.append(OrderSignal(**typed.value))
    return called
