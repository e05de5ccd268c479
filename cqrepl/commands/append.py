"""Cuts standard input into payloads, and appends them as they come."""

import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final, TypedDict

import wire
from cqrepl.console import exitcodes, output
from cqrepl.console.meter import Meter
from cqrepl.console.units import plural
from cqrepl.queue import NotAQueue, Queue, format_index
from cqrepl.queue.format.block import longest_payload
from cqrepl.queue.write.groupcommit import Durability
from wire.header import is_framed

_READ_BYTES: Final = 256 * 1024
_LENGTH_BYTES: Final = 4
_JSON_PARTS: Final = 4  # so much longer than its binary wire may JSON be
Payloads = Iterator[list[bytes]]


class AppendOptions(TypedDict):
    """The options that the user chose."""

    form: str
    count_max: int | None
    rate: float | None
    durability: str
    block_bytes: int
    wait_for_seconds: float
    create: str | None
    to_copy: bool
    as_json: bool


def append_input(path: Path, options: AppendOptions) -> int:
    """Appends all of standard input, and says what was appended, however it ends."""
    with _opened(path, options) as queue, Meter(str(path)) as meter:
        appended = _Appended(queue, meter, to_copy=options["to_copy"])
        try:
            longest = longest_payload(options["block_bytes"], queue.layout.index_count)
            pieces = _FORMS[options["form"]](longest)
            for payloads in _limited(pieces, options["count_max"]):
                appended.append(payloads, options["rate"])
        except BaseException:
            output.write_error(f"cqrepl append: {appended.text()}")
            raise
    output.write_text(appended.json() if options["as_json"] else appended.text() + "\n")
    output.flush()
    return exitcodes.OK


def _opened(path: Path, options: AppendOptions) -> Queue:
    try:
        return Queue.open(
            path,
            create=options["create"],
            durability=Durability(options["durability"]),
            block_bytes=options["block_bytes"],
            wait_for_seconds=options["wait_for_seconds"],
        )
    except ValueError as error:
        raise exitcodes.BadArguments(str(error)) from error
    except NotAQueue as error:
        if options["create"] is None and not path.exists():
            raise exitcodes.BadArguments(f"{error}; --create ROLL_CYCLE makes one") from error
        raise


class _Appended:
    """The excerpts that have been appended so far."""

    def __init__(self, queue: Queue, meter: Meter, *, to_copy: bool) -> None:
        self._queue = queue
        self._to_copy = to_copy
        self._meter = meter
        self._last: int | None = None
        self._began = time.monotonic()

    def append(self, payloads: list[bytes], rate: float | None) -> None:
        """Appends all of them; no faster than so many a second."""
        if self._last is None and payloads and is_framed(payloads[0]):
            output.write_error(
                "cqrepl append: the first excerpt is a framed document: its header is appended, too"
                " (wire.encode makes what stands behind it)"
            )
        while payloads:
            due = len(payloads) if rate is None else self._due(rate)
            now, payloads = payloads[:due], payloads[due:]
            self._last = self._queue.append_many(now, to_copy=self._to_copy)
            self._meter.add(len(now), sum(map(len, now)))

    def text(self) -> str:
        if self._last is None:
            return "0 excerpts"
        return f"{plural(self._meter.excerpts, 'excerpt')}, last index {format_index(self._last)}"

    def json(self) -> str:
        last = None if self._last is None else format_index(self._last)
        fields = {"v": 1, "excerpts": self._meter.excerpts, "bytes": self._meter.bytes}
        return json.dumps(fields | {"index_last": last}) + "\n"

    def _due(self, rate: float) -> int:
        """The number of excerpts that may be appended now, at least one: waits for that one."""
        next_at = self._began + (self._meter.excerpts + 1) / rate
        time.sleep(max(0.0, next_at - time.monotonic()))
        return max(1, int((time.monotonic() - self._began) * rate) - self._meter.excerpts)


def _limited(pieces: Payloads, count_max: int | None) -> Payloads:
    left = sys.maxsize if count_max is None else count_max
    for payloads in pieces:
        yield payloads[:left]
        left -= len(payloads)
        if left <= 0:
            return


def _read() -> bytes:
    """The bytes that standard input has now; waits while it has none. Empty at the end."""
    if sys.stdin is None:  # the shell's `<&-`
        raise exitcodes.BadArguments("expected excerpts on standard input, it is closed")
    return os.read(sys.stdin.fileno(), _READ_BYTES)


def _lines(limit: int) -> Payloads:
    parts: list[bytes] = []  # of a line that has not ended
    held = 0
    while held <= limit and (data := _read()):
        *ended, rest = data.split(b"\n")
        if ended:
            ended[0] = b"".join((*parts, ended[0]))
            parts.clear()
            held = 0
            yield ended
        if rest:
            parts.append(rest)
            held += len(rest)
    if parts:  # a line without an end, or longer than an excerpt: the queue says so
        yield [b"".join(parts)]


def _length_prefixed(limit: int) -> Payloads:
    held, position = bytearray(), 0
    while data := _read():
        held += data
        payloads: list[bytes] = []
        at = 0
        while len(held) >= at + _LENGTH_BYTES:
            body = at + _LENGTH_BYTES
            length = int.from_bytes(held[at:body], "little")
            end = body + length
            if length > limit:
                yield payloads  # what stood before it
                raise exitcodes.BadArguments(
                    f"expected a length of at most {limit:,}, got {length:,}"
                    f" at position {position + at}"
                )
            if end > len(held):
                break
            payloads.append(bytes(held[body:end]))
            at = end
        if payloads:
            yield payloads
        del held[:at]
        position += at
    if held:
        raise exitcodes.BadArguments(
            f"expected a length and as many bytes, the input ends {len(held)} bytes behind its"
            f" last whole excerpt, at position {position}"
        )


def _json_lines(limit: int) -> Payloads:
    number = 0
    for lines in _lines(_JSON_PARTS * limit):
        payloads: list[bytes] = []
        for line in lines:
            number += 1
            try:
                payloads.append(wire.encode(json.loads(line)))
            except (ValueError, RecursionError, wire.WireError) as error:
                yield payloads  # what stood before it
                reason = str(error) or type(error).__name__
                raise exitcodes.BadArguments(f"expected JSON in line {number}: {reason}") from error
        yield payloads


def _whole(limit: int) -> Payloads:
    parts: list[bytes] = []
    held = 0
    while held <= limit and (data := _read()):
        parts.append(data)
        held += len(data)
    yield [b"".join(parts)]


_FORMS: Final[dict[str, Callable[[int], Payloads]]] = {
    "lines": _lines,
    "length-prefixed": _length_prefixed,
    "json-lines": _json_lines,
    "whole": _whole,
}
