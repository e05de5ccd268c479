"""The entries of a dump: each shows a document and all that is known about it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Final

from cqrepl.dump.documentreader import Document
from wire.text.print_scalars import quoted

_LAST_SECONDS: Final = 253_402_300_800  # the year 10000


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """One direction of a connection, and when a document was complete there."""

    connection: int
    sender: str
    receiver: str
    time_ns: int  # since 1970
    packet: int  # number in the capture, from 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Said:
    """The content of a document of a stream, as far as it is a message of replication.

    Args:
        name: the first name in the document; None where it has none.
        handler: the type of the handler behind `cid`, by its alias where it has one.
        index: of a replication event, of the first excerpt of a run, or the acknowledged one.
        count: how many excerpts a run has.
        round_trip_ns: from the event to this acknowledgement.
    """

    name: str | None = None
    csp: str | None = None
    cid: int | None = None
    handler: str | None = None
    is_known: bool = True
    index: int | None = None
    ns: int | None = None
    payload_bytes: int | None = None
    count: int | None = None
    round_trip_ns: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A document, where it was said, and what it says."""

    document: Document
    index: int | None = None
    sequence: int | None = None
    passage: Passage | None = None
    said: Said | None = None
    is_index_page: bool = field(default=False)

    def text(self) -> str:
        """The line with all that is known, then the items; ends with a line end."""
        return self.document.text(self.known())

    def known(self) -> str:
        """The text that stands behind the header on the first line."""
        return excerpt_suffix(self.index, self.sequence) + self._stream_suffix()

    def _stream_suffix(self) -> str:
        parts: list[str] = []
        if self.passage is not None:
            parts.append(time_text(self.passage.time_ns))
            parts.append(f"{self.passage.sender} > {self.passage.receiver}")
        if self.said is not None:
            parts += said_parts(self.said)
        return "".join(f", {part}" for part in parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Remark:
    """Something about the input for standard error; `is_damage` when it was damaged there."""

    text: str
    is_damage: bool


def excerpt_suffix(index: int | None, sequence: int | None) -> str:
    """The end of an excerpt's first line; of other documents nothing."""
    if index is not None:
        return f", index 0x{index:x}"
    return "" if sequence is None else f", sequence {sequence}"


def said_parts(said: Said) -> list[str]:
    """The parts of the content of a document of a stream, in a few words each."""
    parts: list[str] = []
    if said.csp is not None:
        parts.append(f"csp {quoted(said.csp)}")
    if said.cid is not None:
        parts.append(f"cid {said.cid}")
    if not said.is_known:
        parts.append("unknown cid")
    if said.handler is not None:
        parts.append(quoted(said.handler))
    if said.index is not None:
        parts.append(f"{said.name} 0x{said.index:x}")
    if said.count is not None:
        parts.append(f"{said.count} excerpts")
    if said.payload_bytes is not None:
        parts.append(f"payload {said.payload_bytes} byte{'' if said.payload_bytes == 1 else 's'}")
    if said.round_trip_ns is not None:
        parts.append(f"round trip {said.round_trip_ns / 1e6:.3f} ms")
    return parts


def time_text(time_ns: int) -> str:
    """A moment in UTC with microseconds, or with nanoseconds where it has such.

    A time that no calendar has, from a damaged capture, is given in seconds since 1970: `@...`.
    """
    seconds, nanos = divmod(time_ns, 1_000_000_000)
    if not 0 <= seconds < _LAST_SECONDS:
        return f"@{seconds}.{nanos:09d}"
    moment = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S")
    fraction = f"{nanos:09d}"
    return f"{moment}.{fraction[:6] if fraction.endswith('000') else fraction}Z"
