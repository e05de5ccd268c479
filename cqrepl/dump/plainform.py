"""The bare dump: what Java's `WireDumper` prints for the bytes of a file, in bounded memory.

Theory of operation. `wire.dump_text` does the same for bytes that are all there. Here the file
is read forward once; only how much is left behind its end must be known, so that is counted last.
A very long document would need as much memory as it is long: behind `BODY_MAX` that is refused.

Java counts the documents from 0, up to and including the one at hand, meta-data not counted.
"""

from collections.abc import Iterator
from typing import Final

from cqrepl.dump.documentreader import CutOff, Readable
from cqrepl.dump.quickform import HEX_KIND, Chunk
from wire.errors import WireError
from wire.header import END_OF_FILE, HEADER_BYTES, NOT_COMPLETE, body_length, is_metadata, is_ready
from wire.text.print_documents import document_text

BODY_MAX: Final = 64 << 20


def plain_texts(file: Readable, *, padding: bool) -> Iterator[str]:
    """Pieces of the dump of everything in `file`.

    Args:
        padding: documents start at multiples of 4, as in a queue file.

    Raises:
        WireError: a document is cut off, or too long to be shown; after all before it.
    """
    form = _PlainForm(padding=padding)
    chunk = Chunk(form, file, 0)
    while True:
        yield chunk.run()
        if chunk.grow():
            continue
        word = chunk.next_word()
        if word is None:
            return
        yield form.line(chunk.position, word)
        if word == 0:
            yield _remaining(chunk.count_rest())
            return
        try:
            text = _next_text(chunk, word)
        except CutOff as error:
            length = body_length(word)
            yield f"#  has a 4 byte size prefix, {length} > {error.came} len is {length}"
            raise
        yield text
        if body_length(word) == 0:
            yield _remaining(chunk.count_rest() + HEADER_BYTES)
            return


def _next_text(chunk: Chunk, word: int) -> str:
    position, before = chunk.position, chunk.before
    document = chunk.next_document()
    assert document is not None
    if document.missing_bytes:
        reason = f"a body of at most {BODY_MAX} bytes was expected, header 0x{word:08x} came"
        raise WireError(reason, position)
    return document_text(document.body, word, offset=position + HEADER_BYTES, before=before)


def _remaining(count: int) -> str:
    return f"...\n# {count} bytes remaining\n"


class _PlainForm:
    body_max: Final = BODY_MAX
    folds_unused: Final = False

    def __init__(self, *, padding: bool) -> None:
        self.aligned = padding
        self._number = -1

    def hex_line(self, position: int, length: int) -> str:
        return self.line(position, length) + HEX_KIND

    def line(self, position: int, word: int) -> str:
        """The line before a document; there is none before the first one."""
        self._number += is_ready(word) and not is_metadata(word)
        if position == 0 or word == 0:
            return ""
        note = f" or {self._number + 1}" if word & NOT_COMPLETE else ""
        if word == END_OF_FILE:
            note = " EOF"
        return f"# position: {position}, header: {self._number}{note}\n"
