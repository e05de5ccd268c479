"""The documents of a queue file or table store, told from a stream by their first document.

Theory of operation. A store file begins with a meta-data document whose first item is the event
`header` with a typed value: `SCQStore` in a queue file, `STStore` in a table store. Nothing else
starts like that, so the name of the file is of no interest. Headers stand at multiples of 4, but in
queue files of version 4, whose header has no `dataFormat` 1. The documents end at the first word
that is 0, at the end-of-file word, or at a place that a writer reserved without a length; what
stands behind is of no meaning. Files are sparse and much longer than what is used.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from cqrepl.dump.documentreader import Document, DocumentReader, Readable
from cqrepl.dump.streams import walk_stream
from wire.aliases import short_name
from wire.errors import WireError
from wire.header import is_metadata, is_ready
from wire.reader import Reader

QUEUE_TYPE: Final = "SCQStore"
TABLE_TYPE: Final = "STStore"
_HEADER_EVENT: Final = "header"
_DATA_FORMAT: Final = "dataFormat"
_ALIGNED_FORMAT: Final = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreFileHead:
    """The facts that the first document of a store file tells about those that follow."""

    type_name: str
    aligned: bool


def read_documents(file: Readable) -> Iterator[Document]:
    """The documents of a queue file, table store or stream, as its first document shows which.

    Raises:
        WireError: where the input is damaged, or not of these kinds; after everything before it.
    """
    reader = DocumentReader(file)
    first = read_first(reader)
    if first is None:
        return
    header = store_header(first)
    if header is None:
        yield from walk_stream(first, reader)
    else:
        yield from walk_store(first, header, reader)


def read_first(reader: DocumentReader) -> Document | None:
    """The first document; None when the input is empty.

    Raises:
        WireError: there is none.
    """
    try:
        return reader.next_document(aligned=False)
    except WireError as error:
        raise WireError(
            f"a queue file, table store or stream of documents was expected: {error.reason}",
            error.position,
        ) from error


def store_header(first: Document) -> StoreFileHead | None:
    """The head of a store file, read from its first document; None when this is no store file."""
    if not (is_ready(first.word) and is_metadata(first.word)):
        return None
    try:
        return _parse(Reader(first.body))
    except WireError:
        return None


def walk_store(
    first: Document, header: StoreFileHead, reader: DocumentReader
) -> Iterator[Document]:
    """The documents of a store file up to and including the word that says there are no more."""
    document: Document | None = first
    while document is not None:
        yield document
        if document.is_last:
            return
        document = reader.next_document(aligned=header.aligned)


def _parse(reader: Reader) -> StoreFileHead | None:
    if reader.read_name() != _HEADER_EVENT:
        return None
    type_name = short_name(reader.read_type() or "")
    if type_name == TABLE_TYPE:
        return StoreFileHead(type_name=TABLE_TYPE, aligned=True)
    if type_name != QUEUE_TYPE:
        return None
    data_format = reader.read_block().read_fields().get(_DATA_FORMAT)
    aligned = data_format is not None and data_format.read_int() == _ALIGNED_FORMAT
    return StoreFileHead(type_name=QUEUE_TYPE, aligned=aligned)
