"""A source's offer and a sink's answer: the two replication handlers, which have one body."""

import re
from dataclasses import astuple, dataclass
from typing import Final

from cqrepl.protocol.messages.announcement import (
    known_int,
    known_text,
    read_known,
    read_wire_type,
)
from cqrepl.protocol.messages.names import IDENTITY, WIRE_TYPES, WireShape
from cqrepl.protocol.messages.unknown import UnknownHandler
from cqrepl.queue.format.epochs import EPOCHS_MAX, Epoch, History, check_history, has_merged
from cqrepl.queue.format.identity import Identity, parse_identity
from cqrepl.queue.format.index import Index
from wire import Reader, WireError, Writer
from wire.codes import Code

EXTENSION_VERSION: Final = 1
_FIRST_CYCLE: Final = "firstCycle"
_HOLDS_FROM: Final = "holdsFrom"
_CHAIN: Final = "chain"
_PLACE: Final = "place"
_PLACES_BEFORE: Final = "placesBefore"
_CYCLES: Final = "cycles"
_EPOCHS: Final = "epochs"
_MERGED: Final = "merged"
_PASSED_BY: Final = "passedBy"
_HOST_ID: Final = re.compile(r"[1-9][0-9]?|1[01][0-9]|12[0-7]")
_NUMBER: Final = re.compile(r"-?[0-9]{1,19}")
_HOSTS_MAX: Final = 127  # of a path: each stands in it once


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueShape:
    """Extension between cqrepl peers: what a queue must be like to hold the same indexes.

    None for what a peer did not say.
    """

    roll_cycle: str | None = None
    epoch: int | None = None
    index_count: int | None = None
    index_spacing: int | None = None

    def is_like(self, other: "QueueShape") -> bool:
        """True when nothing that both say differs."""
        pairs = zip(astuple(self), astuple(other), strict=True)
        return all(one is None or two is None or one == two for one, two in pairs)

    def __str__(self) -> str:
        said = ("not said" if each is None else each for each in astuple(self))
        return "{}, epoch {}, index {}/{}".format(*said)


@dataclass(frozen=True, slots=True, kw_only=True)
class Lineage:
    """Extension between peers that announced it: what a side holds, for the other to compare.

    Args:
        first_cycle: the first one with excerpts; -1 for none.
        chain: an answer's: in its last cycle, over all before the shorter of the two ends.
        cycles: an answer's: over all cycles before that one that both sides may have, see
            `queue.read.chains`.
        holds_from: an answer's: nothing was taken off the copy from this cycle on; None if not
            said.
        place: an offer's: where the queue is, see `Surroundings.place_of`; 0 if not said.
        places_before: the same of the hosts that it has come by before.
        identity: which queue it is; None for one that has none, or to a peer that knows of none.
    """

    first_cycle: int
    chain: bytes = b""
    cycles: bytes = b""
    holds_from: int | None = None
    place: int = 0
    places_before: tuple[int, ...] = ()
    identity: Identity | None = None

    @property
    def places(self) -> tuple[int, ...]:
        """All that an offer says, its own last."""
        return (*self.places_before, self.place) if self.place else self.places_before


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicationHandler:
    """SinkReplicationHandler (sent by the source) or SourceReplicationHandler (the sink's answer).

    `next_index` is the first index that the sender does not have; 0 says that it has none.
    `epochs` is what the sender knows of who has led the queue; None to, or of, a peer that knows of
    no epochs.

    Args:
        passed_by: extension between cqrepl peers, of an offer of what the source takes in itself:
            the ids of all hosts that it has come by, the source's own last; else none.
    """

    kind: str
    queue_name: str
    acknowledgement: bool
    next_index: int
    source_id: int
    shape: QueueShape | None = None
    lineage: Lineage | None = None
    epochs: History | None = None
    passed_by: tuple[int, ...] = ()


def write_replication_body(writer: Writer, handler: ReplicationHandler, _shape: WireShape) -> None:
    """The fields of an offer or an answer."""
    writer.name("queueName")
    writer.text(handler.queue_name)
    writer.name("wireType")
    writer.text("BINARY_LIGHT")
    writer.name("acknowledgement")
    writer.boolean(handler.acknowledgement)
    writer.name("nextIndexRequired")
    writer.hex_int(handler.next_index)
    writer.name("sourceId")
    writer.integer(handler.source_id)
    if handler.shape is not None:
        writer.name("cqrepl")
        with writer.block():
            writer.name("v")
            writer.integer(EXTENSION_VERSION)
            _write_shape(writer, handler.shape)
            if handler.lineage is not None:
                _write_lineage(writer, handler.lineage)
            if handler.epochs is not None:
                write_epochs(writer, handler.epochs)
            if handler.passed_by:
                writer.name(_PASSED_BY)
                writer.text(" ".join(map(str, handler.passed_by)))


def _write_shape(writer: Writer, shape: QueueShape) -> None:
    if shape.roll_cycle is not None:
        writer.name("rollCycle")
        writer.text(shape.roll_cycle)
    numbers = (("epoch", shape.epoch), ("indexCount", shape.index_count))
    for name, number in (*numbers, ("indexSpacing", shape.index_spacing)):
        if number is not None:
            writer.name(name)
            writer.integer(number)


def _write_lineage(writer: Writer, lineage: Lineage) -> None:
    writer.name(_FIRST_CYCLE)
    writer.integer(lineage.first_cycle)
    if lineage.holds_from is not None:
        writer.name(_HOLDS_FROM)
        writer.integer(lineage.holds_from)
    if lineage.place:
        writer.name(_PLACE)
        writer.integer(lineage.place)
    if lineage.places_before:
        writer.name(_PLACES_BEFORE)
        writer.text(" ".join(map(str, lineage.places_before)))
    if lineage.identity is not None:
        writer.name(IDENTITY)
        writer.text(lineage.identity)
    write_chains(writer, lineage)


