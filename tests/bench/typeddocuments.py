"""`python -m tests.bench.typeddocuments`: reading and writing documents of ten fields, beside JSON.

Each is called in turn, round after round, and the best processor time of a round counts: what else
runs on the machine disturbs all of them alike. Prints one line of JSON: microseconds a document,
and documents a second of columns.
"""

import json
import tempfile
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec

import cqrepl.arrow
import wire
from cqrepl.console.payload import line_of
from cqrepl.queue import Queue
from wire.codec import NAME
from wire.objects.messages import Messages
from wire.objects.object_reader import read_body
from wire.reader import Reader

ROUNDS: Final = 7
CALLS: Final = 2000
ROWS: Final = 500_000


@dataclass
class Order:
    sym: str
    px: float
    qty: int
    side: str
    account: str
    live: bool
    sent_ns: int
    user: int
    venue: str
    note: str | None = None


ORDER: Final = Order(
    "EURUSD", 101.5, 7, "BUY", "A-17", True, 1_709_640_000_000_000_000, 5, "XLON", "n"
)


def calls() -> dict[str, Callable[[], object]]:
    """The calls that are measured, by their names."""
    body, text = wire.encode(ORDER), json.dumps(asdict(ORDER)).encode()
    messages, decoder = Messages((Order,)), msgspec.json.Decoder(Order)
    view = memoryview(body)
    return {
        "wire.decode": lambda: wire.decode(body),
        "wire.decode, class": lambda: wire.decode(body, Order),
        "documents": lambda: messages.read(view),
        "plain codec": lambda: read_body(Reader(body)),
        "line of tail": lambda: line_of(view),
        "wire.encode, class": lambda: wire.encode(ORDER),
        "json.loads": lambda: json.loads(text),
        "msgspec": lambda: msgspec.json.decode(text),
        "msgspec, class": lambda: decoder.decode(text),
    }


def measured() -> dict[str, float]:
    """Microseconds of each call."""
    best: dict[str, float] = {}
    for _ in range(ROUNDS):
        for name, call in calls().items():
            began = time.process_time()
            for _ in range(CALLS):
                call()
            took = (time.process_time() - began) / CALLS * 1e6
            best[name] = min(best.get(name, took), took)
    return {name: round(each, 2) for name, each in best.items()}


def columns_per_second(path: Path) -> dict[str, int]:
    """Documents a second of `to_arrow`: of five columns, and of all."""
    with Queue.open(path, create="FAST_DAILY") as queue:
        batch = [wire.encode(ORDER)] * 10_000
        for _ in range(ROWS // len(batch)):
            queue.append_many(batch)
        found = {}
        for name, columns in (("5", ["sym", "px", "qty", "side", "sent_ns"]), ("all", None)):
            rates = []
            for _ in range(ROUNDS):
                began = time.process_time()
                stream = cqrepl.arrow.to_arrow(queue, Order, columns=columns)
                rows = sum(each.num_rows for each in stream)
                rates.append(rows / (time.process_time() - began))
            found[name] = round(max(rates))
        return found


def main() -> None:
    """Measures and prints."""
    found: dict[str, Any] = {"codec": NAME, "us": measured()}
    with tempfile.TemporaryDirectory() as folder:
        found["columns_per_s"] = columns_per_second(Path(folder) / "q")
    print(json.dumps(found))


if __name__ == "__main__":
    main()
