"""The kind of an input, told by its first bytes, and the documents of the input.

capture    pcap or pcapng: the connections in it
store      queue file or table store: its documents with their indexes
stream     documents without gaps: one direction of a connection
"""

import contextlib
import io
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Final

from cqrepl.dump.documentreader import Document, DocumentReader, Pushed, Readable
from cqrepl.dump.entries import Entry, Remark
from cqrepl.dump.excerptnumbers import Cycle, Numbering, cycle_of_file
from cqrepl.dump.files import (
    QUEUE_TYPE,
    StoreFileHead,
    read_documents,
    read_first,
    store_header,
    walk_store,
)
from cqrepl.dump.pcap import MAGIC_BYTES, is_capture
from cqrepl.dump.streams import walk_stream
from wire.errors import WireError

if TYPE_CHECKING:
    from cqrepl.queue.files.storefile import Place

_SNIFFED_BYTES: Final = 1 << 16


class Input:
    """An open input.

    Args:
        path: of a regular file; None for a pipe.
    """

    def __init__(self, file: Readable, path: Path | None) -> None:
        self._path = path
        magic = file.read(MAGIC_BYTES)
        self.is_capture = is_capture(magic)
        self._file = Pushed(magic, file)
        self._reader = DocumentReader(self._file)
        self._header: StoreFileHead | None = None
        self._first: Document | None = None

    def open_documents(self) -> StoreFileHead | None:
        """Reads the first document: the header of a store file; None for a stream.

        Raises:
            WireError: there is none.
        """
        self._first = read_first(self._reader)
        self._header = None if self._first is None else store_header(self._first)
        return self._header

    def capture(self) -> Iterator[Entry | Remark]:
        """The documents of a capture."""
        from cqrepl.dump.captures import read_capture

        return read_capture(self._file)

    def entries(self, index_first: int | None = None) -> Iterator[Entry]:
        """The documents of a store file or stream, after `open_documents`.

        Args:
            index_first: excerpts before this one need not be given.

        Raises:
            WireError: the input is damaged; after everything before the damage.
        """
        if self._first is None:
            return
        if self._header is None:
            yield from self._stream_entries(self._first)
        else:
            yield from self._store_entries(self._first, self._header, index_first)

    def numbering(self) -> Numbering:
        """Counts the excerpts of a store file."""
        if self._header is None or self._header.type_name != QUEUE_TYPE:
            return Numbering(None, None)
        return Numbering(None if self._path is None else cycle_of_file(self._path))

    def texts(self) -> Iterator[str]:
        """The text of a store file in large pieces, the same as of its `entries`."""
        from cqrepl.dump.annotatedform import AnnotatedForm
        from cqrepl.dump.quickform import quick_texts

        assert self._first is not None
        assert self._header is not None
        form = AnnotatedForm(self.numbering(), aligned=self._header.aligned)
        yield form.whole(self._first)
        yield from quick_texts(form, self._file, self._reader.position)

    def plain_texts(self) -> Iterator[str]:
        """The bare dump of all bytes, as Java prints it; in place of `open_documents`."""
        from cqrepl.dump.plainform import plain_texts

        beginning = self._file.read(_SNIFFED_BYTES)
        try:
            first = DocumentReader(io.BytesIO(beginning)).next_document(aligned=False)
        except WireError:
            first = None
        header = None if first is None else store_header(first)
        padding = header is not None and header.aligned
        return plain_texts(Pushed(beginning, self._file), padding=padding)

    def typed_texts(self) -> Iterator[str]:
        """Text of all documents that the same bytes can be made of; in place of `open_documents`.

        Raises:
            WireError: the input is damaged; after everything before it.
        """
        from cqrepl.dump.typedform import typed_texts

        return typed_texts(read_documents(self._file))

    def _stream_entries(self, first: Document) -> Iterator[Entry]:
        from cqrepl.dump.conversation import ConversationRouter

        router = ConversationRouter()
        for document in walk_stream(first, self._reader):
            yield Entry(document=document, said=router.read(0, document, None))

    def _store_entries(
        self, first: Document, header: StoreFileHead, index_first: int | None
    ) -> Iterator[Entry]:
        numbering = self.numbering()
        yield numbering.entry(first)
        with contextlib.ExitStack() as stack:
            reader = self._reader
            place = self._place(numbering.cycle, index_first)
            if place is not None and place.position > reader.position:
                assert self._path is not None
                file = stack.enter_context(self._path.open("rb"))
                file.seek(place.position)
                reader = DocumentReader(file, place.position)
                numbering.sequence = place.sequence
            yield from _rest(header, reader, numbering)

    def _place(self, cycle: Cycle | None, index_first: int | None) -> "Place | None":
        """The place of an excerpt, found by the index pages; None when that cannot be told."""
        from cqrepl.queue.files.indextable import Indexing
        from cqrepl.queue.files.storefile import StoreFile
        from cqrepl.queue.format.errors import QueueError

        if cycle is None or index_first is None or self._path is None:
            return None
        sequence = index_first - cycle.index_first
        if not 0 < sequence < 1 << cycle.shift:
            return None
        try:
            store = StoreFile.open(self._path, cycle.number, writable=False)
        except (QueueError, OSError):
            return None
        if store is None:
            return None
        try:
            return store.walk(Indexing(store).place_before(sequence), sequence).place
        except QueueError:
            return None  # the plain way shows everything up to the damage
        finally:
            store.close()


def _rest(header: StoreFileHead, reader: DocumentReader, numbering: Numbering) -> Iterator[Entry]:
    document = reader.next_document(aligned=header.aligned)
    if document is not None:
        for each in walk_store(document, header, reader):
            yield numbering.entry(each)
