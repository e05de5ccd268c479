"""`wire-dump --typed`: text that `wire-dump --encode` makes the same bytes of.

Theory of operation. The usual text shows a number, and not how many bytes it has. Here each number
of a fixed width has a type before it. What text cannot tell all the same, such as a length that has
more bytes than it needs, is found by encoding the text of each document: where other bytes come, it
is shown as a hex dump. Places of documents are left out: text with places is made to fit them.
"""

from collections.abc import Iterable, Iterator
from contextlib import suppress

from cqrepl.dump.documentreader import Document
from wire.errors import WireError
from wire.header import HEADER_BYTES, NOT_COMPLETE, is_metadata
from wire.text.parse_documents import encode_text
from wire.text.print_documents import document_text, hex_dump
from wire.text.print_items import render_items


def typed_texts(documents: Iterable[Document]) -> Iterator[str]:
    """The text of each document.

    Raises:
        WireError: one is too long to be shown, or cut off; after all before it.
    """
    for document in documents:
        if document.missing_bytes:
            reason = f"a shorter body was expected, header 0x{document.word:08x} came"
            raise WireError(reason, document.position)
        if not document.is_last:
            yield _typed_text(document)


def _typed_text(document: Document) -> str:
    ready = "not-ready-" if document.word & NOT_COMPLETE else ""
    meta = "meta-" if is_metadata(document.word) else ""
    first = f"--- !!{ready}{meta}data #binary\n"
    data = document.word.to_bytes(HEADER_BYTES, "little") + document.body
    for text in _texts(document, first):
        with suppress(WireError):
            if encode_text(text) == data:
                return text
    return first + hex_dump(document.body, HEADER_BYTES)


def _texts(document: Document, first: str) -> Iterator[str]:
    """Those that may do: with types; as usual, which a body of text has."""
    with suppress(WireError):
        text = render_items(document.body, fold_unused=False, is_typed=True)
        yield first + text + ("" if text.endswith("\n") else "\n")
    yield document_text(document.body, document.word, offset=HEADER_BYTES)
