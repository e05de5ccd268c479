"""`wire-dump` from bytes to text: streams, store files, captures, and what lies under them."""

import io
import struct
from collections.abc import Callable, Iterable
from functools import partial
from hashlib import shake_128
from typing import Final

from cqrepl.dump.captures import read_capture
from cqrepl.dump.entries import Entry, Remark
from cqrepl.dump.files import read_documents
from cqrepl.dump.inputs import Input
from cqrepl.dump.json_lines import json_line
from cqrepl.dump.pcap import read_packets
from cqrepl.dump.plainform import plain_texts
from cqrepl.dump.reassembly import HalfStream
from cqrepl.dump.recording import RecordedConnection, Recording
from cqrepl.dump.segments import parse_segment
from cqrepl.dump.streams import StreamFeed, starts_stream
from tests.fuzz.corpus import both, changed, documents, sessions, spread, stores
from tests.fuzz.families import Family
from tests.fuzz.target import SEPARATOR, Target, framed, joined, only, parts_of, pieces, unframed
from tests.fuzz.wire_targets import TOKENS
from tests.support.networks import Network, exchange, set_up
from wire.errors import WireError
from wire.text.print_documents import dump_text

_LINKS: Final = (0, 1, 12, 101, 108, 113, 276, 999)
_STREAM_BYTES: Final = shake_128(b"a stream").digest(4 * 0xFF)
_SEQUENCE: Final = (1 << 32) - 300  # wraps within the stream
_TIME_NS: Final = 1_700_000_000_000_000_000
_NAMES: Final = (b"\xc3cid", b"\xc3csp", b"\xc7handler", b"\xc2re", b"\xc3idx", b"\xc2ns")
Cut = list[tuple[int, int, bytes]]


def stream_any(data: bytes) -> None:
    """The same documents from a file and from pieces; each has a text and a line of JSON."""
    cuts, rest = data[:4], data[4:]
    for stream in (rest, framed(rest)):
        starts_stream(stream)
        fed = fed_in(pieces(stream, cuts))
        assert fed == fed_in([stream])
        assert fed == fed_in(stream[at : at + 1] for at in range(len(stream)))
        show(stream)


def fed_in(parts: Iterable[bytes]) -> tuple[Cut, str | None, str | None]:
    """Documents, why they end, and what is cut off at the end."""
    feed = StreamFeed()
    found: Cut = []
    try:
        for part in parts:
            for each in feed.feed(part):
                found.append((each.position, each.word, each.body))
    except WireError as error:
        return found, str(error), None
    return found, None, feed.cut_off


def show(data: bytes) -> str:
    """The text of an input that is no capture, up to where it is damaged."""
    opened = Input(io.BytesIO(data), None)
    shown: list[str] = []
    with only(WireError):
        opened.open_documents()
        for entry in opened.entries():
            shown.append(entry.text())
            assert json_line(entry, with_hex=True).endswith("}\n")
            entry.document.hex_text()
    return "".join(shown)


def store_any(data: bytes) -> None:
    """The quick text is the plain one, and the bare dump that of the whole bytes."""
    with only(WireError):
        for document in read_documents(io.BytesIO(data)):
            assert document.missing_bytes == 0
    slow = show(data)
    opened = Input(io.BytesIO(data), None)
    with only(WireError):
        if opened.open_documents() is not None:
            quick = up_to_error(opened.texts)
            assert quick == slow, (quick[-300:], slow[-300:])
    for padding in (False, True):
        bare = up_to_error(partial(plain_texts, io.BytesIO(data), padding=padding))
        assert bare == dump_text(data, padding=padding)
    up_to_error(Input(io.BytesIO(data), None).plain_texts)


def up_to_error(texts: Callable[[], Iterable[str]]) -> str:
    """The text that was given before the input turned out to be damaged."""
    out: list[str] = []
    with only(WireError):
        out.extend(texts())
    return "".join(out)


def capture_any(data: bytes) -> None:
    """Entries and remarks, then at most an error that says where the capture is damaged."""
    with only(WireError):
        for item in read_capture(io.BytesIO(data)):
            if isinstance(item, Remark):
                assert item.text
                continue
            assert isinstance(item, Entry)
            assert item.text().startswith("# position: ")
            json_line(item, with_hex=True)
    count = 0
    with only(WireError):
        for packet in read_packets(io.BytesIO(data)):
            count += 1
            assert packet.number == count
            parse_segment(packet.link, packet.data)


