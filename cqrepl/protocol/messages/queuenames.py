"""The documents that name a side's queues, between peers that announced them.

    queues   {source: [names], sink: [names], more: true}    the list, in pages; the last one has no
                                                             `more`
    +  -     {source: [names], sink: [names]}                what has changed since

`source` are those that the side streams, `sink` those that it would take in now. Unknown fields are
skipped.
"""

from collections.abc import Iterable, Set
from dataclasses import dataclass

from cqrepl.protocol.messages.names import ENDED
from wire import Reader, Writer


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueNames:
    """Names of queues, by what their side does with them."""

    sources: Set[str] = frozenset()
    sinks: Set[str] = frozenset()

    def __or__(self, other: "QueueNames") -> "QueueNames":
        return QueueNames(sources=self.sources | other.sources, sinks=self.sinks | other.sinks)

    def __sub__(self, other: "QueueNames") -> "QueueNames":
        return QueueNames(sources=self.sources - other.sources, sinks=self.sinks - other.sinks)

    def __len__(self) -> int:
        return len(self.sources) + len(self.sinks)


def write_queue_names(name: str, queues: QueueNames, *, more: bool = False) -> bytes:
    """A document of this name, without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(name)
        with writer.block():
            _write_names(writer, "source", queues.sources)
            _write_names(writer, "sink", queues.sinks)
            if more:
                writer.name("more")
                writer.boolean(True)
    return bytes(writer.data)


def read_queue_names(reader: Reader) -> tuple[QueueNames, bool]:
    """The names in such a document, whose own name was read, and whether another page follows.

    Raises:
        WireError: the fields are no lists of texts.
    """
    fields = reader.read_block().read_fields()
    queues = QueueNames(sources=_read_names(fields, "source"), sinks=_read_names(fields, "sink"))
    return queues, "more" in fields and fields["more"].read_bool()


def write_ended(reason: str) -> bytes:
    """The end of one handler, without its cid document."""
    writer = Writer()
    with writer.document(metadata=False):
        writer.name(ENDED)
        writer.text(reason)
    return bytes(writer.data)


def _write_names(writer: Writer, field: str, names: Iterable[str]) -> None:
    writer.name(field)
    with writer.block():
        for each in sorted(names):
            writer.text(each)


def _read_names(fields: dict[str, Reader], field: str) -> frozenset[str]:
    names: list[str | None] = []
    if field in fields:
        texts = fields[field].read_block()
        while texts.peek_code() is not None:
            names.append(texts.read_text())
    return frozenset(each for each in names if each is not None)
