"""Documents and values: what `wire` makes of any bytes, and makes again from that."""

from typing import Final

from tests.fuzz.corpus import bodies, both, changed, documents, sessions, spread
from tests.fuzz.families import Family
from tests.fuzz.target import SEPARATOR, Target, framed, only, pieces, unframed
from tests.property.test_codec_properties import read_in_every_way
from wire.codes import Code
from wire.document import Splitter
from wire.errors import WireError
from wire.header import NOT_COMPLETE, body_length
from wire.objects.documents import DocumentReader, decode, dumps, encode, loads
from wire.objects.variants import Variant

LENGTH_MAX: Final = 1 << 12
TOKENS: Final = (
    *(bytes([code]) for code in Code),
    *(b"\xb6\x03int", b"\xb6\x05long[]", b"\xb6\x04!set", b"\xb6\x03Foo", b"\xb9\x01a", b"\xc1a"),
    *(b"\xb6\x05!null", b"\xb6\x06String", b"\xb6\x08WireType", b"\xba\x80\x00", b"\xba\x07"),
    *(
        b"\x80\x02\x8aa",
        b"\x82\x02\0\0\0\xc1a",
        b"\xff" * 8,
        b"\xff\xff\xff\xff\xff\xff\xff\xff\x7f",
    ),
    *(b"\xb5\x0a2024-02-29", b"\xb2\x0523:59", b"\xc0\x80", b"\xed\xa0\xbd", b"\xe3NaN", SEPARATOR),
)
_VARIANTS: Final = (Variant.BINARY_LIGHT, Variant.BINARY, Variant.BINARY_FIXED)
Found = list[tuple[int, int, bytes]]


def loads_any(data: bytes) -> None:
    """A document or an error; the value written again is the same value."""
    with only(WireError):
        value = loads(data)
        assert body_length(int.from_bytes(data[:4], "little")) == len(data) - 4
        if value is not None:  # what has no body is no data document
            assert is_same(loads(dumps(value)), value)


def decode_any(body: bytes) -> None:
    """A value or an error, for each way to ask; the value survives every variant."""
    read_in_every_way(body)
    for keep_widths in (False, True):
        with only(WireError):
            assert_comes_back(decode(body, keep_widths=keep_widths), keep_widths=keep_widths)


def assert_comes_back(value: object, *, keep_widths: bool) -> None:
    """The same value in every variant, and then for good the same bytes."""
    for variant in _VARIANTS:
        again = decode(encode(value, variant=variant), keep_widths=keep_widths)
        assert is_same(again, value)
        data = encode(again, variant=variant)
        assert encode(decode(data, keep_widths=keep_widths), variant=variant) == data


def is_same(value: object, other: object) -> bool:
    """Equal, but for NaN, which is not equal to itself."""
    return value == other or ("nan" in repr(value) and "nan" in repr(other))


def documents_any(data: bytes) -> None:
    """The same documents from one buffer and from one that grows, padded and not."""
    cuts, stream = data[:4], data[4:]
    for padding in (False, True):
        whole = DocumentReader(stream, padding=padding)
        found = taken(whole)
        growing = DocumentReader(padding=padding)
        grown: Found = []
        for piece in pieces(stream, cuts):
            growing.feed(piece)
            grown += taken(growing)
        assert (grown, growing.position) == (found, whole.position)
        with only(WireError):
            taken(DocumentReader(stream, padding=padding, length_max=LENGTH_MAX // 64))


def taken(reader: DocumentReader) -> Found:
    """The next documents; each has a value or is an error."""
    found: Found = []
    for document in reader:
        found.append((document.position, document.word, bytes(document.body)))
        with only(WireError):
            document.value()
    return found


def split_any(data: bytes) -> None:
    """The same documents and the same end however the bytes come: raw, and with right lengths."""
    cuts, rest = data[:4], data[4:]
    for stream in (rest, framed(rest)):
        whole = split([stream])
        assert split(list(pieces(stream, cuts))) == whole
        assert split([stream[at : at + 1] for at in range(len(stream))]) == whole
        documents, reason, position = whole
        reader = DocumentReader(stream)
        for document, judged in zip(documents, reader, strict=False):
            assert document == (judged.position, judged.word, bytes(judged.body))
            assert not judged.word & NOT_COMPLETE
        assert position == sum(4 + len(body) for _, _, body in documents)
        assert reason is None or len(stream) >= position + 4


def split(parts: list[bytes]) -> tuple[Found, str | None, int]:
    """Documents, why the rest is refused, and where it starts."""
    splitter = Splitter(LENGTH_MAX)
    found: Found = []
    fed = 0
    for part in parts:
        splitter.feed(part)
        fed += len(part)
        reason = take_from(splitter, found)
        if reason is not None:
            assert take_from(splitter, found) == reason  # it stays where it is
            return found, reason, splitter.position
        assert splitter.pending_bytes == fed - splitter.position
    return found, None, splitter.position


def take_from(splitter: Splitter, found: Found) -> str | None:
    """Takes as much as can be read; why the rest is refused, if it is."""
    try:
        while document := splitter.next_document():
            found.append((document.position, document.word, bytes(document.body)))
    except WireError as refused:
        return f"{refused.reason} at {refused.position}"
    return None


def _with_cuts(stream: bytes) -> bytes:
    return b"\x03\x00\x40\xff" + stream


_streams = both(spread(documents, 300), spread(sessions, 40, length_max=2044))
TARGETS: Final[Family] = {
    "loads": Target(run=loads_any, seeds=spread(documents, 600), tokens=TOKENS),
    "decode": Target(run=decode_any, seeds=spread(bodies, 400, length_max=300), tokens=TOKENS),
    "documents": Target(
        run=documents_any, seeds=changed(_streams, _with_cuts), tokens=TOKENS, length_max=1024
    ),
    "splitter": Target(
        run=split_any,
        seeds=both(changed(_streams, _with_cuts), changed(changed(_streams, unframed), _with_cuts)),
        tokens=(SEPARATOR, b"\0\0\0\0", b"\0\0\0\x80", b"\0\0\0\xc0", b"\x05\0\0\0", b"\0\0\0\x40"),
        length_max=512,
    ),
}
