"""Text: any bytes have one, and of any text it is known whether it stands for bytes."""

import re
from typing import Final

from cqrepl.dump.encoder import encoded_documents
from cqrepl.dump.unrenderable import is_surely_unrenderable
from tests.fuzz.corpus import documents, spread, texts
from tests.fuzz.families import Family
from tests.fuzz.target import Target, only
from tests.fuzz.wire_targets import TOKENS
from wire.errors import WireError
from wire.header import END_OF_FILE
from wire.text.parse_documents import encode_text
from wire.text.print_documents import document_text, dump_text
from wire.text.print_items import render_items
from wire.text.terminal import terminal_safe

_WORDS: Final = (
    *(b"--- !!data #binary\n", b"--- !!meta-data\n", b"--- !!not-ready-data #binary\n", b"# "),
    *(
        b"# position: 8, header: 1\n",
        b"# position: 8, header: 0 EOF\n",
        b"...\n# 4 bytes remaining\n",
    ),
    *(b"#  has a 4 byte size prefix, 9 > 5 len is 9", b"........\n", b"00000000 a1 05\n"),
    *(b'!!null ""', b"!!binary AP8=", b"!byte ", b"!short ", b"!int ", b"!long ", b"!float "),
    *(b"!double NaN", b"!type ", b"!byte[] ", b"!Foo ", b"? ", b": ", b"{ ", b" }", b"[ ", b"]"),
    *(b"# length: 1, used: 0\n", b"# 3 more, all 0\n", b"history: {", b"sources: [", b"timings: ["),
    *(b'"\\x41"', b'"\\u00e9"', b"'it''s'", b"0x7f", b"-Infinity", b"1e-7", b"12:34:00", b"  - "),
)
_CONTROLS: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f]")
_HEX_LINE: Final = re.compile(r"^[0-9a-f]{8} ", re.MULTILINE)  # any bytes come from there
# What Java's dump shows in a way that does not say which bytes there are: comments, constants of
# enums that it knows, names that are values, types that also stand for a code (`!long 5`, `!byte[]
# a`), and doubles whose digits it rounds.
_AMBIGUOUS: Final = re.compile(r"#|!WireType|!TimeUnit|(?<!!)![a-z]|[?] |[0-9]E-")
_MARKS: Final = re.compile(
    r"^(?:---.*|# position: [0-9]+, header: -?[0-9]+(?: EOF| or [0-9]+)?|# [0-9]+ bytes remaining"
    r"|#  has a 4 byte size prefix, [0-9]+ > [0-9]+ len is [0-9]+)$",
    re.MULTILINE,
)


def dump_any(data: bytes) -> None:
    """A text, the same from any buffer, and safe for a terminal where that is asked for; read
    again it gives bytes or an error.

    Of other bytes than those that our encoder writes the text is often ambiguous: no more is asked.
    """
    for padding in (False, True):
        text = dump_text(data, padding=padding)
        assert text == dump_text(memoryview(data), padding=padding)
        assert text.encode().decode() == text
        assert _CONTROLS.search(terminal_safe(text)) is None
        with only(WireError):
            dump_text(encode_text(text, padding=padding), padding=padding)
    assert document_text(data, END_OF_FILE, offset=len(data)).endswith("\n")
    try:
        text = render_items(data, fold_unused=True)
    except WireError:
        return
    assert not is_surely_unrenderable(data)


def encode_any(data: bytes) -> None:
    """Bytes or an error; and the text of the bytes is that of the bytes which are made from it."""
    with only(WireError):
        encoded_documents(data)
    text = data.decode("utf-8", "replace")
    for padding in (False, True):
        encoded = b""
        with only(WireError):
            encoded = encode_text(text, padding=padding)
        shown = dump_text(encoded, padding=padding)
        again = shown
        with only(WireError):  # a dump may read as something that cannot be, see `_AMBIGUOUS`
            again = dump_text(encode_text(shown, padding=padding), padding=padding)
        if _HEX_LINE.search(text) is None and _AMBIGUOUS.search(_MARKS.sub("", shown)) is None:
            assert again == shown, (shown, again)


TARGETS: Final[Family] = {
    "dump-text": Target(run=dump_any, seeds=spread(documents, 400), tokens=TOKENS),
    "encode-text": Target(
        run=encode_any, seeds=spread(texts, 400, length_max=600), tokens=_WORDS, length_max=1024
    ),
}