def write_chains(writer: Writer, lineage: Lineage) -> None:
    """The chains of what a side holds, in a block; nothing for one that is not said."""
    for name, chain in ((_CHAIN, lineage.chain), (_CYCLES, lineage.cycles)):
        if chain:
            writer.name(name)
            writer.text(chain.hex())


def read_chains(fields: dict[str, Reader]) -> tuple[bytes, bytes]:
    """Both of them: `chain` and `cycles`; none for one that is not said, or no such text."""
    return _read_chain(fields, _CHAIN), _read_chain(fields, _CYCLES)


def read_replication_body(
    kind: str, fields: dict[str, Reader]
) -> ReplicationHandler | UnknownHandler:
    """The same, as they came."""
    name = fields["queueName"].read_text() if "queueName" in fields else None
    if name is None:
        return UnknownHandler(problem=f"a {kind} without a queue name")
    wire_type = read_wire_type(fields)
    if wire_type is not None and wire_type not in WIRE_TYPES:
        return UnknownHandler(problem=f"a {kind} with wire type {wire_type[:40]!r}")
    acknowledgement = fields.get("acknowledgement")
    own = read_known(fields["cqrepl"]) if "cqrepl" in fields else None
    return ReplicationHandler(
        kind=kind,
        queue_name=name,
        acknowledgement=_read_optional_bool(acknowledgement),
        next_index=fields["nextIndexRequired"].read_int() if "nextIndexRequired" in fields else 0,
        source_id=fields["sourceId"].read_int() if "sourceId" in fields else 0,
        shape=None if own is None else _read_shape(own),
        lineage=None if own is None else _read_lineage(own),
        epochs=None if own is None else read_epochs(own),
        passed_by=() if own is None else _read_passed_by(own),
    )


def write_epochs(writer: Writer, history: History) -> None:
    """A history, in a block: number, leader and first index of each epoch, one after the other; and
    where any have merged, in another one the number of the last epoch of each, 0 for one alone."""
    writer.name(_EPOCHS)
    with writer.block():
        for each in history:
            for number in (each.number, each.leader, each.start):
                writer.integer(number)
    if has_merged(history):
        writer.name(_MERGED)
        with writer.block():
            for each in history:
                writer.integer(each.last)


def read_epochs(fields: dict[str, Reader]) -> History | None:
    """The same; None where it is not said, or is none."""
    if _EPOCHS not in fields:
        return None
    try:
        found = _read_numbers(fields[_EPOCHS], 3 * EPOCHS_MAX)
        each = zip(found[::3], found[1::3], found[2::3], strict=True)
        history = tuple(Epoch(number, leader, Index(start)) for number, leader, start in each)
        if _MERGED in fields:
            last = _read_numbers(fields[_MERGED], EPOCHS_MAX)
            history = tuple(e._replace(last=n) for e, n in zip(history, last, strict=True))
        check_history(history)
    except (WireError, ValueError):
        return None
    return history


def _read_numbers(reader: Reader, count_max: int) -> list[int]:
    """The numbers of a block; one more than `count_max` of them where it has more.

    Raises:
        WireError: it is no block of numbers.
    """
    found: list[int] = []
    numbers = reader.read_block()
    while numbers.peek_code() is not None and len(found) <= count_max:
        found.append(numbers.read_int())
    return found


def _read_passed_by(fields: dict[str, Reader]) -> tuple[int, ...]:
    """A path of host ids; none for what is no such text."""
    return tuple(map(int, _read_words(fields, _PASSED_BY, _HOST_ID)))


def _read_words(fields: dict[str, Reader], name: str, kind: re.Pattern[str]) -> list[str]:
    """Words with spaces between, one for a host of a path; none for what is no such text."""
    words = (known_text(fields, name) or "").split(" ")
    return words if len(words) <= _HOSTS_MAX and all(map(kind.fullmatch, words)) else []


def _read_optional_bool(reader: Reader | None) -> bool:
    return reader is not None and reader.peek_code() != Code.NULL and reader.read_bool()


def _read_lineage(fields: dict[str, Reader]) -> Lineage | None:
    first = known_int(fields, _FIRST_CYCLE)
    if first is None:
        return None
    chain, cycles = read_chains(fields)
    return Lineage(
        first_cycle=first,
        chain=chain,
        cycles=cycles,
        holds_from=known_int(fields, _HOLDS_FROM),
        place=known_int(fields, _PLACE) or 0,
        places_before=tuple(map(int, _read_words(fields, _PLACES_BEFORE, _NUMBER))),
        identity=_read_identity(fields),
    )


def _read_identity(fields: dict[str, Reader]) -> Identity | None:
    """An identity; None for what is no such text."""
    try:
        return parse_identity(known_text(fields, IDENTITY) or "")
    except ValueError:
        return None


def _read_chain(fields: dict[str, Reader], name: str) -> bytes:
    """A chain; none for what is no such text."""
    try:
        return bytes.fromhex(known_text(fields, name) or "")
    except ValueError:
        return b""


def _read_shape(fields: dict[str, Reader]) -> QueueShape:
    return QueueShape(
        roll_cycle=known_text(fields, "rollCycle"),
        epoch=known_int(fields, "epoch"),
        index_count=known_int(fields, "indexCount"),
        index_spacing=known_int(fields, "indexSpacing"),
    )
