"""One line of JSON for each document, in a form with a version.

    v           1; a later version may add fields, and changes no meaning
    file        the input, where there are several
    position    of the header in its file, stream or direction
    header      the header word, hexadecimal
    kind        data, meta-data, not complete data, not complete meta-data, nothing here yet,
                not complete, length unknown, end of file
    bytes       length of the body; missing where the header has none
    index       of an excerpt, hexadecimal; sequence: its number in the file
    connection  number, from 1;  from, to: HOST:PORT;  packet: number in the capture
    time        when the document was complete, UTC
    name        first name of a document of a stream: re, run, idx, eos, heartbeat, cid, csp ...
    csp, cid    the handler that the document is for, or that it registers; handler: its type
    unknown_cid true where no handler was registered for the cid
    event       {index, ns, bytes}: a replication event
    run         {index, ns, count, bytes}: many excerpts; the index of the first one
    ack         {index, ns, round_trip_ns}: an acknowledgement
    text        the items, as without --json, without the line that names the kind
    hex         the body, with --hex; of a very long one the beginning

64-bit numbers that identify something are whole JSON numbers; indexes and headers are strings.
"""

import json
from typing import Final

from cqrepl.dump.entries import Entry, Passage, Said, time_text
from cqrepl.protocol.messages import ACKNOWLEDGED, EVENT, RUN
from wire.header import body_length

VERSION: Final = 1
_Fields = dict[str, object]


def json_line(entry: Entry, *, file: str | None = None, with_hex: bool = False) -> str:
    """The line for a document, with its end."""
    document = entry.document
    fields: _Fields = {"v": VERSION}
    if file is not None:
        fields["file"] = file
    fields["position"] = document.position
    fields["header"] = f"0x{document.word:08x}"
    fields["kind"] = document.kind
    if not document.is_last:
        fields["bytes"] = body_length(document.word)
    if entry.index is not None:
        fields["index"] = f"0x{entry.index:x}"
    if entry.sequence is not None:
        fields["sequence"] = entry.sequence
    if entry.passage is not None:
        _add_passage(fields, entry.passage)
    if entry.said is not None:
        _add_said(fields, entry.said)
    if not document.is_last:
        fields["text"] = document.items_text().partition("\n")[2]
    if with_hex:
        fields["hex"] = document.body.hex()
    return json.dumps(fields, separators=(",", ":")) + "\n"


def _add_passage(fields: _Fields, passage: Passage) -> None:
    fields["connection"] = passage.connection
    fields["from"] = passage.sender
    fields["to"] = passage.receiver
    fields["time"] = time_text(passage.time_ns)
    fields["packet"] = passage.packet


def _add_said(fields: _Fields, said: Said) -> None:
    for name, value in (
        ("name", said.name),
        ("csp", said.csp),
        ("cid", said.cid),
        ("handler", said.handler),
    ):
        if value is not None:
            fields[name] = value
    if not said.is_known:
        fields["unknown_cid"] = True
    if said.index is None:
        return
    about: _Fields = {"index": f"0x{said.index % (1 << 64):x}", "ns": said.ns}
    if said.name == EVENT:
        fields["event"] = about | {"bytes": said.payload_bytes}
    elif said.name == RUN:
        fields["run"] = about | {"count": said.count, "bytes": said.payload_bytes}
    elif said.name == ACKNOWLEDGED:
        if said.round_trip_ns is not None:
            about["round_trip_ns"] = said.round_trip_ns
        fields["ack"] = about