def packets_any(data: bytes) -> None:
    """Tries captures with right lengths around each packet, of any kind of link."""
    link = _LINKS[data[0] % len(_LINKS)] if data else 0
    out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, link)]
    for number, part in enumerate(parts_of(data[1:])):
        out += (struct.pack("<IIII", number, 0, len(part), len(part)), part)
    capture_any(b"".join(out))
    _recorded(parts_of(data[1:]))


def _recorded(parts: list[bytes]) -> None:
    """Checks that the pieces a proxy records are read again; the first byte is the direction."""
    file = io.BytesIO()
    recording = Recording(file)
    connection = RecordedConnection(recording, ("10.0.0.1", 1), ("fd00::2", 2), _TIME_NS)
    said: list[bytes] = []
    for part in parts:
        direction = bool(part) and part[0] & 1
        said.append(part[1:])
        connection.data(direction, part[1:], _TIME_NS)
    connection.end(0, _TIME_NS)
    packets = list(read_packets(io.BytesIO(file.getvalue())))
    segments = [parse_segment(each.link, each.data) for each in packets]
    assert [each.payload for each in segments if each is not None] == [b"", b"", *said, b""]


def reassembly_any(data: bytes) -> None:
    """Segments of a known stream in any order: after each, what has come without a gap is given.

    Three bytes for each segment: offset, length; the first byte of all says if the start is known.
    """
    half, begun, given = HalfStream(), bool(data) and bool(data[0] & 1), 0
    start = 0
    if begun:
        half.begin(_SEQUENCE)
    came = bytearray(len(_STREAM_BYTES) + 1)
    for at in range(1, len(data) - 1, 2):
        offset, length = 3 * data[at], data[at + 1]
        payload = _STREAM_BYTES[offset : offset + length]
        if payload and not begun:
            begun, start, given = True, offset, offset
        came[offset : offset + len(payload)] = b"\1" * len(payload)
        got = half.add((_SEQUENCE + offset) % (1 << 32), payload)
        assert got == _STREAM_BYTES[given : given + len(got)]
        given += len(got)
        assert given == (came.index(0, start) if begun else 0)
        assert half.given == given - start
        assert not half.waits_too_long
    missing = half.missing
    behind = came.find(1, given)
    assert missing == (None if behind < 0 else (given - start, behind - given))


def _captures() -> list[bytes]:
    found: list[bytes] = []
    for version in (4, 6):
        pieces_ = _network(version).pieces
        out = [struct.pack("<IHHiIII", 0xA1B23C4D, 2, 4, 0, 0, 1 << 18, 1)]
        for piece in pieces_:
            size = len(piece.data)
            out += (struct.pack("<IIII", 1, 2, size, size), piece.data)
        found.append(b"".join(out)[:2048])
    return found


def _network(version: int) -> Network:
    network = Network(version=version)
    network.open(40000)
    for direction, said in [*set_up(), *exchange(3)]:
        network.say(40000, direction, said[:300], mtu=120)
    return network


def _packets() -> list[bytes]:
    return [
        b"\x01" + joined(piece.data for piece in _network(version).pieces[:14])
        for version in (4, 6)
    ]


_streams = both(spread(documents, 200, length_max=300), spread(sessions, 40, length_max=1500))
_CUTS: Final = b"\x03\x00\x40\xff"
TARGETS: Final[Family] = {
    "dump-stream": Target(
        run=stream_any,
        seeds=changed(both(_streams, changed(_streams, unframed)), lambda data: _CUTS + data),
        tokens=(*TOKENS, *_NAMES),
        length_max=1024,
    ),
    "dump-store": Target(
        run=store_any,
        seeds=both(spread(stores, 120, length_max=4096), spread(documents, 100, length_max=300)),
        tokens=TOKENS,
    ),
    "capture": Target(
        run=capture_any,
        seeds=_captures,
        tokens=(b"\x0a\x0d\x0d\x0a", b"\x4d\x3c\x2b\x1a", b"\x1a\x2b\x3c\x4d", b"\xa1\xb2\x3c\x4d"),
    ),
    "packets": Target(
        run=packets_any,
        seeds=_packets,
        tokens=(SEPARATOR, b"\x08\x00\x45", b"\x86\xdd\x60", b"\x81\x00", b"\x9c\x40\x1b\x59"),
    ),
    "reassembly": Target(
        run=reassembly_any,
        seeds=lambda: [b"\1" + bytes(range(0, 250, 5)), bytes(range(250, 0, -5))],
        length_max=128,
    ),
}
