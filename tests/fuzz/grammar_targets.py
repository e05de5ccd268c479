"""The grammar and the readers: both take the same bytes, and give the same."""

from typing import Final

from construct import ConstructError

from tests.fuzz.corpus import bodies, changed, documents, spread
from tests.fuzz.families import Family
from tests.fuzz.target import Target, framed, unframed
from tests.fuzz.wire_targets import TOKENS
from tests.property import test_wire_properties as properties
from wire import grammar
from wire.errors import WireError
from wire.header import is_metadata, is_ready
from wire.objects.documents import DocumentReader
from wire.reader import Reader

_WITH_VALUE: Final = (grammar.Number, grammar.TextOrNull, grammar.Bool, grammar.Payload)


def values_any(data: bytes) -> None:
    """Every question to the reader has the answer that the grammar gives."""
    for _, method, construct in properties.VALUES:
        ours, judged = properties.read(method, data), properties.parsed(construct, data)
        assert (ours is None) == (judged is None)
        if ours is not None and judged is not None:
            assert ours[1] == judged[1]
            if construct in _WITH_VALUE:
                assert repr(ours[0]) == repr(judged[0])
    judged_fields = properties.judged_fields(data)
    try:
        fields = Reader(data).read_fields()
    except WireError:
        assert judged_fields is None
        return
    assert {name: (value.position, value.end) for name, value in fields.items()} == judged_fields


def documents_any(data: bytes) -> None:
    """Documents as the reader has them, and what was parsed is built again."""
    for stream in (data, framed(data)):
        for construct, padding in ((grammar.Documents, False), (grammar.PaddedDocuments, True)):
            found = construct.parse(stream)
            judged = [(each.header.metadata, each.body) for each in found.documents]
            assert judged == ready(stream, padding=padding)
        assert grammar.Documents.build(grammar.Documents.parse(stream)) == stream
        for _, body in judged:
            _check_content(body)


def ready(stream: bytes, *, padding: bool) -> list[tuple[bool, bytes]]:
    """The complete documents before the first that is not."""
    found: list[tuple[bool, bytes]] = []
    for document in DocumentReader(stream, padding=padding):
        if not is_ready(document.word):
            break
        found.append((is_metadata(document.word), bytes(document.body)))
    return found


def _check_content(body: bytes) -> None:
    """Checks that fields which the grammar takes are built again, up to the form of lengths."""
    try:
        parsed = grammar.Fields.parse(body)
    except (ConstructError, OverflowError):
        return
    built = grammar.Fields.build(parsed)
    assert grammar.Fields.build(grammar.Fields.parse(built)) == built


TARGETS: Final[Family] = {
    "grammar-values": Target(
        run=values_any, seeds=spread(bodies, 150, length_max=120), tokens=TOKENS, length_max=160
    ),
    "grammar-documents": Target(
        run=documents_any,
        seeds=changed(spread(documents, 100, length_max=200), unframed),
        tokens=TOKENS,
        length_max=240,
    ),
}
